# SPDX-License-Identifier: Apache-2.0
"""The configuration file, edited while clients are served, and SIGHUP."""
import pathlib
import subprocess
import tempfile
import threading
import time
import unittest

import nbd

from server import RELEASE, STUCK, Server, WEIR

FILE = """
[server]
connections = {connections}

[[service]]
adaptive = "{adaptive}"
capacity = {capacity}
rules = [{rules}]

[[export]]
name = "a"
store = "shaped:iops={iops}:memory:1MiB"
{more}
"""


class Edited(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = pathlib.Path(folder.name) / "weir.conf"
        self.values = {"connections": 100, "adaptive": "off", "capacity": '"auto"', "rules": "",
                       "iops": 100000, "more": ""}
        self.write()

    def write(self, **values):
        self.values.update(values)
        self.path.write_text(FILE.format(**self.values), encoding="utf-8")

    def serve(self, *arguments, binary=None):
        return Server("--config", str(self.path), *arguments, binary=binary)

    def hup(self, server, text):
        said = server.reload()
        self.assertIn(text, said)
        return said


def counted(handle, seconds):
    """The number of reads answered in each of so many seconds."""
    handle.pread(512, 0)
    started = time.monotonic()
    count = 0
    while time.monotonic() - started < seconds:
        handle.pread(512, 0)
        count += 1
    return count / (time.monotonic() - started)


def seconds_for(handle, reads):
    started = time.monotonic()
    for _ in range(reads):
        handle.pread(512, 0)
    return time.monotonic() - started


class Traffic(Edited):
    """The client counts rates. A busy machine only reduces them, so lower bounds are much below the
    expected rate."""

    def connect(self, server, name):
        handle = nbd.NBD()
        handle.connect_uri(server.uri(name))
        return handle

    def test_an_edited_rule_acts_on_running_traffic(self):
        self.write(rules='"start slow jobid={slow} rate=20"')
        with self.serve(binary=RELEASE) as server:
            client = self.connect(server, "a/job=slow")
            # 20 a second, and the tokens saved while it was idle: 3.
            self.assertLess(counted(client, 1), 24)
            times = []
            traffic = threading.Thread(target=lambda: times.append(seconds_for(client, 400)))
            traffic.start()
            self.write(rules='"start slow jobid={slow} rate=2000"')
            said = self.hup(server, "configuration reloaded")
            traffic.join()
            self.assertIn("service 'ost_io': change slow rate=2000", said)
            self.assertLess(times[0], 15)  # at 20 a second: 20
            self.write(rules="")
            self.assertIn("stop slow", self.hup(server, "stop slow"))
            self.write(rules='"start new jobid={slow} rate=10"')
            self.hup(server, "start new")
            self.assertLess(counted(client, 1), 14)

    def test_fio_notices_too(self):
        self.write(rules='"start slow jobid={fio} rate=10"')
        with self.serve(binary=RELEASE) as server:
            fio = subprocess.Popen(
                ["fio", "--name=r", "--ioengine=nbd", f"--uri={server.uri('a/job=fio')}",
                 "--rw=randread", "--bs=4k", "--size=1m", "--iodepth=4", "--norandommap",
                 "--number_ios=2000"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
            self.addCleanup(fio.stdout.close)
            try:
                self.write(rules='"start slow jobid={fio} rate=10000"')
                self.hup(server, "change slow")
                # At 10 a second it would take 200 s.
                self.assertEqual(fio.wait(STUCK), 0)
            finally:
                fio.kill()
                fio.wait()

    def test_a_slower_store_and_a_capacity(self):
        self.write(adaptive="on", capacity="1000")
        with self.serve(binary=RELEASE) as server:
            client = self.connect(server, "a")
            self.write(iops=20)
            self.assertIn("export 'a': iops=100k/s -> iops=20/s", self.hup(server, "iops=20"))
            self.assertLess(counted(client, 1), 24)
            self.write(iops=100000, capacity="20")
            self.assertIn("capacity: 1k/s -> 20/s", self.hup(server, "capacity"))
            # The depth of the root is the number of slots, 16.
            self.assertLess(counted(client, 2), 20 + 17 / 2 + 2)
            self.write(capacity='"auto"')
            self.hup(server, "capacity: 20/s -> auto")
            self.assertLess(seconds_for(client, 200), 8)  # at 20 a second: 9 at least


class WhollyOrNotAtAll(Edited):
    def test_the_same_file_changes_nothing(self):
        with self.serve() as server:
            server.await_log("audit: start")  # the last line of the start
            said = self.hup(server, "configuration reloaded")
            lines = [line for line in said.splitlines() if " audit: " not in line]
            self.assertEqual(len(lines), 1, said)

    def test_a_broken_file_changes_nothing_and_says_so(self):
        with self.serve() as server:
            self.write(connections='"many"', rules='"start a jobid={a} rate=5"')
            said = self.hup(server, "the configuration was not changed")
            self.assertIn("connections", said)
            self.path.unlink()
            self.hup(server, "the configuration was not changed")
            self.write(connections=100)
            # Now the rule exists, exactly once.
            self.assertIn("start a jobid={a}", self.hup(server, "configuration reloaded"))

    def test_certificates_that_would_not_be_used_change_nothing(self):
        with self.serve() as server:
            for more in "verify_clients = true", 'directory = "/etc/weir/pki"':
                self.write(connections=50, more=f"[tls]\n{more}\n")
                said = self.hup(server, "the configuration was not changed")
                self.assertIn("--tls require", said)
                self.assertNotIn("connections", said)

    def test_one_change_that_cannot_be_made_keeps_all_from_being_made(self):
        with self.serve("--rule", "start mine jobid={m} rate=7") as server:
            self.write(connections=50, rules='"start mine jobid={x} rate=1"')
            said = self.hup(server, "the configuration was not changed")
            self.assertIn("rule 'mine' already exists", said)
            self.write(rules='"start other jobid={x} rate=1"')
            said = self.hup(server, "configuration reloaded")
            self.assertIn("server.connections: 100 -> 50", said)
            self.assertIn("start other", said)
            # A reload does not touch rules of the command line.
            self.write(rules="")
            self.assertNotIn("mine", self.hup(server, "stop other"))

    def test_what_needs_a_restart_is_named_every_time(self):
        with self.serve() as server:
            self.write(adaptive="on", connections=60)
            for changes in (True, False):
                said = self.hup(server, "takes effect at the next start")
                self.assertIn("service 'ost_io': adaptive", said)
                self.assertEqual("connections" in said, changes, said)
            self.write(adaptive="off")
            self.assertNotIn("adaptive", self.hup(server, "configuration reloaded"))

    def test_the_command_line_counts_for_more_than_the_file(self):
        with self.serve("--connections", "5") as server:
            self.write(connections=60)
            self.assertNotIn("connections", self.hup(server, "configuration reloaded"))

    def test_jobs_are_read_with_it(self):
        jobs = self.path.parent / "jobs"
        jobs.write_text("x 2\n", encoding="utf-8")
        self.write(adaptive="on", more=f'[jobs]\nfile = "{jobs}"\n')
        with self.serve() as server:
            jobs.write_text("x two\n", encoding="utf-8")
            self.assertIn("line 1", self.hup(server, "the configuration was not changed"))
            jobs.write_text("x 3\n", encoding="utf-8")
            self.hup(server, "configuration reloaded")

    def test_checking_the_file_serves_nothing(self):
        done = subprocess.run([WEIR, "serve", "--config", self.path, "--check-config"],
                              capture_output=True, text=True, timeout=STUCK, check=False)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))


if __name__ == "__main__":
    unittest.main()
