#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Processor time that messages between servers cost, and what limits of large clusters make of it.

    bench/epochs.py --weir build/release/apps/weir/weir \\
                    --bench build/release/weir/coordinate/coordinate_bench --write cost.toml

  cost    clusters of two sizes over loopback: the processor time of their leaders, divided by their
          rounds. The difference is what one more member costs: its Ready is received and its Start
          is sent. The time for each message in a bundle is that of weir/coordinate/epoch_bench.cc.
          Written for `weir sim cluster-limit --cost`; with --base, beside another program.
  sim     a thousand servers in the simulator with this cost, and a hot spot that moves twice a
          second on ten
  real    32 servers as processes, with a hot spot that moves every 2 s

All take about four minutes; --only runs some. Processor time is less sensitive to other load than
elapsed time, but `real` needs a machine with nothing else to do.
"""
import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

SOURCE = pathlib.Path(__file__).resolve().parents[1]
TICKS = os.sysconf("SC_CLK_TCK")
PARTS = "cost", "sim", "real"
LIMIT = 1500  # operations a second, of 32 servers


def cpu_seconds(pid):
    """User and system time of a process."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def round_cost(program, servers, seconds):
    """Processor time of a leader for each round, in seconds, and rounds per second."""
    import world  # needs WEIR_RELEASE_BIN
    with world.World(servers=servers, binary=program) as cluster:
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


def member_cost(arguments):
    """Nanoseconds of a leader for each member and round, of each program: the median of runs that
    are interleaved."""
    few, many = (int(one) for one in arguments.servers.split(","))
    slopes = {program: [] for program in filter(None, (arguments.weir, arguments.base))}
    for _ in range(arguments.runs):
        for program, of in slopes.items():
            small, rate_small = round_cost(program, few, arguments.seconds)
            large, rate_large = round_cost(program, many, arguments.seconds)
            of.append((large - small) / (many - few))
            print(f"{program}: {few} servers: {small * 1e6:.0f} us a round, {rate_small:.0f} "
                  f"rounds/s   {many} servers: {large * 1e6:.0f} us a round, {rate_large:.0f} "
                  f"rounds/s   a member and round: {of[-1] * 1e6:.1f} us", flush=True)
    return {program: statistics.median(of) * 1e9 for program, of in slopes.items()}


def measure_cost(arguments):
    medians = member_cost(arguments)
    for program, median in medians.items():
        print(f"{program}: a member and round: {median / 1e3:.1f} us, the median")
    member = medians[arguments.weir]
    text = (f"# Written by bench/epochs.py. A member and round: {member / 1e3:.1f} us.\n"
            f'receive = "{round(member / 2)}ns"\nsend = "{round(member / 2)}ns"\n'
            f'carried = "{round(carried_ns(arguments.bench))}ns"\n')
    pathlib.Path(arguments.write).write_text(text, encoding="utf-8")
    print(text, end="")


def simulate(weir, what, *options):
    run = subprocess.run([weir, "sim", "cluster-limit", "--policy", "slices", *options],
                         capture_output=True, text=True, check=True)
    used = re.search(r"used: ([\d.]+) %", run.stdout)
    epochs = re.search(r"epochs [\d.]+/s   evictions \d+, after the first second \d+", run.stdout)
    assert used and epochs, run.stdout
    print(f"{what}: {used.group(1)} % of the limit used, {epochs.group()}", flush=True)


def measure_simulated(arguments):
    cost = "--cost", arguments.write
    simulate(arguments.weir, "1,000 servers with this cost", "--servers", "1000", *cost)
    simulate(arguments.weir, "10 servers, the hot spot moves every 0.5 s", "--move", "500ms", *cost)


def measure_real(arguments):
    import world
    with world.World(servers=32, binary=arguments.weir) as cluster:
        cluster.rule(f"start wide jobid={{*}} rate={LIMIT} by=rule")
        with world.Load(cluster) as load:
            load.heat(next(iter(cluster.members)))
            time.sleep(2)
            begin = time.monotonic()
            load.move(arguments.seconds * 2, 2)
            end = time.monotonic()
            used = len(load.completions(begin, end)) / (LIMIT * (end - begin))
            most = load.most(5, begin, end) / (5 * LIMIT)
            leader = cluster.members[cluster.leader()].status()["at_leader"]
    print(f"32 servers: {used * 100:.2f} % of the limit used, at most {most * 100:.2f} % in any "
          f"5 s, evictions {leader['evictions']}, rounds take "
          f"{leader['round_median_ns'] / 1e3:.0f} us")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--weir", required=True, help="release build of weir")
    parser.add_argument("--bench", required=True, help="release build of coordinate_bench")
    parser.add_argument("--base", help="another weir, whose cost is measured in turn")
    parser.add_argument("--servers", default="4,16", help="the two sizes (default 4,16)")
    parser.add_argument("--seconds", type=float, default=10, help="of each run (default 10)")
    parser.add_argument("--runs", type=int, default=3, help="the median counts (default 3)")
    parser.add_argument("--only", default=",".join(PARTS), help="parts, separated by commas")
    parser.add_argument("--write", help="file for weir sim cluster-limit --cost; it is read if the "
                                        "cost is not measured")
    arguments = parser.parse_args()
    parts = arguments.only.split(",")
    if unknown := set(parts) - set(PARTS):
        parser.error(f"--only: {', '.join(sorted(unknown))}: expected some of {', '.join(PARTS)}")
    arguments.weir = str(pathlib.Path(arguments.weir).resolve())
    if arguments.base:
        arguments.base = str(pathlib.Path(arguments.base).resolve())
    os.environ["WEIR_RELEASE_BIN"] = os.environ["WEIR_BIN"] = arguments.weir
    os.environ.setdefault("WEIR_SOURCE_DIR", str(SOURCE))
    sys.path[:0] = [str(SOURCE / "tests" / one) for one in ("cluster", "control", "clients")]
    with tempfile.TemporaryDirectory() as folder:
        arguments.write = arguments.write or f"{folder}/cost.toml"
        for part, run in zip(PARTS, (measure_cost, measure_simulated, measure_real)):
            if part in parts:
                run(arguments)


if __name__ == "__main__":
    main()
