# SPDX-License-Identifier: Apache-2.0
"""Counts the results of the tests that ctest has run, one by one.

    python3 tests/count.py RECORD NOTES SUITES

RECORD is the JUnit file of ctest, in which a Python file and a suite of GoogleTest are one test
each. NOTES has a line for each test that a Python file skipped (tests/run.py), and SUITES the XML
files that the suites wrote, one for each. Prints how many tests passed, failed and were skipped.
"""
import pathlib
import sys
import xml.etree.ElementTree as Xml


def cases(file):
    """(failed, skipped, all) of a suite that has finished."""
    suites = Xml.parse(file).getroot().findall("testsuite")
    failed, skipped, every = (sum(int(suite.get(what, 0)) for suite in suites)
                              for what in ("failures", "skipped", "tests"))
    return failed, skipped, every


def count(record, notes, suites):
    passed = failed = skipped = files = 0
    for test in Xml.parse(record).getroot().iter("testcase"):
        file = suites / (test.get("name").replace("/", "_") + ".xml")
        status = test.get("status")
        if file.exists():
            bad, left, every = cases(file)
            # A suite that failed after its last case, or has no cases, counts as a failure too.
            bad = max(bad, int(status != "run"))
            passed, failed, skipped = passed + every - bad - left, failed + bad, skipped + left
        elif status == "run":
            passed += 1
        elif status == "disabled":
            skipped += 1
        elif (reason := test.find("skipped")) is None:
            failed += 1
        elif reason.get("message", "").startswith("SKIP_RETURN_CODE="):
            files += 1
        elif reason.get("message", "").startswith("SKIP_REGULAR_"):
            skipped += 1
        else:
            failed += 1  # it could not be run
    lines = sum(line.startswith("skipped ")
                for line in notes.read_text(encoding="utf-8").splitlines())
    return passed, failed, skipped + max(lines, files)


if __name__ == "__main__":
    print(*count(*map(pathlib.Path, sys.argv[1:])))
