# SPDX-License-Identifier: Apache-2.0
"""batches.py ROOT FOLDER STEM SOURCE...: which sources are compiled together.

Prints the files to compile instead of the sources, one a line: STEM_N.cc in FOLDER, each of which
includes several sources by their paths below ROOT, and the sources that are compiled alone.

A file must mean the same beside others as alone. The headers of all are included before the first
file. What an anonymous namespace declares is seen by the files that follow; where another file
mentions such a name, a macro gives it another spelling while its own file is read. That works for a
name that no header mentions and that its file never uses as a member, qualified or as an argument
of a macro; two files of which one mentions another kind of name of the other are not put together.
A file whose macros or using directives would reach others is compiled alone. Files that include the
same large libraries are put together first. The answer depends on the sources and headers only, so
every checkout of a commit has the same batches.
"""
import functools
import os
import pathlib
import re
import sys

# The largest batch takes 40 s and 1.2 GB to compile; two at a time must fit into a small machine.
LINES_MAX = 2000

COMMENT_OR_LITERAL = re.compile(
    r'R"(\w*)\(.*?\)\1"|//[^\n]*|/\*.*?\*/|"(?:[^"\\\n]|\\.)*"|' r"'(?:[^'\\\n]|\\.)+'", re.S)
DIGIT_SEPARATOR = re.compile(r"(?<=[0-9a-fA-F])'(?=[0-9a-fA-F])")
# After '.', '->' or '::' a name is looked up elsewhere.
WORD = re.compile(r"(?<![\w.])(?<!->)(?<!::)[A-Za-z_]\w*")
# As clang-format closes it; the comment has become a mark of its own.
ANONYMOUS = re.compile(r"^namespace \{$(.*?)^\}@$", re.M | re.S)
TYPE = re.compile(r"^(?:struct|class|union|enum(?: class)?) (\w+)", re.M)
# The last word before the first of these marks, unless it is qualified.
DECLARED = re.compile(r"^(?!using |namespace |friend )[A-Za-z_][^\n({=;[]*?(?<![\w:])"
                      r"([A-Za-z_]\w*)(?=\s*[({=;[])", re.M)
STATIC = re.compile(r"^static [^\n({=;[]*?(\w+)\s*[({=;[]", re.M)
# Another name for something: the same line may stand in two files.
ALIAS = re.compile(r"^(?:using|namespace) (?:(\w+) =[^;]*|(?!namespace)[\w:]*?(\w+));", re.M)
INCLUDE = re.compile(r"^#include .*$", re.M)
DIRECTIVE = re.compile(r"^\s*#\s*(define|undef|pragma|if)|"
                       r"^using namespace (?!\w+(::\w+)*_literals;)", re.M)
OPERATOR = re.compile(r"^(?!  )[^\n]*\boperator\b", re.M)  # called without being named
# A name as a member or qualified, and the names that TEST(Suite, Name) and the like are given.
ELSEWHERE = re.compile(r"(?:\.|->|::)\s*~?([A-Za-z_]\w*)")
MACRO_ARGUMENTS = re.compile(r"\b[A-Z][A-Z0-9_]+\(([\w\s,]*)")
INCLUDED = re.compile(r'^#include ["<]([^">]+)[">]', re.M)
# Libraries whose headers take seconds to compile.
LARGE = ("boost/beast/", "grpcpp/", "CLI/", "nlohmann/", "rapidcheck")


def without_comments(text):
    text = DIGIT_SEPARATOR.sub("", text)
    return COMMENT_OR_LITERAL.sub(lambda found: '""' if found[0][0] in "\"'R" else "", text)


@functools.cache
def header(root, name):
    """The text of a header of ours. One that protoc makes has that of its protocol; one of a
    library has none."""
    path = os.path.join(root, re.sub(r"(\.grpc)?\.pb\.h$", ".proto", name))
    return pathlib.Path(path).read_text() if os.path.isfile(path) else ""


@functools.cache
def included_by(root, name):
    return INCLUDED.findall(header(root, name))


def reached(root, includes):
    """Headers that these include, themselves included."""
    found, left = set(), list(includes)
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            left += included_by(root, name)
    return found


@functools.cache
def words(root, name):
    return frozenset(re.findall(r"\w+", without_comments(header(root, name))))


def words_of(root, headers):
    return frozenset().union(*(words(root, name) for name in headers))


class Source:
    def __init__(self, path, root):
        self.path = path
        text = path.read_text()
        self.includes = INCLUDE.findall(text)
        self.headers = reached(root, INCLUDED.findall(text))
        text = without_comments(text.replace("\n}  // namespace\n", "\n}@\n"))
        hidden = "\n".join(ANONYMOUS.findall(text))
        unclosed = text.count("\n}@\n") != len(re.findall(r"^\s*namespace \{", text, re.M))
        self.lines = text.count("\n")
        self.words = set(WORD.findall(text))
        self.aliases = {found[1] or found[2]: found[0] for found in ALIAS.finditer(text)}
        names = TYPE.findall(hidden) + DECLARED.findall(hidden) + STATIC.findall(text)
        # Those in capitals are macros that make a test, and void begins a pointer to a function.
        names = {name for name in names if not name.isupper() and name != "void"}
        self.names = names | self.aliases.keys()
        self.alone = bool(DIRECTIVE.search(text) or OPERATOR.search(hidden) or unclosed)
        self.elsewhere = set(ELSEWHERE.findall(text)).union(
            *(re.findall(r"\w+", found) for found in MACRO_ARGUMENTS.findall(text)))
        self.root = root

    @functools.cached_property
    def own(self):
        """Names that a macro can spell otherwise."""
        return self.names - self.elsewhere - words_of(self.root, self.headers)

    def seen_by(self, other):
        """Names it declares that the other would see and mentions."""
        return {name for name in self.names & other.words
                if self.aliases.get(name, "") != other.aliases.get(name)}

    def minds(self, other):
        return any(names and not names <= one.own for one, names in
                   ((self, self.seen_by(other)), (other, other.seen_by(self))))

    def weight(self):
        """Sorts those first that include the largest libraries."""
        return [not any(name.startswith(library) for name in self.headers) for library in LARGE]


def batches_of(sources):
    batches = []
    for source in sorted(sources, key=Source.weight):
        for batch in batches:
            if (not source.alone and not batch[0].alone
                    and sum(one.lines for one in batch) + source.lines <= LINES_MAX
                    and not any(source.minds(one) for one in batch)):
                batch.append(source)
                break
        else:
            batches.append([source])
    return batches


def text_of(batch, root):
    lines = list(dict.fromkeys(line for one in batch for line in one.includes))
    for one in batch:
        names = sorted(set().union(*(one.seen_by(other) for other in batch if other is not one)))
        lines += [f"#define {name} {name}_of_{one.path.stem}" for name in names]
        lines.append(f'#include "{one.path.relative_to(root)}"')
        lines += [f"#undef {name}" for name in names]
    return "\n".join([*lines, ""])


def main(root, folder, stem, *paths):
    number = 0
    root = pathlib.Path(root)
    for batch in batches_of([Source(pathlib.Path(path), root) for path in paths]):
        if len(batch) == 1:
            print(batch[0].path)
            continue
        file = pathlib.Path(folder) / f"{stem}_{number}.cc"
        number += 1
        text = text_of(batch, root)
        if not file.exists() or file.read_text() != text:
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        print(file)


if __name__ == "__main__":
    main(*sys.argv[1:])
