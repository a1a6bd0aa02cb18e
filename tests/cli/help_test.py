#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""--help of every command: its examples are its own, and it names its own manual page."""
import functools
import os
import re
import subprocess
import unittest

WEIR = os.environ["WEIR_BIN"]
# Long enough for any machine; a test that takes longer is stuck.
STUCK = 60


@functools.cache
def help_of(*words):
    run = subprocess.run([WEIR, *words, "--help"], capture_output=True, text=True, timeout=STUCK,
                         check=True)
    return run.stdout


def subcommands(text):
    section = re.search(r"^Subcommands:\n((?:  .*\n?)*)", text, re.MULTILINE)
    return re.findall(r"^  (\w\S*)", section[1], re.MULTILINE) if section else []


def commands(*words):
    """Every command below this one, as a tuple of words."""
    for name in subcommands(help_of(*words)):
        yield (*words, name)
        yield from commands(*words, name)


def examples(*words):
    return help_of(*words).partition("\nExamples:\n")[2].partition("\n\n")[0]


class Help(unittest.TestCase):
    def test_examples_are_of_the_command(self):
        """Subcommands, such as `weir rule start`, show the examples of their parent command."""
        found = list(commands())
        self.assertIn(("rule", "start"), found)
        self.assertIn(("cluster", "rule", "list"), found)
        for words in found:
            with self.subTest(" ".join(words)):
                self.assertRegex(examples(*words), rf"\bweir {words[0]}\b")
                self.assertNotEqual(examples(*words), examples())

    def test_the_manual_page_is_of_the_command(self):
        for words in commands():
            with self.subTest(" ".join(words)):
                self.assertIn(f"Manual: weir-{words[0]}(1).", help_of(*words))
                self.assertNotIn("Manual: weir(1).", help_of(*words))
        self.assertIn("Manual: weir(1).", help_of())

    def test_without_a_command_it_prints_help(self):
        run = subprocess.run([WEIR], capture_output=True, text=True, timeout=STUCK, check=False)
        self.assertEqual((run.returncode, run.stderr), (0, ""))
        self.assertEqual(run.stdout, help_of())

    def test_what_was_probably_meant_is_named(self):
        for words, meant in ((("serv",), "serve"), (("statsu",), "status"),
                             (("serve", "--exprot", "a=memory:1MiB"), "--export"),
                             (("serve", "--slot=3"), "--slots"), (("rule", "strat"), "start"),
                             (("lctl", "get_parm", "x"), "get_param"),
                             (("lock", "statsu"), "stats"), (("top", "--sort", "wiat"), "wait")):
            with self.subTest(" ".join(words)):
                run = subprocess.run([WEIR, *words], capture_output=True, text=True, timeout=STUCK,
                                     check=False)
                self.assertEqual(run.returncode, 64, run.stderr)
                self.assertIn(f"did you mean '{meant}'?", run.stderr)
        run = subprocess.run([WEIR, "xyzzy"], capture_output=True, text=True, timeout=STUCK,
                             check=False)
        self.assertNotIn("did you mean", run.stderr)

    def test_a_negative_number_is_refused_by_its_option(self):
        """Also for numbers of 64 bits."""
        options = [(words, option) for words in commands() for option in
                   re.findall(r"^  (--[\w-]+) (?:N|PERCENT|SECONDS|SEED|UINT)\b", help_of(*words),
                              re.MULTILINE)]
        self.assertIn((("lock",), "--fill"), options)
        places = [((*words, f"{option}=-1"), option) for words, option in options]
        for words, name in (*places, (("job", "set", "a", "-1"), "nodes")):
            with self.subTest(" ".join(words)):
                run = subprocess.run([WEIR, *words], capture_output=True, text=True, timeout=STUCK,
                                     check=False)
                self.assertEqual(run.returncode, 64, run.stderr)
                self.assertIn(name, run.stderr)


if __name__ == "__main__":
    unittest.main()
