# SPDX-License-Identifier: Apache-2.0
"""weir lustre, the binary, against a modelled server as a file system (lustrefs), in real time."""
import contextlib
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import tempfile
import time
import unittest

from tree import WEIR, driver, lustre, wait_until

HOG = ("job=hog,16,4", "burst=big,60,700,16", "rule=start admin jobid={backup} rate=77")
NODES = "big 3\nhog 1\n"


class Scratch(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.map = self.folder / "map"
        self.nodes = self.folder / "nodes"
        self.nodes.write_text(NODES)

    def run_weir(self, *arguments):
        return subprocess.run([WEIR, "lustre", *arguments], capture_output=True, text=True,
                              timeout=60)


class Drives(Scratch):
    def test_holds_the_hog_in_bursts_and_removes_its_rules(self):
        with lustre("cpts=2", "tbf=jobid", *HOG) as server:
            before = server.foreign()
            with driver(server, "--capacity", "400", "--nodes", str(self.nodes),
                        map_file=self.map) as weir:
                wait_until(lambda: any("jobid={hog}" in line for line in server.own()),
                           "a rule for the hog")
                lines = [line.split(", ref")[0] for line in server.own()]
                self.assertIn(len(lines), (0, 4))  # both CPTs and heads, unless it is gone again
                weir.send_signal(signal.SIGTERM)
                self.assertEqual(weir.wait(60), 0)
                self.assertIn("0 processes of lctl", weir.stdout.read())
            self.assertEqual(server.own(), [])
            self.assertEqual(server.foreign(), before)

    def test_a_dry_run_prints_and_writes_nothing(self):
        with lustre("tbf=jobid", *HOG) as server:
            with driver(server, "--dry-run", "--capacity", "400", "--nodes", str(self.nodes),
                        map_file=self.map) as weir:
                line = ""
                while "start weir" not in line:
                    line = weir.stdout.readline()
                    self.assertTrue(line, "it ended without a line")
                self.assertRegex(line, r"start weir\d{5} jobid=\{hog\} rate=\d+ rank=default +# ")
                self.assertEqual(server.own(), [])
            self.assertFalse(self.map.exists())

    def test_the_guard_removes_the_rules_of_a_driver_that_was_killed(self):
        with lustre("tbf=jobid", *HOG) as server:
            before = server.foreign()
            with driver(server, "--capacity", "400", "--nodes", str(self.nodes),
                        map_file=self.map) as weir:
                wait_until(server.own, "a rule")
                weir.kill()
                weir.wait()
                wait_until(lambda: not server.own(), "the guard has removed it")
            self.assertEqual(server.foreign(), before)

    def test_the_guard_removes_the_rules_of_a_driver_that_hangs(self):
        with lustre("tbf=jobid", *HOG) as server:
            with driver(server, "--capacity", "400", "--nodes", str(self.nodes), "--dead-man",
                        "300ms", map_file=self.map) as weir:
                wait_until(server.own, "a rule")
                weir.send_signal(signal.SIGSTOP)
                try:
                    wait_until(lambda: not server.own(), "the guard has removed it")
                finally:
                    weir.send_signal(signal.SIGCONT)
                wait_until(server.own, "it goes on when it can")

    def test_a_file_that_blocks_for_long_leaves_no_old_rule(self):
        """A read that does not return stops the driver; its guard acts meanwhile."""
        with lustre("tbf=jobid", *HOG) as server:
            before = server.foreign()
            with driver(server, "--capacity", "400", "--nodes", str(self.nodes), "--dead-man",
                        "500ms", map_file=self.map) as weir:
                wait_until(server.own, "a rule")
                server.write("control", "block 10000")
                began = time.monotonic()
                wait_until(lambda: not server.own(), "the guard has removed it")
                self.assertLess(time.monotonic() - began, 9)
                wait_until(server.own, "it goes on when it can")
                self.assertGreater(time.monotonic() - began, 9)
                weir.send_signal(signal.SIGTERM)
                self.assertEqual(weir.wait(60), 0)
                self.assertIn("guard: the driver hangs; its rules on ost_io are removed",
                              weir.stdout.read())
            self.assertEqual(server.foreign(), before)

    def test_survives_a_restart_of_the_server(self):
        with lustre("tbf=jobid", *HOG) as server:
            with driver(server, "--capacity", "400", "--nodes", str(self.nodes),
                        map_file=self.map) as weir:
                wait_until(server.own, "a rule")
                server.write("control", "restart")
                server.write("sys/kernel/debug/lustre/ost/OSS/ost_io/nrs_policies", "tbf jobid")
                wait_until(server.own, "a rule again")
                self.assertIsNone(weir.poll())

    def test_set_policy_starts_tbf_again_on_a_restarted_server(self):
        """Such a server comes up with fifo, under which the file of rules cannot be read."""
        def own():
            with contextlib.suppress(OSError):
                return server.own()

        with lustre("tbf=jobid", *HOG) as server:
            with driver(server, "--set-policy", "--capacity", "400", "--nodes", str(self.nodes),
                        "--dead-man", "500ms", map_file=self.map) as weir:
                for _ in range(2):
                    wait_until(own, "a rule")
                    server.write("control", "restart")
                wait_until(own, "a rule again")
                weir.send_signal(signal.SIGTERM)
                self.assertEqual(weir.wait(60), 0)
                self.assertIn("starting 'tbf jobid' again", weir.stdout.read())

    def test_a_period_that_is_too_short_is_lengthened_and_reported_once(self):
        with lustre("tbf=jobid", "idle=2000") as server:
            done = self.run_weir("run", "--root", server.root, "--map", self.map, "--lctl",
                                 "never", "--period", "10ms", "--rounds", "15")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(done.stderr.count("too long for a period of 10ms"), 1, done.stderr)
            self.assertRegex(done.stderr, r"15 rounds, [1-9]\d* late")

    def test_gives_up_on_a_server_that_refuses_every_write(self):
        with lustre("tbf=jobid", *HOG) as server:
            with driver(server, "--capacity", "400", "--nodes", str(self.nodes),
                        map_file=self.map) as weir:
                wait_until(server.own, "a rule")
                server.write("control", "fail 5")
                self.assertEqual(weir.wait(60), 75)
                self.assertIn("Input/output error", weir.stdout.read())


class Services(Scratch):
    """A node with OSTs and an MDT, and one driver for both."""
    OSS = ("tbf=jobid", "rate=2000", "job=hog,16,4", "job=big,16,4")
    MDS = ("mds=2000", "mds-tbf=jobid", "mds-job=make,mkdir,16,4", "mds-job=stat,getattr,16,4")

    def test_one_driver_for_both_services(self):
        self.nodes.write_text("big 3\nhog 1\nstat 3\nmake 1\n")
        socket = self.folder / "control"
        rules = "sys/kernel/debug/lustre/mds/MDS/mdt/nrs_tbf_rule"

        def ask(*arguments):
            return self.run_weir(*arguments, "--control", socket).stdout

        with lustre(*self.OSS, *self.MDS) as server:
            done = self.run_weir("check", "--root", server.root, "--map", self.map)
            self.assertEqual(done.returncode, 0, done.stdout)
            self.assertRegex(done.stdout, r"service    ost_io\n(.*\n)*service    mdt\n")
            self.assertRegex(done.stdout, r"lustre-MDT0000: \d jobs? in job_stats\n")
            with driver(server, "--nodes", str(self.nodes), "--control", str(socket),
                        map_file=self.map) as weir:
                wait_until(lambda: re.search(r"mdt: make held at \d+/s since .* because stat is "
                                             r"entitled to .*; its requests take \S+ times the",
                                             ask("explain", "make")), "its reason")
                self.assertRegex(ask("status"), r"service    ost_io(.*\n)*jobs       2, (.*\n)*\n"
                                                r"service    mdt,")
                self.assertRegex(ask("top"), r"(?m)^mdt\n")
                self.assertIn('weir_lustre_job_rate{service="mdt",job="make"}', ask("metrics"))
                weir.send_signal(signal.SIGTERM)
                self.assertEqual(weir.wait(60), 0)
                out = weir.stdout.read()
                self.assertIn("adjusting the rules of ost_io and mdt", out)
                self.assertIn('on="mds.MDS.mdt.nrs_tbf_rule"', out)
            self.assertEqual(server.own(), [])
            self.assertNotIn("jobid={make}", (server.root / rules).read_text())
            self.assertTrue((self.folder / "map.mdt").exists())

    def test_the_guard_removes_the_rules_of_every_service(self):
        self.nodes.write_text("big 3\nhog 1\nstat 3\nmake 1\n")
        rules = "sys/kernel/debug/lustre/mds/MDS/mdt/nrs_tbf_rule"
        with lustre(*self.OSS, *self.MDS) as server:
            with driver(server, "--nodes", str(self.nodes), map_file=self.map) as weir:
                wait_until(lambda: "jobid={make}" in (server.root / rules).read_text(),
                           "a rule on mdt")
                weir.kill()
                weir.wait()
                wait_until(lambda: "weir0" not in server.rules() +
                           (server.root / rules).read_text(), "the guard has removed them")

    def test_a_service_without_tbf_is_left_alone(self):
        with lustre("tbf=jobid", *HOG, "mds=2000") as server:
            arguments = ("--root", server.root, "--map", self.map, "--lctl", "never")
            done = self.run_weir("run", "--rounds", "3", *arguments)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("mdt is left alone: ", done.stderr)
            self.assertIn("adjusting the rules of ost_io every", done.stderr)
            done = self.run_weir("run", "--service", "mdt", *arguments)
            self.assertEqual(done.returncode, 78, done.stderr)
            self.assertIn("lctl set_param mds.MDS.mdt.nrs_policies='tbf jobid'", done.stderr)
            self.assertEqual(self.run_weir("run", "--service", "ldlm", *arguments).returncode, 64)

    def test_a_recording_of_an_mds(self):
        file = self.folder / "recording"
        with lustre("tbf=jobid", *HOG, *self.MDS) as server:
            done = self.run_weir("record", file, "--root", server.root, "--rounds", "150",
                                 "--service", "mdt")
            self.assertEqual(done.returncode, 0, done.stderr)
        self.nodes.write_text("stat 3\nmake 1\n")
        done = self.run_weir("what-if", file, "--nodes", self.nodes)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"(?m)^recording    mdt from .* 150 rounds")
        self.assertRegex(done.stdout, r"(?m)^'make' +1 +\d+ +[1-9]")

    def test_tables_of_costs(self):
        table = self.folder / "costs"
        with lustre("tbf=jobid", *HOG, *self.MDS) as server:
            arguments = ("run", "--root", server.root, "--dry-run", "--rounds", "3", "--costs")
            for text, status in (("mkdir 10\n", 0), ("mkdirs 10\n", 65), ("mkdir 0\n", 65)):
                table.write_text(text)
                done = self.run_weir(*arguments, table)
                self.assertEqual(done.returncode, status, done.stderr)
            self.assertEqual(self.run_weir(*arguments, "equal").returncode, 0)
            done = self.run_weir(*arguments, "equal", "--capacity", "400")
            self.assertEqual(done.returncode, 64, done.stderr)
            self.assertIn("this node has ost_io and mdt; name one with --service", done.stderr)
            self.assertEqual(self.run_weir(*arguments, self.folder / "none").returncode, 66)


class Algorithms(Scratch):
    def test_the_published_algorithm_has_a_rule_for_every_active_job(self):
        with lustre("tbf=jobid", "job=hog,16,4", "job=big,16,4") as server:
            with driver(server, "--algorithm", "paper", "--capacity", "400", "--nodes",
                        str(self.nodes), map_file=self.map) as weir:
                wait_until(lambda: len({line.split()[1] for line in server.own()}) == 2,
                           "rules for both jobs")
                weir.send_signal(signal.SIGTERM)
                self.assertEqual(weir.wait(60), 0)
                out = weir.stdout.read()
                self.assertIn("every 100ms with the published algorithm", out)
                self.assertRegex(out, r'audit: change who="weir lustre pid \d+" '
                                      r'what="start weir\d{5} jobid={big} rate=\d+ rank=default" '
                                      r'on="ost.OSS.ost_io.nrs_tbf_rule" before="none" '
                                      r'after="\d+/s, because as published')
            self.assertEqual(server.own(), [])

    def test_it_needs_a_capacity(self):
        done = self.run_weir("run", "--algorithm", "paper", "--root", self.folder)
        self.assertEqual(done.returncode, 64)
        self.assertIn("--capacity", done.stderr)

    def test_a_second_driver_is_refused_whatever_its_algorithm_map_and_prefix(self):
        with lustre("tbf=jobid", *HOG) as server:
            with driver(server, "--capacity", "400", "--nodes", str(self.nodes),
                        map_file=self.map) as weir:
                wait_until(server.own, "a rule")
                done = self.run_weir("run", "--root", server.root, "--map", self.folder / "other",
                                     "--prefix", "second", "--algorithm", "paper", "--capacity",
                                     "400", "--lctl", "never")
                self.assertEqual(done.returncode, 73, done.stderr)
                self.assertIn("another weir lustre run adjusts its rules", done.stderr)
                self.assertNotIn("second0", server.rules())
                # It may watch.
                done = self.run_weir("run", "--root", server.root, "--dry-run", "--algorithm",
                                     "paper", "--capacity", "400", "--rounds", "5")
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertIsNone(weir.poll())


class Recordings(Scratch):
    def test_a_recording_shows_what_would_have_been_done(self):
        file = self.folder / "recording"
        with lustre("tbf=jobid", *HOG[:2]) as server:
            before = server.rules()
            done = self.run_weir("record", file, "--root", server.root, "--rounds", "150",
                                 "--nodes", self.nodes)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("nothing is changed", done.stderr)
            self.assertEqual(server.foreign(), [line.split(", ref")[0]
                                                for line in before.splitlines()])
            done = self.run_weir("record", file, "--root", server.root)
            self.assertEqual(done.returncode, 73)
            self.assertIn("File exists; name another file", done.stderr)
        done = self.run_weir("what-if", file, "--capacity", "400")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stdout, r"(?m)^recording    ost_io from .* 150 rounds")
        self.assertRegex(done.stdout, r"(?m)^'hog' +1 +\d+ +[1-9]")
        self.assertRegex(done.stdout, r"(?m)^'big' +3 ")
        self.assertIn("not what was asked for", done.stdout)
        whole = file.read_bytes()
        file.write_bytes(whole[:len(whole) * 2 // 3])
        done = self.run_weir("what-if", file, "--algorithm", "paper", "--capacity", "400")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("the file is cut: it was read up to ", done.stdout)
        self.assertIn("algorithm    paper", done.stdout)
        for text, why in ((b"", "is empty"), (b"job_stats:\n", "is not a recording"),
                          (whole.replace(b" 1\n", b" 9\n", 1), "version '9' of the format"),
                          (whole + whole, "another recording begins there"),
                          (whole[:whole.index(b"B")], "has no rounds")):
            file.write_bytes(text)
            done = self.run_weir("what-if", file)
            self.assertEqual(done.returncode, 65, done.stderr)
            self.assertIn(why, done.stderr)
            self.assertIn(str(file), done.stderr)
        self.assertEqual(self.run_weir("what-if", self.folder / "none").returncode, 66)
        self.assertEqual(self.run_weir("what-if").returncode, 64)

    def test_a_dry_run_ends_with_a_summary(self):
        with lustre("tbf=jobid", *HOG) as server:
            done = self.run_weir("run", "--root", server.root, "--dry-run", "--capacity", "400",
                                 "--nodes", self.nodes, "--rounds", "75")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertRegex(done.stdout, r"(?m)^  'hog' +\d+ times?, \S+ in all")


class Control(Scratch):
    def test_the_socket_tells_what_the_driver_does_and_why(self):
        socket = self.folder / "control"

        def ask(*arguments):
            return self.run_weir(*arguments, "--control", socket)

        def shows(line, *action):  # at times: the hog may be released for a moment
            wait_until(lambda: re.search(line, ask(*action).stdout), line)

        with lustre("tbf=jobid", "job=hog,16,4", "job=big,16,4") as server:
            with driver(server, "--capacity", "400", "--nodes", str(self.nodes), "--control",
                        str(socket), map_file=self.map) as weir:
                shows(r"ost_io: hog held at \d+/s since \d\d:\d\d:\d\d because big is entitled to",
                      "explain", "hog")
                shows(r"service    ost_io, algorithm weir\n(.*\n)*jobs       2, 1 held", "status")
                shows(r"(?m)^hog +1 backlogged +\d+ +\d+ +\d+  held", "top")
                shows(r'weir_lustre_job_rate{service="ost_io",job="hog"} [1-9]', "metrics")
                done = ask("explain", "nobody")
                self.assertNotEqual(done.returncode, 0)
                self.assertIn("no job nobody was active lately", done.stderr)
                self.assertIn("RECORD", ask("ledger").stdout)
                job = next(job for job in
                           json.loads(ask("status", "--json").stdout)["services"][0]["jobs"]
                           if job["job"] == "hog")
                self.assertEqual(job["nodes"], 1)
                weir.send_signal(signal.SIGTERM)
                self.assertEqual(weir.wait(60), 0)
        done = ask("status")
        self.assertEqual(done.returncode, 69, done.stderr)


class Crashes(Scratch):
    def test_200_kills_leave_what_is_not_ours_as_it_was(self):
        chance = random.Random(7)
        with lustre("cpts=2", "tbf=jobid", "job=hog,16,4", "burst=big,30,200,16",
                    "rule=start admin jobid={backup} rate=77",
                    "rule=start weird jobid={x.*} rate=9") as server:
            before = server.foreign()
            command = [WEIR, "lustre", "run", "--root", server.root, "--map", self.map, "--lctl",
                       "never", "--capacity", "400", "--nodes", self.nodes, "--period", "10ms"]
            for _ in range(200):
                # Its guard dies with it: what is left is for the next start.
                weir = subprocess.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True)
                time.sleep(chance.uniform(0.01, 0.12))
                os.killpg(weir.pid, signal.SIGKILL)
                weir.wait()
                self.assertEqual(server.foreign(), before)
            done = subprocess.run([*command, "--rounds", "1"], capture_output=True, text=True,
                                  timeout=60)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(server.own(), [])
            self.assertEqual(server.foreign(), before)


class Checks(Scratch):
    def test_a_server_that_is_ready(self):
        with lustre("tbf=jobid", *HOG, "idle=3") as server:
            done = self.run_weir("check", "--root", server.root, "--map", self.map)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            for word in ("lustre-OST0000", "tbf jobid", "1 others", "directly", "ready"):
                self.assertIn(word, done.stdout)

    def test_tbf_does_not_run(self):
        with lustre(*HOG[:2]) as server:
            for action in ("check", "run"):
                done = self.run_weir(action, "--root", server.root, "--map", self.map)
                self.assertEqual(done.returncode, 78)
                self.assertIn("--set-policy", done.stdout + done.stderr)

    def test_set_policy_starts_tbf_by_way_of_fifo(self):
        with lustre("tbf=nid", *HOG[:2]) as server:
            done = self.run_weir("run", "--root", server.root, "--map", self.map)
            self.assertEqual(done.returncode, 78)
            self.assertIn("'nid'", done.stderr)
            done = self.run_weir("run", "--root", server.root, "--map", self.map, "--set-policy",
                                 "--rounds", "2", "--lctl", "never")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertIn("tbf jobid", (server.rules_path.parent / "nrs_policies").read_text())

    def test_no_lustre_here(self):
        for action in ("check", "run"):
            done = self.run_weir(action, "--root", self.folder, "--map", self.map)
            self.assertEqual(done.returncode, 66)
            self.assertIn("OSS", done.stdout + done.stderr)

    def test_job_stats_that_is_none(self):
        with lustre("tbf=jobid") as server:
            copy = self.folder / "copy"
            for path in ("nrs_policies", "nrs_tbf_rule"):
                file = copy / "sys/kernel/debug/lustre/ost/OSS/ost_io" / path
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_text((server.rules_path.parent / path).read_text())
            stats = copy / "proc/fs/lustre/obdfilter/lustre-OST0000/job_stats"
            stats.parent.mkdir(parents=True)
            stats.write_bytes(b"\x00\xff no job_stats\n")
            done = self.run_weir("run", "--root", copy, "--map", self.map)
            self.assertEqual(done.returncode, 74)
            self.assertIn("job_stats", done.stderr)

    def test_lctl_stands_in_where_files_cannot_be_written(self):
        with lustre("tbf=jobid", *HOG) as server:
            fake = self.folder / "lctl"
            fake.write_text("#!/bin/sh\n"
                            f"printf '%s' \"${{3#*=}}\" > {server.rules_path} || exit 22\n")
            fake.chmod(0o755)
            with driver(server, "--lctl-program", str(fake), "--capacity", "400", "--nodes",
                        str(self.nodes), map_file=self.map, lctl="always") as weir:
                wait_until(server.own, "a rule")
                weir.send_signal(signal.SIGTERM)
                self.assertEqual(weir.wait(60), 0)
                self.assertNotIn(" 0 processes of lctl", weir.stdout.read())
            self.assertEqual(server.own(), [])

    def copy_of(self, server):
        """The files as they are, to be spoilt."""
        copy = self.folder / "copy"
        for path in ("nrs_policies", "nrs_tbf_rule"):
            file = copy / "sys/kernel/debug/lustre/ost/OSS/ost_io" / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text((server.rules_path.parent / path).read_text())
        target = copy / "proc/fs/lustre/obdfilter/lustre-OST0000"
        target.mkdir(parents=True)
        for path in ("job_stats", "stats"):
            (target / path).write_text(
                (server.root / "proc/fs/lustre/obdfilter/lustre-OST0000" / path).read_text())
        return copy, target

    def test_no_debugfs_mounted(self):
        with lustre("tbf=jobid", "idle=1") as server:
            copy, _ = self.copy_of(server)
            (copy / "sys").rename(copy / "elsewhere")
            done = self.run_weir("run", "--root", copy, "--map", self.map, "--lctl", "never")
            self.assertEqual(done.returncode, 66)
            self.assertIn("nrs_policies", done.stderr)

    def test_job_stats_that_is_cut_and_ids_of_any_bytes(self):
        entry = ("- job_id:          {}\n  snapshot_time:   1755600000.1 secs.nsecs\n"
                 "  read_bytes:      {{ samples:           3, unit: bytes, min: 1, max: 1, sum: 3, "
                 "sumsq: 3 }}\n")
        ids = ['"a\\x20b"', '"quo\\x22te"', '"new\\x0Aline"', '"\xe4\\x80"', "dd.0",
               *(f"job{i}" for i in range(1000))]
        with lustre("tbf=jobid", "idle=1") as server:
            copy, target = self.copy_of(server)
            text = "job_stats:\n" + "".join(entry.format(each) for each in ids)
            (target / "job_stats").write_bytes((text + "- job_id:       cu").encode("latin-1"))
            done = self.run_weir("check", "--root", copy, "--map", self.map)
            self.assertEqual(done.returncode, 0, done.stdout)
            self.assertIn("1005 jobs in job_stats, which is truncated, 3 that no rule can name",
                          done.stdout)
            done = self.run_weir("run", "--root", copy, "--map", self.map, "--lctl", "never",
                                 "--rounds", "3")
            self.assertEqual(done.returncode, 0, done.stderr)

    @unittest.skipUnless(os.geteuid() == 0, "becomes another user")
    def test_no_permission(self):
        with lustre("tbf=jobid", "idle=1") as server:
            copy, target = self.copy_of(server)
            for folder in (self.folder, copy):
                folder.chmod(0o755)
            (target / "job_stats").chmod(0o000)
            done = subprocess.run([WEIR, "lustre", "check", "--root", copy], capture_output=True,
                                  text=True, timeout=60, user=65534)
            self.assertEqual(done.returncode, 66)
            self.assertIn("NOT READY", done.stdout)
            self.assertIn("root", done.stdout)

    @unittest.skipUnless(os.geteuid() == 0, "becomes another user")
    def test_what_cannot_be_written_is_not_ready_and_lctl_is_for_this_machine_only(self):
        with lustre("tbf=jobid", "idle=1") as server:
            copy, _ = self.copy_of(server)
        fake = self.folder / "lctl"
        fake.write_text(f"#!/bin/sh\ntouch {self.folder}/called\n")
        for path in (self.folder, copy, fake):
            path.chmod(0o777)
        run = {"capture_output": True, "text": True, "timeout": 60, "user": 65534}
        done = subprocess.run([WEIR, "lustre", "check", "--root", copy, "--map",
                               self.folder / "no/map"], **run)
        self.assertEqual(done.returncode, 66, done.stdout)
        self.assertRegex(done.stdout, r"(?m)^writes +NOT READY: .*Permission denied")
        self.assertRegex(done.stdout, r"(?m)^map +NOT READY: .*/no/: No such file")
        policies = copy / "sys/kernel/debug/lustre/ost/OSS/ost_io/nrs_policies"
        policies.write_text(policies.read_text().replace("tbf jobid", "tbf nid"))
        for arguments in (("--lctl", "never"), ("--lctl-program", fake)):
            done = subprocess.run([WEIR, "lustre", "run", "--set-policy", "--root", copy, "--map",
                                   self.map, *arguments], **run)
            self.assertEqual(done.returncode, 66, done.stderr)
            self.assertIn("nrs_policies: Permission denied; run as root", done.stderr)
        self.assertFalse((self.folder / "called").exists())

    def test_a_dry_run_tells_of_the_policy_it_would_set(self):
        with lustre("tbf=nid", *HOG[:2]) as server:
            policies = server.rules_path.parent / "nrs_policies"
            done = self.run_weir("run", "--root", server.root, "--dry-run", "--set-policy")
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertRegex(done.stdout, r"^fifo +# nrs_policies: .*'nid'.*\ntbf jobid +# ")
            self.assertIn("tbf nid", policies.read_text())

    def test_misuse(self):
        self.map.write_text("something else\n")
        done = self.run_weir("check", "--map", self.map, "--root", self.folder)
        self.assertEqual(done.returncode, 73)
        self.assertIn(str(self.map), done.stderr)
        self.map.write_text("")  # what was in it is lost, and with it whose rules are whose
        with lustre("tbf=jobid", *HOG[:2]) as server:
            for action in ("check", "run"):
                done = self.run_weir(action, "--map", self.map, "--root", server.root)
                self.assertEqual(done.returncode, 73, done.stderr)
                self.assertIn("is empty, so rules of an earlier run", done.stderr)
        self.assertEqual(self.map.read_text(), "")
        self.map.unlink()
        for wrong in (("--capacity", "0"), ("--rounds", "-1"), ("--nodes", self.folder / "none")):
            done = self.run_weir("run", "--map", self.map, *wrong)
            self.assertIn(done.returncode, (64, 66))
            self.assertIn(wrong[0], done.stderr)
            self.assertNotIn("guard", done.stderr)
        self.assertEqual(self.run_weir("fly").returncode, 64)
        self.assertEqual(self.run_weir("run", "--period", "1ns").returncode, 64)
        done = self.run_weir("run", "--prefix", "a.b", "--map", self.map)
        self.assertEqual(done.returncode, 64)
        self.assertIn("prefix", done.stderr)


if __name__ == "__main__":
    unittest.main()
