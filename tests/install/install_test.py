#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The library as users get it: installed, found by CMake and pkg-config, and used by
examples/limiter, which is built only against the installed prefix."""
import glob
import os
import subprocess
import tempfile
import time
import unittest

SOURCE = os.environ["WEIR_SOURCE_DIR"]
RELEASE = os.path.dirname(os.path.dirname(os.path.dirname(os.environ["WEIR_RELEASE_BIN"])))
EXAMPLE = os.path.join(SOURCE, "examples", "limiter")
POLICY = os.path.join(SOURCE, "examples", "policy")


def run(*command, **options):
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=300,
                          **options).stdout


class InstallTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = folder.name
        # Moved after installing: nothing in it may depend on the original path.
        run("cmake", "--install", RELEASE, "--prefix", cls.folder + "/first")
        cls.prefix = cls.folder + "/prefix"
        os.rename(cls.folder + "/first", cls.prefix)

    def copy_limited(self, program, size, bandwidth, operations):
        data = os.urandom(size)
        with open(self.folder + "/from", "wb") as out:
            out.write(data)
        start = time.monotonic()
        run(program, self.folder + "/from", self.folder + "/to", bandwidth, operations)
        took = time.monotonic() - start
        with open(self.folder + "/to", "rb") as copy:
            self.assertEqual(copy.read(), data)
        return took

    def test_headers_of_tests_stay_at_home(self):
        installed = {file for _, _, files in os.walk(self.prefix + "/include") for file in files}
        self.assertIn("session.h", installed)
        self.assertEqual([file for file in installed
                          if file.startswith("fake_") or file.endswith("_for_tests.h")], [])

    def test_the_example_is_short(self):
        with open(os.path.join(EXAMPLE, "limiter.cc"), encoding="utf-8") as source:
            self.assertLess(len(source.readlines()), 100)

    def test_found_by_cmake_and_keeps_its_limits(self):
        build = self.folder + "/build"
        run("cmake", "-S", EXAMPLE, "-B", build, "-G", "Ninja",
            "-DCMAKE_PREFIX_PATH=" + self.prefix, "-DCMAKE_CXX_FLAGS=-Wall -Wextra -Werror")
        run("cmake", "--build", build)
        program = build + "/limiter"
        # 1 MiB at 2 MiB/s, a burst of 64 KiB; 16 blocks at 20 a second, a burst of 2.
        self.assertGreaterEqual(self.copy_limited(program, 1 << 20, "2MiB/s", "1M"), 0.46)
        self.assertGreaterEqual(self.copy_limited(program, 1 << 20, "1GiB/s", "20"), 14 / 20)

    def test_a_policy_of_another_program_runs_in_the_server(self):
        with open(os.path.join(POLICY, "edf.cc"), encoding="utf-8") as source:
            self.assertLess(len(source.readlines()), 150)
        build = self.folder + "/policy"
        run("cmake", "-S", POLICY, "-B", build, "-G", "Ninja",
            "-DCMAKE_PREFIX_PATH=" + self.prefix, "-DCMAKE_CXX_FLAGS=-Wall -Wextra -Werror")
        run("cmake", "--build", build)
        control, socket = self.folder + "/control", self.folder + "/nbd"
        server = subprocess.Popen(
            [build + "/edf-server", "--export", "a=memory:16MiB", "--listen", "unix:" + socket,
             "--control", control, "--policy", "edf"], stdout=subprocess.PIPE, text=True)
        try:
            self.assertIn("ready", server.stdout.readline())
            uri = "nbd+unix:///a?socket=" + socket
            run("qemu-io", "-f", "raw", "-c", "write -P 7 0 1M", "-c", "read -P 7 0 1M", uri)
            weir = [self.prefix + "/bin/weir"]
            listed = run(*weir, "lctl", "--control", control, "get_param", "-n",
                         "ost.OSS.ost_io.nrs_policies")
            self.assertIn("  - name: edf\n    state: started\n", listed)
        finally:
            server.terminate()
            self.assertEqual(server.wait(60), 0)
            server.stdout.close()

    def test_found_by_pkg_config(self):
        environment = {**os.environ, "PKG_CONFIG_PATH": self.prefix + "/lib/pkgconfig"}
        flags = run("pkg-config", "--cflags", "--libs", "weir", env=environment).split()
        program = self.folder + "/limiter"
        run("g++", "-std=c++20", os.path.join(EXAMPLE, "limiter.cc"), *flags, "-o", program)
        self.copy_limited(program, 1000, "1GiB/s", "1k")

    def test_pkg_config_names_all_that_every_module_needs(self):
        environment = {**os.environ, "PKG_CONFIG_PATH": self.prefix + "/lib/pkgconfig"}
        flags = run("pkg-config", "--cflags", "--libs", "weir", env=environment).split()
        archives = sorted(glob.glob(self.prefix + "/lib/libweir_*.a"))
        named = {flag for flag in flags if flag.startswith("-lweir_")}
        self.assertEqual(named, {f"-l{os.path.basename(one)[3:-2]}" for one in archives})
        program = self.folder + "/every_module"
        run("g++", "-std=c++20", os.path.join(os.path.dirname(__file__), "every_module.cc"),
            "-Wl,--whole-archive", *archives, "-Wl,--no-whole-archive", *flags, "-o", program)
        self.assertIn("etcd", run(program))

    def test_the_binary_and_its_manual_are_there(self):
        self.assertIn("weir ", run(self.prefix + "/bin/weir", "--version"))
        # This command is in the second program, which the first one finds after both were moved.
        self.assertIn("Usage: weir serve", run(self.prefix + "/bin/weir", "serve", "--help"))
        with open(self.prefix + "/share/man/man1/weir-limit.1", encoding="utf-8") as manual:
            self.assertRegex(manual.read(), r'(?m)^\.TH WEIR-LIMIT 1 ')


if __name__ == "__main__":
    unittest.main(verbosity=2)
