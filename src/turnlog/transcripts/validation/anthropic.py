"""The rules of Anthropic's Messages API that a conversation can break.

Owns the checks. Rules about what an account or a model may use are outside.
"""

from __future__ import annotations

from typing import Any, Final

from turnlog.transcripts.validation.checks import TOOL_SCHEMA_RULE, Checker, decoded, listed, name, objects

RULES: Final[dict[str, str]] = {
    "known-fields": "every object has the fields that the API knows, and those it needs",
    "utf-8": "every text can be written as UTF-8",
    "json": "the request is JSON",
    "request-size": "a request has at most 32 MB",
    "messages-not-empty": "there is at least one message, and at most 100,000",
    "roles": "roles are user and assistant",
    "first-is-user": "the first message is the user's",
    "roles-alternate": "roles alternate; compatible servers do not join messages as the API does",
    "content-not-empty": "a message has content",
    "text-is-visible": "a text has a visible character",
    "no-trailing-space": "an answer at the end does not end in white space",
    "block-in-role": "a block stands in a message of a role that may hold it",
    "call-id": "the id of a call matches ^[a-zA-Z0-9_-]+$",
    "call-id-unique": "no two calls have the same id",
    "call-input": "the input of a call is an object",
    "tool-name": "the name of a tool matches ^[a-zA-Z0-9_-]{1,128}$",
    "call-has-result": "the next message answers every call",
    "result-has-call": "a result answers a call of the message before it",
    "one-result": "a call has one result",
    "results-first": "results come before everything else in their message",
    "result-content": "a result has content, of texts and images",
    "image": "an image is PNG, JPEG, GIF or WebP in base64, at most 5 MB and 8000 pixels a side",
    "signature": "reasoning carries its signature or its redacted data",
    "reasoning-not-last": "an answer does not end in reasoning",
    "reasoning-first": "with thinking enabled, the last answer that calls tools begins with reasoning",
    "tools-defined": "a history with tool calls defines tools",
    "tool-unique": "no two tools have the same name",
    "tool-schema": TOOL_SCHEMA_RULE,
    "max-tokens": "max_tokens is a whole number of at least 1",
    "stop-sequences": "a stop sequence has a visible character",
    "system": "a system prompt has a visible character",
    "ends-with-user": "the last message is the user's, where the model takes no beginning of an answer",
}
"""What is checked. Source: Messages API reference, guides on tool use, vision and extended thinking."""

_REQUEST = (
    "system", "tools", "tool_choice", "stop_sequences", "output_config", "thinking", "metadata", "stream",
    "service_tier", "cache_control",
)  # fmt: skip
_MEDIA = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
_ONLY_ASSISTANT = frozenset({"thinking", "redacted_thinking", "tool_use"})
_ONLY_USER = frozenset({"tool_result", "image"})
_MAX_IMAGE_TEXT = 5 * 1024 * 1024


def check(request: dict[str, Any], *, sendable: bool) -> Checker:
    """Check a request.

    Args:
        request: Arguments of `messages.create`.
        sendable: Whether it is to be sent as it is, not with a further message of the user.

    Returns:
        What was found.
    """
    checker = Checker()
    checker.encodable(request)
    checker.size(request, 32_000_000)
    checker.fields(request, "$", needs=("model", "max_tokens", "messages"), may=_REQUEST)
    _check_settings(checker, request)
    messages = request.get("messages")
    count = len(messages) if isinstance(messages, list) else 0
    if not checker.need(0 < count <= 100_000, "messages-not-empty", "messages", f"holds {count} messages"):
        return checker
    _check_roles(checker, [message for _, message in objects(messages)], sendable=sendable)
    for place, message in objects(messages):
        _check_message(checker, message, f"messages[{place}]")
    _check_pairs(checker, [message for _, message in objects(messages)])
    _check_reasoning(checker, request)
    return checker


def _check_settings(checker: Checker, request: dict[str, Any]) -> None:
    checker.whole(request.get("max_tokens"), 1, "max-tokens", "max_tokens")
    for place, stop in enumerate(listed(request.get("stop_sequences"))):
        visible = isinstance(stop, str) and bool(stop.strip())
        checker.need(visible, "stop-sequences", f"stop_sequences[{place}]", "has no visible character")
    if "system" in request:
        system = request["system"]
        texts = [system] if isinstance(system, str) else [block.get("text") for _, block in objects(system)]
        visible = bool(texts) and all(isinstance(text, str) and text.strip() for text in texts)
        checker.need(visible, "system", "system", "has no visible character")
    names: set[str] = set()
    for place, tool in objects(request.get("tools")):
        path = f"tools[{place}]"
        checker.fields(
            tool, path, needs=("name", "input_schema"), may=("description", "type", "cache_control")
        )
        checker.matches(tool.get("name"), "[a-zA-Z0-9_-]{1,128}", "tool-name", f"{path}.name")
        checker.once(tool.get("name"), names, "tool-unique", f"{path}.name")
        checker.schema(tool.get("input_schema"), f"{path}.input_schema")


def _check_roles(checker: Checker, messages: list[dict[str, Any]], *, sendable: bool) -> None:
    roles = [message.get("role") for message in messages]
    for place, role in enumerate(roles):
        path = f"messages[{place}].role"
        checker.need(role in ("user", "assistant"), "roles", path, f"is {role!r}")
        if place and role == roles[place - 1]:
            checker.fail("roles-alternate", path, f"is {role!r} again")
    if roles:
        checker.need(roles[0] == "user", "first-is-user", "messages[0].role", f"is {roles[0]!r}")
    if sendable and roles and roles[-1] != "user":
        checker.fail("ends-with-user", f"messages[{len(roles) - 1}].role", f"is {roles[-1]!r}")
    if roles and roles[-1] == "assistant":
        text = _last_text(messages[-1])
        ends_clean = text is None or text == text.rstrip()
        checker.need(ends_clean, "no-trailing-space", f"messages[{len(roles) - 1}]", "ends in white space")


def _last_text(message: dict[str, Any]) -> str | None:
    content = message.get("content")
    if isinstance(content, str):
        return content
    blocks = [block for _, block in objects(content)]
    text = blocks[-1].get("text") if blocks and blocks[-1].get("type") == "text" else None
    return text if isinstance(text, str) else None


def _check_message(checker: Checker, message: dict[str, Any], path: str) -> None:
    checker.fields(message, path, needs=("role", "content"))
    content = message.get("content")
    if isinstance(content, str):
        checker.need(
            bool(content.strip()), "content-not-empty", f"{path}.content", "has no visible character"
        )
        return
    if not checker.need(bool(objects(content)), "content-not-empty", f"{path}.content", "has no blocks"):
        return
    blocks = objects(content)
    others = False
    for place, block in blocks:
        here = f"{path}.content[{place}]"
        kind = block.get("type")
        _check_block(checker, block, message.get("role"), here)
        if kind == "tool_result":
            checker.need(not others, "results-first", here, "stands behind other content")
        else:
            others = True
    last = blocks[-1][1].get("type")
    if message.get("role") == "assistant":
        ends_well = last not in ("thinking", "redacted_thinking")
        checker.need(ends_well, "reasoning-not-last", path, "ends in reasoning")


def _check_block(checker: Checker, block: dict[str, Any], role: object, path: str) -> None:
    kind = block.get("type")
    fits = (role == "assistant" or name(kind) not in _ONLY_ASSISTANT) and (
        role == "user" or name(kind) not in _ONLY_USER
    )
    checker.need(fits, "block-in-role", path, f"{kind!r} cannot stand in a message of {role!r}")
    if kind == "text":
        checker.fields(block, path, needs=("type", "text"), may=("cache_control", "citations"))
        checker.text(block.get("text"), f"{path}.text")
    elif kind == "image":
        _check_image(checker, block, path)
    elif kind == "tool_use":
        checker.fields(block, path, needs=("type", "id", "name", "input"), may=("cache_control", "caller"))
        checker.matches(block.get("id"), "[a-zA-Z0-9_-]+", "call-id", f"{path}.id")
        checker.matches(block.get("name"), "[a-zA-Z0-9_-]{1,128}", "tool-name", f"{path}.name")
        checker.need(isinstance(block.get("input"), dict), "call-input", f"{path}.input", "is not an object")
    elif kind == "tool_result":
        _check_result(checker, block, path)
    elif kind in ("thinking", "redacted_thinking"):
        key = "signature" if kind == "thinking" else "data"
        proof = block.get(key)
        checker.need(isinstance(proof, str) and bool(proof), "signature", f"{path}.{key}", "is missing")
        checker.fields(block, path, may=("type", "thinking", "signature", "data"))
    else:
        checker.fail("known-fields", f"{path}.type", f"{kind!r} is no type of block")


def _check_image(checker: Checker, block: dict[str, Any], path: str) -> None:
    source = block.get("source")
    if not isinstance(source, dict) or name(source.get("media_type")) not in _MEDIA:
        checker.fail("image", path, "is not PNG, JPEG, GIF or WebP in base64")
        return
    data = source.get("data")
    ok = bool(decoded(data)) and isinstance(data, str) and len(data) <= _MAX_IMAGE_TEXT
    checker.need(ok, "image", f"{path}.source.data", "is no base64, or has more than 5 MB")


def _check_result(checker: Checker, block: dict[str, Any], path: str) -> None:
    checker.fields(
        block,
        path,
        needs=("type", "tool_use_id"),
        may=("content", "is_error", "cache_control", "toolset_name"),
    )
    content = block.get("content")
    if isinstance(content, str):
        checker.need(bool(content.strip()), "result-content", f"{path}.content", "has no visible character")
        return
    inner = objects(content)
    checker.need(bool(inner), "result-content", f"{path}.content", "is empty")
    for place, piece in inner:
        here = f"{path}.content[{place}]"
        if piece.get("type") == "text":
            checker.text(piece.get("text"), f"{here}.text")
        elif piece.get("type") == "image":
            _check_image(checker, piece, here)
        else:
            checker.fail("result-content", here, f"{piece.get('type')!r} cannot stand in a result")


def _check_pairs(checker: Checker, messages: list[dict[str, Any]]) -> None:
    seen: set[str] = set()
    waiting: list[str] = []
    for place, message in enumerate(messages):
        blocks = [block for _, block in objects(message.get("content"))]
        answered = [name(block.get("tool_use_id")) for block in blocks if block.get("type") == "tool_result"]
        path = f"messages[{place}]"
        for call in waiting:
            checker.need(call in answered, "call-has-result", path, f"does not answer {call!r}")
        for call in answered:
            checker.need(
                call in waiting, "result-has-call", path, f"answers {call!r}, which was not asked before it"
            )
        for call in set(answered):
            checker.need(answered.count(call) == 1, "one-result", path, f"answers {call!r} more than once")
        waiting = [name(block.get("id")) for block in blocks if block.get("type") == "tool_use"]
        for call in waiting:
            checker.once(call, seen, "call-id-unique", path)
    for call in waiting:
        checker.fail(
            "call-has-result", f"messages[{len(messages)}]", f"is missing, so {call!r} has no result"
        )


def _check_reasoning(checker: Checker, request: dict[str, Any]) -> None:
    messages = [message for _, message in objects(request.get("messages"))]
    kinds = [[block.get("type") for _, block in objects(message.get("content"))] for message in messages]
    if any("tool_use" in found or "tool_result" in found for found in kinds):
        checker.need(bool(request.get("tools")), "tools-defined", "tools", "is missing beside tool calls")
    thinking = request.get("thinking")
    if not isinstance(thinking, dict) or thinking.get("type") != "enabled":
        return
    answers = [
        found for message, found in zip(messages, kinds, strict=True) if message.get("role") == "assistant"
    ]
    if answers and "tool_use" in answers[-1] and answers[-1][0] not in ("thinking", "redacted_thinking"):
        checker.fail(
            "reasoning-first", "messages", "the last answer calls tools and does not begin with reasoning"
        )
