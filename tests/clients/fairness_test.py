# SPDX-License-Identifier: Apache-2.0
"""Fairness and fidelity, counted by the clients, over a few seconds of the release build."""
import pathlib
import unittest

import server as s
from measured import MeasuredTest, fio
from server import Server

BINARY = s.RELEASE if pathlib.Path(s.RELEASE).exists() else s.WEIR


class Fairness(MeasuredTest):
    is_light = True
    DEPTHS = (1, 4, 16, 64)

    def shares(self, *arguments, ramp=1):
        with Server("--export", "a=memory:64MiB", "--capacity", "4000", *arguments,
                    binary=BINARY) as server:
            jobs = [(f"d{depth}", server.uri(f"a,job=d{depth}"), f"--iodepth={depth}")
                    for depth in self.DEPTHS]
            return fio(jobs, 4, f"--ramp_time={ramp}")

    def unfair(self, rates):
        return {name: rate for name, rate in rates.items() if not 970 <= rate <= 1030}

    def test_queue_depth_buys_no_share(self):
        self.measure(lambda: self.unfair(self.shares()))

    def test_in_order_of_arrival_it_does(self):
        self.assertTrue(self.unfair(self.shares("--adaptive", "off", "--policy", "fifo")))

    def sizes(self, *arguments):
        """Bytes per second of each client that did not get half of 100 MB."""
        with Server("--export", "a=memory:64MiB", "--capacity", "100MB/s", *arguments,
                    binary=BINARY) as server:
            rates = fio([("small", server.uri("a,job=small"), "--bs=4k"),
                         ("large", server.uri("a,job=large"), "--bs=64k")], 3,
                        "--iodepth=32", "--ramp_time=1")
        each = {"small": rates["small"] * 4096, "large": rates["large"] * 65536}
        return {name: rate for name, rate in each.items() if not 48.5e6 <= rate <= 51.5e6}

    def test_size_of_requests_buys_no_share(self):
        self.measure(self.sizes)

    def test_without_shares_size_does(self):
        self.assertTrue(self.sizes("--adaptive", "off"))

    def test_what_one_leaves_the_others_take(self):
        def attempt():
            with Server("--export", "a=memory:64MiB", "--capacity", "4000",
                        binary=BINARY) as server:
                client = server.connect()
                s.enter(client, b"a,job=idle")
                client.sendall(s.request(s.READ, 1, 0, 4096))
                s.simple_reply(client, 4096)
                rates = fio([(f"j{i}", server.uri(f"a,job=j{i}")) for i in range(3)], 3,
                            "--iodepth=16", "--ramp_time=1")
                client.close()
            return None if sum(rates.values()) >= 0.99 * 4000 else rates
        self.measure(attempt)

    def test_a_device_of_unknown_speed_is_shared_too(self):
        def attempt():
            with Server("--export", "a=shaped:iops=2000:memory:64MiB", binary=BINARY) as server:
                rates = fio([("d16", server.uri("a,job=d16"), "--iodepth=16"),
                             ("d64", server.uri("a,job=d64"), "--iodepth=64")], 4,
                            "--ramp_time=3")
            return None if all(900 <= rate <= 1100 for rate in rates.values()) else rates
        self.measure(attempt)


class Fidelity(MeasuredTest):
    is_light = True

    def test_a_rate_is_kept(self):
        def attempt():
            with Server("--export", "a=memory:64MiB", "--adaptive", "off",
                        "--rule", "start r jobid={x} rate=1000", binary=BINARY) as server:
                rate = fio([("x", server.uri("a,job=x"), "--iodepth=32")], 5)["x"]
            return None if 995 <= rate <= 1005 else rate
        self.measure(attempt)

    def test_a_shaped_store_does_what_it_is_told(self):
        def attempt():
            with Server("--export", "a=shaped:iops=2000:memory:64MiB", binary=BINARY) as server:
                rate = fio([("x", server.uri("a"), "--iodepth=32")], 3)["x"]
            return None if 1980 <= rate <= 2020 else rate
        self.measure(attempt)


if __name__ == "__main__":
    unittest.main()
