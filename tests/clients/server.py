# SPDX-License-Identifier: Apache-2.0
"""A weir server for a test: started, ready, and stopped properly.

    with Server("--export", "a=memory:64MiB") as server:
        subprocess.run(["nbdinfo", server.uri("a")])

It listens on a Unix socket and on a free port of 127.0.0.1. Leaving the block stops it with SIGTERM
and fails if it does not exit with status 0, or if a sanitizer reported an error. WEIR_TEST_IO in
the environment is the --io of servers that name none, WEIR_TEST_THREADS their --threads:
WEIR_TEST_IO=epoll WEIR_TEST_THREADS=4 ./dev test clients
"""
import http.client
import json
import os
import pathlib
import signal
import socket
import struct
import subprocess
import tempfile
import threading
import time

ROOT = pathlib.Path(os.environ.get("WEIR_SOURCE_DIR",
                                   pathlib.Path(__file__).resolve().parents[2]))
WEIR = os.environ.get("WEIR_BIN", ROOT / "build/dev/apps/weir/weir")
RELEASE = os.environ.get("WEIR_RELEASE_BIN", ROOT / "build/release/apps/weir/weir")
TEST_IO = os.environ.get("WEIR_TEST_IO")
TEST_THREADS = os.environ.get("WEIR_TEST_THREADS")
STUCK = 60  # seconds after which a test counts as stuck


# For tests that measure memory: the sanitizer keeps little freed memory.
LEAN = {"ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":quarantine_size_mb=4"}


class Server:
    def __init__(self, *arguments, binary=None, env=None, control=False, prefix=(),
                 stderr=subprocess.PIPE, starts=True, subcommand=("serve",)):
        self.folder = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self.folder.name)
        self.socket = self.path / "s"
        self.control = self.path / "c"
        self.arguments = ["--control", self.control if control else "none", *arguments]
        if TEST_IO and subcommand == ("serve",) and "--io" not in arguments:
            self.arguments += ["--io", TEST_IO]
        if TEST_THREADS and subcommand == ("serve",) and "--threads" not in arguments:
            self.arguments += ["--threads", TEST_THREADS]
        self.binary = binary or WEIR
        self.prefix = prefix  # a command that runs it
        self.subcommand = subcommand  # none for a program that is only a server
        self.env = env
        self.starts = starts  # otherwise the block starts before it is ready
        self.stderr = stderr  # if given, it is not read, and `log` stays empty
        self.log = ""
        self.process = None
        self.expected = 0  # expected exit status

    def __enter__(self):
        self.launch()
        if self.starts:
            self.await_ready()
        return self

    def launch(self):
        """Starts it without waiting until clients can connect."""
        self._close_pipes()
        self.expected = 0
        self.process = subprocess.Popen(
            [*self.prefix, self.binary, *self.subcommand, "--listen", f"unix:{self.socket}",
             "--listen", "127.0.0.1:0", *self.arguments],
            stdout=subprocess.PIPE, stderr=self.stderr, text=True,
            env={**os.environ, **(self.env or {})})
        self.reader = threading.Thread(target=self._read_log)
        self.reader.start()

    def await_ready(self):
        ready = self.process.stdout.readline().split()
        if not ready or ready[0] != "ready":
            self.process.kill()
            self._end_process()
            self.folder.cleanup()
            raise AssertionError(f"not ready: {self.log}")
        self.port = int(ready[2].rpartition(":")[2])
        self.addresses = ready[1:]
        if ready[-1].startswith("control:"):
            self.control_port = int(ready[-1].rpartition(":")[2])

    def await_log(self, *texts, since=0):
        """Waits until one of the texts has been logged since then, and returns the log. A running
        server logs from its own thread, so an action and its log line can appear in any order."""
        deadline = time.monotonic() + STUCK
        while not any(text in self.log[since:] for text in texts):
            ended = self.process.poll() is not None and not self.reader.is_alive()
            assert not ended and time.monotonic() < deadline, (texts, self.log)
            time.sleep(0.01)
        return self.log[since:]

    def reload(self):
        """Sends SIGHUP and returns all log lines of the reload, of which its audit line is last."""
        before = len(self.log)
        self.process.send_signal(signal.SIGHUP)
        return self.await_log("audit: reload ", since=before)

    def _read_log(self):
        for line in self.process.stderr or ():
            self.log += line

    def _end_process(self):
        """Waits for the end of the process and returns its status."""
        try:
            status = self.process.wait(STUCK)
        except subprocess.TimeoutExpired:
            self.process.kill()
            status = "stuck"
        self.reader.join()
        self._close_pipes()
        return status

    def _close_pipes(self):
        if self.process is not None:
            self.process.stdout.close()
            if self.process.stderr:
                self.process.stderr.close()

    def __exit__(self, kind, *_):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        status = self._end_process()
        self.folder.cleanup()
        is_dirty = "Sanitizer" in self.log or "runtime error" in self.log
        if kind is None and (status != self.expected or is_dirty):
            raise AssertionError(f"the server ended with {status}: {self.log}")

    def kill(self):
        """With SIGKILL; the process has ended when this returns."""
        self.expected = -signal.SIGKILL
        self.process.kill()
        self.process.wait(STUCK)
        self.reader.join()

    def end(self, number=signal.SIGTERM):
        """Stops it with the signal; its folder is kept, so that it can be launched again."""
        self.process.send_signal(number)
        status = self._end_process()
        assert status == (0 if number == signal.SIGTERM else -number), (status, self.log)

    def uri(self, name, tcp=False):
        if tcp:
            return f"nbd://127.0.0.1:{self.port}/{name}"
        return f"nbd+unix:///{name}?socket={self.socket}"

    def connect(self):
        """A plain socket."""
        client = socket.socket(socket.AF_UNIX)
        client.settimeout(STUCK)
        client.connect(str(self.socket))
        return client

    def fetch(self, path):
        """The answer of the control socket."""
        connection = http.client.HTTPConnection("weir", timeout=STUCK)
        with socket.socket(socket.AF_UNIX) as connection.sock:
            connection.sock.settimeout(STUCK)
            connection.sock.connect(str(self.control))
            connection.request("GET", path)
            return connection.getresponse().read().decode()

    def status(self):
        return json.loads(self.fetch("/v1/status"))

    def memory(self):
        """Resident memory of the server in bytes."""
        status = pathlib.Path(f"/proc/{self.process.pid}/status").read_text(encoding="utf-8")
        line = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
        return int(line.split()[1]) * 1024


# ---- a client that can send anything ----

OPT_EXPORT_NAME, OPT_ABORT, OPT_LIST, OPT_GO = 1, 2, 3, 7
OPT_STRUCTURED_REPLY, OPT_SET_META_CONTEXT = 8, 10
READ, WRITE, DISC, FLUSH, TRIM, CACHE, WRITE_ZEROES, BLOCK_STATUS = range(8)
FUA = 1


def receive(client, count):
    data = b""
    while len(data) < count:
        piece = client.recv(count - len(data))
        if not piece:
            raise ConnectionError("the server has closed the connection")
        data += piece
    return data


def greet(client, flags=3):
    magic, options, server_flags = struct.unpack(">QQH", receive(client, 18))
    assert (magic, options) == (0x4e42444d41474943, 0x49484156454f5054)
    assert server_flags == 3
    client.sendall(struct.pack(">I", flags))


def option(number, body=b""):
    return struct.pack(">QII", 0x49484156454f5054, number, len(body)) + body


def go(name):
    return option(OPT_GO, struct.pack(">I", len(name)) + name + struct.pack(">H", 0))


def option_reply(client):
    magic, number, kind, length = struct.unpack(">QIII", receive(client, 20))
    assert magic == 0x3e889045565a9
    return number, kind, receive(client, length)


def enter(client, name=b"a"):
    """Completes the handshake, with simple replies."""
    greet(client)
    enter_after_greeting(client, name)


def enter_after_greeting(client, name=b"a"):
    client.sendall(go(name))
    while True:
        _, kind, body = option_reply(client)
        if kind == 1:
            return
        assert kind == 3, (hex(kind), body)


def enter_structured(client, name=b"a"):
    """The same with structured replies and block status."""
    greet(client)
    query = b"base:allocation"
    client.sendall(option(OPT_STRUCTURED_REPLY) +
                   option(OPT_SET_META_CONTEXT, struct.pack(">I", len(name)) + name +
                          struct.pack(">II", 1, len(query)) + query))
    kinds = [option_reply(client)[1] for _ in range(3)]
    assert kinds == [1, 4, 1], kinds
    enter_after_greeting(client, name)


def request(command, cookie=0, offset=0, length=0, flags=0, payload=b""):
    return struct.pack(">IHHQQI", 0x25609513, flags, command, cookie, offset, length) + payload


def reply_head(client):
    magic, error, cookie = struct.unpack(">IIQ", receive(client, 16))
    assert magic == 0x67446698
    return error, cookie


def simple_reply(client, length=0):
    error, cookie = reply_head(client)
    return error, cookie, receive(client, length) if length and not error else b""


def replies(client, lengths):
    """The errors of requests by cookie, in any order of replies; `lengths` are the payload sizes by
    cookie."""
    errors = {}
    while len(errors) < len(lengths):
        error, cookie = reply_head(client)
        errors[cookie] = error
        if not error:
            receive(client, lengths[cookie])
    return errors


def is_closed(client):
    """Whether the server ends the connection, within the timeout of the socket."""
    try:
        while client.recv(65536):
            pass
    except ConnectionError:
        pass
    return True
