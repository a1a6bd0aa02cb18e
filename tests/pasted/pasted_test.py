# SPDX-License-Identifier: Apache-2.0
"""Every command in README, the documents and the manual pages runs as pasted.

The commands of each page run in a separate sandbox (Linux namespaces): /tmp and /run are empty, the
network is a loopback interface, and writes elsewhere go to memory. So a page can use its ports,
install below /usr and leave servers running. settings.py has what pages assume, and the few
commands that are not run, with the reason.
"""
import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

import pages
import settings

ROOT = pathlib.Path(os.environ["WEIR_SOURCE_DIR"]).resolve()
BUILD = pathlib.Path(os.environ["WEIR_BUILD_DIR"]).resolve()
RELEASE = pathlib.Path(os.environ["WEIR_RELEASE_BIN"]).resolve()
HERE = pathlib.Path(__file__).resolve().parent
STUCK = 200
AT_ONCE = 4  # pages; they mostly wait

# $0 the folder of the page, further ones what to run; the sandbox's own files are in memory. A
# folder below /tmp stays where it is, in an otherwise empty /tmp.
SANDBOX = r"""
ip link set lo up
ip address add 10.0.0.1/32 dev lo
upper=$(mktemp -d)
mount -t tmpfs none "$upper"
for folder in "$0" /usr /etc /var/lib /mnt; do
  mkdir -p "$upper$folder" "$upper/work$folder"
  mount -t overlay none -o "lowerdir=$folder,upperdir=$upper$folder,workdir=$upper/work$folder" \
    "$folder"
done
mount -t tmpfs none /run
kept=()
for folder in "$0" "$WEIR_CHECKOUT"; do
  [[ $folder == /tmp/* ]] || continue
  mkdir "/run/${#kept[@]}"
  mount --bind "$folder" "/run/${#kept[@]}"
  kept+=("$folder")
done
mount -t tmpfs none /tmp
for place in "${!kept[@]}"; do
  mkdir -p "${kept[place]}"
  mount --bind "/run/$place" "${kept[place]}"
  umount "/run/$place"
  rmdir "/run/$place"
done
cd "$0"
rm -rf data
"$@"
"""


def in_sandbox(root, *command):
    if os.geteuid() != 0:
        raise unittest.SkipTest("only root can make the sandbox")
    environment = {**os.environ, "WEIR_SOURCE_DIR": str(root), "WEIR_CHECKOUT": str(ROOT),
                   "WEIR_DEMO_SECONDS": "3",
                   "PATH": f"{RELEASE.parent}:{os.environ['PATH']}", "PYTHONDONTWRITEBYTECODE": "1"}
    return subprocess.run(
        ["unshare", "--mount", "--net", "--pid", "--fork", "--mount-proc", "--kill-child", "bash",
         "-euo", "pipefail", "-c", SANDBOX, root, *command],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, timeout=STUCK,
        env=environment, check=False)


def documents():
    """Pages that may show commands."""
    files = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *ROOT.glob("docs/**/*.md")]
    return sorted(str(file.relative_to(ROOT)) for file in files)


def manual():
    return sorted(str(file.relative_to(ROOT)) for file in ROOT.glob("docs/man/*.pod"))


def read(page):
    return (ROOT / page).read_text(encoding="utf-8")


def run_page(page, root=ROOT):
    """The number of commands that ran, and their errors."""
    done = in_sandbox(root, sys.executable, HERE / "session.py", page)
    if done.returncode:
        return 0, [f"{page}: the session ended with {done.returncode}"]
    result = json.loads(done.stdout.splitlines()[-1])
    return result["ran"], result["broken"]


class Pasted(unittest.TestCase):
    def test_every_command_of_every_page_runs(self):
        chosen = [page for page in documents() + manual()
                  if page not in settings.TESTED_AS_A_WHOLE and pages.commands(page, read(page))]
        self.assertEqual(chosen[:2], ["CONTRIBUTING.md", "README.md"])  # the longest start first
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            for page, (ran, broken) in zip(chosen, pool.map(run_page, chosen)):
                with self.subTest(page):
                    self.assertFalse(broken, "\n\n" + "\n\n".join(broken))
                    self.assertGreater(ran, 0)


class Pages(unittest.TestCase):
    def test_every_fence_with_commands_says_so(self):
        self.assertEqual([one for page in documents() for one in pages.untold(page, read(page))],
                         [])

    def test_every_setting_is_of_a_command(self):
        texts = [command.text for page in documents() + manual()
                 for command in pages.commands(page, read(page))]
        for start in settings.NOT_RUN:
            self.assertTrue(any(text.startswith(start) for text in texts), start)
        for page, before in settings.BEFORE.items():
            for start in before:
                self.assertTrue(any(command.text.startswith(start)
                                    for command in pages.commands(page, read(page))),
                                (page, start))


class Bites(unittest.TestCase):
    """A page with an error is detected."""

    def breaks(self, name, text, *expected):
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / name).write_text(text)
            _, broken = run_page(name, pathlib.Path(folder))
        self.assertEqual(len(broken), len(expected), broken)
        for one, part in zip(broken, expected):
            self.assertIn(part, one)

    def test_a_command_that_fails(self):
        self.breaks("a.md", "```sh\ntrue\nweir no-such-command && true\nfalse | true\n```\n"
                            "```\nfalse\n```\n```sh\necho 'start a' | weir rules - # odd\n```\n",
                    "a.md:3: weir no-such-command", "a.md:10: echo 'start a'")

    def test_output_that_differs(self):
        self.breaks("a.pod", "=head1 EXAMPLES\n\n  $ cat two\n  start a uid={1} rate=2\n"
                             "  $ cat two - | weir rules -\n  $ echo list | cat two - | weir "
                             "rules -\n  a uid={1} 3, ref 0\n  default * 10000, ref 0\n\n=cut\n",
                    "but it printed\na uid={1} 2, ref 0")

    def test_a_server_that_does_not_start(self):
        self.breaks("a.md", "```sh\nweir serve --export a=memory:1XB\n```\n", "ended with")

    def test_a_rule_that_is_none(self):
        self.breaks("a.md", "```rules\nstart a uid={1}\n```\n"
                            "```rules\nchange a rate=1\nchange b rate=2\n```\n",
                    "no rule named 'b'")


class Parsed(unittest.TestCase):
    def test_fences(self):
        text = ("```sh\n# why\na \\\n  b\n\nc   # d\n```\n```\nx\n```\n"
                "```sh\n$ e\nf\ng\n$ h\n```\n")
        found = pages.commands("a.md", text)
        self.assertEqual([(one.text, one.line, one.output) for one in found],
                         [("a \\\n  b", 3, ""), ("c   # d", 6, ""), ("e", 12, "f\ng\n"),
                          ("h", 15, "")])

    def test_a_fence_that_does_not_say_what_it_holds(self):
        found = list(pages.untold("a.md", "```\n./dev run\n```\n```sh\nweir x\n```\n```\n"
                                          "start a uid={1}\nstart  = max(tag)\n```\n"))
        self.assertEqual([one.split(": ")[0] for one in found], ["a.md:2", "a.md:8"])


if __name__ == "__main__":
    unittest.main()
