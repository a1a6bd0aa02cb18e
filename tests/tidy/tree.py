# SPDX-License-Identifier: Apache-2.0
"""The repository as the tidy tests see it."""
import os
import pathlib
import re
import subprocess

ROOT = pathlib.Path(os.environ.get("WEIR_SOURCE_DIR", pathlib.Path(__file__).parents[2])).resolve()


def project_files(root):
    """Every file of the project, relative to root: tracked, or new and not ignored.

    Seeds of fuzzers are left out: they are arbitrary bytes, not text."""
    try:
        listing = subprocess.run(
            ["git", "-C", root, "-c", f"safe.directory={root}",
             "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            capture_output=True, text=True, check=True).stdout
        names = set(listing.split("\0")) - {""}
    except (OSError, subprocess.CalledProcessError):  # no git, or a source archive
        names = set()
        for folder, folders, files in os.walk(root):
            folders[:] = [f for f in folders if f not in (".git", "build", "data")]
            names.update(os.path.relpath(os.path.join(folder, f), root) for f in files)
    return sorted(pathlib.PurePath(n) for n in names
                  if not n.startswith("tests/corpus/") and (root / n).is_file())


def read(root, file):
    return (root / file).read_text(encoding="utf-8")


def strip_cxx(text):
    """C++ without comments and the contents of literals; line numbers are unchanged."""
    token = re.compile(
        r'//[^\n]*|/\*.*?\*/|R"(?P<d>[^(\s]*)\(.*?\)(?P=d)"|"(?:\\.|[^"\\\n])*"'
        r"|(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'", re.DOTALL)

    def blank(match):
        found = match.group()
        edges = '""' if found[0] in 'R"' else "' '" if found[0] == "'" else " "
        return edges + "\n" * found.count("\n")

    return token.sub(blank, text)
