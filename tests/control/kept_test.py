#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`weir rule list` shows the same as after a restart, after policies, reloads and full disks."""
import pathlib
import random
import signal
import subprocess
import tempfile
import unittest

from remote import Remote

RULES = "/v1/services/ost_io/rules"
POLICIES = "/v1/services/ost_io/policies"
RULE_PARAM = "ost.OSS.ost_io.nrs_tbf_rule"
POLICY_PARAM = "ost.OSS.ost_io.nrs_policies"
CONFIG = """
[[export]]
name = "a"
store = "memory:1MiB"
[[service]]
adaptive = "off"
rules = [{}]
"""


class Kept(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.disk = self.folder / "disk"
        self.disk.mkdir()
        self.config = self.folder / "weir.conf"
        self.edit("start f0 jobid={f0} rate=1")

    def mount(self):
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", self.disk],
                          check=False).returncode != 0:
            self.skipTest("not allowed to mount")
        self.addCleanup(subprocess.run, ["umount", self.disk], check=True)

    def edit(self, *rules):
        text = ",".join(f'"{rule}"' for rule in rules)
        self.config.write_text(CONFIG.format(text), encoding="utf-8")

    def server(self, *more):
        return Remote("--config", self.config, "--journal", self.disk / "journal",
                      "--rule", "start c0 jobid={c0} rate=2", *more)

    def kill(self, it):
        it.process.send_signal(signal.SIGKILL)
        it.process.wait()
        it.reader.join()
        it.process.stdout.close()
        it.process.stderr.close()
        it.folder.cleanup()

    def reload(self, it):
        return "configuration reloaded" in it.reload()

    def fill(self):
        """Fills the disk: nothing more fits, not even at the end of the journal."""
        with open(self.disk / "ballast", "ab", buffering=0) as ballast:
            try:
                while True:
                    ballast.write(b"x" * 4096)
            except OSError:
                pass

    def shown(self, it):
        """All rules with their limits, in order; temporary ones are marked."""
        return [(one["rule"], one["limits"], one["state"]) for one in it.get(RULES)]

    def assert_restart_shows_the_same(self, it):
        shown = self.shown(it)
        self.kill(it)
        again = self.server().__enter__()
        self.assertEqual(self.shown(again), shown)
        return again

    def test_rules_of_all_origins_survive_policies(self):
        it = self.server().__enter__()
        try:
            it.weir("rule", "start", "cli", "jobid={x}", "rate=3")
            it.weir("rule", "change", "f0", "rate=9")
            it.lctl("set_param", "-P", f"{RULE_PARAM}=start kept jobid={{k}} rate=4")
            it.lctl("set_param", f"{RULE_PARAM}=start mortal jobid={{m}} rate=5")
            it.lctl("set_param", f"{RULE_PARAM}=change cli rate=33")
            names = [("mortal", "rate=5", "temporary"), ("kept", "rate=4", "active"),
                     ("cli", "rate=33", "temporary"), ("c0", "rate=2", "active"),
                     ("f0", "rate=9", "active"), ("default", "rate=10000", "active")]
            self.assertEqual(self.shown(it), names)
            status, _, body = it.send("PUT", POLICIES, {"policy": "fifo"})
            self.assertEqual(status, 200)
            self.assertIn("rules f0, c0, cli, kept are kept, but inactive under this policy",
                          body["notes"][0])
            self.assertIn("rule mortal is removed with the policy", body["notes"][0])
            self.assertEqual([one[2] for one in self.shown(it)], ["inactive"] * 4)
            it = self.assert_restart_shows_the_same(it)
            status, _, told = it.lctl("set_param", f"{POLICY_PARAM}=tbf jobid")
            self.assertEqual(status, 0)
            self.assertIn("active again", told)
            kept = [("kept", "rate=4", "active"), ("cli", "rate=3", "active"),
                    ("c0", "rate=2", "active"), ("f0", "rate=9", "active"),
                    ("default", "rate=10000", "active")]
            self.assertEqual(self.shown(it), kept)
            # Rules of the file still belong to the file.
            self.edit("start f0 jobid={f0} rate=1", "start f1 jobid={f1} rate=6")
            self.assertTrue(self.reload(it), it.log)
            self.assertEqual([one[0] for one in self.shown(it)],
                             ["kept", "cli", "c0", "f1", "f0", "default"])
            it.send("PUT", POLICIES, {"policy": "tbf jobid"})
            it = self.assert_restart_shows_the_same(it)
        finally:
            self.kill(it)

    def test_a_change_that_a_full_disk_refuses_was_never_made(self):
        self.mount()
        it = self.server().__enter__()
        try:
            self.fill()
            command = "start big jobid={" + " ".join(f"j{i}" for i in range(600)) + "} rate=1"
            for _ in range(3):  # a repetition changes nothing
                status, _, body = it.send("POST", RULES, {"command": command})
                if status == 200:  # the last page of the journal had room
                    it.send("DELETE", RULES + "/big", {})
                    self.fill()
                    continue
                self.assertEqual(status, 507, body)
                self.assertIn("nothing was changed", body["hint"])
                self.assertNotIn("big", [one[0] for one in self.shown(it)])
            self.assertEqual(status, 507)
            status, _, told = it.lctl("set_param", "-P", f"{RULE_PARAM}={command}")
            self.assertEqual((status, "No space left" in told), (28, True), told)
            (self.disk / "ballast").unlink()
            self.assertEqual(it.send("POST", RULES, {"command": command})[0], 200)
            it = self.assert_restart_shows_the_same(it)
            self.assertIn("big", [one[0] for one in self.shown(it)])
        finally:
            self.kill(it)

    def test_a_kept_rule_cannot_depend_on_a_temporary_one(self):
        with self.server() as it:
            it.lctl("set_param", f"{RULE_PARAM}=start t jobid={{t}} rate=1")
            for command in ("change t rate=2", "start k jobid={k} rate=1 rank=t"):
                status, _, body = it.send("POST", RULES, {"command": command})
                self.assertEqual(status, 403, body)
                self.assertIn("rule 't' is temporary", body["detail"])
            it.lctl("set_param", f"{RULE_PARAM}=stop c0")
            status, _, body = it.send("POST", RULES, {"command": "start c0 jobid={n} rate=1"})
            self.assertEqual((status, "already" in body["detail"]), (409, True), body)

    def step(self, it, rng, state):
        """One random step; returns the server to continue with."""
        kind = rng.randrange(10)
        name = rng.choice(["k0", "k1", "k2", "f0", "f1", "c0"])
        rate = rng.randrange(1, 99)
        rank = rng.choice(["", "", "", " rank=c0", " rank=k0"])
        if kind <= 2:
            it.send("POST", RULES, {"command": f"start k{rate % 3} jobid={{x}} rate={rate}{rank}"})
        elif kind == 3:
            it.send("POST", RULES, {"command": f"change {name} rate={rate}{rank}"})
        elif kind == 4:
            it.send("POST", RULES, {"command": f"stop {name}"})
        elif kind == 5:
            it.send("PUT", POLICIES, {"policy": rng.choice(["tbf jobid", "fifo", "tbf"])})
        elif kind == 6:
            old, rules = self.config.read_text(encoding="utf-8"), []
            for file_rule in rng.sample(["f0", "f1", "f2"], rng.randrange(4)):
                rules.append(f"start {file_rule} jobid={{f}} rate={rng.randrange(1, 9)}")
            self.edit(*rules)
            if not self.reload(it):
                self.config.write_text(old, encoding="utf-8")
        elif kind == 7:
            state["full"] = not state["full"]
            if state["full"]:
                self.fill()
            else:
                (self.disk / "ballast").unlink()
        else:
            return self.assert_restart_shows_the_same(it)
        return it

    def test_random_steps_and_kills(self):
        self.mount()
        seed = random.randrange(1 << 32)
        print(f"seed {seed}")
        rng, state = random.Random(seed), {"full": False}
        it = self.server().__enter__()
        try:
            for _ in range(60):
                it = self.step(it, rng, state)
            it = self.assert_restart_shows_the_same(it)
        finally:
            self.kill(it)


if __name__ == "__main__":
    unittest.main(verbosity=2)
