# SPDX-License-Identifier: Apache-2.0
"""Tests that measure, on a machine that has other things to do.

A figure may be missed because the server is wrong, or because somebody else had the processor.
Which of them it was can be known: the kernel counts what neighbours took (steal) and how long all
processes ran, and the clients and the server say how long they did. So a measurement that meets its
figure counts, and one that misses it counts only if the machine was quiet meanwhile; else it is
repeated.
"""
import json
import os
import resource
import subprocess
import unittest

from server import STUCK

MISSES = 3            # on a quiet machine: then the server is wrong
ATTEMPTS = 6          # in all
QUIET_PERCENT = 8     # of a processor that others may take


def busy_seconds():
    """Of all processors since the start, and what neighbours of the machine took."""
    with open("/proc/stat", encoding="ascii") as stat:
        ticks = [int(field) for field in stat.readline().split()[1:9]]
    user, nice, system, _, _, irq, softirq, steal = ticks
    second = os.sysconf("SC_CLK_TCK")
    return (user + nice + system + irq + softirq) / second, steal / second


def own_seconds():
    """Of this process and of all children it has waited for."""
    return sum(usage.ru_utime + usage.ru_stime
               for usage in (resource.getrusage(resource.RUSAGE_SELF),
                             resource.getrusage(resource.RUSAGE_CHILDREN)))


class Machine:
    """What others took while the block ran, in percent of one processor."""

    def __enter__(self):
        self.wall = os.times().elapsed
        self.busy, self.steal = busy_seconds()
        self.own = own_seconds()
        return self

    def __exit__(self, *_):
        busy, steal = busy_seconds()
        others = busy - self.busy - (own_seconds() - self.own) + steal - self.steal
        self.taken = 100 * max(others, 0) / max(os.times().elapsed - self.wall, 0.001)

    def is_quiet(self):
        return self.taken <= QUIET_PERCENT


class MeasuredTest(unittest.TestCase):
    def measure(self, attempt):
        """What attempt() returns is to be empty: what was wrong."""
        misses, seen = 0, []
        for _ in range(ATTEMPTS):
            with Machine() as machine:
                wrong = attempt()
            if not wrong:
                return
            seen.append(f"{wrong} while others took {machine.taken:.0f} % of a processor")
            misses += machine.is_quiet()
            if misses == MISSES:
                self.fail("; ".join(seen))
        self.skipTest(f"the machine was never quiet: {'; '.join(seen)}")


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
