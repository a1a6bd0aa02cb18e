#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The packages: built from the release build, checked by lintian, rpmlint and systemd, and
reproducible byte for byte; and weir-lustre in an empty root. root_test.py has the image."""
import ctypes
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(os.environ["WEIR_SOURCE_DIR"])
RELEASE = pathlib.Path(os.environ["WEIR_RELEASE_BIN"]).parents[2]
STUCK = 300
# All but the image, which root_test.py builds on the root that it has.
PACKAGES = ("weir", "libweir0", "libweir-dev", "weir-doc", "weir-lustre")
LINUX_4_18_LAST = 334  # the last system call of Linux 4.18 on x86-64: rseq
TBF = """regular_requests:
  - name: fifo
    state: started
    fallback: yes
    queued: 0
    active: 0

  - name: tbf jobid
    state: started
    fallback: no
    queued: 0
    active: 0

high_priority_requests:
  - name: fifo
    state: started
    fallback: yes
    queued: 0
    active: 0
"""
RULES = """regular_requests:
CPT 0:
default * 10000, ref 0
high_priority_requests:
CPT 0:
default * 10000, ref 0
"""


def refuse_newer_system_calls():
    """Makes every system call fail with ENOSYS that Linux 4.18 does not have: seccomp(2)."""
    ret, errno, allow = 0x06, 0x00050000 | 38, 0x7FFF0000
    program = (struct.pack("HBBI", 0x20, 0, 0, 0)  # load the number of the call
               + struct.pack("HBBI", 0x25, 0, 1, LINUX_4_18_LAST)  # greater?
               + struct.pack("HBBI", ret, 0, 0, errno) + struct.pack("HBBI", ret, 0, 0, allow))
    code = ctypes.create_string_buffer(program, len(program))
    filters = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(code))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(38, 1, 0, 0, 0) != 0 or libc.prctl(22, 2, filters, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl")


def run(*command, **options):
    ran = subprocess.run([str(one) for one in command], capture_output=True, text=True,
                         timeout=STUCK, check=False, **options)
    if ran.returncode != 0:
        raise AssertionError(f"{command}: {ran.returncode}\n{ran.stdout}{ran.stderr}")
    return ran.stdout


class Packages(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.build("out")
        cls.debs = {one.name.partition("_")[0]: one for one in (cls.folder / "out").glob("*.deb")}
        for name, deb in cls.debs.items():
            run("dpkg-deb", "-x", deb, cls.folder / name)
        cls.tree = cls.folder / "weir"

    @classmethod
    def build(cls, into):
        run(sys.executable, "-B", ROOT / "package/build.py", RELEASE, cls.folder / into, *PACKAGES)

    def test_lintian_finds_no_error(self):
        self.assertEqual(set(self.debs), {"weir", "libweir0", "libweir-dev", "weir-doc"})
        told = run("lintian", "--fail-on", "error", "--no-tag-display-limit",
                   *self.debs.values(), env={**os.environ, "LC_ALL": "C.UTF-8"})
        self.assertNotIn("E: ", told)

    def test_the_program_is_small_and_starts(self):
        size = sum(one.lstat().st_size for one in self.tree.rglob("*") if one.is_file())
        print(f"installed: {size / (1 << 20):.2f} MiB", file=sys.stderr)
        self.assertLess(size, 12 << 20)
        self.assertIn("weir ", run(self.tree / "usr/bin/weir", "--version"))
        for unit in ("weir.service", "weir-nfs.service", "weir-lustre.service"):
            self.assertTrue((self.tree / "usr/lib/systemd/system" / unit).exists())
        conf = run("dpkg-deb", "-I", self.debs["weir"], "conffiles")
        self.assertEqual(conf, "/etc/weir/weir.conf\n")
        run(self.tree / "usr/bin/weir", "serve", "--config", self.tree / "etc/weir/weir.conf",
            "--check-config")

    def test_the_same_sources_give_the_same_bytes(self):
        self.build("again")
        names = sorted(one.name for one in (self.folder / "out").iterdir())
        self.assertEqual(len(names), len(PACKAGES) + 1)  # weir-lustre is two
        for name in names:
            self.assertEqual((self.folder / "out" / name).read_bytes(),
                             (self.folder / "again" / name).read_bytes(), name)

    def test_rpmlint_finds_no_error(self):
        rpm = next((self.folder / "out").glob("*.rpm"))
        # A static program is the purpose of this package, and the one who publishes it signs it.
        config = self.folder / "rpmlint.toml"
        config.write_text('Filters = ["statically-linked-binary", "no-signature"]\n',
                          encoding="utf-8")
        told = run("rpmlint", "--config", config, rpm, ROOT / "package/rpm/weir.spec")
        self.assertRegex(told, r" 0 errors")
        needed = run("rpm", "-qp", "--requires", "--nosignature", rpm).splitlines()
        self.assertEqual([one for one in needed if not one.startswith("rpmlib(")], [])
        listed = run("rpm", "-qpl", "--nosignature", rpm).split()
        self.assertIn("/usr/bin/weir-lustre", listed)
        self.assertIn("/usr/lib/systemd/system/weir-lustre.service", listed)

    def test_the_spec_names_every_installed_file(self):
        """Those that cmake installs, with the paths of Enterprise Linux."""
        text = (ROOT / "package/rpm/weir.spec").read_text(encoding="utf-8")
        named = re.findall(r"(?m)^(?:%\S+ )*(%\{_\w+\}/\S+)$", text.partition("\n%files")[2])
        macros = {"_bindir": "usr/bin", "_libexecdir": "usr/libexec", "_mandir": "usr/share/man",
                  "_docdir": "usr/share/doc", "_includedir": "usr/include", "_libdir": "usr/lib",
                  "_datadir": "usr/share", "_unitdir": "usr/lib/systemd/system",
                  "_sysusersdir": "usr/lib/sysusers.d", "_tmpfilesdir": "usr/lib/tmpfiles.d",
                  "_sysconfdir": "etc", "_sharedstatedir": "var/lib"}
        patterns = [re.sub(r"%\{(\w+)\}", lambda found: macros[found[1]], one) for one in named]
        tree = self.folder / "installed"
        run("cmake", "--install", RELEASE, "--prefix", "/usr",
            env={**os.environ, "DESTDIR": str(tree)})
        for file in sorted(one.relative_to(tree) for one in tree.rglob("*") if not one.is_dir()):
            self.assertTrue(any(one.match(pattern) for pattern in patterns
                                for one in (file, *file.parents)), f"{file} is in no %files")

    @unittest.skipUnless(os.geteuid() == 0, "only root can change its root directory")
    def test_weir_lustre_runs_in_an_empty_root_without_newer_system_calls(self):
        root = self.folder / "root"
        root.mkdir()
        run("tar", "-xzf", next((self.folder / "out").glob("weir-lustre-*.tar.gz")), "-C", root)
        program = next(root.glob("weir-lustre-*/weir-lustre")).relative_to(root)
        self.assertEqual(run("chroot", root, f"/{program}", "--version").split()[0], "weir-lustre")
        command = ["chroot", root, f"/{program}", "check", "--map", "/lustre.map"]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=STUCK, check=False)
        self.assertEqual(ran.returncode, 66, ran.stderr)
        self.assertIn("run it on an OSS with its targets mounted", ran.stdout)
        service = root / "sys/kernel/debug/lustre/ost/OSS/ost_io"
        files = {root / "proc/fs/lustre/obdfilter/lustre-OST0000/job_stats": "job_stats:\n",
                 service / "nrs_policies": TBF, service / "nrs_tbf_rule": RULES}
        for file, text in files.items():
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        told = run(*command, preexec_fn=refuse_newer_system_calls)
        self.assertIn("result     ready", told)
        run("chroot", root, f"/{program}", "run", "--rounds", "3", "--map", "/lustre.map",
            "--lctl", "never", preexec_fn=refuse_newer_system_calls)

    def test_systemd_accepts_the_units(self):
        units = self.folder / "units"
        shutil.copytree(self.tree / "usr/lib/systemd/system", units)
        static = self.folder / "static"
        static.mkdir()
        run("tar", "-xzf", next((self.folder / "out").glob("weir-lustre-*.tar.gz")), "-C", static)
        shutil.copy(next(static.glob("*/weir-lustre.service")), units / "weir-lustre-alone.service")
        alone = (units / "weir-lustre-alone.service").read_text(encoding="utf-8")
        self.assertEqual(set(re.findall(r"/usr/bin/weir\S*", alone)), {"/usr/bin/weir-lustre"})
        found = sorted(units.glob("weir*.service"))
        self.assertEqual({one.stem for one in found},
                         {"weir", "weir-lustre", "weir-lustre-alone", "weir-nfs"})
        for unit in found:
            # The programs are not installed on this machine.
            text = unit.read_text(encoding="utf-8")
            unit.write_text(re.sub("/usr/bin/weir(-lustre)?", "/bin/true", text), encoding="utf-8")
            told = subprocess.run(["systemd-analyze", "verify", "--man=no", unit], text=True,
                                  capture_output=True, check=False, timeout=STUCK)
            self.assertEqual(told.returncode, 0, told.stderr)
            self.assertNotIn(unit.name + ":", told.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
