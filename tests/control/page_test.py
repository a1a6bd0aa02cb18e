#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The console in Chromium: data moves, rules and sizes are edited, an explanation opens.

WEIR_SCREENSHOTS=FOLDER stores screenshots.
"""
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import threading
import unittest

from remote import READ, RELEASE, Remote, request, simple_reply

HERE = pathlib.Path(__file__).resolve().parent
BUILD = pathlib.Path(os.environ.get("WEIR_BUILD_DIR", HERE.parents[1] / "build/dev"))
TOKEN = "page-token"
READER = "reader-token"


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


class Load:
    """A job that sends one request after another until it is stopped."""

    def __init__(self, it, job):
        self.stopped = threading.Event()
        self.thread = threading.Thread(target=self.run, args=(it, job))
        self.thread.start()

    def run(self, it, job):
        client = it.client(job)
        while not self.stopped.wait(0.002):
            client.sendall(request(READ, 0, 0, 4096))
            simple_reply(client, 4096)
        client.close()

    def end(self):
        self.stopped.set()
        self.thread.join()


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
        with Remote("--export", "a=memory:64MiB", "--adaptive", "off", "--control-tcp",
                    "127.0.0.1:0", "--control-token", self.folder / "token",
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
        self.assertRegex(one["facts"], r"granted 1\d\d\d of 1000 \(1\d\d\.\d %\)")
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

    def follow(self, it, browser, loads):
        def seen():
            line = browser.stdout.readline()
            self.assertTrue(line, "the browser has ended early")
            return json.loads(line)

        def go_on():
            browser.stdin.write("\n")
            browser.stdin.flush()
        live = seen()
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
                         r"default/dd.0\s+slow/dd.0\s+10.0k ops/s\s+20 ops/s, 1.0 MB/s")
        self.assertEqual([one["rule"] for one in it.get("/v1/services/ost_io/rules")], ["default"])
        self.assertEqual(it.weir("rule", "start", "other", "jobid={x}", "rate=5")[0], 0)
        go_on()
        ruled = seen()
        self.assertIn("Nothing was changed", ruled["lost"])
        self.assertEqual(ruled["limit"], "20 ops/s, 1.0 MB/s")
        self.assertIn("'jobid={dd.*}' matches", ruled["explained"])
        self.assertIn("the limit of its rule", ruled["explained"])
        self.assertTrue(ruled["closed"])
        go_on()
        self.assertEqual(seen()["step"], "edited")
        self.assertEqual([one["rule"] for one in it.get("/v1/services/ost_io/rules")],
                         ["other", "default"])
        self.assertEqual(it.get("/v1/jobs"), [{"job": "ior.1", "nodes": 7}])
        for number in range(300):
            it.read(f"many.{number}", 1)
        go_on()
        many = seen()
        self.assertEqual(many["readOnly"], {"said": True, "buttons": 0})
        self.assertEqual(many["rows"], 50)
        self.assertLess(many["busy"], 50, "milliseconds of the browser in a second")
        self.assertEqual(many["back"], "live")
        self.assertEqual(many["problems"], [])
        for load in loads:
            load.end()
        it.process.terminate()
        go_on()
        self.assertIn("not reachable", seen()["said"])
        go_on()
        self.assertEqual(browser.wait(60), 0)


if __name__ == "__main__":
    unittest.main(verbosity=2)
