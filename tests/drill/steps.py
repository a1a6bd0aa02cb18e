# SPDX-License-Identifier: Apache-2.0
"""Random steps of libnbd, compared with a model of the disk: reads return the written data.

Each Disk is one export and a copy of its expected content. Requests have any offset and length that
the export's block size allows, and any flags. A trim may leave old bytes or zeroes; what is read
after it must not change.
"""
import nbd

SIZE = 4 << 20
PIECE = 512  # bytes that are compared at once


class Disk:
    def __init__(self, uri, choose):
        self.choose = choose
        self.handle = nbd.NBD()
        self.handle.add_meta_context(nbd.CONTEXT_BASE_ALLOCATION)
        self.handle.connect_uri(uri)
        self.unit = max(self.handle.get_block_size(nbd.SIZE_MINIMUM), 1)
        self.model = bytearray(self.handle.pread(SIZE, 0))
        self.steps = 0

    def place(self):
        """An offset and a length, mostly short."""
        length = self.choose.choice((1, 511, 512, 4096, 4097, 65536, 100_000, 1 << 20))
        length = max(self.unit, self.choose.randint(1, length) // self.unit * self.unit)
        return self.choose.randrange((SIZE - length) // self.unit + 1) * self.unit, length

    def step(self):
        """Returns the error found afterwards, if any."""
        self.steps += 1
        at, length = self.place()
        fua = self.choose.choice((0, nbd.CMD_FLAG_FUA))
        kind = self.choose.randrange(10)
        if kind < 3:
            data = self.choose.randbytes(length)
            self.handle.pwrite(data, at, fua)
            self.model[at:at + length] = data
        elif kind < 6:
            return self.compare(at, length)
        elif kind == 6:
            self.handle.zero(length, at, fua | self.choose.choice((0, nbd.CMD_FLAG_NO_HOLE)))
            self.model[at:at + length] = bytes(length)
        elif kind == 7:
            self.handle.trim(length, at, fua)
            return self.adopt(at, length)
        elif kind == 8:
            self.choose.choice((self.handle.flush, lambda: self.handle.cache(length, at)))()
        else:
            return self.check_extents(at, length)
        return None

    def compare(self, at, length):
        if self.handle.pread(length, at) != self.model[at:at + length]:
            return f"{length} bytes at {at} are not what was written"
        return None

    def adopt(self, at, length):
        found = self.handle.pread(length, at)
        for begin in range(0, length, PIECE):
            new, old = found[begin:begin + PIECE], self.model[at + begin:at + begin + PIECE]
            old = old[:len(new)]
            if new in (old, bytes(len(new))):
                continue
            for i, (one, other) in enumerate(zip(new, old)):
                if one not in (0, other):
                    return f"a trim of {length} at {at} made other bytes at {at + begin + i}"
        self.model[at:at + length] = found
        return None

    def check_extents(self, at, length):
        """Extents that are reported as zero must be zero."""
        entries = []
        self.handle.block_status(length, at,
                                 lambda _name, _at, extents, _error: entries.extend(extents))
        if not entries:
            return f"no extents of {length} bytes at {at}"
        for size, flags in zip(entries[::2], entries[1::2]):
            end = min(at + size, SIZE)
            if flags & nbd.STATE_ZERO and any(self.model[at:end]):
                return f"{size} bytes at {at} are told to be zero, and are not"
            at = end
        return None

    def close(self):
        self.handle.shutdown()
