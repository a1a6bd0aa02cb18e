#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""docs/openapi.json: valid, served, and the same paths and methods as the server has. Every
response that the other tests of this folder read is compared with it (remote.py)."""
import json
import re
import unittest

import jsonschema

from described import DOCUMENT, ROOT, schema_of_openapi
from remote import DESCRIBED, Remote

TBF = ("--export", "a=memory:64MiB", "--adaptive", "off")


class Document(unittest.TestCase):
    def setUp(self):
        self.document = json.loads(DOCUMENT.read_text(encoding="utf-8"))

    def test_is_openapi(self):
        jsonschema.Draft202012Validator(schema_of_openapi()).validate(self.document)
        for name, schema in self.document["components"]["schemas"].items():
            with self.subTest(name):
                jsonschema.Draft202012Validator.check_schema(schema)

    def test_every_reference_leads_somewhere(self):
        for name in set(re.findall(r'"\$ref": "#/([^"]+)"', DOCUMENT.read_text("utf-8"))):
            node = self.document
            for part in name.split("/"):
                node = node[part]

    def test_has_the_paths_and_methods_of_the_server(self):
        source = (ROOT / "weir/control/api_path.cc").read_text(encoding="utf-8")
        table = source[source.index("kRoutes[]"):source.index("// One part after")]
        served = {}
        for path, methods in re.findall(r'\{"([^"]+)",\s*(kRead|"[^"]+")\}', table):
            words = "GET, HEAD" if methods == "kRead" else methods.strip('"')
            served[path] = set(words.lower().split(", ")) - {"head"}
        described = {re.sub(r"\{\w+\}", "*", path): set(item) - {"parameters"}
                     for path, item in self.document["paths"].items()}
        for path in ("/healthz", "/readyz"):
            self.assertEqual(described.pop(path), {"get"})
        self.assertEqual(served, described)

    def test_is_served(self):
        with Remote(*TBF) as it:
            self.assertEqual(it.get("/v1/openapi.json"), self.document)

    def test_the_comparison_sees_a_wrong_response(self):
        kind = {"Content-Type": "application/json"}
        DESCRIBED.check("GET", "/v1/jobs", 200, kind, '[{"job":"a","nodes":1}]')
        for body in ('[{"job":"a"}]', '[{"job":"a","nodes":"1"}]', '[{"job":"a","nodes":1,"x":1}]',
                     "{}"):
            with self.assertRaises(AssertionError, msg=body):
                DESCRIBED.check("GET", "/v1/jobs", 200, kind, body)
        with self.assertRaises(AssertionError):
            DESCRIBED.check("GET", "/v1/new", 200, kind, "{}")
        with self.assertRaises(AssertionError):
            DESCRIBED.check("GET", "/v1/status", 404, kind, '{"error":"x"}')


class Methods(unittest.TestCase):
    def test_other_methods_are_refused_with_the_allowed_ones(self):
        with Remote(*TBF) as it:
            for path, item in DESCRIBED.document["paths"].items():
                path = re.sub(r"\{\w+\}", "x", path)
                allowed = {one.upper() for one in item} - {"PARAMETERS"}
                allowed |= {"HEAD"} if "GET" in allowed else set()
                for method in {"GET", "PUT", "POST", "DELETE", "PATCH", "OPTIONS"} - allowed:
                    status, head, body = it.http(method, path, "{}")
                    self.assertEqual(status, 405, (method, path))
                    self.assertEqual(set(head["Allow"].split(", ")), allowed, path)
                    self.assertEqual(json.loads(body)["status"], 405)


if __name__ == "__main__":
    unittest.main(verbosity=2)
