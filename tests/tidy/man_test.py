# SPDX-License-Identifier: Apache-2.0
"""Manual pages (docs/man/*.pod) agree with the program.

weir.1.pod belongs to `weir --help` and weir-limit.1.pod to `weir limit --help`: both list the same
options, a page as

    =item B<-q>, B<--quiet>
    =item B<--rate> I<RATE>

Pages of sections 5 and 7 (files, concepts) belong to no command and only have to be well-formed.
"""
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

from tree import ROOT

WEIR = os.environ.get("WEIR_BIN", ROOT / "build/dev/apps/weir/weir")


def help_of(*subcommand):
    return subprocess.run([WEIR, *subcommand, "--help"], capture_output=True, text=True,
                          check=True).stdout


def help_options(text):
    """CLI11 lists an option as "  -q,--quiet        What it does"."""
    names = re.findall(r"^  (-\S+)", text, re.MULTILINE)
    return {name for names_of_one in names for name in names_of_one.split(",")}


def help_subcommands(text):
    section = re.search(r"^Subcommands:\n((?:  .*\n?)*)", text, re.MULTILINE)
    return set(re.findall(r"^  (\w\S*)", section[1], re.MULTILINE)) if section else set()


def page_options(text):
    items = re.findall(r"^=item (.*)$", text, re.MULTILINE)
    return {name for item in items for name in re.findall(r"B<(--?\w[\w-]*)", item)}


def option_findings(page, helped):
    """Differences between a page's options and those of the help text."""
    for name in sorted(page_options(page) - help_options(helped)):
        yield f"{name} is in the manual only"
    for name in sorted(help_options(helped) - page_options(page)):
        yield f"{name} is in --help only"


def order_findings(page):
    headings = re.findall(r"^=head1 (.*?)\s*$", page, re.MULTILINE)
    if not {"EXAMPLES", "OPTIONS"} <= set(headings):
        yield "needs the headings EXAMPLES and OPTIONS"
    elif headings.index("EXAMPLES") > headings.index("OPTIONS"):
        yield "EXAMPLES come before OPTIONS"


def form_findings(file):
    done = subprocess.run(["podchecker", file], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True)
    if done.returncode or "WARNING" in done.stdout:
        yield done.stdout


def table_keys(source):
    """The rows of weir/classify/rule_keys.cc: the form of a key, and the first line of its item."""
    rows = re.split(r'^    \{\.name = ', source[source.index("kRuleKeys[] = {"):], flags=re.M)[1:]
    keys = {}
    for row in rows:
        value = {key: "".join(re.findall(r'"((?:\\.|[^"\\])*)"', text))
                 for key, text in re.findall(r'\.(form|doc) =((?:\s*"(?:\\.|[^"\\])*")+)', row)}
        mark = "(Weir) " if "Of::kWeir" in row else ""
        keys[value["form"]] = mark + value["doc"]
    return keys


def manual_keys(page):
    """The items below KEYS in the same form."""
    section = page[page.index("=head1 KEYS"):]
    items = section[:section.index("=back")].split("=item ")[1:]
    plain = [" ".join(re.sub(r"[BIC]<([^<>]*)>", r"\1", item).split(" ")) for item in items]
    return {form: " ".join(text.split()) for form, text in (one.split("\n", 1) for one in plain)}


def key_findings(source, page):
    table, manual = table_keys(source), manual_keys(page)
    for form in sorted(table.keys() ^ manual.keys()):
        yield f"{form} is in the {'table' if form in table else 'manual'} only"
    for form in sorted(table.keys() & manual.keys()):
        if not manual[form].startswith(table[form]):
            yield f"{form}: the manual does not begin with '{table[form]}'"


class RuleKeys(unittest.TestCase):
    """weir-rules(7) has the keys of the table, each with its line, and no other."""

    def test_are_those_of_the_manual(self):
        source = (ROOT / "weir/classify/rule_keys.cc").read_text(encoding="utf-8")
        page = (ROOT / "docs/man/weir-rules.7.pod").read_text(encoding="utf-8")
        self.assertGreater(len(table_keys(source)), 5)
        self.assertEqual(list(key_findings(source, page)), [])

    def test_a_difference_is_found(self):
        source = ('constexpr RuleKey kRuleKeys[] = {\n'
                  '    {.name = "rate",\n     .form = "rate=N",\n     .doc = "Operations "\n'
                  '            "per second.",\n     .of = Of::kWeir},\n};\n')
        page = "=head1 KEYS\n\n=over\n\n=item B<rate>=I<N>\n\n{}\n\n{}=back\n"
        good = "I<(Weir)> Operations per\nsecond. And more."
        self.assertEqual(list(key_findings(source, page.format(good, ""))), [])
        self.assertEqual(len(list(key_findings(source, page.format("Other.", "")))), 1)
        more = "=item B<pace>=I<N>\n\nUnknown.\n\n"
        self.assertEqual(list(key_findings(source, page.format(good, more))),
                         ["pace=N is in the manual only"])
        self.assertEqual(list(key_findings(source, page.replace("rate", "rat").format(good, ""))),
                         ["rat=N is in the manual only", "rate=N is in the table only"])


class Pages(unittest.TestCase):
    """The project's pages agree with its program."""

    @classmethod
    def setUpClass(cls):
        cls.pages = {file.stem: file for file in (ROOT / "docs/man").glob("*.pod")}
        cls.commands = {f"weir-{sub}.1": (sub,) for sub in help_subcommands(help_of())}
        cls.commands["weir.1"] = ()

    def holds(self, page, findings):
        with self.subTest(page):
            self.assertEqual(list(findings), [])

    def test_every_command_has_a_page(self):
        self.assertIn("weir-limit.1", self.commands)
        self.assertEqual(self.commands.keys(), {page for page in self.pages if page.endswith(".1")})

    def test_pages_are_well_formed(self):
        self.assertTrue(self.pages)
        for page, file in self.pages.items():
            self.holds(page, form_findings(file))

    def test_options_are_those_of_help(self):
        for page in self.commands.keys() & self.pages.keys():
            self.holds(page, option_findings(self.pages[page].read_text(encoding="utf-8"),
                                             help_of(*self.commands[page])))

    def test_examples_come_before_options(self):
        for page in self.commands.keys() & self.pages.keys():
            self.holds(page, order_findings(self.pages[page].read_text(encoding="utf-8")))


class Bites(unittest.TestCase):
    """Each check finds the error in a sample."""

    HELP = ("Rate-limited pipe\nUsage: weir limit [OPTIONS] [FILE]\n\nPositionals:\n"
            "  FILE TEXT                   What to read\n\nOptions:\n"
            "  -q,--quiet                  No progress; see\n"
            "                              --rate\n"
            "  --rate RATE REQUIRED        Tokens a second\n\nSubcommands:\n"
            "  limit                       A rate-limited pipe\n  serve                       -\n")
    PAGE = ("=head1 EXAMPLES\n\n=over\n\n=item B<weir limit --nothing>\n\n=back\n\n"
            "=head1 OPTIONS\n\n=over\n\n=item B<-q>, B<--quiet>\n\nNo progress.\n\n"
            "=item B<--rate> I<RATE>\n\nTokens a second.\n\n=back\n\n=cut\n")

    def test_samples_agree(self):
        self.assertEqual(help_options(self.HELP), {"-q", "--quiet", "--rate"})
        self.assertEqual(help_subcommands(self.HELP), {"limit", "serve"})
        self.assertEqual(list(option_findings(self.PAGE, self.HELP)), [])
        self.assertEqual(list(order_findings(self.PAGE)), [])

    def test_an_option_missing_on_either_side(self):
        self.assertEqual(list(option_findings(self.PAGE.replace("--quiet", "--still"), self.HELP)),
                         ["--still is in the manual only", "--quiet is in --help only"])

    def test_order(self):
        self.assertEqual(list(order_findings("=head1 OPTIONS\n\n=head1 EXAMPLES\n")),
                         ["EXAMPLES come before OPTIONS"])
        self.assertEqual(list(order_findings("=head1 OPTIONS\n")),
                         ["needs the headings EXAMPLES and OPTIONS"])

    def test_form(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "page.pod"
            file.write_text("=head1 NAME\n\npage - a page\n\n=cut\n")
            self.assertEqual(list(form_findings(file)), [])
            file.write_text("=head1 NAME\n\n=over\n\n=item B<x\n\n=cut\n")
            self.assertEqual(len(list(form_findings(file))), 1)


if __name__ == "__main__":
    unittest.main()
