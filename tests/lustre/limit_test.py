# SPDX-License-Identifier: Apache-2.0
"""Limits of a cluster of Lustre servers: drivers with --cluster as processes, an etcd, and modelled
servers as file systems (lustrefs), in real time."""
import contextlib
import json
import pathlib
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "cluster"))
from tree import WEIR, driver, lustre, wait_until  # noqa: E402
from world import Etcd  # noqa: E402

# On each server: a job that never has enough, and one of another user beside it.
LOAD = ("tbf=jobid", "rate=400", "job=big.500,16,4", "job=other.501,1,1",
        "rule=start admin jobid={backup} rate=77")
LIMIT = 100
CONFIG = """
[cluster]
name = "{name}"
etcd = {etcd}
listen = "127.0.0.1:0"
lease = "2s"
state = "{folder}/{name}.state"
"""


class Oss:
    """A server with its driver."""

    def __init__(self, name, folder, etcd, stack, *options):
        self.name, self.folder, self.stack = name, folder, stack
        self.config = folder / f"{name}.conf"
        endpoints = str(list(etcd.endpoints())).replace("'", '"')
        self.config.write_text(CONFIG.format(name=name, etcd=endpoints, folder=folder))
        self.control = folder / f"{name}.sock"
        self.server = stack.enter_context(lustre(*LOAD))
        self.options = options
        self.start()

    def start(self):
        self.log = open(self.folder / f"{self.name}.log", "w")
        self.process = subprocess.Popen(
            [WEIR, "lustre", "run", "--root", self.server.root, "--lctl", "never", "--map",
             self.folder / f"{self.name}.map", "--cluster", self.config, "--control", self.control,
             *self.options], stdout=self.log, stderr=self.log)
        self.stack.callback(self.end)

    def end(self, number=signal.SIGTERM):
        if self.process.poll() is None:
            self.process.send_signal(number)
        status = self.process.wait(60)
        self.log.close()
        return status

    def said(self):
        return (self.folder / f"{self.name}.log").read_text()

    def weir(self, *arguments, check=True):
        run = subprocess.run([WEIR, "lustre", *arguments, "--control", self.control],
                             capture_output=True, text=True, timeout=60)
        if check:
            assert run.returncode == 0, run.stderr
        return run

    def cluster(self):
        run = subprocess.run([WEIR, "cluster", "status", "--json", "--control", self.control],
                             capture_output=True, text=True, timeout=60)
        return json.loads(run.stdout) if run.returncode == 0 else None

    def is_joined(self, members):
        status = self.cluster()
        return status and status["state"] == "joined" and status["counted"] == members

    def held(self, job):
        return [line for line in self.server.own() if job in line]


class Limits(unittest.TestCase):
    def setUp(self):
        self.stack = contextlib.ExitStack()
        self.addCleanup(self.stack.close)
        self.folder = pathlib.Path(self.stack.enter_context(tempfile.TemporaryDirectory()))

    def cluster(self, *options, servers=2):
        etcd = self.stack.enter_context(Etcd())
        nodes = [Oss(f"oss{i}", self.folder, etcd, self.stack, *options) for i in range(servers)]
        for node in nodes:
            wait_until(lambda node=node: node.is_joined(servers), f"{node.name} has joined")
        return nodes

    def served(self, nodes, job):
        return sum(node.server.served().get(job, 0) for node in nodes)

    def rate(self, nodes, job, seconds):
        before, began = self.served(nodes, job), time.monotonic()
        time.sleep(seconds)  # a measurement
        # What was read is at most as old as it took to read it.
        earliest = time.monotonic() - began
        after = self.served(nodes, job)
        return (after - before) / earliest

    def test_a_limit_holds_on_all_servers_together(self):
        nodes = self.cluster()
        foreign = [node.server.foreign() for node in nodes]
        nodes[0].weir("limit", "start", "wide", "jobid={big.*}", f"rate={LIMIT}")
        for node in nodes:
            wait_until(lambda node=node: node.held("big.500"), f"a rule on {node.name}")
        time.sleep(3)  # until what was served before the limit is paid back
        # Reading takes time, in which the machine may be busy: 5 % of a window of 6 s.
        rate = self.rate(nodes, "big.500", 6)
        self.assertLess(rate, LIMIT * 1.05)
        self.assertGreater(rate, LIMIT * 0.8)
        self.assertFalse(any(node.held("other.501") for node in nodes))
        self.assertEqual([node.server.foreign() for node in nodes], foreign)
        why = nodes[1].weir("explain", "big.500").stdout
        self.assertRegex(why, r"limited to \d+/s since .* by 'wide' of the cluster")
        listed = nodes[1].weir("limit", "list").stdout
        self.assertIn(f"start wide jobid={{big.*}} rate={LIMIT} scope=cluster", listed)
        self.assertIn("ost_io/wide/ops:big.500", listed)
        nodes[1].weir("limit", "change", "wide", f"rate={4 * LIMIT}")
        time.sleep(3)
        self.assertGreater(self.rate(nodes, "big.500", 3), LIMIT * 2)
        nodes[1].weir("limit", "stop", "wide")
        for node in nodes:
            wait_until(lambda node=node: not node.held("big.500"), "the rules are gone")
        for node in nodes:
            self.assertEqual(node.end(), 0, node.said())
            self.assertEqual(node.server.own(), [])
        self.assertRegex(nodes[0].said(), 'audit: change who=.* what="start wide ')

    def test_a_limit_of_a_user_needs_ids_that_tell_the_user(self):
        nodes = self.cluster(servers=1)
        run = nodes[0].weir("limit", "start", "user", "uid={500}", "rate=50", check=False)
        self.assertNotEqual(run.returncode, 0)
        self.assertIn("uses uid, which the job ids of this server do not tell", run.stderr)
        self.assertIn("--job-pattern", run.stderr)

    def test_a_limit_of_a_user_holds_for_the_jobs_of_that_user(self):
        nodes = self.cluster("--job-pattern", "%e.%u", servers=1)
        nodes[0].weir("limit", "start", "user", "uid={500}", "rate=50", "by=uid")
        wait_until(lambda: nodes[0].held("big.500"), "a rule")
        time.sleep(3)
        self.assertLess(self.rate(nodes, "big.500", 6), 50 * 1.05)
        self.assertFalse(nodes[0].held("other.501"))

    def test_a_limit_holds_from_the_start_without_etcd(self):
        nodes = self.cluster(servers=1)
        nodes[0].weir("limit", "start", "wide", "jobid={big.*}", f"rate={LIMIT}")
        wait_until(lambda: nodes[0].held("big.500"), "a rule")
        self.assertEqual(nodes[0].end(), 0)
        self.assertEqual(nodes[0].server.own(), [])
        text = nodes[0].config.read_text()
        nodes[0].config.write_text(text[:text.index("etcd =")] + 'etcd = ["127.0.0.1:1"]\n' +
                                   text[text.index("listen ="):])
        nodes[0].start()
        wait_until(lambda: nodes[0].held("big.500"), "a rule of the last run")

    def test_after_kill_the_guard_removes_the_rules_and_a_restart_limits_again(self):
        nodes = self.cluster(servers=1)
        nodes[0].weir("limit", "start", "wide", "jobid={big.*}", f"rate={LIMIT}")
        wait_until(lambda: nodes[0].held("big.500"), "a rule")
        nodes[0].end(signal.SIGKILL)
        wait_until(lambda: not nodes[0].server.own(), "the guard has removed it")
        nodes[0].start()
        wait_until(lambda: nodes[0].held("big.500"), "a rule again")

    def test_misuse_is_an_error_that_names_the_cure(self):
        config = self.folder / "conf"
        config.write_text("[server]\nthreads = 1\n")
        with lustre("tbf=jobid") as server:
            def run(*arguments):
                done = subprocess.run([WEIR, "lustre", *arguments], capture_output=True, text=True,
                                      timeout=60)
                self.assertNotEqual(done.returncode, 0, done.stdout)
                return done.stderr
            base = ("run", "--root", server.root, "--map", self.folder / "map")
            self.assertIn("has no section [cluster]", run(*base, "--cluster", config))
            self.assertIn("a dry run cannot join", run(*base, "--dry-run", "--cluster", config))
            self.assertIn("--cluster", run(*base, "--cluster", self.folder / "nothing"))
            self.assertIn("add --cluster FILE", run(*base, "--job-facts", config))
            self.assertIn("expected the name of a limit", run("limit", "start"))
            self.assertIn("unexpected argument", run("status", "x"))
            with driver(server, "--control", str(self.folder / "sock"),
                        map_file=self.folder / "map"):
                wait_until((self.folder / "sock").exists, "the socket")
                self.assertIn("not in a cluster", run("limit", "list", "--control",
                                                      self.folder / "sock"))


if __name__ == "__main__":
    unittest.main()
