# SPDX-License-Identifier: Apache-2.0
"""How well a server keeps rates and shares, counted by its clients; for bench/serve.

Each function measures once and returns numbers that can be compared with a limit: errors and
shortfalls in percent. The servers are those of the tests (tests/clients/server.py), with the
release build.
"""
import collections
import json
import pathlib
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests/clients"))
import server as s  # noqa: E402
from measured import fio  # noqa: E402
from server import RELEASE, Server  # noqa: E402

SECONDS = 5
WINDOW_MS = 100


def one_client(server, bs, folder):
    """Operations answered, the duration, and the millisecond of each."""
    done = subprocess.run(
        ["fio", "--name=x", "--ioengine=nbd", f"--uri={server.uri('a,job=x')}", "--thread",
         "--rw=randread", f"--bs={bs}", "--size=32M", "--norandommap", "--iodepth=64",
         "--time_based", f"--runtime={SECONDS}", "--write_lat_log=x", "--output-format=json"],
        cwd=folder, capture_output=True, text=True, check=True)
    read = json.loads(done.stdout[done.stdout.index("{"):])["jobs"][0]["read"]
    with open(pathlib.Path(folder) / "x_clat.1.log", encoding="ascii") as log:
        times = [int(line.split(",", 1)[0]) for line in log]
    return read["total_ios"], read["runtime"] / 1000, times


def fullest_window(times):
    """The maximum number of operations in any WINDOW_MS."""
    counts = collections.Counter(times)
    first, last = min(times), max(times)
    held = sum(counts[at] for at in range(first, first + WINDOW_MS))
    most = held
    for at in range(first + WINDOW_MS, last + 1):
        held += counts[at] - counts[at - WINDOW_MS]
        most = max(most, held)
    return most


def fidelity(limit, rate, bs, io="auto"):
    """Errors of the rate in percent, from the start and after 3 s idle, and by how much the fullest
    window is above rate and burst. `rate` is in operations of `bs` bytes."""
    burst = max(3, rate * 0.01)
    errors, above = [], []
    with Server("--export", "a=memory:64MiB", "--adaptive", "off", "--io", io, "--rule",
                f"start r jobid={{x}} {limit}", binary=RELEASE) as server, \
            tempfile.TemporaryDirectory() as folder:
        for pause in (0, 3):
            time.sleep(pause)
            count, seconds, times = one_client(server, bs, folder)
            errors.append(100 * abs(count / (rate * seconds) - 1))
            # A client that is still sending when its first replies arrive reads them later,
            # together.
            allowed = rate * (WINDOW_MS + min(times)) / 1000 + burst
            above.append(100 * max(fullest_window(times) / allowed - 1, 0))
    return errors[0], errors[1], max(above)


def depths():
    """The largest deviation from 1,000 of four jobs with depths 1 to 64, in percent."""
    with Server("--export", "a=memory:64MiB", "--capacity", "4000", binary=RELEASE) as server:
        rates = fio([(f"d{depth}", server.uri(f"a,job=d{depth}"), f"--iodepth={depth}")
                     for depth in (1, 4, 16, 64)], 4, "--ramp_time=1")
    return max(abs(rate / 10 - 100) for rate in rates.values())


def sizes():
    """The larger deviation from half of 100 MB/s of 4 KiB against 64 KiB, in percent."""
    with Server("--export", "a=memory:64MiB", "--capacity", "100MB/s", binary=RELEASE) as server:
        rates = fio([("small", server.uri("a,job=small"), "--bs=4k"),
                     ("large", server.uri("a,job=large"), "--bs=64k")], 4, "--iodepth=32",
                    "--ramp_time=1")
    return max(abs(rates["small"] * 4096 / 0.5e6 - 100), abs(rates["large"] * 65536 / 0.5e6 - 100))


def utilisation():
    """Of 4,000 a second, with one of four jobs idle, in percent."""
    with Server("--export", "a=memory:64MiB", "--capacity", "4000", binary=RELEASE) as server:
        client = server.connect()
        s.enter(client, b"a,job=idle")
        client.sendall(s.request(s.READ, 1, 0, 4096))
        s.simple_reply(client, 4096)
        rates = fio([(f"j{i}", server.uri(f"a,job=j{i}")) for i in range(3)], 4, "--iodepth=16",
                    "--ramp_time=1")
        client.close()
    return sum(rates.values()) / 40


def crowded(idle):
    """Operations a second of 64 connections beside so many silent ones."""
    with Server("--export", "a=memory:64MiB", binary=RELEASE) as server:
        others = []
        for _ in range(idle):
            client = server.connect()
            s.enter(client)
            others.append(client)
        rates = fio([("x", server.uri("a"), "--numjobs=64")], 3, "--iodepth=1", "--ramp_time=1",
                    "--group_reporting")
        for client in others:
            client.close()
    return rates["x"]
