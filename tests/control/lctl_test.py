#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Parameters as on Lustre: output, errors and exit statuses, byte for byte where it matters."""
import os
import re
import tempfile
import unittest

from remote import Remote

IO = "ost.OSS.ost_io."
EXPORTS = ("--export", "a=memory:64MiB", "--export", "b=memory:64MiB", "--adaptive", "off")


class Policies(unittest.TestCase):
    def test_the_commands_of_the_original_design_work_verbatim(self):
        with Remote(*EXPORTS) as it:
            for value in ("tbf nid", "tbf reg nid", "tbf hp nid", "tbf nid"):
                self.assertEqual(it.lctl("set_param", f"{IO}nrs_policies={value}"),
                                 (0, f"{IO}nrs_policies={value}\n", ""))
            for command in ("start loginnode {192.168.1.1@tcp} 10000",
                            "stop loginnode",
                            "reg start loginnode {192.168.1.1@tcp} 10000",
                            "hp start loginnode {192.168.1.1@tcp} 10000",
                            "start computenodes {192.168.1.[1-128]@tcp} 1000",
                            "start other_clients {192.168.*.*@tcp} 100",
                            "change loginnode 1000", "reg change loginnode 1000",
                            "hp change loginnode 1000", "reg stop loginnode", "hp stop loginnode"):
                self.assertEqual(it.lctl("set_param", f"{IO}nrs_tbf_rule={command}"),
                                 (0, f"{IO}nrs_tbf_rule={command}\n", ""), command)
            status, listing, _ = it.lctl("get_param", f"{IO}nrs_tbf_rule")
            self.assertEqual(status, 0)
            self.assertTrue(listing.startswith(f"{IO}nrs_tbf_rule=\nregular_requests:\nCPT 0:\n"),
                            listing)
            self.assertRegex(listing, r"other_clients .*100, ref 0\n")

    def test_a_rule_for_nrs_policies_is_refused_with_a_hint(self):
        with Remote(*EXPORTS) as it:
            status, out, error = it.lctl("set_param",
                                         f"{IO}nrs_policies=start loginnode {{0@lo}} 10")
            self.assertEqual((status, out), (2, ""))
            self.assertEqual(len(error.splitlines()), 3)
            self.assertIn("nrs_tbf_rule", error.splitlines()[2])

    def test_reading_is_byte_exact(self):
        with Remote(*EXPORTS) as it:
            _, text, _ = it.lctl("get_param", f"{IO}nrs_policies")
            self.assertTrue(text.startswith(
                f"{IO}nrs_policies=\n\nregular_requests:\n  - name: fifo\n    state: started\n"
                "    fallback: yes\n    queued: 0                   \n"), text)
            _, bare, _ = it.lctl("get_param", "-n", f"{IO}nrs_policies")
            self.assertEqual(f"{IO}nrs_policies=\n" + bare, text)

    def test_quantum(self):
        with Remote(*EXPORTS) as it:
            self.assertEqual(it.lctl("get_param", f"{IO}nrs_crrn_quantum")[0], 19)
            it.lctl("set_param", f"{IO}nrs_policies=crrn")
            self.assertEqual(it.lctl("set_param", f"{IO}nrs_crrn_quantum=64")[0], 0)
            self.assertEqual(it.lctl("get_param", f"{IO}nrs_crrn_quantum")[1],
                             f"{IO}nrs_crrn_quantum=\nreg_quantum:64   \nhp_quantum:64   \n")


class Errors(unittest.TestCase):
    def test_two_lines_and_the_errno(self):
        with Remote(*EXPORTS) as it:
            for name, value, status, text in (
                    ("nrs_policies", "abc", 2, "No such file or directory"),
                    ("nrs_policies", "tbf jobid+nid+opcode", 22, "Invalid argument"),
                    ("nrs_tbf_rule", "start default jobid={a} rate=1", 17, "File exists"),
                    ("nrs_tbf_rule", "start a jobid={a} rate=10k", 22, "Invalid argument"),
                    ("nrs_tbf_rule", "change nosuch rate=1", 2, "No such file or directory"),
                    ("nrs_tbf_rule", "stop default", 1, "Operation not permitted")):
                self.assertEqual(
                    it.lctl("set_param", f"{IO}{name}={value}"),
                    (status, "",
                     f"error: set_param: setting ost/OSS/ost_io/{name}={value}: {text}\n"
                     f"error: set_param: setting 'ost/OSS/ost_io/{name}'='{value}': {text}\n"),
                    value)

    def test_reading_what_does_not_run(self):
        with Remote(*EXPORTS) as it:
            it.lctl("set_param", f"{IO}nrs_policies=fifo")
            self.assertEqual(it.lctl("get_param", f"{IO}nrs_tbf_rule"),
                             (19, "", "error: read_param: 'ost/OSS/ost_io/nrs_tbf_rule': "
                                      "No such device\n"))

    def test_what_is_not_there(self):
        with Remote(*EXPORTS) as it:
            self.assertEqual(it.lctl("get_param", "no.such"),
                             (2, "", "error: get_param: param_path 'no/such': "
                                     "No such file or directory\n"))
            self.assertEqual(it.lctl("set_param", "no.such=1")[0], 2)
            self.assertEqual(it.lctl("list_param", "no.such")[0], 2)

    def test_the_status_is_that_of_the_last(self):
        with Remote(*EXPORTS) as it:
            bad, good = f"{IO}nrs_policies=abc", f"{IO}nrs_policies=tbf jobid"
            self.assertEqual(it.lctl("set_param", bad, good)[0], 0)
            self.assertEqual(it.lctl("set_param", good, bad)[0], 2)

    def test_no_server(self):
        with Remote(*EXPORTS) as it:
            it.control.rename(it.control.with_name("away"))
            status, _, error = it.lctl("get_param", "*")
            self.assertNotEqual(status, 0)
            self.assertIn("WEIR_SOCKET", error)
            it.control.with_name("away").rename(it.control)


class Names(unittest.TestCase):
    def test_globs_and_flags(self):
        with Remote(*EXPORTS) as it:
            self.assertEqual(it.lctl("list_param", "ost.OSS.*.nrs_*")[1],
                             f"{IO}nrs_policies\n{IO}nrs_tbf_rule\n{IO}nrs_crrn_quantum\n")
            self.assertEqual(it.lctl("list_param", "obdfilter.*")[1], "obdfilter.a\nobdfilter.b\n")
            status, names, _ = it.lctl("get_param", "-N", "*.*.job_cleanup_interval")
            self.assertEqual((status, names), (0, "obdfilter.a.job_cleanup_interval\n"
                                                  "obdfilter.b.job_cleanup_interval\n"))
            self.assertEqual(it.lctl("get_param", "obdfilter/a/job_cleanup_interval",
                                     "obdfilter.b.job_cleanup_interval")[1],
                             "obdfilter.a.job_cleanup_interval=600\n"
                             "obdfilter.b.job_cleanup_interval=600\n")

    def test_names_with_marks_folders_and_all_below(self):
        with Remote(*EXPORTS) as it:
            self.assertEqual(it.lctl("list_param", "-F", "obdfilter.*", "jobid_var",
                                     "obdfilter.a.job_stats")[1],
                             "obdfilter.a/\nobdfilter.b/\njobid_var\nobdfilter.a.job_stats=\n")
            below = [f"obdfilter.a{leaf}" for leaf in ("", ".job_stats", ".job_cleanup_interval",
                                                       ".stats", ".brw_stats")]
            self.assertEqual(it.lctl("list_param", "-R", "obdfilter.a")[1].splitlines(), below)
            self.assertEqual(it.lctl("get_param", "-RN", "obdfilter.a")[1].splitlines(), below[1:])
            self.assertEqual(it.lctl("list_param", "-D", "-R", "obdfilter")[1],
                             "obdfilter\nobdfilter.a\nobdfilter.b\n")
            self.assertEqual(it.lctl("get_param", "-Nt", "obdfilter.a.*")[1],
                             "obdfilter.a.job_cleanup_interval\n", "without statistics")
            self.assertEqual(it.lctl("list_param", "--writable", "obdfilter.a.*")[1].splitlines(),
                             below[1:3])
            everything = it.lctl("list_param", "-R")[1].splitlines()
            self.assertEqual(everything[:3], ["version", "jobid_var", "jobid_name"])
            self.assertIn(f"{IO}nrs_tbf_rule", everything)
            self.assertFalse([name for name in everything if "OST" in name], "listed once")

    def test_exporters_find_exports_as_osts(self):
        with Remote(*EXPORTS) as it:
            it.read("dd.0", 10)
            status, text, _ = it.lctl("get_param", "obdfilter.*OST*.stats",
                                      "obdfilter.*OST*.brw_stats", "obdfilter.*OST*.job_stats")
            self.assertEqual(status, 0)
            for line in ("obdfilter.a-OST0000.stats=", "obdfilter.b-OST0001.stats=",
                         "read_bytes                          10 samples [bytes] "
                         "4096 4096 40960 167772160",
                         "obdfilter.a-OST0000.brw_stats=", "4K:\t\t        10 100 100   |    "
                         "0   0   0", "obdfilter.a-OST0000.job_stats=", "- job_id:          dd.0"):
                self.assertIn(line, text.splitlines())
            self.assertEqual(len(re.findall("dd.0", text)), 1)
            self.assertEqual(it.lctl("set_param", "obdfilter.*-OST0000.job_stats=clear")[0], 0)
            self.assertEqual(it.lctl("get_param", "-n", "obdfilter.a.job_stats")[1], "")
            self.assertIn("10 samples", it.lctl("get_param", "obdfilter.a.stats")[1],
                          "clearing jobs does not reset the counters of an export")
            self.assertEqual(it.lctl("set_param", "obdfilter.a.stats=clear")[0], 13)

    def test_values_that_scripts_ask_for_first(self):
        with Remote(*EXPORTS) as it:
            self.assertRegex(it.lctl("get_param", "-n", "version")[1],
                             r"^2\.17\.57_weir_[0-9.]+\n$")
            self.assertEqual(it.lctl("get_param", "jobid_var", "jobid_name")[1],
                             "jobid_var=disable\njobid_name=%e.%u\n")
            self.assertEqual(it.lctl("set_param", "jobid_var=procname_uid")[0], 13)
            self.assertRegex(it.lctl("version")[1], r"^lctl 2\.17\.57_weir_")
            self.assertEqual(it.lctl("get_param", "-H", "jobid_var")[1], "jobid_var=disable\n")
            self.assertEqual(it.lctl("get_param", "-y", "jobid_var")[1], "jobid_var=disable\n")
            status, _, error = it.lctl("get_param", "-D", "jobid_var")
            self.assertEqual((status, error), (64, "weir lctl: get_param: no option -D; "
                                                   "see weir-lctl(1)\n"))

    def test_values_from_a_file_and_in_parallel(self):
        with Remote(*EXPORTS) as it, tempfile.TemporaryDirectory() as folder:
            file = os.path.join(folder, "params.yaml")
            name = f"{IO}nrs_tbf_rule"
            with open(file, "w", encoding="utf-8") as out:
                out.write("# from lctl llog_print\n"
                          "- { index: 2, event: set_param, device: general, parameter: "
                          f"{name}, value: start a jobid={{a}} rate=7 }}\n"
                          "- { index: 3, event: set_param, device: general, parameter: "
                          "obdfilter.*.job_cleanup_interval, value: 60 }\n")
            self.assertEqual(it.lctl("set_param", "-F", file),
                             (0, f"{name}=start a jobid={{a}} rate=7\n"
                                 "obdfilter.a.job_cleanup_interval=60\n"
                                 "obdfilter.b.job_cleanup_interval=60\n", ""))
            self.assertIn("a jobid={a} 7", it.lctl("get_param", name)[1])
            with open(file, "a", encoding="utf-8") as out:
                out.write("nonsense\n")
            status, out, error = it.lctl("set_param", "-F", file)
            self.assertEqual((status, out), (22, ""), "nothing is half applied")
            self.assertIn("params.yaml:4: write", error)
            self.assertEqual(it.lctl("set_param", "-F", file + ".no")[0], 2)
            self.assertEqual(it.lctl("set_param", "-t4", "obdfilter.a.job_cleanup_interval=8"),
                             (0, "obdfilter.a.job_cleanup_interval=8\n", ""))

    def test_called_lctl(self):
        with Remote(*EXPORTS) as it, tempfile.TemporaryDirectory() as folder:
            link = os.path.join(folder, "lctl")
            os.symlink(it.binary, link)
            self.assertEqual(it.weir("list_param", "ost", program=link)[1], "ost\n")


class JobStats(unittest.TestCase):
    LINE = re.compile(r"  (read_bytes|write_bytes): +\{ samples: +\d+, unit: bytes, min: +\d+, "
                      r"max: +\d+, sum: +\d+, sumsq: +\d+, hist: \{ .* \} \}")

    def test_the_format_and_its_control(self):
        with Remote(*EXPORTS) as it:
            self.assertEqual(it.lctl("get_param", "obdfilter.*.job_stats")[1],
                             "obdfilter.a.job_stats=\nobdfilter.b.job_stats=\n")
            it.read("dd.0", 10)
            it.read("has sp\"q", 1)
            lines = it.lctl("get_param", "obdfilter.a.job_stats")[1].splitlines()
            self.assertEqual(lines[:3], ["obdfilter.a.job_stats=", "job_stats:",
                                         "- job_id:          dd.0"])
            self.assertRegex(lines[3], r"^  snapshot_time:   \d+\.\d{9} secs\.nsecs$")
            self.assertRegex(lines[5], r"^  elapsed_time:    0\.\d{9} secs\.nsecs$")
            self.assertEqual(
                lines[6], "  read_bytes:      { samples:          10, unit: bytes, min:     4096, "
                "max:     4096, sum:            40960, sumsq:          167772160, "
                "hist: { 4K: 10 } }")
            self.assertRegex(lines[7], self.LINE)
            self.assertEqual(
                lines[10], "  getattr:         { samples:           0, unit: usecs, min:        0, "
                "max:        0, sum:                0, sumsq:                  0 }")
            self.assertEqual(len(lines), 2 + 2 * 19)
            self.assertIn('- job_id:          "has\\x20sp\\x22q"', lines)
            self.assertEqual(it.lctl("set_param", "obdfilter.*.job_stats=dd.0")[0], 22,
                             "b has no such job")
            self.assertNotIn("dd.0", it.lctl("get_param", "obdfilter.a.job_stats")[1])
            self.assertEqual(it.lctl("set_param", 'obdfilter.a.job_stats="has\\x20sp\\x22q"')[0], 0)
            self.assertEqual(it.lctl("get_param", "-n", "obdfilter.a.job_stats")[1], "")

    def test_the_interval_is_kept_in_halves(self):
        with Remote(*EXPORTS) as it:
            name = "obdfilter.a.job_cleanup_interval"
            for written, read in (("5", "4"), ("1", "0"), ("600", "600")):
                self.assertEqual(it.lctl("set_param", f"{name}={written}"),
                                 (0, f"{name}={written}\n", ""))
                self.assertEqual(it.lctl("get_param", name)[1], f"{name}={read}\n")
            self.assertEqual(it.lctl("set_param", f"{name}=-1")[0], 22)
            self.assertEqual(it.lctl("set_param", f"{name}=abc")[0], 22)


if __name__ == "__main__":
    unittest.main(verbosity=2)
