#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Records conversations between clients and servers of NFS, for recorded_test.cc.

    sudo tests/nfs/record.py FOLDER

Clients are libnfs (nfs-ls, nfs-cp, nfs-cat) and the Linux kernel in a small virtual machine; the
server is NFS-Ganesha on a folder of its own. Everything runs in a network namespace of its own, so
no port of the machine is used. Needs the Debian packages nfs-ganesha nfs-ganesha-vfs libnfs-utils
rpcbind busybox-static qemu-system-x86 iproute2, and fetches a kernel as ./dev drill power does.

Between client and server stands a relay, on one port for each conversation. It passes on what it
reads and writes it down: a file NAME.rpc is a sequence of pieces as they came, each of

    connection u8, direction u8 ('>' from the client, '<' from the server), length u32, bytes
"""
import contextlib
import os
import pathlib
import selectors
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests"), str(ROOT / "tests/drill"), str(ROOT / "tests/clients")]

import ganesha  # noqa: E402
import guest  # noqa: E402

NFS_PORT, MOUNT_PORT = 21049, 21050
BOOT_AND_RUN = 400  # seconds, on a busy machine
CONVERSATIONS = {  # name: (port of the relay, port of the server)
    "libnfs_mount": (22001, MOUNT_PORT), "libnfs_v3": (22002, NFS_PORT),
    "libnfs_v40": (22003, NFS_PORT),
    "linux_mount": (22010, MOUNT_PORT), "linux_v3": (22011, NFS_PORT),
    "linux_v40": (22012, NFS_PORT), "linux_v41": (22013, NFS_PORT), "linux_v42": (22014, NFS_PORT),
}
MODULES = ("virtio_pci", "virtio_net", "nfs", "nfsv3", "nfsv4")
INIT = """#!/bin/sh
/bin/busybox --install -s /bin
mount -t proc none /proc
mount -t sysfs none /sys
mount -t devtmpfs none /dev
hostname guest
for module in {modules}; do insmod /modules/$module.ko; done
ifconfig lo 127.0.0.1 up
ifconfig eth0 10.0.2.15 netmask 255.255.255.0 up
use() {{
  echo begin $1
  cd /mnt && mkdir $1 && chmod 777 $1 && cd $1
  su user -c '
    echo hello > a; dd if=/dev/zero of=b bs=500 count=3 conv=fsync; fallocate -l 900 h; ls; rm h'
  case $1 in v3|v41) su user -c '
    mkdir d; mv a d/c; ln d/c e; ln -s d/c f; readlink f; chmod 600 e; truncate -s 3 e; mkfifo p
    df .; cat missing; ls -l d; rm -r d e f p';;
  esac
  cd /; umount /mnt
  mount -i "$2" "$3" -o "$4" "$5" /mnt; cat /mnt/$1/b | wc -c; rm -r /mnt/$1; umount /mnt
  echo end $1
}}
both() {{ mount -i "$2" "$3" -o "$4" "$5" /mnt && use "$@"; }}
both v3 -t nfs {v3} 10.0.2.2:{folder}/export
for minor in 0 1 2; do
  both v4$minor -t nfs4 vers=4.$minor,port=$((22012 + minor)),{v4} 10.0.2.2:/export
done
echo all done
poweroff -f
"""


class Relay:
    """Passes bytes between clients and one port of the server, and writes them down."""

    def __init__(self, port, server_port):
        self.server_port = server_port
        self.pieces, self.connections = [], 0
        self.listener = socket.create_server(("127.0.0.1", port))
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            client, _ = self.listener.accept()
            server = socket.create_connection(("127.0.0.1", self.server_port))
            number = self.connections
            self.connections += 1
            threading.Thread(target=self.pass_on, args=(number, client, server),
                             daemon=True).start()

    def pass_on(self, number, client, server):
        with client, server, selectors.DefaultSelector() as selector:
            selector.register(client, selectors.EVENT_READ, (b">", server))
            selector.register(server, selectors.EVENT_READ, (b"<", client))
            with contextlib.suppress(OSError):
                while True:
                    for key, _ in selector.select():
                        direction, other = key.data
                        read = key.fileobj.recv(1 << 18)
                        if not read:
                            return
                        self.pieces.append(struct.pack(">Bc", number, direction)
                                           + struct.pack(">I", len(read)) + read)
                        other.sendall(read)

    def save(self, path):
        path.write_bytes(b"".join(self.pieces))


def start_server(folder, processes):
    for name in "export", "state":
        (folder / name).mkdir()
    (folder / "export").chmod(0o777)
    (folder / "ganesha.conf").write_text(
        ganesha.CONFIGURATION.format(nfs=NFS_PORT, mount=MOUNT_PORT, folder=folder))
    processes.append(subprocess.Popen(["rpcbind", "-f", "-w"]))
    time.sleep(1)
    server = subprocess.Popen(["ganesha.nfsd", "-F", "-L", folder / "log", "-p", folder / "pid",
                               "-f", folder / "ganesha.conf"])
    processes.append(server)
    for _ in range(600):
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", NFS_PORT)):
            return
        if server.poll() is not None:
            break
        time.sleep(0.1)
    raise SystemExit("Ganesha does not start:\n" + (folder / "log").read_text()[-2000:])


def libnfs(folder):
    local = folder / "local"
    local.write_bytes(b"a file of libnfs\n" * 300)
    v3 = "?version=3&nfsport=22002&mountport=22001"
    v4 = "?version=4&nfsport=22003"
    for root, name, options in (f"{folder}/export", "three", v3), ("/export", "four", v4):
        url = f"nfs://127.0.0.1{root}"
        for command in (["nfs-cp", local, f"{url}/{name}{options}"],
                        ["nfs-ls", "-s", f"{url}/{options}"],
                        ["nfs-cat", f"{url}/{name}{options}"]):
            done = subprocess.run(command, capture_output=True, check=False, timeout=60)
            print(*command, "->", done.returncode, done.stderr.decode()[-200:].strip())


def linux(folder):
    guest.MODULES = MODULES
    kernel = guest.unpack_kernel()
    archive = guest.Initramfs()
    for name in "proc", "sys", "dev", "mnt", "tmp":
        archive.folder(name)
    busybox = pathlib.Path(guest.need("busybox", "busybox-static")).read_bytes()
    archive.file("bin/busybox", busybox)
    archive.file("bin/sh", busybox)
    archive.file("etc/passwd", b"root:x:0:0::/:/bin/sh\nuser:x:1000:100::/:/bin/sh\n")
    archive.file("etc/group", b"root:x:0:\nusers:x:100:user\nlab:x:27:user\n")
    needed = guest.modules(kernel)
    for module in needed:
        archive.file(f"modules/{module.name}", module.read_bytes())
    v3 = ("vers=3,proto=tcp,mountproto=tcp,nolock,addr=10.0.2.2,mountaddr=10.0.2.2,port=22011,"
          "mountport=22010,mountvers=3")
    v4 = "proto=tcp,addr=10.0.2.2,clientaddr=10.0.2.15"
    archive.file("init", INIT.format(modules=" ".join(one.stem for one in needed), v3=v3, v4=v4,
                                     folder=folder).encode())
    archive.write(folder / "initramfs")
    console = folder / "console"
    machine = subprocess.Popen(
        [guest.need("qemu-system-x86_64", "qemu-system-x86"), "-nodefaults", "-no-user-config",
         "-display", "none", "-no-reboot", "-m", "256", "-M", "pc", "-accel", "tcg",
         "-cpu", "qemu64", "-serial", f"file:{console}",
         "-kernel", next(kernel.glob("boot/vmlinuz-*")), "-initrd", folder / "initramfs",
         "-append", guest.KERNEL_OPTIONS,
         "-netdev", "user,id=net", "-device", "virtio-net-pci,netdev=net,romfile="])
    try:
        machine.wait(BOOT_AND_RUN)
    except subprocess.TimeoutExpired:
        machine.kill()
        print("the virtual machine has not ended; what it has said is saved all the same")
    print(console.read_text(errors="replace")[-6000:])


def main():
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    if os.environ.get("WEIR_NAMESPACE") != "own":
        os.environ["WEIR_NAMESPACE"] = "own"
        os.execvp("unshare", ["unshare", "--net", sys.executable, *sys.argv])
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    into = pathlib.Path(sys.argv[1])
    into.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        folder.chmod(0o755)
        processes = []
        try:
            start_server(folder, processes)
            relays = {name: Relay(*ports) for name, ports in CONVERSATIONS.items()}
            libnfs(folder)
            linux(folder)
        finally:
            for process in processes:
                process.kill()
                process.wait()
        for name, relay in relays.items():
            relay.save(into / f"{name}.rpc")
            print(f"{name}: {relay.connections} connections, {len(relay.pieces)} pieces, "
                  f"{(into / f'{name}.rpc').stat().st_size} bytes")


if __name__ == "__main__":
    main()
