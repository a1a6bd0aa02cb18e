# SPDX-License-Identifier: Apache-2.0
"""Hole chunks in structured reads, and extended headers with a test client, because no packaged
client uses them yet."""
import errno
import os
import socket
import struct
import unittest

import nbd

from server import (BLOCK_STATUS, FLUSH, FUA, OPT_EXPORT_NAME, OPT_SET_META_CONTEXT,
                    OPT_STRUCTURED_REPLY, READ, STUCK, TRIM, WRITE, WRITE_ZEROES, Server, enter,
                    enter_after_greeting, greet, is_closed, option, option_reply, receive, request,
                    simple_reply)

GIB = 1 << 30
OPT_EXTENDED_HEADERS = 11
ACK, ERR_UNSUP = 1, 0x80000001
PAYLOAD_LEN = 1 << 5
NONE, OFFSET_DATA, OFFSET_HOLE, BLOCK_STATUS_EXT, ERROR = 0, 1, 2, 6, 0x8001
HOLE_AND_ZERO = 3


def wide(command, cookie=0, offset=0, length=0, flags=0, payload=b""):
    if payload:
        flags |= PAYLOAD_LEN
    return struct.pack(">IHHQQQ", 0x21e41c71, flags, command, cookie, offset, length) + payload


def wide_reply(client):
    """Cookie, offset, type and body of a reply that has one chunk."""
    magic, flags, kind, cookie, offset, length = struct.unpack(">IHHQQQ", receive(client, 32))
    assert (magic, flags) == (0x6e8a278c, 1), (hex(magic), flags)
    return cookie, offset, kind, receive(client, length)


class Holes(unittest.TestCase):
    def test_a_structured_read_of_zeroes_is_a_hole_and_other_data_is_data(self):
        data = os.urandom(4096)
        for store in ("memory:4MiB", "file:{}/disk,size=4MiB"):
            server = Server()
            server.arguments += ["--export", "a=" + store.format(server.path)]
            with self.subTest(store), server:
                handle = nbd.NBD()
                handle.connect_uri(server.uri("a"))
                handle.pwrite(data, 8192)
                for offset, length, kinds in ((0, 4096, [nbd.READ_HOLE]),
                                              (8192, 4096, [nbd.READ_DATA]),
                                              (4096, 8192, [nbd.READ_DATA]),
                                              (65536, 65536, [nbd.READ_HOLE])):
                    chunks = []
                    got = handle.pread_structured(
                        length, offset, lambda _, at, kind, error: chunks.append(kind))
                    self.assertEqual(chunks, kinds, (offset, length))
                    expected = bytearray(length)
                    if offset <= 8192 < offset + length:
                        expected[8192 - offset:8192 - offset + 4096] = data
                    self.assertEqual(bytes(got), bytes(expected))
                handle.shutdown()

    def test_simple_replies_have_no_holes(self):
        with Server("--export", "a=memory:1MiB") as server, server.connect() as client:
            enter(client)
            client.sendall(request(READ, 1, 0, 4096))
            self.assertEqual(simple_reply(client, 4096), (0, 1, bytes(4096)))


class Extended(unittest.TestCase):
    def setUp(self):
        self.server = Server()
        self.wide_socket = self.server.path / "w"
        self.disk = self.server.path / "disk"
        self.server.arguments += ["--listen", f"nbd64+unix:{self.wide_socket}", "--export",
                                  f"a=file:{self.disk},size=6GiB"]
        self.enterContext(self.server)

    def connect(self, path=None):
        client = self.enterContext(socket.socket(socket.AF_UNIX))
        client.settimeout(STUCK)
        client.connect(str(path or self.wide_socket))
        greet(client)
        return client

    def open(self):
        client = self.connect()
        query = b"base:allocation"
        client.sendall(option(OPT_EXTENDED_HEADERS) +
                       option(OPT_SET_META_CONTEXT, struct.pack(">I", 1) + b"a" +
                              struct.pack(">II", 1, len(query)) + query))
        self.assertEqual([option_reply(client)[1] for _ in range(3)], [ACK, 4, ACK])
        enter_after_greeting(client)
        return client

    def ask(self, client, *arguments, **more):
        client.sendall(wide(*arguments, **more))
        return wide_reply(client)

    def test_only_listeners_that_offer_them_have_them(self):
        client = self.connect(self.server.socket)
        client.sendall(option(OPT_EXTENDED_HEADERS))
        self.assertEqual(option_reply(client)[:2], (OPT_EXTENDED_HEADERS, ERR_UNSUP))
        enter_after_greeting(client)
        client.sendall(request(READ, 1, 0, 4096))
        self.assertEqual(simple_reply(client, 4096), (0, 1, bytes(4096)))

    def test_clients_that_do_not_ask_for_them_are_served_as_ever(self):
        handle = nbd.NBD()
        handle.connect_uri(f"nbd+unix:///a?socket={self.wide_socket}")
        handle.pwrite(b"x" * 512, 0)
        self.assertEqual(bytes(handle.pread(512, 0)), b"x" * 512)
        handle.shutdown()

    def test_data_is_written_and_read(self):
        client = self.open()
        data = os.urandom(8192)
        at = 5 * GIB
        self.assertEqual(self.ask(client, WRITE, 1, at, 8192, FUA, data), (1, at, NONE, b""))
        self.assertEqual(self.ask(client, READ, 2, at, 8192),
                         (2, at, OFFSET_DATA, struct.pack(">Q", at) + data))
        self.assertEqual(self.ask(client, READ, 3, 0, 4096),
                         (3, 0, OFFSET_HOLE, struct.pack(">QI", 0, 4096)))
        self.assertEqual(self.ask(client, FLUSH, 4), (4, 0, NONE, b""))
        self.assertEqual(os.pread(os.open(self.disk, os.O_RDONLY), 8192, at), data)

    def test_one_request_covers_more_than_4_gib(self):
        client = self.open()
        for at in (0, 5 * GIB, 6 * GIB - 512):
            self.ask(client, WRITE, 1, at, 512, 0, b"d" * 512)
        for command, offset, length in ((WRITE_ZEROES, 0, 5 * GIB + 512),
                                        (TRIM, 512, 6 * GIB - 512)):
            self.assertEqual(self.ask(client, command, 2, offset, length), (2, offset, NONE, b""))
            where = max(offset, 5 * GIB)
            kind = self.ask(client, READ, 3, where, 512)[2]
            self.assertEqual(kind, OFFSET_HOLE, command)
        self.assertEqual(
            self.ask(client, BLOCK_STATUS, 4, 0, 6 * GIB),
            (4, 0, BLOCK_STATUS_EXT, struct.pack(">IIQQ", 1, 1, 6 * GIB, HOLE_AND_ZERO)))

    def error(self, client, *arguments, **more):
        _, _, kind, body = self.ask(client, *arguments, **more)
        self.assertEqual(kind, ERROR)
        return struct.unpack(">I", body[:4])[0]

    def test_bad_requests_are_refused_and_the_next_is_answered(self):
        client = self.open()
        self.assertEqual(self.error(client, WRITE, 1, 0, 512), errno.EINVAL)  # without payload
        self.assertEqual(self.error(client, READ, 2, 0, 5, 0, b"hello"), errno.EINVAL)
        self.assertEqual(self.error(client, READ, 3, 0, 5 * GIB), errno.EINVAL)
        self.assertEqual(self.error(client, TRIM, 4, 512, 6 * GIB), errno.EINVAL)
        self.assertEqual(self.error(client, WRITE_ZEROES, 5, 1 << 63, 1 << 63), errno.ENOSPC)
        self.assertEqual(self.ask(client, FLUSH, 6), (6, 0, NONE, b""))

    def test_what_cannot_be_understood_ends_the_connection(self):
        too_much = wide(TRIM, 1, 0, (64 << 20) + 1, PAYLOAD_LEN)
        for bad in (too_much, request(READ, 1, 0, 512) + b"...."):
            client = self.open()
            client.sendall(bad)
            self.assertTrue(is_closed(client))
        client = self.connect()
        client.sendall(option(OPT_EXTENDED_HEADERS) + option(OPT_EXPORT_NAME, b"a"))
        self.assertTrue(is_closed(client))

    def test_structured_replies_do_not_follow_extended_headers(self):
        client = self.connect()
        client.sendall(option(OPT_EXTENDED_HEADERS) + option(OPT_STRUCTURED_REPLY))
        self.assertEqual([option_reply(client)[1] for _ in range(2)], [ACK, 0x8000000a])


if __name__ == "__main__":
    unittest.main()
