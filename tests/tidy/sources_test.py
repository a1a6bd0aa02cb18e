# SPDX-License-Identifier: Apache-2.0
"""The rules of style that no compiler or formatter enforces, over every file of the project.

A rule is a function rule(tree) that yields findings "file:line: what is wrong". Tree is a folder
and its files, so that each rule is also run over a small tree that violates it (class Bites).
"""
import pathlib
import re
import tempfile
import unittest

from tree import ROOT, project_files, read, strip_cxx

CXX = {".h", ".cc"}
COLUMNS_MAX = 100
FUNCTION_LINES_MAX = 70
HEADER_COMMENT_LINES_MIN = 5


class Tree:
    def __init__(self, root):
        self.root = root
        self.files = project_files(root)

    def text(self, file):
        return read(self.root, file)

    def code(self, file):
        return strip_cxx(self.text(file))

    def cxx(self, ending=""):
        return [f for f in self.files if f.suffix in CXX and f.name.endswith(ending)]

    def sources(self):
        """Everything that is compiled or run: C++, CMake, Python, shell, and scripts without an
        extension."""
        return [f for f in self.files
                if f.suffix in CXX | {".cmake", ".py", ".sh"} or f.name == "CMakeLists.txt"
                or not f.suffix and self.text(f).startswith("#!")]

    def documents(self):
        return [f for f in self.files if f.suffix in (".md", ".pod", ".toml", ".json")]

    def modules(self):
        return sorted({f.parent for f in self.files if f.parts[0] == "weir" and len(f.parts) > 2})

    def pure_modules(self):
        return [m for m in self.modules() if m / "CMakeLists.txt" in self.files
                and re.search(r"weir_module\([^)]*\bPURE\b", self.text(m / "CMakeLists.txt"))]


def matches(pattern, file, text):
    for number, line in enumerate(text.splitlines(), 1):
        if found := re.search(pattern, line):
            yield f"{file}:{number}: {found.group().strip()}"


def licence(tree):
    line = "SPDX-License-Identifier: " + "Apache-2.0"
    for file in tree.sources():
        if line not in "\n".join(tree.text(file).splitlines()[:2]):
            yield f"{file}:1: say '{line}' in the first or second line"


def header_comments(tree):
    for file in tree.cxx(".h"):
        comment = re.match(r"//[^\n]*\n((?://[^\n]*\n)*)", tree.text(file))
        if not comment or comment[1].count("\n") < HEADER_COMMENT_LINES_MIN:
            yield f"{file}:2: open with {HEADER_COMMENT_LINES_MIN} lines or more: what it is for"


def pragma_once(tree):
    for file in tree.cxx(".h"):
        if not re.search(r"^#pragma once$", tree.text(file), re.MULTILINE):
            yield f"{file}:1: no #pragma once"


def columns(tree):
    for file in tree.sources():
        for number, line in enumerate(tree.text(file).splitlines(), 1):
            if len(line) > COLUMNS_MAX:
                yield f"{file}:{number}: {len(line)} columns; {COLUMNS_MAX} is the most"


def sleeping_tests(tree):
    for file in tree.cxx("_test.cc"):
        yield from matches(r"\b(sleep_for|sleep_until|usleep|nanosleep|clock_nanosleep|sleep\s*\()",
                           file, tree.code(file))


def leftovers(tree):
    words = "|".join(("TO" + "DO", "FIX" + "ME", "XX" + "X", "HA" + "CK"))
    for file in tree.sources() + tree.documents():
        yield from matches(rf"\b({words})\b", file, tree.text(file))


def machine_paths(tree):
    folders = "|".join(("work", "farm", "root"))
    for file in tree.sources() + tree.documents():
        yield from matches(rf"(^|[^a-z])/({folders})/", file, tree.text(file))


def floating_point(tree):
    """Decisions use only integers. Other programs may use floating point."""
    number = r"\b(float|double)\b|(?<![\w.'])(\d[\d']*\.\d*|\.\d+|\d[\d']*[eE][-+]?\d)"
    pure = [m for m in tree.pure_modules() if m.name != "sim"]
    for file in tree.cxx():
        is_pure = any(folder in pure for folder in file.parents)
        if is_pure and not re.search(r"_(test|bench|fuzz)\.cc$", file.name):
            yield from matches(number, file, tree.code(file))


def own_scheduling(tree):
    """The simulator drives a Target and computes no tokens or tags itself. Exceptions are the model
    of a Lustre server and the schedulers of others, with which Weir is compared."""
    names = (r'#include "weir/pace/|'
             r"\b(TokenBucket|BucketShape|AtomicBucket|RateLimiter)\b|"
             r"\b\w*(virtual_(time|ns)|finish_tag|start_tag|balance)\w*")
    for file in tree.cxx():
        if (file.parts[:2] == ("weir", "sim") and file.parts[2] != "rivals"
                and file.name.split(".")[0] != "lustre_model"):
            code = tree.code(file) + "".join(re.findall(r"#include .*\n", tree.text(file)))
            yield from matches(names, file, code)


def empty_words(tree):
    """Names without a meaning. The epoch handler is named after the original design."""
    word = re.compile(r"(manager|helper|util|utility|impl|handler|data|info)s?$", re.IGNORECASE)

    def parts(name):
        name = re.sub(r"(?i)epoch_?handler|event_handler", "", name)
        return [p for p in re.split(r"_|(?<=[a-z0-9])(?=[A-Z])", name) if word.match(p)]

    for file in tree.files:
        for found in parts(file.name.split(".")[0]):
            yield f"{file}:1: '{found}' in the name of a file"
    declaration = re.compile(
        r"\b(?:class|struct|enum|union|using|concept)\s+(?:\[\[.*?\]\]\s*)?(\w+)")
    for file in tree.cxx():
        for number, line in enumerate(tree.code(file).splitlines(), 1):
            for name in declaration.findall(line):
                for found in parts(name):
                    yield f"{file}:{number}: '{found}' in the name of type {name}"


def long_functions(tree):
    """Outside of functions, a brace after a space opens one if there is a ')' before it."""
    directive = re.compile(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", re.MULTILINE)
    no_function = re.compile(r"\s*(template\s*<.*>\s*)?(namespace|class|struct|union|enum)\b")
    for file in tree.cxx():
        code = directive.sub(lambda found: "\n" * found[0].count("\n"), tree.code(file))
        head, line, first = "", 1, 1  # of a possible function
        depth, inside = 0, False      # of skipped braces; inside a function
        for char in code:
            line += char == "\n"
            if depth:
                depth += (char == "{") - (char == "}")
                if not depth and inside and line - first >= FUNCTION_LINES_MAX:
                    yield f"{file}:{first}: a function of {line - first + 1} lines"
                head = "" if not depth and inside else head
                continue
            if not head.strip():
                first = line
            if char == "{" and head and not head[-1].isspace():  # : member_{1}
                depth, inside = 1, False
            elif char == "{" and ")" in head and not no_function.match(head):
                depth, inside = 1, True
            elif char in "{};" or head.strip() + char in ("public:", "private:", "protected:"):
                head = ""
            else:
                head += char


def ways_to_stderr(tree):
    """Only host/log.h writes to standard error, because it neither throws nor blocks nor ends the
    process. Failed assertions, which do end it, and queries of the descriptor are allowed."""
    names = (r"\b(stderr|(std::)?(cerr|clog)|perror|v?syslog|v?warnx?|v?errx?|psignal|spdlog)\b|"
             r"\b(p?writev?|send|dup[23]?|v?dprintf|fdopen)\s*\(\s*(2|STDERR_FILENO)\b")
    doors = {"weir/host/log.cc", "weir/base/assert.cc"}
    for file in tree.cxx():
        if file.parts[0] not in ("weir", "apps") or str(file) in doors:
            continue
        if not re.search(r"_(test|bench|fuzz)\.cc$", file.name):
            yield from matches(names, file, tree.code(file))


# Files that parse and print rule text.
RULE_TEXT = {"command.cc", "limits.cc", "rule_keys.cc", "rule_spec.cc", "plain_rates.cc"}


# Where rule text enters, and is turned into a value at once: the only callers of the parsers.
RULE_READERS = (r"\b(parse_rule|parse_command|read_or_keep|rule_or_error|with_plain_rates|"
                r"write_nrs_tbf_rule)\(|(\.|->)(read_rule|write_rule)\(")
RULE_EDGES = {
    "apps/weir/rules.cc": "weir rules",
    "apps/weir/serve.cc": "the command line",
    "weir/cluster/shared_rule.cc": "etcd",
    "weir/config/tables/lock.cc": "the configuration file: rules of the lock service",
    "weir/config/tables/service.cc": "the configuration file: rules of a service",
    "weir/control/change.cc": "the journal, lctl",
    "weir/control/change_request.cc": "HTTP",
    "weir/control/change_trial.cc": "patterns of lctl that name rules and other parameters",
    "weir/embed/c_gate.cc": "the C API",
    "weir/embed/shared_gate.cc": "the C++ API",
    "weir/schedule/gate.cc": "for the type of its policies",
    "weir/sim/lustre_model.cc": "the model of a Lustre server",
    "weir/sim/replay.cc": "traces",
    "weir/target/nrs_text.cc": "nrs_tbf_rule of a Target",
    "weir/target/nrs_text.h": "nrs_tbf_rule of a Target",
    "weir/target/target.h": "for the type of its policies",
}
# Rules that would be passed on as text.
RULES_AS_TEXT = (r"\b(vector|span|list|deque|set)<(const )?std::string(_view)?>&?\s+(const )?"
                 r"(\w*_)?(rules|commands)_?\b(?!\()")
TEXT_OF_ARGUMENTS = {"apps/weir/serve_arguments.h"}


def is_of_product(file):
    return (file.parts[0] in ("weir", "apps")
            and not re.search(r"_(test|bench|fuzz)\.cc$|_for_tests\.h$", file.name))


def rules_as_text(tree):
    """Rules are values (RuleChange) behind the edges of RULE_EDGES: nobody else reads their text,
    and no list of them is text. An edge that reads none is not one."""
    edges = {name for name in RULE_EDGES if pathlib.PurePath(name) in tree.files}
    for file in tree.cxx():
        if not is_of_product(file) or file.parts[:2] == ("weir", "classify"):
            continue
        code = tree.code(file)
        reads = list(matches(RULE_READERS, file, code))
        if str(file) not in edges:
            yield from (f"{found}: rule text is read at the edges only" for found in reads)
        elif not reads:
            yield f"{file}: reads no rule text, and is no edge (RULE_EDGES)"
        if str(file) not in TEXT_OF_ARGUMENTS:
            for found in matches(RULES_AS_TEXT, file, code):
                yield f"{found}: pass rules as values (rule_spec.h)"


def readers_of_rules(tree):
    """Only classify/ parses and prints rule text; other modules pass values. A comparison with a
    verb, a key or a field indicates parsing, and a format with one indicates printing. The keys and
    fields are those of the tables. pace/ has its own text with such words, for traces of a
    bucket."""
    table = pathlib.PurePath("weir/classify/rule_keys.cc")
    if table not in tree.files:
        return
    keys = "|".join(re.findall(r'^    \{?\.name = "(\w+)"', tree.text(table), re.MULTILINE)) or "-"
    verbs = "start|change|stop"
    fields = "jobid|nid|opcode|uid|gid|projid|nodemap"
    literal = re.compile(
        r'//[^\n]*|R"(?P<d>[^(\s]*)\(.*?\)(?P=d)"|"(?P<text>(?:\\.|[^"\\\n])*)"', re.DOTALL)
    makes = re.compile(rf"(^|\W)({keys})=([{{%([\\]|$)|^((reg|hp) )?({verbs}) ($|[{{%])|"
                       rf"(^|\W)({fields}|\{{\}}) ?= ?\{{(?!\}})")
    compares = re.compile(r"([!=]=|\b(starts_with|find|has|contains)\()\s*$")
    compared = re.compile(rf"((reg|hp) )?({verbs})|({keys}|{fields})=.*")
    for file in tree.cxx():
        is_reader = file.parent == table.parent and file.name in RULE_TEXT
        if not is_of_product(file) or is_reader or file.parts[:2] == ("weir", "pace"):
            continue
        source = tree.text(file)
        for found in literal.finditer(source):
            text = found["text"]
            is_compared = compares.search(source, max(0, found.start() - 40), found.start())
            if text and (makes.search(text) or is_compared and compared.fullmatch(text)):
                line = source.count("\n", 0, found.start()) + 1
                yield f'{file}:{line}: "{text}": rule text is for weir/classify (rule_spec.h)'


def declared_modules(tree):
    for module in tree.modules():
        file = module / "CMakeLists.txt"
        outer = module.parent / "CMakeLists.txt"
        if outer in tree.files and re.search(rf"\bPARTS\b[^)]*\b{module.name}\b", tree.text(outer)):
            continue  # declared with the enclosing module
        if file not in tree.files:
            yield f"{module}: no CMakeLists.txt"
        elif not re.search(rf"^weir_module\({module.relative_to('weir')}\b", tree.text(file),
                           re.MULTILINE):
            yield f"{file}:1: does not declare weir_module({module.relative_to('weir')} ...)"


def orphaned_tests(tree):
    """x_test.cc and x_ASPECT_test.cc test x; x_property_test.cc may test all sources whose names
    contain x."""
    for file in tree.cxx("_test.cc"):
        stem = file.name.removesuffix("_test.cc")
        common = stem.removesuffix("_property")
        stems = {f.stem for f in tree.cxx() if f.parent == file.parent and not f.match("*_test.cc")}
        tests_one = any(stem == s or stem.startswith(f"{s}_") for s in stems)
        tests_several = stem != common and any(common in s.split("_") for s in stems)
        if file.parts[0] in ("weir", "apps") and not tests_one and not tests_several:
            yield f"{file}:1: there is no {stem}.h or {stem}.cc that it could test"


PROTOCOL_FILES_MAX = 3  # outside of its folder


def knows(tree, file, folder):
    if file.suffix not in CXX:
        return re.search(rf"\b{folder}\b|\bweir_{folder.name}\b", tree.text(file))
    return (re.search(rf'^#include "{folder}/', tree.text(file), re.MULTILINE)
            or re.search(rf"\b{folder.name}::", tree.code(file)))


def scattered_protocols(tree):
    """A protocol is the folder of its session, and the lines that add it: one in CMakeLists.txt,
    one in the program, and one that links it."""
    for session in tree.cxx("session.h"):
        folder = session.parent
        if folder.parts[0] != "weir" or folder == pathlib.PurePath("weir/serve"):
            continue
        users = [file for file in tree.sources()
                 if folder not in file.parents and file.parts[0] not in ("tests", "bench")
                 and knows(tree, file, folder)]
        if len(users) > PROTOCOL_FILES_MAX:
            yield f"{folder}: is known in {', '.join(map(str, sorted(users)))}"


# As check_includes.cmake, which only checks modules.
POLICY_INSIDES = re.compile(r"weir/schedule/(fifo|crrn|tbf[a-z_]*|rule_engine)(\.h|/)")


def policy_insides(tree):
    """Only the Gate and the Target use the internals of policies: programs and tests use a
    Target."""
    for file in tree.cxx():
        if file.parts[0] == "weir":
            continue
        for number, line in enumerate(tree.text(file).splitlines(), 1):
            found = re.match(r'#include "(.*)"', line)
            if found and POLICY_INSIDES.match(found[1]):
                yield f"{file}:{number}: {found[1]} is for weir/schedule and weir/target"


# Where any policy runs, also one that a program has registered.
POLICY_NEUTRAL = ("weir/schedule/gate.h", "weir/schedule/gate.cc", "weir/schedule/policy.h",
                  "weir/config/tables/service.cc", "weir/target/target.h", "weir/target/target.cc")


def named_policies(tree):
    """The Gate and its users know policies by what they can do, not by name."""
    for name in POLICY_NEUTRAL:
        file = pathlib.PurePath(name)
        if file not in tree.files:
            continue
        for number, line in enumerate(tree.text(file).splitlines(), 1):
            if found := re.search(r"\b(fifo|crrn|tbf|Fifo|Crrn|Tbf)\w*", line.split("//")[0]):
                yield f"{file}:{number}: names the policy {found[0]} (policy_kinds.h)"


def modules_of_programs(tree):
    """Commands link only modules that they include."""
    file = pathlib.PurePath("apps/weir/CMakeLists.txt")
    if file not in tree.files:
        return
    included = set()
    for source in tree.cxx():
        if source.parent == file.parent:
            included |= set(re.findall(r'^#include "weir/([a-z/]+)/\w+\.h"', tree.text(source),
                                       re.MULTILINE))
    for declared in re.findall(r"\bMODULES ([a-z/\s]+)\)", tree.text(file)):
        for module in declared.split():
            if module not in included | {"commands"}:
                yield f"{file}: links {module}, of which nothing is included"


def unused_functions(tree):
    """Compilers do not detect these if several sources are compiled as one file."""
    for file in tree.cxx(".cc"):
        code = tree.code(file)
        for name in re.findall(r"^(?:constexpr|inline|static inline) [^\n({=;]*?(?<![\w:])(\w+)\(",
                               code, re.MULTILINE):
            if len(re.findall(rf"\b{name}\b", code)) == 1:
                yield f"{file}:1: nobody calls {name}()"


def includes_of_tests(tree):
    """Several tests are compiled as one file, which would hide missing includes."""
    needed = {r"\bTEST(_F|_P)?\(": "<gtest/gtest.h>", r"\bRC_GTEST|\brc::": "<rapidcheck",
              r"\bfmt::": "<fmt/", r"\bstd::map\b": "<map>", r"\bstd::set\b": "<set>",
              r"\bstd::deque\b": "<deque>", r"\bstd::thread\b": "<thread>",
              r"\bstd::filesystem\b": "<filesystem>", r"\bstd::[io]?fstream\b": "<fstream>",
              r"\bstd::(ranges::)?(sort|count_if|any_of|all_of)\(": "<algorithm>"}
    for file in tree.cxx("_test.cc"):
        header = file.with_name(file.name.removesuffix("_test.cc") + ".h")
        known = tree.text(file) + (tree.text(header) if header in tree.files else "")
        for pattern, needs in needed.items():
            if re.search(pattern, tree.code(file)) and f"#include {needs}" not in known:
                yield f"{file}:1: uses what {needs} declares and does not include it"


class Rules(unittest.TestCase):
    """The project follows every rule."""

    @classmethod
    def setUpClass(cls):
        cls.tree = Tree(ROOT)

    def keeps(self, rule):
        if findings := list(rule(self.tree)):
            self.fail("\n" + "\n".join(findings))

    def test_sources_are_found(self):
        self.assertIn(pathlib.PurePath("weir/base/time.h"), self.tree.sources())
        self.assertIn(pathlib.PurePath("dev"), self.tree.sources())
        self.assertIn(pathlib.PurePath("weir/base"), self.tree.pure_modules())
        self.assertNotIn(pathlib.PurePath("weir/host"), self.tree.pure_modules())

    def test_every_source_names_its_licence(self):
        self.keeps(licence)

    def test_every_header_opens_with_what_it_is_for(self):
        self.keeps(header_comments)

    def test_every_header_is_included_once(self):
        self.keeps(pragma_once)

    def test_lines_fit(self):
        self.keeps(columns)

    def test_no_unit_test_sleeps(self):
        self.keeps(sleeping_tests)

    def test_nothing_is_left_for_later(self):
        self.keeps(leftovers)

    def test_no_path_of_one_machine(self):
        self.keeps(machine_paths)

    def test_pure_modules_decide_in_integers(self):
        self.keeps(floating_point)

    def test_the_simulator_only_drives(self):
        self.keeps(own_scheduling)

    def test_names_say_something(self):
        self.keeps(empty_words)

    def test_functions_are_short(self):
        self.keeps(long_functions)

    def test_one_way_leads_to_standard_error(self):
        self.keeps(ways_to_stderr)

    def test_rule_text_has_one_reader(self):
        self.keeps(readers_of_rules)

    def test_rules_are_values_behind_the_edges(self):
        self.keeps(rules_as_text)

    def test_every_folder_is_a_declared_module(self):
        self.keeps(declared_modules)

    def test_every_unit_test_has_its_source(self):
        self.keeps(orphaned_tests)

    def test_a_protocol_is_a_folder_and_three_files(self):
        self.keeps(scattered_protocols)

    def test_policies_are_used_through_a_target(self):
        self.keeps(policy_insides)

    def test_the_gate_names_no_policy(self):
        self.keeps(named_policies)

    def test_commands_link_what_they_use(self):
        self.keeps(modules_of_programs)

    def test_every_function_is_called(self):
        self.keeps(unused_functions)

    def test_tests_include_what_they_use(self):
        self.keeps(includes_of_tests)


class Bites(unittest.TestCase):
    """Each rule finds violations, and nothing in similar but valid code."""

    PURE = "weir_module(pace LAYER 1 PURE)\n"

    def finds(self, rule, files, *expected):
        with tempfile.TemporaryDirectory() as folder:
            root = pathlib.Path(folder)
            for file, text in files.items():
                (root / file).parent.mkdir(parents=True, exist_ok=True)
                (root / file).write_text(text)
            findings = list(rule(Tree(root)))
        for finding, start in zip(findings, expected):
            self.assertTrue(finding.startswith(start), f"{finding!r} is not {start!r}")
        self.assertEqual(len(findings), len(expected), findings)

    def test_seeds_of_fuzzers_are_no_sources(self):
        script = "#!/bin/sh\n"
        self.finds(licence, {"tests/corpus/x/seed": script, "tests/x/seed": script},
                   "tests/x/seed:1")

    def test_licence(self):
        spdx = "SPDX-License-Identifier: " + "Apache-2.0\n"
        self.finds(licence, {"a.cc": "int a;\n", "b.h": "// " + spdx, "run": "#!/bin/sh\n",
                             "go": "#!/bin/sh\n# " + spdx, "notes": "text\n"}, "a.cc:1", "run:1")

    def test_header_comments(self):
        self.finds(header_comments, {"a.h": "// 1\n//\n// 2\n// 3\n// 4\n#pragma once\n",
                                     "b.h": "// 1\n//\n// 2\n// 3\n// 4\n// 5\n#pragma once\n",
                                     "c.h": "#pragma once\n"}, "a.h:2", "c.h:2")

    def test_pragma_once(self):
        self.finds(pragma_once, {"a.h": "// #pragma once\n", "b.h": "//\n#pragma once\n"}, "a.h:1")

    def test_ways_to_stderr(self):
        bad = 'fmt::print(stderr, "x");\nstd::cerr << 1;\nwrite(STDERR_FILENO, "x", 1);\n'
        fine = '// stderr\nconst char* a = "stderr";\nisatty(STDERR_FILENO);\nwrite_stderr("x");\n'
        self.finds(ways_to_stderr,
                   {"weir/serve/a.cc": bad, "apps/weir/b.cc": fine, "weir/host/log.cc": bad,
                    "weir/serve/a_test.cc": bad, "tests/x.cc": bad},
                   "weir/serve/a.cc:1", "weir/serve/a.cc:2", "weir/serve/a.cc:3")

    def test_readers_of_rules(self):
        table = ('constexpr RuleKey kRuleKeys[] = {\n    {.name = "rate",\n'
                 '     .form = "rate=N"},\n    {.name = "scope"},\n};\n')
        bad = ('a = fmt::format("change {} x", n);\nb = word == "start";\nc = "stop " + name;\n'
               'if (pair.starts_with("rate=")) d();\ne = fmt::format("{} rate={}", n, r);\n'
               'if (text.find("scope=cluster") != npos) f();\n'
               'sscanf(text, "rate=%u", &r);\nstd::regex g("rate=([0-9]+)");\n'
               'conds = fmt::format("jobid={{{}}}", n);\nc = "uid={" + n + "}";\n'
               'c = fmt::format("{}={{{}}}", f, n);\nif (c.starts_with("jobid=")) g();\n'
               'c = "nid={*@tcp}";\n')
        fine = ('// "stop " + name\nhint("give rate=, or scope=cluster");\nadd("start", "Go");\n'
                'a = R"(weir rule start dd rate={})";\nb = json["rate"];\nc("stop it first");\n'
                'd = fmt::format("{{jobid={},uid={}}}", j, u);\ne("expected jobid=, uid=N");\n')
        self.finds(readers_of_rules,
                   {"weir/classify/rule_keys.cc": table, "weir/serve/a.cc": bad,
                    "apps/weir/b.cc": fine, "weir/classify/command.cc": bad,
                    "weir/serve/a_test.cc": bad},
                   *(f"weir/serve/a.cc:{line}:" for line in range(1, 14)))
        self.finds(readers_of_rules, {"weir/serve/a.cc": bad})

    def test_rules_as_text(self):
        bad = ("auto a = parse_rule(text);\nb = target.read_rule(text);\nvoid read_rule(Lines&);\n"
               "std::vector<std::string> more_rules = {};\n"
               "void c(std::span<const std::string> rules);\n"
               "// parse_rule(text)\nstd::vector<std::string> print_rules();\nRuleChange rules;\n")
        self.finds(rules_as_text,
                   {"weir/serve/a.cc": bad, "weir/serve/a_test.cc": bad, "weir/classify/a.cc": bad,
                    "weir/sim/replay.cc": "x = parse_rule(text);\n",
                    "apps/weir/serve.cc": "x = rules;\n",
                    "apps/weir/serve_arguments.h": "std::vector<std::string> rules;\n"},
                   "apps/weir/serve.cc: reads no rule text", "weir/serve/a.cc:1: parse_rule(",
                   "weir/serve/a.cc:2: .read_rule(", "weir/serve/a.cc:4: vector<std::string> more",
                   "weir/serve/a.cc:5: span<const std::string> rules")

    def test_named_policies(self):
        text = '// tbf\nfail("tbf does not run");\nTbfPolicy policy;\nx = policies_with_rules();\n'
        self.finds(named_policies, {"weir/schedule/gate.cc": text, "weir/schedule/tbf.cc": text},
                   "weir/schedule/gate.cc:2", "weir/schedule/gate.cc:3")

    def test_policy_insides(self):
        text = ('#include "weir/schedule/gate.h"\n#include "weir/schedule/tbf.h"\n'
                '#include "weir/schedule/tbf/root.h"\n')
        self.finds(policy_insides, {"apps/weir/a.cc": text, "weir/target/a.cc": text},
                   "apps/weir/a.cc:2", "apps/weir/a.cc:3")

    def test_modules_of_programs(self):
        self.finds(modules_of_programs,
                   {"apps/weir/CMakeLists.txt": "f(main MODULES commands base\n  pace host)\n",
                    "apps/weir/a.cc": '#include "weir/base/x.h"\n#include "weir/host/x.h"\n',
                    "tests/b.cc": '#include "weir/pace/x.h"\n'},
                   "apps/weir/CMakeLists.txt: links pace")

    def test_unused_functions(self):
        self.finds(unused_functions,
                   {"a.cc": "constexpr int a(int x) { return x; }\nint y = a(1);\n",
                    "b.cc": "constexpr std::array<int, 2> b(int x) { return {x}; }\n// b\n",
                    "c.cc": "constexpr int kC = f(1);\ninline int A::c() { return 1; }\n"},
                   "b.cc:1: nobody calls b()")

    def test_includes_of_tests(self):
        self.finds(includes_of_tests,
                   {"a_test.cc": "std::map<int, int> a;\n", "a.h": "#include <set>\n",
                    "b_test.cc": "#include <map>\nstd::map<int, int> b;\n",
                    "c_test.cc": "std::map<int, int> c;\n", "c.h": "#include <map>\n",
                    "d.cc": "std::map<int, int> d;\n"}, "a_test.cc:1")

    def test_columns(self):
        self.finds(columns, {"a.cc": "x" * 100 + "\n" + "x" * 101 + "\n"}, "a.cc:2: 101 columns")

    def test_sleeping_tests(self):
        self.finds(sleeping_tests, {"a_test.cc": "// sleep(1)\nasleep(1);\n  sleep(1);\n"
                                                 "std::this_thread::sleep_for(1s);\n",
                                    "a.cc": "sleep(1);"}, "a_test.cc:3", "a_test.cc:4: sleep_for")

    def test_leftovers(self):
        self.finds(leftovers, {"a.cc": "// TO" + "DO: later\nTODOS\n", "b.md": "FIX" + "ME\n"},
                   "a.cc:1", "b.md:1")

    def test_machine_paths(self):
        self.finds(machine_paths, {"a.sh": "/" + "work/\n",
                                   "b.md": "weir/root/x\nin /" + "root/x\n"}, "a.sh:1", "b.md:2")

    def test_floating_point(self):
        text = ("// double\nint a = 1'000;\nauto s = \"1.5\";\n"
                "auto x = 1.5;\ndouble y;\nauto z = 1e9;\n")
        self.finds(floating_point, {
            "weir/pace/CMakeLists.txt": self.PURE,
            "weir/pace/a.h": text, "weir/pace/a_test.cc": text, "weir/pace/part/b.h": "float b;\n",
            "weir/sim/CMakeLists.txt": "weir_module(sim LAYER 3 PURE)\n", "weir/sim/a.h": text,
            "weir/host/CMakeLists.txt": "weir_module(host LAYER 3)\n", "weir/host/a.h": text},
            "weir/pace/a.h:4: 1.5", "weir/pace/a.h:5: double", "weir/pace/a.h:6: 1e9",
            "weir/pace/part/b.h:1: float")

    def test_own_scheduling(self):
        text = '// TokenBucket\n#include "weir/pace/token_bucket.h"\nTokenBucket b;\n'
        self.finds(own_scheduling, {
            "weir/sim/a.cc": text, "weir/sim/lustre_model.cc": text, "weir/schedule/a.cc": text,
            "weir/sim/b.h": "int Tokens;\nlong virtual_time_ns;\n"},
            "weir/sim/a.cc:3: TokenBucket", "weir/sim/a.cc:4: #include", "weir/sim/b.h:2")

    def test_empty_words(self):
        self.finds(empty_words, {"rate_util.cc": "", "epoch_handler.h": "class EpochHandler;\n",
                                 "a.h": "// class Info\nstruct JobData {};\nclass Database;\n"
                                        "class QueueManager;\nint data;\n"},
                   "rate_util.cc:1", "a.h:2: 'Data'", "a.h:4: 'Manager'")

    def test_long_functions(self):
        body = "  x();\n" * 68
        members = "  int a;\n" * 80
        self.finds(long_functions, {
            "a.cc": f"namespace n {{\n\nint f(int a,\n      int b) {{\n{body}}}\n"
                    f"struct alignas(64) S {{\n public:\n  void fits() {{\n{body}  }}\n"
                    f"{members}}};\n"
                    f"S::S(int a)\n    : a_{{a}}, b_{{1}} {{\n{body}}}\n"
                    "}  // namespace n\n",
            "b.h": "#define M(x) \\\n  do { \\\n  } while (0)\n"
                   f"#if X(1)\nnamespace n {{\n#endif\n{members}}}\n"},
            "a.cc:3: a function of 71 lines", "a.cc:227: a function of 71 lines")

    def test_declared_modules(self):
        self.finds(declared_modules, {"weir/a/x.h": "", "weir/b/CMakeLists.txt": self.PURE,
                                      "weir/pace/CMakeLists.txt": "# c\n" + self.PURE},
                   "weir/a: no CMakeLists.txt", "weir/b/CMakeLists.txt:1")

    def test_orphaned_tests(self):
        self.finds(orphaned_tests, dict.fromkeys((
            "weir/a/x.h", "weir/a/x_test.cc", "weir/a/x_late_test.cc", "weir/a/y_test.cc",
            "weir/a/xy_test.cc", "weir/b/x_test.cc",
            "weir/c/big_x.h", "weir/c/x_property_test.cc", "weir/c/y_property_test.cc"), ""),
            "weir/a/xy_test.cc", "weir/a/y_test.cc", "weir/b/x_test.cc",
            "weir/c/y_property_test.cc")

    def test_scattered_protocols(self):
        good = {"weir/a/session.h": "", "weir/serve/session.h": "", "CMakeLists.txt": "weir/a",
                "apps/x.cc": '#include "weir/a/session.h"\n', "apps/y.cc": "// weir/a\n",
                "apps/CMakeLists.txt": "weir_a", "tests/t.cc": "a::x;"}
        self.finds(scattered_protocols, good)
        self.finds(scattered_protocols, {**good, "weir/serve/x.cc": "a::x;\n"}, "weir/a: is known")


if __name__ == "__main__":
    unittest.main()
