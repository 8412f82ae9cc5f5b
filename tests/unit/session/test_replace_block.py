"""Taking one block out of what the model sees."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.session.conversations import answer, call, in_step, result, text, tool_call, user
from turnlog.errors import InvalidEventError, InvariantError, UsageError
from turnlog.session.invariants import check_invariants
from turnlog.session.pairing import tool_pairing_balance
from turnlog.session.replace_block import PLACEHOLDER
from turnlog.session.session import Session

IMAGE = {"type": "image", "attachment": {"attachmentId": "broken"}}


def _session() -> Session:
    """Return an open step: a user message (2), an answer with a call (3), its record (4) and result (5)."""
    session = in_step()
    session.append("user/message", user("u", text("look"), IMAGE), surface_op="append")
    data = answer("a", text("ok"), call("c"), text("end"))
    data["message"]["source"]["replayState"] = {"response": "r", "blocks": [1, 2, 3]}
    data["usage"] = {"inputTokens": 9}
    session.append("assistant/message", data, surface_op="append")
    session.append("tool/call", tool_call("c"))
    session.append("tool/result", result("c", text("42"), IMAGE, meta={"a": 1}), surface_op="append")
    return session


def _contents(session: Session) -> list[Any]:
    return [message["content"] for message in session.derive_messages()]


def test_a_block_of_a_user_message_gives_way_to_a_text() -> None:
    """P1, L1: one event is appended that replaces the message by itself; the log keeps the original."""
    session = _session()
    event = session.replace_block(2, 1)
    assert (event.type, event.seq, event.source_event_seqs) == ("user/message", 6, (2,))
    assert event.data == user("u", text("look"), text(PLACEHOLDER))
    assert session.surface.nodes == (6, 3, 5)
    assert session.events[2].data["content"][1] == IMAGE
    assert check_invariants(session.log) == []


def test_a_block_of_a_result_is_one_inside_it() -> None:
    """P1, SU7: only the content of the result changes; everything else of it stays."""
    session = _session()
    session.replace_block(5, 1, text("(image was here)"))
    expected = result("c", text("42"), text("(image was here)"), meta={"a": 1})
    assert session.events[6].data == expected
    assert session.pending_calls == ()


def test_a_block_of_an_answer_takes_usage_and_replay_state_with_it() -> None:
    """P1, L4: outside its step too; neither is usage counted twice nor the old block replayed."""
    session = _session()
    session.append("step/end", {"turn": 1, "step": 1})
    session.append("turn/end", {"turn": 1, "reason": {"kind": "completed"}})
    data = session.replace_block(3, 2).data
    assert data == answer("a", text("ok"), call("c"), text(PLACEHOLDER))
    assert check_invariants(session.log) == []


def test_a_call_with_a_result_is_only_replaced_by_one_of_its_id() -> None:
    """P1: pairing stays valid; a call of the same id may take its place."""
    session = _session()
    for block in (None, text("x"), call("d")):
        with pytest.raises(UsageError, match="has a result"):
            session.replace_block(3, 1, block)
    session.replace_block(3, 1, call("c", "other"))
    assert _contents(session)[1][1] == call("c", "other")
    nodes = [session.events[seq] for seq in session.surface.nodes]
    assert tool_pairing_balance(nodes).is_balanced(len(nodes))


def test_a_call_that_waits_is_answered_first() -> None:
    """L4, P1: taking a pending call out would leave its coming result alone."""
    session = in_step()
    session.append("assistant/message", answer("a", call("c")), surface_op="append")
    with pytest.raises(UsageError, match="waits for its result"):
        session.replace_block(2, 0)


def test_a_call_that_never_got_a_result_may_go() -> None:
    """P1: in a log that left a call open, taking it out mends the pairing."""
    session = in_step(strict=False)
    session.append("assistant/message", answer("a", call("c"), call("d")), surface_op="append")
    session.append("step/end", {"turn": 1, "step": 1})
    session.replace_block(2, 0)
    assert _contents(session) == [[text(PLACEHOLDER), call("d")]]


def test_what_is_not_there_cannot_be_replaced() -> None:
    """P1: a seq off the surface, a block out of range, a replacement that is not JSON: nothing happens."""
    session = _session()
    for seq in (0, 4, 99):
        with pytest.raises(UsageError, match="not on the surface"):
            session.replace_block(seq, 0)
    for index in (-1, 2):
        with pytest.raises(UsageError, match="2 blocks"):
            session.replace_block(2, index)
    with pytest.raises(InvalidEventError):
        session.replace_block(2, 0, {"type": "text", "text": float("nan")})
    assert session.seq == 6


def test_a_further_block_is_named_by_the_replacing_event() -> None:
    """P1: after a replacement the message stands under its new seq."""
    session = _session()
    event = session.replace_block(2, 1)
    with pytest.raises(UsageError, match="not on the surface"):
        session.replace_block(2, 0)
    session.replace_block(event.seq, 0)
    assert _contents(session)[0] == [text(PLACEHOLDER)] * 2


def test_a_result_is_rewritten_inside_a_turn_only() -> None:
    """IN11, L4: between turns the rule refuses it; in the next turn it is allowed."""
    session = _session()
    session.append("step/end", {"turn": 1, "step": 1})
    session.append("turn/end", {"turn": 1, "reason": {"kind": "completed"}})
    with pytest.raises(InvariantError) as caught:
        session.replace_block(5, 1)
    assert caught.value.rule == "in-open-turn"
    session.append("turn/start", {"turn": 2})
    session.replace_block(5, 1)
