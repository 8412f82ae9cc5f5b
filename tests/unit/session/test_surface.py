"""The surface: joining, replacing, what both refuse, and that fold and session agree."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.session.conversations import (
    answer,
    conversation,
    delta,
    fresh,
    in_step,
    replace,
    result,
    text,
    user,
)
from turnlog.errors import InvalidEventError
from turnlog.events.envelope import SessionEvent
from turnlog.session.session import Session
from turnlog.session.surface import (
    Replacement,
    SurfaceManager,
    fold_surface,
    is_append_event,
    is_replacement_event,
    is_surface_event,
    is_surface_type,
)


def _users(count: int) -> Session:
    session = fresh(strict=False)
    for number in range(count):
        session.append("user/message", user(f"u-{number}"), surface_op="append")
    return session


def _replace(session: Session, start: int, end: int, sources: Any) -> None:
    session.append("user/message", user("s"), surface_op=replace(start, end), source_event_seqs=sources)


def test_the_view_is_one_object_and_always_current() -> None:
    """SE1, SU19-SU21, SU47: one read-only view that follows appends and replacements."""
    session = fresh(strict=False)
    view = session.surface
    assert (view.nodes, view.replace_generation) == ((), 0)
    session.append("user/message", user(), surface_op="append")
    assert view.nodes == (0,)
    assert view.nodes is view.nodes
    _replace(session, 0, 0, [0])
    assert (view.nodes, view.replace_generation) == ((1,), 1)
    assert session.surface is view
    with pytest.raises(AttributeError):
        view.nodes = ()  # type: ignore[misc]  # the view is read-only


@pytest.mark.parametrize(
    ("start", "end", "sources", "nodes"),
    [
        (0, 3, [0, 1, 2, 3], (4,)),
        (1, 2, [1, 2], (0, 4, 3)),
        (3, 3, [3], (0, 1, 2, 4)),
        (1, 2, (2, 1, 0), (0, 4, 3)),
    ],
)
def test_replace_takes_a_range_by_position(
    start: int, end: int, sources: Any, nodes: tuple[int, ...]
) -> None:
    """SU1, SU23-SU25, SU29-SU31: the range gives way to the new node; more sources than needed are fine."""
    session = _users(4)
    _replace(session, start, end, sources)
    assert session.surface.nodes == nodes


def test_ranges_go_by_position_not_by_number() -> None:
    """SU13, SU30: a replacement has a high seq and an early place; later ranges may begin with it."""
    session = _users(4)
    _replace(session, 0, 1, [0, 1])
    _replace(session, 4, 2, [4, 2])
    assert session.surface.nodes == (5, 3)
    fold = fold_surface(session.events)
    assert fold.nodes == session.surface.nodes
    assert fold.replacements == (Replacement(4, 0, 1, (0, 1)), Replacement(5, 4, 2, (4, 2)))


@pytest.mark.parametrize(
    ("marker", "sources", "field", "words"),
    [
        (replace(9), [0], "surfaceOp", "start seq 9, not found"),
        (replace(0, 9), [0], "surfaceOp", "end seq 9, not found"),
        (replace(2, 0), [0, 1, 2], "surfaceOp", "after its end"),
        ({"op": "replace", "start": 0, "end": 0, "x": 1}, [0], "surfaceOp", "exactly"),
        ({"op": "swap", "start": 0, "end": 0}, [0], "surfaceOp", "exactly"),
        ({"op": "replace", "start": "0", "end": 0}, [0], "surfaceOp", "seqs"),
        ({"op": "replace", "start": 0, "end": True}, [0], "surfaceOp", "seqs"),
        ({"op": "replace", "start": -1, "end": 0}, [0], "surfaceOp", "seqs"),
        ("prepend", [0], "surfaceOp", "append"),
        ([], [0], "surfaceOp", "append"),
        (replace(0, 1), None, "sourceEventSeqs", "missing 0, 1"),
        (replace(0, 1), [0], "sourceEventSeqs", "missing 1"),
        (replace(0, 1), [], "sourceEventSeqs", "empty"),
        ("append", 0, "sourceEventSeqs", "array"),
        ("append", [], "sourceEventSeqs", "empty"),
        ("append", [0, 0], "sourceEventSeqs", "repeat"),
        ("append", [0.5], "sourceEventSeqs", "integers"),
        ("append", [True], "sourceEventSeqs", "integers"),
        ("append", ["0"], "sourceEventSeqs", "integers"),
        ("append", [-1], "sourceEventSeqs", "integers"),
        ("append", [3], "sourceEventSeqs", "earlier"),
        ("append", [40], "sourceEventSeqs", "earlier"),
    ],
)
def test_what_a_marker_or_its_sources_may_not_be(marker: Any, sources: Any, field: str, words: str) -> None:
    """SU4, SU16, SU26-SU28, SE38: each fault is named, and the surface stays as it was."""
    session = _users(3)
    with pytest.raises(InvalidEventError, match=words) as caught:
        session.append("user/message", user(), surface_op=marker, source_event_seqs=sources)
    assert caught.value.field == field
    assert (session.seq, session.surface.nodes, session.surface.replace_generation) == (3, (0, 1, 2), 0)


def test_only_an_answer_may_have_empty_sources() -> None:
    """SU3: empty provenance says that the stream was empty; a replacement still needs its nodes."""
    session = in_step()
    session.append("assistant/message", answer(), surface_op="append", source_event_seqs=[])
    with pytest.raises(InvalidEventError, match="missing 2"):
        session.append("assistant/message", answer(), surface_op=replace(2), source_event_seqs=[])


def _results(*extra: Any) -> Session:
    session = fresh(strict=False)
    session.append("tool/result", result("c", text("long"), **dict(extra)), surface_op="append")
    session.append("tool/result", result("d"), surface_op="append")
    session.append("user/message", user(), surface_op="append")
    return session


def _rewrite(session: Session, data: dict[str, Any], start: int = 0, end: int = 0) -> None:
    nodes = list(range(start, end + 1))
    session.append("tool/result", data, surface_op=replace(start, end), source_event_seqs=nodes)


@pytest.mark.parametrize(
    ("data", "start", "end", "words"),
    [
        (result("c"), 0, 1, "exactly one"),
        (result("c"), 2, 2, "user/message"),
        (result("d"), 0, 0, "may change only content"),
        (result("c", block={"isError": True}), 0, 0, "may change only content"),
        (result("c", turn=2), 0, 0, "may change only content"),
        (result("c", error={"name": "n", "code": "c"}), 0, 0, "may change only content"),
    ],
)
def test_a_rewritten_result_may_change_only_its_content(
    data: dict[str, Any], start: int, end: int, words: str
) -> None:
    """SU5-SU8: one current result, and nothing but the content inside its block."""
    session = _results()
    with pytest.raises(InvalidEventError, match=words):
        _rewrite(session, data, start, end)
    assert session.surface.nodes == (0, 1, 2)


def test_a_rewritten_result_keeps_its_meta_by_structure() -> None:
    """SU9: equal values in fresh objects and any key order pass; types, keys and order of items count."""
    meta = {"list": [1, {"a": None}], "flag": True}
    session = _results(("meta", meta))
    _rewrite(session, result("c", text("cut"), meta={"flag": True, "list": [1, {"a": None}]}))
    for bad in ({"list": [1, {"a": None}], "flag": 1}, {"list": 1, "flag": True}, {"list": [1]}, None):
        with pytest.raises(InvalidEventError, match="may change only content"):
            session.append(
                "tool/result",
                result("c", meta=bad),
                surface_op=replace(3),
                source_event_seqs=[3],
            )


def test_the_manager_follows_a_window() -> None:
    """SU10-SU12: a fold may begin late; ranges that reach before it are not found."""
    events = {
        5: SessionEvent.build("tool/result", 5, 0, result("c"), surface_op="append"),
        6: SessionEvent.build(
            "tool/result", 6, 0, result("c", text("x")), surface_op=replace(5), source_event_seqs=(5,)
        ),
    }
    manager = SurfaceManager(events.__getitem__)
    for event in events.values():
        manager.feed(event)
    assert (manager.nodes, manager.replace_generation) == ([6], 1)
    late = SessionEvent.build("user/message", 7, 0, user(), surface_op=replace(4), source_event_seqs=[4])
    with pytest.raises(InvalidEventError, match="not found"):
        manager.feed(late)
    assert manager.nodes == [6]


def test_fold_and_session_agree() -> None:
    """SU13, SU15: on a whole conversation, as events and as plain objects."""
    session = conversation()
    assert fold_surface(session.events).nodes == session.surface.nodes
    assert fold_surface([event.to_dict() for event in session.events]).nodes == session.surface.nodes
    assert fold_surface([]).nodes == ()


def test_fold_refuses_what_is_no_log() -> None:
    """SU4, SU15, SU17, SU18: a hole, a missing marker, one where none belongs, a rewrite of no result."""
    first = {"type": "user/message", "seq": 0, "time": 0, "data": user(), "surfaceOp": "append"}
    with pytest.raises(InvalidEventError, match="seq is 1 where 0"):
        fold_surface([{**first, "seq": 1}])
    with pytest.raises(InvalidEventError, match="required"):
        fold_surface([{key: value for key, value in first.items() if key != "surfaceOp"}])
    with pytest.raises(InvalidEventError, match="only for types"):
        fold_surface([{**first, "type": "turn/start"}])
    odd = {
        "type": "tool/result",
        "seq": 1,
        "time": 0,
        "data": 7,
        "surfaceOp": replace(0),
        "sourceEventSeqs": [0],
    }
    for target in ({"message": 7}, {"message": {"content": 7}}):
        with pytest.raises(InvalidEventError, match="may change only content"):
            fold_surface([{**first, "type": "tool/result", "data": target}, odd])


def test_no_history_of_replacements_is_kept() -> None:
    """SU14: after many replacements the state holds as much as the surface."""
    session = _users(2)
    manager = session._folds.surface
    for seq in range(2, 200):
        _replace(session, seq - 1, seq - 1, [seq - 1])
    assert len(manager.nodes) == len(manager._places) == 2
    assert manager.replace_generation == 198


def test_guards_split_events_by_type_and_marker() -> None:
    """SU40-SU46: the four guards, on events and plain objects."""
    session = _users(2)
    _replace(session, 0, 1, [0, 1])
    session.append("feedback/record", {"text": "x"})
    first, replacing, plain = session.events[0], session.events[2], session.events[3]
    markerless = {"type": "user/message", "seq": 0, "time": 0, "data": user()}
    assert [is_surface_type(type_) for type_ in ("user/message", "tool/result")] == [True, True]
    assert [is_surface_type(type_) for type_ in ("assistant/message", "turn/start")] == [True, False]
    events = (first, replacing, plain, markerless)
    assert [is_surface_event(event) for event in events] == [True, True, False, False]
    assert [is_append_event(event) for event in events] == [True, False, False, False]
    assert [is_replacement_event(event) for event in events] == [False, True, False, False]


def test_chunks_and_brackets_are_never_on_the_surface() -> None:
    """SU33: only the three surface types join."""
    session = in_step()
    session.append_chunk(1, 1, delta())
    assert session.surface.nodes == ()
