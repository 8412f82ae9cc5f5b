"""Older version-0 payloads get today's shape on reading; nothing else is touched."""

from __future__ import annotations

from typing import Any

import pytest

from turnlog.errors import InvalidEventError
from turnlog.events.envelope import SessionEvent, check_shape
from turnlog.events.legacy import is_current, may_need, normalise


def event(type: str, data: Any, seq: int = 3, **more: Any) -> SessionEvent:
    """Make an event with seq 3."""
    return SessionEvent.build(type, seq, 50, data, **more)


CONTENT = [{"type": "text", "text": "x"}]
FAILURE = {"message": "m", "code": "C", "status": 500}

CHANGED = [
    ("turn/start", {"turn": 1, "trigger": {"kind": "user", "x": 1}}, "turn/start", {"turn": 1}),
    (
        "turn/end",
        {"turn": 1, "reason": {"kind": "aborted"}},
        "turn/end",
        {"turn": 1, "reason": {"kind": "aborted", "reason": {"kind": "legacy"}}},
    ),
    (
        "turn/end",
        {"turn": 1, "reason": {"kind": "disposed"}},
        "turn/end",
        {"turn": 1, "reason": {"kind": "aborted", "reason": {"kind": "disposed"}}},
    ),
    (
        "turn/end",
        {"turn": 1, "reason": {"kind": "error", "step": 0, "failure": FAILURE}},
        "turn/end",
        {"turn": 1, "reason": {"kind": "error", "error": FAILURE}},
    ),
    (
        "turn/end",
        {"turn": 1, "reason": {"kind": "error", "step": 2, "message": "m", "code": "C"}},
        "turn/end",
        {"turn": 1, "reason": {"kind": "error", "error": {"message": "m", "code": "C"}}},
    ),
    (
        "turn/end",
        {"turn": 1, "reason": {"kind": "error", "step": 2, "message": "m"}},
        "turn/end",
        {"turn": 1, "reason": {"kind": "error", "error": {"message": "m", "code": "UNKNOWN"}}},
    ),
    ("steering/message", {"turn": 1, "message": {"id": "a"}}, "user/message", {"id": "a"}),
    (
        "steering/message",
        {"turn": 1, "content": CONTENT, "source": {"kind": "user"}},
        "user/message",
        {"content": CONTENT, "source": {"kind": "user"}, "id": "legacy-message:s:3", "role": "user"},
    ),
    (
        "user/message",
        {"content": CONTENT, "source": {"kind": "user"}, "x": 1},
        "user/message",
        {"content": CONTENT, "source": {"kind": "user"}, "x": 1, "id": "legacy-message:s:3", "role": "user"},
    ),
    (
        "assistant/message",
        {"turn": 1, "step": 1, "content": CONTENT, "provenance": {"provider": "p", "model": "m"}, "usage": 1},
        "assistant/message",
        {
            "turn": 1,
            "step": 1,
            "usage": 1,
            "message": {
                "id": "legacy-message:s:3",
                "role": "assistant",
                "content": CONTENT,
                "source": {"provider": "p", "model": "m", "kind": "model"},
            },
        },
    ),
    (
        "tool/result",
        {"turn": 1, "step": 1, "callId": "c", "content": CONTENT, "isError": False, "meta": 1},
        "tool/result",
        {
            "turn": 1,
            "step": 1,
            "meta": 1,
            "message": {
                "id": "legacy-message:s:3",
                "role": "user",
                "content": [{"type": "tool-result", "toolCallId": "c", "content": CONTENT, "isError": False}],
                "source": {"kind": "tool", "callId": "c"},
            },
        },
    ),
]


@pytest.mark.parametrize(("type", "data", "new_type", "new_data"), CHANGED)
def test_old_shapes_become_todays(type: str, data: Any, new_type: str, new_data: Any) -> None:
    """Seq, time and surface operation stay; the result passes the shape check where one applies."""
    old = event(type, data, surface_op="append") if "message" in type else event(type, data)
    found = normalise(old, "s")
    assert (found.type, found.data) == (new_type, new_data)
    assert (found.seq, found.time, found.surface_op) == (old.seq, old.time, old.surface_op)
    if new_type != "user/message" or "role" in new_data:
        check_shape(found.type, found.data)


UNTOUCHED: list[tuple[str, Any]] = [
    ("turn/start", {"turn": 1}),
    ("turn/start", None),
    ("turn/end", {"turn": 1, "reason": {"kind": "completed"}}),
    ("turn/end", {"turn": 1, "reason": {"kind": "aborted", "reason": {"kind": "user"}}}),
    ("turn/end", {"turn": 1, "reason": {"kind": "error", "error": {"message": "m"}, "more": 1}}),
    ("turn/end", {"turn": 1, "reason": {"kind": "of-a-plugin", "x": 1}}),
    ("user/message", {"id": "a", "role": "user", "content": [], "source": {"kind": "user"}}),
    ("user/message", {"role": "user", "content": [], "source": {"kind": "user"}}),
    ("user/message", {"content": []}),
    ("user/message", 3),
    ("assistant/message", {"message": {"id": "a"}}),
    ("assistant/message", {"content": []}),
    ("assistant/message", {"content": [], "provenance": 1}),
    ("assistant/message", {"provenance": {}}),
    ("tool/result", {"callId": "c", "content": []}),
    ("request/header", {"header": {"config": {}}, "reason": "initial"}),
    ("todo/write", {"trigger": 1}),
    ("assistant/chunk", {}),
]


@pytest.mark.parametrize(("type", "data"), UNTOUCHED)
def test_current_and_hopeless_events_are_left_alone(type: str, data: Any) -> None:
    """The very same object comes back, so nothing is encoded again."""
    given = event(type, data)
    assert normalise(given, "s") is given


REFUSED = [
    ("turn/start", {"turn": 1, "trigger": {"kind": ""}}),
    ("turn/start", {"turn": 0, "trigger": {"kind": "user"}}),
    ("turn/start", {"turn": 1, "trigger": 3}),
    ("turn/start", {"turn": 1, "trigger": {"kind": "user"}, "x": 1}),
    ("turn/end", {"turn": 1}),
    ("turn/end", {"turn": 0, "reason": {"kind": "completed"}}),
    ("turn/end", {"turn": 1, "reason": "completed"}),
    ("turn/end", {"turn": 1, "reason": {"kind": 3}}),
    ("turn/end", {"turn": 1, "reason": {"kind": "completed", "x": 1}}),
    ("turn/end", {"turn": 1, "reason": {"kind": "aborted", "x": 1}}),
    ("turn/end", {"turn": 1, "reason": {"kind": "disposed", "x": 1}}),
    ("turn/end", {"turn": 1, "reason": {"kind": "error", "message": "m"}}),
    ("turn/end", {"turn": 1, "reason": {"kind": "error", "step": 1, "failure": 3}}),
    ("turn/end", {"turn": 1, "reason": {"kind": "error", "step": 1, "failure": {"message": "m"}}}),
    (
        "turn/end",
        {"turn": 1, "reason": {"kind": "error", "step": 1, "failure": {"message": "", "code": "C"}}},
    ),
    ("turn/end", {"turn": 1, "reason": {"kind": "error", "step": 1, "failure": {**FAILURE, "x": 1}}}),
    ("turn/end", {"turn": 1, "reason": {"kind": "error", "step": 1, "message": 3}}),
    ("turn/end", {"turn": 1, "reason": {"kind": "error", "step": 1, "message": "m", "code": 3}}),
    ("turn/end", {"turn": 1, "reason": {"kind": "error", "step": 1, "message": "m", "x": 1}}),
    ("steering/message", {"turn": 1}),
    ("steering/message", {"turn": 1, "message": 3}),
    ("steering/message", {"content": [], "source": {}}),
    ("steering/message", 3),
    ("request/header-delta", {}),
    ("mode/set", {"mode": "x"}),
    ("request/header", {"reason": "fallback"}),
]


@pytest.mark.parametrize(("type", "data"), REFUSED)
def test_malformed_old_shapes_are_refused_with_the_seq(type: str, data: Any) -> None:
    """An error names the event; nothing is guessed."""
    with pytest.raises(InvalidEventError, match="seq 3") as caught:
        normalise(event(type, data), "s")
    assert (caught.value.type, caught.value.index) == (type, 3)


RESULT = {"turn": 1, "step": 1, "callId": "c", "content": CONTENT, "isError": True}


def replacing(start: Any, seq: int = 8) -> SessionEvent:
    """Make an old tool result that replaces a node."""
    return event("tool/result", RESULT, seq, surface_op={"op": "replace", "start": start, "end": start})


def test_a_replacing_result_inherits_the_message_id() -> None:
    """The replaced message keeps its identity, already normalised itself."""
    first = normalise(event("tool/result", RESULT, 3, surface_op="append"), "s")
    found = normalise(replacing(3), "s", {3: first}.get)
    assert found.data["message"]["id"] == "legacy-message:s:3"


@pytest.mark.parametrize(
    ("start", "target"),
    [
        (3, None),
        (3, event("turn/start", {"turn": 1})),
        (3, event("turn/start", None)),
        (3, event("tool/result", {"message": 1})),
        (3, event("tool/result", {"message": {"id": 1}})),
        ("3", None),
        (9, event("tool/result", {"message": {"id": "later"}})),
    ],
)
def test_without_a_message_to_inherit_from_the_id_is_made_up(start: Any, target: SessionEvent | None) -> None:
    """A wrong range is for the surface to refuse, not for the id."""
    found = normalise(replacing(start), "s", lambda seq: target)
    assert found.data["message"]["id"] == "legacy-message:s:8"


def test_only_a_few_types_are_ever_looked_at() -> None:
    """A reader can skip decoding of all others."""
    assert may_need("turn/end")
    assert may_need("mode/set")
    assert not may_need("tool/call")
    assert not may_need("assistant/chunk")


@pytest.mark.parametrize(
    ("type", "data", "current"),
    [
        ("turn/start", {"turn": 1}, True),
        ("turn/start", {"turn": 1, "trigger": None}, False),
        ("turn/end", {"turn": 1, "reason": {"kind": "completed"}}, True),
        ("turn/end", {"turn": 0, "reason": {"kind": "completed"}}, False),
        ("turn/end", {"turn": 1, "reason": {"kind": "completed", "step": 1}}, False),
        ("turn/end", {"turn": 1, "reason": {"kind": "completed"}, "x": 1}, False),
        ("turn/end", [], False),
        ("turn/end", {"turn": 1, "reason": {"kind": "disposed"}}, False),
    ],
)
def test_the_usual_shapes_need_no_closer_look(type: str, data: Any, current: bool) -> None:
    """What is called current is never changed and never refused."""
    assert is_current(type, data) is current
    if current:
        made = event(type, data)
        assert normalise(made, "s") is made
