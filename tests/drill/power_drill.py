# SPDX-License-Identifier: Apache-2.0
"""A virtual machine loses its power under load, boots, and everything that was synced is verified.

The server runs in the guest (guest.py); its clients are outside. The disks of the guest are files
that lose unsynced data when QEMU dies (tests/clients/forgetful.cc), like a disk with a volatile
cache, and the page cache of the guest is lost too. Writers use FUA or flush now and then; an
administrator changes rules. Data acknowledged with FUA or before an acknowledged flush, and changes
in the journal, must exist after the next boot; other data may exist.
"""
import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import time

from drill import CannotRun
from guest import Guest, Machine, need, run as run_command
from kill_drill import RULES, Administrator, differences
from server import ROOT, STUCK
from writers import Region, Writer

MIB = 1 << 20
DISKS = (64 * MIB, 16 * MIB)     # the disk with the file system, and the exported one
BLOCKS = 1024                    # of a region
ALIVE = (0.3, 3.0)               # seconds from the start of the load to the cut
SYNCED = "a write that was acknowledged with FUA or flushed survives a power failure"
CHANGES = "an acknowledged rule or job size survives a power failure, and none is half applied"
FORGETFUL = ROOT / "build/release/tests/forgetful"


class Disk:
    """A file that loses unsynced data when it is opened again."""

    def __init__(self, folder, size):
        self.folder = folder
        self.size = size
        self.path = folder / "disk"

    def __enter__(self):
        self.folder.mkdir()
        lying = ["--ignore-sync"] if os.environ.get("WEIR_DRILL_LYING_DISK") else []
        self.process = subprocess.Popen(
            [FORGETFUL, *lying, str(self.size), self.folder, "-f", "-s"],
            stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + STUCK
        while not self.path.exists():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise CannotRun("the file system that forgets cannot be mounted; needs /dev/fuse")
            time.sleep(0.01)
        return self

    def __exit__(self, *_):
        subprocess.run(["fusermount3", "-u", "-z", self.folder], check=False)
        self.process.kill()
        self.process.wait(STUCK)

    def fill(self, image):
        with open(image, "rb") as source, open(self.path, "r+b") as disk:
            shutil.copyfileobj(source, disk, MIB)
            disk.flush()
            os.fsync(disk.fileno())


class Power:
    def __init__(self, drill, folder, disks):
        self.drill = drill
        self.folder = folder
        self.disks = disks
        self.machine = Machine(folder)
        # Half of them with FUA, half with flushes.
        self.regions = [Region(number, export, number // 2 * BLOCKS, BLOCKS)
                        for number, export in enumerate((b"file", b"device", b"file", b"device"))]
        self.known, self.pending = {}, []
        self.cuts = self.durable = self.changes = 0
        self.longest_boot = 0.0

    def make_file_system(self):
        image = self.folder / "image"
        with open(image, "wb") as file:
            file.truncate(DISKS[0])
        run_command(need("mkfs.ext4", "e2fsprogs"), "-q", "-F", image)
        self.disks[0].fill(image)
        image.unlink()

    def boot(self):
        return Guest(self.machine, self.folder, [disk.path for disk in self.disks])

    def once(self):
        with self.boot() as guest:
            self.longest_boot = max(self.longest_boot, guest.wait_ready())
            self.verify(guest)
            choose = self.drill.random
            writers = [Writer(region, guest.connect, choose.random(), keeps="synced",
                              fua=0 if region.number < 2 else 30,
                              flush=choose.randint(5, 40) if region.number < 2 else 0)
                       for region in self.regions]
            administrator = Administrator(guest, self.known, choose.random())
            for one in (*writers, administrator):
                one.start()
            time.sleep(choose.uniform(*ALIVE))
            guest.cut()
            for one in (*writers, administrator):
                one.join(STUCK)
        self.cuts += 1
        self.durable += sum(writer.durable for writer in writers)
        self.changes += administrator.changes
        self.pending = [administrator.pending] if administrator.pending else []
        for one in (*writers, administrator):
            self.drill.holds("requests are answered without errors", not one.error, one.error)

    def get(self, guest, path):
        status, _, text = guest.http("GET", path)
        assert status == 200, (path, status, text)
        return json.loads(text)

    def verify(self, guest):
        for region in self.regions:
            wrong, told = region.verify(guest.connect)
            self.drill.holds(SYNCED, not wrong, f"{wrong} blocks after cut {self.cuts}: {told}")
        there = {("rule", one["rule"]): one["rate"] for one in self.get(guest, RULES)
                 if one["rule"] != "default"}
        there |= {("job", one["job"]): one["nodes"] for one in self.get(guest, "/v1/jobs")}
        self.drill.holds(CHANGES, *differences(self.known, self.pending, there, self.cuts))
        self.known.clear()
        self.known.update(there)


def run(drill):
    if not FORGETFUL.exists():
        raise CannotRun(f"no {FORGETFUL}; run: ./dev build release")
    with contextlib.ExitStack() as stack:
        folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
        disks = [stack.enter_context(Disk(folder / f"disk{number}", size))
                 for number, size in enumerate(DISKS)]
        power = Power(drill, folder, disks)
        power.make_file_system()
        while (drill.goes_on() or power.cuts < 2) and len(drill.broken) < 10:
            power.once()
            drill.progress(f"{power.cuts} cuts, {power.durable:,} synced writes and flushes, "
                           f"{power.changes:,} changes")
        with power.boot() as guest:
            guest.wait_ready()
            power.verify(guest)
    drill.figure("power cuts", f"{power.cuts:,}")
    drill.figure("writes with FUA and flushes acknowledged, all checked", f"{power.durable:,}")
    drill.figure("rules and job sizes acknowledged, all checked", f"{power.changes:,}")
    drill.figure("longest boot until the server was ready", f"{power.longest_boot:.1f} s")
    drill.holds("the drill does something", power.durable and power.changes,
                (power.durable, power.changes))
