"""OpenAI's Chat Completions API, and the many servers that speak it.

Owns that one mapping: results as `tool` messages right behind the answer that asked for them, arguments as
JSON text. The rules are checked in `validation.openai_chat`.
"""

from __future__ import annotations

import base64
from typing import Any, Final

from turnlog.transcripts.options import Settings
from turnlog.transcripts.parts import (
    CallPart,
    ImagePart,
    ModelTurn,
    ReasoningPart,
    TextPart,
    Turn,
    UserPart,
)
from turnlog.transcripts.reasoning import settle_reasoning
from turnlog.transcripts.request import (
    CONTINUE,
    EMPTY_CONVERSATION,
    Config,
    model_name,
    system_text,
    tools_of,
)

EFFORTS: Final = frozenset({"none", "minimal", "low", "medium", "high", "xhigh", "max"})

TAKES_REASONING_BACK: Final = frozenset({"deepseek"})
"""Providers that want the reasoning of an answer back as its `reasoning_content`."""

_NAMES_COMPLETION_TOKENS = frozenset({"openai", "azure"})


def build(turns: list[Turn], settings: Settings) -> dict[str, Any]:
    """Build the request.

    Args:
        turns: Assembled turns; reasoning that cannot be kept is taken out of them.
        settings: The run.

    Returns:
        Arguments of `chat.completions.create`.
    """
    messages = [message for _, message in conversation(turns, settings)]
    return {"model": model_name(settings), "messages": messages, **_request(settings)}


def conversation(turns: list[Turn], settings: Settings) -> list[tuple[Turn | None, dict[str, Any]]]:
    """Return the messages, each with the turn that it comes from; None for what an export adds.

    Args:
        turns: As for `build`.
        settings: The run.
    """
    proves = _is_said if _provider(settings) in TAKES_REASONING_BACK else None
    out: list[tuple[Turn | None, dict[str, Any]]] = []
    for turn in settle_reasoning(turns, settings, proves=proves):
        if isinstance(turn, ModelTurn):
            out.append((turn, _answer(turn)))
            out += [(None, message) for message in _results(turn, settings)]
        else:
            out.append((turn, {"role": "user", "content": _content(turn.parts)}))
    if not out:
        settings.report.add("conversation-empty")
        out.append((None, {"role": "user", "content": EMPTY_CONVERSATION}))
    if settings.is_sendable and out[-1][1]["role"] == "assistant":
        settings.report.add("user-turn-appended")
        out.append((None, {"role": "user", "content": CONTINUE}))
    if (system := system_text(settings)) is not None:
        out.insert(0, (None, {"role": "system", "content": system}))
    return out


def tools(settings: Settings) -> list[dict[str, Any]]:
    """Return the tool definitions.

    Args:
        settings: The run.
    """
    return [
        {"type": "function", "function": tool.described() | {"parameters": tool.parameters}}
        for tool in tools_of(settings)
    ]


def _provider(settings: Settings) -> str:
    return (settings.target.provider or "").lower()


def _request(settings: Settings) -> dict[str, Any]:
    config = Config(settings)
    request: dict[str, Any] = {}
    if defined := tools(settings):
        request["tools"] = defined
    if (ceiling := config.ceiling()) is not None:
        is_own = _provider(settings) in _NAMES_COMPLETION_TOKENS
        request["max_completion_tokens" if is_own else "max_tokens"] = ceiling
    if (temperature := config.temperature(2)) is not None:
        request["temperature"] = temperature
    if stops := config.stops(4):
        request["stop"] = stops
    if (effort := config.effort(EFFORTS)) is not None:
        request["reasoning_effort"] = effort
    return request


def _is_said(part: ReasoningPart) -> bool:
    return bool(part.text)


def _answer(turn: ModelTurn) -> dict[str, Any]:
    texts = [part.text for part in turn.parts if isinstance(part, TextPart)]
    thoughts = [part.text for part in turn.parts if isinstance(part, ReasoningPart)]
    message: dict[str, Any] = {"role": "assistant"}
    # An answer that only calls has an empty text, never null: some servers refuse null.
    message["content"] = "\n\n".join(texts)
    if thoughts:
        message["reasoning_content"] = "".join(thoughts)
    if turn.calls:
        message["tool_calls"] = [_call(call) for call in turn.calls]
    return message


def _call(call: CallPart) -> dict[str, Any]:
    return {
        "id": call.id,
        "type": "function",
        "function": {"name": call.name, "arguments": call.arguments},
    }


def _results(turn: ModelTurn, settings: Settings) -> list[dict[str, Any]]:
    """Return one message per result and, behind all of them, one with the images that they hold."""
    messages: list[dict[str, Any]] = []
    images: list[UserPart] = []
    for call in turn.calls:
        result = call.result
        if result is None:
            continue
        if result.is_error:
            settings.report.add("error-flag", result.seq)
        texts = []
        for part in result.content:
            if isinstance(part, TextPart):
                texts.append(part.text)
                continue
            settings.report.add("image-moved", part.seq)
            texts.append(f"[{part.label}: in the next user message]")
            images += [TextPart(f"[{part.label}, from the result of {call.id}]", part.seq), part]
        messages.append({"role": "tool", "tool_call_id": call.id, "content": "\n".join(texts)})
    if images:
        messages.append({"role": "user", "content": _content(images)})
    return messages


def _content(parts: list[UserPart]) -> str | list[dict[str, Any]]:
    if len(parts) == 1 and isinstance(parts[0], TextPart):
        return parts[0].text
    return [_part(part) for part in parts]


def _part(part: UserPart) -> dict[str, Any]:
    if isinstance(part, TextPart):
        return {"type": "text", "text": part.text}
    return {"type": "image_url", "image_url": {"url": data_url(part)}}


def data_url(part: ImagePart) -> str:
    """Return an image as a `data:` URL."""
    return f"data:{part.media_type};base64,{base64.b64encode(part.data).decode('ascii')}"
