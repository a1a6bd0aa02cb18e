# SPDX-License-Identifier: Apache-2.0
"""How well the NFS gateway keeps limits and shares, counted by its clients, and what it holds in
memory; for bench/nfs. Each function measures once, and returns errors in percent or a number that
can be compared with a limit."""
import contextlib
import json
import os
import pathlib
import resource
import select
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
for part in "clients", "nfs":
    sys.path.insert(0, str(ROOT / "tests" / part))
import ganesha  # noqa: E402
import gateway_test  # noqa: E402
import rpc  # noqa: E402
from server import RELEASE  # noqa: E402

PEER = ROOT / "build/release/bench/nfs_peer"
SECONDS = 10
WARM = 1.0  # seconds that are not counted, so that the burst is used up
MIB = 1 << 20
CAPACITY = 2000


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


def gateway(port, *arguments):
    return ganesha.Gateway(port, *arguments, binary=RELEASE)


@contextlib.contextmanager
def memory_server():
    """Its port."""
    port = free_port()
    with subprocess.Popen([PEER, "server", str(port)]) as process:
        try:
            ganesha.await_port(port)
            yield port
        finally:
            process.terminate()


class Load:
    """A client, in a process of its own."""

    def __init__(self, port, uid, operation="getattr", size=0, depth=32, seconds=SECONDS):
        self.seconds = seconds
        self.process = subprocess.Popen(
            [PEER, "load", str(port), operation, str(size), str(depth), str(seconds + WARM),
             str(uid)], stdout=subprocess.PIPE, text=True)

    def wait(self):
        with self.process as process:
            told = json.loads(process.stdout.read())
        self.began, self.each = told["began_s"], told["each_10ms"]
        self.p99_us = told["p99_us"]
        return self

    def between(self, start, end):
        """Calls a second between two times of the clock."""
        at, to = (round((when - self.began) * 100) for when in (start, end))
        return sum(self.each[at:to]) / ((to - at) / 100)

    def exact_rate(self):
        """Between the first and the last reply: for a few calls."""
        at = [i for i, count in enumerate(self.each) if count]
        return (sum(self.each) - 1) / ((at[-1] - at[0]) / 100)


def rates(loads):
    """Calls a second of each load while all of them ran, after their start."""
    start = max(load.began for load in loads) + WARM
    end = min(load.began + load.seconds + WARM for load in loads)
    return [load.between(start, end) for load in loads]


def rate_of(*loads):
    return sum(rates([load.wait() for load in loads]))


def percent(got, wanted):
    return 100 * abs(got - wanted) / wanted


def limit_of_calls(server, rate):
    """The error of a limit over two connections."""
    few = rate == 1
    with gateway(server, "--adaptive", "off", "--rule",
                 f"start r uid={{1000}} rate={rate}" + (" burst=1" if few else "")) as weir:
        if few:
            return percent(Load(weir.port, 1000).wait().exact_rate(), rate)
        return percent(rate_of(*(Load(weir.port, 1000, depth=64) for _ in range(2))), rate)


def limit_of_bytes(server, size, rate):
    with gateway(server, "--adaptive", "off", "--rule",
                 f"start r uid={{1000}} bps={rate}B") as weir:
        loads = [Load(weir.port, 1000, "read", size, depth=8) for _ in range(2)]
        return percent(rate_of(*loads) * size, rate)


@contextlib.contextmanager
def sharing(server, capacity, nodes):
    """A gateway whose users have these weights."""
    with tempfile.NamedTemporaryFile("w", suffix=".jobs") as jobs:
        jobs.writelines(f"uid.{uid} {count}\n" for uid, count in nodes.items())
        jobs.flush()
        with gateway(server, "--capacity", str(capacity), "--jobs", jobs.name) as weir:
            yield weir


def shares(server):
    """The largest error of the shares of users of the weights 1, 2 and 4."""
    with sharing(server, CAPACITY, {1: 1, 2: 2, 4: 4}) as weir:
        loads = {uid: Load(weir.port, uid, depth=64) for uid in (1, 2, 4)}
        got = rates([load.wait() for load in loads.values()])
    return max(percent(one / sum(got), uid / 7) for uid, one in zip(loads, got))


def alone(server):
    """What a user alone gets with shares, of what it gets without."""
    def free(mode):
        return gateway(server, "--adaptive", mode, "--rule",
                       "start free jobid={uid.*} rate=999999")

    with free("on") as shared, free("off") as plain:
        got = [rate_of(Load(weir.port, 1, seconds=2)) for weir in (shared, plain)]
    return 100 * got[0] / got[1]


def lending(server):
    """Milliseconds until a user gets the capacity of another that has stopped: the replies of 50 ms
    are those of the whole capacity."""
    with sharing(server, CAPACITY, {1: 1, 2: 1}) as weir:
        stays = Load(weir.port, 1, depth=64, seconds=6)
        stops = Load(weir.port, 2, depth=64, seconds=3).wait()
        stays.wait()
    end = stops.began + max(i for i, count in enumerate(stops.each) if count) / 100
    first = int((end - stays.began) * 100)
    for at in range(first, len(stays.each) - 5):
        if sum(stays.each[at:at + 5]) >= 0.9 * CAPACITY / 20:
            return 10 * (at - first)
    return float("inf")


def neighbours(server):
    """What a user gets beside a limited one with a full queue, of what it gets alone."""
    with gateway(server, "--adaptive", "off", "--rule", "start r uid={2000} rate=100",
                 "--rule", "start free uid={1000} rate=999999") as weir:
        alone_rate = rate_of(Load(weir.port, 1000, seconds=2))
        limited = Load(weir.port, 2000, depth=200, seconds=4)
        beside = rate_of(Load(weir.port, 1000, seconds=2))
        limited.wait()
    return 100 * beside / alone_rate


class Answers:
    """A server of many connections that answers each call with success."""

    def __enter__(self):
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=4096)
        self.port = self.listener.getsockname()[1]
        self.poll = select.epoll()
        self.poll.register(self.listener, select.EPOLLIN)
        self.connections = {}
        threading.Thread(target=self.serve, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.poll.close()
        self.listener.close()
        for one in self.connections.values():
            one.close()

    def serve(self):
        with contextlib.suppress(OSError, ValueError):
            while True:
                for number, _ in self.poll.poll():
                    self.turn(number)

    def turn(self, number):
        if number == self.listener.fileno():
            one, _ = self.listener.accept()
            self.connections[one.fileno()] = one
            self.poll.register(one, select.EPOLLIN)
        elif record := self.connections[number].recv(65536):
            self.connections[number].sendall(rpc.reply(*struct.unpack(">I", record[4:8])))
        else:
            self.poll.unregister(number)
            self.connections.pop(number).close()


def idle_connections(count=10_000):
    """Bytes of a connection that has made a call; the number may be limited by that of files."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    count = min(count, most // 2 - 200)
    with Answers() as answers, \
            gateway(answers.port, "--connections", str(count + 10),
                    "--memory", "4GiB") as weir, \
            contextlib.ExitStack() as clients:
        before = weir.memory()
        for _ in range(count):
            client = clients.enter_context(rpc.Client(weir.port))
            client.send(rpc.null(1))
            client.reply()
        assert len(answers.connections) == count, len(answers.connections)
        return (weir.memory() - before) / count


def classes(server, count=50_000):
    """Bytes of a class."""
    with gateway(server, "--classes", str(count + 1000), "--adaptive", "off", "--rule",
                 "start each jobid={uid.*} rate=100000 by=uid") as weir, \
            rpc.Client(weir.port) as client:
        before = weir.memory()
        for first in range(0, count, 500):
            client.send(*(rpc.getattr3(xid, b"a file handle of 32 bytes, about", 100_000 + xid)
                          for xid in range(first, first + 500)))
            for _ in range(500):
                client.reply()
        return (weir.memory() - before) / count


def cut_calls(nfs, count=10_000):
    """Cuts calls of one session, which must stay in step: the error of the limit in percent, and
    the longest stat of another user in ms."""
    (nfs.export / "file").write_bytes(bytes(4096))
    with gateway(nfs.port, "--adaptive", "off", "--rule",
                 "start r uid={1000} rate=50 burst=5") as weir:
        session = gateway_test.Session(weir.port)
        load = gateway_test.Mount(session, session.handle_of(b"export", b"file"), readers=200)
        load.run(1)
        load.clear()
        while weir.metric("delayed_calls") < count:
            load.run(1)
        load.run(1)
        assert not load.failed, load.failed
        waits = sorted(load.stat_seconds)
        return percent(load.done / load.seconds, 50), 1000 * waits[int(len(waits) * 0.99)]


def writer_on_the_wire(nfs, rate=10_000_000, seconds=6):
    """Bytes that a writer of version 4.1 sends, in bytes that its limit admits."""
    (nfs.export / "written").write_bytes(b"")
    os.chmod(nfs.export / "written", 0o666)
    with gateway(nfs.port, "--adaptive", "off", "--rule",
                 f"start r uid={{1000}} bps={rate}B") as weir:
        session = gateway_test.Session(weir.port)
        handle = session.handle_of(b"export", b"written")
        write = [rpc.u32(22) + rpc.opaque(handle),
                 rpc.u32(38) + bytes(16) + rpc.u64(0) + rpc.u32(0) + rpc.opaque(bytes(MIB))]
        slots, due, busy = list(range(session.slots)), [0.0] * session.slots, {}
        sent = done = 0
        end = time.monotonic() + seconds
        while (now := time.monotonic()) < end:
            while slots and due[0] <= now:
                due.pop(0)
                slot = slots.pop(0)
                busy[session.send(slot, write, 1000)] = slot
                sent += MIB
            if not busy or not gateway_test.is_ready(session.client.socket):
                time.sleep(0.001)
                continue
            xid, status = session.status()
            slots.append(busy.pop(xid))
            done += MIB if status == 0 else 0
            assert status in (0, rpc.DELAY), status
            due.append(time.monotonic() + (0 if status == 0 else 0.11))
            due.sort()
        return sent / max(done, 1)
