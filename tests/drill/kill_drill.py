# SPDX-License-Identifier: Apache-2.0
"""kill -9 anywhere, and then every acknowledged write, rule, job size and fence is verified.

A server serves two files, one of them with direct I/O, keeps a journal and the state of a lock
service. Writers write, an administrator starts, changes and stops rules and sets sizes of jobs, and
a client repeatedly takes a lock. The server is killed in the middle of it and restarted at once.
Everything acknowledged must then exist; changes in progress may exist, but completely.
"""
import contextlib
import json
import os
import pathlib
import random
import subprocess
import tempfile
import threading
import time

from remote import RELEASE, STUCK, Remote
from writers import BLOCK, Region, Writer

RULES = "/v1/services/ost_io/rules"
BLOCKS = 1024              # of each region
REGIONS = 2                # of each file
ALIVE = (0.2, 1.5)         # seconds from the start of the load to the kill,
LONG = (2.0, 4.0)          # or now and then, so that the lock service outlives its grace
CAPACITY = "4000"          # requests a second
READY = 5.0                # maximum seconds from the start to the first client
WRITES = "an acknowledged write survives kill -9"
CHANGES = "an acknowledged rule or job size survives kill -9, and none is half applied"
FENCES = "fences of a lock never go backwards"
STARTS = "a server starts again at once after kill -9"
RECORDS = "records of lending survive kill -9 and sum to zero"


class Administrator(threading.Thread):
    """Changes rules and sizes of jobs through the API until the server is gone. `known` holds
    acknowledged values by (kind, name), None for objects that do not exist; `pending` the
    unanswered change."""

    def __init__(self, server, known, seed):
        super().__init__(daemon=True)
        self.server = server
        self.known = known
        self.random = random.Random(seed)
        self.pending = None
        self.changes = 0
        self.error = None

    def run(self):
        with contextlib.suppress(OSError, ValueError, ConnectionError):
            while True:
                self.change()

    def change(self):
        kind = self.random.choice(("rule", "rule", "job"))
        name = f"{kind[0]}{self.random.randrange(40)}"
        old = self.known.get((kind, name))
        new = None if old is not None and self.random.randrange(3) == 0 \
            else self.random.randint(1, 1 << 14)
        if kind == "rule":
            word = "stop" if new is None else "start" if old is None else "change"
            limits = "" if new is None else \
                f" jobid={{{name}}} rate={new}" if old is None else f" rate={new}"
            order = ("POST", RULES, json.dumps({"command": f"{word} {name}{limits}"}))
        elif new is None:
            order = ("DELETE", f"/v1/jobs/{name}", None)
        else:
            order = ("PUT", f"/v1/jobs/{name}", json.dumps({"nodes": new}))
        self.pending = (kind, name), old, new
        status, _, answer = self.server.http(*order)
        if status not in (200, 201, 204):
            self.error = f"{order}: {status} {answer}"
            raise ConnectionError(self.error)
        self.known[kind, name] = new
        self.pending = None
        self.changes += 1


def differences(known, pending, there, crashes):
    """Whether the state is the acknowledged one, with or without the change in progress; and the
    differences."""
    allowed = {key: {value} for key, value in known.items()}
    for key, old, new in pending:
        allowed.setdefault(key, {old}).add(new)
    wrong = [f"{' '.join(key)} is {there.get(key)}, not {sorted(map(str, values))}"
             for key, values in allowed.items() if there.get(key) not in values]
    wrong += [f"{' '.join(key)} is {value}, and was never set"
              for key, value in there.items() if key not in allowed]
    return not wrong, f"{len(wrong)} after crash {crashes}: {wrong[:3]}"


class LockTaker(threading.Thread):
    """Repeatedly takes one lock across all restarts and records its fences."""

    def __init__(self, address):
        super().__init__(daemon=True)
        self.address = address
        self.fences = []
        self.is_ending = False

    def run(self):
        env = {**os.environ, "WEIR_LOCK_SERVER": self.address}
        while not self.is_ending:
            with contextlib.suppress(subprocess.TimeoutExpired):
                done = subprocess.run(
                    [RELEASE, "lock", "run", "res", "--", "sh", "-c", "echo $WEIR_LOCK_FENCE"],
                    env=env, capture_output=True, text=True, timeout=5, check=False)
                if done.returncode == 0 and done.stdout.strip():
                    self.fences.append(int(done.stdout.split()[-1]))
            time.sleep(0.05)


class Kill:
    def __init__(self, drill, folder):
        self.drill = drill
        self.folder = pathlib.Path(folder)
        self.known = {}
        self.pending = []
        # Each writer is a job, and together they exceed the capacity: so they lend and borrow.
        self.regions = [Region(number, b"%s/job=w%d" % (export, number), number // 2 * BLOCKS,
                               BLOCKS)
                        for number, export in enumerate((b"plain", b"direct") * REGIONS)]
        self.kills = self.durable = self.changes = self.records = 0
        self.slowest = 0.0
        self.locks = f"unix:{folder}/locks"

    def server(self):
        size = REGIONS * BLOCKS * BLOCK * 2
        return Remote(
            "--export", f"plain=file:{self.folder}/plain,size={size}",
            "--export", f"direct=file:{self.folder}/direct,size={size},direct",
            "--capacity", CAPACITY, "--journal", self.folder / "journal",
            "--lock", self.locks, "--lock-state", self.folder / "lock-state", "--lock-lease", "1s",
            binary=RELEASE)

    def once(self):
        begun = time.monotonic()
        with self.server() as server:
            self.slowest = max(self.slowest, time.monotonic() - begun)
            self.verify(server)
            choose = self.drill.random
            administrator = Administrator(server, self.known, choose.random())
            writers = [Writer(region, server.connect, choose.random())
                       for region in self.regions]
            for one in (*writers, administrator):
                one.start()
            time.sleep(choose.uniform(*choose.choice((ALIVE, ALIVE, ALIVE, LONG))))
            server.kill()
            for one in (*writers, administrator):
                one.join(STUCK)
        self.kills += 1
        self.verify_records()
        self.durable += sum(writer.durable for writer in writers)
        self.changes += administrator.changes
        self.pending = [administrator.pending] if administrator.pending else []
        for one in (*writers, administrator):
            self.drill.holds("requests are answered without errors", not one.error, one.error)

    def verify(self, server):
        for region in self.regions:
            wrong, told = region.verify(server.connect)
            self.drill.holds(WRITES, not wrong, f"{wrong} blocks after kill {self.kills}: {told}")
        there = {("rule", one["rule"]): one["rate"] for one in server.get(RULES)
                 if one["rule"] != "default"}
        there |= {("job", one["job"]): one["nodes"] for one in server.get("/v1/jobs")}
        self.drill.holds(CHANGES, *differences(self.known, self.pending, there, self.kills))
        self.known.clear()
        self.known.update(there)
        self.verify_sizes(server, there)
        self.drill.holds(RECORDS, "damaged" not in server.log, server.log)

    def verify_records(self):
        """Compares records with the last checkpoint: lines "NUMBER account =JOB RECORD ..."."""
        path = self.folder / "journal.records"
        lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
        records = [line.split()[2:4] for line in lines if line.split()[1:2] == ["account"]]
        self.records = max(self.records, sum(int(record) != 0 for _, record in records))
        self.drill.holds(RECORDS, sum(int(record) for _, record in records) == 0, records)


    def verify_sizes(self, server, there):
        """Sizes are not only listed: an active job counts with its size."""
        sizes = {name: value for (kind, name), value in there.items() if kind == "job"}
        asked = self.drill.random.sample(sorted(sizes), min(3, len(sizes)))
        for name in asked:
            server.read(name, 1, export="plain")
        found, end = {}, time.monotonic() + READY
        while not found.keys() >= set(asked) and time.monotonic() < end:
            found = {one["job"]: one["nodes"] for one in server.get("/v1/services/ost_io/jobs")}
        wrong = [f"{name} counts {found.get(name)} nodes, not {sizes[name]}" for name in asked
                 if found.get(name) != sizes[name]]
        self.drill.holds(CHANGES, not wrong, f"after kill {self.kills}: {wrong}")


def run(drill):
    with tempfile.TemporaryDirectory() as folder:
        kill = Kill(drill, folder)
        taker = LockTaker(kill.locks)
        taker.start()
        while drill.goes_on() and len(drill.broken) < 10:
            try:
                kill.once()
            except AssertionError as error:
                if "not ready" not in str(error):
                    raise
                drill.holds(STARTS, False, error)
                break
            drill.progress(f"{kill.kills} kills, {kill.durable:,} acknowledged writes, "
                           f"{kill.changes:,} changes, {len(taker.fences)} fences")
        taker.is_ending = True
        taker.join(STUCK)
        with kill.server() as server:
            kill.verify(server)
    fences = taker.fences
    backwards = [pair for pair in zip(fences, fences[1:]) if pair[0] >= pair[1]]
    drill.holds(FENCES, not backwards, backwards[:3])
    drill.figure("kills", f"{kill.kills:,}")
    drill.figure("acknowledged writes, all checked", f"{kill.durable:,}")
    drill.figure("acknowledged rules and job sizes, all checked", f"{kill.changes:,}")
    drill.figure("fences taken", f"{len(fences):,}")
    drill.figure("most jobs with a record", kill.records)
    drill.holds("the drill does something", kill.durable and kill.changes and fences,
                (kill.durable, kill.changes, len(fences)))
    drill.at_most(STARTS, "longest start after a kill", kill.slowest, READY, "s")
