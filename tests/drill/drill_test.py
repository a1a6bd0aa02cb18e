# SPDX-License-Identifier: Apache-2.0
"""The checkers of the drills work: each finds the fault it looks for."""
import contextlib
import io
import pathlib
import random
import sys
import types
import unittest
from unittest import mock

import drill  # puts the folders of the other tests on the path
import memory_drill
from kill_drill import differences
from network_drill import LIMIT, Watch
from neighbour import summary
from steps import SIZE, Disk
from writers import BLOCK, FUA, SECTOR, Region, Writer, pattern

assert pathlib.Path(drill.__file__).parent == pathlib.Path(__file__).resolve().parent


def content(region, block, *serials):
    """A block whose sectors are from these writes in turn; 0 for zeroes."""
    sectors = [pattern(region.number, block, serial) if serial else bytes(SECTOR)
               for serial in serials]
    return b"".join(sectors[i % len(sectors)] for i in range(BLOCK // SECTOR))


class Growth(unittest.TestCase):
    """The memory after 30 cycles, with other changes beside the growth."""
    MIB = 1 << 20

    def grown(self, of_a_connection):
        choose = random.Random(1)
        warming = [20 * self.MIB, 25 * self.MIB, 29 * self.MIB]
        return memory_drill.growth(warming + [
            30 * self.MIB + choose.randrange(2 * self.MIB) + (5 * self.MIB if cycle == 20 else 0) +
            cycle * memory_drill.CONNECTIONS * of_a_connection for cycle in range(30)])

    def test_what_is_filled_once_and_what_is_not_over_yet_is_no_growth(self):
        self.assertLess(self.grown(0), memory_drill.GROWTH / 2)

    def test_a_small_leak_is_found(self):
        self.assertGreater(self.grown(500), memory_drill.GROWTH)


class Regions(unittest.TestCase):
    def setUp(self):
        self.region = Region(3, b"a", 0, 8)

    def wrong(self, *serials, block=1):
        return list(self.region.wrong_sectors(block, content(self.region, block, *serials)))

    def test_what_was_never_written_is_zero(self):
        self.assertEqual(self.wrong(0), [])
        self.assertTrue(self.wrong(1))

    def test_a_write_that_is_on_its_way_may_be_there_in_part(self):
        self.region.sent(1, 1, 1, is_zero=False)
        for serials in ((0,), (1,), (0, 1)):
            self.assertEqual(self.wrong(*serials), [])
        self.assertTrue(self.wrong(2))

    def test_a_lost_write_is_found(self):
        self.region.sent(1, 1, 1, is_zero=False)
        self.region.sent(1, 1, 2, is_zero=False)
        self.region.must_keep(1, 2)
        self.assertEqual(self.wrong(2), [])
        for serials in ((0,), (1,), (2, 1), (2, 0)):
            self.assertTrue(self.wrong(*serials), serials)

    def test_lost_zeroes_are_found(self):
        self.region.sent(1, 1, 1, is_zero=False)
        self.region.sent(1, 1, 2, is_zero=True)
        self.region.must_keep(1, 2)
        self.assertEqual(self.wrong(0), [])
        self.assertTrue(self.wrong(1))

    def test_what_a_crash_may_have_taken_is_not_made_durable_by_a_later_flush(self):
        self.region.sent(1, 1, 1, is_zero=False)
        self.region.acknowledged[1] = 1
        with contextlib.suppress(ConnectionError):
            self.region.verify(self.refuse)
        writer = Writer(self.region, None, 1, keeps="synced", flush=1)
        writer.next_flush(1)
        writer.answered(0x67446698, 0, 1)
        self.assertEqual(self.wrong(0), [])

    @staticmethod
    def refuse():
        raise ConnectionError("no server")

    def test_bytes_of_another_block_are_found(self):
        self.region.sent(1, 2, 1, is_zero=False)
        self.assertTrue(list(self.region.wrong_sectors(2, content(self.region, 1, 1))))


class Writers(unittest.TestCase):
    """Which writes raise the floor."""

    def answered(self, keeps, flags, *, flush_before=False, flush_after=False):
        region = Region(0, b"a", 0, 8)
        writer = Writer(region, None, 1, keeps=keeps, flush=1)
        region.sent(5, 1, 9, is_zero=False)
        writer.in_flight[1] = ("write", range(5, 6), 9, flags & FUA)
        if flush_before:
            writer.next_flush(2)
        writer.answered(0x67446698, 0, 1)
        if flush_after:
            writer.next_flush(2)
        if flush_before or flush_after:
            writer.answered(0x67446698, 0, 2)
        return region.floor[5]

    def test_under_kill_every_acknowledged_write(self):
        self.assertEqual(self.answered("all", 0), 9)

    def test_when_the_power_fails_what_was_synced(self):
        self.assertEqual(self.answered("synced", 0), 0)
        self.assertEqual(self.answered("synced", FUA), 9)
        self.assertEqual(self.answered("synced", 0, flush_after=True), 9)
        # A write that was answered after the flush was sent is not covered by it.
        self.assertEqual(self.answered("synced", 0, flush_before=True), 0)

    def test_an_error_is_told(self):
        writer = Writer(Region(0, b"a", 0, 8), None, 1)
        writer.in_flight[1] = ("write", range(1), 1, 0)
        with self.assertRaises(ConnectionError):
            writer.answered(0x67446698, 5, 1)
        self.assertIn("error 5", writer.error)


class Changes(unittest.TestCase):
    KNOWN = {("rule", "a"): 5, ("rule", "b"): None}

    def test_differences(self):
        for there, pending, is_held in (
                ({("rule", "a"): 5}, [], True),
                ({}, [], False),                                       # lost
                ({("rule", "a"): 6}, [], False),                       # another value
                ({("rule", "a"): 5, ("rule", "b"): 1}, [], False),     # a stopped one
                ({("rule", "a"): 5, ("rule", "c"): 1}, [], False),     # one that never existed
                ({("rule", "a"): 6}, [(("rule", "a"), 5, 6)], True),   # in progress
                ({("rule", "a"): 5}, [(("rule", "a"), 5, 6)], True),
                ({("rule", "a"): 7}, [(("rule", "a"), 5, 6)], False)):
            self.assertEqual(differences(self.KNOWN, pending, there, 1)[0], is_held, there)


class Counts(unittest.TestCase):
    def broken(self, rate):
        one = drill.Drill("network", 1, 1)
        load = types.SimpleNamespace()
        watch = Watch(one, load)
        watch.begun = watch.checked = 0.0
        load.completions = lambda begin, end: []
        load.most = lambda width, begin, end: width * rate
        with contextlib.redirect_stderr(io.StringIO()):
            watch.check("none")
        return one.broken

    def test_more_than_the_limit_is_found(self):
        self.assertEqual(self.broken(LIMIT), [])
        self.assertTrue(self.broken(1.3 * LIMIT))

    def test_the_99th_percentile(self):
        service = summary([i / 1000 for i in range(1, 101)], 2.0, "")
        self.assertEqual((service.count, service.per_s), (100, 50.0))
        self.assertAlmostEqual(service.p99_ms, 100.0)
        self.assertTrue(summary([], 1.0, "").wrong)


class FakeHandle:
    """A disk in memory that can lie."""

    def __init__(self, lie):
        self.data = bytearray(SIZE)
        self.lie = lie

    def pwrite(self, data, at, _flags):
        self.data[at:at + len(data)] = data if self.lie != "loses" else data[:-1] + b"\0"

    def pread(self, length, at):
        return self.data[at:at + length]

    def zero(self, length, at, _flags):
        self.data[at:at + length] = bytes(length)

    def trim(self, length, at, _flags):
        self.data[at:at + length] = bytes(length) if self.lie != "trims" else b"x" * length

    def flush(self):
        pass

    def cache(self, length, at):
        pass

    def block_status(self, length, _at, note):
        note("base:allocation", 0, [length, 3 if self.lie == "holes" else 0], 0)


class Steps(unittest.TestCase):
    def first_wrong(self, lie):
        disk = Disk.__new__(Disk)
        disk.choose, disk.handle, disk.unit = random.Random(1), FakeHandle(lie), 1
        disk.model, disk.steps = bytearray(SIZE), 0
        return next(filter(None, (disk.step() for _ in range(400))), None)

    def test_a_disk_that_lies_is_found_out(self):
        self.assertIsNone(self.first_wrong(None))
        for lie, told in (("loses", "not what was written"), ("trims", "made other bytes"),
                          ("holes", "told to be zero")):
            self.assertIn(told, self.first_wrong(lie))


class Program(unittest.TestCase):
    def run_drill(self, run, *arguments):
        module = types.SimpleNamespace(run=run)
        out, error = io.StringIO(), io.StringIO()
        with mock.patch.object(sys, "argv", ["drill", *arguments]), \
                mock.patch.dict(sys.modules, kill_drill=module), \
                contextlib.redirect_stdout(out), contextlib.redirect_stderr(error):
            try:
                status = drill.main()
            except SystemExit as end:
                status = end.code
        return status, out.getvalue(), error.getvalue()

    def test_kept(self):
        status, out, error = self.run_drill(lambda it: it.figure("kills", 3), "kill", "--seed", "7")
        self.assertEqual(status, 0)
        self.assertRegex(out, r"(?m)^kills +3$")
        self.assertIn("every promise was kept", out)
        self.assertIn("--seed 7", error)

    def test_broken(self):
        status, out, _ = self.run_drill(
            lambda it: it.at_most("it is fast", "a start", 9, 5, "s"), "kill")
        self.assertEqual(status, 1)
        self.assertIn("broken: it is fast: a start: 9 s, the limit is 5 s", out)

    def test_an_exception_is_a_finding(self):
        status, out, _ = self.run_drill(lambda it: 1 / 0, "kill")
        self.assertEqual(status, 1)
        self.assertIn("ZeroDivisionError", out)

    def test_cannot_run(self):
        def run(_):
            raise drill.CannotRun("no such machine; buy one")
        status, _, error = self.run_drill(run, "kill")
        self.assertEqual(status, 125)
        self.assertEqual(error.splitlines()[-1], "cannot run here: no such machine; buy one")

    def test_wrong_usage(self):
        for arguments in ((), ("nonsense",), ("kill", "--minutes", "0"), ("kill", "--seed", "x")):
            self.assertEqual(self.run_drill(lambda it: None, *arguments)[0], 64, arguments)

    def test_the_seed_decides(self):
        seen = []
        for _ in range(2):
            self.run_drill(lambda it: seen.append(it.random.random()), "kill", "--seed", "5")
        self.assertEqual(seen[0], seen[1])


if __name__ == "__main__":
    unittest.main()
