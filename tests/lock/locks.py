# SPDX-License-Identifier: Apache-2.0
"""Lock servers and holders for tests, and the checker that reads the records of holders.

    with LockServer("--lock-lease", "2s") as server:
        server.run("res", "--", "true")
    with LockGroup(3) as group:                      of which one is active, with a real etcd
        group.active().kill()

Everything has its own folder and ends with the block. Tests wait for conditions, with a deadline
that a slow machine meets.
"""
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(os.environ.get("WEIR_SOURCE_DIR",
                                   pathlib.Path(__file__).resolve().parents[2]))
BUILD = pathlib.Path(os.environ.get("WEIR_BUILD_DIR", ROOT / "build/dev"))
WEIR = os.environ.get("WEIR_BIN", BUILD / "apps/weir/weir")
sys.path[:0] = [str(ROOT / "tests/control"), str(ROOT / "tests/cluster")]
from remote import wait_for  # noqa: E402, F401
from world import Etcd  # noqa: E402
__all__ = ["BUILD", "ROOT", "STUCK", "WEIR", "Holder", "LockGroup", "LockServer", "conflicts",
           "wait_for"]

CARELESS = BUILD / "tests/careless"
STUCK = 90  # seconds after which a test counts as stuck

# Holds a lock until it is stopped, and records the times: the clock is the same for all processes.
HOLDER = """
import os, signal, sys, time
out = open(sys.argv[1], "a", buffering=1)
def say(what):
    out.write(f"{what} {os.environ['WEIR_LOCK_FENCE']} {time.monotonic_ns()}\\n")
def end(*_):
    say("end")
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
say("begin")
until = time.monotonic() + float(sys.argv[2])
while time.monotonic() < until and not os.path.exists(sys.argv[1] + ".let-go"):
    time.sleep(0.01)
end()
"""


class LockServer:
    """weir serve --lock, on a Unix socket unless told otherwise. It can be killed and started
    again."""

    def __init__(self, *arguments, careless_lease_ms=None, address=None, prefix=(),
                 control=False):
        self.folder = tempfile.TemporaryDirectory()
        self.path = pathlib.Path(self.folder.name)
        self.socket = address or f"unix:{self.path}/s"
        self.arguments = arguments
        self.control = self.path / "control" if control else "none"
        self.prefix = prefix  # runs the server on another host
        self.careless_lease_ms = careless_lease_ms
        self.env = {**os.environ, "WEIR_LOCK_SERVER": self.socket}
        self.process = None
        self.holders = []
        self.log = open(self.path / "log", "a+", encoding="utf-8")

    def start(self):
        if self.careless_lease_ms is not None:
            command = [CARELESS, self.path / "s", self.path / "state", str(self.careless_lease_ms)]
        else:
            command = [*self.prefix, WEIR, "serve", "--control", self.control, "--lock",
                       self.socket, "--lock-state", self.path / "state", *self.arguments]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        stderr=self.log, text=True)
        ready = self.process.stdout.readline()
        if not ready.startswith("ready"):
            self.process.kill()
            self.process.wait()
            raise AssertionError(f"not ready: {self.logged()}")
        if " lock:" in ready:
            self.env["WEIR_LOCK_SERVER"] = ready.rpartition("lock:")[2].strip()

    def logged(self):
        return (self.path / "log").read_text(encoding="utf-8")

    def kill(self):
        self.process.kill()
        self._reap()

    def stop(self):
        self.process.terminate()
        return self._reap()

    def _reap(self):
        self.process.stdin.close()
        self.process.stdout.close()
        return self.process.wait(STUCK)

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, kind, *_):
        for holder in self.holders:
            holder.finish()
        status = self.stop() if self.process.poll() is None else None
        self.log.close()
        text = self.logged()
        self.folder.cleanup()
        if kind is None:
            assert status in (0, None, -signal.SIGTERM), f"ended with {status}: {text}"
            assert "Sanitizer" not in text, text

    def client(self, *arguments):
        """The command line of weir lock."""
        return [WEIR, "lock", *arguments]

    def popen(self, *arguments, **options):
        return subprocess.Popen(self.client("run", *arguments), env=self.env, text=True,
                                stderr=self.log, **options)

    def run(self, *arguments, **options):
        return subprocess.run(self.client("run", *arguments), env=self.env, text=True,
                              timeout=STUCK, capture_output=True, **options)

    def ask(self, action, *arguments):
        done = subprocess.run(self.client(action, "--json", *arguments), env=self.env, text=True,
                              timeout=STUCK, capture_output=True, check=True)
        return json.loads(done.stdout)

    def release(self, *arguments):
        """What an administrator does."""
        return subprocess.run(self.client("release", "--control", self.control, *arguments),
                              text=True, timeout=STUCK, capture_output=True, check=False)

    def locks(self):
        return self.ask("list")

    def count(self, state):
        return sum(lock["state"] == state for lock in self.locks())

    def hold(self, resource, *options, seconds=STUCK):
        holder = Holder(self, resource, options, seconds)
        self.holders.append(holder)
        return holder


class LockGroup(LockServer):
    """Lock servers of one cluster. Its holders know all of them; it is not a server itself. On a
    network server i runs on the host "si", etcd on "n0" and holders on "c"."""

    CONFIG = """
[cluster]
name = "s{index}"
etcd = {etcd}
listen = "{host}:0"
state = "{path}/cluster"
"""

    def __init__(self, count=2, lease="6s", network=None, etcd_nodes=1):
        super().__init__()
        self.count = count
        self.lease = lease
        self.network = network
        self.etcd = Etcd(etcd_nodes, network=network)
        self.servers = []

    def __enter__(self):
        self.etcd.__enter__()
        for index in range(self.count):
            self.add(index)
        self.env["WEIR_LOCK_SERVER"] = ",".join(one.socket for one in self.servers)
        self.active()
        return self

    def add(self, index):
        host = self.network.address(f"s{index}") if self.network else "127.0.0.1"
        prefix = self.network.prefix(f"s{index}") if self.network else ()
        server = LockServer("--lock-lease", self.lease, prefix=prefix,
                            address=f"{host}:10811" if self.network else None)
        config = server.path / "weir.conf"
        config.write_text(self.CONFIG.format(
            index=index, host=host, path=server.path,
            etcd=json.dumps(list(self.etcd.endpoints()))), encoding="utf-8")
        server.arguments += ("--config", config)
        server.start()
        self.servers.append(server)

    def client(self, *arguments):
        prefix = self.network.prefix("c") if self.network else []
        return [*prefix, *super().client(*arguments)]

    def role(self, server):
        done = subprocess.run(self.client("stats", "--json", "--server", server.socket), text=True,
                              timeout=STUCK, capture_output=True, check=False)
        return json.loads(done.stdout)["role"] if done.returncode == 0 else None

    def active(self, among=None):
        """The active server, once there is one; asks no server that stands still."""
        among = self.servers if among is None else among
        return wait_for("a server is active", lambda: next(
            (one for one in among if self.role(one) == "active"), None))

    def others(self, server):
        return [one for one in self.servers if one is not server]

    def __exit__(self, kind, value, trace):
        for holder in self.holders:
            holder.finish()
        failed = []
        for server in self.servers:
            if server.process.poll() is None:
                server.process.send_signal(signal.SIGCONT)
            try:
                server.__exit__(kind, value, trace)
            except AssertionError as error:
                failed.append(error)
        self.etcd.__exit__(kind, value, trace)
        self.log.close()
        self.folder.cleanup()
        if failed and kind is None:
            raise failed[0]


class Holder:
    """A command under a lock that records when it started and ended."""

    def __init__(self, server, resource, options, seconds):
        self.file = server.path / f"holder.{len(server.holders)}"
        self.resource = resource
        self.process = server.popen(*options, resource, "--", sys.executable, "-c", HOLDER,
                                    self.file, str(seconds))
        self.ended = None

    def lines(self):
        if not self.file.exists():
            return []
        return [line.split() for line in self.file.read_text(encoding="utf-8").splitlines()
                if line.count(" ") == 2]

    def has_begun(self):
        return any(line[0] == "begin" for line in self.lines())

    def has_ended(self):
        return any(line[0] == "end" for line in self.lines())

    def let_go(self):
        pathlib.Path(f"{self.file}.let-go").touch()

    def wait(self):
        status = self.process.wait(STUCK)
        self.ended = self.ended or time.monotonic_ns()
        return status

    def finish(self):
        """Removes all processes, however the test ended."""
        self.let_go()
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.terminate()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def spans(self):
        """(begin, end, fence): without a recorded end, the time until it was reaped counts."""
        begun = [(int(at), int(fence)) for what, fence, at in self.lines() if what == "begin"]
        ends = [int(at) for what, _, at in self.lines() if what == "end"]
        ends += [self.ended or time.monotonic_ns()] * (len(begun) - len(ends))
        return [(begin, end, fence) for (begin, fence), end in zip(begun, ends)]


def conflicts(holders):
    """Pairs of exclusive holders of one resource at one time, and fences that did not increase."""
    found = []
    spans = sorted((holder.resource, *span) for holder in holders for span in holder.spans())
    for one, next_one in zip(spans, spans[1:]):
        if one[0] != next_one[0]:
            continue
        if next_one[1] < one[2]:
            found.append(("both held it", one, next_one))
        if next_one[3] <= one[3]:
            found.append(("the fence did not grow", one, next_one))
    return found
