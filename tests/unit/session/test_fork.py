"""Where a log may be split."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.session.conversations import conversation, fresh, in_step, user
from turnlog.errors import ForkError
from turnlog.events.envelope import SessionEvent
from turnlog.events.log import EventLog
from turnlog.session.fork import fork_header, fork_prefix
from turnlog.session.session import Session


def _kind(events: Any, at: Any) -> str:
    with pytest.raises(ForkError) as caught:
        fork_prefix(events, at, session_id="s")
    return caught.value.kind


def test_an_empty_source_gives_an_empty_prefix() -> None:
    """FK1: without a boundary there is nothing to inherit and nothing wrong."""
    assert len(fork_prefix(EventLog(), session_id="s")) == 0
    assert len(fork_prefix([], session_id="s")) == 0


@pytest.mark.parametrize("at", [-1, 0.5, 2**60, 99, "1", True])
def test_boundaries_that_are_no_seq_are_refused(at: Any) -> None:
    """FK7: negative, fractional, unsafe, past the end, not a number."""
    assert _kind(conversation().log, at) == "invalid-boundary"
    assert _kind(EventLog(), at) == "invalid-boundary"


@pytest.mark.parametrize("reason", ["completed", "blocked", "max-tokens", "interrupted", "acme"])
def test_any_end_of_a_turn_is_a_boundary(reason: str) -> None:
    """FK4, FK5: a closed turn is stable whatever its reason, also below an open tail."""
    session = fresh()
    session.append("turn/start", {"turn": 1})
    session.append("turn/end", {"turn": 1, "reason": {"kind": reason}})
    session.append("turn/start", {"turn": 2})
    assert len(fork_prefix(session.events, 1, session_id="s")) == 2


def test_every_place_inside_a_turn_is_refused() -> None:
    """FK12: from `turn/start` on, until its `turn/end`; between turns and before the first is fine."""
    session = conversation()
    open_at = [
        at
        for at in range(session.seq)
        if not any(event.type == "turn/end" for event in session.events[: at + 1])
    ]
    for at in open_at:
        assert _kind(session.log, at) == "open-turn"
        assert _kind([event.to_dict() for event in session.events], at) == "open-turn"
    for at in range(len(open_at), session.seq):
        assert len(fork_prefix(session.log, at, session_id="s")) == at + 1
    assert len(fork_prefix(session.log, session_id="s")) == session.seq


def test_a_log_without_turns_forks_anywhere() -> None:
    """FK3: events outside turns are stable boundaries."""
    session = fresh()
    session.append("user/message", user(), surface_op="append")
    session.append("feedback/record", {"text": "x"})
    assert len(fork_prefix(session.log, 0, session_id="s")) == 1


def test_a_source_whose_seqs_are_not_its_places_is_refused() -> None:
    """FK8: a suffix of a log is not a source."""
    log = EventLog(first_seq=3)
    log.append_event(SessionEvent.build("feedback/record", 3, 0, {"text": "x"}))
    assert _kind(log, 0) == "invalid-boundary"


def test_an_open_bracket_of_the_parent_is_followed_by_the_marker() -> None:
    """FK6: what the parent had open between turns is told from the child's own by the marker after it."""
    session = fresh()
    session.append("compaction/start", {"compactionId": "k", "turn": None})
    child = Session.create("c", seed=fork_prefix(session.log, session_id="s"))
    assert [event.type for event in child.events] == ["compaction/start", "session/end-seed"]


def test_the_prefix_does_not_grow_with_its_source() -> None:
    """FK2: the prefix holds the same rows, and none that come later."""
    session = conversation()
    prefix = fork_prefix(session.log, session_id="s")
    count = len(prefix)
    session.append("feedback/record", {"text": "x"})
    assert len(prefix) == count


def test_a_fork_names_its_parent_and_keeps_its_place() -> None:
    """FK1: `cwd` and preset are inherited, origin and depth are not."""
    parent = in_step().header
    header = fork_header(parent, "c", seed_length=0, created_at=9)
    assert header.to_dict() == {
        "version": 0,
        "id": "c",
        "createdAt": 9,
        "parentSession": "s",
        "seedLength": 0,
    }
