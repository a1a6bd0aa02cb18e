# SPDX-License-Identifier: Apache-2.0
"""TLS with clients of other projects: libnbd and its tools (GnuTLS), QEMU (GnuTLS), and Python's
ssl module (OpenSSL), which is made to misbehave."""
import contextlib
import os
import pathlib
import random
import selectors
import shutil
import socket
import ssl
import struct
import subprocess
import tempfile
import time
import unittest

import nbd

import server as s
from certificates import EXPIRED, Authority
from server import STUCK, Server

OPT_STARTTLS = 5
ERR_POLICY, ERR_TLS_REQD = 0x80000002, 0x80000005
TURN_NS = 2_000_000  # with sanitizers; 1 ms without


def run(*command):
    return subprocess.run([str(part) for part in command], capture_output=True, text=True,
                          timeout=STUCK, check=False)


class WithCertificates(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.path = pathlib.Path(cls.folder.name)
        cls.good = Authority(cls.path / "good")
        cls.other = Authority(cls.path / "other")
        cls.server = cls.good.server()
        cls.client = cls.good.client()
        cls.nobody = cls.good.client(certified=False)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def serve(self, *arguments, mode="require", certificates=None, export="a=memory:64MiB",
              control=False):
        return Server("--export", export, "--tls", mode, "--tls-certificates",
                      str(certificates or self.server), *arguments, control=control)

    def uri(self, server, name="a", certificates=None, tcp=False):
        end = f"tls-certificates={certificates or self.client}"
        if tcp:
            return f"nbds://localhost:{server.port}/{name}?{end}"
        return f"nbds+unix:///{name}?socket={server.socket}&{end}"

    def assert_alive(self, server):
        """Other clients are served as before."""
        done = run("nbdinfo", "--size", self.uri(server))
        self.assertEqual((done.returncode, done.stdout.strip()), (0, str(64 << 20)), done.stderr)

    def connect(self, server, certificates=None, verify=True):
        handle = nbd.NBD()
        handle.set_tls(nbd.TLS_REQUIRE)
        handle.set_tls_certificates(str(certificates or self.client))
        handle.set_tls_verify_peer(verify)
        handle.set_export_name("a")
        handle.connect_tcp("127.0.0.1", str(server.port))
        return handle


class Clients(WithCertificates):
    def test_nbdinfo_and_nbdcopy(self):
        data = random.Random(1).randbytes(8 << 20)
        source, back = self.path / "source", self.path / "back"
        source.write_bytes(data)
        with self.serve(export="a=memory:8MiB") as server:
            for tcp in (False, True):
                with self.subTest(tcp=tcp):
                    uri = self.uri(server, tcp=tcp)
                    done = run("nbdinfo", uri)
                    self.assertEqual(done.returncode, 0, done.stderr)
                    self.assertIn("with TLS", done.stdout)
                    many = ("--connections=4", "--requests=32", "--request-size=65536")
                    for ends in ((source, uri), (uri, back)):
                        done = run("nbdcopy", *many, *ends)
                        self.assertEqual(done.returncode, 0, done.stderr)
                    self.assertEqual(back.read_bytes(), data)
                    back.unlink()

    def test_libnbd(self):
        with self.serve() as server:
            client = self.connect(server)
            self.assertTrue(client.get_tls_negotiated())
            self.assertTrue(client.get_structured_replies_negotiated())
            data = random.Random(2).randbytes(3 << 20)
            client.pwrite(data, 12345)
            client.flush()
            self.assertEqual(client.pread(len(data), 12345), bytearray(data))
            with self.assertRaises(nbd.Error):
                client.pread(512, 64 << 20)
            self.assertEqual(client.pread(512, 12345), bytearray(data[:512]))
            client.shutdown()

    def test_qemu_img(self):
        image = self.path / "image"
        image.write_bytes(random.Random(3).randbytes(4 << 20))
        with self.serve(export="a=memory:4MiB") as server:
            creds = f"tls-creds-x509,id=t,dir={self.client},endpoint=client"
            target = ("driver=nbd,host=127.0.0.1,"
                      f"port={server.port},export=a,tls-creds=t")
            for command in (
                    ("convert", "--object", creds, "-n", "-f", "raw", "--target-image-opts",
                     image, target),
                    ("compare", "--object", creds, "--image-opts", target,
                     f"driver=raw,file.filename={image}")):
                done = run("qemu-img", *command)
                self.assertEqual(done.returncode, 0, done.stderr)

    def test_replies_that_nobody_reads_take_bounded_memory(self):
        with self.serve("--memory", "64MiB") as server:
            client = self.secure(server)
            s.enter_after_greeting(client)
            for _ in range(4):
                client.sendall(b"".join(s.request(s.READ, i, 0, 4 << 20) for i in range(64)))
            before = server.memory()
            self.assert_alive(server)
            self.assertLess(server.memory() - before, 128 << 20)
            client.close()

    def secure(self, server):
        """A Python socket after the request for TLS."""
        raw = server.connect()
        s.greet(raw)
        raw.sendall(s.option(OPT_STARTTLS))
        self.assertEqual(s.option_reply(raw), (OPT_STARTTLS, 1, b""))
        context = ssl.create_default_context(cafile=str(self.server / "ca-cert.pem"))
        return context.wrap_socket(raw, server_hostname="localhost")

    def test_what_was_agreed_on_in_plain_text_is_forgotten(self):
        with self.serve(mode="on") as server:
            raw = server.connect()
            s.greet(raw)
            raw.sendall(s.option(8))  # structured replies
            self.assertEqual(s.option_reply(raw)[1], 1)
            raw.sendall(s.option(OPT_STARTTLS))
            self.assertEqual(s.option_reply(raw)[1], 1)
            context = ssl.create_default_context(cafile=str(self.server / "ca-cert.pem"))
            client = context.wrap_socket(raw, server_hostname="localhost")
            client.sendall(s.option(OPT_STARTTLS))  # a second request is an error
            self.assertGreater(s.option_reply(client)[1], 1 << 31)
            s.enter_after_greeting(client)
            client.sendall(s.request(s.READ, 7, 0, 512))
            self.assertEqual(s.simple_reply(client, 512), (0, 7, bytes(512)))
            client.close()

    def test_the_end_is_told(self):
        with self.serve() as server:
            client = self.secure(server)
            s.enter_after_greeting(client)
            client.sendall(s.request(s.READ, 1, 0, 512) + s.request(s.DISC))
            self.assertEqual(s.simple_reply(client, 512), (0, 1, bytes(512)))
            self.assertEqual(client.recv(1), b"")  # and not ssl.SSLEOFError
            client.close()


class Turns(WithCertificates):
    def test_the_signature_of_a_large_key_holds_no_thread(self):
        large = self.good.server(rsa_bits=4096)  # 4 ms or more for a signature
        for threads in ("1", "2"):
            with self.serve("--threads", threads, certificates=large, control=True) as server:
                for _ in range(4):
                    handle = self.connect(server)
                    self.assertEqual(len(handle.pread(4096, 0)), 4096)
                    handle.shutdown()
                status = server.status()["threads"]
            longest = max(one["longest_turn_ns"] for one in status)
            self.assertLess(longest, TURN_NS, status)


class Modes(WithCertificates):
    def test_require_refuses_plain_text(self):
        with self.serve() as server:
            done = run("nbdinfo", server.uri("a"))
            self.assertNotEqual(done.returncode, 0)
            client = server.connect()
            s.greet(client)
            for question in (s.option(s.OPT_LIST), s.go(b"a"), s.option(8)):
                client.sendall(question)
                _, kind, text = s.option_reply(client)
                self.assertEqual((kind, text), (ERR_TLS_REQD, b"TLS is required"))
            client.sendall(s.option(s.OPT_EXPORT_NAME, b"a"))
            self.assertTrue(s.is_closed(client))
            client.close()
            self.assert_alive(server)

    def test_on_lets_both_in(self):
        with self.serve(mode="on") as server:
            self.assert_alive(server)
            self.assertEqual(run("nbdinfo", server.uri("a")).returncode, 0)

    def test_off_says_so(self):
        with Server("--export", "a=memory:64MiB") as server:
            self.assertNotEqual(run("nbdinfo", self.uri(server)).returncode, 0)
            client = server.connect()
            s.greet(client)
            client.sendall(s.option(OPT_STARTTLS))
            self.assertEqual(s.option_reply(client)[1], ERR_POLICY)
            client.close()

    def test_mistakes_of_the_operator_have_one_line(self):
        empty = self.path / "empty"
        empty.mkdir()
        broken = self.path / "broken"
        broken.mkdir()
        for name in ("ca-cert.pem", "server-cert.pem", "server-key.pem"):
            (broken / name).write_text("nonsense")
        for status, arguments in ((64, ("--tls", "on")), (64, ("--tls", "perhaps")),
                                  (73, ("--tls", "on", "--tls-certificates", str(empty))),
                                  (64, ("--tls", "on", "--tls-certificates", str(broken)))):
            done = run(s.WEIR, "serve", "--listen", "127.0.0.1:0", "--export", "a=memory:1MiB",
                       *arguments)
            self.assertEqual((done.returncode, done.stderr.count("\n")), (status, 1), done.stderr)


class PlainText(WithCertificates):
    """Configurations that would not encrypt although they are meant to."""

    def check(self, *arguments, file=""):
        config = self.path / "plain.conf"
        config.write_text('[[export]]\nname = "a"\nstore = "memory:1MiB"\n' + file)
        return run(s.WEIR, "serve", "--check-config", "--config", config, *arguments)

    def test_certificates_without_tls_are_refused_with_the_cure(self):
        certificates = ("--tls-certificates", str(self.server))
        directory = f'[tls]\ndirectory = "{self.server}"\n'
        for arguments, file in ((certificates, ""), (("--tls-verify-peer",), ""),
                                ((*certificates, "--tls-verify-peer"), ""),
                                ((*certificates, "--tls", "off"), ""), ((), directory),
                                ((), directory + 'mode = "off"\n'),
                                ((), "[tls]\nverify_clients = true\n"),
                                (("--tls-verify-peer",), directory)):
            with self.subTest(arguments=arguments, file=file):
                done = self.check(*arguments, file=file)
                self.assertEqual(done.returncode, 64, done.stderr)
                self.assertIn("--tls require", done.stderr)
        done = run(s.WEIR, "serve", "--listen", "127.0.0.1:0", "--export", "a=memory:1MiB",
                   *certificates)
        self.assertEqual((done.returncode, done.stderr.count("\n")), (64, 1), done.stderr)

    def test_the_command_line_may_turn_tls_of_the_file_on_and_off(self):
        for arguments, file in (
                (("--tls", "require"), f'[tls]\ndirectory = "{self.server}"\n'),
                (("--tls", "off"), f'[tls]\nmode = "require"\ndirectory = "{self.server}"\n'
                                   "verify_clients = true\n")):
            done = self.check(*arguments, file=file)
            self.assertEqual((done.returncode, done.stderr), (0, ""), file)

    def test_locks_and_clusters_for_other_machines_are_warned_of(self):
        state = f'state = "{self.path}/locks"\n'
        far = '[lock]\nlisten = "0.0.0.0:0"\n' + state
        near = '[lock]\nlisten = "127.0.0.1:0"\n' + state
        cluster = (f'[cluster]\nname = "a"\nlisten = "10.0.0.1:7420"\nstate = "{self.path}/rules"\n'
                   'etcd = ["127.0.0.1:2379", "etcd.example:2379"]\n')
        tls = ("--tls", "require", "--tls-certificates", str(self.server))
        for arguments, file, places in (
                ((), far, ["lock: 0.0.0.0:0"]), ((), near, []), (tls, far, []),
                ((), far + "insecure = true\n", []), (("--lock-insecure",), far, []),
                (("--lock", "[::]:0"), near, ["lock: [::]:0"]),
                ((), cluster, ["cluster: 10.0.0.1:7420", "etcd at etcd.example:2379"]),
                (tls, cluster, ["cluster: 10.0.0.1:7420", "etcd at etcd.example:2379"]),
                ((), cluster + f'tls_directory = "{self.server}"\n', ["etcd.example:2379"]),
                ((), cluster + "insecure = true\n", [])):
            with self.subTest(arguments=arguments, file=file):
                done = self.check(*arguments, file=file)
                self.assertEqual(done.returncode, 0, done.stderr)
                lines = done.stderr.splitlines()
                self.assertEqual(len(lines), len(places), lines)
                for line, place in zip(lines, places):
                    self.assertIn("warning: ", line)
                    self.assertIn(place, line)
                    self.assertIn("insecure = true", line)

    def test_the_warning_is_given_at_the_start(self):
        locks = ("--lock", "0.0.0.0:0", "--lock-state", str(self.path / "state"))
        with Server("--export", "a=memory:1MiB", *locks) as server:
            server.await_log("warning: lock: 0.0.0.0:0")
        self.assertEqual(server.log.count("warning: lock: 0.0.0.0:0"), 1, server.log)
        with Server("--export", "a=memory:1MiB", *locks, "--lock-insecure") as server:
            pass
        self.assertNotIn("warning", server.log)


class Trust(WithCertificates):
    def test_clients_of_another_authority_refuse_the_server(self):
        with self.serve() as server:
            with self.assertRaises(nbd.Error):
                self.connect(server, self.other.client())
            self.assert_alive(server)

    def test_an_expired_server_is_refused(self):
        with self.serve(certificates=self.good.server(EXPIRED)) as server:
            with self.assertRaises(nbd.Error):
                self.connect(server)
            self.connect(server, verify=False).shutdown()

    def test_clients_need_a_certificate_where_it_is_asked_for(self):
        strangers = (self.nobody, self.good.client(validity=EXPIRED), self.other.client())
        with self.serve("--tls-verify-peer") as server:
            for certificates in strangers:
                with self.subTest(certificates), self.assertRaises(nbd.Error):
                    # In TLS 1.3 a client gets the error with its first request.
                    self.connect(server, certificates, verify=False).pread(512, 0)
            self.assert_alive(server)
        with self.serve() as server:
            self.connect(server, self.nobody).shutdown()


class Renewed(WithCertificates):
    """SIGHUP after the files of a running server have changed."""

    def setUp(self):
        self.used = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.put(self.server)

    def put(self, folder, *names):
        for name in names or ("ca-cert.pem", "server-cert.pem", "server-key.pem"):
            shutil.copy(folder / name, self.used / name)

    def hup(self, server, text):
        said = server.reload()
        self.assertIn(text, said)
        return said

    def test_new_connections_see_the_new_certificate_and_old_ones_go_on(self):
        theirs = self.other.client()
        with self.serve("--tls-verify-peer", certificates=self.used) as server:
            first = self.connect(server)
            self.put(self.other.server())
            self.connect(server).shutdown()  # before SIGHUP
            self.hup(server, "reloaded job sizes")
            with self.assertRaises(nbd.Error):
                self.connect(server)  # it does not trust the new authority
            with self.assertRaises(nbd.Error):
                # It is no longer trusted either, which TLS 1.3 reports with the first request.
                self.connect(server, verify=False).pread(512, 0)
            self.connect(server, theirs).shutdown()
            first.pwrite(b"x" * 512, 0)
            self.assertEqual(first.pread(512, 0), bytearray(b"x" * 512))
            first.shutdown()

    def test_a_bad_certificate_changes_nothing(self):
        with self.serve(certificates=self.used) as server:
            for what, spoil in (
                    ("server-cert.pem", lambda: self.put(self.good.server(), "server-key.pem")),
                    ("has expired", lambda: self.put(self.good.server(EXPIRED))),
                    ("server-key.pem", (self.used / "server-key.pem").unlink),
                    ("server-cert.pem", lambda: (self.used / "server-cert.pem").write_text(
                        "-----BEGIN CERTIFICATE-----\nAAAA\n")),
                    ("ca-cert.pem", lambda: (self.used / "ca-cert.pem").write_text(""))):
                with self.subTest(what):
                    spoil()
                    self.assertIn(what, self.hup(server, "the certificates were not changed"))
                    self.assert_alive(server)
                    self.put(self.server)
            self.hup(server, "reloaded job sizes")
            self.assert_alive(server)

    def test_a_bad_certificate_keeps_an_edited_file_from_being_applied(self):
        conf = self.used / "weir.conf"
        text = ('[tls]\nmode = "require"\ndirectory = "{0}"\n[[service]]\npolicy = "tbf jobid"\n'
                'rules = [{1}]\n[[export]]\nname = "a"\nstore = "memory:64MiB"\n')
        conf.write_text(text.format(self.used, ""))
        with Server("--config", str(conf)) as server:
            (self.used / "server-key.pem").unlink()
            conf.write_text(text.format(self.used, '"start r jobid={x} rate=10"'))
            said = self.hup(server, "the configuration was not changed")
            self.assertIn("server-key.pem", said)
            self.assertNotIn("start r", said)
            self.put(self.other.server())
            self.assertIn("start r", self.hup(server, "configuration reloaded"))
            self.connect(server, self.other.client()).shutdown()
            # Conversely, a file with an error keeps the certificates.
            self.put(self.server)
            conf.write_text("nonsense")
            self.hup(server, "the configuration was not changed")
            self.connect(server, self.other.client()).shutdown()


class Hostile(WithCertificates):
    def question(self, server):
        client = server.connect()
        s.greet(client)
        client.sendall(s.option(OPT_STARTTLS))
        self.assertEqual(s.option_reply(client)[1], 1)
        return client

    def test_nonsense_instead_of_tls(self):
        nonsense = (s.go(b"a"), bytes(100), b"\x16\x03\x01\xff\xff" + bytes(70000),
                    b"\x17\x03\x03\x00\x10" + bytes(16), random.Random(4).randbytes(50000))
        with self.serve() as server:
            for text in nonsense:
                client = self.question(server)
                try:
                    client.sendall(text)
                except ConnectionError:
                    pass
                self.assertTrue(s.is_closed(client))
                client.close()
            self.assert_alive(server)

    def test_plain_text_sent_along_with_the_question_is_not_obeyed(self):
        with self.serve(mode="on") as server:
            client = server.connect()
            s.greet(client)
            client.sendall(s.option(OPT_STARTTLS) + s.go(b"a"))
            heard = b""
            try:
                while piece := client.recv(4096):
                    heard += piece
            except ConnectionError:
                pass
            self.assertNotIn(struct.pack(">QII", 0x3e889045565a9, s.OPT_GO, 1), heard)
            client.close()
            self.assert_alive(server)

    def test_a_handshake_that_never_ends_is_ended(self):
        hello = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"  # the start of a handshake
        with self.serve("--handshake-timeout", "300ms") as server:
            for text in (b"", hello):
                client = self.question(server)
                client.sendall(text)
                self.assertTrue(s.is_closed(client))
                client.close()
            server.await_log("its handshake took too long")
            self.assert_alive(server)

    def test_a_message_of_any_length_is_not_collected(self):
        hello = b"\x01" + (100_000).to_bytes(3, "big") + bytes(99_999)
        with self.serve("--handshake-timeout", "1h") as server, self.question(server) as client:
            with contextlib.suppress(ConnectionError):  # it may already have closed
                for at in range(0, len(hello), 16384):
                    piece = hello[at:at + 16384]
                    client.sendall(b"\x16\x03\x01" + len(piece).to_bytes(2, "big") + piece)
            self.assertTrue(s.is_closed(client))
            server.await_log("TLS: The handshake data size is too large")
            self.assert_alive(server)

    def test_garbage_in_an_open_session_ends_it(self):
        with self.serve() as server:
            raw = self.question(server)
            context = ssl.create_default_context(cafile=str(self.server / "ca-cert.pem"))
            client = context.wrap_socket(raw, server_hostname="localhost",
                                         do_handshake_on_connect=True)
            s.enter_after_greeting(client)
            below = socket.socket(fileno=os.dup(client.fileno()))
            below.settimeout(STUCK)
            below.sendall(b"\x17\x03\x03\x00\x20" + bytes(32))  # a record that is not encrypted
            self.assertTrue(s.is_closed(below))
            below.close()
            client.close()
            self.assert_alive(server)

    def test_clients_that_vanish_anywhere(self):
        chance = random.Random(5)
        context = ssl.create_default_context(cafile=str(self.server / "ca-cert.pem"))
        with self.serve() as server:
            for _ in range(40):
                raw = self.question(server)
                incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
                session = context.wrap_bio(incoming, outgoing, server_hostname="localhost")
                cut = chance.randrange(3000)  # bytes to forward
                said = b"".join((s.go(b"a"), s.request(s.WRITE, 1, 0, 1000, payload=bytes(1000)),
                                 s.request(s.READ, 2, 0, 65536)))
                written = False
                while cut > 0:
                    try:
                        session.do_handshake()
                        if not written:
                            session.write(said)
                        written = True
                    except ssl.SSLWantReadError:
                        pass
                    piece = outgoing.read()
                    raw.sendall(piece[:cut])
                    cut -= len(piece)
                    if written or cut <= 0:
                        break
                    incoming.write(raw.recv(65536))
                raw.close()
            self.assert_alive(server)

    def test_another_handshake_in_the_middle_ends_the_session(self):
        with self.serve() as server, socket.create_server(("127.0.0.1", 0)) as listener:
            client = subprocess.Popen(
                ["gnutls-cli", "--inline-commands", "--insecure", "--priority",
                 "NORMAL:-VERS-ALL:+VERS-TLS1.2", "-p", str(listener.getsockname()[1]),
                 "127.0.0.1"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL)
            try:
                front, _ = listener.accept()
                back = self.question(server)
                front.settimeout(STUCK)
                client.stdin.write(b"^renegotiate^\n")
                client.stdin.flush()
                self.splice(front, back)  # returns when the server has closed
                front.close()
                back.close()
                server.await_log("TLS:")
            finally:
                client.kill()
                client.wait()
                client.stdin.close()
            self.assert_alive(server)

    @staticmethod
    def splice(front, back):
        with front.dup() as one, back.dup() as other:
            with selectors.DefaultSelector() as both:
                both.register(one, selectors.EVENT_READ, other)
                both.register(other, selectors.EVENT_READ, one)
                end = time.monotonic() + STUCK
                while time.monotonic() < end:
                    for key, _ in both.select(1):
                        try:
                            piece = key.fileobj.recv(65536)
                            if not piece:
                                return
                            key.data.sendall(piece)
                        except (BrokenPipeError, ConnectionResetError):
                            return


class Hoards(WithCertificates):
    def test_replies_that_nobody_reads(self):
        """They count, whether they are encrypted already or not."""
        memory = 64 << 20
        context = ssl.create_default_context(cafile=str(self.server / "ca-cert.pem"))
        with Server("--export", "a=memory:64MiB", "--tls", "require", "--tls-certificates",
                    str(self.server), "--memory", str(memory), control=True,
                    env=s.LEAN) as server:
            before = server.memory()
            clients = []
            for _ in range(100):
                raw = server.connect()
                s.greet(raw)
                raw.sendall(s.option(OPT_STARTTLS))
                self.assertEqual(s.option_reply(raw), (OPT_STARTTLS, 1, b""))
                client = context.wrap_socket(raw, server_hostname="localhost")
                s.enter_after_greeting(client)
                client.sendall(s.request(s.READ, 1, 0, 16 << 20))
                self.assertEqual(s.simple_reply(client)[:2], (0, 1))  # its payload is in progress
                client.sendall(s.request(77, 2) * 1000)
                clients.append(client)
            self.assert_alive(server)
            status = server.status()
            self.assertLessEqual(status["memory"]["used"], status["memory"]["limit"])
            self.assertLess(server.memory() - before, memory)
            # A client that starts to read gets everything.
            self.assertEqual(s.receive(clients[0], 16 << 20), bytes(16 << 20))
            for _ in range(1000):
                self.assertEqual(s.simple_reply(clients[0])[:2], (22, 2))
            for client in clients:
                client.close()


if __name__ == "__main__":
    unittest.main()
