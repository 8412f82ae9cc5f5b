"""Chunks joined into blocks."""

from __future__ import annotations

from typing import Any

import pytest

from turnlog.errors import UsageError
from turnlog.session.assembly import assemble_answer, assemble_interrupted


def _delta(kind: str, index: int, value: str) -> dict[str, Any]:
    return {"type": f"{kind}-delta", "index": index, "text": value}


def _call(index: int, arguments: str, **more: Any) -> dict[str, Any]:
    return {"type": "tool-call-delta", "index": index, "id": "", "argumentsDelta": arguments, **more}


def _start(index: int, kind: str) -> dict[str, Any]:
    return {"type": "block-start", "index": index, "blockType": kind}


def _end(index: int, block: Any) -> dict[str, Any]:
    return {"type": "block-end", "index": index, "block": block}


def _finish(kind: str, **more: Any) -> dict[str, Any]:
    return {"type": "finish", "reason": {"kind": kind}, **more}


def test_blocks_stand_in_the_order_they_were_first_seen() -> None:
    """SE2: not in the order of their indexes; deltas alone make a block."""
    chunks = [_delta("text", 5, "a"), _delta("reasoning", 2, "b"), _delta("text", 5, "c")]
    answer = assemble_answer(chunks)
    assert answer.content == [{"type": "text", "text": "ac"}, {"type": "reasoning", "text": "b"}]
    assert (answer.finish, answer.usage, answer.replay_state) == ({"kind": "stop"}, None, None)


def test_a_closed_block_is_authoritative_and_closes_once() -> None:
    """SE2: the first `block-end` wins; later deltas and ends of the index change nothing."""
    block = {"type": "text", "text": "final"}
    chunks = [_start(0, "text"), _delta("text", 0, "draft"), _end(0, block)]
    chunks += [_delta("text", 0, "late"), _end(0, {"type": "text", "text": "later"})]
    assert assemble_answer(chunks).content == [block]
    image = {"type": "image", "attachment": {}}
    assert assemble_answer([_end(3, image)]).content == [image]


def test_calls_are_filled_up() -> None:
    """SE2: a missing id is made from the index, the last non-empty name wins, arguments are joined."""
    chunks = [_call(1, '{"a"', name="first"), _call(1, ":1}", name=""), _call(1, "", name="second")]
    assert assemble_answer(chunks).content == [
        {"type": "tool-call", "id": "call-1", "name": "second", "arguments": '{"a":1}'}
    ]
    assert assemble_answer([_call(0, "{}", id="c")]).content[0]["id"] == "c"


def test_an_open_block_of_another_type_cannot_be_assembled() -> None:
    """SE2: only a `block-end` can give such a block; an interrupted stream leaves it out."""
    chunks = [_start(0, "image"), _delta("text", 1, "x")]
    with pytest.raises(UsageError, match="image"):
        assemble_answer(chunks)
    assert assemble_interrupted(chunks) == [{"type": "text", "text": "x"}]


def test_a_cut_answer_drops_its_calls() -> None:
    """SE3: with `max-tokens` no call is kept, nor its entry of the replay state."""
    chunks = [_delta("text", 0, "x"), _call(1, "{"), _delta("text", 2, "y")]
    finish = _finish("max-tokens", replayState={"response": "r", "blocks": ["b0", "b1", "b2"]})
    answer = assemble_answer([*chunks, {"type": "usage", "usage": {"inputTokens": 1}}, finish])
    assert [block["text"] for block in answer.content] == ["x", "y"]
    assert answer.replay_state == {"response": "r", "blocks": ["b0", "b2"]}
    assert (answer.finish, answer.usage) == ({"kind": "max-tokens"}, {"inputTokens": 1})
    without = assemble_answer([*chunks, _finish("max-tokens", replayState={"response": "r"})])
    assert without.replay_state == {"response": "r"}


def test_a_replay_state_that_does_not_fit_is_dropped() -> None:
    """SE2: as many entries as blocks, or none of it."""
    chunk = _delta("text", 0, "x")
    assert assemble_answer([chunk, _finish("stop", replayState={"blocks": []})]).replay_state is None
    kept = {"response": "r", "blocks": ["b"]}
    assert assemble_answer([chunk, _finish("stop", replayState=kept)]).replay_state == kept
    assert assemble_answer([chunk, _finish("stop", replayState=7)]).replay_state is None
    assert assemble_answer([chunk, {"type": "finish"}]).finish == {"kind": "stop"}


def test_of_an_interrupted_stream_text_that_is_not_blank_is_kept() -> None:
    """R1: blank text, calls and other blocks are left out; a closed block counts as it was closed."""
    chunks = [
        _delta("text", 0, " \n"),
        _delta("reasoning", 1, "why"),
        _call(2, "{"),
        _end(3, {"type": "text", "text": "closed"}),
        _end(4, {"type": "image"}),
        _end(5, {"type": "text", "text": 7}),
    ]
    assert assemble_interrupted(chunks) == [
        {"type": "reasoning", "text": "why"},
        {"type": "text", "text": "closed"},
    ]


def test_chunks_that_are_none_are_passed_over() -> None:
    """L2: malformed chunks in a log do not keep it from being read."""
    odd: list[dict[str, Any]] = [
        {},
        {"type": "text-delta", "text": "x"},
        {"type": "text-delta", "index": 0},
        {"type": "block-end", "index": 1, "block": 7},
        {"type": "other", "index": 2},
    ]
    assert assemble_answer(odd).content == [{"type": "text", "text": ""}]
    assert assemble_interrupted(odd) == []
