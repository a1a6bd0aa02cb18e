#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""weir rules as administrators run it: files and pipes in; lists, reasons and statuses out."""
import errno
import json
import os
import pathlib
import pty
import re
import subprocess
import tempfile
import unittest

WEIR = os.environ["WEIR_BIN"]
ROOT = pathlib.Path(os.environ["WEIR_SOURCE_DIR"])
# Long enough for any machine; a test that takes longer is stuck.
STUCK = 60


def rules(*arguments, stdin=""):
    if isinstance(stdin, str):
        stdin = stdin.encode()
    run = subprocess.run([WEIR, "rules", *arguments], input=stdin, capture_output=True,
                         timeout=STUCK, check=False)
    return run.returncode, run.stdout.decode(), run.stderr.decode()


class RulesTest(unittest.TestCase):
    def answers(self, lines, out, *arguments):
        self.assertEqual(rules(*arguments, "-", stdin=lines), (0, out, ""))

    def refuses(self, lines, err, status, *arguments):
        code, _, stderr = rules(*arguments, "-", stdin=lines)
        self.assertEqual((stderr, code), (err, status))


class Lists(RulesTest):
    def test_default_alone(self):
        self.answers("list\n", "default * 10000, ref 0\n")

    def test_as_a_lustre_server_does(self):
        self.answers("start before jobid={jobid} rate=1000\n"
                     "start after jobid={jobid} rate=1000 rank=default\n"
                     "start target jobid={a b  c } rate=500 rank=after\n"
                     "change target rate=250\n"
                     "list\n",
                     "before jobid={jobid} 1000, ref 0\n"
                     "target jobid={a b  c } 250, ref 0\n"
                     "after jobid={jobid} 1000, ref 0\n"
                     "default * 10000, ref 0\n", "--type", "jobid")

    def test_either_head(self):
        self.answers("start both uid={1} rate=1\nreg start r uid={1} rate=2\n"
                     "hp start h uid={1} rate=3\nlist\nlist hp\n",
                     "r uid={1} 2, ref 0\nboth uid={1} 1, ref 0\ndefault * 10000, ref 0\n"
                     "h uid={1} 3, ref 0\nboth uid={1} 1, ref 0\ndefault * 10000, ref 0\n")

    def test_the_commands_of_the_design_document(self):
        self.answers("start loginnode {192.168.1.1@tcp} 10000\n"
                     "start computenodes {192.168.1.[1-128]@tcp} 1000\n"
                     "start other_clients {192.168.*.*@tcp} 100\n"
                     "change loginnode 1000\nstop computenodes\nlist\n",
                     "other_clients {192.168.*.*@tcp} 100, ref 0\n"
                     "loginnode {192.168.1.1@tcp} 1000, ref 0\n"
                     "default * 10000, ref 0\n", "--type", "nid")

    def test_rate_0_where_only_bytes_are_limited(self):
        self.answers("start a uid={1} bps=10MiB\nlist\n",
                     "a uid={1} 0, ref 0\ndefault * 10000, ref 0\n")

    def test_comments_and_empty_lines(self):
        self.answers("# nothing\n\n   \n  # more\nlist", "default * 10000, ref 0\n")

    def test_from_a_file(self):
        with tempfile.NamedTemporaryFile("w") as file:
            file.write("start a uid={1} rate=5\nlist\n")
            file.flush()
            self.assertEqual(rules(file.name),
                             (0, "a uid={1} 5, ref 0\ndefault * 10000, ref 0\n", ""))

    def test_while_talked_to(self):
        child = subprocess.Popen([WEIR, "rules", "-"], stdin=subprocess.PIPE,
                                 stdout=subprocess.PIPE, text=True)
        for command, answer in (("list", "default * 10000, ref 0\n"),
                                ("match uid=1", "default\tno rule matches\n")):
            child.stdin.write(command + "\n")
            child.stdin.flush()
            self.assertEqual(child.stdout.readline(), answer)
        child.stdin.close()
        self.assertEqual(child.wait(STUCK), 0)
        child.stdout.close()


class Matches(RulesTest):
    RULES = ("start dd jobid={dd.*}&opcode={ost_write} rate=5\n"
             "start big uid={500 501} rate=7\n")

    def test_says_why(self):
        self.answers(self.RULES + "match jobid=dd.0 opcode=ost_write nid=10.0.0.1@tcp\n",
                     "dd\t'jobid={dd.*}&opcode={ost_write}' matches; checked before it: big: uid "
                     "is unknown, not in 'uid={500 501}'\n")
        self.answers(self.RULES + "match uid=501\n", "big\t'uid={500 501}' matches\n")
        self.answers(self.RULES + "match\n",
                     "default\tno rule matches; big: uid is unknown, not in 'uid={500 501}'; "
                     "dd: jobid is '', not in 'jobid={dd.*}'\n")

    def test_names_a_few_of_many(self):
        many = "".join(f"start r{i} uid={{{i}}}\n" for i in range(10))
        _, out, _ = rules("-", stdin=many + "match uid=77\n")
        self.assertTrue(out.endswith("; and 7 more\n"), out)

    def test_every_layer_that_has_rules(self):
        lines = self.RULES + ("start user uid={500} rate=9 layer=2 by=uid\n"
                              "match uid=500\nmatch uid=1\n")
        self.answers(lines,
                     "big\t'uid={500 501}' matches\n"
                     "user\tlayer 2: 'uid={500}' matches\n"
                     "default\tno rule matches; big: uid is 1, not in 'uid={500 501}'; "
                     "dd: jobid is '', not in 'jobid={dd.*}'\n"
                     "-\tlayer 2: no rule matches; user: uid is 1, not in 'uid={500}'\n")

    def test_numbers_and_names(self):
        lines = "start a opcode={obd_ping}&nodemap={site} rate=1\n"
        self.answers(lines + "match opcode=400 nodemap=site\n",
                     "a\t'opcode={obd_ping}&nodemap={site}' matches\n", "--nodemap", "site")
        self.answers("start e export={/srv*} rate=1\nmatch export=/srv/a\nmatch export=/home\n",
                     "e\t'export={/srv*}' matches\n"
                     "default\tno rule matches; e: export is '/home', not in 'export={/srv*}'\n")
        self.answers(lines + "match opcode=obd_ping nodemap=2\n",
                     "a\t'opcode={obd_ping}&nodemap={site}' matches\n",
                     "--nodemap", "other", "--nodemap", "site")

    def test_cost(self):
        self.answers("start a uid={1} rate=5 cost=affine:2:3\nmatch uid=1 bytes=4KiB\n",
                     "a\t'uid={1}' matches; costs 14 tokens\n")
        self.answers("start a uid={1} rate=5 bps=1MiB\nmatch uid=1 bytes=4KiB\n",
                     "a\t'uid={1}' matches; costs 1 token and 4096 bytes\n")
        self.answers("start a uid={1} bps=1MiB\nmatch uid=1 bytes=4KiB\n",
                     "a\t'uid={1}' matches; costs 4096 bytes\n")
        self.answers("match bytes=1MiB\n", "default\tno rule matches; costs 1 token\n")

    def test_bad_requests(self):
        for line, err in (
                ("match uid", "column 7: 'uid' is not a field with a value; expected nid=, jobid=, "
                              "uid=, gid=, projid=, opcode=, nodemap=, export= or bytes="),
                ("match  foo=1", "column 8: 'foo=1' is not a field with a value; expected nid=, "
                                 "jobid=, uid=, gid=, projid=, opcode=, nodemap=, export= or "
                                 "bytes="),
                ("match uid=-1", "column 7: 'uid=-1' has no such value; expected a number from 0 "
                                 "to 4294967295"),
                ("match opcode=ost_foo", "column 7: 'opcode=ost_foo' has no such value; expected a "
                                         "wire name such as ost_read, or a number"),
                ("match bytes=x", "column 7: 'bytes=x' is not a valid size; expected one such as "
                                  "1MiB"),
                ("list all", "column 6: 'list all' is not a valid way to list; expected list or "
                             "list hp")):
            with self.subTest(line):
                self.refuses(line, f"line 1: EINVAL: {err}\n", errno.EINVAL)


class Errors(RulesTest):
    def test_each_has_its_errno(self):
        for lines, name in (
                ("start a uid={x}", "EINVAL"), ("start a uid={1}\nstart a uid={2}", "EEXIST"),
                ("start a uid={1} rank=b", "ENOENT"), ("change a rate=1", "ENOENT"),
                ("stop default", "EPERM"), ("stop name_of_16_char_", "ENAMETOOLONG")):
            with self.subTest(lines):
                status, out, err = rules("-", stdin=lines)
                self.assertEqual((status, out), (getattr(errno, name), ""))
                self.assertTrue(err.startswith(f"line {lines.count(chr(10)) + 1}: {name}: "), err)
                self.assertEqual(err.count("\n"), 1)

    def test_point_at_the_place(self):
        self.refuses("start a opcode={ost_read ost_foo} rate=5",
                     "line 1: EINVAL: column 26: 'ost_foo' is not an opcode; expected a wire name "
                     "such as ost_read\n", errno.EINVAL)

    def test_show_the_place_on_a_terminal(self):
        for blanks in (0, 100):
            ours, theirs = pty.openpty()
            line = "start a opcode={" + " " * blanks + "ost_foo} rate=5"
            run = subprocess.run([WEIR, "rules", "-"], input=line.encode(), stderr=theirs,
                                 stdout=subprocess.DEVNULL, timeout=STUCK, check=False)
            os.close(theirs)
            _, text, caret = os.read(ours, 4096).decode().splitlines()
            os.close(ours)
            self.assertEqual(run.returncode, errno.EINVAL)
            self.assertEqual(caret.index("^"), text.index("ost_foo"))

    def test_the_run_goes_on_and_the_last_failure_is_the_status(self):
        lines = "stop default\nchange nosuch rate=5\nstart a uid={1}\nlist\n"
        status, out, err = rules("-", stdin=lines)
        self.assertEqual((status, out), (errno.ENOENT, "a uid={1} 10000, ref 0\n"
                                                       "default * 10000, ref 0\n"))
        self.assertEqual([line.split(":")[0:2] for line in err.splitlines()],
                         [["line 1", " EPERM"], ["line 2", " ENOENT"]])

    def test_a_command_for_both_heads_applies_to_both_or_none(self):
        status, out, _ = rules("-", stdin="hp start a uid={1} rate=2\nstart a uid={1} rate=1\n"
                                          "list\nlist hp\n")
        self.assertEqual((status, out), (errno.EEXIST, "default * 10000, ref 0\n"
                                         "a uid={1} 2, ref 0\ndefault * 10000, ref 0\n"))

    def test_nothing_of_a_failed_change_stays(self):
        _, out, _ = rules("-", stdin="start a uid={1} rate=5\nchange a rate=6 rank=b\nlist\n")
        self.assertIn("a uid={1} 5, ref 0\n", out)

    def test_hostile_lines(self):
        for line in (b"start a jobid={x\0y}", b"start \xc3\xa4 jobid={x}", b"x" * 4096,
                     b"x" * 1_000_000, b"start a jobid={" + b"y" * 5000 + b"}",
                     b"match jobid=" + b"y" * 5000, b"\x1b[2J"):
            with self.subTest(line[:40]):
                status, out, err = rules("-", stdin=line + b"\nlist\n")
                self.assertEqual((status, out), (errno.EINVAL, "default * 10000, ref 0\n"))
                self.assertTrue(err.startswith("line 1: EINVAL: column "), err)
                self.assertTrue(err.isprintable() or err.count("\n") == 1)
                self.assertNotIn("\x1b", err)

    def test_ten_thousand_rules(self):
        many = "".join(f"start r{i} jobid={{job.{i}}} rate=1\n" for i in range(10_000))
        status, out, _ = rules("-", stdin=many + "match jobid=job.0\nlist\n")
        self.assertEqual(status, 0)
        self.assertTrue(out.startswith("r0\t'jobid={job.0}' matches; checked before it: r9999: "))
        self.assertEqual(out.count("\n"), 10_002)


def manual_keys():
    """Names and forms of weir-rules(7), which tidy/man_test.py compares with the table of keys."""
    page = (ROOT / "docs/man/weir-rules.7.pod").read_text(encoding="utf-8")
    section = page[page.index("=head1 KEYS"):]
    items = re.findall(r"^=item (.*)$", section[:section.index("=back")], re.MULTILINE)
    forms = [re.sub(r"[BIC]<([^<>]*)>", r"\1", item) for item in items]
    return {form.split("=")[0]: form for form in forms}


class Help(RulesTest):
    def test_has_the_keys_of_the_manual(self):
        _, out, _ = rules("--help")
        section = out[out.index("\nKeys:\n") + 7:]
        shown = re.findall(r"^  (\S+)  +\S", section[:section.index("\n\n")], re.MULTILINE)
        self.assertEqual(shown, list(manual_keys().values()))


class Reservations(RulesTest):
    def test_more_than_a_limit_or_the_capacity_is_refused(self):
        self.refuses("start a uid={1} rate=5 reserve=6\n",
                     "line 1: EINVAL: column 1: reserve=6 is above rate=5; give a smaller reserve= "
                     "or a larger rate=\n", errno.EINVAL)
        lines = "start a uid={1} reserve=500\nstart b uid={2} reserve=401\n"
        self.answers(lines, "")
        self.refuses(lines,
                     "line 2: EINVAL: a reservation of 401, and 500 of other rules, are more than "
                     "90 % of the capacity of 1000, which is 900; give a smaller reserve=, or "
                     "reduce those of other rules\n", errno.EINVAL, "--capacity", "1000")
        self.refuses("start a uid={1} reserve=5\n",
                     "line 1: EINVAL: a reservation of 5 is not in the unit of the capacity; give "
                     "bytes per second, such as reserve=10MiB/s\n", errno.EINVAL,
                     "--capacity", "1MB/s")


class Json(RulesTest):
    def test_shows_every_key(self):
        status, out, err = rules("--json", "-", stdin=(
            "start a uid={1} rate=5 bps=1MiB burst=7 burst=4KiB by=uid+nid layer=1 "
            "cost=affine:1:2 scope=cluster realtime=1\nlist\nlist hp\nmatch uid=1\n"))
        self.assertEqual((status, err), (0, ""))
        regular, high, match = map(json.loads, out.splitlines())
        self.assertEqual(regular["priority"], "reg")
        self.assertEqual(high["priority"], "hp")
        self.assertEqual(regular["rules"], high["rules"])
        for shown, expected in zip(regular["rules"], [
            {"name": "a", "conditions": "uid={1}", "rate": 5, "ref": 0, "layer": 1, "by": "nid+uid",
             "bps": "1MiB/s", "burst": 7, "burst_bytes": 4096, "cost": "affine:1:2",
             "scope": "cluster", "realtime": True},
            {"name": "default", "conditions": "*", "rate": 10000, "ref": 0, "layer": 0,
             "by": "generic", "bps": None, "burst": None, "burst_bytes": None, "cost": "op",
             "scope": "local", "realtime": False}], strict=True):
            self.assertEqual({key: shown[key] for key in expected}, expected)
            # Every key of the manual, except the position of a rule.
            self.assertEqual(set(manual_keys()) - {"rank"} - set(shown), set())
            self.assertEqual(set(shown) - set(manual_keys()),
                             {"name", "conditions", "ref", "burst_bytes"})
        self.assertEqual(match, {"match": [
            {"layer": 0, "name": "default", "reason": "no rule matches"},
            {"layer": 1, "name": "a", "reason": "layer 1: 'uid={1}' matches"}]})

    def test_any_byte(self):
        _, out, _ = rules("--json", "-", stdin=b'start a jobid={"\\\xc3\xa4} by=rule\nlist\n')
        rule = json.loads(out)["rules"][0]
        self.assertEqual((rule["conditions"], rule["by"]), ('jobid={"\\\xc3\xa4}', "rule"))

    def test_no_match(self):
        _, out, _ = rules("--json", "-", stdin="start a uid={1} layer=1\nmatch\n")
        self.assertIsNone(json.loads(out)["match"][1]["name"])


class Usage(RulesTest):
    def test_mistakes_of_the_command_line(self):
        for arguments in ((), ("--nonsense", "-"), ("--type", "abc", "-"), ("a", "b"),
                          ("--type", "nid++uid", "-"), ("--type", "jobid+nid+opcode", "-")):
            with self.subTest(arguments):
                status, out, err = rules(*arguments)
                self.assertEqual((status, out), (64, ""), err)
                self.assertEqual(err.count("\n"), 1)

    def test_files_that_cannot_be_read(self):
        status, _, err = rules("/nonexistent")
        self.assertEqual(status, 66)
        self.assertEqual(err, "weir rules: '/nonexistent': No such file or directory\n")
        self.assertEqual(rules("/"), (74, "", "weir rules: '/': Is a directory\n"))

    def test_output_that_cannot_be_written(self):
        with open("/dev/full", "w", encoding="utf-8") as full:
            run = subprocess.run([WEIR, "rules", "-"], input=b"list\n", stdout=full,
                                 stderr=subprocess.PIPE, timeout=STUCK, check=False)
        self.assertEqual(run.returncode, 74)
        self.assertEqual(run.stderr, b"weir rules: standard output: No space left on device\n")

    def test_types(self):
        for name in ("generic", "nid+", "uid+gid+projid"):
            self.answers("list\n", "default * 10000, ref 0\n", "--type", name)
        self.refuses("start a uid={1}", "line 1: EINVAL: column 9: 'uid={1}' names a field that "
                     "is not part of this policy's type; expected one of nid\n", errno.EINVAL,
                     "--type", "nid")


if __name__ == "__main__":
    unittest.main()
