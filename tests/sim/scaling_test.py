# SPDX-License-Identifier: Apache-2.0
"""Two threads of weir sim compare do the work of one in 1/1.8 of the time.

Time on a clock depends on what else the machine does. So this takes the processor time of every
run, which the results have, and computes when the threads would be done on a machine with nothing
else to do: runs start in the order of the results, on the thread that is free first, and all that
is not part of a run (reading scenarios, writing results) is done by one thread. Runs of two threads
are slower than those of one where they share caches or memory; that is measured, not assumed.
"""
import json
import os
import pathlib
import statistics
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(os.environ.get("WEIR_SOURCE_DIR", pathlib.Path(__file__).parents[2]))
RELEASE = os.environ.get("WEIR_RELEASE_BIN", str(ROOT / "build/release/apps/weir/weir"))
ROUNDS = 3


def study(threads):
    """Processor time of the process, and of each run."""
    with tempfile.TemporaryDirectory() as out:
        command = [RELEASE, "sim", "compare", "-q", "--threads", str(threads), "--seeds", "4",
                   "--scenarios", "allocation,noisy-neighbour,redistribution,slow-device",
                   "--out", out]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
        assert process.returncode == 0
        results = json.loads((pathlib.Path(out) / "results.json").read_text(encoding="utf-8"))
    return usage.ru_utime + usage.ru_stime, [run["cpu_s"] for run in results["runs"]]


def done_after(runs, threads):
    """When the last of the threads is done."""
    busy = [0.0] * threads
    for cost in runs:
        busy[busy.index(min(busy))] += cost
    return max(busy)


def speed_up():
    one, _ = study(1)
    two, runs = study(2)
    return one / (two - sum(runs) + done_after(runs, 2))


@unittest.skipUnless(os.cpu_count() > 1, "requires two processors")
class Scaling(unittest.TestCase):
    def test_two_threads_are_1_8_times_as_fast_as_one(self):
        found = [speed_up() for _ in range(ROUNDS)]
        print("speed-up:", ", ".join(f"{one:.3f}" for one in found))
        self.assertGreaterEqual(statistics.median(found), 1.8)

    def test_the_calculation_knows_a_thread_that_waits(self):
        self.assertEqual(done_after([3, 1, 1, 1], 2), 3)
        self.assertEqual(done_after([1, 1, 1, 3], 2), 4)
        self.assertEqual(done_after([1, 1, 1, 3], 1), 6)


if __name__ == "__main__":
    unittest.main()
