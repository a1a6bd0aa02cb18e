#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The pictures of README.md: the chart matches the current output of weir sim, and all of them
exist."""
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

ROOT = pathlib.Path(os.environ["WEIR_SOURCE_DIR"])
PICTURES = ROOT / "docs/pictures"
THEMES = ("light", "dark")
LARGEST = 200_000  # bytes of a picture


class Pictures(unittest.TestCase):
    def test_the_chart_is_that_of_the_simulator(self):
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run([sys.executable, PICTURES / "make.py", "chart", folder], check=True,
                           timeout=60, env={**os.environ,
                                            "WEIR_RELEASE_BIN": os.environ["WEIR_BIN"]})
            for theme in THEMES:
                made = pathlib.Path(folder, f"demo-{theme}.svg").read_bytes()
                self.assertEqual(made, (PICTURES / f"demo-{theme}.svg").read_bytes(),
                                 "run docs/pictures/make.py chart")
                xml.etree.ElementTree.fromstring(made)

    def test_readme_shows_each_in_light_and_dark(self):
        readme = (ROOT / "README.md").read_text(encoding="utf-8")
        shown = re.findall(r'<picture>\s*<source media="\(prefers-color-scheme: dark\)" '
                           r'srcset="(\S+)">\s*<img alt="[^"]+" src="(\S+)"[^>]*>\s*</picture>',
                           readme)
        self.assertEqual(len(shown), 2)
        self.assertEqual(readme.count("<img "), len(shown))
        for dark, light in shown:
            self.assertEqual(dark, light.replace("-light.", "-dark."))
            for file in (dark, light):
                self.assertTrue((ROOT / file).is_file(), file)
                self.assertLess((ROOT / file).stat().st_size, LARGEST, file)
        kept = {str(file.relative_to(ROOT)) for file in PICTURES.iterdir()
                if file.suffix in (".svg", ".png")}
        self.assertEqual(kept, {file for pair in shown for file in pair}, "files and README differ")


if __name__ == "__main__":
    unittest.main()
