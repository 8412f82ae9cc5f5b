"""Bilingual pairs stay in step: `X.md`, `X.zh.md` and `X.i18n.yaml` with the hashes of the last state
that a person confirmed as saying the same. Both languages weigh the same.

The hashes are git blob ids, so `git hash-object X.md` shows the same figure.
"""

from __future__ import annotations

import hashlib
import posixpath
import re
from collections.abc import Iterator
from urllib.parse import unquote

from .finding import Finding
from .markdown import Page
from .tree import Tree

RULES = {
    "half-pair": "add the missing part or take the rest away; `tools/rfc confirm X.md` writes hashes",
    "required": "add the counterpart: this document is listed as bilingual",
    "hash-record": "write it with `tools/rfc confirm X.md`",
    "stale": "bring the other language in step, read both, then `tools/rfc confirm X.md`",
    "switcher": "below the header put `English | [中文](X.zh.md)`, there `[English](X.md) | 中文`",
    "structure": "give both languages the same headings, lists, tables and fences in the same order",
    "status": "make both titles carry the same status",
    "links": "make both languages link to the same places, each to its own language where a pair exists",
}

_HASH = re.compile(r"^([^:#]+): ([0-9a-f]{40})$")
_COMMENT = "# The last state of this pair that a person confirmed as saying the same.\n"


def blob_id(data: bytes) -> str:
    """Return the id git gives these bytes."""
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def stems(tree: Tree) -> list[str]:
    """Return the stem of every pair of which any remnant exists, sorted."""
    excluded = list(tree.section("bilingual").get("exclude", []))
    found = {name.removesuffix(".zh.md") for name in tree.select(["**.zh.md"], excluded)}
    found |= {name.removesuffix(".i18n.yaml") for name in tree.select(["**.i18n.yaml"], excluded)}
    return sorted(found)


def hash_record(tree: Tree, stem: str) -> str:
    """Return the text of the hash record for the pair's present bytes."""
    rows = [
        f"{posixpath.basename(stem)}{end}: {blob_id(tree.raw(stem + end))}\n" for end in (".md", ".zh.md")
    ]
    return _COMMENT + "".join(rows)


def check(tree: Tree) -> Iterator[Finding]:
    """Report half, stale and unequal pairs. Settings: `[tool.gates.bilingual] required, exclude`."""
    pairs = stems(tree)
    for name in tree.select(list(tree.section("bilingual").get("required", []))):
        stem = name.removesuffix(".md")
        if not name.endswith((".zh.md", ".i18n.yaml")) and stem not in pairs:
            yield _at(name, 0, "required", "has no Chinese counterpart")
    for stem in pairs:
        missing = [stem + end for end in (".md", ".zh.md", ".i18n.yaml") if stem + end not in tree.file_set]
        for name in missing:
            yield _at(name, 0, "half-pair", "is missing from the pair")
        if not missing:
            yield from _hashes(tree, stem)
        if stem + ".md" not in missing and stem + ".zh.md" not in missing:
            yield from _compare(tree, stem, set(pairs))


def _hashes(tree: Tree, stem: str) -> Iterator[Finding]:
    base = posixpath.basename(stem)
    record = stem + ".i18n.yaml"
    lines = [line for line in tree.text(record).splitlines() if line and not line.startswith("#")]
    found = [_HASH.match(line) for line in lines]
    names = [match[1] for match in found if match]
    if names != [f"{base}.md", f"{base}.zh.md"] or len(names) != len(lines):
        yield _at(record, 0, "hash-record", "does not name exactly the two files with their hashes")
        return
    for match in found:
        if match and blob_id(tree.raw(posixpath.join(posixpath.dirname(stem), match[1]))) != match[2]:
            name = posixpath.join(posixpath.dirname(stem), match[1])
            yield _at(name, 0, "stale", "differs from the confirmed state of the pair")


def _compare(tree: Tree, stem: str, pairs: set[str]) -> Iterator[Finding]:
    base = posixpath.basename(stem)
    english, chinese = Page(tree.text(stem + ".md")), Page(tree.text(stem + ".zh.md"))
    wanted = (f"English | [中文]({base}.zh.md)", f"[English]({base}.md) | 中文")
    for page, end, line in ((english, ".md", wanted[0]), (chinese, ".zh.md", wanted[1])):
        if line not in page.lines[:7]:
            yield _at(stem + end, 0, "switcher", f"has no line `{line}` in its header")
    statuses = [
        [line for line in page.lines[:4] if line.startswith("Status: ")] for page in (english, chinese)
    ]
    if [s[0].split(" — ")[0] for s in statuses if s] not in ([], [_state(statuses[0])] * 2):
        yield _at(stem + ".zh.md", 3, "status", "says another status than the English text")
    yield from _structure(stem, english, chinese)
    left = [_neutral(stem, link.target, pairs) for link in english.links]
    right = [_neutral(stem, link.target, pairs) for link in chinese.links]
    if sorted(left) != sorted(right):
        odd = sorted(set(left) ^ set(right)) or ["the number of links"]
        yield _at(stem + ".zh.md", 0, "links", f"links differ: {', '.join(odd)}")
    for link in chinese.links:
        if _crosses(stem, link.target, pairs):
            yield _at(stem + ".zh.md", link.line, "links", f"{link.target} leads to the other language")


def _state(lines: list[str]) -> str:
    return lines[0].split(" — ")[0] if lines else ""


def _structure(stem: str, english: Page, chinese: Page) -> Iterator[Finding]:
    left, right = english.signature(), chinese.signature()
    for (line, wanted), (at, found) in zip(left, right, strict=False):
        if wanted != found:
            yield _at(
                stem + ".zh.md",
                at,
                "structure",
                f"{_brief(found)} where line {line} of the English has {_brief(wanted)}",
            )
            return
    if len(left) != len(right):
        longer, end = (left, ".md") if len(left) > len(right) else (right, ".zh.md")
        line, what = longer[min(len(left), len(right))]
        yield _at(stem + end, line, "structure", f"{_brief(what)} that the other language lacks")


def _brief(what: str) -> str:
    return what if len(what) <= 60 else what[:57] + "..."


def _target(stem: str, target: str) -> str:
    path = unquote(target.partition("#")[0])
    return posixpath.normpath(posixpath.join(posixpath.dirname(stem), path)) if path else stem + ".md"


def _neutral(stem: str, target: str, pairs: set[str]) -> str:
    """Return the link's target with the language taken out; fragments differ by language and are dropped."""
    if re.match(r"^[a-zA-Z][\w+.-]*:", target):
        return target
    path = _target(stem, target)
    bare = path.removesuffix(".zh.md").removesuffix(".md")
    return bare if bare in pairs else path


def _crosses(stem: str, target: str, pairs: set[str]) -> bool:
    path = _target(stem, target)
    own = path == stem + ".md"
    return (
        not own and not path.endswith(".zh.md") and path.removesuffix(".md") in pairs and path.endswith(".md")
    )


def _at(name: str, line: int, rule: str, what: str) -> Finding:
    return Finding(name, line, rule, what, RULES[rule])
