#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Long runs that try to break what Weir promises, with real clients against the release build.

    tests/drill/drill.py kill --minutes 20 --seed 7

    kill      kill -9 under acknowledged writes and changes of rules, then everything is verified
    power     a virtual machine loses its power under flushed writes, then everything is verified
    network   links of a cluster are cut, delayed and lossy; limits are counted at the clients
    hostile   clients break the protocol, flood and stall beside a client that is measured
    memory    many connections, classes, jobs and locks come and go; the resident memory is bounded

A drill repeats rounds until its time is over, prints a table of results, and names each promise
that was broken. Exit status: 0 when all held, 1 when one was broken, 64 for wrong usage, 125 when
the drill cannot run on this machine. Random choices come from the seed, which is printed; times are
those of the machine, so a seed repeats the choices and not the interleaving.
"""
import argparse
import importlib
import pathlib
import random
import signal
import sys
import time
import traceback

FOLDERS = ("clients", "control", "cluster")
for folder in FOLDERS:
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / folder))

NAMES = ("kill", "power", "network", "hostile", "memory")
CANNOT_RUN = 125


class CannotRun(Exception):
    """The machine lacks something; the text states what is missing and how to get it."""


class Drill:
    """The clock, the random choices and the results of one drill."""

    def __init__(self, name, minutes, seed):
        self.name = name
        self.random = random.Random(seed)
        self.begun = time.monotonic()
        self.end = self.begun + 60 * minutes
        self.figures = []
        self.broken = []
        self.shown = 0.0

    def goes_on(self):
        return time.monotonic() < self.end

    def progress(self, text):
        """One line: replaced on a terminal, otherwise written every 10 s."""
        now = time.monotonic()
        line = f"{self.name}: {now - self.begun:.0f} s of {self.end - self.begun:.0f} s: {text}"
        if sys.stderr.isatty():
            print(f"\r{line:100.100}", end="", file=sys.stderr, flush=True)
        elif now - self.shown >= 10:
            self.shown = now
            print(line, file=sys.stderr, flush=True)

    def figure(self, what, value, limit=""):
        self.figures.append((what, value, limit))

    def holds(self, promise, is_held, detail):
        """Records a broken promise and continues. Returns whether the promise held."""
        if not is_held:
            self.broken.append((promise, str(detail)))
            print(f"{self.name}: broken: {promise}: {detail}", file=sys.stderr, flush=True)
        return is_held

    def at_most(self, promise, what, value, limit, unit):
        """A figure with a limit that a promise sets."""
        self.figure(what, f"{value:,.4g} {unit}", f"<= {limit:,.4g} {unit}")
        return self.holds(promise, value <= limit, f"{what}: {value:,.4g} {unit}, "
                                                   f"the limit is {limit:,.4g} {unit}")

    def report(self):
        if sys.stderr.isatty():
            print(file=sys.stderr)
        rows = [("figure", "value", "limit"), *self.figures]
        widths = [max(len(str(row[column])) for row in rows) for column in range(3)]
        for what, value, limit in rows:
            print(f"{what:{widths[0]}}  {value!s:>{widths[1]}}  {limit!s:>{widths[2]}}".rstrip())
        for promise, detail in self.broken:
            print(f"broken: {promise}: {detail}")
        print(f"{self.name}: {len(self.broken)} broken promises" if self.broken else
              f"{self.name}: every promise was kept")


def minutes_of(text):
    value = float(text)
    if not 0 < value <= 100_000:
        raise ValueError(text)
    return value


class Parser(argparse.ArgumentParser):
    def error(self, message):
        self.print_usage(sys.stderr)
        self.exit(64, f"drill: {message}\n")


def main():
    parser = Parser(prog="drill", description=__doc__.splitlines()[0])
    parser.add_argument("name", choices=NAMES)
    parser.add_argument("--minutes", type=minutes_of, default=1.0, help="running time (default 1)")
    parser.add_argument("--seed", type=int, help="random seed")
    asked = parser.parse_args()
    seed = asked.seed if asked.seed is not None else random.SystemRandom().randrange(1 << 32)
    print(f"{asked.name}: {asked.minutes:g} minutes, --seed {seed}", file=sys.stderr, flush=True)
    drill = Drill(asked.name, asked.minutes, seed)
    # A drill that is stopped removes its servers, mounts and networks.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    try:
        importlib.import_module(f"{asked.name}_drill").run(drill)
    except CannotRun as reason:
        print(f"cannot run here: {reason}", file=sys.stderr)
        return CANNOT_RUN
    except Exception as error:  # unexpected errors are findings too
        traceback.print_exc()
        drill.holds("the drill runs to its end", False, f"{type(error).__name__}: {error}")
    drill.figure("length", f"{time.monotonic() - drill.begun:.0f} s")
    drill.figure("seed", seed)
    drill.report()
    return 1 if drill.broken else 0


if __name__ == "__main__":
    sys.modules["drill"] = sys.modules["__main__"]  # the drills import names from here
    sys.exit(main())
