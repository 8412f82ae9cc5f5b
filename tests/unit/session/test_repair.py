"""The closers of an open turn."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.session.conversations import answer, call, conversation, fresh, in_step, result, tool_call
from turnlog.events.envelope import SessionEvent
from turnlog.events.log import EventLog
from turnlog.session.repair import interrupted_turn_closers, result_data
from turnlog.session.session import Session


def _closers(session: Session) -> list[SessionEvent]:
    """Return the closers, asserting that log, events and plain objects give the same."""
    closers = interrupted_turn_closers(session.log)
    assert closers == interrupted_turn_closers(session.events)
    assert closers == interrupted_turn_closers(event.to_dict() for event in session.events)
    return closers


def _types(closers: list[SessionEvent]) -> list[str]:
    return [event.type for event in closers]


def test_balanced_logs_need_nothing() -> None:
    """RP1, RP2: an empty log, a closed turn, events between turns."""
    assert interrupted_turn_closers([]) == []
    assert interrupted_turn_closers(EventLog()) == []
    assert _closers(conversation()) == []


def test_an_open_turn_is_ended() -> None:
    """RP3: without a step only `turn/end`, with the next seq and the time of the last event."""
    session = fresh()
    session.append("turn/start", {"turn": 1})
    last = session.append("feedback/record", {"text": "x"})
    (closer,) = _closers(session)
    assert closer.to_dict() == {
        "type": "turn/end",
        "seq": last.seq + 1,
        "time": last.time,
        "data": {"turn": 1, "reason": {"kind": "interrupted"}},
    }


def test_an_open_step_is_ended_before_its_turn() -> None:
    """RP4: `step/end`, then `turn/end`."""
    assert _types(_closers(in_step())) == ["step/end", "turn/end"]


def test_a_requested_call_never_started() -> None:
    """RP5: no record, so it did not run and may simply be done again; no sources."""
    session = in_step()
    session.append("assistant/message", answer("a", call("c")), surface_op="append")
    closer = _closers(session)[0]
    assert closer.data["error"] == {"name": "ToolNotStartedError", "code": "TOOL_NOT_STARTED"}
    assert "Retry" in closer.data["message"]["content"][0]["content"][0]["text"]
    assert list(closer.to_dict()) == ["type", "seq", "time", "data", "surfaceOp"]


def test_a_recorded_call_has_an_unknown_outcome() -> None:
    """RP10: the record is its source, and the marker stands before it."""
    session = in_step()
    session.append("assistant/message", answer("a", call("c")), surface_op="append")
    recorded = session.append("tool/call", tool_call("c"))
    closer = _closers(session)[0]
    assert closer.data["error"] == {"name": "ToolOutcomeUnknownError", "code": "TOOL_OUTCOME_UNKNOWN"}
    assert list(closer.to_dict()) == ["type", "seq", "time", "data", "surfaceOp", "sourceEventSeqs"]
    assert (closer.surface_op, closer.source_event_seqs) == ("append", (recorded.seq,))
    assert closer.data["message"]["id"] == f"interrupted-tool-result-c-{closer.seq}"


def test_answered_and_closed_calls_get_no_result() -> None:
    """RP6-RP8: not a call with a result, not one of a closed step, not one of an earlier turn."""
    session = fresh(strict=False)
    for turn in (1, 2):
        session.append("turn/start", {"turn": turn})
        for step in (1, 2):
            session.append("step/start", {"turn": turn, "step": step})
            ids = [f"{turn}-{step}-{n}" for n in (1, 2)]
            session.append(
                "assistant/message",
                answer("a", *map(call, ids), turn=turn, step=step),
                surface_op="append",
            )
            session.append("tool/result", result(ids[0]), surface_op="append")
            if (turn, step) != (2, 2):
                session.append("step/end", {"turn": turn, "step": step})
        if turn == 1:
            session.append("turn/end", {"turn": 1, "reason": {"kind": "completed"}})
    closers = _closers(session)
    assert _types(closers) == ["tool/result", "step/end", "turn/end"]
    assert closers[0].data["message"]["source"]["callId"] == "2-2-2"


def test_several_calls_are_answered_in_request_order() -> None:
    """RP9: one result each, started and not started mixed, in the order of the requests."""
    session = in_step()
    session.append("assistant/message", answer("a", call("x"), call("y"), call("z")), surface_op="append")
    session.append("tool/call", tool_call("z"))
    codes = [closer.data["error"]["code"] for closer in _closers(session)[:3]]
    assert codes == ["TOOL_NOT_STARTED", "TOOL_NOT_STARTED", "TOOL_OUTCOME_UNKNOWN"]


def test_a_recorded_call_that_was_not_requested_is_ignored() -> None:
    """RP11: no result for a record without an answer that asks for it, and malformed ones are no failure."""
    session = in_step(strict=False)
    for data in (tool_call("ghost"), {"turn": 1, "step": 1}, None):
        session.append("tool/call", data)
    assert _types(_closers(session)) == ["step/end", "turn/end"]


def test_closers_can_be_appended_and_close() -> None:
    """R1, L4: a strict session takes its closers as live events, and then nothing is open."""
    session = in_step()
    session.append("assistant/message", answer("a", call("c"), call("d")), surface_op="append")
    session.append("tool/call", tool_call("c"))
    for closer in _closers(session):
        session.append(
            closer.type,
            closer.data,
            surface_op=closer.surface_op,
            source_event_seqs=closer.source_event_seqs,
        )
    assert (session.open_turn, session.open_step, session.pending_calls) == (None, None, ())
    assert _closers(session) == []


def test_of_a_log_only_the_last_turn_is_read() -> None:
    """R1: closers cost time by the last turn; what stands before it is not even decoded."""
    log = EventLog()
    log.append_encoded("assistant/message", 0, 0, b"not read")
    for seq, type_ in enumerate(("turn/start", "step/start"), start=1):
        log.append_event(SessionEvent.build(type_, seq, 5, {"turn": 1, "step": 1}))
    assert _types(interrupted_turn_closers(log)) == ["step/end", "turn/end"]


def test_chunks_at_the_end_count_for_seq_and_time() -> None:
    """RP4: closers follow the last event, also when it is inside a packed run."""
    session = in_step()
    for word in "abcd":
        session.append_chunk(1, 1, {"type": "text-delta", "index": 0, "text": word})
    closers = _closers(session)
    assert (closers[0].seq, closers[0].time) == (6, session.last_time)


@pytest.mark.parametrize("started", [True, False])
def test_result_data_has_wire_order(started: bool) -> None:
    """R1: keys of the stand-in result in wire order, with the id that was asked for."""
    data: Any = result_data(turn=2, step=3, call_id="c", message_id="m", started=started)
    assert list(data) == ["turn", "step", "message", "error"]
    assert list(data["message"]) == ["id", "role", "source", "content"]
    assert list(data["message"]["content"][0]) == ["type", "toolCallId", "isError", "content"]
    assert (data["turn"], data["step"], data["message"]["id"]) == (2, 3, "m")


def test_a_call_without_an_id_blocks_nothing() -> None:
    """R1, L2: nothing can answer an empty id, so a step ends without one and a repair makes none."""
    session = Session.create("s")
    session.append("turn/start", {"turn": 1})
    session.append("step/start", {"turn": 1, "step": 1})
    message = {
        "role": "assistant",
        "content": [{"type": "tool-call", "id": "", "name": "shell", "arguments": "{}"}],
        "source": {"kind": "model", "provider": "acme", "model": "a1"},
        "id": "m-1",
    }
    session.append("assistant/message", {"turn": 1, "step": 1, "message": message}, surface_op="append")
    call_data = {"turn": 1, "step": 1, "callId": "", "name": "shell", "arguments": "{}"}
    session.append("tool/call", call_data)
    closers = interrupted_turn_closers(session.events)
    assert [closer.type for closer in closers] == ["step/end", "turn/end"]
    restored = Session.restore(session.header, EventLog([*session.events, *closers]))
    assert (restored.open_turn, restored.pending_calls) == (None, ())
    assert Session.restore(session.header, EventLog(session.events)).pending_calls == ()
    session.append("step/end", {"turn": 1, "step": 1})
    session.append("turn/end", {"turn": 1, "reason": {"kind": "completed"}})
