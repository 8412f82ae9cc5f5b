"""The envelope and the payload shapes that the log depends on."""

from __future__ import annotations

from typing import Any

import pytest

from turnlog.errors import InvalidEventError
from turnlog.events.envelope import check_envelope, check_shape
from turnlog.events.shapes import expand_sources

GOOD: dict[str, Any] = {"type": "turn/start", "seq": 0, "time": 1, "data": None}

ENVELOPES = [
    ({"extra": 1}, "extra"),
    ({"type": 3}, "type"),
    ({"seq": -1}, "seq"),
    ({"seq": True}, "seq"),
    ({"seq": 2**53}, "seq"),
    ({"seq": "0"}, "seq"),
    ({"time": 1.5}, "time"),
    ({"time": None}, "time"),
    ({"ignorable": False}, "ignorable"),
    ({"ignorable": None}, "ignorable"),
    ({"surfaceOp": None}, "surfaceOp"),
    ({"sourceEventSeqs": None}, "sourceEventSeqs"),
]


@pytest.mark.parametrize(("change", "field"), ENVELOPES)
def test_a_wrong_envelope_names_its_key(change: dict[str, Any], field: str) -> None:
    """Unknown keys and wrong types are refused with the index."""
    with pytest.raises(InvalidEventError) as caught:
        check_envelope({**GOOD, **change}, 3)
    assert (caught.value.field, caught.value.index) == (field, 3)


def test_data_must_be_there_and_may_be_null() -> None:
    """`data` is any JSON; integral floats and negative times are fine."""
    check_envelope(GOOD)
    check_envelope(
        {**GOOD, "seq": 1.0, "time": -5.0, "ignorable": True, "surfaceOp": 7, "sourceEventSeqs": "x"}
    )
    with pytest.raises(InvalidEventError) as caught:
        check_envelope({key: GOOD[key] for key in ("type", "seq", "time")})
    assert caught.value.field == "data"
    with pytest.raises(InvalidEventError, match="must be an object"):
        check_envelope([])


MESSAGE: dict[str, Any] = {"id": "m", "role": "user", "content": [], "source": {"kind": "user"}}
ANSWER: dict[str, Any] = {
    "id": "m",
    "role": "assistant",
    "content": [],
    "source": {"kind": "model", "provider": "p", "model": "m"},
}
BLOCK: dict[str, Any] = {"type": "tool-result", "toolCallId": "c", "content": []}
RESULT: dict[str, Any] = {
    "id": "m",
    "role": "user",
    "content": [BLOCK],
    "source": {"kind": "tool", "callId": "c"},
}
CONFIG = {"provider": "p", "model": "m", "maxTokens": 3}


def header(**header_: Any) -> dict[str, Any]:
    """Make the data of a request header."""
    return {"header": {"config": CONFIG, **header_}, "reason": "initial"}


@pytest.mark.parametrize(
    ("type", "data"),
    [
        ("user/message", MESSAGE),
        ("user/message", {**MESSAGE, "content": [{"type": "unknown"}], "extra": 1}),
        ("assistant/message", {"message": ANSWER}),
        ("tool/result", {"message": RESULT}),
        ("request/header", header()),
        ("request/header", header(adapterDefaults={"maxTokens": True})),
        ("request/header", header(adapterDefaults={}, system="s")),
        ("request/header", header(config={**CONFIG, "reasoningEffort": "high"})),
        ("turn/start", None),
        ("anything/else", {"message": 3}),
    ],
)
def test_right_and_unwatched_shapes_pass(type: str, data: Any) -> None:
    """Blocks, turns, usage and all other types are not looked at (L2)."""
    check_shape(type, data)


BAD_SHAPES = [
    ("user/message", None, "data"),
    ("user/message", {**MESSAGE, "id": ""}, "data.id"),
    ("user/message", {**MESSAGE, "id": 4}, "data.id"),
    ("user/message", {**MESSAGE, "role": "assistant"}, "data.role"),
    ("user/message", {**MESSAGE, "source": None}, "data.source"),
    ("user/message", {**MESSAGE, "source": {"kind": ""}}, "data.source"),
    ("user/message", {**MESSAGE, "content": "text"}, "data.content"),
    ("assistant/message", 3, "data.message"),
    ("assistant/message", {}, "data.message"),
    ("assistant/message", {"message": {**ANSWER, "role": "user"}}, "data.message.role"),
    ("assistant/message", {"message": {**ANSWER, "source": {"kind": "user"}}}, "data.message.source"),
    (
        "assistant/message",
        {"message": {**ANSWER, "source": {"kind": "model", "provider": "", "model": "m"}}},
        "data.message.source",
    ),
    (
        "assistant/message",
        {"message": {**ANSWER, "source": {"kind": "model", "provider": "p"}}},
        "data.message.source",
    ),
    ("tool/result", {"message": {**RESULT, "source": {"kind": "user"}}}, "data.message.source"),
    ("tool/result", {"message": {**RESULT, "source": {"kind": "tool", "callId": ""}}}, "data.message.source"),
    ("tool/result", {"message": {**RESULT, "content": []}}, "data.message.content"),
    ("tool/result", {"message": {**RESULT, "content": [BLOCK, BLOCK]}}, "data.message.content"),
    ("tool/result", {"message": {**RESULT, "content": [3]}}, "data.message.content"),
    ("tool/result", {"message": {**RESULT, "content": [{**BLOCK, "type": "text"}]}}, "data.message.content"),
    (
        "tool/result",
        {"message": {**RESULT, "content": [{**BLOCK, "content": "x"}]}},
        "data.message.content[0].content",
    ),
    (
        "tool/result",
        {"message": {**RESULT, "content": [{**BLOCK, "toolCallId": "d"}]}},
        "data.message.content[0].toolCallId",
    ),
    ("request/header", None, "data.header.config"),
    ("request/header", {"header": 1}, "data.header.config"),
    ("request/header", {"header": {"config": 1}}, "data.header.config"),
    ("request/header", header(config={"provider": "", "model": "m"}), "data.header.config.provider"),
    ("request/header", header(config={"provider": "p"}), "data.header.config.model"),
    (
        "request/header",
        header(config={**CONFIG, "reasoningEffort": ""}),
        "data.header.config.reasoningEffort",
    ),
    ("request/header", header(adapterDefaults=1), "data.header.adapterDefaults"),
    ("request/header", header(adapterDefaults={"x": True}), "data.header.adapterDefaults.x"),
    ("request/header", header(adapterDefaults={"maxTokens": 1}), "data.header.adapterDefaults.maxTokens"),
    (
        "request/header",
        header(adapterDefaults={"reasoningEffort": True}),
        "data.header.adapterDefaults.reasoningEffort",
    ),
    ("request/header", {**header(), "reason": "fallback"}, "data.reason"),
    ("request/header-delta", {}, "type"),
    ("mode/set", {}, "type"),
]


@pytest.mark.parametrize(("type", "data", "field"), BAD_SHAPES)
def test_wrong_shapes_name_the_part(type: str, data: Any, field: str) -> None:
    """A message or header that no reader could use is refused with type and place."""
    with pytest.raises(InvalidEventError) as caught:
        check_shape(type, data, 5)
    assert (caught.value.field, caught.value.type, caught.value.index) == (field, type, 5)


@pytest.mark.parametrize(
    ("stored", "seqs"),
    [
        ([], ()),
        ([3, 1, 3], (3, 1, 3)),
        ([[1, 3], 7, 8.0, 10], (1, 2, 3, 7, 8, 10)),
        ([[4, 4]], (4,)),
        ([25], (25,)),
    ],
)
def test_sources_expand(stored: list[Any], seqs: tuple[int, ...]) -> None:
    """Pairs stand for ranges; single numbers are left to the surface check."""
    assert expand_sources(stored, 20) == seqs


@pytest.mark.parametrize(
    "stored",
    [
        "x",
        {},
        [1, "2"],
        [-1],
        [True],
        [[1]],
        [[1, 2, 3]],
        [[2, 1]],
        [[1, 20]],
        [["1", 2]],
        [[1, 3], 2],
        [[1, 2], [2, 4]],
    ],
)
def test_wrong_sources_are_refused(stored: Any) -> None:
    """Not a list, not counts, pairs out of order or not before the event."""
    with pytest.raises(InvalidEventError) as caught:
        expand_sources(stored, 20)
    assert caught.value.field == "sourceEventSeqs"


def test_a_pair_cannot_ask_for_unbounded_memory() -> None:
    """A stated range is refused before it is made."""
    with pytest.raises(InvalidEventError, match="names more than"):
        expand_sources([[0, 2**40]], 2**50)
