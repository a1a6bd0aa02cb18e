# SPDX-License-Identifier: Apache-2.0
"""fetch.py LOCK FOLDER PACKAGE FILE...: files of an npm package, without npm.

Downloads the package in the version of the lock file of npm, compares it with the checksum there,
and writes the files to FOLDER/PACKAGE. Does nothing if they already exist. No code of a package is
run. Debian's npm would need 370 packages.

The registry is $npm_config_registry, if that is set, as for npm.
"""
import base64
import hashlib
import http.client
import io
import json
import os
import pathlib
import sys
import tarfile
import urllib.request

REGISTRY = "https://registry.npmjs.org"
TIMEOUT_S = 60


def download(url):
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_S) as answer:
            return answer.read()
    except (OSError, http.client.HTTPException) as error:  # URL errors are OSErrors
        sys.exit(f"fetch: cannot download {url}: {getattr(error, 'reason', error)}")


def main(lock, folder, package, *files):
    entry = json.loads(pathlib.Path(lock).read_text())["packages"][f"node_modules/{package}"]
    folder = pathlib.Path(folder) / package
    stamp = folder / ".integrity"
    if (stamp.is_file() and stamp.read_text() == entry["integrity"] and
            all((folder / file).is_file() for file in files)):
        return
    kind, _, expected = entry["integrity"].partition("-")
    registry = os.environ.get("npm_config_registry") or REGISTRY
    url = (f"{registry.rstrip('/')}/{package}/-/{package.rpartition('/')[2]}-"
           f"{entry['version']}.tgz")
    content = download(url)
    found = base64.b64encode(hashlib.new(kind, content).digest()).decode()
    if found != expected:
        sys.exit(f"fetch: the checksum of {url} differs from the one in {lock}: {kind}-{found}")
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        for file in files:
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).write_bytes(archive.extractfile(f"package/{file}").read())
    stamp.write_text(entry["integrity"])


if __name__ == "__main__":
    main(*sys.argv[1:])
