# SPDX-License-Identifier: Apache-2.0
"""Many servers in the simulator: clusters with faults under checkers, and groups that take turns.

Runs use the release build, with 300 seeds in addition to those of the unit tests; seeds that failed
once are in weir/sim/cluster_test.cc.
"""
import os
import pathlib
import subprocess
import unittest

ROOT = pathlib.Path(os.environ.get("WEIR_SOURCE_DIR", pathlib.Path(__file__).parents[2]))
WEIR = os.environ.get("WEIR_RELEASE_BIN", str(ROOT / "build/release/apps/weir/weir"))
STUCK = 300  # seconds after which a run counts as stuck


def sim(*arguments):
    return subprocess.run([WEIR, "sim", *arguments], capture_output=True, text=True, timeout=STUCK,
                          check=False)


class Faults(unittest.TestCase):
    def test_300_seeds_keep_what_must_hold(self):
        for first in (100_000, 100_100, 100_200):
            done = sim("cluster-faults", "--seed", str(first))
            self.assertEqual((done.returncode, done.stderr), (0, ""))
            self.assertIn("all checks passed", done.stdout)

    def test_what_has_no_meaning_is_refused(self):
        done = sim("cluster-faults", "--length", "1s")
        self.assertEqual((done.returncode, done.stderr),
                         (64, "weir sim: --length: has no meaning for cluster-faults\n"))


class Groups(unittest.TestCase):
    def test_servers_that_take_turns_together_agree(self):
        done = sim("group-epochs", "--length", "3s")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        rows = {line[:20].strip(): line[20:].split() for line in done.stdout.splitlines()[4:]}
        self.assertEqual(list(rows), ["together", "together, quiesce", "apart", "off"])
        self.assertLess(float(rows["together"][3]), 1.0)
        self.assertGreater(float(rows["apart"][3]), 1.0)
        self.assertLess(float(rows["together"][1]), float(rows["apart"][1]))

    def test_what_has_no_meaning_is_refused(self):
        for arguments, message in (
                (("--policy", "weir"), "--policy: has no meaning for group-epochs"),
                (("--only", "x"), "--only: has no meaning for group-epochs"),
                (("--length", "1s"), "--length: expected 2s to 1h for group-epochs")):
            done = sim("group-epochs", *arguments)
            self.assertEqual((done.returncode, done.stderr), (64, f"weir sim: {message}\n"))


if __name__ == "__main__":
    unittest.main()
