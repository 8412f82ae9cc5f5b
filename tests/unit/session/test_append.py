"""Appending: the order of effects, what is refused at the door, and what a refusal leaves behind."""

from __future__ import annotations

import logging
import threading
from typing import Any

import pytest

from tests.unit.session.conversations import (
    answer,
    call,
    delta,
    fresh,
    in_step,
    replace,
    request_header,
    result,
    text,
    tool_call,
    user,
)
from turnlog.errors import InvalidEventError, InvariantError, UsageError
from turnlog.events.ecmascript import MAX_DEPTH
from turnlog.events.scan import scan_text
from turnlog.events.vocabulary import register_event_type, unregister_event_type
from turnlog.session.session import Session


def _state(session: Session) -> tuple[Any, ...]:
    return (
        session.seq,
        session.log.digest(),
        session.surface.nodes,
        session.surface.replace_generation,
        session.open_turn,
        session.open_step,
        session.pending_calls,
        session.derive_messages(),
        session.request_header(),
        session.request_context(),
    )


def test_event_is_committed_and_independent_of_its_data() -> None:
    """PR2, SE33, SE40, L1: seqs are dense from 0 and later changes of the data change no event."""
    session = fresh()
    data: dict[str, Any] = {"todos": [{"content": "a", "status": "pending"}]}
    first = session.append("session/title", data)
    second = session.append("feedback/record", {"text": "x"})
    data["todos"].append("y")
    first.data["todos"].append("z")
    assert (first.seq, second.seq) == (0, 1)
    assert first.data == {"todos": [{"content": "a", "status": "pending"}]}
    assert session.events[0] == first


def test_time_comes_from_the_clock_once_per_event() -> None:
    """L1: each event has one reading of the clock, in Unix milliseconds."""
    session = fresh()
    assert [session.append("feedback/record", {"text": "x"}).time for _ in range(3)] == [1007, 1014, 1021]
    assert session.last_time == 1021


@pytest.mark.parametrize("reading", [1.5, "now", None, True, 2**53])
def test_a_clock_that_gives_no_storable_time_is_refused(reading: Any) -> None:
    """L2: a time that is no safe integer is the caller's fault and nothing is stored."""
    session = Session.create("s", header={"version": 0, "id": "s", "createdAt": 0}, clock=lambda: reading)
    with pytest.raises(UsageError, match="the clock gave"):
        session.append("feedback/record", {"text": "x"})
    assert session.seq == 0


def test_the_default_clock_is_the_system_clock() -> None:
    """D1: without a clock, times are the system's in milliseconds."""
    session = Session.create()
    session.append("feedback/record", {"text": "x"})
    assert session.last_time is not None
    assert 1_600_000_000_000 < session.last_time < 10_000_000_000_000


def test_an_empty_session_has_no_last_time() -> None:
    """SE1: nothing has happened in a fresh session."""
    session = fresh()
    assert (session.seq, session.last_time, session.first_live_seq) == (0, None, 0)


@pytest.mark.parametrize(
    ("type_", "data", "options", "field"),
    [
        ("x/unknown", {}, {}, "type"),
        ("text-chunks", {}, {"ignorable": True}, "type"),
        ("session", {}, {"ignorable": True}, "type"),
        ("steering/message", {}, {"ignorable": True}, "type"),
        ("mode/set", {}, {}, "type"),
        ("request/header-delta", {}, {}, "type"),
        ("turn/start", {"turn": 1}, {"ignorable": True}, "ignorable"),
        (7, {}, {}, "type"),
        ("feedback/record", {"text": {1}}, {}, "data.text"),
        ("feedback/record", float("nan"), {}, "data"),
        ("turn/end", {"turn": 1}, {}, "data"),
        ("turn/end", {"turn": 1, "reason": {"kind": "aborted"}}, {}, "data"),
        ("turn/start", {"turn": 1, "trigger": {"kind": "user"}}, {}, "data"),
        ("turn/start", {"turn": 1, "trigger": 7}, {}, "data.trigger"),
        ("user/message", {"role": "user"}, {"surface_op": "append"}, "data.id"),
        ("user/message", user(), {}, "surfaceOp"),
        ("user/message", user(), {"surface_op": "append", "source_event_seqs": [0]}, "sourceEventSeqs"),
        ("user/message", user(), {"surface_op": {"op": "swap"}}, "surfaceOp"),
        ("feedback/record", {"text": "x"}, {"surface_op": "append"}, "surfaceOp"),
        ("feedback/record", {"text": "x"}, {"source_event_seqs": []}, "sourceEventSeqs"),
        ("request/header", {**request_header(), "reason": "fallback"}, {}, "data.reason"),
        (
            "request/header",
            {"header": {"config": {}}, "reason": "initial"},
            {},
            "data.header.config.provider",
        ),
    ],
)
def test_what_could_not_be_loaded_is_refused_and_changes_nothing(
    type_: Any, data: Any, options: dict[str, Any], field: str
) -> None:
    """L2, SE17, SE18, SE35, SE36, SE38, SE39, RH6, RH7: refused by field name, state as before (JL93)."""
    session = fresh(strict=False)
    before = _state(session)
    with pytest.raises(InvalidEventError) as caught:
        session.append(type_, data, **options)
    assert caught.value.field == field
    assert _state(session) == before


def test_the_deepest_payload_that_is_taken_can_be_loaded() -> None:
    """L2: append counts the levels of the whole line, as a load does; one more is refused."""
    session = fresh()
    deep: Any = "leaf"
    for _ in range(MAX_DEPTH - 1):
        deep = [deep]
    session.append("feedback/record", deep)
    found = scan_text(session.log.cut(0).text())
    assert (found.issue, found.log[0].data) == (None, deep)
    with pytest.raises(InvalidEventError, match="511 levels"):
        session.append("feedback/record", [deep])
    assert session.seq == 1


def test_third_party_types_are_registered_or_marked() -> None:
    """L2: a registered type is marked as it was registered, any other only by `ignorable=True`."""
    session = fresh()
    register_event_type("acme/note")
    register_event_type("acme/need", required=True)
    try:
        assert session.append("acme/note", {}).ignorable
        assert not session.append("acme/need", {}).ignorable
        assert session.append("acme/other", None, ignorable=True).ignorable
    finally:
        unregister_event_type("acme/note")
        unregister_event_type("acme/need")


def test_surface_metadata_is_stored_in_the_order_of_live_events() -> None:
    """SU36, SU39: provenance stands before the marker, both as given, and independent of what was given."""
    session = fresh(strict=False)
    session.append("user/message", user("u-1"), surface_op="append")
    sources, marker = [0], replace(0)
    event = session.append("user/message", user("u-2"), surface_op=marker, source_event_seqs=sources)
    sources.append(9)
    marker["end"] = 9
    assert list(event.to_dict()) == ["type", "seq", "time", "data", "sourceEventSeqs", "surfaceOp"]
    assert (event.source_event_seqs, event.surface_op) == ((0,), replace(0))


def test_events_without_surface_keys_have_none() -> None:
    """SU38: a log-only event has neither marker nor provenance."""
    event = in_step().append("todo/write", {"todos": []})
    assert list(event.to_dict()) == ["type", "seq", "time", "data"]


def test_todo_lists_are_whole_snapshots_off_the_surface() -> None:
    """TD1-TD4: each list stands alone, the last one wins, and none is a message."""
    session = in_step()
    todos = [{"content": "a", "status": "pending"}]
    session.append("todo/write", {"todos": todos})
    todos[0]["status"] = "completed"
    session.append("todo/write", {"todos": todos})
    lists = [event.data["todos"][0]["status"] for event in session.events if event.type == "todo/write"]
    assert lists == ["pending", "completed"]
    assert session.derive_messages() == []
    again = Session.create("t", seed=session.log)
    assert [event.type for event in again.events].count("todo/write") == 2


def test_turn_end_reasons_round_trip() -> None:
    """SE3, SE4: the reason of a turn end is stored as it was given."""
    reasons = [
        {"kind": "max-tokens"},
        {"kind": "aborted", "reason": {"kind": "hook", "reason": "because"}},
        {"kind": "error", "error": {"message": "m", "code": "UNKNOWN"}},
        {"kind": "acme-reason", "more": 1},
    ]
    session = fresh()
    for turn, reason in enumerate(reasons, start=1):
        session.append("turn/start", {"turn": turn})
        session.append("turn/end", {"turn": turn, "reason": reason})
    assert [e.data["reason"] for e in session.events if e.type == "turn/end"] == reasons


def test_append_from_another_thread_is_refused() -> None:
    """L1: a session belongs to the thread that made it, until it is bound to another."""
    session = in_step()
    errors: list[BaseException] = []

    def foreign() -> None:
        for attempt in (
            lambda: session.append("feedback/record", {"text": "x"}),
            lambda: session.append_chunk(1, 1, delta()),
            lambda: session.append_after("feedback/record", {"text": "x"}),
        ):
            try:
                attempt()
            except UsageError as error:
                errors.append(error)
        session.bind_to_thread()
        session.append("feedback/record", {"text": "here"})

    thread = threading.Thread(target=foreign)
    thread.start()
    thread.join()
    assert len(errors) == 3
    assert session.seq == 3
    with pytest.raises(UsageError, match="thread"):
        session.append("feedback/record", {"text": "x"})


def test_reading_from_another_thread_is_allowed() -> None:
    """R3: only appending belongs to one thread."""
    session = in_step()
    seen: list[int] = []
    thread = threading.Thread(target=lambda: seen.append(len(list(session.events))))
    thread.start()
    thread.join()
    assert seen == [2]


def test_observer_that_appends_is_refused_contained_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    """ST17, ST21: an observer's failure is logged; later observers see the event, the append succeeds."""
    session = in_step()
    seen: list[str] = []

    def appending(event: Any) -> None:
        session.append("feedback/record", {"text": "from an observer"})

    session.observe(appending)
    session.observe(lambda event: seen.append(event.type))
    with caplog.at_level(logging.ERROR, logger="turnlog.session"):
        event = session.append("feedback/record", {"text": "x"})
    assert event.seq == 2
    assert session.seq == 3
    assert seen == ["feedback/record"]
    assert "append_after" in caplog.text


def test_append_after_queues_until_the_append_returns() -> None:
    """ST21: an observer's event follows the one it saw, in order, and is itself observed."""
    session = in_step()
    seen: list[tuple[str, int]] = []

    def queue(event: Any) -> None:
        seen.append((event.data["text"], session.seq))
        if event.data["text"] == "first":
            session.append_after("feedback/record", {"text": "second"})
            session.append_after("feedback/record", {"text": "third"})

    session.observe(queue)
    session.append("feedback/record", {"text": "first"})
    assert seen == [("first", 3), ("second", 4), ("third", 5)]


def test_append_after_from_another_thread_is_refused_during_an_append() -> None:
    """ST21, L1: the queue of a running append is its thread's."""
    session = fresh()
    errors: list[UsageError] = []

    def foreign() -> None:
        try:
            session.append_after("feedback/record", {"text": "foreign"})
        except UsageError as error:
            errors.append(error)

    def observer(event: Any) -> None:
        thread = threading.Thread(target=foreign)
        thread.start()
        thread.join()

    session.observe(observer)
    session.append("feedback/record", {"text": "x"})
    assert (len(errors), session.seq) == (1, 1)


def test_append_after_without_a_running_append_is_an_append() -> None:
    """ST21: outside an append there is nothing to wait for, and errors are the caller's."""
    session = fresh()
    session.append_after("feedback/record", {"text": "x"})
    assert session.seq == 1
    with pytest.raises(InvalidEventError):
        session.append_after("x/unknown", {})


def test_a_queued_event_that_is_invalid_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """ST21: nobody waits for a queued event, so its error is logged and the next one is appended."""
    session = fresh()

    def queue(event: Any) -> None:
        if event.seq == 0:
            session.append_after("x/unknown", {})
            session.append_after("feedback/record", {"text": "good"})

    session.observe(queue)
    with caplog.at_level(logging.ERROR, logger="turnlog.session"):
        session.append("feedback/record", {"text": "x"})
    assert [event.type for event in session.events] == ["feedback/record"] * 2
    assert "x/unknown" in caplog.text


def test_append_after_from_a_chunk_observer_follows_the_chunk() -> None:
    """ST21: the hot path also does what waited for it."""
    session = in_step()

    def queue(event: Any) -> None:
        if event.type == "assistant/chunk":
            session.append_after("feedback/record", {"text": "saw it"})

    session.observe(queue, chunks=True)
    session.append_chunk(1, 1, delta())
    assert [event.type for event in session.events[2:]] == ["assistant/chunk", "feedback/record"]


def test_observers_hear_chunks_only_when_asked() -> None:
    """ST1: an observer sees every event once, chunk events only with `chunks=True`; unsubscribing ends it."""
    session = in_step()
    plain: list[str] = []
    full: list[str] = []
    undo = session.observe(lambda event: plain.append(event.type))
    undo_full = session.observe(lambda event: full.append(event.type), chunks=True)
    session.append_chunk(1, 1, delta())
    session.append_chunk(1, 1, {"type": "block-start", "index": 1, "blockType": "text"})
    session.append("feedback/record", {"text": "x"})
    undo()
    undo()
    undo_full()
    session.append_chunk(1, 1, delta())
    session.append("feedback/record", {"text": "y"})
    assert plain == ["feedback/record"]
    assert full == ["assistant/chunk", "assistant/chunk", "feedback/record"]


def test_unsubscribing_during_dispatch_does_not_skip_others() -> None:
    """ST20: the callbacks of one event are those that were subscribed when it was committed."""
    session = fresh()
    seen: list[str] = []
    undo = session.observe(lambda event: undo_all())
    undo_second = session.observe(lambda event: seen.append("second"))

    def undo_all() -> None:
        undo()
        undo_second()

    session.append("feedback/record", {"text": "x"})
    session.append("feedback/record", {"text": "y"})
    assert seen == ["second"]


def test_candidate_may_veto_and_nothing_changes() -> None:
    """ST18, ST19, IN3: the candidate is seen before the commit; a veto leaves all as before."""
    session = in_step()
    seen: list[tuple[int, int]] = []

    def veto(event: Any) -> None:
        seen.append((event.seq, session.seq))
        if event.type == "user/message":
            raise ValueError("not now")

    undo = session.subscribe_candidates(veto)
    observed: list[str] = []
    session.observe(lambda event: observed.append(event.type))
    before = _state(session)
    with pytest.raises(ValueError, match="not now"):
        session.append("user/message", user(), surface_op="append")
    assert _state(session) == before
    assert observed == []
    session.append("feedback/record", {"text": "x"})
    undo()
    session.append("user/message", user(), surface_op="append")
    assert seen == [(2, 2), (2, 2)]
    assert observed == ["feedback/record", "user/message"]


def test_candidates_see_chunks_and_may_veto_them() -> None:
    """ST18: with a candidate listener a chunk goes the general way and is stored packed all the same."""
    session = in_step()
    seen: list[Any] = []
    undo = session.subscribe_candidates(lambda event: seen.append(event.data["chunk"]["text"]))
    for word in "abc":
        session.append_chunk(1, 1, delta(word))
    undo()
    session.append_chunk(1, 1, delta("d"))
    assert seen == ["a", "b", "c"]
    assert len(session.log.rows) == 3
    assert session.log.rows[2].count == 4


def test_append_inside_a_candidate_is_refused() -> None:
    """ST21: a candidate listener that appends vetoes the event with its own error."""
    session = fresh()
    session.subscribe_candidates(lambda event: session.append("feedback/record", {"text": "y"}) and None)
    with pytest.raises(UsageError, match="append_after"):
        session.append("feedback/record", {"text": "x"})
    assert session.seq == 0


def test_what_a_vetoing_candidate_queued_is_appended() -> None:
    """ST18: what waited for the append is done when the append was refused, too."""
    session = fresh()

    def veto(event: Any) -> None:
        if event.data["text"] == "x":
            session.append_after("feedback/record", {"text": "refused x"})
            raise ValueError("no")

    session.subscribe_candidates(veto)
    with pytest.raises(ValueError, match="no"):
        session.append("feedback/record", {"text": "x"})
    assert [event.data["text"] for event in session.events] == ["refused x"]


def test_when_idle_waits_for_the_running_append() -> None:
    """ST22: an action asked for during an append runs after its observers, else at once."""
    session = fresh()
    order: list[str] = []
    session.when_idle(lambda: order.append("now"))
    session.observe(lambda event: session.when_idle(lambda: order.append("deferred")))
    session.observe(lambda event: order.append("observer"))
    session.append("feedback/record", {"text": "x"})
    assert order == ["now", "observer", "deferred"]


def test_the_order_follows_the_log_whatever_observers_do() -> None:
    """IN4: a failing observer does not keep the order from advancing."""
    session = fresh()

    def fail(event: Any) -> None:
        raise ValueError("no")

    session.observe(fail)
    session.append("turn/start", {"turn": 1})
    assert session.open_turn == 1
    session.append("turn/end", {"turn": 1, "reason": {"kind": "completed"}})
    assert session.next_turn == 2


def test_base_exception_of_an_observer_is_not_swallowed() -> None:
    """ST17: an interrupt goes on to the producer; the event stays and the session is usable."""
    session = fresh()

    def interrupt(event: Any) -> None:
        raise KeyboardInterrupt

    undo = session.observe(interrupt)
    with pytest.raises(KeyboardInterrupt):
        session.append("feedback/record", {"text": "x"})
    undo()
    assert session.append("feedback/record", {"text": "y"}).seq == 1


def test_strict_session_names_the_broken_rule() -> None:
    """L4: `InvariantError.rule` is a stable name and nothing is changed; `strict=False` accepts."""
    session = in_step()
    before = _state(session)
    with pytest.raises(InvariantError) as caught:
        session.append("turn/start", {"turn": 2})
    assert caught.value.rule == "turn-not-nested"
    assert _state(session) == before
    assert in_step(strict=False).append("turn/start", {"turn": 2}).seq == 2
    assert (session.strict, session.open_turn, session.open_step) == (True, 1, 1)


def test_calls_are_answered_before_their_step_ends() -> None:
    """L4: requested and recorded calls are pending; a result answers a recorded one, an excuse either."""
    session = in_step()
    session.append("assistant/message", answer("a", call("c-1"), call("c-2")), surface_op="append")
    assert session.pending_calls == ("c-1", "c-2")
    session.append("tool/call", tool_call("c-2"))
    assert (session.is_recorded("c-1"), session.is_recorded("c-2"), session.is_recorded("x")) == (
        False,
        True,
        False,
    )
    with pytest.raises(InvariantError) as caught:
        session.append("tool/result", result("c-1"), surface_op="append")
    assert caught.value.rule == "result-answers-call"
    session.append("tool/result", result("c-2"), surface_op="append")
    with pytest.raises(InvariantError) as caught:
        session.append("step/end", {"turn": 1, "step": 1})
    assert caught.value.rule == "step-end-pending-call"
    error = {"name": "ToolNotStartedError", "code": "TOOL_NOT_STARTED"}
    session.append("tool/result", result("c-1", error=error, block={"isError": True}), surface_op="append")
    session.append("step/end", {"turn": 1, "step": 1})
    assert not session.pending_calls
    assert (session.next_step, session.next_turn) == (2, 2)


def test_events_view_is_live_and_slices_are_snapshots() -> None:
    """SE42: the view grows with the log; a slice or a list of it does not, and a loop over it ends."""
    session = fresh()
    session.append("feedback/record", {"text": "a"})
    view, held, sliced = session.events, list(session.events), session.events[:]
    for event in view:
        session.append("feedback/record", {"text": f"after {event.seq}"})
    assert session.events is view
    assert (len(view), len(held), len(sliced)) == (2, 1, 1)
    assert view[-1].data == {"text": "after 0"}
    assert "2 events" in repr(view)


def test_a_message_may_hold_anything_that_is_lossless() -> None:
    """SE5, SE6, SE11, SE19: unknown blocks and sources, lone surrogates and deep values come out again."""
    session = fresh()
    deep: Any = "leaf"
    for _ in range(300):
        deep = [deep]
    message = user("\ud800", {"type": "zebra", "deep": deep}, text("\udc00"))
    message["source"] = {"kind": "goal", "goalId": "g"}
    session.append("user/message", message, surface_op="append")
    assert session.derive_messages() == [message]


def test_id_and_header_are_fixed() -> None:
    """ST9, ST14: a session made without anything has a minimal header."""
    session = Session.create("s", clock=lambda: 5)
    assert session.id == "s"
    assert session.header.to_dict() == {"version": 0, "id": "s", "createdAt": 5}
