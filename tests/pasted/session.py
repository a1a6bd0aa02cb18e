# SPDX-License-Identifier: Apache-2.0
"""Runs the commands of one page as if pasted by a user, and reports which of them fail.

    python3 session.py PAGE        inside the sandbox that pasted_test.py creates

All commands of a page run one after the other in one shell. A server is started beside it, as in a
second terminal, and is ready before the next command; it ends, with status 0, when the page starts
another one and when the page ends.
"""
import contextlib
import json
import os
import pathlib
import re
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time

import pages
import settings

ROOT = pathlib.Path(os.environ["WEIR_SOURCE_DIR"])
STUCK = 60  # seconds until a command counts as stuck
NUMBER = re.compile(r"-?\b\d[\d.,]*( ?(ns|us|ms|s|min)|[kMGT]i?B?|B)?\b")


class Broken(Exception):
    """A command does not do what the page describes."""


class Stuck(Exception):
    """A command does not end, or has ended the shell, so that later commands cannot run."""


def shape(text):
    """Output without numbers, and without the spaces that depend on them."""
    return [" ".join(NUMBER.sub("#", line).split()) for line in text.rstrip("\n").splitlines()]


class Process:
    """A process that does not end by itself: a server, or a command that repeats."""

    def __init__(self, command, cwd):
        self.command = command
        self.told = ""
        folder = pathlib.Path(tempfile.mkdtemp())
        self.path = folder / "output"
        self.notices = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)  # like that of systemd
        notify = folder / "notify"
        self.notices.bind(str(notify))
        self.notices.setblocking(False)
        with open(self.path, "wb") as output:
            self.process = subprocess.Popen(
                ["bash", "-c", f"exec {command}"], cwd=cwd, stdin=subprocess.DEVNULL,
                stdout=output, stderr=output, env={**os.environ, "NOTIFY_SOCKET": str(notify)})

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def shown(self):
        """Its output, and its notifications to systemd, one per line."""
        with contextlib.suppress(BlockingIOError):
            self.told += self.notices.recv(4096).decode() + "\n"
        return self.told + self.path.read_text(encoding="utf-8", errors="replace")

    def await_shown(self, pattern):
        deadline = time.monotonic() + STUCK
        while not re.search(pattern, self.shown(), re.M):
            if self.process.poll() is not None:
                raise Broken(f"ended with {self.process.returncode}: {self.shown()}")
            if time.monotonic() > deadline:
                raise Broken(f"no {pattern} within {STUCK} s: {self.shown()}")
            time.sleep(0.02)

    def end(self):
        if self.process.poll() is not None:
            raise Broken(f"{self.command} had ended with {self.process.returncode}: "
                         f"{self.shown()}")
        self.process.send_signal(signal.SIGTERM)
        try:
            status = self.process.wait(STUCK)
        except subprocess.TimeoutExpired as error:
            raise Broken(f"{self.command} does not end: {self.shown()}") from error
        if status != 0:
            raise Broken(f"{self.command} ended with {status}: {self.shown()}")


class Session:
    def __init__(self, page, cwd):
        self.page = page
        self.setting = settings.BEFORE.get(page, {})
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.cwd = cwd
        self.server = None
        self.rules = {}  # all rules of the page, by the options of weir rules
        done, reports = os.pipe()
        os.set_inheritable(reports, True)
        self.shell = subprocess.Popen(["bash", "--norc"], cwd=cwd, stdin=subprocess.PIPE,
                                      pass_fds=[reports], text=True)
        os.close(reports)
        self.reports, self.done = reports, os.fdopen(done, encoding="ascii")

    def run(self, text):
        """Status and output of a command in the shell."""
        script, output = self.folder / "script", self.folder / "output"
        script.write_text(text + "\n", encoding="utf-8")
        try:
            self.shell.stdin.write(f"{{ . {script}; }} >{output} 2>{output}.err </dev/null "
                                   f"{self.reports}>&-; echo $? >&{self.reports}\n")
            self.shell.stdin.flush()
        except BrokenPipeError as error:
            raise Stuck(f"{text}: the shell has ended") from error
        status = self.status_within(STUCK, text)
        error = pathlib.Path(f"{output}.err").read_text(encoding="utf-8", errors="replace")
        return status, output.read_text(encoding="utf-8", errors="replace"), error

    def status_within(self, seconds, text):
        """The status of the running command; a stuck command ends the shell and the page."""
        if not select.select([self.done], [], [], seconds)[0]:
            raise Stuck(f"{text}: it still ran after {seconds} s; its output:\n"
                        + (self.folder / "output").read_text(encoding="utf-8", errors="replace"))
        return self.done.readline().strip()

    def needs(self, text):
        status, output, error = self.run("set -e\n" + text + "\nset +e")
        if status != "0":
            raise Broken(f"the setting of the page does not come about: {text}\n{output}{error}")

    def end_server(self):
        server, self.server = self.server, None
        if server:
            server.end()

    def try_command(self, command):
        for beginning, text in self.setting.items():
            if beginning and command.text.startswith(beginning):
                self.prepare(text)
        if command.kind == "rules":
            options = settings.rule_options(command.text)
            self.rules[options] = self.rules.get(options, "") + command.text
            self.passes(f"weir rules {options} - <<'END'\n{self.rules[options]}END")
        elif command.kind == "conf":
            self.passes(f"cat >page.conf <<'END'\n{command.text}END\n"
                        "weir serve --config page.conf --check-config")
        elif settings.SERVER.match(command.text):
            self.end_server()
            server = Process(command.text, self.cwd)
            server.await_shown(r"^ready ")
            self.server = server
        elif pattern := settings.endless(command.text):
            with Process(command.text, self.cwd) as running:
                running.await_shown(pattern)
                running.end()
        elif command.output and (file := re.fullmatch(r"cat (\S+)", command.text)):
            (pathlib.Path(self.cwd) / file[1]).write_text(command.output, encoding="utf-8")
        else:
            self.compares(command)

    def prepare(self, text):
        if text.startswith(settings.END_SERVER):
            self.end_server()
        self.needs(text)

    def passes(self, text):
        status, output, error = self.run(text)
        if status != "0":
            raise Broken(f"status {status}\n{output}{error}")
        return output

    def compares(self, command):
        output = self.passes(command.text)
        if not command.output:
            return
        is_same = output == command.output
        if settings.FIGURES.search(command.text):
            is_same = shape(output) == shape(command.output)
        if not is_same:
            raise Broken(f"the page shows\n{command.output}but it printed\n{output}")

    def end(self):
        self.end_server()
        self.shell.stdin.close()
        self.shell.wait(STUCK)


def main():
    page = sys.argv[1]
    broken, ran = [], 0
    found = pages.commands(page, (ROOT / page).read_text(encoding="utf-8"))
    session = Session(page, ROOT if page.endswith(".md") else tempfile.mkdtemp())
    try:
        if first := session.setting.get(""):
            session.prepare(first)
        for command in found:
            if settings.reason_not_to_run(command.text):
                continue
            ran += 1
            begun = time.monotonic()
            try:
                session.try_command(command)
            except Broken as error:
                broken.append(f"{page}:{command.line}: {command.text}\n{error}")
            if os.environ.get("WEIR_PASTED_TIMES"):
                print(f"{time.monotonic() - begun:6.1f} s {command.text}", file=sys.stderr)
        session.end()
    except (Broken, Stuck) as error:
        broken.append(f"{page}: {error}")
    print(json.dumps({"ran": ran, "broken": broken}))


if __name__ == "__main__":
    main()
