# SPDX-License-Identifier: Apache-2.0
"""Shows that the three layering checks work: each kind of violation is made and rejected.

declared: weir_module() and weir_check_layers() in cmake/WeirModule.cmake
included: cmake/check_includes.cmake
linked:   cmake/check_symbols.sh

A small project with the repository's cmake/ is built, then broken in one way at a time. The last
two checks are also called directly with many samples, which is faster than a build.
"""
import contextlib
import pathlib
import subprocess
import tempfile
import unittest

from tree import ROOT

CMAKE = ROOT / "cmake"

PROJECT = {
    "CMakeLists.txt": f"""
        cmake_minimum_required(VERSION 3.25)
        project(layering LANGUAGES CXX)
        set(WEIR_BUILD_TESTS OFF)
        add_library(weir_flags INTERFACE)
        include({CMAKE}/WeirModule.cmake)
        foreach(name host pace pace/parts account base)
          add_subdirectory(weir/${{name}})
        endforeach()""",
    "weir/base/CMakeLists.txt": "weir_module(base LAYER 0 PURE)",
    "weir/base/size.h": "#pragma once\ninline int twice(int size) { return 2 * size; }\n",
    "weir/pace/CMakeLists.txt": "weir_module(pace LAYER 1 PURE DEPS base)",
    "weir/pace/pace.h": "#pragma once\nint pace(int size);\n",
    "weir/pace/pace.cc": '#include "weir/pace/pace.h"\n#include "weir/base/size.h"\n'
                         "int pace(int size) { return twice(size); }\n",
    "weir/account/CMakeLists.txt": "weir_module(account LAYER 1 PURE DEPS base)",
    "weir/host/CMakeLists.txt": "weir_module(host LAYER 3 DEPS pace/parts)",
    "weir/pace/parts/CMakeLists.txt": "weir_module(pace/parts LAYER 1 PURE)",
    "weir/pace/parts/part.h": "#pragma once\nint part();\n",
    "weir/pace/parts/part.cc": '#include "weir/pace/parts/part.h"\n'
                               "int part() { return 1; }\n",
    "weir/host/clock.h": "#pragma once\nlong now_ns();\n",
    "weir/host/clock.cc": '#include "weir/host/clock.h"\n'
                          '#include "weir/pace/parts/part.h"\n'
                          "#include <time.h>\n#include <thread>\n"
                          "long now_ns() { timespec t; clock_gettime(CLOCK_MONOTONIC, &t);"
                          " return t.tv_nsec; }\n",
}


def run(*command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    return done.returncode, " ".join(done.stdout.split())  # CMake wraps its messages


class Violations(unittest.TestCase):
    """One kind of violation each, detected by a whole build."""

    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        for file, text in PROJECT.items():
            (cls.folder / file).parent.mkdir(parents=True, exist_ok=True)
            (cls.folder / file).write_text(text)
        status, output = run("cmake", "-G", "Ninja", "-S", cls.folder, "-B", cls.folder / "build")
        assert status == 0, output

    @contextlib.contextmanager
    def changed(self, changes):
        try:
            for file, text in changes.items():
                (self.folder / file).write_text(text)
            yield
        finally:
            for file in changes:
                if file in PROJECT:
                    (self.folder / file).write_text(PROJECT[file])
                else:
                    (self.folder / file).unlink()

    def build(self):
        return run("cmake", "--build", self.folder / "build")

    def refused(self, changes, message):
        with self.changed(changes):
            for attempt in "first", "second":  # the second build must fail too
                with self.subTest(attempt):
                    status, output = self.build()
                    self.assertNotEqual(status, 0, output)
                    self.assertIn(message, output)
        status, output = self.build()
        self.assertEqual(status, 0, f"nothing but the violation may be refused:\n{output}")

    def declared(self, declaration, message):
        self.refused({"weir/pace/CMakeLists.txt": declaration}, message)

    def test_the_clean_project_passes(self):
        status, output = self.build()
        self.assertEqual(status, 0, output)

    def test_declared_upward(self):
        self.declared("weir_module(pace LAYER 1 DEPS base host)",
                      "weir/pace (layer 1) must not depend on weir/host (layer 3)")

    def test_declared_sideways(self):
        self.declared("weir_module(pace LAYER 1 PURE DEPS base account)",
                      "weir/pace (layer 1) must not depend on weir/account (layer 1)")

    def test_declared_pure_on_impure(self):
        self.declared("weir_module(pace LAYER 4 PURE DEPS base host)",
                      "weir/pace is PURE but depends on weir/host, which is not")

    def test_declared_pure_with_a_forbidden_library(self):
        self.declared("weir_module(pace LAYER 1 PURE DEPS base SYSTEM uring)",
                      "weir/pace is PURE and must not link uring")

    def test_declared_module_hidden_among_libraries(self):
        self.declared("weir_module(pace LAYER 1 DEPS base SYSTEM weir_host)",
                      "weir/pace: modules belong under DEPS, not SYSTEM: weir_host")

    def test_declared_unknown_module(self):
        self.declared("weir_module(pace LAYER 1 PURE DEPS base nowhere)",
                      "weir/pace depends on 'nowhere', which is not a module")

    def test_declared_and_not_used(self):
        self.declared("weir_module(pace LAYER 2 PURE DEPS base account)",
                      "weir/pace declares account in its DEPS but includes none of its headers")

    def test_declared_for_tests_and_not_used(self):
        self.declared("weir_module(pace LAYER 2 PURE DEPS base TEST_DEPS account)",
                      "weir/pace declares account in its TEST_DEPS but includes none of its")

    def test_included_of_a_folder_in_a_folder(self):
        self.refused({"weir/pace/late.h": '#pragma once\n#include "weir/pace/parts/part.h"\n'},
                     "weir/pace includes weir/pace/parts, which is not in its DEPS (base)")

    def test_declared_without_layer(self):
        self.declared("weir_module(pace PURE DEPS base)", "weir_module(pace): LAYER is required")

    def test_included_in_a_new_file(self):
        self.refused({"weir/pace/late.h": '#pragma once\n#include "weir/host/clock.h"\n'},
                     "weir/pace includes weir/host, which is not in its DEPS (base)")

    def test_included_before_the_own_header(self):
        lines = PROJECT["weir/pace/pace.cc"].splitlines(keepends=True)
        for text in lines[1] + lines[0] + lines[2], "int pace(int) { return 0; }\n":
            self.refused({"weir/pace/pace.cc": text},
                         "the first include of a source is its own header")

    def test_included_thread_in_pure(self):
        self.refused({"weir/pace/pace.h": "#include <thread>\n" + PROJECT["weir/pace/pace.h"]},
                     "weir/pace is PURE and must not include <thread>")

    def test_named_clock_in_pure(self):
        self.refused({"weir/pace/late.cc": 'extern "C" int clock_gettime();\n'
                                           "int late() { return clock_gettime() ; }\n"},
                     "must not use names of the operating system")

    def test_linked_file_in_pure(self):
        self.refused({"weir/pace/late.cc": 'extern "C" int open(const char*, int, ...);\n'
                                           'int late() { return open("x", 0); }\n'},
                     "libweir_pace.a is declared PURE but uses symbols of the operating system: "
                     "U open")

    def test_linked_through_an_inline_function_of_an_own_header(self):
        self.refused({"weir/base/size.h": '#pragma once\nextern "C" long time(long*);\n'
                                          "inline int twice(int) { return int(time(nullptr)); }\n"},
                     "libweir_pace.a is declared PURE but uses symbols of the operating system: "
                     "U time")


class Includes(unittest.TestCase):
    """check_includes.cmake, called as weir_module() does for a PURE module with DEPS base."""

    def check(self, text, name="pace", pure="TRUE", file="sample.h", declared=()):
        with tempfile.TemporaryDirectory() as folder:
            sample = pathlib.Path(folder) / file
            sample.write_text(text)
            other = pathlib.Path(folder) / "other.h"
            other.write_text('#include "weir/base/x.h"\n#include "weir/account/x.h"\n')
            return run("cmake", f"-DNAME={name}", f"-DPURE={pure}", "-DDEPS=base;account",
                       *declared, f"-DFILES={sample};{other}", "-P",
                       CMAKE / "check_includes.cmake")

    def passes(self, text, **how):
        status, output = self.check(text, **how)
        self.assertEqual(status, 0, output)

    def refused(self, text, message, **how):
        with self.subTest(text):
            status, output = self.check(text, **how)
            self.assertNotEqual(status, 0, "passed, but must not")
            self.assertIn(message, output)

    def test_libraries_that_are_declared_are_included(self):
        for library, header in (("fmt::fmt", "fmt/format.h"), ("tl::expected", "tl/expected.hpp"),
                                ("absl::btree", "absl/container/btree_map.h"),
                                ("Boost::headers", "boost/intrusive/list.hpp")):
            declared = [f"-DLIBRARIES={library}"]
            self.passes(f"#include <{header}>\n", declared=declared)
            self.refused("#include <vector>\n", declared=declared,
                         message=f"weir/pace declares {library} in its SYSTEM but includes none")
            self.refused(f"#include <{header}>\n", file="sample_test.cc", declared=declared,
                         message=f"{library} in its SYSTEM, which only tests include")
            self.passes(f"#include <{header}>\n", file="sample_test.cc",
                        declared=[f"-DTEST_LIBRARIES={library}"])
        self.refused("#include <vector>\n", declared=["-DLIBRARIES=mystery"],
                     message="weir/pace links mystery: name its headers in check_includes.cmake")

    def test_modules_of_tests_are_for_tests(self):
        declared = ["-DTEST_DEPS=lock"]
        self.passes('#include "weir/lock/x.h"\n', file="sample_test.cc", declared=declared)
        self.refused('#include "weir/lock/x.h"\n', "which is not in its DEPS (base;account)",
                     declared=declared)
        self.refused('#include "weir/lock/x.h"\n', file="sample_bench.cc",
                     declared=["-DDEPS=base;account;lock"],
                     message="weir/pace declares lock in its DEPS, which only tests include")

    def test_what_policies_are_inside_is_for_the_target(self):
        for header in "tbf", "tbf/types", "crrn", "fifo", "rule_engine":
            self.refused(f'#include "weir/schedule/{header}.h"\n', "may be used only in",
                         name="serve", pure="FALSE")

    def test_what_a_pure_module_may_include(self):
        self.passes('#include "weir/pace/x.h"\n#include "weir/base/x.h"\n#include <chrono>\n'
                    "#include <fmt/core.h>\n#include <tl/expected.hpp>\n"
                    "#include <absl/container/flat_hash_map.h>\n"
                    "#include <boost/intrusive/list.hpp>\n")
        self.passes("#include <gtest/gtest.h>\n#include <rapidcheck.h>\n"
                    "static_assert(!same<Instant, std::chrono::steady_clock::time_point>);\n",
                    file="sample_test.cc")

    def test_comments_and_strings_do_not_count(self):
        self.passes('// #include <thread>\n/* steady_clock\n#include <thread>\n */\n'
                    'const char* text = "clock_gettime";\nint isteady_clock;\n')

    def test_impure_modules_may_reach_the_system(self):
        self.passes("#include <sys/epoll.h>\n#include <thread>\nusing std::chrono::steady_clock;\n",
                    name="host", pure="FALSE")

    def test_undeclared_modules(self):
        self.refused('#include "weir/host/clock.h"', "which is not in its DEPS (base;account)")
        self.refused('  #  include\t"weir/host/clock.h"', "which is not in its DEPS")
        self.refused('#inc\\\nlude "weir/host/clock.h"', "which is not in its DEPS")
        self.refused('/* */ #include "weir/host/clock.h"', "which is not in its DEPS")
        self.refused('%:include "weir/host/clock.h"', "which is not in its DEPS")
        self.refused('#include <vector>  // [\n#include "weir/host/clock.h"  // ;]',
                     "which is not in its DEPS")

    def test_own_headers_are_written_one_way(self):
        for text in ("<weir/base/x.h>", '"x.h"', '"../base/x.h"', '"./x.h"', "<../x.h>",
                     '"weir/base/../host/x.h"', "<gtest/../weir/host/x.h>", "</usr/include/x>",
                     '"weir/x.h"', '"weir/base/deep/down/x.h"', '"weir/base/x.inc"'):
            self.refused(f"#include {text}", 'write headers of Weir as "weir/<module>/<file>.h"')

    def test_includes_that_hide_their_file(self):
        self.refused("#include CLOCK", "an include must name its file")
        self.refused('#import "weir/host/clock.h"', "an include must name its file")
        self.refused('#include "weir//host/clock.h"', "an include must name its file")

    def test_headers_closed_to_pure_modules(self):
        for header in ("thread", "mutex", "iostream", "random", "ctime", "time.h", "pthread.h",
                       "sys/socket.h", "bits/stdc++.h", "fmt/os.h", "absl/time/clock.h",
                       "boost/thread.hpp", "gtest/gtest.h"):
            self.refused(f"#include <{header}>", f"is PURE and must not include <{header}>")
        self.refused("#include <thread>", "must not include <thread>", file="sample_test.cc")

    def test_names_closed_to_pure_modules(self):
        for name in ("std::chrono::steady_clock::now()", "clock_gettime(0, &t)", "__rdtsc()",
                     "std::this_thread::yield()", "std::mutex m", "std::random_device{}()"):
            self.refused(f"inline void unused() {{ {name}; }}\n",
                         "must not use names of the operating system")

    def test_libraries_outside_their_home(self):
        self.refused("#include <liburing.h>", "<liburing.h> may be used only in ('host'")
        self.refused("#include <grpcpp/grpcpp.h>", "may be used only in ('cluster'",
                     name="host", pure="FALSE")
        self.refused("#include <CLI/CLI.hpp>", "may be used only in (''; empty: apps/)",
                     name="host", pure="FALSE")
        self.passes("#include <liburing.h>\n", name="host", pure="FALSE")


class Symbols(unittest.TestCase):
    """check_symbols.sh on archives of one function each."""

    def check(self, head, body):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            (folder / "sample.cc").write_text(f"{head}\nvoid sample() {{ {body} }}\n")
            status, output = run("g++", "-std=c++20", "-c", "-o", folder / "sample.o",
                                 folder / "sample.cc")
            self.assertEqual(status, 0, output)
            archive = folder / "libsample.a"
            run("ar", "rcs", archive, folder / "sample.o")
            return run(CMAKE / "check_symbols.sh", archive)

    def test_pure_code_passes(self):
        status, output = self.check(
            "#include <chrono>\n#include <cstdio>\n#include <memory>\n#include <string>\n"
            "std::shared_ptr<std::string> kept;",
            'kept = std::make_shared<std::string>("x"); std::fprintf(stderr, "%s", kept->data());')
        self.assertEqual(status, 0, output)

    def test_functions_of_the_system(self):
        names = ("clock_gettime", "gettimeofday", "time", "nanosleep", "getrandom", "rand",
                 "random", "pthread_create", "pthread_mutex_lock", "pthread_rwlock_rdlock",
                 "sem_wait", "open", "open64", "__open_2", "read", "__read_chk", "pread64", "stat",
                 "unlink", "fopen", "socket", "connect", "poll", "epoll_wait", "timerfd_create",
                 "io_uring_setup", "getenv", "syscall", "posix_spawn", "execvp", "fork", "puts")
        status, output = self.check("".join(f'extern "C" void {name}(int);\n' for name in names),
                                    "".join(f"{name}(0);" for name in names))
        self.assertEqual(status, 1)
        for name in names:
            self.assertIn(f"U {name} ", output + " ")

    def test_the_cxx_library(self):
        for head, body, symbol in (
                ("#include <chrono>", "std::chrono::steady_clock::now();", "steady_clock::now"),
                ("#include <thread>", "std::thread([] {}).join();", "std::thread::_M_start_thread"),
                ("#include <fstream>", 'std::ofstream("x") << 1;', "basic_ofstream"),
                ("#include <random>", "std::random_device{}();", "std::random_device"),
                ("#include <atomic>\nstd::atomic<int> a;", "a.wait(0);", "syscall"),
                ("#include <memory_resource>\nstd::shared_mutex m;", "m.lock();", "pthread_rwlock"),
                ("#include <iostream>", "std::cout << 1;", "std::cout"),
                ("#include <cstdio>", "std::fprintf(stdout, \"x\");", "U stdout")):
            with self.subTest(body):
                status, output = self.check(head, body)
                self.assertEqual(status, 1, "passed, but must not")
                self.assertIn(symbol, output)

    def test_a_file_that_is_no_archive_is_refused(self):
        status, output = run(CMAKE / "check_symbols.sh", "/nonexistent.a")
        self.assertEqual(status, 1)
        self.assertIn("cannot read /nonexistent.a", output)


if __name__ == "__main__":
    unittest.main()
