# SPDX-License-Identifier: Apache-2.0
"""Tests that measure, on a machine that has other things to do.

A figure may be missed because the server is wrong, or because another process had the processor.
The kernel counts what other machines took (steal) and how long all processes ran, and the clients
and the server count their own time; the rest is what others took. A host may also stop a processor
of this machine without counting it: a watch on each processor sleeps for short times, before all
other processes, and adds up how much later it woke. A miss on a quiet machine fails at once. After
a miss on a busy machine the measurement is repeated once, and the reason is printed; if the machine
was busy again the test is skipped, which ./dev test counts and shows.

Clients and server of a test whose load is light run before all ordinary processes. A client with
one request in flight needs this: it cannot make up for the milliseconds in which it did not run.

    python3 measured.py PROCESSOR

is a watch, until its standard input ends. It prints a line when it begins, and then the seconds for
which the processor stood still.
"""
import contextlib
import json
import os
import pathlib
import select
import subprocess
import sys
import time
import unittest

QUIET_PERCENT = 8     # of a processor that others may take
STILL_PERCENT = 1     # of the time for which a processor may stand still
SLEEP = 0.002         # of a watch
LATE = 0.0005         # a watch that wakes later than this has been stopped; timers take less
LATE_IN_TURN = 0.006  # the same where a watch has to wait for its turn among others


def before_all_others(priority):
    """Lets this process, and all that it starts, run before ordinary ones and those of a lower
    priority. Returns whether that is allowed."""
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(priority))
    except PermissionError:
        return False
    return True


def watch(processor):
    """The seconds for which the processor let this process wait until standard input ended."""
    os.sched_setaffinity(0, {processor})
    acceptable = LATE if before_all_others(2) else LATE_IN_TURN
    still, before = 0.0, time.monotonic()
    print("watching", flush=True)  # from here on nothing is missed
    while True:
        has_ended = select.select([sys.stdin], [], [], SLEEP)[0]
        now = time.monotonic()
        late = now - before - SLEEP
        still += late if late > acceptable else 0.0
        if has_ended:
            return still
        before = now


if __name__ == "__main__":
    print(watch(int(sys.argv[1])))
    sys.exit()

from server import STUCK  # noqa: E402

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from run import note  # noqa: E402


def busy_seconds():
    """Of all processors since the start, and what neighbours of the machine took."""
    with open("/proc/stat", encoding="ascii") as stat:
        ticks = [int(field) for field in stat.readline().split()[1:9]]
    user, nice, system, _, _, irq, softirq, steal = ticks
    second = os.sysconf("SC_CLK_TCK")
    return (user + nice + system + irq + softirq) / second, steal / second


def own_seconds():
    """Of this process and of all it has started: those that run, and those that were waited for."""
    ticks, children = {}, {}
    for path in pathlib.Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended meanwhile
            fields = path.read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
            pid = int(path.parent.name)
            ticks[pid] = sum(int(field) for field in fields[11:15])
            children.setdefault(int(fields[1]), []).append(pid)
    total, left = 0, [os.getpid()]
    while left:
        pid = left.pop()
        total += ticks.get(pid, 0)
        left += children.get(pid, [])
    return total / os.sysconf("SC_CLK_TCK")


class Machine:
    """What others took while the block ran, and how long it stood still, in percent of one
    processor; and both in words."""

    def __enter__(self):
        self.watches = [
            subprocess.Popen([sys.executable, __file__, str(processor)], stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE, text=True)
            for processor in sorted(os.sched_getaffinity(0))]
        for one in self.watches:
            one.stdout.readline()
        self.wall = os.times().elapsed
        self.busy, self.steal = busy_seconds()
        self.own = own_seconds()
        return self

    def __exit__(self, *_):
        busy, steal = busy_seconds()
        others = busy - self.busy - (own_seconds() - self.own) + steal - self.steal
        percent = 100 / max(os.times().elapsed - self.wall, 0.001)
        self.taken = percent * max(others, 0)
        self.still = percent * max(float(one.communicate()[0]) for one in self.watches)

    def is_quiet(self):
        return self.taken <= QUIET_PERCENT and self.still <= STILL_PERCENT

    def __str__(self):
        return (f"others took {self.taken:.0f} % of a processor and one stood still for "
                f"{self.still:.1f} % of the time")


class MeasuredTest(unittest.TestCase):
    machine = Machine  # another one, where these lines themselves are tested
    # Whether clients and server leave most of the processors idle. Under a heavy load they would
    # wait for each other for whole time slices if they ran before all others.
    is_light = False

    @classmethod
    def setUpClass(cls):
        # Where that is allowed; also for all that is started.
        with contextlib.suppress(PermissionError):
            os.setpriority(os.PRIO_PROCESS, 0, -10)
        if cls.is_light:
            before_all_others(1)

    @classmethod
    def tearDownClass(cls):
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))

    def measure(self, attempt):
        """What attempt() returns is to be empty: what was wrong."""
        for tries in 1, 2:
            with self.machine() as machine:
                wrong = attempt()
            if not wrong:
                return
            reason = f"{wrong} while {machine}"
            if machine.is_quiet():
                self.fail(reason)
            if tries == 1:
                note("repeated", self, reason)
        self.skipTest(f"the machine was busy twice: {reason}")


def fio(jobs, seconds, *common):
    """Operations each job had answered a second. jobs: (name, uri, options...)."""
    command = ["fio", "--ioengine=nbd", "--thread", "--rw=randread", "--bs=4k", "--size=32M",
               "--norandommap", "--time_based", f"--runtime={seconds}", "--output-format=json",
               *common]
    for name, uri, *options in jobs:
        command += [f"--name={name}", f"--uri={uri}", *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=STUCK, check=True)
    result = json.loads(done.stdout[done.stdout.index("{"):])
    return {job["jobname"]: job["read"]["total_ios"] / (job["read"]["runtime"] / 1000)
            for job in result["jobs"]}
