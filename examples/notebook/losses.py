#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints the tables of docs/comparison.md from the results of weir sim compare.

    weir sim compare --out comparison
    examples/notebook/losses.py comparison

First the losses of a policy (default weir): scenarios and metrics in which another one is better
and the confidence intervals do not overlap. Then its rank in all of them.
"""
import json
import pathlib
import sys


def digits(value):
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"


def cell(one):
    width = f" ±{digits(one['half_width'])}" if one["half_width"] else ""
    return digits(one["mean"]) + width


def places(results, policy):
    """(scenario, metric, own entry or None, first entry, number of policies)"""
    for scenario in results["scenarios"]:
        for metric in results["metrics"]:
            ranked = scenario["metrics"][metric["name"]]
            if not ranked:
                continue
            own = next((one for one in ranked if one["policy"] == policy), None)
            yield scenario["name"], metric, own, ranked[0], len(ranked)


def losses(results, policy):
    yield f"| scenario | metric | {policy} | first | |"
    yield "|---|---|---|---|---|"
    for scenario, metric, own, first, count in places(results, policy):
        if own is None:
            yield (f"| {scenario} | {metric['title']} | no value | {first['policy']} "
                   f"| {cell(first)} |")
        elif not own["tied"]:
            yield (f"| {scenario} | {metric['title']} | {cell(own)}, rank {own['rank']} of {count} "
                   f"| {first['policy']} | {cell(first)} |")


def wins(results, policy):
    titles = [metric for metric in results["metrics"]]
    yield "| scenario | " + " | ".join(metric["name"] for metric in titles) + " |"
    yield "|---" * (len(titles) + 1) + "|"
    table = {}
    for scenario, metric, own, _, count in places(results, policy):
        tied = "**" if own and own["tied"] else ""
        table.setdefault(scenario, {})[metric["name"]] = (
            f"{tied}{own['rank']}{tied}/{count}" if own else "-")
    for scenario, cells in table.items():
        yield (f"| {scenario} | " + " | ".join(cells.get(metric["name"], "") for metric in titles)
               + " |")


def main(source, policy="weir"):
    results = json.loads((pathlib.Path(source) / "results.json").read_text(encoding="utf-8"))
    print(f"Command: `{results['command']}`\n")
    print("\n".join(losses(results, policy)))
    print()
    print("\n".join(wins(results, policy)))
    print()
    for one in results["refused"]:
        print(f"- {one['scenario']}, {one['policy']}: {one['why']}")


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit(f"usage: {sys.argv[0]} COMPARISON [POLICY]")
    main(*sys.argv[1:])
