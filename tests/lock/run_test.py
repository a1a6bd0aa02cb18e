#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""weir lock run, list and stats as users run them: several processes and a real server."""
import concurrent.futures
import json
import os
import pathlib
import pty
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import unittest

from locks import ROOT, WEIR, LockServer, conflicts, wait_for

sys.path.insert(0, str(ROOT / "tests/clients"))
from certificates import Authority


class Run(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = LockServer("--lock-lease", "30s").__enter__()

    @classmethod
    def tearDownClass(cls):
        cls.server.__exit__(None)

    def test_exits_as_the_command_does_and_fences_grow(self):
        fences = []
        for status in (0, 7):
            done = self.server.run("status", "--", "sh", "-c",
                                   f"echo $WEIR_LOCK_FENCE; exit {status}")
            self.assertEqual(done.returncode, status, done.stderr)
            fences.append(int(done.stdout))
        self.assertLess(0, fences[0])
        self.assertLess(fences[0], fences[1])
        for command, status in (("no-such-command", 127), ("/etc/passwd", 126)):
            done = self.server.run("status", "--", command)
            self.assertEqual(done.returncode, status)
            self.assertIn(command, done.stderr)
        self.assertEqual(self.server.run("status", "--", "sh", "-c", "kill -9 $$").returncode, 137)

    def test_one_at_a_time(self):
        count = self.server.path / "count"
        count.write_text("0")
        step = f"n=$(cat {count}); sleep 0.1; echo $((n + 1)) > {count}"
        runs = [self.server.popen("counter", "--", "sh", "-c", step) for _ in range(6)]
        self.assertEqual([run.wait(90) for run in runs], [0] * 6)
        self.assertEqual(count.read_text().strip(), "6")

    def test_who_shares_is_there_together(self):
        meet = ("touch {0}/{1}; n=0; until [ -e {0}/{2} ]; do sleep 0.05; n=$((n+1)); "
                "[ $n -lt 1200 ] || exit 9; done")
        runs = [self.server.popen("--shared", "meeting", "--", "sh", "-c",
                                  meet.format(self.server.path, mine, other))
                for mine, other in (("a", "b"), ("b", "a"))]
        self.assertEqual([run.wait(90) for run in runs], [0, 0])

    def test_first_come_first_served(self):
        first = self.server.hold("queue")
        wait_for("the first holds it", first.has_begun)
        order = self.server.path / "order"
        runs = []
        for name in ("b", "c", "d"):
            runs.append(self.server.popen("queue", "--", "sh", "-c", f"echo {name} >> {order}"))
            wait_for(f"{name} waits", lambda: sum(
                lock["name"] == "queue" and lock["state"] == "waiting"
                for lock in self.server.locks()) == len(runs))
        first.let_go()
        self.assertEqual([run.wait(90) for run in runs], [0, 0, 0])
        self.assertEqual(order.read_text().split(), ["b", "c", "d"])

    def test_does_not_wait_for_ever_if_told_so(self):
        holder = self.server.hold("busy")
        wait_for("it is held", holder.has_begun)
        self.assertEqual(self.server.run("--try", "busy", "--", "true").returncode, 1)
        self.assertEqual(self.server.run("--timeout", "200ms", "--conflict-exit-code", "42", "busy",
                                         "--", "true").returncode, 42)
        self.assertEqual(self.server.run("--timeout", "0s", "busy", "--", "true").returncode, 1)
        self.assertEqual(self.server.run("--timeout", "0s", "idle", "--", "true").returncode, 0)
        self.assertEqual(self.server.run("--try", "idle", "--", "true").returncode, 0)
        holder.let_go()
        self.assertEqual(holder.wait(), 0)

    def test_passes_signals_on(self):
        holder = self.server.hold("signal")
        wait_for("it is held", holder.has_begun)
        holder.process.terminate()
        self.assertEqual(holder.wait(), 0)
        self.assertTrue(holder.has_ended())

    def read_from_terminal(self):
        """The status of a command that reads a line, or of its guard that stopped."""
        guard, terminal = pty.fork()
        if guard == 0:
            os.execve(WEIR, [WEIR, "lock", "run", "terminal", "--", "sh", "-c", "read line"],
                      self.server.env)
        os.write(terminal, b"it\n")

        def ended():
            pid, status = os.waitpid(guard, os.WNOHANG | os.WUNTRACED)
            return [status] if pid else None
        status, = wait_for("its end", ended)
        os.close(terminal)
        return status

    def test_a_command_may_read_from_the_terminal_at_once(self):
        self.assertEqual([self.read_from_terminal() for _ in range(5)], [0] * 5)

    def test_a_command_that_is_stopped_at_the_terminal_stops_its_guard_too(self):
        guard, terminal = pty.fork()
        if guard == 0:
            os.execve(WEIR, [WEIR, "lock", "run", "terminal", "--", "sh", "-c",
                             "echo begun; read line; echo heard $line"], self.server.env)
        try:
            said = bytearray()

            def has_said(what):
                if select.select([terminal], [], [], 0)[0]:
                    said.extend(os.read(terminal, 1024))
                return what in said

            wait_for("it begins", lambda: has_said(b"begun"))
            os.write(terminal, b"\x1a")
            status = wait_for("both stop", lambda: os.waitpid(guard, os.WNOHANG | os.WUNTRACED)[1])
            self.assertTrue(os.WIFSTOPPED(status), status)
            os.kill(guard, signal.SIGCONT)
            os.write(terminal, b"it\n")
            wait_for("it goes on", lambda: has_said(b"heard it"))
            self.assertEqual(os.waitpid(guard, 0)[1], 0)
            guard = None
        finally:
            if guard is not None:
                os.kill(guard, signal.SIGKILL)
                os.waitpid(guard, 0)
            os.close(terminal)

    def test_a_command_does_not_outlive_its_guard(self):
        file = self.server.path / "orphan"
        guard = self.server.popen("orphan", "--", "sh", "-c", f"echo $$ > {file}; exec sleep 1000")
        command = int(wait_for("it runs", lambda: file.exists() and file.read_text().strip()))
        guard.kill()
        guard.wait()
        wait_for("the command is gone", lambda: not os.path.exists(f"/proc/{command}") or "Z" in
                 pathlib.Path(f"/proc/{command}/stat").read_text().rpartition(")")[2][:3])

    def test_list_and_stats(self):
        holder = self.server.hold("shown/7", "--shared")
        wait_for("it is held", holder.has_begun)
        found = self.server.ask("list", "--filter", "shown/")
        self.assertEqual([(lock["name"], lock["mode"], lock["state"]) for lock in found],
                         [("shown/7", "shared", "granted")])
        stats = self.server.ask("stats")
        memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
        self.assertEqual(stats["limit"], 100 * (memory >> 20), "the default of the document")
        self.assertGreaterEqual(stats["granted"], 1)
        text = subprocess.run([WEIR, "lock", "list"], env=self.server.env, text=True,
                              capture_output=True, check=True).stdout
        self.assertIn("shown/7", text)
        holder.let_go()
        holder.wait()


class Modes(unittest.TestCase):
    """The six modes and watches, as commands of several clients see them."""

    @classmethod
    def setUpClass(cls):
        cls.server = LockServer().__enter__()

    @classmethod
    def tearDownClass(cls):
        cls.server.__exit__(None)

    # Each line: what one more client may hold beside a client with the first mode.
    BESIDE = {"NL": "NL CR CW PR PW EX", "CR": "NL CR CW PR PW", "CW": "NL CR CW", "PR": "NL CR PR",
              "PW": "NL CR", "EX": "NL"}

    def try_modes_beside(self, held):
        """One after the other: two of them may exclude each other."""
        for mode in self.BESIDE:
            done = self.server.run("--mode", mode.lower(), "--try", f"beside/{held}", "--", "true")
            expected = 0 if mode in self.BESIDE[held].split() else 1
            self.assertEqual(done.returncode, expected, (held, mode, done.stderr))

    def test_what_is_held_beside_each_other(self):
        holders = {mode: self.server.hold(f"beside/{mode}", "--mode", mode) for mode in self.BESIDE}
        for mode, holder in holders.items():
            wait_for(f"{mode} is held", holder.has_begun)
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            list(pool.map(self.try_modes_beside, self.BESIDE))
        shown = {lock["name"]: lock["mode"] for lock in self.server.ask("list")}
        self.assertEqual(shown["beside/CW"], "concurrent-write")
        for holder in holders.values():
            holder.let_go()

    def watch(self, *arguments):
        return subprocess.Popen([WEIR, "lock", "watch", *arguments], env=self.server.env, text=True,
                                stdout=subprocess.PIPE, stderr=self.server.log)

    def test_a_watch_shows_the_holders_and_waits_for_them(self):
        holder = self.server.hold("watched")
        wait_for("it is held", holder.has_begun)
        with self.watch("--json", "watched") as watch:
            shown = json.loads(watch.stdout.readline())
            self.assertEqual(shown["mode"], "exclusive")
            lock = [lock for lock in self.server.ask("list") if lock["name"] == "watched"]
            self.assertEqual([(one["client"], one["fence"]) for one in lock],
                             [(shown["client"], shown["fence"])])
            self.assertIsNone(watch.poll())
            holder.let_go()
            self.assertEqual(watch.wait(90), 0)
        with self.watch("watched") as watch:
            self.assertEqual((watch.wait(90), watch.stdout.read()), (0, ""))

    def test_a_watch_gives_up_in_time(self):
        holder = self.server.hold("kept", "--shared")
        wait_for("it is held", holder.has_begun)
        with self.watch("--timeout", "100ms", "--conflict-exit-code", "7", "kept") as watch:
            self.assertEqual(watch.wait(90), 7)
        with self.watch("--shared", "kept") as watch:
            self.assertEqual(watch.wait(90), 0)
        holder.let_go()

    def test_a_watch_lives_through_a_restart(self):
        with LockServer() as server:
            holder = server.hold("res")
            wait_for("it is held", holder.has_begun)
            with subprocess.Popen([WEIR, "lock", "watch", "res"], env=server.env, text=True,
                                  stdout=subprocess.PIPE, stderr=server.log) as watch:
                watch.stdout.readline()
                server.kill()
                server.start()
                watch.stdout.readline()
                self.assertIsNone(watch.poll())
                holder.let_go()
                self.assertEqual(holder.wait(), 0)
                self.assertEqual(watch.wait(90), 0)


class Claims(unittest.TestCase):
    def test_a_client_whose_word_does_not_count_is_told_so_and_does_not_wait(self):
        with LockServer("--claims", "none") as server:
            done = server.run("--job", "ior.1", "x", "--", "true")
            self.assertEqual(done.returncode, 75, done.stderr)
            self.assertIn("is not allowed to claim a job", done.stderr)
            self.assertIn("--claims", done.stderr)
            self.assertEqual(server.run("x", "--", "true").returncode, 0)


class Listing(unittest.TestCase):
    def test_names_are_not_told_over_tcp_without_a_certificate(self):
        with LockServer(address="127.0.0.1:0") as server:
            self.assertEqual(server.run("x", "--", "true").returncode, 0)
            done = subprocess.run([WEIR, "lock", "list"], env=server.env, text=True, timeout=60,
                                  capture_output=True, check=False)
            self.assertEqual((done.returncode, done.stdout), (75, ""), done.stderr)
            self.assertIn("--tls-certificates", done.stderr)
            self.assertEqual(server.ask("stats")["grants"], 1)


class Tls(unittest.TestCase):
    def test_clients_show_a_certificate_or_do_not_come_in(self):
        with tempfile.TemporaryDirectory() as folder:
            ours = Authority(pathlib.Path(folder) / "ours")
            others = Authority(pathlib.Path(folder) / "others")
            with LockServer("--tls", "require", "--tls-certificates", ours.server(),
                            address="127.0.0.1:0") as server:
                good = ["--tls-certificates", ours.client()]
                done = server.run(*good, "x", "--", "true")
                self.assertEqual(done.returncode, 0, done.stderr)
                for bad in ([], ["--tls-certificates", others.client()]):
                    done = server.run(*bad, "--timeout", "1s", "x", "--", "true")
                    self.assertEqual(done.returncode, 69, done.stderr)
                done = server.run("--tls-certificates", folder, "x", "--", "true")
                self.assertEqual(done.returncode, 64)
                self.assertIn("ca-cert.pem", done.stderr)
                self.assertEqual(server.ask("list", *good), [])
                done = subprocess.run([WEIR, "lock", "list"], env=server.env, text=True,
                                      capture_output=True, timeout=60, check=False)
                self.assertEqual((done.returncode, done.stdout), (69, ""))

    def test_a_session_is_bound_to_the_subject_of_its_certificate(self):
        with tempfile.TemporaryDirectory() as folder:
            ours = Authority(pathlib.Path(folder) / "ours")
            used = pathlib.Path(folder) / "used"
            used.mkdir()
            certificates = ["--tls-certificates", used]
            # A client reads its certificate again when it reconnects: a renewed one of the same
            # subject, or one of another subject.
            for name, status in (("alice", 0), ("mallory", 75)):
                self.put(ours.client(name="alice"), used)
                with self.subTest(name), LockServer("--tls", "require", "--tls-certificates",
                                                    ours.server()) as server:
                    def count(what, server=server):
                        return server.ask("stats", *certificates)[what]
                    holder = server.hold("res", *certificates)
                    wait_for("it is held", holder.has_begun)
                    self.put(ours.client(name=name), used)
                    self.assertEqual(server.stop(), 0)
                    server.start()
                    wait_for("it came again",
                             lambda: count("granted") + count("wrong_secrets") == 1)
                    self.assertEqual(count("wrong_secrets"), int(status != 0))
                    holder.let_go()
                    self.assertEqual(holder.wait(), status)

    def test_renewed_certificates_are_for_clients_that_come_later(self):
        with tempfile.TemporaryDirectory() as folder:
            ours = Authority(pathlib.Path(folder) / "ours")
            theirs = Authority(pathlib.Path(folder) / "theirs")
            used = pathlib.Path(folder) / "used"
            used.mkdir()
            self.put(ours.server(), used)
            with LockServer("--tls", "require", "--tls-certificates", used,
                            address="127.0.0.1:0") as server:
                old = ["--tls-certificates", ours.client()]
                new = ["--tls-certificates", theirs.client()]
                holder = server.hold("res", *old)
                wait_for("it is held", holder.has_begun)
                self.put(theirs.server(), used)
                self.assertEqual(server.run(*old, "x", "--", "true").returncode, 0)
                server.process.send_signal(signal.SIGHUP)
                wait_for("they are read", lambda: "reloaded job sizes" in server.logged())
                self.assertEqual(server.run(*new, "x", "--", "true").returncode, 0)
                self.assertEqual(
                    server.run(*old, "--timeout", "1s", "x", "--", "true").returncode, 69)
                self.assertEqual([lock["name"] for lock in server.ask("list", *new)
                                  if lock["name"] == "res"], ["res"])
                holder.let_go()
                self.assertEqual(holder.wait(), 0)

    @staticmethod
    def put(source, target):
        for file in source.glob("*.pem"):
            shutil.copy(file, target / file.name)


class Refusals(unittest.TestCase):
    def weir(self, *arguments, **env):
        return subprocess.run([WEIR, *arguments], env={**os.environ, **env}, text=True, timeout=60,
                              capture_output=True)

    def test_a_server_that_would_not_be_safe_does_not_start(self):
        with tempfile.TemporaryDirectory() as folder:
            state = f"{folder}/state"
            serve = ["serve", "--check-config", "--lock", f"unix:{folder}/s"]
            self.assertEqual(self.weir(*serve).returncode, 64)  # without a state file
            serve += ["--lock-state", state]
            self.assertEqual(self.weir(*serve).returncode, 0)
            for wrong in (["--lock-limit", "0"], ["--lock-limit", "-5"], ["--lock-lease", "10ms"],
                          ["--lock-lease", "10s", "--lock-grace", "10s"],
                          ["--lock-preset", "none"]):
                done = self.weir(*serve, *wrong)
                self.assertEqual(done.returncode, 64, done.stderr)

    def test_words_that_make_no_sense(self):
        for words in (["run"], ["run", "x"], ["run", "x" * 10_000, "--", "true"],
                      ["run", "", "--", "true"], ["dance"], ["list", "x"], ["watch"],
                      ["watch", "x", "y"], ["watch", ""],
                      ["run", "--mode", "XX", "x", "--", "true"],
                      ["run", "--mode", "PR", "--shared", "x", "--", "true"],
                      ["stats", "--server", "nowhere"]):
            self.assertEqual(self.weir("lock", *words).returncode, 64, words)

    def assert_unavailable(self, address):
        env = {"WEIR_LOCK_SERVER": address}
        # Each waits at most 10 s, plus the delays of a slow machine; none depends on another.
        with concurrent.futures.ThreadPoolExecutor(6) as pool:
            runs = {tuple(options): pool.submit(self.weir, "lock", "run", *options, "x", "--",
                                                "true", **env)
                    for options in (["--timeout", "1s"], ["--try"], ["--timeout", "0s"],
                                    ["--try", "--timeout", "1s"])}
            stats = pool.submit(self.weir, "lock", "stats", **env)
            listed = pool.submit(self.weir, "lock", "list", **env)
        for options, run in runs.items():
            done = run.result()
            self.assertEqual(done.returncode, 69, (options, done.stderr))
            self.assertIn("does not answer", done.stderr)
            self.assertIn("weir serve --lock", done.stderr)
        self.assertEqual(stats.result().returncode, 69)
        done = listed.result()
        self.assertEqual((done.returncode, done.stdout), (69, ""))

    def test_nobody_answers(self):
        with tempfile.TemporaryDirectory() as folder:
            self.assert_unavailable(f"unix:{folder}/none")
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.assert_unavailable(f"127.0.0.1:{free.getsockname()[1]}")

    def test_somebody_accepts_and_says_nothing(self):
        with socket.socket() as silent:
            silent.bind(("127.0.0.1", 0))
            silent.listen(64)
            self.assert_unavailable(f"127.0.0.1:{silent.getsockname()[1]}")

    def test_what_is_sent_there_goes_nowhere(self):
        # A full backlog: the kernel drops new connections, like a machine that is switched off.
        with socket.socket() as full, socket.socket() as first:
            full.bind(("127.0.0.1", 0))
            full.listen(0)
            first.connect(full.getsockname())
            self.assert_unavailable(f"127.0.0.1:{full.getsockname()[1]}")

    def test_the_server_stops_answering(self):
        with LockServer() as server:
            self.assertEqual(server.run("x", "--", "true").returncode, 0)
            server.process.send_signal(signal.SIGSTOP)
            try:
                self.assert_unavailable(server.env["WEIR_LOCK_SERVER"])
            finally:
                server.process.send_signal(signal.SIGCONT)


class Release(unittest.TestCase):
    def test_takes_a_lock_from_a_command_that_hangs_and_is_logged(self):
        with LockServer("--lock-lease", "30s", control=True) as server:
            first = server.hold("res")
            wait_for("it is held", first.has_begun)
            second = server.hold("res", seconds=0)
            wait_for("the second waits", lambda: server.count("waiting") == 1)
            done = server.release("--json", "res")
            self.assertEqual((done.returncode, json.loads(done.stdout)), (0, {"released": 1}))
            self.assertEqual(first.wait(), 75)
            self.assertEqual(second.wait(), 0)
            self.assertEqual(conflicts([first, second]), [])
            self.assertRegex(server.logged(), 'audit: change who="uid .*" what="?release"? '
                                              'on="lock res" .* result=ok')

    def test_what_nobody_holds_is_refused(self):
        with LockServer(control=True) as server:
            done = server.release("no/such lock")
            self.assertEqual(done.returncode, 66, done.stderr)
            self.assertIn("is held by no client", done.stderr)
            self.assertEqual(server.release("--client", "xyz", "res").returncode, 64)
            self.assertEqual(server.release().returncode, 64)


if __name__ == "__main__":
    unittest.main(verbosity=2)
