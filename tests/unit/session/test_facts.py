"""Reading the fields that order depends on, from payloads of any shape."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.session.conversations import answer, call, conversation, excuse, result, text, tool_call
from turnlog.session.facts import NO_FACTS, EventFacts, facts_of, significant_events


def test_facts_of_well_formed_events() -> None:
    """RP5, RP10, IN12: turn, step, calls and excuses are read from where the format puts them."""
    assert facts_of("turn/start", {"turn": 3}) == EventFacts(3)
    assert facts_of("assistant/message", answer("a", call("c"), text("x"), call("c"), turn=2)) == EventFacts(
        2, 1, requested=("c", "c")
    )
    assert facts_of("tool/call", tool_call("c")) == EventFacts(1, 1, "c")
    assert facts_of("tool/result", result("c")) == EventFacts(1, 1, "c")
    failed = result("c", error={"name": "n", "code": "OTHER"}, block={"isError": True})
    assert facts_of("tool/result", failed) == EventFacts(1, 1, "c")
    assert facts_of("tool/result", excuse("c")) == EventFacts(1, 1, "c", excused=True)


@pytest.mark.parametrize(
    ("type_", "data"),
    [
        ("session/title", {"turn": 1}),
        ("turn/start", None),
        ("tool/call", {"callId": 7}),
        ("tool/result", {"message": 7}),
        ("tool/result", {"message": {"source": 7}}),
        ("tool/result", {"error": {"code": "TOOL_NOT_STARTED"}}),
        ("tool/result", {"error": {"code": "TOOL_NOT_STARTED"}, "message": {"content": []}}),
        ("tool/result", {"error": {"code": "TOOL_NOT_STARTED"}, "message": {"content": [{"isError": 1}]}}),
        ("assistant/message", {"message": {"content": "x"}}),
        ("assistant/message", {"message": {"content": [7, {"type": "tool-call"}]}}),
    ],
)
def test_malformed_payloads_give_fewer_facts(type_: str, data: Any) -> None:
    """RP11: nothing is trusted, nothing fails."""
    assert facts_of(type_, data) == NO_FACTS


def test_significant_events_leave_out_chunks() -> None:
    """RH10: the same events from a log, from events and from plain objects."""
    session = conversation()
    expected = [event for event in session.events if event.type != "assistant/chunk"]
    assert 0 < len(expected) < session.seq
    assert list(significant_events(session.log)) == expected
    assert list(significant_events(event.to_dict() for event in session.events)) == expected
