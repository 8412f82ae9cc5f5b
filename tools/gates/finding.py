"""What a gate reports, and the table people read. Owns no check."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, order=True, slots=True)
class Finding:
    """One violation, located, with the way to mend it."""

    file: str
    """Path relative to the project's root, with `/`."""
    line: int
    """1-based line; 0 when the whole file or folder is meant."""
    rule: str
    """Stable kebab-case name, unique within its gate."""
    what: str
    """What is wrong here, in one sentence without a final stop."""
    mend: str
    """What to do about it."""


def render(findings: Iterable[tuple[str, Finding]]) -> str:
    """Render `(gate, finding)` pairs as one aligned table, sorted by gate and place.

    Args:
        findings: Pairs from any number of gates.

    Returns:
        The table with a header row; the empty string when there is nothing to show.
    """
    rows = [
        (gate, f"{f.file}:{f.line}" if f.line else f.file, f.rule, f.what, f.mend)
        for gate, f in sorted(findings)
    ]
    if not rows:
        return ""
    head = ("gate", "file:line", "rule", "what", "how to mend")
    widths = [_width([head, *rows], column) for column in range(3)]
    return "\n".join(_row(row, widths) for row in [head, *rows])


def _width(rows: Sequence[tuple[str, ...]], column: int) -> int:
    return max(len(row[column]) for row in rows)


def _row(row: tuple[str, ...], widths: list[int]) -> str:
    cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
    indent = " " * (sum(widths) + 2 * len(widths))
    what = row[3].replace("\n", "\n" + indent)
    return f"{'  '.join(cells)}  {what} → {row[4]}"
