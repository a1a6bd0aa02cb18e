# SPDX-License-Identifier: Apache-2.0
"""Checks the worked examples of docs/extending.md.

Each worked example is a patch. It is applied to this checkout, built in its build folder and
tested, in a separate mount namespace where writes go to memory and are not visible elsewhere. Only
the relevant unit tests are built. The patch must touch no more files than the document promises.
"""
import os
import pathlib
import re
import subprocess
import sys
import unittest

ROOT = pathlib.Path(os.environ["WEIR_SOURCE_DIR"]).resolve()
BUILD = pathlib.Path(os.environ["WEIR_BUILD_DIR"]).resolve()
HERE = ROOT / "tests/extending"

# The number of files that an example may touch, from the document.
COUNT = re.compile(r"`tests/extending/(\w+)\.patch` touches (\d+) files?\b")

# $0 the checkout, $1 its build, $2 the patch, $3 tests to build, $4 the target, $5 what to run
ELSEWHERE = r"""
upper=$(mktemp -d)
trap 'umount "$upper"; rmdir "$upper"' EXIT
mount -t tmpfs none "$upper"
mkdir "$upper/files" "$upper/work"
mount -t overlay none -o "lowerdir=$0,upperdir=$upper/files,workdir=$upper/work" "$0"
cd "$0"
patch --strip=1 --fuzz=0 --quiet <"$2"
cmake -DWEIR_TEST_FILES="$3" "$1"
ninja -C "$1" $4
sh -euc "$5"
cd /
umount "$0"
"""


def touched(patch):
    return re.findall(r"^\+\+\+ b/(\S+)", patch.read_text(encoding="utf-8"), re.MULTILINE)


class Extending(unittest.TestCase):
    def tries(self, name, tests, build, command, most):
        patch = HERE / f"{name}.patch"
        self.assertLessEqual(len(touched(patch)), most, touched(patch))
        if os.geteuid() != 0:
            self.skipTest("only root can mount")
        done = subprocess.run(
            ["unshare", "--mount", "bash", "-euo", "pipefail", "-c", ELSEWHERE, ROOT, BUILD, patch,
             tests, build, command],
            stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600)
        self.assertEqual(done.returncode, 0, done.stdout[-5000:] + done.stderr[-5000:])
        return done.stdout

    def test_a_policy_of_the_tree(self):
        test = BUILD / "weir/schedule/schedule_test"
        said = self.tries("policy", "root_last", "schedule_test",
                          f"{test} --gtest_filter='RootLast.*'", most=4)
        self.assertIn("[  PASSED  ] 2 tests.", said)

    def test_a_store(self):
        test = BUILD / "weir/serve/serve_test"
        said = self.tries("store", "null_store", "serve_test",
                          f"{test} --gtest_filter='NullStore.*'", most=6)
        self.assertIn("[  PASSED  ] 2 tests.", said)

    def test_a_rule_key(self):
        test = BUILD / "weir/classify/classify_test"
        said = self.tries("rule_key", "rule_keys|rule_spec|limits", "classify_test",
                          f"{test} --gtest_filter='RuleKeys.*:RuleSpec*:Limits.*'; "
                          f"{sys.executable} tests/tidy/man_test.py RuleKeys", most=5)
        self.assertIn("Limits.APercentageOfTheRateIsInForce", said)

    def test_a_scenario(self):
        weir = BUILD / "apps/weir/weir"
        said = self.tries("scenario", "", "weir", f"{weir} sim --list; {weir} sim two-readers",
                          most=1)
        self.assertIn("two-readers: A large and a small reader, seed 1", said)


class Document(unittest.TestCase):
    def test_counts_are_those_of_the_patches(self):
        text = (ROOT / "docs/extending.md").read_text(encoding="utf-8")
        said = {name: int(count) for name, count in COUNT.findall(" ".join(text.split()))}
        self.assertEqual(said, {one.stem: len(touched(one)) for one in HERE.glob("*.patch")})
        for patch in HERE.glob("*.patch"):
            for file in touched(patch):
                self.assertIn(f"`{file}`", text)


if __name__ == "__main__":
    unittest.main()
