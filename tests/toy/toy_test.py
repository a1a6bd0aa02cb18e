# SPDX-License-Identifier: Apache-2.0
"""A protocol other than NBD, served by `weir serve` (toy.cc), and sessions that return invalid
results."""
import os
import pathlib
import socket
import struct
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "clients"))
import server  # noqa: E402

BUILD = pathlib.Path(os.environ.get("WEIR_BUILD_DIR", server.ROOT / "build/dev"))
BINARY = BUILD / "tests/toy-server"
MIB = 1 << 20
SIZE = 64 * MIB


class Toy(server.Server):
    def __init__(self, *arguments):
        super().__init__("--export", f"a=memory:{SIZE}", "--export", "b=memory:1MiB", *arguments,
                         binary=BINARY, subcommand=())
        self.toy = self.path / "t"
        self.arguments += ["--listen", f"toy+unix:{self.toy}"]


class Client:
    def __init__(self, toy):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(server.STUCK)
        self.socket.connect(str(toy.toy))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, letter, tag, length=0, offset=0, argument=0, payload=b""):
        self.socket.sendall(struct.pack(">cBHIQ", letter, argument, tag, length, offset) + payload)

    def receive(self, size):
        data = b""
        while len(data) < size:
            piece = self.socket.recv(size - len(data))
            if not piece:
                raise EOFError
            data += piece
        return data

    def reply(self):
        """Status, tag and data."""
        status, _, tag, size = struct.unpack(">cBHI", self.receive(8))
        return status, tag, self.receive(size)

    def ask(self, letter, tag, **how):
        self.send(letter, tag, **how)
        status, answered, data = self.reply()
        assert answered == tag, (answered, tag)
        return status, data


class Size(unittest.TestCase):
    def test_a_protocol_is_as_short_as_docs_extending_says(self):
        source = pathlib.Path(__file__).with_name("toy.cc")
        self.assertLess(len(source.read_text(encoding="utf-8").splitlines()), 200)


class Served(unittest.TestCase):
    def test_what_is_written_is_read_in_either_protocol(self):
        text = os.urandom(3 * MIB)
        with Toy() as toy, Client(toy) as client:
            for at in range(0, len(text), MIB):  # more than one receive
                self.assertEqual(client.ask(b"W", 1, length=MIB, offset=at,
                                            payload=text[at:at + MIB]), (b"K", b""))
            self.assertEqual(client.ask(b"R", 2, length=3 * MIB), (b"K", text))
            self.assertEqual(client.ask(b"S", 3), (b"K", struct.pack(">Q", SIZE)))
            read = subprocess.run(["nbdcopy", toy.uri("a"), "-"], capture_output=True, check=True)
            self.assertEqual(read.stdout[:len(text)], text)

    def test_requests_come_in_any_pieces_and_are_all_answered(self):
        with Toy() as toy, Client(toy) as client:
            wanted = b"".join(struct.pack(">cBHIQ", b"S" if tag % 3 == 0 else b"R", 0, tag, 512,
                                          512 * tag) for tag in range(300))
            for at in range(0, len(wanted), 7):
                client.socket.sendall(wanted[at:at + 7])
            tags = {client.reply()[1] for _ in range(300)}
            self.assertEqual(tags, set(range(300)))

    def test_the_server_lists_where_it_listens_and_refuses_unknown_protocols(self):
        refused = subprocess.run(
            [BINARY, "--control", "none", "--export", "a=memory:1MiB", "--listen", "toys+:0"],
            capture_output=True, text=True, timeout=server.STUCK)
        self.assertEqual(refused.returncode, 64, refused.stderr)
        self.assertIn("'toys': no such protocol; did you mean toy? available: toy, nbd",
                      refused.stderr)

    def test_a_client_that_is_not_understood_is_disconnected(self):
        with Toy() as toy:
            with Client(toy) as client:
                client.send(b"?", 1)
                self.assertRaises(EOFError, client.reply)
        self.assertIn("a letter that is not a toy request", toy.log)


class Paced(unittest.TestCase):
    """Features of the scheduler that a gateway needs."""

    def test_an_exempt_request_is_paid_for_and_never_queued(self):
        with Toy("--adaptive", "off", "--rule", "start r jobid={*} rate=1") as toy, \
                Client(toy) as client:
            for tag in range(1, 6):  # more than the burst of 3
                client.send(b"R", tag, length=512)
            client.send(b"S", 99)
            tags = [client.reply()[1] for _ in range(4)]
            self.assertEqual(sorted(tags), [1, 2, 3, 99], "it does not wait behind the others")
        with Toy("--adaptive", "off", "--rule", "start r jobid={*} rate=1") as toy, \
                Client(toy) as client:
            self.assertEqual(client.ask(b"T", 1, length=512)[0], b"K")
            for tag in range(8):
                self.assertEqual(client.ask(b"S", tag)[0], b"K")
            self.assertEqual(client.ask(b"T", 2, length=512, argument=255)[0], b"B",
                             "the bucket owes what they have taken")

    def test_what_was_not_moved_is_given_back(self):
        for moved, status in ((0, b"K"), (MIB, b"B")):
            with Toy("--adaptive", "off", "--rule", "start r jobid={*} bps=1MiB") as toy, \
                    Client(toy) as client:
                self.assertEqual(client.ask(b"G", 1, length=MIB, offset=moved)[0], b"K")
                self.assertEqual(client.ask(b"T", 2, length=4096, argument=200)[0], status)

    def test_a_session_refuses_what_would_wait_for_too_long(self):
        with Toy("--adaptive", "off", "--rule", "start r jobid={*} rate=1") as toy, \
                Client(toy) as client:
            for tag in range(3):  # the burst
                self.assertEqual(client.ask(b"T", tag, length=512)[0], b"K")
            self.assertEqual(client.ask(b"T", 9, length=512, argument=100)[0], b"B")


class Nonsense(unittest.TestCase):
    """Invalid results of a session, which are a bug in the server: other clients are not
    affected."""

    def closes(self, argument, line):
        with Toy() as toy, Client(toy) as other:
            self.assertEqual(other.ask(b"W", 1, length=4096, payload=b"x" * 4096), (b"K", b""))
            with Client(toy) as client:
                client.send(b"X", 2, argument=argument)
                with self.assertRaises((EOFError, ConnectionResetError)):
                    while True:  # the first answer may arrive before the second one
                        client.reply()
            self.assertEqual(other.ask(b"R", 3, length=4096), (b"K", b"x" * 4096))
            with Client(toy) as another:
                self.assertEqual(another.ask(b"R", 4, length=4096), (b"K", b"x" * 4096))
        self.assertIn("disconnected: internal error: the toy session " + line, toy.log)

    def test_a_read_outside_of_the_export(self):
        self.closes(1, f"asked for 4096 bytes at offset {SIZE}, of an export of {SIZE} bytes")

    def test_more_bytes_than_a_request_may_have(self):
        self.closes(2, f"asked for {(1 << 25) + 1} bytes at offset 0, more than the maximum of")

    def test_an_answer_to_a_request_that_is_not_there(self):
        self.closes(3, "answered request 2, which it does not have")

    def test_an_answer_twice(self):
        self.closes(4, "answered request 1, which it does not have")

    def test_an_answer_larger_than_its_room(self):
        self.closes(5, "answered with 9 bytes in a buffer of 8")


class Dies(unittest.TestCase):
    """A thread of the server ends because of a bug: its clients would wait for ever."""

    def test_the_process_ends_with_a_message_and_nothing_acknowledged_is_lost(self):
        text = os.urandom(4096)
        for threads, victim in (("1", 0), ("2", 0), ("2", 1)):
            with self.subTest(threads=threads, victim=victim), \
                    tempfile.TemporaryDirectory() as folder:
                disk = pathlib.Path(folder) / "disk"
                toy = Toy("--threads", threads)
                toy.arguments[toy.arguments.index("--export") + 1] = f"a=file:{disk},size=1MiB"
                with toy:
                    toy.expected = 70
                    clients = [Client(toy) for _ in range(2)]
                    for index, client in enumerate(clients):
                        self.assertEqual(client.ask(b"W", 1, length=4096, offset=4096 * index,
                                                    payload=text), (b"K", b""))
                    clients[victim].send(b"X", 2, argument=6)
                    for client in clients:
                        self.assertRaises((EOFError, ConnectionError), client.reply)
                        client.socket.close()
                    toy.process.wait(server.STUCK)
                self.assertIn(f"thread {victim} failed: planted: terminated; unacknowledged "
                              "requests are lost", toy.log)
                self.assertEqual(disk.read_bytes()[:8192], text * 2)


if __name__ == "__main__":
    unittest.main()
