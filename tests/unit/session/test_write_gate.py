"""The write gate by itself: one event into an empty queue, the reserve, and its end."""

from __future__ import annotations

import pytest

from tests.unit.session.conversations import answer, call, in_step, result, tool_call
from turnlog.errors import BackpressureError
from turnlog.session.write_gate import WriteGate


def test_an_empty_queue_takes_one_event_of_any_size() -> None:
    """D4: an event bigger than the budget is admitted when nothing waits, and only then."""
    gate = WriteGate(budget=10)
    gate.refuse(1_000_000, closing=False)
    gate.pending_bytes = 1
    with pytest.raises(BackpressureError):
        gate.refuse(1_000_000, closing=False)


def test_the_reserve_is_for_closing_events_and_ends() -> None:
    """D4: a closing event may use the reserve, up to its end inclusive; no other event may."""
    gate = WriteGate(budget=10, reserve=5, session_id="s")
    gate.pending_bytes = 10
    gate.refuse(5, closing=True)
    for nbytes, closing in ((6, True), (1, False)):
        with pytest.raises(BackpressureError):
            gate.refuse(nbytes, closing=closing)


def test_the_result_of_a_pending_call_may_use_the_reserve() -> None:
    """D4: a result of a pending call closes something, a result of nothing does not."""
    session = in_step(strict=False)
    session.append("assistant/message", answer("a", call("c-1")), surface_op="append")
    session.append("tool/call", tool_call("c-1"))
    gate = session.gate = WriteGate(budget=0, reserve=10_000)
    gate.pending_bytes = 1
    with pytest.raises(BackpressureError):
        session.append("tool/result", result("c-9"), surface_op="append")
    session.append("tool/result", result("c-1"), surface_op="append")
    assert session.pending_calls == ()
