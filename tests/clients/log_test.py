# SPDX-License-Identifier: Apache-2.0
"""A log that cannot be written affects nothing else."""
import contextlib
import fcntl
import os
import re
import signal
import subprocess
import unittest

import server as s
from server import STUCK, WEIR, Server


@contextlib.contextmanager
def full_disk():
    fd = os.open("/dev/full", os.O_WRONLY)
    yield fd
    os.close(fd)


@contextlib.contextmanager
def broken_pipe():
    reads, writes = os.pipe()
    os.close(reads)
    yield writes
    os.close(writes)


@contextlib.contextmanager
def full_pipe():
    """A pipe that is full and not read."""
    reads, writes = os.pipe()
    flags = fcntl.fcntl(writes, fcntl.F_GETFL)
    fcntl.fcntl(writes, fcntl.F_SETFL, flags | os.O_NONBLOCK)
    with contextlib.suppress(BlockingIOError):
        while True:
            os.write(writes, bytes(4096))
    fcntl.fcntl(writes, fcntl.F_SETFL, flags)
    yield writes
    os.close(reads)
    os.close(writes)


@contextlib.contextmanager
def closed():
    fd = os.open("/dev/null", os.O_RDONLY)  # cannot be written, like a closed descriptor
    yield fd
    os.close(fd)


class Serve(unittest.TestCase):
    def break_the_protocol(self, server):
        client = server.connect()
        s.enter(client)
        client.sendall(b"\0" * 28)
        self.assertTrue(s.is_closed(client))
        client.close()

    def is_well(self, server):
        client = server.connect()
        s.enter(client)
        client.sendall(s.request(s.WRITE, 7, 4096, 4, payload=b"well") +
                       s.request(s.READ, 8, 4096, 4))
        self.assertEqual(s.simple_reply(client), (0, 7, b""))
        self.assertEqual(s.simple_reply(client, 4), (0, 8, b"well"))
        client.close()

    def serves(self, stderr):
        with Server("--export", "a=memory:1MiB", "--claims", "none", control=True,
                    stderr=stderr) as server:
            self.break_the_protocol(server)
            refused = server.connect()
            s.greet(refused)
            refused.sendall(s.go(b"a,job=root"))  # another kind of line
            self.assertEqual(s.option_reply(refused)[1], 0x80000002)
            refused.close()
            self.is_well(server)
            server.process.send_signal(signal.SIGHUP)
            self.is_well(server)
            dropped = server.status()["counters"]["log_dropped"]
            # The log has its own thread, which may drop another line meanwhile.
            counted = re.search(r"^weir_log_dropped_total (\d+)$", server.fetch("/metrics"), re.M)
            self.assertGreaterEqual(int(counted[1]), dropped)
            server.process.send_signal(signal.SIGTERM)
            self.assertEqual(server.process.wait(STUCK), 0)
            return dropped

    def test_a_full_disk(self):
        with full_disk() as stderr:
            self.assertGreaterEqual(self.serves(stderr), 2)

    def test_a_pipe_whose_reader_is_gone(self):
        with broken_pipe() as stderr:
            self.assertGreaterEqual(self.serves(stderr), 2)

    def test_a_descriptor_that_cannot_be_written(self):
        with closed() as stderr:
            self.assertGreaterEqual(self.serves(stderr), 2)

    def test_a_pipe_that_nobody_reads(self):
        with full_pipe() as stderr:
            self.serves(stderr)


class Commands(unittest.TestCase):
    """Each command has the same exit status as with a working log."""

    def statuses(self, stderr):
        for expected, arguments in ((64, ("nonsense",)), (64, ("serve", "--nonsense")),
                                    (73, ("serve", "--listen", "127.0.0.1:0", "--export",
                                          "a=file:/nonexistent/f"))):
            with self.subTest(arguments):
                done = subprocess.run([WEIR, *arguments], stdout=subprocess.PIPE, stderr=stderr,
                                      timeout=STUCK, check=False)
                self.assertEqual(done.returncode, expected)

    def test_a_full_disk(self):
        with full_disk() as stderr:
            self.statuses(stderr)

    def test_a_pipe_whose_reader_is_gone(self):
        with broken_pipe() as stderr:
            self.statuses(stderr)

    def lock_run(self, stderr):
        """Without a server it reports this, and gives up after the timeout."""
        done = subprocess.run([WEIR, "lock", "run", "--server", "127.0.0.1:1", "--timeout", "3s",
                               "x", "--", "true"], stdout=subprocess.PIPE, stderr=stderr,
                              timeout=STUCK, check=False)
        return done.returncode

    def test_a_lock_that_cannot_be_had(self):
        expected = self.lock_run(subprocess.DEVNULL)
        for trouble in (full_disk, broken_pipe, full_pipe):
            with self.subTest(trouble.__name__), trouble() as stderr:
                self.assertEqual(self.lock_run(stderr), expected)


if __name__ == "__main__":
    unittest.main()
