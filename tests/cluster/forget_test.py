# SPDX-License-Identifier: Apache-2.0
"""Servers that are away, by name, and those that will not come back.

One cluster of three for all tests; each test restores it.
"""
import signal
import unittest

from world import World, wait_for

LIMIT = 3000


class Forget(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.world = cls.enterClassContext(World(servers=3))
        cls.world.rule(f"start wide jobid={{*}} rate={LIMIT} by=rule")

    def setUp(self):
        self.world.wait_joined()
        self.leader = self.world.leader()
        self.others = [name for name in self.world.members if name != self.leader]
        self.counts(3)

    def counts(self, members):
        """All servers have received this number of members."""
        wait_for(f"limits are for {members}", lambda: all(
            member.status()["counted"] == members for member in self.world.members.values()))

    def kill(self, name):
        member = self.world.members.pop(name)
        member.kill()
        member.__exit__(None, None, None)

    def entry(self, asked, name):
        found = [one for one in self.world.members[asked].status()["members"]
                 if one["name"] == name]
        return found[0] if found else None

    def is_away(self, asked, name):
        entry = self.entry(asked, name)
        return entry and not entry["registered"] and not entry["joined"]

    def known(self):
        keys = self.world.etcd.ctl("get", "--prefix", "--keys-only", "/weir/known/").split()
        return [key.rpartition("/")[2] for key in keys]

    def whole(self):
        """The whole limit is in slices, except what two idle servers keep."""
        status = self.world.any().status()
        slices = [one["milli_per_s"] for member in status["members"] for one in member["slices"]
                  if member["joined"]]
        return len(slices) == len(self.world.members) and sum(slices) >= LIMIT * 1000 * 0.999

    def test_a_member_that_was_killed_is_away_until_it_is_forgotten(self):
        victim, asked = self.others
        self.kill(victim)
        wait_for("it is away", lambda: self.is_away(asked, victim))
        self.assertIn(victim, self.known())
        self.assertTrue(self.entry(asked, victim)["address"])
        self.assertLess(self.entry(asked, victim)["away_ns"], 60e9)
        self.counts(3)
        self.assertFalse(self.whole())
        text = self.world.members[asked].weir("cluster", "status")[1]
        self.assertRegex(text, f"(?m)^{victim} .* away")
        status, _, error = self.world.members[asked].weir("cluster", "forget", victim)
        self.assertEqual(status, 0, error)
        self.world.members[asked].await_log(
            f'what="forget member" on="cluster member {victim}" before="" after="" generation=')
        self.counts(2)
        wait_for("the limit is wholly the others'", self.whole)
        self.assertNotIn(victim, self.known())
        for name in self.world.members:
            self.assertIsNone(self.entry(name, victim))
        # It joins as a new server.
        self.world.start(victim)
        self.world.wait_joined()
        self.counts(3)

    def test_a_leader_after_another_knows_who_is_away_and_who_was_forgotten(self):
        victim, heir = self.others
        self.kill(victim)
        self.kill(self.leader)
        for name in victim, self.leader:
            wait_for(f"{name} is away", lambda name=name: self.is_away(heir, name))
        wait_for("the heir leads", lambda: self.world.members[heir].status()["leader"] == heir)
        self.counts(3)
        for name, left in (victim, 2), (self.leader, 1):
            status, _, error = self.world.members[heir].weir("cluster", "forget", name)
            self.assertEqual(status, 0, error)
            self.counts(left)
        for name in victim, self.leader:
            self.world.start(name)
        self.world.wait_joined()

    def test_who_says_goodbye_is_known_no_more(self):
        name, asked = self.others
        member = self.world.members.pop(name)
        member.stop(signal.SIGTERM)
        member.process.wait(60)
        self.assertNotIn(name, self.known())
        self.counts(2)
        wait_for("nobody has it", lambda: self.entry(asked, name) is None)
        member.__exit__(None, None, None)
        # A leader that has left is not counted either.
        self.world.end(self.leader)
        wait_for("the last leads", lambda: self.world.members[asked].status()["leader"] == asked)
        self.counts(1)
        for each in name, self.leader:
            self.world.start(each)
        self.world.wait_joined()

    def test_what_cannot_be_forgotten_is_told(self):
        member = self.world.members[self.leader]
        for name, status, words in (
                (self.leader, 65, "stop it first"), (self.others[0], 65, "stop it first"),
                ("nobody", 66, "is not known"), ("", 66, "is not known"),
                ("../leader", 66, "is not known"), ("x" * 5000, 66, "is not known")):
            with self.subTest(name[:20]):
                got, _, error = member.weir("cluster", "forget", name)
                self.assertEqual(got, status, error)
                self.assertIn(words, error)
        self.assertEqual(member.weir("cluster", "forget")[0], 64)
        for method, path, status in (("GET", "nobody", 405), ("PUT", "nobody", 405),
                                     ("DELETE", "nobody", 404), ("DELETE", self.leader, 409)):
            got, _, body = member.http(method, f"/v1/cluster/members/{path}")
            self.assertEqual(got, status, body)
        # Names without a server do not exist.
        for key in "/weir/known/", "/weir/known/a/b", "/weir/known/" + "y" * 99:
            self.world.etcd.ctl("put", key, "10.0.0.1:1")
            self.addCleanup(self.world.etcd.ctl, "del", key)
        self.world.etcd.ctl("put", "/weir/known/ghost", "10.0.0.1:1")
        wait_for("it is away", lambda: self.is_away(self.leader, "ghost"))
        self.assertIsNone(self.entry(self.leader, "ghost")["away_ns"])
        self.assertEqual({one["name"] for one in member.status()["members"]},
                         {"ghost", *self.world.members})
        self.counts(3)
        self.assertIn("ghost", member.weir("cluster", "forget", "nobody")[2])
        self.assertEqual(member.weir("cluster", "forget", "ghost")[0], 0)
        self.assertIsNone(self.entry(self.leader, "ghost"))


if __name__ == "__main__":
    unittest.main()
