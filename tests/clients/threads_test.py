# SPDX-License-Identifier: Apache-2.0
"""A server with several threads: connections are distributed, a rule applies to all of them, and
errors of --threads are reported. Other client tests run with several threads too:
tests/CMakeLists.txt.
"""
import os
import resource
import subprocess
import threading
import time
import unittest

import nbd

from server import READ, STUCK, WEIR, Server, enter, greet, request, simple_reply

REFUSED = 73  # the exit status of a server that cannot be created


def connect(server, name="a"):
    handle = nbd.NBD()
    handle.connect_uri(server.uri(name))
    return handle


def await_each(server, key, *counts):
    """Waits until its threads have these numbers of connections; a status may be slightly old."""
    deadline = time.monotonic() + STUCK
    while True:
        status = server.status()["threads"]
        found = [one[key] for one in status]
        if found == list(counts):
            return status
        assert time.monotonic() < deadline, found
        time.sleep(0.05)


def raise_own_limit():
    """Raises the limit of open files, for many clients."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


class Default(unittest.TestCase):
    def count(self, prefix=()):
        server = Server("--export", "a=memory:1MiB", control=True, prefix=prefix)
        if "--threads" in server.arguments:  # from the environment
            del server.arguments[-2:]
        with server:
            return len(server.status()["threads"])

    def test_one_thread_for_each_processor_and_at_most_8(self):
        self.assertEqual(self.count(), min(len(os.sched_getaffinity(0)), 8))
        only = min(os.sched_getaffinity(0))
        self.assertEqual(self.count(("taskset", "-c", str(only))), 1)


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

    def test_4_and_4000_are_spread_evenly(self):
        raise_own_limit()
        with Server("--export", "a=memory:1MiB", "--threads", "4", "--memory", "1GiB",
                    control=True) as server:
            clients = []
            for count in (4, 4000):
                while len(clients) < count:
                    clients.append(server.connect())
                    greet(clients[-1])  # it is accepted
                await_each(server, "connections", *[count // 4] * 4)
            for client in clients:
                client.close()

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
        # Granted <= depth + rate x time of the whole run.
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


    def test_a_rate_holds_when_all_clients_are_on_one_thread(self):
        with Server("--export", "a=memory:1MiB", "--threads", "2", "--adaptive", "off", "--rule",
                    "start r jobid={*} rate=500", control=True) as server:
            began = time.monotonic()
            clients = [connect(server) for _ in range(8)]
            for client in clients[1::2]:
                client.shutdown()
            await_each(server, "connections", 4, 0)
            counts = [0] * 4

            def load(index):
                while time.monotonic() < began + 1:
                    clients[2 * index].pread(4096, 0)
                    counts[index] += 1

            loads = [threading.Thread(target=load, args=(i,)) for i in range(4)]
            for one in loads:
                one.start()
            for one in loads:
                one.join()
            self.assertLessEqual(sum(counts), 500 * (time.monotonic() - began) + 5 + 1)
            self.assertGreater(min(counts), 0)


class Descriptors(unittest.TestCase):
    def serve(self, *clients):
        for client in clients:
            client.sendall(request(READ, 1, 0, 4096))
            self.assertEqual(simple_reply(client, 4096), (0, 1, bytes(4096)))

    def test_clients_of_all_threads_are_served_while_none_can_be_accepted(self):
        # Only the first thread opens descriptors while the server runs. io_uring keeps its limit
        # from the start.
        with Server("--export", "a=memory:1MiB", "--threads", "2", "--io", "epoll") as server:
            clients = [server.connect() for _ in range(4)]
            for client in clients:
                enter(client)
            pid = server.process.pid
            limits = resource.prlimit(pid, resource.RLIMIT_NOFILE)
            used = {int(name) for name in os.listdir(f"/proc/{pid}/fd")}
            free = min(set(range(len(used) + 1)) - used)
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (free, limits[1]))
            late = server.connect()  # accepted by the kernel only
            server.await_log("cannot accept a connection: out of descriptors or memory")
            self.serve(*clients)
            late.setblocking(False)
            self.assertRaises(BlockingIOError, late.recv, 1)
            resource.prlimit(pid, resource.RLIMIT_NOFILE, limits)
            late.settimeout(STUCK)
            enter(late)
            self.serve(late, *clients)
            for client in (late, *clients):
                client.close()

    def test_a_thread_that_cannot_be_started_is_named_with_the_cure(self):
        for io in ("auto", "epoll"):
            done = subprocess.run(
                ["prlimit", "--nofile=60:60", WEIR, "serve", "--io", io, "--threads", "64",
                 "--control", "none", "--listen", "127.0.0.1:0", "--export", "a=memory:1MiB"],
                capture_output=True, text=True, timeout=STUCK, check=False)
            self.assertEqual(done.returncode, REFUSED, done.stderr)
            self.assertRegex(done.stderr, r"thread \d+: .*Too many open files")
            self.assertIn("use fewer threads (--threads)", done.stderr)


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
