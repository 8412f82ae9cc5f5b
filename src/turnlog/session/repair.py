"""The closers of an interrupted turn (R1): what must be appended so that a log is balanced again.

Owns the algorithm and the exact bytes of the closers. It appends nothing itself, and it touches only the
open turn: whatever else is open belongs to its own package.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from turnlog.events.envelope import EventRow, SessionEvent, as_event
from turnlog.events.log import EventLog
from turnlog.session.facts import NOT_STARTED, facts_of

if TYPE_CHECKING:
    from turnlog.events.lossless import JsonValue
    from turnlog.session.facts import EventSource

# The two texts are wire data of session format version 0, reproduced for byte compatibility; see NOTICE.
TEXT_NOT_STARTED = (
    "The tool call was interrupted before the Harness recorded it as started. Retry it if it is still needed."
)
TEXT_OUTCOME_UNKNOWN = (
    "The tool call was interrupted after it was recorded, but no result was durably recorded. "
    "Its outcome is unknown. Decide whether to retry from the tool semantics: retry only if the operation is "
    "read-only or idempotent; if it may have side effects, first verify external state or ask the user. "
    "Do not retry blindly."
)

OUTCOME_UNKNOWN = "TOOL_OUTCOME_UNKNOWN"
"""Error code of a result that answers a call which was recorded but whose outcome was lost."""

_TURN_TYPES = frozenset({"turn/start", "turn/end"})
_RELEVANT = _TURN_TYPES | {"step/start", "step/end", "assistant/message", "tool/call", "tool/result"}


@dataclass(slots=True)
class _Call:
    """One requested call of the open turn without a result."""

    step: JsonValue
    seq: int | None = None
    """Seq of its `tool/call`, `None` while it is only requested."""


@dataclass(slots=True)
class _Open:
    """What is open at one point of a log."""

    turn: JsonValue = None
    step: JsonValue = None
    in_turn: bool = False
    in_step: bool = False
    calls: dict[str, _Call] = field(default_factory=dict)

    def follow(self, event: SessionEvent) -> None:
        facts = facts_of(event.type, event.data)
        kind = event.type
        if kind in _TURN_TYPES:
            self.in_turn, self.in_step, self.turn = kind == "turn/start", False, facts.turn
            self.calls.clear()
        elif kind == "step/start":
            self.in_step, self.step = True, facts.step
        elif kind == "step/end":
            self.in_step = False
            self.calls.clear()
        elif kind == "assistant/message":
            for call_id in facts.requested:
                # Requested again: the place stays, but that it was recorded before no longer counts.
                self.calls[call_id] = _Call(facts.step)
        elif kind == "tool/call" and facts.call_id in self.calls:
            self.calls[facts.call_id].seq = event.seq
        elif kind == "tool/result" and facts.call_id is not None:
            self.calls.pop(facts.call_id, None)


def interrupted_turn_closers(events: EventSource) -> list[SessionEvent]:
    """Make the events that close the open turn of a log (R1).

    One result per unanswered call of the open step in the order of the requests, `step/end` if a step is
    open, `turn/end` with reason interrupted. Appending them and asking again gives nothing.

    Args:
        events: An `EventLog`, or any iterable of events or dictionaries with consecutive seqs.

    Returns:
        The closers, with the seqs that follow the last event and its time; empty for a balanced log.
    """
    state = _Open()
    last: SessionEvent | None = None
    for last in _since_last_turn(events):
        if last.type in _RELEVANT:
            state.follow(last)
    if last is None or not state.in_turn:
        return []
    if isinstance(events, EventLog):
        last = events[-1]
    return _closers(state, last.seq + 1, last.time)


def _since_last_turn(events: EventSource) -> Iterator[SessionEvent]:
    """Iterate at least the events that decide what is open; of a log only its last turn is decoded."""
    if not isinstance(events, EventLog):
        for item in events:
            yield as_event(item)
        return
    rows = []
    for row in reversed(events.rows):
        if isinstance(row, EventRow):
            rows.append(row)
            if row.type in _TURN_TYPES:
                break
    for row in reversed(rows):
        yield from row.events()


def _closers(state: _Open, seq: int, time: int) -> list[SessionEvent]:
    closers: list[SessionEvent] = []

    def add(type_: str, data: dict[str, Any], **markers: Any) -> None:
        at = seq + len(closers)
        closers.append(
            SessionEvent.from_dict({"type": type_, "seq": at, "time": time, "data": data, **markers})
        )

    for call_id, call in state.calls.items():
        data = result_data(
            turn=state.turn,
            step=call.step,
            call_id=call_id,
            message_id=f"interrupted-tool-result-{call_id}-{seq + len(closers)}",
            started=call.seq is not None,
        )
        sources = {} if call.seq is None else {"sourceEventSeqs": [call.seq]}
        add("tool/result", data, surfaceOp="append", **sources)
    if state.in_step:
        add("step/end", {"turn": state.turn, "step": state.step})
    add("turn/end", {"turn": state.turn, "reason": {"kind": "interrupted"}})
    return closers


def result_data(
    *, turn: JsonValue, step: JsonValue, call_id: str, message_id: str, started: bool
) -> dict[str, Any]:
    """Make the payload of a tool result that stands in for a real one.

    Args:
        turn: The turn of the call.
        step: The step of the call.
        call_id: The call that it answers.
        message_id: Id of the message.
        started: Whether the call was recorded. True says that its outcome is unknown, false that it never
            ran, which is the difference between "check first" and "just do it again" (R1).

    Returns:
        A fresh payload of a `tool/result`, keys in wire order.
    """
    text = TEXT_OUTCOME_UNKNOWN if started else TEXT_NOT_STARTED
    block = {
        "type": "tool-result",
        "toolCallId": call_id,
        "isError": True,
        "content": [{"type": "text", "text": text}],
    }
    return {
        "turn": turn,
        "step": step,
        "message": {
            "id": message_id,
            "role": "user",
            "source": {"kind": "tool", "callId": call_id},
            "content": [block],
        },
        "error": (
            {"name": "ToolOutcomeUnknownError", "code": OUTCOME_UNKNOWN}
            if started
            else {"name": "ToolNotStartedError", "code": NOT_STARTED}
        ),
    }
