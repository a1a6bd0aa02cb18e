#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""weir bench against weir serve, and against servers that misbehave."""
import json
import os
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import time
import unittest

WEIR = os.environ["WEIR_BIN"]
STUCK = 60


def bench(uri, *options):
    return subprocess.run([WEIR, "bench", uri, *options], capture_output=True, text=True,
                          timeout=STUCK)


class Server(unittest.TestCase):
    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory())

    def serve(self, *options):
        path = self.folder + "/nbd"
        self.control = self.folder + "/control"
        server = subprocess.Popen(
            [WEIR, "serve", "--listen", f"unix:{path}", "--control", self.control, *options],
            stdout=subprocess.PIPE, text=True)
        self.addCleanup(server.stdout.close)
        self.addCleanup(server.wait, STUCK)
        self.addCleanup(server.kill)
        self.assertIn("ready", server.stdout.readline())
        return f"nbd+unix:///a?socket={path}"

    def measured(self, uri, *options):
        done = bench(uri, "--json", *options)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def test_reads(self):
        result = self.measured(self.serve("--export", "a=memory:4MiB"), "--time", "300ms")
        self.assertGreater(result["reads"]["requests"], 0)
        self.assertEqual(result["writes"]["requests"], 0)
        self.assertEqual(result["unanswered"], 0)
        self.assertLessEqual(result["reads"]["p50_ns"], result["reads"]["max_ns"])

    def test_a_mix_on_several_connections_writes_to_the_export(self):
        image = self.folder + "/image"
        with open(image, "wb") as file:
            file.truncate(1 << 20)
        uri = self.serve("--export", f"a=file:{image}")
        result = self.measured(uri, "--read", "50", "--overwrite", "--connections", "3", "--depth",
                               "8", "--size", "64KiB", "--time", "300ms")
        self.assertGreater(result["reads"]["requests"], 0)
        self.assertGreater(result["writes"]["requests"], 0)
        with open(image, "rb") as file:
            self.assertNotEqual(file.read().count(0), 1 << 20)

    def test_a_rate_is_kept(self):
        result = self.measured(self.serve("--export", "a=memory:4MiB"), "--rate", "200", "--time",
                               "1s")
        # The first is due at once; late ones may be missing.
        self.assertLessEqual(result["reads"]["requests"], 201)
        self.assertGreater(result["reads"]["requests"], 100)

    # The server serves 20 of 200 a second: requests that wait in the load are late too.
    def test_latency_counts_from_when_a_request_was_due(self):
        uri = self.serve("--export", "a=memory:4MiB", "--rule",
                         "start slow jobid={vm1} rate=20")
        result = self.measured(uri, "--rate", "200", "--job", "vm1", "--depth", "1", "--time", "1s")
        self.assertLess(result["reads"]["requests"], 40)
        self.assertGreater(result["reads"]["p99_ns"], 500_000_000)

    def test_the_job_is_seen_by_the_server(self):
        uri = self.serve("--export", "a=memory:4MiB")
        self.measured(uri, "--job", "vm7", "--time", "100ms")
        explained = subprocess.run([WEIR, "explain", "vm7", "--control", self.control],
                                   capture_output=True, text=True, timeout=STUCK)
        self.assertEqual(explained.returncode, 0, explained.stderr)

    def test_the_table(self):
        uri = self.serve("--export", "a=memory:4MiB")
        done = bench(uri, "--time", "100ms", "--depth", "2")
        self.assertEqual(done.returncode, 0, done.stderr)
        first, head, reads = done.stdout.splitlines()
        self.assertIn("requests of 4KiB, depth 2 on 1 connection, 0.1 s", first)
        self.assertEqual(head.split()[:2], ["ops/s", "MiB/s"])
        self.assertEqual(reads.split()[0], "read")

    def test_a_signal_ends_it_with_a_result(self):
        uri = self.serve("--export", "a=memory:4MiB")
        with subprocess.Popen([WEIR, "bench", uri, "--time", "1h", "--json"],
                              stdout=subprocess.PIPE, text=True) as child:
            while not os.path.exists(f"/proc/{child.pid}/task") or not caught(child.pid):
                time.sleep(0.01)
            child.send_signal(signal.SIGINT)
            out, _ = child.communicate(timeout=STUCK)
        self.assertEqual(child.returncode, 0)
        self.assertIn("reads", json.loads(out))

    def test_what_the_export_does_not_take_is_said(self):
        uri = self.serve("--export", "a=memory:64KiB", "--export", "b=memory:1MiB,readonly")
        for options, words in ((["--size", "1MiB"], "smaller than a request of 1MiB"),
                               (["--size", "100B"], None)):
            with self.subTest(options):
                done = bench(uri, *options, "--time", "100ms")
                if words is None:
                    self.assertEqual(done.returncode, 0, done.stderr)
                else:
                    self.assertEqual(done.returncode, 69)
                    self.assertIn(words, done.stderr)
        done = bench(uri.replace("/a?", "/b?"), "--read", "0", "--overwrite")
        self.assertEqual(done.returncode, 69)
        self.assertIn("read-only", done.stderr)
        done = bench(uri.replace("/a?", "/none?"))
        self.assertEqual(done.returncode, 69)
        self.assertIn("refused the export", done.stderr)


def caught(pid):
    """Whether the process already handles SIGINT."""
    with open(f"/proc/{pid}/status", encoding="ascii") as file:
        mask = next(line for line in file if line.startswith("SigCgt"))
    return int(mask.split()[1], 16) >> (signal.SIGINT - 1) & 1


class BadServers(unittest.TestCase):
    GREETING = struct.pack(">QQH", 0x4e42444d41474943, 0x49484156454f5054, 1)
    EXPORT = (struct.pack(">QIIIHQH", 0x3e889045565a9, 7, 3, 12, 0, 1 << 20, 1)
              + struct.pack(">QIII", 0x3e889045565a9, 7, 1, 0))

    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory())

    def against(self, *sent):
        """The output of weir bench for a server that sends these bytes, then closes."""
        path = self.folder + "/nbd"
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(path)
            listening.listen()

            def answer():
                peer, _ = listening.accept()
                with peer:
                    for part in sent:
                        peer.sendall(part)
                        peer.recv(1 << 16)
            thread = threading.Thread(target=answer)
            thread.start()
            done = bench(f"nbd+unix:///a?socket={path}", "--time", "1s")
            thread.join(STUCK)
        os.unlink(path)
        return done

    def test_each_is_named(self):
        reply = struct.pack(">IIQ", 0x67446698, 0, 99)
        for sent, status, words in (((b"SSH-2.0-OpenSSH_9.2\r\n",), 69, "is not an NBD server"),
                                    ((self.GREETING,), 69, "closed the connection"),
                                    ((self.GREETING, self.EXPORT), 74, "closed the connection"),
                                    ((self.GREETING, self.EXPORT, reply), 74,
                                     "answered a request that was not sent")):
            with self.subTest(words):
                done = self.against(*sent)
                self.assertEqual(done.returncode, status, done.stderr)
                self.assertIn(words, done.stderr)


class Options(unittest.TestCase):
    def test_what_is_wrong_is_named(self):
        good = "nbd://localhost/a"
        for words, said in (([good, "--read", "50"], "--overwrite"),
                            ([good, "--read", "101"], "--read"),
                            ([good, "--depth", "0"], "--depth"),
                            ([good, "--connections", "0"], "--connections"),
                            ([good, "--size", "0B"], "--size"),
                            ([good, "--size", "65MiB"], "--size"),
                            ([good, "--size", "32MiB", "--depth", "64"], "1GiB"),
                            ([good, "--time", "0s"], "--time"),
                            ([good, "--rate", "0"], "--rate"),
                            ([good + ",job=a", "--job", "b"], "--job"),
                            (["http://localhost/a"], "nbd://HOST[:PORT]/EXPORT"),
                            (["nbds://localhost/a"], "nbd://HOST[:PORT]/EXPORT"),
                            (["nbd:///a"], "does not name a server"),
                            (["nbd://h:x/a"], "does not name a server"),
                            (["nbd+unix:///a"], "does not name a socket"),
                            (["nbd://localhost/%zz"], "does not name a server")):
            with self.subTest(words):
                done = bench(*words)
                self.assertEqual(done.returncode, 64, done.stderr)
                self.assertIn(said, done.stderr)

    def test_nobody_listens(self):
        with socket.socket() as unused:
            unused.bind(("127.0.0.1", 0))
            done = bench(f"nbd://127.0.0.1:{unused.getsockname()[1]}/a")
        self.assertEqual(done.returncode, 69)
        self.assertRegex(done.stderr,
                         r"^weir bench: 127\.0\.0\.1:\d+: server: Connection refused\n$")


if __name__ == "__main__":
    unittest.main()
