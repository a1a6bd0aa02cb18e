# SPDX-License-Identifier: Apache-2.0
"""Clients that break the protocol, vanish, stall or flood: they do not affect other clients."""
import contextlib
import pathlib
import random
import struct
import tempfile
import time
import unittest

import server as s
from server import STUCK, Server

MIB = 1 << 20
AT_ONCE = 5             # seconds, on a busy machine and with sanitizers
CONNECTION = 64 * 1024  # bytes that a connection may take beside payload
CLASS = 4 * 1024        # that a class and its job may take
SLACK = 16 * MIB        # of the allocator and the kernel's pages
RELEASE = s.RELEASE if pathlib.Path(s.RELEASE).exists() else s.WEIR  # without memory of sanitizers


class HostileTest(unittest.TestCase):
    ARGUMENTS = ()
    BINARY = None  # the sanitized one

    def setUp(self):
        folder = self.enterContext(tempfile.TemporaryDirectory())
        self.server = self.enterContext(Server(
            "--export", "a=memory:64MiB", "--export", f"f=file:{folder}/f,size=64MiB",
            *self.ARGUMENTS, binary=self.BINARY))

    def connect(self):
        client = self.server.connect()
        self.addCleanup(client.close)
        return client

    def enter(self, name=b"a"):
        client = self.connect()
        s.enter(client, name)
        return client

    def is_well(self):
        """A valid client is served at once, and not only after the timeout of a bad one."""
        begun = time.monotonic()
        client = self.enter()
        client.sendall(s.request(s.WRITE, 7, 4096, 4, payload=b"well") +
                       s.request(s.READ, 8, 4096, 4))
        self.assertEqual(s.simple_reply(client), (0, 7, b""))
        self.assertEqual(s.simple_reply(client, 4), (0, 8, b"well"))
        client.sendall(s.request(s.DISC))
        self.assertTrue(s.is_closed(client))
        self.assertLess(time.monotonic() - begun, AT_ONCE)

    def until(self, condition):
        end = time.monotonic() + STUCK
        while not condition():
            self.assertLess(time.monotonic(), end, "it does not happen")
            time.sleep(0.01)


class Breaks(HostileTest):
    def test_the_handshake(self):
        name = b"a"
        for text in (struct.pack(">I", 0xffffffff), b"\xff" * 64,
                     struct.pack(">I", 3) + b"GARBAGE!" * 4,
                     struct.pack(">I", 3) + s.option(s.OPT_EXPORT_NAME, b"nosuch"),
                     struct.pack(">I", 3) + s.option(99) * 300,
                     struct.pack(">I", 3) + s.option(s.OPT_LIST)[:-4] +
                     struct.pack(">I", 0xfffffff0),
                     struct.pack(">I", 0) + s.go(name)):
            with self.subTest(text[:40]):
                client = self.connect()
                client.sendall(text)
                self.assertTrue(s.is_closed(client))
        self.is_well()

    def test_an_option_that_is_too_long_is_refused_and_the_handshake_goes_on(self):
        client = self.connect()
        s.greet(client)
        client.sendall(s.option(s.OPT_LIST, bytes(20000)) + s.go(b"a"))
        self.assertEqual(s.option_reply(client)[1], 0x80000009)
        self.assertEqual(s.option_reply(client)[1], 3)

    def test_requests(self):
        for text in (b"\0" * 28, s.request(s.READ)[:-28] + b"x" * 28,
                     s.request(s.WRITE, 1, 0, 0xffffffff)):
            with self.subTest(text[:28]):
                client = self.enter()
                client.sendall(text)
                self.assertTrue(s.is_closed(client))
        self.is_well()
        self.until(lambda: "a request without the magic number" in self.server.log)

    def test_refused_requests_are_answered(self):
        client = self.enter()
        client.sendall(s.request(77, 1) + s.request(s.READ, 2, 1 << 60, 4096) +
                       s.request(s.WRITE, 3, 64 * MIB, 8, payload=b"too far.") +
                       s.request(s.READ, 4, 0, 16, flags=0x8000) + s.request(s.READ, 5, 0, 4))
        for cookie, error in ((1, 22), (2, 22), (3, 28), (4, 22)):
            self.assertEqual(s.simple_reply(client), (error, cookie, b""))
        self.assertEqual(s.simple_reply(client, 4), (0, 5, bytes(4)))


class Vanishes(HostileTest):
    def test_in_the_middle_of_anything(self):
        chance = random.Random(1)
        text = struct.pack(">I", 3) + s.go(b"f") + b"".join(
            s.request(s.WRITE, i, i * 4096, 40960, payload=bytes(40960)) +
            s.request(s.READ, 100 + i, i * 8192, 65536) + s.request(s.FLUSH, 200 + i)
            for i in range(20))
        for _ in range(100):
            client = self.connect()
            client.sendall(text[:chance.randrange(len(text))])
            if chance.randrange(2):
                client.recv(chance.randrange(1, 100000))
            client.close()
        self.is_well()

    def test_while_its_requests_are_throttled(self):
        with Server("--export", "a=memory:1MiB", "--adaptive", "off",
                    "--rule", "start slow jobid={slow} rate=1") as server:
            client = server.connect()
            s.enter(client, b"a,job=slow")
            client.sendall(b"".join(s.request(s.READ, i, 0, 4096) for i in range(100)))
            receive_one = s.simple_reply(client, 4096)
            self.assertEqual(receive_one[0], 0)
            client.close()
            # Another job is not delayed, and the server stops at once: there is nothing to drain.
            client = server.connect()
            s.enter(client, b"a,job=fast")
            client.sendall(s.request(s.READ, 1, 0, 4096))
            self.assertEqual(s.simple_reply(client, 4096)[0], 0)
            client.close()


class Dawdles(HostileTest):
    ARGUMENTS = ("--handshake-timeout", "1s", "--memory", "64MiB")
    BINARY = RELEASE

    def test_a_handshake_that_never_ends(self):
        silent = self.connect()
        slow = self.connect()
        s.greet(slow)
        slow.sendall(s.go(b"a")[:-1])
        started = time.monotonic()
        self.assertTrue(s.is_closed(silent))
        self.assertTrue(s.is_closed(slow))
        self.assertLess(time.monotonic() - started, STUCK / 2)
        self.until(lambda: "its handshake took too long" in self.server.log)
        self.is_well()

    def test_readers_that_never_read_take_bounded_memory_and_stop_nobody(self):
        before = self.server.memory()
        asked = b"".join(s.request(s.READ, i, 0, MIB) for i in range(64))
        slow = [self.enter(b"f") for _ in range(20)]
        for client in slow:
            client.sendall(asked)  # 64 MiB each, which the client does not read
        self.is_well()
        client = self.enter(b"f")
        client.sendall(s.request(s.READ, 1, 0, 4096))
        self.assertEqual(s.simple_reply(client, 4096)[0], 0)
        # Of 1,280 MiB that were requested.
        self.assertLess(self.server.memory() - before, 64 * MIB + 21 * CONNECTION + SLACK)
        # A client that starts to read gets everything, in any order.
        replies = [s.simple_reply(slow[0], MIB)[:2] for _ in range(64)]
        self.assertEqual(sorted(replies), [(0, i) for i in range(64)])

    def test_half_a_write(self):
        stuck = self.enter(b"f")
        stuck.sendall(s.request(s.WRITE, 1, 0, MIB, payload=bytes(1000)))
        self.is_well()
        stuck.sendall(bytes(MIB - 1000))
        self.assertEqual(s.simple_reply(stuck), (0, 1, b""))


class Stalls(HostileTest):
    """Clients that announce large writes and do not send them, more than the memory would hold."""
    ARGUMENTS = ("--memory", "64MiB")
    WINDOW = 10  # seconds in which a client has to send some of its payload, if others wait
    ENOUGH = 1 << 16  # bytes of it

    @staticmethod
    def send_half_a_write(client, size):
        client.setblocking(False)
        text = s.request(s.WRITE, 1, 0, size, payload=bytes(size // 2))
        with contextlib.suppress(BlockingIOError):
            sent = 0
            while sent < len(text):
                sent += client.send(text[sent:])
        client.settimeout(STUCK)

    def test_they_make_room_for_others_and_slow_ones_go_on(self):
        slow = self.enter()
        slow.sendall(s.request(s.WRITE, 5, 0, 2 * MIB))
        # A first buffer may take half of the remaining memory, so smaller ones come last. The
        # earlier ones fill the memory once: later clients wait for one of them.
        sizes = [8 * MIB] * 6 + [4 * MIB, 2 * MIB, MIB, MIB // 2, MIB // 4] + [MIB // 8] * 49
        neighbour = self.enter()
        stalled = [self.enter() for _ in sizes]
        for client, size in zip(stalled, sizes):
            self.send_half_a_write(client, size)
        neighbour.settimeout(0.5)
        # The neighbour writes on and on: first perhaps while there is memory, then it waits.
        disconnected = ("other clients wait for memory, and of a write of 8388608 bytes "
                        "the client has sent")
        answered, given, unsent = 0, 0, b""
        is_asked = has_room = False
        begun = time.monotonic()
        while not has_room or answered < 10:
            # A window starts when a payload was last checked, so it takes two windows at most.
            elapsed = time.monotonic() - begun
            self.assertLess(elapsed, 3 * self.WINDOW, "it waits for memory")
            owed = int(elapsed * 3 * self.ENOUGH / self.WINDOW) - given
            slow.sendall(bytes(owed))
            given += owed
            if not has_room and disconnected in self.server.log:
                has_room, answered = True, 0
            with contextlib.suppress(TimeoutError):
                if not is_asked:
                    unsent = s.request(s.WRITE, 1, 0, MIB, payload=bytes(MIB))
                    is_asked = True
                if unsent:
                    unsent = unsent[neighbour.send(unsent):]
                else:
                    self.assertEqual(s.simple_reply(neighbour)[0], 0)
                    is_asked = False
                    answered += 1
        self.assertTrue(s.is_closed(stalled[0]))
        self.is_well()  # there is memory for new clients too
        slow.sendall(bytes(2 * MIB - given))
        self.assertEqual(s.simple_reply(slow), (0, 5, b""))

    def test_nobody_is_sent_away_while_there_is_memory(self):
        idle = self.enter()
        idle.sendall(s.request(s.WRITE, 1, 0, MIB, payload=bytes(1000)))
        begun = time.monotonic()
        while time.monotonic() - begun < 1.2 * self.WINDOW:
            self.is_well()
            time.sleep(0.1)
        idle.sendall(bytes(MIB - 1000))
        self.assertEqual(s.simple_reply(idle), (0, 1, b""))


class Hoards(unittest.TestCase):
    """Clients that request more than the memory can hold and read nothing."""
    HOARDERS = 140
    MEMORY = 64 * MIB

    def setUp(self):
        release = pathlib.Path(s.RELEASE)
        exports = []
        for i in range(40):
            exports += ["--export", f"{i:030}=memory:64KiB,description={200 * 'd'}"]
        self.server = self.enterContext(Server(
            "--export", "a=memory:64MiB", *exports, "--memory", str(self.MEMORY), control=True,
            env=s.LEAN, binary=release if release.exists() else s.WEIR))
        self.writer = self.connect()
        s.enter(self.writer)
        self.write(1)

    def connect(self):
        client = self.server.connect()
        self.addCleanup(client.close)
        return client

    def write(self, rounds):
        """32 writes of 64 KiB at a time."""
        writes = b"".join(s.request(s.WRITE, i, i << 16, 1 << 16, payload=bytes(1 << 16))
                          for i in range(32))
        for _ in range(rounds):
            self.writer.sendall(writes)
            for _ in range(32):
                self.assertEqual(s.simple_reply(self.writer)[0], 0)

    @staticmethod
    def clogged(enter):
        """Afterwards a reply is in progress that is larger than the socket buffer."""
        def enter_and_clog(client):
            enter(client)
            client.sendall(s.request(s.READ, 1, 0, 8 * MIB))
            s.receive(client, 1)
        return enter_and_clog

    def hoard(self, enter, text):
        """Their memory is counted and bounded, and the writer never waits for memory."""
        before = self.server.memory()
        for _ in range(self.HOARDERS):
            client = self.connect()
            enter(client)
            client.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                sent = 0
                while sent < len(text):
                    sent += client.send(text[sent:])
        waits = self.settled()
        self.write(20)
        self.assertEqual(self.status("memory_waits"), waits)
        status = self.server.status()
        self.assertLessEqual(status["memory"]["used"], status["memory"]["limit"])
        self.assertLess(self.server.memory() - before, self.MEMORY)

    def status(self, counter):
        return self.server.status()["counters"][counter]

    def settled(self):
        """Waits until the server has read all that it will read from them."""
        end = time.monotonic() + STUCK
        last = None
        while (now := (self.status("requests"), self.status("requests_refused"),
                       self.status("memory_waits"))) != last:
            self.assertLess(time.monotonic(), end, "it never settles")
            last = now
            time.sleep(0.5)
        return last[2]

    def test_bad_requests(self):
        self.hoard(self.clogged(s.enter), s.request(77, 2) * 1023)
        self.assertGreaterEqual(self.status("requests_refused"), self.HOARDERS * 31)

    def test_bad_requests_with_a_text(self):
        self.hoard(self.clogged(s.enter_structured), s.request(77, 2) * 1023)

    def test_block_status(self):
        self.hoard(self.clogged(s.enter_structured),
                   s.request(s.BLOCK_STATUS, 2, 0, 64 * MIB) * 1023)

    def test_lists_of_exports(self):
        self.hoard(s.greet, s.option(s.OPT_LIST) * 255)

    def test_more_than_there_are_requests_allowed(self):
        self.hoard(self.clogged(s.enter), s.request(77, 2) * 20000)

    def test_connections_beyond_the_memory_are_refused(self):
        room = self.MEMORY * 3 // 4 // (96 << 10)
        held = [self.connect() for _ in range(room - 1)]
        for client in held:
            s.greet(client)
        self.assertTrue(s.is_closed(self.connect()))
        self.assertGreater(self.status("refused"), 0)
        self.write(5)


class Descriptors(unittest.TestCase):
    def test_clients_leave_some_to_the_administrator(self):
        with tempfile.TemporaryDirectory() as folder, \
                Server("--export", "a=memory:1MiB", "--lock", f"unix:{folder}/locks",
                       "--lock-state", f"{folder}/state", control=True,
                       prefix=("prlimit", "--nofile=256:256")) as server, \
                contextlib.ExitStack() as stack:
            server.await_log("the limit of open files allows")
            while True:
                client = stack.enter_context(server.connect())
                try:
                    s.greet(client)
                except ConnectionError:  # there is no room for another one
                    break
            self.assertGreater(server.status()["connections"], 50)
            stack.close()


class Floods(HostileTest):
    ARGUMENTS = ("--connections", "20", "--memory", "64MiB")
    BINARY = RELEASE

    def test_connections_above_the_limit_are_refused(self):
        held = [self.enter() for _ in range(20)]
        more = self.connect()
        self.assertTrue(s.is_closed(more))
        self.until(lambda: "refused a connection from 0@lo: 20 are open" in self.server.log)
        held.pop().close()
        self.until(self.lets_in)

    def lets_in(self):
        client = self.connect()
        try:
            s.enter(client)
            return True
        except ConnectionError:
            return False

    def test_requests_without_end_are_read_as_they_are_answered(self):
        before = self.server.memory()
        client = self.enter(b"f")
        client.setblocking(False)
        flood = b"".join(s.request(s.READ, i, 0, 65536) for i in range(1000))
        sent = 0
        try:
            while sent < 100 * len(flood):
                sent += client.send(flood)
        except BlockingIOError:
            pass
        self.assertLess(sent, 100 * len(flood))  # the server stops reading
        self.is_well()
        self.assertLess(self.server.memory() - before, 64 * MIB + 2 * CONNECTION + SLACK)


class Turnover(unittest.TestCase):
    """Connections and requests come and go; free memory is reused or returned."""

    def serve(self, *arguments):
        server = self.enterContext(Server("--export", "a=memory:8MiB", "--memory", "64MiB",
                                          *arguments, control=True, binary=RELEASE))
        filler = self.enter(server)
        filler.sendall(s.request(s.WRITE, 1, 0, 8 * MIB, payload=bytes(8 * MIB)))
        self.assertEqual(s.simple_reply(filler), (0, 1, b""))
        return server

    def enter(self, server, job="first"):
        client = server.connect()
        self.addCleanup(client.close)
        s.enter(client, f"a,job={job}".encode())
        return client

    def test_buffers_of_changing_sizes_take_no_more_than_the_limit(self):
        """Writes without their last byte hold their buffers as long as the test needs them."""
        server = self.serve()
        choose = random.Random(1)
        idle = [self.enter(server, f"j.{number}") for number in range(100)]
        before = server.memory()
        halves = []  # clients and the bytes they have written
        for number in range(100, 220):
            size = 1 << choose.randrange(12, 23)
            choose.shuffle(idle)
            while idle and sum(held for _, held in halves) + size <= 30 * MIB:
                idle[-1].sendall(s.request(s.WRITE, 1, 0, size, payload=bytes(size - 1)))
                halves.append((idle.pop(), size))
            most = server.memory() - before
            self.assertLess(most, 64 * MIB + 101 * CONNECTION + SLACK, f"{number - 99} sizes")
            choose.shuffle(halves)
            for _ in range(choose.randrange(len(halves) // 2, len(halves)) + 1):
                client, _ = halves.pop()
                client.sendall(b"\0")
                self.assertEqual(s.simple_reply(client), (0, 1, b""))
                idle.append(client)
            # Other clients connect: their memory is between the buffers.
            idle[0].close()
            idle[0] = self.enter(server, f"j.{number}")

    def test_invented_jobs_take_no_more_than_their_classes(self):
        """Meanwhile tables of 8,192 jobs are copied all the time."""
        server = self.serve("--capacity", "100k")
        before = server.memory()
        for number in range(14_000):
            with server.connect() as client:
                s.enter(client, f"a,job=made-up.{number}".encode())
                client.sendall(s.request(s.READ, 1, 0, 512))
                s.simple_reply(client, 512)
        self.assertLess(server.memory() - before, 8192 * CLASS + SLACK)

    def test_requests_of_clients_that_have_gone_are_given_back(self):
        server = self.serve()
        before = server.memory()
        clients = []
        bad = s.request(77, 1) * 1023
        for number in range(100):
            clients.append(self.enter(server, f"j.{number}"))
            clients[-1].sendall(s.request(s.READ, 1, 0, 8 * MIB))  # more than the socket buffer
            clients[-1].setblocking(False)
            with contextlib.suppress(BlockingIOError):
                clients[-1].send(bad)
            # The remaining memory of this job is after the requests.
            self.enter(server, f"k.{number}").close()
        self.until(lambda: server.memory() - before > 16 * MIB)
        for client in clients:
            client.close()
        # Some requests are kept for the next clients, and less than 8 MiB are not worth a trim.
        self.until(lambda: server.memory() - before < 12 * MIB)

    def until(self, condition):
        end = time.monotonic() + STUCK
        while not condition():
            self.assertLess(time.monotonic(), end, "it does not happen")
            time.sleep(0.01)


class Idle(unittest.TestCase):
    def test_a_thousand_connections_take_little(self):
        with Server("--export", "a=memory:1MiB", binary=RELEASE) as server:
            first = server.connect()
            s.enter(first)
            before = server.memory()
            clients = []
            for _ in range(1000):
                client = server.connect()
                s.enter(client)
                clients.append(client)
            each = (server.memory() - before) / len(clients)
            self.assertLess(each, CONNECTION)
            for client in clients:
                client.close()
            first.close()


if __name__ == "__main__":
    unittest.main()
