"""What the order rules need to know of one event: its turn, step and tool calls, read without trust.

Owns the reading only. The rules are in `invariants`, the closers in `repair`, the request state in
`request_state`; all of them accept events as objects or as plain dictionaries.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from turnlog.events.envelope import SessionEvent, as_event
from turnlog.events.log import EventLog

if TYPE_CHECKING:
    from turnlog.events.lossless import JsonValue

EventSource = Iterable[SessionEvent | Mapping[str, Any]]
"""What the functions over events accept: an `EventLog`, or any iterable of events or dictionaries."""

NOT_STARTED = "TOOL_NOT_STARTED"
"""Error code of a result that answers a call which was requested but never recorded."""

ORDERED_TYPES = frozenset(
    {
        "turn/start",
        "turn/end",
        "step/start",
        "step/end",
        "assistant/chunk",
        "assistant/message",
        "tool/call",
        "tool/result",
        "todo/write",
        "request/header",
        "request/context",
    }
)
"""The types that an order rule says something about; every other type may stand anywhere."""


class EventFacts(NamedTuple):
    """The fields of one event that order and pairing depend on; absent or malformed ones are `None`."""

    turn: JsonValue = None
    """`data.turn` as it stands."""
    step: JsonValue = None
    """`data.step` as it stands."""
    call_id: str | None = None
    """The call that a `tool/call` records or a `tool/result` answers."""
    requested: tuple[str, ...] = ()
    """Ids of the tool-call blocks of an `assistant/message`, in order, repeats kept."""
    excused: bool = False
    """Whether a `tool/result` says that its call was never started."""


NO_FACTS = EventFacts()


def facts_of(type_: str, data: JsonValue) -> EventFacts:
    """Read the facts of one event from its decoded payload.

    Args:
        type_: Event type.
        data: Decoded payload; anything, malformed payloads give fewer facts.

    Returns:
        The facts; `NO_FACTS` for types without order rules.
    """
    if type_ not in ORDERED_TYPES or not isinstance(data, Mapping):
        return NO_FACTS
    turn, step = data.get("turn"), data.get("step")
    if type_ == "tool/call":
        return EventFacts(turn, step, _text(data.get("callId")))
    if type_ == "assistant/message":
        return EventFacts(turn, step, requested=requested_calls(data.get("message")))
    if type_ == "tool/result":
        return EventFacts(turn, step, answered_call(data), excused=_is_excused(data))
    return EventFacts(turn, step)


def requested_calls(message: JsonValue) -> tuple[str, ...]:
    """List the ids of the tool-call blocks of an assistant message.

    Args:
        message: The message object; anything, blocks that are not tool calls or lack an id are passed over. A
            call with an empty id counts as one without: no valid result can name it (L2), so waiting for one
            would keep its step open for ever.

    Returns:
        The ids in block order, repeats kept.
    """
    content = message.get("content") if isinstance(message, Mapping) else None
    if not isinstance(content, list):
        return ()
    blocks = (block for block in content if isinstance(block, Mapping) and block.get("type") == "tool-call")
    return tuple(call_id for block in blocks if (call_id := _text(block.get("id"))) is not None)


def answered_call(data: JsonValue) -> str | None:
    """Return the id of the call that a `tool/result` payload answers, or `None` if it names none."""
    message = data.get("message") if isinstance(data, Mapping) else None
    source = message.get("source") if isinstance(message, Mapping) else None
    return _text(source.get("callId")) if isinstance(source, Mapping) else None


def _is_excused(data: Mapping[str, Any]) -> bool:
    error = data.get("error")
    if not isinstance(error, Mapping) or error.get("code") != NOT_STARTED:
        return False
    content = data["message"].get("content") if isinstance(data.get("message"), Mapping) else None
    block = content[0] if isinstance(content, list) and content else None
    return isinstance(block, Mapping) and block.get("isError") is True


def _text(value: JsonValue) -> str | None:
    return value if isinstance(value, str) and value else None


def is_replacement(surface_op: object) -> bool:
    """Say whether a surface marker replaces nodes; an absent or `"append"` marker does not."""
    return isinstance(surface_op, Mapping)


def significant_events(events: EventSource) -> Iterator[SessionEvent]:
    """Iterate the events that are not streamed chunks, without decoding the chunks of a log.

    Args:
        events: Any source of events.

    Yields:
        The events in order; positions are their own `seq`.
    """
    if isinstance(events, EventLog):
        for row in events.significant():
            yield from row.events()
        return
    for item in events:
        event = as_event(item)
        if event.type != "assistant/chunk":
            yield event
