# SPDX-License-Identifier: Apache-2.0
"""Common code of the benchmarks: medians, steal time, and a table of figures and limits."""
import json
import statistics
import subprocess


def cpu_ticks():
    with open("/proc/stat", encoding="ascii") as stat:
        return [int(field) for field in stat.readline().split()[1:]]


class Steal:
    """Steal time of this machine while the block ran, in percent."""

    def __enter__(self):
        self.before = cpu_ticks()
        self.percent = 0.0
        return self

    def __exit__(self, *_):
        spent = [after - before for before, after in zip(self.before, cpu_ticks())]
        self.percent = 100 * spent[7] / max(sum(spent[:8]), 1)


NANOSECONDS = {"ns": 1, "us": 1e3, "ms": 1e6, "s": 1e9}


def samples(binaries, repetitions, pattern=".", per_process=1):
    """Every run of the micro benchmarks with matching names, as reported by Google Benchmark, by
    name.

    The binaries take turns, and each interleaves its own benchmarks, so that a slow phase of the
    machine affects all of them.
    """
    runs = {}
    for _ in range(repetitions):
        for binary in binaries:
            output = subprocess.run(
                [binary, "--benchmark_format=json", "--benchmark_min_time=0.1",
                 f"--benchmark_filter={pattern}", "--benchmark_enable_random_interleaving=true",
                 f"--benchmark_repetitions={per_process}"],
                capture_output=True, text=True, check=True).stdout
            # Without a matching benchmark there is no report.
            for run in json.loads(output)["benchmarks"] if output.strip() else []:
                if run["run_type"] == "iteration":
                    runs.setdefault(run["run_name"], []).append(run)
    return runs


def nanoseconds(runs):
    """Nanoseconds of an operation, one value for each run."""
    return [run["cpu_time"] * NANOSECONDS[run["time_unit"]] for run in runs]


def micro(binaries, repetitions):
    """Nanoseconds per operation and the most allocations of every micro benchmark, by name."""
    runs = samples(binaries, repetitions, per_process=2)
    times = {name: nanoseconds(of_name) for name, of_name in runs.items()}
    allocations = {name: max(run.get("allocations", 0) for run in of_name)
                   for name, of_name in runs.items()}
    return times, allocations


def spread(values):
    return f"{min(values):.3g}..{max(values):.3g}"


class Table:
    """Figures and their limits; met() returns whether all were reached."""

    def __init__(self):
        self.rows = []

    def add(self, what, values, limit, unit):
        self.row(what, values, f"<= {limit:g} {unit}", unit, lambda middle: middle <= limit)

    def add_least(self, what, values, limit, unit):
        self.row(what, values, f">= {limit:g} {unit}", unit, lambda middle: middle >= limit)

    def add_floor(self, what, values, unit):
        """What the host allows, for comparison with another host; nothing to be reached."""
        self.row(what, values, "floor", unit, lambda middle: True)

    def row(self, what, values, limit, unit, is_met):
        """A row without values was not measured, which counts as not reached."""
        if not values:
            self.rows.append((what, "none", "", limit, False))
            return
        middle = statistics.median(values)
        self.rows.append((what, f"{middle:.4g} {unit}", spread(values), limit, is_met(middle)))

    def met(self):
        return all(row[-1] for row in self.rows)

    def show(self):
        print(f"{'figure':58}{'median':>12}{'spread':>20}{'limit':>14}")
        for what, middle, spread_text, limit, met in self.rows:
            print(f"{what:58}{middle:>12}{spread_text:>20}{limit:>14}  "
                  f"{'ok' if met else 'NOT REACHED'}")
