"""Maintains `tests/CHECKLIST.md`: which test covers which line of the original's test checklist.

Owns the ids that must be there, the parsing of docstrings and of the page, and its rewriting
(`python -m tests.checklist`). A line is covered when the docstring of a test cites its id, such as CR1.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent
PAGE = ROOT / "CHECKLIST.md"
SUITES = ROOT.parent / "src" / "turnlog" / "testing"

LENGTHS = {
    "CR": 14,
    "DC": 6,
    "FK": 14,
    "GC": 26,
    "IN": 17,
    "JS": 11,
    "PR": 6,
    "RP": 11,
    "RH": 12,
    "SC": 12,
    "SE": 46,
    "ST": 26,
    "TD": 4,
    "SU": 47,
    "TY": 1,
    "CO": 12,
    "CC": 40,
    "PE": 53,
    "PP": 20,
    "WB": 10,
    "JL": 93,
    "WIN": 7,
    "ZC": 1,
    "Z": 27,
}
"""How many lines each group has; ids run from 1."""

IDS = tuple(f"{group}{n}" for group, length in LENGTHS.items() for n in range(1, length + 1))
"""Every id in the order of the page."""

_GROUPS = "|".join(sorted(LENGTHS, key=len, reverse=True))
_CITED = re.compile(rf"\b({_GROUPS})(\d+)(?:[-–](?:\1)?(\d+))?\b")
_ROW = re.compile(rf"^\| ((?:{_GROUPS})\d+) \| (.*?) \| (.*) \|$")
NOT_APPLICABLE = "not applicable: "
SHOWN = 3
"""How many tests a line names; more are counted."""


@dataclass(frozen=True)
class Row:
    """One line of the page."""

    id: str
    behaviour: str
    reason: str | None
    """Why the line does not apply to turnlog, or None."""


def cited_ids(text: str | None) -> list[str]:
    """Return the ids that a docstring cites; `CR1–CR3` and `CR1-3` are ranges.

    Args:
        text: A docstring, or None.

    Returns:
        Ids in order, repeated if cited twice.
    """
    found: list[str] = []
    for group, first, last in _CITED.findall(text or ""):
        found += [f"{group}{n}" for n in range(int(first), int(last or first) + 1)]
    return found


def tests_in(path: Path) -> Iterator[tuple[str, str | None]]:
    """Yield name and docstring of every test function and test class of a module.

    Args:
        path: A Python file.
    """
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        is_function = isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)) and node.name.startswith(
            "test"
        )
        if is_function:
            assert isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))
            yield node.name, ast.get_docstring(node)


def sources() -> list[Path]:
    """Return every module that may hold tests: the lanes and the published suites."""
    return sorted([*ROOT.rglob("test_*.py"), *SUITES.glob("*.py")])


def coverage(paths: Iterable[Path]) -> dict[str, list[str]]:
    """Return the tests that cite each id, as links relative to the page.

    Args:
        paths: Modules to read.
    """
    found: dict[str, list[str]] = {}
    for path in paths:
        place = (
            path.relative_to(ROOT)
            if path.is_relative_to(ROOT)
            else Path("..") / path.relative_to(ROOT.parent)
        )
        for name, docstring in tests_in(path):
            for id in dict.fromkeys(cited_ids(docstring)):
                found.setdefault(id, []).append(f"[{name}]({place.as_posix()})")
    return found


def read_page(text: str) -> list[str | Row]:
    """Split the page into its rows and the lines around them.

    Args:
        text: The page.

    Returns:
        Rows, and every other line as it is.
    """
    parts: list[str | Row] = []
    for line in text.splitlines():
        row = _ROW.match(line)
        if row is None:
            parts.append(line)
        else:
            id, behaviour, last = row.groups()
            reason = last.removeprefix(NOT_APPLICABLE) if last.startswith(NOT_APPLICABLE) else None
            parts.append(Row(id, behaviour, reason))
    return parts


def write_page(parts: Iterable[str | Row], covered: dict[str, list[str]]) -> str:
    """Join the page again with the tests as they are now.

    Args:
        parts: What `read_page` returned.
        covered: What `coverage` returned.
    """
    lines = []
    for part in parts:
        if isinstance(part, str):
            lines.append(part)
            continue
        tests = covered.get(part.id, [])
        if part.reason is not None:
            last = NOT_APPLICABLE + part.reason
        elif tests:
            more = f" and {len(tests) - SHOWN} more" if len(tests) > SHOWN else ""
            last = ", ".join(tests[:SHOWN]) + more
        else:
            last = "**missing**"
        lines.append(f"| {part.id} | {part.behaviour} | {last} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Rewrite the page and say what is still missing."""
    parts = read_page(PAGE.read_text(encoding="utf-8"))
    covered = coverage(sources())
    PAGE.write_text(write_page(parts, covered), encoding="utf-8")
    missing = [p.id for p in parts if isinstance(p, Row) and p.reason is None and p.id not in covered]
    print(f"{len(missing)} lines without a test: {' '.join(missing)}" if missing else "every line is covered")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
