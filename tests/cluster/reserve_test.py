#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""One reservation for two servers, counted at their clients.

A job has few nodes, and a greedy one with many of them takes all that the servers can serve. How
much is served in time depends on the clock, so it is measured once more if the machine was busy.
"""
import time
import unittest

from world import Load, World, bound, take_precedence

from measured import MeasuredTest

CAPACITY = 500  # of each server
NODES = 29  # of the greedy job; the other one has one, so a thirtieth is its share
RESERVE = 300  # of both servers together; it is the limit too
SECONDS = 8
MOVE = 2  # seconds the hot spot stays
MET = 0.97  # at least; the slices follow the hot spot
UNRESERVED = 0.25  # at most


def setUpModule():
    take_precedence()


class Reserve(MeasuredTest):
    @classmethod
    def setUpClass(cls):
        cls.world = cls.enterClassContext(World(servers=2, service=f"capacity = {CAPACITY}"))
        for member in cls.world.members.values():
            assert member.weir("job", "add", "greedy", str(NODES))[0] == 0

    def setUp(self):
        self.world.wait_joined()

    def tearDown(self):
        self.world.any().rule("stop db")

    def run_beside_the_greedy_one(self, hot=True):
        """What the job got of its reservation while its hot spot moved, the part of the capacity
        that both jobs got, and the most of the job in windows of 5 s."""
        with Load(self.world, job="greedy") as greedy, Load(self.world, job="db") as load:
            greedy.heat(*self.world.members)
            if hot:
                load.heat(next(iter(self.world.members)))
            time.sleep(2)  # until slices and shares follow
            begin = time.monotonic()
            if hot:
                load.move(SECONDS, MOVE)
            else:
                time.sleep(SECONDS)
            end = time.monotonic()
            got = len(load.completions(begin, end))
            all_of_them = got + len(greedy.completions(begin, end))
            length = end - begin
            return (got / (RESERVE * length), all_of_them / (2 * CAPACITY * length),
                    load.most(5, begin, end))

    def test_is_met_where_the_job_is_and_never_exceeds_the_limit(self):
        self.world.rule(f"start db jobid={{db}} rate={RESERVE} reserve={RESERVE}")

        def attempt():
            met, used, most = self.run_beside_the_greedy_one()
            self.assertLessEqual(most, bound(RESERVE, 5, servers=2))
            return None if met >= MET and used >= 0.97 else f"{met:.3f} met, {used:.3f} used"
        self.measure(attempt)

    def test_without_it_the_job_gets_its_share(self):
        self.world.rule(f"start db jobid={{db}} rate={RESERVE}")
        met, _, _ = self.run_beside_the_greedy_one()
        self.assertLess(met, UNRESERVED)

    def test_what_is_not_used_costs_others_nothing(self):
        self.world.rule(f"start db jobid={{db}} rate={RESERVE} reserve={RESERVE}")

        def attempt():
            met, used, _ = self.run_beside_the_greedy_one(hot=False)
            self.assertEqual(met, 0)
            return None if used >= 0.99 else f"{used:.3f} of the capacity used"
        self.measure(attempt)

    def test_one_without_a_limit_or_above_it_is_refused(self):
        for command, why in (
                (f"start db jobid={{db}} rate={RESERVE} reserve={RESERVE + 1}",
                 f"reserve={RESERVE + 1} is above rate={RESERVE}"),
                (f"start db jobid={{db}} bps=1MiB reserve={RESERVE}",
                 "a reservation of a cluster is divided as its limit is, and there is no limit")):
            status, _, answer = self.world.any().rule(command)
            self.assertEqual(status, 400, answer)
            self.assertIn(why, answer["detail"])
            for member in self.world.members.values():
                names = [one["rule"] for one in member.get("/v1/services/ost_io/rules")]
                self.assertNotIn("db", names)


if __name__ == "__main__":
    unittest.main()
