"""From stored bytes to a session: header, legacy shapes, closers, torn markers, and the summary fold."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from tests.unit.persistence.world import World
from turnlog.backends.memory import MemoryBackend
from turnlog.errors import CorruptLogError, SessionExistsError, UnsupportedFormatError
from turnlog.events.envelope import SessionEvent
from turnlog.events.header import SessionHeader
from turnlog.events.log import EventLog
from turnlog.persistence.backend import LogSummary, StoredPrefix
from turnlog.persistence.hooks import Hooks
from turnlog.persistence.reading import (
    EarlierEventNeededError,
    check_header,
    describe_torn,
    normalised,
    read_prepared,
)
from turnlog.persistence.service import TornTail
from turnlog.persistence.summaries import SummaryFold
from turnlog.session.registry import SessionRegistry
from turnlog.session.session import Session
from turnlog.testing.scripts import LogScript, append_live, go_live, header


@pytest.mark.parametrize(("version", "direction"), [(1, "newer"), (-1, "older")])
def test_another_version_is_refused_by_direction(version: int, direction: str) -> None:
    """A header of another version is refused as newer or older, whoever read it (R2, CC35, CC36)."""
    with pytest.raises(UnsupportedFormatError) as refused:
        check_header("s", SessionHeader(id="s", created_at=1, version=version), "/a/path")
    assert (refused.value.direction, refused.value.path) == (direction, "/a/path")


def test_a_header_of_another_session_is_damage() -> None:
    """The stored id must be the one that was asked for (PE6)."""
    with pytest.raises(CorruptLogError) as refused:
        check_header("s", SessionHeader(id="t", created_at=1), None)
    assert refused.value.kind == "wrong-id"


async def test_a_header_that_no_session_takes_is_damage() -> None:
    """A backend that returns an invalid header does not get past the reader (R2)."""

    class Odd(MemoryBackend):
        async def load_stored(self, session_id: str) -> StoredPrefix:
            return StoredPrefix(SessionHeader(id=session_id, created_at=-1), EventLog(), "r")

    registry: SessionRegistry[Session] = SessionRegistry(Session)
    with pytest.raises(CorruptLogError) as refused:
        await read_prepared(Hooks(Odd()), registry, "s")
    assert refused.value.__cause__ is not None


async def test_a_session_that_is_live_is_not_prepared_beside_itself(world: World) -> None:
    """Reading a stored log whose id became live says so, not that the log is damaged (CC3)."""
    await world.keep("s", LogScript().turn().events)
    registry: SessionRegistry[Session] = SessionRegistry(Session)
    go_live(registry, "s")
    with pytest.raises(SessionExistsError):
        await read_prepared(Hooks(world.make_backend()), registry, "s")


async def test_a_prepared_session_shares_its_rows_and_ends_in_a_mark(world: World) -> None:
    """The view of readers stops before the end-of-seed event of the session behind it (SE8)."""
    events = LogScript().turn().start().events
    await world.keep("s", events)
    registry: SessionRegistry[Session] = SessionRegistry(Session)
    prepared = await read_prepared(Hooks(world.make_backend()), registry, "s")
    assert prepared.needs_repair
    assert prepared.is_untouched
    assert len(prepared.inspection.events) == len(events) + 1 == len(prepared.session.log) - 1
    assert prepared.nbytes == prepared.inspection.events.nbytes
    prepared.session.append("feedback/record", {})
    assert not prepared.is_untouched
    assert len(prepared.inspection.events) == len(events) + 1


def old(seq: int, type: str, data: dict[str, Any], **envelope: Any) -> SessionEvent:
    """Make a stored event."""
    return SessionEvent.from_dict({"type": type, "seq": seq, "time": 1, "data": data, **envelope})


def test_a_log_without_legacy_shapes_is_left_as_it_is() -> None:
    """Normalising costs nothing where there is nothing to do (CC9)."""
    log = EventLog(LogScript().turn(calls=["c1"]).events)
    assert normalised(log, "s") is log


def test_legacy_shapes_are_rewritten_and_other_rows_shared() -> None:
    """Only rewritten rows are new; packed rows are not decoded (CC9, CC10)."""
    script = LogScript(1, turn=1, step=1).chunks("a", "b", "c")
    log = EventLog([old(0, "turn/start", {"turn": 1, "trigger": {"kind": "user"}}), *script.events])
    log.cut(0)
    fresh = normalised(log, "s")
    assert fresh[0].data == {"turn": 1}
    assert fresh.rows[1] is log.rows[1]
    assert log[0].data != fresh[0].data


def test_a_suffix_that_needs_its_prefix_says_so() -> None:
    """A legacy replacement that refers to an event before the suffix cannot be normalised alone (CC9)."""
    data = {"turn": 1, "step": 1, "callId": "c1", "content": [], "isError": False}
    replace = {"surfaceOp": {"op": "replace", "start": 2, "end": 2}, "sourceEventSeqs": [2]}
    log = EventLog([old(5, "tool/result", data, **replace)], first_seq=5)
    with pytest.raises(EarlierEventNeededError):
        normalised(log, "s")


@dataclass
class Marker:
    """A torn marker as some backend may have it."""

    offset: Any = None
    size: Any = None
    recovered_events: Any = None


def test_a_torn_marker_tells_people_what_it_can() -> None:
    """The marker is opaque; three attributes are shown where they are numbers or lists (R2)."""
    assert describe_torn(object()) == TornTail(None, None, None)
    assert describe_torn(0) == TornTail(None, None, None)
    assert describe_torn(Marker(5, 7, [1, 2])) == TornTail(5, 7, 2)
    assert describe_torn(Marker(5, True, "x")) == TornTail(5, None, None)
    assert describe_torn(Marker(0, 0, ())) == TornTail(0, 0, 0)


async def test_the_fold_of_a_log_does_not_depend_on_when_it_began() -> None:
    """Folding at once, event by event or not at all from the middle gives the same summary (B4)."""
    registry: SessionRegistry[Session] = SessionRegistry(Session)
    session = go_live(registry, "s")
    first = SummaryFold(session)
    append_live(session, LogScript().turn().start().step().events)
    session.append("session/title", {"title": "One", "messageSeqs": [], "source": {"kind": "user"}})
    session.append("session/title", {"title": 5})
    session.append("session/title", ["odd"])
    middle = SummaryFold(session)
    append_live(session, LogScript(turn=2, step=1).end_step().end().turn().events)
    expected = LogSummary(turns=3, steps=3, title="One", last_time=session.last_time, open_turn=None)
    assert middle._title is None or middle.now() == expected
    assert first.now() == expected
    first.stop()
    session.append("turn/start", {"turn": 4})
    assert first.now().turns == 3
    assert SummaryFold(Session.create("t")).now() == LogSummary()
    assert header("s").id == "s"
