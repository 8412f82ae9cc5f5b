"""Relative links in Markdown reach a file of the project, and their fragments a heading or a line."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from urllib.parse import unquote

from .finding import Finding
from .markdown import Link, Page
from .tree import Tree

RULES = {
    "target": "correct the path (case matters) or add the file",
    "outside": "link within the project; a reader of the repository has nothing above it",
    "absolute": "write the path relative to this file",
    "fragment": "use the slug of a heading there, or put `<a id>` at the place",
    "line": "link to a line that exists, or to the file",
}

_SCHEME = re.compile(r"^[a-zA-Z][a-zA-Z0-9+.-]*:|^//")
_LINE = re.compile(r"^L(\d+)(?:-L(\d+))?$")


def check(tree: Tree) -> Iterator[Finding]:
    """Report links that lead nowhere. Exclusions: `[tool.gates.md_links] exclude`."""
    excluded = list(tree.section("md_links").get("exclude", []))
    pages: dict[str, Page] = {}
    for name in tree.select(["**.md"], excluded):
        for link in _page(tree, pages, name).links:
            if not _SCHEME.match(link.target):
                yield from _check_link(tree, pages, name, link)


def _page(tree: Tree, pages: dict[str, Page], name: str) -> Page:
    if name not in pages:
        pages[name] = Page(tree.text(name))
    return pages[name]


def _check_link(tree: Tree, pages: dict[str, Page], name: str, link: Link) -> Iterator[Finding]:
    path, _, fragment = link.target.partition("#")
    if path.startswith("/"):
        yield Finding(name, link.line, "absolute", f"{link.target} starts at the root", RULES["absolute"])
        return
    folder = posixpath.dirname(name)
    target = posixpath.normpath(posixpath.join(folder, unquote(path))) if path else name
    if target == ".." or target.startswith("../"):
        yield Finding(name, link.line, "outside", f"{link.target} leaves the project", RULES["outside"])
        return
    target = "" if target == "." else target
    if target in tree.folders and not fragment:
        return
    if target not in tree.file_set:
        yield Finding(name, link.line, "target", f"{link.target} does not exist", RULES["target"])
    elif fragment:
        yield from _check_fragment(tree, pages, name, link, target, fragment)


def _check_fragment(
    tree: Tree, pages: dict[str, Page], name: str, link: Link, target: str, fragment: str
) -> Iterator[Finding]:
    lines = _LINE.match(fragment)
    if lines and not target.endswith(".md"):
        last = int(lines[2] or lines[1])
        if last > len(tree.text(target).splitlines()):
            yield Finding(name, link.line, "line", f"{target} has no line {last}", RULES["line"])
    elif unquote(fragment) not in _page(tree, pages, target).anchors:
        yield Finding(name, link.line, "fragment", f"{target} has no place #{fragment}", RULES["fragment"])
