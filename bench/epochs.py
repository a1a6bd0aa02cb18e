#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Processor time that messages between servers cost, for `weir sim cluster-limit --cost`.

    bench/epochs.py --weir build/release/apps/weir/weir \\
                    --bench build/release/weir/coordinate/coordinate_bench --write cost.toml

Runs clusters of two sizes over loopback, and divides the processor time of their leaders by their
rounds. The difference is what one more member costs: its Ready is received and its Start is sent.
The time that is spent on each message in a bundle is that of weir/coordinate/epoch_bench.cc. The
machine should be idle; processor time is less sensitive to other load than elapsed time.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

SOURCE = pathlib.Path(__file__).resolve().parents[1]
TICKS = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid):
    """User and system time of a process."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def round_cost(servers, seconds):
    """Processor time of a leader for each round, in seconds, and rounds per second."""
    import world  # needs WEIR_RELEASE_BIN
    with world.World(servers=servers) as cluster:
        cluster.rule("start wide jobid={*} rate=3000 by=rule")
        leader = cluster.members[cluster.leader()]

        def reading():
            return (cpu_seconds(leader.process.pid), leader.status()["at_leader"]["rounds"],
                    time.monotonic())
        time.sleep(1)
        before = reading()
        time.sleep(seconds)
        cpu, rounds, passed = (after - first for after, first in zip(reading(), before))
        return cpu / rounds, rounds / passed


def carried_ns(bench):
    """Time for each member of a thousand."""
    run = subprocess.run([bench, "--benchmark_filter=a_round_at_the_leader/1000",
                          "--benchmark_format=json"], capture_output=True, text=True, check=True)
    return 1e9 / json.loads(run.stdout)["benchmarks"][0]["items_per_second"]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--weir", required=True, help="release build of weir")
    parser.add_argument("--bench", required=True, help="release build of coordinate_bench")
    parser.add_argument("--servers", default="4,16", help="the two sizes (default 4,16)")
    parser.add_argument("--seconds", type=float, default=10, help="of each run (default 10)")
    parser.add_argument("--runs", type=int, default=3, help="the median counts (default 3)")
    parser.add_argument("--write", required=True, help="file for weir sim cluster-limit --cost")
    arguments = parser.parse_args()
    os.environ["WEIR_RELEASE_BIN"] = os.environ["WEIR_BIN"] = str(
        pathlib.Path(arguments.weir).resolve())
    os.environ.setdefault("WEIR_SOURCE_DIR", str(SOURCE))
    sys.path[:0] = [str(SOURCE / "tests" / one) for one in ("cluster", "control", "clients")]
    few, many = (int(one) for one in arguments.servers.split(","))
    slopes = []
    for _ in range(arguments.runs):  # interleaved
        small, rate_small = round_cost(few, arguments.seconds)
        large, rate_large = round_cost(many, arguments.seconds)
        slopes.append((large - small) / (many - few))
        print(f"{few} servers: {small * 1e6:.0f} us a round, {rate_small:.0f} rounds/s   "
              f"{many} servers: {large * 1e6:.0f} us a round, {rate_large:.0f} rounds/s   "
              f"a member and round: {slopes[-1] * 1e6:.1f} us", flush=True)
    member = statistics.median(slopes) * 1e9
    carried = carried_ns(arguments.bench)
    text = (f"# Written by bench/epochs.py. A member and round: {member / 1e3:.1f} us.\n"
            f'receive = "{round(member / 2)}ns"\nsend = "{round(member / 2)}ns"\n'
            f'carried = "{round(carried)}ns"\n')
    pathlib.Path(arguments.write).write_text(text, encoding="utf-8")
    print(text, end="")


if __name__ == "__main__":
    main()
