#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Metrics as a real Prometheus scrapes them and answers queries about them."""
import json
import pathlib
import socket
import subprocess
import tempfile
import threading
import unittest
import urllib.parse
import urllib.request

from remote import READ, Remote, request, simple_reply, wait_for

PROMETHEUS = "prometheus"


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Prometheus:
    def __init__(self, folder, port, token):
        self.port = free_port()
        config = pathlib.Path(folder) / "prometheus.yml"
        config.write_text(json.dumps({  # JSON is YAML
            "global": {"scrape_interval": "500ms", "scrape_timeout": "500ms"},
            "scrape_configs": [{"job_name": "weir", "honor_labels": True,
                                "authorization": {"credentials": token},
                                "static_configs": [{"targets": [f"127.0.0.1:{port}"]}]}]}),
            encoding="utf-8")
        self.process = subprocess.Popen(
            [PROMETHEUS, f"--config.file={config}", f"--storage.tsdb.path={folder}/tsdb",
             f"--web.listen-address=127.0.0.1:{self.port}"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def query(self, text):
        """The result of a query, nothing while there is none."""
        try:
            url = (f"http://127.0.0.1:{self.port}/api/v1/query?"
                   + urllib.parse.urlencode({"query": text}))
            with urllib.request.urlopen(url, timeout=10) as got:
                return json.load(got)["data"]["result"]
        except OSError:
            return []

    def end(self):
        self.process.terminate()
        self.process.wait()


class Scraped(unittest.TestCase):
    def test_promql_sees_what_the_server_did(self):
        with tempfile.TemporaryDirectory() as folder:
            token = pathlib.Path(folder) / "token"
            token.write_text("t0ken", encoding="utf-8")
            with Remote("--export", "a=memory:64MiB", "--adaptive", "off", "--rule",
                        "start dd jobid={dd.*} rate=200", "--control-tcp", "127.0.0.1:0",
                        "--control-token", token) as it:
                prometheus = Prometheus(folder, it.control_port, "t0ken")
                stopped = threading.Event()

                def load():
                    client = it.client("dd.0")
                    while not stopped.is_set():
                        client.sendall(request(READ, 0, 0, 4096))
                        simple_reply(client, 4096)
                    client.close()
                thread = threading.Thread(target=load)
                thread.start()
                try:
                    wait_for("the target to be up", lambda: [
                        one for one in prometheus.query('up{job="weir"}')
                        if one["value"][1] == "1"])
                    rate = wait_for("a rate over some seconds", lambda: [
                        one for one in prometheus.query(
                            'sum(rate(weir_rule_requests_total{rule="dd"}[5s]))')
                        if float(one["value"][1]) > 0])
                    self.assertLess(float(rate[0]["value"][1]), 400)
                    self.assertTrue(prometheus.query('weir_rule_rate_limit{rule="dd"} == 200'))
                    self.assertTrue(prometheus.query(
                        'weir_job_requests_total{job="dd.0",service="ost_io"} > 0'))
                    self.assertEqual(prometheus.query("count(weir_connections)")[0]["value"][1],
                                     "1")
                finally:
                    stopped.set()
                    thread.join()
                    prometheus.end()


class Bounded(unittest.TestCase):
    def test_many_jobs_make_few_series_and_none_ever_shrinks(self):
        with Remote("--export", "a=memory:64MiB", "--adaptive", "off") as it:
            def page():
                return it.http("GET", "/metrics")[2]

            def total(text):
                return sum(int(line.split()[-1]) for line in text.splitlines()
                           if line.startswith("weir_job_requests_total"))
            before = 0
            for number in range(120):
                it.read(f"job{number}", 2)
                if number % 40 == 39:
                    wait_for("a newer snapshot", lambda: total(page()) > before)
                    before = total(page())
            text = wait_for("all of them", lambda: page() if total(page()) == 240 else "")
            jobs = [line for line in text.splitlines()
                    if line.startswith("weir_job_requests_total")]
            self.assertLessEqual(len(jobs), 51)
            self.assertIn('job="other"', jobs[-1])

    def test_a_job_called_other_is_not_the_others(self):
        with Remote("--export", "a=memory:64MiB", "--adaptive", "off") as it:
            it.read("other", 2)
            text = it.http("GET", "/metrics")[2]
            self.assertIn('job="\\\\x6Fther"} 2', text)


if __name__ == "__main__":
    unittest.main(verbosity=2)
