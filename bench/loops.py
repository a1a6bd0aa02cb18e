# SPDX-License-Identifier: Apache-2.0
"""What several loops of a server cost, and how well they scale; for bench/serve.

Clients of a benchmark run on the processors of the server. So what the loops could do with a
processor each is calculated from the processor time of threads: reads / time of the busiest one.
"""
import dataclasses
import json
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests/clients"))
from server import RELEASE, Server  # noqa: E402

SECONDS = 2
SIZE = "64MiB"


@dataclasses.dataclass
class Run:
    reads: int
    seconds: float
    cpu: float        # processor time of all threads
    busiest: float    # processor time of the busiest thread
    wake_ups: int     # of loops by each other
    lock_wait: float  # time in which loops waited for the lock of the service

    @property
    def cpu_us(self):
        return self.cpu / self.reads * 1e6

    @property
    def possible(self):
        """Reads a second, had each thread a processor."""
        return self.reads / self.busiest

    @property
    def wakes(self):
        return self.wake_ups / self.reads

    def lock_percent(self, loops):
        return 100 * self.lock_wait / (self.seconds * loops)


def thread_times(pid):
    """Processor time of each thread in seconds; finer than the ticks of stat."""
    times = {}
    for task in pathlib.Path(f"/proc/{pid}/task").iterdir():
        times[task.name] = int((task / "schedstat").read_text().split()[0]) / 1e9
    return times


def counts(server):
    threads = server.status()["threads"]
    return (sum(one["wake_ups"] for one in threads),
            sum(one["lock_wait_ns"] for one in threads) / 1e9)


def read(server, uri, bs, connections, depth):
    times, (wakes, waited) = thread_times(server.process.pid), counts(server)
    done = subprocess.run(
        ["fio", "--name=x", "--ioengine=nbd", f"--uri={uri}", "--thread", "--rw=randread",
         "--norandommap", f"--bs={bs}", "--size=64M", f"--iodepth={depth}",
         f"--numjobs={connections}", "--group_reporting", "--time_based", f"--runtime={SECONDS}",
         "--output-format=json"], capture_output=True, text=True, check=True)
    after, (wakes_after, waited_after) = thread_times(server.process.pid), counts(server)
    result = json.loads(done.stdout[done.stdout.index("{"):])["jobs"][0]["read"]
    spent = [seconds - times.get(thread, 0) for thread, seconds in after.items()]
    return Run(result["total_ios"], result["runtime"] / 1000, sum(spent), max(spent),
               wakes_after - wakes, waited_after - waited)


def plain(loops, connections=4, depth=32):
    """4 KiB reads from memory."""
    with Server("--export", f"a=memory:{SIZE}", "--threads", str(loops), binary=RELEASE,
                control=True) as server:
        return read(server, server.uri("a"), "4k", connections, depth)
