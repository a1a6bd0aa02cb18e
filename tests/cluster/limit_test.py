# SPDX-License-Identifier: Apache-2.0
"""One limit for three servers, counted at their clients.

How much of it is used depends on the clock, so it is measured once more if the machine was busy.
Both runs check that the limit is not exceeded, with the latest possible times of replies; fio
counts late when it does not run, so its figures are only measured.
"""
import itertools
import json
import pathlib
import subprocess
import tempfile
import time
import unittest

from world import STUCK, Load, World, bound, most, take_precedence

from measured import MeasuredTest

LIMIT = 1500  # operations a second
SECONDS = 8
MOVE = 2  # seconds the hot spot stays
USED = 0.98  # at least; with fixed slices a third would be used
USED_BY_FIO = 0.90  # which starts slowly beside others
WIDTHS = 5, 0.5  # seconds


def setUpModule():
    take_precedence()


def run(world, seconds=SECONDS):
    """The fraction of the limit that all clients got together while the hot spot moved, and the
    maximum in windows of WIDTHS."""
    with Load(world) as load:
        load.heat(next(iter(world.members)))
        time.sleep(1)  # until the first slice was granted
        begin = time.monotonic()
        load.move(seconds, MOVE)
        end = time.monotonic()
        used = len(load.completions(begin, end)) / (LIMIT * (end - begin))
        return used, {width: load.most(width, begin, end) for width in WIDTHS}


class Fio:
    """Reads of one fio, which starts after so many seconds; its log has a line for each."""

    made = 0

    def __init__(self, member, folder, after, seconds, *options):
        Fio.made += 1
        self.log = f"{folder}/{Fio.made}"
        self.process = subprocess.Popen(
            ["fio", "--name=a", "--ioengine=nbd", f"--uri={member.uri('a')}", "--rw=randread",
             "--bs=4k", "--size=8M", "--time_based", f"--startdelay={after}",
             f"--runtime={seconds}", f"--write_iops_log={self.log}", "--log_unix_epoch=1",
             "--output-format=json", *options], stdout=subprocess.PIPE, text=True)

    def completions(self):
        """Times, in seconds since 1970."""
        output, _ = self.process.communicate(timeout=STUCK)
        assert self.process.returncode == 0, output
        total = json.loads(output[output.index("{"):])["jobs"][0]["read"]["total_ios"]
        lines = pathlib.Path(f"{self.log}_iops.1.log").read_text(encoding="utf-8").splitlines()
        assert len(lines) == total, (len(lines), total)
        return [int(line.split(",")[0]) / 1000 for line in lines]


class Limit(MeasuredTest):
    @classmethod
    def setUpClass(cls):
        cls.world = cls.enterClassContext(World(servers=3))

    def tearDown(self):
        for name in "wide", "own":
            for member in self.world.members.values():
                member.weir("rule", "stop", name)
        self.world.any().rule("stop wide")

    def setUp(self):
        self.world.wait_joined()

    def test_holds_and_is_used_while_the_hot_spot_moves(self):
        self.world.rule(f"start wide jobid={{*}} rate={LIMIT} by=rule")
        def attempt():
            used, counts = run(self.world)
            for width, count in counts.items():
                self.assertLessEqual(count, bound(LIMIT, width), width)
            return None if used >= USED else f"{used:.3f} of the limit used"
        self.measure(attempt)

    def test_fio_on_all_servers_gets_the_limit_in_all_while_the_hot_spot_moves(self):
        self.world.rule(f"start wide jobid={{*}} rate={LIMIT} by=rule")
        def attempt():
            times, seconds = self.count_at_fio()
            used = len(times) / (LIMIT * seconds)
            counts = {width: most(times, width) for width in WIDTHS}
            if used >= USED_BY_FIO and all(
                    count <= bound(LIMIT, width) for width, count in counts.items()):
                return None
            return f"{used:.3f} of the limit used, the most in windows: {counts}"
        self.measure(attempt)

    def count_at_fio(self):
        """The requests of all fio processes by their own logs, and for how long there was high
        load. Every server always has a low load; the high load moves with the hot spot."""
        with tempfile.TemporaryDirectory() as folder:
            members = list(self.world.members.values())
            little = [Fio(member, folder, 0, SECONDS, "--iodepth=1", "--rate_iops=20")
                      for member in members]
            much = [Fio(members[at // MOVE % len(members)], folder, at, MOVE, "--iodepth=32")
                    for at in range(0, SECONDS, MOVE)]
            hot = [fio.completions() for fio in much]
            times = [at for fio in little for at in fio.completions()]
        # Not while one fio has ended and the next is still being started.
        stays = [(max(here[0], before[-1]), here[-1]) for before, here in zip([[0], *hot], hot)]
        times = sorted(at for at in itertools.chain(times, *hot)
                       if any(begin <= at <= end for begin, end in stays))
        return times, sum(end - begin for begin, end in stays)

    def test_the_count_sees_a_limit_of_each_server_that_is_none_of_all(self):
        for member in self.world.members.values():
            member.weir("rule", "start", "own", "jobid={*}", f"rate={LIMIT}", "by=rule")
        with Load(self.world) as load:
            load.heat(*self.world.members)
            time.sleep(2)
            self.assertGreater(load.most(0.5), bound(LIMIT, 0.5) * 1.5)

    def test_fixed_slices_leave_most_of_it_unused(self):
        for member in self.world.members.values():
            status, _, error = member.weir("rule", "start", "own", "jobid={*}",
                                           f"rate={LIMIT // 3}", "by=rule")
            self.assertEqual(status, 0, error)
        used, _ = run(self.world, 4)
        self.assertLess(used, 0.5)


if __name__ == "__main__":
    unittest.main()
