# SPDX-License-Identifier: Apache-2.0
"""weir serve --trace and weir sim --replay: the decisions of a real server under real clients are
repeated, call by call."""
import pathlib
import signal
import subprocess
import tempfile
import time
import unittest

from replayed import BINARY, count_of, replay
from server import STUCK, Server

SECONDS = 60


def start_fio(server, seconds, jobs):
    """jobs: (name, claim, options...)."""
    command = ["fio", "--ioengine=nbd", "--thread", "--bs=4k", "--size=32M", "--norandommap",
               "--time_based", f"--runtime={seconds}"]
    for name, claim, *options in jobs:
        command += [f"--name={name}", f"--uri={server.uri(f'a,job={claim}')}", *options]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)


class Traced(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.trace = self.folder / "trace"

    def short_trace(self):
        with Server("--export", "a=memory:64MiB", "--trace", str(self.trace),
                    "--rule", "start r jobid={x} rate=500", binary=BINARY) as server:
            fio = start_fio(server, 1, [("x", "x", "--rw=randread", "--iodepth=8"),
                                        ("y", "y", "--rw=randwrite", "--rate_iops=2000")])
            self.assertEqual((fio.communicate(timeout=STUCK)[1], fio.returncode), ("", 0))
        return self.trace.read_bytes()


class Replay(Traced):
    def test_a_minute_of_fio_with_changes_is_decided_again_the_same(self):
        config = self.folder / "weir.conf"

        def write(change):
            # A rule that is started and stopped, one whose rate changes, nodes, capacity and
            # device.
            rules = [f"start limited jobid={{c}} rate={100 + change % 7 * 50}"]
            if change % 3 == 1:
                rules.append("start now_and_then jobid={d} rate=50")
            capacity = '"auto"' if change % 5 < 3 else "1800"
            config.write_text(f"""
[[service]]
rules = {rules}
capacity = {capacity}

[[export]]
name = "a"
store = "shaped:iops={2000 if change % 8 < 5 else 1000}:memory:64MiB"

[jobs]
nodes = {{ a = {1 + change % 4}, b = {1 + change % 3} }}
""", encoding="utf-8")
        write(0)
        with Server("--config", str(config), "--trace", str(self.trace), binary=BINARY) as server:
            fio = start_fio(server, SECONDS, [
                ("a", "a", "--rw=randread", "--iodepth=16", "--rate_iops=700"),
                ("b", "b", "--rw=randrw", "--iodepth=4", "--rate_iops=500,500"),
                ("c", "c", "--rw=randread", "--iodepth=32"),
                ("d", "d", "--rw=write", "--bs=64k", "--fsync=16", "--rate_iops=200"),
                ("e", "e", "--rw=randread", "--iodepth=64", "--thinktime=300ms",
                 "--thinktime_blocks=100")])
            changes = 0
            while fio.poll() is None:
                changes += 1
                write(changes)
                server.process.send_signal(signal.SIGHUP)
                try:
                    fio.wait(2)
                except subprocess.TimeoutExpired:
                    pass
            self.assertEqual((fio.communicate(timeout=STUCK)[1], fio.returncode), ("", 0))
        for what in ("start now_and_then", "stop now_and_then", "change limited"):
            self.assertIn(what, server.log)
        status, report, errors = replay(self.trace)
        self.assertEqual((status, errors), (0, ""), report)
        self.assertIn("every decision is the same", report)
        self.assertGreater(count_of(report, "run"), 20 * SECONDS)
        self.assertGreater(count_of(report, "commands"), changes)
        self.assertGreater(count_of(report, "periods"), 10 * SECONDS)
        self.assertEqual(count_of(report, "admitted"),
                         count_of(report, "completed") + count_of(report, "withdrawn"))

    def test_a_server_that_was_killed_leaves_all_but_the_last_moment(self):
        with Server("--export", "a=memory:64MiB", "--trace", str(self.trace),
                    binary=BINARY) as server:
            fio = start_fio(server, 30, [("x", "x", "--rw=randread", "--rate_iops=2000")])
            deadline = time.monotonic() + STUCK
            while self.trace.stat().st_size < 20_000:
                self.assertLess(time.monotonic(), deadline)
                time.sleep(0.05)
            server.kill()
            fio.communicate(timeout=STUCK)
        status, report, errors = replay(self.trace)
        self.assertEqual(status, 65)
        self.assertIn("every decision is the same", report)
        self.assertGreater(count_of(report, "run"), 500)
        self.assertIn("calls in its first", errors)


class AsWorkload(Traced):
    def workload(self):
        return subprocess.run([BINARY, "sim", "--workload", str(self.trace), "--policy", "none"],
                              capture_output=True, text=True, timeout=STUCK, check=False)

    def test_the_requests_of_a_server_are_simulated(self):
        whole = self.short_trace()
        admitted = count_of(replay(self.trace)[1], "admitted")
        done = self.workload()
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn(f"trace of weir serve, {admitted} requests", done.stdout)
        self.assertRegex(done.stdout, r"\n  x +1 ")
        self.assertRegex(done.stdout, r"\n  y +1 ")
        self.trace.write_bytes(whole[:len(whole) * 2 // 3])
        done = self.workload()
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("  cut: ", done.stdout)


class Damage(Traced):
    @staticmethod
    def record_after(trace, place):
        """The first record of the block after this position; block headers have other checks."""
        at = 8
        while at < place:
            at += 12 + int.from_bytes(trace[at:at + 4], "little")
        return at + 12

    def test_is_found_and_told_how_far_the_trace_is_good(self):
        whole = self.short_trace()
        self.assertEqual(replay(self.trace)[0], 0)
        self.trace.write_bytes(whole[:len(whole) * 2 // 3])
        status, report, errors = replay(self.trace)
        self.assertEqual(status, 65)
        self.assertIn("every decision is the same", report)
        self.assertIn("the server was killed", errors)
        damaged = bytearray(whole)
        damaged[self.record_after(whole, len(whole) // 2)] ^= 0x10
        self.trace.write_bytes(damaged)
        status, _, errors = replay(self.trace)
        self.assertEqual(status, 65)
        self.assertIn("the checksum of a block is wrong", errors)
        self.trace.write_bytes(b"#!/bin/sh\n" * 10)
        self.assertEqual(replay(self.trace)[0], 65)
        self.trace.unlink()
        self.assertEqual(replay(self.trace)[0], 66)


class FullDisk(unittest.TestCase):
    def test_ends_the_trace_and_not_the_server(self):
        with Server("--export", "a=memory:64MiB", "--trace", "/dev/full",
                    binary=BINARY) as server:
            fio = start_fio(server, 1, [("x", "x", "--rw=randread", "--rate_iops=2000")])
            self.assertEqual((fio.communicate(timeout=STUCK)[1], fio.returncode), ("", 0))
            server.await_log("trace '/dev/full' ends")
        self.assertEqual(server.log.count("trace '/dev/full' stopped: No space left on device"), 1)


if __name__ == "__main__":
    unittest.main()
