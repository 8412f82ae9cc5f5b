"""What a log may hold: the envelope of an event and the few payload shapes that the log itself depends on.

Owns the checks and their order. Losslessness is checked in `lossless`, the surface and the order of events by
the session.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Any, NoReturn

from turnlog.errors import InvalidEventError
from turnlog.events import vocabulary
from turnlog.events.lossless import is_count, is_safe_int

ENVELOPE_KEYS = frozenset({"type", "seq", "time", "data", "surfaceOp", "sourceEventSeqs", "ignorable"})
_MAX_SOURCES = 1 << 24


def expand_sources(stored: object, seq: int) -> tuple[int, ...]:
    """Read a stored `sourceEventSeqs` value, expanding `[first, last]` pairs.

    Args:
        stored: The JSON value.
        seq: The event's own position; a pair must end before it.

    Returns:
        The seqs in stored order. Duplicates and later seqs given one by one are left to the surface check.

    Raises:
        InvalidEventError: Not a list of counts and pairs, or not increasing although a pair occurs.
    """
    if type(stored) is not list:
        raise InvalidEventError(field="sourceEventSeqs", reason="must be an array of seqs")
    seqs: list[int] = []
    paired = False
    for item in stored:
        if type(item) is list:
            if len(item) != 2 or not (is_count(item[0]) and is_count(item[1]) and item[0] <= item[1] < seq):
                raise InvalidEventError(
                    field="sourceEventSeqs", reason="has a pair that is not [first, last] of earlier seqs"
                )
            if len(seqs) + item[1] - item[0] >= _MAX_SOURCES:
                raise InvalidEventError(
                    field="sourceEventSeqs", reason=f"names more than {_MAX_SOURCES} seqs"
                )
            paired = True
            seqs.extend(range(int(item[0]), int(item[1]) + 1))
        elif is_count(item):
            seqs.append(int(item))
        else:
            raise InvalidEventError(field="sourceEventSeqs", reason="has an element that is not a seq")
    if paired and any(a >= b for a, b in pairwise(seqs)):
        raise InvalidEventError(field="sourceEventSeqs", reason="mixes pairs with seqs out of order")
    return tuple(seqs)


def type_of(event: Mapping[str, Any]) -> str | None:
    """Return the type that an unchecked event states, if it is a string."""
    found = event.get("type")
    return found if isinstance(found, str) else None


def check_counts(seq: object, time: object, index: int | None) -> None:
    """Check the two numbers of an envelope.

    Raises:
        InvalidEventError: `seq` is not a non-negative safe integer, or `time` not a safe integer.
    """
    if not is_count(seq):
        raise InvalidEventError(field="seq", reason="must be a non-negative safe integer", index=index)
    if not is_safe_int(time):
        raise InvalidEventError(field="time", reason="must be a safe integer of milliseconds", index=index)


def check_envelope(event: object, index: int | None = None) -> None:
    """Check the envelope of an event: which keys, and the types of all but the data.

    Args:
        event: The decoded envelope.
        index: Position in the caller's list, for the message.

    Raises:
        InvalidEventError: `.field` is the first wrong key. Whoever made the event is at fault.
    """
    if type(event) is not dict:
        raise InvalidEventError(field="$", reason="must be an object", index=index)

    def refuse(field: str, reason: str) -> NoReturn:
        raise InvalidEventError(field=field, reason=reason, index=index, type=type_of(event))

    for key in event:
        if key not in ENVELOPE_KEYS:
            refuse(key, "is not a key of the event envelope")
    if type(event.get("type")) is not str:
        refuse("type", "must be a string")
    check_counts(event.get("seq"), event.get("time"), index)
    if "data" not in event:
        refuse("data", "must be present")
    for key in ("surfaceOp", "sourceEventSeqs"):
        if key in event and event[key] is None:
            refuse(key, "must not be null")
    if "ignorable" in event and event["ignorable"] is not True:
        refuse("ignorable", "must be true or absent")


def _text(value: object) -> bool:
    return type(value) is str and value != ""


def check_shape(type: str, data: Any, index: int | None = None) -> None:
    """Check the payloads whose shape the log itself depends on; all others pass.

    Args:
        type: Event type.
        data: Its decoded payload.
        index: Position of the event, for the message.

    Raises:
        InvalidEventError: A request header or a message that a reader could not use, or a type that only very
            old logs have. `.field` is the wrong part.
    """

    def refuse(field: str, reason: str) -> NoReturn:
        raise InvalidEventError(field=field, reason=reason, index=index, type=type)

    if type in ("request/header-delta", "mode/set"):
        refuse("type", "belongs to a log format that is no longer read")
    if type == "request/header":
        _check_request_header(data, refuse)
        if data.get("reason") == "fallback":
            refuse("data.reason", "belongs to a log format that is no longer read")
    elif type in vocabulary.SURFACE_TYPES:
        _check_message(type, data, refuse)


def _check_request_header(data: Any, refuse: Any) -> None:
    header: Any = data.get("header") if isinstance(data, dict) else None
    config: Any = header.get("config") if isinstance(header, dict) else None
    if not isinstance(config, dict):
        refuse("data.header.config", "must be an object")
    for key in ("provider", "model"):
        if not _text(config.get(key)):
            refuse(f"data.header.config.{key}", "must be a non-empty string")
    if "reasoningEffort" in config and not _text(config["reasoningEffort"]):
        refuse("data.header.config.reasoningEffort", "must be a non-empty string")
    if "adapterDefaults" not in header:
        return
    defaults = header["adapterDefaults"]
    if not isinstance(defaults, dict):
        refuse("data.header.adapterDefaults", "must be an object")
    for key, value in defaults.items():
        if key not in ("reasoningEffort", "maxTokens") or value is not True or key not in config:
            refuse(f"data.header.adapterDefaults.{key}", "must mark a value of the config with true")


def _check_message(type: str, data: Any, refuse: Any) -> None:
    if type == "user/message":
        message, at = data, "data"
    else:
        message, at = (data.get("message") if isinstance(data, dict) else None), "data.message"
    if not isinstance(message, dict):
        refuse(at, "must be a message object")
    if not _text(message.get("id")):
        refuse(f"{at}.id", "must be a non-empty string")
    role = "assistant" if type == "assistant/message" else "user"
    if message.get("role") != role:
        refuse(f"{at}.role", f"must be {role!r}")
    source = message.get("source")
    if not isinstance(source, dict) or not _text(source.get("kind")):
        refuse(f"{at}.source", "must be an object with a kind")
    content = message.get("content")
    if not isinstance(content, list):
        refuse(f"{at}.content", "must be an array")
    if type == "assistant/message":
        if source["kind"] != "model" or not _text(source.get("provider")) or not _text(source.get("model")):
            refuse(f"{at}.source", "must name the model and its provider")
    elif type == "tool/result":
        _check_tool_result(source, content, at, refuse)


def _check_tool_result(source: dict[str, Any], content: list[Any], at: str, refuse: Any) -> None:
    if source["kind"] != "tool" or not _text(source.get("callId")):
        refuse(f"{at}.source", "must name the tool call")
    block: Any = content[0] if len(content) == 1 else None
    if not isinstance(block, dict) or block.get("type") != "tool-result":
        refuse(f"{at}.content", "must be exactly one tool-result block")
    if not isinstance(block.get("content"), list):
        refuse(f"{at}.content[0].content", "must be an array")
    if block.get("toolCallId") != source["callId"]:
        refuse(f"{at}.content[0].toolCallId", "must equal the call id of the source")
