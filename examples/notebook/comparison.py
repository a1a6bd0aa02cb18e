# SPDX-License-Identifier: Apache-2.0
"""Reads the results of weir sim compare, for figures.py, losses.py and notebooks.

    runs = comparison.load("comparison")          one row for each run, from results.csv
    comparison.ranked(runs, "zipf", "starvation_ms")

Policies are ranked as in the report: by the mean over the seeds; a policy is tied with the first if
their 95 % confidence intervals overlap. Needs Debian's python3-pandas.
"""
import pathlib

import pandas

# The metrics of a run by their names in results.csv, there with "run_" before them.
METRICS = {
    "utilisation": "Utilisation",
    "shortfall_mean": "Entitlement error over 1 s, mean",
    "shortfall_worst": "Entitlement error over 1 s, worst",
    "bursty_p99_ms": "p99 latency of bursty jobs, ms",
    "bursty_p999_ms": "p99.9 latency of bursty jobs, ms",
    "steady_p99_ms": "p99 latency of steady jobs, ms",
    "steady_p999_ms": "p99.9 latency of steady jobs, ms",
    "starvation_ms": "Longest time without service while requests wait, ms",
    "reserve_missed": "Reservation not kept over 1 s, worst",
    "repay_s": "Time to repay, s",
    "decision_ns": "Processor time of the scheduler per request, ns",
}
MORE_IS_BETTER = {"utilisation"}

# Two-sided 95 % quantiles of Student's distribution, from one degree of freedom.
STUDENT = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228,
           2.201, 2.179, 2.160, 2.145, 2.131, 2.120, 2.110, 2.101, 2.093, 2.086,
           2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042]
NORMAL = 1.96


def load(folder):
    rows = pandas.read_csv(pathlib.Path(folder) / "results.csv")
    runs = rows.drop_duplicates(["scenario", "policy", "seed"])
    columns = {f"run_{name}": name for name in METRICS}
    return runs[["scenario", "policy", "seed", *columns]].rename(columns=columns)


def half_width(values):
    """Half of the 95 % confidence interval of the mean; 0 for one value."""
    freedom = len(values) - 1
    if freedom < 1:
        return 0.0
    quantile = STUDENT[freedom - 1] if freedom <= len(STUDENT) else NORMAL
    return quantile * values.std(ddof=1) / len(values) ** 0.5


def ranked(runs, scenario, metric):
    """(policy, mean, half width, rank, tied), the best first; policies without a value are left
    out."""
    found = []
    for policy, of_policy in runs[runs.scenario == scenario].groupby("policy", sort=False):
        values = of_policy[metric].dropna()
        if len(values):
            found.append((policy, values.mean(), half_width(values)))
    found.sort(key=lambda one: -one[1] if metric in MORE_IS_BETTER else one[1])
    places = []
    for at, (policy, mean, width) in enumerate(found):
        _, best, best_width = found[0]
        rank = places[-1][3] if at and mean == found[at - 1][1] else at + 1
        places.append((policy, mean, width, rank, abs(mean - best) <= width + best_width))
    return places
