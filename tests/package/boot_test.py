#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The package on a booted system: a minimal Debian whose systemd runs in Linux namespaces, with a
control group, a network and processes of its own. The package is installed there, started by
systemd with everything that the unit restricts, upgraded, and removed."""
import importlib
import json
import os
import pathlib
import shutil
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

# $0 the root directory, $1 the control group. Process 1 of the new namespace is systemd.
BOOT = r"""
echo $$ >"$1/cgroup.procs"
exec unshare --mount --pid --fork --kill-child --cgroup --uts --ipc --net bash -euc '
mount --make-rprivate /
mount --bind "$0" "$0"
cd "$0"
mount -t proc proc proc
for folder in run tmp dev; do mount -t tmpfs "$folder" "$folder"; done
for device in null zero full random urandom tty; do
  touch "dev/$device"
  mount --bind "/dev/$device" "dev/$device"
done
mkdir dev/pts dev/shm old
mount -t devpts -o newinstance devpts dev/pts
ln -s pts/ptmx dev/ptmx
mount -t sysfs -o ro sysfs sys
mount -t cgroup2 cgroup2 sys/fs/cgroup
pivot_root . old
umount -l /old
rmdir /old
exec env -i container=weir-test PATH=/usr/bin:/usr/sbin /lib/systemd/systemd' "$0"
"""


def run(*command, status=0, **options):
    ran = subprocess.run([str(one) for one in command], capture_output=True, text=True,
                         timeout=STUCK, check=False, **options)
    if status is not None and ran.returncode != status:
        raise AssertionError(f"{command}: {ran.returncode}\n{ran.stdout}{ran.stderr}")
    return ran.stdout + ran.stderr


def control_groups():
    """Where version 2 of control groups is mounted."""
    for line in pathlib.Path("/proc/self/mountinfo").read_text(encoding="ascii").splitlines():
        if " - cgroup2 " in line:
            return pathlib.Path(line.split()[4])
    raise unittest.SkipTest("no control groups of version 2")


class Booted(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if os.geteuid() != 0:
            raise unittest.SkipTest("only root can boot a system")
        groups = control_groups()
        folder = pathlib.Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        run(sys.executable, "-B", ROOT / "package/build.py", RELEASE, folder, "weir")
        deb = next(folder.glob("weir_*.deb"))
        base = image.base(deb, BUILD / "package-systemd", "systemd")
        cls.root = folder / "root"
        cls.root.mkdir()
        run("tar", "-xf", base, "-C", cls.root, "--exclude=./dev/*")
        shutil.copy(deb, cls.root / "weir.deb")
        cls.group = groups / f"weir-boot-{os.getpid()}"
        try:
            cls.group.mkdir()
        except OSError as error:
            raise unittest.SkipTest(f"cannot create a control group: {error}") from error
        cls.addClassCleanup(cls.remove_group)
        cls.system = subprocess.Popen(["bash", "-euc", BOOT, cls.root, cls.group],
                                      stdin=subprocess.DEVNULL)
        cls.addClassCleanup(cls.system.wait)
        cls.addClassCleanup(cls.system.kill)
        cls.await_boot()

    @classmethod
    def remove_group(cls):
        deadline = time.monotonic() + STUCK
        while cls.group.exists() and time.monotonic() < deadline:
            for folder, _, _ in os.walk(cls.group, topdown=False):
                try:
                    os.rmdir(folder)
                except OSError:  # its last processes are ending
                    time.sleep(0.05)

    @classmethod
    def await_boot(cls):
        deadline = time.monotonic() + STUCK
        while time.monotonic() < deadline and cls.system.poll() is None:
            first = pathlib.Path(f"/proc/{cls.system.pid}/task/{cls.system.pid}/children")
            cls.first = first.read_text(encoding="ascii").strip()
            if cls.first and "running" in cls.inside("systemctl", "is-system-running", "--wait",
                                                     status=None).split():
                return
            time.sleep(0.1)
        raise AssertionError("the system did not boot")

    @classmethod
    def inside(cls, *command, **options):
        return run("nsenter", "--target", cls.first, "--mount", "--pid", "--cgroup", "--net",
                   "--uts", "--ipc", *command, **options)

    def size(self):
        """As a client on this system sees it, whose program is not in its root."""
        return run("nsenter", "--target", self.first, "--net", "nbdinfo", "--size",
                   "nbd://127.0.0.1/scratch").strip()

    def weir(self, *words):
        return self.inside("env", "WEIR_SOCKET=/run/weir/weir.sock", "weir", *words)

    def main_process(self):
        return self.inside("systemctl", "show", "--value", "--property=MainPID", "weir").strip()

    def test_installed_started_upgraded_and_removed(self):
        begun = time.monotonic()
        self.inside("dpkg", "-i", "/weir.deb")
        self.assertEqual(self.size(), str(1 << 30))
        # root_test.py has the limit of 10 s; here other tests may be running.
        print(f"from dpkg -i to the first request: {time.monotonic() - begun:.1f} s",
              file=sys.stderr)
        self.assertEqual(self.inside("systemctl", "is-enabled", "weir").strip(), "enabled")
        self.inside("systemctl", "start", "weir-nfs")
        self.assertIn("skipped because of an unmet condition",
                      self.inside("journalctl", "--unit=weir-nfs"))
        self.weir("rule", "start", "dd", "jobid={dd.*}", "rate=10k")
        entries = [json.loads(line) for line in self.inside(
            "journalctl", "--output=json", "WEIR_EVENT=audit").splitlines()]
        changed = [one for one in entries if one.get("WEIR_ON") == "ost.OSS.ost_io.nrs_tbf_rule"]
        self.assertEqual([(one["WEIR_WHAT"], one["WEIR_RESULT"], one["SYSLOG_IDENTIFIER"],
                           one["WEIR_AFTER"]) for one in changed],
                         [("start dd jobid={dd.*} rate=10000", "ok", "weir",
                           "jobid={dd.*} rate=10000")])
        self.assertRegex(changed[0]["WEIR_WHO"], r"^uid 0 pid \d+$")

        before = self.main_process()
        self.inside("dpkg", "-i", "/weir.deb")  # over itself
        self.assertNotEqual(self.main_process(), before)
        self.assertRegex(self.weir("rule", "list"), r"(?m)^dd +rate=10000 ")

        before = self.main_process()
        good = self.inside("cat", "/etc/weir/weir.conf")
        self.inside("tee", "/etc/weir/weir.conf", input="[server]\nlisten = 7\n")
        self.assertIn("continues with its old configuration",
                      self.inside("dpkg", "-i", "/weir.deb"))
        self.assertEqual(self.main_process(), before)
        self.assertEqual(self.size(), str(1 << 30))
        self.inside("tee", "/etc/weir/weir.conf", input=good)
        self.inside("systemctl", "restart", "weir")

        self.inside("dpkg", "--purge", "weir")
        self.assertEqual(self.inside("sh", "-c", "systemctl is-active weir || :").strip(),
                         "inactive")
        self.inside("test", "!", "-e", "/var/lib/weir")


if __name__ == "__main__":
    unittest.main(verbosity=2)
