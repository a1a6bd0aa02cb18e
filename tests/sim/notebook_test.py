# SPDX-License-Identifier: Apache-2.0
"""examples/notebook makes the figures and tables of docs/comparison.md from the CSV."""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(os.environ.get("WEIR_SOURCE_DIR", pathlib.Path(__file__).parents[2]))
# The release build: with sanitizers, samples of the scheduler's time are dropped on a busy machine.
WEIR = os.environ.get("WEIR_RELEASE_BIN", str(ROOT / "build/release/apps/weir/weir"))
NOTEBOOK = ROOT / "examples/notebook"
PAGE = (ROOT / "docs/comparison.md").read_text(encoding="utf-8")

sys.path.insert(0, str(NOTEBOOK))
import comparison  # noqa: E402  pylint: disable=wrong-import-position
import losses  # noqa: E402  pylint: disable=wrong-import-position


class Notebook(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.out = pathlib.Path(cls.folder.name)
        subprocess.run([WEIR, "sim", "compare", "-q", "--scenarios",
                        "redistribution,noisy-neighbour,size-fair", "--policy",
                        "none,weir,mclock,io-latency", "--seeds", "3", "--length", "4s", "--out",
                        cls.out / "results"], check=True, timeout=100, stderr=subprocess.DEVNULL)
        cls.results = json.loads((cls.out / "results/results.json").read_text(encoding="utf-8"))

    def script(self, name, *arguments):
        done = subprocess.run(["/usr/bin/python3", NOTEBOOK / name, *arguments],
                              capture_output=True, text=True, timeout=200, check=False,
                              env=os.environ | {"MPLCONFIGDIR": self.folder.name})
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def test_makes_every_figure_of_the_page(self):
        out = self.script("figures.py", self.out / "results", self.out / "figures")
        # size-fair cannot be expressed by io-latency.
        self.assertIn("11 figures of 33 runs", out)
        means = (self.out / "figures/means.csv").read_text(encoding="utf-8")
        self.assertEqual(len(means.splitlines()), 1 + 11)
        figures = {path.name for path in (self.out / "figures").glob("*.svg")}
        self.assertEqual(len(figures), 11)
        shown = set(re.findall(r"pictures/comparison/(\w+\.svg)", PAGE))
        self.assertGreaterEqual(len(shown), 3)
        self.assertEqual(shown - figures, set())
        for name in shown:
            self.assertTrue((ROOT / "docs/pictures/comparison" / name).is_file(), name)

    def test_the_same_results_give_the_same_bytes(self):
        pages = []
        for name in ("first", "second"):
            self.script("figures.py", self.out / "results", self.out / name)
            pages.append((self.out / name / "shortfall_mean.svg").read_bytes())
        self.assertEqual(pages[0], pages[1])

    def test_ranks_of_the_csv_are_those_of_the_report(self):
        runs = comparison.load(self.out / "results")
        checked = 0
        for scenario in self.results["scenarios"]:
            for metric, entries in scenario["metrics"].items():
                places = {one[0]: one for one in
                          comparison.ranked(runs, scenario["name"], metric)}
                self.assertEqual(set(places), {entry["policy"] for entry in entries})
                for entry in entries:
                    _, mean, width, rank, tied = places[entry["policy"]]
                    self.assertAlmostEqual(mean, entry["mean"], delta=1e-6 + abs(mean) * 1e-9)
                    # None for one run.
                    self.assertAlmostEqual(width, entry["half_width"] or 0,
                                           delta=1e-6 + width * 1e-9)
                    self.assertEqual((rank, tied), (entry["rank"], entry["tied"]),
                                     (scenario["name"], metric, entry))
                    checked += 1
        self.assertGreater(checked, 80)

    def test_the_metrics_are_those_of_the_program(self):
        self.assertEqual({metric["name"]: metric["title"] for metric in self.results["metrics"]},
                         comparison.METRICS)
        self.assertEqual({metric["name"] for metric in self.results["metrics"]
                          if metric["more_is_better"]}, comparison.MORE_IS_BETTER)

    def test_tables_name_losses_ranks_and_refusals(self):
        out = self.script("losses.py", self.out / "results", "none")
        self.assertIn("| size-fair | Entitlement error over 1 s, mean | ", out)
        self.assertRegex(out, r"\| noisy-neighbour \| \*?\*?\d\*?\*?/4 \|")
        self.assertIn("- size-fair: policy 'io-latency': cannot express the scenario: ", out)


class Page(unittest.TestCase):
    """docs/comparison.md, whose tables are pasted."""

    def rows(self, heading):
        part = PAGE.split(f"## {heading}\n")[1].split("\n## ")[0]
        table = [[cell.strip() for cell in line.strip("|").split("|")]
                 for line in part.splitlines() if line.startswith("|")]
        return table[0], table[2:]

    def test_every_loss_has_an_amount_and_a_reason_that_is_explained(self):
        header, rows = self.rows("What Weir loses")
        self.assertEqual(header, ["scenario", "metric", "weir", "first", "", "by", "why"])
        self.assertGreater(len(rows), 10)
        explained = set(re.findall(r"^- \*\*([A-Z])\b", PAGE, re.MULTILINE))
        for scenario, metric, _, _, _, amount, why in rows:
            with self.subTest(scenario=scenario, metric=metric):
                self.assertIn(why, explained)
                self.assertTrue(amount)
        self.assertEqual(explained, {row[6] for row in rows})

    def test_the_reasons_of_the_page_are_those_of_the_table(self):
        names = {title: name for name, title in comparison.METRICS.items()}
        for scenario, title, _, _, _, _, why in self.rows("What Weir loses")[1]:
            self.assertEqual(losses.reason(scenario, names[title]), why, (scenario, title))

    def test_a_rank_that_is_not_bold_is_a_loss_of_the_table(self):
        header, rows = self.rows("Places")
        self.assertEqual(header, ["scenario", *comparison.METRICS])
        lost = {(row[0], name) for row in rows for name, cell in zip(header[1:], row[1:])
                if cell and not cell.startswith("**")}
        self.assertEqual(lost, {
            (row[0], name) for row in self.rows("What Weir loses")[1]
            for name, title in comparison.METRICS.items() if title == row[1]})

    def test_no_scenario_is_left_out(self):
        """A built-in scenario is in the table, or the page says why it is not."""
        names = {path.stem for path in (ROOT / "scenarios").glob("*.toml")
                 if not path.stem.startswith(("lock-", "lustre-"))}
        compared = {row[0] for row in self.rows("Places")[1]}
        self.assertGreaterEqual(len(compared), 13)
        self.assertEqual(compared - names, set())
        for name in names - compared:
            self.assertIn(f"`{name}`", PAGE.split("## What is not compared")[1])


if __name__ == "__main__":
    unittest.main()
