# SPDX-License-Identifier: Apache-2.0
"""Groups of clients that take turns, seen by two real clients from two addresses of loopback.

Both send all of their reads at once to a slow store; the test counts how often the replies change
from one client to the other, whatever the speed of the machine: all replies that have arrived for
one client are read at once, so a test that had to wait for the processor sees fewer changes, never
more.
"""
import contextlib
import pathlib
import selectors
import socket
import tempfile
import unittest

from replayed import count_of, replay
from server import READ, STUCK, Server, enter, request

READS = 120
CLIENTS = ("127.0.0.2", "127.0.0.3")
CONFIG = """
[[service]]
policy = "tbf nid"
adaptive = "off"
slots = 1
[[export]]
name = "a"
store = "shaped:iops=200:memory:1MiB"
"""
GROUPS = """
[groups]
length = "250ms"
quiesce = {quiesce}
[[group]]
name = "two"
nids = "127.0.0.2@tcp"
[[group]]
name = "three"
nids = "127.0.0.3@tcp"
"""


class Clients(unittest.TestCase):
    """Two clients, from two addresses."""

    def changes(self, config, *arguments):
        """How often a reply is for a different client than the previous one."""
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        (folder / "weir.conf").write_text(config, encoding="utf-8")
        order, left = [], len(CLIENTS) * READS * (16 + 512)
        with Server("--config", folder / "weir.conf", *arguments) as server, \
                contextlib.ExitStack() as stack:
            selector = stack.enter_context(selectors.DefaultSelector())
            clients = []
            for address in CLIENTS:
                client = stack.enter_context(socket.create_connection(
                    ("127.0.0.1", server.port), timeout=STUCK, source_address=(address, 0)))
                enter(client)
                selector.register(client, selectors.EVENT_READ)
                clients.append(client)
            for client in clients:
                client.sendall(b"".join(request(READ, i, 0, 512) for i in range(READS)))
            while left > 0:
                ready = selector.select(STUCK)
                self.assertTrue(ready, "no reply")
                for key, _ in ready:
                    left -= len(key.fileobj.recv(1 << 20))
                    order.append(key.fileobj)
            self.assertEqual(left, 0)
        return sum(order[i] is not order[i - 1] for i in range(1, len(order)))


class Groups(Clients):
    def come_in_turns(self, config):
        """240 reads take 1.2 s: about five turns, where single replies would change 239 times."""
        self.assertLess(self.changes(config), 30)

    def test_replies_come_in_turns(self):
        self.come_in_turns(CONFIG + GROUPS.format(quiesce="false"))

    def test_replies_come_in_turns_with_a_quiet_phase_between(self):
        self.come_in_turns(CONFIG + GROUPS.format(quiesce="true"))

    def test_without_groups_they_alternate(self):
        self.assertGreater(self.changes(CONFIG), 60)


class Traced(Clients):
    def test_turns_are_decided_again_the_same(self):
        for quiesce in "false", "true":
            folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
            self.changes(CONFIG + GROUPS.format(quiesce=quiesce), "--trace", folder / "trace")
            status, report, errors = replay(folder / "trace")
            self.assertEqual((status, errors), (0, ""), report)
            self.assertEqual(count_of(report, "run"), len(CLIENTS) * READS)
            self.assertGreater(count_of(report, "commands"), 4, "no turns were recorded")


if __name__ == "__main__":
    unittest.main()
