# SPDX-License-Identifier: Apache-2.0
"""The client for programs without asyncio: an AsyncClient on the thread of the package.

All clients of a process share one event loop: gRPC complains about several.
"""
import asyncio
import contextlib
import functools
import threading

from .aio import AsyncClient


@functools.lru_cache(maxsize=None)
def shared_loop():
    loop = asyncio.new_event_loop()
    threading.Thread(target=loop.run_forever, name="weir_lock", daemon=True).start()
    return loop


class Lock:
    """A lock that is held until its block ends. `fence` grows with every holder."""

    def __init__(self, held):
        self._held = held
        self.name, self.fence = held.name, held.fence

    @property
    def is_lost(self):
        return self._held.is_lost

    def check(self):
        """Raises LockLost if another client may hold the lock."""
        self._held.check()


class Client:
    """See the package and AsyncClient."""

    def __init__(self, servers, *, tls=None, job=""):
        self._loop = shared_loop()
        self._client = self._run(self._open(servers, tls, job))

    @staticmethod
    async def _open(servers, tls, job):
        return await AsyncClient(servers, tls=tls, job=job).__aenter__()

    def _run(self, coroutine):
        future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self, patience=2.0):
        """Returns all locks. Waits at most `patience` seconds for the server."""
        self._run(self._client.close(patience))

    @contextlib.contextmanager
    def lock(self, name, *, mode="exclusive", timeout=None):
        """Holds a lock for the time of a block; see acquire()."""
        held = self.acquire(name, mode=mode, timeout=timeout)
        try:
            yield held
        finally:
            self.release(held)

    def acquire(self, name, *, mode="exclusive", timeout=None):
        """Waits for a lock, for at most `timeout` seconds; 0: does not wait for other holders."""
        return Lock(self._run(self._client.acquire(name, mode=mode, timeout=timeout)))

    def release(self, lock):
        async def give_back():
            self._client.release(lock._held)
        self._run(give_back())
