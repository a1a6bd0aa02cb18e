# SPDX-License-Identifier: Apache-2.0
"""examples/notebook makes the figures of docs/comparison.md from the results of a comparison."""
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(os.environ.get("WEIR_SOURCE_DIR", pathlib.Path(__file__).parents[2]))
WEIR = os.environ.get("WEIR_BIN", str(ROOT / "build/dev/apps/weir/weir"))


class Notebook(unittest.TestCase):
    def test_makes_every_figure(self):
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder)
            subprocess.run([WEIR, "sim", "compare", "-q", "--scenarios",
                            "redistribution,noisy-neighbour", "--policy", "none,weir,mclock",
                            "--seeds", "2", "--length", "4s", "--out", out / "results"],
                           check=True, timeout=100)
            done = subprocess.run(
                ["/usr/bin/python3", ROOT / "examples/notebook/figures.py", out / "results",
                 out / "figures"], capture_output=True, text=True, timeout=200, check=False,
                env=os.environ | {"MPLCONFIGDIR": folder})
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("7 figures of 12 runs", done.stdout)
            means = (out / "figures/means.csv").read_text(encoding="utf-8")
            self.assertEqual(len(means.splitlines()), 1 + 6)
            figures = {path.name for path in (out / "figures").glob("*.svg")}
            self.assertEqual(len(figures), 7)
            page = (ROOT / "docs/comparison.md").read_text(encoding="utf-8")
            self.assertEqual(set(re.findall(r"comparison/(\w+\.svg)", page)) - figures, set())


if __name__ == "__main__":
    unittest.main()
