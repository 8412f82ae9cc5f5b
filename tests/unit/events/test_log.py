"""The columnar log: appending, cutting, reading, snapshots, comparison."""

from __future__ import annotations

import hashlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.events.samples import SAFE, delta, deltas, events, logs, plain
from turnlog.errors import UsageError
from turnlog.events import ecmascript, lossless
from turnlog.events.batch import EncodedBatch
from turnlog.events.chunk_runs import ChunkRow, Row
from turnlog.events.envelope import EventRow, SessionEvent
from turnlog.events.log import DELTA_OVERHEAD, EventLog, same_events


def log_of(*dicts: dict[str, Any], first_seq: int = 0) -> EventLog:
    """Make a log of plain objects."""
    return EventLog(events(list(dicts)), first_seq=first_seq)


def kinds(rows: Any) -> list[str]:
    """Say of each row whether it is packed."""
    return ["packed" if isinstance(row, ChunkRow) else "event" for row in rows]


def test_a_live_run_is_one_object_until_it_is_cut() -> None:
    """Deltas cost a text and a time each; no event and no row is made."""
    log = EventLog()
    text = lossless.encode_string("hi")
    for k in range(1000):
        assert log.append_delta("text-delta", 1, 1, 0, k, text) == len(text) + DELTA_OVERHEAD
    assert len(log) == log.next_seq == 1000
    assert not log._rows
    assert log[999].time == 999
    assert log.nbytes == 1000 * (len(text) + DELTA_OVERHEAD)
    batch = log.cut(0)
    assert kinds(batch.rows) == ["packed"]
    assert (batch.first_seq, batch.last_seq, len(batch)) == (0, 999, 1000)
    assert log._run is None
    assert log.nbytes == batch.nbytes


def test_a_batch_is_the_logs_own_rows_also_on_a_retry() -> None:
    """Nothing is encoded twice: the same row objects come again (L2)."""
    log = log_of(plain(0), *deltas(1, 5), plain(6))
    first, again = log.cut(0), log.cut(0)
    assert all(a is b for a, b in zip(first.rows, again.rows, strict=True))
    assert all(a is b for a, b in zip(first.rows, log.rows, strict=True))


def test_batches_continue_at_row_boundaries() -> None:
    """A run that goes on after a cut is a new row; a later cut may span both."""
    log = log_of(*deltas(0, 4))
    first = log.cut(0)
    for event in events(deltas(4, 3)):
        log.append_event(event)
    second = log.cut(4)
    assert (kinds(first.rows), kinds(second.rows)) == (["packed"], ["packed"])
    assert [row.first_seq for row in log.cut(0).rows] == [0, 4]
    assert [row.first_seq for row in log.cut(4).rows] == [4]


def test_a_cut_inside_a_packed_row_splits_it_for_good() -> None:
    """Late adoption may begin anywhere; the retry finds the split rows."""
    log = log_of(*deltas(0, 8), plain(8))
    log.cut(0)
    before = list(log)
    batch = log.cut(5)
    assert kinds(batch.rows) == ["packed", "event"]
    assert list(batch.events()) == before[5:]
    assert log.cut(5).rows[0] is batch.rows[0]
    assert list(log) == before
    assert kinds(log.cut(7).rows) == ["event", "event"]
    assert [row.first_seq for row in log.rows] == [0, 5, 6, 7, 8]
    assert list(log) == before


def test_short_runs_are_cut_verbatim() -> None:
    """One or two deltas become plain event lines."""
    log = log_of(delta(0), plain(1), delta(2), delta(3), plain(4), *deltas(5, 3))
    assert kinds(log.cut(0).rows) == ["event"] * 5 + ["packed"]


def test_an_empty_cut_is_an_empty_batch() -> None:
    """Nothing new is no error."""
    log = log_of(plain(0))
    batch = log.cut(1)
    assert (len(batch), batch.rows, batch.text()) == (0, (), b"")
    assert EventLog().cut(0).first_seq == 0


@pytest.mark.parametrize("seq", [-1, 4])
def test_a_cut_outside_of_the_log_is_a_mistake(seq: int) -> None:
    """The error says which seqs there are."""
    with pytest.raises(UsageError, match="seqs 0 to 2"):
        log_of(*deltas(0, 3)).cut(seq)


def test_a_run_with_an_unsafe_gap_becomes_two_rows() -> None:
    """The rule of packed rows holds for live runs too."""
    log = EventLog()
    for time in (-SAFE, -SAFE, -SAFE, SAFE, SAFE):
        log.append_delta("text-delta", 1, 1, 0, time, b'"x"')
    assert kinds(log.cut(0).rows) == ["packed", "event", "event"]
    assert [event.time for event in log] == [-SAFE, -SAFE, -SAFE, SAFE, SAFE]


def test_a_tool_call_run_keeps_id_and_name() -> None:
    """Call id and name belong to the run."""
    log = EventLog()
    for k in range(4):
        log.append_delta("tool-call-delta", 1, 2, 3, k, b'"{"', "c9", "read" if k < 3 else None)
    assert log[1].to_dict() == delta(
        1, "{", time=1, kind="tool-call-delta", id="c9", name="read", step=2, index=3
    )
    assert "name" not in log[3].data["chunk"]
    assert kinds(log.cut(0).rows) == ["packed", "event"]
    assert log[3].data["chunk"]["argumentsDelta"] == "{"
    assert b'"name":"read"' in log.rows[0].line
    unnamed = EventLog()
    for k in range(3):
        unnamed.append_delta("tool-call-delta", 1, 1, 0, k, b'""', "c")
    assert b'"id":"c","args":' in unnamed.cut(0).rows[0].line
    single = EventLog()
    single.append_delta("tool-call-delta", 1, 2, 3, 7, b'"{"', "c9", "read")
    assert single.cut(0).rows[0].line == lossless.encode(
        delta(0, "{", time=7, kind="tool-call-delta", id="c9", name="read", step=2, index=3)
    )


def test_appending_the_wrong_seq_is_a_mistake() -> None:
    """A log is dense, also through rows."""
    log = log_of(plain(0))
    with pytest.raises(UsageError, match="continues at seq 1"):
        log.append_event(events([plain(3)])[0])
    rows = log_of(*deltas(1, 3), plain(4), first_seq=1).rows
    with pytest.raises(UsageError, match="continues at seq 4"):
        log.extend_rows([rows[0], rows[0]])
    assert len(log) == 4
    log.extend_rows(rows[1:])
    assert [event.seq for event in log] == [0, 1, 2, 3, 4]


@given(logs(), st.data())
def test_reading_is_the_same_however_the_log_is_cut(log: list[dict[str, Any]], data: st.DataObject) -> None:
    """Index, slices and iteration do not depend on what is sealed."""
    made = events(log)
    whole = EventLog()
    cuts = data.draw(st.sets(st.integers(0, len(made))))
    for event in made:
        if event.seq in cuts:
            whole.cut(data.draw(st.integers(0, event.seq)))
        whole.append_event(event)
    assert list(whole) == made
    assert [whole[k] for k in range(len(made))] == made
    assert whole[::-1] == made[::-1]
    assert whole[-3:] == made[-3:]
    assert whole[2:9:3] == made[2:9:3]
    assert whole[5:2] == []
    start = data.draw(st.integers(0, len(made)))
    assert list(whole.iter_from(start)) == made[start:]
    assert [e for row in whole.rows_from(start) for e in row.events()] == made[start:]
    assert [e for row in whole.rows for e in row.events()] == made
    assert same_events(whole, made)
    assert whole == EventLog(made)


def test_an_index_outside_raises() -> None:
    """The usual rule of sequences."""
    log = log_of(*deltas(0, 3))
    assert log[-3].seq == 0
    for index in (3, -4):
        with pytest.raises(IndexError):
            log[index]


def test_indexing_through_a_row_decodes_it_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that walks by index does not pay for the row each time."""
    log = log_of(*deltas(0, 50))
    log.cut(0)
    decoded = []
    original = ChunkRow.body

    def counting(row: ChunkRow) -> Any:
        decoded.append(row)
        return original(row)

    monkeypatch.setattr(ChunkRow, "body", counting)
    assert [log[k].seq for k in range(50)] == list(range(50))
    assert len(decoded) == 1
    assert len(list(log)) == 50
    assert len(decoded) == 2


def test_iteration_goes_on_into_what_is_appended_meanwhile() -> None:
    """An iterator sees the log as it is at each step, also when the live run is sealed under it."""
    log = log_of(*deltas(0, 2))
    iterator = iter(log)
    assert next(iterator).seq == 0
    for event in events([delta(2), plain(3)]):
        log.append_event(event)
    assert [event.seq for event in iterator] == [1, 2, 3]
    assert [event.seq for event in log.iter_from(1, 3)] == [1, 2]


def test_significant_rows_skip_everything_streamed() -> None:
    """Cheap folds never decode deltas or chunk markers."""
    marker = {**delta(3), "data": {"turn": 1, "step": 1, "chunk": {"type": "finish"}}}
    log = log_of(plain(0), delta(1), delta(2), marker, plain(4, "step/end"), *deltas(5, 3))
    log.cut(0)
    assert [(row.first_seq, row.type) for row in log.significant()] == [(0, "turn/start"), (4, "step/end")]


def test_a_suffix_counts_from_its_first_seq() -> None:
    """Index 0 is `first_seq`."""
    log = log_of(*deltas(10, 4), plain(14), first_seq=10)
    assert (log.first_seq, log.next_seq, len(log)) == (10, 15, 5)
    assert log[0].seq == 10
    assert [event.seq for event in log[1:3]] == [11, 12]
    assert [row.first_seq for row in log.cut(10).rows] == [10, 14]
    assert [row.first_seq for row in log.rows_from(3)] == [10, 14]
    assert log.rows_from(15) == []
    assert log_of(*deltas(0, 3)).rows_from(3) == []
    assert [row.first_seq for row in log_of(*deltas(0, 5)).rows_from(2)] == [2]
    assert "first_seq=10" in repr(log)


def test_a_snapshot_does_not_change_when_the_log_grows() -> None:
    """Rows and the live run are shared; what comes later stays out."""
    log = log_of(plain(0), *deltas(1, 3))
    view = log.snapshot()
    made = list(log)
    for event in events([*deltas(4, 3), plain(7)]):
        log.append_event(event)
    log.cut(2)
    assert list(view) == made
    assert kinds(view.rows) == ["event", "packed"]
    assert len(view) == 4
    assert view.snapshot() == view
    assert [row.first_seq for row in view.significant()] == [0]


def test_a_growing_snapshot_leaves_the_live_run_alone() -> None:
    """Both go on with the same kind of delta and do not meet."""
    log = log_of(*deltas(0, 4))
    view = log.snapshot(2)
    view.append_delta("text-delta", 1, 1, 0, 900, b'"view"')
    log.append_delta("text-delta", 1, 1, 0, 901, b'"log"')
    assert [event.data["chunk"]["text"] for event in view] == ["t0", "t1", "view"]
    assert [event.data["chunk"]["text"] for event in log] == ["t0", "t1", "t2", "t3", "log"]


def test_splitting_a_row_leaves_snapshots_alone() -> None:
    """A view counts its own rows, whatever happens to the log's."""
    log = log_of(*deltas(0, 8), *[plain(k) for k in range(8, 12)])
    view, made = log.snapshot(), list(log)
    log.cut(4)
    log.cut(0)
    assert kinds(view.rows) == ["packed"] + ["event"] * 4
    assert list(view) == made
    assert [view[k] for k in range(12)] == made


@given(logs(), st.data())
def test_snapshots_end_anywhere_and_can_grow_on_their_own(
    log: list[dict[str, Any]], data: st.DataObject
) -> None:
    """A view up to any seq is a prefix, and appending to it leaves the original alone."""
    made = events(log)
    whole = EventLog(made)
    if data.draw(st.booleans()):
        whole.cut(0)
    upto = data.draw(st.integers(0, len(made)))
    view = whole.snapshot(upto)
    assert list(view) == made[:upto]
    assert [e for row in view.rows for e in row.events()] == made[:upto]
    added = data.draw(st.sampled_from([delta(upto), plain(upto)]))
    view.append_event(events([added])[0])
    assert list(view)[:-1] == made[:upto]
    assert len(view) == upto + 1
    assert list(whole) == made
    assert list(view.cut(0).events()) == list(view)


def test_a_snapshot_grows_by_rows_and_encoded_events_too() -> None:
    """All three ways of appending take own rows first."""
    log = log_of(plain(0), *deltas(1, 3))
    view = log.snapshot()
    view.extend_rows(log_of(plain(4), first_seq=4).rows)
    other = log.snapshot()
    other.append_encoded("turn/start", 4, 5, lossless.encode(plain(4)))
    assert (len(view), len(other), len(log)) == (5, 5, 4)
    assert list(log.snapshot(0)) == []


@pytest.mark.parametrize("seq", [-1, 5])
def test_a_snapshot_beyond_the_log_is_a_mistake(seq: int) -> None:
    """Only seqs of the log can end a view."""
    with pytest.raises(UsageError):
        log_of(*deltas(0, 3)).snapshot(seq)


def test_rows_are_found_by_seq() -> None:
    """Only an exact beginning counts."""
    log = log_of(plain(0), *deltas(1, 3), plain(4))
    assert log.row_at(4) is log.rows[2]
    assert log.row_at(1) is log.rows[1]
    assert log.row_at(2) is None
    assert log.row_at(9) is None
    assert EventLog().row_at(0) is None


def test_the_digest_is_of_the_canonical_events() -> None:
    """The same for any framing, the same as hashing the list."""
    dicts = [plain(0), *deltas(1, 4), plain(5)]
    expected = hashlib.sha256(ecmascript.canonical(dicts).encode()).hexdigest()
    log = log_of(*dicts)
    assert log.digest() == expected
    log.cut(3)
    assert log.digest() == expected
    assert EventLog().digest() == hashlib.sha256(b"[]").hexdigest()


def framed(made: list[SessionEvent], cuts: set[int]) -> EventLog:
    """Make a log whose rows begin anew at each of the seqs."""
    log = EventLog()
    for event in made:
        if event.seq in cuts:
            log.cut(0)
        log.append_event(event)
    log.cut(0)
    return log


seqs = st.sets(st.integers(0, 24))


@given(logs(), seqs, seqs)
def test_logs_are_compared_as_events(log: list[dict[str, Any]], a: set[int], b: set[int]) -> None:
    """However the same events are framed, they are the same (B3)."""
    made = events(log)
    left, right = framed(made, a), framed(made, b)
    assert same_events(left, right)
    assert left == right
    assert same_events(made, right)
    if made:
        assert same_events(left.cut(0), EncodedBatch.of(made))
        assert not same_events(left, framed(made[:-1], b))
        assert not same_events(framed(made[:-1], a), right)


@given(logs(), seqs, seqs, st.data())
def test_one_changed_event_makes_a_difference(
    log: list[dict[str, Any]], a: set[int], b: set[int], data: st.DataObject
) -> None:
    """Nothing is skipped by the fast path over equal rows."""
    made = events(log)
    if not made:
        return
    at = data.draw(st.integers(0, len(made) - 1))
    other = {**log[at], "time": log[at]["time"] + (1 if log[at]["time"] < 0 else -1)}
    changed = [*made[:at], *events([other]), *made[at + 1 :]]
    assert not same_events(framed(made, a), framed(changed, b))


def test_a_log_equals_only_logs() -> None:
    """Other sequences are compared with `same_events`."""
    log = log_of(plain(0))
    assert log != [log[0]]
    assert log != log_of(plain(1), first_seq=1)
    with pytest.raises(TypeError):
        hash(log)


def test_a_shorter_log_is_another_one() -> None:
    """Also where its end falls inside a packed row of the other."""
    packed = log_of(*deltas(0, 3))
    packed.cut(0)
    short = EventLog(events(deltas(0, 2)))
    assert not same_events(packed, short)
    assert not same_events(short, packed)
    assert not same_events(EventLog(), short)


def test_equal_rows_are_not_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A prefix check costs a comparison of bytes."""
    left, right = log_of(*deltas(0, 9)), log_of(*deltas(0, 9))
    left.cut(0)
    right.cut(0)
    monkeypatch.setattr(ChunkRow, "body", None)
    assert same_events(left, right)


def test_batches_are_made_of_consecutive_events() -> None:
    """A batch of nothing or with a hole is a mistake."""
    made = events([plain(3), *deltas(4, 3)])
    batch = EncodedBatch.of(made)
    assert (batch.first_seq, batch.last_seq, len(batch), kinds(batch.rows)) == (3, 6, 4, ["event", "packed"])
    assert list(batch.events()) == made
    assert batch.nbytes == len(batch.text())
    assert batch.text().endswith(b"\n")
    assert "first_seq=3" in repr(batch)
    with pytest.raises(UsageError, match="at least one"):
        EncodedBatch.of([])
    with pytest.raises(UsageError, match="no seq 4 before seq 5"):
        EncodedBatch.of(events([plain(3), plain(5)]))


def test_a_frame_is_compressed_once() -> None:
    """A retry sends the same bytes object."""
    batch = EncodedBatch.of(events(deltas(0, 5)))
    assert batch.frame() is batch.frame()


def test_rows_say_what_they_hold() -> None:
    """Both kinds of rows answer the same questions."""
    rows: list[Row] = log_of(plain(0), *deltas(1, 3)).rows
    assert [(row.type, row.first_seq, row.last_seq, row.count, row.time) for row in rows] == [
        ("turn/start", 0, 0, 1, 100),
        ("assistant/chunk", 1, 3, 3, 100),
    ]
    assert isinstance(rows[0], EventRow)
    assert [row.nbytes for row in rows] == [len(row.line) for row in rows]
