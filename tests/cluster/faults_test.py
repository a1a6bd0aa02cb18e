# SPDX-License-Identifier: Apache-2.0
"""Failures of servers, their leader and etcd, without intervention: limits hold. partition_test.py
cuts the network.
"""
import os
import time
import unittest

from under_load import LIMIT, UnderLoad
from world import LEASE, Load, World, longest_gap, take_precedence, wait_for

from measured import MeasuredTest

GAP = 0.1  # seconds without a completion
GO_ON = 2 + LEASE  # seconds until epochs continue


def setUpModule():
    take_precedence()


class Faults(UnderLoad, MeasuredTest):
    @classmethod
    def setUpClass(cls):
        cls.world = cls.enterClassContext(World(servers=3, etcd_nodes=3))
        cls.world.rule(f"start wide jobid={{*}} rate={LIMIT} by=rule")

    def test_a_member_is_killed(self):
        name = self.others[0]
        self.world.members[name].kill()
        self.epochs_go_on(self.leader, self.others[1])
        self.world.start_again(name)
        self.world.wait_joined()
        self.holds()

    def test_the_leader_is_killed(self):
        def attempt():
            gap, went_on = self.kill_leader()
            if gap <= GAP and went_on <= GO_ON:
                return None
            return f"{gap:.3f} s without a completion, and epochs went on after {went_on:.1f} s"
        self.measure(attempt)
        self.holds()

    def kill_leader(self):
        """Kills the leader and waits until it is back. Returns the longest time in which a
        remaining server completed nothing, and the time until epochs continued."""
        leader = self.world.leader()
        others = [name for name in self.world.members if name != leader]
        begin = time.monotonic()
        self.world.members[leader].kill()
        wait_for("another leads", lambda: self.world.members[others[0]].status()["leader"]
                 in others)
        self.epochs_go_on(*others)
        end = time.monotonic()
        self.world.start_again(leader)
        self.world.wait_joined()
        gaps = [longest_gap([at for at in list(self.load.clients[name].completions)
                             if begin < at < end], begin, end) for name in others]
        return max(gaps), end - begin

    def test_a_node_of_etcd_is_killed(self):
        self.world.etcd.kill(0)
        self.epochs_go_on(*self.world.members)
        self.world.etcd.start(0)
        self.world.wait_joined()
        self.holds()

    def test_all_of_etcd_is_killed(self):
        for node in range(3):
            self.world.etcd.kill(node)
        try:
            for member in self.world.members.values():
                wait_for("it says that it is alone", lambda member=member:
                         member.status()["state"] == "alone")
                member.await_log("running alone")
            time.sleep(1)
            served = self.load.completions(time.monotonic() - 0.5, time.monotonic())
            self.assertTrue(served, "servers that are alone serve on")
        finally:
            for node in range(3):
                self.world.etcd.start(node)
        self.world.wait_joined()
        self.epochs_go_on(*self.world.members)
        self.holds()

    def test_a_member_stands_still_for_longer_than_the_timeout(self):
        member = self.world.members[self.others[0]]
        evictions = self.world.members[self.leader].status()["at_leader"]["evictions"]
        member.stop()
        try:
            self.epochs_go_on(self.leader, self.others[1])
            after = self.world.members[self.leader].status()["at_leader"]["evictions"]
            self.assertGreater(after, evictions)
        finally:
            member.resume()
        self.epochs_go_on(*self.world.members)
        self.holds()

    def test_status_shows_who_is_in_the_epochs_and_no_more_than_the_limit(self):
        name = self.others[0]
        member, leader = self.world.members[name], self.world.members[self.leader]

        def row():
            status = leader.status()
            everywhere = [one for each in status["members"] for one in each["slices"]]
            self.assertTrue(everywhere)
            self.assertLessEqual(sum(one["milli_per_s"] for one in everywhere), LIMIT * 1000)
            return next(each for each in status["members"] if each["name"] == name)

        self.assertTrue(row()["joined"])
        member.stop()
        try:
            # Evicted after 0.1 s, its slice ends after 0.4 s; its stream and its registration
            # remain.
            wait_for("it is not shown as joined", lambda: not row()["joined"])
            wait_for("its slice has ended", lambda: not row()["slices"][0]["leased"])
            self.assertEqual(row()["slices"][0]["milli_per_s"], LIMIT * 1000 // 30)
            self.assertFalse(row()["joined"])
        finally:
            member.resume()
        wait_for("it is back", lambda: row()["joined"] and row()["slices"][0]["leased"])
        self.holds()

    def test_the_leader_stands_still_for_longer_than_its_lease(self):
        leader = self.world.members[self.leader]
        leader.stop()
        try:
            wait_for("another leads", lambda: self.world.members[self.others[0]].status()["leader"]
                     in self.others)
            self.epochs_go_on(*self.others)
        finally:
            leader.resume()
        self.world.wait_joined()
        self.epochs_go_on(*self.world.members)
        self.holds()

    def test_all_are_restarted_one_after_the_other(self):
        for name in list(self.world.members):
            self.world.restart(name)
            self.world.wait_joined()
        self.holds()


@unittest.skipUnless(os.geteuid() == 0, "time namespaces are root's")
class Clocks(unittest.TestCase):
    def test_servers_whose_clocks_differ_by_hours_are_one_cluster(self):
        with World(servers=0) as world:
            world.start("s0")
            world.start("s1", prefix=["unshare", "--time", "--monotonic", "36000"])
            world.wait_joined()
            world.rule(f"start wide jobid={{*}} rate={LIMIT} by=rule")
            with Load(world) as load:
                load.heat("s1")
                wait_for("the late one has nearly all of it", lambda: any(
                    one["milli_per_s"] > LIMIT * 900
                    for one in world.members["s1"].status()["slices"]))
            evictions = world.members["s0"].status()["at_leader"]["evictions"]
            self.assertEqual(evictions, 0)


if __name__ == "__main__":
    unittest.main()
