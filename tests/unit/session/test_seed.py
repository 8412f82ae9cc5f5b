"""How a session begins: seeds, restored logs, their checks and the marker at their end."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import pytest

from tests.unit.session.conversations import (
    HEADER,
    answer,
    call,
    conversation,
    delta,
    in_step,
    replace,
    request_header,
    result,
    text,
    tool_call,
    user,
)
from turnlog.errors import (
    CorruptLogError,
    InvalidEventError,
    InvalidSessionIdError,
    InvariantError,
    UnsupportedFormatError,
)
from turnlog.events.chunk_runs import ChunkRow
from turnlog.events.envelope import SessionEvent
from turnlog.events.header import SessionHeader
from turnlog.events.log import EventLog
from turnlog.events.vocabulary import register_event_type, unregister_event_type
from turnlog.session.session import Session


def _event(type_: str, seq: int, data: Any, **markers: Any) -> dict[str, Any]:
    return {"type": type_, "seq": seq, "time": 5, "data": data, **markers}


def _log(*events: dict[str, Any]) -> EventLog:
    """Return a log as a scan of stored text gives it: rows that were never checked but for their envelope."""
    return EventLog(SessionEvent.from_dict(event) for event in events)


def test_an_empty_seed_is_marked_and_reopening_adds_nothing() -> None:
    """SE8: no seed, no marker; an empty one is marked at seq 0; a marked log gets no second marker."""
    assert Session.create("s").seq == 0
    marked = Session.create("s", seed=[])
    assert ([e.type for e in marked.events], marked.first_live_seq) == (["session/end-seed"], 0)
    again = Session.restore(HEADER, marked.log.snapshot())
    assert (again.seq, again.first_live_seq) == (1, 1)
    assert Session.create("s", seed=list(again.events)).seq == 1


def test_a_restored_log_is_marked_where_live_events_begin() -> None:
    """SE8, PR4: the marker of a restore stands at `first_live_seq`, with the time of the clock."""
    log = conversation().log.snapshot()
    count = len(log)
    session = Session.restore(HEADER, log, clock=lambda: 77)
    assert (session.first_live_seq, session.seq) == (count, count + 1)
    assert session.events[-1].to_dict() == {
        "type": "session/end-seed",
        "seq": count,
        "time": 77,
        "data": {},
    }


def test_seed_and_restore_give_the_same_session() -> None:
    """PR3, SE7, SE23, TD4: events, messages, surface and request state are those of the source."""
    source = conversation()
    plain = [event.to_dict() for event in source.events]
    made = (
        Session.create("s", seed=plain),
        Session.create("s", seed=list(source.events)),
        Session.create("s", seed=source.log),
        Session.restore(HEADER, source.log.snapshot()),
    )
    for session in made:
        assert [event.to_dict() for event in session.events[:-1]] == plain
        assert session.derive_messages() == source.derive_messages()
        assert session.surface.nodes == source.surface.nodes
        assert session.request_header() == source.request_header()
        assert session.request_context() == source.request_context()
        assert (session.open_turn, session.next_turn) == (None, 2)


def test_chunks_of_a_seed_are_packed() -> None:
    """CR1, L2: streamed deltas in a seed of plain objects become one row."""
    session = Session.create("s", seed=[event.to_dict() for event in conversation().events])
    assert [row.count for row in session.log.rows if isinstance(row, ChunkRow)] == [4]


def test_a_seed_is_read_once() -> None:
    """SE24, SE29: any iterable will do, also one that can be read only once, and any mapping as an event."""
    source = conversation()
    seed = (MappingProxyType(event.to_dict()) for event in source.events)
    assert Session.create("s", seed=seed).derive_messages() == source.derive_messages()


def test_deep_data_is_restored_without_recursion() -> None:
    """SE41: the deepest payload that can be stored is restored and derived from any stack depth."""
    deep: Any = "leaf"
    for _ in range(500):
        deep = [deep]
    event = _event("user/message", 0, user("u", deep), surfaceOp="append")

    def at_depth(levels: int) -> list[dict[str, Any]]:
        if levels:
            return at_depth(levels - 1)
        return Session.restore(HEADER, _log(event)).derive_messages()

    assert at_depth(700) == [user("u", deep)]


def test_a_seed_is_independent_of_its_source() -> None:
    """SE12, SE32, SE40: changing the given objects, or growing the source, changes nothing."""
    events = [_event("feedback/record", 0, {"text": "a"})]
    source = conversation()
    of_list, of_log = Session.create("s", seed=events), Session.create("t", seed=source.log)
    events[0]["data"]["text"] = "b"
    count = source.seq
    source.append("feedback/record", {"text": "later"})
    assert of_list.events[0].data == {"text": "a"}
    assert (of_log.first_live_seq, of_log.events[count].type) == (count, "session/end-seed")
    of_log.append("feedback/record", {"text": "own"})
    assert source.events[count].data == {"text": "later"}


BAD_EVENTS: list[tuple[dict[str, Any], str]] = [
    (_event("turn/start", 1, {"turn": 1}), "seq"),
    (_event("user/message", 0, user()), "surfaceOp"),
    (_event("user/message", 0, user(), surfaceOp="append", sourceEventSeqs=[0]), "sourceEventSeqs"),
    (_event("user/message", 0, {**user(), "role": "system"}, surfaceOp="append"), "data.role"),
    (_event("turn/start", 0, {"turn": 1}, surfaceOp="append"), "surfaceOp"),
    (_event("request/header", 0, {"header": {}, "reason": "initial"}), "data.header.config"),
    (_event("tool/result", 0, result("c", block={"toolCallId": "d"}), surfaceOp="append"), "toolCallId"),
]


@pytest.mark.parametrize(("event", "field"), BAD_EVENTS)
def test_a_bad_seed_event_is_named_by_index_and_field(event: dict[str, Any], field: str) -> None:
    """SE9, SE10, SE21, SE22, SE31: the error names the index; no session exists."""
    with pytest.raises(InvalidEventError) as caught:
        Session.create("s", seed=[event])
    assert caught.value.index == 0
    assert field in caught.value.field


@pytest.mark.parametrize(("event", "field"), BAD_EVENTS[1:])
def test_a_bad_stored_event_is_corruption_with_its_seq(event: dict[str, Any], field: str) -> None:
    """SE9, SE10, SE13, SE22, R2: the same faults in a stored log name the seq and keep the cause."""
    good = _event("feedback/record", 0, {"text": "x"})
    with pytest.raises(CorruptLogError) as caught:
        Session.restore(HEADER, _log(good, {**event, "seq": 1, **_earlier(event)}))
    assert (caught.value.seq, caught.value.session_id) == (1, "s")
    assert isinstance(caught.value.__cause__, InvalidEventError)
    assert field in caught.value.__cause__.field


def _earlier(event: dict[str, Any]) -> dict[str, Any]:
    return {"sourceEventSeqs": [1]} if "sourceEventSeqs" in event else {}


@pytest.mark.parametrize(
    "event",
    [
        _event("turn/end", 0, {"turn": 1}),
        _event("turn/start", 0, {"turn": 1, "trigger": {"kind": "user"}}),
        _event("user/message", 0, user(), surfaceOp="append", sourceEventSeqs=[[0, 1]]),
        _event("steering/message", 0, {}),
        _event("x/unknown", 0, {}),
    ],
)
def test_a_seed_with_what_could_not_be_loaded_is_refused(event: dict[str, Any]) -> None:
    """L2: old shapes, pairs of sources and unknown types enter no new log."""
    with pytest.raises(InvalidEventError):
        Session.create("s", seed=[event])


@pytest.mark.parametrize("entry", ["x", None, 7, [1], {"type": "x"}, _event("x/y", 0, {}, more=1)])
def test_a_seed_entry_that_is_no_event_is_refused(entry: Any) -> None:
    """SE20, SE26-SE28, SE46: whatever is no event envelope names its index."""
    seed: Any = [_event("feedback/record", 0, {"text": "x"}), entry]
    with pytest.raises(InvalidEventError) as caught:
        Session.create("s", seed=seed)
    assert caught.value.index == 1


def test_an_ignorable_event_is_accepted_and_kept() -> None:
    """SE9, SE46: an unknown type is taken when it is marked, by seed and by restore."""
    event = _event("x/unknown", 0, None, ignorable=True)
    for session in (Session.create("s", seed=[event]), Session.restore(HEADER, _log(event))):
        assert session.events[0].to_dict() == event
        assert session.events[0].ignorable


def test_an_unknown_required_type_in_a_stored_log_is_unsupported() -> None:
    """L2: the load names the type and its seq; registering the type makes the log loadable."""
    events = (_event("feedback/record", 0, {"text": "x"}), _event("acme/need", 1, {"deep": [1]}))
    with pytest.raises(UnsupportedFormatError) as caught:
        Session.restore(HEADER, _log(*events))
    assert (caught.value.found, caught.value.seq, caught.value.direction) == ("acme/need", 1, "unknown-type")
    surrogate = _event("acme/need", 0, {"text": "\ud800"})
    with pytest.raises(UnsupportedFormatError):
        Session.restore(HEADER, _log(surrogate))
    register_event_type("acme/need", required=True)
    try:
        assert Session.restore(HEADER, _log(*events)).first_live_seq == 2
    finally:
        unregister_event_type("acme/need")


def test_a_log_that_does_not_begin_at_zero_is_no_whole_log() -> None:
    """SE21, L1: a suffix cannot be restored, nor a log with a hole in its rows."""
    suffix = EventLog(first_seq=5)
    suffix.append_event(SessionEvent.from_dict(_event("feedback/record", 5, {"text": "x"})))
    with pytest.raises(CorruptLogError):
        Session.restore(HEADER, suffix)


@pytest.mark.parametrize(
    "line",
    [
        b'{"type":"feedback/record","seq":0,"time":5,"data":1,"more":1}',
        b'{"type":"feedback/record","seq":1,"time":5,"data":1}',
        b'{"type":"feedback/record","seq":0,"time":5}',
        b'{"type":"feedback/record","seq":0,"time":5,"data":1,"ignorable":false}',
        b"not JSON",
    ],
)
def test_a_row_that_is_not_the_event_it_is_said_to_be_is_refused(line: bytes) -> None:
    """SE46, L2: a restore trusts no backend: envelope and seq of every row are those of its text."""
    log = EventLog()
    log.append_encoded("feedback/record", 0, 5, line)
    with pytest.raises(CorruptLogError):
        Session.restore(HEADER, log)


def test_a_row_of_another_type_is_followed_by_its_text() -> None:
    """L2: the text of a row decides what it is."""
    log = EventLog()
    log.append_encoded("feedback/record", 0, 5, b'{"type":"turn/start","seq":0,"time":5,"data":{"turn":1}}')
    assert Session.restore(HEADER, log).open_turn == 1


def test_restoring_takes_pairs_of_sources() -> None:
    """L2: a stored `[first, last]` pair of sources counts as all seqs between, both included."""
    events = [
        _event("user/message", 0, user("u-1"), surfaceOp="append"),
        _event("user/message", 1, user("u-2"), surfaceOp="append"),
        _event("user/message", 2, user("u-3"), surfaceOp=replace(0, 1), sourceEventSeqs=[[0, 1]]),
    ]
    assert Session.restore(HEADER, _log(*events)).surface.nodes == (2,)


@pytest.mark.parametrize(
    "event",
    [
        _event("user/message", 0, user("u", {"type": "text", "text": "\ud800"}), surfaceOp="append"),
        _event("turn/start", 0, {"turn": "one"}),
        _event("turn/start", 0, None),
        _event("step/start", 0, {"turn": 1}),
        _event("tool/call", 0, {"turn": 1, "step": 1, "callId": 7}),
        _event("tool/call", 0, 7),
        _event("assistant/message", 0, answer("a", 1, None, {"type": "tool-call"}), surfaceOp="append"),
        _event("assistant/message", 0, {"message": answer("a")["message"]}, surfaceOp="append"),
        _event("tool/result", 0, {"message": result("c")["message"]}, surfaceOp="append"),
        _event("request/header", 0, request_header()),
        _event("assistant/chunk", 0, {"turn": 1, "step": 1, "chunk": {"type": "block-start"}}),
    ],
)
def test_what_the_quick_check_does_not_take_is_checked_exactly(event: dict[str, Any]) -> None:
    """SE9, SE11: odd but valid events are restored, with the event as stored."""
    session = Session.restore(HEADER, _log(event))
    assert session.events[0].to_dict() == event


def test_a_restored_rewrite_is_checked_against_the_result_it_replaces() -> None:
    """SU7-SU9, SU11: a stored rewrite may change only the content, whatever way it is read."""
    base = [_event("tool/result", 0, result("c", meta={"a": 1}), surfaceOp="append")]
    good = _event(
        "tool/result",
        1,
        result("c", text("cut"), meta={"a": 1}),
        surfaceOp=replace(0),
        sourceEventSeqs=[0],
    )
    assert Session.restore(HEADER, _log(*base, good)).surface.nodes == (1,)
    odd = {**good, "data": {**good["data"], "more": "\ud800"}}
    for bad in ({**good, "data": result("c", meta={"a": True})}, odd):
        with pytest.raises(CorruptLogError):
            Session.restore(HEADER, _log(*base, bad))


def test_a_log_that_ends_inside_a_step_goes_on_from_there() -> None:
    """IN15, L4: the open turn, step and calls of a restored log are those that live appends must close."""
    source = in_step()
    source.append("assistant/message", answer("a", call("c-1"), call("c-2")), surface_op="append")
    source.append("tool/call", tool_call("c-1"))
    session = Session.restore(HEADER, source.log.snapshot())
    assert (session.open_turn, session.open_step, session.pending_calls) == (1, 1, ("c-1", "c-2"))
    session.append("tool/result", result("c-1"), surface_op="append")
    with pytest.raises(InvariantError):
        session.append("step/end", {"turn": 1, "step": 1})


def test_a_rewritten_result_answers_no_call() -> None:
    """L4: in a seed and in a stored log alike, a rewrite of a result leaves a pending call pending."""
    source = in_step()
    source.append("tool/call", tool_call("c"))
    source.append("tool/result", result("c", text("long")), surface_op="append")
    source.append("tool/call", tool_call("c"))
    source.append("tool/result", result("c"), surface_op=replace(3), source_event_seqs=[3])
    plain = [event.to_dict() for event in source.events]
    for session in (Session.create("s", seed=plain), Session.restore(HEADER, source.log.snapshot())):
        assert session.pending_calls == source.pending_calls == ("c",)


def test_a_disorderly_log_is_restored_and_goes_on_in_order() -> None:
    """L4: seeds and stored logs are not held to the order; the next numbers follow what is there."""
    events = [
        _event("turn/start", 0, {"turn": 7}),
        _event("step/start", 1, {"turn": 7, "step": 4}),
        _event("turn/start", 2, {"turn": 9}),
        _event("turn/end", 3, {"turn": 3, "reason": {"kind": "completed"}}),
    ]
    session = Session.restore(HEADER, _log(*events))
    assert (session.open_turn, session.next_turn) == (None, 10)
    session.append("turn/start", {"turn": 10})
    session.append("step/start", {"turn": 10, "step": 1})
    session.append_chunk(10, 1, delta())


def test_the_header_is_checked_detached_and_must_be_of_the_id() -> None:
    """SE43, SE44, SE45, ST12: a wrong header makes no session; changing the given one changes nothing."""
    given: dict[str, Any] = {**HEADER, "cwd": "/w", "color": ["green"]}
    session = Session.create("s", header=given)
    given["color"].append("red")
    given["cwd"] = "/x"
    assert session.header.to_dict() == {**HEADER, "cwd": "/w", "color": ["green"]}
    wrong: list[Any] = [{**HEADER, "id": "t"}, {**HEADER, "cwd": "w"}, {**HEADER, "createdAt": -1}, 7, [], {}]
    for header in wrong:
        with pytest.raises(InvalidEventError):
            Session.create("s", header=header)
    wrong = [{**HEADER, "version": 1}, {}, None]
    for header in wrong:
        with pytest.raises(InvalidEventError):
            Session.restore(header, EventLog())


def test_a_header_object_is_checked_like_its_dictionary() -> None:
    """SE45: constructing a header object directly escapes no check."""
    assert Session.create(header=SessionHeader(id="h", created_at=3)).id == "h"
    with pytest.raises(InvalidEventError):
        Session.create(header=SessionHeader(id="h", created_at=3, cwd="relative"))


@pytest.mark.parametrize("session_id", ["", "x" * 241, "é" * 49])
def test_an_id_that_no_store_can_hold_is_refused(session_id: str) -> None:
    """S1: the id must encode to 1 to 240 bytes."""
    with pytest.raises(InvalidSessionIdError):
        Session.create(session_id)


def test_an_id_is_minted_when_none_is_given() -> None:
    """S1: a session without an id gets a new UUIDv7."""
    first, second = Session.create(), Session.create()
    assert len(first.id) == 36
    assert first.id < second.id
