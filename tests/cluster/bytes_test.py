# SPDX-License-Identifier: Apache-2.0
"""A limit of the cluster in bytes holds for writes of zeroes, which carry none."""
import concurrent.futures
import time
import unittest

from world import World
from remote import request, simple_reply

MIB = 1 << 20
RATE = 10_000_000
WRITE_ZEROES = 6
COUNT = 20  # of 1 MiB, at each server


def write_zeroes(member):
    client = member.client("j.1")
    client.sendall(b"".join(request(WRITE_ZEROES, i, 0, MIB) for i in range(COUNT)))
    for _ in range(COUNT):
        assert simple_reply(client)[0] == 0
    client.close()


class Bytes(unittest.TestCase):
    def test_zeroes_cost_their_bytes_of_a_limit_of_the_cluster(self):
        with World(servers=2) as world:
            world.rule("start wide jobid={*} bps=10MB/s burst=1MiB by=rule")
            members = list(world.members.values())
            begun = time.monotonic()
            with concurrent.futures.ThreadPoolExecutor() as pool:
                list(pool.map(write_zeroes, members))
            took = time.monotonic() - begun
        # On each server a full bucket and one request that started with it may pass at once.
        paced = (COUNT - 2) * len(members) * MIB
        self.assertGreaterEqual(took, paced / (RATE * 1.1))


if __name__ == "__main__":
    unittest.main()
