"""Anthropic's Messages API: turns as alternating messages, results first in the user's message after a call.

Owns that one mapping. The rules behind it are written down a second time, as checks, in
`validation.anthropic`.
"""

from __future__ import annotations

import base64
from typing import Any, Final

from turnlog.transcripts.alternating import Alternating
from turnlog.transcripts.options import Settings
from turnlog.transcripts.parts import (
    CallPart,
    ImagePart,
    ModelPart,
    ModelTurn,
    ReasoningPart,
    Result,
    TextPart,
    Turn,
)
from turnlog.transcripts.reasoning import settle_reasoning
from turnlog.transcripts.request import (
    CONTINUE,
    CONVERSATION_GOES_ON,
    EMPTY_CONVERSATION,
    Config,
    model_name,
    system_text,
    tools_of,
)

DEFAULT_MAX_TOKENS: Final = 4096
"""Sent when the log names no ceiling, because the provider wants one."""

EFFORTS: Final = frozenset({"low", "medium", "high", "xhigh", "max"})


def proves(part: ReasoningPart) -> bool:
    """Tell whether a reasoning part carries what Anthropic checks: a signature, or redacted data."""
    return any(
        isinstance(part.replay.get(key), str) and part.replay[key] for key in ("signature", "redactedData")
    )


def build(turns: list[Turn], settings: Settings) -> dict[str, Any]:
    """Build the request.

    Args:
        turns: Assembled turns; reasoning that cannot be kept is taken out of them.
        settings: The run.

    Returns:
        Arguments of `messages.create`.
    """
    out = Alternating("user", settings.report)
    has_calls = False
    for turn in settle_reasoning(turns, settings, proves=proves):
        if not isinstance(turn, ModelTurn):
            out.add("user", [_content(part) for part in turn.parts], turn.seq)
            continue
        out.add("assistant", [_block(part) for part in turn.parts], turn.seq)
        results = [_result(call.id, call.result) for call in turn.calls if call.result is not None]
        if results:
            has_calls = True
            out.add("user", results, turn.seq, joins=True)
    out.begin_with_user(_text(EMPTY_CONVERSATION), _text(CONVERSATION_GOES_ON))
    if settings.is_sendable:
        out.end_with_user(_text(CONTINUE))
    _trim_end(out, settings)
    request = _request(settings, has_calls=has_calls, turns=turns)
    request["messages"] = [{"role": role, "content": content} for role, content in out.messages]
    return request


def _request(settings: Settings, *, has_calls: bool, turns: list[Turn]) -> dict[str, Any]:
    config = Config(settings)
    ceiling = config.ceiling()
    if ceiling is None:
        settings.report.add("max-tokens-added", detail=str(DEFAULT_MAX_TOKENS))
    request: dict[str, Any] = {"model": model_name(settings), "max_tokens": ceiling or DEFAULT_MAX_TOKENS}
    if (system := system_text(settings)) is not None:
        request["system"] = system
    tools: list[dict[str, Any]] = [
        tool.described() | {"input_schema": tool.parameters} for tool in tools_of(settings)
    ]
    if has_calls and not tools:
        # Tool blocks in the history are refused without definitions; these must not be called.
        settings.report.add("tools-added")
        names = sorted({call.name for turn in turns if isinstance(turn, ModelTurn) for call in turn.calls})
        tools = [{"name": name, "input_schema": {"type": "object", "properties": {}}} for name in names]
        request["tool_choice"] = {"type": "none"}
    if tools:
        request["tools"] = tools
    config.leave_out("temperature", "the API has no such setting")
    if stops := config.stops(8191):
        request["stop_sequences"] = stops
    if (effort := config.effort(EFFORTS)) is not None:
        request["output_config"] = {"effort": effort}
    return request


def _text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


def _block(part: ModelPart) -> dict[str, Any]:
    if isinstance(part, TextPart):
        return _text(part.text)
    if isinstance(part, CallPart):
        return {"type": "tool_use", "id": part.id, "name": part.name, "input": part.value}
    if part.replay.get("signature"):
        return {"type": "thinking", "thinking": part.text, "signature": part.replay["signature"]}
    return {"type": "redacted_thinking", "data": part.replay["redactedData"]}


def _content(part: TextPart | ImagePart) -> dict[str, Any]:
    if isinstance(part, TextPart):
        return _text(part.text)
    data = base64.b64encode(part.data).decode("ascii")
    return {"type": "image", "source": {"type": "base64", "media_type": part.media_type, "data": data}}


def _result(call_id: str, result: Result) -> dict[str, Any]:
    block: dict[str, Any] = {
        "type": "tool_result",
        "tool_use_id": call_id,
        "content": [_content(part) for part in result.content],
    }
    if result.is_error:
        block["is_error"] = True
    return block


def _trim_end(out: Alternating, settings: Settings) -> None:
    role, content = out.messages[-1]
    last = content[-1]
    if role != "assistant" or last["type"] != "text" or last["text"] == last["text"].rstrip():
        return
    settings.report.add("trailing-space")
    content[-1] = _text(last["text"].rstrip())
