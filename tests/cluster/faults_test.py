# SPDX-License-Identifier: Apache-2.0
"""What breaks: servers, their leader, etcd, the network. Nobody helps, and limits hold.

Clients ask for more than the limit on all servers all the time and count what they get. One cluster
for all tests; each leaves it whole.
"""
import os
import subprocess
import time
import unittest

from world import LEASE, Load, World, burst, longest_gap, most, wait_for

LIMIT = 1500
BURST = burst(LIMIT)


class Faults(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.world = cls.enterClassContext(World(servers=3, etcd_nodes=3))
        cls.world.rule(f"start wide jobid={{*}} rate={LIMIT} by=rule")

    def setUp(self):
        self.world.wait_joined()
        self.leader = self.world.leader()
        self.others = [name for name in self.world.members if name != self.leader]
        self.load = self.enterContext(Load(self.world))
        self.load.heat(*self.world.members)
        self.begin = time.monotonic()
        wait_for("all clients are served", lambda: all(
            client.completions for client in self.load.clients.values()))

    def holds(self):
        times = self.load.completions(self.begin, time.monotonic())
        self.assertGreater(len(times), LIMIT / 10)
        self.assertLessEqual(most(times, 5), 5 * LIMIT * 1.02 + BURST)
        self.assertLessEqual(most(times, 0.5), 0.5 * LIMIT * 1.10 + BURST)

    def epochs_go_on(self, *names):
        """Of these servers, from now on."""
        before = {name: self.world.members[name].status()["epochs"] for name in names}
        for name, epochs in before.items():
            wait_for(f"epochs of {name} go on", lambda name=name, epochs=epochs:
                     self.world.members[name].status()["epochs"] > epochs + 20)

    def restart(self, name):
        """As another process of the same name."""
        self.world.members.pop(name).__exit__(None, None, None)
        self.world.start(name)

    def test_a_member_is_killed(self):
        name = self.others[0]
        self.world.members[name].kill()
        self.epochs_go_on(self.leader, self.others[1])
        self.restart(name)
        self.world.wait_joined()
        self.holds()

    def test_the_leader_is_killed(self):
        self.world.members[self.leader].kill()
        killed = time.monotonic()
        wait_for("another leads", lambda: self.world.members[self.others[0]].status()["leader"]
                 in self.others)
        self.epochs_go_on(*self.others)
        for name in self.others:
            times = [at for at in list(self.load.clients[name].completions)
                     if killed < at < killed + LEASE]
            # ./dev bench cluster has the figure; who waited for the next leader would wait longer.
            self.assertLess(longest_gap(times, killed, killed + LEASE), 0.75 * LEASE, name)
        self.restart(self.leader)
        self.world.wait_joined()
        self.holds()

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
                wait_for("and in the log", lambda member=member: "running alone" in member.log)
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
            self.restart(name)
            self.world.wait_joined()
        self.holds()


@unittest.skipUnless(os.geteuid() == 0, "network namespaces are root's")
class Partition(unittest.TestCase):
    """A server behind a link that is cut; its clients still reach it."""

    HERE, THERE = "10.213.74.1", "10.213.74.2"

    def ip(self, *arguments):
        subprocess.run(["ip", *arguments], check=True, capture_output=True, timeout=60)

    def setUp(self):
        self.space = f"weir{os.getpid()}"
        self.link = f"w{os.getpid()}"[:15]
        self.ip("netns", "add", self.space)
        self.addCleanup(self.ip, "netns", "del", self.space)
        self.ip("link", "add", self.link, "type", "veth", "peer", "name", "far", "netns",
                self.space)
        self.ip("addr", "add", f"{self.HERE}/24", "dev", self.link)
        self.ip("link", "set", self.link, "up")
        far = ["netns", "exec", self.space, "ip"]
        self.ip(*far, "addr", "add", f"{self.THERE}/24", "dev", "far")
        self.ip(*far, "link", "set", "far", "up")
        self.ip(*far, "link", "set", "lo", "up")

    def test_a_limit_that_was_changed_meanwhile_holds_when_it_is_back(self):
        with World(servers=0, address=self.HERE) as world:
            for i in range(2):
                world.start(f"s{i}")
            world.start("far", listen=f"{self.THERE}:0",
                        prefix=["ip", "netns", "exec", self.space])
            world.wait_joined()
            world.rule(f"start wide jobid={{*}} rate={LIMIT} by=rule")
            near = ["s0", "s1"]
            with Load(world) as load:
                load.heat(*world.members)
                begin = time.monotonic()
                self.ip("link", "set", self.link, "down")
                try:
                    wait_for("it is alone",
                             lambda: world.members["far"].status()["state"] == "alone")
                    world.wait_joined(near)
                    times = load.completions(begin, time.monotonic())
                    self.assertLessEqual(most(times, 0.5), 0.5 * LIMIT * 1.10 + BURST)
                    status, _, answer = world.members["s0"].rule("change wide rate=600")
                    self.assertEqual(status, 200, answer)
                finally:
                    self.ip("link", "set", self.link, "up")
                world.wait_joined()
                limits = world.members["far"].get("/v1/services/ost_io/rules")
                self.assertEqual({one["rate"] for one in limits if one["rule"] == "wide"}, {600})
                begin = time.monotonic()
                time.sleep(2)
                times = load.completions(begin, time.monotonic())
                self.assertLessEqual(most(times, 0.5), 0.5 * 600 * 1.10 + BURST)


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
