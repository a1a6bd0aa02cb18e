#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The Debian packages: built from the release build, checked by lintian and systemd, and
reproducible byte for byte."""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(os.environ["WEIR_SOURCE_DIR"])
RELEASE = pathlib.Path(os.environ["WEIR_RELEASE_BIN"]).parents[2]
STUCK = 120


def run(*command, **options):
    ran = subprocess.run([str(one) for one in command], capture_output=True, text=True,
                         timeout=STUCK, check=False, **options)
    if ran.returncode != 0:
        raise AssertionError(f"{command}: {ran.returncode}\n{ran.stdout}{ran.stderr}")
    return ran.stdout


class Packages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        run(sys.executable, "-B", ROOT / "package/build.py", RELEASE, cls.folder / "out")
        cls.debs = {one.name.partition("_")[0]: one for one in (cls.folder / "out").iterdir()}
        for name, deb in cls.debs.items():
            run("dpkg-deb", "-x", deb, cls.folder / name)
        cls.tree = cls.folder / "weir"

    def test_lintian_finds_no_error(self):
        self.assertEqual(set(self.debs), {"weir", "libweir-dev", "weir-doc"})
        told = run("lintian", "--fail-on", "error", "--no-tag-display-limit",
                   *self.debs.values(), env={**os.environ, "LC_ALL": "C.UTF-8"})
        self.assertNotIn("E: ", told)

    def test_the_program_is_small_and_starts(self):
        size = sum(one.lstat().st_size for one in self.tree.rglob("*") if one.is_file())
        self.assertLess(size, 12 << 20)
        self.assertIn("weir ", run(self.tree / "usr/bin/weir", "--version"))
        for unit in ("weir.service", "weir-nfs.service"):
            self.assertTrue((self.tree / "usr/lib/systemd/system" / unit).exists())
        conf = run("dpkg-deb", "-I", self.debs["weir"], "conffiles")
        self.assertEqual(conf, "/etc/weir/weir.conf\n")
        run(self.tree / "usr/bin/weir", "serve", "--config", self.tree / "etc/weir/weir.conf",
            "--check-config")

    def test_the_same_sources_give_the_same_bytes(self):
        run(sys.executable, "-B", ROOT / "package/build.py", RELEASE, self.folder / "again")
        for deb in self.debs.values():
            self.assertEqual(deb.read_bytes(), (self.folder / "again" / deb.name).read_bytes(),
                             deb.name)

    def test_systemd_accepts_the_units(self):
        units = self.folder / "units"
        shutil.copytree(self.tree / "usr/lib/systemd/system", units)
        for unit in sorted(units.glob("weir*.service")):
            # The programs are not installed on this machine.
            text = unit.read_text(encoding="utf-8")
            unit.write_text(text.replace("/usr/bin/weir", "/bin/true"), encoding="utf-8")
            told = subprocess.run(["systemd-analyze", "verify", "--man=no", unit], text=True,
                                  capture_output=True, check=False, timeout=STUCK)
            self.assertEqual(told.returncode, 0, told.stderr)
            self.assertNotIn(unit.name + ":", told.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
