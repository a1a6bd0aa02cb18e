# SPDX-License-Identifier: Apache-2.0
"""A cluster on loopback: an etcd of some nodes, servers as processes, and clients that count.

    with World(servers=3) as world:
        world.rule("start all jobid={*} rate=3000 by=rule")
        with Load(world, hot=...) as load:
            ...
        load.completions        times of all replies, at the clients

All processes are ended when the block is left, whatever happens in it.
"""
import bisect
import contextlib
import os
import pathlib
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "control"))
from remote import READ, RELEASE, STUCK, WEIR, Remote, enter, request, wait_for  # noqa: E402, F401

__all__ = ["AT_A_RATE", "LEASE", "RELEASE", "STUCK", "WEIR", "Etcd", "Load", "Member", "Remote",
           "World", "bound", "free_ports", "longest_gap", "most", "take_precedence", "wait_for"]

LEASE = 2  # seconds; the minimum
REPLY = 16 + 512
# How a server starts that knows no rules and cannot reach etcd; otherwise it accepts no clients.
AT_A_RATE = 'start_without = "rate"\nstart_rate = 1000'
WINDOW = 32  # waiting reads of a hot client
LIMITS = 'adaptive = "off"'  # keys of the service; without them it shares its capacity too
# The configuration of a server in a cluster.
CONFIG = """
[[export]]
name = "a"
store = "memory:16MiB"
[[service]]
{service}
[cluster]
name = "{name}"
etcd = {etcd}
listen = "{listen}"
lease = "{lease}s"
state = "{state}"
{more}
"""


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


def in_memory():
    """A folder in memory, if there is room: etcd syncs each write, and a disk that is busy with a
    build may take longer for it than a lease."""
    folder = "/dev/shm"
    with contextlib.suppress(OSError):
        if os.access(folder, os.W_OK) and shutil.disk_usage(folder).free > 2 << 30:
            return folder
    return None


class Etcd:
    """Nodes of one etcd; each can be stopped, killed and started again. On a network node i runs on
    the host "ni"."""

    def __init__(self, nodes=1, arguments=(), address="127.0.0.1", cacert=None, network=None):
        self.network = network
        self.addresses = [network.address(f"n{i}") if network else address for i in range(nodes)]
        self.cacert = cacert  # for TLS to its clients
        self.folder = tempfile.TemporaryDirectory(dir=in_memory())
        self.arguments = arguments
        self.scheme = "https" if cacert else "http"
        self.count = nodes

    def __enter__(self):
        for _ in range(5):  # another process may take a port before it is used
            ports = free_ports(2 * self.count)
            self.clients, self.peers = ports[:self.count], ports[self.count:]
            self.processes = [None] * self.count
            for node in range(self.count):
                self.start(node)
            with contextlib.suppress(AssertionError):
                wait_for("etcd answers", lambda: self.is_up() or self.has_failed())
                if self.is_up():
                    return self
            self.end()
        raise AssertionError("etcd does not start")

    def start(self, node):
        peer = f"http://{self.addresses[node]}:{self.peers[node]}"
        client = f"{self.scheme}://{self.addresses[node]}:{self.clients[node]}"
        everybody = ",".join(f"n{i}=http://{address}:{port}"
                             for i, (address, port) in enumerate(zip(self.addresses, self.peers)))
        prefix = self.network.prefix(f"n{node}") if self.network else []
        with open(f"{self.folder.name}/n{node}.log", "ab") as log:
            self.processes[node] = subprocess.Popen(
                [*prefix, "etcd", "--name", f"n{node}", "--data-dir", f"{self.folder.name}/n{node}",
                 "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer,
                 "--listen-client-urls", client, "--advertise-client-urls", client,
                 "--initial-cluster", everybody, "--logger", "zap", "--log-level", "error",
                 *self.arguments], stdout=log, stderr=log)

    def has_failed(self):
        return any(one.poll() is not None for one in self.processes)

    def is_up(self):
        return self.ctl("endpoint", "health", check=False) == 0

    def ctl(self, *arguments, check=True):
        endpoints = ",".join(f"{self.scheme}://{one}" for one in self.endpoints())
        tls = ["--cacert", self.cacert] if self.cacert else []
        prefix = self.network.prefix() if self.network else []
        run = subprocess.run(
            [*prefix, "etcdctl", "--endpoints", endpoints, "--command-timeout", "5s", *tls,
             *arguments],
            capture_output=True, text=True, timeout=STUCK, check=False,
            env={**os.environ, "ETCDCTL_API": "3"})
        assert not check or run.returncode == 0, run.stderr
        return run.stdout if check else run.returncode

    def endpoints(self):
        return [f"{address}:{port}" for address, port in zip(self.addresses, self.clients)]

    def kill(self, node):
        self.processes[node].kill()
        self.processes[node].wait(STUCK)

    def forget(self, node):
        """Deletes all data of etcd. It must not run."""
        shutil.rmtree(f"{self.folder.name}/n{node}")

    def end(self):
        for one in self.processes:
            if one.poll() is None:
                one.kill()
        for one in self.processes:
            one.wait(STUCK)

    def __exit__(self, *_):
        self.end()
        self.folder.cleanup()


class Member(Remote):
    """A server of the cluster."""

    def __init__(self, name, endpoints, more="", binary=None, listen="127.0.0.1:0", lease=LEASE,
                 prefix=(), service=LIMITS):
        super().__init__(binary=binary or RELEASE, prefix=prefix)
        self.name = name
        self.config = self.path / "weir.conf"
        self.config.write_text(CONFIG.format(name=name, etcd=str(list(endpoints)).replace("'", '"'),
                                             listen=listen, lease=lease, more=more, service=service,
                                             state=self.path / "state"))
        self.arguments += ["--config", self.config]

    def status(self):
        return self.get("/v1/cluster")

    def is_joined(self):
        return self.status()["state"] == "joined"

    def rule(self, command, service="ost_io"):
        return self.send("POST", "/v1/cluster/rules", {"service": service, "command": command})

    def stop(self, signal_number=signal.SIGSTOP):
        self.process.send_signal(signal_number)

    def resume(self):
        self.process.send_signal(signal.SIGCONT)


class World:
    """An etcd and its servers, all joined; on a network each runs on the host of its name."""

    def __init__(self, servers=3, etcd_nodes=1, binary=None, more="", address="127.0.0.1",
                 network=None, service=LIMITS):
        self.stack = contextlib.ExitStack()
        self.count = servers
        self.etcd_nodes = etcd_nodes
        self.binary = binary
        self.more = more
        self.address = address
        self.network = network
        self.service = service
        self.members = {}

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            self.etcd = stack.enter_context(
                Etcd(self.etcd_nodes, address=self.address, network=self.network))
            stack.callback(self.end_members)
            for i in range(self.count):
                self.start(f"s{i}")
            if self.members:
                self.wait_joined()
            self.stack = stack.pop_all()
        return self

    def __exit__(self, kind, value, trace):
        return self.stack.__exit__(kind, value, trace)

    def start(self, name, **options):
        if self.network:
            options.setdefault("listen", f"{self.network.address(name)}:0")
            options.setdefault("prefix", self.network.prefix(name))
        options.setdefault("listen", f"{self.address}:0")
        options.setdefault("service", self.service)
        member = Member(name, self.etcd.endpoints(), binary=self.binary,
                        more=options.pop("more", self.more), **options)
        member.__enter__()
        self.members[name] = member
        return member

    def restart(self, name, number=signal.SIGTERM):
        """Stops it with the signal, and starts it again with the same state and address."""
        self.members[name].end(number)
        self.start_again(name)

    def start_again(self, name):
        """Starts a server again that was stopped or killed."""
        self.members[name].launch()
        self.members[name].await_ready()

    def end(self, name):
        self.members.pop(name).__exit__(None, None, None)

    def end_members(self):
        failed = []
        for name in list(self.members):
            member = self.members.pop(name)
            with contextlib.suppress(ProcessLookupError):
                member.resume()
            try:
                member.__exit__(None, None, None)
            except AssertionError as error:
                failed.append(error)
        if failed:
            raise failed[0]

    def wait_joined(self, names=None):
        for name in names or list(self.members):
            wait_for(f"{name} has joined", self.members[name].is_joined)
        wait_for("all are in the epochs", lambda: self.are_in_epochs(names))

    def are_in_epochs(self, names=None):
        return all(self.members[name].status()["epoch"] > 0 for name in names or self.members)

    def any(self):
        return next(iter(self.members.values()))

    def rule(self, command):
        status, _, answer = self.any().rule(command)
        assert status == 200, answer
        name = command.split()[1]
        wait_for("the rule is everywhere", lambda: all(
            name in [one["rule"] for one in member.get("/v1/services/ost_io/rules")]
            for member in self.members.values()))

    def leader(self):
        """The name of the leader, on which all joined servers agree."""
        def agreed():
            seen = {member.status()["leader"] for member in self.members.values()}
            return seen.pop() if len(seen) == 1 and "" not in seen else None
        return wait_for("all have one leader", agreed)


class Client(threading.Thread):
    """Keeps some reads of one job waiting at a server, and records when each was answered: after
    the client had last read all replies, and before it got this one. So a client that runs late
    does not make a server seem too fast. It reconnects as soon as possible when the server is
    gone."""

    def __init__(self, member, window, job="j.1"):
        super().__init__(daemon=True)
        self.socket = member.socket
        self.export = f"a/job={job}".encode()
        self.window = window  # may be changed at any time; 0: sends no more requests
        self.completions = []  # the latest time at which each was answered
        self.earliest = []  # and the earliest
        self.is_ending = False
        self.lost = 0  # connections

    def run(self):
        while not self.is_ending:
            try:
                self.drive()
            except OSError:
                self.lost += 1
                time.sleep(0.005)

    def drive(self):
        client = socket.socket(socket.AF_UNIX)
        client.settimeout(STUCK)
        with client:
            client.connect(str(self.socket))
            enter(client, self.export)
            asked = request(READ, 0, 0, 512)
            waiting, kept = 0, 0
            looked = time.monotonic()  # all replies until then were read
            while not self.is_ending:
                more = max(self.window - waiting, 0)
                if more:
                    client.sendall(asked * more)
                    waiting += more
                if not waiting:
                    time.sleep(0.002)
                    continue
                if not select.select([client], [], [], STUCK)[0]:
                    self.fail()
                before = time.monotonic()
                kept += len(client.recv(1 << 16) or self.fail())
                done, kept = divmod(kept, REPLY)
                self.earliest += [looked] * done
                self.completions += [time.monotonic()] * done
                looked = before
                waiting -= done

    @staticmethod
    def fail():
        raise ConnectionError("the server has closed the connection")


class Load:
    """One client for each server; hot clients have many waiting reads, the others none."""

    def __init__(self, world, names=None, job="j.1"):
        self.clients = {name: Client(world.members[name], 0, job)
                        for name in names or world.members}

    def __enter__(self):
        for client in self.clients.values():
            client.start()
        return self

    def __exit__(self, *_):
        self.end()

    def end(self):
        for client in self.clients.values():
            client.is_ending = True
        for client in self.clients.values():
            # Does not wait for a client that waits for tokens.
            client.join(0.5)

    def heat(self, *names):
        """Only these clients send requests from now on."""
        for name, client in self.clients.items():
            client.window = WINDOW if name in names else 0

    def move(self, seconds, every):
        """The hot spot moves from server to server."""
        names = list(self.clients)
        end = time.monotonic() + seconds
        turn = 0
        while time.monotonic() < end:
            self.heat(names[turn % len(names)])
            time.sleep(max(min(every, end - time.monotonic()), 0))
            turn += 1

    def most(self, width, begin=0.0, end=float("inf")):
        """The maximum number of requests that were certainly answered in any window of so many
        seconds."""
        times = []
        for client in self.clients.values():
            count = len(client.completions)
            earliest = client.earliest[:count]
            latest = client.completions[:count]
            inside = slice(bisect.bisect_left(earliest, begin), bisect.bisect_right(latest, end))
            times.append((earliest[inside], latest[inside]))
        best = 0
        for start in sorted({at for earliest, _ in times for at in earliest}):
            best = max(best, sum(
                max(bisect.bisect_right(latest, start + width)
                    - bisect.bisect_left(earliest, start), 0) for earliest, latest in times))
        return best

    def completions(self, begin, end):
        return sorted(at for client in self.clients.values() for at in list(client.completions)
                      if begin <= at < end)


def take_precedence():
    """Gives this process and its children priority over other processes, if allowed, so that
    measured times are those of the servers."""
    with contextlib.suppress(PermissionError):
        os.nice(-10)


def bound(limit, width, servers=3):
    """The most requests that may be answered in a window of so many seconds: 2 % more than the
    limit over 5 s and 10 % over 0.5 s, the burst, which is 10 ms of the limit, and one token of
    each server."""
    return limit * width * {5: 1.02, 0.5: 1.10}[width] + limit / 100 + servers


def most(times, width):
    """The maximum number in any window of so many seconds."""
    best = first = 0
    for last, at in enumerate(times):
        while times[first] <= at - width:
            first += 1
        best = max(best, last - first + 1)
    return best


def longest_gap(times, begin, end):
    edges = [begin, *times, end]
    return max(after - before for before, after in zip(edges, edges[1:]))
