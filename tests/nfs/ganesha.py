# SPDX-License-Identifier: Apache-2.0
"""NFS-Ganesha and a gateway in front of it, for tests, in a separate network namespace.

    if __name__ == "__main__":
        ganesha.enter_namespace()
        unittest.main()

    with ganesha.Ganesha() as nfs, Gateway(nfs.port, "--rule", "...") as gateway:
        gateway.run("nfs-cat", nfs.url("file", gateway.port, uid=1000))

Ganesha serves its own folder as /export: versions 3, 4.0, 4.1 and 4.2, without locks of version 3.
libnfs is the client.
"""
import contextlib
import os
import pathlib
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/clients"))
import server  # noqa: E402

CONFIGURATION = """
NFS_CORE_PARAM {{
  Protocols = 3,4; NFS_Port = {nfs}; MNT_Port = {mount};
  Enable_NLM = false; Enable_RQUOTA = false;
}}
NFSv4 {{
  Grace_Period = 1; Lease_Lifetime = {lease}; RecoveryRoot = {folder}/state; Graceless = true;
}}
EXPORT {{
  Export_Id = 7; Path = {folder}/export; Pseudo = /export; Access_Type = RW; Squash = none;
  SecType = sys; Protocols = 3,4; PrivilegedPort = {privileged}; FSAL {{ Name = VFS; }}
}}
"""
NEEDED = {"ganesha.nfsd": "nfs-ganesha", "nfs-cat": "libnfs-utils", "rpcbind": "rpcbind",
          "unshare": "util-linux", "ip": "iproute2"}


def missing():
    """Why tests with Ganesha cannot run on this machine; empty if they can."""
    for program, package in NEEDED.items():
        if shutil.which(program) is None:
            return f"{program} is missing: install {package}"
    if not list(pathlib.Path("/usr/lib").glob("**/libfsalvfs.so")):
        return "the VFS module of Ganesha is missing: install nfs-ganesha-vfs"
    return "" if os.geteuid() == 0 else "needs root"


def enter_namespace():
    """Runs the program again in a namespace where no port of the machine is used, if possible."""
    if missing() or os.environ.get("WEIR_NAMESPACE") == "own":
        return
    os.environ["WEIR_NAMESPACE"] = "own"
    os.execvp("unshare", ["unshare", "--net", "--mount", sys.executable, ROOT / "tests/run.py",
                          *sys.argv])


class Ganesha:
    port, mount_port = 21049, 21050

    def __init__(self, privileged=False, lease=60):
        self.processes = []
        self.privileged = privileged  # whether it accepts only reserved source ports
        self.lease = lease            # in seconds

    def __enter__(self):
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
        # rpcbind and Ganesha keep files in /run.
        subprocess.run(["mount", "-t", "tmpfs", "none", "/run"], check=True)
        for folder in "rpcbind", "ganesha":
            pathlib.Path("/run", folder).mkdir()
        self.temporary = tempfile.TemporaryDirectory()
        self.folder = pathlib.Path(self.temporary.name)
        self.export = self.folder / "export"
        for folder in self.export, self.folder / "state":
            folder.mkdir()
        self.export.chmod(0o777)
        self.folder.chmod(0o755)
        (self.folder / "ganesha.conf").write_text(CONFIGURATION.format(
            nfs=self.port, mount=self.mount_port, folder=self.folder, lease=self.lease,
            privileged=str(self.privileged).lower()), encoding="utf-8")
        self.processes.append(subprocess.Popen(["rpcbind", "-f", "-w"]))
        await_port(111)
        self.start()
        return self

    def start(self):
        self.ganesha = subprocess.Popen(
            ["ganesha.nfsd", "-F", "-L", self.folder / "log", "-p", self.folder / "pid",
             "-f", self.folder / "ganesha.conf"])
        self.processes.append(self.ganesha)
        await_port(self.port)

    def stop(self):
        self.ganesha.terminate()
        self.ganesha.wait(server.STUCK)

    def __exit__(self, *_):
        for process in reversed(self.processes):
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.temporary.cleanup()
        subprocess.run(["umount", "/run"], check=True)

    def url(self, name, port, version=3, uid=1000, mount_port=mount_port):
        root = self.export if version == 3 else "/export"
        return (f"nfs://127.0.0.1{root}/{name}?version={version}&nfsport={port}"
                f"&mountport={mount_port}&uid={uid}&gid={uid}")


def await_port(port):
    deadline = time.monotonic() + server.STUCK
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
            return
        time.sleep(0.05)
    raise AssertionError(f"nobody listens on port {port}")


class Gateway(server.Server):
    """`weir nfs` in front of a port of 127.0.0.1."""

    def __init__(self, server_port, *arguments, **how):
        super().__init__("--server", f"127.0.0.1:{server_port}", *arguments, control=True,
                         subcommand=("nfs",), **how)
        if server.TEST_IO and "--io" not in arguments:
            self.arguments += ["--io", server.TEST_IO]

    def metric(self, name):
        page = self.fetch("/metrics")
        found = re.search(rf'^weir_nfs_{name}_total\{{gateway="nfs"\}} (\S+)$', page, re.MULTILINE)
        assert found, (name, page)
        return float(found[1])


    def requests_of(self, **label):
        """The number of calls under a rule (rule=) or of a job (jobid=)."""
        (kind, name), = label.items()
        family = f"weir_{kind.removesuffix('id')}_requests_total"
        series = rf'{family}\{{[^}}]*{kind}="{re.escape(name)}"\}}'
        found = re.search(rf"^{series} (\S+)$", self.fetch("/metrics"), re.MULTILINE)
        return float(found[1]) if found else 0


def run(*command, **how):
    """The output of a client; raises an error if it fails."""
    done = subprocess.run(command, capture_output=True, timeout=server.STUCK, check=False, **how)
    assert done.returncode == 0, (command, done.returncode, done.stderr)
    return done.stdout
