"""Training examples: what counts as the model's work, by session and by turn."""

from __future__ import annotations

import json

import pytest

from turnlog import Session
from turnlog.errors import UsageError
from turnlog.testing.scripts import LogScript
from turnlog.transcripts import training_examples, validate


def test_one_example_per_session() -> None:
    """All messages are in it; answers count, prompts, results and made-up results do not."""
    script = LogScript().turn("x", calls=["c-1"]).start().step().user("y").assistant("z", calls=["c-2"])
    (example,) = training_examples(Session.create("s", seed=script.events, strict=False))
    assert example["session"] == "s"
    assert example["turn"] is None
    assert [message["role"] for message in example["messages"]] == [
        "user",
        "assistant",
        "tool",
        "user",
        "assistant",
        "tool",
    ]
    assert example["mask"] == [0, 1, 0, 0, 1, 0]
    assert [message.get("weight") for message in example["messages"]] == [None, 1, None, None, 1, None]
    json.dumps(example)


def test_one_example_per_turn() -> None:
    """Each turn sees what came before it, and only its own answers count."""
    script = LogScript().turn("one").turn("two", calls=["c"]).start().step().user("three").chunks("Half")
    examples = list(training_examples(script.events, by="turn", session_id="n"))
    assert [(example["turn"], example["mask"]) for example in examples] == [(1, [0, 1]), (2, [0, 0, 0, 1, 0])]
    assert {example["session"] for example in examples} == {"n"}


def test_answers_that_broke_off_do_not_count() -> None:
    """What exists only as chunks is in the messages and not in the mask."""
    script = LogScript().turn("one").start().step().user("two").chunks("Half an answer")
    (example,) = training_examples(script.events)
    assert example["messages"][-1] == {"role": "assistant", "content": "Half an answer", "weight": 0}
    assert example["mask"] == [0, 1, 0, 0]
    (without,) = training_examples(script.events, partial="exclude")
    assert without["mask"] == [0, 1, 0]
    raw = [event.to_dict() for event in LogScript().turn("one").turn("two").events]
    last = next(event for event in reversed(raw) if event["type"] == "assistant/message")
    last["data"]["interrupted"] = True
    (stored,) = training_examples(raw)
    assert stored["mask"] == [0, 1, 0, 0]


def test_tools_and_redaction_come_along() -> None:
    """Tool definitions are part of an example, and secrets are marked as everywhere."""
    script = LogScript().start().step()
    tools = [{"name": "shell", "description": "", "parameters": {"type": "object", "properties": {}}}]
    header = {"config": {"provider": "acme", "model": "a1"}, "tools": tools}
    script.add("request/header", {"header": header, "reason": "initial"})
    script.user("sk-" + "a" * 30).assistant("y")
    (example,) = training_examples(script.events, redact=True)
    assert example["tools"][0]["function"]["name"] == "shell"
    assert example["messages"][0]["content"] == "[redacted:api-key]"
    chat = [{k: v for k, v in message.items() if k != "weight"} for message in example["messages"]]
    assert validate("openai-chat", {"model": "m", "messages": chat, "tools": example["tools"]}) == []


def test_wrong_unit_is_refused() -> None:
    """A unit that does not exist is the caller's mistake."""
    with pytest.raises(UsageError, match="'session' or 'turn'"):
        list(training_examples([], by="step"))  # type: ignore[arg-type]  # the mistake
    assert list(training_examples([])) == []
