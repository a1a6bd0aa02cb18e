# SPDX-License-Identifier: Apache-2.0
"""A trace of a server in a cluster: its decisions with slices are repeated exactly."""
import pathlib
import tempfile
import time
import unittest

from world import Load, World

from replayed import count_of, replay

LIMIT = 1500


class Replay(unittest.TestCase):
    def test_slices_are_decided_again_the_same(self):
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        trace = folder / "trace"
        with World(servers=2) as world:
            world.end("s0")
            member = world.start("s0", more=f'[server]\ntrace = "{trace}"')
            world.wait_joined()
            member.rule(f"start wide jobid={{*}} rate={LIMIT} by=rule scope=cluster")
            member.rule(f"start each jobid={{*}} rate={LIMIT} layer=1 scope=cluster")
            with Load(world) as load:
                for name in "s0", "s1", "s0":
                    load.heat(name)
                    time.sleep(1)
            world.end("s0")
        status, report, errors = replay(trace)
        self.assertEqual((status, errors), (0, ""), report)
        self.assertGreater(count_of(report, "run"), LIMIT / 10)
        self.assertGreater(count_of(report, "commands"), 20, "no slices were recorded")


if __name__ == "__main__":
    unittest.main()
