#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The HTTP API and the commands on top of it: every path of weir-api(7), and bad input."""
import concurrent.futures
import contextlib
import errno
import http.client
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import time
import unittest

from remote import (DESCRIBED, EXPIRED, READ, STUCK, WEIR, Authority, Remote, UnixHttp, replies,
                    request, simple_reply, wait_for)
from server import go, greet, option_reply

EXPORT = ("--export", "a=memory:64MiB")
TBF = (*EXPORT, "--adaptive", "off")
SERVICE = "/v1/services/ost_io"


class History(unittest.TestCase):
    def test_totals_classes_and_marks(self):
        with Remote(*TBF) as it:
            wait_for("a first step", lambda: it.get(f"{SERVICE}/history")["total"]["served"])
            it.read("dd.0", 30)
            it.read("ior.1", 10)
            begun = time.time_ns()
            self.assertEqual(it.weir("rule", "start", "slow", "jobid={dd.*}", "rate=100")[0], 0)
            seen = wait_for("requests in the history", lambda: (
                (now := it.get(f"{SERVICE}/history"))
                and sum(now["total"]["served"]) >= 40 and now))
            self.assertEqual(seen["step_ns"], 10**9)
            self.assertLess(abs(seen["end_ns"] - time.time_ns()), 5e9)
            names = {one["class"]: sum(one["served"]) for one in seen["classes"]}
            lengths = {len(one[key]) for one in [seen["total"], *seen["classes"]]
                       for key in ("served", "bytes", "waited_ns")}
            self.assertEqual(len(lengths), 1, "all lines have the same steps")
            self.assertEqual(sum(seen["total"]["bytes"]), 40 * 4096)
            self.assertEqual(names, {"default/dd.0": 30, "default/ior.1": 10})
            mark = seen["marks"][-1]
            self.assertEqual(mark["text"], "start slow jobid={dd.*} rate=100")
            self.assertLess(abs(mark["time_ns"] - begun), 5e9)
            one = it.get(f"{SERVICE}/history?class=default/dd.0&class=nobody&step=1")
            self.assertEqual([line["class"] for line in one["classes"]], ["default/dd.0"])
            self.assertEqual(it.get(f"{SERVICE}/history?step=15")["step_ns"], 15 * 10**9)

    def test_bad_queries(self):
        with Remote(*TBF) as it:
            for query in ("step=2", "sort=class", "limit=x", "step="):
                status, _, body = it.http("GET", f"{SERVICE}/history?{query}")
                self.assertEqual(status, 400, (query, body))
            self.assertEqual(it.http("GET", "/v1/services/none/history")[0], 404)


class Console(unittest.TestCase):
    """What the page needs: pages of classes, dry runs, and changes that lose a race."""

    def test_pages_of_classes(self):
        with Remote(*TBF) as it:
            for number in range(25):
                it.read(f"job.{number:02}", 1 + number)
            seen = []
            for offset in (0, 10, 20, 30):
                status, head, body = it.http(
                    "GET", f"{SERVICE}/classes?sort=served&limit=10&filter=job&offset={offset}")
                self.assertEqual((status, head["Weir-Count"]), (200, "25"))
                seen += [one["class"] for one in json.loads(body)]
            self.assertEqual(seen, [f"default/job.{number:02}" for number in range(24, -1, -1)])
            self.assertEqual(it.http("GET", f"{SERVICE}/classes?offset=x")[0], 400)
            recent = wait_for("rates", lambda: it.get(f"{SERVICE}/classes?limit=1")[0]["recent"])
            self.assertGreater(recent["window_ns"], 0)

    def test_a_dry_run_says_what_would_change_and_changes_nothing(self):
        with Remote(*TBF) as it:
            for job in ("dd.0", "dd.1", "ior.0"):
                it.read(job, 3)

            def run(command):
                return it.send("POST", f"{SERVICE}/rules", {"command": command, "dry_run": True})
            status, head, seen = run("start slow jobid={dd.*} rate=20 bps=1MB/s")
            self.assertEqual(status, 200, seen)
            self.assertEqual((seen["affected"], seen["unchanged"], seen["undecided"]), (2, 1, 0))
            self.assertEqual(seen["classes"][0], {
                "class": "default/dd.0", "becomes": "slow/dd.0", "rate": 10000, "bps": 0,
                "rate_after": 20, "bps_after": 1000000})
            self.assertEqual(head["ETag"].strip('"'), seen["generation"])
            self.assertEqual([one["rule"] for one in it.get(f"{SERVICE}/rules")], ["default"])
            self.assertEqual(run("change default rate=5")[2]["affected"], 3)
            self.assertEqual(run("stop default")[0], 403)
            self.assertEqual(run("change none rate=5")[0], 404)
            self.assertEqual(run("start")[0], 400)
            status, _, body = it.send("POST", "/v1/services/none/rules",
                                      {"command": "start a jobid={a} rate=1", "dry_run": True})
            self.assertEqual(status, 404, body)
            self.assertEqual(it.weir("rule", "start", "slow", "jobid={dd.*}", "rate=20")[0], 0)
            it.read("dd.0", 1)
            stop = run("stop slow")[2]
            self.assertIn({"class": "slow/dd.0", "becomes": "default/dd.0", "rate": 20, "bps": 0,
                           "rate_after": 10000, "bps_after": 0}, stop["classes"])
            self.assertEqual(it.weir("rule", "start", "mine", "uid={5}", "rate=7")[0], 65)

    def test_a_dry_run_does_not_guess(self):
        with Remote(*TBF, "--policy", "tbf") as it:
            it.read("dd.0", 3)
            _, _, seen = it.send("POST", f"{SERVICE}/rules",
                                 {"command": "start mine uid={5} rate=7", "dry_run": True})
            known = seen["affected"] + seen["unchanged"] + seen["undecided"]
            self.assertEqual((seen["affected"], known), (0, 1), seen)

    def test_a_generation_in_the_body_is_checked(self):
        with Remote(*TBF) as it:
            command = {"command": "start a jobid={a} rate=1", "dry_run": True}
            generation = it.send("POST", f"{SERVICE}/rules", command)[2]["generation"]
            self.assertEqual(it.weir("rule", "start", "b", "jobid={b}", "rate=1")[0], 0)
            late = {"command": "start a jobid={a} rate=1", "generation": generation}
            status, head, problem = it.send("POST", f"{SERVICE}/rules", late)
            self.assertEqual(status, 409, problem)
            newer = {"nodes": 3, "generation": head["ETag"].strip('"')}
            self.assertEqual(it.send("PUT", "/v1/jobs/a", newer)[0], 200)
            self.assertEqual(it.send("PUT", "/v1/jobs/a", newer)[0], 409)
            self.assertEqual([one["rule"] for one in it.get(f"{SERVICE}/rules")], ["b", "default"])


class Reading(unittest.TestCase):
    def test_every_path(self):
        with Remote(*EXPORT, "--capacity", "4000") as it:
            it.read("dd.0", 20)
            status = it.get("/v1/status")
            self.assertEqual(status["exports"], ["a"])
            self.assertGreaterEqual(status["counters"]["requests"], 20)
            self.assertEqual(it.get("/v1/services")[0]["service"], "ost_io")
            self.assertEqual(it.get("/v1/services")[0]["rules"], 1, "one, for both priorities")
            self.assertEqual(it.get(SERVICE)["policy"], "tbf jobid")
            self.assertEqual(it.get(f"{SERVICE}/capacity")["capacity"], 4000)
            self.assertIn("tbf", [one["policy"] for one in it.get(f"{SERVICE}/policies")])
            self.assertEqual(it.get(f"{SERVICE}/rules")[0]["rule"], "default")
            classes = it.get(f"{SERVICE}/classes?limit=1&sort=served&filter=dd")
            self.assertEqual([one["class"] for one in classes], ["default/dd.0"])
            self.assertEqual(classes[0]["served"], 20)
            self.assertEqual(it.get(f"{SERVICE}/jobs")[0]["finished"], 20)
            asked_at = time.time_ns()
            _, head, _ = it.http("GET", f"{SERVICE}/classes")
            self.assertLess(abs(int(head["Weir-Time-Ns"]) - asked_at), 60e9)
            self.assertIsInstance(it.get(f"{SERVICE}/ledger"), list)
            self.assertEqual(it.get("/v1/jobs"), [])
            self.assertEqual(it.get("/v1/explain?name=dd.0")["class"], "default/dd.0")
            self.assertEqual(it.get("/v1/params?pattern=obdfilter.a.job_cleanup_interval"),
                             [{"path": "obdfilter.a.job_cleanup_interval",
                               "file": "obdfilter/a/job_cleanup_interval", "writable": True,
                               "value": "600\n"}])
            self.assertEqual(it.get("/healthz"), {"status": "ok"})
            self.assertEqual(it.get("/readyz"), {"status": "ready"})
            for path, kind in (("/", "text/html"), ("/live.js", "text/javascript"),
                               ("/live-charts.js", "text/javascript"),
                               ("/live-edit.js", "text/javascript"),
                               ("/live-views.js", "text/javascript"), ("/live.css", "text/css"),
                               ("/uplot.js", "text/javascript"),
                               ("/uplot.css", "text/css"), ("/metrics", "text/plain")):
                code, head, body = it.http("GET", path)
                self.assertEqual(code, 200, path)
                self.assertTrue(head["Content-Type"].startswith(kind), head)
                self.assertGreater(len(body), 500, path)

    def test_reads_that_fail_do_not_count_as_capacity(self):
        with tempfile.TemporaryDirectory() as folder:
            for size, error, least, most in ((1 << 20, 0, 50, 1000), (0, errno.EIO, 0, 1)):
                path = pathlib.Path(folder) / str(size)
                with Remote("--export", f"a=shaped:iops=200:file:{path},size=1MiB",
                            "--slots", "1") as it, it.client("x") as client:
                    os.truncate(path, size)
                    client.sendall(b"".join(request(READ, i, 0, 512) for i in range(150)))
                    told = replies(client, dict.fromkeys(range(150), 512))
                    self.assertEqual(set(told.values()), {error})
                    capacity = it.get(f"{SERVICE}/capacity")["capacity"] or 0
                self.assertTrue(least <= capacity <= most, capacity)

    def test_what_is_not_there_is_named(self):
        with Remote(*TBF) as it:
            for path in ("/nothing", "/v1", "/v1/services/none", f"{SERVICE}/none",
                         "/v1/explain?name=none", "/v1/explain?name=dd.0&service=none"):
                code, _, body = it.http("GET", path)
                self.assertEqual(code, 404, path)
                self.assertIn("detail", json.loads(body))

    def test_the_first_event_comes_at_once(self):
        with Remote(*TBF) as it:
            begun = time.monotonic()
            for _ in range(10):  # waiting for the next second, they would take almost ten
                connection = UnixHttp(it.control)
                connection.request("GET", "/v1/events")
                answer = connection.getresponse()
                while not answer.readline().startswith(b"data: "):
                    pass
                connection.close()
            self.assertLess(time.monotonic() - begun, 5)

    def test_events_come_every_second(self):
        with Remote(*TBF) as it:
            connection = UnixHttp(it.control)
            connection.request("GET", "/v1/events")
            answer = connection.getresponse()
            self.assertEqual(answer.getheader("Content-Type"), "text/event-stream")
            events = []
            while len(events) < 3:
                line = answer.readline().decode()
                if line.startswith("data: "):
                    events.append(json.loads(line[6:]))
            connection.close()
            self.assertEqual(events[1]["services"][0]["service"], "ost_io")
            self.assertGreater(events[2]["time_ns"], events[0]["time_ns"])


class Changing(unittest.TestCase):
    def test_rules_policies_capacity_and_jobs(self):
        with Remote(*EXPORT) as it:
            rule = {"command": "start dd jobid={dd.*} rate=10"}
            self.assertEqual(it.send("POST", f"{SERVICE}/rules", rule)[0], 200)
            self.assertEqual([one["rule"] for one in it.get(f"{SERVICE}/rules")],
                             ["dd", "default"])
            self.assertEqual(it.send("POST", f"{SERVICE}/rules", rule)[0], 409)
            self.assertEqual(it.http("DELETE", f"{SERVICE}/rules/dd")[0], 200)
            self.assertEqual([one["rule"] for one in it.get(f"{SERVICE}/rules")], ["default"],
                             "who changes something and then reads sees it")
            self.assertEqual(it.send("PUT", f"{SERVICE}/capacity", {"capacity": "500"})[0], 200)
            self.assertEqual(it.send("PUT", f"{SERVICE}/policies", {"policy": "fifo"})[0], 200)
            self.assertEqual(it.send("PUT", "/v1/jobs/ior.1", {"nodes": 7})[0], 200)
            self.assertEqual(it.get(SERVICE)["policy"], "fifo")
            self.assertEqual(it.get(f"{SERVICE}/capacity")["capacity"], 500)
            self.assertEqual(it.get("/v1/jobs"), [{"job": "ior.1", "nodes": 7}])
            self.assertEqual(it.http("DELETE", "/v1/jobs/ior.1")[0], 200)
            self.assertEqual(it.get("/v1/jobs"), [])

    def test_a_capacity_in_another_unit_is_refused(self):
        for given, other, unit, shown in (("500", "10MB/s", "operations", 500),
                                          ("20MB/s", "500", "bytes", 20_000_000)):
            with self.subTest(given), Remote(*EXPORT, "--capacity", given) as it:
                status, _, answer = it.send("PUT", f"{SERVICE}/capacity", {"capacity": other})
                self.assertEqual(status, 400, answer)
                self.assertIn(f"the service counts {unit}", answer["detail"])
                capacity = it.get(f"{SERVICE}/capacity")
                self.assertEqual((capacity["capacity"], capacity["capacity_unit"]), (shown, unit))
                for good in ("auto", given):
                    self.assertEqual(it.send("PUT", f"{SERVICE}/capacity", {"capacity": good})[0],
                                     200)
                self.assertEqual(it.send("PUT", f"{SERVICE}/capacity", {"capacity": other})[0], 400)
                _, out, _ = it.weir("status")
                self.assertRegex(out, r"\s20.0MB/s\s" if unit == "bytes" else r"\s500\s")

    def test_a_rule_acts_within_milliseconds(self):
        with Remote(*TBF, "--rule", "start dd jobid={dd.0} rate=10") as it:
            client = it.client("dd.0")
            client.sendall(b"".join(request(READ, i, 0, 512) for i in range(200)))
            begun = time.monotonic()
            status, _, _ = it.send("POST", f"{SERVICE}/rules", {"command": "change dd rate=100000"})
            self.assertEqual(status, 200)
            for _ in range(200):
                simple_reply(client, 512)
            self.assertLess(time.monotonic() - begun, 10, "at the old rate: 20 s")
            client.close()

    def test_two_administrators_do_not_overwrite_each_other(self):
        with Remote(*TBF) as it:
            _, head, _ = it.http("GET", f"{SERVICE}/rules")
            seen = {"If-Match": head["ETag"]}
            start = "start r{} jobid={{a}} rate=1"
            first = it.send("POST", f"{SERVICE}/rules", {"command": start.format(1)}, seen)
            second = it.send("POST", f"{SERVICE}/rules", {"command": start.format(2)}, seen)
            self.assertEqual((first[0], second[0]), (200, 412))
            again = {"If-Match": second[1]["ETag"]}
            self.assertEqual(it.send("POST", f"{SERVICE}/rules", {"command": start.format(2)},
                                     again)[0], 200)

    def test_a_reload_of_the_file_counts_as_a_change(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "weir.conf")
            path.write_text('[[export]]\nname = "a"\nstore = "memory:1MiB"\n', encoding="ascii")
            with Remote("--config", str(path)) as it:
                _, head, _ = it.http("GET", f"{SERVICE}/rules")
                it.process.send_signal(signal.SIGHUP)
                wait_for("the reload", lambda: it.http("GET", f"{SERVICE}/rules")[1]["ETag"]
                         != head["ETag"])
                late = it.send("POST", f"{SERVICE}/rules",
                               {"command": "start r jobid={a} rate=1"}, {"If-Match": head["ETag"]})
                self.assertEqual(late[0], 412)

    def test_concurrent_changes_with_one_generation_let_one_through(self):
        with Remote(*TBF) as it:
            _, head, _ = it.http("GET", f"{SERVICE}/rules")

            def start(number):
                return it.send("POST", f"{SERVICE}/rules",
                               {"command": f"start r{number} jobid={{a}} rate=1"},
                               {"If-Match": head["ETag"]})[0]
            with concurrent.futures.ThreadPoolExecutor(8) as pool:
                codes = sorted(pool.map(start, range(16)))
            self.assertEqual(codes, [200] + [412] * 15)


class BadInput(unittest.TestCase):
    def test_bodies(self):
        with Remote(*TBF) as it:
            for path, method, body, code in (
                    (f"{SERVICE}/rules", "POST", "{", 400), (f"{SERVICE}/rules", "POST", "[]", 400),
                    (f"{SERVICE}/rules", "POST", '{"command":7}', 400),
                    (f"{SERVICE}/rules", "POST", '{"command":"start x"}', 400),
                    (f"{SERVICE}/rules", "POST", '{"command":"stop x","also":1}', 400),
                    (f"{SERVICE}/rules", "POST", '{"command":"\\u0000\\n"}', 400),
                    (f"{SERVICE}/capacity", "PUT", '{"capacity":"much"}', 400),
                    (f"{SERVICE}/classes?sort=size", "GET", None, 400),
                    (f"{SERVICE}/classes?limit=all", "GET", None, 400),
                    (f"{SERVICE}/jobs?limit=-1", "GET", None, 400),
                    ("/v1/jobs/a", "PUT", '{"nodes":-1}', 400),
                    ("/v1/jobs/a", "PUT", '{"nodes":0}', 400),
                    ("/v1/jobs/" + "a" * 40, "PUT", '{"nodes":1}', 400),
                    ("/v1/params", "POST", '{"set":{}}', 400),
                    ("/v1/params", "POST", '{"set":[1]}', 400),
                    ("/v1/params", "POST", '{"set":[{"pattern":"a"}]}', 400),
                    ("/v1/services/none/rules", "POST", '{"command":"stop x"}', 404),
                    ("/v1/status", "POST", "{}", 405), ("/v1/jobs/a", "POST", "{}", 405)):
                status, _, text = it.http(method, path, body)
                self.assertEqual(status, code, (path, body, text))
                self.assertIn("detail", json.loads(text), text)
            self.assertEqual(it.get("/healthz"), {"status": "ok"})

    def test_what_is_too_large(self):
        with Remote(*TBF) as it:
            self.assertEqual(it.http("POST", f"{SERVICE}/rules", "x" * (2 << 20))[0], 413)
            self.assertEqual(it.http("GET", "/" + "x" * 10_000)[0], 431)
            self.assertEqual(it.http("GET", "/v1/status", None, {"X": "y" * 10_000})[0], 431)

    def test_what_is_not_http(self):
        with Remote(*TBF) as it:
            for data in (b"\0" * 100, b"GET\r\n\r\n", b"hello\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n"):
                with socket.socket(socket.AF_UNIX) as client:
                    client.settimeout(STUCK)
                    client.connect(str(it.control))
                    client.sendall(data)
                    self.assertTrue(client.recv(4096).startswith(b"HTTP/1.1 400"), data)
            self.assertEqual(it.get("/healthz"), {"status": "ok"})

    def test_a_client_that_never_finishes_is_sent_away(self):
        with Remote(*TBF) as it, socket.socket(socket.AF_UNIX) as slow:
            slow.settimeout(STUCK)
            slow.connect(str(it.control))
            slow.sendall(b"GET /v1/status HTTP/1.1\r\nX: ")
            begun = time.monotonic()
            self.assertEqual(slow.recv(100), b"")
            self.assertLess(time.monotonic() - begun, 30)
            self.assertEqual(it.get("/healthz"), {"status": "ok"})

    def test_five_hundred_readers_of_events(self):
        with Remote(*TBF) as it:
            readers = []
            for _ in range(500):
                reader = socket.socket(socket.AF_UNIX)
                reader.settimeout(STUCK)
                reader.connect(str(it.control))
                reader.sendall(b"GET /v1/events HTTP/1.1\r\nHost: a\r\n\r\n")
                readers.append(reader)
            for reader in readers[::50]:
                data = b""
                while b"data: " not in data:
                    piece = reader.recv(65536)
                    self.assertTrue(piece)
                    data += piece
            self.assertGreater(it.read("dd.0", 100), 0)
            self.assertEqual(it.get("/healthz"), {"status": "ok"})
            for reader in readers:
                reader.close()


class Tcp(unittest.TestCase):
    def server(self, folder, token="s3cret"):
        path = pathlib.Path(folder) / "token"
        path.write_text(token + "\n", encoding="utf-8")
        return Remote(*TBF, "--control-tcp", "127.0.0.1:0", "--control-token", path)

    def test_needs_its_token(self):
        with tempfile.TemporaryDirectory() as folder, self.server(folder) as it:
            def ask(headers, path="/v1/status"):
                connection = http.client.HTTPConnection("127.0.0.1", it.control_port,
                                                        timeout=STUCK)
                connection.request("GET", path, headers=headers)
                answer = connection.getresponse()
                answer.read()
                connection.close()
                return answer.status
            self.assertEqual(ask({}), 401)
            self.assertEqual(ask({"Authorization": "Bearer wrong"}), 401)
            self.assertEqual(ask({"Authorization": "Bearer s3cre"}), 401)
            self.assertEqual(ask({"Authorization": "s3cret"}), 401)
            self.assertEqual(ask({"Authorization": "Bearer s3cret"}), 200)
            self.assertEqual(ask({}, "/metrics"), 401)
            self.assertEqual(ask({}, "/"), 200, "the page holds no secret")
            self.assertNotIn("s3cret", it.http("GET", "/metrics")[2])
        self.assertNotIn("s3cret", it.log)

    def ask(self, it, method, path, token, body=None, host=None):
        connection = http.client.HTTPConnection("127.0.0.1", it.control_port, timeout=STUCK)
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        if host is not None:
            headers["Host"] = host
        connection.request(method, path, body=body, headers=headers)
        answer = connection.getresponse()
        text = answer.read().decode()
        DESCRIBED.check(method, path, answer.status, dict(answer.getheaders()), text)
        connection.close()
        return answer.status

    def test_tokens_have_roles_and_are_revoked(self):
        with tempfile.TemporaryDirectory() as folder:
            rule = json.dumps({"command": "start r{} jobid={{a}} rate=1"})
            with self.server(folder, "grafana read r3ad\ndeploy write wr1te") as it:
                def start(token, name):
                    return self.ask(it, "POST", f"{SERVICE}/rules", token,
                                    rule.replace("{}", name).replace("{{", "{").replace("}}", "}"))
                self.assertEqual(self.ask(it, "GET", "/v1/status", "r3ad"), 200)
                self.assertEqual(start("r3ad", "1"), 403)
                self.assertEqual(start("wr1te", "2"), 200)
                self.assertEqual([one["rule"] for one in it.get(f"{SERVICE}/rules")],
                                 ["r2", "default"])
                path = pathlib.Path(folder) / "token"

                def reload(text, line):
                    path.write_text(text, encoding="utf-8")
                    self.assertIn(line, it.reload())
                reload("deploy write wr1te\nbroken\n", "the control tokens were not changed")
                self.assertEqual(self.ask(it, "GET", "/v1/status", "r3ad"), 200, "as before")
                reload("deploy write wr1te\n", "1 control tokens")
                wait_for("the token is refused", lambda:
                         self.ask(it, "GET", "/v1/status", "r3ad") == 401)
                self.assertEqual(start("wr1te", "3"), 200)
            for secret in ("r3ad", "wr1te"):
                self.assertNotIn(secret, it.log)

    def test_a_page_of_another_site_is_refused(self):
        with tempfile.TemporaryDirectory() as folder, self.server(folder) as it:
            for host, status in (("evil.example", 421), ("evil.example:80", 421), ("", 421),
                                 ("localhost:1", 200), ("[::1]", 200), ("127.0.0.1", 200)):
                self.assertEqual(self.ask(it, "GET", "/v1/status", "s3cret", host=host), status,
                                 host)
            self.assertEqual(self.ask(it, "GET", "/", None, host="evil.example"), 421)
            self.assertEqual(it.http("GET", "/v1/status", headers={"Host": "any"})[0], 200,
                             "the Unix socket needs no name")

    def test_a_body_of_a_gigabyte_is_not_read(self):
        with tempfile.TemporaryDirectory() as folder, self.server(folder) as it:
            for token in ("", "Authorization: Bearer s3cret\r\n"):
                with socket.create_connection(("127.0.0.1", it.control_port)) as client:
                    client.settimeout(STUCK)
                    client.sendall(f"POST {SERVICE}/rules HTTP/1.1\r\nHost: localhost\r\n{token}"
                                   f"Content-Length: {1 << 30}\r\n\r\n".encode())
                    self.assertEqual(client.recv(64)[:12], b"HTTP/1.1 413")

    def idle(self, family, address, count=650):
        connections = []
        for _ in range(count):
            one = socket.socket(family)
            self.addCleanup(one.close)
            one.settimeout(STUCK)
            one.connect(address)
            connections.append(one)
        return connections

    def test_idle_connections_keep_nobody_out(self):
        with tempfile.TemporaryDirectory() as folder, self.server(folder) as it:
            self.idle(socket.AF_INET, ("127.0.0.1", it.control_port))
            self.assertEqual(it.get("/v1/status")["exports"], ["a"], "the Unix socket")
            connection = http.client.HTTPConnection("127.0.0.1", it.control_port, timeout=STUCK)
            connection.request("GET", "/v1/status", headers={"Authorization": "Bearer s3cret"})
            self.assertEqual(connection.getresponse().status, 200, "TCP: idle ones make room")
            connection.close()

    def test_idle_connections_of_the_socket_make_room(self):
        with Remote(*TBF) as it:
            kept = UnixHttp(it.control)
            idle = self.idle(socket.AF_UNIX, str(it.control))
            kept.request("GET", "/v1/status")
            self.assertEqual(kept.getresponse().status, 200, "it came last")
            self.assertEqual(idle[0].recv(1), b"", "it had waited longest")
            kept.close()

    def test_readers_of_events_on_tcp_leave_room_for_the_socket(self):
        with tempfile.TemporaryDirectory() as folder, self.server(folder) as it:
            readers = self.idle(socket.AF_INET, ("127.0.0.1", it.control_port), 512)
            for one in readers:
                one.sendall(b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\n"
                            b"Authorization: Bearer s3cret\r\n\r\n")
            for one in readers:
                self.assertIn(b"200 OK", one.recv(64))
            connection = UnixHttp(it.control)
            connection.request("GET", "/v1/events")
            self.assertEqual(connection.getresponse().status, 200)
            connection.close()

    def test_is_refused_without_a_token_and_beyond_loopback(self):
        with Remote(*TBF) as it, tempfile.TemporaryDirectory() as folder:
            token = pathlib.Path(folder) / "token"
            token.write_text("x", encoding="utf-8")
            serve = ("serve", "--listen", f"unix:{folder}/s", *TBF, "--control", f"{folder}/c")
            status, _, error = it.weir(*serve, "--control-tcp", "127.0.0.1:0")
            self.assertEqual(status, 64, error)
            self.assertIn("token", error)
            status, _, error = it.weir(*serve, "--control-tcp", "0.0.0.0:0", "--control-token",
                                       token)
            self.assertEqual(status, 64, error)
            self.assertIn("loopback", error)

    def test_the_socket_is_for_its_owner_and_group(self):
        with Remote(*TBF) as it:
            self.assertEqual(it.control.stat().st_mode & 0o777, 0o660)
        self.assertFalse(it.control.exists())


class Tls(unittest.TestCase):
    """The API over TCP, encrypted."""

    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        cls.authority = Authority(cls.folder / "good")
        cls.certificate = cls.authority.server(name="oss1.example.org")
        cls.token = cls.folder / "token"
        cls.token.write_text("grafana read r3ad\ndeploy write wr1te\n", encoding="utf-8")

    def server(self, directory=None, address="0.0.0.0:0"):
        return Remote(*TBF, "--control-tcp", address, "--control-token", self.token,
                      "--control-tls", directory or self.certificate)

    def connect(self, it, name="127.0.0.1"):
        context = ssl.create_default_context(cafile=self.certificate / "ca-cert.pem")
        plain = socket.create_connection(("127.0.0.1", it.control_port), STUCK)
        return context.wrap_socket(plain, server_hostname=name)

    def ask(self, it, method, path, token, body=None, host="oss1.example.org"):
        connection = http.client.HTTPConnection(host, it.control_port, timeout=STUCK)
        connection.sock = self.connect(it)
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        connection.request(method, path, body=body, headers=headers)
        answer = connection.getresponse()
        text = answer.read().decode()
        DESCRIBED.check(method, path, answer.status, dict(answer.getheaders()), text)
        connection.close()
        return answer.status, text

    def test_other_addresses_are_encrypted_and_need_a_token(self):
        rule = json.dumps({"command": "start a jobid={a} rate=10k"})
        with self.server() as it:
            self.assertEqual(self.ask(it, "GET", "/v1/status", None)[0], 401)
            self.assertEqual(self.ask(it, "GET", "/v1/status", "r3ad")[0], 200)
            self.assertEqual(self.ask(it, "GET", "/", None)[0], 200, "the page holds no secret")
            self.assertEqual(self.ask(it, "POST", f"{SERVICE}/rules", "r3ad", rule)[0], 403)
            self.assertEqual(self.ask(it, "POST", f"{SERVICE}/rules", "wr1te", rule)[0], 200)
            self.assertEqual(it.get(f"{SERVICE}/rules")[0]["rate"], 10_000)
            line = it.await_log('what="start a jobid={a} rate=10000"')
            self.assertIn('who="token deploy"', line)
            for host, status in (("evil.example", 421), ("localhost", 200), ("10.0.0.1", 200)):
                self.assertEqual(self.ask(it, "GET", "/v1/status", "r3ad", host=host)[0], status)
            # Larger than a record and the buffer of a socket, in both directions.
            for number in range(400):
                it.read(f"job{number}", 1)
            wait_for("all jobs", lambda: len(it.get(f"{SERVICE}/classes?limit=1000")) >= 400)
            text = self.ask(it, "GET", f"{SERVICE}/classes?limit=1000", "r3ad")[1]
            self.assertGreater(len(text), 64 << 10)
            self.assertEqual(len(json.loads(text)), len(it.get(f"{SERVICE}/classes?limit=1000")))
            self.assertEqual(self.ask(it, "POST", f"{SERVICE}/rules", "wr1te",
                                      " " * (1 << 20))[0], 400)

    def test_several_requests_and_events_on_one_connection(self):
        with self.server() as it, self.connect(it) as client:
            head = b"Host: oss1.example.org\r\nAuthorization: Bearer r3ad\r\n\r\n"
            client.sendall(b"GET /healthz HTTP/1.1\r\n" + head +
                           b"GET /v1/events HTTP/1.1\r\n" + head)
            got = b""
            while got.count(b"data: ") < 2:
                piece = client.recv(65536)
                self.assertTrue(piece)
                got += piece
            self.assertIn(b'{"status":"ok"}', got)

    def test_garbage_after_the_handshake_ends_only_its_connection(self):
        with self.server() as it:
            for _ in range(20):
                with self.connect(it) as client:
                    client.sendall(b"GET /v1/events HTTP/1.1\r\nHost: localhost\r\n"
                                   b"Authorization: Bearer r3ad\r\n\r\n")
                    self.assertIn(b"200 OK", client.recv(4096))
                    with socket.socket(fileno=os.dup(client.fileno())) as raw:
                        raw.sendall(b"x" * 100)
            time.sleep(1.2)  # longer than between two events
            self.assertEqual(self.ask(it, "GET", "/v1/status", "r3ad")[0], 200)

    def test_a_client_checks_the_name(self):
        with self.server() as it, self.connect(it, "oss1.example.org") as client:
            self.assertEqual(client.version(), "TLSv1.3")
            with self.assertRaises(ssl.SSLCertVerificationError):
                self.connect(it, "oss2.example.org")

    def test_what_is_not_tls_is_refused_and_harms_nobody(self):
        with self.server() as it:
            waiting = socket.create_connection(("127.0.0.1", it.control_port), STUCK)
            for data in (b"GET /v1/status HTTP/1.1\r\nHost: localhost\r\n"
                         b"Authorization: Bearer wr1te\r\n\r\n", b"\0" * 5000, b"\x16\x03\x01",
                         b"\x16\x03\x01\xff\xff" + b"x" * 70_000):
                with socket.create_connection(("127.0.0.1", it.control_port), STUCK) as client:
                    with contextlib.suppress(OSError):  # also ENOTCONN, after a reset
                        client.sendall(data)
                        client.shutdown(socket.SHUT_WR)
                        got = b""
                        while piece := client.recv(4096):
                            got += piece
                        self.assertNotIn(b"HTTP", got)
                self.assertEqual(self.ask(it, "GET", "/v1/status", "r3ad")[0], 200)
            begun = time.monotonic()
            self.assertEqual(waiting.recv(1), b"", "it never began a handshake")
            self.assertLess(time.monotonic() - begun, 30)
            waiting.close()
        self.assertNotIn("wr1te", it.log)

    def test_a_renewed_certificate_is_used_after_sighup(self):
        directory = self.folder / "renewed"
        shutil.copytree(self.certificate, directory)
        with self.server(directory) as it:
            def shown():
                with self.connect(it) as client:
                    return client.getpeercert()["serialNumber"]

            def renew(folder, line):
                for name in ("server-cert.pem", "server-key.pem"):
                    shutil.copy(folder / name, directory)
                since = len(it.log)
                it.process.send_signal(signal.SIGHUP)
                it.await_log(line, since=since)
            first = shown()
            renew(self.authority.server(EXPIRED), "has expired")
            self.assertEqual(shown(), first)
            renew(self.authority.server(), "audit: reload")
            wait_for("the new one", lambda: shown() != first)

    def test_bad_options_are_named(self):
        with Remote(*TBF) as it:
            serve = ("serve", "--listen", f"unix:{self.folder}/s", *TBF, "--control", "none")
            for words, status, text in (
                    (("--control-tls", self.certificate), 64, "--control-tcp"),
                    (("--control-tls", "/nonexistent", "--control-tcp", "0.0.0.0:0",
                      "--control-token", self.token), 66, "/nonexistent/ca-cert.pem"),
                    (("--control-tcp", "0.0.0.0:0", "--control-token", self.token), 64,
                     "--control-tls")):
                got, _, error = it.weir(*serve, *words)
                self.assertEqual(got, status, error)
                self.assertIn(text, error)


class Commands(unittest.TestCase):
    def test_each_of_them(self):
        with Remote(*EXPORT, "--capacity", "4000") as it:
            it.read("dd.0", 20)
            status, out, error = it.weir("status")
            self.assertEqual((status, error), (0, ""))
            self.assertRegex(out, r"ost_io +tbf jobid +4000 ")
            self.assertEqual(it.weir("rule", "start", "dd", "jobid={dd.*}", "rate=50"),
                             (0, "", ""))
            self.assertEqual(it.weir("rule", "change", "dd", "rate=60"), (0, "", ""))
            time.sleep(0.3)
            self.assertRegex(it.weir("rule", "list")[1], r"dd +rate=60 ")
            it.read("dd.0", 5)
            time.sleep(0.3)
            status, out, error = it.weir("explain", "dd.0")
            self.assertEqual((status, error), (0, ""))
            self.assertRegex(out, r"rule +dd: 'jobid=\{dd\.\*\}' matches")
            self.assertRegex(out, r"limit +60 operations/s")
            self.assertEqual(it.weir("rule", "stop", "dd"), (0, "", ""))
            self.assertEqual(it.weir("job", "add", "dd.0", "4"), (0, "", ""))
            self.assertRegex(it.weir("job", "list")[1], r"dd\.0 +4")
            self.assertEqual(it.weir("job", "set", "dd.0", "5"), (0, "", ""))
            self.assertEqual(it.weir("job", "rm", "dd.0"), (0, "", ""))
            self.assertEqual(it.weir("ledger")[0], 0)
            status, out, _ = it.weir("top", "--once", "--interval", "0.2", "--sort", "name")
            self.assertEqual(status, 0)
            self.assertIn("default/dd.0", out)

    def test_json_everywhere(self):
        with Remote(*EXPORT) as it:
            it.read("dd.0", 5)
            for command in (["status"], ["rule", "list"], ["job", "list"], ["ledger"],
                            ["explain", "dd.0"], ["top", "--once", "--interval", "0.1"],
                            ["rule", "start", "x", "jobid={x}", "rate=1"],
                            ["job", "add", "x", "2"]):
                status, out, error = it.weir(*command, "--json")
                self.assertEqual((status, error), (0, ""), command)
                json.loads(out)

    def test_errors_name_what_is_wrong(self):
        with Remote(*TBF) as it:
            status, _, error = it.weir("rule", "start", "x", "jobid={a}", "rate=none")
            self.assertEqual(status, 65)
            self.assertIn("rate", error)
            self.assertEqual(it.weir("explain", "nobody")[0], 66)
            it.read("dd.500", 1)
            self.assertEqual(it.weir("rule", "start", "scan", "jobid={b}", "rate=10k"), (0, "", ""))
            self.assertEqual(it.get(f"{SERVICE}/rules")[0]["rate"], 10_000)
            for command, meant in ((["explain", "dd.50"], "dd.500"),
                                   (["rule", "change", "sacn", "rate=5"], "scan"),
                                   (["rule", "stop", "scann"], "scan")):
                status, _, error = it.weir(*command)
                self.assertEqual(status, 66, error)
                self.assertIn(f"did you mean '{meant}'?", error)
            self.assertEqual(it.weir("rule", "stop", "default")[0], 65)
            self.assertEqual(it.weir("rule", "start", "x" * 20, "jobid={a}", "rate=1")[0], 65)

    def test_without_a_server_every_command_exits_with_69(self):
        socket_path = "/nonexistent/s"
        asks = [(command, ("--control", socket_path)) for command in (
            "status", "top --once", "ledger", "explain dd.0", "rule list",
            "rule start a jobid={a} rate=1", "rule change a rate=2", "rule stop a", "job list",
            "job add a 1", "job set a 1", "job rm a", "cluster status", "cluster rule list",
            "lustre status", "lustre top", "lustre explain dd.0", "lustre ledger",
            "lustre metrics")]
        asks += [(command, ()) for command in ("lctl get_param version", "lctl list_param ost",
                                               "lctl set_param a.b=1")]
        asks += [(command, ("--server", f"unix:{socket_path}"))
                 for command in ("lock list", "lock stats")]
        for command, option in asks:
            with self.subTest(command):
                ran = subprocess.run([WEIR, *command.split(), *option], capture_output=True,
                                     text=True, timeout=STUCK, check=False,
                                     env={**os.environ, "WEIR_SOCKET": socket_path})
                self.assertEqual(ran.returncode, 69, ran.stderr)
                self.assertIn(socket_path, ran.stderr)

    def test_an_answer_that_cannot_be_printed_is_an_error(self):
        with Remote(*TBF) as it, open("/dev/full", "wb") as full:
            for command in (["status"], ["rule", "list", "--json"], ["top", "--once"]):
                done = subprocess.run([it.binary, *command, "--control", it.control], stdout=full,
                                      stderr=subprocess.PIPE, timeout=STUCK, check=False)
                self.assertEqual(done.returncode, 74, command)
                self.assertIn(b"standard output", done.stderr)

    def test_top_shows_what_was_asked_for_as_it_is(self):
        with Remote(*TBF, "--rule", "start slow jobid={slow.*} rate=50",
                    "--rule", "start wide jobid={wide.*} bps=1MB") as it:
            it.read("wide.0", 1)
            it.read("other.0", 1)
            names = [one["class"] for one in
                     json.loads(it.weir("top", "--once", "--json", "--filter", "wide")[1])]
            self.assertEqual(names, ["wide/wide.0"])
            self.assertRegex(it.weir("top", "--once", "--filter", "wide")[1],
                             r"wide/wide\.0 .* 1\.00MB +[0-9.k]+/65\.5k\n")
            # A rate never exceeds the limit and the burst, however short the interval and old the
            # server's snapshots are.
            client = it.client("slow.0")
            client.sendall(b"".join(request(READ, i, 0, 512) for i in range(1000)))
            wait_for("traffic", lambda: it.get(f"{SERVICE}/classes?filter=slow/slow.0"))
            for interval in ("0.1", "0.5"):
                out = it.weir("top", "--once", "--interval", interval, "--filter", "slow")[1]
                ops = int(re.search(r"slow/slow\.0 +(\d+)", out)[1])
                self.assertTrue(0 < ops <= 50 + 3 / 0.2, out)
            client.close()

    def test_the_delays_of_a_throttled_job_are_its_limit(self):
        with Remote(*TBF, "--rule", "start dd jobid={dd.0} rate=50") as it:
            it.read("dd.0", 20)
            time.sleep(0.3)
            told = it.get("/v1/explain?name=dd.0")
            delays = told["delays"]
            self.assertEqual(delays["wait_ns"], sum(delays[f"{cause}_ns"] for cause in
                                                    ("limit", "share", "root", "slot", "order")))
            self.assertEqual(delays["wait_ns"], told["waited_ns"])
            self.assertGreater(delays["limit_ns"], 0.9 * delays["wait_ns"])


class Audit(unittest.TestCase):
    def test_every_change_has_a_line_with_who_and_what_before_and_after(self):
        with Remote(*EXPORT, "--rule", "start dd jobid={dd.*} rate=100") as it:
            it.await_log("audit: start who=\"uid ")
            it.weir("rule", "change", "dd", "rate=200")
            it.await_log(f'audit: change who="uid {os.getuid()} pid ')
            line = it.await_log('after="jobid={dd.*} rate=200"')
            self.assertIn('what="change dd rate=200" on="ost.OSS.ost_io.nrs_tbf_rule" '
                          'before="jobid={dd.*} rate=100" after="jobid={dd.*} rate=200" '
                          'generation=', line)
            it.weir("rule", "change", "none", "rate=5")
            self.assertIn('what="change none rate=5"', it.await_log('result="'))
            it.send("PUT", f"{SERVICE}/policies", {"policy": "fifo"})
            it.await_log('before="tbf jobid" after="fifo"')
            it.send("PUT", f"{SERVICE}/capacity", {"capacity": "500"})
            it.await_log('what="capacity=500" on="ost_io" before="auto" after="500"')
            it.reload()
        self.assertIn("audit: stop ", it.log)


class Injection(unittest.TestCase):
    EVIL = "<b>\x1b[2J\n\"}x 1"

    def test_names_of_clients_stay_names(self):
        with Remote(*TBF) as it:
            it.read(self.EVIL, 3)
            time.sleep(0.3)
            for path in ("/metrics", f"{SERVICE}/classes", f"{SERVICE}/jobs", "/v1/status"):
                body = it.http("GET", path)[2]
                self.assertNotIn("<b>", body, path)
                self.assertNotIn("\x1b", body, path)
            page = it.http("GET", "/metrics")[2]
            self.assertIn('jobid="\\\\x3Cb\\\\x3E\\\\x1B', page)
            for line in page.splitlines():
                self.assertRegex(line, r'^(#.*|weir_[a-z_]+(\{([a-z]+="([^"\\]|\\.)*",?)+\})? '
                                       r'-?[0-9.]+)$')
            for command in (["top", "--once", "--interval", "0.1"], ["ledger"], ["status"],
                            ["lctl", "get_param", "*.*.job_stats"]):
                self.assertNotIn("\x1b", it.weir(*command)[1], command)
            name = it.get(f"{SERVICE}/classes?filter=x3C")[0]["class"]
            self.assertEqual(it.weir("explain", name)[0], 0, "what is shown can be asked for")

    def test_names_in_the_log_are_escaped(self):
        with Remote(*TBF, "--claims", "none") as it, it.connect() as client:
            greet(client)
            client.sendall(go(b"a,job=\x1b[2J\n<b>"))
            self.assertEqual(option_reply(client)[1], 0x80000002)
            it.weir("rule", "start", "\x1b[2J", "jobid={a}", "rate=1")
            it.weir("job", "set", "\x1b[2J\n", "1")
            it.await_log("audit: change")
            it.await_log("\\x1B[2J")
        self.assertNotIn("\x1b", it.log)
        for line in it.log.splitlines():
            self.assertRegex(line, "^weir serve: ")


if __name__ == "__main__":
    unittest.main(verbosity=2)
