"""Frames as rows of a database: logs, suffixes, scans and statuses made of them, and what is damage."""

from __future__ import annotations

import pytest

from tests.unit.backends.logs import batch, deltas, event, events, turn
from turnlog.backends.frame_rows import (
    FrameRow,
    check_repeated,
    end_status,
    holds,
    log_of,
    pieces_of,
    suffix_of,
    wanted_range,
)
from turnlog.errors import CorruptLogError, UnexpectedSeqError
from turnlog.events import frames
from turnlog.events.batch import Damage, EncodedBatch, StoredFrame
from turnlog.events.envelope import SessionEvent


def row(stored: list[SessionEvent]) -> FrameRow:
    """Return events as one stored frame."""
    cut = EncodedBatch.of(stored)
    return FrameRow(cut.first_seq, cut.last_seq, cut.frame())


def flipped(stored: FrameRow) -> FrameRow:
    """Return a frame with one bad byte."""
    data = bytearray(stored.frame)
    data[len(data) // 2] ^= 1
    return stored._replace(frame=bytes(data))


ROWS = [row(events(0, 3)), row(deltas(3, 5)), row(events(8, 2))]
"""Ten events in three frames."""

BAD = {
    "checksum": ([ROWS[0], flipped(ROWS[1]), ROWS[2]], "frame-checksum", 4, 3),
    "missing": ([ROWS[0], ROWS[2]], "seq-gap", 4, 3),
    "missing-first": (ROWS[1:], "seq-gap", 1, 0),
    "missing-last": (ROWS[:2], "seq-gap", 5, 8),
    "overlap": ([ROWS[0], row(events(2, 8))], "seq-gap", 4, 3),
    "other-key": ([FrameRow(0, 9, ROWS[0].frame)], "frame-range", 1, 0),
    "other-seqs": ([FrameRow(0, 2, ROWS[2].frame)], "seq-gap", 1, 0),
    "no-newline": ([FrameRow(0, 9, frames.compress(b'{"type":"x"}'))], "unterminated", 1, 0),
    "no-events": ([FrameRow(0, 9, frames.compress(b"[]\n"))], "not-an-event", 1, 0),
    "empty": ([FrameRow(0, 9, frames.compress(b""))], "frame-range", 1, 0),
    "two-frames": ([FrameRow(0, 9, ROWS[0].frame + ROWS[1].frame)], "frame-structure", 1, 0),
}
"""Rows, the kind of damage, and the line and seq where it begins."""


def test_frames_make_a_log() -> None:
    """R2: good frames that continue each other are the log, and stay encoded rows."""
    log = log_of(ROWS, session_id="s", next_seq=10)
    assert [e.seq for e in log] == list(range(10))
    assert len(log.rows) == 6
    assert log_of([], session_id="s", next_seq=0).next_seq == 0
    assert log_of([], session_id="s", next_seq=7, first_seq=None).first_seq == 7


@pytest.mark.parametrize("name", sorted(BAD))
def test_a_bad_frame_is_damage(name: str) -> None:
    """R2: a frame that fails its checksum, says something else than its key or leaves a hole is damage."""
    stored, kind, line, seq = BAD[name]
    with pytest.raises(CorruptLogError) as found:
        log_of(stored, session_id="s", next_seq=10, path="/x.db")
    assert (found.value.kind, found.value.line, found.value.seq) == (kind, line, seq)
    assert (found.value.session_id, found.value.path) == ("s", "/x.db")


@pytest.mark.parametrize(
    ("seq", "limit", "wanted"),
    [
        (0, None, (0, 10)),
        (4, None, (4, 10)),
        (4, 3, (4, 7)),
        (-3, None, (7, 10)),
        (-30, 2, (0, 2)),
        (12, 5, (10, 10)),
        (9, 100, (9, 10)),
        (5, 0, (5, 5)),
    ],
)
def test_a_suffix_is_a_range(seq: int, limit: int | None, wanted: tuple[int, int]) -> None:
    """A suffix read is told in seqs within the log, from either end."""
    assert wanted_range(10, seq, limit) == wanted


@pytest.mark.parametrize(
    ("rows", "first", "end"),
    [(ROWS, 0, 10), (ROWS[1:2], 4, 6), (ROWS[1:], 5, 9), (ROWS[2:], 8, 10), ([], 10, 10), ([], 3, 3)],
)
def test_a_suffix_comes_from_its_frames(rows: list[FrameRow], first: int, end: int) -> None:
    """The frames that hold a range give exactly the range."""
    log = suffix_of(rows, session_id="s", next_seq=10, first=first, end=end)
    assert (log.first_seq, [e.seq for e in log]) == (first, list(range(first, end)))


@pytest.mark.parametrize(
    ("rows", "first", "end"),
    [
        ([], 3, 8),
        (ROWS[2:], 5, 10),
        (ROWS[:1], 2, 6),
        ([ROWS[0], ROWS[2]], 1, 10),
        ([flipped(ROWS[1])], 4, 6),
    ],
    ids=["none", "first-missing", "last-missing", "middle-missing", "bad"],
)
def test_a_suffix_with_a_hole_is_damage(rows: list[FrameRow], first: int, end: int) -> None:
    """R2: a range that the frames do not hold is damage, never a shorter answer."""
    with pytest.raises(CorruptLogError):
        suffix_of(rows, session_id="s", next_seq=10, first=first, end=end)


def test_a_scan_goes_on_behind_damage() -> None:
    """R2: a scan yields what is good, names what is bad or missing, and never raises."""
    bad = flipped(ROWS[1])
    pieces, expected = pieces_of([ROWS[0], bad, ROWS[2], row(events(12, 1))], 0)
    assert expected == 13
    assert [type(piece) for piece in pieces] == [StoredFrame, Damage, StoredFrame, Damage, StoredFrame]
    assert pieces[1] == Damage(3, None, "frame-checksum", len(bad.frame))
    assert pieces[3] == Damage(10, None, "seq-gap", 0)
    first, last = pieces[0], pieces[4]
    assert isinstance(first, StoredFrame)
    assert isinstance(last, StoredFrame)
    assert (first.first_seq, first.last_seq, first.position) == (0, 2, 0)
    assert (last.first_seq, last.position) == (12, 12)


@pytest.mark.parametrize("framed", [[10], [4, 6], [1, 1, 8]])
def test_the_same_events_count_however_framed(framed: list[int]) -> None:
    """B3: a repeated batch is success when the end of the log equals it as events, in any frames."""
    stored, at = [], 0
    for size in framed:
        stored.append(row(events(at, size)))
        at += size
    for first in (0, 3, 9):
        check_repeated(stored, batch(first, 10 - first), session_id="s", next_seq=10)


@pytest.mark.parametrize(
    ("stored", "repeated"),
    [
        (ROWS, batch(8, 3)),
        (ROWS, batch(8, 1)),
        (ROWS, EncodedBatch.of([event(8, title="other"), event(9)])),
        (ROWS[2:], batch(7, 3)),
    ],
    ids=["longer", "shorter", "other", "frames-missing"],
)
def test_other_events_are_a_conflict(stored: list[FrameRow], repeated: EncodedBatch) -> None:
    """B3: anything but the very same events up to the end of the log is told with both positions."""
    with pytest.raises(UnexpectedSeqError) as conflict:
        check_repeated(stored, repeated, session_id="s", next_seq=10)
    assert (conflict.value.expected, conflict.value.actual) == (10, repeated.first_seq)


def test_an_unreadable_end_is_no_conflict() -> None:
    """B3, R2: whether a batch is stored cannot be said of frames that cannot be read."""
    with pytest.raises(CorruptLogError):
        holds([flipped(ROWS[2])], batch(8, 2), session_id="s", next_seq=10)


SIDE = "feedback/record"


@pytest.mark.parametrize(
    ("newest_first", "next_seq", "status"),
    [
        ([], 0, "ok"),
        ([row(turn(0))], 2, "ok"),
        ([row([event(0, "turn/start", turn=1)])], 1, "interrupted"),
        ([row([event(2, SIDE)]), row(turn(0))], 3, "ok"),
        ([row([event(1, SIDE)]), row([event(0, "turn/start", turn=1)])], 2, "interrupted"),
        ([row([event(0, SIDE)])], 1, "ok"),
        ([row([event(7, SIDE)])], 8, "unknown"),
        ([row(deltas(3, 5))], 8, "interrupted"),
        ([row([event(2, SIDE)]), flipped(row(turn(0)))], 3, "corrupt"),
        ([flipped(row(turn(0)))], 2, "corrupt"),
        ([row(turn(0))], 5, "corrupt"),
        ([], 5, "corrupt"),
        ([FrameRow(0, 9, b"")], 10, "unknown"),
        ([row(deltas(0, 100, size=2000))], 100, "unknown"),
    ],
    ids=[
        "empty",
        "closed-turn",
        "open-turn",
        "side-event-after-turn",
        "side-event-in-turn",
        "side-event-alone",
        "beginning-not-read",
        "deltas",
        "damage-before",
        "damage-last",
        "too-short",
        "nothing-stored",
        "not-decoded",
        "too-long-to-read",
    ],
)
def test_the_end_of_a_log_tells_its_status(newest_first: list[FrameRow], next_seq: int, status: str) -> None:
    """B4: the last frames decide, within 64 KiB of them; one that is bad or missing is corrupt."""
    found, problem = end_status(newest_first, next_seq)
    assert found == status
    assert (problem is not None) == (status == "corrupt")


def test_a_status_reads_no_more_than_it_needs() -> None:
    """B4: frames are taken one by one, until one decides."""
    taken = iter([row([event(4, SIDE)]), row(turn(2)), row(turn(0))])
    assert end_status(taken, 5) == ("ok", None)
    assert [left.first_seq for left in taken] == [0]


def test_a_replacement_between_turns_opens_none() -> None:
    """B4: a message that replaces an older node is no sign of a turn in progress."""
    replacement = SessionEvent.from_dict(
        {
            "type": "assistant/message",
            "seq": 2,
            "time": 1,
            "data": {},
            "sourceEventSeqs": [],
            "surfaceOp": {"type": "replace", "start": 0, "end": 0},
        }
    )
    assert end_status([row([replacement]), row(turn(0))], 3) == ("ok", None)


def test_columns_that_hold_anything_are_damage() -> None:
    """R2: what is no seq or no blob in a damaged file is a damaged frame, named by loads, scans and lists."""
    good = ROWS[0]
    for bad in (
        FrameRow.of("0", good.last_seq, good.frame),
        FrameRow.of(good.first_seq, None, good.frame),
        FrameRow.of(good.first_seq, good.last_seq, 7),
        FrameRow.of(good.first_seq, good.last_seq, "text"),
    ):
        with pytest.raises(CorruptLogError):
            log_of([bad], session_id="s", next_seq=3)
        found, _ = pieces_of([bad, ROWS[1]], 0)
        assert {type(piece) for piece in found[:-1]} == {Damage}
        assert all(piece.position >= 0 for piece in found)
        assert isinstance(found[-1], StoredFrame)
        assert end_status([bad], 3)[0] == "corrupt"
    assert FrameRow.of(*good) == good


def test_a_size_is_held_against_the_frames() -> None:
    """R2: a load names a row that does not tell how many bytes of frames there are."""
    size = sum(len(stored.frame) for stored in ROWS)
    assert len(log_of(ROWS, session_id="s", next_seq=10, size=size)) == 10
    with pytest.raises(CorruptLogError, match=str(size)) as refused:
        log_of(ROWS, session_id="s", next_seq=10, size=size ^ 64)
    assert refused.value.kind == "row-size"
