# SPDX-License-Identifier: Apache-2.0
"""Attacks on a server, each beside a client that is measured.

Every attack of attacks.py runs for some seconds. Meanwhile a neighbour (neighbour.py) writes and
reads, an administrator queries the status over the Unix socket, and the resident memory is
monitored. Between attacks random steps of libnbd are compared with a model of the disk, and servers
whose log cannot be written are attacked too.
"""
import contextlib
import multiprocessing
import pathlib
import random
import tempfile
import time

import attacks
import server as s
from neighbour import Neighbour, take_precedence
from remote import RELEASE, Remote
from steps import SIZE, Disk

MIB = 1 << 20
MEMORY = 128 * MIB         # --memory
CONNECTION = 64 * 1024     # bytes of a connection in addition to payload
CONNECTIONS = 700          # the maximum that an attack opens
LARGE = 64 * MIB           # the maximum that attacks write to the large export, 1 MiB at a time
CLASSES = 8192 * 4096      # bytes of classes and jobs, for the default number of them
KEPT = 64 * MIB            # buffers that the server keeps, at most
HUGE_PAGES = pathlib.Path("/sys/kernel/mm/transparent_hugepage/enabled")
SECONDS = 3                # of an attack
STALL_MS = 500             # the maximum time that the neighbour may wait for one reply
P99_MS = 50
SHARE = 0.10               # of its rate without an attack that the neighbour still gets
STATUS_S = 2
SETTLE = 10                # seconds until the memory of an attack is returned
ALONE = "a client that misbehaves harms only itself"
BOUND = "resident memory stays within --memory, 64 KiB for a connection and 4 KiB for a class"
MODEL = "what is read is what was written"
LOG = "a log that cannot be written does not end or stop the server"
ADMIN = "the administrator's socket answers whatever clients do"
LOGS = {"full": 'exec "$@" 2>/dev/full', "closed": 'exec "$@" 2>&-'}


def in_large():
    """Memory of the large export: twice as much if the kernel allocates 2 MiB for each MiB."""
    with contextlib.suppress(OSError):
        if "[always]" in HUGE_PAGES.read_text(encoding="utf-8"):
            return 2 * LARGE
    return LARGE


def run_attack(attack, target, seed):
    take_precedence(0)
    with contextlib.suppress(ConnectionError, KeyboardInterrupt):
        attack(target, random.Random(seed))


class Attacker:
    """An attack in its own process, while the block lasts."""

    def __init__(self, attack, target, seed):
        self.process = multiprocessing.Process(target=run_attack, daemon=True,
                                               args=(attack, target, seed))

    def __enter__(self):
        self.process.start()
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.join()


class Hostile:
    def __init__(self, drill, server, neighbour):
        self.drill = drill
        self.server = server
        self.neighbour = neighbour
        self.target = attacks.Target(str(server.socket), server.control_port)
        time.sleep(1)
        neighbour.take()
        time.sleep(2)
        self.alone = neighbour.take()
        self.base = server.memory()
        self.worst = {}  # name: [attacks, p99, longest, share, bytes, seconds of an answer]

    def once(self, attack):
        name = attack.__name__.replace("_", " ")
        self.target.served += 1
        self.neighbour.take()
        before = peak = self.server.memory()
        slowest, refused = 0.0, ""
        with Attacker(attack, self.target, self.drill.random.random()) as attacker:
            end = time.monotonic() + SECONDS
            while time.monotonic() < end:
                asked = time.monotonic()
                try:
                    self.server.get("/v1/status")
                except (OSError, AssertionError) as error:
                    refused = refused or f"{type(error).__name__}: {error}"
                slowest = max(slowest, time.monotonic() - asked)
                peak = max(peak, self.server.memory())
                time.sleep(0.05)
            ended = attacker.process.exitcode
        self.drill.holds("the drill does something", ended in (None, 0),
                         f"{name}: the attack ended with {ended}")
        self.drill.holds(ADMIN, not refused, f"{name}: {refused}")
        service = self.neighbour.take()
        share = service.per_s / max(self.alone.per_s, 1)
        worst = self.worst.setdefault(name, [0, 0.0, 0.0, 1.0, 0, 0.0])
        self.worst[name] = [worst[0] + 1, max(worst[1], service.p99_ms),
                            max(worst[2], service.longest_ms), min(worst[3], share),
                            max(worst[4], peak - before), max(worst[5], slowest)]
        self.drill.holds(ALONE, not service.wrong, f"{name}: {service.wrong}")
        return not service.wrong

    def judge(self):
        """The worst results of every attack, with their limits."""
        bound = MEMORY + CONNECTIONS * CONNECTION + CLASSES + in_large()
        for name, (count, p99, longest, share, grown, slowest) in self.worst.items():
            self.drill.figure(f"{name}: attacks", count)
            self.drill.at_most(ALONE, f"{name}: neighbour's p99", p99, P99_MS, "ms")
            self.drill.at_most(ALONE, f"{name}: neighbour's longest wait", longest, STALL_MS, "ms")
            self.drill.figure(f"{name}: neighbour's throughput", f"{100 * share:.0f} %",
                              f">= {100 * SHARE:.0f} %")
            self.drill.holds(ALONE, share >= SHARE,
                             f"{name}: the neighbour had {100 * share:.1f} % of its throughput")
            self.drill.at_most(BOUND, f"{name}: memory grew by", grown / MIB, bound / MIB, "MiB")
            self.drill.at_most(ADMIN, f"{name}: longest answer to status", slowest, STATUS_S, "s")

    def settles(self):
        """Memory after everything has ended."""
        end = time.monotonic() + SETTLE
        allowed = self.base + KEPT + CLASSES + in_large()
        while time.monotonic() < end and self.server.memory() > allowed:
            time.sleep(0.1)
        self.drill.at_most(BOUND, "memory after all attacks, above the start",
                           (self.server.memory() - self.base) / MIB, (allowed - self.base) / MIB,
                           "MiB")


def random_steps(drill, disks, seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        for name, disk in disks.items():
            wrong = disk.step()
            if not drill.holds(MODEL, not wrong, f"{name}, step {disk.steps}: {wrong}"):
                return


def unwritable_logs(drill):
    """The server continues to serve, and stops as usual."""
    for name, script in LOGS.items():
        try:
            with s.Server("--export", "a=memory:1MiB", binary=RELEASE,
                          prefix=("sh", "-c", script, "sh")) as server:
                for _ in range(20):
                    with server.connect() as client, contextlib.suppress(OSError):
                        s.enter(client)
                        client.sendall(b"\0" * 28)
                        s.is_closed(client)
                with server.connect() as client:
                    s.enter(client)
                    client.sendall(s.request(s.WRITE, 1, 0, 4, payload=b"well"))
                    drill.holds(LOG, s.simple_reply(client) == (0, 1, b""), f"log is {name}")
        except (AssertionError, OSError) as error:
            drill.holds(LOG, False, f"log is {name}: {error}; the server's exit status is "
                                    f"{server.process.poll()}")


def run(drill):
    take_precedence(-5)
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        (folder / "token").write_text("a-token-of-this-drill-only", encoding="utf-8")
        (folder / "token").chmod(0o600)
        server = stack.enter_context(Remote(
            "--export", "a=memory:16MiB", "--export", "large=memory:100GiB",
            "--export", f"file=file:{folder}/file,size=64MiB", "--export", f"steps=memory:{SIZE}",
            "--export", f"steps-file=file:{folder}/steps,size={SIZE}",
            "--export", f"steps-direct=file:{folder}/direct,size={SIZE},direct",
            "--memory", f"{MEMORY}", "--control-tcp", "127.0.0.1:0", "--control-token",
            folder / "token", binary=RELEASE))
        neighbour = stack.enter_context(Neighbour(server.socket, b"a/job=neighbour"))
        hostile = Hostile(drill, server, neighbour)
        disks = {name: Disk(server.uri(name), drill.random)
                 for name in ("steps", "steps-file", "steps-direct")}
        rounds = 0
        is_well = True
        while drill.goes_on() and is_well:
            rounds += 1
            unwritable_logs(drill)
            for attack in drill.random.sample(attacks.ALL, len(attacks.ALL)):
                is_well = is_well and hostile.once(attack)
                drill.progress(f"round {rounds}, {attack.__name__.replace('_', ' ')}")
                if not is_well or (rounds > 1 and not drill.goes_on()):
                    break
                random_steps(drill, disks, 1)
        drill.figure("neighbour alone: requests a second", f"{hostile.alone.per_s:,.0f}")
        drill.figure("neighbour alone: p99", f"{hostile.alone.p99_ms:.3g} ms")
        hostile.judge()
        drill.figure("random steps compared with the model",
                     f"{sum(disk.steps for disk in disks.values()):,}")
        for disk in disks.values():
            disk.close()
        if is_well:
            hostile.settles()
