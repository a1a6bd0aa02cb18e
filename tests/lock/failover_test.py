#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Lock servers of a cluster that crash, stop, stand still and are cut off. A checker reads the
records of the holders: no two of them ever held one lock, and fences grow, whatever disk the next
server has.
"""
import os
import random
import shutil
import signal
import sys
import time
import unittest

from locks import LockGroup, conflicts, wait_for
from network import Network

LEASE = 8  # seconds: longer than a takeover on a busy machine
SCHEDULES = int(os.environ.get("WEIR_FAILOVER_SCHEDULES", "2"))


def fence_of(group, resource="fence"):
    done = group.run(resource, "--", "sh", "-c", "echo $WEIR_LOCK_FENCE")
    assert done.returncode == 0, done
    return int(done.stdout)


def granted_at(group, resource):
    """When a command runs under a lock, by the wall clock."""
    done = group.run(resource, "--", "date", "+%s.%N")
    assert done.returncode == 0, done
    return float(done.stdout)


class Failover(unittest.TestCase):
    def test_after_a_crash_new_locks_are_granted_within_the_lease_and_2_s(self):
        with LockGroup(lease=f"{LEASE}s") as group:
            holder = group.hold("res")
            wait_for("it is held", holder.has_begun)
            last = fence_of(group)
            killed = time.time()
            group.active().kill()
            self.assertLessEqual(granted_at(group, "other") - killed, LEASE + 2)
            self.assertGreater(fence_of(group), last)
            self.assertFalse(holder.has_ended())
            second = group.hold("res")
            holder.let_go()
            self.assertEqual(holder.wait(), 0)
            wait_for("the next gets it", second.has_begun)
            self.assertEqual(conflicts([holder, second]), [])

    def test_after_an_orderly_stop_new_locks_are_granted_within_a_second(self):
        with LockGroup(lease="60s") as group:
            holder = group.hold("res")
            wait_for("it is held", holder.has_begun)
            active = group.active()
            stopped = time.time()
            active.process.send_signal(signal.SIGTERM)
            self.assertLessEqual(granted_at(group, "other") - stopped, 1)
            self.assertEqual(active.stop(), 0)
            self.assertFalse(holder.has_ended())
            holder.let_go()
            self.assertEqual(holder.wait(), 0)

    def test_with_nothing_held_the_next_server_needs_no_grace_period(self):
        with LockGroup(lease="60s") as group:
            last = fence_of(group)
            active = group.active()
            self.assertEqual(active.stop(), 0)
            self.assertGreater(fence_of(group), last)

    def test_a_server_that_stood_still_grants_nothing_when_it_continues(self):
        with LockGroup(lease=f"{LEASE}s") as group:
            first = group.hold("res")
            wait_for("it is held", first.has_begun)
            second = group.hold("res")
            wait_for("the second waits", lambda: group.ask("stats")["waiting"] == 1)
            old = group.active()
            old.process.send_signal(signal.SIGSTOP)
            first.let_go()  # the old server would grant it to the second, if it heard of it
            active = group.active(group.others(old))
            wait_for("the second gets it", second.has_begun)
            old.process.send_signal(signal.SIGCONT)
            wait_for("the old one is a standby", lambda: group.role(old) == "standby")
            self.assertEqual(group.role(active), "active")
            self.assertFalse(second.has_ended())
            self.assertEqual(conflicts([first, second]), [])

    def test_without_etcd_nothing_is_granted(self):
        with LockGroup(lease=f"{LEASE}s") as group:
            active = group.active()
            group.etcd.processes[0].send_signal(signal.SIGSTOP)
            wait_for("it steps down", lambda: group.role(active) == "standby")
            done = group.run("--timeout", "2s", "res", "--", "true")
            self.assertEqual(done.returncode, 69, done.stderr)
            self.assertIn("standby", done.stderr)
            group.etcd.processes[0].send_signal(signal.SIGCONT)
            self.assertEqual(group.run("res", "--", "true").returncode, 0)

    def test_fences_grow_without_the_disks(self):
        with LockGroup(lease=f"{LEASE}s") as group:
            last = fence_of(group)
            for server in group.servers:
                server.kill()
                for name in ("state", "state.copy"):
                    os.unlink(server.path / name)
            for server in group.servers:
                server.start()
            self.assertGreater(fence_of(group), last)

    def test_fences_grow_without_the_data_of_etcd(self):
        with LockGroup(lease=f"{LEASE}s") as group:
            for _ in range(3):
                last = fence_of(group)
                group.active().stop()
                stopped = next(one for one in group.servers if one.process.poll() is not None)
                group.active(group.others(stopped))
                stopped.start()
            last = fence_of(group)
            for server in group.servers:
                self.assertEqual(server.stop(), 0)
                shutil.rmtree(server.path / "cluster", ignore_errors=True)
                (server.path / "cluster").unlink(missing_ok=True)
            group.etcd.kill(0)
            group.etcd.forget(0)
            group.etcd.start(0)
            for server in group.servers:
                server.start()
            self.assertGreater(fence_of(group), last)

    def test_a_damaged_term_is_refused_until_it_is_mended(self):
        with LockGroup(lease=f"{LEASE}s") as group:
            last = fence_of(group)
            group.etcd.ctl("put", "/weir/locks/term", "x")
            active = group.active()
            active.kill()
            other = group.others(active)[0]
            wait_for("it says why", lambda: "etcd key /weir/locks/term: was not written by a lock "
                                            "server" in other.logged())
            self.assertEqual(group.role(other), "standby")
            group.etcd.ctl("put", "/weir/locks/term", "1000")
            self.assertGreater(fence_of(group), max(last, 1000 << 44))


@unittest.skipUnless(os.geteuid() == 0, "only root can make hosts")
class Cut(unittest.TestCase):
    def cut(self, pick):
        with Network("s0", "s1", "n0", "c") as network, \
                LockGroup(lease=f"{LEASE}s", network=network) as group:
            first = group.hold("res")
            wait_for("it is held", first.has_begun)
            second = group.hold("res")
            wait_for("the second waits", lambda: group.ask("stats")["waiting"] == 1)
            active = group.servers.index(group.active())
            names = {"active": f"s{active}", "standby": f"s{1 - active}", "etcd": "n0",
                     "clients": "c"}
            one, other = ({names[name] for name in side} for side in pick)
            network.part(one, other)
            yield group, active
            network.heal()
            first.let_go()
            self.assertIn(first.wait(), (0, 75))
            wait_for("the second gets it", second.has_begun)
            self.assertEqual(conflicts([first, second]), [])

    def test_the_active_server_from_etcd(self):
        for group, active in self.cut((["active"], ["etcd"])):
            group.active([group.servers[1 - active]])

    def test_the_clients_from_the_active_server(self):
        for group, active in self.cut((["clients"], ["active"])):
            holder = group.holders[0]
            # Its server is active and cannot be reached: it must end with its lease.
            self.assertEqual(holder.wait(), 75)

    def test_the_active_server_from_all(self):
        for group, active in self.cut((["active"], ["standby", "etcd", "clients"])):
            group.active([group.servers[1 - active]])

    def test_the_standby_from_etcd(self):
        for group, active in self.cut((["standby"], ["etcd"])):
            self.assertEqual(group.role(group.servers[active]), "active")
            self.assertFalse(group.holders[0].has_ended())


class Schedules(unittest.TestCase):
    """Faults drawn from a seed; WEIR_FAILOVER_SCHEDULES chooses how many schedules are run."""

    def test_no_two_holders(self):
        for seed in range(SCHEDULES):
            with self.subTest(seed=seed):
                self.run_schedule(random.Random(seed))

    def run_schedule(self, chance):
        with LockGroup(2, lease=f"{LEASE}s") as group:
            holders = [group.hold(f"res{i % 2}", seconds=chance.uniform(0.1, 2)) for i in range(8)]
            wait_for("somebody holds one", lambda: any(one.has_begun() for one in holders))
            fault = chance.choice(["kill", "stop", "still", "etcd", "holder"])
            victim = group.active()
            if fault == "kill":
                victim.kill()
            elif fault == "stop":
                victim.stop()
            else:
                process = {"still": victim.process, "etcd": group.etcd.processes[0],
                           "holder": chance.choice(holders).process}[fault]
                process.send_signal(signal.SIGSTOP)
                time.sleep(chance.uniform(0.5, LEASE))  # the fault itself
                process.send_signal(signal.SIGCONT)
            if victim.process.poll() is not None:
                victim.start()
            statuses = [holder.wait() for holder in holders]
            self.assertLessEqual(set(statuses), {0, 75}, fault)
            self.assertEqual(conflicts(holders), [], fault)


if __name__ == "__main__":
    sys.exit(unittest.main(verbosity=2))
