"""A log as JSON lines with its secrets marked, in a form that nothing takes for a log to resume.

Owns what redaction does to events: ids stay paired, what a provider signed is left alone or left out whole,
and a secret that was streamed in pieces is found, too.
"""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Iterator
from typing import Any, Final

from turnlog.events.ecmascript import dumps
from turnlog.events.envelope import SessionEvent
from turnlog.events.header import SessionHeader
from turnlog.transcripts.redaction import OPAQUE_KEYS, Redactor

REDACTED_TAG: Final = "redacted-session"
"""Type of the first line; no reader of logs accepts it as a header."""

_ENDS_STREAM: Final = frozenset({"assistant/message", "step/end", "turn/end", "llm/retry"})
_TEXT_KEYS: Final = ("text", "argumentsDelta")


async def redacted_lines(
    header: SessionHeader, events: AsyncIterable[SessionEvent], redactor: Redactor
) -> AsyncIterator[str]:
    """Write a log without its secrets.

    Args:
        header: The session's header.
        events: Its events, in order.
        redactor: Marks secrets.

    Yields:
        JSON lines without newlines: the header, its type `redacted-session`, then one event each. Events keep
        their seqs. At most one step is held in memory.
    """
    yield dumps({"type": REDACTED_TAG, **redactor.value(header.to_dict()), "redacted": True})
    held: list[dict[str, Any]] = []
    async for event in events:
        held.append(event.to_dict())
        if event.type in _ENDS_STREAM:
            for line in _flushed(held, redactor):
                yield line
            held = []
    for line in _flushed(held, redactor):
        yield line


def _flushed(events: list[dict[str, Any]], redactor: Redactor) -> Iterator[str]:
    _redact_streams(events, redactor)
    for event in events:
        yield dumps({**event, "data": redacted_data(event["data"], redactor)})


def _redact_streams(events: list[dict[str, Any]], redactor: Redactor) -> None:
    """Mark secrets that lie across deltas: the first delta of a block gets the text, the others none."""
    blocks: dict[tuple[Any, ...], list[tuple[dict[str, Any], str]]] = {}
    for event in events:
        data = event["data"]
        chunk = data.get("chunk") if event["type"] == "assistant/chunk" and isinstance(data, dict) else None
        if not isinstance(chunk, dict):
            continue
        for key in _TEXT_KEYS:
            if isinstance(chunk.get(key), str):
                block = (data.get("turn"), data.get("step"), repr(chunk.get("index")), chunk.get("type"), key)
                blocks.setdefault(block, []).append((chunk, key))
    for parts in blocks.values():
        joined = "".join(chunk[key] for chunk, key in parts)
        marked = redactor.text(joined)
        if marked != joined:
            for place, (chunk, key) in enumerate(parts):
                chunk[key] = "" if place else marked


def redacted_data(data: Any, redactor: Redactor) -> Any:
    """Return a payload without its secrets.

    Args:
        data: The payload of an event.
        redactor: Marks secrets.
    """
    if not isinstance(data, dict):
        return redactor.value(data)
    inner = data.get("message")
    if isinstance(inner, dict) and "content" in inner:
        rest = {key: value for key, value in data.items() if key != "message"}
        return {**redactor.value(rest), "message": redacted_message(inner, redactor)}
    is_message = "content" in data and "source" in data
    return redacted_message(data, redactor) if is_message else redactor.value(data)


def redacted_message(message: dict[str, Any], redactor: Redactor) -> dict[str, Any]:
    """Return a message without its secrets.

    Signatures stay with the reasoning they sign. Where the reasoning had to change they are left out, and so
    is a provider's replay state that holds a secret or belongs to such reasoning.

    Args:
        message: A message of a log.
        redactor: Marks secrets.
    """
    marked: dict[str, Any] = redactor.value(message)
    is_altered = _drop_broken_signatures(message.get("content"), marked.get("content"))
    old_source, source = message.get("source"), marked.get("source")
    if isinstance(source, dict) and isinstance(old_source, dict):
        state = source.get("replayState")
        if is_altered or state != old_source.get("replayState"):
            source.pop("replayState", None)
    return marked


def _drop_broken_signatures(before: Any, after: Any) -> bool:
    """Take the signatures off reasoning that differs; return whether any does."""
    is_altered = False
    if not isinstance(before, list) or not isinstance(after, list):
        return is_altered
    for old, new in zip(before, after, strict=True):
        if isinstance(new, dict) and new.get("type") == "reasoning" and old.get("text") != new.get("text"):
            is_altered = True
            for key in OPAQUE_KEYS | {"summary"}:
                new.pop(key, None)
    return is_altered
