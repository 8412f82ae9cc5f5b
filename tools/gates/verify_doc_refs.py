"""Every `docs/…` path cited in source, tests, examples or settings resolves."""

from __future__ import annotations

import re
from collections.abc import Iterator

from .finding import Finding
from .markdown import Page
from .tree import Tree

RULES = {
    "reference": "correct the path or add the page",
    "fragment": "use the slug of a heading of that page",
}

_INCLUDE = [
    "**.py",
    "**.toml",
    "**.cfg",
    "**.ini",
    "**.yml",
    "**.yaml",
    "**.sh",
    "**.js",
    "**.mjs",
    "**.ts",
    "**Makefile",
    ".ci/**",
]
_CITED = re.compile(r"(?<![\w./-])docs/(?:[\w-]+/)*[\w.-]*\w\.[a-z]{2,4}\b(?:#([\w-]+))?")


def check(tree: Tree) -> Iterator[Finding]:
    """Report citations of pages that do not exist. Settings: `[tool.gates.doc_refs] include, exclude`."""
    section = tree.section("doc_refs")
    anchors: dict[str, frozenset[str]] = {}
    for name in tree.select(list(section.get("include", _INCLUDE)), list(section.get("exclude", []))):
        text = tree.text(name)
        if "docs/" not in text:
            continue
        for number, line in enumerate(text.splitlines(), 1):
            for match in _CITED.finditer(line):
                path, _, fragment = match[0].partition("#")
                if path not in tree.file_set:
                    yield Finding(name, number, "reference", f"{path} does not exist", RULES["reference"])
                    continue
                if not fragment:
                    continue
                if path not in anchors:
                    anchors[path] = Page(tree.text(path)).anchors
                if fragment not in anchors[path]:
                    yield Finding(
                        name, number, "fragment", f"{path} has no place #{fragment}", RULES["fragment"]
                    )
