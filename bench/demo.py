#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""./dev demo: thirty seconds of a scenario of the AdapTBF paper (IV-E) on a real server.

Three jobs with three nodes each send bursts, and one job with one node always has requests: real
fio processes and an NBD server on a device of 1,000 operations per second. The same load runs under
four policies, one after the other, each with a trace. weir sim --replay computes the results from
the traces and checks that every decision can be repeated.
"""
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
WEIR = ROOT / "build/release/apps/weir/weir"
OUT = ROOT / "data/demo"
SECONDS = int(os.environ.get("WEIR_DEMO_SECONDS", "30"))
SCENARIO = "redistribution"
NODES = {"job1": 3, "job2": 3, "job3": 3, "job4": 1}
CAPACITY = 1000

# name: what each of its processes does; a burst is a number of requests, then a pause.
LOADS = {
    "job1": ["--numjobs=2", "--thinktime=5s", "--thinktime_blocks=200"],
    "job2": ["--numjobs=2", "--thinktime=3s", "--thinktime_blocks=150", "--startdelay=1"],
    "job3": ["--numjobs=2", "--thinktime=9s", "--thinktime_blocks=300", "--startdelay=2"],
    "job4": ["--numjobs=16"],
}
POLICIES = {
    "none": ["--policy", "fifo", "--adaptive", "off"],
    "static": ["--adaptive", "off"] + [
        part for job, nodes in NODES.items() for part in
        ("--rule", f"start {job} jobid={{{job}}} rate={CAPACITY * nodes // 10} burst=3")],
    "adaptbf": ["--adaptive", "paper", "--capacity", str(CAPACITY)],
    "weir": ["--adaptive", "on", "--capacity", str(CAPACITY)],
}


class Bar:
    """Progress of all runs together, on standard error."""

    def __init__(self, steps):
        self.steps = steps
        self.is_terminal = sys.stderr.isatty()

    def draw(self, step, what):
        if self.is_terminal:
            width = 40
            done = min(width, width * step // self.steps)
            sys.stderr.write(f"\r\x1b[K[{'#' * done}{'.' * (width - done)}] {what}")
            sys.stderr.flush()

    def end(self):
        if self.is_terminal:
            sys.stderr.write("\r\x1b[K")


def start_fio(socket, job, folder):
    command = ["fio", f"--name={job}", "--ioengine=nbd", "--thread", "--rw=randread", "--bs=4k",
               "--size=32M", "--norandommap", "--iodepth=8", "--time_based",
               f"--runtime={2 * SECONDS}",
               f"--uri=nbd+unix:///a,job={job}?socket={socket}", *LOADS[job]]
    return subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL,
                            stderr=subprocess.PIPE, text=True)


def run(policy, trace, step, bar):
    with tempfile.TemporaryDirectory() as folder:
        nodes = pathlib.Path(folder) / "nodes"
        nodes.write_text("".join(f"{job} {count}\n" for job, count in NODES.items()),
                         encoding="utf-8")
        socket = pathlib.Path(folder) / "s"
        server = subprocess.Popen(
            [WEIR, "serve", "--listen", f"unix:{socket}", "--slots", "16", "--jobs", nodes,
             "--export", f"a=shaped:iops={CAPACITY}:memory:64MiB", "--trace", trace,
             *POLICIES[policy]], stdout=subprocess.PIPE, text=True)
        clients = []
        try:
            if not server.stdout.readline().startswith("ready"):
                sys.exit("demo: the server did not start; see its message above")
            clients = [start_fio(socket, job, folder) for job in LOADS]
            for second in range(SECONDS + 3):  # fio takes a while to start
                bar.draw(step * SECONDS + second, f"{policy}, {second} of {SECONDS} s")
                time.sleep(1)
                for client in clients:
                    if client.poll() is not None:
                        sys.exit(f"demo: fio exited: {client.communicate()[1]}")
        finally:
            for client in clients:
                client.kill()
                client.communicate()
            server.send_signal(signal.SIGTERM)
            server.wait(60)


def main():
    for program in ("fio", WEIR):
        if shutil.which(program) is None:
            sys.exit(f"demo: {program} is missing; run ./dev setup and ./dev build release")
    OUT.mkdir(parents=True, exist_ok=True)
    bar = Bar(len(POLICIES) * SECONDS)
    if not bar.is_terminal:
        print(f"demo: {len(POLICIES)} policies, {SECONDS} s each", file=sys.stderr)
    traces = []
    for step, policy in enumerate(POLICIES):
        trace = OUT / f"{policy}.trace"
        run(policy, trace, step, bar)
        traces += ["--replay", trace]
    bar.end()
    done = subprocess.run([WEIR, "sim", SCENARIO, "--length", f"{SECONDS}s", *traces, "--policy",
                           ",".join(POLICIES), "--out", OUT], check=False)
    if done.returncode == 0:
        print(f"\nreport: {OUT / 'report.html'}")
    sys.exit(done.returncode)


if __name__ == "__main__":
    main()
