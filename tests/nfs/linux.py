# SPDX-License-Identifier: Apache-2.0
"""A Linux kernel in a small virtual machine, as a client of NFS, or as a server.

    with Linux(folder, CLIENT) as guest:
        guest.run("mount -t nfs4 -o vers=4.1,addr=10.0.2.2,port=2049 10.0.2.2:/export /mnt")

    with Linux(folder, SERVER) as guest:             # guest.port of 127.0.0.1 is its NFS server
        guest.serve()

The kernel and the initramfs are made as in tests/drill/guest.py: Debian's cloud kernel with its
modules, and busybox. The processor is emulated, so it is slow: for what is right, not for how fast.
From the guest, the machine that runs it is 10.0.2.2. Commands are sent to a shell on the serial
line.
"""
import os
import pathlib
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
for part in "clients", "control", "cluster", "drill":
    sys.path.insert(0, str(ROOT / "tests" / part))
from drill import CannotRun  # noqa: E402
from guest import Initramfs, modules, need, unpack_kernel  # noqa: E402
from world import free_ports  # noqa: E402

CLIENT = ("nfsv3", "nfsv4")
SERVER = ("nfsd",)
HOST = "10.0.2.2"
BOOT = 240     # seconds, on a busy machine; 10 on a quiet one
COMMAND = 240  # the longest command
KERNEL_OPTIONS = "console=ttyS0 quiet panic=-1 no_timer_check"
READY, END = "<<ready>>", "<<end"
INIT = """#!/bin/sh
/bin/busybox --install -s /bin
mount -t proc none /proc
mount -t sysfs none /sys
mount -t devtmpfs none /dev
mount -t tmpfs none /tmp
for module in {modules}; do insmod /modules/$module.ko; done
ifconfig lo 127.0.0.1 up
ifconfig eth0 10.0.2.15 netmask 255.255.255.0 up
hostname {name}
stty -echo -onlcr
echo "{ready}"
while IFS= read -r line; do eval "$line"; echo "{end} $?>>"; done
poweroff -f
"""
# Version 4 alone, since lockd needs rpcbind. Entries of the caches that mountd would fill: the
# export with number 0 for everybody. The flags of linux/nfsd/export.h: insecure ports, no subtree
# check, numbered; without others read and write.
NEVER = 2147483647
SERVE = f"""mkdir -p /export && mount -t tmpfs none /export && chmod 777 /export
mount -t nfsd none /proc/fs/nfsd
mkdir -p /var/lib/nfs/v4recovery
echo '-2 -3' > /proc/fs/nfsd/versions
echo 15 > /proc/fs/nfsd/nfsv4leasetime
echo 10 > /proc/fs/nfsd/nfsv4gracetime
echo 'nfsd {HOST} {NEVER} all' > /proc/net/rpc/auth.unix.ip/channel
echo 'all /export {NEVER} {0x2 | 0x400 | 0x2000} 65534 65534 0' > /proc/net/rpc/nfsd.export/channel
echo 'all 1 \\x00000000 {NEVER} /export' > /proc/net/rpc/nfsd.fh/channel
echo 'tcp 2049' > /proc/fs/nfsd/portlist
echo 4 > /proc/fs/nfsd/threads"""


def missing():
    """Why such a guest cannot run on this machine; empty if it can."""
    try:
        if os.uname().machine != "x86_64":
            return "the virtual machine is made for x86_64"
        need("qemu-system-x86_64", "qemu-system-x86")
        need("busybox", "busybox-static")
        unpack_kernel()
    except CannotRun as reason:
        return str(reason)
    return ""


def make_initramfs(kernel, names, path, programs):
    archive = Initramfs()
    for name in ("proc", "sys", "dev", "tmp", "mnt", "export"):
        archive.folder(name)
    busybox = pathlib.Path(need("busybox", "busybox-static")).read_bytes()
    archive.file("bin/busybox", busybox)
    archive.file("bin/sh", busybox)
    for program in programs:
        archive.file(f"bin/{program.name}", program.read_bytes())
    needed = modules(kernel, ("virtio_pci", "virtio_net", *names))
    for module in needed:
        archive.file(f"modules/{module.name}", module.read_bytes())
    archive.file("init", INIT.format(modules=" ".join(one.stem for one in needed), ready=READY,
                                     end=END, name=names[0]).encode())
    archive.write(path)


class Linux:
    def __init__(self, folder, names, programs=()):
        """With the given static programs in /bin."""
        kernel = unpack_kernel()
        self.kernel = next(kernel.glob("boot/vmlinuz-*"))
        self.initramfs = pathlib.Path(folder) / f"initramfs.{names[0]}"
        make_initramfs(kernel, names, self.initramfs, programs)

    def __enter__(self):
        self.port, = free_ports(1)
        self.process = subprocess.Popen(
            [need("qemu-system-x86_64", "qemu-system-x86"), "-nodefaults", "-no-user-config",
             "-display", "none", "-no-reboot", "-m", "256", "-M", "pc", "-accel", "tcg",
             "-cpu", "qemu64", "-serial", "stdio", "-kernel", self.kernel,
             "-initrd", self.initramfs, "-append", KERNEL_OPTIONS,
             "-netdev", f"user,id=net,hostfwd=tcp:127.0.0.1:{self.port}-:2049",
             "-device", "virtio-net-pci,netdev=net,romfile="],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.lines = []
        self.changed = threading.Condition()
        threading.Thread(target=self.listen, daemon=True).start()
        try:
            self.await_line(READY, BOOT)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.process.stdin.close()

    def listen(self):
        with self.process.stdout as output:
            for line in output:
                with self.changed:
                    self.lines.append(line.decode(errors="replace").rstrip("\r\n"))
                    self.changed.notify_all()
        with self.changed:
            self.lines.append("the virtual machine has ended")
            self.changed.notify_all()

    def await_line(self, start, seconds):
        """The lines before one that starts like this, and that one."""
        def found():
            return next((at for at, line in enumerate(self.lines) if line.startswith(start)), None)

        deadline = time.monotonic() + seconds
        with self.changed:
            while (at := found()) is None:
                if self.process.poll() is not None or time.monotonic() > deadline:
                    raise AssertionError(f"no {start}: {self.lines[-20:]}")
                self.changed.wait(1)
            before, line = self.lines[:at], self.lines[at]
            del self.lines[:at + 1]
        return before, line

    def run(self, command, status=0, seconds=COMMAND):
        """Runs a command of the shell; returns its output. A command may have several lines."""
        joined = "; ".join(line for line in command.splitlines() if line.strip())
        self.begin(joined)
        output, end = self.await_line(END, seconds)
        got = int(end.removeprefix(END).rstrip(">"))
        assert status is None or got == status, (command, got, output[-20:])
        return "\n".join(output)

    def begin(self, command):
        self.process.stdin.write(command.encode() + b"\n")
        self.process.stdin.flush()

    def serve(self):
        """Exports a folder in memory as the root of version 4, after the grace period."""
        self.run(SERVE)

    def mount(self, port, version, mount_port=None, path="/", options=""):
        if version == "3":
            kind, more = "nfs", f"nolock,proto=tcp,mountproto=tcp,mountport={mount_port}"
        else:
            kind, more = "nfs4", "clientaddr=10.0.2.15"
        self.run(f"mount -t {kind} -o vers={version},addr={HOST},port={port},{more}{options} "
                 f"{HOST}:{path} /mnt")

    def unmount(self):
        self.run("umount /mnt")

    def abandon(self):
        """Unmounts without a server, if anything is mounted."""
        self.run("umount -f -l /mnt 2>/dev/null", None)
