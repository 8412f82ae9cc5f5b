"""Reading of older version-0 logs: old payload shapes are rewritten in memory, stored bytes never are.

Owns the mapping from old shapes to today's, one event at a time. What looks current but is wrong is left to
the shape check.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from turnlog.errors import InvalidEventError
from turnlog.events import vocabulary
from turnlog.events.envelope import SessionEvent
from turnlog.events.lossless import is_count

Lookup = Callable[[int], "SessionEvent | None"]
"""Gives the already normalised event at an earlier seq, or None."""

_AFFECTED = vocabulary.SURFACE_TYPES | {"turn/start", "turn/end", "steering/message"}
_BARE_REASONS = frozenset({"completed", "blocked", "max-tokens", "interrupted"})
_FAILURE_KEYS = frozenset({"message", "code", "status", "providerRetryAfterMs", "requestId"})


def may_need(type: str) -> bool:
    """Whether events of a type ever had another shape or are refused; all other types need no look."""
    return type in _AFFECTED or type in vocabulary.LEGACY_TYPES or type == "request/header"


def is_current(type: str, data: Any) -> bool:
    """Whether a turn's start or end has the shape that nearly every one has, so that it needs no closer look.

    Args:
        type: Event type.
        data: Its payload, decoded.

    Returns:
        True only if `normalise` would return the event as it is; False says nothing.
    """
    if type == "turn/start":
        return isinstance(data, dict) and "trigger" not in data
    return (
        type == "turn/end"
        and isinstance(data, dict)
        and data.keys() == {"turn", "reason"}
        and data["reason"] == {"kind": "completed"}
        and _is_positive(data["turn"])
    )


def normalise(event: SessionEvent, session_id: str, lookup: Lookup | None = None) -> SessionEvent:
    """Give an event of an older log today's shape.

    Args:
        event: A stored event.
        session_id: The session's id, part of the message ids that are made up here.
        lookup: Finds the earlier event whose message id a replacing tool result inherits.

    Returns:
        The same object when nothing is to do, else an event with new data at the same seq and time.

    Raises:
        InvalidEventError: A malformed old shape, or a type that is no longer read. The log is at fault.
    """
    if not may_need(event.type):
        return event
    data = event.data
    if event.type in ("request/header-delta", "mode/set") or (
        event.type == "request/header" and isinstance(data, dict) and data.get("reason") == "fallback"
    ):
        _refuse(event, "type", f"at seq {event.seq} belongs to a log format that is no longer read")
    if event.type == "turn/start":
        changed = _turn_start(event, data)
    elif event.type == "turn/end":
        changed = _turn_end(event, data)
    elif event.type == "steering/message":
        return _rewritten(event, _steering(event, data, session_id), "user/message")
    else:
        changed = _message(event, data, session_id, lookup)
    return event if changed is None else _rewritten(event, changed, event.type)


def _rewritten(event: SessionEvent, data: dict[str, Any], type: str) -> SessionEvent:
    envelope = event.to_dict()
    envelope["data"] = data
    envelope["type"] = type
    return SessionEvent.from_dict(envelope)


def _refuse(event: SessionEvent, field: str, reason: str) -> NoReturn:
    raise InvalidEventError(field=field, reason=reason, type=event.type, index=event.seq)


def _turn_start(event: SessionEvent, data: Any) -> dict[str, Any] | None:
    if not isinstance(data, dict) or "trigger" not in data:
        return None
    trigger = data["trigger"]
    good = data.keys() == {"turn", "trigger"} and _is_positive(data["turn"])
    if not good or not isinstance(trigger, dict) or not _is_name(trigger.get("kind")):
        _refuse(event, "data.trigger", f"at seq {event.seq} is a malformed turn start of an older log")
    return {"turn": data["turn"]}


def _turn_end(event: SessionEvent, data: Any) -> dict[str, Any] | None:
    malformed = f"at seq {event.seq} is a malformed turn end"
    if not isinstance(data, dict) or data.keys() != {"turn", "reason"} or not _is_positive(data["turn"]):
        _refuse(event, "data", malformed)
    reason = data["reason"]
    if not isinstance(reason, dict) or not isinstance(reason.get("kind"), str):
        _refuse(event, "data.reason", malformed)
    kind = reason["kind"]
    alone = reason.keys() == {"kind"}
    if kind in _BARE_REASONS or kind == "disposed" or (kind == "aborted" and "reason" not in reason):
        if not alone:
            _refuse(event, "data.reason", malformed)
        if kind == "disposed":
            return {"turn": data["turn"], "reason": {"kind": "aborted", "reason": {"kind": "disposed"}}}
        if kind == "aborted":
            return {"turn": data["turn"], "reason": {"kind": "aborted", "reason": {"kind": "legacy"}}}
        return None
    if kind == "error" and "error" not in reason:
        return {
            "turn": data["turn"],
            "reason": {"kind": "error", "error": _failure(event, reason, malformed)},
        }
    return None


def _failure(event: SessionEvent, reason: dict[str, Any], malformed: str) -> dict[str, Any]:
    """Build the failure that an old error reason stands for."""
    if not is_count(reason.get("step")):
        _refuse(event, "data.reason.step", malformed)
    if reason.keys() == {"kind", "step", "failure"}:
        failure = reason["failure"]
        if (
            not isinstance(failure, dict)
            or not _FAILURE_KEYS.issuperset(failure)
            or not _is_name(failure.get("message"))
            or not _is_name(failure.get("code"))
        ):
            _refuse(event, "data.reason.failure", malformed)
        return failure
    code = reason.get("code", "UNKNOWN")
    if reason.keys() - {"code"} != {"kind", "step", "message"} or not isinstance(reason["message"], str):
        _refuse(event, "data.reason", malformed)
    if not isinstance(code, str):
        _refuse(event, "data.reason.code", malformed)
    return {"message": reason["message"], "code": code}


def _steering(event: SessionEvent, data: Any, session_id: str) -> dict[str, Any]:
    if isinstance(data, dict) and is_count(data.get("turn")):
        if data.keys() == {"turn", "message"} and isinstance(data["message"], dict):
            message: dict[str, Any] = data["message"]
            return message
        if data.keys() == {"turn", "content", "source"}:
            return {
                "content": data["content"],
                "source": data["source"],
                "id": _message_id(event, session_id),
                "role": "user",
            }
    _refuse(event, "data", f"at seq {event.seq} is a malformed steering message of an older log")


def _message(event: SessionEvent, data: Any, session_id: str, lookup: Lookup | None) -> dict[str, Any] | None:
    """Give a message without identity an id, a role and a source; None when it has them or cannot."""
    if not isinstance(data, dict) or "message" in data:
        return None
    if event.type == "user/message":
        if "id" in data or "role" in data or "content" not in data or "source" not in data:
            return None
        return {**data, "id": _message_id(event, session_id), "role": "user"}
    if event.type == "assistant/message":
        provenance = data.get("provenance")
        if "content" not in data or not isinstance(provenance, dict):
            return None
        rest = {key: value for key, value in data.items() if key not in ("content", "provenance")}
        message = {
            "id": _message_id(event, session_id),
            "role": "assistant",
            "content": data["content"],
            "source": {**provenance, "kind": "model"},
        }
        return {**rest, "message": message}
    if event.type == "tool/result":
        return _tool_result(event, data, session_id, lookup)
    return None


def _tool_result(
    event: SessionEvent, data: dict[str, Any], session_id: str, lookup: Lookup | None
) -> dict[str, Any] | None:
    if not {"callId", "content", "isError"} <= data.keys():
        return None
    rest = {key: value for key, value in data.items() if key not in ("callId", "content", "isError")}
    block = {
        "type": "tool-result",
        "toolCallId": data["callId"],
        "content": data["content"],
        "isError": data["isError"],
    }
    message = {
        "id": _inherited_id(event, lookup) or _message_id(event, session_id),
        "role": "user",
        "content": [block],
        "source": {"kind": "tool", "callId": data["callId"]},
    }
    return {**rest, "message": message}


def _inherited_id(event: SessionEvent, lookup: Lookup | None) -> str | None:
    """Return the id of the message that a replacing tool result takes the place of."""
    operation = event.surface_op
    if lookup is None or not isinstance(operation, dict) or not is_count(operation.get("start")):
        return None
    if operation["start"] >= event.seq:
        return None
    target = lookup(operation["start"])
    data = None if target is None else target.data
    message = data.get("message") if isinstance(data, dict) else None
    found = message.get("id") if isinstance(message, dict) else None
    return found if isinstance(found, str) else None


def _message_id(event: SessionEvent, session_id: str) -> str:
    return f"legacy-message:{session_id}:{event.seq}"


def _is_positive(value: object) -> bool:
    return is_count(value) and value != 0


def _is_name(value: object) -> bool:
    return isinstance(value, str) and value != ""
