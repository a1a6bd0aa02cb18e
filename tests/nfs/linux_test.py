# SPDX-License-Identifier: Apache-2.0
"""`weir nfs` between a Linux kernel in a virtual machine (linux.py) and NFS-Ganesha, or another
Linux kernel as server. Slow machines: only for what is right."""
import contextlib
import hashlib
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import ganesha  # noqa: E402
import linux  # noqa: E402

VERSIONS = ("3", "4.0", "4.1", "4.2")
MIB = 1 << 20
CUTS = 2  # of connections, and kills of the gateway
# Files, folders, links, a hole, appends and a large file; what is left is the same in each run.
WORK = """mkdir -p /mnt/{name}/a/b/c && cd /mnt/{name}
for i in 0 1 2 3 4 5 6 7 8 9; do echo "file $i" > a/f$i || exit 1; done
dd if=/bin/busybox of=big bs=64k count=24 2>/dev/null
cat big a/f1 > a/b/large
mv a/f3 a/b/c/moved && ln -s ../f4 a/b/link && ln a/f5 a/b/hard && rm a/f6
dd if=a/f1 of=hole bs=1 seek=300000 2>/dev/null
truncate -s 100000 big
echo more >> a/f7 && chmod 640 a/f8
cd / && sync"""
# Read again from the server.
SUM = """echo 3 > /proc/sys/vm/drop_caches
cd /mnt/{name}
{{ find . | sort; find . -type f | sort | xargs md5sum; stat -c '%n %f %h' a/* a/b/*; }} | md5sum
cd /"""


def setUpModule():
    if os.environ.get("WEIR_NAMESPACE") == "own":
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)


def sum_of(folder):
    """A checksum of the contents below a folder, as the server has them."""
    seen = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        seen.update(str(path.relative_to(folder)).encode())
        if path.is_symlink():
            seen.update(os.readlink(path).encode())
        elif path.is_file():
            seen.update(path.read_bytes())
    return seen.hexdigest()


class Wire:
    """Forwards connections to a port. Each time that so many bytes have passed, it calls
    `disturb`, `times` times at most: always in the middle of work, however fast that is."""

    def __init__(self, port, disturb=None, every=MIB, times=CUTS):
        self.to, self.every, self.times = port, every, times
        self.disturb = disturb or self.cut
        self.passed = self.total = self.done = 0
        self.sockets = set()
        self.lock = threading.Lock()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]

    def __enter__(self):
        threading.Thread(target=self.accept, daemon=True).start()
        return self

    def __exit__(self, *_):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.cut()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                near, _ = self.listener.accept()
                try:
                    far = socket.create_connection(("127.0.0.1", self.to))
                except OSError:
                    near.close()
                    continue
                with self.lock:
                    self.sockets |= {near, far}
                for pair in (near, far), (far, near):
                    threading.Thread(target=self.copy, args=pair, daemon=True).start()

    def copy(self, source, to):
        with contextlib.suppress(OSError):
            while piece := source.recv(1 << 16):
                to.sendall(piece)
                if self.is_due(len(piece)):
                    self.disturb()
        with self.lock:
            self.sockets -= {source, to}
        for one in source, to:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def is_due(self, count):
        with self.lock:
            self.passed += count
            self.total += count
            if self.passed < self.every or self.done == self.times:
                return False
            self.passed = 0
            self.done += 1
            return True

    def cut(self):
        with self.lock:
            for one in self.sockets:
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)


@unittest.skipIf(ganesha.missing() or linux.missing(), ganesha.missing() or linux.missing())
class Client(unittest.TestCase):
    """A Linux client, and NFS-Ganesha."""

    @classmethod
    def setUpClass(cls):
        cls.nfs = cls.enterClassContext(ganesha.Ganesha())
        cls.folder = cls.enterClassContext(tempfile.TemporaryDirectory())
        cls.guest = cls.enterClassContext(linux.Linux(cls.folder, linux.CLIENT))

    def mount(self, port, version, mount_port=None, options=""):
        path = self.nfs.export if version == "3" else "/export"
        self.guest.mount(port, version, mount_port or self.nfs.mount_port, path, options)
        self.addCleanup(self.guest.abandon)

    def work(self, name):
        self.guest.run(WORK.format(name=name))

    def sums(self, name):
        """A checksum in the client and one in the server."""
        return self.guest.run(SUM.format(name=name)), sum_of(self.nfs.export / name)

    def test_the_same_over_all_versions_with_and_without_the_gateway(self):
        seen = {}
        with ganesha.Gateway(self.nfs.port, "--mount-port", f"0:{self.nfs.mount_port}") as gateway:
            mount_port = int(gateway.addresses[2].rpartition(":")[2])
            ways = {"direct": (self.nfs.port, None), "gateway": (gateway.port, mount_port)}
            for version in VERSIONS:
                for way, (port, relay) in ways.items():
                    name = f"{way}{version}"
                    before = gateway.metric("calls")
                    self.mount(port, version, relay)
                    self.work(name)
                    seen[name] = self.sums(name)
                    self.guest.unmount()
                    calls = gateway.metric("calls") - before
                    self.assertEqual(calls > 50, way == "gateway", (name, calls))
            self.assertEqual(len(set(seen.values())), 1, seen)
            self.assertEqual(gateway.metric("replies_unmatched"), 0)

    def check_work(self, name, version):
        """That what was written through the gateway is what is written without it."""
        in_guest = self.guest.run(SUM.format(name=name))
        self.guest.unmount()
        self.mount(self.nfs.port, version)
        self.work(f"plain.{name}")
        self.assertEqual((in_guest, sum_of(self.nfs.export / name)), self.sums(f"plain.{name}"))
        self.guest.unmount()

    def test_a_server_that_closes_its_connections(self):
        """While files are written and read."""
        for version in "3", "4.1":
            with self.subTest(version), Wire(self.nfs.port) as wire, \
                    ganesha.Gateway(wire.port) as gateway:
                self.mount(gateway.port, version)
                self.work(f"cut{version}")
                self.assertEqual(wire.done, CUTS)
                self.assertGreaterEqual(gateway.metric("server_closed"), CUTS)
                self.check_work(f"cut{version}", version)

    def test_a_limited_writer_sends_its_data_once(self):
        """Writes wait in the gateway: a refused one would be sent again."""
        with ganesha.Gateway(self.nfs.port, "--adaptive", "off",
                             "--rule", "start w opcode={ost_write} bps=10MB by=uid") as gateway, \
                Wire(gateway.port, times=0) as wire:
            self.mount(wire.port, "4.1")
            began = time.monotonic()
            self.guest.run("dd if=/dev/zero of=/mnt/written bs=1M count=30 2>/dev/null && sync")
            self.assertGreater(time.monotonic() - began, 2.5)
            self.guest.unmount()
            self.assertLess(wire.total, 3 * 30 * MIB)

    def test_a_gateway_that_is_killed_is_replaced(self):
        """While files are written; a file that is open stays open."""
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
        for version in "3", "4.1":
            with self.subTest(version), contextlib.ExitStack() as stack:
                gateways = []

                def replace(stack=stack, gateways=gateways):
                    if gateways:
                        gateways[-1].kill()
                    gateways.append(stack.enter_context(
                        ganesha.Gateway(wire.port, "--listen", f"127.0.0.1:{port}")))

                wire = stack.enter_context(Wire(self.nfs.port, replace))
                replace()
                self.mount(port, version)
                name = f"killed{version}"
                self.guest.run(f"exec 7>/mnt/{name}.open && echo before >&7")
                self.work(name)
                self.assertEqual(wire.done, CUTS)
                self.guest.run("echo after >&7 && exec 7>&- && sync")
                self.assertEqual((self.nfs.export / f"{name}.open").read_text(encoding="ascii"),
                                 "before\nafter\n")
                self.check_work(name, version)


@unittest.skipIf(linux.missing(), linux.missing())
class Server(unittest.TestCase):
    """A Linux client, and a Linux server, which grants delegations."""

    @classmethod
    def setUpClass(cls):
        cls.folder = cls.enterClassContext(tempfile.TemporaryDirectory())
        cls.server = cls.enterClassContext(linux.Linux(cls.folder, linux.SERVER))
        cls.server.serve()
        cls.client = cls.enterClassContext(linux.Linux(cls.folder, linux.CLIENT))

    def test_a_recall_passes_while_its_user_waits(self):
        self.server.run("echo old > /export/file && chmod 666 /export/file && touch /export/other")
        with ganesha.Gateway(self.server.port, "--adaptive", "off",
                             "--rule", "start root uid={0} rate=1000") as gateway:
            self.client.mount(gateway.port, "4.1")
            self.addCleanup(self.client.abandon)
            # The first open may come before the server has used the back channel.
            for _ in range(5):
                self.assertEqual(self.client.run("exec 7</mnt/file && cat <&7 && exec 7<&-"), "old")
                time.sleep(0.2)
            self.client.run("exec 7</mnt/file && cat <&7")
            self.set_rate(gateway, 1)
            self.client.run("for i in 1 2 3 4 5 6 7 8; do stat /mnt/other$i >/dev/null 2>&1 & done")
            began = time.monotonic()
            self.server.run("echo new >> /export/file")  # waits for the delegation
            took = time.monotonic() - began
            self.set_rate(gateway, 1000)
            self.assertGreaterEqual(gateway.metric("recalls"), 1)
            self.assertLess(took, 15, "the lease")
            self.client.run("wait; exec 7<&-")
            self.assertEqual(self.client.run("cat /mnt/file"), "old\nnew")
            self.client.unmount()

    def set_rate(self, gateway, rate):
        ganesha.run(ganesha.server.WEIR, "rule", "--control", gateway.control, "change", "root",
                    f"rate={rate}")


if __name__ == "__main__":
    ganesha.enter_namespace()
    unittest.main()
