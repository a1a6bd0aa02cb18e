#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Permanent changes: no confirmed change is lost, and none is applied partly."""
import json
import os
import pathlib
import signal
import subprocess
import tempfile
import threading
import unittest

from remote import Remote, wait_for
from replayed import count_of, replay

RULES = "/v1/services/ost_io/rules"
LIMITS = ("--export", "a=memory:64MiB", "--adaptive", "off")
SHARES = ("--export", "a=memory:64MiB", "--capacity", "1000")


class Journal(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = pathlib.Path(self.folder.name) / "journal"

    def server(self, *more, kind=LIMITS):
        return Remote(*kind, "--journal", self.path, *more)

    def names(self, it):
        return [one["rule"] for one in it.get(RULES)]

    def kill(self, it):
        it.process.send_signal(signal.SIGKILL)
        it.process.wait()
        it.reader.join()
        it.process.stdout.close()
        it.process.stderr.close()
        it.folder.cleanup()

    def test_what_outlives_a_restart_and_what_does_not(self):
        name = "ost.OSS.ost_io.nrs_tbf_rule"
        with self.server() as it:
            it.lctl("set_param", f"{name}=start mortal jobid={{m}} rate=1")
            self.assertEqual(it.lctl("set_param", "-P", f"{name}=start kept jobid={{k}} rate=2"),
                             (0, "", ""))
            it.weir("rule", "start", "cli", "jobid={c}", "rate=3")
            it.weir("rule", "start", "gone", "jobid={g}", "rate=3")
            it.weir("rule", "stop", "gone")
            it.weir("rule", "change", "cli", "rate=4")
            it.weir("job", "add", "ior.1", "9")
        with self.server("--rule", "start file jobid={f} rate=5") as it:
            self.assertEqual(self.names(it), ["cli", "kept", "file", "default"],
                             "first the command line's, then the journal's")
            self.assertEqual(it.get(RULES)[0]["rate"], 4)
            self.assertEqual(it.get("/v1/jobs"), [{"job": "ior.1", "nodes": 9}])
            it.lctl("set_param", "-P", "-d", f"{name}=start  kept jobid={{k}} rate=2")
            self.assertIn("kept", self.names(it), "it stays until the end")
        with self.server() as it:
            self.assertEqual(self.names(it), ["cli", "default"])

    def test_sizes_of_jobs_outlive_a_restart(self):
        jobs = pathlib.Path(self.folder.name) / "jobs"
        jobs.write_text("of_file 4\n", encoding="utf-8")
        for start in range(3):
            with self.server("--jobs", jobs, kind=SHARES) as it:
                if start == 0:
                    self.assertEqual(it.weir("job", "add", "added", "9")[0], 0)
                for job in ("of_file", "added", "other"):
                    it.read(job, 1)
                nodes = {one["job"]: one["nodes"] for one in it.get("/v1/services/ost_io/jobs")}
                self.assertEqual(nodes, {"of_file": 4, "added": 9, "other": 1}, f"start {start}")

    def test_nothing_that_was_confirmed_is_lost_by_kill_9(self):
        it = self.server().__enter__()
        confirmed, sent, stopped = {}, [], threading.Event()

        def commands():
            """Each rule is started; every second one is then changed, and every third is stopped.
            With the result of each: name and rate."""
            for number in range(10_000):
                name, rate = f"r{number}", number + 1
                yield f"start {name} jobid={{j{number}}} rate={rate}", name, rate
                if number % 2:
                    yield f"change {name} rate={rate + 20_000}", name, rate + 20_000
                if number % 3 == 2:
                    yield f"stop {name}", name, None

        def change_rules():
            for command, name, rate in commands():
                if stopped.is_set():
                    return
                sent.append((name, confirmed.get(name), rate))
                try:
                    status, _, _ = it.http("POST", RULES, json.dumps({"command": command}))
                except (OSError, ConnectionError, ValueError, AttributeError):
                    return
                self.assertEqual(status, 200)
                confirmed[name] = rate
        thread = threading.Thread(target=change_rules)
        thread.start()
        wait_for("fifty rules", lambda: len(confirmed) >= 50)
        self.kill(it)
        stopped.set()
        thread.join()
        with self.server() as again:
            there = {one["rule"]: (one["rate"], one["conditions"])
                     for one in again.get(RULES) if one["rule"] != "default"}
        expected = {name: (rate, f"jobid={{j{name[1:]}}}")
                    for name, rate in confirmed.items() if rate is not None}
        # The last change may have been made, completely or not at all.
        name, old, new = sent[-1]
        of_last = {None if rate is None else (rate, f"jobid={{j{name[1:]}}}")
                   for rate in (old, new, confirmed.get(name, old))}
        self.assertIn(there.pop(name, None), of_last)
        expected.pop(name, None)
        self.assertEqual(there, expected)

    def test_a_record_that_was_never_finished_is_dropped_and_told(self):
        with self.server() as it:
            it.weir("rule", "start", "whole", "jobid={a}", "rate=1")
        with open(self.path, "ab") as file:
            file.write(b"12345678 {\"param\":")
        with self.server() as it:
            self.assertEqual(self.names(it), ["whole", "default"])
            it.await_log("never confirmed")

    def test_a_damaged_one_is_refused_unless_told_to_repair(self):
        with self.server() as it:
            for name in ("one", "two", "three"):
                it.weir("rule", "start", name, f"jobid={{{name}}}", "rate=1")
        text = self.path.read_bytes().replace(b"two", b"twO", 1)
        self.path.write_bytes(text)
        with self.assertRaisesRegex(AssertionError, "line 3 is damaged: 1 records before it are "
                                                    "intact, 2 lines"):
            self.server().__enter__()
        self.assertEqual(self.path.read_bytes(), text, "nothing was touched")
        with self.server("--journal-repair") as it:
            self.assertEqual(self.names(it), ["one", "default"])
            it.await_log("kept 1 records, dropped 2 lines")
        self.assertEqual(self.path.with_name("journal.damaged").read_bytes(), text)
        with self.server() as it:
            self.assertEqual(self.names(it), ["one", "default"])

    def test_a_tail_of_zeroes_is_refused_unless_told_to_repair(self):
        with self.server() as it:
            for name in ("one", "two"):
                it.weir("rule", "start", name, f"jobid={{{name}}}", "rate=1")
        text = self.path.read_bytes()
        second = text.index(b"\n", text.index(b"\n") + 1) + 1  # after the header and a record
        # A disk that lost the sector of a confirmed record.
        self.path.write_bytes(text[:second] + bytes(len(text) - second))
        with self.assertRaisesRegex(AssertionError, "bytes are zero and may have held confirmed"):
            self.server().__enter__()
        with self.server("--journal-repair") as it:
            self.assertEqual(self.names(it), ["one", "default"])
        self.assertEqual(self.path.with_name("journal.damaged").read_bytes(),
                         text[:second] + bytes(len(text) - second))

    def test_an_emptied_one_is_refused_unless_told_to_repair(self):
        with self.server() as it:
            it.weir("rule", "start", "one", "jobid={one}", "rate=1")
        text = self.path.read_bytes()
        for left in (0, 5):
            self.path.write_bytes(text[:left])
            with self.assertRaisesRegex(AssertionError, "confirmed records are missing"):
                self.server().__enter__()
            self.assertEqual(self.path.stat().st_size, left, "nothing was touched")
        with self.server("--journal-repair") as it:
            it.await_log("kept 0 records")
            self.assertEqual(it.weir("rule", "start", "two", "jobid={two}", "rate=1")[0], 0)
        with self.server() as it:
            self.assertEqual(self.names(it), ["two", "default"])

    def test_what_was_undone_is_taken_out(self):
        sets = [{"pattern": "ost.OSS.ost_io.nrs_tbf_rule",
                 "value": f"change default rate={100 + i}"} for i in range(1200)]
        with self.server() as it:
            status, _, _ = it.send("POST", "/v1/params", {"set": sets, "persist": True})
            self.assertEqual(status, 200)
        self.assertLess(self.path.stat().st_size, 70_000, "all of them: 100,000")
        with self.server() as it:
            self.assertEqual(it.get(RULES)[0]["rate"], 1299)

    def test_one_server_at_a_time(self):
        with self.server():
            with self.assertRaisesRegex(AssertionError, "another server uses it: process"):
                self.server().__enter__()

    def test_a_full_disk(self):
        disk = pathlib.Path(self.folder.name) / "disk"
        disk.mkdir()
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", disk],
                          check=False).returncode != 0:
            self.skipTest("not allowed to mount")
        try:
            self.path = disk / "journal"
            with self.server() as it:
                it.weir("rule", "start", "first", "jobid={a}", "rate=1")
                with open(disk / "ballast", "wb", buffering=0) as ballast:
                    try:
                        while True:
                            ballast.write(b"x" * 4096)
                    except OSError:
                        pass
                long = "start big jobid={" + " ".join(f"j{i}" for i in range(600)) + "} rate=1"
                codes = []
                for number in range(4):
                    codes.append(it.http("POST", RULES, json.dumps(
                        {"command": long.replace("big", f"big{number}")})))
                refused = [body for status, _, body in codes if status == 507]
                self.assertTrue(refused, codes)
                self.assertIn("nothing was changed", refused[0])
                started = {f"big{i}" for i, (status, _, _) in enumerate(codes) if status == 200}
                self.assertEqual(set(self.names(it)) - {"first", "default"}, started)
                (disk / "ballast").unlink()
                self.assertEqual(it.weir("rule", "start", "last", "jobid={z}", "rate=1")[0], 0)
            with self.server() as it:
                self.assertEqual(set(self.names(it)), {"first", "last", "default"} | started)
        finally:
            subprocess.run(["umount", disk], check=True)

    def test_records_outlive_kill_9(self):
        def saved():
            """Records of the last checkpoint by job: the fourth words of its accounts."""
            if not os.path.exists(records):
                return {}
            lines = records.read_text(encoding="utf-8").splitlines()
            accounts = [line.split()[2:4] for line in lines if line.split()[1] == "account"]
            return {job.lstrip("="): int(record) for job, record in accounts}

        records = self.path.with_name("journal.records")
        it = self.server(kind=SHARES).__enter__()
        enough = threading.Event()

        def borrow():
            while not enough.is_set():
                it.read("borrower", 500)
        borrower = threading.Thread(target=borrow)
        borrower.start()
        try:
            # One job always has more demand than its share. The other has little in a period that
            # gives it a share, and lends the rest: in at least one of many, however busy the
            # machine is.
            def lend():
                it.read("lender", 5)
                return max(saved().values(), default=0) >= 20
            wait_for("a checkpoint with what they owe", lend)
        finally:
            enough.set()
            borrower.join()
            self.kill(it)
        owed = saved()
        self.assertEqual(sum(owed.values()), 0)
        with self.server(kind=SHARES) as again:
            pass
        self.assertNotIn("damaged", again.log)
        # No request was sent: the restored records are written again at the end, and take a minute
        # to fade to half.
        kept = saved()
        self.assertEqual(kept.keys(), owed.keys())
        self.assertEqual(sum(kept.values()), 0)
        for job, record in owed.items():
            self.assertLessEqual(abs(kept[job]), abs(record), job)
            self.assertGreaterEqual(2 * kept[job] * record, record * record, job)
        # Decisions based on them can be replayed.
        trace = self.path.with_name("trace")
        with self.server("--trace", trace, kind=SHARES) as again:
            again.read("borrower", 500)
            again.read("lender", 500)
        status, report, errors = replay(trace)
        self.assertEqual((status, errors), (0, ""), report)
        self.assertEqual(count_of(report, "run"), 1000)


if __name__ == "__main__":
    unittest.main(verbosity=2)
