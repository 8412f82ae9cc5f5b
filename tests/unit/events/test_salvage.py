"""Everything readable, in order, whatever lies between."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.events.samples import deltas, events, logs, plain, text_of
from turnlog.events import frames
from turnlog.events.batch import Damage, EncodedBatch, StoredFrame
from turnlog.events.chunk_runs import pack_lines
from turnlog.events.salvage import salvage_frames, salvage_rows


def shown(found: Any) -> list[tuple[Any, ...]]:
    """Sum up what a walk yields."""
    return [
        (item.first_seq, item.last_seq, item.position)
        if isinstance(item, StoredFrame)
        else (item.kind, item.line, item.position, item.size)
        for item in found
    ]


def test_a_good_body_comes_in_dense_runs() -> None:
    """One run with its rows, at the offset where it begins."""
    text = text_of(plain(0)) + pack_lines(deltas(1, 3))[0] + b"\n" + text_of(plain(4))
    found = list(salvage_rows(text, first_offset=9))
    assert shown(found) == [(0, 4, 9)]
    assert isinstance(found[0], StoredFrame)
    assert b"".join(row.line + b"\n" for row in found[0].rows) == text


def test_damage_stands_between_the_runs() -> None:
    """Line, byte and size of what could not be read; rows behind it go on with their own seqs."""
    first, bad, second = text_of(plain(0), plain(1)), b"garbage\n", text_of(plain(3), plain(4))
    assert shown(salvage_rows(first + bad + second)) == [
        (0, 1, 0),
        ("unparsable", 3, len(first), len(bad)),
        (3, 4, len(first + bad)),
    ]


def test_holes_and_repeats_begin_a_new_run() -> None:
    """Whoever reads decides what a second seq 1 means."""
    one = len(text_of(plain(0)))
    text = text_of(plain(0), plain(1), plain(1), plain(5))
    assert shown(salvage_rows(text)) == [(0, 1, 0), (1, 1, 2 * one), (5, 5, 3 * one)]


def test_events_inside_a_broken_line_are_saved() -> None:
    """Two appends glued together by a tear lose only the torn one."""
    torn = b'{"type":"turn/sta'
    text = text_of(plain(0)) + torn + text_of(plain(1), plain(2))
    at = len(text_of(plain(0)))
    assert shown(salvage_rows(text)) == [
        (0, 0, 0),
        ("unparsable", 2, at, len(torn) + at),
        (1, 2, at + len(torn)),
    ]


def test_the_content_of_a_torn_row_is_not_an_event() -> None:
    """A clean beginning of one row is that row alone."""
    torn = text_of(plain(1, "todo/write", nested=plain(9), more="xxxx"))[:-6] + b"\n"
    assert shown(salvage_rows(torn)) == [("unparsable", 1, 0, len(torn))]


def test_a_last_line_without_newline_is_torn() -> None:
    """It was never acknowledged, also when it parses."""
    last = text_of(plain(1))[:-1]
    text = text_of(plain(0)) + last
    assert shown(salvage_rows(text)) == [(0, 0, 0), ("torn", 2, len(text) - len(last), len(last))]
    assert shown(salvage_rows(b"")) == []


def test_long_runs_are_handed_out_in_parts() -> None:
    """Memory stays flat: a run does not grow without bound."""
    text = text_of(*[plain(k) for k in range(5000)])
    found = list(salvage_rows(text))
    assert [(item.first_seq, item.last_seq) for item in found if isinstance(item, StoredFrame)] == [
        (0, 4095),
        (4096, 4999),
    ]


@given(
    logs(), st.lists(st.sampled_from([b"bad\n", b"\n", b"null\n"]), max_size=3), st.integers(1, 50), st.data()
)
def test_every_good_row_is_found_whatever_lies_between(
    log: list[dict[str, Any]], bad: list[bytes], size: int, data: st.DataObject
) -> None:
    """Pieces of any size, damage anywhere: all rows come back in order."""
    lines = [line + b"\n" for line in pack_lines(log)]
    for piece in bad:
        lines.insert(data.draw(st.integers(0, len(lines))), piece)
    text = b"".join(lines)
    found = list(salvage_rows(text[at : at + size] for at in range(0, len(text), size)))
    rows = [row.line for item in found if isinstance(item, StoredFrame) for row in item.rows]
    assert rows == pack_lines(log)
    assert [item.size for item in found if isinstance(item, Damage)] == [len(b) for b in lines if b in bad]


FIRST = EncodedBatch.of(events([plain(0), *deltas(1, 3)])).frame()
SECOND = EncodedBatch.of(events([plain(4)])).frame()


def test_frames_are_walked_in_order() -> None:
    """Each frame is at its own offset; lines are counted through."""
    bad = frames.compress(b"garbage\n" + text_of(plain(5)))
    assert shown(salvage_frames(b"h" + FIRST + SECOND + bad, start=1, base=100)) == [
        (0, 3, 101),
        (4, 4, 101 + len(FIRST)),
        ("unparsable", 4, 101 + len(FIRST) + len(SECOND), 8),
        (5, 5, 101 + len(FIRST) + len(SECOND)),
    ]


def test_broken_frames_are_passed_over() -> None:
    """The walk goes on at the next frame with a good checksum."""
    flipped = bytearray(SECOND)
    flipped[-1] ^= 1
    buf = FIRST + bytes(flipped) + b"garbage" + SECOND
    assert shown(salvage_frames(buf)) == [
        (0, 3, 0),
        ("frame-checksum", None, len(FIRST), len(SECOND)),
        ("frame-magic", None, len(FIRST) + len(SECOND), 7),
        (4, 4, len(buf) - len(SECOND)),
    ]
    assert shown(salvage_frames(FIRST + b"garbage")) == [(0, 3, 0), ("frame-magic", None, len(FIRST), 7)]


def test_a_torn_frame_gives_what_it_holds() -> None:
    """At the end it is torn, in the middle it is damage; complete blocks are read either way."""
    assert shown(salvage_frames(FIRST + SECOND[:-2])) == [
        (0, 3, 0),
        (4, 4, len(FIRST)),
        ("torn", None, len(FIRST), len(SECOND) - 2),
    ]
    found = shown(salvage_frames(FIRST[:30] + SECOND))
    assert found[0][0] == "frame-torn"
    assert found[-1] == (4, 4, 30)
