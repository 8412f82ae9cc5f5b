"""The request types of the providers' own SDKs as a second validator: every field checked, none overlooked.

Owns the strict reading of those types. What the servers want beyond types is the exporter's own validator's
part.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from anthropic.types.message_create_params import MessageCreateParamsNonStreaming as AnthropicRequest
from google.genai import types as google
from openai.types.chat.completion_create_params import CompletionCreateParamsNonStreaming as ChatRequest
from openai.types.responses.response_create_params import ResponseCreateParamsNonStreaming as ResponsesRequest
from pydantic import TypeAdapter, ValidationError
from pydantic_core import SchemaValidator

from turnlog.transcripts import Shape

_TYPES: dict[Shape, Any] = {
    "anthropic": AnthropicRequest,
    "openai-chat": ChatRequest,
    "openai-responses": ResponsesRequest,
}


def _strict(schema: Any) -> Any:
    """Read an iterable as a list, so that its items are checked at once, and refuse unknown fields."""
    if isinstance(schema, dict):
        copy = {key: _strict(value) for key, value in schema.items()}
        if copy.get("type") == "generator":
            copy["type"] = "list"
        if copy.get("type") == "typed-dict":
            copy["extra_behavior"] = "forbid"
        return copy
    if isinstance(schema, list):
        return [_strict(item) for item in schema]
    if isinstance(schema, tuple):
        return tuple(_strict(item) for item in schema)
    return schema


@cache
def _validator(shape: Shape) -> SchemaValidator:
    return SchemaValidator(_strict(TypeAdapter(_TYPES[shape]).core_schema))


def sdk_problems(shape: Shape, request: dict[str, Any]) -> list[str]:
    """Return what the SDK's types find wrong with a request; empty for a good one."""
    try:
        if shape == "gemini":
            _read_gemini(request)
        else:
            _validator(shape).validate_python(request, strict=True)
    except ValidationError as error:
        return [f"{problem['loc']}: {problem['msg']}" for problem in error.errors()][:20]
    return []


def _read_gemini(request: dict[str, Any]) -> None:
    # The SDK's models refuse unknown fields by themselves.
    for content in request["contents"]:
        google.Content.model_validate(content)
    google.GenerateContentConfig.model_validate(gemini_config(request))


def gemini_config(request: dict[str, Any]) -> dict[str, Any]:
    """Return the config that the Google SDK takes beside model and contents."""
    config = dict(request.get("generationConfig", {}))
    for key in ("systemInstruction", "tools"):
        if key in request:
            config[key] = request[key]
    return config
