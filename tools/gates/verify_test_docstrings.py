"""Every test says in one line what it shows."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from .comments import docstring_node
from .finding import Finding
from .tree import Tree

RULES = {
    "missing": "add a docstring that says what holds when this test passes",
    "long": "say it in one line; details belong into comments where they matter",
}


def check(tree: Tree) -> Iterator[Finding]:
    """Report tests without a one-line docstring.

    Settings: `[tool.gates.test_docstrings] include, exclude`.
    """
    section = tree.section("test_docstrings")
    for name in tree.select(list(section.get("include", ["tests/**.py"])), list(section.get("exclude", []))):
        try:
            module = ast.parse(tree.text(name))
        except SyntaxError:
            continue  # the linter reports source that does not parse
        for node in _collected(module.body):
            if node.name.startswith("test_"):
                yield from _check_test(name, node)


def _collected(body: list[ast.stmt]) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield what a test runner collects: functions of the module and its classes, none inside functions."""
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node
        elif isinstance(node, ast.ClassDef):
            yield from _collected(node.body)


def _check_test(name: str, node: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[Finding]:
    place = docstring_node(node)
    if place is None:
        yield Finding(name, node.lineno, "missing", f"{node.name} has no docstring", RULES["missing"])
    elif (place.end_lineno or place.lineno) - place.lineno > 2:
        yield Finding(name, place.lineno, "long", f"{node.name} explains itself at length", RULES["long"])
