# SPDX-License-Identifier: Apache-2.0
"""`weir nfs check` of NFS-Ganesha, and of servers that are not NFS servers."""
import contextlib
import os
import pathlib
import socket
import subprocess
import sys
import threading
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import ganesha  # noqa: E402
import server  # noqa: E402


def setUpModule():
    if os.environ.get("WEIR_NAMESPACE") == "own":
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)


def check(port):
    return subprocess.run([server.WEIR, "nfs", "check", f"127.0.0.1:{port}"], text=True,
                          capture_output=True, check=False, timeout=server.STUCK)


class Check(unittest.TestCase):
    def test_no_server(self):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
        done = check(port)
        self.assertEqual(done.returncode, 69)
        self.assertRegex(done.stdout, "^problem: .*cannot be reached: Connection refused")

    def test_another_service(self):
        for greeting in b"SSH-2.0-OpenSSH_9.2\r\n", b"\x80\x00\x00\x08nonsense":
            with socket.create_server(("127.0.0.1", 0)) as listener:
                def serve():
                    connection, _ = listener.accept()
                    with connection, contextlib.suppress(OSError):
                        connection.sendall(greeting)
                        connection.recv(1)
                        connection.shutdown(socket.SHUT_WR)
                        while connection.recv(4096):
                            pass
                thread = threading.Thread(target=serve)
                thread.start()
                done = check(listener.getsockname()[1])
                thread.join()
            self.assertEqual(done.returncode, 69, done)
            self.assertIn("another service", done.stdout)

    def test_a_server_that_accepts_and_never_answers(self):
        with socket.create_server(("127.0.0.1", 0)) as listener:
            began = time.monotonic()
            done = check(listener.getsockname()[1])
        self.assertEqual(done.returncode, 69)
        self.assertIn("does not answer", done.stdout)
        self.assertLess(time.monotonic() - began, 30)

    @unittest.skipIf(ganesha.missing(), ganesha.missing())
    def test_ganesha(self):
        with ganesha.Ganesha() as nfs:
            done = check(nfs.port)
            self.assertEqual(done.returncode, 0, done)
            self.assertIn("ok:      reachable; serves NFS 3, 4.0, 4.1, 4.2\n", done.stdout)
            self.assertIn("the lease is 60 s", done.stdout)
            self.assertIn("warning: the server offers pNFS", done.stdout)  # as it does by default
            self.assertIn(f"'{nfs.export}': the gateway may use it "
                          "(file handles begin with 43000007)", done.stdout)
            self.assertIn("open to clients that mount the server directly", done.stdout)
            # The same through a gateway in front of it.
            with ganesha.Gateway(nfs.port) as gateway:
                self.assertEqual(check(gateway.port).stdout, done.stdout)


if __name__ == "__main__":
    ganesha.enter_namespace()
    unittest.main()
