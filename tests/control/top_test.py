#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""weir top on a terminal: totals, columns for the width of the screen, keys, and its end.

The terminal is a pty; Screen understands the few control sequences that weir top writes.
"""
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import threading
import unittest

from remote import READ, STUCK, Remote, request, simple_reply, wait_for

SEQUENCE = re.compile(r"\x1b\[([?0-9;]*)([A-Za-z])")


class Screen:
    """What a terminal of this size shows."""

    def __init__(self, lines, columns):
        self.resize(lines, columns)
        self.sequences = []

    def resize(self, lines, columns):
        self.columns = columns
        self.cells = [[" "] * columns for _ in range(lines)]
        self.line = self.column = 0
        self.overflows = 0  # characters beyond the last column

    def feed(self, text):
        at = 0
        while at < len(text):
            found = SEQUENCE.match(text, at)
            if found:
                self.obey(found[1], found[2])
                at = found.end()
                continue
            self.put(text[at])
            at += 1

    def obey(self, numbers, letter):
        self.sequences.append(numbers + letter)
        if letter == "H":
            self.line = self.column = 0
        if letter in "KJ":
            self.cells[self.line][self.column:] = [" "] * (self.columns - self.column)
        if letter == "J":
            for line in self.cells[self.line + 1:]:
                line[:] = [" "] * self.columns

    def put(self, letter):
        if letter == "\r":
            self.column = 0
        elif letter == "\n":
            self.line += 1
        elif self.column >= self.columns:
            self.overflows += 1
        else:
            self.cells[self.line][self.column] = letter
            self.column += 1

    def text(self):
        return "\n".join("".join(line).rstrip() for line in self.cells).rstrip()


class Top:
    def __init__(self, it, *arguments, lines=24, columns=80):
        self.master, slave = pty.openpty()
        self.screen = Screen(lines, columns)
        self.resize(lines, columns)
        self.before = termios.tcgetattr(slave)
        self.slave = slave
        self.process = subprocess.Popen([it.binary, "top", "--interval", "0.3", *arguments],
                                        stdin=slave, stdout=slave, stderr=subprocess.PIPE,
                                        env={**os.environ, "WEIR_SOCKET": str(it.control)})

    def resize(self, lines, columns):
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
        self.screen.resize(lines, columns)

    def read(self):
        """The screen after what was written until now."""
        while select.select([self.master], [], [], 0.05)[0]:
            try:
                data = os.read(self.master, 1 << 16)
            except OSError:
                break
            self.screen.feed(data.decode())
        return self.screen.text()

    def expect(self, pattern):
        return wait_for(f"{pattern} in\n{self.screen.text()}",
                        lambda: re.search(pattern, self.read(), re.MULTILINE))

    def press(self, keys):
        os.write(self.master, keys.encode())

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()
        os.close(self.master)
        os.close(self.slave)


class Load(threading.Thread):
    """A job that sends one read after another until the block ends."""

    def __init__(self, it, job):
        super().__init__()
        self.it, self.job = it, job
        self.stopped = threading.Event()

    def run(self):
        with self.it.client(self.job) as client:
            while not self.stopped.wait(0.002):
                client.sendall(request(READ, 0, 0, 4096))
                simple_reply(client, 4096)

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.stopped.set()
        self.join()


class OnATerminal(unittest.TestCase):
    def setUp(self):
        self.it = self.enterContext(Remote(
            "--export", "a=memory:64MiB", "--capacity", "4000", "--rule",
            "start slow jobid={slow.*} rate=20", "--rule", "start wide jobid={wide.*} bps=1MB"))
        for job in ("slow.0", "wide.0", "other.0"):
            self.enterContext(Load(self.it, job))

    def start(self, *arguments, **size):
        top = Top(self.it, *arguments, **size)
        self.addCleanup(top.close)
        return top

    def test_works_at_60_columns_and_shows_more_at_120(self):
        top = self.start(columns=60)
        top.expect(r"^slow/slow\.0 +\d+ +[0-9.k]+ +[0-9.]+ms limit +20$")
        text = top.read()
        lines = text.splitlines()
        self.assertRegex(lines[0], r"^ost_io  tbf jobid  3 classes by ops  \? help$")
        self.assertRegex(lines[1], r"^[0-9.k]+ ops/s, [0-9.kM]+B/s, wait [0-9.]+[a-z]+, "
                                   r"\d+ queued, \d+ of 16 slots$")
        self.assertRegex(lines[3], r"^CLASS +OPS/S BYTES/S +WAIT CAUSE +LIMIT$")
        self.assertEqual(top.screen.overflows, 0)
        top.resize(24, 120)
        top.expect(r"^CLASS +OPS/S BYTES/S +WAIT CAUSE +SHARE +LIMIT +BUCKET$")
        top.expect(r"^wide/wide\.0 .* 1\.00MB +[0-9.k]+/65\.5k$")
        top.expect(r", capacity 4\.00k/s$")
        self.assertEqual(top.screen.overflows, 0)

    def test_the_totals_are_those_of_all_classes(self):
        top = self.start()
        top.expect(r"^default/other\.0 +[1-9]")
        top.expect(r"^[1-9]\d\d ops/s, [1-9]|^[1-9.]+k ops/s, [1-9]")  # more than one class has

    def test_keys_sort_filter_and_explain_themselves(self):
        top = self.start()
        top.expect(r"by ops")
        for key, name in (("b", "bytes"), ("w", "wait"), ("s", "share"), ("n", "name")):
            top.press(key)
            top.expect(f"classes by {name} ")
        self.assertRegex(top.read(), r"(?s)default/other\.0.*slow/slow\.0.*wide/wide\.0")
        top.press("?")
        top.expect(r"^Keys$")
        top.expect(r"^  CAUSE +limit: of its rule")
        top.press("?")
        top.expect(r"^CLASS")
        top.press("/wide")
        top.expect(r"^filter: wide_")
        top.press("\r")
        top.expect(r"1 classes? by name  with 'wide'")
        self.assertNotIn("slow/slow.0", top.read())
        top.press("/slow\x1b")
        top.expect(r"with 'wide'")
        top.press("/\r")
        top.expect(r"3 classes by name  \?")

    def test_the_terminal_is_as_before(self):
        for end in ("q", signal.SIGINT, signal.SIGTERM):
            with self.subTest(end):
                top = self.start()
                top.expect(r"^CLASS")
                self.assertNotEqual(termios.tcgetattr(top.slave), top.before)
                if end == "q":
                    top.press("q")
                else:
                    top.process.send_signal(end)
                self.assertEqual(top.process.wait(STUCK), 0)
                self.assertEqual(termios.tcgetattr(top.slave), top.before)
                top.read()
                self.assertEqual(top.screen.sequences[-2:], ["?25h", "?1049l"])

    def test_a_server_that_ends_is_an_error(self):
        with Remote("--export", "a=memory:1MiB") as it:
            top = Top(it)
            self.addCleanup(top.close)
            top.expect(r"0 classes by ops")
        self.assertEqual(top.process.wait(STUCK), 69)
        self.assertEqual(termios.tcgetattr(top.slave), top.before)
        self.assertIn(b"weir", top.process.stderr.read())


class Once(unittest.TestCase):
    def test_a_policy_without_classes_has_totals(self):
        with Remote("--export", "a=memory:64MiB", "--policy", "fifo") as it, Load(it, "j"):
            def moved():
                status, out, error = it.weir("top", "--once", "--interval", "0.3")
                self.assertEqual((status, error), (0, ""))
                return not out.startswith("0 ops/s") and out
            out = wait_for("traffic", moved)
            self.assertRegex(out, r"^[0-9.k]+ ops/s, [0-9.kM]+B/s, wait .* of \d+ slots\nCLASS ")


if __name__ == "__main__":
    unittest.main(verbosity=2)
