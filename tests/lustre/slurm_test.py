# SPDX-License-Identifier: Apache-2.0
"""Sizes of jobs from a real Slurm: six nodes on one host, jobs that start and end, and a driver
that shares a modelled Lustre server out by them."""
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import time
import unittest

from tree import ROOT, driver, lustre, wait_until

sys.path.insert(0, str(ROOT / "tests/control"))
from remote import RELEASE, Remote  # noqa: E402

NODES = 6
CONF = """ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CryptoType=crypto/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/ctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/ctld.log
SlurmdLogFile={folder}/slurmd.%n.log
SlurmctldPort={port}
ProctrackType=proctrack/pgid
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
PrologSlurmctld={folder}/prolog
EpilogSlurmctld={folder}/epilog
{nodes}
PartitionName=all Nodes=n[1-{count}] Default=YES MaxTime=INFINITE State=UP
"""


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


class Slurm:
    """munged, slurmctld and one slurmd for each node, in a folder of their own."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.processes = []
        self.env = {**os.environ, "SLURM_CONF": str(self.folder / "slurm.conf")}

    def start(self, program, *arguments):
        log = open(self.folder / f"{pathlib.Path(program).name}.out", "ab")
        self.processes.append(subprocess.Popen([program, *arguments], env=self.env, stdout=log,
                                               stderr=log))
        log.close()

    def up(self):
        host = socket.gethostname().split(".")[0]
        port, *ports = free_ports(NODES + 1)
        nodes = "\n".join(f"NodeName=n{i + 1} NodeHostname={host} NodeAddr=127.0.0.1 "
                          f"Port={each} CPUs=2 State=UNKNOWN" for i, each in enumerate(ports))
        (self.folder / "slurm.conf").write_text(CONF.format(
            host=host, folder=self.folder, port=port, nodes=nodes, count=NODES))
        # Stands in for the binary: what it was called with is what counts here.
        weir = self.folder / "weir"
        weir.write_text(f"#!/bin/sh\necho \"$@\" >> {self.folder}/calls\n")
        weir.chmod(0o755)
        for name in ("prolog", "epilog"):
            # slurmctld gives its scripts an environment of its own.
            script = (ROOT / "examples/slurm" / f"weir-{name}").read_text()
            (self.folder / name).write_text(script.replace(
                "#!/bin/sh\n", f"#!/bin/sh\nexport WEIR={weir} PATH='{os.environ['PATH']}' "
                f"SLURM_CONF={self.folder}/slurm.conf\n", 1))
            (self.folder / name).chmod(0o755)
        (self.folder / "state").mkdir()
        (self.folder / "munge.key").write_bytes(os.urandom(64))
        (self.folder / "munge.key").chmod(0o400)
        self.start("munged", "--foreground", "--force", f"--key-file={self.folder}/munge.key",
                   f"--socket={self.folder}/munge.socket", f"--pid-file={self.folder}/munge.pid",
                   f"--log-file={self.folder}/munge.log", f"--seed-file={self.folder}/munge.seed")
        wait_until((self.folder / "munge.socket").exists, "munged")
        self.start("slurmctld", "-D", "-i")
        for i in range(NODES):
            self.start("slurmd", "-D", "-N", f"n{i + 1}")
        wait_until(lambda: self.output("sinfo", "-h", "-t", "idle", "-o", "%D") == str(NODES),
                   "six idle nodes")

    def output(self, *command):
        done = subprocess.run(command, env=self.env, capture_output=True, text=True, timeout=60)
        return done.stdout.strip()

    def submit(self, nodes):
        return self.output("sbatch", "--parsable", "-N", str(nodes), "-o", "/dev/null", "--wrap",
                           "sleep 300")

    def running(self):
        return set(self.output("squeue", "-h", "-t", "R", "-o", "%i").split())

    def down(self):
        for process in reversed(self.processes):
            process.terminate()
        for process in self.processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


class Sizes(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self.addCleanup(folder.cleanup)
        os.chmod(folder.name, 0o755)
        self.folder = pathlib.Path(folder.name)
        self.slurm = Slurm(folder.name)
        self.addCleanup(self.slurm.down)
        self.slurm.up()

    def held(self, server):
        """Job ids that have a rule."""
        return {line.split("{")[1].split("}")[0] for line in server.own()}

    def check_sizes_by_host(self, large):
        """Ids are made of programs and hosts: one of the large job, which shares its first host
        with the small one, and one of a host that Slurm does not know."""
        hosts = self.slurm.output("squeue", "-h", "-j", large, "-o", "%N")
        last = self.slurm.output("scontrol", "show", "hostnames", hosts).split()[-1]
        with lustre("tbf=jobid", f"job=dd.{last},16,4", "job=dd.elsewhere,16,4") as server:
            with driver(server, "--capacity", "400", "--slurm", "--slurm-every", "1s",
                        "--job-pattern", "%e.%H", map_file=self.folder / "map-hosts",
                        env=self.slurm.env) as weir:
                wait_until(lambda: self.held(server) == {"dd.elsewhere"}, "by hosts")
                weir.terminate()
                weir.wait(60)
                self.assertIn("1 to no job that Slurm knows", weir.stdout.read())

    def check_sizes_of_a_server(self, small, large):
        jobs = self.folder / "jobs"
        jobs.write_text(f"{small} 2\n")  # the file's word counts for more
        with Remote("--export", "a=memory:1MiB", "--slurm", "--slurm-every", "1s", "--jobs",
                    str(jobs), binary=RELEASE, env=self.slurm.env) as server:
            def nodes():
                for job in (small, large):
                    server.read(job, 1)
                return {each["job"]: each["nodes"]
                        for each in server.get("/v1/services/ost_io/jobs")}
            wait_until(lambda: nodes() == {small: 2, large: 4}, "sizes of jobs of a server")
        done = subprocess.run([RELEASE, "serve", "--export", "a=memory:1MiB", "--slurm",
                               "--job-pattern", "%e.%H"], capture_output=True, text=True,
                              timeout=60)
        self.assertEqual(done.returncode, 64)
        self.assertIn("%j and %u only", done.stderr)

    def test_jobs_share_by_the_nodes_that_slurm_gave_them(self):
        small, large = self.slurm.submit(1), self.slurm.submit(4)
        wait_until(lambda: self.slurm.running() == {small, large}, "both jobs run")
        self.check_sizes_by_host(large)
        self.check_sizes_of_a_server(small, large)
        with lustre("tbf=jobid", f"job={small},16,4", f"job={large},16,4") as server:
            with driver(server, "--capacity", "400", "--slurm", "--slurm-every", "1s",
                        map_file=self.folder / "map", env=self.slurm.env):
                wait_until(lambda: self.held(server) == {small}, "the smaller job is held")
                # The large one ends, as far as Slurm knows: both are of one node then.
                self.slurm.output("scancel", large)
                wait_until(lambda: small in self.slurm.running()
                           and large not in self.slurm.running(), "the large job ended")
                wait_until(lambda: self.held(server) == set(), "nobody is smaller any more")
        calls = self.folder / "calls"
        wait_until(lambda: calls.exists() and {f"job add {small} 1", f"job add {large} 4",
                                               f"job rm {large}"}
                   <= set(calls.read_text().splitlines()), "prolog and epilog have called weir")

    def test_a_prolog_that_cannot_reach_weir_returns_at_once(self):
        env = {**os.environ, "WEIR": "/nowhere/weir", "SLURM_JOB_ID": "1"}
        for name in ("weir-prolog", "weir-epilog"):
            began = time.monotonic()
            done = subprocess.run([ROOT / "examples/slurm" / name], env=env, timeout=60)
            self.assertEqual(done.returncode, 0)
            self.assertLess(time.monotonic() - began, 5)


if __name__ == "__main__":
    unittest.main()
