"""What is left of a log that cannot be read whole: the rows that fit together, and all that does not.

Owns the choice of rows and the naming of findings and of missing events; verify and salvage both stand on
it, so they cannot disagree. Finding rows in bytes is `events.salvage`; what a session accepts is no question
here.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from turnlog.events.batch import Damage, StoredFrame

if TYPE_CHECKING:
    from turnlog.events.chunk_runs import Row

Severity: TypeAlias = Literal["damage", "torn", "order", "note"]
"""`damage` makes a log unreadable, `torn` is cut by a repair, `order` breaks L4 and loads nevertheless,
`note` is worth knowing."""

LARGEST_GAP: Final = 1 << 20
"""Events that may be missing in one place; a seq further ahead is taken for a spoiled number."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One place of a log that is not as it should be."""

    kind: str
    """What is wrong, kebab-case and stable: a kind of `Damage`, `seq-gap`, `repeat`, `conflict`,
    `out-of-place`, a rule of L4, or another word listed on the command-line page."""
    severity: Severity
    reason: str
    """For people."""
    offset: int | None = None
    """Byte offset in the file; in a database the key of the frame."""
    line: int | None = None
    """Body line, 1-based and without the header line, where it is known."""
    seq: int | None = None
    size: int | None = None
    """Bytes that could not be read."""

    def as_json(self) -> dict[str, Any]:
        """Return the finding for programs."""
        return {
            "kind": self.kind,
            "severity": self.severity,
            "reason": self.reason,
            "offset": self.offset,
            "line": self.line,
            "seq": self.seq,
            "size": self.size,
        }


@dataclass(frozen=True, slots=True)
class Missing:
    """Events that are certainly gone, since later ones are there."""

    first_seq: int
    last_seq: int
    """Inclusive."""
    offset: int | None
    """Where the next event that is left begins."""

    def __len__(self) -> int:
        return self.last_seq - self.first_seq + 1


@dataclass(frozen=True, slots=True)
class Survey:
    """Everything that can be said about the rows of one log."""

    rows: tuple[Row, ...]
    """The rows that are left, in the order of their seqs; none overlap."""
    findings: tuple[Finding, ...]
    """In the order of the medium."""
    missing: tuple[Missing, ...]
    """In the order of their seqs."""

    @property
    def event_count(self) -> int:
        """Events that are left."""
        return sum(row.count for row in self.rows)


def survey(pieces: Iterable[StoredFrame | Damage]) -> Survey:
    """Choose, of everything readable in a log, the rows that make the longest log.

    Args:
        pieces: A scan, in the order of the medium.

    Returns:
        The rows, which ascend in seq, and a finding for every damaged place, for every row that is not where
        it belongs, and for every hole that nothing else explains.
    """
    placed = list(_rows_of(pieces))
    chosen = _longest(placed)
    astray = _fitting(placed, chosen)
    left = sorted((*chosen, *astray), key=lambda index: placed[index].row.first_seq)
    kept = {placed[index].row.first_seq: placed[index].row for index in left}
    missing = tuple(_holes(placed, left))
    findings: list[Finding] = []
    explained, next_chosen, next_hole = False, 0, 0
    stray: list[_Stray] = []
    for index, item in enumerate(placed):
        if item.damage is not None:
            findings += _strays(stray)
            findings.append(_damage(item.damage))
            explained = True
        elif next_chosen < len(chosen) and chosen[next_chosen] == index:
            findings += _strays(stray)
            next_chosen += 1
            while next_hole < len(missing) and missing[next_hole].first_seq < item.row.first_seq:
                if not explained:
                    findings.append(_gap(missing[next_hole]))
                next_hole += 1
            explained = False
        else:
            kind = _ASTRAY if index in astray else _stray_kind(item.row, kept)
            stray.append((kind, item))
            explained = explained or kind != "repeat"
    findings += _strays(stray)
    return Survey(tuple(placed[index].row for index in left), tuple(findings), missing)


_Value: TypeAlias = tuple[int, int]
"""Events of the best choice that ends with a row, and how many of its rows follow directly."""


class _Placed:
    """A row with the place it was found in, or a damaged place."""

    __slots__ = ("_row", "damage", "position")

    def __init__(self, position: int, row: Row | None, damage: Damage | None) -> None:
        self.position = position
        self._row = row
        self.damage = damage

    @property
    def row(self) -> Row:
        assert self._row is not None
        return self._row


_Stray: TypeAlias = tuple[str, _Placed]
"""A row that is not where it belongs, with the key of its reason."""


def _rows_of(pieces: Iterable[StoredFrame | Damage]) -> Iterable[_Placed]:
    for piece in pieces:
        if isinstance(piece, Damage):
            yield _Placed(piece.position, None, piece)
        else:
            yield from (_Placed(position, row, None) for position, row in piece.placed())


def _longest(placed: list[_Placed]) -> list[int]:
    """Return the indices of the rows that ascend in seq and hold the most events together.

    Of equally good choices the one wins in which more rows follow their predecessor without anything between
    them, so that a row with a spoiled number loses against the one that has this number by right; then the
    one met first. The state is a staircase of ends, each better than all before it, so a row costs one
    bisection.
    """
    ends: list[int] = []
    best: list[_Value] = []
    tips: list[int] = []
    own: list[_Value | None] = [None] * len(placed)
    before = [-1] * len(placed)
    for index, item in enumerate(placed):
        if item.damage is not None:
            continue
        row = item.row
        step = bisect_left(ends, row.first_seq) - 1
        if row.first_seq - (ends[step] if step >= 0 else -1) - 1 > LARGEST_GAP:
            continue
        events, links = best[step] if step >= 0 else (0, 0)
        value = (events + row.count, links)
        before[index] = tips[step] if step >= 0 else -1
        neighbour = own[index - 1] if index else None
        if neighbour is not None and placed[index - 1].row.last_seq + 1 == row.first_seq:
            linked = (neighbour[0] + row.count, neighbour[1] + 1)
            if linked > value:
                value, before[index] = linked, index - 1
        own[index] = value
        at = bisect_left(ends, row.last_seq)
        if (at and best[at - 1] >= value) or (
            at < len(ends) and ends[at] == row.last_seq and best[at] >= value
        ):
            continue
        stop = at
        while stop < len(ends) and best[stop] <= value:
            stop += 1
        ends[at:stop], best[at:stop], tips[at:stop] = [row.last_seq], [value], [index]
    chain: list[int] = []
    at = tips[-1] if tips else -1
    while at >= 0:
        chain.append(at)
        at = before[at]
    chain.reverse()
    return _first_copies(placed, chain)


def _first_copies(placed: list[_Placed], chain: list[int]) -> list[int]:
    """Take, of rows that stand there more than once, the first copy: that one was acknowledged."""
    copies: dict[tuple[int, bytes], int] = {}
    for index, item in enumerate(placed):
        if item.damage is None:
            copies.setdefault((item.row.first_seq, item.row.line), index)
    chosen: list[int] = []
    for index in chain:
        row = placed[index].row
        first = copies[row.first_seq, row.line]
        chosen.append(first if not chosen or first > chosen[-1] else index)
    return chosen


def _fitting(placed: list[_Placed], chosen: list[int]) -> set[int]:
    """Return the rows out of order that fill a hole between the chosen ones, or go on behind the last one."""
    taken = set(chosen)
    ends = [placed[index].row.last_seq for index in chosen]
    starts = [placed[index].row.first_seq for index in chosen]
    strays = [i for i, item in enumerate(placed) if item.damage is None and i not in taken]
    strays.sort(key=lambda index: placed[index].row.first_seq)
    found: set[int] = set()
    for index in strays:
        row = placed[index].row
        at = bisect_left(starts, row.first_seq)
        before = ends[at - 1] if at else -1
        fits = before < row.first_seq and (
            row.last_seq < starts[at] if at < len(starts) else before + 1 == row.first_seq
        )
        if fits:
            starts.insert(at, row.first_seq)
            ends.insert(at, row.last_seq)
            found.add(index)
    return found


def _holes(placed: list[_Placed], left: list[int]) -> Iterable[Missing]:
    """Yield the events that are missing before each of the rows that are left, in the order of their seqs."""
    expected = 0
    for index in left:
        row = placed[index].row
        if row.first_seq > expected:
            yield Missing(expected, row.first_seq - 1, placed[index].position)
        expected = row.last_seq + 1


_MISSING: Final = {
    "header": "there is no header line",
    "no-header": "there is no header line",
    "seq-gap": "events are missing here",
}
"""What it means by kind that something is damaged and takes no bytes."""


def _damage(found: Damage) -> Finding:
    missing = _MISSING.get(found.kind, "something is missing here")
    size = f"{found.size} bytes cannot be read" if found.size else missing
    if found.kind == "torn":
        return Finding("torn", "torn", "the end was cut short", found.position, found.line, size=found.size)
    return Finding(found.kind, "damage", size, found.position, found.line, size=found.size)


def _gap(missing: Missing) -> Finding:
    reason = f"seq {missing.first_seq} is due, seq {missing.last_seq + 1} follows"
    return Finding("seq-gap", "damage", reason, missing.offset, seq=missing.first_seq)


def _strays(stray: list[_Stray]) -> list[Finding]:
    """Name rows that are not where they belong, those of one kind in a series together; empties the list."""
    findings: list[Finding] = []
    for kind, series in itertools.groupby(stray, lambda entry: entry[0]):
        items = [item for _, item in series]
        first, last = items[0].row.first_seq, items[-1].row.last_seq
        span = f"seq {first}" if first == last else f"seq {first} to {last}"
        size = sum(len(item.row.line) + 1 for item in items)
        reason = _STRAY_REASONS[kind].format(span)
        told = "out-of-place" if kind == _ASTRAY else kind
        findings.append(Finding(told, "damage", reason, items[0].position, seq=first, size=size))
    stray.clear()
    return findings


_ASTRAY: Final = "astray"
_STRAY_REASONS: Final = {
    "repeat": "{} stands here once more",
    "conflict": "{} stands here once more, with other content; the first one counts",
    "out-of-place": "{} does not fit in here",
    _ASTRAY: "{} is out of order here; salvage puts it where it belongs",
}


def _stray_kind(row: Row, kept: dict[int, Row]) -> str:
    held = kept.get(row.first_seq)
    if held is None:
        return "out-of-place"
    return "repeat" if held.line == row.line else "conflict"
