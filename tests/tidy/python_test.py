# SPDX-License-Identifier: Apache-2.0
"""Errors in Python code that show only when a line runs, which may be rare.

A rule is a function rule(text) that yields findings "LINE: what is wrong"; class Bites runs each
rule over a text that violates it.
"""
import ast
import builtins
import symtable
import textwrap
import unittest

from tree import ROOT, project_files, read

ALWAYS = {*dir(builtins), "__file__", "__name__", "__doc__", "__class__"}
POSITIVE = {"assertIn", "assertRegex"}


def scopes(table):
    yield table
    for child in table.get_children():
        yield from scopes(child)


def undefined_names(text):
    """Names that no scope defines, which would go unnoticed in a line that rarely runs."""
    module = symtable.symtable(text, "text", "exec")
    known = {one.get_name() for table in scopes(module) for one in table.get_symbols()
             if (one.is_assigned() or one.is_imported() or one.is_namespace())
             and (table is module or one.is_declared_global())} | ALWAYS
    missing = {one.get_name() for table in scopes(module) for one in table.get_symbols()
               if one.is_referenced() and one.is_global() and one.get_name() not in known}
    used = [node for node in ast.walk(ast.parse(text))
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load) and node.id in missing]
    for node in sorted(used, key=lambda one: one.lineno):
        yield f"{node.lineno}: {node.id} is not defined"


def unused_imports(text):
    """Imports that a module re-exports are marked with noqa: F401."""
    lines = text.splitlines()
    tree = ast.parse(text)
    used = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    for node in tree.body:
        if not isinstance(node, (ast.Import, ast.ImportFrom)) or "F401" in lines[node.lineno - 1]:
            continue
        for one in node.names:
            name = (one.asname or one.name).split(".")[0]
            if name not in used:
                yield f"{node.lineno}: {name} is imported and not used"


def hasty_looks_at_logs(text):
    """A running server logs from its own thread: inside its block a test must wait for log lines
    (await_log). After the block the server has stopped."""
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.With):
            continue
        alive = {item.optional_vars.id for item in node.items
                 if isinstance(item.optional_vars, ast.Name)}
        for statement in node.body:
            for call in ast.walk(statement):
                if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
                    continue
                if call.func.attr not in POSITIVE:
                    continue
                for part in (inner for one in call.args for inner in ast.walk(one)):
                    if isinstance(part, ast.Attribute) and part.attr == "log" \
                            and isinstance(part.value, ast.Name) and part.value.id in alive:
                        yield f"{call.lineno}: wait for what {part.value.id} logs (await_log)"


class Python(unittest.TestCase):
    def keeps(self, rule):
        files = [file for file in project_files(ROOT) if file.suffix == ".py"]
        self.assertGreater(len(files), 50)
        findings = [f"{file}:{finding}" for file in files for finding in rule(read(ROOT, file))]
        if findings:
            self.fail("\n" + "\n".join(findings))

    def test_every_name_is_defined(self):
        self.keeps(undefined_names)

    def test_what_is_imported_is_used(self):
        self.keeps(unused_imports)

    def test_what_a_living_server_logs_is_waited_for(self):
        self.keeps(hasty_looks_at_logs)


class Bites(unittest.TestCase):
    def finds(self, rule, text, *expected):
        findings = list(rule(textwrap.dedent(text)))
        self.assertEqual(len(findings), len(expected), findings)
        for finding, start in zip(findings, expected):
            self.assertTrue(finding.startswith(start), f"{finding!r} is not {start!r}")

    def test_undefined_names(self):
        self.finds(undefined_names, """
            import os
            LIMIT = 3
            def f(a):
                global made
                made = LIMIT
                return [os.sep for b in range(a) if b < end]
            class C:
                other = 1
                def g(self, x=made):
                    return lambda y: x + y + other + __file__
            """, "7: end", "11: other")

    def test_unused_imports(self):
        self.finds(unused_imports, """
            import os, sys
            import os.path as where
            from a import b, c as d
            from a import e  # noqa: F401
            print(sys, b)
            """, "2: os", "3: where", "4: d")

    def test_hasty_looks_at_logs(self):
        self.finds(hasty_looks_at_logs, """
            with Server() as a, Server() as b:
                self.assertIn("x", a.await_log("x"))
                self.assertNotIn("x", a.log)
                if True:
                    self.assertIn("x", b.log)
                self.assertRegex(a.log[3:], "x")
            self.assertIn("x", a.log)
            """, "6: wait for what b", "7: wait for what a")


if __name__ == "__main__":
    unittest.main()
