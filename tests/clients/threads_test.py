# SPDX-License-Identifier: Apache-2.0
"""A server with several threads: connections are spread, a rule acts on all of them, and what is
wrong with --threads is said. Other client tests run with several threads too: tests/CMakeLists.txt.
"""
import subprocess
import threading
import time
import unittest

import nbd

from server import STUCK, WEIR, Server


def connect(server, name="a"):
    handle = nbd.NBD()
    handle.connect_uri(server.uri(name))
    return handle


def await_each(server, key, *counts):
    """The status of its threads when they have so many; a status may be a moment old."""
    deadline = time.monotonic() + STUCK
    while True:
        status = server.status()["threads"]
        found = [one[key] for one in status]
        if found == list(counts):
            return status
        assert time.monotonic() < deadline, found
        time.sleep(0.05)


class Spread(unittest.TestCase):
    def test_connections_are_spread_evenly(self):
        with Server("--export", "a=memory:1MiB", "--threads", "4", control=True) as server:
            clients = [connect(server) for _ in range(32)]
            for client in clients:
                client.pwrite(b"x" * 4096, 0)
            await_each(server, "connections", 8, 8, 8, 8)
            status = await_each(server, "requests", 8, 8, 8, 8)
            for one in status:
                self.assertGreater(one["longest_turn_ns"], 0)

    def test_when_all_but_one_thread_are_left_new_clients_go_to_the_others(self):
        with Server("--export", "a=memory:1MiB", "--threads", "2", control=True) as server:
            clients = [connect(server) for _ in range(8)]
            for client in clients[1::2]:
                client.shutdown()
            await_each(server, "connections", 4, 0)
            for client in clients[::2]:  # all on one thread
                self.assertEqual(len(client.pread(4096, 0)), 4096)
            more = [connect(server) for _ in range(4)]
            await_each(server, "connections", 4, 4)
            for client in more:
                client.shutdown()


class Limits(unittest.TestCase):
    def test_a_rate_holds_for_all_threads_together(self):
        # Granted <= depth + rate x time, where the time is that of the whole run.
        with Server("--export", "a=memory:1MiB", "--threads", "4", "--adaptive", "off", "--rule",
                    "start r jobid={*} rate=500", control=True) as server:
            began = time.monotonic()
            counts = [0] * 8

            def load(index):
                client = connect(server)
                while time.monotonic() < began + 1:
                    client.pread(4096, 0)
                    counts[index] += 1

            loads = [threading.Thread(target=load, args=(i,)) for i in range(8)]
            for one in loads:
                one.start()
            for one in loads:
                one.join()
            ran = time.monotonic() - began
            self.assertLessEqual(sum(counts), 500 * ran + 5 + 1)
            self.assertGreater(min(counts), 0)


class Refused(unittest.TestCase):
    def test_a_wrong_number(self):
        for number in ("0", "65", "-1", "x"):
            done = subprocess.run([WEIR, "serve", "--export", "a=memory:1MiB",
                                   f"--threads={number}"], capture_output=True, text=True)
            self.assertEqual(done.returncode, 64, number)
            self.assertIn("--threads", done.stderr)
            self.assertIn("expected auto or a number from 1 to 64", done.stderr)


if __name__ == "__main__":
    unittest.main()
