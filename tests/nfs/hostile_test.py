# SPDX-License-Identifier: Apache-2.0
"""NFS clients and servers that break the protocol, vanish, stall or flood, with `weir nfs` between
them: bounds hold, other clients are served, and the log names the client and the cause."""
import contextlib
import os
import pathlib
import random
import re
import resource
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import ganesha  # noqa: E402
import rpc  # noqa: E402
import server  # noqa: E402
from measured import MeasuredTest  # noqa: E402

MIB = 1 << 20
AT_ONCE = 5  # seconds, on a busy machine and with sanitizers
ONE_PER_SECOND = ("--adaptive", "off", "--rule", "start all jobid={uid.*} rate=1 burst=1")


def setUpModule():
    if os.environ.get("WEIR_NAMESPACE") == "own":
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 16384), most))


def xid_of(message):
    return struct.unpack(">I", message[:4])[0]


def reset(client):
    """Resets the connection, like a machine that restarts."""
    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    client.socket.close()


class Hostile(unittest.TestCase):
    def start(self, *arguments, answer=None, **how):
        self.stub = self.enterContext(rpc.Stub(answer) if answer else rpc.Stub())
        self.gateway = self.enterContext(ganesha.Gateway(self.stub.port, *arguments, **how))

    def connect(self):
        client = rpc.Client(self.gateway.port)
        self.addCleanup(client.socket.close)
        return client

    def is_well(self, uid=3000):
        """Another client is served at once."""
        began = time.monotonic()
        with rpc.Client(self.gateway.port) as client:
            client.send(rpc.null(1), rpc.getattr3(2, b"handle", uid=uid))
            self.assertEqual(sorted(client.reply()[0] for _ in range(2)), [1, 2])
        self.assertLess(time.monotonic() - began, AT_ONCE)

    def until(self, condition):
        end = time.monotonic() + server.STUCK
        while not condition():
            self.assertLess(time.monotonic(), end, "it does not happen")
            time.sleep(0.01)


class Clients(Hostile):
    def test_garbage_ends_its_own_connection(self):
        chance = random.Random(19)
        kinds = {
            rpc.u32(1 << 31 | 200 << 20): "a record longer than the maximum",
            b"\x16\x03\x01\x02\x00\x01\x00": "TLS",
            b"\x0d\x0a\x0d\x0a\x00\x0d\x0aQUIT\x0a": "PROXY",
            b"SSH-2.0-OpenSSH_9.2\r\n": "text",
        }
        for garbage, cause in kinds.items():  # one gateway each: log lines are limited
            self.start()
            client = self.connect()
            client.send(garbage + chance.randbytes(1000))
            self.assertTrue(client.is_closed())
            self.assertIn("127.0.0.1", self.gateway.await_log(cause))
            self.is_well()
        # Records of garbage are forwarded, and the server answers them.
        for size in 0, 3, 7, 39, 500, 70_000:
            message = rpc.u32(size, 0) + chance.randbytes(size)
            self.connect().send(rpc.record(message))
            self.stub.wait(lambda sent=message: sent in self.stub.calls)
        self.is_well()

    def test_endless_fragments_end_the_connection(self):
        self.start()
        before = self.gateway.memory()
        for fragment in rpc.u32(0), rpc.u32(1) + b"x":
            client = self.connect()
            with contextlib.suppress(ConnectionError):
                for _ in range(40):  # times 2,000: more than 65,536
                    client.send(fragment * 2000)
            self.assertTrue(client.is_closed())
        self.gateway.await_log("fragments")
        self.assertLess(self.gateway.memory() - before, 16 * MIB)
        self.is_well()

    def test_a_thousand_clients_that_stop_within_a_message(self):
        self.start(env=server.LEAN)
        self.is_well()
        before = self.gateway.memory()
        write = rpc.write3(7, b"handle", bytes(8000))
        clients = []
        for number in range(1000):
            clients.append(self.connect())
            clients[-1].send(write[:1 + number * 8 % (len(write) - 1)])
        self.stub.wait(lambda: len(self.stub.connections) > 1000)
        self.is_well()
        for client in clients:  # a byte more does not help
            client.send(b"\0")
        self.is_well()
        self.assertLess(self.gateway.memory() - before, 1000 * 64 * 1024)

    def test_clients_that_vanish_leave_nothing_behind(self):
        self.start(*ONE_PER_SECOND)
        for _ in range(50):
            client = rpc.Client(self.gateway.port)
            client.send(rpc.null(1000))
            client.reply()
            client.send(*(rpc.getattr3(xid, b"handle") for xid in range(100)),
                        rpc.write3(200, b"handle", bytes(100_000))[:50_000])
            reset(client)
        self.until(lambda: len(self.stub.ends) == len(self.stub.connections) >= 50)
        arrived = len(self.stub.calls) - 50
        self.is_well()
        self.assertEqual(self.gateway.metric("replies_unmatched"), 0)
        self.assertLess(arrived, 50 + AT_ONCE)
        page = self.gateway.fetch("/metrics")
        queued = re.findall(r"^weir_queued_requests\S* (\d+)$", page, re.MULTILINE)
        self.assertEqual({int(count) for count in queued}, {0}, page)

    def test_half_dead_peers_are_noticed_on_both_sides(self):
        self.start()
        client = self.connect()
        client.send(rpc.null(1))
        client.reply()
        port = self.gateway.port
        shown = subprocess.run(["ss", "-Htno", "state", "established"], capture_output=True,
                               text=True, check=True).stdout.splitlines()
        accepted = [line for line in shown if line.split()[2].endswith(f":{port}")]
        upstream = [line for line in shown if line.split()[3].endswith(f":{self.stub.port}")]
        self.assertEqual((len(accepted), len(upstream)), (1, 1), shown)
        for line in accepted + upstream:
            self.assertIn("timer:(keepalive", line)

    def test_a_flood_of_invented_users_is_bounded(self):
        self.start("--classes", "1000", "--adaptive", "off",
                   "--rule", "start each jobid={uid.*} rate=1000 by=uid", env=server.LEAN)
        self.is_well()
        before = self.gateway.memory()
        client = self.connect()
        for first in range(0, 40_000, 500):
            client.send(*(rpc.getattr3(uid, b"handle", uid=100_000 + uid)
                          for uid in range(first, first + 500)))
            for _ in range(500):
                client.reply()
        self.assertLess(self.gateway.memory() - before, 48 * MIB)
        page = self.gateway.fetch("/metrics")
        self.assertLess(len(re.findall(r'jobid="uid\.', page)), 10_000)
        self.is_well()

    def test_a_flood_of_invented_sessions_is_bounded(self):
        self.start(*ONE_PER_SECOND, env=server.LEAN)
        self.is_well(uid=1)
        before = self.gateway.memory()
        client = self.connect()
        for first in range(0, 20_000, 500):
            client.send(*(rpc.compound(xid, [rpc.sequence(rpc.u32(xid) * 4, 0, 1),
                                             rpc.u32(22) + rpc.opaque(b"handle"),
                                             rpc.u32(9, 1, 0x10)], 1000)
                          for xid in range(first, first + 500)))
        self.until(lambda: self.gateway.metric("calls") >= 20_000)
        self.assertLess(self.gateway.memory() - before, 48 * MIB)
        self.is_well(uid=2)

    def test_another_call_with_a_used_xid_ends_its_connection(self):
        self.start(*ONE_PER_SECOND)
        client = self.connect()
        client.send(*(rpc.getattr3(xid, b"handle") for xid in (1, 2, 3)))
        client.send(rpc.getattr3(3, b"another"))
        self.assertTrue(client.is_closed())
        self.gateway.await_log("xid of another one")
        self.is_well()

    def test_the_same_xid_on_100_connections(self):
        self.start(answer=lambda _, message: rpc.reply(xid_of(message), message[-8:]))
        clients = [self.connect() for _ in range(100)]
        for number, client in enumerate(clients):
            client.send(rpc.getattr3(77, b"handle%02d" % number))
        for number, client in enumerate(clients):
            self.assertEqual(client.reply(), (77, b"handle%02d" % number))
        self.assertEqual(self.gateway.metric("replies_unmatched"), 0)

    def test_a_write_of_64_mib_that_waits(self):
        self.start(*ONE_PER_SECOND, "--memory", "64MiB", env=server.LEAN)
        before = self.gateway.memory()
        data = random.Random(3).randbytes(MIB) * 64
        call = rpc.write3(5, b"handle", data)
        client = self.connect()
        client.send(rpc.getattr3(1, b"handle"), rpc.getattr3(2, b"handle"))  # no tokens are left
        sender = threading.Thread(target=client.send, args=(call,))
        sender.start()
        self.until(lambda: self.gateway.metric("calls") >= 3)
        self.is_well()
        self.assertEqual({client.reply()[0] for _ in range(3)}, {1, 2, 5})
        sender.join()
        self.assertTrue(call[4:] in self.stub.calls, "bit for bit")
        self.assertLess(self.gateway.memory() - before, 96 * MIB)
        # One byte more than the maximum of a record.
        client = self.connect()
        client.send(rpc.u32(1 << 31 | 65 * MIB + 1))
        self.assertTrue(client.is_closed())
        self.gateway.await_log("a record longer than the maximum")


    def test_a_gateway_that_is_killed_is_replaced(self):
        """Clients of hard mounts reconnect and send unanswered calls again."""
        self.stub = self.enterContext(rpc.Stub())
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
        arguments = ("--listen", f"127.0.0.1:{port}", *ONE_PER_SECOND)
        with ganesha.Gateway(self.stub.port, *arguments) as first:
            client = rpc.Client(port)
            client.send(*(rpc.getattr3(xid, b"handle") for xid in range(100)))
            client.reply()
            first.kill()
            self.assertTrue(client.is_closed())
            client.socket.close()
        self.until(lambda: len(self.stub.ends) == len(self.stub.connections))
        with ganesha.Gateway(self.stub.port, *arguments) as self.gateway, \
                rpc.Client(port) as client:
            client.send(*(rpc.getattr3(xid, b"handle") for xid in range(50, 60)), rpc.null(200))
            self.assertEqual({client.reply()[0] for _ in range(2)}, {50, 200})
            self.is_well()

    def test_an_upgrade_loses_no_call(self):
        """The next process accepts clients on the same port while the old one still drains."""
        may_answer = threading.Event()

        def answer(_, message):
            xid, = struct.unpack(">I", message[:4])
            if xid < 100:
                may_answer.wait(60)
            return rpc.reply(xid)

        self.stub = self.enterContext(rpc.Stub(answer))
        with ganesha.Gateway(self.stub.port, *ONE_PER_SECOND) as old, \
                rpc.Client(old.port) as client:
            client.send(*(rpc.getattr3(xid, b"handle") for xid in range(10)))
            self.until(lambda: old.metric("calls") == 10)
            old.process.send_signal(signal.SIGTERM)
            with ganesha.Gateway(self.stub.port, "--listen", f"127.0.0.1:{old.port}") as new:
                with rpc.Client(old.port) as other:
                    other.send(rpc.getattr3(100, b"handle"))
                    self.assertEqual(other.reply()[0], 100)
                self.assertEqual(new.metric("calls"), 1)
                self.assertIsNone(old.process.poll(), "it still drains")
                may_answer.set()
                self.assertEqual({client.reply()[0] for _ in range(10)}, set(range(10)))
                self.assertTrue(client.is_closed())

    def test_idle_connections_and_classes_are_small(self):
        """1,000 connections with a call each, and 50,000 users; with the release build, without
        memory of sanitizers."""
        binary = server.RELEASE if pathlib.Path(server.RELEASE).exists() else None
        self.start("--classes", "60000", "--adaptive", "off", "--rule",
                   "start each jobid={uid.*} rate=100000 by=uid", binary=binary, env=server.LEAN)
        self.is_well()
        before = self.gateway.memory()
        clients = [self.connect() for _ in range(1000)]
        for client in clients:
            client.send(rpc.null(1))
        for client in clients:
            client.reply()
        self.assertLess((self.gateway.memory() - before) / len(clients), 32 * 1024)
        before = self.gateway.memory()
        for first in range(0, 50_000, 500):
            clients[0].send(*(rpc.getattr3(xid, b"handle", uid=100_000 + xid)
                              for xid in range(first, first + 500)))
            for _ in range(500):
                clients[0].reply()
        if binary:
            self.assertLess((self.gateway.memory() - before) / 50_000, 1024)


class Limits(MeasuredTest):
    def test_a_limit_of_a_user_is_exact(self):
        """Over eight connections, within 2 % in 3 s."""
        for rate in 10, 1000:
            def attempt(rate=rate):
                with rpc.Stub() as stub, ganesha.Gateway(
                        stub.port, "--adaptive", "off",
                        "--rule", f"start r uid={{1000}} rate={rate}") as gateway:
                    clients = [rpc.Client(gateway.port) for _ in range(8)]
                    for number, client in enumerate(clients):
                        client.send(*(rpc.getattr3(xid, b"handle") for xid in range(
                            number * 10_000, number * 10_000 + rate)))
                    burst = max(3, rate // 100)  # which makes up for a late turn of the gateway
                    stub.wait(lambda: len(stub.calls) > burst)
                    began, before = time.monotonic(), len(stub.calls)
                    time.sleep(3)
                    got = (len(stub.calls) - before) / (time.monotonic() - began)
                    for client in clients:
                        reset(client)
                    slack = 0.02 * rate + 1  # one call more or less at the edges
                    return "" if abs(got - rate) < slack else f"{got:.1f} calls/s of {rate}"

            self.measure(attempt)


class Servers(Hostile):
    def test_replies_that_nobody_asked_for(self):
        def answer(_, message):
            strangers = [rpc.reply(xid_of(message) + 1000 + more, b"what") for more in range(50)]
            return b"".join(strangers) + rpc.reply(xid_of(message), b"right")

        self.start(answer=answer)
        client = self.connect()
        for xid in range(1, 4):
            client.send(rpc.getattr3(xid, b"handle"))
            got = [client.reply() for _ in range(51)]
            self.assertEqual(got[-1], (xid, b"right"))
        self.assertEqual(self.gateway.metric("replies_unmatched"), 150)

    def test_a_flood_of_replies_to_a_client_that_does_not_read(self):
        def answer(connection, message):
            if xid_of(message) != 666:
                return rpc.reply(xid_of(message))
            with contextlib.suppress(OSError):
                for _ in range(400):
                    connection.sendall(rpc.reply(1, bytes(256 * 1024)))
            return b""

        self.start(answer=answer, env=server.LEAN)
        self.is_well()
        before = self.gateway.memory()
        client = self.connect()
        client.send(rpc.getattr3(666, b"handle"))
        self.until(lambda: self.gateway.metric("replies_unmatched") > 0)
        for _ in range(5):
            self.is_well()
        self.assertLess(self.gateway.memory() - before, 32 * MIB)

    def test_garbage_of_the_server_ends_the_connection(self):
        self.start(answer=lambda _, message: (
            b"HTTP/1.1 400 Bad Request\r\n" if xid_of(message) == 5
            else rpc.reply(xid_of(message))))
        client = self.connect()
        client.send(rpc.getattr3(5, b"handle"))
        self.assertTrue(client.is_closed())
        self.gateway.await_log("sent text")
        self.is_well()

    def test_a_server_that_accepts_and_never_answers(self):
        def answer(_, message):
            return None if struct.pack(">I", 1000) in message[24:64] else rpc.reply(xid_of(message))

        self.start("--slots", "16", answer=answer)
        client = self.connect()
        client.send(*(rpc.getattr3(xid, b"handle") for xid in range(100)))
        self.stub.wait(lambda: len(self.stub.calls) == 16)
        client.send(rpc.null(500))  # which does not need a slot
        self.assertEqual(client.reply()[0], 500)
        waiting = self.connect()
        waiting.send(rpc.getattr3(600, b"handle", uid=3000))
        reset(client)  # its slots are free at once
        self.assertEqual(waiting.reply()[0], 600)
        self.is_well()

    def test_a_server_that_never_answers_one_client(self):
        """Which has more calls than there are slots; the log names it."""
        def answer(_, message):
            return None if struct.pack(">I", 1000) in message[24:64] else rpc.reply(xid_of(message))

        self.start("--adaptive", "off", answer=answer)
        client = self.connect()
        client.send(*(rpc.getattr3(xid, b"handle") for xid in range(2000)))
        self.stub.wait(lambda: len(self.stub.calls) >= 256)
        for _ in range(5):
            self.is_well()
        self.gateway.await_log("has answered none of its")

    def test_reclaims_after_a_restart_pass_a_full_queue(self):
        self.start(*ONE_PER_SECOND)
        client = self.connect()
        client.send(*(rpc.getattr3(xid, b"handle", uid=0) for xid in range(300)))
        self.stub.wait(lambda: self.stub.calls)
        self.stub.connections[0].shutdown(socket.SHUT_RDWR)  # the server restarts
        self.assertTrue(client.is_closed())
        again = self.connect()
        again.send(*(rpc.getattr3(xid, b"handle", uid=0) for xid in range(300)))
        began = time.monotonic()
        put, session = rpc.u32(22) + rpc.opaque(b"handle"), rpc.sequence(bytes(16), 0, 1)
        channel = rpc.u32(0, MIB, MIB, 4096, 16, 64, 0)
        reopen = (rpc.u32(18, 0, 1, 0) + bytes(8) + rpc.opaque(b"owner") + rpc.u32(0, 1, 0))
        lock = (rpc.u32(12, 1, 1) + bytes(16) + rpc.u32(1, 0) + bytes(16) + rpc.u32(0)
                + bytes(8) + rpc.opaque(b"owner"))
        again.send(rpc.compound(1000, [rpc.u32(42) + bytes(8) + rpc.opaque(b"client")
                                       + rpc.u32(0, 0, 0)], 0),
                   rpc.compound(1001, [rpc.u32(43) + bytes(8) + rpc.u32(1, 0) + channel + channel
                                       + rpc.u32(0x40000000, 1, 0)], 0),
                   rpc.compound(1002, [session, put, reopen], 1000),
                   rpc.compound(1003, [session, put, lock], 1000),
                   rpc.compound(1004, [session, rpc.u32(58, 0)], 0),
                   rpc.compound(1005, [rpc.u32(30) + bytes(8)], 0, minor=0))
        self.stub.wait(lambda: set(range(1000, 1006)) <= set(self.stub.xids()), 30)
        self.assertLess(time.monotonic() - began, AT_ONCE)
        self.assertLess(len(self.stub.calls), 40, "the others wait")


if __name__ == "__main__":
    ganesha.enter_namespace()
    unittest.main()
