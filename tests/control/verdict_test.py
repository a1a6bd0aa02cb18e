#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The first line of `weir explain` in twelve staged situations, with fio or lock clients as load.

Each test stages one cause and expects the sentence that names it, and the command that would change
it, or none where no command would help.
"""
import contextlib
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

from locks_test import POOL, Locks
from remote import RELEASE, STUCK, Remote, wait_for

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "cluster"))
from world import World  # noqa: E402

MEMORY = ("--export", "a=memory:16MiB")
PLAIN = (*MEMORY, "--adaptive", "off")
GROUPS = """
[[service]]
policy = "tbf nid"
adaptive = "off"
slots = 1
[[export]]
name = "a"
store = "shaped:iops=200:memory:1MiB"
[groups]
length = "2s"
[[group]]
name = "near"
nids = "0@lo"
[[group]]
name = "far"
nids = "127.0.0.1@tcp"
"""


class Fio:
    """Random reads of a job until the block ends."""

    def __init__(self, server, job, *options, depth=32, tcp=False):
        uri = server.uri(f"a/job={job}" if job else "a", tcp)
        self.process = subprocess.Popen(
            ["fio", "--name=a", "--ioengine=nbd", f"--uri={uri}", "--rw=randread", "--bs=4k",
             "--size=1M", "--thread", "--time_based", "--runtime=600", f"--iodepth={depth}",
             "--output=/dev/null", *options], stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL)

    def close(self):
        self.process.kill()
        self.process.wait(STUCK)


class Asking(unittest.TestCase):
    def serve(self, *arguments):
        return self.enterContext(Remote(*arguments, binary=RELEASE))

    def load(self, server, job, *options, **more):
        return self.enterContext(contextlib.closing(Fio(server, job, *options, **more)))

    def explain(self, it, *name):
        """What the API answers. None: it is not known yet."""
        status, out, _ = it.weir("explain", "--json", *name)
        return json.loads(out) if status == 0 else None

    def expect(self, it, name, cause, verdict, cure=None, least=20):
        """Waits until the situation is as staged: the answer is as expected, and at least so many
        requests were measured. Then compares what a person reads with it."""
        told = {}

        def is_told():
            told.update(self.explain(it, *name.split()) or {})
            measured = (told.get("delays") or {}).get("requests", 0)
            is_answer = re.search(f"^{verdict}", told.get("verdict", ""))
            return told.get("cause") == cause and is_answer and measured >= least
        try:
            wait_for(f"cause {cause}", is_told)
        except AssertionError as error:
            raise AssertionError(f"{error}: {told}") from error
        if cure is None:
            self.assertIsNone(told["cure"])
        else:
            self.assertRegex(told["cure"], f"^{cure}$")
        status, out, error = it.weir("explain", *name.split())
        self.assertEqual((status, error), (0, ""))
        self.assertRegex(out.splitlines()[0], f"^{verdict}")
        return told


class Verdicts(Asking):
    def test_its_own_limit_of_operations(self):
        it = self.serve(*PLAIN, "--rule", "start dd jobid={dd.*} rate=100")
        load = self.load(it, "dd.0")
        told = self.expect(it, "dd.0", "limit",
                           r"dd\.0 is limited by rule 'dd' \(100 operations/s\)",
                           "weir rule change dd rate=200")
        self.assertEqual(told["limited_by"], "dd/dd.0")
        self.assertEqual(it.weir(*told["cure"].split()[1:]), (0, "", ""), "it can be pasted")
        before = it.get("/v1/explain?name=dd.0")["served"]
        wait_for("it is faster", lambda: it.get("/v1/explain?name=dd.0")["served"] > before + 300)
        load.close()
        self.expect(it, "dd.0", "limit", r"dd\.0 is limited by rule 'dd' \(200 operations/s\)",
                    "weir rule change dd rate=400")

    def test_its_own_limit_of_bytes(self):
        it = self.serve(*PLAIN, "--rule", "start dd jobid={dd.*} bps=400kB/s")
        self.load(it, "dd.0")
        self.expect(it, "dd/dd.0", "limit", r"dd/dd\.0 is limited by rule 'dd' \(400 kB/s\)$",
                    "weir rule change dd bps=800kB")

    def test_the_limit_of_a_whole_rule(self):
        it = self.serve(*PLAIN, "--rule", "start both jobid={dd.*} rate=100 by=rule")
        self.load(it, "dd.0")
        self.load(it, "dd.1")
        for name in ("dd.0", "both", "rule=both", "both/*"):
            told = self.expect(it, name, "limit",
                               r"(dd\.0|both/\*) is limited by rule 'both' \(100 operations/s "
                               r"for all its requests together\)$",
                               "weir rule change both rate=200", least=200)
            self.assertGreater(told["delays"]["device_requests"], 0)

    def test_the_limit_of_another_layer(self):
        it = self.serve(*PLAIN, "--rule", "start dd jobid={dd.*} rate=5000",
                        "--rule", "start cap jobid={*} rate=100 layer=1 by=rule")
        self.load(it, "dd.0")
        for name in ("dd.0", "dd/dd.0", "cap"):
            told = self.expect(it, name, "limit",
                               r"(dd\.0|dd/dd\.0|cap/\*) is limited by rule 'cap' in layer 1 "
                               r"\(100 operations/s", "weir rule change cap rate=200")
            self.assertEqual(told["limited_by"], "cap/*")

    def test_its_share_is_used_up(self):
        it = self.serve(*MEMORY, "--capacity", "1000")
        it.weir("job", "add", "large", "9")
        self.load(it, "large", depth=64)
        self.load(it, "small", depth=64)
        told = self.expect(it, "small", "share",
                           r"small uses all of its share of the capacity, \d+ operations/s for 1 "
                           r"node",
                           "weir job set small 2")
        self.assertRegex(" ".join(told["standing"]),
                         r"1 of 10 nodes, entitled to 100 operations/s share now \d+ operations/s")

    def test_it_has_all_that_others_leave(self):
        it = self.serve(*MEMORY, "--capacity", "1000", "--rule", "start held jobid={held} rate=50")
        self.load(it, "held")
        self.load(it, "large", depth=64)
        self.expect(it, "large", "root", r"(large has all of the capacity of service ost_io, 1,000 "
                                         r"operations/s, that other jobs leave|service ost_io is "
                                         r"at its capacity of 1,000 operations/s, .*)$", least=3000)

    def test_the_device_is_at_its_capacity(self):
        it = self.serve(*PLAIN, "--capacity", "300")
        self.load(it, "dd.0")
        self.expect(it, "dd.0", "root", r"service ost_io is at its capacity of 300 operations/s, "
                                        r"of which dd\.0 gets all that other jobs leave$")

    def test_others_go_first(self):
        it = self.serve("--export", "a=shaped:iops=200:memory:16MiB", "--adaptive", "off",
                        "--slots", "1")
        for job in range(7):
            self.load(it, f"other.{job}", depth=8)
        self.load(it, "dd.0", depth=4)
        self.expect(it, "dd.0", "order", r"dd\.0 waits while requests of other classes or jobs run")

    def test_the_slice_of_a_limit_of_the_cluster(self):
        world = self.enterContext(World(servers=2))
        world.rule("start wide jobid={*} rate=300 by=rule")
        members = list(world.members.values())
        for member in members:
            self.load(member, "dd.0")
        self.expect(members[0], "dd.0", "limit",
                    r"dd\.0 is limited by rule 'wide' \(this server's slice of the cluster's 300 "
                    r"operations/s: \d+ operations/s for all its requests together\)$",
                    "weir cluster rule change wide rate=600")

    def test_the_volume_of_locks(self):
        folder = self.enterContext(tempfile.TemporaryDirectory())
        config = pathlib.Path(folder) / "weir.conf"
        config.write_text('[lock]\npolicy = "tbf jobid"\n', encoding="utf-8")
        it = self.enterContext(Locks(folder, "--config", config, limit=2, binary=RELEASE))
        for number in range(5):  # a quarter above the limit is granted, at least one lock more
            self.enterContext(it.locker("run", "--job", "miner", str(number), "--", "sleep", "600"))
        wait_for("it is full", lambda: it.number(f"{POOL}granted") == 3)
        self.expect(it, "--service locks miner", "volume",
                    r"miner waits for room in namespace 'locks': \d+ locks are granted, its limit "
                    r"is 2, and 2 requests wait until clients give up locks",
                    r"weir lctl set_param ldlm\.namespaces\.locks\.pool\.limit=4", least=1)

    def test_the_turn_of_another_group(self):
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        (folder / "weir.conf").write_text(GROUPS, encoding="utf-8")
        it = self.serve("--config", folder / "weir.conf")
        self.load(it, "")
        self.load(it, "", tcp=True)
        self.expect(it, "client=0@lo", "order",
                    r"default/0@lo waits for its group's turn: groups of clients take turns")

    def test_the_device_is_slow(self):
        it = self.serve("--export", "a=shaped:latency=20ms:memory:16MiB", "--adaptive", "off")
        self.load(it, "dd.0", depth=1)
        self.expect(it, "dd.0", "device",
                    r"dd\.0 is not throttled: its requests wait [0-9.]+ [nu]s on average, and the "
                    r"device takes 2\d\.\d ms$")

    def test_it_is_not_throttled_at_all(self):
        it = self.serve(*PLAIN)
        self.load(it, "dd.0", "--rate_iops=200", depth=1)
        self.expect(it, "dd.0", "none",
                    r"dd\.0 is not throttled: its requests wait [0-9.]+ [nu]s on average")


class Names(Asking):
    """What can be asked for."""

    def test_users_clients_and_exports(self):
        it = self.serve(*PLAIN, "--policy", "tbf", "--rule", "start all jobid={*} rate=100 by=uid")
        self.load(it, "dd.0/uid=1000")
        for name in ("uid=1000", "1000", "dd.0", "job=dd.0", "export=a", "all/1000"):
            self.expect(it, name, "limit", r".*is limited by rule 'all' \(100 operations/s\)",
                        "weir rule change all rate=200")
        self.assertRegex(self.explain(it, "export=a")["verdict"],
                         r"^export 'a' serves one job: dd\.0 is limited")
        for name, why in (("export=none", "no export named 'none'"), ("uid=77", "no class, job"),
                          ("client=10.0.0.1@tcp", "no class, job")):
            status, _, error = it.weir("explain", name)
            self.assertEqual(status, 66, error)
            self.assertIn(why, error)

    def test_clients_and_users_whose_classes_are_by_job(self):
        it = self.serve(*PLAIN, "--rule", "start dd jobid={dd.*} rate=100")
        self.load(it, "dd.0/uid=1000")
        self.load(it, "ior.1/uid=1001", "--rate_iops=50", depth=1, tcp=True)
        for name, start in (("client=0@lo", "client 0@lo runs one job: "),
                            ("uid=1000", "uid 1000 runs one job: ")):
            self.expect(it, name, "limit",
                        rf"{start}dd\.0 is limited by rule 'dd' \(100 operations/s\)",
                        "weir rule change dd rate=200")
        for name, start in (("client=127.0.0.1@tcp", "client 127.0.0.1@tcp runs one job: "),
                            ("uid=1001", "uid 1001 runs one job: ")):
            self.expect(it, name, "none", f"{start}ior.1 is not throttled")
        self.load(it, "dd.1/uid=1000")
        self.expect(it, "uid=1000", "limit",
                    r"uid 1000 runs 2 jobs, of which dd\.[01] waits most: dd\.[01] is limited",
                    "weir rule change dd rate=200")

    def test_a_weight_is_changed_where_it_was_set(self):
        it = self.serve(*MEMORY, "--capacity", "1000",
                        "--rule", "start light jobid={light} rate=5000 weight=1",
                        "--rule", "start heavy jobid={heavy} rate=5000 weight=9")
        self.load(it, "heavy", depth=64)
        self.load(it, "light", depth=64)
        self.expect(it, "light", "share", r"light uses all of its share of the capacity, \d+ "
                                          r"operations/s for weight 1 of rule 'light'",
                    "weir rule change light weight=2")

    def test_a_user_without_a_claim_is_the_job_of_that_user(self):
        it = self.serve(*PLAIN, "--rule", "start users jobid={uid.*} rate=100")
        self.load(it, "")
        self.expect(it, f"uid={os.getuid()}", "limit", r"uid\.\d+ is limited by rule 'users'",
                    "weir rule change users rate=200")

    def test_an_export_names_the_job_that_waits_most(self):
        it = self.serve(*PLAIN, "--rule", "start slow jobid={slow} rate=50")
        self.load(it, "slow")
        self.load(it, "fast", "--rate_iops=100", depth=1)
        self.expect(it, "export=a", "limit", r"export 'a' serves 2 jobs, of which slow waits most: "
                                             r"slow is limited by rule 'slow'",
                    "weir rule change slow rate=100")


if __name__ == "__main__":
    unittest.main(verbosity=2)
