#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""docs/runbook-cluster.md: its commands, as they are, in an empty folder."""
import os
import pathlib
import re
import subprocess
import tempfile
import unittest

from world import RELEASE, STUCK

SOURCE = pathlib.Path(os.environ["WEIR_SOURCE_DIR"])
RUNBOOK = SOURCE / "docs/runbook-cluster.md"
MARK = "@@@@@"


class Runbook(unittest.TestCase):
    def test_the_commands_work_as_pasted(self):
        blocks = re.findall(r"(?ms)^```sh\n(.*?)^```$", RUNBOOK.read_text(encoding="utf-8"))
        script = "set -eu\ntrap 'kill -9 $(jobs -p) 2> /dev/null || true' EXIT\n" + "".join(
            f"echo {MARK}\n{block}" for block in blocks)
        with tempfile.TemporaryDirectory() as folder:
            tools = pathlib.Path(folder) / "bin"
            tools.mkdir()
            (tools / "weir").symlink_to(pathlib.Path(RELEASE).resolve())
            run = subprocess.run(
                ["bash", "-c", script], cwd=folder, text=True, capture_output=True,
                timeout=2 * STUCK, check=False,
                env={**os.environ, "PATH": f"{tools}:{os.environ['PATH']}"})
            logs = "".join(log.read_text(errors="replace")
                           for log in pathlib.Path(folder).glob("cluster/*.log"))
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr + logs)
        parts = run.stdout.split(MARK + "\n")[1:]
        self.assertEqual(len(parts), len(blocks))
        started, loaded = parts[3], parts[4]
        for rule in "rate=3000", "bps=100MB":
            self.assertIn(rule, started, "in the list of another server")
        self.assertEqual(len(re.findall(r"(?m)^oss[123] .* joined ", started)), 3, started)
        # Without load each would have a third of it.
        self.assertRegex(loaded, r"(?m)^oss2 .*dd/ops (2\.[89]\d*|3(\.0*)?) ?k/s", loaded)


if __name__ == "__main__":
    unittest.main()
