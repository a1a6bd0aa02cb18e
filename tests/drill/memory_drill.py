# SPDX-License-Identifier: Apache-2.0
"""Many connections, classes, jobs, rules and locks come and go; resident memory is bounded.

A cycle opens connections with separate jobs, moves payload of random sizes on all of them, starts
rules, sets sizes of jobs and takes locks; then all of it ends. Memory is measured at the peak of
each cycle and after it. The first cycles fill what is kept permanently: classes and jobs. After
them memory must not grow, apart from what the server reports: buffers that it keeps, and the usage
of the last two hours, which has a bound of its own.
"""
import concurrent.futures
import contextlib
import json
import os
import pathlib
import statistics
import subprocess
import tempfile
import time

import server as s
from remote import RELEASE, Remote, wait_for

MIB = 1 << 20
KIB = 1 << 10
MEMORY = 128 * MIB        # --memory
CONNECTIONS = 600
CONNECTION = 64 * KIB     # bytes of a connection in addition to payload
CLASSES = 1024            # --classes
CLASS = 4 * KIB           # of a class and its job
JOBS = 8192               # jobs whose counters are kept after they have ended
JOB = 328                 # bytes of such counters, with their place in the index
RULES = 100
LOCKS = 20
WARM = 3                  # cycles until classes and jobs have reached their bounds
HISTORY = 16 * MIB        # the usage of the last two hours, at most
# Growth of the second half of the cycles over the first. The waits of the last minute, for
# explaining delays, have their full size, 2 MiB, after 65 s; a leak of 500 bytes a connection is
# 4.3 MiB in the 30 cycles of a minute.
GROWTH = 3 * MIB
KEPT = 64 * MIB           # buffers that the server keeps, at most
PAYLOADS = tuple(4 * KIB << power for power in range(7))
BOUND = ("resident memory stays within --memory, 64 KiB for a connection, 4 KiB for a class and "
         "328 bytes for a job that has ended")
GROWS = "memory does not grow with time"
BACK = "memory is given back when connections, classes, jobs and locks have gone"


def growth(sizes):
    """Growth between the halves of the cycles, after permanent state is filled; medians, since one
    cycle may end in the middle of some work."""
    warm = sizes[WARM:]
    half = len(warm) // 2
    return statistics.median(warm[half:]) - statistics.median(warm[:half])


class Cycle:
    def __init__(self, server, number, locks, choose):
        self.server = server
        self.number = number
        self.locks = locks
        self.choose = choose

    def rules(self, command):
        for number in range(RULES):
            name = f"m{self.number}.{number}".replace(".", "_")
            text = f"start {name} jobid={{m.{self.number}.{number}}} rate=100000" \
                if command == "start" else f"stop {name}"
            status, _, answer = self.server.http(
                "POST", "/v1/services/ost_io/rules", json.dumps({"command": text}))
            assert status == 200, answer
            job = f"/v1/jobs/m.{self.number}.{number}"
            status, _, answer = self.server.http("PUT", job, '{"nodes": 3}') \
                if command == "start" else self.server.http("DELETE", job)
            assert status in (200, 201, 204), answer

    def open(self):
        clients = []
        for number in range(CONNECTIONS):
            client = self.server.connect()
            s.enter(client, f"a/job=m.{self.number}.{number}".encode())
            clients.append(client)
        return clients

    def move(self, clients):
        """Moves payload on all connections: writes lack a byte until all others have arrived, so
        that the server holds them all. Returns the memory at that time."""
        sizes = [self.choose.choice(PAYLOADS) for _ in clients]
        for client, size in zip(clients, sizes):
            client.sendall(s.request(s.WRITE, 1, 0, size, payload=bytes(size - 1)))
        height = self.server.memory()
        for client, size in zip(clients, sizes):
            client.sendall(b"\0" + s.request(s.READ, 2, 0, size))
        for client, size in zip(clients, sizes):
            assert s.replies(client, {1: 0, 2: size}) == {1: 0, 2: 0}
        return height

    def take_lock(self, number):
        return subprocess.run([RELEASE, "lock", "run", f"l{self.number}.{number}", "--", "true"],
                              env={**os.environ, "WEIR_LOCK_SERVER": self.locks},
                              capture_output=True, text=True, timeout=s.STUCK, check=False)

    def run(self):
        """Returns the peak memory."""
        self.rules("start")
        with contextlib.ExitStack() as stack:
            clients = [stack.enter_context(client) for client in self.open()]
            height = max(self.move(clients) for _ in range(3))
            with concurrent.futures.ThreadPoolExecutor(4) as pool:
                for done in pool.map(self.take_lock, range(LOCKS)):
                    assert done.returncode == 0, done.stderr
            height = max(height, self.server.memory())
        self.rules("stop")
        return height


def settled(server):
    """Memory after the connections of a cycle have ended, and what the server reports of it."""
    wait_for("the connections are closed",
             lambda: server.get("/v1/status")["connections"] == 0)
    time.sleep(0.2)
    return server.memory(), server.get("/v1/status")["memory"]


def run(drill):
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        locks = f"unix:{folder}/locks"
        server = stack.enter_context(Remote(
            "--export", "a=memory:16MiB", "--memory", f"{MEMORY}", "--classes", f"{CLASSES}",
            "--journal", folder / "journal", "--lock", locks, "--lock-state", folder / "state",
            binary=RELEASE))
        server.lctl("set_param", "obdfilter.a.job_cleanup_interval=5")
        base = server.memory()
        heights, after, others, histories = [], [], [], []
        while drill.goes_on() or len(after) < WARM + 4:
            heights.append(Cycle(server, len(after), locks, drill.random).run())
            size, memory = settled(server)
            kept, history = memory["kept"], memory["history"]
            after.append(size)
            others.append(size - kept - history)
            histories.append(history)
            drill.progress(f"{len(after)} cycles, {size / MIB:.1f} MiB after the last one, "
                           f"{kept / MIB:.1f} MiB of it buffers, {history / MIB:.1f} MiB history")
        for job in server.get("/v1/jobs"):
            drill.holds(BACK, False, f"the size of {job['job']} is still there")
        permanent = CLASSES * CLASS + min(JOBS, CONNECTIONS * len(after)) * JOB
        bound = MEMORY + CONNECTIONS * CONNECTION + permanent
        drill.figure("cycles", len(after))
        drill.figure("connections and jobs", f"{CONNECTIONS * len(after):,}")
        drill.figure("rules and job sizes", f"{2 * RULES * len(after):,}")
        drill.figure("locks", f"{LOCKS * len(after):,}")
        drill.figure("memory at the start", f"{base / MIB:.1f} MiB")
        drill.at_most(BOUND, "most at the height of a cycle, above the start",
                      (max(heights) - base) / MIB, bound / MIB, "MiB")
        drill.at_most(GROWS, "growth from the first half of the cycles to the second",
                      growth(others) / MIB, GROWTH / MIB, "MiB")
        drill.at_most(BACK, "memory after all without history, above the start",
                      (after[-1] - histories[-1] - base) / MIB,
                      (KEPT + 16 * MIB + GROWTH) / MIB, "MiB")
        drill.at_most(BOUND, "history of the last two hours", max(histories) / MIB,
                      HISTORY / MIB, "MiB")
        drill.at_most(BACK, "of it without buffers and history",
                      (others[-1] - base) / MIB, (16 * MIB + permanent) / MIB, "MiB")
