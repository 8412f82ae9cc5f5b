"""The shape of source: module and function size, module name and docstring, a reason for each exemption."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from .comments import docstring_node
from .finding import Finding
from .tree import Tree

RULES = {
    "module-length": "split the module by job; 600 lines is the limit",
    "module-name": "name the module after its job",
    "module-docstring": "open with a docstring: what the module owns and what it does not",
    "function-length": "split the function; it should fit a screen",
    "exemption-reason": "give the reason behind the exemption on the same line: `# noqa: X - why`",
    "skip-reason": "say why the test is skipped: `reason=...`",
}

_NAMES = frozenset({"util", "utils", "common", "core", "helper", "helpers", "base", "misc"})
_EXEMPTION = re.compile(
    r"#\s*(?:type:\s*ignore(?:\[[\w, -]+\])?|noqa(?::\s*[A-Z]+\d+(?:,\s*[A-Z]+\d+)*)?"
    r"|pragma: no (?:cover|branch))(.*)$"
)
_REASON = re.compile(r"[A-Za-z]{3}")
_SKIP = re.compile(r"pytest\.(?:mark\.)?(?:skip|skipif|xfail)\b")


def check(tree: Tree) -> Iterator[Finding]:
    """Report source out of shape.

    Settings: `[tool.gates.source_shape] include, exclude, max_module, max_function`.
    """
    section = tree.section("source_shape")
    max_module, max_function = int(section.get("max_module", 600)), int(section.get("max_function", 60))
    include = list(section.get("include", ["src/**.py", "tools/**.py", "tests/**.py"]))
    for name in tree.select(include, list(section.get("exclude", []))):
        text = tree.text(name)
        for number, line in enumerate(text.splitlines(), 1):
            found = _EXEMPTION.search(line)
            if found and not _REASON.search(found[1]):
                yield _at(name, number, "exemption-reason", f"{found[0].strip()} has no reason")
        try:
            module = ast.parse(text)
        except SyntaxError:
            continue  # the linter reports source that does not parse
        yield from _skips(name, module)
        if not name.startswith("tests/"):
            yield from _shape(name, text, module, max_module, max_function)


def _skips(name: str, module: ast.Module) -> Iterator[Finding]:
    calls = {id(node.func): node for node in ast.walk(module) if isinstance(node, ast.Call)}
    for node in ast.walk(module):
        if not isinstance(node, ast.Attribute) or not _SKIP.fullmatch(ast.unparse(node)):
            continue
        call = calls.get(id(node))
        words = [word.arg for word in call.keywords] if call else []
        needed = 2 if node.attr == "skipif" else 1
        if "reason" not in words and (call is None or len(call.args) < needed):
            yield _at(name, node.lineno, "skip-reason", f"{ast.unparse(node)} without a reason")


def _shape(name: str, text: str, module: ast.Module, max_module: int, max_function: int) -> Iterator[Finding]:
    lines = text.count("\n")
    if lines > max_module:
        yield _at(name, 0, "module-length", f"{lines} lines")
    if name.rpartition("/")[2].removesuffix(".py") in _NAMES:
        yield _at(name, 0, "module-name", "the name says nothing")
    if text.strip() and docstring_node(module) is None:
        yield _at(name, 1, "module-docstring", "no module docstring")
    for node in ast.walk(module):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            size = _body_lines(node)
            if size > max_function:
                yield _at(name, node.lineno, "function-length", f"{node.name} is {size} lines long")


def _body_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Count the lines without the docstring, which may be as long as a contract needs."""
    size = (node.end_lineno or node.lineno) - node.lineno + 1
    place = docstring_node(node)
    return size - ((place.end_lineno or place.lineno) - place.lineno + 1 if place else 0)


def _at(name: str, line: int, rule: str, what: str) -> Finding:
    return Finding(name, line, rule, what, RULES[rule])
