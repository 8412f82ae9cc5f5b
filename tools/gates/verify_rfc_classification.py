"""The path is the label: every record lies in `{lifecycle}/{class}/YYYY-MM-DD-title.md` and nowhere else."""

from __future__ import annotations

import re
from collections.abc import Iterator

from .finding import Finding
from .markdown import Page
from .records import ARCHIVE, CLASSES, FIXED_FILES, LIFECYCLES, MANIFEST, root_of, split_name
from .tree import Tree

RULES = {
    "root-entry": "move it below a lifecycle and a class; here lie README, TEMPLATE.md and INDEX.md only",
    "depth": "place it as {lifecycle}/{class}/YYYY-MM-DD-title.md, exactly three segments",
    "class": f"use one of {', '.join(CLASSES)}",
    "file-name": "name it YYYY-MM-DD-title.md: a real date, then lower-case words joined by hyphens",
    "duplicate": "keep one record under this name; `tools/rfc move` changes a record's lifecycle",
    "second-tree": "move its records into the one tree; two trees drift apart",
    "readme-index-row": "take the row out; INDEX.md is generated and is the only list of records",
}

_OTHER_TREES = ("docs/rfcs", "docs/adr", "docs/adrs", "docs/decisions", "rfc", "rfcs", "adr")
_ROW = re.compile(r"^\s*(?:[-*+]|\d+\.|\|)\s?.*\]\([^)]*\d{4}-\d{2}-\d{2}-[^)]*\.md")


def check(tree: Tree) -> Iterator[Finding]:
    """Report records that lie in the wrong place or carry the wrong name."""
    root = root_of(tree)
    seen: dict[str, str] = {}
    for path in tree.under(root):
        rule = _misplaced(path[len(root) + 1 :].split("/"))
        if rule:
            yield Finding(path, 0, rule, _WHAT[rule], RULES[rule])
            continue
        name = path.rpartition("/")[2]
        if path.count("/") < root.count("/") + 3 or not name.endswith(".md") or name.endswith(".zh.md"):
            continue
        if name in seen:
            yield Finding(path, 0, "duplicate", f"{seen[name]} has the same name", RULES["duplicate"])
        seen.setdefault(name, path)
    yield from _second_trees(tree, root)
    yield from _index_rows(tree, root)


_WHAT = {
    "root-entry": "this does not belong in the root of the records",
    "depth": "a record is exactly three segments deep",
    "class": "the second segment is not a class",
    "file-name": "the file name is not a date and a title",
}


def _misplaced(parts: list[str]) -> str | None:
    if len(parts) == 1:
        return None if parts[0] in FIXED_FILES else "root-entry"
    if parts == [ARCHIVE, MANIFEST]:
        return None
    if parts[0] not in (*LIFECYCLES, ARCHIVE):
        return "root-entry"
    if len(parts) != 3:
        return "depth"
    if parts[1] not in CLASSES:
        return "class"
    return None if split_name(parts[2]) else "file-name"


def _second_trees(tree: Tree, root: str) -> Iterator[Finding]:
    for folder in _OTHER_TREES:
        if folder != root and folder in tree.folders:
            yield Finding(
                folder, 0, "second-tree", f"the records of this project lie in {root}", RULES["second-tree"]
            )


def _index_rows(tree: Tree, root: str) -> Iterator[Finding]:
    for name in (f"{root}/README.md", f"{root}/README.zh.md"):
        if name not in tree.file_set:
            continue
        for number, line in Page(tree.text(name)).prose():
            if _ROW.match(line):
                yield Finding(
                    name, number, "readme-index-row", "a row that lists a record", RULES["readme-index-row"]
                )
