# SPDX-License-Identifier: Apache-2.0
"""The figures of lock volume (docs/promises.md) and weir sim for scenarios of locks.

Runs use the release build and are shared by all tests that need them.
"""
import concurrent.futures
import functools
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(os.environ.get("WEIR_SOURCE_DIR", pathlib.Path(__file__).parents[2]))
WEIR = os.environ.get("WEIR_RELEASE_BIN", str(ROOT / "build/release/apps/weir/weir"))
STUCK = 600  # seconds after which a run counts as stuck

SMALL = """title = "small"
length = "90s"
[locks]
limit = 1000
clients = 20
rate = 100
policies = ["weir", "frozen"]
"""


def sim(*arguments):
    done = subprocess.run([WEIR, "sim", *arguments], capture_output=True, text=True, timeout=STUCK,
                          check=False)
    return done.returncode, done.stdout, done.stderr


@functools.lru_cache(maxsize=None)
def runs(scenario, policies, *options):
    """{(appetite, policy): figures}"""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([WEIR, "sim", scenario, "-q", "--policy", policies, *options, "--out",
                        folder], check=True, timeout=STUCK)
        result = json.loads((pathlib.Path(folder) / "result.json").read_text())
    return {(run["appetite"], run["policy"]): run for run in result["runs"]}


class Figures(unittest.TestCase):
    """A thousand clients of every appetite, demand above L = 100,000."""

    @classmethod
    def setUpClass(cls):
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            volume = pool.submit(runs, "lock-volume", "weir")
            reuse = pool.submit(runs, "lock-reuse", "weir,lru-25")
            cls.volume, cls.reuse = volume.result(), reuse.result()

    def each(self, found):
        appetites = sorted({appetite for appetite, _ in found})
        self.assertEqual(appetites, ["equal", "glutton", "pareto", "zipf"])
        for appetite in appetites:
            with self.subTest(appetite):
                yield appetite

    def test_granted_is_within_10_percent_of_the_limit_from_60_s_on(self):
        for appetite in self.each(self.volume):
            run = self.volume[appetite, "weir"]
            self.assertGreaterEqual(run["settled_least"], 0.9)
            self.assertLessEqual(run["settled_most"], 1.1)

    def test_granted_is_never_above_a_quarter_more(self):
        for found in (self.volume, self.reuse):
            for appetite in self.each(found):
                self.assertLessEqual(found[appetite, "weir"]["granted_most"], 1.25)

    def test_clients_hold_in_proportion_to_the_root_of_their_rates(self):
        for appetite in self.each(self.volume):
            self.assertLessEqual(self.volume[appetite, "weir"]["proportion_error"], 0.2)

    def test_at_most_half_the_messages_of_a_small_fixed_cache(self):
        for appetite in self.each(self.reuse):
            steered, fixed = self.reuse[appetite, "weir"], self.reuse[appetite, "lru-25"]
            self.assertEqual(steered["uses"], fixed["uses"])
            self.assertLessEqual(2 * steered["messages"], fixed["messages"])


class Runs(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def file(self, text):
        path = self.folder / "s.toml"
        path.write_text(text, encoding="utf-8")
        return str(path)

    def test_a_frozen_volume_fails_the_figures(self):
        found = runs(self.file(SMALL), "weir,frozen")
        self.assertLessEqual(found["equal", "weir"]["settled_most"], 1.1)
        self.assertGreater(found["equal", "frozen"]["settled_most"], 1.2)

    def test_below_the_limit_nothing_is_dropped_for_volume(self):
        text = SMALL.replace("rate = 100", "rate = 300\nworking_set = 45")
        run = runs(self.file(text), "weir")["equal", "weir"]
        self.assertEqual(run["cancels_for_volume"], 0)
        self.assertGreater(run["settled_least"], 0.85)

    def test_without_grace_two_hold_one_lock_and_the_run_says_so(self):
        text = (ROOT / "scenarios/lock-crash.toml").read_text(encoding="utf-8")
        status, _, err = sim("lock-crash", "-q", "--policy", "weir")
        self.assertEqual((status, err), (0, ""))
        text = text.replace('grace = "12s"', 'grace = "0s"')
        status, _, err = sim(self.file(text), "-q", "--policy", "weir")
        self.assertEqual(status, 70)
        self.assertIn("holds it while client", err)

    def test_every_scenario_is_listed_and_holds_what_must(self):
        listed = sim("--list")[1].split("\n")
        names = {line.split()[0] for line in listed if line.startswith("lock-")}
        self.assertEqual(names, {file.stem for file in (ROOT / "scenarios").glob("lock-*.toml")})
        for name in names - {"lock-volume", "lock-reuse"}:  # these run for the figures
            with self.subTest(name):
                status, out, err = sim(name)
                self.assertEqual((status, err), (0, ""))
                self.assertIn(f"{name}: ", out)
                self.assertIn("weir", out)

    def test_prints_a_table_and_writes_the_same_bytes_for_the_same_seed(self):
        file = self.file(SMALL)
        for name in ("one", "two"):
            status, out, err = sim(file, "--seed", "5", "--out", str(self.folder / name))
            self.assertEqual((status, err), (0, ""))
            self.assertIn("equal    weir", out)
            self.assertIn("equal    frozen", out)
        for name in ("result.json", "locks.csv", "clients.csv", "report.html"):
            self.assertEqual((self.folder / "one" / name).read_bytes(),
                             (self.folder / "two" / name).read_bytes(), name)

    def test_tells_what_is_wrong(self):
        for part, by, arguments, expected, message in (
                ("limit = 1000", "limit = 0", (), 65,
                 "s.toml:4:9: locks: limit must be a whole number from 1 to 1000000000"),
                ("clients", "clinets", (), 65,
                 "s.toml:5:1: locks: unknown key 'clinets'; did you mean clients?"),
                ("weir", "wier", (), 65, "s.toml:7:12: locks: policies 'wier' is not valid; "
                                         "expected weir, dld, lustre, frozen or lru-N"),
                ("", "", ("--policy", "wier"), 64,
                 "--policy: no policy 'wier' for locks; did you mean weir?"),
                ("", "", ("--only", "a"), 64, "--only: has no meaning for a scenario of locks")):
            with self.subTest(message):
                status, _, err = sim(self.file(SMALL.replace(part, by, 1)), *arguments)
                self.assertEqual(err.replace(str(self.folder) + "/", ""), f"weir sim: {message}\n")
                self.assertEqual(status, expected)


if __name__ == "__main__":
    unittest.main()
