# SPDX-License-Identifier: Apache-2.0
"""Requests that may run but have no buffer: others use their slots meanwhile, and they take a slot
again before they run."""
import tempfile
import time
import unittest

import server as s
from server import STUCK, Server

READS = 512
SIZE = 32768  # below what is sent from the page cache, so each needs a buffer
LATENCY = 0.005
# Replies that are sent to a client that reads nothing, or are ready for it: the socket buffer of 1
# MiB, which the kernel doubles, and 2 MiB that wait for it. The others are deferred.
READY_MOST = (2 + 2) * (1 << 20) // SIZE + 2


class Slots(unittest.TestCase):
    def setUp(self):
        folder = self.enterContext(tempfile.TemporaryDirectory())
        self.server = self.enterContext(Server(
            "--slots", "1", "--adaptive", "off", "--policy", "fifo",
            "--export", f"a=shaped:latency={int(LATENCY * 1000)}ms:file:{folder}/f,size=64MiB",
            control=True))

    def is_quiet(self):
        """All requests have arrived, and none waits for a slot or holds one."""
        status = self.server.status()
        service = status["services"][0]
        return (status["counters"]["requests"] == READS and service["queued"] == 0
                and service["running"] == 0)

    def until(self, condition):
        end = time.monotonic() + STUCK
        while not condition():
            self.assertLess(time.monotonic(), end, "it does not happen")
            time.sleep(0.01)

    def test_deferred_requests_run_one_by_one_and_hold_nothing_meanwhile(self):
        silent = self.server.connect()
        self.addCleanup(silent.close)
        s.enter(silent)
        silent.sendall(b"".join(s.request(s.READ, cookie, 0, SIZE) for cookie in range(READS)))
        self.until(self.is_quiet)

        other = self.server.connect()
        self.addCleanup(other.close)
        s.enter(other)
        other.sendall(s.request(s.READ, 7, 0, SIZE))
        self.assertEqual(s.simple_reply(other, SIZE)[:2], (0, 7))

        begun = time.monotonic()
        for _ in range(READS):
            s.simple_reply(silent, SIZE)
        # With one slot each of them takes the store's latency, one after the other.
        self.assertGreaterEqual(time.monotonic() - begun, (READS - READY_MOST) * LATENCY)


if __name__ == "__main__":
    unittest.main()
