# SPDX-License-Identifier: Apache-2.0
"""weir sim --workload: recordings of other programs as users have them, good and bad."""
import json
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(os.environ.get("WEIR_SOURCE_DIR", pathlib.Path(__file__).parents[2]))
WEIR = os.environ.get("WEIR_BIN", str(ROOT / "build/dev/apps/weir/weir"))
RELEASE = os.environ.get("WEIR_RELEASE_BIN",
                         str((ROOT / "build/release/apps/weir/weir").resolve()))
RECORDED = (ROOT / "tests/recorded/workload").resolve()
STUCK = 100
MSR = "{},usr,{},Read,7014609920,4096,41286\n"


class WorkloadTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def weir(self, *arguments):
        done = subprocess.run([WEIR, "sim", *map(str, arguments)], capture_output=True, text=True,
                              timeout=STUCK, check=False, cwd=self.folder)
        return done.returncode, done.stdout, done.stderr.replace(str(self.folder) + "/", "")

    def runs(self, *arguments):
        status, out, err = self.weir(*arguments)
        self.assertEqual((status, err), (0, ""))
        return out

    def result(self, *arguments):
        self.runs(*arguments, "-q", "--out", "out")
        return json.loads((self.folder / "out/result.json").read_text(encoding="utf-8"))

    def refused(self, message, *arguments, status=65):
        got, out, err = self.weir(*arguments)
        self.assertEqual((got, out, err), (status, "", f"weir sim: {message}\n"))

    def file(self, text, name="w"):
        path = self.folder / name
        path.write_text(text, encoding="utf-8")
        return path


class Recordings(WorkloadTest):
    def test_fio_version_3(self):
        result = self.result("--workload", RECORDED / "reader.v3.iolog",
                             "--workload", RECORDED / "writer.v3.iolog", "--policy", "none,weir")
        for policy in ("none", "weir"):
            jobs = result["policies"][policy]["jobs"]
            self.assertEqual({name: job["served"] for name, job in jobs.items()},
                             {"reader": 128, "writer": 23})
            self.assertEqual(result["policies"][policy]["findings"], 0)
        self.assertEqual(result["workload"][1]["not_simulated"], {"flushes": 1})

    def test_fio_version_2_that_fio_itself_replays(self):
        log = RECORDED / "writer.v2.iolog"
        done = subprocess.run(["fio", "--name=x", "--ioengine=null", f"--read_iolog={log}",
                               "--output-format=json"], capture_output=True, text=True,
                              timeout=STUCK, check=True, cwd=self.folder)
        by_fio = json.loads(done.stdout)["jobs"][0]
        result = self.result("--workload", log, "--policy", "none")
        mine = result["workload"][0]
        self.assertEqual((mine["reads"], mine["requests"] - mine["reads"]),
                         (by_fio["read"]["total_ios"], by_fio["write"]["total_ios"]))

    def test_a_log_that_fio_writes_now(self):
        subprocess.run(["fio", "--name=now", "--ioengine=null", "--rw=randread", "--bs=4k",
                        "--size=1M", "--write_iolog=now.log"], check=True, timeout=STUCK,
                       stdout=subprocess.DEVNULL, cwd=self.folder)
        out = self.runs("--workload", "now.log", "--policy", "none")
        self.assertIn("now.log: fio iolog, version 3, 256 requests, 100 % reads, 1.0 MiB", out)

    def test_blkparse_by_command_and_by_rules(self):
        result = self.result("--workload", RECORDED / "blkparse.txt", "--policy", "weir,mclock",
                             "--nodes", "postgres=4")
        jobs = result["policies"]["weir"]["jobs"]
        self.assertEqual(sorted(jobs), ["cp", "kworker_u8_2", "postgres"])
        self.assertEqual(sum(job["served"] for job in jobs.values()), 60)
        self.assertEqual(jobs["postgres"]["nodes"], 4)
        self.assertEqual(result["workload"][0]["not_simulated"], {
            "flushes": 1, "trims and discards": 1, "events of other stages of a request": 240,
            "lines of messages and summaries": 9})
        result = self.result("--workload", RECORDED / "blkparse.txt", "--policy", "none",
                             "--map", "-: comm=kworker*", "--map", "writes: op=write",
                             "--by", "dev")
        self.assertEqual(sorted(result["policies"]["none"]["jobs"]), ["8_0", "writes"])

    def test_blkparse_of_a_loop_device_as_the_kernel_traced_it(self):
        """dd, two jobs of fio, and blkdiscard; what blkparse itself counted is at its end."""
        log = RECORDED / "loop.blkparse.txt"
        text = log.read_text(encoding="utf-8")
        result = self.result("--workload", log, "--policy", "none,weir")
        mine = result["workload"][0]
        total = text[text.index("Total (7,0):"):]
        reads, written = (int(re.search(rf"{kind} Queued: *(\d+)", total)[1])
                          for kind in ("Reads", "Writes"))
        # blkparse counts a discard and a flush as writes.
        self.assertEqual(mine["reads"], reads)
        self.assertEqual(mine["requests"] - mine["reads"], written - 2)
        self.assertEqual(mine["not_simulated"]["trims and discards"], 1)
        self.assertEqual(mine["not_simulated"]["flushes"], 1)
        jobs = result["policies"]["weir"]["jobs"]
        self.assertEqual({name: job["served"] for name, job in jobs.items()},
                         {"dd": 6, "fio": 28, "blkdiscard": 34})
        result = self.result("--workload", log, "--policy", "none", "--by", "pid")
        self.assertEqual(len(result["policies"]["none"]["jobs"]), 4)

    def test_msr_cambridge(self):
        result = self.result("--workload", RECORDED / "msr.csv", "--policy", "none")
        self.assertEqual(sorted(result["policies"]["none"]["jobs"]), ["usr_0", "usr_1", "web_2"])
        self.assertEqual((result["workload"][0]["requests"], result["workload"][0]["sorted"]),
                         (80, 1))


class Scenarios(WorkloadTest):
    def test_a_scenario_has_the_device_the_nodes_and_the_rules(self):
        self.file("0,a,read,4096\n0.001,b,write,4096\n0.5,c,read,4096\n", "w.csv")
        scenario = self.file("""[target]
capacity = 1000
[workload]
files = "w.csv"
map = ["both: job=a", "both: job=b"]
[[job]]
name = "both"
nodes = 3
""", "s.toml")
        result = self.result(scenario, "--policy", "none,weir")
        jobs = result["policies"]["weir"]["jobs"]
        self.assertEqual({name: (job["nodes"], job["served"]) for name, job in jobs.items()},
                         {"both": (3, 2), "c": (1, 1)})
        # Other files, with the same device.
        self.file("0,x,read,4096\n", "other.csv")
        result = self.result(scenario, "--policy", "none", "--workload", "other.csv")
        self.assertEqual(result["policies"]["none"]["served"], 1)

    def test_seeds_and_length(self):
        arguments = ("--workload", RECORDED / "msr.csv", "--policy", "weir")
        self.assertEqual(self.runs(*arguments), self.runs(*arguments))
        self.assertNotEqual(self.runs(*arguments), self.runs(*arguments, "--seed", "2"))
        out = self.runs(*arguments, "--length", "50ms")
        self.assertIn("read until the end of the run only", out)

    def test_the_report_shows_the_workload(self):
        self.result("--workload", RECORDED / "blkparse.txt", "--policy", "none")
        page = (self.folder / "out/report.html").read_text(encoding="utf-8")
        self.assertIn("240 events of other stages of a request", page)

    def test_a_comparison_is_continued_until_the_workload_changes(self):
        path = self.file("".join(MSR.format(10**17 + i * 50_000, i % 3) for i in range(500)))
        compare = ("compare", "--workload", path, "--policy", "none,weir", "--seeds", "2",
                   "--out", "compared")
        self.assertNotIn("done before", self.runs(*compare))
        self.assertIn("4 runs were done before", self.runs(*compare))
        with open(path, "a", encoding="utf-8") as file:
            file.write(MSR.format(10**17 + 501 * 50_000, 0))
        self.assertNotIn("done before", self.runs(*compare))

    def test_no_times_are_sent_as_a_client_would(self):
        log = self.file("fio version 2 iolog\nf add\nf open\n" + "f read 0 4096\n" * 100)
        out = self.runs("--workload", log, "--policy", "none", "--depth", "4")
        self.assertIn("no times: sent as fast as outstanding requests allow", out)
        self.assertIn("96 requests were held back", out)


class BadInput(WorkloadTest):
    def test_options(self):
        log = self.file("0,a,read,4096\n")
        self.refused("--map: rule 'a': has no job; expected JOB: FIELD=PATTERN ...",
                     "--workload", log, "--map", "a", status=64)
        self.refused("--by: 'x' is not a field; expected file, comm, pid, dev, host, volume, job, "
                     "uid, client, or rules", "--workload", log, "--by", "x", status=64)
        self.refused("--nodes: no job 'b'; there are a", "--workload", log, "--nodes", "b=2",
                     status=64)
        self.refused("'none': No such file or directory", "--workload", "none", status=66)
        self.refused("--workload: has no meaning for group-epochs", "group-epochs",
                     "--workload", log, status=64)

    def test_a_file_of_100_gb_that_is_a_hole(self):
        path = self.folder / "hole"
        with open(path, "wb") as file:
            file.truncate(100 << 30)
        status, _, err = self.weir("--workload", path)
        self.assertEqual(status, 65)
        self.assertIn("'hole': is not a workload: it begins with", err)
        with open(path, "r+b") as file:
            file.write(b"0,a,read,4096\n")
        self.refused("'hole': line 2 is longer than 65536 bytes; the file is damaged, or not a "
                     "text", "--workload", path)

    def test_files_that_are_cut_or_have_other_lines_are_said(self):
        text = MSR.format(10**17, 0) + "garbage\n" + MSR.format(10**17 + 10, 1) + "1000000"
        out = self.runs("--workload", self.file(text), "--policy", "none")
        self.assertIn("  not understood: 1 line; line 2: has 1 columns instead of 7\n", out)
        self.assertIn("  cut: the last line has no newline and was left out\n", out)
        text = "Timestamp,Colour,Hostname,DiskNumber,Type,Size\n100,red,usr,0,Read,512\n"
        out = self.runs("--workload", self.file(text), "--policy", "none")
        self.assertIn("  ignored columns: Colour\n", out)

    def test_comparisons_that_need_a_length(self):
        for text, message in (
                ("0,a,read,4096\n2505600,a,read,4096\n",
                 "--workload: 1 jobs for 29d cannot be compared; give --length "),
                ("fio version 2 iolog\nf read 0 4096\n",
                 "--workload: has no times; give --length, such as --length 60s")):
            status, _, err = self.weir("compare", "--workload", self.file(text), "--out", "out")
            self.assertEqual(status, 64)
            self.assertIn(message, err)

    def test_time_that_goes_back(self):
        text = "".join(MSR.format(10**17 - i, 0) for i in range(20_000))
        status, _, err = self.weir("--workload", self.file(text))
        self.assertEqual(status, 65)
        self.assertIn("'w': is not sorted: ", err)


class Memory(WorkloadTest):
    def peak(self, lines):
        """In KiB, of the release build."""
        path = self.folder / "large.csv"
        with open(path, "w", encoding="utf-8") as file:
            for first in range(0, lines, 10_000):
                file.write("".join(MSR.format(10**17 + i * 10_000, i % 7)
                                   for i in range(first, first + 10_000)))
        code = ("import resource, subprocess, sys; subprocess.run(sys.argv[1:], check=True); "
                "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)")
        done = subprocess.run(["python3", "-c", code, RELEASE, "sim", "--workload", str(path),
                               "--policy", "weir", "-q"], capture_output=True, text=True,
                              timeout=STUCK, check=True)
        return int(done.stdout)

    def test_does_not_grow_with_the_file(self):
        small, large = self.peak(20_000), self.peak(400_000)
        # 20 MB of text; a byte for each line would be 0.4 MB, a request 30 MB.
        self.assertLess(large - small, 4096)


if __name__ == "__main__":
    unittest.main()
