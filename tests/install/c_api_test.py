#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The library for C programs as users get it: its header, its symbols, the code of
docs/embedding.md, and examples/c-server with real clients, all built against an installed
prefix."""
import os
import pathlib
import re
import socket
import struct
import subprocess
import tempfile
import unittest

SOURCE = pathlib.Path(os.environ["WEIR_SOURCE_DIR"])
RELEASE = pathlib.Path(os.environ["WEIR_RELEASE_BIN"]).parents[2]
EXAMPLE = SOURCE / "examples/c-server"
RELEASES = SOURCE / "tests/recorded/c-api"
STUCK = 120
WARNINGS = ("-Wall", "-Wextra", "-Wpedantic", "-Werror")
HOG, POLITE = 32, 8  # requests
SAVED = 8  # ControllerOptions::kShareDepthMin


def run(*command, **options):
    ran = subprocess.run([str(one) for one in command], capture_output=True, text=True,
                         timeout=STUCK, check=False, **options)
    if ran.returncode != 0:
        raise AssertionError(f"{command}: {ran.returncode}\n{ran.stdout}{ran.stderr}")
    return ran.stdout


def declarations(header):
    """Functions, types and constants of a header, each on one line, without comments."""
    text = re.sub(r"(?m)//.*$", "", header)
    defined = re.findall(r"(?m)^#define (?!WEIR_API)(WEIR_\w+ \S+)$", text)
    text = re.sub(r"(?m)^#.*$", "", text).partition('extern "C" {')[2]
    flat = " ".join(text.split())
    # A declaration ends at a semicolon outside braces.
    declared = re.findall(r"\s*((?:[^;{}]|\{[^{}]*\})+);", flat)
    return [one.removeprefix("WEIR_API ") for one in defined + declared]


def is_kept(old, now):
    """Whether programs that were compiled with the old declaration run with what there is now.
    An enumeration, and a structure that begins with its size, may grow at its end."""
    if old in now:
        return True
    if not re.match(r"enum |typedef struct \w+ \{ size_t size;", old):
        return False

    def parts(text):
        head, _, rest = text.partition("{")
        body = [member.strip() for member in re.split("[,;]", rest.partition("}")[0])]
        return head, [member for member in body if member]
    head, members = parts(old)
    return any(parts(one)[0] == head and parts(one)[1][:len(members)] == members for one in now)


class Nbd:
    """A client that sends requests without waiting for their replies."""

    def __init__(self, port, name):
        self.socket = socket.create_connection(("127.0.0.1", port), STUCK)
        self.read(18)
        option = struct.pack(">I", len(name)) + name.encode() + b"\0\0"
        self.socket.sendall(struct.pack(">IQII", 3, 0x49484156454F5054, 7, len(option)) + option)
        kind = 0
        while kind != 1:  # NBD_REP_ACK
            _, _, kind, length = struct.unpack(">QIII", self.read(20))
            self.read(length)

    def read(self, count):
        data = b""
        while len(data) < count:
            more = self.socket.recv(count - len(data))
            if not more:
                raise AssertionError("the server has closed the connection")
            data += more
        return data

    def send(self, *requests):
        """Each is a command, an offset, data, and the length if there is no data; all at once."""
        self.socket.sendall(b"".join(
            struct.pack(">IHHQQI", 0x25609513, 0, kind, 1, offset, len(data) or length) + data
            for kind, offset, data, *rest in requests for length in [*rest, 0][:1]))

    def reply(self, length=0):
        _, error, _ = struct.unpack(">IIQ", self.read(16))
        return (error, self.read(length) if error == 0 else b"")

    def close(self):
        self.socket.close()


class CApi(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.prefix = cls.folder / "prefix"
        run("cmake", "--install", RELEASE, "--prefix", cls.prefix)
        found = {**os.environ, "PKG_CONFIG_PATH": str(cls.prefix / "lib/pkgconfig")}
        cls.flags = run("pkg-config", "--cflags", "--libs", "weir-c", env=found).split()
        cls.library = cls.prefix / "lib/libweir.so.0"
        cls.server = cls.folder / "build/c-server"
        run("cmake", "-S", EXAMPLE, "-B", cls.server.parent, "-G", "Unix Makefiles",
            f"-DCMAKE_PREFIX_PATH={cls.prefix}", f"-DCMAKE_C_FLAGS=-std=c11 {' '.join(WARNINGS)}")
        run("cmake", "--build", cls.server.parent)

    def start(self, *arguments):
        disk = self.folder / "disk"
        disk.write_bytes(bytes(1 << 20))
        server = subprocess.Popen([self.server, disk, *arguments], stdout=subprocess.PIPE,
                                  text=True)
        self.addCleanup(server.wait)
        self.addCleanup(server.kill)
        self.addCleanup(server.stdout.close)
        port = re.fullmatch(r"ready on port (\d+)\n", server.stdout.readline())
        return server, int(port[1])

    def client(self, port, name):
        client = Nbd(port, name)
        self.addCleanup(client.close)
        return client

    def test_exported_symbols_are_those_of_the_list_and_of_the_header(self):
        listed = set(re.findall(r"^    (weir_\w+);",
                                (SOURCE / "weir/embed/weir.map").read_text(), re.MULTILINE))
        declared = set(re.findall(r"^WEIR_API .*?(weir_\w+)\(",
                                  (self.prefix / "include/weir.h").read_text(), re.MULTILINE))
        exported = {line.split()[-1] for line in
                    run("nm", "-D", "--defined-only", self.library).splitlines()}
        self.assertEqual(exported, {f"{one}@@WEIR_0" for one in listed} | {"WEIR_0"})
        self.assertEqual(declared, listed)
        dynamic = run("readelf", "-d", self.library)
        self.assertIn("soname: [libweir.so.0]", dynamic)
        for needed in re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic):
            self.assertRegex(needed, r"^(libabsl_|libstdc\+\+|libgcc_s|libm|libc|ld-linux)")

    def test_every_declaration_of_earlier_releases_is_kept(self):
        """A release adds its declarations(weir.h) as tests/recorded/c-api/VERSION.txt."""
        now = declarations((self.prefix / "include/weir.h").read_text(encoding="utf-8"))
        exported = run("nm", "-D", "--defined-only", self.library)
        releases = sorted(RELEASES.glob("*.txt"))
        self.assertTrue(releases)
        for release in releases:
            for old in release.read_text(encoding="utf-8").splitlines():
                with self.subTest(release=release.stem, declaration=old):
                    self.assertTrue(is_kept(old, now), "programs that use it would break")
                    for name in re.findall(r"(weir_\w+)\(", old)[:1]:
                        self.assertRegex(exported, rf" {name}@@WEIR_0\n")

    def test_a_broken_promise_is_seen(self):
        old = ["int weir_f(int a)", "enum weir_e { A, B }",
               "typedef struct weir_o { size_t size; int a; } weir_o",
               "typedef struct weir_b { int a; } weir_b"]
        grown = ["int weir_f(int a)", "enum weir_e { A, B, C }",
                 "typedef struct weir_o { size_t size; int a; int b; } weir_o",
                 "typedef struct weir_b { int a; int b; } weir_b"]
        self.assertEqual([is_kept(one, grown) for one in old], [True, True, True, False])
        broken = ["int weir_f(long a)", "enum weir_e { B, A }",
                  "typedef struct weir_o { size_t size; long a; } weir_o"]
        self.assertEqual([is_kept(one, broken) for one in old], [False] * 4)

    def test_the_header_is_c_and_cxx(self):
        for compiler in (("gcc", "-std=c99", "-xc"), ("clang", "-std=c11", "-xc"),
                         ("g++", "-std=c++11", "-xc++")):
            run(*compiler, *WARNINGS, "-fsyntax-only", f"-I{self.prefix}/include", "-",
                input="#include <weir.h>\n#include <weir.h>\n")

    def test_the_code_of_the_document_works(self):
        text = (SOURCE / "docs/embedding.md").read_text(encoding="utf-8")
        blocks = re.findall(r"^```(c|cpp)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        self.assertEqual([language for language, _ in blocks], ["cpp", "c"] * 2)
        for number, (language, code) in enumerate(blocks):
            if language == "cpp":
                run("g++", "-std=c++20", "-Wall", "-Werror", "-fsyntax-only", "-xc++",
                    f"-I{self.prefix}/include", "-", input=code)
                continue
            program = self.folder / f"block{number}"
            run("gcc", "-std=c11", *WARNINGS, "-xc", "-", "-xnone", *self.flags,
                f"-Wl,-rpath,{self.prefix}/lib", "-o", program, input=code)
            said = run(program)
            self.assertTrue(number != 1 or '"job":"dd.500","arrived":1,"finished":1' in said, said)

    def test_the_server_is_short_and_serves_clients_of_others(self):
        self.assertLess(len((EXAMPLE / "server.c").read_text().splitlines()), 300)
        _, port = self.start()
        uri = f"nbd://127.0.0.1:{port}/alice"
        self.assertEqual(run("nbdinfo", "--size", uri).strip(), str(1 << 20))
        run("qemu-io", "-f", "raw", "-c", "write -P 7 4k 64k", "-c", "read -P 7 4k 64k",
            "-c", "flush", uri)
        client = self.client(port, "bob")
        client.send((0, 1 << 20, b"", 1))  # beyond the end
        self.assertEqual(client.reply(1)[0], 22)
        client.send((9, 0, b""))  # no such command
        self.assertEqual(client.socket.recv(1), b"")
        self.assertEqual(run("nbdinfo", "--size", uri).strip(), str(1 << 20))

    def test_a_client_with_many_requests_does_not_delay_another(self):
        # Each write of the hog has its number, and each read of the other shows how many were
        # done before it. At 10 a second the hog needs 3 s for what it has sent at once.
        _, port = self.start("10")
        hog, polite = self.client(port, "hog"), self.client(port, "polite")
        hog.send(*[(1, 0, bytes([number])) for number in range(1, HOG + 1)])
        self.assertEqual(hog.reply()[0], 0)
        polite.send(*[(0, 0, b"", 1)] * POLITE)
        seen = [polite.reply(1)[1][0] for _ in range(POLITE)]
        # In turns, except for the tokens that a job may save up; in the order of arrival it would
        # be all of the hog's.
        self.assertLess(seen[-1], HOG, seen)
        self.assertLessEqual(seen[-1] - seen[0], POLITE + SAVED, seen)

    def test_a_client_that_leaves_takes_its_requests_along(self):
        _, port = self.start("none", "start slow jobid={slow} rate=1 burst=1")
        slow = self.client(port, "slow")
        slow.send(*[(0, 0, b"", 512)] * HOG)
        self.assertEqual(slow.reply(512)[0], 0)
        slow.close()
        other = self.client(port, "other")
        other.send((0, 0, b"", 512))
        self.assertEqual(other.reply(512)[0], 0)

    def test_a_rule_that_is_not_valid_is_named(self):
        disk = self.folder / "small"
        disk.write_bytes(b"x")
        ran = subprocess.run([self.server, disk, "none", "start x rate"], capture_output=True,
                             text=True, timeout=STUCK, check=False)
        self.assertEqual(ran.returncode, 1)
        self.assertRegex(ran.stderr, r"^c-server: rules: rule 'start x rate', column 9: ")


if __name__ == "__main__":
    unittest.main(verbosity=2)
