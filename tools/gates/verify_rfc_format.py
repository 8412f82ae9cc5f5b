"""The file format of a decision record: header block, status, section skeleton, alternatives.

Chinese counterparts are held to the header here; that their sections match is the pair gate's work.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from .finding import Finding
from .markdown import Page
from .records import STATUS, Record, alternatives_since, records, sections, title_of
from .tree import Tree

RULES = {
    "title": "make line 1 `# RFC: <title>`",
    "blank-line": "leave lines 2 and 4 blank around the status",
    "status": "make line 3 `Status: proposed`, `Status: implemented` or `Status: rejected — <why>`, no date",
    "status-folder": "make the status agree with the folder; `tools/rfc move` changes both",
    "status-reason": "say why it was rejected after an em dash; the others carry no reason",
    "status-once": "keep one status line, on line 3",
    "first-section": "begin with `## Problem`",
    "section-missing": "add the section this lifecycle demands",
    "section-empty": "write the section's text",
    "section-banned": "retell it as Decision or Consequences in the present tense, or take it out",
    "alternatives": "add `## Alternatives considered` with what was weighed and why it lost",
    "grandfather": "write the alternatives; the comment is for older files without the section",
    "debt-marker": "finish the text or take the marker out; open work lives in a proposal",
    "fence-open": "close the fenced block",
}

REQUIRED = {
    "proposed": ("Problem", "Proposal", "Acceptance criteria", "Risks"),
    "implemented": ("Problem", "Decision", "Consequences"),
    "rejected": ("Problem", "Proposal"),
}
BANNED = ("proposal", "plan", "migration plan", "acceptance criteria")
ALTERNATIVES = "Alternatives considered"
GRANDFATHER = "<!-- rfc-format: alternatives-not-recorded (older than the format) -->"
_DEBT = re.compile(r"\b(TODO|FIXME|XXX|TBD|TBC)\b")
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")


def check(tree: Tree) -> Iterator[Finding]:
    """Report records whose text does not follow the format."""
    since = alternatives_since(tree)
    for record in records(tree):
        yield from check_record(record, tree.text(record.path), since)
        chinese = record.stem + ".zh.md"
        if chinese in tree.file_set:
            yield from _header(chinese, tree.text(chinese), record.lifecycle)


def check_record(record: Record, text: str, since: str) -> Iterator[Finding]:
    """Report what is wrong with one English record.

    Args:
        record: Where it lies.
        text: Its whole text.
        since: ISO date from which alternatives are mandatory.
    """
    yield from _header(record.path, text, record.lifecycle)
    page = Page(text)
    if page.open_fence:
        yield _at(record.path, page.open_fence, "fence-open", "this fence is never closed")
    for number, line in page.prose():
        marker = _DEBT.search(line)
        if marker:
            yield _at(record.path, number, "debt-marker", f"holds {marker[0]}")
    yield from _skeleton(record, page)
    yield from _alternatives(record, page, since)


def _header(path: str, text: str, lifecycle: str) -> Iterator[Finding]:
    lines = [*text.splitlines()[:4], "", "", "", ""]
    if not title_of(text):
        yield _at(path, 1, "title", f"line 1 is {lines[0]!r}")
    for number in (2, 4):
        if lines[number - 1].strip():
            yield _at(path, number, "blank-line", "this line is not blank")
    status = STATUS.match(lines[2])
    if not status or _DATE.search(lines[2]):
        yield _at(path, 3, "status", f"line 3 is {lines[2]!r}")
    else:
        if status[1] != lifecycle:
            yield _at(path, 3, "status-folder", f"says {status[1]}, lies in {lifecycle}")
        if (status[1] == "rejected") != bool(status[2]):
            wanted = "has no reason" if status[1] == "rejected" else "carries a reason"
            yield _at(path, 3, "status-reason", f"{status[1]} {wanted}")
    for number, line in Page(text).prose():
        if line.startswith("Status:") and number != 3:
            yield _at(path, number, "status-once", "a second status line")


def _skeleton(record: Record, page: Page) -> Iterator[Finding]:
    found = sections(page)
    titles = [title.lower() for _, title, _ in found]
    if not found or titles[0] != "problem":
        yield _at(
            record.path, found[0][0] if found else 0, "first-section", "the first section is not Problem"
        )
    for wanted in REQUIRED[record.lifecycle]:
        if wanted.lower() not in titles:
            yield _at(record.path, 0, "section-missing", f"{record.lifecycle} records need `## {wanted}`")
    for line, title, body in found:
        if record.lifecycle == "implemented" and title.lower().startswith(BANNED):
            yield _at(record.path, line, "section-banned", f"`## {title}` in an implemented record")
        if not body.strip():
            yield _at(record.path, line, "section-empty", f"`## {title}` holds nothing")


def _alternatives(record: Record, page: Page, since: str) -> Iterator[Finding]:
    told = any(title.lower() == ALTERNATIVES.lower() for _, title, _ in sections(page))
    comments = [number for number, line in page.prose() if line.strip() == GRANDFATHER]
    if comments and (told or record.day >= since):
        why = "the section is there too" if told else f"the file is not older than {since}"
        yield _at(record.path, comments[0], "grandfather", f"not allowed here: {why}")
    elif not told and not comments:
        yield _at(record.path, 0, "alternatives", "tells no alternatives")


def _at(path: str, line: int, rule: str, what: str) -> Finding:
    return Finding(path, line, rule, what, RULES[rule])
