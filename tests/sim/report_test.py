# SPDX-License-Identifier: Apache-2.0
"""The report of weir sim in a browser: how its script shows the numbers."""
import collections
import html.parser
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(os.environ.get("WEIR_SOURCE_DIR", pathlib.Path(__file__).parents[2]))
# The release build, because only the page is tested, and a sweep takes minutes with sanitizers.
WEIR = os.environ.get("WEIR_RELEASE_BIN", str(ROOT / "build/release/apps/weir/weir"))
BROWSER = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
           "--disable-background-networking", "--disable-component-update", "--disable-sync"]


class Page(html.parser.HTMLParser):
    """Which figures there are, and how many lines, bars and points each has."""

    def __init__(self, text):
        super().__init__()
        self.figures = collections.OrderedDict()
        self.figure = None
        self.ready = False
        self.rows = 0
        self.text = ""
        self.title = ""
        self.inside = (None, None)
        self.urls = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        self.inside = (tag, attributes.get("id"))
        self.urls += [attributes[key] for key in ("src", "href") if key in attributes]
        if tag == "body":
            self.ready = attributes.get("data-ready") == "yes"
        elif tag == "figure":
            self.figure = self.figures.setdefault(attributes["id"], collections.Counter())
        elif self.figure is not None and attributes.get("class") in ("series", "bar", "mark",
                                                                        "value"):
            self.figure[attributes["class"]] += 1
            if attributes.get("d", "x") == "" or "NaN" in str(attributes):
                self.figure["broken"] += 1
        elif tag == "tr":
            self.rows += 1

    def handle_endtag(self, tag):
        if tag == "figure":
            self.figure = None

    def handle_data(self, data):
        if self.inside == ("h1", "title"):
            self.title += data
        if self.inside[0] not in ("script", "style"):
            self.text += data


class Report(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def page(self, *arguments, theme="light"):
        subprocess.run([WEIR, "sim", *arguments, "-q", "--out", str(self.folder / "out")],
                       check=True, timeout=100)
        url = (self.folder / "out/report.html").as_uri() + "#" + theme
        done = subprocess.run([*BROWSER, f"--user-data-dir={self.folder}/profile", "--dump-dom",
                               url], capture_output=True, text=True, timeout=100, check=True)
        return Page(done.stdout)

    def check(self, page):
        self.assertTrue(page.ready, "the script of the page did not come to its end")
        self.assertEqual(page.urls, [])
        for name, figure in page.figures.items():
            self.assertEqual(figure["broken"], 0, name)

    def test_has_the_figures_of_the_paper(self):
        page = self.page("redistribution", "--policy", "none,static", "--length", "20s")
        self.check(page)
        self.assertEqual(page.title,
                         "Redistribution of capacity that bursty jobs leave unused (IV-E)")
        for policy in ("none", "static"):
            self.assertEqual(page.figures[f"throughput-{policy}"]["series"], 4)
        self.assertEqual(page.figures["throughput-all"]["series"], 2)
        self.assertEqual(page.figures["bars-throughput"]["bar"], 8)
        self.assertEqual(page.figures["bars-gain"]["bar"], 4)
        self.assertEqual(page.rows, 1 + 8)
        self.assertIn("on the same scale. Figure 5 of the AdapTBF paper.", page.text)
        self.assertIn("Figure 6 of the AdapTBF paper.", page.text)
        self.assertIn("Bursts come by the clock here", page.text)
        self.assertIn("Jain: index of fairness over", page.text)

    def test_every_bar_has_its_value(self):
        page = self.page("redistribution", "--policy", "none,static,adaptbf,weir,wfq,mclock,sfq-d,"
                         "gift,themis,io-latency,lustre-tbf", "--length", "6s")
        self.check(page)
        for figure, bars in (("bars-throughput", 44), ("bars-gain", 40), ("bars-latency", 44),
                             ("bars-utilisation", 11)):
            self.assertEqual(page.figures[figure]["bar"], bars, figure)
            self.assertEqual(page.figures[figure]["value"], bars, figure)

    def test_servers_have_reports(self):
        page = self.page("cluster-limit", "--length", "8s")
        self.check(page)
        self.assertEqual(page.figures["windows"]["series"], 3)
        result = json.loads((self.folder / "out/result.json").read_text(encoding="utf-8"))
        self.assertIn("500 ms over the limit: intervals above 100 %", page.text)
        over = {one["policy"]: one["over_limit"] for one in result["policies"]}
        for policy, one in over.items():
            self.assertIn(f"{one['above']} of {one['windows']}", page.text, policy)
        self.assertGreater(over["each"]["above"], over["each"]["windows"] / 2)
        self.assertEqual(over["fixed"]["above"], 0)
        for policy in ("slices", "fixed", "each"):
            self.assertEqual(page.figures[f"servers-{policy}"]["series"], 10)
        self.assertEqual(page.figures["served"]["value"], 30)
        page = self.page("group-epochs", "--length", "3s")
        self.check(page)
        self.assertEqual([page.figures[name]["value"]
                          for name in ("operations", "p50", "p99", "ragged")], [4, 4, 4, 4])
        page = self.page("cluster-faults")
        self.check(page)
        self.assertIn("All checks passed in all clusters.", page.text)

    def test_has_records_and_demand(self):
        page = self.page("recompensation", "--policy", "none,adaptbf,weir,wfq", "--length", "85s")
        self.check(page)
        for policy in ("adaptbf", "weir"):
            self.assertEqual(page.figures[f"record-{policy}"]["series"], 4)
            self.assertEqual(page.figures[f"demand-{policy}"]["series"], 4)
        self.assertNotIn("record-wfq", page.figures)  # it lends nothing
        self.assertIn("controller observed. Figure 7 of the AdapTBF paper.", page.text)
        self.assertIn("Figure 8 of the AdapTBF paper.", page.text)

    def test_has_the_sweep(self):
        page = self.page("period-sweep", "--policy", "adaptbf,weir", "--length", "85s")
        self.check(page)
        self.assertEqual(page.figures["sweep-throughput"]["series"], 2)
        self.assertEqual(page.figures["sweep-throughput-weir"]["series"], 4)

    def test_takes_users_as_one_and_is_dark_when_asked(self):
        page = self.page("noisy-neighbour", "--policy", "none", "--length", "5s", theme="dark")
        self.check(page)
        self.assertEqual(page.figures["throughput-none"]["series"], 2)


    def test_has_the_figures_of_locks(self):
        scenario = self.folder / "locks.toml"
        scenario.write_text("""title = "<b>Locks</b>"
length = "90s"
[locks]
limit = 1000
clients = 40
rate = 200
appetites = ["equal", "zipf"]
policies = ["weir", "dld", "lustre", "lru-10"]
""", encoding="utf-8")
        page = self.page(str(scenario))
        self.check(page)
        self.assertEqual(page.title.strip(), "<b>Locks</b>")
        for appetite in ("equal", "zipf"):
            for figure in ("granted", "volume", "held"):
                self.assertEqual(page.figures[f"{figure}-{appetite}"]["series"], 4, figure)
            self.assertEqual(page.figures[f"granted-{appetite}"]["mark"], 1, "the limit")
        self.assertEqual(len(page.figures), 6)
        self.assertEqual(page.rows, 1 + 8)
        if shots := os.environ.get("WEIR_SCREENSHOTS"):
            self.look(self.folder / "out/report.html", shots)

    def look(self, report, to):
        """Stores a screenshot."""
        for name, flags in (("light", []), ("dark", ["--force-dark-mode"])):
            subprocess.run([*BROWSER, f"--user-data-dir={self.folder}/profile", *flags,
                            "--window-size=1300,1600", f"--screenshot={to}/report-{name}.png",
                            report.as_uri()], check=True, capture_output=True, timeout=100)


if __name__ == "__main__":
    unittest.main()
