#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Sizes of jobs that were set through the API: kept, bounded, and removed."""
import json
import pathlib
import tempfile
import unittest

from remote import Remote

EXPORT = ("--export", "a=memory:64MiB", "--capacity", "4000")
SIZES_MAX = 65_536


def crc32c(data):
    crc = 0xFFFF_FFFF
    for byte in data:
        crc = TABLE[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFF_FFFF


def table_of(polynomial):
    table = []
    for number in range(256):
        for _ in range(8):
            number = (number >> 1) ^ (polynomial if number & 1 else 0)
        table.append(number)
    return table


TABLE = table_of(0x82F6_3B78)


def journal_of(jobs):
    """The text of a journal that sets (job, nodes), in this order."""
    lines = []
    for job, nodes in jobs:
        record = json.dumps({"job": job, "nodes": nodes}, separators=(",", ":"))
        lines.append(f"{crc32c(record.encode()):08x} {record}\n")
    return "".join(lines)


class Sizes(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.journal = self.folder / "journal"

    def server(self, *arguments):
        return Remote(*EXPORT, "--journal", self.journal, *arguments)

    def test_are_bounded_in_the_table_and_in_the_journal(self):
        all_jobs = [f"j{number}" for number in range(70_000)]
        self.journal.write_text(journal_of([(job, 3) for job in all_jobs]), encoding="ascii")
        kept = set(all_jobs[-SIZES_MAX:])
        with self.server() as it:
            self.assertEqual({one["job"] for one in it.get("/v1/jobs")}, kept)
            self.assertEqual(it.weir("job", "add", "newest", "8"), (0, "", ""))
            kept = kept - {all_jobs[-SIZES_MAX]} | {"newest"}
            self.assertEqual({one["job"] for one in it.get("/v1/jobs")}, kept,
                             "the oldest made room")
        with self.server() as it:
            self.assertEqual({one["job"] for one in it.get("/v1/jobs")}, kept)

    def test_of_jobs_that_have_not_begun_stay(self):
        with self.server() as it:
            self.assertEqual(it.weir("job", "add", "later", "8"), (0, "", ""))
        with self.server() as it:
            it.read("later", 1)
            jobs = {one["job"]: one["nodes"] for one in it.get("/v1/services/ost_io/jobs")}
            self.assertEqual(jobs["later"], 8)

    def test_that_are_taken_back_leave_nothing(self):
        for number in range(3):
            with self.server() as it:
                self.assertEqual(it.get("/v1/jobs"), [])
                for job in range(1000):
                    name = f"/v1/jobs/n{number}.{job}"
                    self.assertEqual(it.send("PUT", name, {"nodes": 2})[0], 200)
                    self.assertEqual(it.http("DELETE", name)[0], 200)
        with self.server() as it:
            self.assertEqual(it.get("/v1/jobs"), [])
        self.assertLess(self.journal.stat().st_size, 128 << 10, "6,000 records are 200 kB and more")

    def test_that_are_taken_back_are_those_of_the_file_again(self):
        jobs = self.folder / "jobs"
        jobs.write_text("dd.0 5\n", encoding="ascii")

        def nodes(it):
            it.read("dd.0", 1)
            return {one["job"]: one["nodes"]
                    for one in it.get("/v1/services/ost_io/jobs")}["dd.0"]

        with self.server("--jobs", jobs) as it:
            self.assertEqual(nodes(it), 5)
            it.weir("job", "set", "dd.0", "9")
            self.assertEqual(nodes(it), 9)
            it.weir("job", "rm", "dd.0")
            self.assertEqual(nodes(it), 5)


if __name__ == "__main__":
    unittest.main()
