# SPDX-License-Identifier: Apache-2.0
"""A small virtual machine that runs weir serve and can lose its power.

    with Guest(folder, disks=[path, path]) as guest:
        guest.wait_ready()
        guest.connect()              a plain socket to the server's NBD port
        guest.http("GET", "/v1/status")
        guest.cut()                  kill -9 of QEMU

The kernel is Debian's cloud kernel, unpacked from its package and never installed; its initramfs
contains busybox, weir with its libraries, and the modules for virtio. The first disk has an ext4
file system with an exported file and the journal; the second one is exported as a device. The
processor is emulated, which works in virtual machines and containers too.
"""
import contextlib
import fcntl
import gzip
import http.client
import os
import pathlib
import re
import shutil
import socket
import stat
import subprocess
import time

from drill import CannotRun
from server import RELEASE, ROOT, STUCK, enter
from world import free_ports

CACHE = ROOT / "build/drill"
MODULES = ("virtio_pci", "virtio_blk", "virtio_net")
# On a busy machine the kernel's check of the timer may fail.
KERNEL_OPTIONS = "console=ttyS0 quiet panic=-1 no_timer_check"
TOKEN = "a-token-of-this-guest-only-0123456789"
BOOT = 240  # seconds, on a busy machine; 5 on a quiet one
INIT = """#!/bin/sh
/bin/busybox --install -s /bin
mount -t proc none /proc
mount -t sysfs none /sys
mount -t devtmpfs none /dev
for module in {modules}; do insmod /modules/$module.ko; done
ifconfig lo 127.0.0.1 up
ifconfig eth0 10.0.2.15 netmask 255.255.255.0 up
mount -t ext4 /dev/vda /disk
nc -ll -p 9811 -e nc 127.0.0.1 9810 &
{weir} serve --listen 0.0.0.0:10809 --control none --control-tcp 127.0.0.1:9810 \\
  --control-token /token --journal /disk/journal --memory 32MiB --connections 64 \\
  --export file=file:/disk/file,size=16MiB --export device=device:/dev/vdb
echo the server ended with $?
poweroff -f
"""


def run(*command, **how):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True,
                          check=False, **how)
    if done.returncode != 0:
        raise CannotRun(f"{command[0]} failed: {(done.stderr or done.stdout).strip()[-300:]}")
    return done.stdout


def need(program, package):
    found = shutil.which(program)
    if not found:
        raise CannotRun(f"no {program}; as root run: apt-get install {package}")
    return found


def kernel_package():
    """The package name of the newest cloud kernel, on which the meta package depends. If the
    package lists are missing, root downloads them."""
    for command in (), ("apt-get", "update"):
        if command and os.geteuid() == 0:
            run(*command, timeout=300)
        shown = subprocess.run(["apt-cache", "show", "linux-image-cloud-amd64"],
                               capture_output=True, text=True, check=False).stdout
        if depends := re.search(r"^Depends: (linux-image-\S+)", shown, re.MULTILINE):
            return depends[1]
    raise CannotRun("no package linux-image-cloud-amd64; as root run: apt-get update")


def unpack_kernel():
    """The folder with boot/vmlinuz-* and lib/modules/*. Tests that need it may run at a time."""
    folder = CACHE / "kernel"
    CACHE.mkdir(parents=True, exist_ok=True)
    with open(CACHE / "lock", "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not list(folder.glob("boot/vmlinuz-*")):
            download_kernel(folder)
    return folder


def download_kernel(folder):
    need("apt-get", "apt")
    name = kernel_package()
    run("apt-get", "download", name, cwd=CACHE, timeout=300)
    package = next(CACHE.glob(f"{name}_*.deb"))
    unpacked = CACHE / "kernel.new"
    shutil.rmtree(unpacked, ignore_errors=True)
    run("dpkg-deb", "-x", package, unpacked)
    package.unlink()
    shutil.rmtree(folder, ignore_errors=True)
    unpacked.rename(folder)


def modules(kernel, names=MODULES):
    """Files of these modules, dependencies first."""
    files = {path.stem.replace("-", "_"): path for path in kernel.glob("lib/modules/**/*.ko")}
    order = []

    def add(name):
        path = files.get(name)
        if path is None or path in order:  # built into the kernel
            return
        text = re.search(rb"\0depends=([^\0]*)\0", b"\0" + path.read_bytes())
        for other in text[1].decode().split(",") if text and text[1] else ():
            add(other.replace("-", "_"))
        order.append(path)

    for name in names:
        add(name)
    return order


class Initramfs:
    """A cpio archive ("newc") as the kernel reads it."""

    def __init__(self):
        self.parts = []
        self.names = set()

    def entry(self, name, mode, content=b""):
        self.names.add(name)
        head = [len(self.names), mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name) + 1, 0]
        data = b"070701" + b"".join(b"%08x" % one for one in head) + name.encode() + b"\0"
        data += b"\0" * (-len(data) % 4) + content
        self.parts.append(data + b"\0" * (-len(data) % 4))

    def folder(self, name):
        path = pathlib.PurePosixPath(name)
        for one in [*reversed(path.parents[:-1]), path]:
            if str(one) not in self.names:
                self.entry(str(one), stat.S_IFDIR | 0o755)

    def file(self, name, content, mode=0o755):
        name = name.lstrip("/")
        if name in self.names:
            return
        if "/" in name:
            self.folder(name.rpartition("/")[0])
        self.entry(name, stat.S_IFREG | mode, content)

    def write(self, path):
        self.entry("TRAILER!!!", 0)
        path.write_bytes(gzip.compress(b"".join(self.parts), 1))


def make_initramfs(kernel, path):
    archive = Initramfs()
    for name in ("proc", "sys", "dev", "disk", "tmp", "run"):
        archive.folder(name)
    busybox = pathlib.Path(need("busybox", "busybox-static")).read_bytes()
    archive.file("bin/busybox", busybox)
    archive.file("bin/sh", busybox)
    # For `weir serve` it executes the second program, which it finds relative to its own folder.
    other = pathlib.Path(RELEASE).parent.parent / "libexec/weir/weir"
    for program, place in (RELEASE, "bin/weir"), (other, "libexec/weir/weir"):
        archive.file(place, pathlib.Path(program).read_bytes())
        for library in re.findall(r"(/\S+) \(0x", run("ldd", program)):
            archive.file(library, pathlib.Path(library).read_bytes())
    needed = modules(kernel)
    for module in needed:
        archive.file(f"modules/{module.name}", module.read_bytes())
    archive.file("token", TOKEN.encode(), 0o600)
    archive.file("init", INIT.format(modules=" ".join(one.stem for one in needed),
                                     weir="/bin/weir").encode())
    archive.write(path)


class Machine:
    """The kernel and its initramfs, common to all boots."""

    def __init__(self, folder):
        if os.uname().machine != "x86_64":
            raise CannotRun("the virtual machine is made for x86_64")
        self.qemu = need("qemu-system-x86_64", "qemu-system-x86")
        kernel = unpack_kernel()
        self.kernel = next(kernel.glob("boot/vmlinuz-*"))
        self.initramfs = folder / "initramfs"
        make_initramfs(kernel, self.initramfs)


class Guest:
    def __init__(self, machine, folder, disks):
        self.machine = machine
        self.console = folder / "console"
        self.disks = disks

    def __enter__(self):
        self.port, self.control_port = free_ports(2)
        command = [self.machine.qemu, "-nodefaults", "-no-user-config", "-display", "none",
                   "-no-reboot", "-m", "256", "-M", "pc", "-accel", "tcg", "-cpu", "qemu64",
                   "-serial", f"file:{self.console}", "-kernel", self.machine.kernel,
                   "-initrd", self.machine.initramfs, "-append", KERNEL_OPTIONS,
                   "-netdev", f"user,id=net,hostfwd=tcp:127.0.0.1:{self.port}-:10809,"
                   f"hostfwd=tcp:127.0.0.1:{self.control_port}-:9811",
                   "-device", "virtio-net-pci,netdev=net,romfile="]
        for disk in self.disks:
            command += ["-drive", f"file={disk},format=raw,if=virtio,cache=writeback"]
        self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        return self

    def __exit__(self, *_):
        self.cut()
        self.process.stderr.close()

    def cut(self):
        self.process.kill()
        self.process.wait(STUCK)

    def wait_ready(self):
        """Seconds from the start until the server accepted a client."""
        begun = time.monotonic()
        while True:
            with contextlib.suppress(OSError), self.connect(timeout=2) as client:
                enter(client, b"file")
                return time.monotonic() - begun
            if self.process.poll() is not None:
                raise AssertionError(f"the guest has ended: {self.told()}")
            if time.monotonic() - begun > BOOT:
                raise AssertionError(f"the server does not get ready: {self.told()}")
            time.sleep(0.05)

    def told(self):
        error = self.process.stderr.read() if self.process.poll() is not None else b""
        console = self.console.read_bytes() if self.console.exists() else b""
        return (error + console)[-2000:].decode(errors="replace")

    def connect(self, timeout=STUCK):
        return socket.create_connection(("127.0.0.1", self.port), timeout=timeout)

    def http(self, method, path, body=None):
        connection = http.client.HTTPConnection("127.0.0.1", self.control_port, timeout=STUCK)
        try:
            connection.request(method, path, body=body,
                               headers={"Authorization": f"Bearer {TOKEN}"})
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read().decode("utf-8")
        finally:
            connection.close()
