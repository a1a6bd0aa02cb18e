# SPDX-License-Identifier: Apache-2.0
"""The file system of forgetful.cc, mounted for a test:

    with Forgetful() as fuse:
        fuse.disk       its file, of SIZE bytes
        fuse.process    the file system itself
        with fuse.hanging():    it answers nothing while the block lasts
"""
import contextlib
import os
import pathlib
import signal
import subprocess
import tempfile
import time

import server as s
from server import STUCK

BUILD = pathlib.Path(os.environ.get("WEIR_BUILD_DIR", s.ROOT / "build/dev"))
SIZE = 16 << 20


class Forgetful:
    """Mounted while the block lasts."""

    def __init__(self, *options):
        self.options = options

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory()
        self.process = subprocess.Popen(
            [BUILD / "tests/forgetful", *self.options, str(SIZE), self.folder.name, "-f", "-s"],
            stderr=subprocess.PIPE, text=True)
        self.disk = pathlib.Path(self.folder.name) / "disk"
        deadline = time.monotonic() + STUCK
        while not self.disk.exists():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"not mounted: {self.process.communicate()[1]}")
            time.sleep(0.01)
        return self

    @contextlib.contextmanager
    def hanging(self):
        """It processes no requests while the block lasts. SIGSTOP takes effect later: until it has
        stopped it may still accept a request, and a process that waits for the answer cannot be
        killed."""
        self.process.send_signal(signal.SIGSTOP)
        try:
            _, status = os.waitpid(self.process.pid, os.WUNTRACED)
            assert os.WIFSTOPPED(status), status
            yield
        finally:
            self.process.send_signal(signal.SIGCONT)

    def __exit__(self, *_):
        # Lazily: a server that was killed may hold its file for another moment.
        subprocess.run(["fusermount3", "-u", "-z", self.folder.name], check=False)
        try:
            self.process.wait(STUCK)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process.stderr.close()
        self.folder.cleanup()
