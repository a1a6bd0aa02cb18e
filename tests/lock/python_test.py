#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The Python client of the lock service with real servers, beside commands of `weir lock run`."""
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from locks import BUILD, ROOT, STUCK, LockGroup, LockServer, conflicts, wait_for

sys.path[:0] = [str(BUILD / "python"), str(ROOT / "tests/clients")]
import weir_lock  # noqa: E402
from certificates import Authority  # noqa: E402

# Holds a lock in another process until it is killed, and says so.
HOLDER = """
import sys, time
import weir_lock
client = weir_lock.Client(sys.argv[1])
with client.lock(sys.argv[2]) as held:
    print(held.fence, flush=True)
    time.sleep(600)
"""


# In a process of its own: gRPC complains about several event loops.
ASYNCIO = """
import asyncio, sys
import weir_lock

async def count(client, shown):
    async with client.lock("counter"):
        before = shown["n"]
        await asyncio.sleep(0.001)
        shown["n"] = before + 1

async def main(address):
    shown = {"n": 0}
    async with weir_lock.AsyncClient(address) as one, weir_lock.AsyncClient(address) as two:
        await asyncio.gather(*(count(client, shown) for client in (one, two) * 20))
        async with two.lock("cancelled"):
            task = asyncio.create_task(one.acquire("cancelled"))
            await asyncio.sleep(0.05)  # it waits for the lock
            task.cancel()
        async with two.lock("cancelled", timeout=60):
            pass
    print(shown["n"])

asyncio.run(main(sys.argv[1]))
"""
PYTHON = {**os.environ, "PYTHONPATH": str(BUILD / "python")}


def address(server):
    return server.env["WEIR_LOCK_SERVER"]


class Locks(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = LockServer("--lock-lease", "4s").__enter__()
        cls.client = weir_lock.Client(address(cls.server))

    @classmethod
    def tearDownClass(cls):
        cls.client.close()
        cls.server.__exit__(None)

    def test_fences_grow(self):
        fences = []
        for _ in range(3):
            with self.client.lock("fence") as held:
                self.assertFalse(held.is_lost)
                held.check()
                fences.append(held.fence)
        self.assertEqual(fences, sorted(set(fences)))
        self.assertGreater(fences[0], 0)

    def test_excludes_commands_and_other_clients(self):
        holder = self.server.hold("common")
        wait_for("it is held", holder.has_begun)
        with self.assertRaises(weir_lock.LockTimeout):
            self.client.acquire("common", timeout=0)
        with self.assertRaises(weir_lock.LockTimeout):
            self.client.acquire("common", timeout=0.2)
        holder.let_go()
        with self.client.lock("common", timeout=STUCK), \
                weir_lock.Client(address(self.server)) as other:
            with self.assertRaises(weir_lock.LockTimeout):
                other.acquire("common", timeout=0)
            self.assertEqual(self.server.run("--try", "common", "--", "true").returncode, 1)
        self.assertEqual(self.server.run("common", "--", "true").returncode, 0)

    def test_modes_share(self):
        with self.client.lock("modes", mode="shared"), \
                weir_lock.Client(address(self.server)) as other:
            with other.lock("modes", mode="PR", timeout=0), \
                    other.lock("modes", mode="concurrent-read", timeout=0):
                with self.assertRaises(weir_lock.LockTimeout):
                    other.acquire("modes", mode="CW", timeout=0)

    def test_what_is_not_valid_is_refused_at_once(self):
        for name in ("", b"", "x" * 256):
            with self.assertRaises(ValueError):
                self.client.acquire(name)
        with self.assertRaises(ValueError):
            self.client.acquire("x", mode="XX")
        with self.assertRaises(ValueError):
            weir_lock.Client("nowhere")

    def test_a_lock_lives_longer_than_its_lease(self):
        with self.client.lock("long") as held:
            until = time.monotonic() + 6
            while time.monotonic() < until:
                self.assertFalse(held.is_lost)
                time.sleep(0.1)

    def test_closing_returns_all_locks_at_once(self):
        client = weir_lock.Client(address(self.server))
        client.acquire("left")
        client.close()
        with self.client.lock("left", timeout=2):
            pass

    def test_asyncio(self):
        done = subprocess.run([sys.executable, "-X", "dev", "-c", ASYNCIO, address(self.server)],
                              env=PYTHON, capture_output=True, text=True, timeout=STUCK,
                              check=False)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "40\n", ""))


class Faults(unittest.TestCase):
    def holder(self, server, resource):
        process = subprocess.Popen([sys.executable, "-c", HOLDER, address(server), resource],
                                   stdout=subprocess.PIPE, text=True, env=PYTHON)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        self.addCleanup(process.stdout.close)
        return process

    def test_a_killed_client_loses_its_locks_with_its_lease(self):
        with LockServer("--lock-lease", "2s") as server, \
                weir_lock.Client(address(server)) as client:
            holding = self.holder(server, "res")
            fence = int(holding.stdout.readline())
            waiting = self.holder(server, "res")
            wait_for("it waits", lambda: server.count("waiting") == 1)
            waiting.kill()
            holding.kill()
            with client.lock("res", timeout=STUCK) as held:
                self.assertGreater(held.fence, fence)

    def test_a_client_that_stood_still_for_longer_than_its_lease_knows_it(self):
        with LockServer("--lock-lease", "2s") as server, \
                weir_lock.Client(address(server)) as client:
            held = client.acquire("res")
            server.process.send_signal(signal.SIGSTOP)
            wait_for("it is lost", lambda: held.is_lost)
            with self.assertRaises(weir_lock.LockLost):
                held.check()
            server.process.send_signal(signal.SIGCONT)
            client.release(held)
            with client.lock("res", timeout=STUCK) as again:
                self.assertGreater(again.fence, held.fence)

    def test_a_restart_of_the_server_loses_no_lock(self):
        with LockServer("--lock-lease", "20s") as server, \
                weir_lock.Client(address(server)) as client:
            held = client.acquire("res")
            server.kill()
            server.start()
            wait_for("it is replayed", lambda: server.count("granted") == 1)
            self.assertFalse(held.is_lost)
            client.release(held)

    def test_the_next_server_of_a_cluster(self):
        with LockGroup(lease="8s") as group, weir_lock.Client(address(group)) as client:
            held = client.acquire("res")
            second = group.hold("res")
            wait_for("the second waits", lambda: group.ask("stats")["waiting"] == 1)
            group.active().kill()
            with client.lock("other", timeout=STUCK) as other:
                self.assertGreater(other.fence, held.fence)
            self.assertFalse(held.is_lost)
            self.assertFalse(second.has_begun())
            client.release(held)
            wait_for("the second gets it", second.has_begun)
            self.assertEqual(conflicts([second]), [])

    def test_tls(self):
        with tempfile.TemporaryDirectory() as folder:
            ours = Authority(pathlib.Path(folder) / "ours")
            with LockServer("--tls", "require", "--tls-certificates", ours.server(),
                            address="127.0.0.1:0") as server:
                with weir_lock.Client(address(server), tls=ours.client()) as client:
                    with client.lock("res", timeout=STUCK):
                        pass
                with weir_lock.Client(address(server)) as plain:
                    with self.assertRaises(weir_lock.LockTimeout):
                        plain.acquire("res", timeout=1)


if __name__ == "__main__":
    unittest.main(verbosity=2)
