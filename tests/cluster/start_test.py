# SPDX-License-Identifier: Apache-2.0
"""Servers that start and restart, with and without etcd, while clients count. Clients reconnect as
soon as a server accepts them, so requests served before it has joined are counted too.
"""
import signal
import time
import unittest

from world import (AT_A_RATE, RELEASE, STUCK, Etcd, Load, Member, World, bound, free_ports,
                   longest_gap, take_precedence, wait_for)

LIMIT = 1500
SERVERS = 3
CUT_OFF = LIMIT / (10 * SERVERS)  # of a server that is cut off
RULE = f"start wide jobid={{*}} rate={LIMIT} by=rule"


def setUpModule():
    take_precedence()


class Counted(unittest.TestCase):
    """A cluster of three with the rule, and clients that send more than it allows."""

    limit = LIMIT

    def setUp(self):
        self.world = self.enterContext(World(servers=SERVERS))
        self.world.rule(f"start wide jobid={{*}} rate={self.limit} by=rule")
        self.load = self.enterContext(Load(self.world))
        self.load.heat(*self.world.members)
        wait_for("all clients are served", lambda: all(
            client.completions for client in self.load.clients.values()))
        # The rule was started without clients, so all requests count.
        self.begin = 0

    def holds(self):
        for width in 5, 0.5:
            self.assertLessEqual(self.load.most(width, self.begin),
                                 bound(self.limit, width, SERVERS), width)

    def all_at_once(self, number=signal.SIGKILL):
        for member in self.world.members.values():
            member.process.send_signal(number)
        for name in self.world.members:
            self.world.members[name].end(number)
        for member in self.world.members.values():
            member.launch()
        for member in self.world.members.values():
            member.await_ready()


class Restarts(Counted):
    def test_one_after_the_other(self):
        for _ in range(2):
            for name in list(self.world.members):
                self.world.restart(name)
        self.world.wait_joined()
        time.sleep(1)
        self.holds()

    def test_one_after_the_other_by_kill_9(self):
        for _ in range(2):
            for name in list(self.world.members):
                self.world.restart(name, signal.SIGKILL)
        self.world.wait_joined()
        time.sleep(1)
        self.holds()

    def test_all_at_once(self):
        for number in signal.SIGTERM, signal.SIGKILL:
            self.all_at_once(number)
            self.world.wait_joined()
            time.sleep(0.5)
        self.holds()

    def test_the_same_server_again_and_again(self):
        """Tokens in its bucket at each start would add up."""
        name = self.world.leader()
        victim = next(one for one in self.world.members if one != name)
        for _ in range(10):
            self.world.restart(victim, signal.SIGKILL)
        self.world.wait_joined()
        self.holds()

    def test_a_server_that_starts_is_never_without_its_part(self):
        for number in signal.SIGTERM, signal.SIGKILL:
            for name in list(self.world.members):
                client = self.load.clients[name]
                self.world.restart(name, number)
                begin = time.monotonic()
                self.world.wait_joined()
                time.sleep(0.5)
                end = time.monotonic()
                times = [at for at in list(client.completions) if begin < at < end]
                # With the amount of a server that is cut off there is one every 20 ms.
                self.assertLess(longest_gap(times, begin, end), 0.5, (name, number))
        self.holds()


class WithoutEtcd(Counted):
    def test_rules_on_disk_hold_from_the_first_client_on(self):
        self.world.etcd.kill(0)
        for number in signal.SIGTERM, signal.SIGKILL:
            self.all_at_once(number)
            begin = time.monotonic()
            time.sleep(2)
            end = time.monotonic()
            for name, client in self.load.clients.items():
                served = [at for at in list(client.completions) if begin < at < end]
                self.assertGreater(len(served), CUT_OFF, name)
                self.assertLessEqual(len(served), CUT_OFF * (end - begin) * 1.02 + 2, name)
                member = self.world.members[name]
                self.assertEqual([(one["milli_per_s"], one["leased"])
                                  for one in member.status()["slices"]], [(CUT_OFF * 1000, False)])
                member.await_log("using the 1 rules in")
                self.assertIn("wide", member.weir("cluster", "rule", "list")[1])
        self.world.etcd.start(0)
        self.world.wait_joined()
        time.sleep(1)
        self.holds()

    def test_servers_that_start_one_after_the_other_while_etcd_comes_and_goes(self):
        names = list(self.world.members)
        self.world.etcd.kill(0)
        self.world.restart(names[0], signal.SIGKILL)
        self.world.etcd.start(0)
        self.world.restart(names[1])
        self.world.wait_joined()
        self.world.etcd.kill(0)
        self.world.restart(names[2], signal.SIGKILL)
        time.sleep(1)
        self.world.etcd.start(0)
        self.world.wait_joined()
        time.sleep(1)
        self.holds()


class LowLimit(Counted):
    limit = 5

    def test_holds_through_restarts(self):
        for name in list(self.world.members):
            time.sleep(3)
            self.world.restart(name, signal.SIGKILL)
        time.sleep(6)
        served = len(self.load.completions(0, time.monotonic()))
        self.assertGreater(served, 5 * self.limit)
        self.holds()


class Changes(unittest.TestCase):
    """Rules that change while a server is down."""

    def setUp(self):
        self.world = self.enterContext(World(servers=2))
        self.world.rule(RULE)

    def rules(self, name):
        return {one["rule"]: one["rate"] for one in
                self.world.members[name].get("/v1/services/ost_io/rules")}

    def test_what_changed_meanwhile_is_in_force_when_clients_come(self):
        self.world.members["s1"].end()
        self.assertEqual(self.world.members["s0"].rule("change wide rate=70")[0], 200)
        self.world.start_again("s1")
        self.assertEqual(self.rules("s1")["wide"], 70)
        self.world.members["s1"].end()
        self.assertEqual(self.world.members["s0"].rule("stop wide")[0], 200)
        self.world.start_again("s1")
        self.assertNotIn("wide", self.rules("s1"))
        self.assertNotIn("wide", (self.world.members["s1"].path / "state").read_text())

    def test_rules_are_back_at_once_with_the_policy(self):
        member = self.world.members["s0"]
        for policy in "fifo", "tbf jobid":
            status = member.lctl("set_param", f"ost.OSS.ost_io.nrs_policies={policy}")[0]
            self.assertEqual(status, 0)
        self.assertEqual(self.rules("s0")["wide"], LIMIT)

    def test_an_etcd_that_has_lost_its_data_takes_no_rule_away(self):
        etcd = self.world.etcd
        etcd.kill(0)
        etcd.forget(0)
        etcd.start(0)
        for name, member in self.world.members.items():
            wait_for("it says so", lambda member=member: member.status()["rule_errors"])
            self.assertIn("the rules in etcd are not used", member.status()["rule_errors"][0])
            self.assertEqual(self.rules(name)["wide"], LIMIT)
        self.world.wait_joined()
        status, _, answer = self.world.members["s0"].rule("change wide rate=70")
        self.assertNotEqual(status, 200)
        self.assertIn("remove the file", str(answer))
        for member in self.world.members.values():
            member.end()
            (member.path / "state").unlink()
        for name in list(self.world.members):
            self.world.start_again(name)
            self.assertNotIn("wide", self.rules(name))
        self.world.rule(RULE)


class NoRules(unittest.TestCase):
    """A server that knows no rules and cannot reach etcd."""

    def setUp(self):
        self.ports = free_ports(1)

    def member(self, more=""):
        member = Member("s0", [f"127.0.0.1:{self.ports[0]}"], binary=RELEASE, more=more)
        member.launch()
        self.addCleanup(member.__exit__, None)
        return member

    def etcd(self):
        etcd = Etcd()
        self.addCleanup(etcd.folder.cleanup)
        etcd.clients, etcd.peers, etcd.processes = self.ports, free_ports(1), [None]
        etcd.start(0)
        self.addCleanup(etcd.end)
        return etcd

    def test_nobody_is_accepted_until_etcd_answers(self):
        member = self.member()
        member.await_log("accepting no clients until etcd answers")
        with member.connect() as client:
            client.settimeout(1)
            with self.assertRaises(TimeoutError):
                client.recv(1)
            status = member.status()
            self.assertEqual(status["state"], "alone")
            self.assertIn("accepting no clients", status["why"])
            self.etcd()
            member.await_ready()
            client.settimeout(STUCK)
            self.assertTrue(client.recv(1), "one that waited is let in")
        wait_for("it has joined", member.is_joined)

    def test_it_ends_in_order_while_nobody_is_accepted(self):
        member = self.member()
        member.await_log("accepting no clients")

    def test_it_serves_at_a_rate_if_told_so(self):
        member = self.member(AT_A_RATE.replace("1000", "50"))
        member.await_ready()
        member.await_log("at most 50 operations per second")
        seconds = member.read("j.1", 101)
        self.assertGreaterEqual(seconds, 100 / 50 - 0.01)
        self.assertIn("at most 50 operations", member.status()["why"])
        self.etcd()
        wait_for("it has joined", member.is_joined)
        self.assertLess(member.read("j.1", 101), 1, "there are no rules, and that is known now")
        self.assertNotIn("at most", member.status()["why"])


class StateFile(unittest.TestCase):
    """The state file may be damaged, of another cluster, or not writable."""

    def refused(self, member, *words):
        with self.assertRaises(AssertionError) as failure:
            member.__enter__()
        for word in ("state", *words):
            self.assertIn(word, str(failure.exception))

    def member(self, etcd=("127.0.0.1:1",), more=AT_A_RATE):
        return Member("s0", etcd, binary=RELEASE, more=more)

    def test_a_damaged_one_is_refused(self):
        for damage in b"", b"garbage", b"\0" * 4096, b"weir cluster state 1\nprefix /weir\n":
            member = self.member()
            (member.path / "state").write_bytes(damage)
            self.refused(member, "is damaged", "remove it")

    def test_one_of_another_cluster_is_refused(self):
        with Etcd() as etcd, self.member(etcd.endpoints()) as member:
            state = (member.path / "state").read_text()
            other = self.member(more='prefix = "/other"\n' + AT_A_RATE)
            (other.path / "state").write_text(state)
            self.refused(other, "contains the rules of the cluster '/weir'")

    def test_one_that_cannot_be_written_is_refused(self):
        member = self.member()
        member.config.write_text(member.config.read_text().replace(
            str(member.path / "state"), "/proc/weir/state"))
        self.refused(member, "/proc/weir")

    def test_two_servers_do_not_share_one(self):
        with self.member() as member:
            other = self.member()
            other.config.write_text(other.config.read_text().replace(
                str(other.path / "state"), str(member.path / "state")))
            self.refused(other, "is in use")

    def test_a_disk_that_is_full_later_is_told_and_the_rule_holds(self):
        with World(servers=1) as world:
            member = world.members["s0"]
            (member.path / "state.new").mkdir()  # where it would be written
            self.assertEqual(member.rule(RULE)[0], 200)
            wait_for("it is told", lambda: member.status()["rule_errors"])
            self.assertIn("rules of the cluster cannot be saved", member.status()["rule_errors"][0])
            self.assertIn("wide", [one["rule"] for one in
                                   member.get("/v1/services/ost_io/rules")])
            (member.path / "state.new").rmdir()
            wait_for("it is kept", lambda: "wide" in (member.path / "state").read_text())


if __name__ == "__main__":
    unittest.main()
