# SPDX-License-Identifier: Apache-2.0
"""weir sim as users run it: reproducible results, and errors for bad input."""
import csv
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(os.environ.get("WEIR_SOURCE_DIR", pathlib.Path(__file__).parents[2]))
WEIR = os.environ.get("WEIR_BIN", str(ROOT / "build/dev/apps/weir/weir"))
STUCK = 100  # seconds after which a run counts as stuck

SMALL = """length = "4s"
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


def sim(*arguments):
    done = subprocess.run([WEIR, "sim", *arguments], capture_output=True, text=True, timeout=STUCK,
                          check=False)
    return done.returncode, done.stdout, done.stderr


class SimTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def file(self, text, name="s.toml"):
        path = self.folder / name
        path.write_text(text, encoding="utf-8")
        return str(path)

    def runs(self, *arguments):
        status, out, err = sim(*arguments)
        self.assertEqual((status, err), (0, ""))
        return out

    def refused(self, expected, message, *arguments):
        status, out, err = sim(*arguments)
        self.assertEqual((status, out), (expected, ""), err)
        self.assertEqual(err.replace(str(self.folder) + "/", ""), f"weir sim: {message}\n")


class Runs(SimTest):
    def test_lists_its_scenarios(self):
        names = [line.split()[0] for line in self.runs("--list").splitlines()]
        for name in ("allocation", "redistribution", "recompensation", "period-sweep",
                     "noisy-neighbour", "size-fair", "failing-device", "two-targets"):
            self.assertIn(name, names)
        files = {file.stem for file in (ROOT / "scenarios").glob("*.toml")}
        self.assertEqual(set(names), files | {"cluster-faults", "cluster-limit",
                                              "group-epochs"})
        self.assertEqual(names, sorted(names))

    def test_prints_a_table_for_each_policy(self):
        out = self.runs(self.file(SMALL), "--policy", "none,static")
        self.assertIn("\nnone ", out)
        self.assertIn("\nstatic ", out)
        self.assertIn("utilisation", out)
        self.assertIn("Jain", out)
        self.assertEqual(out.count("\n  a "), 2)

    def test_runs_from_anywhere_by_name(self):
        done = subprocess.run([WEIR, "sim", "redistribution", "--policy", "none", "--length", "3s"],
                              capture_output=True, text=True, timeout=STUCK, check=True,
                              cwd=self.folder)
        self.assertIn("redistribution", done.stdout)

    def test_the_same_seed_gives_the_same_bytes(self):
        file = self.file(SMALL)
        for folder, seed in (("one", "5"), ("two", "5"), ("other", "6")):
            self.runs(file, "-q", "--seed", seed, "--out", str(self.folder / folder))
        for name in ("result.json", "periods.csv", "throughput.csv", "report.html"):
            one = (self.folder / "one" / name).read_bytes()
            self.assertEqual(one, (self.folder / "two" / name).read_bytes(), name)
        self.assertNotEqual((self.folder / "one/result.json").read_bytes(),
                            (self.folder / "other/result.json").read_bytes())

    def test_the_result_has_its_schema(self):
        self.runs(self.file(SMALL), "-q", "--out", str(self.folder / "out"))
        result = json.loads((self.folder / "out/result.json").read_text())
        self.assertEqual(list(result["policies"]), ["none", "static", "adaptbf", "weir", "wfq"])
        for policy in result["policies"].values():
            self.assertGreater(policy["utilisation"], 0.2)
            self.assertGreater(policy["served"], 0)
            for job in policy["jobs"].values():
                for key in ("throughput", "share", "entitlement", "wait_p50_ms", "wait_p99_ms",
                            "latency_p50_ms", "latency_p99_ms", "record"):
                    self.assertIn(key, job)
        with open(self.folder / "out/throughput.csv", encoding="ascii") as file:
            rows = list(csv.DictReader(file))
        served = sum(int(row["served"]) for row in rows if row["policy"] == "none")
        self.assertEqual(served, result["policies"]["none"]["served"])

    def test_policies_as_measured_by_others(self):
        """The results of an independent simulator for the two policies without a controller."""
        self.runs("redistribution", "-q", "--policy", "none,static", "--out",
                  str(self.folder / "out"))
        policies = json.loads((self.folder / "out/result.json").read_text())["policies"]
        self.assertAlmostEqual(policies["static"]["utilisation"], 0.345, delta=0.01)
        self.assertGreater(policies["none"]["utilisation"], 0.999)
        for job in ("job1", "job2", "job3"):
            self.assertAlmostEqual(policies["static"]["jobs"][job]["latency_p99_ms"], 56, delta=2)
            self.assertAlmostEqual(policies["none"]["jobs"][job]["latency_p99_ms"], 180, delta=4)

    def test_only_some_jobs(self):
        self.runs(self.file(SMALL), "-q", "--only", "b", "--policy", "none", "--out",
                  str(self.folder / "out"))
        jobs = json.loads((self.folder / "out/result.json").read_text())["policies"]["none"]["jobs"]
        self.assertEqual(list(jobs), ["b"])

    def test_exponential_service(self):
        outs = [self.runs(self.file(SMALL), "--policy", "none", "--service", kind)
                for kind in ("as-given", "exponential")]
        self.assertNotEqual(*outs)

    def test_replays_a_trace(self):
        self.file("time_s,job,op,bytes\n" + "".join(
            f"{i / 1000:.3f},{'ab'[i % 2]},read,4096\n" for i in range(500)), "t.csv")
        text = 'length = "2s"\ntrace = "t.csv"\n[target]\ncapacity = 1000\n'
        self.runs(self.file(text), "-q", "--policy", "none,static", "--out",
                  str(self.folder / "out"))
        jobs = json.loads((self.folder / "out/result.json").read_text())["policies"]["none"]["jobs"]
        self.assertEqual({name: job["served"] for name, job in jobs.items()}, {"a": 250, "b": 250})

    def test_a_sweep_runs_at_every_period(self):
        text = 'periods = ["10ms", "100ms"]\n' + SMALL
        out = self.runs(self.file(text), "--policy", "none,weir", "--out", str(self.folder / "out"))
        self.assertIn("weir 100ms", out)
        sweep = json.loads((self.folder / "out/result.json").read_text())["sweep"]
        self.assertEqual([point["period_ms"] for point in sweep["weir"]], [10, 100])
        self.assertNotIn("none", sweep)

    def test_faults_break_nothing(self):
        text = SMALL + ('[faults]\nlate = "20%"\nlate_by = "3ms"\nlost = "5%"\n'
                        'step = [{ at = "1s", by = "500ms" }, { at = "2s", by = "-700ms" }]\n')
        for seed in range(1, 6):
            self.runs(self.file(text), "-q", "--seed", str(seed))


class Reservations(SimTest):
    def test_kept_beside_a_thousand_greedy_jobs(self):
        # A run fails if its checks find a second with too little.
        self.runs("reservation-under-overload", "--policy", "weir", "--length", "4s", "-q",
                  "--out", str(self.folder / "out"))
        result = json.loads((self.folder / "out/result.json").read_text())["policies"]["weir"]
        database = result["jobs"]["database"]["throughput"]
        self.assertGreaterEqual(database, 500 * 0.99)
        self.assertLess(database, 500 * 1.02)
        # What the other reservation does not use is not lost.
        self.assertGreaterEqual(result["served"], 4 * 2000 * 0.999)

    def test_more_than_the_capacity_is_refused(self):
        text = SMALL.replace("nodes = 3", "reserve = 901")
        status, out, err = sim(self.file(text), "--policy", "weir")
        self.assertEqual((status, out), (65, ""))
        self.assertIn("a reservation of 901, and 0 of other rules, are more than 90 % of the "
                      "capacity of 1000, which is 900", err)


class Trees(SimTest):
    def test_each_level_is_divided_by_its_weights(self):
        # A run fails if its checks find a node that gets another part, in any stretch of 10 s.
        self.runs("tree-shares", "--policy", "none,weir", "--length", "14s", "-q",
                  "--out", str(self.folder / "out"))
        policies = json.loads((self.folder / "out/result.json").read_text())["policies"]
        weir = policies["weir"]
        self.assertGreaterEqual(weir["served"], policies["none"]["served"] * 0.999)
        # What the idle user of project 10 leaves goes to its siblings: the project gets 1 of 15.
        tenth = sum(job["served"] for name, job in weir["jobs"].items()
                    if name.startswith(("p10-", "bursts")))
        self.assertAlmostEqual(tenth / weir["served"], 1 / 15, delta=1 / 15 * 0.01)

    def test_levels_that_jobs_do_not_have_are_refused(self):
        text = SMALL.replace("capacity = 1000", 'capacity = 1000\ntree = ["gid", "jobid"]')
        status, out, err = sim(self.file(text), "--policy", "weir")
        self.assertEqual((status, out), (65, ""))
        self.assertIn("has a tree with the level gid; jobs of a scenario have projid and uid only",
                      err)


class RefusesBadInput(SimTest):
    def test_scenarios(self):
        for part, by, message in (
                ("nodes = 3", "nodes = 0",
                 "s.toml:7:9: job: nodes must be a whole number from 1 to 1000000"),
                ("capacity = 1000", "capcity = 1000",
                 "s.toml:3:1: target: unknown key 'capcity'; did you mean capacity?"),
                ("capacity = 1000", "capacity = 0",
                 "s.toml:3:12: target: capacity must be a whole number from 1 to 1000000000000"),
                ('length = "4s"\n', "",
                 "s.toml: job 'a': never ends, and neither does the scenario; give the scenario a "
                 "length"),
                ('length = "4s"\n', 'length = "4s"\nperiods = ["0s"]\n',
                 "s.toml: periods: '0ns' is not a valid period; expected 1ms to 10s"),
                ('name = "b"', 'name = "a"', "s.toml: job 'a': is used twice"),
                ("[target]", "[target",
                 "s.toml:2:8: Error while parsing table header: expected ']', saw '\\n'")):
            with self.subTest(by):
                self.assertIn(part, SMALL)
                self.refused(65, message, self.file(SMALL.replace(part, by, 1)))

    def test_scenarios_that_are_not_there(self):
        self.refused(66, "'alocation': no such scenario; did you mean allocation?",
                     "alocation")
        self.refused(66, "'/nonexistent/x.toml': No such file or directory", "/nonexistent/x.toml")
        text = 'length = "2s"\ntrace = "gone.csv"\n[target]\ncapacity = 1000\n'
        self.refused(66, "'gone.csv': No such file or directory", self.file(text))

    def test_traces(self):
        self.file("time_s,job,op,bytes\n1,a,read,1\n0,a,read,1\n", "t.csv")
        text = 'length = "2s"\ntrace = "t.csv"\n[target]\ncapacity = 1000\n'
        self.refused(65, "t.csv:3: '0' is earlier than the previous line", self.file(text))

    def test_options(self):
        for arguments, message in (
                (("--policy", "wier"), "--policy: no policy 'wier'; did you mean weir?"),
                (("--policy", ""), "--policy: no policy ''; expected one or more of: none, static, "
                                   "adaptbf, weir, wfq, mclock, sfq-d, sfq-d-auto, gift, themis, "
                                   "io-latency, lustre-tbf"),
                (("--period", "0s"), "--period: '0s' is not valid; expected 1ms to 10s"),
                (("--service", "fast"), "--service: 'fast' is not valid; expected exponential or "
                                        "as-given"),
                (("--only", "c"), "--only: no job 'c' in the scenario"),
                (("--length", "0s"), "length: is 0"),
                (("--seed", "x"), "--seed: 'x': count must start with a number; write for example "
                                  "1000, 20k or 1.5M"),
                (("--seed=-1",), "--seed: '-1': count must not be negative; write for example "
                                 "1000, 20k or 1.5M"),
                (("--seed", "99999999999999999999"), "--seed: '99999999999999999999': count has "
                                                     "too many digits; at most 19 digits")):
            with self.subTest(arguments):
                self.refused(64, message, self.file(SMALL), *arguments)
        self.assertEqual(sim()[0], 64)

    def test_a_folder_that_cannot_be_made(self):
        self.file("", "taken")
        self.refused(73, "--out: 'taken/out': Not a directory", self.file(SMALL), "--policy",
                     "none", "--out", str(self.folder / "taken/out"))

    def test_output_that_cannot_be_written(self):
        for arguments in ((self.file(SMALL), "--policy", "none"), ("--list",)):
            with open("/dev/full", "w", encoding="utf-8") as full:
                done = subprocess.run([WEIR, "sim", *arguments], stdout=full,
                                      stderr=subprocess.PIPE, timeout=STUCK, check=False)
            self.assertEqual(done.returncode, 74)
            self.assertEqual(done.stderr, b"weir sim: standard output: No space left on device\n")


if __name__ == "__main__":
    unittest.main()
