# SPDX-License-Identifier: Apache-2.0
"""weir sim compare as users run it: files, continuation, errors."""
import csv
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(os.environ.get("WEIR_SOURCE_DIR", pathlib.Path(__file__).parents[2]))
WEIR = os.environ.get("WEIR_BIN", str(ROOT / "build/dev/apps/weir/weir"))
STUCK = 100

SMALL = """length = "2s"
[target]
capacity = 1000
spread = "10%"
[[job]]
name = "a"
nodes = 3
process = [{ kind = "burst", requests = 50, every = "1s" }]
[[job]]
name = "b"
process = [{ count = 4, window = 8 }]
"""
BYTES = SMALL.replace("capacity = 1000", 'capacity = "256MiB/s"\ncost = "bytes"')


class Compare(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.out = self.folder / "out"
        (self.folder / "small.toml").write_text(SMALL, encoding="utf-8")
        (self.folder / "bytes.toml").write_text(BYTES, encoding="utf-8")

    def compare(self, *arguments, scenario="small.toml", policies="none,weir,mclock"):
        return subprocess.run(
            [WEIR, "sim", "compare", "--scenarios", self.folder / scenario, "--policy", policies,
             "--seeds", "2", "--out", self.out, *arguments],
            capture_output=True, text=True, timeout=STUCK, check=False)

    def runs(self):
        return (self.out / "runs.jsonl").read_text(encoding="utf-8").splitlines()

    def without_cpu(self):
        results = json.loads((self.out / "results.json").read_text(encoding="utf-8"))
        for run in results["runs"]:
            del run["metrics"]["cpu_ns"]
        return results["runs"]

    def test_has_a_row_for_each_job_and_run(self):
        done = self.compare()
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("mclock", done.stdout)
        with open(self.out / "results.csv", encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        self.assertEqual(len(rows), 3 * 2 * 2)
        self.assertEqual({(row["policy"], row["seed"], row["job"]) for row in rows},
                         {(policy, seed, job) for policy in ("none", "weir", "mclock")
                          for seed in "12" for job in "ab"})
        results = json.loads((self.out / "results.json").read_text(encoding="utf-8"))
        ranked = results["scenarios"][0]["metrics"]["bursty_p99_ms"]
        self.assertEqual([one["runs"] for one in ranked], [2, 2, 2])
        self.assertEqual(ranked[0]["rank"], 1)
        self.assertIn("<title>", (self.out / "report.html").read_text(encoding="utf-8"))

    def test_continues_after_an_interruption_in_the_middle_of_a_line(self):
        self.assertEqual(self.compare("-q").returncode, 0)
        lines = self.runs()
        self.assertEqual(len(lines), 6)
        whole = self.without_cpu()
        cut = "\n".join(lines[:3]) + "\n" + lines[3][:40]
        (self.out / "runs.jsonl").write_text(cut, encoding="utf-8")
        done = self.compare("--threads", "1")
        self.assertEqual(done.returncode, 0)
        self.assertIn("3 runs were done before", done.stdout)
        self.assertEqual(self.runs()[:3], lines[:3])
        self.assertEqual(len(self.runs()), 6)
        self.assertEqual(self.without_cpu(), whole)
        # Nothing is left to do.
        self.assertIn("6 runs were done before", self.compare().stdout)

    def test_a_changed_scenario_is_run_again(self):
        self.assertEqual(self.compare("-q").returncode, 0)
        (self.folder / "small.toml").write_text(SMALL.replace("50", "60"), encoding="utf-8")
        done = self.compare()
        self.assertNotIn("done before", done.stdout)
        self.assertEqual(len(self.without_cpu()), 6)

    def test_one_thread_gives_the_same_as_many(self):
        self.assertEqual(self.compare("-q", "--threads", "4").returncode, 0)
        many = self.without_cpu()
        self.out = self.folder / "other"
        self.assertEqual(self.compare("-q", "--threads", "1").returncode, 0)
        self.assertEqual(self.without_cpu(), many)

    def test_says_what_a_policy_cannot_express(self):
        done = self.compare("-q", scenario="bytes.toml", policies="none,io-latency,lustre-tbf")
        self.assertEqual(done.returncode, 0)
        self.assertEqual(len(done.stderr.splitlines()), 2)
        self.assertIn("bytes: policy 'io-latency': cannot express the scenario: a latency target",
                      done.stderr)
        results = json.loads((self.out / "results.json").read_text(encoding="utf-8"))
        self.assertEqual([one["policy"] for one in results["refused"]],
                         ["io-latency", "lustre-tbf"])

    def test_refuses_what_makes_no_sense(self):
        for arguments, status, message in (
                (["--policy", "weird"], 64, "--policy: no policy 'weird'; did you mean weir?"),
                (["--policy", "slices"], 64, "--policy: slices is for cluster-limit only"),
                (["--scenarios", "zip"], 66, "'zip': no such scenario; did you mean zipf?"),
                (["--scenarios", "lustre-live"], 64, "has a Lustre server"),
                (["--seeds", "0"], 64, "--seeds: expected 1 to 1000"),
                (["--seeds", "-1"], 64, "-1 is negative")):
            done = subprocess.run([WEIR, "sim", "compare", "--out", self.out, *arguments],
                                  capture_output=True, text=True, timeout=STUCK, check=False)
            with self.subTest(arguments):
                self.assertEqual(done.returncode, status, done.stderr)
                self.assertIn(message, done.stderr)

    def test_a_folder_that_cannot_be_written_is_told_before_the_runs(self):
        self.out.write_text("a file", encoding="utf-8")
        done = self.compare()
        self.assertEqual(done.returncode, 73)
        self.assertIn("--out", done.stderr)


if __name__ == "__main__":
    unittest.main()
