# SPDX-License-Identifier: Apache-2.0
"""The commands that README, the documents and the manual pages show.

In Markdown, a fence with the language `sh` holds commands; a fence `rules` holds rule commands. In
manual pages, the verbatim paragraphs below EXAMPLES hold commands, rules (weir-rules(7)) or whole
configuration files (weir.conf(5)). A block in which lines start with "$ " is a transcript: the
lines after a command are its output, and those after `$ cat FILE` the content of a file.
"""
import dataclasses
import re

# The start of lines that a user would paste; such a line must be in a fence with its language.
COMMAND = re.compile(r"(\$ |(\./dev|weir|lctl|fio|cmake|curl|nbdinfo|qemu-\w+|systemctl|sudo) \S)")
RULE = re.compile(r"((reg|hp) )?(start|change|stop) \w")


@dataclasses.dataclass
class Command:
    text: str                # as pasted, including continued lines
    line: int                # of the page
    output: str = ""         # output shown on the page
    kind: str = "sh"         # or rules, conf: then text is the whole block


def markdown_fences(text):
    """(first line, language, lines) of each."""
    fence = None
    for number, line in enumerate(text.splitlines(), 1):
        if not line.startswith("```"):
            if fence:
                fence[2].append(line)
        elif fence:
            yield fence
            fence = None
        else:
            fence = (number, line[3:].strip(), [])


def pod_examples(text):
    """The verbatim paragraphs below EXAMPLES, in the same form; adjacent ones are joined."""
    block, is_examples = None, False
    for number, line in enumerate(text.splitlines(), 1):
        if heading := re.match(r"=head1 (.*?)\s*$", line):
            is_examples = heading[1] == "EXAMPLES"
        if is_examples and line.startswith("  "):
            block = block or (number - 1, "sh", [])
            block[2].append(line[2:])
        elif block and line:
            yield block
            block = None
        elif block:
            block[2].append("")
    if block:
        yield block


def commands_of(first, lines):
    """The commands of one block."""
    is_transcript = any(line.startswith("$ ") for line in lines)
    commands, continued = [], False
    for number, line in enumerate(lines, first + 1):
        if continued:
            commands[-1].text += "\n" + line
        elif not is_transcript:
            if line.strip() and not line.startswith("#"):
                commands.append(Command(line, number))
        elif line.startswith("$ "):
            commands.append(Command(line[2:], number))
        else:
            commands[-1].output += line + "\n"
            continue
        continued = line.endswith("\\")
    for command in commands:
        shown = command.output.rstrip("\n")
        command.output = shown and shown + "\n"
    return commands


def commands(page, text):
    """All commands of a page, in order."""
    if page.endswith(".md"):
        blocks = [block for block in markdown_fences(text) if block[1] in ("sh", "rules")]
    else:
        blocks = list(pod_examples(text))
    found = []
    for first, kind, lines in blocks:
        if page.endswith("weir.conf.5.pod") and lines[0].startswith("["):
            kind = "conf"
        if page.endswith("weir-rules.7.pod"):
            kind = "rules"
        if kind == "sh":
            found += commands_of(first, lines)
        else:
            found.append(Command("\n".join(lines).rstrip() + "\n", first + 1, kind=kind))
    return found


def untold(page, text):
    """Fences that contain commands to paste, but have no language."""
    for first, kind, lines in markdown_fences(text):
        for number, line in enumerate(lines, first + 1):
            if kind not in ("sh", "rules") and (COMMAND.match(line) or RULE.match(line)):
                yield f"{page}:{number}: a command in a fence without `sh` or `rules`: {line}"
