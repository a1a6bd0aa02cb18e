# SPDX-License-Identifier: Apache-2.0
"""Sources are compiled together only where that changes nothing (cmake/batches.py)."""
import contextlib
import io
import pathlib
import sys
import tempfile
import unittest

from tree import ROOT

sys.path.insert(0, str(ROOT / "cmake"))
import batches  # noqa: E402


def hidden(text):
    return ('#include "weir/a.h"\n\nnamespace weir {\nnamespace {\n\n' + text
            + "\n\n}  // namespace\n}  // namespace weir\n")


class Batches(unittest.TestCase):
    def setUp(self):
        self.root = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def numbers(self, *texts):
        """How many sources each batch has."""
        sources = []
        for number, text in enumerate(texts):
            path = self.root / f"{number}.cc"
            path.write_text(text)
            sources.append(batches.Source(path))
        return [len(batch) for batch in batches.batches_of(sources)]

    def test_strangers_are_compiled_together(self):
        self.assertEqual(self.numbers(hidden("int a() { return 1; }"),
                                      hidden("int b() { return 2; }"), "int c;\n"), [3])

    def test_names_that_two_declare(self):
        for text in ("constexpr int kStart = 1;", "const std::vector<Job> kStart{1};",
                     "struct kStart {\n  int a;\n};", "class kStart final : public A {\n};",
                     "enum class kStart { kA };", "int kStart(int a) {\n  return a;\n}",
                     "std::map<int, std::string>\nkStart(int a) {\n}", "int kStart[3];",
                     "using kStart = int;", "template <class T>\nT kStart(T a) {\n}"):
            with self.subTest(text):
                first = "struct Before {\n};\n\nint before() {\n  return 1;\n}\n\n"
                self.assertEqual(self.numbers(hidden(first + text),
                                              hidden("constexpr int kStart = 2;")), [1, 1])

    def test_names_that_the_other_only_mentions(self):
        mine = hidden("int text(int a) { return a; }")
        self.assertEqual(self.numbers(mine, "int f() { return text(1); }\n"), [1, 1])
        self.assertEqual(self.numbers("int f(int text) { return text; }\n", mine), [1, 1])
        for text in ("int f(A a) { return a.text(1) + p->text(2) + other::text(3); }\n",
                     "// text\nint f();\n", 'auto f = "text";\n', "int texts;\n"):
            with self.subTest(text):
                self.assertEqual(self.numbers(mine, text), [2])

    def test_the_same_alias_may_stand_twice(self):
        for alias in ("using Json = nlohmann::json;", "using std::chrono::seconds;"):
            self.assertEqual(self.numbers(hidden(alias), hidden(alias)), [2])
        self.assertEqual(self.numbers(hidden("using Json = nlohmann::json;"),
                                      hidden("using Json = nlohmann::ordered_json;")), [1, 1])
        self.assertEqual(self.numbers(hidden("using std::chrono::seconds;"),
                                      "int f(int seconds);\n"), [1, 1])

    def test_what_reaches_others_unseen_is_compiled_alone(self):
        for text in ("#define A 1\n", "#ifdef A\n#endif\n", "#pragma GCC diagnostic ignored\n",
                     "using namespace rc;\n",
                     hidden("bool operator==(const A& a, const A& b) {\n  return true;\n}"),
                     "namespace {\nint a;\n}\n"):
            with self.subTest(text):
                self.assertEqual(self.numbers(text, "int b;\n"), [1, 1])
        self.assertEqual(self.numbers("using namespace std::chrono_literals;\n", "int b;\n"), [2])

    def test_no_header_sees_what_a_source_declares(self):
        for number, text in enumerate(('#include "b.h"\n#include <map>\n', "#include <map>\n")):
            (self.root / f"{number}.cc").write_text(text)
        batch = [batches.Source(self.root / name) for name in ("0.cc", "1.cc")]
        self.assertEqual(batches.text_of(batch, self.root),
                         '#include "b.h"\n#include <map>\n#include "0.cc"\n#include "1.cc"\n')

    def test_batches_are_bounded(self):
        most = "\n" * batches.LINES_MAX
        self.assertEqual(self.numbers(most, "int a;\n", "int b;\n"), [1, 2])

    def test_each_source_is_compiled_once(self):
        sources = sorted(str(path) for path in (ROOT / "weir").rglob("*.cc"))
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            batches.main(str(ROOT), str(self.root), "all_batch", *sources)
        found = []
        for line in out.getvalue().splitlines():
            if line.startswith(str(self.root)):
                lines = pathlib.Path(line).read_text().splitlines()
                found += [str(ROOT / one.split('"')[1]) for one in lines if one.endswith('.cc"')]
            else:
                found.append(line)
        self.assertEqual(sorted(found), sources)


if __name__ == "__main__":
    unittest.main()
