"""Google's Gemini API: contents of users and the model, one function response per call in the next content.

Owns that one mapping, in the REST spelling. The rules are checked in `validation.gemini`.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import Any, Final

from turnlog.transcripts.alternating import Alternating
from turnlog.transcripts.options import Settings
from turnlog.transcripts.parts import CallPart, ImagePart, ModelTurn, ReasoningPart, TextPart, Turn
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

PLACEHOLDER_SIGNATURE: Final = "skip_thought_signature_validator"
"""What the API documents for a call that another model made. Source: Gemini API, thought signatures."""

_GENERATION = re.compile(r"gemini-(\d+)")


def wants_signatures(model: str) -> bool:
    """Tell whether a model refuses a function call without a signature: Gemini 3 and later.

    Args:
        model: The model's name.
    """
    found = _GENERATION.search(model.lower())
    return found is not None and int(found[1]) >= 3


def is_signature(value: object) -> bool:
    """Tell whether a value is a thought signature: bytes as base64."""
    if not isinstance(value, str) or not value:
        return False
    try:
        base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        return False
    return True


def proves(part: ReasoningPart) -> bool:
    """Tell whether a reasoning part is a thought that the API takes back: said and signed."""
    return is_signature(part.replay.get("thoughtSignature")) and bool(part.text.strip())


def build(turns: list[Turn], settings: Settings) -> dict[str, Any]:
    """Build the request.

    Args:
        turns: Assembled turns; reasoning that cannot be kept is taken out of them.
        settings: The run.

    Returns:
        The model's name and the body of `generateContent`.
    """
    model = model_name(settings)
    out = Alternating("user", settings.report)
    for turn in settle_reasoning(turns, settings, proves=proves, extras=("thoughtSignature",)):
        if not isinstance(turn, ModelTurn):
            out.add("user", [_content(part) for part in turn.parts], turn.seq)
            continue
        parts = [_part(part) for part in turn.parts]
        if turn.calls and wants_signatures(model):
            _sign(parts, turn, settings)
        out.add("model", parts, turn.seq)
        if turn.calls:
            out.add("user", _responses(turn, settings), turn.seq, joins=True)
    out.begin_with_user({"text": EMPTY_CONVERSATION}, {"text": CONVERSATION_GOES_ON})
    if settings.is_sendable:
        out.end_with_user({"text": CONTINUE})
    contents = [{"role": role, "parts": parts} for role, parts in out.messages]
    return {"model": model, "contents": contents, **_request(settings)}


def _request(settings: Settings) -> dict[str, Any]:
    config = Config(settings)
    request: dict[str, Any] = {}
    if (system := system_text(settings)) is not None:
        request["systemInstruction"] = {"parts": [{"text": system}]}
    declarations = [
        tool.described() | {"parametersJsonSchema": tool.parameters} for tool in tools_of(settings)
    ]
    if declarations:
        request["tools"] = [{"functionDeclarations": declarations}]
    generation: dict[str, Any] = {}
    if (ceiling := config.ceiling()) is not None:
        generation["maxOutputTokens"] = ceiling
    if (temperature := config.temperature(2)) is not None:
        generation["temperature"] = temperature
    if stops := config.stops(5):
        generation["stopSequences"] = stops
    config.leave_out("reasoningEffort", "what a model takes depends on its generation")
    if generation:
        request["generationConfig"] = generation
    return request


def _part(part: TextPart | ReasoningPart | CallPart) -> dict[str, Any]:
    wire: dict[str, Any]
    if isinstance(part, CallPart):
        wire = {"functionCall": {"id": part.id, "name": part.name, "args": part.value}}
    elif isinstance(part, ReasoningPart):
        wire = {"text": part.text, "thought": True}
    else:
        wire = {"text": part.text}
    signature = part.replay.get("thoughtSignature")
    return {**wire, "thoughtSignature": signature} if is_signature(signature) else wire


def _sign(parts: list[dict[str, Any]], turn: ModelTurn, settings: Settings) -> None:
    """Make sure that the first call is signed; of parallel calls only that one is."""
    first = next(part for part in parts if "functionCall" in part)
    if "thoughtSignature" not in first:
        settings.report.add("signature-placeholder", turn.seq)
        first["thoughtSignature"] = PLACEHOLDER_SIGNATURE


def _content(part: TextPart | ImagePart) -> dict[str, Any]:
    if isinstance(part, TextPart):
        return {"text": part.text}
    data = base64.b64encode(part.data).decode("ascii")
    return {"inlineData": {"mimeType": part.media_type, "data": data}}


def _responses(turn: ModelTurn, settings: Settings) -> list[dict[str, Any]]:
    """Return one response per call and, behind all of them, the images that they hold."""
    responses: list[dict[str, Any]] = []
    images: list[dict[str, Any]] = []
    for call in turn.calls:
        result = call.result
        assert result is not None  # assembling gives every call one
        texts = []
        for part in result.content:
            if isinstance(part, TextPart):
                texts.append(part.text)
                continue
            settings.report.add("image-moved", part.seq)
            texts.append(f"[{part.label}: after the results]")
            images.append(_content(part))
        key = "error" if result.is_error else "output"
        response = {"id": call.id, "name": call.name, "response": {key: "\n".join(texts)}}
        responses.append({"functionResponse": response})
    return responses + images
