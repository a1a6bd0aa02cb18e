#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The console in Chromium: data moves, rules and sizes are edited, an explanation opens.

WEIR_SCREENSHOTS=FOLDER stores screenshots.
"""
import contextlib
import http.client
import json
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import unittest

from remote import READ, RELEASE, Remote, request, simple_reply

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / one) for one in ("cluster", "lustre", "nfs")]
import ganesha  # noqa: E402
import rpc  # noqa: E402
import tree  # noqa: E402
from world import World  # noqa: E402

BUILD = pathlib.Path(os.environ.get("WEIR_BUILD_DIR", HERE.parents[1] / "build/dev"))
TOKEN = "page-token"
READER = "reader-token"
MANY = 8192  # classes
CONTROLLED = """
[control]
tcp = "127.0.0.1:0"
token = "{token}"
[groups]
length = "500ms"
[[group]]
name = "near"
nids = "0@lo"
[[group]]
name = "far"
nids = "10.0.0.*@tcp"
"""

TREE = """
[[service]]
capacity = 400
[[export]]
name = "<b>a"
store = "memory:64MiB"
[[shares]]
tree = ["export", "projid", "uid", "jobid"]
weights = { '<b>a/bio' = 3 }
names = { '<b>a/9' = "bio" }
"""


def modules():
    """playwright-core in exactly the version of the lock file."""
    folder = BUILD / "page_test"
    folder.mkdir(exist_ok=True)
    for name in ("package.json", "package-lock.json"):
        shutil.copy(HERE / name, folder / name)
    if not (folder / "node_modules/playwright-core/package.json").exists():
        subprocess.run(["npm", "ci", "--prefix", folder, "--ignore-scripts", "--no-audit",
                        "--no-fund", "--loglevel=error"], check=True, timeout=300)
    return folder


def make_many(it, count=MANY):
    """A class for each of many jobs."""
    for first in range(0, count, 64):
        clients = [it.client(f"many.{i}") for i in range(first, min(first + 64, count))]
        for client in clients:
            client.sendall(request(READ, 0, 0, 512))
        for client in clients:
            simple_reply(client, 512)
            client.close()


class Load:
    """A job that sends one request after another until it is stopped."""

    def __init__(self, it, job, export="a"):
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self.run, args=(it, job, export))
        self.thread.start()

    def run(self, it, job, export):
        client = it.client(job, export)
        while not self.stopped.wait(0.002):
            client.sendall(request(READ, 0, 0, 4096))
            simple_reply(client, 4096)
        client.close()

    def end(self):
        self.stopped.set()
        self.thread.join()


class Proxy:
    """Forwards connections to a port, until they go silent: then neither side hears of the other
    again, and nobody is told. New connections are forwarded."""

    def __init__(self, port):
        self.to = port
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.sockets = []
        self.silent = set()
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                client, _ = self.listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self.to))
            self.sockets += [client, server]
            for pair in ((client, server), (server, client)):
                threading.Thread(target=self.forward, args=pair, daemon=True).start()

    def forward(self, source, target):
        try:
            while data := source.recv(1 << 16):
                if source not in self.silent:
                    target.sendall(data)
            if source not in self.silent:
                target.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def go_silent(self):
        self.silent.update(self.sockets)

    def close(self):
        self.listener.close()
        for one in self.sockets:
            one.close()


class Page(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.shots = pathlib.Path(os.environ.get("WEIR_SCREENSHOTS", self.folder))
        self.shots.mkdir(exist_ok=True)
        (self.folder / "token").write_text(TOKEN, encoding="utf-8")

    def test_what_an_administrator_sees(self):
        folder = modules()
        tokens = f"admin write {TOKEN}\nviewer read {READER}\n"
        (self.folder / "token").write_text(tokens, encoding="utf-8")
        with Remote("--export", "a=memory:64MiB", "--adaptive", "off", "--classes", "10000",
                    "--control-tcp", "127.0.0.1:0", "--control-token", self.folder / "token",
                    binary=RELEASE) as it:
            loads = [Load(it, job) for job in ("dd.0", "ior.1", "<b>bold")]
            url = f"http://127.0.0.1:{it.control_port}/#token="
            browser = subprocess.Popen(
                ["node", HERE / "page.mjs", folder, url + TOKEN, self.shots, url + READER],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            try:
                self.follow(it, browser, loads)
            finally:
                browser.kill()
                browser.communicate()
                for load in loads:
                    load.end()

    def test_the_panel_of_locks(self):
        with Remote("--export", "a=memory:64MiB", "--control-tcp", "127.0.0.1:0",
                    "--control-token", self.folder / "token", binary=RELEASE) as it:
            url = f"http://127.0.0.1:{it.control_port}/#token={TOKEN}"
            done = subprocess.run(["node", HERE / "lock_page.mjs", modules(), url, self.shots],
                                  capture_output=True, text=True, timeout=250, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        seen = json.loads(done.stdout)
        self.assertEqual(seen["problems"], [])
        self.assertTrue(seen["before"]["hidden"], "there is no lock service")
        one, two = seen["one"], seen["two"]
        self.assertRegex(one["facts"], r"granted 1,\d\d\d of 1,000 \(1\d\d\.\d %\)")
        self.assertIn("grant speed -2/s", one["facts"])
        self.assertNotIn("recovering", one["facts"])
        self.assertEqual(one["rows"][0], "<b>bold</b>@tcp #1")
        self.assertEqual(one["rows"][1], "192.168.1.1@tcp #2")
        self.assertEqual(one["rows"][10:], ["990 others"])
        self.assertEqual(one["html"], 0, "a name became HTML")
        self.assertEqual((one["points"], one["drawn"]), ([60, 60, 60], 3))
        self.assertEqual(one["limits"], [1000])
        self.assertTrue(one["falls"])
        self.assertEqual((one["select"], two["select"]), (False, True))
        self.assertEqual((two["limits"], two["limitsOfSecond"]), ([1000], [2000]))
        self.assertNotEqual(one["dark"], "rgb(244, 246, 249)")
        self.assertTrue(one["wide"] and seen["narrow"], "the page is wider than the window")

    def look(self, url, what, **options):
        """What views.mjs finds."""
        done = subprocess.run(["node", HERE / "views.mjs", modules(), url, self.shots, what],
                              capture_output=True, text=True, timeout=250, check=False, **options)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout)

    def test_every_text_has_the_contrast_of_wcag_aa(self):
        with self.serve() as it:
            load = Load(it, "dd.0")
            try:
                found = self.look(self.url(it.control_port), "colours")
            finally:
                load.end()
        bad = found.pop("bad")
        self.assertGreater(len(bad["poor"]), 5, "the check finds what is wrong")
        self.assertEqual(len(found), 6)
        for where, one in found.items():
            self.assertGreater(one["seen"], 80, where)
            self.assertEqual(one["poor"], [], where)

    def test_a_page_that_slept_for_an_hour_comes_back(self):
        with self.serve() as it, contextlib.closing(Proxy(it.control_port)) as proxy:
            it.read("early.1", 1)
            browser = subprocess.Popen(
                ["node", HERE / "views.mjs", modules(), self.url(proxy.port), self.shots, "sleep"],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            try:
                self.assertEqual(json.loads(browser.stdout.readline() or "{}").get("state"), "live")
                proxy.go_silent()
                it.read("late.1", 1)
                browser.stdin.write("\n")
                browser.stdin.flush()
                back = json.loads(browser.stdout.readline() or "{}")
                self.assertEqual(back.get("state"), "live")
                self.assertGreaterEqual(back["streams"], 2, "the dead connection was replaced")
                self.assertEqual(browser.wait(60), 0)
            finally:
                browser.kill()
                browser.communicate()

    def test_the_views_of_a_cluster_its_groups_and_gateways(self):
        more = CONTROLLED.format(token=self.folder / "token")
        with World(servers=2, more=more) as world:
            world.rule("start wide jobid={*} rate=300 by=rule")
            members = list(world.members.values())
            loads = [Load(member, "dd.0") for member in members]
            try:
                control = next(one for one in members[0].addresses if one.startswith("control:"))
                seen = self.look(self.url(control.rpartition(":")[2]), "cluster")
            finally:
                for load in loads:
                    load.end()
        self.assertRegex(seen["cluster"], r"this server\s+s0\s")
        self.assertRegex(seen["cluster"], r"leader\s+s[01]\s")
        for name in ("s0", "s1"):
            self.assertRegex(seen["cluster"], rf"{name}\s+127\.0\.0\.1:\d+\s+joined")
            self.assertRegex(seen["cluster"],
                             rf"ost_io/wide \(300 ops/s\)\s+{name}\s+[0-9.]+ ops/s\s+\d+ %")
        self.assertRegex(seen["cluster"], r"s0\s+\S+ ops/s\s+\d+ %\s+[0-9.]+ ops/s, \d+ %")
        self.assertRegex(seen["cluster"], r"s1\s+\S+ ops/s\s+\d+ %\s+–")
        self.assertRegex(seen["groups"], r"(?s)turns\s+cluster.*epoch\s+\d+ of term 1.*"
                                         r"near\s+\d+.*far\s+\d+.*others\s+\d+")
        self.assertRegex(seen["gateways"], r"<b>nfs</b> to server\s+calls\s+12\.3k")
        self.assertRegex(seen["exports"], r"a\s+ost_io\s+\w.*\s\S+ [kMG]?B\s+responds")
        self.assertEqual(seen["html"], 0, "a name became HTML")
        self.assertEqual(set(seen["fits"].values()), {True}, seen["fits"])

    def test_an_nfs_gateway(self):
        with rpc.Stub() as stub, ganesha.Gateway(
                stub.port, "--control-tcp", "127.0.0.1:0", "--control-token",
                self.folder / "token", binary=RELEASE) as gateway, \
                rpc.Client(gateway.port) as client:
            client.send(rpc.null(100), *(rpc.getattr3(xid, b"handle") for xid in range(20)))
            for _ in range(21):
                client.reply()
            seen = self.look(self.url(gateway.control_port), "gateway")
        self.assertRegex(seen["gateways"],
                         r"(?s)nfs\s+Calls of clients\s+21\s.*Calls that are neither.*\s1$")
        self.assertRegex(seen["classes"], r"uid\.1000")
        self.assertRegex(seen["exports"], r"another server")
        self.assertEqual(set(seen["fits"].values()), {True}, seen["fits"])
        self.assertEqual(seen["poor"], [])

    def test_a_lustre_driver(self):
        nodes = self.folder / "nodes"
        nodes.write_text("big 3\nhog 1\nstat 3\nmake 1\n", encoding="utf-8")
        with tree.lustre("tbf=jobid", "rate=2000", "job=hog,16,4", "job=big,16,4", "mds=2000",
                         "mds-tbf=jobid", "mds-job=make,mkdir,16,4",
                         "mds-job=stat,getattr,16,4") as server, tree.driver(
                             server, "--nodes", nodes, "--control-tcp", "127.0.0.1:0",
                             "--control-token", self.folder / "token",
                             map_file=self.folder / "map") as weir:
            said = ""
            while not (found := re.search(r"console is at port (\d+) of 127\.0\.0\.1", said)):
                line = weir.stdout.readline()
                self.assertTrue(line, said)
                said += line
            port = int(found[1])
            reader = threading.Thread(target=weir.stdout.read)  # the driver must not wait
            reader.start()
            bare = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            bare.request("GET", "/v1/lustre")
            self.assertEqual(bare.getresponse().status, 401)
            bare.close()
            seen = self.look(self.url(port), "lustre")
            weir.terminate()
            reader.join()
        self.assertEqual(seen["state"], "live")
        self.assertRegex(seen["text"], r"(?s)ost_io\s+algorithm\s+weir.*jobs held\s+\d of 2.*mdt")
        self.assertRegex(seen["text"], r"(?s)make\s+1\s+backlogged\s.*held at \S+/s since")
        self.assertEqual(set(seen["fits"].values()), {True}, seen["fits"])
        self.assertEqual(seen["poor"], [])

    def test_a_tree_of_shares(self):
        (self.folder / "weir.conf").write_text(TREE, encoding="utf-8")
        with Remote("--config", self.folder / "weir.conf", "--control-tcp", "127.0.0.1:0",
                    "--control-token", self.folder / "token", binary=RELEASE) as it:
            loads = [Load(it, f"{job},uid={uid},project={project}", "<b>a")
                     for job, project, uid in (("a", 9, 7), ("b", 9, 10), ("c", 10, 7),
                                               ("d", 10, 8))]
            try:
                seen = self.look(self.url(it.control_port), "shares")
            finally:
                for load in loads:
                    load.end()
        self.assertEqual(seen["levels"], "export → projid → uid → jobid")
        self.assertEqual([row[:4] for row in seen["rows"]], [
            [r"\x3Cb\x3Ea", "export", "1 of 1", "100 %"],
            ["bio (9)", "project", "3 of 4", "75.0 %"], ["7", "uid", "1 of 2", "50.0 %"],
            ["10", "uid", "1 of 2", "50.0 %"],
            ["10", "project", "1 of 4", "25.0 %"], ["7", "uid", "1 of 2", "50.0 %"],
            ["8", "uid", "1 of 2", "50.0 %"]])
        self.assertEqual(seen["indents"], [10, 30, 50, 50, 30, 50, 50])
        self.assertEqual((seen["place"], seen["html"], seen["poor"]), ("", 0, []))
        for row in seen["rows"]:
            self.assertRegex(row[4], r" ops/s$|not paced")
            self.assertRegex(row[5], r"^(balanced|owes \S+|is owed \S+)$")
        self.assertEqual(set(seen["fits"].values()), {True}, seen["fits"])

    def test_without_classes_and_with_300(self):
        with self.serve() as it:
            browser = subprocess.Popen(
                ["node", HERE / "views.mjs", modules(), self.url(it.control_port), self.shots,
                 "sizes"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            try:
                empty = json.loads(browser.stdout.readline() or "{}")
                make_many(it, 300)
                browser.stdin.write("\n")
                browser.stdin.flush()
                many = json.loads(browser.stdout.readline() or "{}")
                self.assertEqual(browser.wait(60), 0)
            finally:
                browser.kill()
                browser.communicate()
        self.assertEqual(empty.pop("fits"), dict.fromkeys(("light", "dark", "phone"), True))
        self.assertEqual(empty, {"classes": "no classes yet", "jobs": "no jobs yet"})
        self.assertEqual(many.pop("fits"), dict.fromkeys(("light", "dark", "phone"), True))
        self.assertEqual(many, {"classes": "1–50 of 300", "rows": 50,
                                "jobs": "50 of 300; the search of classes finds the others"})

    def serve(self):
        return Remote("--export", "a=memory:64MiB", "--control-tcp", "127.0.0.1:0",
                      "--control-token", self.folder / "token", binary=RELEASE)

    def url(self, port):
        return f"http://127.0.0.1:{port}/#token={TOKEN}"

    def follow(self, it, browser, loads):
        def seen():
            line = browser.stdout.readline()
            self.assertTrue(line, "the browser has ended early")
            return json.loads(line)

        def go_on():
            browser.stdin.write("\n")
            browser.stdin.flush()
        live = seen()
        self.assertGreaterEqual(live["first"].pop("rows"), 3, "live before there are data")
        self.assertEqual(live["first"], {"charts": 2, "rules": 1})
        self.assertEqual(live["keys"], {"moved": True, "kept": True, "arrow": True})
        self.assertNotEqual(live["ops"], "0")
        self.assertEqual(live["html"], 0, "a name became HTML, in a table or a chart")
        self.assertEqual(live["dark"], "rgb(18, 22, 28)")
        self.assertTrue(live["narrow"], "wider than 400 px")
        self.assertEqual(len(live["names"]), 2)
        self.assertRegex(live["names"][0], r"Throughput last 5 minutes; now all: .* ops/s")
        go_on()
        tried = seen()
        self.assertEqual(tried["command"], "weir rule start slow jobid={dd.*} rate=20 bps=1MB/s")
        self.assertTrue(tried["early"], "nothing is applied that was not tried")
        self.assertRegex(tried["effects"], r"1 class changes, 2 do not")
        self.assertRegex(tried["effects"],
                         r"default/dd.0\s+slow/dd.0\s+10k ops/s\s+20 ops/s, 1 MB/s")
        self.assertEqual([one["rule"] for one in it.get("/v1/services/ost_io/rules")], ["default"])
        self.assertEqual(it.weir("rule", "start", "other", "jobid={<b>*}", "rate=5")[0], 0)
        go_on()
        ruled = seen()
        self.assertRegex(ruled["lost"], "^Nothing was changed.* Rules now: other, default[.]")
        self.assertEqual(ruled["limit"], "20 ops/s, 1 MB/s")
        self.assertIn("'jobid={dd.*}' matches", ruled["explained"])
        self.assertIn("the limit of its rule", ruled["explained"])
        told = ruled["told"]
        for name in ("class", "rule", "limit"):  # the others change from one reading to the next
            text = next(one["text"] for one in told["facts"] if one["name"] == name)
            self.assertIn(text.partition(";")[0], ruled["explained"], "the same words")
        self.assertIn(told["verdict"].partition(";")[0], ruled["explained"])
        for one in told["delays"]["causes"]:
            self.assertIn(one["text"], ruled["explained"])
        self.assertTrue(ruled["closed"])
        go_on()
        self.assertEqual(seen()["step"], "edited")
        self.assertEqual([one["rule"] for one in it.get("/v1/services/ost_io/rules")],
                         ["other", "default"])
        self.assertEqual(it.get("/v1/jobs"), [{"job": "ior.1", "nodes": 7}])
        make_many(it)
        go_on()
        many = seen()
        self.assertEqual(many["readOnly"], {"said": True, "buttons": 0})
        self.assertEqual(many["rows"], 50)
        self.assertIn("jobid={<b>*}", many["marks"])
        self.assertEqual(many["html"], 0, "a condition became HTML, in a rule or a mark")
        print(f"{many['busy']:.1f} ms of the browser in a second", file=sys.stderr)
        self.assertLess(many["busy"], 50, "milliseconds of the browser in a second")
        self.assertEqual(many["back"], "live")
        self.assertEqual(many["problems"], [])
        self.assertGreaterEqual(many["charted"], 2)
        self.assertEqual(many["swatches"], many["charted"], "classes have the colours of charts")
        for load in loads:
            load.end()
        it.process.terminate()
        go_on()
        self.assertIn("not reachable", seen()["said"])
        go_on()
        self.assertEqual(browser.wait(60), 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
