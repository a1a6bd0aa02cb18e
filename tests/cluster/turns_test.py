# SPDX-License-Identifier: Apache-2.0
"""Groups of clients that take turns on all servers together (group epochs).

Clients of two groups, from separate addresses, keep reads waiting at every server. The servers
report which group they prefer in an epoch, which must be the same; the clients count which group is
served.
"""
import collections
import contextlib
import pathlib
import socket
import sys
import threading
import time
import unittest

from world import STUCK, WEIR, Etcd, Member, wait_for

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "clients"))
from measured import MeasuredTest  # noqa: E402
from server import READ, enter, request  # noqa: E402

GROUPS = {"a": "127.0.1.1", "b": "127.0.2.1"}
TURN = 0.3  # seconds
WINDOW = 64  # waiting reads of a client; a server does 200 a second
REPLY = 16 + 512
TURNS = """
[groups]
length = "{turn}ms"
quiesce = {quiesce}
[[group]]
name = "a"
nids = "127.0.1.*@tcp"
[[group]]
name = "b"
nids = "127.0.{b}.*@tcp"
"""


def turns(quiesce="false", b=2):
    return TURNS.format(turn=int(TURN * 1000), quiesce=quiesce, b=b)


class TurnsMember(Member):
    """A member with a slow store, whose clients are distinguished by their addresses."""

    def __init__(self, name, etcd, more, **options):
        super().__init__(name, etcd.endpoints(), more=more, **options)
        text = self.config.read_text()
        text = text.replace('adaptive = "off"', 'adaptive = "off"\npolicy = "tbf nid"\nslots = 1')
        text = text.replace('"memory:', '"shaped:iops=200:memory:')
        self.config.write_text(text)

    def turns(self):
        return self.get("/v1/services/ost_io")["groups"]

    def is_in_step(self):
        return self.turns()["step"] == "cluster"


class Client(threading.Thread):
    """A client of one group at one server."""

    def __init__(self, member, group):
        super().__init__(daemon=True)
        self.server, self.port, self.group = member.name, member.port, group
        self.answered = []  # when
        self.is_ending = False

    def run(self):
        with contextlib.suppress(OSError), socket.create_connection(
                ("127.0.0.1", self.port), timeout=STUCK,
                source_address=(GROUPS[self.group], 0)) as client:
            enter(client)
            asked = request(READ, 0, 0, 512)
            client.sendall(asked * WINDOW)
            kept = 0
            while not self.is_ending:
                done, kept = divmod(kept + len(client.recv(1 << 16)), REPLY)
                self.answered += [time.monotonic()] * done
                client.sendall(asked * done)


@contextlib.contextmanager
def busy(members, groups=tuple(GROUPS)):
    """Clients of these groups at all servers."""
    clients = [Client(member, group) for member in members for group in groups]
    for client in clients:
        client.start()
    try:
        wait_for("all are served", lambda: all(client.answered for client in clients))
        yield clients
    finally:
        for client in clients:
            client.is_ending = True
        for client in clients:
            client.join(STUCK)


def served(clients, begin, end, width=0.1):
    """For each interval and server, the group that got most replies."""
    tallies = collections.defaultdict(lambda: collections.defaultdict(collections.Counter))
    for client in clients:
        for at in list(client.answered):
            if begin <= at < end:
                tallies[int((at - begin) / width)][client.server][client.group] += 1
    return [{server: tally.most_common(1)[0][0] for server, tally in piece.items()}
            for piece in tallies.values()]


class Turns(MeasuredTest):
    def cluster(self, *configurations, **options):
        etcd = self.enterContext(Etcd())
        members = [self.enterContext(TurnsMember(f"s{i}", etcd, more, **options))
                   for i, more in enumerate(configurations)]
        for member in members:
            wait_for(f"{member.name} has joined", member.is_joined)
        return etcd, members

    def agree(self, members, epochs=6):
        """Over so many epochs with both groups: all servers in an epoch prefer the same group."""
        seen = collections.defaultdict(set)
        def enough():
            for member in members:
                turns = member.turns()
                if turns["epoch"]:
                    seen[turns["epoch"]].add(turns["preferred"])
            return len(seen) >= epochs
        wait_for("epochs go on", enough)
        self.assertEqual([one for one in seen.values() if len(one) > 1], [], seen)
        self.assertLessEqual({"a", "b"}, set.union(*seen.values()))

    def test_all_servers_serve_the_same_group_at_a_time(self):
        _, members = self.cluster(*[turns()] * 3)
        for member in members:
            wait_for(f"{member.name} is in step", member.is_in_step)
        with busy(members) as clients:
            self.agree(members)
            def attempt():
                begin = time.monotonic()
                time.sleep(10 * TURN)
                pieces = [piece for piece in served(clients, begin, time.monotonic())
                          if len(piece) == len(members)]
                same = sum(len(set(piece.values())) == 1 for piece in pieces)
                share = same / max(len(pieces), 1)
                return None if share >= 0.8 else f"the same in {share:.2f} of {len(pieces)} pieces"
            self.measure(attempt)  # by chance it would be a quarter
        course = members[0].status()["at_leader"]["courses"]
        self.assertEqual([(one["service"], one["members"]) for one in course], [("ost_io", 3)])
        _, shown, _ = members[1].weir("cluster", "status")
        self.assertIn("turns     ost_io: 3 servers", shown)
        _, shown, _ = members[1].weir("status")
        self.assertIn("IN STEP WITH THE CLUSTER", shown)
        metrics = members[1].http("GET", "/metrics")[2]
        self.assertIn('weir_group_in_step{service="ost_io"} 1', str(metrics))

    def test_turns_go_on_when_the_leader_dies_and_for_one_that_is_alone(self):
        etcd, members = self.cluster(*[turns("true")] * 3)
        with busy(members):
            self.agree(members)
        leader = members[0].status()["leader"]
        dead = next(one for one in members if one.name == leader)
        others = [one for one in members if one is not dead]
        dead.kill()
        with busy(others) as clients:
            wait_for("another leads", lambda: others[0].status()["leader"] not in ("", leader))
            for member in others:
                wait_for(f"{member.name} is in step again", member.is_in_step)
            self.agree(others)
            etcd.kill(0)
            for member in others:
                wait_for("it is cut off", lambda member=member: member.turns()["step"] == "cut off")
                counts = {one["group"]: one["turns"] for one in member.turns()["groups"]}
                wait_for("it takes turns alone", lambda member=member, counts=counts: all(
                    one["turns"] > counts[one["group"]] + 2 for one in member.turns()["groups"]
                    if one["group"] in GROUPS))
            before = {client: len(client.answered) for client in clients}
            wait_for("all clients are served", lambda: all(
                len(client.answered) > count + 5 for client, count in before.items()))

    def test_one_that_stands_still_does_not_stop_the_others(self):
        """With a quiet phase, in which they would wait for it; with the sanitizer build."""
        _, members = self.cluster(*[turns("true")] * 2, binary=WEIR)
        still = next(one for one in members if one.name != members[0].status()["leader"])
        going = next(one for one in members if one is not still)
        for member in members:
            wait_for(f"{member.name} is in step", member.is_in_step)
        with busy([going]) as clients:
            still.stop()
            try:
                epoch = going.turns()["epoch"]
                wait_for("epochs go on", lambda: going.turns()["epoch"] > epoch + 3)
                self.assertGreater(going.status()["at_leader"]["courses"][0]["evictions"], 0)
                before = [len(client.answered) for client in clients]
                wait_for("both groups are served", lambda: all(
                    len(client.answered) > count + 50 for client, count in zip(clients, before)))
            finally:
                still.resume()
            wait_for("it is back", still.is_in_step)
            self.agree([going])

    def test_servers_with_different_groups_say_so_and_prefer_nobody(self):
        _, members = self.cluster(turns(), turns(b=3))
        for member in members:
            wait_for("it says so", lambda member=member: member.turns()["step"] == "mixed")
            self.assertIsNone(member.turns()["preferred"])
            self.assertIn("DIFFERENT GROUPS", member.weir("status")[1])


if __name__ == "__main__":
    unittest.main()
