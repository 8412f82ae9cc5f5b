"""Exports in detail: what each rule of the report does, whom reasoning goes to, and what fits."""

from __future__ import annotations

import json
from typing import Any

import pytest

from turnlog import Session, derive_messages, interrupted_turn_closers
from turnlog.errors import InvalidEventError, UsageError
from turnlog.testing.scripts import LogScript
from turnlog.transcripts import (
    RULES,
    SHAPES,
    Export,
    Limits,
    Redactor,
    Shape,
    export,
    export_anthropic,
    export_gemini,
    export_messages,
    export_openai_chat,
    export_openai_responses,
    validate,
)
from turnlog.transcripts.request import CONTINUE, CONVERSATION_GOES_ON, EMPTY_CONVERSATION

SIGNED = {
    "type": "reasoning",
    "text": "Hm.",
    "signature": "U0c=",
    "itemId": "rs_1",
    "encryptedContent": "ZW5j",
}
SIGNED |= {"thoughtSignature": "c2ln"}


def user(*content: Any) -> dict[str, Any]:
    """Return a user's message of texts or blocks."""
    blocks = [{"type": "text", "text": part} if isinstance(part, str) else part for part in content]
    return {"role": "user", "content": blocks, "source": {"kind": "user"}, "id": "u"}


def answer(*content: Any, provider: str = "acme", model: str = "a1", **source: Any) -> dict[str, Any]:
    """Return an answer of texts or blocks."""
    blocks = [{"type": "text", "text": part} if isinstance(part, str) else part for part in content]
    made = {"kind": "model", "provider": provider, "model": model, **source}
    return {"role": "assistant", "content": blocks, "source": made, "id": "a"}


def call(call_id: Any = "c", name: Any = "ls", arguments: Any = "{}", **extra: Any) -> dict[str, Any]:
    """Return a tool-call block."""
    return {"type": "tool-call", "id": call_id, "name": name, "arguments": arguments, **extra}


def result(call_id: str = "c", *content: Any, error: bool = False) -> dict[str, Any]:
    """Return a message with a result."""
    blocks = [{"type": "text", "text": part} if isinstance(part, str) else part for part in content]
    block = {"type": "tool-result", "toolCallId": call_id, "content": blocks, "isError": error}
    return {"role": "user", "content": [block], "source": {"kind": "tool", "callId": call_id}, "id": "t"}


def image(**more: Any) -> dict[str, Any]:
    """Return an image block."""
    attachment = {"attachmentId": "sha256:i", "mediaType": "image/png", "bytes": 4, "width": 2, "height": 2}
    return {"type": "image", "attachment": attachment | more}


def made(messages: list[dict[str, Any]], shape: Shape = "anthropic", **options: Any) -> Export:
    """Export messages and hold the request to its rules."""
    exported = export_messages(messages, shape, **options)
    assert validate(shape, exported.request, sendable=options.get("sendable", False)) == []
    return exported


def rules(exported: Export) -> list[str]:
    """Return the rules of a report, in order."""
    return [change.rule for change in exported.report]


IMAGES = {"sha256:i": b"\x89PNG"}
PRODUCERS: dict[str, tuple[list[dict[str, Any]], Shape, dict[str, Any]]] = {
    "arguments-empty": ([user("x"), answer(call(arguments=""))], "anthropic", {}),
    "arguments-wrapped": ([user("x"), answer(call(arguments="[1]"))], "anthropic", {}),
    "blank-text": ([user("x", " ")], "anthropic", {}),
    "call-id-changed": ([user("x"), answer(call("a b"))], "anthropic", {}),
    "config-left-out": ([user("x")], "anthropic", {"header": {"config": {"temperature": 1}}}),
    "conversation-empty": ([], "anthropic", {}),
    "duplicate-result": ([user("x"), answer(call()), result(), result()], "anthropic", {}),
    "empty-message": ([user("")], "anthropic", {}),
    "error-flag": ([user("x"), answer(call()), result("c", "no", error=True)], "openai-chat", {}),
    "first-not-user": ([answer("hi")], "anthropic", {}),
    "image-left-out": ([user("x", image())], "anthropic", {}),
    "image-moved": ([user("x"), answer(call()), result("c", image())], "openai-chat", {"images": IMAGES}),
    "lone-surrogate": ([user("a\ud83d")], "anthropic", {}),
    "max-tokens-added": ([user("x")], "anthropic", {}),
    "merged": ([user("x"), user("y")], "anthropic", {}),
    "model-unknown": ([user("x")], "anthropic", {}),
    "orphan-result": ([user("x"), result()], "anthropic", {}),
    "over-limit": ([user("x" * 500)], "anthropic", {"limits": Limits(max_bytes=100)}),
    "partial-answer": ([user("x"), answer("hal", interrupted=True)], "anthropic", {}),
    "reasoning-left-out": ([user("x"), answer(SIGNED, "y")], "openai-chat", {}),
    "redacted": ([user("key sk-ant-" + "a" * 30)], "anthropic", {"redact": True}),
    "replay-left-out": (
        [user("x"), answer(call(thoughtSignature="c2ln"), provider="google", model="gemini-2"), result()],
        "gemini",
        {"target_provider": "google", "target_model": "gemini-9"},
    ),
    "result-empty": ([user("x"), answer(call()), result()], "anthropic", {}),
    "result-made-up": ([user("x"), answer(call())], "anthropic", {}),
    "result-moved": ([user("x"), answer(call()), user("y"), result("c", "1")], "anthropic", {}),
    "role-changed": ([user("x") | {"role": "system"}], "anthropic", {}),
    "signature-placeholder": (
        [user("x"), answer(call()), result("c", "1")],
        "gemini",
        {"target_provider": "google", "target_model": "gemini-3-pro"},
    ),
    "text-cut": ([user("x" * 500)], "anthropic", {"limits": Limits(max_text=100)}),
    "tool-left-out": ([user("x")], "anthropic", {"header": {"tools": [{"name": ""}]}}),
    "tool-name-changed": ([user("x"), answer(call(name="a b"))], "anthropic", {}),
    "tool-schema-changed": ([user("x")], "anthropic", {"header": {"tools": [{"name": "a"}]}}),
    "tools-added": ([user("x"), answer(call()), result("c", "1")], "anthropic", {}),
    "trailing-space": ([user("x"), answer("y ")], "anthropic", {}),
    "unknown-block": ([user("x", {"type": "hologram"})], "anthropic", {}),
    "user-turn-appended": ([user("x"), answer("y")], "anthropic", {"sendable": True}),
}


@pytest.mark.parametrize("rule", PRODUCERS)
def test_each_rule_is_reported(rule: str) -> None:
    """A conversation that needs a rule gets it, and the report says so with its reason."""
    messages, shape, options = PRODUCERS[rule]
    exported = export_messages(messages, shape, **options)
    change = next(change for change in exported.report if change.rule == rule)
    assert (change.action, change.reason) == RULES[rule]
    assert change.to_dict()["rule"] == rule


def test_every_rule_has_a_producer() -> None:
    """No rule of the report is without a conversation that needs it."""
    assert set(PRODUCERS) | {"pending-approval"} == set(RULES)


def test_ordinary_conversation_is_not_reported() -> None:
    """A log in order, exported to the provider it was made with, differs in nothing."""
    script = LogScript().start().step()
    config = {"provider": "acme", "model": "a1", "maxTokens": 16}
    schema = {"type": "object", "properties": {}}
    tools = [{"name": "shell", "description": "Run it.", "parameters": schema}]
    header = {"config": config, "system": "S", "tools": tools}
    script.add("request/header", {"header": header, "reason": "initial"})
    script.user("x").assistant("y", calls=["c-1"]).call("c-1").result("c-1").assistant("z").end_step().end()
    for shape in SHAPES:
        exported = export(script.events, shape)
        assert exported.report == (), shape
        assert "S" in json.dumps(exported.request)
        assert "Run it." in json.dumps(exported.request)


def test_system_tools_and_settings_come_from_the_header_in_force() -> None:
    """The latest request header gives model, ceiling, prompt and tools; a caller's header comes before it."""
    script = LogScript().start().step()
    for model in ("old", "new"):
        header = {"config": {"provider": "acme", "model": model, "maxTokens": 50}, "system": f"Be {model}."}
        script.add("request/header", {"header": header, "reason": "initial"})
    script.user("x")
    assert export_anthropic(script.events).request | {"messages": []} == {
        "model": "new",
        "max_tokens": 50,
        "system": "Be new.",
        "messages": [],
    }
    assert export_openai_chat(script.events).messages[0] == {"role": "system", "content": "Be new."}
    assert export_openai_responses(script.events).request["instructions"] == "Be new."
    assert export_gemini(script.events).request["systemInstruction"] == {"parts": [{"text": "Be new."}]}
    given = {"config": {"provider": "p", "model": "mine"}}
    request = export_anthropic(script.events, header=given).request
    assert request["model"] == "mine"
    assert "system" not in request


def test_sources_give_the_same() -> None:
    """A session, its log, its events and their dictionaries are one and the same to an export."""
    session = Session.create("s", seed=LogScript().turn(calls=["c"]).events)
    first = export(session, "gemini")
    assert export(session.log, "gemini") == first
    assert export(session.events, "gemini") == first
    assert export([event.to_dict() for event in session.events], "gemini") == first


def test_export_of_messages_agrees_with_that_of_the_log() -> None:
    """Messages that were derived already are exported as the log is, but for seqs and the header."""
    events = LogScript().turn(calls=["c-1"]).turn("And?").events
    for shape in SHAPES:
        assert export_messages(derive_messages(events), shape).messages == export(events, shape).messages


def test_closers_are_made_in_memory() -> None:
    """An interrupted log exports as the repaired one would, and says what was made up."""
    script = LogScript().start().step().user("x").assistant("y", calls=["c-1", "c-2"]).call("c-1")
    closed = [*script.events, *interrupted_turn_closers(script.events)]
    for shape in SHAPES:
        open_export, closed_export = export(script.events, shape), export(closed, shape)
        assert open_export.messages == closed_export.messages
        assert rules(open_export).count("result-made-up") == 2
        assert "result-made-up" not in rules(closed_export), "in the log they are events like others"


def test_pending_approval_is_reported() -> None:
    """A call that waits for an approval is answered as not run, and the report says why."""
    script = LogScript().start().step().user("x").assistant("y", calls=["c-1"])
    script.add("approval/asked", {"id": "ap", "toolName": "shell", "callId": "c-1"})
    exported = export(script.events, "anthropic")
    assert "pending-approval" in rules(exported)
    script.add("approval/decided", {"id": "ap", "outcome": "rejected"})
    assert "pending-approval" not in rules(export(script.events, "anthropic"))


# -- reasoning ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        ("anthropic", {"type": "thinking", "thinking": "Hm.", "signature": "U0c="}),
        ("gemini", {"text": "Hm.", "thought": True, "thoughtSignature": "c2ln"}),
        (
            "openai-responses",
            {
                "type": "reasoning",
                "id": "rs_1",
                "summary": [{"type": "summary_text", "text": "Hm."}],
                "encrypted_content": "ZW5j",
            },
        ),
    ],
)
def test_reasoning_goes_back_to_its_maker(shape: Shape, expected: dict[str, Any]) -> None:
    """The same provider and model family gets its reasoning back, whatever the date of release."""
    messages = [user("x"), answer(SIGNED, "y", model="a1-20250101")]
    kept = made(messages, shape, target_provider="acme", target_model="a1-2026-05-05")
    assert json.dumps(expected) in json.dumps(kept.messages)
    for options in (
        {"target_provider": "other", "target_model": "a1"},
        {"target_provider": "acme", "target_model": "a2"},
        {"reasoning": "drop"},
    ):
        dropped = made(messages, shape, **options)
        assert "Hm." not in json.dumps(dropped.messages)
        assert "reasoning-left-out" in rules(dropped)


@pytest.mark.parametrize(
    "blocks",
    [
        [SIGNED, {"type": "reasoning", "text": "unsigned"}, {"type": "text", "text": "y"}],
        [{"type": "text", "text": "y"}, SIGNED],
        [{**SIGNED, "text": "half \ud83d"}, {"type": "text", "text": "y"}],
    ],
    ids=["one-unsigned", "nothing-follows", "half-a-character"],
)
@pytest.mark.parametrize("shape", ["anthropic", "openai-responses", "gemini"])
def test_reasoning_is_kept_whole_or_not_at_all(shape: Shape, blocks: list[Any]) -> None:
    """Where a part of an answer's reasoning cannot be kept, all of it is left out."""
    exported = made([user("x"), answer(*blocks)], shape)
    assert "Hm." not in json.dumps(exported.messages)
    assert rules(exported).count("reasoning-left-out") == 1


def test_replay_state_says_the_same_as_block_fields() -> None:
    """What an adapter keeps in the replay state counts, in turnlog's spelling and in the provider's own."""
    plain = {"type": "reasoning", "text": "Hm."}
    entries: list[dict[str, Any]] = [
        {"signature": "U0c="},
        {"type": "thinking", "thinking": "Hm.", "signature": "U0c="},
    ]
    for entry in entries:
        state = {"response": {}, "blocks": [entry, None]}
        exported = made([user("x"), answer(plain, "y", replayState=state)])
        assert exported.messages[1]["content"][0]["signature"] == "U0c="
    item = {"type": "reasoning", "id": "rs_9", "summary": [], "encrypted_content": "ZW5j"}
    state = {"response": {}, "blocks": [item, {"type": "message", "id": "msg_9"}]}
    items = made([user("x"), answer(plain, "y", replayState=state)], "openai-responses").messages
    assert [entry.get("id") for entry in items] == [None, "rs_9", "msg_9"]
    odd = {"response": {}, "blocks": [{"signature": "U0c="}]}
    assert "reasoning-left-out" in rules(made([user("x"), answer(plain, "y", replayState=odd)]))


def test_redaction_never_edits_signed_reasoning() -> None:
    """Reasoning with a secret is left out whole, not sent with a signature that does not fit it."""
    secret = "sk-ant-" + "a" * 30
    blocks = [{**SIGNED, "text": f"use {secret}"}, f"I use {secret}"]
    exported = made([user("x"), answer(*blocks)], redact=True)
    assert secret not in json.dumps(exported.request)
    assert [block["type"] for block in exported.messages[1]["content"]] == ["text"]
    untouched = made([user("x"), answer(SIGNED, "y")], redact=True)
    assert untouched.messages[1]["content"][0]["signature"] == "U0c="


def test_target_is_found_in_the_log() -> None:
    """Without a named target, the export is for the newest provider that may speak the shape."""
    messages = [
        user("x"),
        answer({**SIGNED, "text": "claude"}, "1", provider="anthropic", model="claude-opus-5-5"),
        user("y"),
        answer({**SIGNED, "text": "gemini"}, "2", provider="google", model="gemini-2.5-pro"),
    ]
    anthropic = made(messages)
    assert anthropic.request["model"] == "claude-opus-5-5"
    assert "claude" in json.dumps(anthropic.messages)
    assert "gemini" not in json.dumps(anthropic.messages)
    gemini = made(messages, "gemini")
    assert gemini.request["model"] == "gemini-2.5-pro"
    assert made(messages, "openai-chat").request["model"] == "unknown-model"


def test_deepseek_gets_its_reasoning_as_text() -> None:
    """A provider that wants the reasoning of an answer back as a field of its own gets it there."""
    exported = made([user("x"), answer(SIGNED, "y", provider="deepseek", model="r")], "openai-chat")
    assert exported.messages[1] == {"role": "assistant", "content": "y", "reasoning_content": "Hm."}


# -- calls and results ----------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES)
def test_arguments_become_an_object(shape: Shape) -> None:
    """Text that is no object is kept under one key; an object stays the text that the model wrote."""
    exported = made(
        [user("x"), answer(call("a", arguments="{oops"), call("b", arguments='{ "k" : 1 }'))], shape
    )
    text = json.dumps(exported.messages)
    assert "raw_arguments" in text
    assert "{oops" in text
    if shape.startswith("openai"):
        assert json.dumps('{ "k" : 1 }') in text


def test_repeated_and_illegal_ids_become_different_ones() -> None:
    """Calls with one id, in one answer or two, get their own results and an id each, always the same."""
    messages = [
        user("x"),
        answer(call("c"), call("c"), call("a b"), call("ü" * 99)),
        result("c", "first"),
        result("c", "second"),
        result("a b", "third"),
        user("y"),
        answer(call("c")),
        result("c", "fourth"),
    ]
    for shape in SHAPES:
        exported = made(messages, shape)
        assert exported == made(messages, shape)
        text = json.dumps(exported.messages)
        assert [text.index(word) for word in ("first", "second", "third", "fourth")] == sorted(
            text.index(word) for word in ("first", "second", "third", "fourth")
        )


def test_secret_in_an_id_is_hidden_and_pairs_stay() -> None:
    """An id or a tool name that holds a secret is replaced, for call and result alike."""
    secret = "sk-ant-" + "a" * 30
    messages = [user("x"), answer(call(secret, name=secret)), result(secret, "ok")]
    for shape in SHAPES:
        exported = made(messages, shape, redact=True)
        assert secret not in json.dumps(exported.request)
        assert secret not in json.dumps([change.to_dict() for change in exported.report])
        assert "ok" in json.dumps(exported.messages)


def test_tool_names_agree_between_history_and_definitions() -> None:
    """A name that had to change is the same in the call and in the definition; two tools stay two."""
    schema = {"type": "object"}
    tools = [{"name": name, "parameters": schema} for name in ("a b", "a_b", "a.b")]
    header = {"config": {"provider": "p", "model": "m"}, "tools": tools}
    exported = made([user("x"), answer(call(name="a b")), result("c", "1")], header=header)
    names = [tool["name"] for tool in exported.request["tools"]]
    assert len(set(names)) == 3
    assert exported.messages[1]["content"][0]["name"] == names[0]


# -- content and limits ---------------------------------------------------------------------------


@pytest.mark.parametrize("shape", SHAPES)
def test_images_are_sent_or_named(shape: Shape) -> None:
    """An image with bytes is sent; without them, or beyond a limit, a text stands in its place."""
    messages = [user("see", image(name="shot.png")), answer(call()), result("c", "a", image())]
    sent = made(messages, shape, images=IMAGES)
    assert json.dumps(sent.request).count("iVBORw==") == 2 or json.dumps(sent.request).count("iVBORw") == 2
    for options in (
        {},
        {"images": IMAGES, "limits": Limits(max_image_bytes=3)},
        {"images": IMAGES, "limits": Limits(max_image_side=1)},
        {"images": lambda attachment_id: None},
    ):
        left_out = made(messages, shape, **options)
        text = json.dumps(left_out.request, ensure_ascii=False)
        assert "[image shot.png, 2 × 2 pixels: left out" in text
        assert rules(left_out).count("image-left-out") == 2


def test_many_images_have_a_stricter_bound_at_anthropic() -> None:
    """Beyond twenty images a request takes none with more than 2000 pixels a side."""
    big = image(width=3000)
    assert "image-left-out" not in rules(made([user("x", *[big] * 20)], images=IMAGES))
    assert json.dumps(made([user("x", *[big] * 21)], images=IMAGES).messages).count("left out, 3000") == 21


def test_newest_images_are_kept() -> None:
    """Of more images than may be sent the last ones are."""
    messages = [user("a", image(name="old.png")), answer("b"), user("c", image(name="new.png"))]
    exported = made(messages, images=IMAGES, limits=Limits(max_images=1))
    text = json.dumps(exported.messages, ensure_ascii=False)
    assert "[image old.png" in text
    assert "[image new.png" not in text


@pytest.mark.parametrize("shape", SHAPES)
def test_request_is_made_to_fit(shape: Shape) -> None:
    """Over the limit of bytes, the oldest results give way first and every pair stays."""
    messages = [user("x")]
    for number in range(5):
        messages += [answer(call(f"c{number}")), result(f"c{number}", f"{number}" * 20_000)]
    exported = made(messages, shape, limits=Limits(max_bytes=70_000))
    assert len(json.dumps(exported.request)) <= 70_000
    text = json.dumps(exported.messages)
    assert "4" * 20_000 in text
    assert "0" * 20_000 not in text
    assert "20,000 characters in all" in text
    assert "over-limit" not in rules(exported)


def test_images_give_way_before_texts() -> None:
    """Over the limit of bytes, images go before any text is cut."""
    messages = [user("see", image()), answer(call()), result("c", "r" * 5000)]
    exported = made(messages, images={"sha256:i": b"x" * 9000}, limits=Limits(max_bytes=8000))
    assert "r" * 5000 in json.dumps(exported.messages)
    assert "too big" in json.dumps(exported.messages)


def test_added_messages_have_documented_texts() -> None:
    """What an export adds says what it is."""
    assert made([]).messages == [{"role": "user", "content": [{"type": "text", "text": EMPTY_CONVERSATION}]}]
    assert made([answer("hi")]).messages[0]["content"][0]["text"] == CONVERSATION_GOES_ON
    for shape in SHAPES:
        assert CONTINUE in json.dumps(made([user("x"), answer("y")], shape, sendable=True).messages[-1])


def test_wrong_options_are_refused() -> None:
    """Values that an option does not have are the caller's mistake, as are events that are no log."""
    events = LogScript().turn().events
    with pytest.raises(UsageError, match="no shape"):
        export(events, "cohere")  # type: ignore[arg-type]  # the mistake
    with pytest.raises(UsageError, match="'keep' or 'drop'"):
        export(events, "gemini", reasoning="maybe")  # type: ignore[arg-type]  # the mistake
    with pytest.raises(UsageError, match="regular expression"):
        export(events, "gemini", redact=Redactor(["("]))
    broken = [event.to_dict() for event in events]
    broken[2]["surfaceOp"] = {"op": "replace", "start": 99, "end": 99}
    with pytest.raises(InvalidEventError):
        export(broken, "gemini")
