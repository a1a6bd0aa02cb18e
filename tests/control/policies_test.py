# SPDX-License-Identifier: Apache-2.0
"""What the policies support, their tunables, and answers that say so: status, explain, notes."""
import json
import pathlib
import re
import subprocess
import tempfile
import time
import unittest

from remote import READ, STUCK, Remote, request, wait_for

EXPORT = ("--export", "a=memory:64MiB")
SERVICE = "/v1/services/ost_io"
GROUPS = """
[[service]]
policy = "{policy}"

[[export]]
name = "a"
store = "memory:64MiB"

[[group]]
name = "one"
nids = "10.0.0.[1-9]@tcp"
"""


class Policies(unittest.TestCase):
    def test_status_and_explain_say_what_a_policy_does_not_support(self):
        with Remote(*EXPORT, "--policy", "crrn", "--capacity", "1000") as it:
            service = it.get(SERVICE)
            self.assertEqual(service["adaptive"], "policy crrn is running; shares require tbf")
            self.assertEqual(service["capacity"], 1000)
            started = time.monotonic()
            it.read("j", 600)
            # 100 ms of the rate at once; the rest takes its time.
            self.assertGreaterEqual(time.monotonic() - started, 0.45)
            status, _, error = it.weir("explain", "j")
            self.assertEqual(status, 65, error)
            self.assertIn("policy 'crrn': has no rules", error)
            self.assertIn("explain requires policy tbf", error)
            self.assertNotIn("did you mean", error)
            self.assertEqual(it.http("GET", "/v1/explain?name=j")[0], 409)
            for policy, told in (("tbf jobid", "on"), ("fifo", "policy fifo is running; shares "
                                                       "require tbf")):
                it.lctl("set_param", f"ost.OSS.ost_io.nrs_policies={policy}")
                self.assertEqual(it.get(SERVICE)["adaptive"], told)

    def test_notes_of_the_default_rule_and_of_inactive_rules(self):
        with Remote(*EXPORT, "--adaptive", "off", "--rule", "start dd jobid={dd.*} rate=5") as it:
            note = it.await_log("rule 'default' limits each class")
            self.assertIn("10,000 operations/s", note)
            self.assertRegex(it.weir("rule", "list")[1], r"default +rate=10000 ")
            self.assertIn("to change it: weir rule change default rate=N", it.weir("status")[1])
            status, _, changed = it.send("PUT", f"{SERVICE}/policies", {"policy": "fifo"})
            self.assertEqual((status, len(changed["notes"])), (200, 1))
            self.assertIn("dd", changed["notes"][0])
            self.assertEqual(it.get(SERVICE)["notes"],
                             ["kept, but inactive under policy fifo: rule dd"])
            rules = {one["rule"]: one for one in it.get(f"{SERVICE}/rules")}
            self.assertEqual((rules["dd"]["state"], rules["dd"]["rate"]), ("inactive", 5))
            it.send("PUT", f"{SERVICE}/policies", {"policy": "tbf jobid"})
            it.weir("rule", "change", "default", "rate=20000")
            self.assertEqual(it.get(SERVICE)["notes"], [])
        with Remote(*EXPORT) as it:
            self.assertEqual(it.get(SERVICE)["notes"], [])
            self.assertRegex(it.weir("rule", "list")[1], r"default +none ")

    def test_groups_need_a_policy_that_supports_them(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "weir.conf"
            path.write_text(GROUPS.format(policy="crrn"), encoding="utf-8")
            with Remote(*EXPORT) as it:
                done = subprocess.run([it.binary, "serve", "--check-config", "--config", path],
                                      capture_output=True, text=True, timeout=STUCK, check=False)
            self.assertEqual(done.returncode, 64, done.stderr)
            self.assertIn("policy 'crrn' does not support groups of clients", done.stderr)
            self.assertIn("use policy tbf", done.stderr)
            path.write_text(GROUPS.format(policy="tbf nid"), encoding="utf-8")
            with Remote("--config", str(path)) as it:
                self.assertEqual(it.get(SERVICE)["groups"]["step"], "own")
                changed = it.send("PUT", f"{SERVICE}/policies", {"policy": "crrn"})[2]
                self.assertIn("groups of clients take no turns", changed["notes"][0])
                self.assertEqual(it.get(SERVICE)["groups"]["step"], "inactive")
                out = it.weir("status")[1]
                self.assertIn("NO TURNS UNDER THIS POLICY", out)
                self.assertIn("they require tbf", out)


class Tunables(unittest.TestCase):
    def test_all_ways_to_set_them(self):
        with Remote(*EXPORT, "--policy", "crrn", "--tunable", "quantum=5") as it:
            path = f"{SERVICE}/tunables"
            quantum = {"policy": "crrn", "tunable": "quantum", "head": "regular", "value": 5,
                       "min": 1, "max": 65535, "help": "requests of a client in a row"}
            self.assertEqual(it.get(path)[0], quantum)
            body = {"policy": "crrn", "tunable": "quantum", "value": 7}
            self.assertEqual(it.send("PUT", path, body)[0], 200)
            self.assertEqual([one["value"] for one in it.get(path)], [7, 7])
            self.assertEqual(it.send("PUT", path, {**body, "value": 9,
                                                   "head": "high_priority"})[0], 200)
            self.assertEqual(it.lctl("get_param", "-n", "ost.OSS.ost_io.nrs_crrn_quantum")[1],
                             "reg_quantum:7    \nhp_quantum:9    \n")
            for wrong, status, told in (({"value": 0}, 400, "1 to 65535"),
                                        ({"tunable": "quantom"}, 404, "did you mean quantum"),
                                        ({"policy": "crn"}, 404, "did you mean crrn"),
                                        ({"head": "low"}, 400, "regular or high_priority")):
                got, _, problem = it.send("PUT", path, {**body, **wrong})
                self.assertEqual(got, status, problem)
                self.assertIn(told, problem["detail"] + problem["hint"])
            self.assertEqual([one["value"] for one in it.get(path)], [7, 9])
            it.send("PUT", f"{SERVICE}/policies", {"policy": "tbf"})
            self.assertEqual(it.send("PUT", path, body)[0], 409)
            for wrong in ("quantom=5", "quantum=0", "quantum"):
                done = subprocess.run([it.binary, "serve", *EXPORT, "--check-config", "--policy",
                                       "crrn", "--tunable", wrong], capture_output=True, text=True,
                                      timeout=STUCK, check=False)
                self.assertEqual(done.returncode, 64, done.stderr)
                self.assertIn(f"tunable '{wrong}' of policy 'crrn'", done.stderr)

    def test_they_survive_a_restart(self):
        with tempfile.TemporaryDirectory() as folder:
            config = pathlib.Path(folder) / "weir.conf"
            config.write_text('[[service]]\npolicy = "crrn"\ntunables = ["quantum=3"]\n'
                              '[[export]]\nname = "a"\nstore = "memory:64MiB"\n',
                              encoding="utf-8")
            serve = ("--config", str(config), "--journal", f"{folder}/journal")

            def values(it):
                return [one["value"] for one in it.get(f"{SERVICE}/tunables")]
            with Remote(*serve) as it:
                self.assertEqual(values(it), [3, 3])
                for text in ("reg_quantum:4", "hp_quantum:6"):
                    it.lctl("set_param", "-P", f"ost.OSS.ost_io.nrs_crrn_quantum={text}")
            with Remote(*serve) as it:
                self.assertEqual(values(it), [4, 6])


class Answers(unittest.TestCase):
    def test_unknown_names_are_told(self):
        with Remote(*EXPORT, "--rule", "start scan jobid={b} rate=5") as it:
            it.read("ior.17", 1)
            status, _, error = it.weir("rule", "stop", "scna")
            self.assertEqual(status, 66, error)
            self.assertIn("did you mean 'scan'?", error)
            status, _, error = it.weir("job", "set", "ior.18", "4")
            self.assertEqual(status, 0, "its number of nodes may be set before it starts")
            self.assertIn("job 'ior.18' was not known", error)
            self.assertIn("did you mean 'ior.17'?", error)
            self.assertEqual(it.weir("job", "set", "ior.17", "4"), (0, "", ""))
            self.assertEqual(it.weir("job", "add", "later.1", "4"), (0, "", ""))
            self.assertEqual(it.weir("job", "set", "later.1", "5"), (0, "", ""))
            self.assertEqual(it.weir("job", "rm", "later.1"), (0, "", ""))

    def test_explain_gives_the_answer_first(self):
        with Remote(*EXPORT, "--adaptive", "off",
                    "--rule", "start one jobid={dd.*} rate=50 by=rule",
                    "--rule", "start wide jobid={wide} bps=100kB/s") as it:
            clients = []
            for job in ("dd.0", "wide"):
                client = it.client(job)
                client.sendall(b"".join(request(READ, i, 0, 4096) for i in range(200)))
                clients.append(client)
            wait_for("a backlog", lambda: it.get(SERVICE)["queued"] > 300)
            time.sleep(0.3)
            for name in ("dd.0", "one", "rule=one", "one/*", "job=dd.0"):
                status, out, error = it.weir("explain", name)
                self.assertEqual((status, error), (0, ""), name)
                first, cure = out.splitlines()[:2]
                self.assertRegex(first, r"^(dd\.0|one/\*) is limited by rule 'one' "
                                        r"\(50 operations/s for all its requests together\)$")
                self.assertRegex(cure, r"^to change it: weir rule change one rate=\d+$")
                self.assertRegex(out, r"last [0-9.]+ m?s: 200 requests waited [0-9.]+ m?s on "
                                      r"average, because:\n +each +total\n"
                                      r"  limit +[0-9.]+ m?s +[0-9.]+ s +\d+ %  the limit of its")
            # What is printed is what the API and so the page have.
            told, out = (it.weir("explain", "wide", *more)[1] for more in (("--json",), ()))
            told = json.loads(told)
            self.assertTrue(out.startswith(told["verdict"].partition(";")[0]), out)
            for one in told["facts"]:
                text = "" if one["name"] == "served" else one["text"].partition(";")[0]
                self.assertIn(f"\n{one['name']:<9} {text}", out)
            for one in told["delays"]["causes"]:
                self.assertIn(one["text"], out)
            self.assertEqual(told["cause"], "limit")
            self.assertRegex(told["cure"], r"^weir rule change wide bps=200")
            self.assertIn("rule 'wide' (100 kB/s)", told["verdict"])
            cure = re.split(r"\s+", told["cure"])[1:]
            self.assertEqual(it.weir(*cure), (0, "", ""), "the command can be pasted")
            for client in clients:
                client.close()


if __name__ == "__main__":
    unittest.main(verbosity=2)
