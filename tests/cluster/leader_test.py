# SPDX-License-Identifier: Apache-2.0
"""Which servers lead: those that the others reach. Servers with a wrong, expired or missing
certificate are registered in etcd like all others and must not cut off the valid ones.
"""
import pathlib
import sys
import tempfile
import threading
import time
import unittest

from world import LEASE, Etcd, Member, wait_for

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "clients"))
from certificates import EXPIRED, Authority  # noqa: E402

BAD = ("stranger", "late", "plain")


class Leaders(threading.Thread):
    """Every leader in etcd, in order, while the block runs."""

    def __init__(self, etcd):
        super().__init__(daemon=True)
        self.etcd = etcd
        self.seen = []
        self.is_ending = False

    def now(self):
        value = self.etcd.ctl("get", "--print-value-only", "/weir/leader").split()
        return value[1].partition("@")[0] if value else ""

    def run(self):
        while not self.is_ending:
            leader = self.now()
            if leader and self.seen[-1:] != [leader]:
                self.seen.append(leader)
            time.sleep(0.05)

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.is_ending = True
        self.join()


class Certificates(unittest.TestCase):
    def setUp(self):
        self.path = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        good, other = Authority(self.path / "good"), Authority(self.path / "other")
        self.folders = {"stranger": self.whole(other), "late": self.whole(good, EXPIRED),
                        "plain": ""}
        self.good = self.whole(good)
        self.etcd = self.enterContext(Etcd())
        self.members = {}
        self.addCleanup(lambda: [self.end(name) for name in list(self.members)])

    @staticmethod
    def whole(authority, validity=None):
        options = {} if validity is None else {"validity": validity}
        folder = authority.server(**options)
        client = authority.client(**options)
        for file in "client-cert.pem", "client-key.pem":
            (folder / file).write_bytes((client / file).read_bytes())
        return folder

    def start(self, *names):
        for name in names:
            folder = self.folders.get(name, self.good)
            member = Member(name, self.etcd.endpoints(), more=f'tls_directory = "{folder}"')
            self.members[name] = member.__enter__() or member

    def end(self, name):
        self.members.pop(name).__exit__(None, None, None)

    def kill(self, name):
        self.members[name].kill()
        self.end(name)

    def logs(self):
        return {name: member.log for name, member in self.members.items()}

    def status(self, name):
        return self.members[name].status()

    def wait_joined(self, *names):
        for name in names:
            wait_for(f"{name} has joined", self.members[name].is_joined)

    def registered(self):
        keys = self.etcd.ctl("get", "--prefix", "--keys-only", "/weir/members/").split()
        return {key.removeprefix("/weir/members/").partition("@")[0] for key in keys}

    def test_servers_that_others_do_not_trust_never_lead(self):
        self.start("s0", "s1")
        self.wait_joined("s0", "s1")
        self.start(*BAD)
        wait_for("all are registered", lambda: self.registered() == {"s0", "s1", *BAD})
        with Leaders(self.etcd) as leaders:
            for _ in range(3):
                leader = leaders.now()
                other = "s1" if leader == "s0" else "s0"
                self.kill(leader)
                wait_for("the other good one leads", lambda other=other: leaders.now() == other)
                wait_for("and is in an epoch", self.members[other].is_joined)
                self.start(leader)
                self.wait_joined("s0", "s1")
        self.assertLessEqual(set(leaders.seen), {"s0", "s1"})

    def test_they_cannot_make_a_good_leader_yield(self):
        self.start("s0", "s1")
        self.wait_joined("s0", "s1")
        with Leaders(self.etcd) as leaders:
            self.start(*BAD)
            wait_for("all are registered", lambda: self.registered() == {"s0", "s1", *BAD})
            time.sleep(3 * LEASE)
            self.wait_joined("s0", "s1")
        # On a machine that is too busy a valid server may lose its lease; then the other one leads.
        self.assertLessEqual(set(leaders.seen), {"s0", "s1"})
        for name in "s0", "s1":
            self.assertNotIn("servers reach each other but not this one", self.members[name].log)

    def test_one_that_was_first_makes_way_for_two_that_trust_each_other(self):
        self.start("stranger")
        self.wait_joined("stranger")
        self.start("s0", "s1")
        self.wait_joined("s0", "s1")
        self.assertIn(self.status("s0")["leader"], ("s0", "s1"))
        self.members["stranger"].await_log("stepping down as leader")
        term = self.status("s0")["term"]
        time.sleep(2 * LEASE)
        self.assertEqual(self.status("s0")["term"], term, self.logs())
        wait_for("nobody challenges it any more", lambda: not self.etcd.ctl(
            "get", "--prefix", "/weir/challenges/"))

    def test_of_two_that_do_not_trust_each_other_the_leader_stays(self):
        self.start("s0")
        self.wait_joined("s0")
        term = self.status("s0")["term"]
        self.start("stranger")
        wait_for("both are registered", lambda: self.registered() == {"s0", "stranger"})
        time.sleep(3 * LEASE)
        self.wait_joined("s0")
        self.assertEqual(self.status("s0")["term"], term, self.logs())
        self.assertEqual(self.status("stranger")["state"], "joining")

    def test_without_a_majority_the_best_connected_leads(self):
        """Two good servers among three bad ones, none of which has been connected before."""
        self.start(*BAD)
        wait_for("one leads that was alone", lambda: any(
            self.members[name].is_joined() for name in BAD))
        wait_for("all are registered", lambda: self.registered() == set(BAD))
        self.start("s0", "s1")
        self.wait_joined("s0", "s1")
        self.assertIn(self.status("s0")["leader"], ("s0", "s1"))


if __name__ == "__main__":
    unittest.main()
