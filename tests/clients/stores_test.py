# SPDX-License-Identifier: Apache-2.0
"""Stores of a server: opening devices and files, reporting errors, work in pieces, and stores that
hang."""
import contextlib
import errno
import fcntl
import os
import pathlib
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

import nbd

import server as s
from durability_test import Forgetful
from server import STUCK, WEIR, Server

MIB = 1 << 20
GIB = 1 << 30
NEEDS_ROOT = unittest.skipUnless(os.geteuid() == 0, "needs root, for loop devices")


def run(*command):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True,
                          timeout=STUCK, check=False)
    if done.returncode != 0:
        raise AssertionError(f"{command}: {done.stdout}{done.stderr}")
    return done.stdout


def refused(*arguments, lines=1):
    """The error message of a server that does not start."""
    done = subprocess.run([WEIR, "serve", "--listen", "127.0.0.1:0", "--control", "none",
                           *arguments], capture_output=True, text=True, timeout=STUCK, check=False)
    assert done.returncode in (64, 73) and done.stdout == "", (done.returncode, done.stdout,
                                                               done.stderr)
    assert done.stderr.count("\n") == lines, done.stderr
    return done.stderr


class Orphan:
    """An open file, locked or opened exclusively, whose process has ended, while the block lasts:
    as after a kill during I/O. It is in flight in a Unix socket, so only the kernel holds it."""
    OPENS = """if True:
        import fcntl, os, socket, sys
        file = os.open(sys.argv[1], os.O_RDWR | (0 if sys.argv[2] else os.O_EXCL))
        if sys.argv[2]:
            fcntl.flock(file, fcntl.LOCK_EX)
        socket.send_fds(socket.socket(fileno=int(sys.argv[3])), [b"x"], [file])
        """

    def __init__(self, path, lock=False):
        self.path, self.lock = path, lock

    def __enter__(self):
        self.socket, theirs = socket.socketpair()
        with theirs:
            subprocess.run([sys.executable, "-c", self.OPENS, str(self.path),
                            "lock" if self.lock else "", str(theirs.fileno())],
                           pass_fds=[theirs.fileno()], timeout=STUCK, check=True)
        return self

    def __exit__(self, *_):
        self.socket.close()

    def is_waited_for(self, test, server):
        """The starting server waits for it, and is ready when it is released."""
        server.await_log(f"waiting for '{self.path}'")
        test.assertIsNone(server.process.poll(), server.log)
        self.socket.close()
        server.await_ready()


class StoreTest(unittest.TestCase):
    def client(self, server, name="a", status=False):
        client = nbd.NBD()
        if status:
            client.add_meta_context(nbd.CONTEXT_BASE_ALLOCATION)
        client.connect_uri(server.uri(name))
        return client  # closed with its last reference

    def folder(self):
        return pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def fails(self, number, call, *arguments):
        with self.assertRaises(nbd.Error) as caught:
            call(*arguments)
        self.assertEqual(caught.exception.errnum, number, caught.exception)


# ---- errors ----

class SyncErrors(StoreTest):
    def test_every_session_is_told_of_a_sync_that_failed(self):
        disk = self.enterContext(Forgetful("--fail-sync=2"))
        with Server("--export", f"a=file:{disk.disk}") as server:
            first, second, third = (self.client(server) for _ in range(3))
            first.pwrite(b"1" * 4096, 0)
            first.flush()
            third.pwrite(b"3" * 4096, 8192)
            self.fails(errno.EIO, second.flush)
            second.flush()
            later = self.client(server)
            later.flush()
            self.fails(errno.EIO, first.flush)
            first.flush()
            # A durable write also reports the error to a client that has not received it yet.
            third.pread(4096, 0)
            self.fails(errno.EIO, third.pwrite, b"3" * 4096, 4096, nbd.CMD_FLAG_FUA)
            third.pwrite(b"3" * 4096, 4096, nbd.CMD_FLAG_FUA)
            third.flush()
        self.assertIn("export 'a': flush: Input/output error (EIO)", server.log)

    def test_a_durable_write_that_failed_is_told_to_all(self):
        disk = self.enterContext(Forgetful("--fail-sync=1"))
        with Server("--export", f"a=file:{disk.disk}") as server:
            first, second = self.client(server), self.client(server)
            self.fails(errno.EIO, first.pwrite, b"1" * 4096, 4096, nbd.CMD_FLAG_FUA)
            self.fails(errno.EIO, second.flush)
            first.flush()
            second.flush()
        self.assertIn("export 'a': write of 4096 bytes at offset 4096: Input/output error (EIO)",
                      server.log)


class StoreErrors(StoreTest):
    """Errors of stores are logged and counted, even if the client has disconnected."""

    def errors(self, server):
        return server.status()["counters"]["store_errors"]

    def until(self, condition):
        deadline = time.monotonic() + STUCK
        while not condition():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)

    def test_of_a_client_that_has_gone(self):
        disk = self.enterContext(Forgetful("--fail-sync=1"))
        with Server("--export", f"a=file:{disk.disk}", control=True) as server:
            client = server.connect()
            s.enter(client)
            with disk.hanging():
                client.sendall(s.request(s.FLUSH, 1))
                self.until(lambda: server.status()["counters"]["requests"] == 1)
                client.close()
                self.until(lambda: server.status()["hung_exports"])  # the server has received both
            server.await_log("export 'a': flush: Input/output error (EIO)")
            self.until(lambda: self.errors(server) == 1)  # status may be 0.2 s old

    def test_of_a_file_that_gets_shorter_while_it_is_sent(self):
        # Every kernel sends a file in memory directly from the file.
        path = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory(dir="/dev/shm"))) / "f"
        with Server("--export", f"a=file:{path},size=64MiB", control=True) as server:
            with server.connect() as client:
                s.enter(client)
                client.sendall(s.request(s.WRITE, 1, 0, 16 * MIB, payload=bytes(16 * MIB)))
                self.assertEqual(s.simple_reply(client), (0, 1, b""))
                client.sendall(s.request(s.READ, 2, 0, 16 * MIB))
                self.assertEqual(s.reply_head(client), (0, 2))
                os.truncate(path, 0)  # more than a socket buffer is still in the file
                self.assertTrue(s.is_closed(client))
            server.await_log("export 'a': read of 16777216 bytes at offset 0: "
                             "Input/output error (EIO)")
            self.until(lambda: self.errors(server) == 1)  # status may be 0.2 s old

    def test_of_one_export_do_not_hide_those_of_another(self):
        disks = [self.enterContext(Forgetful("--fail-sync=1")) for _ in range(2)]
        with Server("--export", f"a=file:{disks[0].disk}", "--export", f"b=file:{disks[1].disk}") \
                as server:
            clients = [self.client(server, name) for name in "ab"]
            for client in clients:  # both within a second, unless the machine is very busy
                self.fails(errno.EIO, client.flush)
            server.await_log("export 'a': flush")
            server.await_log("export 'b': flush")


# ---- created files ----

class Created(StoreTest):
    def synced_folders(self, trace, folder):
        """The files that were created or renamed in the folder, and whether the folder was synced
        later."""
        creation = re.compile(rf'openat\(.*"{folder}/([^"]*)", [^)]*O_CREAT.* = \d'
                              rf'|rename.*\(.*"[^"]*", .*"{folder}/([^"]*)"[^"]*\) += 0')
        created, synced = set(), set()
        for line in trace.splitlines():
            if found := creation.search(line):
                created.add(found.group(1) or found.group(2))
            elif re.search(rf"fsync\(\d+<{folder}>\) += 0", line):
                synced |= created
        return created, synced

    def test_the_directory_of_what_is_kept_is_synced_before_clients_come(self):
        folder = self.folder()
        trace = folder.parent / (folder.name + ".trace")
        self.addCleanup(trace.unlink, missing_ok=True)
        with Server("--export", f"a=file:{folder}/store,size=1MiB",
                    "--journal", str(folder / "journal"), "--lock", "127.0.0.1:0",
                    "--lock-state", str(folder / "locks"), control=True,
                    prefix=("strace", "-D", "-f", "-y", "-e",
                            "trace=openat,fsync,rename,renameat2", "-o", str(trace)),
                    env={"ASAN_OPTIONS": "detect_leaks=0"}):
            at_start = trace.read_text(encoding="utf-8", errors="replace")
        created, synced = self.synced_folders(at_start, folder)
        self.assertLessEqual({"store", "journal", "locks"}, created)
        self.assertEqual({name for name in created - synced if not name.endswith(".new")}, set())

    def test_a_failed_start_leaves_no_file(self):
        folder = self.folder()
        for store, reason in ((f"file:{folder}/f,size=0", "empty store"),
                              (f"file:{folder}/f,size=8191PiB", "enough space"),
                              (f"file:{folder}/f,size=4097,direct", "multiple")):
            with self.subTest(store):
                self.assertIn(reason, refused("--export", f"a={store}"))
                self.assertEqual(list(folder.iterdir()), [])

    def test_direct_does_not_cut_a_file(self):
        folder = self.folder()
        (folder / "f").write_bytes(b"x" * 10_000_001)
        said = refused("--export", f"a=file:{folder}/f,direct")
        self.assertIn("10000001 bytes, which is not a multiple of", said)
        self.assertEqual((folder / "f").stat().st_size, 10_000_001)

    def test_names_have_no_control_characters(self):
        for arguments in (("--export", "a\nb=memory:1MiB"), ("--export", "a\x1b[2J=memory:1MiB"),
                          ("--export", "a=memory:1MiB,description=x\ny"),
                          ("--export", "a=memory:1MiB", "--nodemap", "x\ny=1.2.3.4@tcp")):
            with self.subTest(arguments):
                refused(*arguments)

    def test_a_restart_after_a_kill_waits_for_what_was_under_way(self):
        path = self.folder() / "f"
        path.write_bytes(bytes(MIB))
        with Orphan(path, lock=True) as orphan, Server("--export", f"a=file:{path},direct",
                                                       starts=False) as server:
            orphan.is_waited_for(self, server)
            self.assertEqual(self.client(server).get_size(), MIB)

    def test_a_lock_of_a_living_process_is_refused(self):
        path = self.folder() / "f"
        path.write_bytes(bytes(MIB))
        with open(path, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            said = refused("--export", f"a=file:{path}")
        self.assertIn(f"'{path}': another server uses it: process {os.getpid()}", said)


class Kept(StoreTest):
    """Other files that a killed server may still hold, like its stores."""

    def test_a_restart_after_a_kill_waits_for_journal_and_state(self):
        folder = self.folder()
        journal, state = folder / "journal", folder / "state"
        arguments = ("--export", "a=memory:1MiB", "--journal", journal,
                     "--lock", f"unix:{folder}/locks", "--lock-state", state)
        with Server(*arguments):
            pass
        for path in (journal, state):
            with self.subTest(path.name), Orphan(path, lock=True) as orphan, \
                    Server(*arguments, starts=False) as server:
                orphan.is_waited_for(self, server)


# ---- work in pieces ----

class Probe(threading.Thread):
    """A client that reads all the time; `worst` is its longest wait in seconds."""

    def __init__(self, server, name):
        super().__init__()
        self.client = nbd.NBD()
        self.client.connect_uri(server.uri(name))
        self.ends = threading.Event()
        self.worst = 0

    def __enter__(self):
        self.start()
        return self

    def run(self):
        while not self.ends.is_set():
            began = time.monotonic()
            self.client.pread(512, 0)
            self.worst = max(self.worst, time.monotonic() - began)

    def __exit__(self, *_):
        self.ends.set()
        self.join()
        del self.client


class Pieces(StoreTest):
    # A turn does at most 0.75 MiB of such work, well below 1 ms; the sanitizers take some tens of
    # times as long, and so does a machine whose other processes are as busy. Done in one piece, any
    # of this takes several seconds.
    LONGEST = 1

    def test_block_status_looks_at_what_was_asked_for(self):
        with Server("--export", "a=memory:100GiB", "--export", "b=memory:1MiB") as server:
            client = self.client(server, status=True)
            answers = []
            with Probe(server, "b") as probe:
                for i in range(1000):
                    client.aio_block_status(
                        512, i * 512, lambda _c, _o, entries, _e: answers.append(list(entries)))
                while client.aio_in_flight():
                    client.poll(-1)
            self.assertEqual(answers, [[512, 3]] * 1000)
            self.assertLess(probe.worst, self.LONGEST)

    def test_trims_and_large_writes_of_memory_leave_room_for_others(self):
        with Server("--export", "a=memory:2GiB", "--export", "b=memory:1MiB") as server:
            client = self.client(server, status=True)
            data = nbd.Buffer.from_bytearray(bytearray(b"x" * 32 * MIB))
            with Probe(server, "b") as probe:
                for i in range(32):
                    client.aio_pwrite(data, i * 32 * MIB)
                while client.aio_in_flight():
                    client.poll(-1)
                client.pwrite(b"y" * 1024, GIB + 100)
                client.trim(GIB + 300, 200)
            self.assertLess(probe.worst, self.LONGEST)
            self.assertEqual(client.pread(300, 0), b"x" * 200 + bytes(100))
            self.assertEqual(client.pread(MIB, GIB - MIB), bytes(MIB))
            self.assertEqual(client.pread(1124, GIB), bytes(500) + b"y" * 624)
            extents = []
            client.block_status(2 * GIB, 0, lambda _c, _o, entries, _e: extents.extend(entries))
            self.assertEqual(extents, [65536, 0, GIB - 65536, 3, 65536, 0, GIB - 65536, 3])


# ---- a store that hangs ----

class Hung(StoreTest):
    def test_other_exports_of_the_service_go_on(self):
        disk = self.enterContext(Forgetful())
        folder = self.folder()
        with Server("--export", f"a=file:{disk.disk}", "--export",
                    f"b=file:{folder}/b,size=1MiB", "--slots", "4") as server:
            hung, other = self.client(server), self.client(server, "b")
            hung.pwrite(b"1" * 4096, 0)
            with disk.hanging():
                buffers = [nbd.Buffer(4096) for _ in range(20)]
                for i, buffer in enumerate(buffers):
                    hung.aio_pread(buffer, (i + 100) * 4096)
                # Slots are given back after a second; then nothing is delayed any more.
                written = nbd.Buffer.from_bytearray(b"2" * 4096)
                cookies = [other.aio_pwrite(written, 0) for _ in range(100)]
                deadline = time.monotonic() + 10
                while other.aio_in_flight():
                    self.assertLess(time.monotonic(), deadline, "they wait for the other store")
                    other.poll(100)
                self.assertTrue(all(map(other.aio_command_completed, cookies)))
                began = time.monotonic()
                for _ in range(100):
                    other.flush()
                    self.assertEqual(other.pread(4096, 0), b"2" * 4096)
                self.assertLess(time.monotonic() - began, 10)
                server.await_log("export 'a': its store has completed none of 4 requests for 1s")
            while hung.aio_in_flight():
                hung.poll(-1)
            self.assertEqual(hung.pread(4096, 0), b"1" * 4096)

    def shown(self, server):
        """Hung exports as shown by status, API and metrics, which must agree."""
        hung = server.status()["hung_exports"]
        text = run(WEIR, "status", "--control", server.control)
        self.assertEqual([f"export '{one['export']}'" in text for one in hung],
                         [True] * len(hung), text)
        self.assertEqual("hung" in text, bool(hung), text)
        series = dict(re.findall(r'^weir_export_hung_requests{export="(.)"} (\d+)$',
                                 server.fetch("/metrics"), re.MULTILINE))
        self.assertEqual(sorted(series), ["a", "b"])
        self.assertEqual({name for name, count in series.items() if count != "0"},
                         {one["export"] for one in hung})
        return hung

    def test_is_shown_until_it_goes_on(self):
        disk = self.enterContext(Forgetful())
        with Server("--export", f"a=file:{disk.disk}", "--export", "b=memory:1MiB",
                    "--slots", "4", control=True) as server:
            hung, other = self.client(server), self.client(server, "b")
            hung.pwrite(b"1" * 4096, 0)
            self.assertEqual(self.shown(server), [])
            with disk.hanging():
                buffers = [nbd.Buffer(4096) for _ in range(20)]
                for i, buffer in enumerate(buffers):
                    hung.aio_pread(buffer, (i + 100) * 4096)
                deadline = time.monotonic() + STUCK
                # A request is tried each second, which does not count as a completion.
                while not any(one["silent_ns"] > 2.5e9 for one in server.status()["hung_exports"]):
                    self.assertLess(time.monotonic(), deadline)
                    hung.poll(10)
                shown, = self.shown(server)
                self.assertEqual((shown["export"], shown["service"]), ("a", "ost_io"))
                self.assertEqual(shown["unfinished"] + shown["kept"], 20)
                self.assertGreater(
                    float(re.search(r'^weir_export_hung_seconds{export="a"} (.*)$',
                                    server.fetch("/metrics"), re.MULTILINE).group(1)), 2.5)
                other.pwrite(b"2" * 4096, 0)
            while hung.aio_in_flight():
                hung.poll(-1)
            # A snapshot is up to 0.2 s old.
            while server.status()["hung_exports"]:
                self.assertLess(time.monotonic(), deadline)
                hung.poll(10)
            self.assertEqual(self.shown(server), [])

    def test_a_client_of_a_hung_store_may_leave(self):
        disk = self.enterContext(Forgetful())
        with Server("--export", f"a=file:{disk.disk}", "--slots", "2") as server:
            with disk.hanging():
                client = self.client(server)
                for _ in range(20):
                    client.aio_pread(nbd.Buffer(4096), 0)
                deadline = time.monotonic() + STUCK
                while "has completed none of 2" not in server.log:
                    self.assertLess(time.monotonic(), deadline)
                    client.poll(10)
                del client
            self.assertEqual(self.client(server).pread(4096, 0), bytes(4096))


# ---- block devices ----

class Loop:
    """A loop device over its own file."""

    def __init__(self, sector, size=64 * MIB, read_only=False):
        self.sector, self.size, self.read_only = sector, size, read_only

    def __enter__(self):
        self.file = tempfile.NamedTemporaryFile()
        self.file.truncate(self.size)
        more = ["--read-only"] if self.read_only else []
        # Another process may take the free device before it is used.
        self.path = run("losetup", "--find", "--show", "--sector-size", self.sector, *more,
                        self.file.name).strip()
        return self

    def __exit__(self, *_):
        run("losetup", "--detach", self.path)
        self.file.close()


@NEEDS_ROOT
class Devices(StoreTest):
    def test_copies_through_devices_of_both_sector_sizes(self):
        folder = self.folder()
        image = folder / "image"
        # Data and zeroes that end within a sector.
        image.write_bytes(os.urandom(3 * MIB + 700) + bytes(9 * MIB + 11) +
                          os.urandom(MIB - 711) + bytes(51 * MIB))
        for sector in (512, 4096):
            for direct in ("", ",direct"):
                with self.subTest(sector=sector, direct=direct), Loop(sector) as loop:
                    with Server("--export", f"a=device:{loop.path}{direct}") as server:
                        back = folder / "back"
                        run("nbdcopy", image, server.uri("a"))
                        run("nbdcopy", server.uri("a"), back)
                        self.assertEqual(back.read_bytes(), image.read_bytes())
                        run("nbdcopy", "--destination-is-zero", "/dev/null", server.uri("a"))
                        run("qemu-img", "convert", "-n", "-f", "raw", "-O", "raw", image,
                            server.uri("a"))
                        run("qemu-img", "compare", "-f", "raw", "-F", "raw", image,
                            server.uri("a"))

    def test_zeroes_are_exact_and_trims_are_rounded_inwards(self):
        for sector in (512, 4096):
            with self.subTest(sector), Loop(sector) as loop, \
                    Server("--export", f"a=device:{loop.path}") as server:
                client = self.client(server)
                expected = bytearray(b"x" * MIB)
                client.pwrite(bytes(expected), 0)
                for offset, length, flags in (
                        (100, 50, 0), (1000, 3 * 4096, 0), (20 * 4096, 4096 + 1, 0),
                        (40 * 4096 - 1, 2, nbd.CMD_FLAG_NO_HOLE),
                        (50 * 4096 + 7, 9 * 4096, nbd.CMD_FLAG_NO_HOLE | nbd.CMD_FLAG_FUA),
                        (70 * 4096, 4096, nbd.CMD_FLAG_FAST_ZERO)):
                    client.zero(length, offset, flags)
                    expected[offset:offset + length] = bytes(length)
                    self.assertEqual(client.pread(MIB, 0), expected)
                for offset, length in ((90 * 4096 + 1, 2 * 4096), (100 * 4096 + 5, 100)):
                    client.trim(length, offset, nbd.CMD_FLAG_FUA)
                    got = client.pread(MIB, 0)
                    first, last = (-(-offset // sector) * sector,
                                   (offset + length) // sector * sector)
                    inside = range(first, last) if first < last else range(0)
                    self.assertTrue(all(got[i] == expected[i] for i in range(MIB)
                                        if i not in inside))
                    self.assertLessEqual(set(got[first:last]), {0, ord("x")})
                    expected = bytearray(got)

    def test_qemu_discards_what_is_not_aligned(self):
        folder = self.folder()
        (folder / "f").write_bytes(b"\x11" * MIB)
        with Loop(4096) as loop, \
                Server("--export", f"device=device:{loop.path},direct",
                       "--export", f"file=file:{folder}/f,direct") as server:
            for name in ("device", "file"):
                with self.subTest(name):
                    script = ("write -P 0x11 0 64k", "discard 512 8k", "discard 16k 8k",
                              "discard 1k 512", "read -P 0x11 32k 32k", "read -P 0x11 0 512")
                    commands = [part for line in script for part in ("-c", line)]
                    said = run("qemu-io", "-f", "raw", "-t", "none", *commands, server.uri(name))
                    self.assertNotIn("failed", said)
                client = self.client(server, name)
                client.set_strict_mode(0)
                client.trim(1000, 512)
                client.trim(3 * 4096, 4095)
                self.fails(errno.EINVAL, client.zero, 1000, 513)

    def test_a_read_only_device_is_not_exported_writable(self):
        with Loop(512, read_only=True) as loop:
            said = refused("--export", f"a=device:{loop.path}")
            self.assertIn("is a read-only device", said)
            self.assertIn("readonly", said)
            with Server("--export", f"a=device:{loop.path},readonly") as server:
                self.assertTrue(self.client(server).is_read_only())

    def test_a_restart_after_a_kill_waits_for_what_was_under_way(self):
        with Loop(512) as loop, Orphan(loop.path) as orphan, \
                Server("--export", f"a=device:{loop.path}", starts=False) as server:
            orphan.is_waited_for(self, server)
            self.assertEqual(self.client(server).get_size(), 64 * MIB)

    def test_a_device_that_stays_in_use_is_refused(self):
        with Loop(512) as loop:
            export = ("--export", f"a=device:{loop.path}")
            with open(os.open(loop.path, os.O_RDWR | os.O_EXCL), "rb"):
                said = refused(*export)
                self.assertIn(f"'{loop.path}': process {os.getpid()} has it open", said)
                self.assertIn(",force", said)
            with Orphan(loop.path):
                told, said = refused(*export, lines=2).splitlines()
                self.assertIn(f"waiting for '{loop.path}'", told)
                self.assertIn(f"'{loop.path}': it is in use, but no process", said)
                self.assertIn("fuser", said)
            said = refused(*export, "--export", f"b=device:{loop.path}")
            self.assertIn(f"'{loop.path}': this server already uses it", said)

    def test_a_mounted_device_is_refused_and_a_served_one_is_not_mounted(self):
        folder = self.folder()
        point = folder / "mount point"
        point.mkdir()
        with Loop(512) as loop, contextlib.ExitStack() as stack:
            run("mkfs.ext4", "-q", loop.path)
            run("mount", loop.path, point)
            stack.callback(lambda: point.is_mount() and run("umount", point))
            for kind in ("device", "file"):
                said = refused("--export", f"a={kind}:{loop.path}")
                self.assertIn(f"it is mounted at '{point}'", said)
                self.assertIn(",force", said)
            for option in ("readonly", "force"):
                with Server("--export", f"a=device:{loop.path},{option}") as server:
                    self.assertEqual(self.client(server).get_size(), 64 * MIB)
        with Loop(512) as loop:
            run("mkfs.ext4", "-q", loop.path)
            with Server("--export", f"a=device:{loop.path}"):
                with self.assertRaises(AssertionError):
                    run("mount", loop.path, point)


if __name__ == "__main__":
    unittest.main()
