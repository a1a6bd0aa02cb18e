# SPDX-License-Identifier: Apache-2.0
"""A running server with its control socket, and the operations that tests need.

    with Remote("--export", "a=memory:64MiB") as it:
        it.weir("status")                      the command, with its socket
        it.get("/v1/status")                   the API
        it.read("dd.0", 10)                    requests of a job
"""
import http.client
import json
import os
import pathlib
import socket
import subprocess
import sys
import time

from described import Described

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "clients"))
from server import (READ, STUCK, Server, enter, replies, request,  # noqa: E402, F401
                    RELEASE, WEIR, simple_reply)
from certificates import EXPIRED, Authority  # noqa: E402, F401

__all__ = ["EXPIRED", "READ", "RELEASE", "STUCK", "WEIR", "Authority", "Remote", "UnixHttp",
           "enter", "replies", "request", "simple_reply", "wait_for"]


DESCRIBED = Described()  # every response that a test reads is compared with it


class UnixHttp(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("weir", timeout=STUCK)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(STUCK)
        self.sock.connect(str(self.path))


class Remote(Server):
    def __init__(self, *arguments, **options):
        super().__init__(*arguments, control=True, **options)

    def weir(self, *arguments, program=None):
        """Status, standard output and standard error of a command."""
        run = subprocess.run([program or self.binary, *arguments], capture_output=True, text=True,
                             timeout=STUCK, check=False,
                             env={**os.environ, "WEIR_SOCKET": str(self.control)})
        return run.returncode, run.stdout, run.stderr

    def lctl(self, *arguments):
        return self.weir("lctl", *arguments)

    def http(self, method, path, body=None, headers=None):
        """Status, headers and body, as text, which docs/openapi.json describes."""
        connection = UnixHttp(self.control)
        try:
            connection.request(method, path, body=body, headers=headers or {})
            answer = connection.getresponse()
            head, text = dict(answer.getheaders()), answer.read().decode("utf-8")
            DESCRIBED.check(method, path, answer.status, head, text)
            return answer.status, head, text
        finally:
            connection.close()

    def get(self, path):
        status, _, body = self.http("GET", path)
        assert status == 200, (path, status, body)
        return json.loads(body)

    def send(self, method, path, body, headers=None):
        status, head, text = self.http(method, path, json.dumps(body), headers)
        return status, head, json.loads(text)

    def client(self, job, export="a"):
        client = self.connect()
        enter(client, f"{export}/job={job}".encode() if job else export.encode())
        return client

    def read(self, job, count, export="a", length=4096):
        """Sends so many reads of a job at once; returns the time they took."""
        client = self.client(job, export)
        begun = time.monotonic()
        client.sendall(b"".join(request(READ, i, 0, length) for i in range(count)))
        for _ in range(count):
            assert simple_reply(client, length)[0] == 0
        client.close()
        return time.monotonic() - begun


def wait_for(what, condition):
    """Waits until the condition returns a true value, and returns it."""
    end = time.monotonic() + STUCK
    while time.monotonic() < end:
        value = condition()
        if value:
            return value
        time.sleep(0.05)
    raise AssertionError(f"in {STUCK} s not: {what}")
