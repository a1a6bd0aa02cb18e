#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes the pictures of README.md.

    docs/pictures/make.py chart [FOLDER]     demo-light.svg, demo-dark.svg: exact, from weir sim
    docs/pictures/make.py page [FOLDER]      page-light.png, page-dark.png: a server under load

The chart is the scenario of ./dev demo in virtual time, so the same build always makes the same
files. The page shows a real server with fio clients, in Chromium after a minute and a half.
WEIR_RELEASE_BIN is the program to use, by default that of build/release.
"""
import csv
import json
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
WEIR = os.environ.get("WEIR_RELEASE_BIN", str(ROOT / "build/release/apps/weir/weir"))

# ---- the chart ----

SECONDS = 30
CAPACITY = 1000
PANELS = {"none": "No policy", "static": "A fixed limit for each job", "weir": "Weir"}
THEMES = {
    "light": {"ink": "#1f2328", "soft": "#59636e", "grid": "#d1d9e0", "paper": "#ffffff",
              "jobs": ("#0969da", "#1a9e77", "#8250df", "#e0823d")},
    "dark": {"ink": "#f0f6fc", "soft": "#9198a1", "grid": "#3d444d", "paper": "#0d1117",
             "jobs": ("#4493f8", "#2fb894", "#ab7df8", "#e08a4a")},
}
WIDTH, HEIGHT = 880, 352
LEFT, TOP, GAP = 46, 110, 22
PANEL_WIDTH, PANEL_HEIGHT = 262, 174
TICKS = (0, 250, 500, 750, 1000)
FONT = "system-ui, -apple-system, 'Segoe UI', Helvetica, Arial, sans-serif"


def simulate():
    """Policy: job: requests served in each second; and the summaries of all."""
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([WEIR, "sim", "redistribution", "--policy", ",".join(PANELS), "--length",
                        f"{SECONDS}s", "--seed", "1", "--out", folder, "--quiet"], check=True)
        served = {}
        with open(f"{folder}/throughput.csv", encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                jobs = served.setdefault(row["policy"], {})
                jobs.setdefault(row["job"], [0] * SECONDS)[int(float(row["time_s"]))] = \
                    int(row["served"])
        with open(f"{folder}/result.json", encoding="utf-8") as file:
            return served, json.load(file)["policies"]


class Svg:
    def __init__(self, theme):
        self.theme = theme
        self.lines = []

    def add(self, element, text=None, **attributes):
        written = "".join(f' {name.replace("_", "-")}="{value}"'
                          for name, value in attributes.items())
        self.lines.append(f"<{element}{written}/>" if text is None
                          else f"<{element}{written}>{text}</{element}>")

    def text(self, x, y, text, size=12, ink="ink", **attributes):
        self.add("text", text, x=x, y=y, font_size=size, fill=self.theme[ink], **attributes)

    def area(self, color, below, above, x, y, step):
        """Between two staircases."""
        there = "".join(f"H{x + i * step:.1f}V{y(top):.1f}H{x + (i + 1) * step:.1f}"
                        for i, top in enumerate(above))
        back = "".join(f"H{x + (i + 1) * step:.1f}V{y(bottom):.1f}H{x + i * step:.1f}"
                       for i, bottom in reversed(list(enumerate(below))))
        self.add("path", d=f"M{x:.1f} {y(above[0]):.1f}{there}{back}Z", fill=color)


def panel(svg, number, policy, jobs, summary):
    left = LEFT + number * (PANEL_WIDTH + GAP)
    bottom = TOP + PANEL_HEIGHT

    def y(requests):
        return bottom - requests * PANEL_HEIGHT / (CAPACITY * 1.06)

    waits = [job["wait_p99_ms"] for name, job in summary["jobs"].items() if name != "job4"]
    svg.text(left, TOP - 46, PANELS[policy], 14, font_weight="600")
    svg.text(left, TOP - 28, f"{100 * summary['utilisation']:.0f} % of the device is used",
             11.5, "soft")
    svg.text(left, TOP - 12, f"bursts wait {max(waits):.0f} ms (99th percentile)", 11.5, "soft")
    for tick in TICKS:
        svg.add("line", x1=left, x2=left + PANEL_WIDTH, y1=f"{y(tick):.1f}", y2=f"{y(tick):.1f}",
                stroke=svg.theme["grid"], stroke_width=1)
        if number == 0:
            svg.text(left - 7, f"{y(tick) + 4:.1f}", f"{tick:,}", 11, "soft", text_anchor="end")
    below = [0] * SECONDS
    for color, served in zip(svg.theme["jobs"], jobs.values()):
        above = [low + more for low, more in zip(below, served)]
        svg.area(color, below, above, left, y, PANEL_WIDTH / SECONDS)
        below = above
    svg.add("line", x1=left, x2=left + PANEL_WIDTH, y1=f"{y(CAPACITY):.1f}",
            y2=f"{y(CAPACITY):.1f}", stroke=svg.theme["ink"], stroke_width=1,
            stroke_dasharray="4 3")
    for second in range(0, SECONDS + 1, 10):
        x = left + second * PANEL_WIDTH / SECONDS
        svg.text(f"{x:.1f}", bottom + 17, f"{second} s", 11, "soft", text_anchor="middle"
                 if 0 < second < SECONDS else "start" if second == 0 else "end")


def chart(theme, served, summaries):
    svg = Svg(THEMES[theme])
    svg.text(LEFT - 40, 22, "Requests per second of four jobs that share a device",
             15, font_weight="600")
    for number, policy in enumerate(PANELS):
        panel(svg, number, policy, served[policy], summaries[policy])
    x = LEFT
    for color, job in zip(svg.theme["jobs"], summaries["weir"]["jobs"]):
        nodes = summaries["weir"]["jobs"][job]["nodes"]
        label = f"{job}: {nodes} nodes, bursts" if nodes > 1 else f"{job}: 1 node, steady"
        svg.add("rect", x=x, y=HEIGHT - 27, width=11, height=11, rx=2, fill=color)
        svg.text(x + 17, HEIGHT - 17, label, 12)
        x += 164
    svg.add("line", x1=x, x2=x + 24, y1=HEIGHT - 21, y2=HEIGHT - 21,
            stroke=svg.theme["ink"], stroke_dasharray="4 3")
    svg.text(x + 31, HEIGHT - 17, "capacity of the device", 12)
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
            f'width="{WIDTH}" height="{HEIGHT}" font-family="{FONT}" role="img" '
            'aria-label="Throughput of four jobs under three policies">\n'
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="{svg.theme["paper"]}"/>\n'
            + "\n".join(svg.lines) + "\n</svg>\n")


def make_charts(folder):
    served, summaries = simulate()
    for theme in THEMES:
        (folder / f"demo-{theme}.svg").write_text(chart(theme, served, summaries),
                                                  encoding="utf-8")


# ---- the page ----

LOAD_SECONDS = 90
NODES = {"ior.17": 8, "vm-web": 2, "vm-db": 2, "backup": 1, "scan": 1}
FIO = {  # job: what it asks for
    "ior.17": ["--iodepth=16", "--thinktime=8s", "--thinktime_blocks=2500"],
    "vm-web": ["--iodepth=4", "--rw=randrw", "--rwmixread=80", "--rate_iops=120,30"],
    "vm-db": ["--iodepth=4", "--rw=randwrite", "--rate_iops=100"],
    "backup": ["--iodepth=8", "--bs=64k", "--rw=read"],
    "scan": ["--iodepth=32"],
}


def make_page(folder):
    sys.path.insert(0, str(ROOT / "tests/control"))
    from page_test import modules
    from remote import Remote
    clients = []
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        (scratch / "token").write_text("token", encoding="utf-8")
        (scratch / "nodes").write_text("".join(f"{job} {count}\n" for job, count in NODES.items()),
                                       encoding="utf-8")
        with Remote("--export", "disk=shaped:iops=1000:memory:256MiB", "--capacity", "1000",
                    "--slots", "16", "--jobs", scratch / "nodes",
                    "--rule", "start backup jobid={backup} bps=5MiB",
                    "--rule", "start vms jobid={vm-*} rate=300 by=jobid",
                    "--control-tcp", "127.0.0.1:0", "--control-token", scratch / "token",
                    binary=WEIR) as server:
            try:
                for job, options in FIO.items():
                    clients.append(subprocess.Popen(
                        ["fio", f"--name={job}", "--ioengine=nbd", "--thread", "--rw=randread",
                         "--bs=4k", "--size=64M", "--norandommap", "--time_based",
                         f"--runtime={10 * LOAD_SECONDS}",
                         f"--uri={server.uri(f'disk,job={job}')}", *options],
                        cwd=scratch, stdout=subprocess.DEVNULL))
                subprocess.run(["node", HERE / "page.mjs", modules(),
                                f"http://127.0.0.1:{server.control_port}/#token=token", folder,
                                str(LOAD_SECONDS)], check=True)
            finally:
                for client in clients:
                    client.kill()
                    client.wait()


def main():
    makers = {"chart": make_charts, "page": make_page}
    if len(sys.argv) not in (2, 3) or sys.argv[1] not in makers:
        sys.exit(__doc__)
    makers[sys.argv[1]](pathlib.Path(sys.argv[2] if len(sys.argv) == 3 else HERE))


if __name__ == "__main__":
    main()
