"""Redaction: what is found, what is left alone, and that no text makes it slow."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given

from turnlog.errors import UsageError
from turnlog.testing.json_strategies import json_values, texts
from turnlog.transcripts import Redactor, redacted_message


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("sk-proj-" + "a" * 20, "[redacted:api-key]"),
        ("use sk_live_" + "1" * 24 + " now", "use [redacted:api-key] now"),
        ("AIza" + "x" * 35, "[redacted:api-key]"),
        ("github_pat_" + "1" * 22, "[redacted:token]"),
        ("glpat-" + "z" * 20, "[redacted:token]"),
        ("ASIA" + "Q" * 16, "[redacted:access-key]"),
        ("eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0xx.c2ln", "[redacted:token]"),
        ("authorization: bearer abcdefghij", "authorization: bearer [redacted:authorization]"),
        ("postgres://me:secret@host/db", "postgres://me:[redacted:password]@host/db"),
        ("export API_KEY='abcdef123'", "export API_KEY='[redacted:password]'"),
        ('{"password": "abcdef123"}', '{"password": "[redacted:password]"}'),
        ('{\\"client_secret\\": \\"abcdef123\\"}', '{\\"client_secret\\": \\"[redacted:password]\\"}'),
        ("cat /home/alice/.ssh/id and /Users/bob", "cat ~/.ssh/id and ~"),
        ("C:" + "\\Users" + "\\alice\\x", "~\\x"),
        ("-----BEGIN RSA PRIVATE KEY-----\nQUJD", "[redacted:private-key]"),
    ],
)
def test_secrets_are_marked(said: str, shown: str) -> None:
    """Each kind of secret is marked in its place, and what names it stays."""
    redactor = Redactor()
    assert redactor.changes(said)
    assert redactor.text(said) == shown
    assert redactor.text(shown) == shown, "marking twice changes nothing"
    assert sum(redactor.found.values()) >= 1


@pytest.mark.parametrize(
    "said",
    [
        "the token count is 12",
        "max_tokens: 4096",
        "password reset",
        "risk-free and task-based",
        "sha256:" + "a" * 64,
        "https://example.invalid/a@b",
        "/home",
        "secretary: Smith",
        '{"inputTokens": 123456, "outputTokens": 1}',
    ],
)
def test_ordinary_text_stays(said: str) -> None:
    """Text that only looks like a secret is left as it is."""
    assert Redactor().text(said) == said
    assert not Redactor().changes(said)


def test_values_are_searched_whole() -> None:
    """Texts, keys and values under telling keys are marked; numbers, signatures and counts are not."""
    key = "sk-" + "a" * 30
    value = {
        "password": "x",
        "tokens": 3,
        "max_tokens": "4096",
        key: [key, {"deep": key}],
        "signature": key,
        "n": 1.5,
    }
    assert Redactor().value(value) == {
        "password": "[redacted:password]",
        "tokens": 3,
        "max_tokens": "4096",
        "[redacted:api-key]": ["[redacted:api-key]", {"deep": "[redacted:api-key]"}],
        "signature": key,
        "n": 1.5,
    }


def test_custom_patterns_and_switches() -> None:
    """Patterns of the caller come first and work alone; defaults and home folders can be turned off."""
    assert Redactor(["ACME-\\d+"]).text("ticket ACME-12") == "ticket [redacted:custom]"
    assert Redactor(["ACME-(\\d+)"]).text("ACME-12") == "[redacted:custom]"
    bare = Redactor(["x+"], defaults=False, home=False)
    assert bare.text("xx /home/alice sk-" + "a" * 30) == "[redacted:custom] /home/alice sk-" + "a" * 30
    assert bare.found == {"custom": 1}
    for pattern in ("(", "a*"):
        with pytest.raises(UsageError):
            Redactor([pattern])


def test_ids_stay_different() -> None:
    """Two ids that hold secrets become two other ids, the same each time."""
    redactor = Redactor()
    first, second = "sk-" + "a" * 30, "sk-" + "b" * 30
    assert redactor.identity("plain") == "plain"
    assert redactor.identity(first) == redactor.identity(first) != redactor.identity(second)


def test_message_keeps_signatures_only_where_they_fit() -> None:
    """Reasoning without a secret keeps its signature; with one it loses it, and the replay state goes."""
    key = "sk-" + "a" * 30
    clean = {"type": "reasoning", "text": "hm", "signature": "U0c="}
    state = {"response": {"id": "x"}, "blocks": [{"signature": "U0c="}]}
    message: dict[str, Any] = {"content": [clean], "source": {"kind": "model", "replayState": state}}
    assert redacted_message(message, Redactor()) == message
    dirty = {**message, "content": [{**clean, "text": f"use {key}"}]}
    marked = redacted_message(dirty, Redactor())
    assert marked == {
        "content": [{"type": "reasoning", "text": "use [redacted:api-key]"}],
        "source": {"kind": "model"},
    }
    copied = {**message, "source": {"kind": "model", "replayState": {"response": {"text": key}}}}
    assert redacted_message(copied, Redactor())["source"] == {"kind": "model"}


@pytest.mark.parametrize(
    "unit", ["a", "a-", "A_", "password", "token=", "://", "eyJaaaaaaaa.", "/home/", "\\"]
)
def test_no_text_makes_a_search_slow(unit: str) -> None:
    """Long texts made of what the patterns begin with are searched all the same; this test ends."""
    redactor = Redactor()
    assert redactor.text(unit * 60_000) == redactor.text(redactor.text(unit * 60_000))


@given(value=json_values(8))
def test_any_value_can_be_redacted(value: Any) -> None:
    """Whatever JSON holds, redaction gives JSON of the same form."""
    marked = Redactor().value(value)
    assert type(marked) is type(value)
    json.dumps(marked)


@given(said=texts(40))
def test_text_without_secrets_is_the_same(said: str) -> None:
    """`changes` and `text` agree."""
    redactor = Redactor()
    assert redactor.changes(said) == (redactor.text(said) != said)
