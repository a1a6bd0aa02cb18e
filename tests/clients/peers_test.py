# SPDX-License-Identifier: Apache-2.0
"""Clients of other projects: nbdinfo, nbdcopy, qemu-img, qemu-io, fio and libnbd."""
import errno
import filecmp
import itertools
import json
import os
import pathlib
import random
import subprocess
import tempfile
import unittest

import nbd

from server import STUCK, WEIR, Server, go, greet, option_reply

MIB = 1 << 20


def run(*command):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True,
                          timeout=STUCK, check=False)
    if done.returncode != 0:
        raise AssertionError(f"{command}: {done.stdout}{done.stderr}")
    return done.stdout


class PeersTest(unittest.TestCase):
    """One server with every kind of store for all tests."""

    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        (cls.folder / "fixed").write_bytes(os.urandom(MIB))
        shm = cls.enterClassContext(tempfile.TemporaryDirectory(dir="/dev/shm"))
        device = cls.block_device()
        cls.server = cls.enterClassContext(Server(
            "--export", "memory=memory:64MiB,description=gone with the server",
            "--export", f"file=file:{cls.folder}/file,size=64MiB",
            "--export", f"tmpfs=file:{shm}/file,size=64MiB",
            "--export", f"direct=file:{cls.folder}/direct,size=64MiB,direct",
            "--export", "slow=shaped:latency=100us:memory:64MiB", *device,
            "--export", f"fixed=file:{cls.folder}/fixed,readonly"))
        cls.writable = ("memory", "file", "tmpfs", "direct", "slow",
                        *(("device",) if device else ()))

    @classmethod
    def block_device(cls):
        """Options for an export of a block device, if one can be created."""
        if os.geteuid() != 0:
            return ()
        image = cls.folder / "device"
        with open(image, "wb") as file:
            file.truncate(64 * MIB)
        device = run("losetup", "--find", "--show", image).strip()
        cls.addClassCleanup(run, "losetup", "--detach", device)
        return "--export", f"device=device:{device}"

    def uri(self, name, tcp=False):
        return self.server.uri(name, tcp)

    def handle(self, name="memory"):
        client = nbd.NBD()
        client.add_meta_context(nbd.CONTEXT_BASE_ALLOCATION)
        client.connect_uri(self.uri(name))
        self.addCleanup(client.shutdown)
        return client


class Tools(PeersTest):
    def test_there_is_every_kind_of_store(self):
        if "device" not in self.writable:
            self.skipTest("a block device needs root; the others are tested")

    def test_nbdinfo(self):
        info = json.loads(run("nbdinfo", "--json", self.uri("memory")))["exports"][0]
        self.assertEqual(info["export-size"], 64 * MIB)
        self.assertEqual(info["description"], "gone with the server")
        for key in ("can_flush", "can_fua", "can_trim", "can_zero", "can_fast_zero", "can_cache",
                    "can_multi_conn", "can_df"):
            self.assertTrue(info[key], key)
        self.assertFalse(info["is_read_only"])
        listed = json.loads(run("nbdinfo", "--json", "--list", self.uri("")))["exports"]
        self.assertEqual([one["export-name"] for one in listed], [*self.writable, "fixed"])
        fixed = json.loads(run("nbdinfo", "--json", self.uri("fixed", tcp=True)))["exports"][0]
        self.assertTrue(fixed["is_read_only"])

    def test_nbdcopy_both_ways(self):
        source = self.folder / "source"
        for name in self.writable:
            for tcp in (False, True):
                with self.subTest(name, tcp=tcp):
                    # Different data each time, so that an earlier copy is not mistaken for it.
                    source.write_bytes(os.urandom(8 * MIB) + bytes(8 * MIB) +
                                       os.urandom(8 * MIB) + bytes(40 * MIB))
                    back = self.folder / "back"
                    connections = "--connections=32" if tcp else "--connections=1"
                    run("nbdcopy", connections, source, self.uri(name, tcp))
                    run("nbdcopy", connections, self.uri(name, tcp), back)
                    self.assertTrue(filecmp.cmp(source, back, shallow=False))
                    back.unlink()

    def test_qemu_img(self):
        image = self.folder / "image.qcow2"
        raw = self.folder / "image.raw"
        raw.write_bytes(os.urandom(4 * MIB) + bytes(60 * MIB))
        run("qemu-img", "convert", "-f", "raw", "-O", "qcow2", raw, image)
        for name in self.writable:
            with self.subTest(name):
                run("qemu-img", "convert", "-n", "-f", "qcow2", "-O", "raw", image,
                    self.uri(name))
                run("qemu-img", "compare", "-f", "qcow2", "-F", "raw", image, self.uri(name))
                extents = json.loads(run("qemu-img", "map", "-f", "raw", "--output=json",
                                         self.uri(name)))
                self.assertEqual(sum(one["length"] for one in extents), 64 * MIB)
                self.assertFalse(extents[0]["zero"])
                if name != "device":  # which cannot report holes
                    self.assertTrue(any(one["zero"] and one["start"] >= 4 * MIB
                                        for one in extents))
        # QEMU's syntax uses the comma, so its users write a slash.
        run("qemu-img", "info", self.uri("memory/job=ior.n1"))

    def test_qemu_io(self):
        for name in self.writable:
            with self.subTest(name):
                script = ("write -P 0x11 0 64k", "write -P 0x22 -f 32k 64k", "read -P 0x11 0 32k",
                          "read -P 0x22 32k 64k", "write -z 40k 8k", "read -P 0 40k 8k",
                          "read -P 0x22 32k 8k", "discard 0 32k", "flush", "read -P 0 0 32k",
                          "aio_write -P 0x33 1M 1M", "aio_write -P 0x44 2M 1M", "aio_flush",
                          "read -P 0x33 1M 1M", "read -P 0x44 2M 1M")
                commands = [part for line in script for part in ("-c", line)]
                output = run("qemu-io", "-f", "raw", "-t", "none", *commands, self.uri(name))
                self.assertNotIn("Pattern verification failed", output)

    def test_fio_verifies(self):
        for name, connections in itertools.product(self.writable, (1, 32)):
            with self.subTest(name, connections=connections):
                size = 16 * MIB // connections
                run("fio", "--name=v", "--ioengine=nbd", f"--uri={self.uri(name)}", "--thread",
                    "--rw=randrw", "--bsrange=4k-64k", "--iodepth=16", f"--numjobs={connections}",
                    f"--size={size}", f"--offset_increment={size}", "--verify=crc32c",
                    "--verify_fatal=1", "--verify_state_save=0", "--fsync=64")


class Libnbd(PeersTest):
    def fails(self, number, call, *arguments):
        with self.assertRaises(nbd.Error) as caught:
            call(*arguments)
        self.assertEqual(caught.exception.errnum, number, caught.exception)

    def test_errors_leave_the_connection_usable(self):
        client = self.handle()
        client.set_strict_mode(0)
        self.fails(errno.EINVAL, client.pread, 4096, 64 * MIB)
        self.fails(errno.EINVAL, client.pread, 4096, 64 * MIB - 1)
        self.fails(errno.ENOSPC, client.pwrite, bytes(4096), 64 * MIB)
        self.fails(errno.ENOSPC, client.zero, 4096, 64 * MIB)
        self.fails(errno.EINVAL, client.trim, 4096, 64 * MIB)
        self.fails(errno.EINVAL, client.pread, 0, 0)
        self.fails(errno.EINVAL, client.pread, 33 * MIB, 0)
        client.pwrite(b"still here", 0)
        self.assertEqual(client.pread(10, 0), b"still here")

    def test_read_only(self):
        client = self.handle("fixed")
        client.set_strict_mode(0)
        self.fails(errno.EPERM, client.pwrite, bytes(512), 0)
        self.fails(errno.EPERM, client.trim, 512, 0)
        self.fails(errno.EPERM, client.zero, 512, 0)
        self.assertEqual(client.pread(MIB, 0), (self.folder / "fixed").read_bytes())

    def test_every_command(self):
        for name in self.writable:
            with self.subTest(name):
                client = self.handle(name)
                client.pwrite(b"\x55" * MIB, 0, nbd.CMD_FLAG_FUA)
                client.cache(MIB, 0)
                client.trim(65536, 65536, nbd.CMD_FLAG_FUA)
                client.zero(65536, 262144, nbd.CMD_FLAG_NO_HOLE | nbd.CMD_FLAG_FUA)
                client.zero(65536, 393216, nbd.CMD_FLAG_FAST_ZERO)
                client.flush()
                expected = bytearray(b"\x55" * MIB)
                for at in (65536, 262144, 393216):
                    expected[at:at + 65536] = bytes(65536)
                self.assertEqual(client.pread(MIB, 0), expected)
                chunks = []
                whole = client.pread_structured(
                    MIB, 0, lambda data, offset, kind, _: chunks.append((offset, len(data), kind)),
                    nbd.CMD_FLAG_DF)
                self.assertEqual(whole, expected)
                self.assertEqual(chunks, [(0, MIB, nbd.READ_DATA)])

    def test_block_status_tells_holes(self):
        for name in self.writable:
            with self.subTest(name):
                client = self.handle(name)
                client.trim(64 * MIB, 0)
                client.pwrite(b"x" * 65536, MIB)
                entries = []

                def note(_context, _offset, extents, _error):
                    entries.extend(extents)

                client.block_status(4 * MIB, 0, note)
                # Devices cannot report their holes.
                holes = name != "device"
                pairs = list(zip(entries[::2], entries[1::2]))
                self.assertEqual(pairs[:3], [(MIB, 3), (65536, 0), (3 * MIB - 65536, 3)] if holes
                                 else [(4 * MIB, 0)])
                entries.clear()
                client.block_status(4 * MIB, 0, note, nbd.CMD_FLAG_REQ_ONE)
                self.assertEqual(entries, [MIB, 3] if holes else [4 * MIB, 0])

    def test_names(self):
        for name, reason in ((b"nosuch", b"no export"), (b"memory,job=", b"job"),
                             (b"memory,colour=red", b"not a claim"),
                             (b"memory,uid=x", b"not a valid id")):
            with self.subTest(name):
                with self.assertRaises(nbd.Error):
                    nbd.NBD().connect_uri(self.uri(name.decode()))
                with self.server.connect() as client:
                    greet(client)
                    client.sendall(go(name))
                    _, kind, text = option_reply(client)
                    self.assertGreaterEqual(kind, 1 << 31)
                    self.assertIn(reason, text)
        for name in ("memory,job=a,uid=5", "memory/job=a/gid=7", ""):
            client = nbd.NBD()
            client.connect_uri(self.uri(name))
            self.assertEqual(client.get_size(), 64 * MIB)
            client.shutdown()

    def test_largest_payload(self):
        client = self.handle("file")
        data = os.urandom(32 * MIB)
        client.pwrite(data, 0)
        self.assertEqual(client.pread(32 * MIB, 0), data)

    def test_many_in_flight(self):
        client = self.handle()
        client.pwrite(bytes(range(256)) * 4096, 0)
        buffers = [nbd.Buffer(4096) for _ in range(500)]
        cookies = [client.aio_pread(buffer, 4096 * (i % 256)) for i, buffer in enumerate(buffers)]
        while client.aio_in_flight():
            client.poll(-1)
        self.assertTrue(all(client.aio_command_completed(cookie) for cookie in cookies))
        self.assertTrue(all(bytes(buffer.to_bytearray()) == bytes(range(256)) * 16
                            for buffer in buffers))

    def test_large_and_small_reads_in_flight_together(self):
        chance = random.Random(6)
        data = chance.randbytes(8 * MIB)
        for name in ("memory", "file", "tmpfs", "slow"):
            with self.subTest(name):
                client = self.handle(name)
                client.pwrite(data, 0)
                asked = []
                for _ in range(100):
                    length = chance.choice((512, 4096, 65535, 65536, 65537, 300000, 4 * MIB))
                    offset = chance.randrange(8 * MIB - length)
                    buffer = nbd.Buffer(length)
                    asked.append((client.aio_pread(buffer, offset), buffer, offset, length))
                while client.aio_in_flight():
                    client.poll(-1)
                for cookie, buffer, offset, length in asked:
                    self.assertTrue(client.aio_command_completed(cookie))
                    self.assertTrue(buffer.to_bytearray() == data[offset:offset + length])


class StoreErrors(unittest.TestCase):
    def test_a_file_that_was_made_shorter(self):
        for place in (None, "/dev/shm"):
            with tempfile.TemporaryDirectory(dir=place) as folder, \
                    Server("--export", f"a=file:{folder}/f,size=4MiB") as server:
                client = nbd.NBD()
                client.add_meta_context("base:allocation")
                client.connect_uri(server.uri("a"))
                client.pwrite(b"x" * MIB, MIB)
                os.truncate(f"{folder}/f", 2 * MIB)
                for length in (4096, MIB):
                    with self.assertRaises(nbd.Error) as caught:
                        client.pread(length, 3 * MIB)
                    self.assertEqual(caught.exception.errnum, errno.EIO)
                self.assertEqual(client.pread(MIB, MIB), b"x" * MIB)
                # The missing part is not reported as a hole: a copy that asks first must not treat
                # it as zeroes.
                extents = []
                client.block_status(4 * MIB, 0, lambda name, at, entries, error:
                                    extents.extend(entries))
                self.assertEqual(extents, [MIB, 3, 3 * MIB, 0])
                client.shutdown()

    def test_a_full_disk_reaches_the_client_and_the_server_goes_on(self):
        with tempfile.TemporaryDirectory() as folder:
            # A file that cannot grow: a limit of the process simulates the full disk.
            binary = pathlib.Path(folder) / "weir"
            binary.write_text("#!/bin/sh\nulimit -f 4096\ntrap '' XFSZ\n"
                              f"exec {WEIR} \"$@\"\n", encoding="utf-8")
            binary.chmod(0o755)
            image = pathlib.Path(folder) / "image"
            with open(image, "wb") as file:
                file.truncate(64 * MIB)
            with Server("--export", f"a=file:{image}", binary=binary) as server:
                client = nbd.NBD()
                client.connect_uri(server.uri("a"))
                with self.assertRaises(nbd.Error) as caught:
                    client.pwrite(b"x" * MIB, 32 * MIB)
                self.assertEqual(caught.exception.errnum, errno.ENOSPC)
                client.pwrite(b"x" * 4096, 0)
                self.assertEqual(client.pread(4096, 0), b"x" * 4096)
                client.shutdown()


if __name__ == "__main__":
    unittest.main()
