"""The rules of OpenAI's Chat Completions API that a conversation can break.

Owns the checks. Rules about what an account or a model may use are outside.
"""

from __future__ import annotations

from typing import Any, Final

from turnlog.transcripts.validation.checks import TOOL_SCHEMA_RULE, Checker, data_url, objects
from turnlog.transcripts.wire_text import parse_arguments

RULES: Final[dict[str, str]] = {
    "known-fields": "every object has the fields that the API knows, and those it needs",
    "utf-8": "every text can be written as UTF-8",
    "json": "the request is JSON",
    "request-size": "a request has at most 50 MB",
    "messages-not-empty": "there is at least one message",
    "roles": "roles are developer, system, user, assistant and tool",
    "content-not-empty": "a message has content; an answer has content or calls",
    "text-is-visible": "a text has a visible character; compatible servers refuse others",
    "text-length": "a text has at most 10,485,760 characters",
    "part": "a user's message holds texts and images, every other one only texts",
    "image": "an image is PNG, JPEG, GIF or WebP as a data URL",
    "calls-not-empty": "a list of calls is not empty",
    "call-id": "the id of a call has 1 to 40 characters",
    "call-id-unique": "no two calls of an answer have the same id",
    "call-arguments": "arguments are the JSON text of an object; compatible servers parse them",
    "tool-name": "the name of a tool matches ^[a-zA-Z0-9_-]{1,64}$",
    "call-has-result": "a tool message per call follows an answer, before any other message",
    "result-has-call": "a tool message answers a call of the answer before it",
    "one-result": "a call has one result",
    "tool-unique": "no two tools have the same name",
    "tool-schema": TOOL_SCHEMA_RULE,
    "max-tokens": "a ceiling is a whole number of at least 1",
    "temperature": "temperature lies between 0 and 2",
    "stop-sequences": "there are at most four stop sequences, none of them empty",
}
"""What is checked. Source: Chat Completions API reference, guides on function calling and vision."""

_REQUEST = (
    "tools", "tool_choice", "temperature", "stop", "max_tokens", "max_completion_tokens", "reasoning_effort",
    "parallel_tool_calls", "response_format", "seed", "stream", "stream_options", "top_p", "user", "metadata",
    "store", "n",
)  # fmt: skip
_MESSAGE: Final[dict[str, tuple[str, ...]]] = {
    "developer": ("content", "name"),
    "system": ("content", "name"),
    "user": ("content", "name"),
    "assistant": ("content", "name", "tool_calls", "refusal", "audio", "reasoning_content"),
    "tool": ("content", "tool_call_id"),
}
_MEDIA = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
_MAX_TEXT = 10 * 1024 * 1024


def check(request: dict[str, Any], *, sendable: bool) -> Checker:
    """Check a request.

    Args:
        request: Arguments of `chat.completions.create`.
        sendable: Without effect: the API continues whatever comes last.

    Returns:
        What was found.
    """
    checker = Checker()
    checker.encodable(request)
    checker.size(request, 50_000_000)
    checker.fields(request, "$", needs=("model", "messages"), may=_REQUEST)
    _check_settings(checker, request)
    messages = objects(request.get("messages"))
    checker.need(bool(messages), "messages-not-empty", "messages", "is empty")
    for place, message in messages:
        _check_message(checker, message, f"messages[{place}]")
    _check_pairs(checker, [message for _, message in messages])
    return checker


def _check_settings(checker: Checker, request: dict[str, Any]) -> None:
    for key in ("max_tokens", "max_completion_tokens"):
        if key in request:
            checker.whole(request[key], 1, "max-tokens", key)
    if "temperature" in request:
        checker.number(request["temperature"], 0, 2, "temperature", "temperature")
    stop = request.get("stop", [])
    stops = [stop] if isinstance(stop, str) else stop
    ok = isinstance(stops, list) and len(stops) <= 4 and all(isinstance(s, str) and s for s in stops)
    checker.need(ok, "stop-sequences", "stop", "has more than four texts, or an empty one")
    names: set[str] = set()
    for place, tool in objects(request.get("tools")):
        function = tool.get("function")
        path = f"tools[{place}].function"
        if not isinstance(function, dict):
            checker.fail("known-fields", path, "is missing")
            continue
        checker.fields(function, path, needs=("name",), may=("description", "parameters", "strict"))
        check_tool(checker, function, names, path)


def check_tool(checker: Checker, tool: dict[str, Any], names: set[str], path: str) -> None:
    """Check name and parameters of a function; `names` holds those of the ones before it."""
    checker.matches(tool.get("name"), "[a-zA-Z0-9_-]{1,64}", "tool-name", f"{path}.name")
    checker.once(tool.get("name"), names, "tool-unique", f"{path}.name")
    if "parameters" in tool:
        checker.schema(tool["parameters"], f"{path}.parameters")


def _check_message(checker: Checker, message: dict[str, Any], path: str) -> None:
    role = message.get("role")
    if not isinstance(role, str) or role not in _MESSAGE:
        checker.fail("roles", f"{path}.role", f"is {role!r}")
        return
    checker.fields(message, path, needs=("role",), may=_MESSAGE[role])
    calls = message.get("tool_calls") if role == "assistant" else None
    if calls is not None:
        checker.need(bool(objects(calls)), "calls-not-empty", f"{path}.tool_calls", "is empty")
    content = message.get("content")
    if isinstance(content, str):
        if content or not calls:
            check_text(checker, content, f"{path}.content")
    elif isinstance(content, list):
        checker.need(bool(content), "content-not-empty", f"{path}.content", "is empty")
        for place, part in objects(content):
            _check_part(checker, part, role, f"{path}.content[{place}]")
    else:
        checker.need(bool(calls), "content-not-empty", f"{path}.content", "is neither text nor a list")
    _check_calls(checker, objects(calls), path)


def check_text(checker: Checker, text: object, path: str) -> None:
    """Check that a text can be seen and is not too long."""
    checker.text(text, path)
    if isinstance(text, str):
        checker.need(len(text) <= _MAX_TEXT, "text-length", path, f"has {len(text)} characters")


def _check_part(checker: Checker, part: dict[str, Any], role: str, path: str) -> None:
    kind = part.get("type")
    if kind == "text":
        checker.fields(part, path, needs=("type", "text"))
        check_text(checker, part.get("text"), f"{path}.text")
    elif kind == "image_url" and role == "user":
        image = part.get("image_url")
        check_image(checker, image.get("url") if isinstance(image, dict) else None, f"{path}.image_url")
    else:
        checker.fail("part", path, f"{kind!r} cannot stand in a message of {role!r}")


def check_image(checker: Checker, url: object, path: str) -> None:
    """Check that an image is a data URL of a type that the API takes."""
    found = data_url(url)
    ok = found is not None and found[0] in _MEDIA and bool(found[1])
    checker.need(ok, "image", path, "is no image as a data URL")


def _check_calls(checker: Checker, calls: list[tuple[int, dict[str, Any]]], path: str) -> None:
    ids: set[str] = set()
    for place, call in calls:
        here = f"{path}.tool_calls[{place}]"
        function = call.get("function")
        function = function if isinstance(function, dict) else {}
        checker.fields(call, here, needs=("id", "type", "function"))
        checker.matches(call.get("id"), "(?s).{1,40}", "call-id", f"{here}.id")
        checker.once(call.get("id"), ids, "call-id-unique", f"{here}.id")
        checker.matches(function.get("name"), "[a-zA-Z0-9_-]{1,64}", "tool-name", f"{here}.function.name")
        check_arguments(checker, function.get("arguments"), f"{here}.function.arguments")


def check_arguments(checker: Checker, arguments: object, path: str) -> None:
    """Check that arguments are the JSON text of an object."""
    ok = isinstance(arguments, str) and parse_arguments(arguments) is not None
    checker.need(ok, "call-arguments", path, "is not the JSON text of an object")


def _check_pairs(checker: Checker, messages: list[dict[str, Any]]) -> None:
    asked: list[object] = []
    answered: list[object] = []

    def close(path: str) -> None:
        for call in asked:
            checker.need(call in answered, "call-has-result", path, f"comes before the result of {call!r}")
        asked.clear()
        answered.clear()

    for place, message in enumerate(messages):
        path = f"messages[{place}]"
        if message.get("role") == "tool":
            call = message.get("tool_call_id")
            checker.need(
                call in asked, "result-has-call", path, f"answers {call!r}, which was not asked before it"
            )
            checker.need(call not in answered, "one-result", path, f"answers {call!r} again")
            answered.append(call)
            continue
        close(path)
        asked += [call.get("id") for _, call in objects(message.get("tool_calls"))]
    close(f"messages[{len(messages)}]")
