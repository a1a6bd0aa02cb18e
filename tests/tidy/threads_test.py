# SPDX-License-Identifier: Apache-2.0
"""Threads communicate in one way, and shared state names its mutex, which clang checks.

Work is passed through weir/host/mailbox.h; state that several threads change is guarded by the
Mutex of weir/host/mutex.h or the EntryLock of weir/host/entry_lock.h, which clang's -Wthread-safety
checks. Each rule is also run over a small tree that violates it.
"""
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

from tree import ROOT, project_files, read, strip_cxx

# Other ways to wake or reach a thread, and the files that implement the allowed way.
OTHER_WAYS = (r"\b(std::mutex|std::shared_mutex|std::recursive_mutex|std::condition_variable\w*|"
              r"std::lock_guard|std::unique_lock|std::scoped_lock|absl::Mutex|"
              r"asio::(post|dispatch|defer)|eventfd\s*\(|eventfd_write|"
              r"(Server)?CompletionQueue|AsyncService)\b")
THE_WAY = {"weir/host/mutex.h", "weir/host/mailbox.cc"}
# A mutex that guards nothing according to the annotations.
MUTEX = re.compile(r"\b(?:host::)?(?:Mutex|EntryLock)\s+(\w+);")

WRONG = """
#include <string>
#include "weir/host/mutex.h"
class Shared {
 public:
  void set(std::string text) {
    %s
    text_ = std::move(text);
  }
 private:
  weir::host::Mutex mutex_;
  std::string text_ ABSL_GUARDED_BY(mutex_);
};
"""

ENTRIES = """
#include "weir/host/entry_lock.h"
struct Shared {
  void a() { lock_.lock(); count_ = 1; lock_.unlock(); }
  void b() { if (!lock_.try_lock()) return; count_ = 1; lock_.unlock(); }
  void c() { lock_.assert_alone(); count_ = 1; }
  void d() { lock_.assert_taken(); count_ = 1; }
#if WRONG
  void e() { count_ = 1; }
  void f() { lock_.lock(); count_ = 1; }
  void g() { if (lock_.try_lock()) lock_.unlock(); count_ = 1; }
#endif
  weir::host::EntryLock lock_;
  int count_ ABSL_GUARDED_BY(lock_) = 0;
};
"""


def product(root):
    for file in project_files(root):
        if (file.suffix in (".h", ".cc") and file.parts[0] in ("weir", "apps")
                and not re.search(r"_(test|fuzz|bench)\.cc$", file.name)):
            yield file


def other_ways(root):
    for file in product(root):
        if file.as_posix() in THE_WAY:
            continue
        for number, line in enumerate(strip_cxx(read(root, file)).splitlines(), 1):
            if found := re.search(OTHER_WAYS, line):
                yield f"{file}:{number}: {found.group()}; use weir/host/mailbox.h or mutex.h"


def unnamed_guards(root):
    for file in product(root):
        if file.as_posix() in THE_WAY:
            continue
        code = strip_cxx(read(root, file))
        for name in MUTEX.findall(code):
            if not re.search(rf"ABSL_GUARDED_BY\((?:\w+(?:\.|->))?{name}\)", code):
                yield f"{file}: nothing is guarded by {name}"


class OneWay(unittest.TestCase):
    def test_threads_reach_each_other_in_one_way(self):
        self.assertEqual(list(other_ways(ROOT)), [])

    def test_every_mutex_guards_named_members(self):
        self.assertEqual(list(unnamed_guards(ROOT)), [])

    def test_another_way_is_found(self):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            (root / "weir/serve").mkdir(parents=True)
            (root / "weir/serve/a.cc").write_text("// std::mutex\nstd::mutex mutex;\n")
            (root / "weir/serve/b.h").write_text("host::Mutex mutex_;\nint count_;\n")
            (root / "weir/serve/c_test.cc").write_text("std::mutex mutex;\n")
            (root / "weir/serve/d.h").write_text("mutable host::EntryLock lock_;\nint count_;\n")
            self.assertEqual([found.split(";")[0] for found in other_ways(root)],
                             ["weir/serve/a.cc:2: std::mutex"])
            self.assertEqual(list(unnamed_guards(root)),
                             ["weir/serve/b.h: nothing is guarded by mutex_",
                              "weir/serve/d.h: nothing is guarded by lock_"])


@unittest.skipUnless(shutil.which("clang++"), "no clang++")
class Annotations(unittest.TestCase):
    """clang-tidy shows clang's warnings with these flags: ./dev check clang-tidy."""

    def compile(self, text, *options):
        return subprocess.run(
            ["clang++", "-std=c++20", f"-I{ROOT}", "-fsyntax-only", "-Wall", *self.flags(),
             "-Werror", *options, "-x", "c++", "-"], input=text, text=True, capture_output=True)

    @staticmethod
    def flags():
        """The flags that CMake passes to clang but not to GCC."""
        return re.findall(r"\$<\$<CXX_COMPILER_ID:Clang>:(\S+?)>", read(ROOT, "CMakeLists.txt"))

    def test_a_member_that_is_touched_without_its_mutex_is_an_error(self):
        wrong = self.compile(WRONG % "")
        self.assertNotEqual(wrong.returncode, 0)
        self.assertIn("writing variable 'text_' requires holding mutex 'mutex_'", wrong.stderr)

    def test_with_its_mutex_it_is_none(self):
        right = self.compile(WRONG % "const weir::host::MutexLock lock(mutex_);")
        self.assertEqual(right.returncode, 0, right.stderr)

    def test_an_entry_lock_is_checked_too(self):
        right = self.compile(ENTRIES, "-DWRONG=0")
        self.assertEqual(right.returncode, 0, right.stderr)
        wrong = self.compile(ENTRIES, "-DWRONG=1")
        self.assertEqual(wrong.stderr.count(" error: "), 3, wrong.stderr)


if __name__ == "__main__":
    unittest.main()
