# SPDX-License-Identifier: Apache-2.0
"""A modelled Lustre server as a mounted tree, for tests of the driver's binary."""
import contextlib
import os
import pathlib
import re
import subprocess
import tempfile
import time

ROOT = pathlib.Path(os.environ.get("WEIR_SOURCE_DIR", pathlib.Path(__file__).parents[2]))
BUILD = pathlib.Path(os.environ.get("WEIR_BUILD_DIR", ROOT / "build/dev"))
WEIR = os.environ.get("WEIR_RELEASE_BIN", str(ROOT / "build/release/apps/weir/weir"))
SERVICE = "sys/kernel/debug/lustre/ost/OSS/ost_io"
PATIENCE = 60
OWN = re.compile(r"weir\d{5} ")


def wait_until(condition, what):
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if condition():
            return
        time.sleep(0.02)
    raise AssertionError(f"not within {PATIENCE} s: {what}")


class Server:
    def __init__(self, mount):
        self.root = pathlib.Path(mount)

    @property
    def rules_path(self):
        return self.root / SERVICE / "nrs_tbf_rule"

    def rules(self):
        return self.rules_path.read_text()

    def foreign(self):
        """All lines that are not the driver's, without the counts of classes."""
        return [line.split(", ref")[0] for line in self.rules().splitlines()
                if not OWN.match(line)]

    def own(self):
        return [line for line in self.rules().splitlines() if OWN.match(line)]

    def write(self, path, text):
        fd = os.open(self.root / path, os.O_WRONLY)
        try:
            os.write(fd, text.encode())
        finally:
            os.close(fd)

    def served(self):
        lines = (self.root / "control").read_text().splitlines()
        return {line.rsplit(" ", 1)[0]: int(line.rsplit(" ", 1)[1]) for line in lines}


@contextlib.contextmanager
def lustre(*pairs):
    with tempfile.TemporaryDirectory() as mount:
        process = subprocess.Popen([BUILD / "tests/lustrefs", mount, *pairs],
                                   env={**os.environ, "ASAN_OPTIONS": "detect_leaks=0"})
        try:
            server = Server(mount)
            wait_until((server.root / "control").exists, "lustrefs is mounted")
            yield server
        finally:
            subprocess.run(["fusermount3", "-u", "-z", mount], check=False)
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@contextlib.contextmanager
def driver(server, *options, map_file, lctl="never", **popen):
    """weir lustre run; ended with SIGTERM unless the test has done so."""
    process = subprocess.Popen([WEIR, "lustre", "run", "--root", server.root, "--map", map_file,
                                "--lctl", lctl, *options],
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **popen)
    try:
        yield process
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        process.stdout.close()
