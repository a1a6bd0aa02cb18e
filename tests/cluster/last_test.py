# SPDX-License-Identifier: Apache-2.0
"""partition = "last": servers that are cut off keep the slices that they had last, and no other
server gets them. The limit is used while the leader or etcd is gone, and never exceeded.
"""
import os
import time
import unittest

from world import LEASE, Load, World, bound, take_precedence, wait_for

from measured import MeasuredTest

LIMIT = 1500
SERVERS = 3
USED = 0.95  # at least, of the limit
LAST = 'partition = "last"'
# Seconds without etcd; WEIR_TEST_OUTAGE=60 for the figure in docs/design/epochs.md.
OUTAGE = float(os.environ.get("WEIR_TEST_OUTAGE", 5 * LEASE))
ALONE = LIMIT / (400 * SERVERS)  # of a server without a slice


def setUpModule():
    take_precedence()


class Last(MeasuredTest):
    def setUp(self):
        self.world = self.enterContext(World(servers=SERVERS, more=LAST))
        self.world.rule(f"start wide jobid={{*}} rate={LIMIT} by=rule")
        self.load = self.enterContext(Load(self.world))
        self.leader = self.world.leader()
        self.others = [name for name in self.world.members if name != self.leader]

    def served(self, begin, end):
        """The fraction of the limit that was used, which may not be exceeded in any window."""
        for width in 5, 0.5:
            self.assertLessEqual(self.load.most(width, begin, end), bound(LIMIT, width, SERVERS))
        return len(self.load.completions(begin, end)) / (LIMIT * (end - begin))

    def warm(self, *names):
        self.load.heat(*names)
        wait_for("nearly all of it is theirs", lambda: sum(
            one["milli_per_s"] for name in names
            for one in self.world.members[name].status()["slices"]) > LIMIT * 980)
        time.sleep(0.5)

    def wait_divided(self):
        """All members have reported what they hold to the leader."""
        self.world.wait_joined()
        wait_for("all of the limit can be divided", lambda: (
            self.world.any().status()["at_leader"] or {}).get("waits_for_reports") is False)

    def through(self, seconds, moves=()):
        begin = time.monotonic()
        if moves:
            names = list(moves)
            turn = 0
            while time.monotonic() < begin + seconds:
                self.load.heat(names[turn % len(names)])
                time.sleep(max(min(2, begin + seconds - time.monotonic()), 0))
                turn += 1
        else:
            time.sleep(seconds)
        return self.served(begin, time.monotonic())

    def test_is_used_while_the_leader_dies_and_another_is_elected(self):
        def attempt():
            leader = self.world.leader()
            others = [name for name in self.world.members if name != leader]
            self.warm(*others)
            self.world.members[leader].kill()
            used = self.through(4 * LEASE)
            wait_for("another leads", lambda: self.world.members[others[0]].status()["leader"]
                     in others)
            # The new leader does not know what the dead one holds, and follows the demand with the
            # rest.
            status = self.world.members[others[0]].status()
            self.assertTrue(status["at_leader"]["waits_for_reports"])
            self.load.heat(others[0])
            time.sleep(1)
            moved = self.through(2)
            self.world.start_again(leader)
            self.wait_divided()
            print(f"through the leader's death: {used:.3f}, then {moved:.3f}")
            return None if min(used, moved) >= USED else f"{used:.3f}, {moved:.3f} of it used"
        self.measure(attempt)

    def test_is_used_while_the_hot_spot_moves_without_etcd(self):
        def attempt():
            self.warm(self.leader)
            self.world.etcd.kill(0)
            try:
                used = self.through(OUTAGE, moves=self.world.members)
            finally:
                self.world.etcd.start(0)
            self.wait_divided()
            print(f"through {OUTAGE} s without etcd: {used:.3f}")
            return None if used >= USED else f"{used:.3f} of the limit used"
        self.measure(attempt)

    def test_what_a_dead_server_held_is_nobody_elses_until_it_is_forgotten(self):
        dead, other = self.others
        self.warm(dead)
        self.world.members[dead].kill()
        self.load.heat(other)
        time.sleep(1)
        self.assertLess(self.through(2 * LEASE), 0.05)
        wait_for("it can be forgotten", lambda: self.world.members[other].weir(
            "cluster", "forget", dead)[0] == 0)
        wait_for("the other has it", lambda: any(
            one["milli_per_s"] > LIMIT * 980
            for one in self.world.members[other].status()["slices"]))
        self.world.start_again(dead)
        self.wait_divided()

    def test_a_restarted_server_does_not_use_the_slice_it_had(self):
        hot, other = self.others
        self.warm(hot)
        self.world.etcd.kill(0)
        try:
            self.world.members[hot].kill()
            self.world.start_again(hot)
            begin = time.monotonic()
            time.sleep(2)
            got = len(self.load.completions(begin, time.monotonic()))
            # Its bucket holds one token, and one may have been counted late.
            self.assertLessEqual(got, 2 * ALONE + 2)
        finally:
            self.world.etcd.start(0)
        self.wait_divided()
        self.warm(other)

    def test_one_that_stood_still_goes_on_with_its_slice(self):
        still, other = self.others
        self.warm(still)
        self.world.members[still].stop()
        self.load.heat(still, other)
        begin = time.monotonic()
        time.sleep(2 * LEASE)
        self.world.members[still].resume()
        time.sleep(2)
        self.served(begin, time.monotonic())
        self.wait_divided()
        self.warm(other)

    def test_a_server_with_another_choice_is_refused_with_the_reason(self):
        self.world.start("s9", more="")
        wait_for("it is refused", lambda: "partition" in self.world.members["s9"].status()["why"])
        self.assertIn('has partition = "safe", but the leader', self.world.members["s9"].log)
        status, output, _ = self.world.members[self.leader].weir("cluster", "status")
        self.assertEqual(status, 0)
        self.assertIn("partition = last", output)


if __name__ == "__main__":
    unittest.main()
