"""The rules of OpenAI's Responses API that a conversation can break.

Owns the checks. Rules about what an account or a model may use are outside.
"""

from __future__ import annotations

from typing import Any, Final

from turnlog.transcripts.validation.checks import TOOL_SCHEMA_RULE, Checker, name, objects
from turnlog.transcripts.validation.openai_chat import check_arguments, check_image, check_text, check_tool

RULES: Final[dict[str, str]] = {
    "known-fields": "every object has the fields that the API knows, and those it needs",
    "utf-8": "every text can be written as UTF-8",
    "json": "the request is JSON",
    "request-size": "a request has at most 50 MB",
    "messages-not-empty": "there is at least one item",
    "roles": "roles are developer, system, user and assistant",
    "content-not-empty": "a message has content",
    "text-is-visible": "a text has a visible character; compatible servers refuse others",
    "text-length": "a text has at most 10,485,760 characters",
    "part": "a user's message holds input texts and images, an answer output texts",
    "image": "an image is PNG, JPEG, GIF or WebP as a data URL",
    "item-id": "the id of an item has at most 64 characters and the prefix of its kind",
    "item-id-unique": "no two items have the same id",
    "call-id": "the id of a call has 1 to 64 characters",
    "call-id-unique": "no two calls have the same id",
    "call-arguments": "arguments are the JSON text of an object",
    "tool-name": "the name of a tool matches ^[a-zA-Z0-9_-]{1,64}$",
    "call-has-result": "every call has an output behind it",
    "result-has-call": "an output answers a call before it",
    "one-result": "a call has one output",
    "reasoning-content": "without storage, reasoning carries its encrypted content",
    "reasoning-follower": "reasoning stands right before the item that it led to",
    "item-needs-reasoning": "an answer's item keeps its id only behind reasoning",
    "tool-unique": "no two tools have the same name",
    "tool-schema": TOOL_SCHEMA_RULE,
    "max-tokens": "max_output_tokens is a whole number of at least 16",
    "temperature": "temperature lies between 0 and 2",
    "system": "instructions have a visible character",
}
"""What is checked. Source: Responses API reference, guides on conversation state and reasoning."""

_REQUEST = (
    "instructions", "tools", "tool_choice", "temperature", "max_output_tokens", "reasoning", "include",
    "store", "parallel_tool_calls", "text", "stream", "top_p", "user", "metadata", "truncation",
    "previous_response_id",
)  # fmt: skip
_ITEMS: Final[dict[str, tuple[tuple[str, ...], tuple[str, ...]]]] = {
    "message": (("role", "content"), ("type", "id", "status", "phase")),
    "function_call": (("type", "call_id", "name", "arguments"), ("id", "status", "caller", "namespace")),
    "function_call_output": (("type", "call_id", "output"), ("id", "status")),
    "reasoning": (("type", "id", "summary"), ("encrypted_content", "content", "status")),
}
_PREFIX = {"message": "msg_", "function_call": "fc_", "reasoning": "rs_"}


def check(request: dict[str, Any], *, sendable: bool) -> Checker:
    """Check a request.

    Args:
        request: Arguments of `responses.create`.
        sendable: Without effect: the API continues whatever comes last.

    Returns:
        What was found.
    """
    checker = Checker()
    checker.encodable(request)
    checker.size(request, 50_000_000)
    checker.fields(request, "$", needs=("model", "input"), may=_REQUEST)
    _check_settings(checker, request)
    items = objects(request.get("input"))
    checker.need(bool(items), "messages-not-empty", "input", "is empty")
    ids: set[str] = set()
    for place, item in items:
        _check_item(checker, item, ids, f"input[{place}]")
    _check_pairs(checker, items)
    _check_reasoning(checker, items, stored=request.get("store") is not False)
    return checker


def _check_settings(checker: Checker, request: dict[str, Any]) -> None:
    if "max_output_tokens" in request:
        checker.whole(request["max_output_tokens"], 16, "max-tokens", "max_output_tokens")
    if "temperature" in request:
        checker.number(request["temperature"], 0, 2, "temperature", "temperature")
    if "instructions" in request:
        instructions = request["instructions"]
        visible = isinstance(instructions, str) and bool(instructions.strip())
        checker.need(visible, "system", "instructions", "has no visible character")
    names: set[str] = set()
    for place, tool in objects(request.get("tools")):
        path = f"tools[{place}]"
        checker.fields(tool, path, needs=("type", "name", "parameters", "strict"), may=("description",))
        check_tool(checker, tool, names, path)


def _kind(item: dict[str, Any]) -> object:
    return item.get("type", "message" if "role" in item else None)


def _check_item(checker: Checker, item: dict[str, Any], ids: set[str], path: str) -> None:
    kind = _kind(item)
    if not isinstance(kind, str) or kind not in _ITEMS:
        checker.fail("known-fields", f"{path}.type", f"{kind!r} is no type of item")
        return
    needs, may = _ITEMS[kind]
    checker.fields(item, path, needs=needs, may=may)
    if "id" in item and kind in _PREFIX:
        item_id = item["id"]
        ok = isinstance(item_id, str) and item_id.startswith(_PREFIX[kind]) and len(item_id) <= 64
        checker.need(
            ok, "item-id", f"{path}.id", f"must begin with {_PREFIX[kind]!r} and have at most 64 characters"
        )
        checker.once(item_id, ids, "item-id-unique", f"{path}.id")
    if kind == "message":
        _check_message(checker, item, path)
    elif kind == "function_call":
        checker.matches(item.get("name"), "[a-zA-Z0-9_-]{1,64}", "tool-name", f"{path}.name")
        check_arguments(checker, item.get("arguments"), f"{path}.arguments")
    elif kind == "function_call_output":
        _check_parts(checker, item.get("output"), "user", f"{path}.output")
    if kind in ("function_call", "function_call_output"):
        checker.matches(item.get("call_id"), "(?s).{1,64}", "call-id", f"{path}.call_id")


def _check_message(checker: Checker, item: dict[str, Any], path: str) -> None:
    role = item.get("role")
    known = role in ("developer", "system", "user", "assistant")
    if checker.need(known, "roles", f"{path}.role", f"is {role!r}"):
        _check_parts(checker, item.get("content"), str(role), f"{path}.content")


def _check_parts(checker: Checker, content: object, role: str, path: str) -> None:
    if isinstance(content, str):
        check_text(checker, content, path)
        return
    if not checker.need(bool(objects(content)), "content-not-empty", path, "is empty"):
        return
    for place, part in objects(content):
        here = f"{path}[{place}]"
        kind = part.get("type")
        if kind == ("output_text" if role == "assistant" else "input_text"):
            check_text(checker, part.get("text"), f"{here}.text")
        elif kind == "input_image" and role == "user":
            check_image(checker, part.get("image_url"), f"{here}.image_url")
        else:
            checker.fail("part", here, f"{kind!r} cannot stand in a message of {role!r}")


def _check_pairs(checker: Checker, items: list[tuple[int, dict[str, Any]]]) -> None:
    asked: set[str] = set()
    answered: set[str] = set()
    for place, item in items:
        path, call = f"input[{place}]", name(item.get("call_id"))
        if item.get("type") == "function_call":
            checker.once(call, asked, "call-id-unique", path)
        elif item.get("type") == "function_call_output":
            checker.need(
                call in asked, "result-has-call", path, f"answers {call!r}, which was not asked before it"
            )
            checker.need(call not in answered, "one-result", path, f"answers {call!r} again")
            answered.add(call)
    for call in sorted(asked - answered):
        checker.fail("call-has-result", "input", f"has no output for {call!r}")


def _check_reasoning(checker: Checker, items: list[tuple[int, dict[str, Any]]], *, stored: bool) -> None:
    is_behind_reasoning = False
    for index, (place, item) in enumerate(items):
        kind, path = _kind(item), f"input[{place}]"
        following = items[index + 1][1] if index + 1 < len(items) else {}
        if kind == "reasoning":
            encrypted = item.get("encrypted_content")
            whole = stored or (isinstance(encrypted, str) and bool(encrypted))
            checker.need(whole, "reasoning-content", path, "has no encrypted content")
            followed = (
                _kind(following) in ("reasoning", "function_call") or following.get("role") == "assistant"
            )
            checker.need(followed, "reasoning-follower", path, "is not followed by an item of its answer")
            is_behind_reasoning = True
        elif kind == "function_call" or item.get("role") == "assistant":
            loose = "id" in item and not stored and not is_behind_reasoning
            checker.need(not loose, "item-needs-reasoning", path, "has an id without its reasoning")
        else:
            is_behind_reasoning = False
