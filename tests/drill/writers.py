# SPDX-License-Identifier: Apache-2.0
"""Clients that write, record what must exist after a crash, and verify it.

A region is a run of blocks of one export with one writer. Every write has a serial number, which is
repeated in its content, so each sector shows which write it is from. Each block has:

    floor   the newest write that must survive: a sector with an older one has lost it
    last    the newest write that was sent: a sector cannot have a newer one
    zeroes  the serials in between that wrote zeroes

Which writes raise the floor depends on the crash: after kill -9 every acknowledged write, after a
power failure only those acknowledged with FUA or before an acknowledged flush was sent.
"""
import random
import socket
import struct
import threading

from server import FLUSH, READ, STUCK, WRITE, enter, receive, request, simple_reply

BLOCK = 4096
SECTOR = 512
WRITE_ZEROES = 6
FUA, NO_HOLE = 1, 2
WINDOW = 8            # requests in flight
RUN_MAX = 4           # maximum blocks of one write
CHUNK = 256           # blocks that are read at once to verify


def pattern(region, block, serial):
    """One sector."""
    return struct.pack(">QQQQ", 0x5745495244524c4c, region, block, serial) * (SECTOR // 32)


class Region:
    """A region of blocks. Its records outlive servers and writers."""

    def __init__(self, number, export, first, blocks):
        self.number = number
        self.export = export
        self.first = first
        self.blocks = blocks
        self.serial = 0
        self.floor = [0] * blocks
        self.last = [0] * blocks
        self.acknowledged = [0] * blocks
        self.zeroes = [[0] for _ in range(blocks)]

    def sent(self, block, count, serial, is_zero):
        for at in range(block, block + count):
            self.last[at] = serial
            if is_zero:
                self.zeroes[at].append(serial)

    def must_keep(self, block, serial):
        if serial <= self.floor[block]:
            return
        self.floor[block] = serial
        # Zeroes below the floor are overwritten; only the newest one at or below it counts.
        self.zeroes[block] = [one for one in self.zeroes[block] if one >= serial]

    def wrong_sectors(self, block, data):
        """The errors in the content of one block, as text."""
        for at in range(0, BLOCK, SECTOR):
            sector = data[at:at + SECTOR]
            if not any(sector):
                if not self.zeroes[block]:
                    yield f"sector {at // SECTOR} is zero, write {self.floor[block]} is lost"
                continue
            serial = struct.unpack_from(">Q", sector, 24)[0]
            if sector != pattern(self.number, block, serial):
                yield f"sector {at // SECTOR} holds what was never written"
            elif not self.floor[block] <= serial <= self.last[block]:
                yield (f"sector {at // SECTOR} holds write {serial}, not one of "
                       f"{self.floor[block]}..{self.last[block]}")

    def verify(self, connect, limit=3):
        """After a crash: the number of wrong blocks, and some descriptions. connect() returns a
        plain socket."""
        # Acknowledged data that was not synced may be lost, so no later flush makes it durable.
        self.acknowledged = list(self.floor)
        wrong, told = 0, []
        with connect() as client:
            enter(client, self.export)
            for begin in range(0, self.blocks, CHUNK):
                count = min(CHUNK, self.blocks - begin)
                client.sendall(request(READ, 0, (self.first + begin) * BLOCK, count * BLOCK))
                error, _, data = simple_reply(client, count * BLOCK)
                assert error == 0, f"reading {self.export}: error {error}"
                for block in range(begin, begin + count):
                    at = (block - begin) * BLOCK
                    faults = list(self.wrong_sectors(block, data[at:at + BLOCK]))
                    wrong += bool(faults)
                    if faults and len(told) < limit:
                        told.append(f"{self.export.decode()} block {self.first + block}: "
                                    f"{faults[0]}")
        return wrong, told


class Writer(threading.Thread):
    """Writes to its region until the connection ends.

    keeps   "all" if every acknowledged write must survive, otherwise "synced"
    fua     percentage of writes with FUA
    flush   a flush after so many requests, 0 for never
    """

    def __init__(self, region, connect, seed, keeps="all", fua=0, flush=0):
        super().__init__(daemon=True)
        self.region = region
        self.connect = connect
        self.random = random.Random(seed)
        self.keeps = keeps
        self.fua = fua
        self.flush = flush
        self.durable = 0   # writes that must survive
        self.error = None  # an error that no crash explains
        self.in_flight = {}
        self.busy = set()

    def run(self):
        try:
            with self.connect() as client:
                client.settimeout(STUCK)
                enter(client, self.region.export)
                count = 0
                while True:
                    while len(self.in_flight) < WINDOW:
                        count += 1
                        client.sendall(self.next_flush(count) if self.flush
                                       and count % self.flush == 0 else self.next_write(count))
                    self.answered(*struct.unpack(">IIQ", receive(client, 16)))
        except socket.timeout:
            self.error = f"no reply within {STUCK} s"
        except (ConnectionError, OSError):
            pass  # the crash

    def next_flush(self, cookie):
        self.in_flight[cookie] = ("flush", list(self.region.acknowledged))
        return request(FLUSH, cookie)

    def next_write(self, cookie):
        region = self.region
        while True:  # blocks in flight are skipped: their order would be unknown
            count = self.random.randint(1, RUN_MAX)
            block = self.random.randrange(region.blocks - count + 1)
            blocks = range(block, block + count)
            if self.busy.isdisjoint(blocks):
                break
        region.serial += 1
        serial = region.serial
        is_zero = self.random.randrange(10) == 0
        flags = FUA if self.random.randrange(100) < self.fua else 0
        region.sent(block, count, serial, is_zero)
        self.busy.update(blocks)
        self.in_flight[cookie] = ("write", blocks, serial, flags & FUA)
        where = (region.first + block) * BLOCK
        if is_zero:
            flags |= self.random.choice((0, NO_HOLE))
            return request(WRITE_ZEROES, cookie, where, count * BLOCK, flags)
        payload = b"".join(pattern(region.number, at, serial) * (BLOCK // SECTOR) for at in blocks)
        return request(WRITE, cookie, where, count * BLOCK, flags, payload)

    def answered(self, magic, error, cookie):
        if magic != 0x67446698 or cookie not in self.in_flight or error:
            self.error = f"reply {magic:#x} with error {error} for cookie {cookie}"
            raise ConnectionError(self.error)
        kind, *rest = self.in_flight.pop(cookie)
        if kind == "flush":
            for block, serial in enumerate(rest[0]):
                self.region.must_keep(block, serial)
            self.durable += 1
            return
        blocks, serial, has_fua = rest
        self.busy.difference_update(blocks)
        for block in blocks:
            self.region.acknowledged[block] = serial
            if self.keeps == "all" or has_fua:
                self.region.must_keep(block, serial)
        self.durable += bool(self.keeps == "all" or has_fua)
