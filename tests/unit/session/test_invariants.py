"""The order rules, one by one, by tracker, by session and over whole logs."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.session.conversations import (
    answer,
    call,
    conversation,
    delta,
    excuse,
    fresh,
    in_step,
    replace,
    request_header,
    result,
    text,
    tool_call,
    user,
)
from turnlog.errors import InvariantError
from turnlog.session.invariants import RULES, InvariantTracker, InvariantViolation, check_invariants
from turnlog.session.session import Session

Op = tuple[str, Any] | tuple[str, Any, dict[str, Any]]

TURN: Op = ("turn/start", {"turn": 1})
END: Op = ("turn/end", {"turn": 1, "reason": {"kind": "completed"}})
STEP: Op = ("step/start", {"turn": 1, "step": 1})
STEP_END: Op = ("step/end", {"turn": 1, "step": 1})
CHUNK: Op = ("assistant/chunk", {"turn": 1, "step": 1, "chunk": delta()})
ASK: Op = ("assistant/message", answer("a", call("c")), {"surface_op": "append"})
RECORD: Op = ("tool/call", tool_call("c"))
RESULT: Op = ("tool/result", result("c", text("long")), {"surface_op": "append"})
EXCUSE: Op = ("tool/result", excuse("c"), {"surface_op": "append"})


def _rewrite(seq: int) -> Op:
    return ("tool/result", result("c"), {"surface_op": replace(seq), "source_event_seqs": [seq]})


BROKEN: list[tuple[str, list[Op], Op]] = [
    ("turn-not-nested", [TURN], ("turn/start", {"turn": 2})),
    ("turn-number", [], ("turn/start", {"turn": 2})),
    ("turn-number", [TURN, END], TURN),
    ("turn-number", [], ("turn/start", {"turn": "1"})),
    ("turn-number", [], ("turn/start", {"turn": True})),
    ("turn-number", [], ("turn/start", None)),
    ("turn-end-matches", [], END),
    ("turn-end-matches", [TURN], ("turn/end", {"turn": 2, "reason": {"kind": "completed"}})),
    ("turn-end-open-step", [TURN, STEP], END),
    ("step-in-turn", [], STEP),
    ("step-in-turn", [TURN], ("step/start", {"turn": 2, "step": 1})),
    ("step-not-nested", [TURN, STEP], ("step/start", {"turn": 1, "step": 2})),
    ("step-number", [TURN], ("step/start", {"turn": 1, "step": 2})),
    ("step-number", [TURN, STEP, STEP_END], STEP),
    ("step-end-matches", [TURN], STEP_END),
    ("step-end-matches", [TURN, STEP], ("step/end", {"turn": 1, "step": 2})),
    ("step-end-pending-call", [TURN, STEP, ASK], STEP_END),
    ("step-end-pending-call", [TURN, STEP, RECORD], STEP_END),
    ("in-open-step", [TURN], CHUNK),
    ("in-open-step", [TURN, STEP], ("assistant/chunk", {"turn": 1, "step": 2, "chunk": delta()})),
    ("in-open-step", [TURN], ASK),
    ("in-open-step", [TURN], RECORD),
    ("in-open-step", [TURN, STEP, RECORD, RESULT, STEP_END], EXCUSE),
    ("result-answers-call", [TURN, STEP], RESULT),
    ("result-answers-call", [TURN, STEP, ASK], RESULT),
    ("result-answers-call", [TURN, STEP, RECORD, RESULT], RESULT),
    ("result-answers-call", [TURN, STEP], EXCUSE),
    ("in-open-turn", [TURN, STEP, RECORD, RESULT, STEP_END, END], _rewrite(3)),
    ("in-open-turn", [], ("todo/write", {"todos": []})),
    ("in-open-turn", [], ("request/header", request_header())),
    ("in-open-turn", [], ("request/context", {})),
]

FINE: list[list[Op]] = [
    [TURN, STEP, CHUNK, ASK, RECORD, RESULT, STEP_END, END],
    [TURN, STEP, ASK, EXCUSE, STEP_END, END],
    [TURN, STEP, ASK, RECORD, EXCUSE, STEP_END, END],
    [TURN, STEP, RECORD, RECORD, RESULT, STEP_END, ("step/start", {"turn": 1, "step": 2})],
    [TURN, STEP, RECORD, RESULT, STEP_END, _rewrite(3), END],
    [TURN, END, ("turn/start", {"turn": 2}), ("step/start", {"turn": 2, "step": 1})],
    [("session/end-seed", {}), TURN, ("session/end-seed", {}), END],
    [("user/message", user(), {"surface_op": "append"}), ("session/title", {}), TURN],
    [TURN, ("todo/write", {"todos": []}), ("request/header", request_header()), ("request/context", {})],
]


def _put(session: Session, op: Op) -> None:
    options = op[2] if len(op) == 3 else {}
    session.append(op[0], op[1], **options)


@pytest.mark.parametrize(("rule", "before", "op"), BROKEN)
def test_a_strict_session_refuses_what_breaks_a_rule(rule: str, before: list[Op], op: Op) -> None:
    """IN6-IN11, IN13, L4: the error names the rule and the tracker stays as it was."""
    session = fresh()
    for earlier in before:
        _put(session, earlier)
    state = (session.seq, session.open_turn, session.open_step, session.pending_calls, session.next_step)
    with pytest.raises(InvariantError) as caught:
        _put(session, op)
    assert caught.value.rule == rule
    assert caught.value.type == op[0]
    assert state == (
        session.seq,
        session.open_turn,
        session.open_step,
        session.pending_calls,
        session.next_step,
    )


@pytest.mark.parametrize(("rule", "before", "op"), BROKEN)
def test_a_check_of_a_log_reports_what_breaks_a_rule(rule: str, before: list[Op], op: Op) -> None:
    """IN6-IN11, IN13, L4: one violation, at the event, by encoded log, events and plain objects alike."""
    session = fresh(strict=False)
    for each in [*before, op]:
        _put(session, each)
    violations = check_invariants(session.log)
    assert [(violation.seq, violation.rule) for violation in violations] == [(len(before), rule)]
    assert violations == check_invariants(session.events)
    assert violations == check_invariants(event.to_dict() for event in session.events)


@pytest.mark.parametrize("ops", FINE)
def test_well_ordered_logs_pass(ops: list[Op]) -> None:
    """IN2, IN10, IN12, IN16: a strict session takes them and a check finds nothing."""
    session = fresh()
    for op in ops:
        _put(session, op)
    assert check_invariants(session.log) == []


def test_every_rule_is_named_and_tested() -> None:
    """L4: the names in use are those of the list, and each is broken by some case."""
    assert {rule for rule, _, _ in BROKEN} | {"seq-increases"} == set(RULES)


def test_seqs_increase() -> None:
    """IN5: an event that does not come after the one before it is reported."""
    events: list[dict[str, Any]] = [
        {"type": "session/title", "seq": seq, "time": 0, "data": {}} for seq in (3, 3, 2, 4)
    ]
    assert [(v.seq, v.rule) for v in check_invariants(events)] == [(3, "seq-increases"), (2, "seq-increases")]


def test_packed_chunks_outside_a_step_are_reported_one_by_one() -> None:
    """IN8: each event of a packed row is a violation of its own."""
    session = fresh(strict=False)
    for _ in range(4):
        session.append_chunk(1, 1, delta())
    session.append("turn/start", {"turn": 1})
    violations = check_invariants(session.log)
    assert [violation.seq for violation in violations] == [0, 1, 2, 3]
    assert violations == check_invariants(session.events)


def test_a_whole_conversation_passes() -> None:
    """IN2, IN14: and goes on passing as a seed of another session."""
    session = conversation()
    assert check_invariants(session.log) == []
    assert check_invariants(Session.create("t", seed=session.log).log) == []


def test_a_tracker_is_not_moved_by_a_check() -> None:
    """IN3: checking is pure; only following moves the state."""
    tracker = InvariantTracker()
    for _ in range(2):
        assert tracker.check("turn/start", _facts(turn=1)) is None
    assert (tracker.open_turn, tracker.next_turn) == (None, 1)
    tracker.apply("turn/start", _facts(turn=1))
    assert (tracker.open_turn, tracker.next_turn) == (1, 2)


def _facts(**fields: Any) -> Any:
    from turnlog.session.facts import EventFacts

    return EventFacts(**fields)


def test_a_tracker_follows_disorder() -> None:
    """L4: numbers that are none keep the count, whole floats count, and what is open follows the log."""
    tracker = InvariantTracker()
    tracker.apply("turn/start", _facts(turn="x"))
    assert (tracker.open_turn, tracker.next_turn) == (0, 1)
    tracker.apply("turn/start", _facts(turn=2.0))
    tracker.apply("step/start", _facts(step=1.5))
    assert (tracker.open_turn, tracker.open_step, tracker.next_step) == (2, 0, 1)
    tracker.apply("assistant/message", _facts(requested=("c", "c", "d")))
    tracker.apply("tool/call", _facts(call_id="c"))
    tracker.apply("assistant/message", _facts(requested=("c",)))
    tracker.apply("tool/result", _facts(call_id="c"), replacing=True)
    tracker.apply("tool/call", _facts())
    tracker.apply("tool/result", _facts())
    assert (tracker.pending_calls, tracker.calls) == (("c", "d"), {"c": True, "d": False})
    tracker.apply("turn/start", _facts(turn=True))
    assert (tracker.pending_calls, tracker.open_step, tracker.open_turn) == ((), None, 2)
    tracker.apply("assistant/message", _facts(requested=("e",)))
    assert tracker.pending_calls == ()


def test_an_answer_may_be_rewritten_outside_its_step() -> None:
    """L4: a replacement on the surface is not held to the open step; it keeps the step of its original."""
    session = in_step()
    session.append("assistant/message", answer("a", text("x")), surface_op="append")
    session.append("step/end", {"turn": 1, "step": 1})
    session.append("turn/end", {"turn": 1, "reason": {"kind": "completed"}})
    session.append("assistant/message", answer("a", text("y")), surface_op=replace(2), source_event_seqs=[2])
    assert session.surface.nodes == (5,)


def test_messages_name_a_few_pending_calls() -> None:
    """L4: the explanation stays short however many calls are open."""
    session = in_step()
    session.append("assistant/message", answer("a", *map(call, "vwxyz")), surface_op="append")
    with pytest.raises(InvariantError, match=r"'v', 'w', 'x' and 2 more"):
        session.append("step/end", {"turn": 1, "step": 1})


def test_feeding_says_what_is_wrong() -> None:
    """IN5: a tracker fed event by event gives the violations as they come."""
    tracker = InvariantTracker()
    event = {"type": "turn/end", "seq": 0, "time": 0, "data": {"turn": 1, "reason": {"kind": "completed"}}}
    found = tracker.feed(event)
    assert isinstance(found, InvariantViolation)
    assert (found.seq, found.rule) == (0, "turn-end-matches")
    assert "no turn is open" in found.message
