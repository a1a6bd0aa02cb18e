# SPDX-License-Identifier: Apache-2.0
"""Measurements fail on a quiet machine at once, and are repeated once on a busy one."""
import contextlib
import io
import os
import pathlib
import signal
import tempfile
import time
import unittest
from unittest import mock

from measured import Machine, MeasuredTest


class FakeMachine:
    """One of which the share that others take is given, one for each attempt."""

    def __init__(self, taken):
        self.taken = taken

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def is_quiet(self):
        return self.taken == 0

    def __str__(self):
        return f"others took {self.taken} %"


class Measured(unittest.TestCase):
    QUIET, BUSY = 0, 50

    def run_one(self, taken, answers):
        """The result of a test whose attempts give these answers; the attempts and the notes."""
        attempts = []

        class Sample(MeasuredTest):
            machines = iter(taken)

            def machine(self):
                return FakeMachine(next(self.machines))

            def test(self):
                def attempt():
                    attempts.append(None)
                    return answers[len(attempts) - 1]
                self.measure(attempt)

        result = unittest.TestResult()
        with tempfile.TemporaryDirectory() as folder, \
                contextlib.redirect_stderr(io.StringIO()), \
                mock.patch.dict(os.environ, WEIR_NOTES=f"{folder}/notes"):
            Sample("test").run(result)
            notes = pathlib.Path(folder) / "notes"
            text = notes.read_text(encoding="utf-8") if notes.exists() else ""
        return result, len(attempts), text

    def test_a_hit_is_measured_once(self):
        for machine in self.QUIET, self.BUSY:
            result, attempts, notes = self.run_one([machine], [""])
            self.assertTrue(result.wasSuccessful())
            self.assertEqual((len(result.skipped), attempts, notes), (0, 1, ""))

    def test_a_miss_on_a_quiet_machine_fails_at_once(self):
        result, attempts, notes = self.run_one([self.QUIET], ["slow"])
        self.assertEqual((len(result.failures), attempts, notes), (1, 1, ""))
        self.assertIn("slow while others took 0 %", result.failures[0][1])

    def test_a_miss_on_a_busy_machine_is_repeated_once_and_told(self):
        result, attempts, notes = self.run_one([self.BUSY, self.BUSY], ["slow", ""])
        self.assertTrue(result.wasSuccessful())
        self.assertEqual((len(result.skipped), attempts), (0, 2))
        self.assertRegex(notes, r"^repeated \S+: \S+: slow while others took 50 %")

    def test_the_second_miss_fails_on_a_quiet_machine(self):
        result, attempts, _ = self.run_one([self.BUSY, self.QUIET], ["slow", "slower"])
        self.assertEqual((len(result.failures), attempts), (1, 2))

    def test_the_second_miss_on_a_busy_machine_is_skipped_and_never_passes(self):
        result, attempts, _ = self.run_one([self.BUSY, self.BUSY], ["slow", "slower"])
        self.assertEqual((len(result.skipped), attempts), (1, 2))
        self.assertIn("the machine was busy twice: slower", result.skipped[0][1])


class Still(unittest.TestCase):
    def test_a_processor_that_stands_still_is_not_quiet(self):
        with Machine() as machine:
            watch = machine.watches[0]
            os.kill(watch.pid, signal.SIGSTOP)
            time.sleep(0.2)
            os.kill(watch.pid, signal.SIGCONT)
        self.assertGreater(machine.still, 10)
        self.assertFalse(machine.is_quiet())
        self.assertRegex(str(machine), r"stood still for \d")


if __name__ == "__main__":
    unittest.main()
