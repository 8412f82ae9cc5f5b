"""Every rule of every validator: a good request passes, one that breaks the rule is refused by it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnlog.errors import UsageError
from turnlog.testing.json_strategies import json_values
from turnlog.transcripts import SHAPES, VALIDATION_RULES, Shape, validate

PNG = "iVBORw0KGgo="
Request = dict[str, Any]
Break = Callable[[Request], Any]

GOOD: dict[Shape, Request] = {
    "anthropic": {
        "model": "m",
        "max_tokens": 10,
        "system": "Be brief.",
        "stop_sequences": ["END"],
        "tools": [{"name": "ls", "input_schema": {"type": "object"}}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "go"}]},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "hm", "signature": "U0c="},
                    {"type": "tool_use", "id": "a", "name": "ls", "input": {}},
                    {"type": "tool_use", "id": "b", "name": "ls", "input": {}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "text", "text": "1"}]},
                    {"type": "tool_result", "tool_use_id": "b", "content": "2"},
                    {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
                ],
            },
            {"role": "assistant", "content": [{"type": "text", "text": "done"}]},
        ],
    },
    "openai-chat": {
        "model": "m",
        "stop": ["END"],
        "temperature": 1,
        "max_tokens": 10,
        "tools": [{"type": "function", "function": {"name": "ls", "parameters": {"type": "object"}}}],
        "messages": [
            {"role": "system", "content": "Be brief."},
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "go"},
                    {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}},
                ],
            },
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [
                    {"id": "a", "type": "function", "function": {"name": "ls", "arguments": "{}"}},
                    {"id": "b", "type": "function", "function": {"name": "ls", "arguments": "{}"}},
                ],
            },
            {"role": "tool", "tool_call_id": "a", "content": "1"},
            {"role": "tool", "tool_call_id": "b", "content": "2"},
            {"role": "assistant", "content": "done"},
        ],
    },
    "openai-responses": {
        "model": "m",
        "store": False,
        "instructions": "Be brief.",
        "max_output_tokens": 16,
        "temperature": 1,
        "tools": [{"type": "function", "name": "ls", "parameters": {"type": "object"}, "strict": False}],
        "input": [
            {
                "role": "user",
                "content": [
                    {"type": "input_text", "text": "go"},
                    {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}"},
                ],
            },
            {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "ZW5j"},
            {"type": "function_call", "id": "fc_1", "call_id": "a", "name": "ls", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "a", "output": "1"},
            {"role": "assistant", "content": "done"},
        ],
    },
    "gemini": {
        "model": "gemini-3-pro",
        "systemInstruction": {"parts": [{"text": "Be brief."}]},
        "generationConfig": {"maxOutputTokens": 1, "temperature": 1, "stopSequences": ["END"]},
        "tools": [{"functionDeclarations": [{"name": "ls", "parametersJsonSchema": {"type": "object"}}]}],
        "contents": [
            {"role": "user", "parts": [{"text": "go"}]},
            {
                "role": "model",
                "parts": [
                    {"functionCall": {"id": "a", "name": "ls", "args": {}}, "thoughtSignature": "c2ln"},
                    {"functionCall": {"id": "b", "name": "ls", "args": {}}},
                ],
            },
            {
                "role": "user",
                "parts": [
                    {"functionResponse": {"id": "a", "name": "ls", "response": {"output": "1"}}},
                    {"functionResponse": {"id": "b", "name": "ls", "response": {"output": "2"}}},
                    {"inlineData": {"mimeType": "image/png", "data": PNG}},
                ],
            },
            {"role": "model", "parts": [{"text": "done"}]},
        ],
    },
}


def _set(*path: Any, to: Any) -> Break:
    """Return a break that puts a value at a path."""

    def change(request: Request) -> None:
        place: Any = request
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = to

    return change


def _drop(*path: Any) -> Break:
    """Return a break that takes out what is at a path."""

    def change(request: Request) -> None:
        place: Any = request
        for step in path[:-1]:
            place = place[step]
        del place[path[-1]]

    return change


def _twice(*path: Any) -> Break:
    """Return a break that repeats an element of a list."""

    def change(request: Request) -> None:
        place: Any = request
        for step in path[:-1]:
            place = place[step]
        place.insert(path[-1], copy.deepcopy(place[path[-1]]))

    return change


def _first_reasoning(request: Request) -> None:
    request["thinking"] = {"type": "enabled", "budget_tokens": 1024}
    del request["messages"][3]
    del request["messages"][1]["content"][0]


def _swap_results(request: Request) -> None:
    content = request["messages"][2]["content"]
    content.insert(0, content.pop())


def _swap_responses(request: Request) -> None:
    parts = request["contents"][2]["parts"]
    parts.insert(0, parts.pop())


M = "messages"
BREAKS: dict[Shape, dict[str, Break]] = {
    "anthropic": {
        "known-fields": _set("frequency_penalty", to=1),
        "utf-8": _set(M, 0, "content", 0, "text", to="\ud83d"),
        "json": _set("metadata", to={"x": object()}),
        "request-size": _set(M, 0, "content", 0, "text", to="x" * 32_000_001),
        "messages-not-empty": _set(M, to=[]),
        "roles": _set(M, 0, "role", to="tool"),
        "first-is-user": _drop(M, 0),
        "roles-alternate": _twice(M, 0),
        "content-not-empty": _set(M, 3, "content", to=[]),
        "text-is-visible": _set(M, 3, "content", 0, "text", to="\n"),
        "no-trailing-space": _set(M, 3, "content", 0, "text", to="done "),
        "block-in-role": _set(M, 3, "content", 0, to=GOOD["anthropic"][M][2]["content"][2]),
        "call-id": _set(M, 1, "content", 1, "id", to="a b"),
        "call-id-unique": _set(M, 1, "content", 2, "id", to="a"),
        "call-input": _set(M, 1, "content", 1, "input", to="{}"),
        "tool-name": _set(M, 1, "content", 1, "name", to="a.b"),
        "call-has-result": _drop(M, 2, "content", 0),
        "result-has-call": _set(M, 2, "content", 0, "tool_use_id", to="z"),
        "one-result": _twice(M, 2, "content", 0),
        "results-first": _swap_results,
        "result-content": _set(M, 2, "content", 0, "content", to=[]),
        "image": _set(M, 2, "content", 2, "source", "media_type", to="image/tiff"),
        "signature": _set(M, 1, "content", 0, "signature", to=""),
        "reasoning-not-last": _set(
            M, 3, "content", to=[{"type": "thinking", "thinking": "x", "signature": "y"}]
        ),
        "reasoning-first": _first_reasoning,
        "tools-defined": _drop("tools"),
        "tool-unique": _twice("tools", 0),
        "tool-schema": _set("tools", 0, "input_schema", to={"type": "string"}),
        "max-tokens": _set("max_tokens", to=0),
        "stop-sequences": _set("stop_sequences", to=[" "]),
        "system": _set("system", to=" "),
        "ends-with-user": lambda request: None,
    },
    "openai-chat": {
        "known-fields": _set(M, 0, "tool_calls", to=[]),
        "utf-8": _set(M, 0, "content", to="\ud83d"),
        "json": _set("metadata", to={"x": object()}),
        "request-size": _set("user", to="x" * 50_000_001),
        "messages-not-empty": _set(M, to=[]),
        "roles": _set(M, 0, "role", to="model"),
        "content-not-empty": _set(M, 5, "content", to=None),
        "text-is-visible": _set(M, 5, "content", to=" "),
        "text-length": _set(M, 5, "content", to="x" * (10 * 1024 * 1024 + 1)),
        "part": _set(M, 0, "content", to=GOOD["openai-chat"][M][1]["content"]),
        "image": _set(M, 1, "content", 1, "image_url", "url", to="data:image/tiff;base64,AAAA"),
        "calls-not-empty": _set(M, 5, "tool_calls", to=[]),
        "call-id": _set(M, 2, "tool_calls", 0, "id", to="x" * 41),
        "call-id-unique": _set(M, 2, "tool_calls", 1, "id", to="a"),
        "call-arguments": _set(M, 2, "tool_calls", 0, "function", "arguments", to="[1]"),
        "tool-name": _set(M, 2, "tool_calls", 0, "function", "name", to="a.b"),
        "call-has-result": _drop(M, 3),
        "result-has-call": _set(M, 3, "tool_call_id", to="z"),
        "one-result": _twice(M, 3),
        "tool-unique": _twice("tools", 0),
        "tool-schema": _set("tools", 0, "function", "parameters", to={}),
        "max-tokens": _set("max_tokens", to=0),
        "temperature": _set("temperature", to=3),
        "stop-sequences": _set("stop", to=["a", "b", "c", "d", "e"]),
    },
    "openai-responses": {
        "known-fields": _set("stop", to=["END"]),
        "utf-8": _set("input", 4, "content", to="\ud83d"),
        "json": _set("metadata", to={"x": object()}),
        "request-size": _set("user", to="x" * 50_000_001),
        "messages-not-empty": _set("input", to=[]),
        "roles": _set("input", 4, "role", to="tool"),
        "content-not-empty": _set("input", 4, "content", to=[]),
        "text-is-visible": _set("input", 4, "content", to=" "),
        "text-length": _set("input", 4, "content", to="x" * (10 * 1024 * 1024 + 1)),
        "part": _set("input", 4, "content", to=[{"type": "input_text", "text": "x"}]),
        "image": _set("input", 0, "content", 1, "image_url", to="x.png"),
        "item-id": _set("input", 2, "id", to="call_1"),
        "item-id-unique": _twice("input", 1),
        "call-id": _set("input", 2, "call_id", to="x" * 65),
        "call-id-unique": _twice("input", 2),
        "call-arguments": _set("input", 2, "arguments", to="nothing"),
        "tool-name": _set("input", 2, "name", to="a.b"),
        "call-has-result": _drop("input", 3),
        "result-has-call": _drop("input", 2),
        "one-result": _twice("input", 3),
        "reasoning-content": _set("input", 1, "encrypted_content", to=""),
        "reasoning-follower": _set("input", 2, to={"role": "user", "content": "and?"}),
        "item-needs-reasoning": _drop("input", 1),
        "tool-unique": _twice("tools", 0),
        "tool-schema": _set("tools", 0, "parameters", to={}),
        "max-tokens": _set("max_output_tokens", to=15),
        "temperature": _set("temperature", to=-1),
        "system": _set("instructions", to=""),
    },
    "gemini": {
        "known-fields": _set("contents", 0, "parts", 0, "annotations", to=[]),
        "utf-8": _set("contents", 0, "parts", 0, "text", to="\ud83d"),
        "json": _set("safetySettings", to=[object()]),
        "request-size": _set("contents", 0, "parts", 0, "text", to="x" * 20_000_001),
        "messages-not-empty": _set("contents", to=[]),
        "roles": _set("contents", 0, "role", to="function"),
        "first-is-user": _drop("contents", 0),
        "roles-alternate": _twice("contents", 0),
        "content-not-empty": _set("contents", 3, "parts", to=[]),
        "part": _set("contents", 3, "parts", 0, "inlineData", to={}),
        "text-is-visible": _set("contents", 3, "parts", 0, "text", to=""),
        "image": _set("contents", 2, "parts", 2, "inlineData", "mimeType", to="image/gif"),
        "part-in-role": _set("contents", 0, "parts", 0, "thought", to=True),
        "tool-name": _set("contents", 1, "parts", 0, "functionCall", "name", to="9ls"),
        "call-args": _set("contents", 1, "parts", 0, "functionCall", "args", to=[]),
        "call-has-result": _drop("contents", 2, "parts", 0),
        "result-has-call": _set("contents", 1, "parts", to=[{"text": "no call"}]),
        "responses-first": _swap_responses,
        "response-object": _set("contents", 2, "parts", 0, "functionResponse", "response", to="1"),
        "signature": _set("contents", 1, "parts", 0, "thoughtSignature", to="no base64!"),
        "signature-on-call": _drop("contents", 1, "parts", 0, "thoughtSignature"),
        "tool-unique": _twice("tools", 0, "functionDeclarations", 0),
        "tool-schema": _set("tools", 0, "functionDeclarations", 0, "parametersJsonSchema", to={}),
        "max-tokens": _set("generationConfig", "maxOutputTokens", to=0),
        "temperature": _set("generationConfig", "temperature", to=2.5),
        "stop-sequences": _set("generationConfig", "stopSequences", to=["x"] * 6),
        "system": _set("systemInstruction", to={"parts": []}),
        "ends-with-user": lambda request: None,
    },
}
CASES = [(shape, rule) for shape in SHAPES for rule in VALIDATION_RULES[shape]]


@pytest.mark.parametrize("shape", SHAPES)
def test_good_request_passes(shape: Shape) -> None:
    """A request that keeps every rule has no violation."""
    assert validate(shape, GOOD[shape]) == []


@pytest.mark.parametrize(("shape", "rule"), CASES)
def test_each_rule_refuses(shape: Shape, rule: str) -> None:
    """A request that breaks one rule is refused by it, with the place named."""
    request = copy.deepcopy(GOOD[shape])
    BREAKS[shape][rule](request)
    found = validate(shape, request, sendable=rule == "ends-with-user")
    assert rule in [violation.rule for violation in found]
    assert all(violation.path and violation.problem for violation in found)
    assert {violation.rule for violation in found} <= set(VALIDATION_RULES[shape])


@pytest.mark.parametrize("shape", SHAPES)
def test_no_rule_is_without_a_case(shape: Shape) -> None:
    """The list of rules and the cases above are the same."""
    assert set(BREAKS[shape]) == set(VALIDATION_RULES[shape])


@pytest.mark.parametrize("shape", SHAPES)
@given(data=st.data())
def test_validators_never_raise(shape: Shape, data: st.DataObject) -> None:
    """Whatever stands in a request, a validator answers with violations and not with an exception."""
    request = copy.deepcopy(GOOD[shape])
    place: Any = request
    for _ in range(data.draw(st.integers(0, 5))):
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        if not keys:
            break
        key = data.draw(st.sampled_from(keys))
        if not isinstance(place[key], (dict, list)) or data.draw(st.integers(0, 3)) == 0:
            place[key] = data.draw(json_values(6))
            break
        place = place[key]
    for violation in validate(shape, request, sendable=data.draw(st.booleans())):
        assert violation.rule in VALIDATION_RULES[shape]


def test_unknown_shape_is_refused() -> None:
    """A shape that does not exist is the caller's mistake."""
    with pytest.raises(UsageError, match="one of anthropic"):
        validate("cohere", {})  # type: ignore[arg-type]  # the mistake
