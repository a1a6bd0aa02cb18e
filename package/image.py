# SPDX-License-Identifier: Apache-2.0
"""An OCI image of Weir as a tar, built without a daemon: a minimal Debian with the dependencies of
the package, and the files of the package. Its entry point is `weir serve`, as the user weir.

    podman load -i weir-VERSION-oci.tar
    podman run -p 10809:10809 -v weir:/var/lib/weir weir:VERSION

The same package on the same base gives the same bytes.
"""
import gzip
import hashlib
import io
import json
import re
import subprocess
import tarfile
import time

USER = "weir"
ID = 990  # of the user and its group, as in the owner of the folders below
FOLDERS = {"var/lib/weir": 0o750, "run/weir": 0o755}
COMMAND = ["--config", "/etc/weir/weir.conf", "--control", "/run/weir/weir.sock",
           "--journal", "/var/lib/weir/journal"]


def run(*command):
    return subprocess.run([str(one) for one in command], check=True, stdout=subprocess.PIPE).stdout


def base(deb, kept, *more):
    """A Debian root with the dependencies of the package, and more packages, as kept.tar, made only
    once."""
    depends = run("dpkg-deb", "-f", deb, "Depends").decode()
    names = [*re.findall(r"(lib[\w.+-]+)", depends), *more]
    tar, listed = kept.with_suffix(".tar"), kept.with_suffix(".names")
    if not tar.exists() or listed.read_text(encoding="utf-8") != " ".join(names):
        run("mmdebstrap", "--quiet", "--variant=minbase", f"--include={','.join(names)}",
            "bookworm", tar)
        listed.write_text(" ".join(names), encoding="utf-8")
    return tar


def file_of(tar, name):
    with tarfile.open(tar) as opened:
        return opened.extractfile(f"./{name}").read()


def add(tar, name, when, mode, data=None, owner=0):
    entry = tarfile.TarInfo(name)
    entry.mode, entry.mtime, entry.uid, entry.gid = mode, when, owner, owner
    if data is None:
        entry.type = tarfile.DIRTYPE
    else:
        entry.size = len(data)
    tar.addfile(entry, None if data is None else io.BytesIO(data))


def layer_of_package(deb, base_tar, when):
    """The files of the package, its user, and a configuration that listens beyond the container."""
    made = io.BytesIO()
    packed = io.BytesIO(run("dpkg-deb", "--fsys-tarfile", deb))
    with tarfile.open(fileobj=packed) as files, tarfile.open(
            fileobj=made, mode="w", format=tarfile.GNU_FORMAT) as tar:
        for entry in files:
            name = entry.name.removeprefix("./")
            if not name or name == ".":
                continue
            entry.name = name
            data = files.extractfile(entry) if entry.isfile() else None
            if name == "etc/weir/weir.conf":
                text = data.read().replace(b'"127.0.0.1:10809"', b'":10809"')
                entry.size, data = len(text), io.BytesIO(text)
            tar.addfile(entry, data)
        users = file_of(base_tar, "etc/passwd") + (
            f"{USER}:x:{ID}:{ID}::/var/lib/weir:/usr/sbin/nologin\n").encode()
        groups = file_of(base_tar, "etc/group") + f"{USER}:x:{ID}:\n".encode()
        add(tar, "etc/passwd", when, 0o644, users)
        add(tar, "etc/group", when, 0o644, groups)
        for folder, mode in FOLDERS.items():
            add(tar, folder, when, mode, owner=ID)
    return made.getvalue()


def config(layers, when, version):
    return {"created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(when)),
            "architecture": "amd64", "os": "linux",
            "config": {"User": USER, "ExposedPorts": {"10809/tcp": {}},
                       "Entrypoint": ["/usr/bin/weir", "serve"], "Cmd": COMMAND,
                       "Volumes": {"/var/lib/weir": {}}, "WorkingDir": "/var/lib/weir",
                       "Labels": {"org.opencontainers.image.title": "weir",
                                  "org.opencontainers.image.version": version,
                                  "org.opencontainers.image.licenses": "Apache-2.0"}},
            "rootfs": {"type": "layers",
                       "diff_ids": [f"sha256:{hashlib.sha256(one).hexdigest()}" for one in layers]},
            "history": [{"created_by": "mmdebstrap"}, {"created_by": f"weir {version}"}]}


def build(deb, base_tar, into, when, version):
    blobs = {}

    def blob(kind, data):
        digest = hashlib.sha256(data).hexdigest()
        blobs[f"blobs/sha256/{digest}"] = data
        return {"mediaType": f"application/vnd.oci.image.{kind}", "size": len(data),
                "digest": f"sha256:{digest}"}

    def text(value):
        return json.dumps(value, sort_keys=True).encode()

    layers = [base_tar.read_bytes(), layer_of_package(deb, base_tar, when)]
    manifest = {"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
                "config": blob("config.v1+json", text(config(layers, when, version))),
                # Level 1: the image is built in seconds, and a registry compresses no further.
                "layers": [blob("layer.v1.tar+gzip", gzip.compress(one, 1, mtime=0))
                           for one in layers]}
    named = {**blob("manifest.v1+json", text(manifest)),
             "annotations": {"org.opencontainers.image.ref.name": version}}
    files = {"oci-layout": text({"imageLayoutVersion": "1.0.0"}),
             "index.json": text({"schemaVersion": 2, "manifests": [named]}), **blobs}
    with tarfile.open(into, "w", format=tarfile.GNU_FORMAT) as tar:
        for folder in ("blobs", "blobs/sha256"):
            add(tar, folder, when, 0o755)
        for name, data in sorted(files.items()):
            add(tar, name, when, 0o644, data)
    return into
