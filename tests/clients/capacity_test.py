# SPDX-License-Identifier: Apache-2.0
"""Capacity auto: the capacity of a device is found, and followed when it changes.

The device is a shaped store whose speed is edited in the configuration file while clients always
have a backlog. The estimate of the server is read from its trace: in each period the controller
divides the tokens of the capacity.
"""
import csv
import pathlib
import signal
import subprocess
import tempfile
import time
import unittest

import server as s
from measured import MeasuredTest
from server import STUCK, Server

BINARY = s.RELEASE if pathlib.Path(s.RELEASE).exists() else s.WEIR
SPEEDS = (2000, 500, 2000)
SECONDS = 6          # at each of them
FOUND_AFTER = 5      # seconds
SCENARIO = """
title = "two jobs that always want more"
length = "{length}s"

[target]
capacity = 2000
service = "1ms"

[[job]]
name = "a"
process = [{{ count = 1 }}]

[[job]]
name = "b"
process = [{{ count = 1 }}]
"""
CONFIG = """
[[export]]
name = "a"
store = "shaped:iops={iops}:memory:64MiB"
"""


class Capacity(MeasuredTest):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.config = self.folder / "weir.conf"

    def reshape(self, iops):
        self.config.write_text(CONFIG.format(iops=iops), encoding="utf-8")

    def run_load(self):
        """The times at which the speed was changed, in seconds since the clients started."""
        self.reshape(SPEEDS[0])
        changes = []
        with Server("--config", str(self.config), "--trace", str(self.folder / "trace"),
                    binary=BINARY) as server:
            command = ["fio", "--ioengine=nbd", "--thread", "--rw=randread", "--bs=4k",
                       "--size=32M", "--norandommap", "--time_based", "--iodepth=32",
                       f"--runtime={len(SPEEDS) * SECONDS + 2}"]
            for job in "ab":
                command += [f"--name={job}", f"--uri={server.uri(f'a,job={job}')}"]
            started = time.monotonic()
            clients = subprocess.Popen(command, stdout=subprocess.DEVNULL)
            for iops in SPEEDS[1:]:
                time.sleep(SECONDS)
                self.reshape(iops)
                read = server.log.count("configuration reloaded")
                server.process.send_signal(signal.SIGHUP)
                while server.log.count("configuration reloaded") == read:
                    self.assertLess(time.monotonic() - started, STUCK, server.log)
                    time.sleep(0.01)
                changes.append(time.monotonic() - started)
            self.assertEqual(clients.wait(STUCK), 0)
        return changes

    def capacities(self):
        """(second, operations a second) of each period."""
        scenario = self.folder / "load.toml"
        scenario.write_text(SCENARIO.format(length=len(SPEEDS) * SECONDS + 2), encoding="utf-8")
        subprocess.run([BINARY, "sim", str(scenario), "--replay", str(self.folder / "trace"),
                        "--policy", "weir", "--out", str(self.folder / "out"), "-q"], check=True,
                       timeout=STUCK)
        sums = {}
        with open(self.folder / "out/periods.csv", encoding="utf-8", newline="") as rows:
            for row in csv.DictReader(rows):
                at = float(row["time_s"])
                sums[at] = sums.get(at, 0) + float(row["rate"])
        return sorted(sums.items())

    def test_of_a_device_is_found_and_followed(self):
        def attempt():
            begins = [0, *self.run_load()]
            found = self.capacities()
            wrong = []
            for begin, iops in zip(begins, SPEEDS):
                # The clock here starts up to half a second before the first request.
                late = [rate for at, rate in found
                        if begin + FOUND_AFTER - 0.6 < at < begin + SECONDS - 0.6]
                middle = sorted(late)[len(late) // 2] if late else 0
                if not 0.95 * iops <= middle <= 1.05 * iops:
                    wrong.append(f"{middle:.0f} instead of {iops}")
            return wrong
        self.measure(attempt)


if __name__ == "__main__":
    unittest.main()
