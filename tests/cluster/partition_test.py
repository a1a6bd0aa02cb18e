# SPDX-License-Identifier: Apache-2.0
"""Networks that are cut completely, partly and in one direction, without intervention: limits hold.
The requests of clients of both sides are counted together, since clients always reach their
servers.

Each server and each node of etcd has its own host (network.py).
"""
import os
import pathlib
import subprocess
import sys
import time
import unittest

from network import Network, is_alive
from under_load import LIMIT, UnderLoad
from world import LEASE, STUCK, World, bound, wait_for

SERVERS, NODES = ("s0", "s1", "s2"), ("n0", "n1", "n2")
CUT_OFF = LIMIT * 1000 // (10 * len(SERVERS))  # thousandths per second of a server that is cut off
OTHER = 600  # another limit
# A test that stays on its host until it is killed.
KILLED = """
import subprocess
from network import Network
with Network("a") as network:
    subprocess.run([*network.prefix("a"), "sh", "-c", "echo $$; exec sleep 600"], check=False)
"""


@unittest.skipUnless(os.geteuid() == 0, "network namespaces are root's")
class Partition(UnderLoad, unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.network = cls.enterClassContext(Network(*SERVERS, *NODES))
        cls.world = cls.enterClassContext(
            World(servers=len(SERVERS), etcd_nodes=len(NODES), network=cls.network))
        cls.world.rule(f"start wide jobid={{*}} rate={LIMIT} by=rule")

    def setUp(self):
        super().setUp()
        self.addCleanup(self.network.heal)

    def status(self, name):
        return self.world.members[name].status()

    def is_cut_off(self, name):
        """The server has noticed it, and uses the amount of a server that is cut off."""
        slices = self.status(name)["slices"]
        return slices and all(not one["leased"] and one["milli_per_s"] == CUT_OFF
                              for one in slices)

    def another_leads(self):
        wait_for("another leads", lambda: {self.status(name)["leader"] for name in self.others}
                 <= set(self.others))
        self.world.wait_joined(self.others)
        self.epochs_go_on(*self.others)

    def is_silent(self, name):
        """It is in no epoch, not even alone."""
        wait_for("it is on its own", lambda: self.is_cut_off(name))
        before = self.status(name)["epochs"]
        time.sleep(0.3)
        self.assertEqual(self.status(name)["epochs"], before)

    def gives_up_connections(self, name, *to):
        """Otherwise it would wait again for as long as it was cut off."""
        lost = {self.network.address(peer) for peer in to}
        wait_for("connections that lead nowhere are given up",
                 lambda: lost.isdisjoint(self.network.connections(name)))

    def heals(self):
        self.network.heal()
        self.world.wait_joined()
        wait_for("all have one leader", self.world.leader)
        self.epochs_go_on(*SERVERS)
        self.holds()

    def test_the_leader_is_cut_from_everybody(self):
        self.network.part({self.leader}, {*self.others, *NODES})
        self.another_leads()
        self.is_silent(self.leader)
        wait_for("it says that it is alone",
                 lambda: self.status(self.leader)["state"] == "alone")
        self.gives_up_connections(self.leader, *NODES)
        self.heals()

    def test_a_member_is_cut_from_the_leader_but_not_from_etcd(self):
        member, other = self.others
        self.network.part({member}, {self.leader})
        wait_for("it is on its own", lambda: self.is_cut_off(member))
        wait_for("it says that it is not joined", lambda: self.status(member)["state"] == "joining")
        self.epochs_go_on(self.leader, other)
        self.assertEqual(self.status(other)["leader"], self.leader)
        self.gives_up_connections(member, self.leader)
        self.heals()

    def test_a_member_is_cut_from_etcd_but_not_from_the_leader(self):
        member = self.others[0]
        before = len(self.world.members[member].log)
        self.network.part({member}, {*NODES})
        wait_for("it says so", lambda: "etcd" in self.status(member)["why"])
        wait_for("and in the log", lambda: "continuing in the epochs"
                 in self.world.members[member].log[before:])
        self.epochs_go_on(*SERVERS)
        self.assertNotIn("running alone", self.world.members[member].log[before:])
        self.assertEqual(self.status(member)["state"], "joined")
        self.assertEqual(self.status(member)["leader"], self.leader)
        self.heals()

    def test_the_leader_is_cut_from_all_members_but_not_from_etcd(self):
        self.network.part({self.leader}, {*self.others})
        self.another_leads()
        self.is_silent(self.leader)
        self.heals()

    def test_a_member_does_not_hear_the_leader_that_hears_it(self):
        member, other = self.others
        self.network.drop(self.leader, to=member)
        wait_for("it is on its own", lambda: self.is_cut_off(member))
        self.epochs_go_on(self.leader, other)
        self.heals()

    def test_the_leader_is_with_the_smaller_part_of_etcd(self):
        self.network.part({self.leader, "n0"}, {*self.others, "n1", "n2"})
        self.another_leads()
        self.is_silent(self.leader)
        self.heals()

    def test_a_limit_that_was_changed_meanwhile_holds_when_all_are_back(self):
        member, other = self.others
        self.network.part({member}, {self.leader, other, *NODES})
        wait_for("it is on its own", lambda: self.is_cut_off(member))
        self.holds()
        self.addCleanup(self.world.members[other].rule, f"change wide rate={LIMIT}")
        status, _, answer = self.world.members[other].rule(f"change wide rate={OTHER}")
        self.assertEqual(status, 200, answer)
        self.network.heal()
        self.world.wait_joined()
        wait_for("it has the limit", lambda: {
            one["rate"] for one in self.world.members[member].get("/v1/services/ost_io/rules")
            if one["rule"] == "wide"} == {OTHER})
        begin = time.monotonic()
        time.sleep(1.5)
        self.assertLessEqual(self.load.most(0.5, begin), bound(OTHER, 0.5))

    def test_one_packet_of_ten_is_lost(self):
        self.network.lose(10)
        for _ in range(3):
            self.epochs_go_on(*SERVERS)
        self.heals()


@unittest.skipUnless(os.geteuid() == 0, "network namespaces are root's")
class Parts(unittest.TestCase):
    """A cluster that is partitioned, but still reaches etcd: which server leads afterwards."""

    FIVE = ("s0", "s1", "s2", "s3", "s4")

    def setUp(self):
        self.network = self.enterContext(Network(*self.FIVE, "n0"))
        self.world = self.enterContext(World(servers=len(self.FIVE), network=self.network))

    def leader_of(self, name):
        return self.world.members[name].status()["leader"]

    def logs(self):
        return {name: member.log for name, member in self.world.members.items()}

    def test_a_leader_with_the_smaller_part_makes_way_and_one_with_half_stays(self):
        leader = self.world.leader()
        others = [name for name in self.FIVE if name != leader]
        small, large = {leader, others[0]}, set(others[1:])
        self.network.part(small, large)
        wait_for("one of the larger part leads", lambda: self.leader_of(others[1]) in large)
        self.world.wait_joined(large)
        term = self.world.members[others[1]].status()["term"]
        time.sleep(2 * LEASE)
        self.assertEqual(self.world.members[others[1]].status()["term"], term, self.logs())
        self.network.heal()
        self.world.wait_joined()
        # Four are left, of which two stay with the leader.
        self.world.end(others[0])
        leader = self.world.leader()
        others = [name for name in self.world.members if name != leader]
        term = self.world.members[leader].status()["term"]
        self.network.part({leader, others[0]}, set(others[1:]))
        wait_for("the others have noticed", lambda: all(
            self.world.members[name].status()["state"] == "joining" for name in others[1:]))
        time.sleep(2 * LEASE)
        self.world.wait_joined([leader, others[0]])
        self.assertEqual(self.world.members[others[0]].status()["term"], term, self.logs())


@unittest.skipUnless(os.geteuid() == 0, "network namespaces are root's")
class Hosts(unittest.TestCase):
    def test_hosts_of_a_test_that_was_killed_are_taken_away_with_what_runs_there(self):
        with subprocess.Popen([sys.executable, "-c", KILLED], stdout=subprocess.PIPE, text=True,
                              cwd=pathlib.Path(__file__).parent) as killed:
            there = int(killed.stdout.readline())
            killed.kill()
        os.kill(there, 0)  # it still runs
        with Network("a") as network:
            spaces = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True,
                                    timeout=STUCK, check=True).stdout
            self.assertIn(network.space("a"), spaces)
            self.assertNotIn(f"weirnet-{killed.pid}-", spaces)
        wait_for("it has ended", lambda: not is_alive(there))


if __name__ == "__main__":
    unittest.main()
