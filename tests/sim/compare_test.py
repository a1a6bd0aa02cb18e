# SPDX-License-Identifier: Apache-2.0
"""weir sim compare as users run it: files, continuation, errors."""
import csv
import fcntl
import json
import os
import pathlib
import pty
import resource
import signal
import subprocess
import tempfile
import time
import unittest

ROOT = pathlib.Path(os.environ.get("WEIR_SOURCE_DIR", pathlib.Path(__file__).parents[2]))
WEIR = os.environ.get("WEIR_BIN", str(ROOT / "build/dev/apps/weir/weir"))
RELEASE = os.environ.get("WEIR_RELEASE_BIN", str(ROOT / "build/release/apps/weir/weir"))
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
            del run["metrics"]["decision_ns"]
            del run["cpu_s"]
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

    def test_continues_after_kill_9(self):
        """The process ends at any time; what was done is not done again."""
        whole = ("--seeds", "30", "--threads", "2", "-q")
        command = [WEIR, "sim", "compare", "--scenarios", self.folder / "small.toml", "--policy",
                   "none,weir,mclock", "--out", self.out, *whole]
        path = self.out / "runs.jsonl"
        with subprocess.Popen(command, stdout=subprocess.DEVNULL) as running:
            deadline = time.monotonic() + STUCK
            while not path.exists() or path.read_bytes().count(b"\n") < 3:
                self.assertLess(time.monotonic(), deadline)
                self.assertIsNone(running.poll())
                time.sleep(0.001)
            running.kill()
        self.assertEqual(running.returncode, -signal.SIGKILL)
        before = path.read_bytes()
        intact = before[:before.rindex(b"\n") + 1]
        self.assertFalse((self.out / "results.json").exists())
        done = subprocess.run([*command[:-1]], capture_output=True, text=True, timeout=STUCK,
                              check=True)
        self.assertIn(f"{intact.count(10)} runs were done before", done.stdout)
        self.assertTrue(path.read_bytes().startswith(intact))
        continued = self.without_cpu()
        self.assertEqual(len(continued), 3 * 30)
        self.out = self.folder / "other"
        command[command.index("--out") + 1] = self.out
        subprocess.run(command, timeout=STUCK, check=True)
        self.assertEqual(self.without_cpu(), continued)

    def test_a_full_disk_ends_it_and_it_continues_when_there_is_room(self):
        def limit():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (2500, 2500))
        done = subprocess.run(
            [WEIR, "sim", "compare", "--scenarios", self.folder / "small.toml", "--policy",
             "none,weir,mclock", "--seeds", "2", "--threads", "1", "-q", "--out", self.out],
            capture_output=True, text=True, timeout=STUCK, check=False, preexec_fn=limit)
        self.assertEqual(done.returncode, 73)
        self.assertIn("runs.jsonl: File too large", done.stderr)
        kept = (self.out / "runs.jsonl").read_bytes()
        self.assertLessEqual(len(kept), 2500)
        done = self.compare()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(f"{kept.count(10)} runs were done before", done.stdout)
        self.assertEqual(len(self.without_cpu()), 6)

    def test_two_comparisons_in_one_folder_are_refused(self):
        self.out.mkdir()
        folder = os.open(self.out, os.O_RDONLY | os.O_DIRECTORY)
        self.addCleanup(os.close, folder)
        fcntl.flock(folder, fcntl.LOCK_EX)
        done = self.compare()
        self.assertEqual(done.returncode, 73)
        self.assertEqual(done.stderr, "weir sim: --out: another comparison writes to "
                         f"'{self.out}'; wait for it, or give another folder\n")
        self.assertFalse((self.out / "runs.jsonl").exists())
        fcntl.flock(folder, fcntl.LOCK_UN)
        self.assertEqual(self.compare("-q").returncode, 0)

    def test_what_a_sampled_clock_finds_is_part_of_the_whole(self):
        """Of the release build: a batch of samples takes less than the turn of a thread, and is not
        dropped on a machine with other things to do."""
        subprocess.run([RELEASE, "sim", "compare", "--scenarios", self.folder / "small.toml",
                        "--policy", "weir,mclock", "--seeds", "2", "--length", "200s", "-q",
                        "--out", self.out], timeout=STUCK, check=True)
        results = json.loads((self.out / "results.json").read_text(encoding="utf-8"))
        with open(self.out / "results.csv", encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        self.assertEqual(len(results["runs"]), 4)
        for run in results["runs"]:
            served = sum(int(row["served"]) for row in rows
                         if (row["policy"], row["seed"]) == (run["policy"], str(run["seed"])))
            self.assertGreater(run["metrics"]["decision_ns"], 0)
            self.assertLess(run["metrics"]["decision_ns"] * served, run["cpu_s"] * 1e9)

    def test_a_terminal_shows_the_progress(self):
        terminal, other = pty.openpty()
        self.addCleanup(os.close, terminal)
        with open(other, "wb", buffering=0) as stderr:
            subprocess.run([WEIR, "sim", "compare", "--scenarios", self.folder / "small.toml",
                            "--policy", "none,weir", "--seeds", "2", "--out", self.out],
                           stdout=subprocess.DEVNULL, stderr=stderr, timeout=STUCK, check=True)
        shown = os.read(terminal, 65_536).decode()
        for done in range(1, 5):
            self.assertIn(f"{done} of 4 runs", shown)
        self.assertTrue(shown.endswith("\r\x1b[K"), repr(shown))  # the line is cleared

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

    def test_says_which_policies_have_no_reservations(self):
        text = SMALL.replace('name = "b"', 'name = "b"\nreserve = 700')
        (self.folder / "small.toml").write_text(text, encoding="utf-8")
        done = self.compare("-q", policies="weir,wfq,mclock,none,static,adaptbf,sfq-d,sfq-d-auto,"
                            "gift,themis,io-latency,lustre-tbf")
        self.assertEqual(done.returncode, 0)
        results = json.loads((self.out / "results.json").read_text(encoding="utf-8"))
        ranked = results["scenarios"][0]["metrics"]["reserve_missed"]
        self.assertEqual({one["policy"] for one in ranked}, {"weir", "wfq", "mclock", "none"})
        self.assertEqual(len(results["refused"]), 8)
        self.assertEqual(len(done.stderr.splitlines()), 8)
        self.assertIn("small: policy 'lustre-tbf': cannot express the scenario: a rate limits a "
                      "job, and reserves nothing for it\n", done.stderr)
        self.assertTrue(all(one["mean"] < 0.05 for one in ranked if one["policy"] == "weir"))

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
