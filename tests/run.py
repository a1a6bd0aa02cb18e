# SPDX-License-Identifier: Apache-2.0
"""Runs one Python test file and names every test that it skipped, with the reason.

    python3 tests/run.py tests/clients/peers_test.py [NAME...]

ctest knows whole files only: a file of which some tests were skipped has passed. So each skipped
test is printed and added as a line "skipped FILE: NAME: REASON" to the file that WEIR_NOTES names,
if it names one; ./dev test counts and shows those lines. A file of which every test was skipped
ends with status 77, which ctest reports as skipped.

At the end it prints the processor time that the tests used, in the slots of tests/CMakeLists.txt.
"""
import os
import pathlib
import resource
import runpy
import sys
import time
import unittest

ALL_SKIPPED = 77


def note(what, test, reason):
    """A line for the report: the result of a test, and the reason."""
    name = test.id().removeprefix("__main__.")
    line = f"{what} {pathlib.Path(sys.argv[0]).name}: {name}: {' '.join(reason.split())}"
    print(f"\n{line}", file=sys.stderr)
    if record := os.environ.get("WEIR_NOTES"):
        with open(record, "a", encoding="utf-8") as file:
            file.write(line + "\n")


class Result(unittest.TextTestResult):
    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        note("skipped", test, reason)


def used(wall):
    """Quarters of a processor that this process and those that it waited for used."""
    usage = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    seconds = sum(one.ru_utime + one.ru_stime for one in usage)
    return f"used {seconds:.1f} s of processor time in {wall:.1f} s: {4 * seconds / wall:.1f} slots"


class Program(unittest.TestProgram):
    """unittest.main, for the file to call."""

    def __init__(self, *arguments, **options):
        begin = time.monotonic()
        options["testRunner"] = unittest.TextTestRunner(
            resultclass=Result, verbosity=options.get("verbosity", 1))
        super().__init__(*arguments, **{**options, "exit": False})
        print(used(time.monotonic() - begin), file=sys.stderr)
        skipped = len(self.result.skipped)
        if not self.result.wasSuccessful():
            sys.exit(1)
        sys.exit(ALL_SKIPPED if skipped and skipped == self.result.testsRun else 0)


def main():
    if len(sys.argv) < 2:
        sys.exit(f"usage: {sys.argv[0]} FILE [NAME...]")
    sys.argv = sys.argv[1:]
    sys.path[0] = str(pathlib.Path(sys.argv[0]).resolve().parent)
    unittest.main = Program
    runpy.run_path(sys.argv[0], run_name="__main__")
    sys.exit(f"{sys.argv[0]} has run no test")


if __name__ == "__main__":
    main()
