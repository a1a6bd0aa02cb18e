#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the figures of docs/comparison.md from the results of weir sim compare.

    weir sim compare --out comparison
    examples/notebook/figures.py comparison figures

Needs python3-pandas and python3-matplotlib of Debian. Every figure is a function of the table
results.csv, so it can be pasted into a notebook and changed. The same results give the same bytes.
"""
import pathlib
import sys

import matplotlib
matplotlib.use("Agg")  # no display is needed
import matplotlib.pyplot as plt

import comparison

# Text stays text, and identifiers and dates do not change from run to run.
matplotlib.rcParams["svg.fonttype"] = "none"
matplotlib.rcParams["svg.hashsalt"] = "weir"


def bars(runs, metric, title, path):
    """A panel for each scenario, a bar with its interval for each policy."""
    scenarios = list(runs.scenario.unique())
    policies = list(runs.policy.unique())
    figure, panels = plt.subplots(len(scenarios), 1, figsize=(9, 1 + 1.1 * len(scenarios)),
                                  sharex=True, squeeze=False, layout="constrained")
    for panel, scenario in zip(panels[:, 0], scenarios):
        places = {one[0]: one for one in comparison.ranked(runs, scenario, metric)}
        panel.set_ylabel(scenario, fontsize=7, rotation=0, ha="right", va="center")
        panel.tick_params(labelsize=7)
        if not places:
            panel.text(0.5, 0.5, "no such jobs", ha="center", va="center", fontsize=7,
                       transform=panel.transAxes)
            panel.set_yticks([])
        for at, policy in enumerate(policies):
            if policy in places:
                _, mean, width, _, _ = places[policy]
                panel.bar(at, mean, yerr=width, capsize=2, error_kw={"linewidth": 0.7},
                          color="#00704f" if policy == "weir" else "#8a96a3")
    panels[-1, 0].set_xticks(range(len(policies)), policies, rotation=30, ha="right")
    figure.suptitle(title, fontsize=9)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def means(runs):
    return runs.groupby(["scenario", "policy"], sort=False)[list(comparison.METRICS)].mean()


def main(source, target):
    runs = comparison.load(source)
    target = pathlib.Path(target)
    target.mkdir(parents=True, exist_ok=True)
    for metric, title in comparison.METRICS.items():
        bars(runs, metric, title, target / f"{metric}.svg")
    means(runs).to_csv(target / "means.csv", float_format="%.6g")
    print(f"{len(comparison.METRICS)} figures of {len(runs)} runs in {target}")


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(f"usage: {sys.argv[0]} COMPARISON FOLDER")
    main(*sys.argv[1:])
