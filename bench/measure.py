# SPDX-License-Identifier: Apache-2.0
"""What the benchmarks share: medians, the machine's steal, and a table of figures and limits."""
import json
import statistics
import subprocess


def cpu_ticks():
    with open("/proc/stat", encoding="ascii") as stat:
        return [int(field) for field in stat.readline().split()[1:]]


class Steal:
    """Time that neighbours took from this machine while the block ran, in percent."""

    def __enter__(self):
        self.before = cpu_ticks()
        self.percent = 0.0
        return self

    def __exit__(self, *_):
        spent = [after - before for before, after in zip(self.before, cpu_ticks())]
        self.percent = 100 * spent[7] / max(sum(spent[:8]), 1)


def micro(binaries, repetitions):
    """Nanoseconds per operation of every micro benchmark, one list of repetitions for each.

    The binaries take turns, and each interleaves its own benchmarks, so that a slow spell of the
    machine falls on all of them.
    """
    times = {}
    allocations = {}
    for _ in range(repetitions):
        for binary in binaries:
            output = subprocess.run(
                [binary, "--benchmark_format=json", "--benchmark_min_time=0.1",
                 "--benchmark_enable_random_interleaving=true", "--benchmark_repetitions=2"],
                capture_output=True, text=True, check=True).stdout
            for run in json.loads(output)["benchmarks"]:
                if run["run_type"] != "iteration":
                    continue
                times.setdefault(run["run_name"], []).append(run["cpu_time"])
                allocations[run["run_name"]] = max(allocations.get(run["run_name"], 0),
                                                   run.get("allocations", 0))
    return times, allocations


def spread(values):
    return f"{min(values):.3g}..{max(values):.3g}"


class Table:
    """Figures beside their limits; met() says whether all were reached."""

    def __init__(self):
        self.rows = []

    def add(self, what, values, limit, unit):
        middle = statistics.median(values)
        self.rows.append((what, f"{middle:.3g} {unit}", spread(values), f"<= {limit:g} {unit}",
                          middle <= limit))

    def met(self):
        return all(row[-1] for row in self.rows)

    def show(self):
        print(f"{'figure':58}{'median':>12}{'spread':>20}{'limit':>12}")
        for what, middle, spread_text, limit, met in self.rows:
            print(f"{what:58}{middle:>12}{spread_text:>20}{limit:>12}  "
                  f"{'ok' if met else 'NOT REACHED'}")
