#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The package in a minimal Debian root: installed, run as in its unit, upgraded over itself,
removed and purged; and the image for containers. The root has the dependencies of the package and
no systemd; calls of the package scripts to systemctl are recorded."""
import importlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(os.environ["WEIR_SOURCE_DIR"])
BUILD = pathlib.Path(os.environ["WEIR_BUILD_DIR"])
RELEASE = pathlib.Path(os.environ["WEIR_RELEASE_BIN"]).parents[2]
STUCK = 300
sys.path.insert(0, str(ROOT / "package"))
image = importlib.import_module("image")
SYSTEMCTL = """#!/bin/sh
echo "$@" >>/systemctl.log
"""


def run(*command, status=0, **options):
    ran = subprocess.run([str(one) for one in command], capture_output=True, text=True,
                         timeout=STUCK, check=False, **options)
    if ran.returncode != status:
        raise AssertionError(f"{command}: {ran.returncode}\n{ran.stdout}{ran.stderr}")
    return ran.stdout + ran.stderr


@unittest.skipUnless(os.geteuid() == 0, "only root can change its root directory")
class Installed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        run(sys.executable, "-B", ROOT / "package/build.py", RELEASE, folder, "weir")
        cls.deb = next(folder.glob("weir_*.deb"))
        cls.base = image.base(cls.deb, BUILD / "package-root")

    def setUp(self):
        self.root = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory())) / "root"
        self.root.mkdir()
        run("tar", "-xf", self.base, "-C", self.root, "--exclude=./dev/*")
        shutil.copy(self.deb, self.root / "weir.deb")
        run("mount", "--bind", "/proc", self.root / "proc")
        self.addCleanup(run, "umount", "--lazy", self.root / "proc")
        (self.root / "run/weir").mkdir(parents=True)

    def inside(self, *command, **options):
        return run("chroot", self.root, *command, **options)

    def install(self):
        return self.inside("dpkg", "-i", "/weir.deb")

    def start(self):
        """Starts the command of the unit, as its user."""
        unit = (self.root / "usr/lib/systemd/system/weir.service").read_text(encoding="utf-8")
        user = re.search(r"(?m)^User=(.*)$", unit)[1]
        command = re.search(r"(?m)^ExecStart=(.*)$", unit)[1].split()
        check = re.search(r"(?m)^ExecStartPre=(.*)$", unit)[1].split()
        self.inside("chown", f"{user}:{user}", "/run/weir", "/var/lib/weir")
        switch = ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups"]
        self.inside(*switch, *check)
        server = subprocess.Popen(["chroot", self.root, *switch, *command],
                                  stdout=subprocess.PIPE, text=True)
        self.addCleanup(server.wait)
        self.addCleanup(server.kill)
        self.assertIn("ready", server.stdout.readline())
        self.addCleanup(server.stdout.close)
        return server

    def weir(self, *words):
        return self.inside("env", "WEIR_SOCKET=/run/weir/weir.sock", "weir", *words)

    def stop(self, server):
        server.terminate()
        self.assertEqual(server.wait(STUCK), 0)

    def test_installed_upgraded_removed_and_purged(self):
        begun = time.monotonic()
        self.install()
        conf = self.root / "etc/weir/weir.conf"
        conf.write_text(conf.read_text(encoding="utf-8").replace(
            "127.0.0.1:10809", "unix:/run/weir/nbd.sock"), encoding="utf-8")
        server = self.start()
        uri = f"nbd+unix:///scratch?socket={self.root}/run/weir/nbd.sock"
        self.assertEqual(run("nbdinfo", "--size", uri).strip(), str(1 << 30))
        self.assertLess(time.monotonic() - begun, 10)
        self.weir("rule", "start", "dd", "jobid={dd.*}", "rate=10k")
        self.stop(server)

        self.install()  # over itself
        self.assertIn("unix:/run/weir/nbd.sock", conf.read_text(encoding="utf-8"))
        server = self.start()
        self.assertRegex(self.weir("rule", "list"), r"(?m)^dd +rate=10000 ")
        self.stop(server)

        self.inside("dpkg", "--remove", "weir")
        self.assertTrue(conf.exists() and (self.root / "var/lib/weir/journal").exists())
        self.assertFalse((self.root / "usr/bin/weir").exists())
        self.inside("dpkg", "--purge", "weir")
        for left in ("etc/weir", "var/lib/weir"):
            self.assertFalse((self.root / left).exists(), left)

    def test_an_upgrade_with_a_broken_configuration_leaves_the_server_alone(self):
        self.install()
        conf = self.root / "etc/weir/weir.conf"
        conf.write_text(conf.read_text(encoding="utf-8").replace(
            "127.0.0.1:10809", "unix:/run/weir/nbd.sock"), encoding="utf-8")
        server = self.start()
        (self.root / "run/systemd/system").mkdir(parents=True)
        control = self.root / "usr/bin/systemctl"
        control.write_text(SYSTEMCTL, encoding="utf-8")
        control.chmod(0o755)
        log = self.root / "systemctl.log"
        self.install()
        self.assertIn("try-restart weir.service", log.read_text(encoding="utf-8"))
        log.unlink()
        nfs = conf.with_name("weir-nfs.conf")
        nfs.write_text("[[nfs]]\nlisten = 1\n", encoding="utf-8")
        told = self.install()
        self.assertIn("weir-nfs was not restarted", told)
        self.assertEqual(log.read_text(encoding="utf-8").count("try-restart"), 2)
        self.assertNotIn("restart weir-nfs", log.read_text(encoding="utf-8"))
        log.unlink()
        nfs.unlink()
        conf.write_text("[server]\nlisten = 7\n", encoding="utf-8")
        told = self.install()
        self.assertIn("weir.conf:2:10: server: listen must be", told)
        self.assertIn("weir was not restarted, and a running server continues with its old "
                      "configuration", told)
        self.assertNotIn("restart weir.service", log.read_text(encoding="utf-8"))
        uri = f"nbd+unix:///scratch?socket={self.root}/run/weir/nbd.sock"
        self.assertEqual(run("nbdinfo", "--size", uri).strip(), str(1 << 30))
        server.send_signal(signal.SIGHUP)  # as systemctl reload
        self.assertEqual(run("nbdinfo", "--size", uri).strip(), str(1 << 30))
        self.stop(server)
        self.inside("dpkg", "--purge", "weir")

    def test_the_image_serves_as_its_user(self):
        folder = self.root.parent
        tar = image.build(self.deb, self.base, folder / "weir.tar", 1000000000, "1.2.3")
        layout, bundle = folder / "layout", folder / "bundle"
        layout.mkdir()
        run("tar", "-xf", tar, "-C", layout)
        self.assertEqual(run("umoci", "ls", "--layout", layout).strip(), "1.2.3")
        run("umoci", "unpack", "--image", f"{layout}:1.2.3", bundle)
        process = json.loads((bundle / "config.json").read_text(encoding="utf-8"))["process"]
        self.assertEqual(process["args"][:2], ["/usr/bin/weir", "serve"])
        self.assertEqual(process["user"]["uid"], image.ID)
        root, user = bundle / "rootfs", image.ID
        # A network of its own, as in a container; the client is in it too.
        (root / "proc").mkdir(exist_ok=True)
        run("mount", "--bind", "/proc", root / "proc")
        self.addCleanup(run, "umount", "--lazy", root / "proc")
        serve = ["setpriv", f"--reuid={user}", f"--regid={user}", "--clear-groups", "--",
                 *process["args"]]
        server = subprocess.Popen(
            ["unshare", "--net", "sh", "-c", 'ip link set lo up; exec chroot "$@"', "sh", root,
             *serve], stdout=subprocess.PIPE, text=True)
        self.addCleanup(server.wait)
        self.addCleanup(server.kill)
        self.addCleanup(server.stdout.close)
        self.assertIn("ready", server.stdout.readline())
        size = run("nsenter", f"--net=/proc/{server.pid}/ns/net", "nbdinfo", "--size",
                   "nbd://127.0.0.1/scratch")
        self.assertEqual(size.strip(), str(1 << 30))
        self.stop(server)


if __name__ == "__main__":
    unittest.main(verbosity=2)
