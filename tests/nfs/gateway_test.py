# SPDX-License-Identifier: Apache-2.0
"""`weir nfs` in front of NFS-Ganesha, with libnfs and a test client (rpc.py); and in front of a
server that misbehaves."""
import hashlib
import os
import pathlib
import signal
import socket
import ssl
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import ganesha  # noqa: E402
import rpc  # noqa: E402
import server  # noqa: E402
from certificates import Authority  # noqa: E402
from measured import MeasuredTest  # noqa: E402

MIB = 1 << 20
ONE_PER_SECOND = ("--adaptive", "off", "--rule", "start all jobid={uid.*} rate=1 burst=1")


def setUpModule():
    if os.environ.get("WEIR_NAMESPACE") == "own":
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)


def is_ready(stream):
    stream.settimeout(0)
    try:
        return bool(stream.recv(1, socket.MSG_PEEK))
    except BlockingIOError:
        return False
    finally:
        stream.settimeout(60)


class Forwarding(unittest.TestCase):
    """Against a server that answers every call."""

    def test_calls_and_replies_pass_bit_for_bit(self):
        calls = [rpc.null(1), rpc.getattr3(2, b"handle"), rpc.read3(3, b"handle", 10),
                 rpc.write3(4, b"handle", os.urandom(MIB)), rpc.call(5, 400000, 1, 7, b"abcd"),
                 rpc.getattr3(6, b"handle")]
        results = os.urandom(300_000)
        with rpc.Stub(lambda _, message: rpc.reply(struct.unpack(">I", message[:4])[0],
                                                   results)) as stub, \
                ganesha.Gateway(stub.port) as gateway, rpc.Client(gateway.port) as client:
            client.send(*calls)
            got = dict(client.reply() for _ in calls)
            self.assertEqual(got, {xid: results for xid in range(1, 7)})
            self.assertEqual(sorted(stub.calls), sorted(call[4:] for call in calls))

    def test_exempt_calls_pass_a_full_queue(self):
        with rpc.Stub() as stub, ganesha.Gateway(stub.port, *ONE_PER_SECOND) as gateway, \
                rpc.Client(gateway.port) as client:
            client.send(*(rpc.getattr3(xid, b"handle") for xid in range(1000)))
            stub.wait(lambda: stub.calls)
            renewal = rpc.compound(2000, [rpc.sequence(bytes(16), 0, 1)], 0)
            close = rpc.compound(2001, [rpc.sequence(bytes(16), 1, 1), rpc.u32(22) +
                                        rpc.opaque(b"handle"), rpc.u32(4, 0) + bytes(16)], 1000)
            client.send(rpc.null(2002), renewal, close)
            stub.wait(lambda: {2000, 2001, 2002} <= set(stub.xids()), 5)
            self.assertLess(len(stub.calls), 20)
            self.assertEqual(gateway.metric("free_calls"), 2)
            self.assertEqual(gateway.metric("exempt_calls"), 1)

    def test_renewals_are_not_delayed_by_a_full_queue(self):
        """The gateway adds less than 5 ms, also while 1,000 calls wait."""
        with rpc.Stub() as stub, ganesha.Gateway(stub.port, *ONE_PER_SECOND) as gateway, \
                rpc.Client(stub.port) as direct, rpc.Client(gateway.port) as busy, \
                rpc.Client(gateway.port) as client:
            busy.send(*(rpc.getattr3(xid, b"handle") for xid in range(1000)))
            stub.wait(lambda: stub.calls)

            def exchange(through, xid):
                began = time.monotonic()
                through.send(rpc.compound(xid, [rpc.sequence(bytes(16), 0, xid)], 0))
                self.assertEqual(through.reply()[0], xid)
                return time.monotonic() - began

            added = [exchange(client, xid) - exchange(direct, xid) for xid in range(2000, 2101)]
            self.assertLess(statistics.median(added), 0.005)
            self.assertLess(len(stub.calls), 1000, "the others wait")

    def test_a_client_that_leaves_takes_its_waiting_calls_along(self):
        with rpc.Stub() as stub, ganesha.Gateway(stub.port, *ONE_PER_SECOND) as gateway:
            with rpc.Client(gateway.port) as client:
                client.send(*(rpc.getattr3(xid, b"handle") for xid in range(100)))
                client.reply()
            stub.wait(lambda: stub.ends, 5)
            self.assertEqual(stub.ends, ["reset"])
            before = len(stub.calls)
            self.assertLess(before, 4)
            with rpc.Client(gateway.port) as other:  # it gets a token within a second
                other.send(rpc.getattr3(500, b"handle"))
                self.assertEqual(other.reply()[0], 500)
            self.assertEqual(stub.xids()[before:], [500])

    def test_retransmissions_of_waiting_calls_run_once(self):
        with rpc.Stub() as stub, ganesha.Gateway(stub.port, *ONE_PER_SECOND) as gateway, \
                rpc.Client(gateway.port) as client:
            client.send(*(rpc.getattr3(xid, b"handle") for xid in (1, 2, 2, 3, 3, 3)))
            self.assertEqual([client.reply()[0] for _ in range(3)], [1, 2, 3])
            self.assertEqual(stub.xids(), [1, 2, 3])
            self.assertEqual(gateway.metric("duplicates_dropped"), 3)

    def test_the_server_closes(self):
        with rpc.Stub(lambda *_: None) as stub, ganesha.Gateway(stub.port) as gateway, \
                rpc.Client(gateway.port) as client:
            client.send(rpc.getattr3(1, b"handle"))
            stub.wait(lambda: stub.calls)
            stub.connections[0].shutdown(socket.SHUT_RDWR)
            self.assertTrue(client.is_closed())
            gateway.await_log("has closed the connection, 1 calls unanswered")

    def test_the_server_is_not_there(self):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
        with ganesha.Gateway(port) as gateway, rpc.Client(gateway.port) as client:
            self.assertTrue(client.is_closed())
            gateway.await_log("cannot be reached: Connection refused")
            self.assertEqual(gateway.metric("server_unreachable"), 1)

    def test_what_is_not_rpc_is_named(self):
        with rpc.Stub() as stub, ganesha.Gateway(stub.port) as gateway:
            for text in b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01", b"\xff\xff\xff\xff":
                with rpc.Client(gateway.port) as client:
                    client.send(text)
                    self.assertTrue(client.is_closed())
            gateway.await_log("HTTP", "text")

    def test_a_drain_answers_what_waits(self):
        with rpc.Stub() as stub, ganesha.Gateway(stub.port, *ONE_PER_SECOND) as gateway, \
                rpc.Client(gateway.port) as client:
            client.send(*(rpc.getattr3(xid, b"handle") for xid in range(200)))
            while gateway.metric("calls") < 200:  # unread calls are not accepted
                time.sleep(0.01)
            began = time.monotonic()
            gateway.process.send_signal(signal.SIGTERM)
            self.assertEqual({client.reply()[0] for _ in range(200)}, set(range(200)))
            self.assertTrue(client.is_closed())
            gateway.process.wait(server.STUCK)
            self.assertLess(time.monotonic() - began, 10)

    def test_a_client_that_reads_nothing_holds_little(self):
        with rpc.Stub(lambda _, message: rpc.reply(struct.unpack(">I", message[:4])[0],
                                                   bytes(MIB))) as stub, \
                ganesha.Gateway(stub.port, env=server.LEAN) as gateway, \
                rpc.Client(gateway.port) as greedy, rpc.Client(gateway.port) as other:
            greedy.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            before = gateway.memory()
            greedy.send(*(rpc.read3(xid, b"handle", MIB) for xid in range(400)))
            stub.wait(lambda: stub.calls)
            for xid in range(10):
                other.send(rpc.null(xid))
                self.assertEqual(other.reply()[0], xid)
            self.assertLess(gateway.memory() - before, 64 * MIB)

    def test_a_limit_holds_over_many_connections(self):
        with rpc.Stub() as stub, ganesha.Gateway(
                stub.port, "--adaptive", "off",
                "--rule", "start r uid={1000} rate=100 burst=1") as gateway:
            clients = [rpc.Client(gateway.port) for _ in range(8)]
            for number, client in enumerate(clients):
                client.send(*(rpc.getattr3(xid + 1000 * number, b"handle") for xid in range(100)))
            stub.wait(lambda: len(stub.calls) >= 50)
            began, before = time.monotonic(), len(stub.calls)
            stub.wait(lambda: len(stub.calls) >= before + 300)
            rate = (len(stub.calls) - before) / (time.monotonic() - began)
            self.assertLess(rate, 105)
            with rpc.Client(gateway.port) as other:  # another user does not wait
                started = time.monotonic()
                other.send(*(rpc.getattr3(xid, b"handle", uid=1001) for xid in range(50)))
                for _ in range(50):
                    other.reply()
                self.assertLess(time.monotonic() - started, 2)
            for client in clients:
                client.socket.close()

    def test_a_short_read_costs_what_it_returned(self):
        ten = rpc.u32(0, 0, 10, 1) + rpc.opaque(bytes(10))
        with rpc.Stub(lambda _, message: rpc.reply(struct.unpack(">I", message[:4])[0],
                                                   ten)) as stub, \
                ganesha.Gateway(stub.port, "--adaptive", "off", "--rule",
                                "start r jobid={uid.*} bps=1MiB burst=1MiB") as gateway, \
                rpc.Client(gateway.port) as client:
            began = time.monotonic()
            for xid in range(40):  # 40 s if they cost what they request
                client.send(rpc.read3(xid, b"handle", MIB))
                self.assertEqual(client.reply()[0], xid)
            self.assertLess(time.monotonic() - began, 20)

    def test_tls_of_the_server_passes_opaque_and_paced(self):
        start = rpc.record(rpc.u32(1, 1, 0, 0) + rpc.opaque(b"STARTTLS") + rpc.u32(0))
        probe = rpc.record(rpc.u32(1, 0, 2, rpc.NFS, 4, 0, 7, 0, 0, 0))
        total, upload = 2 * MIB, os.urandom(MIB)

        class Encrypted(rpc.Stub):
            """Answers the probe, then reads anything and sends twice as much."""
            got = b""

            def serve(self, connection):
                assert rpc.message_of(connection) == probe[4:]
                connection.sendall(start)
                while len(self.got) < len(upload):
                    self.got += connection.recv(65536)
                connection.sendall(bytes(total))

        with Encrypted() as stub, ganesha.Gateway(
                stub.port, "--rpc-tls", "pass", "--adaptive", "off",
                "--rule", "start all nid={*@tcp} bps=1MiB burst=64KiB") as gateway, \
                rpc.Client(gateway.port) as client:
            client.send(probe)
            self.assertEqual(rpc.receive(client.socket, len(start)), start)
            began = time.monotonic()
            client.send(upload)
            self.assertEqual(rpc.receive(client.socket, total), bytes(total))
            self.assertEqual(stub.got, upload)
            self.assertGreater(time.monotonic() - began, 0.9)
            gateway.await_log("uses TLS: only its address and its bytes are limited")
            self.assertEqual(gateway.metric("tls_connections"), 1)

    def test_a_session_of_tls_passes(self):
        """A server that offers TLS, and a client that uses it: what each sends arrives."""
        start = rpc.record(rpc.u32(1, 1, 0, 0) + rpc.opaque(b"STARTTLS") + rpc.u32(0))
        probe = rpc.record(rpc.u32(1, 0, 2, rpc.NFS, 4, 0, 7, 0, 0, 0))
        pieces, piece_size = 4096, 1 << 15  # 128 MiB each way

        with tempfile.TemporaryDirectory() as folder:
            certificates = Authority(pathlib.Path(folder) / "tls").server()
            far = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            far.load_cert_chain(certificates / "server-cert.pem", certificates / "server-key.pem")
            near = ssl.create_default_context(cafile=certificates / "ca-cert.pem")

            class Server(rpc.Stub):
                """Answers the probe and a handshake, then sends back what it gets."""

                def serve(self, connection):
                    assert rpc.message_of(connection) == probe[4:]
                    connection.sendall(start)
                    with far.wrap_socket(connection, server_side=True) as stream:
                        while piece := stream.recv(1 << 16):
                            stream.sendall(piece)

            with Server() as stub, ganesha.Gateway(stub.port, "--rpc-tls", "pass") as gateway, \
                    rpc.Client(gateway.port) as client:
                client.send(probe)
                self.assertEqual(rpc.receive(client.socket, len(start)), start)
                block = os.urandom(MIB)
                with near.wrap_socket(client.socket, server_hostname="localhost") as stream:
                    for at in range(pieces):
                        piece = block[at:at + piece_size]
                        stream.sendall(piece)
                        self.assertEqual(rpc.receive(stream, piece_size), piece)
                self.assertEqual(gateway.metric("tls_connections"), 1)

    def test_mount_is_forwarded_to_its_own_port(self):
        with rpc.Stub() as stub, rpc.Stub(lambda _, message: rpc.reply(
                struct.unpack(">I", message[:4])[0], rpc.u32(0) + rpc.opaque(b"root")
                + rpc.u32(1, 1))) as mountd, ganesha.Gateway(
                    stub.port, "--mount-port", f"0:{mountd.port}", *ONE_PER_SECOND) as gateway:
            mount_port = int(gateway.addresses[2].rpartition(":")[2])
            for _ in range(5):
                self.assertEqual(rpc.root3(mount_port, "/home"), b"root")
            self.assertEqual([len(stub.calls), len(mountd.calls)], [0, 5])

    def test_slurm_names_the_job_of_a_host(self):
        with tempfile.TemporaryDirectory() as folder:
            squeue = pathlib.Path(folder) / "squeue"
            squeue.write_text("""#!/bin/sh
echo '{"jobs":[{"job_id":4711,"node_count":1,"job_state":"RUNNING","nodes":"localhost"}]}'
""", encoding="utf-8")
            squeue.chmod(0o755)
            with rpc.Stub() as stub, ganesha.Gateway(
                    stub.port, "--slurm", "--squeue", squeue, "--slurm-every", "1s") as gateway, \
                    rpc.Client(gateway.port) as client:
                xid = 0
                deadline = time.monotonic() + server.STUCK
                while gateway.requests_of(jobid="4711") == 0:  # until Slurm was asked
                    self.assertLess(time.monotonic(), deadline)
                    client.send(rpc.getattr3(xid, b"handle"))
                    self.assertEqual(client.reply()[0], xid)
                    xid += 1

    def test_is_shown_where_all_services_are(self):
        with tempfile.TemporaryDirectory() as folder:
            trace = pathlib.Path(folder) / "trace"
            with rpc.Stub() as stub, ganesha.Gateway(
                    stub.port, *ONE_PER_SECOND, "--trace", trace,
                    "--journal", f"{folder}/journal") as gateway, \
                    rpc.Client(gateway.port) as client:
                client.send(*(rpc.getattr3(xid, b"handle") for xid in range(20)))
                client.reply()
                told = subprocess.run(
                    [server.WEIR, "explain", "--control", gateway.control, "uid.1000"],
                    capture_output=True, text=True, check=True).stdout
                self.assertIn("all", told)
                subprocess.run([server.WEIR, "rule", "--control", gateway.control, "change", "all",
                                "rate=1000"], check=True, capture_output=True)
                for _ in range(19):
                    client.reply()
                shown = gateway.status()
                self.assertIn("nfs", str(shown))
                self.assertIn("uid.1000", gateway.fetch("/metrics"))
            replayed = subprocess.run([server.WEIR, "sim", "--replay", trace], capture_output=True,
                                      text=True, check=False)
            self.assertEqual(replayed.returncode, 0, replayed.stderr)

    def test_a_file_configures_several(self):
        with rpc.Stub() as first, rpc.Stub() as second, tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "weir.conf"
            file.write_text(f"""
[[service]]
name = "slow"
policy = "tbf"
adaptive = "off"
rules = ["start r jobid={{uid.*}} rate=1 burst=1"]
[[nfs]]
name = "home"
listen = ["127.0.0.1:31001"]
server = "127.0.0.1:{first.port}"
[[nfs]]
name = "archive"
listen = ["127.0.0.1:31002"]
server = "127.0.0.1:{second.port}"
service = "slow"
""", encoding="utf-8")
            with server.Server("--config", file, "--export", "a=memory:1MiB"):
                with rpc.Client(31001) as client:
                    client.send(rpc.getattr3(1, b"handle"), rpc.getattr3(2, b"handle"))
                    self.assertEqual([client.reply()[0], client.reply()[0]], [1, 2])
                with rpc.Client(31002) as client:
                    client.send(*(rpc.getattr3(xid, b"handle") for xid in range(10)))
                    client.reply()
                    self.assertLess(len(second.calls), 5)
                self.assertEqual(len(first.calls), 2)


class Session:
    """A client of NFS 4.1 with one session, like that of all users of a mount."""

    def __init__(self, port):
        self.client = rpc.Client(port)
        self.xid = 0
        owner = rpc.opaque(b"test %d" % os.getpid())
        results = self.ask(rpc.u32(42) + bytes(8) + owner + rpc.u32(0, 0, 0))
        client_id = results[8:16]
        number, = struct.unpack(">I", results[16:20])
        channel = rpc.u32(0, MIB + 4096, MIB + 4096, 4096, 16, 64, 0)
        results = self.ask(rpc.u32(43) + client_id + rpc.u32(number, 0) + channel + channel
                           + rpc.u32(0x40000000, 1, 0))
        self.id = results[8:24]
        self.slots = struct.unpack(">I", results[24 + 8 + 20:24 + 8 + 24])[0]
        self.numbers = [0] * self.slots

    def ask(self, *operations, uid=0):
        """The results of a compound without a session, or in slot 0."""
        self.xid += 1
        self.client.send(rpc.compound(self.xid, operations, uid))
        xid, results = self.client.reply()
        assert xid == self.xid
        status, _, count = struct.unpack(">III", results[:12])
        assert status == 0, (status, count)
        return results[12:]

    def send(self, slot, operations, uid):
        self.xid += 1
        self.numbers[slot] += 1
        self.client.send(rpc.compound(
            self.xid, [rpc.sequence(self.id, slot, self.numbers[slot]), *operations], uid))
        return self.xid

    def status(self):
        """The xid and the status of the next reply."""
        xid, results = self.client.reply()
        return xid, struct.unpack(">I", results[:4])[0]

    def handle_of(self, *names):
        looks = [rpc.u32(15) + rpc.opaque(name) for name in names]
        self.send(0, [rpc.u32(24), *looks, rpc.u32(10)], 0)
        _, results = self.client.reply()
        status, = struct.unpack(">I", results[:4])
        assert status == 0, status
        at = 12 + 44 + 8 * (1 + len(names)) + 8
        size, = struct.unpack(">I", results[at:at + 4])
        return results[at + 4:at + 4 + size]


@unittest.skipIf(ganesha.missing(), ganesha.missing())
class Real(MeasuredTest):
    """Against NFS-Ganesha."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.nfs = ganesha.Ganesha()
        cls.nfs.__enter__()
        cls.addClassCleanup(cls.nfs.__exit__)

    def work(self, port, folder):
        """The operations and results of libnfs through a port, as a checksum."""
        (self.nfs.export / folder).mkdir()
        (self.nfs.export / folder).chmod(0o777)
        seen = hashlib.sha256()
        with tempfile.NamedTemporaryFile() as local:
            for version, size in (3, 5 * MIB + 17), (4, 3000):
                local.seek(0)
                local.truncate()
                local.write(hashlib.sha256(b"%d" % version).digest() * (size // 32 + 1))
                local.flush()
                name = f"{folder}/v{version}"
                ganesha.run("nfs-cp", local.name, self.nfs.url(name, port, version))
                seen.update(ganesha.run("nfs-cat", self.nfs.url(name, port, version)))
                listing = ganesha.run("nfs-ls", self.nfs.url(folder, port, version))
                seen.update(listing)
        for path in sorted((self.nfs.export / folder).iterdir()):
            seen.update(path.name.encode() + path.read_bytes())
        return seen.hexdigest()

    def test_a_workload_is_the_same_with_and_without_the_gateway(self):
        direct = self.work(self.nfs.port, "direct")
        with ganesha.Gateway(self.nfs.port) as gateway:
            self.assertEqual(self.work(gateway.port, "gateway"), direct)
            self.assertEqual(gateway.metric("replies_unmatched"), 0)

    def test_an_export_is_a_field_of_rules(self):
        """Learned from MNT, and named by a prefix of handles; for versions 3 and 4."""
        (self.nfs.export / "small").write_bytes(b"some bytes")
        for options, name in (
                (("--mount-port", f"0:{self.nfs.mount_port}"), str(self.nfs.export)),
                (("--export-handle", "mine=43000007"), "mine")):
            with ganesha.Gateway(
                    self.nfs.port, *options, "--adaptive", "off",
                    "--rule", f"start here export={{{name}}} rate=999999 by=uid+export",
                    "--rule", "start nets nid={*@tcp} rate=999999 by=subnet/24 layer=1",
                    "--rule", "start each nid={*@tcp} rate=999999 by=export layer=2") as gateway:
                learns = options[0] == "--mount-port"
                mount_port = int(gateway.addresses[2].rpartition(":")[2]) if learns \
                    else self.nfs.mount_port
                for version in 3, 4:
                    before = gateway.requests_of(rule="here")
                    read = ganesha.run("nfs-cat", self.nfs.url("small", gateway.port, version,
                                                               mount_port=mount_port))
                    self.assertEqual(read, b"some bytes")
                    deadline = time.monotonic() + server.STUCK
                    while gateway.requests_of(rule="here") == before:  # published once a second
                        self.assertLess(time.monotonic(), deadline, (name, version))
                        time.sleep(0.1)
                self.assertGreater(gateway.requests_of(rule="nets"), 0)
                for asked in "nets/127.0.0.0/24@tcp", f"export={name}":
                    shown = subprocess.run(
                        [server.WEIR, "explain", "--control", gateway.control, asked],
                        capture_output=True, text=True, check=False)
                    self.assertEqual(shown.returncode, 0, shown.stderr)

    def test_a_user_is_limited_and_another_is_not(self):
        (self.nfs.export / "big").write_bytes(os.urandom(4 * MIB))
        with ganesha.Gateway(self.nfs.port, "--adaptive", "off",
                             "--rule", "start r uid={2000} bps=1MiB burst=1MiB") as gateway:
            took = {}
            for uid in 2001, 2000:
                began = time.monotonic()
                ganesha.run("nfs-cat", self.nfs.url("big", gateway.port, uid=uid))
                took[uid] = time.monotonic() - began
            self.assertGreater(took[2000], 2.9)  # 1 MiB is available, 3 have to wait
            self.assertLess(took[2001], 2.5)

    def test_a_server_that_restarts_serves_again(self):
        root = rpc.root3(self.nfs.mount_port, self.nfs.export)
        with ganesha.Gateway(self.nfs.port) as gateway:
            with rpc.Client(gateway.port) as client:
                client.send(rpc.getattr3(1, root))
                self.assertEqual(client.reply()[0], 1)
                self.nfs.stop()
                self.assertTrue(client.is_closed())
            self.nfs.start()
            with rpc.Client(gateway.port) as client:
                client.send(rpc.getattr3(2, root))
                self.assertEqual(client.reply()[0], 2)

    def test_neighbours_on_one_mount(self):
        """200 readers of a limited user, and another user that requests attributes, in one session
        of 64 slots, which calls of the limited user would occupy for seconds."""
        (self.nfs.export / "file").write_bytes(bytes(4096))

        def attempt():
            with ganesha.Gateway(self.nfs.port, "--adaptive", "off",
                                 "--rule", "start r uid={1000} rate=50 burst=5") as gateway:
                session = Session(gateway.port)
                handle = session.handle_of(b"export", b"file")
                load = Mount(session, handle, readers=200)
                load.run(1)
                load.clear()
                load.run(6)
                session.client.socket.close()
                self.assertEqual(load.failed, set(), "the session is in step")
                self.assertGreater(gateway.metric("delayed_calls"), 200)
                rate = load.done / load.seconds
                self.assertLess(rate, 50 * 1.05 + 5 / load.seconds, "whatever else runs")
                waits = sorted(load.stat_seconds)
                is_right = rate > 50 * 0.95 and waits[-1] < 0.1
                return "" if is_right else f"{rate:.1f} reads/s, longest stat {waits[-1]:.3f} s"

        self.measure(attempt)

    def test_neighbours_of_a_limited_writer(self):
        """A write for each slot of the session: the writer sends its data less than twice, or three
        times with what it has in flight, and another user still gets slots."""
        (self.nfs.export / "written").write_bytes(b"")
        (self.nfs.export / "written").chmod(0o666)

        def attempt():
            with ganesha.Gateway(self.nfs.port, "--adaptive", "off", "--memory", "256MiB",
                                 "--rule", "start r uid={1000} bps=10MB") as gateway:
                session = Session(gateway.port)
                load = Mount(session, session.handle_of(b"export", b"written"), session.slots, MIB)
                load.run(2)
                sent, done = load.sent, load.done
                load.clear()
                load.run(5)
                session.client.socket.close()
                self.assertEqual(load.failed, set(), "the session is in step")
                self.assertLess(load.sent, 2 * load.done)
                self.assertLess(sent + load.sent, 3 * (done + load.done), "first writes included")
                rate = load.done * MIB / load.seconds
                waits = sorted(load.stat_seconds)
                is_right = rate > 9_000_000 and waits[-1] < 0.2
                return "" if is_right else f"{rate:.0f} B/s, longest stat {waits[-1]:.3f} s"

        self.measure(attempt)


class Mount:
    """Uses a session like a Linux client: a slot for each call, and a retry 0.11 s after
    NFS4ERR_DELAY. One user reads or writes, and another one requests attributes."""

    def __init__(self, session, handle, readers, write=0):
        self.session = session
        self.put = rpc.u32(22) + rpc.opaque(handle)
        self.transfer = rpc.u32(25) + bytes(16) + rpc.u64(0) + rpc.u32(4096)
        if write:
            self.transfer = (rpc.u32(38) + bytes(16) + rpc.u64(0) + rpc.u32(0)
                             + rpc.opaque(bytes(write)))
        self.getattr = rpc.u32(9, 1, 0x10)
        self.slots = list(range(session.slots))
        self.due = [0.0] * readers  # when each reader sends next
        self.busy = {}              # slot and start by xid; the start of a stat, otherwise None
        self.stat_wanted = None
        self.clear()

    def clear(self):
        self.sent, self.done, self.failed, self.stat_seconds = 0, 0, set(), []
        self.began = time.monotonic()

    def run(self, seconds):
        end = time.monotonic() + seconds
        while (now := time.monotonic()) < end:
            self.send(now)
            if not self.busy or not is_ready(self.session.client.socket):
                time.sleep(0.001)
                continue
            self.take()
        self.seconds = time.monotonic() - self.began

    def send(self, now):
        if self.stat_wanted is None:
            self.stat_wanted = now
        is_asked = any(start is not None for _, start in self.busy.values())
        if self.slots and not is_asked:
            slot = self.slots.pop(0)
            self.busy[self.session.send(slot, [self.put, self.getattr], 1001)] = (
                slot, self.stat_wanted)
        while self.slots and self.due and self.due[0] <= now:
            self.due.pop(0)
            slot = self.slots.pop(0)
            self.busy[self.session.send(slot, [self.put, self.transfer], 1000)] = (slot, None)
            self.sent += 1

    def take(self):
        xid, status = self.session.status()
        slot, start = self.busy.pop(xid)
        self.slots.append(slot)
        now = time.monotonic()
        if start is not None:
            self.stat_seconds.append(now - start)
            self.stat_wanted = None
            if status:
                self.failed.add(status)
            return
        if status == 0:
            self.done += 1
        elif status != rpc.DELAY:
            self.failed.add(status)
        self.due.append(now if status == 0 else now + 0.11)
        self.due.sort()


if __name__ == "__main__":
    ganesha.enter_namespace()
    unittest.main()
