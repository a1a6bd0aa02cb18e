# SPDX-License-Identifier: Apache-2.0
"""Clients that break the protocol, flood, stall and vanish. Each attack runs until its process is
ended.

An attack is a function attack(server, choose): a Target and a random.Random. It ends when it has
nothing left to try, and otherwise continues as long as it can.
"""
import contextlib
import dataclasses
import itertools
import socket
import struct
import time

import server as s

MIB = 1 << 20
GIB = 1 << 30
TRIM, WRITE_ZEROES, BLOCK_STATUS = 4, 6, 7
OPT_STRUCTURED_REPLY, OPT_SET_META_CONTEXT = 8, 10
SILENT = 140           # connections that do not read
IDLE = 650             # connections to the control port that send nothing
REPLIES_MAX = 1 << 20


@dataclasses.dataclass
class Target:
    """The addresses of a server."""
    path: str            # of its socket
    control_port: int
    served: int = 0      # how often an attack was started, so that names differ

    def connect(self, timeout=s.STUCK):
        client = socket.socket(socket.AF_UNIX)
        client.settimeout(timeout)
        client.connect(self.path)
        return client


def hold(clients):
    """Waits until the process is ended."""
    while clients:
        time.sleep(1)


def bad_requests_without_reading(server, _):
    """As many as a connection may have waiting, on many connections; replies are never read."""
    clients = []
    bad = b"".join(s.request(77, cookie) for cookie in range(1023))
    for _ in range(SILENT):
        client = server.connect()
        s.enter(client)
        client.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            client.sendall(bad)
        clients.append(client)
    while True:  # as long as there is room
        for client in clients:
            with contextlib.suppress(BlockingIOError, ConnectionError):
                client.send(bad)
        time.sleep(0.05)


def large_reads_without_reading(server, _):
    clients = []
    reads = b"".join(s.request(s.READ, cookie, 0, MIB) for cookie in range(64))
    for _ in range(40):
        client = server.connect()
        s.enter(client, b"file")
        client.sendall(reads)
        clients.append(client)
    hold(clients)


def half_writes(server, choose):
    """Large writes of which a part is never sent."""
    clients = []
    for _ in range(60):
        client = server.connect()
        s.enter(client, b"file")
        client.sendall(s.request(s.WRITE, 1, 0, 8 * MIB, payload=bytes(choose.randrange(1, 65536))))
        clients.append(client)
    hold(clients)


def idle_control_connections(server, _):
    hold([socket.create_connection(("127.0.0.1", server.control_port)) for _ in range(IDLE)])


def invented_jobs(server, _):
    """A new job id with every connection."""
    for number in itertools.count():
        with server.connect() as client:
            s.enter(client, f"a/job=made-up.{server.served}.{number}".encode())
            client.sendall(s.request(s.READ, 1, 0, 512))
            s.simple_reply(client, 512)


def meta(kind, name):
    export = b"large"
    return s.option(kind, struct.pack(">I", len(export)) + export + struct.pack(">II", 1, len(name))
                    + name)


def enter_structured(client):
    s.greet(client)
    client.sendall(s.option(OPT_STRUCTURED_REPLY) + meta(OPT_SET_META_CONTEXT, b"base:allocation"))
    kinds = []
    while kinds.count(1) < 2:
        kinds.append(s.option_reply(client)[1])
        assert kinds[-1] < 1 << 31, hex(kinds[-1])
    s.enter_after_greeting(client, b"large")


def block_status_flood(server, choose):
    """Queries about a whole large sparse export, as fast as they are accepted."""
    client = server.connect()
    enter_structured(client)
    while True:
        client.sendall(b"".join(
            s.request(BLOCK_STATUS, cookie, choose.randrange(100 * GIB // 4096 - 1) * 4096, 4096)
            if cookie % 2 else s.request(BLOCK_STATUS, cookie, 0, 0xfffff000)
            for cookie in range(100)))
        received = 0
        while received < 100:
            magic, flags, kind, _, length = struct.unpack(">IHHQI", s.receive(client, 20))
            assert magic == 0x668e33ef, hex(magic)
            s.receive(client, length)
            received += flags & 1
            assert kind in (0, 5) or kind >= 1 << 15, kind


def huge_trims(server, choose):
    """Trims and zeroes of 2 GiB over data in memory, which is written again in between."""
    client = server.connect()
    s.enter(client, b"large")
    for cookie in itertools.count():
        command = choose.choice((TRIM, WRITE_ZEROES))
        client.sendall(s.request(command, cookie, 0, 2 * GIB))
        s.simple_reply(client)
        for at in range(0, 64 * MIB, MIB):
            client.sendall(s.request(s.WRITE, cookie, choose.randrange(2048) * MIB, MIB,
                                     payload=bytes([at >> 20 & 0xff]) * MIB))
            s.simple_reply(client)


def handshake_nonsense(server, choose):
    good = struct.pack(">I", 3) + s.go(b"a") + s.option(s.OPT_LIST) + \
        s.option(OPT_STRUCTURED_REPLY) + meta(OPT_SET_META_CONTEXT, b"base:allocation")
    for number in itertools.count():
        with contextlib.suppress(OSError), server.connect(timeout=5) as client:
            data = bytearray(good if number % 2 else choose.randbytes(choose.randrange(400)))
            for _ in range(choose.randrange(8) if data else 0):
                data[choose.randrange(len(data))] = choose.randrange(256)
            client.sendall(bytes(data[:choose.randrange(len(data) + 1)]))
            if choose.randrange(2):
                client.shutdown(socket.SHUT_WR)
                while client.recv(65536):
                    pass


def vanishing(server, choose):
    """Disconnects in the middle of anything."""
    text = struct.pack(">I", 3) + s.go(b"file") + b"".join(
        s.request(s.WRITE, i, i * 4096, 40960, payload=bytes(40960)) +
        s.request(s.READ, 100 + i, i * 8192, 65536) + s.request(s.FLUSH, 200 + i)
        for i in range(20))
    while True:
        with contextlib.suppress(OSError), server.connect() as client:
            client.sendall(text[:choose.randrange(len(text))])
            if choose.randrange(2):
                client.recv(choose.randrange(1, 100_000))


ALL = (bad_requests_without_reading, large_reads_without_reading, half_writes,
       idle_control_connections, invented_jobs, block_status_flood, huge_trims, handshake_nonsense,
       vanishing)
