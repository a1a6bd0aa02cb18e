# SPDX-License-Identifier: Apache-2.0
"""Which address the server of a gateway sees, with every --source and with the PROXY protocol.
haproxy sends and reads headers; hosts are network namespaces."""
import contextlib
import ctypes
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import ganesha  # noqa: E402
import rpc  # noqa: E402
import server  # noqa: E402

sys.path.insert(0, str(ganesha.ROOT / "tests/cluster"))
from network import Network  # noqa: E402

CLONE_NEWNET = 0x40000000
HAPROXY = """
global
  maxconn 100
defaults
  mode tcp
  timeout connect 10s
  timeout client 60s
  timeout server 60s
listen in
  bind 127.0.0.1:{port}{accept}
  source {source}
  server next 127.0.0.1:{server} send-proxy-v2
"""


def on(network, host, make):
    """What `make` returns; a socket that it makes is one of that host."""
    made = []

    def run():
        with open(f"/run/netns/{network.space(host)}", encoding="utf-8") as space:
            libc = ctypes.CDLL(None, use_errno=True)
            assert libc.setns(space.fileno(), CLONE_NEWNET) == 0, os.strerror(ctypes.get_errno())
        made.append(make())

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return made[0]


def setUpModule():
    if os.environ.get("WEIR_NAMESPACE") == "own":
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


@contextlib.contextmanager
def haproxy(server_port, source="127.0.0.1", accepts=False):
    """A proxy that sends a header to the server; the port on which it listens."""
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder, "haproxy.cfg")
        file.write_text(HAPROXY.format(port=port, server=server_port, source=source,
                                       accept=" accept-proxy" if accepts else ""),
                        encoding="utf-8")
        process = subprocess.Popen(["haproxy", "-db", "-f", file], stderr=subprocess.DEVNULL)
        try:
            ganesha.await_port(port)
            yield port
        finally:
            process.terminate()
            process.wait(server.STUCK)


class HeaderReader(rpc.Stub):
    """A server behind a proxy: `headers` are those of its connections, as (address, port)."""

    def __init__(self):
        super().__init__()
        self.headers = []

    def serve(self, connection):
        with contextlib.suppress(ConnectionError):
            head = rpc.receive(connection, 16)
            body = rpc.receive(connection, int.from_bytes(head[14:], "big"))
            if head[12] == 0x21:
                self.headers.append((socket.inet_ntoa(body[:4]),
                                     int.from_bytes(body[8:10], "big")))
        super().serve(connection)


@unittest.skipIf(ganesha.missing(), ganesha.missing())
class Sources(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.network = cls.enterClassContext(Network("client", "gateway", "nfs"))
        cls.stub = on(cls.network, "nfs", lambda: rpc.Stub(host="0.0.0.0"))
        cls.enterClassContext(cls.stub)
        here = [cls.network.address(name) for name in ("client", "gateway", "nfs")]
        cls.client, cls.gateway, cls.server = here

    def serve(self, source):
        gateway = ganesha.Gateway(self.stub.port, "--server", f"{self.server}:{self.stub.port}",
                                  "--listen", f"0.0.0.0:{self.stub.port}", "--source", source,
                                  prefix=self.network.prefix("gateway"))
        del gateway.arguments[2:4]  # the server of 127.0.0.1
        return gateway

    def source_seen(self, port=0, to=None):
        """The address and port of a connection of the client that the server sees."""
        before = len(self.stub.connections)
        client = on(self.network, "client", lambda: rpc.Client(
            self.stub.port, host=to or self.gateway, source=(self.client, port)))
        client.send(rpc.null(1))
        self.assertEqual(client.reply()[0], 1)
        seen = self.stub.connections[before].getpeername()
        own = client.socket.getsockname()
        # With a reset, so that its port can be used again at once.
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        ends = len(self.stub.ends)
        client.socket.close()
        self.stub.wait(lambda: len(self.stub.ends) > ends)
        return seen, own

    def test_any(self):
        with self.serve("any"):
            (address, port), own = self.source_seen()
            self.assertEqual(address, self.gateway)
            self.assertGreaterEqual(port, 1024)
            self.source_seen()
            self.assertEqual(self.source_seen(own[1])[0], (address, port), "as its predecessor")

    def test_reserved(self):
        with self.serve("reserved"):
            (address, port), own = self.source_seen()
            self.assertEqual(address, self.gateway)
            self.assertTrue(512 <= port < 1024, port)
            (_, other), _ = self.source_seen()
            self.assertTrue(512 <= other < 1024 and other != port, (other, port))
            self.assertEqual(self.source_seen(own[1])[0], (address, port), "as its predecessor")

    def route(self, host, lines):
        lines = [line.format(port=self.stub.port, client=self.client, gateway=self.gateway,
                             server=self.server) for line in lines]
        self.network.ip(host, lines)
        undo = [line.replace(" add ", " del ") for line in reversed(lines)]
        self.addCleanup(self.network.ip, host, undo)

    def catch_answers(self):
        """What the manual says for --source client."""
        self.route("nfs", ["route add {client}/32 via {gateway}"])
        self.route("gateway", ["rule add iif net ipproto tcp sport {port} lookup 100",
                               "route add local default dev lo table 100"])

    def test_the_address_of_the_client(self):
        self.catch_answers()
        with self.serve("client"):
            seen, own = self.source_seen(901)
            self.assertEqual(seen, (self.client, 901))
            self.assertEqual(own, seen)

    def test_fully_transparent(self):
        self.catch_answers()
        self.route("client", ["route add {server}/32 via {gateway}"])
        self.route("gateway", ["rule add iif net ipproto tcp dport {port} lookup 100"])
        with self.serve("client") as gateway:
            seen, own = self.source_seen(902, to=self.server)
            self.assertEqual(seen, own)
            self.assertEqual(gateway.metric("calls"), 1, "it went through the gateway")

    def test_all_reserved_ports_are_in_use(self):
        with self.serve("reserved") as gateway, contextlib.ExitStack() as stack:
            before = len(self.stub.connections)
            clients = [stack.enter_context(on(self.network, "client", lambda: rpc.Client(
                self.stub.port, host=self.gateway))) for _ in range(513)]
            for client in clients[:512]:
                client.send(rpc.null(1))
                client.reply()
            ports = {one.getpeername()[1] for one in self.stub.connections[before:]}
            self.assertEqual(ports, set(range(512, 1024)))
            self.assertTrue(clients[512].is_closed())
            gateway.await_log("cannot be reached: all reserved source ports are in use")


@unittest.skipIf(ganesha.missing(), ganesha.missing())
class PrivilegedPorts(unittest.TestCase):
    def test_ganesha_accepts_reserved_source_ports_only(self):
        """MOUNT goes through the gateway too."""
        with ganesha.Ganesha(privileged=True) as nfs:
            (nfs.export / "file").write_text("text", encoding="utf-8")
            for source in "any", "reserved":
                with ganesha.Gateway(nfs.port, "--source", source, "--mount-port",
                                     f"0:{nfs.mount_port}") as gateway:
                    mount_port = int(gateway.addresses[2].rpartition(":")[2])
                    url = nfs.url("file", gateway.port, mount_port=mount_port)
                    if source == "any":
                        with self.assertRaises(AssertionError):
                            ganesha.run("nfs-cat", url)
                        continue
                    self.assertEqual(ganesha.run("nfs-cat", url), b"text")


@unittest.skipIf(shutil.which("haproxy") is None, "haproxy is missing")
class Headers(unittest.TestCase):
    def test_haproxy_on_both_sides(self):
        with HeaderReader() as stub, haproxy(stub.port, accepts=True) as behind, \
                ganesha.Gateway(behind, "--send-proxy", "--accept-proxy", "127.0.0.9@tcp",
                                "--adaptive", "off", "--rule",
                                "start far nid={127.0.0.5@tcp} rate=1000") as gateway, \
                haproxy(gateway.port, source="127.0.0.9") as front, \
                rpc.Client(front, source=("127.0.0.5", 0)) as client:
            client.send(*(rpc.getattr3(xid, b"handle") for xid in range(3)))
            self.assertEqual([client.reply()[0] for _ in range(3)], [0, 1, 2])
            self.assertIn(client.socket.getsockname(), stub.headers)
            self.assertGreaterEqual(gateway.metric("proxy_headers"), 1)
            self.assertEqual(gateway.requests_of(rule="far"), 3)

    def test_a_listed_client_must_send_a_header_and_no_other_may(self):
        with rpc.Stub() as stub, ganesha.Gateway(
                stub.port, "--accept-proxy", "127.0.0.9@tcp") as gateway:
            with rpc.Client(gateway.port, source=("127.0.0.9", 0)) as client:
                client.send(rpc.null(1))
                self.assertTrue(client.is_closed())
            gateway.await_log("127.0.0.9@tcp: no PROXY header of version 2")
            with haproxy(gateway.port) as front, rpc.Client(front) as client:
                client.send(rpc.null(1))
                self.assertTrue(client.is_closed())
            self.assertEqual(stub.calls, [])
            with rpc.Client(gateway.port) as client:
                client.send(rpc.null(2))
                self.assertEqual(client.reply()[0], 2)


if __name__ == "__main__":
    ganesha.enter_namespace()
    unittest.main()
