"""A type shown in a document equals the source.

A fence ```` ```python type-of=package.module.Name ```` is compared with that class, function or assignment:
same names, fields, defaults, annotations and signatures; docstrings, comments and bodies are left out.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from .comments import Definition, docstring_node
from .finding import Finding
from .markdown import Fence, Page
from .tree import Tree

RULES = {
    "unknown": "name an existing module and a top-level name in it",
    "unparsable": "show valid Python",
    "differs": "copy the present definition from the source",
    "unmarked": "mark the fence `python type-of=MODULE.NAME`, so that it is kept equal to the source",
}

_MARK = re.compile(r"\btype-of=([\w.]+)")
_PYTHON = re.compile(r"^(?:python|py)\b")


def check(tree: Tree) -> Iterator[Finding]:
    """Report shown types that differ. Settings: `[tool.gates.type_blocks] pages, source`."""
    section = tree.section("type_blocks")
    source = str(section.get("source", "src"))
    names = _class_names(tree, source)
    for page in tree.select(list(section.get("pages", ["README.md", "docs/**.md"]))):
        for fence in Page(tree.text(page)).fences:
            if _PYTHON.match(fence.info):
                yield from _check_fence(tree, page, fence, source, names)


def _class_names(tree: Tree, source: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for path in tree.select([f"{source}/**.py"]):
        for match in re.finditer(r"^class (\w+)", tree.text(path), re.MULTILINE):
            found.setdefault(match[1], path)
    return found


def _check_fence(
    tree: Tree, page: str, fence: Fence, source: str, names: dict[str, str]
) -> Iterator[Finding]:
    mark = _MARK.search(fence.info)
    if not mark:
        for match in re.finditer(r"^class (\w+)", fence.body, re.MULTILINE):
            if match[1] in names:
                yield _at(page, fence.line, "unmarked", f"shows class {match[1]} of {names[match[1]]}")
        return
    module, _, name = mark[1].rpartition(".")
    wanted = _definition(_parse(_module_text(tree, source, module)), name)
    if wanted is None:
        yield _at(page, fence.line, "unknown", f"{mark[1]} is not in the source")
        return
    try:
        shown = _definition(ast.parse(fence.body), name)
    except SyntaxError as error:
        yield _at(page, fence.line + (error.lineno or 1), "unparsable", f"{error.msg}")
        return
    if shown is None or shape(shown) != shape(wanted):
        yield _at(page, fence.line, "differs", f"{mark[1]} reads otherwise in the source")


def _module_text(tree: Tree, source: str, module: str) -> str:
    stem = f"{source}/{module.replace('.', '/')}"
    path = next((p for p in (f"{stem}.py", f"{stem}/__init__.py") if p in tree.file_set), None)
    return tree.text(path) if path else ""


def _parse(text: str) -> ast.Module:
    try:
        return ast.parse(text)
    except SyntaxError:
        return ast.Module(body=[], type_ignores=[])  # the linter reports source that does not parse


def _definition(module: ast.Module, name: str) -> ast.stmt | None:
    for node in module.body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and node.name == name:
            return node
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == name:
            return node
        if isinstance(node, ast.Assign) and any(
            isinstance(t, ast.Name) and t.id == name for t in node.targets
        ):
            return node
    return None


def shape(node: ast.stmt) -> str:
    """Return the definition without docstrings, field texts and function bodies, in one spelling."""
    return ast.unparse(_Strip().visit(ast.parse(ast.unparse(node))))


class _Strip(ast.NodeTransformer):
    """Takes out what a reader of the type does not rely on."""

    def _function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.AST:
        node.body = [ast.Expr(ast.Constant(...))]
        return node

    visit_FunctionDef = _function  # noqa: N815 - the name ast calls
    visit_AsyncFunctionDef = _function  # noqa: N815 - the name ast calls

    def visit_ClassDef(self, node: ast.ClassDef) -> ast.AST:
        self.generic_visit(node)
        node.body = [part for part in node.body if not _is_text(part)] or [ast.Expr(ast.Constant(...))]
        return node


def _is_text(part: ast.stmt) -> bool:
    wrapped: Definition = ast.Module(body=[part], type_ignores=[])
    return docstring_node(wrapped) is not None


def _at(page: str, line: int, rule: str, what: str) -> Finding:
    return Finding(page, line, rule, what, RULES[rule])
