"""The model of a decision-record tree: where records lie and how their first lines read.

Shared by the classification, format, archive, index and pair gates; reports nothing itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date

from .markdown import Page
from .tree import Tree

LIFECYCLES = ("proposed", "implemented", "rejected")
CLASSES = ("feature", "bug-fix", "simplification", "architecture", "process", "testing")
ARCHIVE = "archived"
MANIFEST = "manifest.json"
FIXED_FILES = frozenset({"README.md", "README.zh.md", "README.i18n.yaml", "TEMPLATE.md", "INDEX.md"})

_NAME = re.compile(r"^(\d{4}-\d{2}-\d{2})-([a-z0-9]+(?:-[a-z0-9]+)*)(\.md|\.zh\.md|\.i18n\.yaml)$")
STATUS = re.compile(r"^Status: (proposed|implemented|rejected)(?: — (\S.*))?$")


@dataclass(frozen=True, slots=True)
class Record:
    """One record in English, the file the index lists."""

    path: str
    """Relative to the project's root."""
    lifecycle: str
    """`archived` for the archive."""
    kind: str
    """The class segment."""
    day: str
    """ISO date of the first proposal."""
    slug: str

    @property
    def stem(self) -> str:
        """The path without `.md`: what a pair and its hash record share."""
        return self.path.removesuffix(".md")


def root_of(tree: Tree) -> str:
    """Return the folder of the records; `docs/rfc` unless `[tool.gates.rfc] root` says otherwise."""
    return str(tree.section("rfc").get("root", "docs/rfc")).rstrip("/")


def alternatives_since(tree: Tree) -> str:
    """Return the ISO date from which a record must tell its alternatives."""
    return str(tree.section("rfc").get("alternatives_since", "2026-11-01"))


def split_name(name: str) -> tuple[str, str, str] | None:
    """Split a record's file name into date, slug and ending, or return None when it is not one."""
    match = _NAME.match(name)
    if not match:
        return None
    try:
        date.fromisoformat(match[1])
    except ValueError:
        return None
    return match[1], match[2], match[3]


def records(tree: Tree, *, archived: bool = False) -> Iterator[Record]:
    """Yield the well-placed English records in path order.

    Args:
        tree: The project.
        archived: Yield those of the archive instead of the living ones.
    """
    root = root_of(tree)
    for path in tree.under(root):
        parts = path[len(root) + 1 :].split("/")
        known = (ARCHIVE,) if archived else LIFECYCLES
        if len(parts) != 3 or parts[0] not in known or parts[1] not in CLASSES:
            continue
        name = split_name(parts[2])
        if name and name[2] == ".md":
            yield Record(path, parts[0], parts[1], name[0], name[1])


def title_of(text: str) -> str:
    """Return what stands after `# RFC:` on the first line, or the empty string."""
    first = text.split("\n", 1)[0]
    return first.removeprefix("# RFC:").strip() if first.startswith("# RFC:") else ""


def sections(page: Page) -> list[tuple[int, str, str]]:
    """Return `(line, title, body)` of each second-level section, fences and comments taken out."""
    found: list[tuple[int, str, list[str]]] = []
    heads = {h.line: h for h in page.headings if h.depth == 2}
    for number, line in enumerate(page.lines, 1):
        if number in heads:
            found.append((number, heads[number].text, []))
        elif found:
            found[-1][2].append(line)
    return [(line, title, "\n".join(body)) for line, title, body in found]
