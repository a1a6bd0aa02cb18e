# SPDX-License-Identifier: Apache-2.0
"""batches.py ROOT FOLDER STEM SOURCE...: which sources are compiled together.

Prints the files to compile instead of the sources, one a line: STEM_N.cc in FOLDER, each of which
includes several sources by their paths below ROOT, and the sources that are compiled alone.

A file must mean the same beside others as alone. What an anonymous namespace declares is seen by
the files that follow, so a file is put beside another only if it does not mention such a name at
all, and the headers of all are included before the first; a file whose macros or using directives
would reach others is compiled alone. The answer depends on the sources only, so every checkout of a
commit has the same batches.
"""
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


class Source:
    def __init__(self, path):
        self.path = path
        text = path.read_text()
        self.includes = INCLUDE.findall(text)
        text = text.replace("\n}  // namespace\n", "\n}@\n")
        text = DIGIT_SEPARATOR.sub("", text)
        text = COMMENT_OR_LITERAL.sub(lambda found: '""' if found[0][0] in "\"'R" else "", text)
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

    def is_seen_by(self, other):
        return any(self.aliases.get(name, "") != other.aliases.get(name)
                   for name in self.names & other.words)

    def minds(self, other):
        return self.is_seen_by(other) or other.is_seen_by(self)


def batches_of(sources):
    batches = []
    for source in sources:
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
    headers = dict.fromkeys(line for one in batch for line in one.includes)
    sources = [f'#include "{one.path.relative_to(root)}"' for one in batch]
    return "\n".join([*headers, *sources, ""])


def main(root, folder, stem, *paths):
    number = 0
    for batch in batches_of([Source(pathlib.Path(path)) for path in paths]):
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
