#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Limits and capacities in bytes hold for every command, with libnbd as the client.

Only lower bounds of time are checked: a bucket grants at most its depth plus its rate x time, so a
slow machine neither makes a correct server fail nor a wrong one pass.
"""
import tempfile
import time
import unittest

import nbd

from server import STUCK, Server

MIB = 1 << 20
OPERATION = 4096  # bytes that a command without data costs
RATE = 10_000_000
RULE = ("--adaptive", "off", "--rule", "start all jobid={*} bps=10MB/s burst=1MiB")
SLOW_RULE = ("--adaptive", "off", "--rule", "start all jobid={*} bps=1MB/s burst=64KiB")
# After a slow time, one second of a capacity may pass at once, and a request that has started.
CAPACITY = ("--adaptive", "on", "--capacity", "10MB/s")


def client_of(server):
    client = nbd.NBD()
    client.connect_uri(server.uri("a/job=dd.0"))
    return client


def run_all(client, commands):
    """Sends all of them, waits for the last, and returns the time in seconds."""
    begun = time.monotonic()
    cookies = [command() for command in commands]
    end = begun + STUCK
    while cookies and time.monotonic() < end:
        client.poll(1000)
        cookies = [one for one in cookies if not client.aio_command_completed(one)]
    assert not cookies, f"{len(cookies)} commands were not answered"
    return time.monotonic() - begun


class Bytes(unittest.TestCase):
    def zeroes(self, client, flags, count=32):
        return run_all(client, [lambda i=i: client.aio_zero(MIB, i * MIB, flags=flags)
                                for i in range(count)])

    def test_zeroes_cost_their_bytes_under_a_rule(self):
        for flags in (0, nbd.CMD_FLAG_NO_HOLE):
            with self.subTest(flags=flags), Server("--export", "a=memory:64MiB", *RULE) as server:
                took = self.zeroes(client_of(server), flags)
                self.assertGreaterEqual(took, (32 * MIB - MIB) / RATE)

    def test_zeroes_in_a_file_cost_their_bytes(self):
        with tempfile.TemporaryDirectory() as folder:
            export = f"a=file:{folder}/f,size=64MiB"
            with Server("--export", export, *RULE) as server:
                took = self.zeroes(client_of(server), nbd.CMD_FLAG_NO_HOLE)
                self.assertGreaterEqual(took, (32 * MIB - MIB) / RATE)

    def test_zeroes_cost_their_bytes_under_a_capacity(self):
        with Server("--export", "a=memory:64MiB", *CAPACITY) as server:
            took = self.zeroes(client_of(server), 0, 40)
            self.assertGreaterEqual(took, (39 * MIB - RATE) / RATE)

    def test_one_request_larger_than_the_bucket_is_paid_for_by_the_next(self):
        with Server("--export", "a=memory:64MiB", *RULE) as server:
            client = client_of(server)
            took = run_all(client, [lambda: client.aio_zero(32 * MIB, 0),
                                    lambda: client.aio_zero(MIB, 0)])
            self.assertGreaterEqual(took, (33 * MIB - MIB) / RATE)

    def test_flush_and_trim_and_fast_zeroes_cost_an_operation(self):
        commands = {
            "flush": lambda client: client.aio_flush(),
            "trim": lambda client: client.aio_trim(MIB, 0),
            "fast zero": lambda client: client.aio_zero(MIB, 0, flags=nbd.CMD_FLAG_FAST_ZERO)}
        for name, command in commands.items():
            with self.subTest(name), Server("--export", "a=memory:64MiB", *SLOW_RULE) as server:
                client = client_of(server)
                took = run_all(client, [lambda: command(client)] * 400)
                self.assertGreaterEqual(took, (400 * OPERATION - 65536) / 1_000_000)

    def test_flushes_cost_an_operation_under_a_capacity_of_bytes(self):
        with Server("--export", "a=memory:64MiB", "--capacity", "1MB/s") as server:
            client = client_of(server)
            took = run_all(client, [lambda: client.aio_flush()] * 800)
            self.assertGreaterEqual(took, (799 * OPERATION - 1_000_000) / 1_000_000)

    def test_punching_a_large_hole_does_not_cost_its_bytes(self):
        with Server("--export", "a=memory:2GiB", *SLOW_RULE) as server:
            client = client_of(server)
            client.trim(1 << 30, 0)  # if charged by its bytes: more than 1,000 s
            client.zero(1 << 30, 0, flags=nbd.CMD_FLAG_FAST_ZERO)


if __name__ == "__main__":
    unittest.main()
