# SPDX-License-Identifier: Apache-2.0
"""What pages assume, and which of their commands are not run, with the reason."""
import re

# Starts of commands that are not run.
NOT_RUN = {
    "./dev test": "runs this test",
    "./dev check": "CI runs it beside this test, and it takes minutes",
    "./dev drill kill --minutes 20": "takes 20 minutes; ./dev check runs a minute of each drill",
    "weir sim compare --out comparison":
        "takes minutes; tests/sim/compare_test.py runs a small comparison",
    "weir nfs check": "needs an NFS server; tests/nfs/check_test.py runs it",
    "examples/notebook/": "tests/sim/notebook_test.py runs them with a small comparison",
    "weir sim lock-volume": "takes a minute; tests/sim/locks_test.py runs the scenario",
    "weir sim cluster-limit --policy slices --servers 1000":
        "needs what bench/epochs.py measures; tests/sim/report_test.py runs smaller ones",
    "weir lustre run --cluster": "needs etcd; tests/lustre/limit_test.py runs it",
    "weir lustre limit": "needs a driver in a cluster; tests/lustre/limit_test.py runs it",
}

# Pages whose commands are one script with functions and loops, and the test that runs them.
TESTED_AS_A_WHOLE = {"docs/runbook-cluster.md": "tests/cluster/runbook_test.py"}

# Run beside the shell, as in another terminal.
SERVER = re.compile(r"(\./dev run|weir nfs|weir serve)\b(?!.*--check-config)", re.DOTALL)

# Commands that run until they are stopped, and what they have printed or sent to systemd by then.
ENDLESS = {"weir lustre run": "^READY=1", "weir lustre record": "^READY=1"}

# Commands whose output contains changing numbers; the rest of it is compared.
FIGURES = re.compile(r"weir (explain|status|ledger)\b")

END_SERVER = ": the server of the page ends\n"  # at the beginning
SERVE = "weir serve --export scratch=memory:1GiB"


def serving(options=""):
    """The server that the commands of a page use; it ends with the sandbox."""
    return (f"{SERVE} {options} >serving &\n"
            "until grep -q ^ready serving; do kill -0 $!; sleep 0.02; done")


def load(job, export="scratch", options="--iodepth=8"):
    """A client of that job; the server knows it when this returns."""
    return (f"fio --name={job} --ioengine=nbd --uri=nbd://localhost/{export},job={job} --thread "
            f"--rw=randread --size=64M --norandommap {options} --time_based --runtime=600 "
            ">/dev/null 2>&1 &\n"
            f"until weir explain {job} >/dev/null 2>&1; do kill -0 $!; sleep 0.05; done")


def stand_in(program, text="cat"):
    """A replacement for a program that contacts another machine, or is interactive."""
    return (f"printf '#!/bin/sh\\n%s\\n' '{text}' >/usr/local/bin/{program}\n"
            f"chmod +x /usr/local/bin/{program}")


SQUEUE = stand_in("squeue", 'echo "{\\"jobs\\":[{\\"job_id\\":12,\\"node_count\\":4,'
                            '\\"job_state\\":\\"RUNNING\\",\\"user_id\\":1000}]}"')
# A model of an OSS with two jobs, at the paths of Lustre, and a driver that knows them.
LUSTRE = """
mkdir /tmp/oss /var/lib/weir
ASAN_OPTIONS=detect_leaks=0 "$WEIR_BUILD_DIR/tests/lustrefs" /tmp/oss cpts=2 tbf=jobid \
  job=ior.500,16,4 burst=big,60,700,16 &
until [ -e /tmp/oss/control ]; do kill -0 $!; sleep 0.02; done
mount --bind /tmp/oss/proc/fs /proc/fs
mount --bind /tmp/oss/sys/kernel/debug /sys/kernel/debug
"""
# A model of an MDS in its place, until END_MDS.
MDS = """
mkdir /tmp/mds
ASAN_OPTIONS=detect_leaks=0 "$WEIR_BUILD_DIR/tests/lustrefs" /tmp/mds cpts=2 tbf=jobid \
  mds=500 mds-tbf=jobid mds-job=cp.0,mkdir,4,4 &
until [ -e /tmp/mds/control ]; do kill -0 $!; sleep 0.02; done
mount --bind /tmp/mds/proc/fs /proc/fs
mount --bind /tmp/mds/sys/kernel/debug /sys/kernel/debug
"""
END_MDS = "umount /proc/fs /sys/kernel/debug"
DRIVEN = """
weir lustre run &
driver=$!
until weir lustre explain ior.500 >known 2>&1; do kill -0 $driver; sleep 0.02; done
"""
NOT_DRIVEN = "kill $driver; wait $driver"
PKI = """
cd /tmp
PYTHONPATH="$WEIR_SOURCE_DIR/tests/clients" python3 -c '
import certificates
import shutil
authority = certificates.Authority("authority")
server = authority.server(name="storage.example", address="10.0.0.1")
for made, folder in ((server, "/etc/weir/pki"), (authority.client(), "/etc/weir/pki"),
                     (authority.client(), "/etc/pki/me")):
    shutil.copytree(made, folder, dirs_exist_ok=True)
'
cd - >/dev/null
"""
MEMBER = """
cat >{name}.conf <<'END'
[[export]]
name = "a"
store = "memory:16MiB"
[cluster]
name = "{name}"
etcd = ["127.0.0.1:2379"]
listen = "{address}:10812"
lease = "2s"
state = "/var/lib/{name}"
END
weir serve --config {name}.conf --listen {address}:10809 {options} >{name} 2>&1 &
{name}=$!
"""
CLUSTER = (
    "ip address add 10.0.0.2/32 dev lo\n"
    "etcd --data-dir /tmp/etcd --logger zap --log-level error >/dev/null 2>&1 &\n"
    "until etcdctl endpoint health >/dev/null 2>&1; do kill -0 $!; sleep 0.1; done\n"
    + MEMBER.format(name="oss1", address="10.0.0.1", options="")
    + MEMBER.format(name="oss7", address="10.0.0.2", options="--control none")
    + "until weir cluster status | grep -q '^oss7 .*joined'; do kill -0 $oss7; sleep 0.1; done")
OSS7_DIES = ("kill -9 $oss7\n"
             "until weir cluster status | grep -q '^oss7 .*away'; do sleep 0.1; done")
LOCKS_WITH_TLS = END_SERVER + """
weir serve --lock 10.0.0.1:10811 --lock-state locks --tls require \\
  --tls-certificates /etc/weir/pki --tls-verify-peer >locking &
until grep -q ^ready locking; do kill -0 $!; sleep 0.02; done
"""
MAN = "docs/man/weir"
# Page: start of a command: what is done before it runs; "" is the beginning of the page.
BEFORE = {
    "README.md": {
        "./dev weir lustre check": LUSTRE,
    },
    f"{MAN}.1.pod": {
        "": "seq 100000 >backup.tar; mkdir -p /mnt/slow\n"
            "echo 'start dd jobid={dd.*} rate=100' >site.rules",
        "weir explain": load("ior.17"),
    },
    f"{MAN}-api.7.pod": {"": serving()},
    f"{MAN}-bench.1.pod": {"": serving()},
    f"{MAN}-cluster.1.pod": {"": CLUSTER, "weir cluster forget": OSS7_DIES},
    f"{MAN}-explain.1.pod": {
        "": f"{serving('--capacity 4000')}\nweir rule start dd 'jobid={{dd.*}}' rate=100\n"
            f"{load('dd.500')}\n"
            # Until it has been served for some seconds, as on the page.
            "until weir explain dd.500 | grep -q '^served .* MB;'; do sleep 0.1; done"},
    f"{MAN}-job.1.pod": {"": serving()},
    f"{MAN}-lctl.1.pod": {"": serving("--lock 127.0.0.1:10811 --lock-state locks")},
    f"{MAN}-ledger.1.pod": {
        "": f"{serving('--capacity 2000')}\n{load('ior.17', options='--rate_iops=100')}\n"
            f"{load('scan.3', options='--iodepth=32')}\n"
            "until weir ledger | awk '/^ior/ && $2 > 0 { a = 1 } /^scan/ && $2 < 0 { b = 1 } "
            "END { exit !(a && b) }'; do sleep 0.1; done"},
    f"{MAN}-limit.1.pod": {
        "": "seq 100000 | tee backup.tar >today.log; mkdir -p home /mnt/slow; cp backup.tar home\n"
            + stand_in("ssh")},
    f"{MAN}-lock.1.pod": {
        "": PKI + "mkdir -p /var/lib/weir; printf 'report:\\n\\ttouch report\\n' >Makefile\n"
            "printf '#!/bin/sh\\n' | tee read-it >rebuild-it; chmod +x read-it rebuild-it\n"
            + stand_in("rsync", "true"),
        "weir lock release": "weir lock run nightly -- sleep 600 2>/dev/null &\n"
                             "until curl -s --unix-socket /run/weir.sock http://weir"
                             "/v1/locks/locks/list | grep -q nightly; do sleep 0.1; done",
        "weir lock list": LOCKS_WITH_TLS,
    },
    f"{MAN}-lustre.1.pod": {"": "mount -t tmpfs none /var/tmp" + LUSTRE + SQUEUE,
                            "weir lustre explain": DRIVEN,
                            "weir lustre run --slurm": NOT_DRIVEN,
                            "weir lustre run --service mdt": MDS,
                            "printf 'ior.500 16": END_MDS},
    f"{MAN}-nfs.1.pod": {"": "echo 10.0.0.5 nfs.example.org >>/etc/hosts"},
    f"{MAN}-rule.1.pod": {"": serving()},
    f"{MAN}-rules.1.pod": {"": "echo 'start dd jobid={dd.*} rate=100' >site.rules"},
    f"{MAN}-serve.1.pod": {
        "": PKI + "qemu-img create -q -f qcow2 image.qcow2 16M\n"
            "echo 10.0.0.1 storage.example >>/etc/hosts"},
    f"{MAN}-sim.1.pod": {"": stand_in("xdg-open", "test -s \"$1\""),
                         "weir sim --replay": END_SERVER},
    f"{MAN}-slurm.7.pod": {"": SQUEUE},
    f"{MAN}-status.1.pod": {"": f"{serving('--capacity 4000')}\n{load('a')}"},
    f"{MAN}-top.1.pod": {"": f"{serving()}\n{load('ior.1')}"},
    f"{MAN}.conf.5.pod": {
        "": "printf '[[export]]\\nname = \"a\"\\nstore = \"memory:1MiB\"\\n' >weir.conf",
        "kill -HUP": "weir serve --config weir.conf >serving &\n"
                     "until grep -q ^ready serving; do kill -0 $!; sleep 0.02; done"},
}


def reason_not_to_run(text):
    return next((reason for start, reason in NOT_RUN.items() if text.startswith(start)), None)


def endless(text):
    return next((shown for start, shown in ENDLESS.items() if text.startswith(start)), None)


def rule_options(text):
    """The old syntax has a type of one field."""
    return "--type nid" if re.search(r"^start \w+ \{", text, re.M) else ""
