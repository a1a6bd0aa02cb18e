#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A lock service as administrators use it: parameters, API, metrics and the page."""
import contextlib
import json
import os
import pathlib
import subprocess
import tempfile
import unittest

from page_test import HERE, TOKEN, modules
from remote import RELEASE, STUCK, WEIR, Remote, wait_for
from replayed import count_of, replay

POOL = "ldlm.namespaces.locks.pool."
LOCKS = "ldlm.namespaces.locks."


class Locks(Remote):
    """A server with a lock service that had no clients before."""

    def __init__(self, folder, *arguments, limit=1000, **options):
        self.address = f"unix:{folder}/locks"
        super().__init__("--export", "a=memory:64MiB", "--lock", self.address, "--lock-state",
                         pathlib.Path(folder) / "state", "--lock-limit", str(limit),
                         "--lock-lease", "2s", *arguments, **options)

    def number(self, name):
        status, out, error = self.lctl("get_param", "-n", name)
        assert (status, error) == (0, ""), error
        return int(out)

    def locker(self, *arguments):
        """A lock client that stays connected until the block ends."""
        return contextlib.closing(Client(self, arguments))


class Client:
    def __init__(self, it, arguments):
        self.process = subprocess.Popen(
            [it.binary, "lock", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            text=True, env={**os.environ, "WEIR_LOCK_SERVER": it.address})

    def close(self):
        self.process.kill()
        self.process.communicate()


class Parameters(unittest.TestCase):
    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory())

    def test_names_formats_and_errors(self):
        with Locks(self.folder) as it:
            self.assertEqual(it.lctl("get_param", f"{POOL}limit", "ldlm.server_pool.limit"),
                             (0, f"{POOL}limit=1000\nldlm.server_pool.limit=1000\n", ""))
            self.assertEqual(it.lctl("get_param", "ldlm/namespaces/*/pool/server_lock_volume")[1],
                             f"{POOL}server_lock_volume=36000000\n")
            self.assertTrue(it.lctl("get_param", f"{POOL}state")[1].startswith(
                f"{POOL}state=\nLDLM pool state (locks):\n  SLV: 36000000\n  CLV: 0\n"))
            names = it.lctl("list_param", "ldlm.namespaces.*.pool.*")[1].split()
            self.assertEqual(names, [POOL + name for name in (
                "cancel_rate", "grant_plan", "grant_rate", "grant_speed", "granted", "limit",
                "lock_volume_factor", "recalc_period", "server_lock_volume", "state")])
            self.assertEqual(it.lctl("list_param", "-D", "*")[1].split(),
                             ["ost", "obdfilter", "ldlm"])
            for name, value in ((f"{POOL}limit", "500"), (f"{POOL}recalc_period", "2"),
                                (f"{LOCKS}lru_size", "70"), (f"{LOCKS}lru_max_age", "60000")):
                self.assertEqual(it.lctl("set_param", f"{name}={value}"),
                                 (0, f"{name}={value}\n", ""))
                self.assertEqual(it.lctl("get_param", "-n", name)[1], f"{value}\n")
            for name, value, status, text in ((f"{POOL}limit", "0", 22, "Invalid argument"),
                                              (f"{POOL}limit", "-7", 22, "Invalid argument"),
                                              (f"{POOL}limit", "many", 22, "Invalid argument"),
                                              (f"{LOCKS}lru_size", "x", 22, "Invalid argument")):
                path = name.replace(".", "/")
                self.assertEqual(it.lctl("set_param", f"{name}={value}"), (
                    status, "", f"error: set_param: setting {path}={value}: {text}\n"
                                f"error: set_param: setting '{path}'='{value}': {text}\n"))
            path = f"{POOL}granted".replace(".", "/")
            self.assertEqual(it.lctl("set_param", f"{POOL}granted=1"), (
                13, "", f"error: set_param: opening '{path}': Permission denied\n"
                        f"error: set_param: setting '{path}'='1': Permission denied\n"))
            self.assertEqual(it.number(f"{POOL}limit"), 500, "the one before stays")
            self.assertEqual(it.lctl("get_param", "ldlm.namespaces.other.lru_size")[0], 2)

    def test_without_a_lock_service_there_are_none(self):
        with Remote("--export", "a=memory:64MiB") as it:
            self.assertEqual(it.lctl("get_param", f"{POOL}limit")[0], 2)
            self.assertEqual(it.lctl("set_param", f"{POOL}limit=5")[0], 2)
            self.assertEqual(it.lctl("list_param", "-D", "*")[1].split(), ["ost", "obdfilter"])
            self.assertEqual(it.get("/v1/locks"), [])
            for path in ("/v1/locks/locks", "/v1/locks/locks/list"):
                self.assertEqual(it.http("GET", path)[0], 404, path)
            self.assertNotIn("weir_lock_", it.http("GET", "/metrics")[2])

    def test_a_size_for_all_caches_reaches_a_running_client(self):
        with Locks(self.folder) as it, it.locker("bench", "--fill", "200", "--time", "300s"):
            wait_for("200 locks", lambda: it.number(f"{POOL}granted") == 200)
            self.assertEqual(it.lctl("set_param", f"{LOCKS}lru_size=10")[0], 0)
            wait_for("a small cache", lambda: it.number(f"{POOL}granted") <= 10)
            self.assertEqual(it.number(f"{LOCKS}lock_count"), it.number(f"{POOL}granted"))

    def test_factor_and_volume_of_clients_are_theirs(self):
        def client_volume():
            state = it.lctl("get_param", "-n", f"{POOL}state")[1]
            return int(state.partition("CLV: ")[2].split()[0])
        with Locks(self.folder) as it:
            self.assertEqual(it.number(f"{POOL}lock_volume_factor"), 0)
            with it.locker("bench", "--fill", "200", "--time", "300s"):
                wait_for("a factor", lambda: it.number(f"{POOL}lock_volume_factor") == 100)
                # 200 unused locks: their volume grows by 200 each second, and is reported each
                # second.
                wait_for("a volume", lambda: client_volume() > 200)
                seen = client_volume()
                wait_for("more of it", lambda: client_volume() > seen)
                top = it.get("/v1/locks/locks")["top"][0]
                self.assertEqual(top["factor_percent"], 100)
                self.assertGreater(top["volume"], 0)

    def test_a_limit_outlives_the_server(self):
        journal = ("--journal", pathlib.Path(self.folder) / "journal")
        with Locks(self.folder, *journal) as it:
            self.assertEqual(it.lctl("set_param", "-P", f"{POOL}limit=123")[0], 0)
            self.assertEqual(it.lctl("set_param", "-P", f"{POOL}limit=0")[0], 22)
            self.assertEqual(it.lctl("set_param", f"{LOCKS}lru_size=9")[0], 0)
        with Locks(self.folder, *journal) as it:
            wait_for("the journal", lambda: it.number(f"{POOL}limit") == 123)
            self.assertEqual(it.number(f"{LOCKS}lru_size"), 0, "that was not for good")
        with Remote("--export", "a=memory:64MiB", *journal) as it:
            wait_for("the server to say so", lambda: f"{POOL}limit" in it.log)


class Api(unittest.TestCase):
    def setUp(self):
        self.folder = self.enterContext(tempfile.TemporaryDirectory())

    def test_every_path(self):
        name = 'a"<b>\n'
        with Locks(self.folder) as it, \
                it.locker("run", name, "--", "sleep", "300"), \
                it.locker("run", "--shared", name, "--", "sleep", "300"):
            def locks():
                found = it.get("/v1/locks/locks/list")
                return found if len(found["locks"]) == 2 else None
            found = wait_for("a holder and one who waits", locks)
            self.assertTrue(found["whole"])
            by_state = {one["state"]: one for one in found["locks"]}
            holder, waiter = by_state["granted"], by_state["waiting"]
            self.assertEqual(holder["name"], "a\\x22\\x3Cb\\x3E\\x0A")
            self.assertGreater(holder["fence"], 0)
            self.assertTrue(holder["asked"])
            self.assertEqual(waiter["fence"], 0)
            self.assertNotEqual(holder["client"], waiter["client"])
            self.assertEqual(it.get("/v1/locks/locks/list?filter=nobody")["locks"], [])
            one = it.get("/v1/locks/locks/list?limit=1")
            self.assertEqual((len(one["locks"]), one["whole"]), (1, False))
            view = it.get("/v1/locks/locks")
            self.assertEqual(it.get("/v1/locks")[0]["namespace"], "locks")
            self.assertEqual((view["limit"], view["granted"], view["waiting"]), (1000, 1, 1))
            self.assertEqual(view["clients"], 2)
            self.assertEqual(sum(client["locks"] for client in view["top"]), 1)
            self.change(it)
            page = it.http("GET", "/metrics")[2]
            self.assertIn('weir_lock_limit{namespace="locks"} 700\n', page)
            self.assertIn('weir_lock_granted{namespace="locks"} 1\n', page)
            client = holder["client"]
            self.assertIn(
                f'weir_lock_client_locks{{namespace="locks",client="{client}"}} 1\n', page)
            checked = subprocess.run(["promtool", "check", "metrics"], input=page, text=True,
                                     capture_output=True, timeout=STUCK, check=False)
            self.assertNotIn("weir_lock_", checked.stdout + checked.stderr)

    def change(self, it):
        path = "/v1/locks/locks"
        _, head, _ = it.http("GET", path)
        seen = {"If-Match": head["ETag"]}
        status, head, _ = it.send("PUT", path, {"limit": 700, "recalc_period": "2s"}, seen)
        self.assertEqual(status, 200)
        self.assertEqual(it.send("PUT", path, {"limit": 800}, seen)[0], 412)
        view = it.get(path)
        self.assertEqual((view["limit"], view["recalc_period_ns"]), (700, 2_000_000_000))
        for body, code in (({"limit": 0}, 400), ({"limit": "7"}, 400), ({"volume": 7}, 400),
                           ({}, 400), ({"recalc_period": "soon"}, 400)):
            self.assertEqual(it.send("PUT", path, body)[0], code, body)
        self.assertEqual(it.send("PUT", "/v1/locks/none", {"limit": 5})[0], 404)
        self.assertEqual(it.http("DELETE", path)[0], 405)
        self.assertEqual(it.http("POST", f"{path}/list", "{}")[0], 405)
        self.assertEqual(it.http("GET", "/v1/locks/none/list")[0], 404)
        self.assertEqual(it.get(path)["limit"], 700)


class Scheduled(unittest.TestCase):
    """Lock requests pass a scheduler, which is shown like those of services."""

    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        config = self.folder / "weir.conf"
        config.write_text("""
[lock]
policy = "tbf jobid"
rules = ["start slow jobid={miner} rate=20"]
""", encoding="utf-8")
        self.arguments = ("--config", config)

    def test_explain_metrics_and_status_cover_locks(self):
        with Locks(self.folder, *self.arguments) as it, \
                it.locker("bench", "--job", "miner", "--fill", "500", "--time", "300s"):
            def delayed():
                status, _, body = it.http("GET", "/v1/explain?name=miner&service=locks")
                told = json.loads(body) if status == 200 else {}
                return told if (told.get("delays") or {}).get("limit_ns", 0) > 0 else None
            told = wait_for("a delay by the limit", delayed)
            self.assertEqual((told["service"], told["rule"], told["rate"]), ("locks", "slow", 20))
            self.assertIn("jobid={miner}", told["reason"])
            self.assertGreater(told["waiting"], 0)
            status, out, error = it.weir("explain", "--service", "locks", "miner")
            self.assertEqual((status, error), (0, ""))
            self.assertIn("slow", out)
            services = {one["service"]: one for one in it.get("/v1/status")["services"]}
            self.assertEqual(list(services), ["ost_io", "locks"])
            self.assertEqual(services["locks"]["policy"], "tbf jobid")
            served = it.get("/v1/services/locks/classes?filter=miner")
            page = it.http("GET", "/metrics")[2]
            self.assertIn('weir_rule_requests_total{service="locks",rule="slow"} ', page)
            self.assertIn('weir_job_requests_total{service="locks",jobid="miner"} ', page)
            self.assertGreater(served[0]["served"], 0)
            self.assertEqual(it.send("POST", "/v1/services/locks/rules",
                                     {"command": "stop slow"})[0], 404)

    def test_decisions_about_locks_are_decided_again_the_same(self):
        trace = self.folder / "trace"
        with Locks(self.folder, *self.arguments, "--trace", trace) as it, \
                it.locker("bench", "--job", "miner", "--fill", "40", "--time", "300s"):
            it.read("dd", 10)
            wait_for("40 locks", lambda: it.number(f"{POOL}granted") == 40)
        for path, least in (trace, 10), (f"{trace}.locks", 40):
            status, report, errors = replay(path)
            self.assertEqual((status, errors), (0, ""), report)
            self.assertGreaterEqual(count_of(report, "run"), least)

    def test_a_service_cannot_have_the_name_of_the_locks(self):
        with open(self.arguments[1], "a", encoding="utf-8") as config:
            config.write('[[service]]\nname = "locks"\n')
        done = subprocess.run(
            [WEIR, "serve", "--config", self.arguments[1], "--export", "a=memory:1MiB",
             "--lock", f"unix:{self.folder}/l", "--lock-state", self.folder / "state"],
            capture_output=True, text=True, timeout=STUCK, check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("service 'locks': has the name under which", done.stderr)


class Page(unittest.TestCase):
    def test_shows_a_running_lock_service(self):
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        shots = pathlib.Path(os.environ.get("WEIR_SCREENSHOTS", folder))
        (folder / "token").write_text(TOKEN, encoding="utf-8")
        with Locks(folder, "--control-tcp", "127.0.0.1:0", "--control-token", folder / "token",
                   binary=RELEASE) as it, \
                it.locker("bench", "--fill", "400", "--time", "300s"):
            url = f"http://127.0.0.1:{it.control_port}/#token={TOKEN}"
            done = subprocess.run(["node", HERE / "lock_page.mjs", modules(), url, shots, "live"],
                                  capture_output=True, text=True, timeout=200, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        seen = json.loads(done.stdout)
        self.assertEqual(seen["problems"], [])
        granted = seen["granted"]
        self.assertIn(f"granted {granted:,} of 1,000 ({granted / 10:.1f} %)", seen["facts"])
        self.assertEqual(seen["locks"], [str(granted)])


if __name__ == "__main__":
    unittest.main(verbosity=2)
