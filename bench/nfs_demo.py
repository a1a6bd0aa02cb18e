#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""./dev demo nfs: twenty users of an NFS server, one of whom runs tar and find.

NFS-Ganesha serves a folder behind a relay that makes it slow: 150 calls a second, one after the
other, like a server with one busy disk. Nineteen users read a small file now and then with libnfs,
each time with a new mount. The twentieth walks a folder and reads all its files with 128 calls in
flight, as a Linux client does for tar and find. The same load runs without Weir and through weir
nfs, which only knows the capacity. The demo measures how long the nineteen wait for their file.

Everything runs in a separate network namespace; needs root.
"""
import collections
import html
import itertools
import json
import math
import os
import pathlib
import queue
import random
import socket
import struct
import subprocess
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "tests/nfs"), str(ROOT / "tests/clients")]
import ganesha  # noqa: E402
import rpc  # noqa: E402

WEIR = ROOT / "build/release/apps/weir/weir"
OUT = ROOT / "data/demo-nfs"
SECONDS = int(os.environ.get("WEIR_DEMO_SECONDS", "45"))
RATE = 150      # calls a second that the server can serve
USERS = 19
GREEDY = 2000   # the user of tar and find
IN_FLIGHT = 128
FILES = 64
COLORS = {"without Weir": "#b4430a", "with Weir": "#00704f"}


class SlowServer:
    """Passes calls of all connections to a server one after the other, RATE a second; replies at
    once."""

    def __init__(self, server_port):
        self.server_port = server_port
        self.calls = queue.Queue()
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.port = self.listener.getsockname()[1]
        for work in self.accept, self.forward:
            threading.Thread(target=work, daemon=True).start()

    def accept(self):
        while True:
            client, _ = self.listener.accept()
            server = socket.create_connection(("127.0.0.1", self.server_port))
            for work in self.take, self.pass_back:
                threading.Thread(target=work, args=(client, server), daemon=True).start()

    def take(self, client, server):
        try:
            while True:
                self.calls.put((server, rpc.record(rpc.message_of(client))))
        except OSError:
            self.calls.put((server, None))

    def pass_back(self, client, server):
        try:
            while piece := server.recv(1 << 18):
                client.sendall(piece)
        except OSError:
            pass
        client.close()

    def forward(self):
        due = time.monotonic()
        while True:
            server, call = self.calls.get()
            try:
                if call is None:
                    server.close()
                    continue
                now = time.monotonic()
                due = max(due, now - 0.05) + 1 / RATE
                if due > now:
                    time.sleep(due - now)
                server.sendall(call)
            except OSError:
                pass


class TarAndFind:
    """Lists the folder, gets the attributes of each file and reads it, with IN_FLIGHT calls at a
    time."""

    def __init__(self, nfs, port, root, handles):
        self.client = rpc.Client(port)
        self.calls = itertools.cycle(self.walk(root, handles))
        self.xids = itertools.count(1)
        self.done, self.is_over = 0, False
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    @staticmethod
    def walk(root, handles):
        yield lambda xid: rpc.call(xid, rpc.NFS, 3, 17, rpc.opaque(root) + bytes(16)
                                   + rpc.u32(8192, 32768), GREEDY)
        for handle in handles:
            yield lambda xid, handle=handle: rpc.getattr3(xid, handle, GREEDY)
            yield lambda xid, handle=handle: rpc.read3(xid, handle, 65536, GREEDY)

    def run(self):
        try:
            self.client.send(*(next(self.calls)(next(self.xids)) for _ in range(IN_FLIGHT)))
            while not self.is_over:
                self.client.reply()
                self.done += 1
                self.client.send(next(self.calls)(next(self.xids)))
        except OSError:
            pass

    def stop(self):
        self.is_over = True
        self.client.socket.shutdown(socket.SHUT_RDWR)
        self.thread.join()


def read_small_files(nfs, port, uid, end, waits):
    """One of the nineteen: a file, a pause, and again."""
    chance = random.Random(uid)
    time.sleep(chance.random() * 2)
    while time.monotonic() < end:
        began = time.monotonic()
        ganesha.run("nfs-cat", nfs.url("small", port, uid=uid))
        waits.append(time.monotonic() - began)
        time.sleep(1 + chance.random())


def run(nfs, port, root, handles):
    """Seconds that each file took, and the calls per second of the greedy user."""
    greedy = TarAndFind(nfs, port, root, handles)
    time.sleep(1)
    waits, end = [], time.monotonic() + SECONDS
    before, began = greedy.done, time.monotonic()
    users = [threading.Thread(target=read_small_files, args=(nfs, port, 1000 + user, end, waits))
             for user in range(USERS)]
    for user in users:
        user.start()
    time.sleep(SECONDS)
    rate = (greedy.done - before) / (time.monotonic() - began)
    for user in users:
        user.join()
    greedy.stop()
    return sorted(waits), rate


def percentile(waits, percent):
    return waits[min(len(waits) * percent // 100, len(waits) - 1)]


def chart(runs):
    """The fraction of files that were read after a time; the time axis is logarithmic."""
    width, height, left, bottom = 900, 360, 60, 40
    first, last = 0.01, max(10.0, *(waits[-1] for waits, _ in runs.values()))

    def x(seconds):
        part = math.log(max(seconds, first) / first) / math.log(last / first)
        return left + part * (width - left - 20)

    def y(share):
        return 15 + (1 - share) * (height - bottom - 15)

    parts = [f'<svg viewBox="0 0 {width} {height}" role="img" '
             'aria-label="Share of files that were read within a time">']
    for share in (0, .25, .5, .75, 1):
        parts.append(f'<line x1="{left}" x2="{width - 20}" y1="{y(share)}" y2="{y(share)}" '
                     'stroke="var(--line)"/>'
                     f'<text x="{left - 8}" y="{y(share) + 4}" text-anchor="end" font-size="13" '
                     f'fill="var(--soft)">{share * 100:.0f} %</text>')
    for seconds in (.01, .03, .1, .3, 1, 3, 10, 30, 100):
        if seconds <= last:
            parts.append(f'<text x="{x(seconds)}" y="{height - 14}" text-anchor="middle" '
                         f'font-size="13" fill="var(--soft)">{seconds:g} s</text>')
    for name, (waits, _) in runs.items():
        points = " ".join(f"{x(wait):.1f},{y((index + 1) / len(waits)):.1f}"
                          for index, wait in enumerate(waits))
        parts.append(f'<polyline points="{points}" fill="none" stroke="{COLORS[name]}" '
                     'stroke-width="3"/>')
    return "".join(parts) + "</svg>"


def report(runs):
    style = f"<style>\n{(ROOT / 'web/report.css').read_text(encoding='utf-8')}</style>"
    rows = "".join(
        f'<tr class="first"><td class="name"><span class="swatch" '
        f'style="background:{COLORS[name]}"></span><b>{html.escape(name)}</b></td>'
        f"<td>{len(waits)}</td><td>{percentile(waits, 50):.2f} s</td>"
        f"<td>{percentile(waits, 99):.2f} s</td><td>{waits[-1]:.2f} s</td>"
        f"<td>{rate:.0f}/s</td></tr>"
        for name, (waits, rate) in runs.items())
    legend = "".join(f'<li><i style="border-color:{color}"></i>{name}</li>'
                     for name, color in COLORS.items())
    return f"""<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Weir: twenty users of an NFS server</title>
{style}
<main>
<header><div><h1>Twenty users of an NFS server</h1>
<p class="note">Nineteen users read a small file now and then. One runs tar and find with
{IN_FLIGHT} calls in flight. The server does {RATE} calls a second. {SECONDS} s each; no rules are
set.</p></div></header>
<h2>How long the nineteen wait for a file</h2>
<p class="note">Share of files that were there after so long, with mount, lookup and read.</p>
<ul class="legend">{legend}</ul>
<figure>{chart(runs)}</figure>
<h2>Figures</h2>
<div class="scroll"><table><thead><tr><th class="name"></th><th>files read</th><th>half within</th>
<th>99 % within</th><th>longest</th><th>calls of tar and find</th></tr></thead>
<tbody>{rows}</tbody></table></div>
</main>
</html>
"""


def prepare(nfs):
    """The file of the nineteen, and the folder of the twentieth: its handle and those of its
    files."""
    (nfs.export / "small").write_bytes(os.urandom(4096))
    folder = nfs.export / "folder"
    folder.mkdir()
    for number in range(FILES):
        (folder / f"file{number}").write_bytes(os.urandom(65536))
    root = rpc.root3(nfs.mount_port, nfs.export)
    with rpc.Client(nfs.port) as client:
        def look_up(parent, name):
            client.send(rpc.call(1, rpc.NFS, 3, 3, rpc.opaque(parent) + rpc.opaque(name), 0))
            _, results = client.reply()
            status, size = struct.unpack(">II", results[:8])
            assert status == 0, status
            return results[8:8 + size]
        handle = look_up(root, b"folder")
        return handle, [look_up(handle, b"file%d" % number) for number in range(FILES)]


def through_weir(nfs, slow, root, handles):
    command = [WEIR, "nfs", "--listen", "127.0.0.1:0", "--server", f"127.0.0.1:{slow.port}",
               "--capacity", str(RATE), "--slots", "4", "--control", "none"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as weir:
        try:
            ready = weir.stdout.readline().split()
            if not ready or ready[0] != "ready":
                sys.exit("demo: weir nfs did not start; see its message above")
            return run(nfs, int(ready[1].rpartition(":")[2]), root, handles)
        finally:
            weir.terminate()


def main():
    if reason := ganesha.missing():
        sys.exit(f"demo: {reason}; run ./dev setup")
    if not WEIR.exists():
        sys.exit("demo: weir is not built; run ./dev build release")
    if os.environ.get("WEIR_NAMESPACE") != "own":
        os.environ["WEIR_NAMESPACE"] = "own"
        os.execvp("unshare", ["unshare", "--net", "--mount", sys.executable, *sys.argv])
    OUT.mkdir(parents=True, exist_ok=True)
    runs = collections.OrderedDict()
    with ganesha.Ganesha() as nfs:
        root, handles = prepare(nfs)
        print(f"demo: without Weir, {SECONDS} s", file=sys.stderr, flush=True)
        runs["without Weir"] = run(nfs, SlowServer(nfs.port).port, root, handles)
        print(f"demo: with Weir, {SECONDS} s", file=sys.stderr, flush=True)
        runs["with Weir"] = through_weir(nfs, SlowServer(nfs.port), root, handles)
    print(f"{'':16}{'files':>8}{'p50':>10}{'p99':>10}{'longest':>10}{'tar and find':>16}")
    for name, (waits, rate) in runs.items():
        print(f"{name:16}{len(waits):>8}{percentile(waits, 50):>8.2f} s"
              f"{percentile(waits, 99):>8.2f} s{waits[-1]:>8.2f} s{rate:>14.0f}/s")
    (OUT / "report.html").write_text(report(runs), encoding="utf-8")
    (OUT / "figures.json").write_text(json.dumps(
        {name: {"waits": waits, "greedy": rate} for name, (waits, rate) in runs.items()}),
        encoding="utf-8")
    print(f"\nreport: {OUT / 'report.html'}")


if __name__ == "__main__":
    main()
