# SPDX-License-Identifier: Apache-2.0
"""Data that was acknowledged as durable exists after the server was killed.

The store is a file system (forgetful.cc) that loses data that was not synced when the server dies.
Clients write all the time: one with FUA, one that flushes now and then, fio with checksums in its
blocks, and another fio as additional load. After each kill all durable data is read back, by the
clients themselves and by fio --verify_only. On a store that acknowledges a sync and loses the data
anyway, the same check must find the loss.
"""
import pathlib
import random
import subprocess
import threading
import time
import unittest

import nbd

import server as s
from forgetful import Forgetful
from server import STUCK, Server

BINARY = s.RELEASE if pathlib.Path(s.RELEASE).exists() else s.WEIR
KILLS = 50
BLOCK = 4096
MIB = 1 << 20
FIO = 4 * MIB, 2 * MIB       # where fio writes data that it verifies
NOISE = 8 * MIB, 8 * MIB     # where another one only writes


class Writer(threading.Thread):
    """A client that writes blocks of its region until the server is gone, and records what each
    block may contain: the last durable value, or any value written after it."""

    def __init__(self, server, region, flags, flush_every, blocks):
        super().__init__()
        self.uri = server.uri("a")
        self.first = region // BLOCK
        self.flags = flags
        self.flush_every = flush_every
        self.blocks = blocks  # block: values it may hold, the durable one first
        self.random = random.Random(region)
        self.durable = 0      # durable writes

    def run(self):
        handle = nbd.NBD()
        handle.connect_uri(self.uri)
        pending = set()
        try:
            for count in range(1 << 30):
                block = self.first + self.random.randrange(64)
                value = self.random.getrandbits(64).to_bytes(8, "little") * (BLOCK // 8)
                self.blocks.setdefault(block, [bytes(BLOCK)]).append(value)
                handle.pwrite(value, block * BLOCK, self.flags)
                pending.add(block)
                if self.flush_every and count % self.flush_every == self.flush_every - 1:
                    handle.flush()
                if not self.flush_every or count % self.flush_every == self.flush_every - 1:
                    for one in pending:
                        self.blocks[one] = self.blocks[one][-1:]
                    self.durable += len(pending)
                    pending.clear()
        except nbd.Error:
            pass  # the server was killed


def fio(server, region, name, *options):
    offset, size = region
    return ["fio", "--ioengine=nbd", "--thread", f"--name={name}", f"--uri={server.uri('a')}",
            "--rw=randwrite", f"--bs={BLOCK}", f"--offset={offset}", f"--size={size}",
            "--iodepth=8", *options]


def verified(number):
    return ["--verify=crc32c", "--verify_fatal=1", f"--randseed={number}", "--io_size=256k",
            "--do_verify=0", "--end_fsync=1"]


class Kill:
    """Repeatedly kills a server that serves a forgetful disk."""

    def __init__(self, disk):
        self.disk = disk
        self.random = random.Random(1)
        self.regions = {0: (nbd.CMD_FLAG_FUA, 0), MIB: (0, 8)}
        self.blocks = {region: {} for region in self.regions}
        self.durable = 0

    def serve(self):
        return Server("--export", f"a=file:{self.disk}", binary=BINARY)

    def once(self, number):
        """Returns all errors found afterwards."""
        with self.serve() as server:
            writers = [Writer(server, region, *how, self.blocks[region])
                       for region, how in self.regions.items()]
            noise = subprocess.Popen(fio(server, NOISE, "noise", "--fsync=32", "--time_based",
                                         "--runtime=60", "--rate_iops=2000"),
                                     stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            try:
                for writer in writers:
                    writer.start()
                subprocess.run(fio(server, FIO, "kept", *verified(number)), timeout=STUCK,
                               stdout=subprocess.DEVNULL, check=True)
                deadline = time.monotonic() + STUCK
                while any(writer.durable < 10 for writer in writers):
                    assert time.monotonic() < deadline, "nothing gets durable"
                    time.sleep(0.01)
                time.sleep(self.random.random() / 20)  # at any moment
            finally:
                server.kill()
                noise.kill()  # fio may wait for ever for replies
                noise.wait(STUCK)
                for writer in writers:
                    writer.join()
        self.durable += sum(writer.durable for writer in writers)
        return self.lost(number)

    def lost(self, number):
        wrong = []
        with self.serve() as server:
            handle = nbd.NBD()
            handle.connect_uri(server.uri("a"))
            for region, blocks in self.blocks.items():
                lost = 0
                for block, values in blocks.items():
                    found = bytes(handle.pread(BLOCK, block * BLOCK))
                    lost += found not in values
                    blocks[block] = [found]  # the expected value from now on
                if lost:
                    wrong.append(f"region {region}: {lost} blocks lost what was durable")
            handle.shutdown()
            done = subprocess.run(fio(server, FIO, "kept", *verified(number), "--verify_only",
                                      "--do_verify=1"), capture_output=True, text=True,
                                  timeout=STUCK, check=False)
            if done.returncode != 0:
                wrong.append(f"fio --verify_only: {done.stderr or done.stdout}")
        return wrong


class Durability(unittest.TestCase):
    def test_what_was_synced_survives_fifty_kills(self):
        with Forgetful() as disk:
            kill = Kill(disk.disk)
            for number in range(1, KILLS + 1):
                self.assertEqual(kill.once(number), [], f"kill {number}")
        self.assertGreater(kill.durable, 10 * KILLS)

    def test_a_store_that_ignores_syncs_is_found_out(self):
        with Forgetful("--ignore-sync") as disk:
            kill = Kill(disk.disk)
            wrong = [one for number in range(1, 4) for one in kill.once(number)]
        self.assertTrue(any(one.startswith("fio --verify_only") for one in wrong), wrong)
        for region in kill.regions:
            self.assertTrue(any(one.startswith(f"region {region}:") for one in wrong), wrong)


if __name__ == "__main__":
    unittest.main()
