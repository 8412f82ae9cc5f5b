"""Ids, names, arguments and characters that every provider can read."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnlog.testing.json_strategies import json_values, texts
from turnlog.transcripts import SHAPES, Shape
from turnlog.transcripts.ids import LEGAL, CallIds, ToolNames
from turnlog.transcripts.replay import Target, family, find_target, may_speak
from turnlog.transcripts.wire_text import (
    MAX_ARGUMENT_DEPTH,
    arguments_text,
    cut_middle,
    parse_arguments,
    whole_characters,
    whole_value,
)


@pytest.mark.parametrize("shape", SHAPES)
@given(ids=st.lists(st.one_of(texts(), st.sampled_from(["c", "c 1", "", "c"]))))
def test_call_ids_are_legal_and_different(shape: Shape, ids: list[str]) -> None:
    """Each call gets a legal id of its own, and the first ones do not depend on the rest."""
    legal = LEGAL[shape].call_id
    taken = CallIds(legal, str)
    given_out = [taken.take(call_id) for call_id in ids]
    assert all(legal.fullmatch(call_id) for call_id in given_out)
    assert len(set(given_out)) == len(ids)
    again = CallIds(legal, str)
    assert [again.take(call_id) for call_id in ids[: len(ids) // 2]] == given_out[: len(ids) // 2]


@pytest.mark.parametrize("shape", SHAPES)
@given(names=st.lists(st.one_of(texts(), st.sampled_from(["read file", "read_file", "", "9", "x" * 70]))))
def test_tool_names_are_legal_and_different(shape: Shape, names: list[str]) -> None:
    """Two tools never share a name, and a tool always has the same."""
    legal = LEGAL[shape].name
    map_ = ToolNames(legal, str)
    found = {name: map_.of(name) for name in names}
    assert all(legal.fullmatch(name) for name in found.values())
    assert len(set(found.values())) == len(found)
    assert {name: map_.of(name) for name in names} == found


def test_legal_ids_and_names_stay() -> None:
    """What is legal is passed on as it is."""
    for shape in SHAPES:
        assert CallIds(LEGAL[shape].call_id, str).take("toolu_01A-b") == "toolu_01A-b"
        assert ToolNames(LEGAL[shape].name, str).of("read_file") == "read_file"


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        ('{"a": 1}', {"a": 1}),
        (' {"a": [1.5, null, true]} ', {"a": [1.5, None, True]}),
        ('{"n": 123456789012345678901234567890}', {"n": 123456789012345678901234567890}),
        ("", None),
        ("[1]", None),
        ("null", None),
        ('"x"', None),
        ('{"a": NaN}', None),
        ('{"a": 1e999}', None),
        ("{'a': 1}", None),
        ('{"a": 1', None),
        ('{"a":' * 5000 + "1" + "}" * 5000, None),
        ('{"a":' * MAX_ARGUMENT_DEPTH + "1" + "}" * MAX_ARGUMENT_DEPTH, "deepest"),
        ('{"a":' * (MAX_ARGUMENT_DEPTH + 1) + "1" + "}" * (MAX_ARGUMENT_DEPTH + 1), None),
    ],
)
def test_arguments_are_an_object_or_nothing(raw: str, value: Any) -> None:
    """Only the text of a JSON object of bounded depth is taken for arguments; integers keep every digit."""
    found = parse_arguments(raw)
    assert found is not None if value == "deepest" else found == value
    if found is not None:
        assert parse_arguments(arguments_text(found)) == found


@given(said=texts())
def test_characters_are_whole(said: str) -> None:
    """Every text can be written as UTF-8 afterwards, and one that could be before is the same."""
    whole = whole_characters(said)
    whole.encode()
    try:
        said.encode()
    except UnicodeEncodeError:
        assert "\ufffd" in whole or any(ord(character) > 0xFFFF for character in whole)
    else:
        assert whole == said


def test_halves_that_belong_together_are_joined() -> None:
    """A pair that was split by deltas is one character again; a lone half is marked."""
    assert whole_characters("\ud83d\ude00") == "😀"
    assert whole_characters("a\ud83db") == "a\ufffdb"
    assert whole_value({"\ud83d": ["\ude00", "\\ud83d"]}) == ({"\ufffd": ["\ufffd", "\\ud83d"]}, True)
    assert whole_value({"é": 1})[0] == {"é": 1}


@given(value=json_values(8))
def test_values_are_whole(value: Any) -> None:
    """Any value can be written as UTF-8 afterwards, and means the same unless something was replaced."""
    whole, replaced = whole_value(value)
    json.dumps(whole, ensure_ascii=False).encode()
    assert replaced or whole == value


@given(said=st.text(max_size=400), limit=st.integers(80, 300))
def test_cut_texts_fit_and_keep_both_ends(said: str, limit: int) -> None:
    """A cut text is not longer than the limit, begins and ends as before, and says how long it was."""
    cut = cut_middle(said, limit)
    assert len(cut) <= limit
    if len(said) > limit:
        assert f"{len(said):,} characters in all" in cut
        assert cut[0] == said[0] or cut.startswith("\n[")
    else:
        assert cut == said


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("claude-opus-4-5-20251101", "claude-opus-4-5"),
        ("anthropic/claude-opus-4-5", "claude-opus-4-5"),
        ("us.anthropic.claude-opus-4-5-20251101-v1:0", "claude-opus-4-5"),
        ("gpt-5-2025-08-07", "gpt-5"),
        ("gemini-3-pro-preview", "gemini-3-pro"),
        ("models/gemini-2.5-flash-latest", "gemini-2.5-flash"),
        ("claude-3-5-sonnet@20240620", "claude-3-5-sonnet"),
        ("llama:70b", "llama"),
        ("a1", "a1"),
    ],
)
def test_family_of_a_model(model: str, name: str) -> None:
    """The family is the name without path, date and release suffix."""
    assert family(model) == name


def test_target_needs_provider_and_model() -> None:
    """Nothing counts as made by a target of which one half is unknown."""
    source = {"provider": "acme", "model": "a1"}
    assert Target("ACME", "a1-latest").made(source)
    assert not Target("acme", None).made(source)
    assert not Target(None, "a1").made(source)
    assert not Target("acme", "a1").made({"provider": 1, "model": "a1"})
    assert not Target("acme", "a1").made({})


def test_target_is_the_first_that_may_speak_the_shape() -> None:
    """Well-known providers speak known shapes; others may speak any, and the caller's word comes first."""
    candidates: list[dict[str, Any]] = [
        {"provider": 7, "model": "x"},
        {"provider": "google-vertex", "model": "gemini-2"},
        {"provider": "openai", "model": "gpt-5"},
        {"provider": "acme", "model": "a1"},
    ]
    assert find_target("openai-chat", candidates, None, None) == Target("openai", "gpt-5")
    assert find_target("gemini", candidates, None, None) == Target("google-vertex", "gemini-2")
    assert find_target("gemini", candidates, "acme", None) == Target("acme", "a1")
    assert find_target("gemini", candidates, "other", None) == Target("other", None)
    assert find_target("gemini", candidates, "x", "y") == Target("x", "y")
    assert find_target("openai-chat", candidates, None, "gpt-9") == Target("openai", "gpt-9")
    assert may_speak("acme", "gemini")
    assert not may_speak("anthropic", "gemini")
