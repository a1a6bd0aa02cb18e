# SPDX-License-Identifier: Apache-2.0
"""./dev and .ci/run keep their word.

Most of it is tried in a scratch checkout: a copy of ./dev over a project of one small program. What
installs packages is tried with stand-ins for the system's commands.
"""
import base64
import functools
import hashlib
import http.server
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

from tree import ROOT

COMMANDS = ("setup", "build", "run", "demo", "test", "check", "fmt", "fuzz", "drill", "bench",
            "weir", "help")

PROGRAM = r"""
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
int main(int count, char** arguments) {
  const char* first = count > 1 ? arguments[1] : "";
  if (!std::strcmp(first, "exit")) return std::atoi(arguments[2]);
  if (!std::strcmp(first, "wait")) return std::getchar();
  if (!std::strcmp(first, "where")) std::puts(std::filesystem::current_path().c_str());
  for (int i = 1; i < count; ++i) std::printf("<%s>", arguments[i]);
}
"""
PROJECT = """
cmake_minimum_required(VERSION 3.25)
project(scratch LANGUAGES CXX)
option(WEIR_BUILD_TESTS "" ON)
enable_testing()
add_subdirectory(apps/weir)
add_custom_target(product DEPENDS weir)
add_test(NAME good COMMAND true)
add_test(NAME bad COMMAND sh -c "echo the reason; exit 1")
add_test(NAME lost COMMAND /nonexistent)
add_test(NAME left COMMAND echo SKIPPED)
set_tests_properties(left PROPERTIES SKIP_REGULAR_EXPRESSION SKIPPED)
add_test(NAME some COMMAND python3 ${CMAKE_SOURCE_DIR}/run.py ${CMAKE_SOURCE_DIR}/parts.py Some)
add_test(NAME none COMMAND python3 ${CMAKE_SOURCE_DIR}/run.py ${CMAKE_SOURCE_DIR}/parts.py None_)
add_test(NAME worse COMMAND python3 ${CMAKE_SOURCE_DIR}/run.py ${CMAKE_SOURCE_DIR}/parts.py Worse)
set_tests_properties(some none worse PROPERTIES SKIP_RETURN_CODE 77)
set_tests_properties(good PROPERTIES LABELS unit)
add_test(NAME part.Suite COMMAND python3 ${CMAKE_SOURCE_DIR}/suite.py part.Suite 5 0 1)
add_test(NAME part.Bad COMMAND python3 ${CMAKE_SOURCE_DIR}/suite.py part.Bad 4 2 0)
add_test(NAME part/Leaks COMMAND python3 ${CMAKE_SOURCE_DIR}/suite.py part_Leaks 2 0 0 late)
"""
# What a suite of GoogleTest leaves behind: name, cases, failed ones, skipped ones, and perhaps what
# goes wrong after the last one.
SUITE = """
import pathlib, sys
name, cases, failed, skipped, *late = sys.argv[1:]
pathlib.Path("suites").mkdir(exist_ok=True)
pathlib.Path(f"suites/{name}.xml").write_text(
    f'<testsuites><testsuite name="S" tests="{cases}" failures="{failed}" disabled="0" '
    f'skipped="{skipped}" errors="0"><testcase name="a" status="run"/></testsuite></testsuites>')
sys.exit(bool(int(failed) or late))
"""
PARTS = """
import unittest
class Some(unittest.TestCase):
    def test_good(self):
        pass
    def test_left(self):
        self.skipTest("no such device")
@unittest.skip("no such machine")
class None_(unittest.TestCase):
    def test_a(self):
        pass
    def test_b(self):
        pass
class Worse(unittest.TestCase):
    def test_left(self):
        self.skipTest("no such user")
    def test_bad(self):
        self.fail()
if __name__ == "__main__":
    unittest.main()
"""
PRESETS = """{ "version": 6, "configurePresets": [
  { "name": "dev", "generator": "Ninja", "binaryDir": "${sourceDir}/build/${presetName}" },
  { "name": "release", "inherits": "dev" } ] }
"""


def write(folder, files):
    for file, text in files.items():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_text(text)


def write_scripts(folder, scripts):
    write(folder, {file: f"#!/bin/sh\n{text}\n" for file, text in scripts.items()})
    for file in scripts:
        (folder / file).chmod(0o755)


def run(*command, **how):
    how = {"stdin": subprocess.DEVNULL, "cwd": "/", **how}
    return subprocess.run(command, capture_output=True, text=True, **how)


class Usage(unittest.TestCase):
    def test_help_names_every_command(self):
        done = run(ROOT / "dev", "help")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        for command in COMMANDS:
            self.assertRegex(done.stdout, rf"(?m)^  {command} ")

    def test_wrong_usage(self):
        for arguments in ((), ("nonsense",), ("build", "nonsense"), ("build", "dev", "more"),
                          ("fuzz", "nonsense"), ("fuzz", "canary", "soon"), ("bench", "nonsense"),
                          ("check", "nonsense"), ("drill", "nonsense")):
            with self.subTest(arguments):
                done = run(ROOT / "dev", *arguments)
                self.assertEqual((done.returncode, done.stdout), (64, ""))
                self.assertIn("usage: ./dev COMMAND", done.stderr)

    def test_wrong_names_are_answered_with_the_right_ones(self):
        self.assertIn("unknown preset 'nonsense'; expected one of: dev ",
                      run(ROOT / "dev", "build", "nonsense").stderr)
        self.assertIn("unknown fuzzer 'nonsense'; expected one of: canary ",
                      run(ROOT / "dev", "fuzz", "nonsense").stderr)
        self.assertIn("unknown drill 'nonsense'; expected one of: hostile kill memory network",
                      run(ROOT / "dev", "drill", "nonsense").stderr)
        for arguments, message in (
                (("nonsense",), "unknown command 'nonsense'"),
                (("setup", "nonsense"), "unknown packages 'nonsense'; expected clients"),
                (("demo", "nonsense"), "unknown demo 'nonsense'; expected nothing or nfs"),
                (("check", "nonsense"), "unknown step 'nonsense'"),
                (("fuzz", "canary", "soon"), "'soon' is neither a number of seconds nor 'keep'"),
                (("build", "dev", "more"), "too many arguments for build")):
            with self.subTest(arguments):
                self.assertIn(f"dev: {message}\n", run(ROOT / "dev", *arguments).stderr)

    def test_drills_are_listed(self):
        done = run(ROOT / "dev", "drill")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertEqual(done.stdout.split(), ["hostile", "kill", "memory", "network", "power"])


class Scratch(unittest.TestCase):
    """./dev in a checkout of its own, whose path has a space."""

    @classmethod
    def setUpClass(cls):
        folder = cls.enterClassContext(tempfile.TemporaryDirectory())
        cls.root = pathlib.Path(folder).resolve() / "a checkout"
        cls.source = cls.root / "apps/weir/weir.cc"
        write(cls.root, {
            "CMakeLists.txt": PROJECT, "CMakePresets.json": PRESETS, "apps/weir/weir.cc": PROGRAM,
            "apps/weir/CMakeLists.txt": "add_executable(weir weir.cc)\n", "parts.py": PARTS,
            "suite.py": SUITE, "tests/count.py": (ROOT / "tests/count.py").read_text()})
        shutil.copy(ROOT / "dev", cls.root)
        shutil.copy(ROOT / "tests/run.py", cls.root)

    def dev(self, *arguments, **how):
        return run(self.root / "dev", *arguments, **how)

    def test_weir_is_silent_when_up_to_date(self):
        self.dev("weir")
        done = self.dev("weir", "a b", "--c")
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "<a b><--c>", ""))

    def test_weir_says_on_stderr_that_it_builds(self):
        self.dev("weir")
        self.source.write_text(PROGRAM + "// changed\n")
        done = self.dev("weir", "x")
        self.assertEqual((done.returncode, done.stdout), (0, "<x>"))
        self.assertRegex(done.stderr, r"^dev: build release \.\.\. \d+\.\d s\n$")

    def test_weir_passes_the_exit_status_on(self):
        self.assertEqual(self.dev("weir", "exit", "64").returncode, 64)

    def test_weir_runs_where_it_was_called(self):
        done = self.dev("weir", "where", cwd=self.root.parent)
        self.assertEqual(done.stdout.splitlines()[0], str(self.root.parent))

    def test_weir_becomes_the_program(self):
        self.dev("weir")
        process = subprocess.Popen([self.root / "dev", "weir", "wait"], stdin=subprocess.PIPE)
        try:
            program = self.root / "build/release/apps/weir/weir"
            deadline = time.monotonic() + 60
            while os.readlink(f"/proc/{process.pid}/exe") != str(program):
                self.assertLess(time.monotonic(), deadline, "the process is not the program")
                time.sleep(0.01)
            process.send_signal(signal.SIGTERM)
            self.assertEqual(process.wait(60), -signal.SIGTERM)
        finally:
            process.kill()
            process.communicate()

    def test_a_failed_build_shows_why_and_what_to_do(self):
        self.source.write_text("int main() { return nonsense; }\n")
        done = self.dev("weir")
        self.source.write_text(PROGRAM)
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertRegex(done.stderr, r"dev: build release \.\.\. failed after")
        self.assertIn("nonsense", done.stderr)
        self.assertIn("fix the first error above (whole log: build/release/dev.log)", done.stderr)

    def test_sources_that_no_longer_fit_together_are_compiled_apart(self):
        folder = self.source.parent
        lists = folder / "CMakeLists.txt"
        before = lists.read_text()
        # What cmake/batches.py does: the batch depends on what the sources hold at that time.
        lists.write_text("""
            file(STRINGS ${CMAKE_CURRENT_SOURCE_DIR}/other.cc both REGEX "int same")
            if(both)
              set(text "#include \\"weir.cc\\"\\n")
            else()
              set(text "#include \\"other.cc\\"\\n#include \\"weir.cc\\"\\n")
            endif()
            file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/weir_batch_0.cc "${text}")
            add_executable(weir weir_batch_0.cc)
            target_include_directories(weir PRIVATE .)
            """)
        try:
            self.source.write_text("int same() { return 0; }\nint main() { return same(); }\n")
            (folder / "other.cc").write_text("int other() { return 0; }\n")
            self.assertEqual(self.dev("build").returncode, 0)
            (folder / "other.cc").write_text("int same() { return 1; }\n")
            done = self.dev("build")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertRegex(done.stderr, r"^dev: build dev \.\.\. \d+\.\d s\n$")
            self.source.write_text("int main() { return same(); }\n")
            done = self.dev("build")  # nothing but the source can cure this
            self.assertEqual(done.returncode, 1)
            self.assertIn("fix the first error above", done.stderr)
        finally:
            lists.write_text(before)
            self.source.write_text(PROGRAM)

    def test_what_was_built_to_run_gets_its_tests_when_they_are_wanted(self):
        shutil.rmtree(self.root / "build", ignore_errors=True)
        cache = self.root / "build/release/CMakeCache.txt"
        for command, tests in (("weir",), "OFF"), (("build", "release"), "ON"), (("weir",), "ON"):
            self.assertEqual(self.dev(*command).returncode, 0)
            self.assertIn(f"\nWEIR_BUILD_TESTS:BOOL={tests}\n", cache.read_text())
        done = self.dev("weir", "x")
        self.assertEqual((done.stdout, done.stderr), ("<x>", ""))

    def test_two_builds_at_once(self):
        self.source.write_text(PROGRAM + "// changed again\n")
        both = [subprocess.Popen([self.root / "dev", "build"], stderr=subprocess.PIPE, text=True)
                for _ in range(2)]
        output = "".join(one.communicate()[1] for one in both)
        self.assertEqual([one.returncode for one in both], [0, 0], output)
        self.assertEqual(output.count("build dev ..."), 1, output)

    def test_tests_are_counted(self):
        done = self.dev("test")
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stdout.splitlines()[-1], "9 passed, 6 failed, 6 skipped")
        self.assertIn("the reason", done.stdout)
        for line in ("Some.test_left: no such device", "None_.test_a: no such machine",
                     "None_.test_b: no such machine", "Worse.test_left: no such user"):
            self.assertIn(f"dev: skipped parts.py: {line}\n", done.stderr)
        self.assertIn("fix the tests named above", done.stderr)

    def test_tests_by_label(self):
        done = self.dev("test", "unit")
        self.assertEqual(done.returncode, 0)
        self.assertEqual(done.stdout.splitlines()[-1], "1 passed, 0 failed, 0 skipped")

    def test_no_test_is_a_failure(self):
        done = self.dev("test", "nonsense")
        self.assertEqual(done.returncode, 1)
        self.assertEqual(done.stdout.splitlines()[-1], "0 passed, 0 failed, 0 skipped")
        self.assertIn("the labels are: unit", done.stderr)

    def test_a_failed_check_does_not_stop_the_others(self):
        done = self.dev("check")
        self.assertEqual(done.returncode, 1)
        found = re.fullmatch(r"(\d+) passed, (\d+) failed, 0 skipped", done.stdout.splitlines()[-1])
        self.assertTrue(found, done.stdout)
        steps = re.findall(r"(?m)^dev: check (\S+) \.\.\. (failed after )?\d+\.\d s$", done.stderr)
        self.assertEqual([name for name, _ in steps][-6:],
                         ["canary", "drill:kill", "drill:power", "drill:memory", "drill:hostile",
                          "drill:network"])
        self.assertEqual(sum(bool(failed) for _, failed in steps), int(found[2]))
        self.assertEqual(len(steps), int(found[1]) + int(found[2]))


class Program(unittest.TestCase):
    """The real thing."""

    def test_version_and_status(self):
        run(ROOT / "dev", "weir", "--version")  # brings it up to date
        done = run(ROOT / "dev", "weir", "--version")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertRegex(done.stdout, r"^weir \d+\.\d+\.\d+\n$")
        self.assertEqual(run(ROOT / "dev", "weir", "limit", "--bps").returncode, 64)

    def test_run_starts_the_server_and_tells_how_to_connect(self):
        run(ROOT / "dev", "weir", "--version")  # brings it up to date
        # With a loopback and a /run of its own: the port and the socket may be in use here.
        script = 'ip link set lo up && mount -t tmpfs none /run && exec "$0" run'
        with subprocess.Popen(["unshare", "--map-root-user", "--net", "--mount", "sh", "-c", script,
                               ROOT / "dev"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              text=True) as child:
            ready = child.stdout.readline()
            child.send_signal(signal.SIGTERM)
            _, said = child.communicate(timeout=60)
            self.assertEqual((ready, child.returncode),
                             ("ready 127.0.0.1:10809 control:10810\n", 0), said)
        self.assertRegex(said, r"live page: http://127\.0\.0\.1:10810/#token=[0-9a-f]{32}\n")
        for client in ("nbdinfo nbd://", "qemu-io ", "fio --name"):
            self.assertIn(client, said)


class StandIns(unittest.TestCase):
    """Stand-ins record what would be installed."""

    def setUp(self):
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.bin, self.calls = folder / "bin", folder / "calls"
        shutil.copy(ROOT / "dev", folder)
        self.dev = folder / "dev"
        self.bin.mkdir()
        for name in ("bash", "dirname", "env", "grep", "head", "mkdir", "readlink", "sed", "sh",
                     "tail"):
            (self.bin / name).symlink_to(shutil.which(name))
        self.calls.write_text("")
        self.on_debian(missing=("perl", "clang"))
        write_scripts(self.bin, {"apt-get": f'echo "apt-get $*" >>"{self.calls}"',
                                 "id": "echo 1000", "sudo": "exit 1"})

    def on_debian(self, missing):
        skip = "|".join(missing) or "none"
        write_scripts(self.bin, {"dpkg-query": f'''
            for package; do
              case $package in
                -*) ;;
                {skip}) echo "$package not-installed" ;;
                *) echo "$package installed" ;;
              esac
            done'''})


class Setup(StandIns):
    def setup(self):
        return run(self.dev, "setup", env={"PATH": str(self.bin)})

    def test_nothing_is_missing(self):
        self.on_debian(missing=())
        done = self.setup()
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))
        self.assertEqual(self.calls.read_text(), "")

    def test_root_installs_what_is_missing(self):
        write_scripts(self.bin, {"id": "echo 0"})
        done = self.setup()
        self.assertEqual(done.returncode, 0, done.stderr)
        update, install = self.calls.read_text().splitlines()
        self.assertEqual(update, "apt-get update")
        self.assertRegex(install, r" install -y .* perl clang$")
        self.assertRegex(done.stderr, r"^dev: install perl clang \.\.\. \d+\.\d s\n$")

    def test_an_install_shows_its_progress(self):
        write_scripts(self.bin, {"id": "echo 0", "apt-get": """
            echo Get:1 an index
            case $* in update) exit ;; esac
            echo 0 upgraded, 1 newly installed, 0 to remove and 3 not upgraded.
            echo Get:1 perl; echo Unpacking perl; echo Setting up perl"""})
        done = run("script", "-qec", f"PATH='{self.bin}' '{self.dev}' setup", "/dev/null")
        self.assertEqual(done.returncode, 0, done.stdout)
        self.assertEqual(re.findall(r"dev: install perl clang \[(\d/\d)\] \.\.\.", done.stdout),
                         ["1/3", "2/3", "3/3"])

    def test_sudo_installs_what_is_missing(self):
        write_scripts(self.bin, {"sudo": f'echo "sudo" >>"{self.calls}"; [ "$1" = -n ] || "$@"'})
        self.assertEqual(self.setup().returncode, 0)
        self.assertRegex(self.calls.read_text(),
                         r"^sudo\nsudo\napt-get update\napt-get .*install -y .* perl clang\n$")

    def test_others_are_told_the_line(self):
        done = self.setup()
        self.assertEqual((done.returncode, self.calls.read_text()), (1, ""))
        self.assertRegex(done.stderr, r"after root has run: apt-get update && apt-get .*install -y "
                                      r".* perl clang\n")

    def test_a_failed_install_is_explained(self):
        write_scripts(self.bin, {"id": "echo 0", "apt-get": "echo no such source; exit 100"})
        done = self.setup()
        self.assertEqual(done.returncode, 1)
        self.assertIn("no such source\n", done.stderr)
        self.assertIn("as root run: apt-get update", done.stderr)

    def test_running_needs_less_than_testing(self):
        self.on_debian(missing=("chromium", "slurmctld", "fio", "libfmt-dev", "libgtest-dev",
                                "npm"))
        write_scripts(self.bin, {"id": "echo 0", "cmake": "exit 1"})
        run(self.dev, "run", env={"PATH": str(self.bin)})
        self.assertRegex(self.calls.read_text(), r" install -y .* libfmt-dev\n$")
        self.assertNotRegex(self.calls.read_text(), "chromium|slurmctld|fio|gtest|npm")

    def test_clients_and_demos_need_no_tests(self):
        self.on_debian(missing=("chromium", "slurmctld", "fio", "nfs-ganesha", "libgtest-dev"))
        write_scripts(self.bin, {"id": "echo 0", "cmake": "exit 1"})
        for arguments, installed in ((("setup", "clients"), "fio"), (("demo",), "fio"),
                                     (("demo", "nfs"), "nfs-ganesha")):
            self.calls.write_text("")
            run(self.dev, *arguments, env={"PATH": str(self.bin)})
            self.assertRegex(self.calls.read_text(), rf" --no-install-recommends {installed}\n$")

    def test_unknown_packages_are_refused(self):
        done = run(self.dev, "setup", "toys", env={"PATH": f"{self.bin}:{os.environ['PATH']}"})
        self.assertEqual((done.returncode, self.calls.read_text()), (64, ""))
        self.assertIn("unknown packages 'toys'; expected clients", done.stderr)

    def test_elsewhere_than_on_debian(self):
        (self.bin / "dpkg-query").unlink()
        done = self.setup()
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, r"is not Debian.* g\+\+ cmake ninja-build ")


class BadInput(StandIns):
    """What keeps ./dev run from running is told in one sentence that says what to do."""

    # Ports and mounts are those of a machine of its own.
    ALONE = ("unshare", "--map-root-user", "--net", "--mount", "sh", "-c")

    def setUp(self):
        super().setUp()
        write_scripts(self.bin, {"id": "echo 0", "cmake": f'echo cmake >>"{self.calls}"; exit 1'})

    def run_dev(self, before="true"):
        """After a command of the shell, which finds the folder of the checkout in $2."""
        script = f'ip link set lo up && {before} && PATH="$1" exec "$0" run'
        return run(*self.ALONE, script, self.dev, self.bin, self.dev.parent)

    def refused(self, done, sentence, begun=()):
        """Nothing but what was begun and the sentence is told."""
        *first, last = done.stderr.splitlines()
        self.assertEqual((done.returncode, done.stdout), (1, ""))
        self.assertRegex(last, f"^dev: {sentence}$")
        self.assertEqual(len(first), len(begun), done.stderr)
        for line, what in zip(first, begun):
            self.assertRegex(line, rf"^dev: {what} .*\.\.\. failed after \d+\.\d s$")

    def test_without_network(self):
        write_scripts(self.bin, {"apt-get": """
            case $* in update) echo "W: Failed to fetch http://deb.debian.org/debian" ;;
            *) echo "E: Unable to locate package perl"; exit 100 ;; esac"""})
        self.refused(self.run_dev(), r"cannot download packages or files; connect this machine to "
                     r"the network, or set http_proxy and https_proxy, and run \./dev run again "
                     r"\(whole log: build/setup\.log\)", ["install perl"])

    def test_without_network_for_what_the_build_downloads(self):
        self.on_debian(missing=())
        write_scripts(self.bin, {"cmake": """
            case $* in --list-presets) echo '  "release"' ;;
            *) echo "fetch: cannot download https://registry.npmjs.org/x"; exit 1 ;; esac"""})
        for name in "flock", "touch":
            (self.bin / name).symlink_to(shutil.which(name))
        self.refused(self.run_dev(), r"cannot download packages or files; connect this machine .* "
                     r"\(whole log: build/release/dev\.log\)", ["configure release"])

    def test_without_root(self):
        write_scripts(self.bin, {"id": "echo 1000"})
        sentence = (r"packages are missing and you are not root; run \./dev run again after root "
                    r"has run: apt-get update && apt-get .* install -y .* perl")
        self.refused(self.run_dev(), sentence)
        (self.bin / "sudo").unlink()
        self.refused(self.run_dev(), sentence)
        self.assertEqual(self.calls.read_text(), "")

    def test_on_another_distribution(self):
        (self.bin / "dpkg-query").unlink()
        (self.bin / "apt-get").unlink()
        self.refused(self.run_dev(), r"this is not Debian; install the equivalents of these Debian "
                     r"12 packages, then run \./dev run again: g\+\+ cmake .*")
        self.assertEqual(self.calls.read_text(), "")

    def test_on_another_distribution_without_a_library(self):
        (self.bin / "dpkg-query").unlink()
        (self.bin / "apt-get").unlink()
        tools = {tool: "true" for tool in
                 ("g++", "ninja", "perl", "python3", "protoc", "grpc_cpp_plugin")}
        write_scripts(self.bin, {**tools, "cmake": """
            case $* in --list-presets) echo '  "release"' ;;
            *) echo "Could not find fmtConfig.cmake"; exit 1 ;; esac"""})
        for name in "flock", "touch":
            (self.bin / name).symlink_to(shutil.which(name))
        done = self.run_dev()
        self.assertEqual(done.returncode, 1)
        self.assertIn("Could not find fmtConfig.cmake\n", done.stderr)
        self.assertRegex(done.stderr.splitlines()[-1],
                         r"^dev: install what cmake misses; these Debian 12 packages contain it: "
                         r"g\+\+ cmake .* \(whole log: ")

    def test_on_a_relative_of_debian_that_lacks_a_package(self):
        write_scripts(self.bin, {"apt-get": "echo E: Unable to locate package perl; exit 100"})
        self.refused(self.run_dev(), r"this system has no package 'perl'; use Debian 12 or newer "
                     r"\(whole log: .*\)", ["install perl"])

    def test_with_half_of_the_packages(self):
        self.on_debian(missing=("cmake", "ccache", "libfmt-dev", "libgrpc++-dev"))
        self.run_dev()
        self.assertRegex(self.calls.read_text(),
                         r" install -y --no-install-recommends cmake ccache libfmt-dev libgrpc"
                         r"\+\+-dev\ncmake\n$")

    def test_with_a_package_half_installed(self):
        write_scripts(self.bin, {"apt-get": "echo E: dpkg was interrupted, you must; exit 100"})
        self.refused(self.run_dev(), "an earlier installation was interrupted; as root run 'dpkg "
                     r"--configure -a', then run \./dev run again", ["install perl"])

    def test_with_a_port_that_is_taken(self):
        for port in 10809, 10810:
            with self.subTest(port):
                listen = (f"import socket, subprocess, sys; s = socket.create_server(('127.0.0.1', "
                          f"{port})); sys.exit(subprocess.run(sys.argv[1:]).returncode)")
                done = run(*self.ALONE, 'ip link set lo up && python=$2 && PATH="$1" && '
                           'exec "$python" -c "$3" "$0" run', self.dev, self.bin, sys.executable,
                           listen)
                self.refused(done, rf"port {port} of 127\.0\.0\.1 is in use; stop the program that "
                             rf"listens there \('ss -ltnp sport = :{port}' names it\) and run "
                             r"\./dev run again")
        self.assertEqual(self.calls.read_text(), "")

    def test_in_a_checkout_that_cannot_be_written_to(self):
        done = self.run_dev('mount --bind "$2" "$2" && mount -o remount,ro,bind "$2"')
        self.refused(done, rf"cannot write to {self.dev.parent}/build; copy this checkout to a "
                     r"folder of your own and run \./dev run there")
        self.assertEqual(self.calls.read_text(), "")
        self.assertFalse((self.dev.parent / "build").exists())


class Fetch(unittest.TestCase):
    """cmake/fetch.py against a registry of its own."""

    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.into = self.folder / "into"
        (self.folder / "package").mkdir()
        (self.folder / "package/a.js").write_text("draw()")
        archive = self.folder / "plot/-/plot-1.2.tgz"
        archive.parent.mkdir(parents=True)
        subprocess.run(["tar", "czf", archive, "package"], cwd=self.folder, check=True)
        checksum = base64.b64encode(hashlib.sha512(archive.read_bytes()).digest()).decode()
        self.write_lock(checksum)
        handler = functools.partial(Quiet, directory=str(self.folder))
        self.registry = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        thread = threading.Thread(target=self.registry.serve_forever)
        thread.start()
        self.addCleanup(thread.join)
        self.addCleanup(self.registry.server_close)
        self.addCleanup(self.registry.shutdown)

    def write_lock(self, checksum):
        (self.folder / "lock").write_text(json.dumps({"packages": {"node_modules/plot": {
            "version": "1.2", "integrity": f"sha512-{checksum}"}}}))

    def fetch(self, registry=None):
        registry = registry or f"http://127.0.0.1:{self.registry.server_port}/"
        return run(sys.executable, "-B", ROOT / "cmake/fetch.py", self.folder / "lock", self.into,
                   "plot", "a.js", env={**os.environ, "npm_config_registry": registry,
                                        "no_proxy": "127.0.0.1"})

    def test_writes_the_files_once(self):
        done = self.fetch()
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "", ""))
        self.assertEqual((self.into / "plot/a.js").read_text(), "draw()")
        self.assertEqual(self.fetch("http://127.0.0.1:1/").returncode, 0)  # has no need to ask

    def test_a_wrong_checksum_is_refused(self):
        self.write_lock("AAAA")
        done = self.fetch()
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, r"^fetch: the checksum of http://\S+/plot-1\.2\.tgz differs ")
        self.assertFalse(self.into.exists())

    def test_without_network(self):
        done = self.fetch("http://127.0.0.1:1/")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, r"^fetch: cannot download http://127\.0\.0\.1:1/plot/-/plot-"
                                      r"1\.2\.tgz: .*\n$")
        self.assertFalse(self.into.exists())


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


class Ci(unittest.TestCase):
    """.ci/run adds up what ./dev test and ./dev check say."""

    def run_ci(self, test, check):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            write_scripts(folder, {"dev": f"case $1 in test) {test};; check) {check};; esac"})
            (folder / ".ci").mkdir()
            shutil.copy(ROOT / ".ci/run", folder / ".ci")
            done = run("bash", ".ci/run", cwd=folder)
            return done.returncode, done.stdout.splitlines()[-1]

    def test_sum(self):
        good = "echo x; echo 3 passed, 0 failed, 0 skipped"
        more = "echo 4 passed, 0 failed, 1 skipped"
        self.assertEqual(self.run_ci(good, more), (0, "7 passed, 0 failed, 1 skipped"))
        self.assertEqual(self.run_ci("echo 3 passed, 2 failed, 0 skipped; exit 1", more),
                         (1, "7 passed, 2 failed, 1 skipped"))
        self.assertEqual(self.run_ci("echo 3 passed, 0 failed, 2 skipped", more),
                         (0, "7 passed, 0 failed, 3 skipped"))

    def test_a_part_that_does_not_count_has_failed(self):
        self.assertEqual(self.run_ci("exit 1", "echo 4 passed, 0 failed, 0 skipped"),
                         (1, "4 passed, 1 failed, 0 skipped"))
        self.assertEqual(self.run_ci("echo 2 passed, 0 failed",
                                     "echo 4 passed, 0 failed, 0 skipped"),
                         (1, "4 passed, 1 failed, 0 skipped"))
        self.assertEqual(self.run_ci("echo 2 passed, 0 failed, 0 skipped; exit 1", "exit 0"),
                         (1, "2 passed, 2 failed, 0 skipped"))

    def test_nothing_ran(self):
        nothing = "echo 0 passed, 0 failed, 0 skipped"
        self.assertEqual(self.run_ci(nothing, nothing), (1, "0 passed, 0 failed, 0 skipped"))


if __name__ == "__main__":
    unittest.main()
