# SPDX-License-Identifier: Apache-2.0
"""Errors of administrators and peers: reported clearly, and without effect on other servers."""
import contextlib
import pathlib
import select
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
import unittest

from world import (AT_A_RATE, RELEASE, WEIR, Etcd, Member, Remote, World, free_ports,
                   wait_for)

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "clients"))
from certificates import EXPIRED, Authority  # noqa: E402


class Trouble(unittest.TestCase):
    """In a cluster of two, with the sanitizer build."""

    @classmethod
    def setUpClass(cls):
        cls.world = cls.enterClassContext(World(servers=2, binary=WEIR))

    def started(self, name):
        return self.enterContext(Member(name, self.world.etcd.endpoints(), binary=WEIR))

    def test_a_second_server_of_a_name_is_refused_while_the_first_is_alive(self):
        twin = self.started("s0")
        twin.await_log("is already the name of another running server")
        self.assertEqual(twin.status()["state"], "joining")
        self.world.wait_joined()

    def test_rules_that_cannot_be_are_refused(self):
        member = self.world.any()
        for command, status, words in (
                ("start x jobid={*}", 400, "has no limit"),
                ("start x jobid={*} rate=nonsense", 400, "rate"),
                ("start x jobid={*} rate=5 scope=local", 400, "not a rule of the cluster"),
                ("reg start x jobid={*} rate=5", 400, "one priority only"),
                ("change default rate=5", 403, "each server has its own"),
                ("change nobody rate=5", 404, "not a rule of the cluster"),
                ("stop nobody", 404, "not a rule of the cluster"),
                ("start x uid={5} rate=5", 400, "")):
            with self.subTest(command):
                answer = member.rule(command)
                self.assertEqual(answer[0], status, answer)
                self.assertIn(words, str(answer[2]))
        self.assertEqual(member.rule("start x jobid={*} rate=5", "nowhere")[0], 404)

    def test_a_rule_of_the_cluster_is_changed_for_all_or_not_at_all(self):
        one, other = self.world.members.values()
        self.world.rule("start dd jobid={dd.*} rate=50")
        status, _, error = one.weir("cluster", "rule", "start", "dd", "jobid={dd.*}", "rate=5")
        self.assertEqual(status, 65, error)
        self.assertIn("already exists", error)
        line = one.await_log('what="start dd jobid={dd.*} rate=5"')
        self.assertRegex(line, r'on="cluster service ost_io" before="start dd [^"]*" '
                               r'after="start dd [^"]*" generation=\S+ result=".*already exists')
        for arguments in (("rule", "change", "dd", "rate=7"), ("rule", "stop", "dd"),
                          ("rule", "start", "y", "jobid={*}", "rate=7", "scope=cluster")):
            status, _, error = one.weir(*arguments)
            self.assertNotEqual(status, 0)
            self.assertIn("weir cluster rule", error)
        status, _, error = one.weir("cluster", "rule", "change", "dd", "rate=70")
        self.assertEqual(status, 0, error)
        self.assertRegex(one.await_log('what="change dd rate=70"'),
                         r'after="start dd [^"]*; change dd rate=70" generation=\S+ result=ok')
        wait_for("the other has it", lambda: 70 in [
            rule["rate"] for rule in other.get("/v1/services/ost_io/rules")])
        _, listing, _ = other.weir("cluster", "rule", "list")
        self.assertIn("change dd rate=70", listing)
        status, _, error = other.weir("cluster", "rule", "stop", "dd")
        self.assertEqual(status, 0, error)
        wait_for("it is gone", lambda: "dd" not in [
            rule["rule"] for rule in one.get("/v1/services/ost_io/rules")])

    def test_a_rule_that_does_not_fit_one_server_is_told_there(self):
        one, other = self.world.members.values()
        self.assertEqual(other.weir("rule", "start", "mine", "jobid={*}", "rate=9")[0], 0)
        self.addCleanup(other.weir, "rule", "stop", "mine")
        self.assertEqual(one.rule("start mine jobid={*} rate=50")[0], 200)
        self.addCleanup(one.rule, "stop mine")
        wait_for("it is told", lambda: other.status()["rule_errors"])
        self.assertIn("mine", other.status()["rule_errors"][0])
        self.assertEqual(one.status()["rule_errors"], [])

    def test_what_somebody_wrote_to_etcd_by_hand_is_told_and_left_alone(self):
        self.world.etcd.ctl("put", "/weir/rules/ost_io/odd", "rm -rf /")
        self.addCleanup(self.world.etcd.ctl, "del", "/weir/rules/ost_io/odd")
        member = self.world.any()
        member.await_log("is not a valid command for this rule")
        self.world.wait_joined()

    def test_status_shows_who_is_in_it(self):
        status, text, error = self.world.any().weir("cluster", "status")
        self.assertEqual(status, 0, error)
        for word in "joined", "leader", "rounds", "evictions", "s0", "s1":
            self.assertIn(word, text)


class Sluggish(threading.Thread):
    """A proxy to an address that does not react to a connection for a while, like an overloaded
    machine."""
    DELAY = 1.5  # seconds

    def __init__(self, port):
        super().__init__(daemon=True)
        self.port = port
        self.entrance = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self.entrance.getsockname()[1]}"

    def run(self):
        with contextlib.suppress(OSError):
            while True:
                threading.Thread(target=self.pass_on, args=(self.entrance.accept()[0],),
                                 daemon=True).start()

    def pass_on(self, client):
        time.sleep(self.DELAY)
        with client, socket.create_connection(("127.0.0.1", self.port)) as there, \
                contextlib.suppress(OSError):
            while True:
                for one in select.select([client, there], [], [])[0]:
                    data = one.recv(1 << 16)
                    if not data:
                        return
                    (there if one is client else client).sendall(data)

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *_):
        self.entrance.shutdown(socket.SHUT_RDWR)
        self.join()
        self.entrance.close()


class Overloaded(unittest.TestCase):
    def test_an_etcd_that_takes_long_to_answer_a_new_connection_is_met(self):
        with Etcd() as etcd, Sluggish(etcd.clients[0]) as way, \
                Member("s0", [way.address], binary=RELEASE, more=AT_A_RATE) as member:
            wait_for("it has joined", member.is_joined)


class Alone(unittest.TestCase):
    def test_without_etcd_a_server_serves_says_so_once_and_joins_when_it_comes(self):
        etcd = Etcd()
        self.addCleanup(etcd.folder.cleanup)
        with Member("s0", ["127.0.0.1:1"], binary=RELEASE, more=AT_A_RATE) as member:
            member.await_log("running alone")
            self.assertGreater(member.read("j.1", 10), 0)
            self.assertEqual(member.status()["state"], "alone")
            status, _, error = member.weir("cluster", "rule", "start", "x", "jobid={*}", "rate=5")
            self.assertEqual(status, 69, error)
        ports = free_ports(1)
        with Member("s0", [f"127.0.0.1:{ports[0]}"], binary=RELEASE, more=AT_A_RATE) as member:
            member.await_log("running alone")
            etcd.clients, etcd.peers, etcd.processes = ports, free_ports(1), [None]
            etcd.start(0)
            try:
                wait_for("it has joined", member.is_joined)
                self.assertEqual(member.log.count("running alone"), 1)
            finally:
                etcd.end()

    def test_an_etcd_that_hangs_makes_no_error_of_the_end(self):
        with Etcd() as etcd:
            member = Member("s0", etcd.endpoints(), binary=WEIR, lease=10)
            member.arguments += ["--drain-timeout", "1s"]
            with member:
                wait_for("it has joined", member.is_joined)
                etcd.processes[0].send_signal(signal.SIGSTOP)
                # It tries to leave etcd for longer than that and is killed; or less long, if it has
                # noticed already that etcd does not answer. The status is 0 either way.
            self.assertNotIn("are lost", member.log)

    def test_a_server_of_no_cluster_says_so(self):
        with Remote("--export", "a=memory:1MiB", binary=RELEASE) as server:
            status, _, error = server.weir("cluster", "status")
            self.assertEqual(status, 66, error)
            self.assertIn("not in a cluster", error)


class Secured(unittest.TestCase):
    """With certificates and passwords."""

    def setUp(self):
        self.path = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    @staticmethod
    def whole(authority, validity=None):
        """A folder with the certificates of a server and of a client."""
        options = {} if validity is None else {"validity": validity}
        folder = authority.server(**options)
        client = authority.client(**options)
        for file in "client-cert.pem", "client-key.pem":
            (folder / file).write_bytes((client / file).read_bytes())
        return folder

    def test_servers_join_by_tls_and_others_do_not(self):
        good, bad = Authority(self.path / "good"), Authority(self.path / "bad")
        with Etcd() as etcd:
            def member(name, folder):
                return self.enterContext(Member(name, etcd.endpoints(),
                                                more=f'tls_directory = "{folder}"'))
            first = member("s0", self.whole(good))
            wait_for("the first leads", first.is_joined)
            second = member("s1", self.whole(good))
            wait_for("the second has joined", second.is_joined)
            for name, folder in (("stranger", self.whole(bad)),
                                 ("late", self.whole(good, EXPIRED)), ("plain", "")):
                with self.subTest(name):
                    other = member(name, folder)
                    other.await_log("not joined")
                    self.assertEqual(other.status()["state"], "joining")
            self.assertTrue(first.is_joined() and second.is_joined())

    def test_renewed_certificates_are_used_after_sighup(self):
        old, new = Authority(self.path / "old"), Authority(self.path / "new")

        def renew(member, folder):
            for file in self.whole(new).glob("*.pem"):
                shutil.copy(file, folder / file.name)
            member.process.send_signal(signal.SIGHUP)
            member.await_log("configuration reloaded")

        with Etcd() as etcd:
            def member(name, folder):
                return self.enterContext(Member(name, etcd.endpoints(),
                                                more=f'tls_directory = "{folder}"'))
            folders = [self.whole(old), self.whole(old)]
            first = member("s0", folders[0])
            wait_for("the first leads", first.is_joined)
            second = member("s1", folders[1])
            wait_for("the second has joined", second.is_joined)
            renew(first, folders[0])
            third = member("s2", self.whole(new))
            wait_for("one of the new authority has joined", third.is_joined)
            self.assertTrue(second.is_joined(), "what stands goes on")
            renew(second, folders[1])
            # Whichever server leads next, the other one reconnects with its new certificate.
            first.process.terminate()
            wait_for("they have met again", lambda: sorted(
                one["name"] for one in second.status()["members"] if one["joined"]
            ) == ["s1", "s2"])

    def test_a_renewed_etcd_is_met_after_sighup(self):
        old, new = Authority(self.path / "old"), Authority(self.path / "new")
        used = self.path / "used"
        used.mkdir()
        keys = self.path / "keys"
        keys.mkdir()

        def put(folder):
            for file in folder.glob("*.pem"):
                shutil.copy(file, keys / file.name)
            shutil.copy(folder / "ca-cert.pem", used / "ca-cert.pem")

        put(old.server())
        with Etcd(arguments=["--cert-file", str(keys / "server-cert.pem"),
                             "--key-file", str(keys / "server-key.pem")],
                  cacert=keys / "ca-cert.pem") as etcd:
            with Member("s0", etcd.endpoints(), more=f'etcd_tls_directory = "{used}"') as member:
                wait_for("it has joined", member.is_joined)
                etcd.kill(0)
                put(new.server())
                etcd.start(0)
                wait_for("etcd is back", etcd.is_up)
                wait_for("it is not believed", lambda: member.status()["state"] == "alone")
                member.process.send_signal(signal.SIGHUP)
                wait_for("it has joined again", member.is_joined)

    def test_certificates_that_are_missing_are_named(self):
        with self.assertRaisesRegex(AssertionError, "ca-cert.pem"):
            with Member("s0", ["127.0.0.1:1"], more=f'tls_directory = "{self.path}"'):
                pass

    def test_etcd_by_tls_and_with_a_password(self):
        authority = Authority(self.path / "etcd")
        keys = authority.server()
        with Etcd(arguments=["--cert-file", str(keys / "server-cert.pem"),
                             "--key-file", str(keys / "server-key.pem")],
                  cacert=keys / "ca-cert.pem") as etcd:
            for command in (("user", "add", "root:r"), ("user", "add", "weir:secret"),
                            ("role", "add", "weir"), ("user", "grant-role", "weir", "weir"),
                            ("role", "grant-permission", "weir", "readwrite", "--prefix=true",
                             "/weir/"),
                            ("user", "grant-role", "root", "root"), ("auth", "enable")):
                etcd.ctl(*command)
            (self.path / "right").write_text("secret\n")
            (self.path / "wrong").write_text("guess\n")
            def more(password):
                return (f'etcd_tls_directory = "{keys}"\nuser = "weir"\n'
                        f'password_file = "{self.path / password}"\n{AT_A_RATE}')
            with Member("s0", etcd.endpoints(), more=more("right")) as member:
                wait_for("it has joined", member.is_joined)
                with Member("s1", etcd.endpoints(), more=more("wrong")) as other:
                    other.await_log("password_file")
                    self.assertEqual(other.status()["state"], "alone")
                    self.assertNotIn("guess", other.log)
                self.assertTrue(member.is_joined())


if __name__ == "__main__":
    unittest.main()
