# SPDX-License-Identifier: Apache-2.0
"""NBD servers that are compared: how they are started, and one run of fio on each.

    with Images() as folder:
        run = measure(folder, "nbdkit file", bs="4k", depth=32, connections=4)
        run.cpu_us, run.rate, run.p99_us

The image is in /dev/shm, so that the server is measured and not a disk.
"""
import contextlib
import dataclasses
import json
import os
import pathlib
import socket
import subprocess
import tempfile
import time

WEIR = pathlib.Path(__file__).resolve().parent.parent / "build/release/apps/weir/weir"
MIB = 1 << 20
SIZE = 512 * MIB
SECONDS = 2
STUCK = 60


@dataclasses.dataclass
class Run:
    cpu_us: float   # of the server, an operation
    rate: float     # operations a second
    p99_us: float   # of the latency


class Images:
    """A folder in memory with an image of random bytes."""

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory(dir="/dev/shm")
        with open(f"{self.folder.name}/image", "wb") as image:
            for _ in range(SIZE // MIB):
                image.write(os.urandom(MIB))
        return self.folder.name

    def __exit__(self, *_):
        self.folder.cleanup()


def servers(folder):
    """Name: command line and name of the export."""
    path, image = f"{folder}/s", f"{folder}/image"
    weir = [WEIR, "serve", "--listen", f"unix:{path}"]
    return {
        "nbdkit file": (["nbdkit", "-f", "-U", path, "file", image], ""),
        "nbdkit memory": (["nbdkit", "-f", "-U", path, "memory", str(SIZE)], ""),
        "qemu-nbd": (["qemu-nbd", "-t", "-e", "16", "-f", "raw", "-k", path, image], ""),
        "q-s-d": (["qemu-storage-daemon",
                   "--blockdev", f"driver=file,node-name=f,filename={image},aio=io_uring",
                   "--nbd-server", f"addr.type=unix,addr.path={path},max-connections=16",
                   "--export", "type=nbd,id=e,node-name=f,name=a"], "a"),
        "weir file": ([*weir, "--export", f"a=file:{image}"], "a"),
        "weir epoll": ([*weir, "--export", f"a=file:{image}", "--io", "epoll"], "a"),
        "weir memory": ([*weir, "--export", f"a=memory:{SIZE}"], "a"),
        "weir fifo": ([*weir, "--export", f"a=memory:{SIZE}", "--policy", "fifo", "--adaptive",
                       "off"], "a"),
    }


def cpu_seconds(process):
    with open(f"/proc/{process.pid}/stat", encoding="ascii") as stat:
        fields = stat.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def wait_for(uri, server):
    deadline = time.monotonic() + STUCK
    while subprocess.run(["nbdinfo", "--size", uri], capture_output=True, check=False).returncode:
        if server.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"no server at {uri}")
        time.sleep(0.01)


def fio(uri, bs, depth, connections, *options):
    """The results of fio for the reads of all connections together."""
    out = subprocess.run(
        ["fio", "--name=x", "--ioengine=nbd", f"--uri={uri}", "--thread", "--norandommap",
         "--rw=randread", f"--bs={bs}", f"--size={SIZE}", f"--iodepth={depth}",
         f"--numjobs={connections}", "--group_reporting", "--output-format=json", *options],
        capture_output=True, text=True, check=True).stdout
    return json.loads(out[out.index("{"):])["jobs"][0]["read"]


def measure(folder, name, bs, depth, connections):
    command, export = servers(folder)[name]
    path = pathlib.Path(folder, "s")
    uri = f"nbd+unix:///{export}?socket={path}"
    path.unlink(missing_ok=True)
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as server:
        try:
            wait_for(uri, server)
            if "memory" in name or "fifo" in name:
                subprocess.run(["nbdcopy", f"{folder}/image", uri], check=True)
            before = cpu_seconds(server)
            read = fio(uri, bs, depth, connections, "--time_based", f"--runtime={SECONDS}")
            spent = cpu_seconds(server) - before
        finally:
            server.terminate()
    return Run(spent / read["total_ios"] * 1e6, read["iops"],
               read["clat_ns"]["percentile"]["99.000000"] / 1e3)


def end_under_valgrind(server, path):
    """valgrind runs one thread at a time and does not know that io_uring_enter may block: the
    thread that reads SIGTERM runs only while connections wake the loop."""
    server.terminate()
    deadline = time.monotonic() + STUCK
    while server.poll() is None:
        if time.monotonic() > deadline:
            server.kill()
            raise RuntimeError("the server does not end under valgrind")
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as waker:
            waker.settimeout(0.1)
            waker.connect(str(path))
        time.sleep(0.02)


def instructions(folder, policy, count, weir=WEIR, depth=32):
    """Instructions of the server in user space from start to exit with so many reads, counted by
    callgrind. One loop and no control thread, for the reason above; a version without loops has
    one. Reads are of random data: all of a hole is compared."""
    path = pathlib.Path(folder, "s")
    path.unlink(missing_ok=True)
    uri = f"nbd+unix:///a?socket={path}"
    known = subprocess.run([weir, "serve", "--help"], capture_output=True, text=True, check=True)
    one_loop = ["--threads", "1"] if "--threads" in known.stdout else []
    fio_command = ["fio", "--name=x", "--ioengine=nbd", f"--uri={uri}", "--thread", "--size=4M"]
    with subprocess.Popen(
            ["valgrind", "--trace-children=yes", "--tool=callgrind",
             "--callgrind-out-file=/dev/null", weir, "serve", *one_loop, "--control", "none",
             "--listen", f"unix:{path}", "--export", "a=memory:4MiB", *policy],
            stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as server:
        try:
            wait_for(uri, server)
            subprocess.run([*fio_command, "--rw=write", "--bs=1M", "--refill_buffers"],
                           capture_output=True, check=True)
            subprocess.run([*fio_command, "--norandommap", "--rw=randread", "--bs=4k",
                            f"--iodepth={depth}", f"--io_size={count * 4}k"],
                           capture_output=True, check=True)
        finally:
            end_under_valgrind(server, path)
        log = server.stderr.read()
    return int(next(line for line in log.splitlines() if "Collected :" in line).split()[-1])
