"""One stored line to one row, and rows found inside lines that are broken.

Owns the naming of what is wrong with a line. What a wrong line means for the log is decided in `scan`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from turnlog.errors import InvalidEventError
from turnlog.events import lossless
from turnlog.events.chunk_runs import PACKED_TAGS, MalformedRowError, Row, parse_row
from turnlog.events.envelope import parse_event_row
from turnlog.events.lossless import LosslessDecodeError, is_count

_OPENING = b'{"type":"'
_PACKED_STARTS = tuple(b'{"type":"%s",' % tag.encode() for tag in PACKED_TAGS)
_TAG_AT = len(_OPENING)
_SEARCH_BYTES = 32 << 20


class RowError(ValueError):
    """A line that is no row; the medium or its writer is at fault."""

    def __init__(self, kind: str, reason: str, *, seq: int | None = None, truncated: bool = False) -> None:
        super().__init__(reason)
        self.kind = kind
        """`unparsable`, `bad-utf8`, `too-deep`, `not-lossless`, `not-an-event` or `malformed-row`."""
        self.reason = reason
        self.seq = seq
        """The seq that an intact record states although it is refused, None where there is none."""
        self.truncated = truncated
        """Whether the line is a clean beginning of a JSON value, as a torn write leaves it."""


def decode_row(line: bytes) -> Row:
    """Read one stored line: an event or a packed row.

    Args:
        line: Without its newline; a trailing carriage return is JSON whitespace.

    Returns:
        The row with its line kept byte for byte.

    Raises:
        RowError: The line is neither.
    """
    try:
        if line.startswith(_PACKED_STARTS):
            return parse_row(line, line[_TAG_AT : line.index(b'"', _TAG_AT)].decode())
        try:
            row = parse_event_row(line)
        except InvalidEventError as error:
            return _packed_or_refuse(line, error)
        return parse_row(line, row.type) if row.type in PACKED_TAGS else row
    except LosslessDecodeError as error:
        raise _not_json(line, error) from error
    except MalformedRowError as error:
        raise RowError("malformed-row", f"the line is a {error}") from error


def _packed_or_refuse(line: bytes, error: InvalidEventError) -> Row:
    """Read a packed row whose keys stand in another order, or refuse the line."""
    found: Any = lossless.decode(line)
    if not isinstance(found, dict):
        raise RowError("not-an-event", "the line holds no JSON object") from error
    tag = found.get("type")
    if isinstance(tag, str) and tag in PACKED_TAGS:
        return parse_row(line, tag)
    reason = f"the line is not an event: {error.field} {error.reason}"
    raise RowError("not-an-event", reason, seq=_stated_seq(found)) from error


def _stated_seq(found: Any) -> int | None:
    """Return the seq that a decoded record states, None if it states none."""
    if not isinstance(found, dict):
        return None
    tag = found.get("type")
    seq: Any = found.get("seq0" if isinstance(tag, str) and tag in PACKED_TAGS else "seq")
    return int(seq) if is_count(seq) else None


def _not_json(line: bytes, error: LosslessDecodeError) -> RowError:
    """Name what is wrong with the text of a line, and the seq of one that only turnlog refuses."""
    reason = f"the line is not lossless JSON: {error}"
    kind = "unparsable"
    if "UTF-8" in error.reason:
        kind = "bad-utf8"
    elif "nested" in error.reason:
        kind = "too-deep"
    elif "zero" in error.reason or "range" in error.reason:
        kind = "not-lossless"
    if kind == "unparsable" or error.truncated:
        return RowError(kind, reason, truncated=error.truncated)
    try:
        return RowError(kind, reason, seq=_stated_seq(lossless.read_leniently(line)))
    except LosslessDecodeError:
        return RowError(kind, reason)


class SearchLimitError(Exception):
    """A broken line is too tangled to be searched for events in reasonable time; it may hold some."""


def parts(line: bytes, start: int = 0) -> Iterator[tuple[int, int, Row]]:
    """Find the events and packed rows that begin inside a broken line.

    Args:
        line: The line without its newline.
        start: First position at which one may begin.

    Yields:
        `(position, end, row)` for each, in order and without overlap.

    Raises:
        SearchLimitError: The search would take time out of proportion, as only a hostile line makes it.
    """
    ends: dict[int, int | None] = {}
    left = max(_SEARCH_BYTES, 4 * len(line))
    at = line.find(_OPENING, start)
    while at >= 0:
        following = at + 1
        if at not in ends:
            left -= len(line) - at
            _find_ends(line, at, ends)
        end = ends[at]
        if end is not None:
            left -= end - at
            try:
                row = decode_row(line[at:end])
            except RowError:
                pass  # an object that is no event, for example a content block
            else:
                yield at, end, row
                following = end
        if left < 0:
            raise SearchLimitError
        at = line.find(_OPENING, following)


def _find_ends(line: bytes, start: int, ends: dict[int, int | None]) -> None:
    """Find where the objects that begin at or after `start` end; one walk answers for all that it meets.

    A walk that begins inside a string of an earlier walk meets other objects, so a line may need several.
    """
    opened: list[int] = []
    for match in lossless.STRING_OR_BRACKET.finditer(line, start):
        at = match.start()
        first = line[at]
        if first in b"[{":
            opened.append(at)
            if line.startswith(_OPENING, at):
                ends[at] = None
        elif first in b"]}" and opened:
            begin = opened.pop()
            if begin in ends:
                ends[begin] = match.end()
