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

    def sources(self, *texts):
        sources = []
        for number, text in enumerate(texts):
            path = self.root / f"{number}.cc"
            path.write_text(text)
            sources.append(batches.Source(path, self.root))
        return sources

    def numbers(self, *texts):
        """The number of sources in each batch."""
        return [len(batch) for batch in batches.batches_of(self.sources(*texts))]

    def test_strangers_are_compiled_together(self):
        self.assertEqual(self.numbers(hidden("int a() { return 1; }"),
                                      hidden("int b() { return 2; }"), "int c;\n"), [3])

    def test_names_that_two_declare_are_spelled_in_two_ways(self):
        for text in ("constexpr int kStart = 1;", "const std::vector<Job> kStart{1};",
                     "struct kStart {\n  int a;\n};", "class kStart final : public A {\n};",
                     "enum class kStart { kA };", "int kStart(int a) {\n  return a;\n}",
                     "int kStart[3];", "using kStart = int;",
                     "template <class T>\nT kStart(T a) {\n}"):
            with self.subTest(text):
                first = "struct Before {\n};\n\nint before() {\n  return 1;\n}\n\n"
                [batch] = batches.batches_of(
                    self.sources(hidden(first + text), hidden("constexpr int kStart = 2;")))
                self.assertEqual(batches.text_of(batch, self.root), """#include "weir/a.h"
#define kStart kStart_of_0
#include "0.cc"
#undef kStart
#define kStart kStart_of_1
#include "1.cc"
#undef kStart
""")

    def test_a_name_that_one_declares_unseen_is_spelled_otherwise_by_the_other(self):
        [batch] = batches.batches_of(self.sources(
            hidden("std::map<int, std::string>\nkStart(int a) {\n}"),
            hidden("constexpr int kStart = 2;")))
        self.assertIn('#define kStart kStart_of_1\n#include "1.cc"\n',
                      batches.text_of(batch, self.root))

    def test_names_that_a_macro_would_not_spell_alike_everywhere(self):
        (self.root / "a.h").write_text("struct A { virtual int start(); };\n")
        other = hidden("int start() { return 2; }")
        for text in ("int f() { return a.start; }", "int f() { return a->start(); }",
                     "int f() { return other::start(); }", "TEST(Gate, start) {}",
                     "TEST_F(start, Ends) {}"):
            with self.subTest(text):
                mine = hidden("int start() { return 1; }\n" + text)
                self.assertEqual(self.numbers(mine, other), [1, 1])
        self.assertEqual(self.numbers('#include "a.h"\n' + other, other), [1, 1])
        self.assertEqual(self.numbers('#include "b.h"\n' + other, other), [2])
        (self.root / "b.h").write_text('#include "a.h"\n')
        for cached in batches.header, batches.included_by, batches.words:
            cached.cache_clear()
        self.assertEqual(self.numbers('#include "b.h"\n' + other, other), [1, 1])
        (self.root / "c.proto").write_text("message start {}\n")
        self.assertEqual(self.numbers('#include "c.grpc.pb.h"\n' + other, other), [1, 1])

    def test_names_that_the_other_only_mentions(self):
        mine = hidden("int text(int a) { return a; }")
        for first, second in ((mine, "int f() { return text(1); }\n"),
                              ("int f(int text) { return text; }\n", mine)):
            [batch] = batches.batches_of(self.sources(first, second))
            number = 0 if first == mine else 1
            self.assertIn(f'#define text text_of_{number}\n#include "{number}.cc"\n#undef text\n',
                          batches.text_of(batch, self.root))
        for text in ("int f(A a) { return a.text(1) + p->text(2) + other::text(3); }\n",
                     "// text\nint f();\n", 'auto f = "text";\n', "int texts;\n"):
            with self.subTest(text):
                [batch] = batches.batches_of(self.sources(mine, text))
                self.assertNotIn("#define", batches.text_of(batch, self.root))

    def test_the_same_alias_may_stand_twice(self):
        for alias in ("using Json = nlohmann::json;", "using std::chrono::seconds;"):
            self.assertEqual(self.numbers(hidden(alias), hidden(alias)), [2])
        self.assertEqual(self.numbers(hidden("using Json = nlohmann::json;"),
                                      hidden("using Json = nlohmann::ordered_json;")), [2])
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
        batch = self.sources('#include "b.h"\n#include <map>\n', "#include <map>\n")
        self.assertEqual(batches.text_of(batch, self.root),
                         '#include "b.h"\n#include <map>\n#include "0.cc"\n#include "1.cc"\n')

    def test_batches_are_bounded(self):
        most = "\n" * batches.LINES_MAX
        self.assertEqual(self.numbers(most, "int a;\n", "int b;\n"), [1, 2])

    def test_those_with_the_largest_libraries_come_first(self):
        (self.root / "a.h").write_text("#include <nlohmann/json.hpp>\n")
        half = "\n" * (batches.LINES_MAX // 2)
        made = batches.batches_of(self.sources(half, "#include <CLI/CLI.hpp>\n", half,
                                               '#include "a.h"\n'))
        self.assertEqual([[one.path.name for one in batch] for batch in made],
                         [["1.cc", "3.cc", "0.cc"], ["2.cc"]])

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
