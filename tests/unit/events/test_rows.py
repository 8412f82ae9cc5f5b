"""Lines to rows, the names of what is wrong, and rows inside broken lines."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.unit.events.samples import delta, deltas, plain
from turnlog.events import lossless, rows
from turnlog.events.batch import Damage
from turnlog.events.chunk_runs import ChunkRow, pack_lines
from turnlog.events.envelope import EventRow
from turnlog.events.rows import RowError, SearchLimitError, decode_row, parts
from turnlog.events.salvage import salvage_rows
from turnlog.events.scan import scan_text

EVENT = lossless.encode(plain(4))
PACKED = pack_lines(deltas(5, 3))[0]
DEEP = b"[" * 600 + b"]" * 600


def test_both_kinds_of_rows_are_recognised() -> None:
    """By their beginning, and by their type where the keys stand in another order."""
    assert isinstance(decode_row(EVENT), EventRow)
    for tag, kind in (
        ("text", "text-delta"),
        ("reasoning", "reasoning-delta"),
        ("tool-call", "tool-call-delta"),
    ):
        row = decode_row(pack_lines(deltas(5, 3, kind=kind))[0])
        assert isinstance(row, ChunkRow)
        assert row.line.startswith(b'{"type":"%s-chunks",' % tag.encode())
    moved = b'{"seq0":5,' + PACKED[1:].replace(b'"seq0":5,', b"")
    assert decode_row(moved).last_seq == 7
    assert decode_row(EVENT + b" \r").line == EVENT + b" \r"


BAD = [
    (b"", "unparsable", None, True),
    (b"garbage", "unparsable", None, False),
    (EVENT[:-1], "unparsable", None, True),
    (EVENT + EVENT, "unparsable", None, False),
    (b'{"type":"a\xff","seq":7,"time":1,"data":1}', "bad-utf8", 7, False),
    (b"\xff\xfe", "bad-utf8", None, False),
    (b'{"type":"a/b","seq":7,"time":1,"data":"\xc3', "bad-utf8", None, True),
    (b'{"type":"a/b","seq":7,"time":1,"data":%s}' % DEEP, "too-deep", 7, False),
    (b"[" * 600, "too-deep", None, False),
    (b'{"type":"a/b","seq":7,"time":1,"data":-0}', "not-lossless", 7, False),
    (b'{"type":"a/b","seq":7,"time":1,"data":1e999}', "not-lossless", 7, False),
    (PACKED.replace(b'"dt":[1', b'"dt":[-0'), "not-lossless", 5, False),
    (b"[-0]", "not-lossless", None, False),
    (b"null", "not-an-event", None, False),
    (b"7", "not-an-event", None, False),
    (b"[]", "not-an-event", None, False),
    (b"{}", "not-an-event", None, False),
    (b'{"type":["text-chunks"],"seq":3}', "not-an-event", 3, False),
    (b'{"type":"a/b","seq":7,"time":1,"data":1,"more":1}', "not-an-event", 7, False),
    (b'{"type":"a/b","seq":"7","time":1,"data":1}', "not-an-event", None, False),
    (PACKED.replace(b'"dt":[1,', b'"dt":['), "malformed-row", None, False),
    (b'{"seq0":1,"type":"text-chunks"}', "malformed-row", None, False),
    (b'{"type":"text-chunks","seq":1,"time":1,"data":1}', "malformed-row", None, False),
]


@pytest.mark.parametrize(("line", "kind", "seq", "truncated"), BAD)
def test_what_is_wrong_has_a_name(line: bytes, kind: str, seq: int | None, truncated: bool) -> None:
    """Kind, the seq of an intact record, and whether a torn write could have left the line."""
    with pytest.raises(RowError) as caught:
        decode_row(line)
    assert (caught.value.kind, caught.value.seq, caught.value.truncated) == (kind, seq, truncated)
    assert caught.value.reason


def found(line: bytes, start: int = 0) -> list[tuple[int, int, int]]:
    """Return position, end and first seq of the rows inside a line."""
    return [(at, end, row.first_seq) for at, end, row in parts(line, start)]


def test_rows_inside_a_broken_line_are_found() -> None:
    """Behind a torn beginning, glued together, with garbage between."""
    torn = b'{"type":"turn/sta'
    line = torn + EVENT + b"??" + PACKED + b'{"type":"x'
    at = len(torn)
    packed_at = at + len(EVENT) + 2
    assert found(line) == [(at, at + len(EVENT), 4), (packed_at, packed_at + len(PACKED), 5)]
    assert found(EVENT, 1) == []
    assert found(b"") == []


def test_objects_that_are_no_events_are_passed_over_to_their_inside() -> None:
    """A content block is none; an event within one is found."""
    block = b'{"type":"text","text":"x"}'
    line = b'{"type":"message","content":[' + block + b"," + EVENT + b"]}"
    assert found(line) == [(line.index(EVENT), line.index(EVENT) + len(EVENT), 4)]


def walks(line: bytes, monkeypatch: pytest.MonkeyPatch) -> int:
    """Count the walks that searching a line takes."""
    begun = []
    original = lossless.STRING_OR_BRACKET

    class Counting:
        """Counts how often a walk over the line begins."""

        def finditer(self, line: bytes, start: int) -> Iterator[re.Match[bytes]]:
            """Walk as the original does."""
            begun.append(start)
            return original.finditer(line, start)

    with monkeypatch.context() as patch:
        patch.setattr(lossless, "STRING_OR_BRACKET", Counting())
        found(line)
    return len(begun)


def test_many_objects_take_one_walk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Objects that never close, or stand side by side, are all met by the first walk."""
    assert walks(b'{"type":"a","x":[' * 5000, monkeypatch) == 1
    assert walks(EVENT * 50 + b"!", monkeypatch) == 1
    assert walks(b'"' + b'{"type":"a","x":[' * 5000, monkeypatch) <= 3


def test_an_event_is_found_in_whatever_state_the_torn_row_left_the_text() -> None:
    """Quotes and escapes before and inside the event change what the first walk sees."""
    event = lossless.encode(plain(8, "todo/write", text='a"b\\', more=[{"x": '"'}]))
    for torn in (
        b"{",
        b'{"a":"',
        b'{"type":"turn/s',
        b'{"type":"x","a":[',
        b'{"type":"x\\',
        b'{"type":"x","a":"\\"',
    ):
        assert found(torn + event) == [(len(torn), len(torn + event), 8)]
        assert found(torn + event + EVENT) == [
            (len(torn), len(torn + event), 8),
            (len(torn + event), len(torn + event + EVENT), 4),
        ]


def test_a_hostile_line_ends_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time stays in proportion to the line, and the caller is told that the search is not complete."""
    hostile = b'{"type":"x' + b'\\"{"type":"' * 2000
    monkeypatch.setattr(rows, "_SEARCH_BYTES", 1 << 16)
    with pytest.raises(SearchLimitError):
        found(hostile)
    verdict = scan_text(hostile + b"\n")
    assert verdict.is_damage
    assert [type(item) for item in salvage_rows(hostile + b"\n")] == [Damage]


def test_an_unpacked_delta_is_an_event_row() -> None:
    """One delta per line is the unpacked layout."""
    row = decode_row(lossless.encode(delta(3)))
    assert isinstance(row, EventRow)
    assert row.type == "assistant/chunk"
