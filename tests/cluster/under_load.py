# SPDX-License-Identifier: Apache-2.0
"""Common code of cluster tests that cause failures while clients count.

Clients always send more than the limit to all servers and count their replies. A class has one
cluster, `world`, with a rule of the rate LIMIT, and each of its tests leaves it intact.
"""
import time

from world import Load, bound, wait_for

LIMIT = 1500


class UnderLoad:
    def setUp(self):
        self.world.wait_joined()
        self.leader = self.world.leader()
        self.others = [name for name in self.world.members if name != self.leader]
        self.load = self.enterContext(Load(self.world))
        self.load.heat(*self.world.members)
        self.begin = time.monotonic()
        wait_for("all clients are served", lambda: all(
            client.completions for client in self.load.clients.values()))

    def holds(self, limit=LIMIT):
        """The limit holds in every window since the load started or the limit was last changed."""
        self.assertGreater(len(self.load.completions(self.begin, time.monotonic())), limit / 10)
        for width in 5, 0.5:
            self.assertLessEqual(self.load.most(width, self.begin), bound(limit, width), width)

    def epochs_go_on(self, *names):
        """Epochs of these servers continue from now on."""
        before = {name: self.world.members[name].status()["epochs"] for name in names}
        for name, epochs in before.items():
            wait_for(f"epochs of {name} go on", lambda name=name, epochs=epochs:
                     self.world.members[name].status()["epochs"] > epochs + 20)
