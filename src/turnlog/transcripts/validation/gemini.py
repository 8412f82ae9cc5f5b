"""The rules of Google's Gemini API that a conversation can break.

Owns the checks. Rules about what an account or a model may use are outside.
"""

from __future__ import annotations

from typing import Any, Final

from turnlog.transcripts.gemini import PLACEHOLDER_SIGNATURE, is_signature, wants_signatures
from turnlog.transcripts.images import MEDIA_TYPES
from turnlog.transcripts.validation.checks import (
    TOOL_SCHEMA_RULE,
    Checker,
    decoded,
    listed,
    mapping,
    name,
    objects,
)

RULES: Final[dict[str, str]] = {
    "known-fields": "every object has the fields that the API knows, and those it needs",
    "utf-8": "every text can be written as UTF-8",
    "json": "the request is JSON",
    "request-size": "a request has at most 20 MB",
    "messages-not-empty": "there is at least one content",
    "roles": "roles are user and model",
    "first-is-user": "the first content is the user's",
    "roles-alternate": "roles alternate",
    "content-not-empty": "a content has parts",
    "part": "a part holds one thing: a text, an image, a call or a response",
    "text-is-visible": "a text has a visible character",
    "image": "an image is PNG, JPEG, WebP, HEIC or HEIF in base64",
    "part-in-role": "calls and thoughts are the model's, responses and images the user's",
    "tool-name": "the name of a function begins with a letter or underscore and has at most 64 characters",
    "call-args": "the arguments of a call are an object",
    "call-has-result": "the content after calls holds as many responses, with the same names",
    "result-has-call": "responses follow the content with their calls",
    "responses-first": "responses come before everything else in their content",
    "response-object": "a response is an object",
    "signature": "a signature is base64",
    "signature-on-call": "from Gemini 3 on, the first call of a content carries a signature",
    "tool-unique": "no two functions have the same name",
    "tool-schema": TOOL_SCHEMA_RULE,
    "max-tokens": "maxOutputTokens is a whole number of at least 1",
    "temperature": "temperature lies between 0 and 2",
    "stop-sequences": "there are at most five stop sequences",
    "system": "a system instruction has a visible character",
    "ends-with-user": "the last content is the user's",
}
"""What is checked. Source: Gemini API reference, guides on function calling and thought signatures."""

_REQUEST = ("contents", "systemInstruction", "tools", "toolConfig", "generationConfig", "safetySettings")
_DATA = ("text", "inlineData", "functionCall", "functionResponse")
_NAME = r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}"


def check(request: dict[str, Any], *, sendable: bool) -> Checker:
    """Check a request.

    Args:
        request: The model's name beside the body of `generateContent`.
        sendable: Whether it is to be sent as it is, not with a further content of the user.

    Returns:
        What was found.
    """
    checker = Checker()
    checker.encodable(request)
    checker.size(request, 20_000_000)
    checker.fields(request, "$", needs=("model", "contents"), may=_REQUEST)
    _check_settings(checker, request)
    contents = objects(request.get("contents"))
    if not checker.need(bool(contents), "messages-not-empty", "contents", "is empty"):
        return checker
    roles = [content.get("role") for _, content in contents]
    checker.need(roles[0] == "user", "first-is-user", "contents[0].role", f"is {roles[0]!r}")
    if sendable:
        checker.need(
            roles[-1] == "user", "ends-with-user", f"contents[{len(roles) - 1}].role", f"is {roles[-1]!r}"
        )
    signs = wants_signatures(str(request.get("model", "")))
    before: list[dict[str, Any]] = []
    for index, (place, content) in enumerate(contents):
        path = f"contents[{place}]"
        checker.fields(content, path, needs=("role", "parts"))
        checker.need(roles[index] in ("user", "model"), "roles", f"{path}.role", f"is {roles[index]!r}")
        if index and roles[index] == roles[index - 1]:
            checker.fail("roles-alternate", f"{path}.role", f"is {roles[index]!r} again")
        parts = [part for _, part in objects(content.get("parts"))]
        checker.need(bool(parts), "content-not-empty", f"{path}.parts", "is empty")
        _check_parts(checker, parts, roles[index], path, signs=signs)
        before = _check_pairs(checker, before, parts, path)
    if before:
        checker.fail("call-has-result", f"contents[{len(contents)}]", "is missing behind calls")
    return checker


def _check_settings(checker: Checker, request: dict[str, Any]) -> None:
    generation = mapping(request.get("generationConfig"))
    if "maxOutputTokens" in generation:
        checker.whole(generation["maxOutputTokens"], 1, "max-tokens", "generationConfig.maxOutputTokens")
    if "temperature" in generation:
        checker.number(generation["temperature"], 0, 2, "temperature", "generationConfig.temperature")
    stops = listed(generation.get("stopSequences"))
    checker.need(
        len(stops) <= 5, "stop-sequences", "generationConfig.stopSequences", f"has {len(stops)} texts"
    )
    if "systemInstruction" in request:
        parts = objects(mapping(request["systemInstruction"]).get("parts"))
        visible = bool(parts) and all(str(part.get("text", "")).strip() for _, part in parts)
        checker.need(visible, "system", "systemInstruction", "has no visible character")
    names: set[str] = set()
    for place, tool in objects(request.get("tools")):
        for number, function in objects(tool.get("functionDeclarations")):
            path = f"tools[{place}].functionDeclarations[{number}]"
            may = ("description", "parametersJsonSchema", "parameters", "behavior")
            checker.fields(function, path, needs=("name",), may=may)
            checker.matches(function.get("name"), _NAME, "tool-name", f"{path}.name")
            checker.once(function.get("name"), names, "tool-unique", f"{path}.name")
            if "parametersJsonSchema" in function:
                checker.schema(function["parametersJsonSchema"], f"{path}.parametersJsonSchema")


def _check_parts(
    checker: Checker, parts: list[dict[str, Any]], role: object, path: str, *, signs: bool
) -> None:
    others = False
    for place, part in enumerate(parts):
        here = f"{path}.parts[{place}]"
        held = [key for key in _DATA if key in part]
        checker.fields(part, here, may=(*_DATA, "thought", "thoughtSignature"))
        if not checker.need(len(held) == 1, "part", here, f"holds {held or 'nothing'}"):
            continue
        _check_part(checker, part, held[0], here)
        is_models = held[0] == "functionCall" or part.get("thought") is True
        is_users = held[0] in ("functionResponse", "inlineData")
        fits = role != "user" if is_models else role != "model" if is_users else True
        checker.need(fits, "part-in-role", here, f"{held[0]} cannot stand in a content of {role!r}")
        if held[0] == "functionResponse":
            checker.need(not others, "responses-first", here, "stands behind other parts")
        else:
            others = True
    calls = [part for part in parts if "functionCall" in part]
    if signs and calls:
        signed = bool(calls[0].get("thoughtSignature"))
        checker.need(signed, "signature-on-call", path, "its first call has no signature")


def _check_part(checker: Checker, part: dict[str, Any], kind: str, path: str) -> None:
    if "thoughtSignature" in part:
        signature = part["thoughtSignature"]
        ok = signature == PLACEHOLDER_SIGNATURE or is_signature(signature)
        checker.need(ok, "signature", f"{path}.thoughtSignature", "is not base64")
    value = part[kind]
    if kind == "text":
        checker.text(value, f"{path}.text")
    elif kind == "inlineData":
        ok = (
            isinstance(value, dict)
            and name(value.get("mimeType")) in MEDIA_TYPES["gemini"]
            and bool(decoded(value.get("data")))
        )
        checker.need(ok, "image", f"{path}.inlineData", "is no image in base64")
    elif not isinstance(value, dict):
        checker.fail("part", f"{path}.{kind}", "is not an object")
    elif kind == "functionCall":
        checker.fields(value, f"{path}.{kind}", needs=("name",), may=("id", "args"))
        checker.matches(value.get("name"), _NAME, "tool-name", f"{path}.{kind}.name")
        checker.need(
            isinstance(value.get("args", {}), dict), "call-args", f"{path}.{kind}.args", "is not an object"
        )
    else:
        checker.fields(value, f"{path}.{kind}", needs=("name", "response"), may=("id", "parts"))
        ok = isinstance(value.get("response"), dict)
        checker.need(ok, "response-object", f"{path}.{kind}.response", "is not an object")


def _check_pairs(
    checker: Checker, calls: list[dict[str, Any]], parts: list[dict[str, Any]], path: str
) -> list[dict[str, Any]]:
    """Compare the responses of a content with the calls of the one before it; return its own calls."""
    asked = [(call.get("name"), call.get("id")) for call in calls]
    given = [
        (response.get("name"), response.get("id"))
        for part in parts
        if isinstance(response := part.get("functionResponse"), dict)
    ]
    if asked:
        checker.need(given == asked, "call-has-result", path, f"answers {given} where {asked} was asked")
    elif given:
        checker.fail("result-has-call", path, "holds responses without calls before it")
    return [call for part in parts if isinstance(call := part.get("functionCall"), dict)]
