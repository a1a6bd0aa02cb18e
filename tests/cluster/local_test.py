#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Schedulers of other programs take part in epochs by the local sockets of servers: the example in
C on two servers, and schedulers that break the protocol or vanish while the others go on.
"""
import os
import pathlib
import re
import socket
import struct
import subprocess
import tempfile
import unittest

from world import STUCK, World, wait_for

SOURCE = pathlib.Path(os.environ["WEIR_SOURCE_DIR"])
JOIN, READY, LEAVE, JOINED, START, ERROR = 1, 2, 3, 4, 5, 6
SUM, MIN, MAX, OR, GATHER = 1, 2, 3, 4, 5
TIMEOUT_MS = 2000


def message(kind, body=b"", length=None, version=1):
    return struct.pack(">IBBH", len(body) if length is None else length, kind, version, 0) + body


class Scheduler:
    def __init__(self, path, name=None, combine=SUM, timeout_ms=TIMEOUT_MS):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(STUCK)
        self.socket.connect(path)
        self.epoch = 0
        if name:
            self.send(JOIN, struct.pack(">BI", combine, timeout_ms) + name.encode())
            self.expect(JOINED)

    def send(self, kind, body=b"", **options):
        self.socket.sendall(message(kind, body, **options))

    def receive(self):
        head = self.take(8)
        length, kind, _, _ = struct.unpack(">IBBH", head)
        return kind, self.take(length)

    def take(self, size):
        data = b""
        while len(data) < size:
            more = self.socket.recv(size - len(data))
            if not more:
                raise ConnectionError("closed")
            data += more
        return data

    def expect(self, kind):
        found, body = self.receive()
        assert found == kind, (found, body)
        return body

    def ready(self, data=b""):
        self.send(READY, struct.pack(">q", self.epoch) + data)

    def started(self):
        """The reduced data, or a negative errno."""
        body = self.expect(START)
        number = struct.unpack(">q", body[:8])[0]
        self.epoch = max(number, 0)
        return body[8:] if number > 0 else number

    def close(self):
        self.socket.close()


def number(value):
    return struct.pack(">q", value)


class Local(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = cls.enterClassContext(tempfile.TemporaryDirectory())
        cls.world = cls.enterClassContext(World(servers=0))
        cls.paths = []
        for name in "s0", "s1":
            path = f"{cls.folder}/{name}.sock"
            cls.world.start(name, more=f'socket = "{path}"')
            cls.paths.append(path)
        cls.world.wait_joined()

    def scheduler(self, server, *arguments, **options):
        one = Scheduler(self.paths[server], *arguments, **options)
        self.addCleanup(one.close)
        return one

    def together(self, *all_data, name, combine=SUM):
        """Schedulers of both servers in one epoch, and what they were told."""
        both = [self.scheduler(i, name, combine) for i in range(2)]
        told = [None, None]

        def are_in_one_epoch():
            for one, data in zip(both, all_data):
                one.ready(data)
            for i, one in enumerate(both):
                told[i] = one.started()
            return both[0].epoch == both[1].epoch > 0
        wait_for("both are in one epoch", are_in_one_epoch)
        return both, told

    def test_the_example_sums_what_waits_on_all_servers(self):
        program = f"{self.folder}/scheduler"
        subprocess.run(["cc", "-Wall", "-Wextra", "-Werror", "-O1", "-o", program,
                        SOURCE / "examples/epochs/scheduler.c"], check=True, timeout=STUCK)
        running = [subprocess.Popen([program, path, "zones", "40", waiting],
                                    stdout=subprocess.PIPE, text=True)
                   for path, waiting in zip(self.paths, ("10", "32"))]
        outputs = [one.communicate(timeout=STUCK)[0] for one in running]
        self.assertEqual([one.returncode for one in running], [0, 0], outputs)
        sums = [dict(re.findall(r"epoch (\d+): (\d+) requests", output)) for output in outputs]
        both = set(sums[0]) & set(sums[1])
        self.assertGreater(len(both), 10, outputs)
        for epoch in both:
            self.assertEqual((sums[0][epoch], sums[1][epoch]), ("42", "42"))
        run = subprocess.run([program, self.paths[0], "not a name", "1", "1"], text=True,
                             capture_output=True, timeout=STUCK, check=False)
        self.assertEqual(run.returncode, 1)
        self.assertIn("1 to 23 letters", run.stderr)

    def test_every_reduction(self):
        for combine, expected in ((SUM, 12), (MIN, 5), (MAX, 7), (OR, 7)):
            with self.subTest(combine=combine):
                _, told = self.together(number(5), number(7), name="x", combine=combine)
                self.assertEqual(told, [number(expected)] * 2)
        _, told = self.together(b"one", b"three", name="x", combine=GATHER)
        self.assertEqual(told[0], told[1])
        parts = {b"\0\0\0\x03one", b"\0\0\0\x05three"}
        self.assertIn(told[0], {b"".join(order) for order in (sorted(parts), sorted(parts)[::-1])})

    def test_a_scheduler_that_vanishes_in_the_middle_of_a_round_is_not_waited_for(self):
        (first, second), _ = self.together(number(1), number(2), name="vanish")
        first.ready(number(1))
        second.socket.sendall(message(READY, struct.pack(">q", second.epoch))[:11])
        second.close()
        self.assertEqual(first.started(), number(1), "it is alone now")

    def test_a_scheduler_that_says_nothing_is_evicted_and_may_come_back(self):
        (first, second), _ = self.together(number(1), number(2), name="silent")
        first.ready(number(1))
        self.assertEqual(first.started(), number(1), "after the timeout")
        second.ready(number(2))
        self.assertEqual(second.started(), -116, "ESTALE")
        self.together(number(1), number(2), name="again")

    def test_whoever_breaks_the_protocol_is_told_why_and_the_others_go_on(self):
        (first, second), _ = self.together(number(1), number(2), name="broken")
        for bytes_sent, why in (
                (message(READY, b"", length=0xffffffff), b"at most 4104 are accepted"),
                (message(READY, b"x" * 9, length=5000), b"5000 bytes"),
                (message(READY, b"abc"), b"a ready without an epoch"),
                (message(9), b"kind 9"),
                (message(LEAVE, version=7), b"version 7"),
                (message(JOIN, b"\7\0\0\0\1a"), b"combine 7"),
                (message(JOIN, b"\1\0\0\0\0a"), b"timeout"),
                (message(READY, struct.pack(">q", 0)), b"has not joined"),
                (message(JOIN, struct.pack(">BI", SUM, 100) + b"broken"), b"another scheduler")):
            with self.subTest(why=why):
                hostile = self.scheduler(0)
                hostile.socket.sendall(bytes_sent)
                self.assertIn(why, hostile.expect(ERROR)[4:])
                with self.assertRaises(ConnectionError):
                    hostile.receive()
        for one in first, second:
            one.ready(number(3))
        self.assertEqual([first.started(), second.started()], [number(6)] * 2)
        first.ready()
        first.ready()
        while (found := first.receive())[0] == START:
            pass
        self.assertIn(b"in progress", found[1])

    def test_too_many_connections_are_refused(self):
        idle = [self.scheduler(0) for _ in range(64)]
        late = self.scheduler(0)
        self.assertIn(b"too many", late.expect(ERROR))
        for one in idle:
            one.close()

        def is_accepted():
            try:
                self.scheduler(0, "many").close()
            except (AssertionError, ConnectionError):
                return False
            return True
        wait_for("one is accepted again", is_accepted)

    def test_another_leader_has_the_same_courses(self):
        self.together(number(1), number(2), name="leader")
        leader = self.world.leader()
        self.world.restart(leader)
        self.world.wait_joined()
        self.together(number(1), number(2), name="leader2")

    def test_a_path_that_is_in_use_is_named(self):
        with self.assertRaises(AssertionError) as raised:
            self.world.start("s2", more=f'socket = "{self.paths[0]}"')
        self.assertIn("in use by another server", str(raised.exception))


if __name__ == "__main__":
    unittest.main()
