#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the figures and tables of docs/comparison.md from the results of weir sim compare.

    weir sim compare --out comparison
    examples/notebook/figures.py comparison figures

Needs python3-pandas and python3-matplotlib of Debian. Every figure is a function of the table
results.csv, one row for each job and run, so it can be pasted into a notebook and changed.
"""
import pathlib
import sys

import matplotlib
matplotlib.use("Agg")  # no display is needed
import matplotlib.pyplot as plt
import pandas

# Two-sided 95 % quantiles of Student's distribution by degrees of freedom.
STUDENT = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228]


def interval(values):
    """Half the width of the 95 % confidence interval of the mean."""
    freedom = len(values) - 1
    if freedom < 1:
        return 0.0
    quantile = STUDENT[freedom - 1] if freedom <= len(STUDENT) else 1.96
    return quantile * values.std(ddof=1) / len(values) ** 0.5


def per_run(rows):
    """One row for each run: what the whole run did, and the worst of its jobs."""
    keys = ["scenario", "policy", "seed"]
    runs = rows.groupby(keys, sort=False).agg(
        utilisation=("utilisation", "first"), cpu_ns=("cpu_ns", "first"),
        starved_ms=("starved_ms", "max"), shortfall_worst=("shortfall_worst", "max"))
    weighted = rows.assign(lacks=rows.shortfall_mean * rows.windows).groupby(keys, sort=False)
    runs["shortfall"] = weighted.lacks.sum() / weighted.windows.sum()
    for kind in ("bursty", "steady"):
        of_kind = rows[rows.kind == kind].groupby(keys, sort=False)
        runs[f"{kind}_p99_ms"] = of_kind.latency_p99_ms.max()
    return runs.reset_index()


def bars(runs, column, title, path):
    """A panel for each scenario, a bar with its interval for each policy."""
    scenarios = list(runs.scenario.unique())
    policies = list(runs.policy.unique())
    figure, panels = plt.subplots(len(scenarios), 1, figsize=(9, 1.9 * len(scenarios)),
                                  squeeze=False, layout="constrained")
    for panel, scenario in zip(panels[:, 0], scenarios):
        means, widths = [], []
        for policy in policies:
            chosen = runs[(runs.scenario == scenario) & (runs.policy == policy)][column].dropna()
            means.append(chosen.mean() if len(chosen) else float("nan"))
            widths.append(interval(chosen) if len(chosen) else 0.0)
        panel.set_ylabel(scenario, fontsize=8)
        if all(mean != mean for mean in means):  # NaN
            panel.text(0.5, 0.5, "no such jobs", ha="center", va="center")
            panel.set(xticks=[], yticks=[])
            continue
        colours = ["#00704f" if policy == "weir" else "#8a96a3" for policy in policies]
        panel.bar(policies, means, yerr=widths, color=colours, capsize=3)
        panel.tick_params(labelsize=7)
    figure.suptitle(title)
    figure.savefig(path)
    plt.close(figure)


FIGURES = {
    "utilisation": "Utilisation",
    "shortfall": "Entitlement error in windows of 1 s, mean",
    "shortfall_worst": "Entitlement error in windows of 1 s, worst",
    "bursty_p99_ms": "p99 latency of the worst bursty job, ms",
    "steady_p99_ms": "p99 latency of the worst steady job, ms",
    "starved_ms": "Longest time without service while requests wait, ms",
    "cpu_ns": "Processor time per request, ns",
}


def main(source, target):
    rows = pandas.read_csv(pathlib.Path(source) / "results.csv")
    target = pathlib.Path(target)
    target.mkdir(parents=True, exist_ok=True)
    runs = per_run(rows)
    for column, title in FIGURES.items():
        bars(runs, column, title, target / f"{column}.svg")
    table = runs.groupby(["scenario", "policy"], sort=False)[list(FIGURES)].mean()
    table.to_csv(target / "means.csv")
    print(f"{len(FIGURES)} figures of {len(runs)} runs in {target}")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(f"usage: {sys.argv[0]} COMPARISON FOLDER")
    main(*sys.argv[1:])
