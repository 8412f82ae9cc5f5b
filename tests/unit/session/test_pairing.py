"""Where a surface may be cut between calls and results."""

from __future__ import annotations

import pytest

from tests.unit.session.conversations import answer, call, conversation, result, text, user
from turnlog.errors import CorruptLogError
from turnlog.events.envelope import SessionEvent
from turnlog.session.pairing import PairingBalance, tool_pairing_balance


def _nodes(*payloads: tuple[str, object]) -> list[SessionEvent]:
    return [
        SessionEvent.build(type_, seq, 0, data, surface_op="append")
        for seq, (type_, data) in enumerate(payloads)
    ]


TWO_CALLS = _nodes(
    ("user/message", user()),
    ("assistant/message", answer("a", text("x"), call("c"), call("d"))),
    ("tool/result", result("d")),
    ("tool/result", result("c")),
    ("assistant/message", answer("b", call("e"))),
)


def test_sums_say_how_many_calls_are_open_at_each_cut() -> None:
    """P1: one cut more than nodes; a cut is balanced when no call is open there."""
    balance = tool_pairing_balance(TWO_CALLS)
    assert balance.sums == (0, 0, 2, 1, 0, 1)
    assert len(balance) == 5
    assert [balance.is_balanced(cut) for cut in range(6)] == [True, True, False, False, True, False]


def test_nearest_balanced_cuts() -> None:
    """P1: the cut itself when balanced, else the next one that way; towards the end there may be none."""
    balance = tool_pairing_balance(TWO_CALLS)
    assert [balance.nearest_before(cut) for cut in range(6)] == [0, 1, 1, 1, 4, 4]
    assert [balance.nearest_after(cut) for cut in range(6)] == [0, 1, 4, 4, 4, None]


def test_balance_is_extended_node_by_node() -> None:
    """P1: taking nodes one by one gives the same as all at once; plain objects do, too."""
    balance = PairingBalance()
    for node in TWO_CALLS:
        balance.extend([node.to_dict()])
    assert balance.sums == tool_pairing_balance(TWO_CALLS).sums


def test_a_result_before_its_call_is_corruption() -> None:
    """P1: such a surface cannot be balanced; the error names the seq."""
    with pytest.raises(CorruptLogError) as caught:
        tool_pairing_balance(TWO_CALLS[2:3])
    assert (caught.value.seq, caught.value.kind) == (2, "pairing")


def test_a_finished_conversation_is_balanced_at_its_ends() -> None:
    """P1: nothing is open before the first and after the last message."""
    session = conversation()
    balance = tool_pairing_balance(session.events[seq] for seq in session.surface.nodes)
    assert balance.sums == (0, 0, 1, 0, 0, 0)
