# SPDX-License-Identifier: Apache-2.0
"""The two I/O backends of a server, and systems on which one of them does not work."""
import errno
import os
import pathlib
import subprocess
import sys
import unittest

from server import FLUSH, FUA, READ, WEIR, WRITE, Server, enter, request, simple_reply

OLDER = pathlib.Path(__file__).resolve().parent / "older.py"
SYSTEMS = ("linux-4.18", "container", "no-enter", "no-register")
WHY = "using epoll, because io_uring is not available: io_uring"
REFUSED = 73  # the exit status of a server that cannot be created


def on(system):
    return (sys.executable, OLDER, system)


class Backend(unittest.TestCase):
    def use(self, server):
        """A client that writes and reads a file, in small and in large pieces."""
        with server.connect() as client:
            enter(client)
            small, large = os.urandom(4096), os.urandom(1 << 20)
            client.sendall(request(WRITE, 1, 0, len(small), FUA, small))
            self.assertEqual(simple_reply(client), (0, 1, b""))
            client.sendall(request(WRITE, 2, 8192, len(large), 0, large))
            self.assertEqual(simple_reply(client), (0, 2, b""))
            client.sendall(request(FLUSH, 3))
            self.assertEqual(simple_reply(client), (0, 3, b""))
            for cookie, offset, data in ((4, 0, small), (5, 8192, large)):
                client.sendall(request(READ, cookie, offset, len(data)))
                self.assertEqual(simple_reply(client, len(data)), (0, cookie, data))

    def server(self, *arguments, **options):
        server = Server(*arguments, control=True, **options)
        server.arguments += ["--export", f"a=file:{server.path}/disk,size=4MiB"]
        return server

    def test_each_serves_by_its_name(self):
        for io, name in (("uring", "io_uring"), ("epoll", "epoll")):
            with self.subTest(io), self.server("--io", io) as server:
                self.use(server)
                self.assertEqual(server.status()["io"], name)
                self.assertIn(f'weir_io{{backend="{name}"}} 1\n', server.fetch("/metrics"))
                shown = subprocess.run([WEIR, "status", "--control", server.control], text=True,
                                       capture_output=True, check=True).stdout
                self.assertIn(f", I/O with {name}, ", shown)
                self.assertRegex(shown, r", \d+ threads?, longest turn \S+\n")
                self.assertNotIn("epoll", server.log)

    def test_without_io_uring_epoll_serves_and_the_log_says_why_once(self):
        for system in SYSTEMS:
            with self.subTest(system):
                with self.server("--io", "auto", prefix=on(system)) as server:
                    self.use(server)
                    self.assertEqual(server.status()["io"], "epoll")
                self.assertEqual(server.log.count("epoll"), 1, server.log)
                self.assertIn(WHY, server.log)

    def test_a_user_who_may_lock_no_memory_gets_epoll_and_the_cure(self):
        if os.geteuid() != 0:
            self.skipTest("needs root, to give up a capability")
        prefix = ("setpriv", "--bounding-set=-ipc_lock", "--inh-caps=-ipc_lock", "prlimit",
                  "--memlock=4096:4096")
        with self.server("--io", "auto", prefix=prefix) as server:
            self.use(server)
        self.assertIn(WHY, server.log)
        self.assertIn("ulimit -l", server.log)

    def test_if_one_thread_gets_no_io_uring_none_has_it(self):
        """The limit of locked memory is enough for some rings, but not for 64."""
        if os.geteuid() != 0:
            self.skipTest("needs root, to give up a capability")
        prefix = ("setpriv", "--bounding-set=-ipc_lock", "--inh-caps=-ipc_lock", "prlimit",
                  "--memlock=1048576:1048576")
        with self.server("--io", "auto", "--threads", "64", prefix=prefix) as server:
            self.use(server)
            self.assertEqual(server.status()["io"], "epoll")
        self.assertRegex(server.log, r"io_uring is not available for thread [1-9]\d?: io_uring: ")
        self.assertEqual(server.log.count("using epoll"), 1, server.log)
        done = subprocess.run(
            [*prefix, WEIR, "serve", "--io", "uring", "--threads", "64", "--control", "none",
             "--listen", "127.0.0.1:0", "--export", "a=memory:1MiB"],
            capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, REFUSED, done.stderr)
        self.assertRegex(done.stderr, r"thread [1-9]\d?: io_uring: ")
        self.assertIn("or use fewer threads (--threads)", done.stderr)

    def test_io_uring_that_is_asked_for_and_not_there_is_refused_with_the_cure(self):
        for system, why in (("linux-4.18", errno.ENOSYS), ("container", errno.EPERM),
                            ("no-enter", errno.EPERM), ("no-register", None)):
            with self.subTest(system):
                done = subprocess.run(
                    [*on(system), WEIR, "serve", "--io", "uring", "--control", "none", "--listen",
                     "127.0.0.1:0", "--export", "a=memory:1MiB"],
                    capture_output=True, text=True, timeout=60, check=False)
                self.assertEqual(done.returncode, REFUSED, done.stderr)
                self.assertIn("io_uring", done.stderr)
                self.assertIn("run Linux 6.1 or later with io_uring allowed", done.stderr)
                self.assertIn("or use --io auto or --io epoll", done.stderr)
                if why:
                    self.assertIn(os.strerror(why), done.stderr)

    def test_a_word_that_is_no_backend_is_a_usage_error(self):
        done = subprocess.run([WEIR, "serve", "--io", "kqueue", "--export", "a=memory:1MiB"],
                              capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 64, done.stderr)
        self.assertIn("--io: 'kqueue' is not a way to do I/O; expected auto, uring or epoll",
                      done.stderr)

    def test_large_reads_are_sent_from_the_page_cache(self):
        payload = os.urandom(1 << 20)
        for system in ("no-copies", "no-copies-6.4"):
            with self.subTest(system), self.server("--io", "epoll", prefix=on(system)) as server:
                with server.connect() as client:
                    enter(client)
                    client.sendall(request(WRITE, 1, 0, len(payload), 0, payload))
                    self.assertEqual(simple_reply(client), (0, 1, b""))
                    client.sendall(request(READ, 2, 0, len(payload)))
                    self.assertEqual(simple_reply(client, len(payload)), (0, 2, payload))
                    # The filter works: data that is not in the page cache is read by a thread.
                    with open(server.path / "disk", "rb") as disk:
                        os.fsync(disk.fileno())
                        os.posix_fadvise(disk.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                    client.sendall(request(READ, 3, 0, len(payload)))
                    self.assertEqual(simple_reply(client, len(payload)), (errno.EIO, 3, b""))


if __name__ == "__main__":
    unittest.main()
