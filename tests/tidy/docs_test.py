# SPDX-License-Identifier: Apache-2.0
"""Documents that are checked against the tree, so that they cannot go stale unnoticed.

docs/promises.md has promises as table rows, with increasing numbers under each heading, and no
number twice; each names the test that enforces it:

    | P7 | Nothing is lost at any rate. | `pace.TokenBucketProperty.LosesNothing` |

The last cell is `pending`, or one or more of these, each in backticks:

    `module.Suite.Name`          TEST, TEST_F, TEST_P, RC_GTEST_PROP, ... in weir/module/*_test.cc
    `stress.Suite.Name`          the same in tests/stress/*.cc
    `tests/path.py:Class.method` a Python test
    `./dev bench NAME`           the benchmark bench/NAME
    `./dev drill NAME`           the drill tests/drill/NAME_drill.py, of which CI runs a minute
"""
import ast
import os
import pathlib
import re
import tempfile
import unittest

from tree import ROOT, project_files, read, strip_cxx

FOLDERS = ("weir", "apps", "cmake", "docs", "examples", "tests")  # whose paths are checked
FIRST_SCREEN_LINES = 40


def cxx_tests(root):
    """Names "module.Suite.Name" of all unit tests, stress tests and tests of the Lustre model."""
    macro = re.compile(r"\b(?:TEST|TEST_F|TEST_P|TYPED_TEST|RC_GTEST_PROP|RC_GTEST_FIXTURE_PROP)"
                       r"\(\s*(\w+)\s*,\s*(\w+)")

    def module(file):
        parts = file.parent.parts
        if parts[0] != "weir":
            return parts[-1]
        folder = file.parent  # subfolders of a module have no CMakeLists.txt
        while len(folder.parts) > 2 and not (root / folder / "CMakeLists.txt").is_file():
            folder = folder.parent
        return "_".join(folder.parts[1:])

    return {f"{module(file)}.{suite}.{name}" for file in project_files(root)
            if (file.parts[0] == "weir" and file.name.endswith("_test.cc"))
            or file.match("tests/stress/*.cc") or file.match("tests/lustre/*_test.cc")
            for suite, name in macro.findall(strip_cxx(read(root, file)))}


def python_test_exists(root, file, suite, name):
    if not file.startswith("tests/") or not (root / file).is_file():
        return False
    return any(isinstance(node, ast.ClassDef) and node.name == suite and any(
        isinstance(item, ast.FunctionDef) and item.name == name for item in node.body)
        for node in ast.parse(read(root, file)).body)


def enforces(root, reference, unit_tests):
    if found := re.fullmatch(r"(\S+\.py):(\w+)\.(test\w*)", reference):
        return python_test_exists(root, *found.groups())
    if found := re.fullmatch(r"\./dev bench ([\w-]+)", reference):
        return os.access(root / "bench" / found[1], os.X_OK)
    if found := re.fullmatch(r"\./dev drill ([\w-]+)", reference):
        return (root / f"tests/drill/{found[1]}_drill.py").is_file()
    return reference in unit_tests


def promises(root):
    file = "docs/promises.md"
    if not (root / file).is_file():
        yield f"{file}: missing"
        return
    unit_tests = cxx_tests(root)
    last, known = 0, set()
    for number, line in enumerate(read(root, file).splitlines(), 1):
        if line.startswith("#"):
            last = 0
        if not re.match(r"\|\s*P\d", line):
            continue
        where = f"{file}:{number}"
        row = re.fullmatch(r"\|\s*P(\d+)\s*\|\s*(\S.*?)\s*\|\s*(\S.*?)\s*\|\s*", line)
        if not row:
            yield f"{where}: not of the form | P1 | promise | what enforces it |"
            continue
        if int(row[1]) in known:
            yield f"{where}: P{row[1]} is there twice"
        elif int(row[1]) < last:
            yield f"{where}: P{row[1]} after P{last}: number promises upward"
        last = int(row[1])
        known.add(last)
        references = re.findall(r"`([^`]+)`", row[3])
        if not references and row[3] != "pending":
            yield f"{where}: P{last} names neither a test nor 'pending'"
        for reference in references:
            if reference != "pending" and not enforces(root, reference, unit_tests):
                yield f"{where}: P{last} names {reference}, which does not exist"
    if not known:
        yield f"{file}: holds no promise"


def markdown(root):
    """(file, text without fenced code) of every document."""
    for file in project_files(root):
        if file.suffix == ".md":
            yield file, re.sub(r"^```.*?^```", lambda found: "\n" * found[0].count("\n"),
                               read(root, file), flags=re.MULTILINE | re.DOTALL)


def lines_matching(pattern, text):
    for number, line in enumerate(text.splitlines(), 1):
        for found in re.findall(pattern, line):
            yield number, found


def anchors(text):
    """The anchors of headings."""
    headings = re.findall(r"^#+\s+(.*?)\s*$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def links(root):
    for file, text in markdown(root):
        for number, target in lines_matching(r"\]\(([^)\s]+)\)", re.sub(r"`[^`\n]*`", "", text)):
            if re.match(r"[a-z]+:", target):
                continue
            path, _, fragment = target.partition("#")
            found = root / file if not path else (root / file).parent / path
            if not found.exists():
                yield f"{file}:{number}: link to {target}, which does not exist"
            elif fragment and fragment not in anchors(found.read_text(encoding="utf-8")):
                yield f"{file}:{number}: link to {target}, which has no such heading"


def patched(root):
    """Files that the examples of docs/extending.md would add."""
    patches = (root / "tests/extending").glob("*.patch")
    return {path for one in patches for path in re.findall(r"^\+\+\+ b/(\S+)", one.read_text(),
                                                           re.MULTILINE)}


def paths(root):
    added = patched(root)
    pattern = rf"`((?:{'|'.join(FOLDERS)})/[\w./-]*)`"
    for file, text in markdown(root):
        for number, path in lines_matching(pattern, text):
            if not (root / path).exists() and path not in added:
                yield f"{file}:{number}: {path} does not exist"


def first_screen(root):
    text = read(root, "README.md") if (root / "README.md").is_file() else ""
    screen = "\n".join(text.splitlines()[:FIRST_SCREEN_LINES])
    for command in "./dev run", "./dev test":
        if command not in screen:
            yield f"README.md: its first {FIRST_SCREEN_LINES} lines do not name {command}"


def core_documents(root):
    for name in "terms.md", "life-of-a-request.md":
        if not (root / "docs" / name).is_file():
            yield f"docs/{name}: missing"


class Documents(unittest.TestCase):
    """The documents of the project follow the rules."""

    def holds(self, rule):
        if findings := list(rule(ROOT)):
            self.fail("\n" + "\n".join(findings))

    def test_every_promise_names_what_enforces_it(self):
        self.holds(promises)

    def test_links_resolve(self):
        self.holds(links)

    def test_paths_exist(self):
        self.holds(paths)

    def test_readme_starts_with_the_two_commands(self):
        self.holds(first_screen)

    def test_core_documents_exist(self):
        self.holds(core_documents)


class Bites(unittest.TestCase):
    """Each rule accepts a valid sample and finds the error in a bad one."""

    def setUp(self):
        self.root = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def write(self, file, text):
        (self.root / file).parent.mkdir(parents=True, exist_ok=True)
        (self.root / file).write_text(text)

    def finds(self, rule, *expected):
        findings = list(rule(self.root))
        for finding, part in zip(findings, expected):
            self.assertIn(part, finding)
        self.assertEqual(len(findings), len(expected), findings)

    def test_promises(self):
        self.finds(promises, "missing")
        self.write("docs/promises.md", "# Promises\n\n| P | what | test |\n|---|---|---|\n")
        self.finds(promises, "holds no promise")
        self.write("weir/pace/bucket_test.cc", "TEST(Bucket, Fills) {}\n// TEST(Bucket, Old) {}\n"
                                               "RC_GTEST_PROP(BucketProperty,\n  Adds, ()) {}\n")
        self.write("tests/stress/bucket_stress.cc", "TEST(BucketStress, Holds) {}\n")
        self.write("tests/cli/limit_test.py", "class Limit:\n  def test_pace(self): pass\n")
        self.write("bench/pace", "")
        self.write("tests/drill/kill_drill.py", "")
        (self.root / "bench/pace").chmod(0o755)
        self.write("docs/promises.md", """
            | P1 | fills | `pace.Bucket.Fills`, `pace.BucketProperty.Adds` |
            | P2 | paces | `tests/cli/limit_test.py:Limit.test_pace` |
            | P3 | holds | `stress.BucketStress.Holds` |
            | P4 | fast | `./dev bench pace` |
            | P5 | later | pending |
            | P6 | survives | `./dev drill kill` |

            ## Another heading
            | P0 | starts again | `pace.Bucket.Fills` |
            """.replace("            ", ""))
        self.finds(promises)
        self.write("docs/promises.md", """
            | P1 | gone | `pace.Bucket.Old` |
            | P1 | twice | `pace.Bucket.Fills` |
            | P2 | no module | `base.Bucket.Fills` |
            | P3 | no method | `tests/cli/limit_test.py:Limit.test_speed` |
            | P4 | no bench | `./dev bench nothing` |
            | P5 | no word | soon |
            | P6 | no cell |
            | P7 | no drill | `./dev drill nothing` |
            | P5 | downward | pending |
            ## Another heading
            | P8 | upward | pending |
            | P6 | downward | pending |
            """.replace("            ", ""))
        self.finds(promises, "P1 names pace.Bucket.Old", "P1 is there twice", "P2 names",
                   "P3 names", "P4 names ./dev bench nothing", "P5 names neither",
                   "not of the form", "P7 names ./dev drill nothing", "P5 is there twice",
                   "P6 after P8")

    def test_links(self):
        self.write("docs/a.md", "# One thing: `x`\n"
                                "[a](../README.md) [b](https://x.org/y) [c](#two)\n"
                                "[d](#one-thing-x)\n[e](gone.md)\n`[f](gone.md)`\n"
                                "```\n[g](gone.md)\n```\n")
        self.write("README.md", "[a](docs/a.md#one-thing-x) [b](docs/a.md#three)\n")
        self.finds(links, "README.md:1: link to docs/a.md#three", "a.md:2: link to #two",
                   "a.md:4: link to gone.md")

    def test_paths(self):
        self.write("weir/pace/a.h", "")
        self.write("a.md", "`weir/pace/a.h` `weir/pace/` `weir/*/x` `weir serve`\n"
                           "`weir/pace/b.h`\n")
        self.finds(paths, "a.md:2: weir/pace/b.h")

    def test_first_screen(self):
        self.finds(first_screen, "./dev run", "./dev test")
        self.write("README.md", "./dev run\n" + "\n" * 40 + "./dev test\n")
        self.finds(first_screen, "./dev test")

    def test_core_documents(self):
        self.write("docs/terms.md", "")
        self.finds(core_documents, "life-of-a-request.md")


if __name__ == "__main__":
    unittest.main()
