#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the tables of docs/comparison.md from the results of weir sim compare.

    weir sim compare --out comparison
    examples/notebook/losses.py comparison

First the losses of a policy (default weir): scenarios and metrics in which another one is better
and the confidence intervals do not overlap, with the reason's letter from reasons.csv. Then its
rank in all of them. Last what was not run, and why. Needs python3-pandas of Debian.
"""
import csv
import fnmatch
import json
import pathlib
import sys

import comparison

REASONS = pathlib.Path(__file__).with_name("reasons.csv")


def digits(value):
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def cell(mean, width):
    return digits(mean) + (f" ±{digits(width)}" if width > abs(mean) * 1e-9 else "")


def distance(mean, best):
    """By how much it differs from the best."""
    if not best:
        return f"{mean - best:.3g}"
    ratio = mean / best
    return f"{digits(ratio)} times" if ratio >= 3 else f"{digits(abs(ratio - 1) * 100)} %"


def places(runs, policy):
    """(scenario, metric, own place or None, first place, number of policies)"""
    for scenario in runs.scenario.unique():
        for metric in comparison.METRICS:
            found = comparison.ranked(runs, scenario, metric)
            if found:
                own = next((one for one in found if one[0] == policy), None)
                yield scenario, metric, own, found[0], len(found)


def reason(scenario, metric):
    """The letter of the first line of reasons.csv that matches."""
    with open(REASONS, encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if (fnmatch.fnmatchcase(scenario, row["scenario"])
                    and fnmatch.fnmatchcase(metric, row["metric"])):
                return row["reason"]
    return "?"


def losses(runs, policy):
    yield f"| scenario | metric | {policy} | first | | by | why |"
    yield "|---|---|---|---|---|---|---|"
    for scenario, metric, own, first, count in places(runs, policy):
        title = comparison.METRICS[metric]
        best = f"{first[0]} | {cell(first[1], first[2])}"
        why = reason(scenario, metric)
        if own is None:
            yield f"| {scenario} | {title} | no value | {best} | | {why} |"
        elif not own[4]:
            yield (f"| {scenario} | {title} | {cell(own[1], own[2])}, rank {own[3]} of {count} "
                   f"| {best} | {distance(own[1], first[1])} | {why} |")


def ranks(runs, policy):
    yield "| scenario | " + " | ".join(comparison.METRICS) + " |"
    yield "|---" * (len(comparison.METRICS) + 1) + "|"
    table = {}
    for scenario, metric, own, _, count in places(runs, policy):
        tied = "**" if own and own[4] else ""
        table.setdefault(scenario, {})[metric] = f"{tied}{own[3]}{tied}/{count}" if own else "-"
    for scenario, cells in table.items():
        yield f"| {scenario} | " + " | ".join(cells.get(m, "") for m in comparison.METRICS) + " |"


def main(source, policy="weir"):
    runs = comparison.load(source)
    results = json.loads((pathlib.Path(source) / "results.json").read_text(encoding="utf-8"))
    print(f"Command: `{results['command']}`; {len(runs)} runs\n")
    for table in (losses(runs, policy), ranks(runs, policy)):
        print("\n".join(table) + "\n")
    for one in results["refused"]:
        print(f"- {one['scenario']}: {one['why']}")


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(f"usage: {sys.argv[0]} COMPARISON [POLICY]")
    main(*sys.argv[1:])
