# SPDX-License-Identifier: Apache-2.0
"""The client for asyncio. One task keeps a stream to the active server; see state.py."""
import asyncio
import contextlib
import pathlib
import time

import grpc
import grpc.aio

from . import lock_pb2 as pb
from . import lock_pb2_grpc
from .errors import LockError, LockLost, LockRefused, LockTimeout
from .state import MODES, NAME_MAX, Held, State

WELCOME_PATIENCE = 2.0  # seconds for the first answer of a server
BACKOFF_MIN, BACKOFF_MAX = 0.05, 0.2  # after all servers were tried
# A server that cannot be reached is tried again soon: a lease lasts seconds.
CHANNEL = [("grpc.initial_reconnect_backoff_ms", 100), ("grpc.min_reconnect_backoff_ms", 1000),
           ("grpc.max_reconnect_backoff_ms", 1000), ("grpc.use_local_subchannel_pool", 1),
           ("grpc.enable_http_proxy", 0)]


def now():
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class AsyncLock:
    """A lock that is held until its block ends. `fence` grows with every holder."""

    def __init__(self, client, held):
        self._client = client
        self._held = held
        self.name = held.name.decode(errors="replace")
        self.fence = held.fence
        self.lost = asyncio.Event()  # set when it is lost

    @property
    def is_lost(self):
        return self._held.state != Held.HELD or now() >= self._client.lease_end

    def check(self):
        """Raises LockLost if another client may hold the lock."""
        if self.is_lost:
            raise LockLost(f"{self.name!r} is lost")


class AsyncClient:
    """See the package. `tls` is a folder with ca-cert.pem, client-cert.pem and client-key.pem."""

    def __init__(self, servers, *, tls=None, job=""):
        self._servers = servers.split(",")
        for server in self._servers:
            if not server.startswith("unix:") and not server.rpartition(":")[0]:
                raise ValueError(f"{server!r} is not an address: "
                                 "expected ADDRESS:PORT or unix:PATH")
        self._tls = pathlib.Path(tls) if tls else None
        self._state = State(job)
        self._wake = asyncio.Event()
        self._task = None
        self._trouble = ""

    @property
    def lease_end(self):
        return self._state.lease_end

    async def __aenter__(self):
        self._task = asyncio.create_task(self._keep())
        return self

    async def __aexit__(self, *_):
        await self.close()

    async def close(self, patience=2.0):
        """Returns all locks. Waits at most `patience` seconds for the server."""
        self._state.leave()
        self._wake.set()
        if self._task is not None:
            with contextlib.suppress(asyncio.TimeoutError, asyncio.CancelledError):
                await asyncio.wait_for(self._task, patience if self._state.is_welcome else 0)
            self._task = None

    @contextlib.asynccontextmanager
    async def lock(self, name, *, mode="exclusive", timeout=None):
        """Holds a lock for the time of a block; see acquire()."""
        held = await self.acquire(name, mode=mode, timeout=timeout)
        try:
            yield held
        finally:
            self.release(held)

    async def acquire(self, name, *, mode="exclusive", timeout=None):
        """Waits for a lock, for at most `timeout` seconds; 0: does not wait for other holders."""
        if mode not in MODES:
            raise ValueError(f"{mode!r} is not a mode: expected one of {', '.join(MODES)}")
        raw = name.encode() if isinstance(name, str) else bytes(name)
        if not 1 <= len(raw) <= NAME_MAX:
            raise ValueError(f"the name of a lock has 1 to {NAME_MAX} bytes")
        answered = asyncio.get_running_loop().create_future()
        waiting = []

        def tell(held):
            if not answered.done():
                answered.set_result(held.state)
            elif waiting and held.state == Held.LOST:
                waiting[0].lost.set()

        held = self._state.enqueue(raw, MODES[mode], timeout == 0, tell)
        self._wake.set()
        try:
            state = await asyncio.wait_for(answered, 10 if timeout == 0 else timeout)
        except asyncio.TimeoutError:
            self._give_back(held)
            raise LockTimeout(f"{name!r} was not granted within {timeout} s{self._why()}") from None
        except BaseException:
            self._give_back(held)
            raise
        if state != Held.HELD:
            self._give_back(held)
            raise self._refusal(name, held)
        waiting.append(AsyncLock(self, held))
        return waiting[0]

    def release(self, lock):
        self._give_back(lock._held)

    def _give_back(self, held):
        self._state.release(held)
        self._wake.set()

    def _why(self):
        return "" if self._state.is_welcome else f": {self._trouble or 'no server answers'}"

    @staticmethod
    def _refusal(name, held):
        if held.state == Held.LOST:
            return LockLost(f"{name!r} is lost")
        if held.why == pb.ServerOp.WOULD_WAIT:
            return LockTimeout(f"{name!r} is held by another client")
        what = pb.ServerOp.Refusal.Name(held.why)
        return LockRefused(f"{name!r} is refused: {what}")

    # ---- the stream ----

    def _channel(self, server):
        if self._tls is None:
            return grpc.aio.insecure_channel(server, options=CHANNEL)
        credentials = grpc.ssl_channel_credentials(
            (self._tls / "ca-cert.pem").read_bytes(), (self._tls / "client-key.pem").read_bytes(),
            (self._tls / "client-cert.pem").read_bytes())
        return grpc.aio.secure_channel(server, credentials, options=CHANNEL)

    async def _keep(self):
        expiring = asyncio.create_task(self._expire())
        at, failed, backoff = 0, 0, BACKOFF_MIN
        try:
            while True:
                server = self._servers[at]
                try:
                    await self._attach(server)
                except (grpc.RpcError, OSError, asyncio.TimeoutError, LockError) as error:
                    details = error.details() if isinstance(error, grpc.RpcError) else str(error)
                    self._trouble = f"{server}: {details}"
                if self._state.is_welcome:
                    failed, backoff = 0, BACKOFF_MIN
                self._state.disconnected()
                if self._state.is_leaving:
                    return
                at = (at + 1) % len(self._servers)
                failed += 1
                if failed % len(self._servers) == 0:
                    await asyncio.sleep(backoff)
                    backoff = min(2 * backoff, BACKOFF_MAX)
        finally:
            await self._end(expiring)

    async def _expire(self):
        """Locks are lost at the end of the lease, whether or not a server answers."""
        while True:
            left = self._state.lease_end - now()
            if left <= 0:
                self._state.expire(now())
            await asyncio.sleep(min(max(left, 0.01), 0.2))

    async def _attach(self, server):
        async with self._channel(server) as channel:
            call = lock_pb2_grpc.LocksStub(channel).Attach()
            self._state.connected()
            sending = asyncio.create_task(self._send(call))
            try:
                while True:
                    batch = await asyncio.wait_for(call.read(), self._patience())
                    if batch is grpc.aio.EOF:
                        raise LockError(await call.details() or "the server has ended the stream")
                    self._state.receive(batch, now())
                    self._wake.set()
                    if self._state.is_told_to_go:
                        return
            finally:
                call.cancel()
                await self._end(sending)

    @staticmethod
    async def _end(task):
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    def _patience(self):
        """A keep-alive is answered every quarter of the lease; the other half is for others."""
        return self._state.lease / 2 if self._state.is_welcome else WELCOME_PATIENCE

    async def _send(self, call):
        while True:
            self._wake.clear()
            if self._state.has_message(now()):
                await call.write(self._state.take(now()))
                continue
            due = self._state.due() - now() if self._state.is_welcome else WELCOME_PATIENCE
            # Not wait_for(): it may swallow the cancellation that ends this task.
            timer = asyncio.get_running_loop().call_later(max(due, 0.001), self._wake.set)
            try:
                await self._wake.wait()
            finally:
                timer.cancel()
