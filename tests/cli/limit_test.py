#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""weir limit as users run it: real files, pipes, terminals and signals.

Times are checked in one direction only: a run may take longer on a busy machine, but never less
than (bytes - burst) / rate. `./dev bench pace` measures how close it gets.
"""
import fcntl
import os
import pty
import re
import signal
import subprocess
import tempfile
import termios
import time
import unittest

WEIR = os.environ["WEIR_BIN"]
KIB = 1024
# Long enough for any machine; a test that takes longer is stuck.
STUCK = 60


def limit(*arguments, stdin=b"", **options):
    return subprocess.run([WEIR, "limit", *arguments], input=stdin, capture_output=True,
                          timeout=STUCK, check=False, **options)


class LimitTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def path(self, name):
        return os.path.join(self.folder, name)

    def file(self, size, name="file"):
        with open(self.path(name), "wb") as out:
            out.write(os.urandom(size))
        return self.path(name)

    def read(self, name):
        with open(self.path(name), "rb") as file:
            return file.read()


class Copies(LimitTest):
    def test_a_file_byte_by_byte_with_exact_totals(self):
        name = self.file(1_000_003)
        run = limit("--bps", "1GiB", "--", name)
        self.assertEqual(run.returncode, 0, run.stderr)
        self.assertEqual(run.stdout, self.read("file"))
        self.assertRegex(run.stderr.decode(),
                         r"^weir limit: 1000003 bytes, 16 ops in \d+\.\d{3} s, ")

    def test_standard_input_by_name_and_by_default(self):
        for arguments in (["--", "-"], []):
            run = limit("--bps", "1GiB", *arguments, stdin=b"x" * 70_000)
            self.assertEqual((run.returncode, run.stdout), (0, b"x" * 70_000))

    def test_operations_are_counted_by_block_however_the_input_arrives(self):
        child = subprocess.Popen([WEIR, "limit", "--iops", "1M", "--block", "100", "-"],
                                 stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE)
        for piece in (b"a" * 30, b"b" * 130, b"c" * 41):
            child.stdin.write(piece)
            child.stdin.flush()
            # It is written before more arrives, although the block is not full.
            self.assertEqual(child.stdout.read(len(piece)), piece)
        _, err = child.communicate(timeout=STUCK)
        self.assertIn(b"201 bytes, 3 ops", err)

    def test_an_empty_input(self):
        run = limit("--bps", "1B")
        self.assertEqual((run.returncode, run.stdout), (0, b""))
        self.assertIn(b"0 bytes, 0 ops", run.stderr)

    def test_quietly(self):
        self.assertEqual(limit("-q", "--bps", "1MB", stdin=b"x").stderr, b"")

    def test_no_terminal_no_progress(self):
        run = limit("--bps", "100KB", stdin=b"x" * 20_000)
        self.assertNotIn(b"\x1b", run.stderr)
        self.assertEqual(run.stderr.count(b"\n"), 1)


class KeepsTheLimit(LimitTest):
    def time_of(self, *arguments, stdin):
        start = time.monotonic()
        run = limit(*arguments, stdin=stdin)
        self.assertEqual((run.returncode, run.stdout), (0, stdin), run.stderr)
        return time.monotonic() - start

    def test_of_bytes(self):
        self.assertGreaterEqual(self.time_of("--bps", "200kB", stdin=b"x" * 102_000), 0.5)

    def test_of_operations(self):
        took = self.time_of("--iops", "20", "--block", "1KiB", stdin=b"x" * 12 * KIB)
        self.assertGreaterEqual(took, (12 - 2) / 20)

    def test_of_both_the_stricter_one(self):
        took = self.time_of("--bps", "1GB", "--iops", "20", "--block", "1KiB", stdin=b"x" * 7 * KIB)
        self.assertGreaterEqual(took, (7 - 2) / 20)

    def test_below_the_size_of_a_block_passes_slowly(self):
        # 64 KiB blocks, and 40 bytes a second.
        self.assertGreaterEqual(self.time_of("--bps", "40B", stdin=b"x" * 42), (42 - 2) / 40)

    def test_below_the_size_of_a_shallow_bucket_passes_at_its_rate(self):
        took = self.time_of("--bps", "100kB", "--burst", "1B", stdin=b"x" * 50_001)
        self.assertGreaterEqual(took, 0.49)

    def test_from_the_first_moment(self):
        # Without --burst the bucket starts empty.
        self.assertGreaterEqual(self.time_of("--bps", "1kB", stdin=b"x" * 300), 0.3)

    def test_but_the_first_operation_does_not_wait(self):
        self.assertEqual(limit("--iops", "1/d", stdin=b"x" * 300).stdout, b"x" * 300)

    def test_with_a_burst_as_deep_as_asked_for(self):
        took = self.time_of("--bps", "10kB", "--burst", "15kB", stdin=b"x" * 20_000)
        self.assertGreaterEqual(took, 0.5)
        start = time.monotonic()
        child = subprocess.Popen([WEIR, "limit", "--bps", "1B/d", "--burst", "15kB"],
                                 stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE)
        child.stdin.write(b"x" * 15_000)
        child.stdin.close()
        self.assertEqual(len(child.stdout.read()), 15_000)  # at once, or it takes 41 years
        self.assertEqual(child.wait(STUCK), 0)
        self.assertLess(time.monotonic() - start, STUCK)
        child.stdout.close()
        child.stderr.close()

    def test_without_sleeping(self):
        trace = self.path("trace")
        run = subprocess.run(
            ["strace", "-f", "-o", trace, os.environ["WEIR_RELEASE_BIN"], "limit", "--bps", "1MB"],
            input=b"x" * 200_000, capture_output=True, timeout=STUCK, check=False)
        self.assertEqual((run.returncode, len(run.stdout)), (0, 200_000), run.stderr)
        calls = set(re.findall(r"^\d+ +(\w+)\(", self.read("trace").decode(), re.M))
        self.assertLessEqual({"timerfd_create", "timerfd_settime", "epoll_wait", "read"}, calls)
        self.assertFalse(calls & {"nanosleep", "clock_nanosleep", "select", "pselect6", "clone3"})


class RefusesBadInput(LimitTest):
    def check(self, status, message, *arguments, **options):
        run = limit(*arguments, **options)
        text = run.stderr.decode()
        self.assertEqual((run.returncode, run.stdout), (status, b""), text)
        self.assertIn(message, text)
        self.assertEqual(text.count("\n"), 1, text)
        self.assertTrue(text.startswith("weir limit: "), text)

    def test_values(self):
        for status, message, arguments in [
            (64, "nothing to limit; give --bps, --iops or both", []),
            (64, "--bps: '50': bandwidth needs a unit", ["--bps", "50"]),
            (64, "--bps: '0MiB': bandwidth must not be zero", ["--bps", "0MiB"]),
            (64, "--bps: '-5MiB': bandwidth must not be negative", ["--bps=-5MiB"]),
            (64, "--bps: '5parsecs': bandwidth has the unknown unit 'parsecs'",
             ["--bps", "5parsecs"]),
            (64, "--bps: '9999999EiB': bandwidth is too large", ["--bps", "9999999EiB"]),
            (64, "--bps: '': bandwidth must start with a number", ["--iops", "5", "--bps", ""]),
            (64, "--iops: '0': rate must not be zero", ["--iops", "0"]),
            (64, "--iops: '1e3': rate has the unknown unit 'e3'", ["--iops", "1e3"]),
            (64, "--iops: '5\\x1b[2J'", ["--iops", "5\x1b[2J"]),
            (64, "--burst: '0s': must not be zero", ["--bps", "1MB", "--burst", "0s"]),
            (64, "--burst: '0B': must not be zero", ["--bps", "1MB", "--burst", "0B"]),
            (64, "could mean bytes or operations",
             ["--bps", "1MB", "--iops", "5", "--burst", "5"]),
            (64, "is for --iops, which is not given", ["--bps", "1MB", "--burst", "5ops"]),
            (64, "is for --bps, which is not given", ["--iops", "5", "--burst", "5KiB"]),
            (64, "--burst: '99999d': duration is too large; at most 36500d",
             ["--bps", "1MB", "--burst", "99999d"]),
            (64, "--burst: '5x': size has the unknown unit", ["--bps", "1MB", "--burst", "5x"]),
            (64, "--bps: rate limiter: bucket takes more than 100 years to fill",
             ["--bps", "1B/d", "--burst", "1MiB"]),
            (64, "--block: must not be zero", ["--bps", "1MB", "--block", "0"]),
            (64, "--block: '16EiB': size is too large", ["--bps", "1MB", "--block", "16EiB"]),
            (64, "--block: '-1': size must not be negative", ["--bps", "1MB", "--block=-1"]),
        ]:
            with self.subTest(arguments):
                self.check(status, message, *arguments, stdin=b"data")

    def test_options_it_does_not_know(self):
        self.check(64, "try 'weir limit --help'", "--bps", "1MB", "--bpss", "5")
        self.check(64, "try 'weir limit --help'", "--bps")
        self.check(64, "not expected: --\\x1b[2J;", "--bps", "1MB", "--\x1b[2J")

    def test_a_block_larger_than_memory_is_only_a_number(self):
        run = limit("--bps", "1GB", "--block", "15EiB", stdin=b"x" * 100_000)
        self.assertEqual((run.returncode, len(run.stdout)), (0, 100_000))
        self.assertIn(b"1 ops", run.stderr)

    def test_files_that_cannot_be_read(self):
        self.check(66, "No such file or directory", "--bps", "1MB", "--", self.path("none"))
        self.check(66, "is a directory; name a file", "--bps", "1MB", "--", self.folder)
        self.check(66, "Not a directory", "--bps", "1MB", "--", self.file(1) + "/x")
        self.check(66, "File name too long", "--bps", "1MB", "--", "x" * 5000)
        evil = self.path("a\x1b[2J")
        self.check(66, "a\\x1b[2J'", "--bps", "1MB", "--", evil)

    def test_a_file_that_fails_while_it_is_read(self):
        run = limit("--bps", "1MB", "--", "/proc/self/mem")
        self.assertEqual((run.returncode, run.stdout), (74, b""))
        self.assertIn(b"input: Input/output error", run.stderr)

    def test_standard_streams_that_are_closed(self):
        for redirect, message in (("<&-", b"Bad file descriptor"), (">&-", b"Bad file descriptor")):
            run = subprocess.run(f"'{WEIR}' limit --bps 1MB --state '{self.path('s')}' {redirect}",
                                 shell=True, input=b"x", capture_output=True, timeout=STUCK,
                                 check=False)
            self.assertEqual(run.returncode, 74, redirect)
            self.assertIn(message, run.stderr, redirect)
        # The state file did not become standard output.
        self.assertTrue(self.read("s").startswith(b"saved "))

    def test_an_output_that_is_the_input(self):
        name = self.file(100)
        with open(name, "ab") as out:
            run = subprocess.run([WEIR, "limit", "--bps", "1MB", "--", name], stdout=out,
                                 stderr=subprocess.PIPE, timeout=STUCK, check=False)
        self.assertEqual(run.returncode, 64)
        self.assertIn(b"is also the output", run.stderr)
        self.assertEqual(os.path.getsize(name), 100)

    def test_a_full_disk(self):
        with open("/dev/full", "wb") as full:
            run = subprocess.run([WEIR, "limit", "--bps", "1MB"], input=b"x", stdout=full,
                                 stderr=subprocess.PIPE, timeout=STUCK, check=False)
        self.assertEqual(run.returncode, 74)
        self.assertIn(b"output: No space left on device; free some space", run.stderr)


class EndsEarly(LimitTest):
    def start(self, *arguments, **options):
        child = subprocess.Popen([WEIR, "limit", *arguments], stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE, **options)
        self.addCleanup(child.stdout.close)
        self.addCleanup(child.stderr.close)
        return child

    def test_when_the_reader_has_gone_even_while_it_waits_for_tokens(self):
        # The next byte would be due in a day.
        child = self.start("--bps", "1B/d", "--burst", "2B", "--", self.file(100))
        self.assertEqual(len(os.read(child.stdout.fileno(), 1)), 1)
        child.stdout.close()
        self.assertEqual(child.wait(STUCK), 74)
        self.assertIn(b"output: Broken pipe; the reader has closed it", child.stderr.read())

    def test_on_a_signal_while_it_waits_for_tokens(self):
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            child = self.start("--bps", "1B/d", "--burst", "2B", "--", self.file(100))
            self.assertEqual(len(os.read(child.stdout.fileno(), 1)), 1)
            child.send_signal(number)
            self.assertEqual(child.wait(STUCK), -number)
            self.assertRegex(child.stderr.read(), rb"^weir limit: [12] bytes, 1 ops")

    def test_on_a_signal_while_nobody_reads(self):
        child = self.start("--bps", "1GiB", "--", self.file(4 << 20))
        self.wait_until_full(child.stdout.fileno())
        child.send_signal(signal.SIGTERM)
        self.assertEqual(child.wait(STUCK), -signal.SIGTERM)

    def test_on_a_signal_while_nothing_comes(self):
        child = self.start("--bps", "1GiB", stdin=subprocess.PIPE)
        self.addCleanup(child.stdin.close)
        child.stdin.write(b"x")
        child.stdin.flush()
        self.assertEqual(os.read(child.stdout.fileno(), 1), b"x")
        child.send_signal(signal.SIGINT)
        self.assertEqual(child.wait(STUCK), -signal.SIGINT)

    def wait_until_full(self, pipe):
        deadline = time.monotonic() + STUCK
        held = bytearray(4)
        while time.monotonic() < deadline:
            fcntl.ioctl(pipe, termios.FIONREAD, held)
            if int.from_bytes(held, "little") == fcntl.fcntl(pipe, fcntl.F_GETPIPE_SZ):
                return
            os.sched_yield()
        self.fail("the pipe was never full")


class StateOverRuns(LimitTest):
    def run_with_state(self, *arguments, stdin=b""):
        return limit("--state", self.path("state"), *arguments, stdin=stdin)

    def test_a_second_run_gets_no_second_burst(self):
        data = b"x" * 100_000
        start = time.monotonic()
        for _ in range(2):
            run = self.run_with_state("--bps", "100kB", "--burst", "100kB", stdin=data)
            self.assertEqual((run.returncode, run.stdout), (0, data), run.stderr)
        # 200,000 bytes are at most the burst and rate x time.
        self.assertGreaterEqual(time.monotonic() - start, 1.0)

    def test_debt_and_age_are_kept(self):
        self.run_with_state("--bps", "1kB", "--burst", "1kB", stdin=b"x" * 1000)
        first, rest = self.read("state").decode().split("\n", 1)
        self.assertRegex(first, r"^saved \d+$")
        self.assertRegex(rest, r"^weir-limiter 1\nbytes size=1000 burst=0/0 rate=1/1000000 zero=\d")
        # As if saved an hour ago: the bucket is full again.
        hour_ago = int(first.split()[1]) - 3_600_000_000_000
        with open(self.path("state"), "w", encoding="ascii") as out:
            out.write(f"saved {hour_ago}\n{rest}")
        run = self.run_with_state("--bps", "1kB", "--burst", "1kB", stdin=b"x" * 1000)
        self.assertRegex(run.stderr, rb"1000 bytes, 1 ops in 0\.")

    def test_other_limits_keep_the_fill_ratio(self):
        self.run_with_state("--bps", "1B/d", "--burst", "1000B", stdin=b"x" * 500)
        run = self.run_with_state("--bps", "1B/d", "--burst", "100B", "--iops", "5",
                                  stdin=b"x" * 50)
        self.assertEqual((run.returncode, len(run.stdout)), (0, 50))
        text = self.read("state").decode()
        self.assertIn("bytes size=100 ", text)
        self.assertIn("ops size=2 ", text)

    def test_it_is_saved_when_a_signal_ends_the_run(self):
        child = subprocess.Popen([WEIR, "limit", "--bps", "1B/d", "--burst", "2B", "--state",
                                  self.path("state")],
                                 stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                 stderr=subprocess.PIPE)
        child.stdin.write(b"xxx")
        child.stdin.flush()
        self.assertEqual(len(os.read(child.stdout.fileno(), 1)), 1)
        child.send_signal(signal.SIGINT)
        child.communicate(timeout=STUCK)
        self.assertEqual(child.returncode, -signal.SIGINT)
        self.assertTrue(self.read("state").endswith(b"end\n"))

    def test_a_file_that_is_no_state_is_left_alone(self):
        for text in (b"", b"precious notes\n", b"saved x\n", b"saved 5\nweir-limiter 1\n",
                     b"\x00" * 99,
                     b"saved 99999999999999999999\nweir-limiter 1\nend\n"):
            with open(self.path("state"), "wb") as out:
                out.write(text)
            run = self.run_with_state("--bps", "1MB", stdin=b"x")
            self.assertEqual((run.returncode, run.stdout), (65, b""), run.stderr)
            self.assertIn(b"remove it to start with full buckets", run.stderr)
            self.assertEqual(self.read("state"), text)

    def test_a_large_file_is_not_read_as_state(self):
        self.file((16 << 20) + 1, "state")
        run = self.run_with_state("--bps", "1MB", stdin=b"x")
        self.assertEqual(run.returncode, 73)
        self.assertIn(b"too large to be a state file", run.stderr)

    def test_one_user_at_a_time(self):
        with open(self.path("state"), "wb") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            run = self.run_with_state("--bps", "1MB", stdin=b"x")
        self.assertEqual((run.returncode, run.stdout), (75, b""))
        self.assertIn(b"is in use by another process", run.stderr)

    def test_places_where_it_cannot_be(self):
        for path in (self.path("none/state"), self.folder, "/dev/null", self.path("\x1b[2J/state")):
            run = limit("--bps", "1MB", "--state", path, stdin=b"x")
            self.assertEqual((run.returncode, run.stdout), (73, b""), run.stderr)
            self.assertNotIn(b"\x1b", run.stderr)

    def test_no_files_are_left_beside_it(self):
        self.run_with_state("--bps", "1MB", stdin=b"x")
        self.assertEqual(os.listdir(self.folder), ["state"])


class OnATerminal(LimitTest):
    def test_progress_is_drawn_in_one_line_and_wiped(self):
        shown, terminal = pty.openpty()
        self.addCleanup(os.close, shown)
        name = self.file(30_000)
        child = subprocess.Popen([WEIR, "limit", "--bps", "50kB", "--", name],
                                 stdout=subprocess.DEVNULL, stderr=terminal)
        os.close(terminal)
        text = b""
        while True:
            try:
                piece = os.read(shown, 4096)
            except OSError:  # the last user has closed the terminal
                break
            if not piece:
                break
            text += piece
        self.assertEqual(child.wait(STUCK), 0)
        lines = text.decode().split("\r\x1b[K")
        self.assertRegex(lines[2], r"^\[=*>? *\] +\d+% +[\d.]+\w+ +[\d.]+\w+/s  0:00  left 0:0\d$")
        self.assertRegex(lines[-1], r"^weir limit: 30000 bytes, 1 ops in ")


if __name__ == "__main__":
    unittest.main(verbosity=2)
