"""Properties of sessions over random logs: determinism, replay, repair, restore."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.session.conversations import (
    HEADER,
    answer,
    call,
    delta,
    excuse,
    fresh,
    replace,
    request_header,
    result,
    text,
    tool_call,
    user,
)
from turnlog.errors import InvariantError
from turnlog.events.log import EventLog
from turnlog.events.scan import scan_text
from turnlog.session.derive import derive_messages
from turnlog.session.facts import facts_of
from turnlog.session.invariants import check_invariants
from turnlog.session.pairing import tool_pairing_balance
from turnlog.session.repair import interrupted_turn_closers
from turnlog.session.session import Session
from turnlog.session.surface import fold_surface

TEXTS = st.text(max_size=8) | st.just("\ud800")
ACTIONS = st.lists(st.tuples(st.integers(0, 15), st.integers(0, 9), TEXTS), max_size=60)


def _act(session: Session, number: int, pick: int, words: str) -> None:
    """Do one of the things that an agent does next; impossible ones are refused by the session."""
    turn, step = session.open_turn or session.next_turn, session.open_step or session.next_step
    calls, nodes = session.pending_calls, session.surface.nodes
    call_id = calls[pick % len(calls)] if calls else "c-none"
    actions: list[tuple[str, Any, dict[str, Any]]] = [
        ("turn/start", {"turn": turn}, {}),
        ("turn/end", {"turn": turn, "reason": {"kind": "completed"}}, {}),
        ("step/start", {"turn": turn, "step": step}, {}),
        ("step/end", {"turn": turn, "step": step}, {}),
        ("user/message", user(f"u-{session.seq}", text(words)), {"surface_op": "append"}),
        (
            "assistant/message",
            answer(
                "a",
                text(words),
                *(call(f"c-{session.seq}-{n}") for n in range(pick % 3)),
                turn=turn,
                step=step,
            ),
            {"surface_op": "append"},
        ),
        ("tool/call", tool_call(call_id, turn=turn, step=step), {}),
        ("tool/result", result(call_id, text(words), turn=turn, step=step), {"surface_op": "append"}),
        ("tool/result", excuse(call_id, turn=turn, step=step), {"surface_op": "append"}),
        ("request/header", request_header(words or "m"), {}),
        ("request/context", {"provider": "p", "model": words}, {}),
        ("session/title", {"title": words}, {}),
    ]
    if number == 6 and not calls:
        return
    if number < len(actions):
        type_, data, options = actions[number]
        session.append(type_, data, **options)
    elif number == 12 and nodes:
        start = pick % len(nodes)
        end = min(start + pick % 3, len(nodes) - 1)
        session.append(
            "user/message",
            user(f"s-{session.seq}", text(words)),
            surface_op=replace(nodes[start], nodes[end]),
            source_event_seqs=nodes[start : end + 1],
        )
    else:
        session.append_chunk(turn, step, delta(words, pick % 2))


def _play(actions: list[tuple[int, int, str]], *, strict: bool = True) -> Session:
    session = fresh(strict=strict)
    for number, pick, words in actions:
        try:
            _act(session, number, pick, words)
        except InvariantError:
            continue
    return session


@given(ACTIONS)
def test_derivation_is_deterministic_and_replays(actions: list[tuple[int, int, str]]) -> None:
    """PR1, PR2, PR3, SU13, SU22: seqs are dense; seed and fold derive the same messages and surface."""
    session = _play(actions)
    messages = session.derive_messages()
    assert [event.seq for event in session.events] == list(range(session.seq))
    assert messages == session.derive_messages() == derive_messages(session.log)
    for again in (
        Session.create("t", seed=[event.to_dict() for event in session.events]),
        Session.create("t", seed=session.log),
    ):
        assert again.derive_messages() == messages
        assert again.surface.nodes == session.surface.nodes == fold_surface(session.events).nodes
        assert again.request_header() == session.request_header()


@given(ACTIONS)
def test_a_log_that_ends_in_a_marker_gets_no_second(actions: list[tuple[int, int, str]]) -> None:
    """PR4: replaying a replayed log adds nothing."""
    first = Session.create("t", seed=_play(actions).log)
    second = Session.create("t", seed=first.log)
    assert list(second.events) == list(first.events)


@given(ACTIONS, st.data())
def test_events_without_messages_never_change_the_history(
    actions: list[tuple[int, int, str]], data: st.DataObject
) -> None:
    """PR5: interleaving titles anywhere leaves the messages as they were."""
    plain = fresh(strict=False)
    noisy = fresh(strict=False)
    for event in _play(actions).events:
        if event.surface_op != "append":
            continue
        for session in (plain, noisy):
            session.append(event.type, event.data, surface_op="append")
        for _ in range(data.draw(st.integers(0, 2))):
            noisy.append("session/title", {"title": "noise"})
    assert noisy.derive_messages() == plain.derive_messages()


@given(ACTIONS)
def test_strict_sessions_write_well_ordered_logs(actions: list[tuple[int, int, str]]) -> None:
    """L4: whatever is tried, the log of a strict session breaks no rule."""
    assert check_invariants(_play(actions).log) == []


@given(ACTIONS, st.integers(0, 60))
def test_any_cut_is_repaired_whole(actions: list[tuple[int, int, str]], cut: int) -> None:
    """R1, L4: closers close a cut log in order, once, and every call that was asked for has one answer."""
    events = list(_play(actions).events)[:cut]
    closed = [*events, *interrupted_turn_closers(events)]
    assert interrupted_turn_closers(closed) == []
    assert check_invariants(closed) == []
    answered = [e.data["message"]["source"]["callId"] for e in closed if e.type == "tool/result"]
    asked = [c for event in closed for c in facts_of(event.type, event.data).requested]
    assert sorted(answered) == sorted(asked)
    session = Session.create("t", seed=closed)
    assert session.open_turn is None
    session.append("turn/start", {"turn": session.next_turn})


@given(ACTIONS)
def test_stored_text_restores_the_session(actions: list[tuple[int, int, str]]) -> None:
    """L2, PR3: what is appended is encoded once; read back from its stored text it is the same session."""
    session = _play(actions)
    found = scan_text(session.log.cut(0).text())
    assert found.issue is None
    again = Session.restore(HEADER, found.log)
    assert list(again.events[: session.seq]) == list(session.events)
    assert again.derive_messages() == session.derive_messages()
    assert again.derive_messages(partial="include") == session.derive_messages(partial="include")
    assert (again.open_turn, again.open_step, again.next_turn, again.pending_calls) == (
        session.open_turn,
        session.open_step,
        session.next_turn,
        session.pending_calls,
    )


@given(ACTIONS)
def test_candidates_change_nothing_that_is_stored(actions: list[tuple[int, int, str]]) -> None:
    """ST18: with and without a pre-commit listener the log has the same bytes."""
    watched = fresh()
    watched.subscribe_candidates(lambda event: None)
    for number, pick, words in actions:
        try:
            _act(watched, number, pick, words)
        except InvariantError:
            continue
    plain = _play(actions)
    assert watched.log.cut(0).text() == plain.log.cut(0).text()


@given(ACTIONS)
def test_balance_follows_the_surface(actions: list[tuple[int, int, str]]) -> None:
    """P1: without replacements the surface is balanced exactly when no call is pending."""
    session = _play([action for action in actions if action[0] != 12])
    nodes = [session.events[seq] for seq in session.surface.nodes]
    assert tool_pairing_balance(nodes).sums[-1] == len(session.pending_calls)


def test_an_empty_log_has_every_property() -> None:
    """PR1, RP2: nothing derives nothing and needs no closers."""
    assert derive_messages(EventLog()) == []
    assert check_invariants(EventLog()) == []
