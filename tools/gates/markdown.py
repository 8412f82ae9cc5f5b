"""Reads Markdown as far as the gates need it: fences, headings, slugs, links, lists, tables.

A line scanner, not a full parser: documents here keep to plain block structure.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

_FENCE = re.compile(r"^\s{0,3}(?:[-*+] |\d+\. )?\s*(`{3,}|~{3,})\s*([^`]*)$")
_HEADING = re.compile(r"^(#{1,6})\s+(.*?)\s*#*\s*$")
_INLINE_CODE = re.compile(r"(`+)(?:(?!\1).)+?\1")
_INLINE_LINK = re.compile(r"\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)")
_REFERENCE = re.compile(r"^\s{0,3}\[[^\]]+\]:\s*<?([^\s>]+)>?")
_HTML_LINK = re.compile(r"<(?:a|img)\s[^>]*?(?:href|src)=\"([^\"]+)\"")
_ANCHOR = re.compile(r"<a\s[^>]*?(?:id|name)=\"([^\"]+)\"")
_ITEM = re.compile(r"^(\s*)(?:([-*+])|(\d+)[.)])\s+\S")


@dataclass(frozen=True, slots=True)
class Fence:
    """One fenced block."""

    line: int
    """1-based line of the opening marker."""
    info: str
    """The info string: language, then options."""
    body: str
    """The text between the markers, newline-ended unless empty."""


@dataclass(frozen=True, slots=True)
class Heading:
    """One ATX heading."""

    line: int
    depth: int
    text: str


@dataclass(frozen=True, slots=True)
class Link:
    """One link or image target as written."""

    line: int
    target: str


class Page:
    """One Markdown document."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.lines = text.splitlines()
        self.fences: list[Fence] = []
        self.fenced: set[int] = set()
        self.open_fence: int | None = None
        self._find_fences()

    def _find_fences(self) -> None:
        marker, start, info = "", 0, ""
        body: list[str] = []
        for number, line in enumerate(self.lines, 1):
            found = _FENCE.match(line)
            if not marker:
                if found:
                    marker, start, info, body = found[1], number, found[2].strip(), []
                    self.fenced.add(number)
                continue
            self.fenced.add(number)
            closing = line.strip()
            if closing and set(closing) == {marker[0]} and len(closing) >= len(marker):
                self.fences.append(Fence(start, info, "".join(text + "\n" for text in body)))
                marker = ""
            else:
                body.append(line)
        self.open_fence = start if marker else None

    def prose(self) -> Iterator[tuple[int, str]]:
        """Yield `(line number, line)` outside fences."""
        for number, line in enumerate(self.lines, 1):
            if number not in self.fenced:
                yield number, line

    @cached_property
    def headings(self) -> list[Heading]:
        """ATX headings outside fences, in order."""
        found = []
        for number, line in self.prose():
            match = _HEADING.match(line)
            if match:
                found.append(Heading(number, len(match[1]), match[2]))
        return found

    @cached_property
    def anchors(self) -> frozenset[str]:
        """Every fragment that resolves here: heading slugs and explicit `<a id>`."""
        seen: dict[str, int] = {}
        found: set[str] = set()
        for heading in self.headings:
            slug = slugify(heading.text)
            count = seen.get(slug, 0)
            seen[slug] = count + 1
            found.add(f"{slug}-{count}" if count else slug)
        for _, line in self.prose():
            found.update(_ANCHOR.findall(line))
        return frozenset(found)

    @cached_property
    def links(self) -> list[Link]:
        """Inline, reference and HTML link targets outside fences and inline code."""
        found: list[Link] = []
        for number, line in self.prose():
            bare = _INLINE_CODE.sub("", line)
            for pattern in (_INLINE_LINK, _REFERENCE, _HTML_LINK):
                found.extend(Link(number, target) for target in pattern.findall(bare))
        return found

    def signature(self) -> list[tuple[int, str]]:
        """Describe the block structure as `(line, description)` so that two languages can be compared.

        Heading depths, fences verbatim, tables as rows × columns, and each list as kind and item count.
        """
        found = [(f.line, f"fence {f.info!r} with the same text: {f.body!r}") for f in self.fences]
        found += [(h.line, f"heading of depth {h.depth}") for h in self.headings]
        found += self._tables()
        found += self._lists()
        return sorted(found)

    def _tables(self) -> list[tuple[int, str]]:
        found = []
        start = rows = columns = 0
        for number, line in [*self.prose(), (len(self.lines) + 1, "")]:
            if line.lstrip().startswith("|"):
                if not rows:
                    start, columns = number, _INLINE_CODE.sub("", line).strip().strip("|").count("|") + 1
                rows += 1
            elif rows:
                found.append((start, f"table of {rows} rows and {columns} columns"))
                rows = 0
        return found

    def _lists(self) -> list[tuple[int, str]]:
        found: list[tuple[int, str]] = []
        open_lists: list[tuple[int, str, int, int]] = []  # indent, kind, first line, items

        def close(down_to: int) -> None:
            while open_lists and open_lists[-1][0] >= down_to:
                _, kind, line, items = open_lists.pop()
                found.append((line, f"{kind} list of {items} items"))

        for number, line in self.prose():
            item = _ITEM.match(line)
            if item:
                indent, kind = len(item[1]), "bullet" if item[2] else "numbered"
                close(indent + 1)
                if open_lists and open_lists[-1][:2] == (indent, kind):
                    open_lists[-1] = (indent, kind, open_lists[-1][2], open_lists[-1][3] + 1)
                else:
                    close(indent)
                    open_lists.append((indent, kind, number, 1))
            elif line and not line[0].isspace():
                close(0)
        close(0)
        return found


def slugify(heading: str) -> str:
    """Return the fragment that GitHub gives a heading, without the suffix for repeats."""
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    text = re.sub(r"[`*]|(?<!\w)_|_(?!\w)", "", text).strip().lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")
