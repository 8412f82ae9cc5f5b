"""Streamed chunks: the hot path equals the general way, and takes exactly what packs."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from tests.unit.session.conversations import delta, fresh, in_step
from turnlog.errors import BackpressureError, InvalidEventError, InvariantError
from turnlog.events.chunk_runs import ChunkRow
from turnlog.session.session import Session
from turnlog.session.write_gate import WriteGate

CALL = {"type": "tool-call-delta", "index": 0, "id": "c", "argumentsDelta": "{"}
NAMED = {"type": "tool-call-delta", "index": 0, "id": "c", "name": "n", "argumentsDelta": "{"}
PACKED: list[dict[str, Any]] = [
    delta(),
    {"text": "other key order", "index": 3, "type": "text-delta"},
    {"type": "reasoning-delta", "index": 1, "text": "lone \ud800"},
    CALL,
    NAMED,
]
GENERAL: list[Any] = [
    {"type": "block-start", "index": 0, "blockType": "text"},
    {"type": "finish", "reason": {"kind": "stop"}},
    {"type": "text-delta", "index": 0, "text": "x", "more": 1},
    {"type": "text-delta", "index": 0, "text": 7},
    {"type": "text-delta", "index": 0},
    {"type": "text-delta", "index": -1, "text": "x"},
    {"type": "text-delta", "index": True, "text": "x"},
    {"type": "text-delta", "index": 1.5, "text": "x"},
    {**CALL, "id": 7},
    {**NAMED, "name": 7},
    {**CALL, "more": 1},
    "no object",
    None,
]


@pytest.mark.parametrize("chunk", PACKED)
def test_deltas_pack_however_they_are_appended(chunk: dict[str, Any]) -> None:
    """CR1-CR3, L2: three equal deltas become one row, by `append_chunk` and by `append`."""
    for appended in (_by_chunk, _by_append):
        session = in_step()
        for _ in range(3):
            appended(session, chunk)
        (row,) = session.log.rows[2:]
        assert isinstance(row, ChunkRow)
        assert row.count == 3
        assert [event.data["chunk"] for event in session.events[2:]] == [chunk] * 3


@pytest.mark.parametrize("chunk", GENERAL)
def test_other_chunks_are_stored_as_they_are(chunk: Any) -> None:
    """CR5, CR8, CR10, L2: whatever else a chunk is, it is a valid event with the same data."""
    for appended in (_by_chunk, _by_append):
        session = in_step()
        appended(session, chunk)
        assert session.events[2].data == {"turn": 1, "step": 1, "chunk": chunk}


def _by_chunk(session: Session, chunk: Any) -> None:
    session.append_chunk(1, 1, chunk)


def _by_append(session: Session, chunk: Any) -> None:
    event = session.append("assistant/chunk", {"turn": 1, "step": 1, "chunk": chunk})
    assert event == session.events[-1]


def test_a_number_that_no_double_holds_is_refused() -> None:
    """L2: an index that would be rounded cannot be stored."""
    session = in_step()
    with pytest.raises(InvalidEventError) as caught:
        session.append_chunk(1, 1, delta(index=2**53 + 1))
    assert caught.value.field == "data.chunk.index"
    assert session.seq == 2


def test_an_observer_of_chunks_must_not_append_chunks(caplog: pytest.LogCaptureFixture) -> None:
    """ST21: the hot path refuses an append inside an append, too; the failure is the observer's."""
    session = in_step()
    session.observe(lambda event: session.append_chunk(1, 1, delta()), chunks=True)
    with caplog.at_level(logging.ERROR, logger="turnlog.session"):
        session.append_chunk(1, 1, delta())
    assert session.seq == 3
    assert "append_after" in caplog.text


def test_a_chunk_with_markers_goes_the_general_way() -> None:
    """SU38, L2: a chunk is not on the surface and cannot be marked ignorable."""
    session = in_step()
    data = {"turn": 1, "step": 1, "chunk": delta()}
    for options in ({"surface_op": "append"}, {"source_event_seqs": [0]}, {"ignorable": True}):
        with pytest.raises(InvalidEventError):
            session.append("assistant/chunk", data, **options)
    assert session.seq == 2


@pytest.mark.parametrize("data", [None, {"turn": 1, "step": 1}, {"turn": 1, "step": 1, "chunk": 1, "x": 1}])
def test_chunk_data_of_any_shape_is_accepted_leniently(data: Any) -> None:
    """L2: the payload of a chunk is no gate; only its lossless JSON and its place are."""
    session = fresh(strict=False)
    assert session.append("assistant/chunk", data).data == data


@pytest.mark.parametrize(("turn", "step"), [(2, 1), (1, 2), ("1", 1), (True, 1), (1, True)])
def test_a_chunk_outside_the_open_step_is_refused(turn: Any, step: Any) -> None:
    """IN8, L4: a chunk names the open turn and step; a flag is no number."""
    session = in_step()
    with pytest.raises(InvariantError) as caught:
        session.append_chunk(turn, step, delta())
    assert caught.value.rule == "in-open-step"
    assert session.seq == 2


def test_a_whole_float_names_the_open_step() -> None:
    """L4: 1.0 is the number 1 in a log."""
    session = in_step()
    session.append_chunk(1.0, 1, delta())  # type: ignore[arg-type]  # what a parser of floats may hand over
    assert session.events[2].data["turn"] == 1


def test_a_chunk_without_an_open_turn_is_refused() -> None:
    """IN8, L4: no turn, no chunk."""
    with pytest.raises(InvariantError):
        fresh().append_chunk(1, 1, delta())


def test_lenient_sessions_take_chunks_anywhere() -> None:
    """L4: with `strict=False` the order is the caller's, and deltas pack all the same."""
    session = fresh(strict=False)
    for _ in range(3):
        session.append_chunk(4, 2, delta())
    assert [row.count for row in session.log.rows] == [3]


def test_times_of_deltas_may_go_backwards() -> None:
    """CR12: every delta keeps the reading of the clock that it got."""
    times = iter([1, 2, 50, 40, 60])
    session = Session.create("s", header={"version": 0, "id": "s", "createdAt": 0}, clock=lambda: next(times))
    session.append("turn/start", {"turn": 1})
    session.append("step/start", {"turn": 1, "step": 1})
    for _ in range(3):
        session.append_chunk(1, 1, delta())
    assert [event.time for event in session.events] == [1, 2, 50, 40, 60]


def test_the_gate_counts_what_is_admitted() -> None:
    """D4: deltas are charged for their encoded text and an overhead, other events for their line."""
    session = in_step()
    gate = session.gate = WriteGate(budget=10_000)
    session.append_chunk(1, 1, delta("abc"))
    assert (gate.pending_bytes, gate.armed) == (len('"abc"') + 24, True)
    event = session.append("feedback/record", {"text": "x"})
    assert gate.pending_bytes == len('"abc"') + 24 + len(event.line)


def test_the_gate_arms_once_per_window() -> None:
    """D1: the first undurable event arms the gate, later ones find it armed until the owner disarms it."""
    armed: list[int] = []

    class Counting(WriteGate):
        __slots__ = ()

        def arm(self) -> None:
            armed.append(self.pending_bytes)
            super().arm()

    session = in_step()
    gate = session.gate = Counting()
    session.append_chunk(1, 1, delta())
    session.append_chunk(1, 1, delta())
    gate.armed = False
    session.append("feedback/record", {"text": "x"})
    session.append("feedback/record", {"text": "x"})
    assert len(armed) == 2


def test_over_the_budget_nothing_is_admitted_but_closers() -> None:
    """D4: over the budget a delta and an event are refused and change nothing; closers have the reserve."""
    session = in_step()
    session.gate = WriteGate(budget=60, reserve=2_000, session_id="s")
    session.append_chunk(1, 1, delta("x" * 100))
    with pytest.raises(BackpressureError) as caught:
        session.append_chunk(1, 1, delta())
    assert (caught.value.session_id, caught.value.budget, caught.value.pending_bytes) == ("s", 60, 126)
    with pytest.raises(BackpressureError):
        session.append("feedback/record", {"text": "x"})
    assert session.seq == 3
    session.append("step/end", {"turn": 1, "step": 1})
    session.append("turn/end", {"turn": 1, "reason": {"kind": "completed"}})
    assert session.seq == 5
    session.gate = None
    session.append("turn/start", {"turn": 2})
    assert session.seq == 6
