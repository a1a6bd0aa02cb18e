#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Completions in the shells themselves: commands and options of the program, names of a server."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(os.environ["WEIR_SOURCE_DIR"])
sys.path.insert(0, str(ROOT / "tests/control"))
from remote import STUCK, WEIR, Remote  # noqa: E402

SCRIPTS = ROOT / "package/completions"
# How to get the candidates of each shell for the last word.
ASK = {
    "bash": ("bash", "--norc", "-c", """
source "$0/weir.bash"
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
_weir
printf '%s\\n' "${COMPREPLY[@]}"
"""),
    "zsh": ("zsh", "-f", "-c", """
compadd() { print -l -- $found }
_files() { print -- FILES }
words=("$@") CURRENT=$#
source "$0/_weir"
"""),
    "fish": ("fish", "--no-config", "-c", """
source $argv[1]/weir.fish
complete -C (string join ' ' -- $argv[2..-1])
"""),
}


class Complete(unittest.TestCase):
    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory())
        os.symlink(WEIR, f"{self.folder}/weir")

    def ask(self, shell, *words, socket="/nonexistent"):
        done = subprocess.run(
            [*ASK[shell], SCRIPTS, "weir", *words], capture_output=True, text=True, timeout=STUCK,
            check=False, cwd=self.folder,
            env={**os.environ, "PATH": f"{self.folder}:{os.environ['PATH']}",
                 "HOME": self.folder, "WEIR_SOCKET": str(socket)})
        self.assertEqual(done.stderr, "", shell)
        return [line.split("\t")[0] for line in done.stdout.splitlines() if line]

    def test_commands_and_options(self):
        for shell in ASK:
            with self.subTest(shell):
                found = self.ask(shell, "s")
                self.assertLessEqual({"serve", "sim", "status"}, set(found))
                self.assertNotIn("rules", found)
                self.assertEqual(self.ask(shell, "serve", "--exp"), ["--export"])
                self.assertLessEqual({"start", "stop", "list"}, set(self.ask(shell, "rule", "")))
                self.assertIn("--service", self.ask(shell, "rule", "stop", "--s"))

    def test_names_come_from_the_server_and_hostile_ones_do_not(self):
        with Remote("--export", "a=memory:64MiB", "--adaptive", "off", "--rule",
                    "start dd_rule jobid={dd.*} rate=1000") as it:
            for job in ("dd.17", "$(touch hacked)", "a;b", "-rf", "x\ny"):
                it.read(job, 1)
            for shell in ASK:
                with self.subTest(shell):
                    self.assertEqual(self.ask(shell, "rule", "stop", "dd", socket=it.control),
                                     ["dd_rule"])
                    self.assertEqual(self.ask(shell, "explain", "d", socket=it.control), ["dd.17"])
                    self.assertNotIn("hacked", os.listdir(self.folder))
            done = it.weir("complete", "--", "explain", "")
            self.assertEqual(done, (0, "dd.17\n", ""))

    def test_without_a_server_there_are_no_names_and_no_errors(self):
        for words in (("rule", "stop", ""), ("explain", ""), ("job", "rm", "")):
            done = subprocess.run([WEIR, "complete", "--", *words], capture_output=True, text=True,
                                  timeout=STUCK, check=False,
                                  env={**os.environ, "WEIR_SOCKET": "/nonexistent"})
            self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))


if __name__ == "__main__":
    unittest.main(verbosity=2)
