"""Messages of pydantic-ai, as the JSON that its `ModelMessagesTypeAdapter` reads.

Owns that mapping and imports nothing of pydantic-ai. Every call has its return in the request behind it, so
`repair_messages` finds nothing to do.
"""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from typing import Any, Unpack

from turnlog.transcripts.assembling import assemble
from turnlog.transcripts.history import Source, history_of
from turnlog.transcripts.options import ExportOptions, settings_for
from turnlog.transcripts.parts import CallPart, ImagePart, ModelTurn, ReasoningPart, Result, TextPart
from turnlog.transcripts.reasoning import settle_reasoning
from turnlog.transcripts.request import system_text

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC).isoformat()


def pydantic_ai_messages(source: Source, **options: Unpack[ExportOptions]) -> list[dict[str, Any]]:
    """Export a log to pydantic-ai's messages.

    Args:
        source: A log, a session, an inspection, or events in log order.
        options: As in `export`. Reasoning is passed on without signatures, since the library keeps no record
            of which provider may see them.

    Returns:
        Input of `pydantic_ai.messages.ModelMessagesTypeAdapter.validate_python`; times that a log does not
        state for a message are the epoch.

    Raises:
        InvalidEventError: The events do not form a log.
    """
    history = history_of(source, options.get("partial", "include"))
    settings = settings_for("openai-chat", history, options)
    out: list[dict[str, Any]] = []
    turns = assemble(history, settings)
    for turn in turns:
        if isinstance(turn, ModelTurn):
            # Whoever made it: without its signature it is text like any other.
            turn.is_native = True
            turn.parts = [
                part for part in turn.parts if not isinstance(part, ReasoningPart) or _is_said(part)
            ]
    for turn in settle_reasoning(turns, settings, proves=_is_said):
        if isinstance(turn, ModelTurn):
            _add(out, "response", [_response(part) for part in turn.parts])
            if turn.calls:
                _add(out, "request", [_return(call) for call in turn.calls])
        else:
            _add(
                out,
                "request",
                [{"part_kind": "user-prompt", "content": _content(turn.parts), "timestamp": _EPOCH}],
            )
    system = system_text(settings)
    if system is not None:
        part = {"part_kind": "system-prompt", "content": system, "timestamp": _EPOCH}
        if out and out[0]["kind"] == "request":
            out[0]["parts"].insert(0, part)
        else:
            out.insert(0, {"kind": "request", "parts": [part]})
    return out


def _is_said(part: ReasoningPart) -> bool:
    return bool(part.text.strip())


def _add(out: list[dict[str, Any]], kind: str, parts: list[dict[str, Any]]) -> None:
    """Add parts; what continues the same kind of message joins the one before it, as the library does."""
    if out and out[-1]["kind"] == kind:
        out[-1]["parts"] += parts
        return
    message: dict[str, Any] = {"kind": kind, "parts": parts}
    out.append({**message, "timestamp": _EPOCH} if kind == "response" else message)


def _response(part: TextPart | ReasoningPart | CallPart) -> dict[str, Any]:
    if isinstance(part, CallPart):
        return {
            "part_kind": "tool-call",
            "tool_name": part.name,
            "tool_call_id": part.id,
            "args": part.arguments,
        }
    if isinstance(part, ReasoningPart):
        return {"part_kind": "thinking", "content": part.text}
    return {"part_kind": "text", "content": part.text}


def _return(call: CallPart) -> dict[str, Any]:
    result = call.result
    assert result is not None  # assembling gives every call one
    return {
        "part_kind": "tool-return",
        "tool_name": call.name,
        "tool_call_id": call.id,
        "content": _result(result),
        "timestamp": _EPOCH,
        "outcome": "failed" if result.is_error else "success",
    }


def _result(result: Result) -> Any:
    if all(isinstance(part, TextPart) for part in result.content):
        return "\n".join(part.text for part in result.content if isinstance(part, TextPart))
    return _content(result.content)


def _content(parts: list[TextPart | ImagePart]) -> Any:
    if len(parts) == 1 and isinstance(parts[0], TextPart):
        return parts[0].text
    return [part.text if isinstance(part, TextPart) else _image(part) for part in parts]


def _image(part: ImagePart) -> dict[str, Any]:
    data = base64.urlsafe_b64encode(part.data).decode("ascii")
    return {"kind": "binary", "data": data, "media_type": part.media_type}
