# SPDX-License-Identifier: Apache-2.0
"""weir serve as operators run it: options, signals, the service manager, limits."""
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time
import unittest

import server as s
from forgetful import Forgetful
from server import STUCK, WEIR, Server

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "control"))
from remote import Remote, wait_for  # noqa: E402


def serve(*arguments):
    done = subprocess.run([WEIR, "serve", *arguments], capture_output=True, text=True,
                          timeout=STUCK, check=False)
    return done.returncode, done.stdout, done.stderr


class Usage(unittest.TestCase):
    EXPORT = ("--export", "a=memory:1MiB")

    def test_mistakes_end_with_64_and_one_line(self):
        for arguments in (
                (), ("--export", "a"), ("--export", "a=disk:/x"), ("--export", "a=memory:x"),
                ("--export", "a/b=memory:1MiB"), (*self.EXPORT, *self.EXPORT),
                (*self.EXPORT, "--listen", "nowhere"), (*self.EXPORT, "--listen", "1.2.3.4:99999"),
                (*self.EXPORT, "--policy", "nonsense"), (*self.EXPORT, "--rule", "start"),
                (*self.EXPORT, "--rule", "start a jobid={x} rate=0"),
                (*self.EXPORT, "--adaptive", "perhaps"), (*self.EXPORT, "--capacity", "fast"),
                (*self.EXPORT, "--slots", "0"), (*self.EXPORT, "--slots", "x"),
                (*self.EXPORT, "--claims", "me"), (*self.EXPORT, "--nodemap", "x"),
                (*self.EXPORT, "--connections", "0"), (*self.EXPORT, "--memory", "1KiB"),
                (*self.EXPORT, "--handshake-timeout", "soon"),
                (*self.EXPORT, "--slots", "5000"), (*self.EXPORT, "--classes", "1"),
                (*self.EXPORT, "--handshake-timeout", "0s"),
                (*self.EXPORT, "--nodemap", "x=1.2.3.4@tcp", "--nodemap", "x=1.2.3.5@tcp"),
                ("--export", "a=memory:1MiB,description=" + 256 * "x"),
                (*self.EXPORT, "--user", "nobody-of-this-name"), (*self.EXPORT, "--nonsense")):
            with self.subTest(arguments):
                status, out, err = serve("--listen", "127.0.0.1:0", *arguments)
                self.assertEqual((status, out), (64, ""), err)
                self.assertEqual(err.count("\n"), 1, err)

    def test_a_check_finds_what_a_start_would(self):
        for arguments in (("--rule", "start"), ("--policy", "tbf nonsense"),
                          ("--policy", "fifo", "--rule", "start a jobid={x} rate=5"),
                          ("--control-tcp", "127.0.0.1:9810"), ("--jobs", "/dev/zero/x"),
                          ("--control-tcp", "127.0.0.1:x", "--control-token", __file__)):
            with self.subTest(arguments):
                status, out, err = serve("--check-config", *self.EXPORT, *arguments)
                self.assertIn(status, (64, 73), err)
                self.assertEqual((out, err.count("\n")), ("", 1), err)
        self.assertEqual(serve("--check-config", *self.EXPORT, "--rule",
                               "start a jobid={x} rate=5"), (0, "", ""))

    def test_what_the_world_refuses_ends_with_73(self):
        with tempfile.TemporaryDirectory() as folder:
            for arguments in (("--export", f"a=file:{folder}/missing"),
                              ("--export", "a=file:/nonexistent/x,size=1MiB"),
                              (*self.EXPORT, "--listen", "unix:/nonexistent/s"),
                              (*self.EXPORT, "--jobs", folder),
                              (*self.EXPORT, "--jobs", "/nonexistent/jobs")):
                with self.subTest(arguments):
                    status, out, err = serve("--listen", "127.0.0.1:0", *arguments)
                    self.assertEqual((status, out), (73, ""), err)
                    self.assertEqual(err.count("\n"), 1, err)

    def test_a_user_who_may_lock_no_memory_is_told_the_cure(self):
        if os.geteuid() != 0:
            self.skipTest("needs root, to give up a capability")
        done = subprocess.run(["setpriv", "--bounding-set=-ipc_lock", "--inh-caps=-ipc_lock",
                               "prlimit", "--memlock=4096:4096", WEIR, "serve", "--io", "uring",
                               "--listen", "127.0.0.1:0", *self.EXPORT], capture_output=True,
                              text=True, timeout=STUCK, check=False)
        self.assertEqual(done.returncode, 73)
        self.assertIn("ulimit -l", done.stderr)

    def test_a_file_has_one_server(self):
        with tempfile.TemporaryDirectory() as folder:
            export = ("--export", f"a=file:{folder}/f,size=1MiB")
            with Server(*export):
                status, _, err = serve("--listen", "127.0.0.1:0", *export)
            self.assertEqual(status, 73)
            self.assertIn("another server uses it", err)

    def test_sockets(self):
        with Server(*self.EXPORT) as server:
            for address in (f"unix:{server.socket}", f"127.0.0.1:{server.port}"):
                status, _, err = serve("--listen", address, *self.EXPORT)
                self.assertEqual(status, 73)
                self.assertIn("another server listens there", err)
        with tempfile.TemporaryDirectory() as folder:
            left = pathlib.Path(folder) / "left"
            with socket.socket(socket.AF_UNIX) as dead:
                dead.bind(str(left))  # and no process listens any more
            with Server(*self.EXPORT, "--listen", f"unix:{left}"):
                pass
            self.assertFalse(left.exists())

    def test_what_is_not_a_left_socket_is_never_removed(self):
        with tempfile.TemporaryDirectory() as folder:
            precious = pathlib.Path(folder) / "precious"
            precious.write_text("kept")
            status, _, err = serve("--listen", f"unix:{precious}", *self.EXPORT)
            self.assertEqual(status, 73)
            self.assertIn("the file there is not a socket", err)
            self.assertEqual(precious.read_text(), "kept")
            # A socket whose server is only too busy to accept is not stale either.
            busy = pathlib.Path(folder) / "busy"
            with socket.socket(socket.AF_UNIX) as full, socket.socket(socket.AF_UNIX) as client:
                full.bind(str(busy))
                full.listen(0)
                client.connect(str(busy))
                status, _, err = serve("--listen", f"unix:{busy}", *self.EXPORT)
                self.assertEqual(status, 73)
                self.assertIn("another server listens there", err)
                self.assertTrue(busy.is_socket())


class Signals(unittest.TestCase):
    def test_everything_accepted_is_answered_before_the_end(self):
        # 100 requests at one a second: within the drain timeout only 30 could be answered in time.
        with Server("--export", "a=memory:1MiB", "--adaptive", "off", "--drain-timeout", "30s",
                    "--rule", "start slow jobid={slow} rate=1") as server:
            client = server.connect()
            s.enter(client, b"a,job=slow")
            client.sendall(b"".join(s.request(s.READ, i, 0, 512) for i in range(100)))
            # All arrived in one piece, so after the first reply the others were admitted too.
            self.assertEqual(s.simple_reply(client, 512), (0, 0, bytes(512)))
            started = time.monotonic()
            server.process.send_signal(signal.SIGTERM)
            for i in range(1, 100):
                self.assertEqual(s.simple_reply(client, 512), (0, i, bytes(512)))
            self.assertTrue(s.is_closed(client))
            self.assertEqual(server.process.wait(STUCK), 0)
            # At once, and not only at the timeout.
            self.assertLess(time.monotonic() - started, 10)
            client.close()

    def test_a_client_that_reads_nothing_holds_up_the_end_for_a_bounded_time(self):
        with Server("--export", "a=memory:64MiB", "--drain-timeout", "1s") as server:
            client = server.connect()
            s.enter(client)
            client.sendall(b"".join(s.request(s.READ, i, 0, 16 << 20) for i in range(4)))
            s.receive(client, 16)
            started = time.monotonic()
            server.process.send_signal(signal.SIGTERM)
            self.assertEqual(server.process.wait(STUCK), 0)
            took = time.monotonic() - started
            client.close()
        # It waits for the client, but not longer than the timeout. Freeing 64 MiB of the store
        # takes long under the address sanitizer.
        self.assertGreaterEqual(took, 0.9)
        self.assertLess(took, 5)

    def drains(self, server):
        """After SIGTERM it stops in time, and logs the reason of its exit status."""
        server.expected = 74
        started = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        self.assertEqual(server.process.wait(STUCK), 74)
        return time.monotonic() - started

    def test_a_store_that_does_not_finish_holds_up_the_end_for_a_bounded_time(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "f"
            with Server("--export", f"a=shaped:iops=20:file:{path},size=4MiB", "--adaptive", "off",
                        "--drain-timeout", "1s", "--slots", "500") as server:
                client = server.connect()
                s.enter(client)
                client.sendall(b"".join(s.request(s.WRITE, i, i * 4096, 4096, flags=s.FUA,
                                                  payload=bytes([i % 255 + 1]) * 4096)
                                        for i in range(500)))
                acknowledged = [s.simple_reply(client)]
                took = self.drains(server)
                try:
                    while True:
                        acknowledged.append(s.simple_reply(client))
                except ConnectionError:
                    pass
                client.close()
            self.assertLess(took, 15)  # 500 requests at 20 a second would take 25
            self.assertLess(len(acknowledged), 500)
            self.assertRegex(server.log, r"export 'a': \d+ requests were unfinished in its store")
            data = path.read_bytes()
            for error, i, _ in acknowledged:
                self.assertEqual(error, 0)
                self.assertEqual(data[i * 4096:(i + 1) * 4096], bytes([i % 255 + 1]) * 4096)

    def test_a_file_system_that_hangs_holds_up_the_end_for_a_bounded_time(self):
        for what, hang in (
                ("durable write", s.request(s.WRITE, 2, 0, 4096, flags=s.FUA,
                                            payload=bytes(4096))),
                ("read", s.request(s.READ, 2, 8 << 20, 4096)),
                ("flush", s.request(s.WRITE, 2, 0, 4096, payload=bytes(4096)) +
                 s.request(s.FLUSH, 3)),
                ("trim", s.request(s.TRIM, 2, 4096, 8192)),
                ("zeroes", s.request(s.WRITE_ZEROES, 2, 4096, 8192)),
                ("cache", s.request(s.CACHE, 2, 8 << 20, 4096) +
                 s.request(s.READ, 3, 8 << 20, 4096))):
            with self.subTest(what), Forgetful() as fuse:
                # The kernel learns that this file system handles no flush on close: otherwise it
                # would keep the process until one was answered.
                fuse.disk.open("rb").close()
                with Server("--export", f"a=file:{fuse.disk}", "--drain-timeout", "1s") as server:
                    client = server.connect()
                    s.enter(client)
                    client.sendall(s.request(s.FLUSH, 1))
                    s.receive(client, 16)
                    with fuse.hanging():
                        client.sendall(hang)
                        time.sleep(0.5)  # it may or may not have reached the store: both must end
                        self.assertLess(self.drains(server), 15)
                    client.close()
                self.assertRegex(server.log, "unfinished in its store|the server hangs")

    @staticmethod
    def blocks_sigterm(server):
        """The process handles SIGTERM itself."""
        status = pathlib.Path(f"/proc/{server.process.pid}/status").read_text(encoding="utf-8")
        blocked = next(line for line in status.splitlines() if line.startswith("SigBlk:"))
        return int(blocked.split()[1], 16) >> (signal.SIGTERM - 1) & 1

    def test_a_start_that_hangs_is_ended(self):
        with Forgetful() as fuse:
            with fuse.hanging(), \
                    Server("--export", f"a=file:{fuse.disk}", starts=False) as server:
                wait_for("it starts", lambda: self.blocks_sigterm(server))
                self.assertLess(self.drains(server), 15)
            self.assertIn("stopped during the start, which hangs", server.log)

    def test_a_trace_that_hangs_does_not_hold_up_clients(self):
        """The exit waits for it: the kernel does not abandon a file that is being closed."""
        with Forgetful() as fuse:
            with Server("--export", "a=memory:1MiB", "--trace", str(fuse.disk)) as server:
                client = server.connect()
                s.enter(client)
                client.settimeout(5)
                with fuse.hanging():
                    for i in range(100):  # longer than the trace waits before it writes
                        client.sendall(s.request(s.READ, i, 0, 512))
                        self.assertEqual(s.simple_reply(client, 512), (0, i, bytes(512)))
                        time.sleep(0.01)
                client.close()
                server.process.send_signal(signal.SIGTERM)
                self.assertEqual(server.process.wait(STUCK), 0)

    def test_a_loop_that_hangs_holds_up_the_end_for_a_bounded_time(self):
        with tempfile.TemporaryDirectory() as folder:
            jobs = pathlib.Path(folder) / "jobs"
            jobs.write_text("ior.n1 4\n")
            with Server("--export", "a=memory:1MiB", "--jobs", str(jobs),
                        "--drain-timeout", "1s") as server:
                jobs.unlink()
                os.mkfifo(jobs)  # never written to
                server.process.send_signal(signal.SIGHUP)
                self.assertLess(self.drains(server), 15)
            self.assertIn("the drain timeout has expired and the server hangs", server.log)

    def test_jobs_are_read_again(self):
        with tempfile.TemporaryDirectory() as folder:
            jobs = pathlib.Path(folder) / "jobs"
            jobs.write_text("# nodes\nior.n1 4\n")
            with Remote("--export", "a=memory:1MiB", "--jobs", str(jobs)) as server:
                self.assertEqual(self.nodes(server, "ior.n1"), 4)
                jobs.write_text("ior.n1 four\n")
                server.process.send_signal(signal.SIGHUP)
                self.assertIn("line 1", server.await_log("the job sizes were not changed"))
                self.assertEqual(self.nodes(server, "ior.n1"), 4)
                jobs.write_text("ior.n1 8\n")
                server.process.send_signal(signal.SIGHUP)
                wait_for("they are read", lambda: self.nodes(server, "ior.n1") == 8)

    def nodes(self, server, job):
        """The number of nodes with which the job counts once it has a request."""
        server.read(job, 1)
        return wait_for("it is listed", lambda: {
            one["job"]: one["nodes"] for one in server.get("/v1/services/ost_io/jobs")}.get(job))

    def test_the_service_manager_hears_of_it(self):
        with tempfile.TemporaryDirectory() as folder:
            path = f"{folder}/notify"
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
                manager.bind(path)
                manager.settimeout(STUCK)
                with Server("--export", "a=memory:1MiB", env={"NOTIFY_SOCKET": path}):
                    self.assertEqual(manager.recv(100), b"READY=1")
                self.assertEqual(manager.recv(100), b"STOPPING=1")


class Claims(unittest.TestCase):
    def asks(self, server, name):
        client = server.connect()
        s.greet(client)
        client.sendall(s.go(name))
        _, kind, text = s.option_reply(client)
        client.close()
        return kind, text

    def test_are_refused_where_they_do_not_count(self):
        with Server("--export", "a=memory:1MiB", "--claims", "none") as server:
            kind, text = self.asks(server, b"a,job=root")
            self.assertEqual(kind, 0x80000002)
            self.assertIn(b"0@lo is not allowed to claim a job or id", text)
            self.assertEqual(self.asks(server, b"a")[0], 3)
        with Server("--export", "a=memory:1MiB") as server:
            self.assertEqual(self.asks(server, b"a,job=root")[0], 3)
            self.assertEqual(self.asks(server, b"nosuch")[0], 0x80000006)

    def test_without_a_claim_a_user_is_a_job(self):
        with Server("--export", "a=memory:1MiB", "--adaptive", "off",
                    "--rule", f"start me jobid={{uid.{os.getuid()}}} rate=1") as server:
            client = server.connect()
            s.enter(client)
            started = time.monotonic()
            client.sendall(b"".join(s.request(s.READ, i, 0, 512) for i in range(5)))
            for i in range(5):
                self.assertEqual(s.simple_reply(client, 512)[0], 0)
            self.assertGreater(time.monotonic() - started, 1.5)  # 3 at once, then one a second
            client.close()


if __name__ == "__main__":
    unittest.main()
