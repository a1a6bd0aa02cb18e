# SPDX-License-Identifier: Apache-2.0
"""Certificates for tests, made with certtool(1): an authority, a server, clients.

    authority = Authority(folder / "good")
    server = authority.server()            a folder for --tls-certificates
    client = authority.client()            a folder for clients, with a certificate of their own
    nobody = authority.client(certified=False)        with the authority's certificate only
"""
import pathlib
import shutil
import subprocess

EXPIRED = ('activation_date = "2001-01-01 00:00:00 UTC"\n'
           'expiration_date = "2002-01-01 00:00:00 UTC"\n')
VALID = "expiration_days = 10\n"


def certtool(*arguments):
    subprocess.run(["certtool", *map(str, arguments)], check=True, capture_output=True, timeout=60)


class Authority:
    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.folder.mkdir()
        self.made = 0
        self._key(self.folder / "ca-key.pem")
        template = self.folder / "ca.info"
        template.write_text(f"cn = Test {self.folder.name}\nca\ncert_signing_key\n{VALID}")
        certtool("--generate-self-signed", "--load-privkey", self.folder / "ca-key.pem",
                 "--template", template, "--outfile", self.folder / "ca-cert.pem")

    @staticmethod
    def _key(path, rsa_bits=None):
        kind = (["rsa", "--bits", rsa_bits] if rsa_bits else ["ecdsa", "--curve", "secp256r1"])
        certtool("--generate-privkey", "--key-type", *kind, "--outfile", path)

    def _certify(self, role, template, rsa_bits=None):
        self.made += 1
        folder = self.folder / f"{role}{self.made}"
        folder.mkdir()
        shutil.copy(self.folder / "ca-cert.pem", folder)
        info = folder / "info"
        info.write_text(template)
        self._key(folder / f"{role}-key.pem", rsa_bits)
        certtool("--generate-certificate", "--load-ca-certificate", self.folder / "ca-cert.pem",
                 "--load-ca-privkey", self.folder / "ca-key.pem",
                 "--load-privkey", folder / f"{role}-key.pem",
                 "--template", info, "--outfile", folder / f"{role}-cert.pem")
        return folder

    def server(self, validity=VALID, name="localhost", address="127.0.0.1", rsa_bits=None):
        return self._certify("server", f"cn = {name}\ndns_name = {name}\n"
                             f"ip_address = {address}\ntls_www_server\nsigning_key\n"
                             f"encryption_key\n{validity}", rsa_bits)

    def client(self, certified=True, validity=VALID, name="client"):
        if certified:
            return self._certify("client", f"cn = {name}\ntls_www_client\nsigning_key\n"
                                 f"encryption_key\n{validity}")
        self.made += 1
        folder = self.folder / f"nobody{self.made}"
        folder.mkdir()
        shutil.copy(self.folder / "ca-cert.pem", folder)
        return folder
