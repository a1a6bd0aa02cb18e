#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""weir alloc as users run it: periods in, allocations or an explanation out."""
import json
import os
import subprocess
import tempfile
import unittest

WEIR = os.environ["WEIR_BIN"]
# Long enough for any machine; a test that takes longer is stuck.
STUCK = 60
PLAIN = ("--rate", "100", "--period", "100ms")


def alloc(*arguments, stdin=""):
    run = subprocess.run([WEIR, "alloc", *arguments], input=stdin.encode(), capture_output=True,
                         timeout=STUCK, check=False)
    return run.returncode, run.stdout.decode(), run.stderr.decode()


def period(**jobs):
    """a=(nodes, demand) ..."""
    return json.dumps({"jobs": {job: {"nodes": nodes, "demand": demand}
                                for job, (nodes, demand) in jobs.items()}}) + "\n"


class Allocates(unittest.TestCase):
    def test_the_worked_example_byte_for_byte(self):
        lines = period(b=(1, 20), a=(3, 2)) + period(a=(3, 20), b=(1, 20))
        self.assertEqual(alloc(*PLAIN, stdin=lines), (
            0,
            '{"budget":10,"jobs":{"a":{"initial":8,"redistributed":2,"final":2,"record":6},'
            '"b":{"initial":2,"redistributed":8,"final":8,"record":-6}}}\n'
            '{"budget":10,"jobs":{"a":{"initial":7,"redistributed":7,"final":10,"record":3},'
            '"b":{"initial":3,"redistributed":3,"final":0,"record":-3}}}\n', ""))

    def test_inactive_jobs_and_idle_periods(self):
        lines = period(a=(1, 0)) + period() + "\n" + period(a=(1, 1), b=(1, 0))
        self.assertEqual(alloc(*PLAIN, stdin=lines), (
            0, '{"budget":0,"jobs":{}}\n' * 2 +
            '{"budget":10,"jobs":{"a":{"initial":10,"redistributed":10,"final":10,"record":0}}}\n',
            ""))

    def test_a_file_and_ids_that_need_escapes(self):
        with tempfile.NamedTemporaryFile("w", encoding="utf-8") as file:
            file.write('{"jobs":{"q\\"\\u00e4\\n":{"nodes":1,"demand":5}}}')
            file.flush()
            status, out, err = alloc(*PLAIN, file.name)
        self.assertEqual((status, err), (0, ""))
        self.assertEqual(list(json.loads(out)["jobs"]), ['q"ä\n'])

    def test_fractions_of_tokens_are_carried(self):
        _, out, _ = alloc("--rate", "15", "--period", "100ms", stdin=period(a=(1, 9)) * 4)
        self.assertEqual([json.loads(line)["budget"] for line in out.splitlines()], [1, 2, 1, 2])

    def final_of_the_borrower(self, *options):
        """After a large job has lent for a minute and then has full demand."""
        lines = period(large=(9, 1), small=(1, 1000)) * 600
        lines += period(large=(9, 1000), small=(1, 1000)) * 50
        _, out, _ = alloc("--rate", "1000", "--period", "100ms", *options, stdin=lines)
        periods = [json.loads(line)["jobs"] for line in out.splitlines()]
        records = [jobs["large"]["record"] for jobs in periods]
        return min(jobs["small"]["final"] for jobs in periods[600:]), max(records)

    def test_floor_and_half_life(self):
        plain, highest = self.final_of_the_borrower()
        floored, same = self.final_of_the_borrower("--floor")
        _, faded = self.final_of_the_borrower("--half-life", "10s")
        self.assertEqual((plain, same), (0, highest))
        self.assertGreaterEqual(floored, 5)
        self.assertLess(faded, highest / 2)

    def test_answers_each_line_as_it_comes(self):
        with subprocess.Popen([WEIR, "alloc", *PLAIN], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE) as child:
            for _ in range(3):
                child.stdin.write(period(a=(1, 9)).encode())
                child.stdin.flush()
                self.assertEqual(json.loads(child.stdout.readline())["budget"], 10)
            child.stdin.close()
            self.assertEqual(child.wait(STUCK), 0)

    def test_many_jobs_in_a_line(self):
        line = period(**{f"job{i}": (1 + i % 7, i) for i in range(20000)})
        status, out, err = alloc("--rate", "1M", "--period", "1s", stdin=line)
        self.assertEqual((status, err), (0, ""))
        jobs = json.loads(out)["jobs"]
        self.assertEqual(sum(job["final"] for job in jobs.values()), 1000000)
        self.assertEqual(list(jobs), sorted(jobs))


class Trees(unittest.TestCase):
    TREE = (*PLAIN, "--tree", "projid,uid,jobid")
    LINE = ('{"jobs":{"ior.7":{"path":["bio","1001"],"weight":3,"demand":20,"reserve":0},'
            '"dd.1":{"path":["bio",null],"demand":20},"cp.5":{"path":["chem","7"],"demand":1}},'
            '"weights":{"bio":2,"bio/1001":4}}\n')

    def test_every_active_node_is_printed(self):
        status, out, err = alloc(*self.TREE, stdin=self.LINE)
        self.assertEqual((status, err), (0, ""))
        line = json.loads(out)
        self.assertEqual(line["budget"], 10)
        self.assertEqual(list(line["nodes"]), [
            "bio", "bio/(none)", "bio/(none)/dd.1", "bio/1001", "bio/1001/ior.7", "chem", "chem/7",
            "chem/7/cp.5"])
        nodes = line["nodes"]
        self.assertEqual(nodes["chem"], {"initial": 3, "redistributed": 1, "final": 1, "record": 2})
        self.assertEqual(nodes["bio"]["final"], 9)
        self.assertEqual(nodes["bio/1001"]["final"] + nodes["bio/(none)"]["final"], 9)
        self.assertEqual(nodes["bio/1001/ior.7"]["final"], nodes["bio/1001"]["final"])

    def test_one_level_is_the_plain_allocation(self):
        lines = "".join(period(a=(3, i % 7), b=(1, 20 - i), c=(2, 5)) for i in range(20))
        _, plain, _ = alloc(*PLAIN, stdin=lines)
        status, tree, _ = alloc(*PLAIN, "--tree", "jobid", stdin=lines.replace("nodes", "weight"))
        self.assertEqual((status, tree.replace('"nodes"', '"jobs"')), (0, plain))

    def test_a_job_that_moves_starts_with_0(self):
        def line(project):
            return json.dumps({"jobs": {"a": {"path": [project], "demand": 1},
                                        "b": {"path": ["x"], "demand": 50}}}) + "\n"
        tree = (*PLAIN, "--tree", "projid,jobid")
        status, out, _ = alloc(*tree, stdin=line("x") * 3 + line("y"))
        periods = [json.loads(text)["nodes"] for text in out.splitlines()]
        self.assertEqual(status, 0)
        self.assertEqual(periods[2]["x/a"]["record"], -periods[2]["x/b"]["record"])
        self.assertGreater(periods[2]["x/a"]["record"], 0)
        self.assertEqual((periods[3]["x/b"]["record"], periods[3]["y/a"]["record"]), (0, 0))

    def test_reserved_tokens_come_first(self):
        jobs = {"db": {"path": ["a"], "demand": 9, "reserve": 60},
                "scan": {"path": ["b"], "demand": 100, "weight": 9}}
        line = json.dumps({"jobs": jobs, "weights": {"b": 9}})
        _, out, _ = alloc(*PLAIN, "--tree", "export,jobid", stdin=line)
        self.assertEqual(json.loads(out)["nodes"]["a"]["initial"], 6)

    def test_bad_trees_are_refused(self):
        for levels in ("", "projid,projid", "project,jobid", "subnet", "subnet/0", "jobid,"):
            status, out, err = alloc(*PLAIN, "--tree", levels, stdin=self.LINE)
            self.assertEqual((status, out), (64, ""), levels)
            self.assertIn("--tree", err)
        self.assertEqual(alloc(*self.TREE, "--explain", stdin="")[0], 64)

    def test_bad_lines_are_told_and_skipped(self):
        bad = ["{", "[]", "{}", '{"jobs":{},"jobs":{}}', '{"jobs":[]}', '{"jobs":{},"x":1}',
               '{"jobs":{"a":{"path":["x","y"]}}}', '{"jobs":{"a":{"path":["x"],"demand":1}}}',
               '{"jobs":{"a":{"path":"x","demand":1}}}',
               '{"jobs":{"a/b":{"path":["x","y"],"demand":1}}}',
               '{"jobs":{"a":{"path":["x/y","z"],"demand":1}}}',
               '{"jobs":{"a":{"path":["x",1],"demand":1}}}',
               '{"jobs":{"a":{"path":["x","y"],"demand":-1}}}',
               '{"jobs":{"a":{"path":["x","y"],"demand":1,"nodes":1}}}']
        for key, values in (("weight", (0, 10**12, "1", 1.5)), ("reserve", (-1, 10**13, "5"))):
            bad += [json.dumps({"jobs": {"a": {"path": ["x", "y"], "demand": 1, key: value}}})
                    for value in values]
        bad += [json.dumps({"jobs": {}, "weights": {"x": value}}) for value in (0, 10**12, -1, "2")]
        status, out, err = alloc(*self.TREE, stdin="\n".join(bad) + "\n" + self.LINE)
        self.assertEqual((status, len(out.splitlines())), (65, 1), err)
        self.assertEqual(len(err.splitlines()), len(bad), err)

    def test_a_hundred_thousand_users_in_one_project(self):
        jobs = {f"j{i}": {"path": ["p", f"u{i}"], "demand": 1} for i in range(100_000)}
        line = json.dumps({"jobs": jobs})
        status, out, err = alloc("--rate", "1M", "--period", "100ms",
                                 "--tree", "projid,uid,jobid", stdin=line)
        self.assertEqual((status, err), (0, ""))
        nodes = json.loads(out)["nodes"]
        self.assertEqual((nodes["p"]["final"], nodes["p/u7/j7"]["final"]), (100_000, 1))


class Explains(unittest.TestCase):
    def test_who_lent_to_whom_and_why(self):
        lines = period(a=(3, 2), b=(1, 20)) + period(a=(3, 20), b=(1, 20)) + period()
        status, out, err = alloc(*PLAIN, "--explain", stdin=lines)
        self.assertEqual((status, err), (0, ""))
        for sentence in ("'a' lends 6 tokens: its demand is only 2",
                         "'b' borrows 6 tokens: its demand is 20, and it has 2",
                         "'b' repays 3 tokens to 'a', because it borrowed before",
                         "'a' gets 3 tokens back that it lent before",
                         "'a' gets 10 tokens and has lent 3 tokens",
                         "period 3: no job is active; no tokens are allocated"):
            self.assertIn(sentence, out)


class RefusesBadInput(unittest.TestCase):
    FORM = 'expected {"jobs":{"ID":{"nodes":N,"demand":N},...}}'
    LINES = {
        "nonsense": "column 2: syntax error while parsing value - invalid literal; " + FORM,
        "[]": "an array is not a period; " + FORM,
        "7": "7 is not a period; " + FORM,
        "{}": 'there is no "jobs"; ' + FORM,
        '{"jobs":null}': '"jobs" is null; ' + FORM,
        '{"jobs":{},"more":1}': "unknown key 'more'; " + FORM,
        '{"jobs":{},"jobs":{}}': '"jobs" is given twice; give each key once',
        '{"jobs":{"a":1}}': """job 'a' is 1; expected {"nodes":N,"demand":N}""",
        '{"jobs":{"a":{"nodes":1}}}': """job 'a' has no demand; expected {"nodes":N,"demand":N}""",
        '{"jobs":{"a":{"nodes":1,"demand":1,"x":1}}}':
            "unknown key 'x' of job 'a'; expected nodes and demand",
        '{"jobs":{"a":{"nodes":1,"nodes":2,"demand":1}}}':
            "nodes of job 'a' is given twice; give each key once",
        '{"jobs":{"a":{"nodes":1,"demand":1},"a":{"nodes":1,"demand":1}}}':
            "job 'a' is given twice; give each job once",
        '{"jobs":{"%s":{"nodes":1,"demand":1}}}' % ("x" * 32):
            f"job id '{'x' * 32}' has 32 bytes; at most 31 fit",
    }
    NUMBERS = {"nodes": ("0", "-1", "1.5", "true", "1099511627777", "1e3", '"1"', "[]", "{}"),
               "demand": ("-1", "0.5", "null", "9223372036854775808", "1e400", "9" * 30)}

    def refuses(self, line, message):
        status, out, err = alloc(*PLAIN, stdin=line + "\n")
        self.assertEqual((status, out), (65, ""), line)
        self.assertTrue(err.startswith("weir alloc: line 1: " + message), err)
        self.assertEqual(err.count("\n"), 1)

    def test_lines(self):
        for line, message in self.LINES.items():
            self.refuses(line, message)

    def test_numbers(self):
        for key, values in self.NUMBERS.items():
            for value in values:
                fields = {"nodes": "1", "demand": "1", key: value}
                line = '{"jobs":{"a":{"nodes":%(nodes)s,"demand":%(demand)s}}}' % fields
                if value == "1e400":  # not a number: an error in the text
                    self.refuses(line, "column ")
                else:
                    self.refuses(line, f"{key} of job 'a': ")

    def test_the_rest_is_processed_as_if_the_line_were_not_there(self):
        good = [period(a=(3, 2), b=(1, 20)), period(a=(3, 20), b=(1, 20))]
        _, expected, _ = alloc(*PLAIN, stdin="".join(good))
        bad = good[0] + "{\n" + "\n" + '{"jobs":{"a":{"nodes":0,"demand":1}}}\n' + good[1]
        status, out, err = alloc(*PLAIN, stdin=bad)
        self.assertEqual((status, out), (65, expected))
        self.assertEqual([line.split(":")[1] for line in err.splitlines()], [" line 2", " line 4"])

    def test_options(self):
        for options, message in (
                (("--rate", "0", "--period", "1s"), "--rate: '0': rate must not be zero; write"),
                (("--rate", "5", "--period", "0s"), "--period: '0s': must not be zero; try 100ms"),
                (("--rate", "5", "--period", "2h"), "--period: '2h': longer than 1h"),
                (("--rate", "5", "--period", "1s", "--half-life", "0s"),
                 "--half-life: '0s': must not be zero; try 60s"),
                (("--rate", "5"), "--period is required; try 'weir alloc --help'"),
                (("--period", "1s"), "--rate is required; try 'weir alloc --help'")):
            status, out, err = alloc(*options)
            self.assertEqual((status, out), (64, ""))
            self.assertTrue(err.startswith("weir alloc: " + message), err)

    def test_a_file_that_is_not_there(self):
        self.assertEqual(alloc(*PLAIN, "/nonexistent"),
                         (66, "", "weir alloc: '/nonexistent': No such file or directory\n"))
        self.assertEqual(alloc(*PLAIN, "/"), (74, "", "weir alloc: '/': Is a directory\n"))


if __name__ == "__main__":
    unittest.main()
