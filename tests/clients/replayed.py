# SPDX-License-Identifier: Apache-2.0
"""weir sim --replay of a trace that a test has made:

    status, report, errors = replay(path)
    count_of(report, "run")
"""
import pathlib
import subprocess

import server as s

BINARY = s.RELEASE if pathlib.Path(s.RELEASE).exists() else s.WEIR


def replay(path):
    done = subprocess.run([BINARY, "sim", "--replay", str(path)], capture_output=True, text=True,
                          timeout=5 * s.STUCK, check=False)
    return done.returncode, done.stdout, done.stderr


def count_of(report, word):
    words = report.replace(",", "").replace(":", "").replace("(", "").replace(")", "").split()
    return int(words[words.index(word) + 1])
