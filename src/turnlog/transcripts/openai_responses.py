"""OpenAI's Responses API: a flat list of items, reasoning items right before what they led to.

Owns that one mapping. Requests are complete in themselves (`store` is false), so item ids are sent only with
the reasoning they belong to. The rules are checked in `validation.openai_responses`.
"""

from __future__ import annotations

import re
from typing import Any, Final

from turnlog.transcripts.openai_chat import EFFORTS, data_url
from turnlog.transcripts.options import Settings
from turnlog.transcripts.parts import CallPart, ImagePart, ModelPart, ModelTurn, ReasoningPart, TextPart, Turn
from turnlog.transcripts.reasoning import settle_reasoning
from turnlog.transcripts.request import (
    CONTINUE,
    EMPTY_CONVERSATION,
    Config,
    model_name,
    system_text,
    tools_of,
)

MIN_OUTPUT_TOKENS: Final = 16
ITEM_ID: Final = re.compile(r"(rs|fc|msg)_[a-zA-Z0-9_-]{1,60}")
"""Ids of reasoning items, function calls and messages."""


def proves(part: ReasoningPart) -> bool:
    """Tell whether a reasoning part is an item that the API takes back: with id and encrypted content."""
    item, encrypted = part.replay.get("itemId"), part.replay.get("encryptedContent")
    return _is_id(item, "rs") and isinstance(encrypted, str) and bool(encrypted) and _has_summary(part)


def build(turns: list[Turn], settings: Settings) -> dict[str, Any]:
    """Build the request.

    Args:
        turns: Assembled turns; reasoning that cannot be kept is taken out of them.
        settings: The run.

    Returns:
        Arguments of `responses.create`.
    """
    items: list[dict[str, Any]] = []
    keeps = False
    for turn in settle_reasoning(turns, settings, proves=proves, extras=("itemId",)):
        if not isinstance(turn, ModelTurn):
            items.append(_user(turn.parts))
            continue
        has_reasoning = any(isinstance(part, ReasoningPart) for part in turn.parts)
        keeps = keeps or has_reasoning
        for part in turn.parts:
            if not has_reasoning and part.replay.pop("itemId", None) is not None:
                settings.report.add("replay-left-out", turn.seq)
            items.append(_item(part))
        items += [_output(call, settings) for call in turn.calls if call.result is not None]
    if not items:
        settings.report.add("conversation-empty")
        items.append({"role": "user", "content": EMPTY_CONVERSATION})
    if settings.is_sendable and _is_answer(items[-1]):
        settings.report.add("user-turn-appended")
        items.append({"role": "user", "content": CONTINUE})
    request: dict[str, Any] = {"model": model_name(settings), "input": items, "store": False}
    if keeps:
        request["include"] = ["reasoning.encrypted_content"]
    return request | _request(settings)


def _request(settings: Settings) -> dict[str, Any]:
    config = Config(settings)
    request: dict[str, Any] = {}
    if (system := system_text(settings)) is not None:
        request["instructions"] = system
    # Not strict: a schema of the log need not be one that strict mode accepts.
    tools = [
        {"type": "function", **tool.described(), "parameters": tool.parameters, "strict": False}
        for tool in tools_of(settings)
    ]
    if tools:
        request["tools"] = tools
    if (ceiling := config.ceiling(MIN_OUTPUT_TOKENS)) is not None:
        request["max_output_tokens"] = ceiling
    if (temperature := config.temperature(2)) is not None:
        request["temperature"] = temperature
    if (effort := config.effort(EFFORTS)) is not None:
        request["reasoning"] = {"effort": effort}
    config.leave_out("stop", "the API has no stop sequences")
    return request


def _is_id(item: object, kind: str) -> bool:
    return isinstance(item, str) and ITEM_ID.fullmatch(item) is not None and item.startswith(f"{kind}_")


def _has_summary(part: ReasoningPart) -> bool:
    summary = part.replay.get("summary", [])
    return isinstance(summary, list) and all(
        isinstance(entry, dict)
        and set(entry) == {"type", "text"}
        and entry["type"] == "summary_text"
        and isinstance(entry["text"], str)
        for entry in summary
    )


def _is_answer(item: dict[str, Any]) -> bool:
    return item.get("role") == "assistant" or item.get("type") in ("function_call", "reasoning")


def _item(part: ModelPart) -> dict[str, Any]:
    item_id = part.replay.get("itemId")
    if isinstance(part, ReasoningPart):
        summary = part.replay.get("summary")
        if summary is None:
            summary = [{"type": "summary_text", "text": part.text}] if part.text.strip() else []
        return {
            "type": "reasoning",
            "id": item_id,
            "summary": summary,
            "encrypted_content": part.replay["encryptedContent"],
        }
    if isinstance(part, CallPart):
        call = {
            "type": "function_call",
            "call_id": part.id,
            "name": part.name,
            "arguments": part.arguments,
        }
        return {**call, "id": item_id} if _is_id(item_id, "fc") else call
    if _is_id(item_id, "msg"):
        return {
            "type": "message",
            "id": item_id,
            "role": "assistant",
            "status": "completed",
            "content": [{"type": "output_text", "text": part.text, "annotations": []}],
        }
    return {"role": "assistant", "content": part.text}


def _user(parts: list[TextPart | ImagePart]) -> dict[str, Any]:
    if len(parts) == 1 and isinstance(parts[0], TextPart):
        return {"role": "user", "content": parts[0].text}
    return {"role": "user", "content": [_input(part) for part in parts]}


def _input(part: TextPart | ImagePart) -> dict[str, Any]:
    if isinstance(part, TextPart):
        return {"type": "input_text", "text": part.text}
    return {"type": "input_image", "detail": "auto", "image_url": data_url(part)}


def _output(call: CallPart, settings: Settings) -> dict[str, Any]:
    result = call.result
    assert result is not None  # the caller has looked
    if result.is_error:
        settings.report.add("error-flag", result.seq)
    only = result.content[0]
    output: str | list[dict[str, Any]]
    if len(result.content) == 1 and isinstance(only, TextPart):
        output = only.text
    else:
        output = [_input(part) for part in result.content]
    return {"type": "function_call_output", "call_id": call.id, "output": output}
