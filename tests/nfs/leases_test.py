# SPDX-License-Identifier: Apache-2.0
"""`weir nfs` between a Linux kernel in a virtual machine and NFS-Ganesha with a short lease: what
the client holds outlives waits, and a soft mount reports no errors."""
import pathlib
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import ganesha  # noqa: E402
import linux  # noqa: E402

LEASE = 5  # seconds
LIMITED = ("--adaptive", "off", "--rule", "start user uid={1000} rate=1 burst=1")
AS_USER = "su user -c"
# busybox of Debian has no flock(1). The lock belongs to the open file, so it outlives the program.
LOCK = """#include <sys/file.h>
int main(void) { return flock(7, LOCK_EX | LOCK_NB) ? 1 : 0; }
"""
LOCKS = "awk '$1 == \"LOCK:\" { print $2 }' /proc/self/mountstats"


@unittest.skipIf(ganesha.missing() or linux.missing(), ganesha.missing() or linux.missing())
class Leases(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.nfs = cls.enterClassContext(ganesha.Ganesha(lease=LEASE))
        cls.folder = cls.enterClassContext(tempfile.TemporaryDirectory())
        lock = pathlib.Path(cls.folder) / "lock"
        subprocess.run(["g++", "-static", "-x", "c", "-", "-o", lock], input=LOCK.encode(),
                       check=True)
        cls.guest = cls.enterClassContext(linux.Linux(cls.folder, linux.CLIENT, [lock]))
        cls.guest.run("mkdir -p /etc; echo user:x:1000:1000::/:/bin/sh > /etc/passwd;"
                      "echo user:x:1000: > /etc/group")

    def mount(self, gateway, version, options=""):
        path = self.nfs.export if version == "3" else "/export"
        self.guest.mount(gateway.port, version, self.nfs.mount_port, path, options)
        self.addCleanup(self.guest.abandon)

    def test_a_mount_whose_user_waits_keeps_its_locks(self):
        """For ten leases."""
        with ganesha.Gateway(self.nfs.port, *LIMITED) as gateway:
            self.mount(gateway, "4.1", ",noac")
            self.guest.run("exec 7>/mnt/locked && lock && echo before >&7")
            locks = self.guest.run(LOCKS)
            self.assertEqual(locks, "1")
            before = gateway.requests_of(jobid="uid.1000")
            began = time.monotonic()
            while time.monotonic() - began < 10 * LEASE:
                self.guest.run("for i in 1 2 3 4; do "
                               f"{AS_USER} \"stat /mnt/$i\" >/dev/null 2>&1 & done; wait")
            self.assertGreater(gateway.requests_of(jobid="uid.1000") - before, 5 * LEASE)
            # A lock that was lost makes writes fail; one that was lost and reclaimed counts.
            self.guest.run("echo after >&7 && exec 7>&-")
            self.assertEqual(self.guest.run(LOCKS), locks)
            self.assertEqual((self.nfs.export / "locked").read_text(encoding="ascii"),
                             "before\nafter\n")
            self.guest.unmount()

    def test_a_soft_mount_reports_no_error(self):
        """Though calls wait for longer than its timeout of 10 s; it repeats them."""
        with ganesha.Gateway(self.nfs.port, *LIMITED) as gateway:
            self.mount(gateway, "3", ",noac,soft,timeo=100")
            said = self.guest.run("for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14; do "
                                  f"{AS_USER} \"stat /mnt/$i\" 2>&1 & done; wait")
            self.assertEqual(said.count("No such file or directory"), 14, said)
            self.assertGreater(gateway.metric("duplicates_dropped"), 0)
            self.guest.unmount()


if __name__ == "__main__":
    ganesha.enter_namespace()
    unittest.main()
