#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Servers and holders that crash, stop and come back. A checker reads the records of the holders:
no two of them ever held one lock. With a server without a grace period it finds two.
"""
import os
import pathlib
import signal
import subprocess
import unittest

from locks import LockServer, conflicts, wait_for


def stop_kill_restart(server):
    """A holder that cannot be reached while its server crashes; another waits for its lock."""
    first = server.hold("res")
    wait_for("the first holds it", first.has_begun)
    second = server.hold("res")
    wait_for("the second waits", lambda: server.count("waiting") == 1)
    first.process.send_signal(signal.SIGSTOP)
    server.kill()
    server.start()
    return first, second


class Server(unittest.TestCase):
    def test_after_a_crash_no_two_hold_one_lock(self):
        for _ in range(4):
            with LockServer("--lock-lease", "6s", "--lock-grace", "7500ms") as server:
                first, second = stop_kill_restart(server)
                first.process.send_signal(signal.SIGCONT)
                wait_for("the grace period is over", lambda: not server.ask("stats")["recovering"])
                is_kept = not first.has_ended()
                self.assertFalse(is_kept and second.has_begun())
                first.let_go()
                status = first.wait()
                wait_for("the second gets it", second.has_begun)
                second.let_go()
                self.assertEqual(second.wait(), 0)
                self.assertEqual(conflicts([first, second]), [])
                if is_kept and status == 0:
                    return
                # The machine was so slow that the lease ended before the server was back.
        self.fail("the lock was never kept over a crash")

    def test_without_grace_the_checker_finds_two_holders(self):
        with LockServer(careless_lease_ms=30_000) as server:
            first, second = stop_kill_restart(server)
            wait_for("the second gets what the first has", second.has_begun)
            self.assertFalse(first.has_ended())
            self.assertEqual([what for what, *_ in conflicts([first, second])], ["both held it"])
            first.process.send_signal(signal.SIGCONT)
            # The server no longer knows its lock.
            self.assertEqual(first.wait(), 75)

    def test_many_holders_and_crashes(self):
        with LockServer("--lock-lease", "8s", "--lock-grace", "10s") as server:
            holders = [server.hold(f"res{i % 2}", seconds=0.2) for i in range(8)]
            wait_for("somebody holds one", lambda: any(holder.has_begun() for holder in holders))
            server.kill()
            server.start()
            statuses = [holder.wait() for holder in holders]
            self.assertLessEqual(set(statuses), {0, 75})
            self.assertEqual(conflicts(holders), [])
            for holder, status in zip(holders, statuses):
                self.assertTrue(status != 0 or holder.has_begun())

    def test_a_restart_in_order_costs_no_holder_its_lock(self):
        with LockServer("--lock-lease", "30s") as server:
            holder = server.hold("res")
            wait_for("it is held", holder.has_begun)
            self.assertEqual(server.stop(), 0)
            server.start()
            wait_for("the lock was replayed", lambda: server.count("granted") == 1)
            holder.let_go()
            self.assertEqual(holder.wait(), 0)

    def test_a_server_that_stays_away_ends_the_command(self):
        with LockServer("--lock-lease", "2s") as server:
            holder = server.hold("res")
            wait_for("it is held", holder.has_begun)
            server.kill()
            self.assertEqual(holder.wait(), 75)
            self.assertTrue(holder.has_ended())  # it got SIGTERM and recorded its end


    def test_a_damaged_state_is_refused_and_mended_by_what_the_message_says(self):
        with LockServer("--lock-lease", "1s") as server:
            def fence():
                return int(server.run("x", "--", "sh", "-c", "echo $WEIR_LOCK_FENCE").stdout)
            last = fence()
            for size in (0, 20):
                self.assertEqual(server.stop(), 0)
                os.truncate(server.path / "state", size)
                with self.assertRaisesRegex(AssertionError, "is damaged") as refused:
                    server.start()
                cure = str(refused.exception).rpartition("run: ")[2].strip()
                subprocess.run(["sh", "-c", cure], check=True, cwd="/")
                server.start()
                self.assertGreater(fence(), last)
                last = fence()


class Holders(unittest.TestCase):
    def test_what_a_killed_holder_had_goes_to_the_next_after_its_lease(self):
        with LockServer("--lock-lease", "2s") as server:
            first = server.hold("res")
            wait_for("it is held", first.has_begun)
            second = server.hold("res", seconds=0)
            wait_for("the second waits", lambda: server.count("waiting") == 1)
            first.process.kill()
            first.wait()
            self.assertEqual(second.wait(), 0)
            self.assertEqual(server.ask("stats")["evictions"], 1)

    def test_a_holder_that_slept_through_its_lease_ends_its_command(self):
        with LockServer("--lock-lease", "2s") as server:
            first = server.hold("res")
            wait_for("it is held", first.has_begun)
            second = server.hold("res", seconds=0)
            wait_for("the second waits", lambda: server.count("waiting") == 1)
            first.process.send_signal(signal.SIGSTOP)
            self.assertEqual(second.wait(), 0)
            self.assertFalse(first.has_ended())
            first.process.send_signal(signal.SIGCONT)
            self.assertEqual(first.wait(), 75)
            self.assertTrue(first.has_ended())

    def test_a_command_that_ended_after_its_lease_did_not_end_under_the_lock(self):
        with LockServer("--lock-lease", "2s") as server:
            first = server.hold("res")
            wait_for("it is held", first.has_begun)
            second = server.hold("res", seconds=0)
            wait_for("the second waits", lambda: server.count("waiting") == 1)
            first.process.send_signal(signal.SIGSTOP)
            self.assertEqual(second.wait(), 0)
            guard = first.process.pid
            children = pathlib.Path(f"/proc/{guard}/task/{guard}/children").read_text().split()
            first.let_go()  # exits by itself, with status 0
            wait_for("the command has ended", lambda: all(
                pathlib.Path(f"/proc/{one}/stat").read_text().rpartition(") ")[2][0] == "Z"
                for one in children))
            first.process.send_signal(signal.SIGCONT)
            self.assertEqual(first.wait(), 75)
            self.assertIn("was lost before", server.logged())

    def test_a_command_that_does_not_listen_is_killed(self):
        with LockServer("--lock-lease", "2s") as server:
            deaf = server.popen("--kill-after", "300ms", "deaf", "--", "sh", "-c",
                                "trap '' TERM; touch $0; while :; do sleep 0.1; done",
                                server.path / "deaf")
            wait_for("it runs", (server.path / "deaf").exists)
            server.kill()
            self.assertEqual(deaf.wait(90), 75)


if __name__ == "__main__":
    unittest.main(verbosity=2)
