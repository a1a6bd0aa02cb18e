# SPDX-License-Identifier: Apache-2.0
"""A well-behaved client in its own process that measures how it is served.

    with Neighbour(path of a socket, b"a") as neighbour:
        neighbour.take()     Service since the last call: count, p50_ms, p99_ms, longest_ms

It writes blocks and reads them back, one request at a time, and compares. A request is served if it
is answered without an error and with the right content; other results are in Service.wrong.
"""
import contextlib
import dataclasses
import multiprocessing
import os
import random
import socket
import time

from server import READ, STUCK, WRITE, enter, request, simple_reply

BLOCK = 4096
BLOCKS = 64


@dataclasses.dataclass
class Service:
    count: int
    per_s: float
    p50_ms: float
    p99_ms: float
    longest_ms: float
    wrong: str


def take_precedence(by):
    """Gives this process priority over others, if allowed, so that the server is measured."""
    with contextlib.suppress(PermissionError):
        os.setpriority(os.PRIO_PROCESS, 0, by)


def drive(path, export, pipe, seed):
    take_precedence(-10)
    choose = random.Random(seed)
    content = {}
    wrong, latencies, since = "", [], time.monotonic()
    client = socket.socket(socket.AF_UNIX)
    client.settimeout(STUCK)
    try:
        client.connect(path)
        enter(client, export)
    except OSError as error:
        wrong = f"not let in: {error}"
    while True:
        if pipe.poll(0.01 if wrong else 0):
            if pipe.recv() is None:
                return
            now = time.monotonic()
            latencies.sort()
            pipe.send(summary(latencies, now - since, wrong))
            latencies, since = [], now
        if wrong:
            continue
        block = choose.randrange(BLOCKS)
        begun = time.monotonic()
        try:
            if choose.randrange(2):
                content[block] = choose.randbytes(16) * (BLOCK // 16)
                client.sendall(request(WRITE, 1, block * BLOCK, BLOCK, payload=content[block]))
                answer = simple_reply(client)
                expected = (0, 1, b"")
            else:
                client.sendall(request(READ, 2, block * BLOCK, BLOCK))
                answer = simple_reply(client, BLOCK)
                expected = (0, 2, content.get(block, answer[2]))
        except (OSError, AssertionError) as error:
            wrong = f"{type(error).__name__}: {error}"
            continue
        latencies.append(time.monotonic() - begun)
        if answer != expected:
            wrong = f"error {answer[0]} or other content in block {block}"


def summary(latencies, seconds, wrong):
    if not latencies:
        return Service(0, 0.0, 0.0, 0.0, 1000 * seconds, wrong or "no request was answered")
    return Service(len(latencies), len(latencies) / seconds,
                   1000 * latencies[len(latencies) // 2],
                   1000 * latencies[len(latencies) * 99 // 100], 1000 * latencies[-1], wrong)


class Neighbour:
    def __init__(self, path, export, seed=1):
        self.pipe, there = multiprocessing.Pipe()
        self.process = multiprocessing.Process(target=drive, daemon=True,
                                               args=(str(path), export, there, seed))

    def __enter__(self):
        self.process.start()
        return self

    def __exit__(self, *_):
        with contextlib.suppress(BrokenPipeError):
            self.pipe.send(None)
        self.process.join(5)
        self.process.kill()
        self.process.join()

    def take(self):
        self.pipe.send("take")
        # The answer comes with the next reply, so a stuck client reports after the timeout.
        if not self.pipe.poll(STUCK + 10):
            return Service(0, 0.0, 0.0, 0.0, 1000.0 * STUCK, "its process is stuck")
        return self.pipe.recv()
