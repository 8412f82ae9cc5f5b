"""Writing to sessions that are not live: the door, the order of an append, doubt, deletion."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from tests.unit.persistence.world import World, interrupted, is_idle
from turnlog.errors import (
    BackendError,
    BackendUnavailableError,
    InvalidEventError,
    InvalidSessionIdError,
    SessionBusyError,
    SessionExistsError,
    SessionNotFoundError,
    UnexpectedSeqError,
    UsageError,
    WriterFencedError,
)
from turnlog.events.header import SessionHeader
from turnlog.events.log import EventLog
from turnlog.persistence.cursors import Cursor, Cursors, contiguous_fault
from turnlog.session.registry import SessionRegistry
from turnlog.session.session import Session
from turnlog.testing.manual_time import settle
from turnlog.testing.scripts import LogScript, dicts, go_live, header

UNKNOWN = BackendError(backend="test", reason="no reply")


def record(seq: int, **data: object) -> dict[str, object]:
    """Make a small event."""
    return {"type": "feedback/record", "seq": seq, "time": 1, "data": data}


async def test_a_batch_is_taken_at_the_time_of_the_call(world: World) -> None:
    """What the caller changes after the call is not stored, and its order with other calls holds (CC12)."""
    store, _ = world.store()
    await store.create(header("s"))
    payload = {"n": 1}
    batch = [record(0)]
    batch[0]["data"] = payload
    call = store.append("s", batch)
    payload["n"] = 2
    batch.append(record(1))
    await call
    assert [event.data for event in (await store.read_from("s", 0)).events] == [{"n": 1}]


async def test_the_door_holds_events_to_what_a_load_would(world: World) -> None:
    """An event that could not be loaded again is refused with its index, and nothing is stored (L2, CO12)."""
    store, faults = world.store()
    await store.create(header("s"))
    bad: list[dict[str, object]] = [
        {**record(1), "data": {"x": {1, 2}}},
        {**record(1), "extra": 1},
        {"type": "acme/new", "seq": 1, "time": 1, "data": {}},
        {"type": "mode/set", "seq": 1, "time": 1, "data": {}},
        {"type": "user/message", "seq": 1, "time": 1, "data": {}, "surfaceOp": "append"},
        {"type": "turn/end", "seq": 1, "time": 1, "data": {"turn": 1, "reason": {"kind": "disposed"}}},
    ]
    for event in bad:
        with pytest.raises(InvalidEventError) as refused:
            await store.append("s", [record(0), event])
        assert refused.value.index == 1
    assert faults.counts["append_batch"] == 0
    await store.append("s", [record(0)])


async def test_the_door_knows_the_surface(world: World) -> None:
    """An event that joins the surface wrongly would make the log unloadable, so it is refused (L2)."""
    script = LogScript().turn()
    store, faults = world.store()
    await store.create(header("s"))
    wrong = {**record(0), "surfaceOp": "append"}
    with pytest.raises(InvalidEventError):
        await store.append("s", [wrong])
    await store.append("s", script.events)
    message = next(event for event in script.events if event.type == "user/message").to_dict()
    end = len(script.events)
    replacing = {**message, "seq": end, "surfaceOp": {"op": "replace", "start": end - 1, "end": end - 1}}
    replacing["sourceEventSeqs"] = [end - 1]
    with pytest.raises(InvalidEventError):
        await store.append("s", [replacing])
    at = message["seq"]
    good = {**replacing, "surfaceOp": {"op": "replace", "start": at, "end": at}, "sourceEventSeqs": [at]}
    await store.append("s", [good])
    assert len((await store.load("s")).events) == end + 1
    assert faults.counts["append_batch"] == 2


async def test_create_reserves_an_id_and_stores_nothing(world: World) -> None:
    """A created id is taken in memory only; what exists is refused by where it is (B1, CC34, CO6)."""
    registry = SessionRegistry(Session)
    store, faults = world.store(registry)
    await store.create(header("s"))
    with pytest.raises(SessionExistsError) as memory:
        await store.create(header("s"))
    go_live(registry, "live")
    with pytest.raises(SessionExistsError) as live:
        await store.create(header("live"))
    await world.keep("stored", LogScript().turn().events)
    with pytest.raises(SessionExistsError) as stored:
        await store.create(header("stored"))
    assert [error.value.where for error in (memory, live, stored)] == ["memory", "live", "storage"]
    assert [entry.session_id async for entry in store.list()] == ["stored"]
    with pytest.raises(SessionNotFoundError):
        await store.inspect("s")
    assert faults.counts["append_batch"] == 0


async def test_create_checks_the_header(world: World) -> None:
    """A header that could not be read again is refused before any state exists (L2, S1, CO2, PE47)."""
    store, _ = world.store()
    with pytest.raises(InvalidSessionIdError):
        await store.create(SessionHeader(id="", created_at=1))
    for bad in (
        SessionHeader(id="s", created_at=1, extra={"x": {1}}),
        SessionHeader(id="s", created_at=1, cwd="relative"),
        SessionHeader(id="s", created_at=-1),
    ):
        with pytest.raises(InvalidEventError):
            await store.create(bad)
    await store.create(header("s"))


async def test_an_empty_append_does_nothing(world: World) -> None:
    """An empty batch stays lazy, even for an unknown id (B1, CC32)."""
    store, faults = world.store()
    await store.append("nobody", [])
    await store.create(header("s"))
    await store.append("s", [])
    assert faults.counts["append_batch"] == faults.counts["claim"] == 0


async def test_a_stored_log_is_repaired_and_continued(world: World) -> None:
    """An append to an interrupted log goes on behind its closers (R1, CC31)."""
    events = interrupted()
    await world.keep("s", events)
    store, faults = world.store()
    end = len(events) + 3
    with pytest.raises(UnexpectedSeqError) as wrong:
        await store.append("s", [record(len(events))])
    assert (wrong.value.expected, wrong.value.actual, wrong.value.index) == (end, len(events), 0)
    await store.append("s", [record(end)])
    assert faults.counts["commit_repair"] == 1
    assert faults.counts["claim"] == faults.counts["release"]


async def test_a_gap_in_a_batch_names_its_place(world: World) -> None:
    """The first event that does not follow is named by its index (B3, CO10, CO11)."""
    store, faults = world.store()
    await store.create(header("s"))
    with pytest.raises(UnexpectedSeqError) as gap:
        await store.append("s", [record(0), record(1), record(3)])
    assert (gap.value.expected, gap.value.actual, gap.value.index) == (2, 3, 2)
    with pytest.raises(UnexpectedSeqError):
        await store.append("s", [record(1)])
    assert faults.counts["append_batch"] == 0
    await store.append("s", [record(0)])


async def test_a_run_of_appends_reads_nothing_again(world: World) -> None:
    """Appending repeatedly costs no read of the log (L2, D4)."""
    await world.keep("s", LogScript().turn().events)
    store, faults = world.store()
    first = len(LogScript().turn().events)
    for seq in range(first, first + 10):
        await store.append("s", [record(seq)])
    assert faults.counts["load_stored"] == 1
    assert len(store._books.claims) == 0
    assert len(store._books.pool) == 0


async def test_a_foreign_append_is_noticed(world: World) -> None:
    """A remembered end is a guess: who wrote behind it is seen, whatever seq the caller has (B3, PE22)."""
    store, faults = world.store()
    await store.create(header("s"))
    await store.append("s", [record(0)])
    other, _ = world.store()
    await other.append("s", [record(1)])
    with pytest.raises(UnexpectedSeqError) as stale:
        await store.append("s", [record(1, mine=True)])
    assert stale.value.expected == 2
    await other.append("s", [record(2)])
    await store.append("s", [record(3)])
    await other.append("s", [record(4)])
    assert len((await store.read_from("s", 0)).events) == 5
    assert faults.claims_missing == 0


async def test_a_foreign_deletion_is_noticed(world: World) -> None:
    """A log that was deleted behind a remembered end is not found, and not revived (W1)."""
    store, faults = world.store()
    await store.create(header("s"))
    await store.append("s", [record(0)])
    other, _ = world.store()
    await other.delete("s")
    faults.fail("claim", error=SessionNotFoundError(session_id="s"))
    with pytest.raises(SessionNotFoundError):
        await store.append("s", [record(1)])
    assert is_idle(store)


async def test_an_inspection_before_a_foreign_append_is_not_used(world: World) -> None:
    """Adoption for an append checks the revision of a ready read (PE22)."""
    events = LogScript().turn().events
    await world.keep("s", events)
    store, _ = world.store()
    await store.inspect("s")
    other, _ = world.store()
    await other.append("s", [record(len(events))])
    await store.append("s", [record(len(events) + 1)])
    assert len((await store.inspect("s")).events) == len(events) + 2


async def test_append_is_refused_while_somebody_has_the_session(world: World) -> None:
    """A live or reserved session is written by its holder only (W1, PE29)."""
    events = LogScript().turn().events
    await world.keep("s", events)
    registry = SessionRegistry(Session)
    store, faults = world.store(registry)
    go_live(registry, "live")
    async with await store.prepare("s"):
        for call in (store.append("s", [record(len(events))]), store.delete("s")):
            with pytest.raises(SessionBusyError):
                await call
    attempts: tuple[Coroutine[Any, Any, object], ...] = (
        store.append("live", [record(0)]),
        store.delete("live"),
        store.prepare("live"),
    )
    for attempt in attempts:
        with pytest.raises(SessionBusyError) as busy:
            await attempt
        assert busy.value.owner is not None
    assert faults.counts["append_batch"] == 0


async def test_a_batch_in_doubt_is_settled_first(world: World) -> None:
    """A batch of unknown outcome is written again before anything else, and may be repeated (B3)."""
    store, faults = world.store()
    await store.create(header("s"))
    for when in ("after", "before"):
        seq = len(world.medium.sessions["s"].frames) if "s" in world.medium.sessions else 0
        faults.fail("append_batch", when=when, error=UNKNOWN)
        with pytest.raises(BackendError):
            await store.append("s", [record(seq, when=when)])
        await store.append("s", [record(seq, when=when)])
        assert faults.batches()[-2:] == ((seq, seq), (seq, seq))
    faults.fail("append_batch", when="before", error=UNKNOWN)
    with pytest.raises(BackendError):
        await store.append("s", [record(2)])
    await store.append("s", [record(3), record(4)])
    assert faults.batches()[-2:] == ((2, 2), (3, 4))
    faults.fail("append_batch", when="after", error=UNKNOWN)
    with pytest.raises(BackendError):
        await store.append("s", [record(5)])
    with pytest.raises(UnexpectedSeqError) as other:
        await store.append("s", [record(5, other=True)])
    assert other.value.expected == 6
    assert len((await store.load("s")).events) == 6


async def test_a_doubt_that_never_arrived_gives_way(world: World) -> None:
    """If the log went on without the batch in doubt, the caller is told where it ends now (B3)."""
    store, faults = world.store()
    await store.create(header("s"))
    await store.append("s", [record(0)])
    faults.fail("append_batch", when="before", error=UNKNOWN)
    with pytest.raises(BackendError):
        await store.append("s", [record(1, mine=True)])
    other, _ = world.store()
    await other.append("s", [record(1)])
    with pytest.raises(UnexpectedSeqError) as lost:
        await store.append("s", [record(1, mine=True)])
    assert lost.value.expected == 2
    await store.append("s", [record(2)])


async def test_a_doubt_that_stays_is_kept(world: World) -> None:
    """A retry that fails like the first leaves the doubt where it is (B3)."""
    store, faults = world.store()
    await store.create(header("s"))
    faults.fail("append_batch", None, when="before", error=UNKNOWN)
    for _ in range(3):
        with pytest.raises(BackendError):
            await store.append("s", [record(0)])
    faults.heal()
    await store.append("s", [record(0)])
    assert faults.batches() == ((0, 0),) * 4


async def test_a_refused_first_batch_leaves_the_id_created(world: World) -> None:
    """A batch that certainly left nothing is forgotten (B2, B3)."""
    store, faults = world.store()
    await store.create(header("s"))
    for seq in (0, 1):
        faults.fail("append_batch")
        with pytest.raises(BackendUnavailableError):
            await store.append("s", [record(seq)])
        await store.append("s", [record(seq, again=True)])
    assert [event.data for event in (await store.read_from("s", 0)).events] == [{"again": True}] * 2


async def test_a_created_id_stored_by_somebody_else_exists(world: World) -> None:
    """The first append of a created id that was stored meanwhile writes nothing (B1)."""
    store, _ = world.store()
    await store.create(header("s"))
    await world.keep("s", LogScript().turn().events)
    with pytest.raises(SessionExistsError):
        await store.append("s", [record(0)])


async def test_an_append_that_is_fenced_hands_its_events_back(world: World) -> None:
    """An append that loses its claim to a takeover says so, with its events (W1)."""
    store, faults = world.store()
    await store.create(header("s"))
    await store.append("s", [record(0)])
    gate = faults.hang("append_batch")
    appending = asyncio.ensure_future(store.append("s", [record(1)]))
    await gate.entered.wait()
    other, _ = world.store()
    async with await other.prepare("s", takeover=True):
        gate.release()
        with pytest.raises(WriterFencedError) as fenced:
            await appending
    assert dicts(fenced.value.pending) == [record(1)]


async def test_a_cancelled_append_runs_to_its_end(world: World) -> None:
    """Cancelling an append that is being written neither tears nor undoes it (B2)."""
    store, faults = world.store()
    await store.create(header("s"))
    gate = faults.hang("append_batch")
    appending = asyncio.ensure_future(store.append("s", [record(0)]))
    await gate.entered.wait()
    appending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await appending
    gate.release()
    assert len((await store.read_from("s", 0)).events) == 1


async def test_delete_erases_and_forgets(world: World) -> None:
    """Deleting takes the claim, erases, and leaves the id free; damaged logs too (W1)."""
    registry = SessionRegistry(Session)
    store, faults = world.store(registry)
    await store.create(header("created"))
    await store.delete("created")
    await store.create(header("created"))
    await world.keep("s", LogScript().turn().turn().events)
    await store.inspect("s")
    await world.damage("s")
    await store.delete("s")
    with pytest.raises(SessionNotFoundError):
        await store.inspect("s")
    with pytest.raises(SessionNotFoundError):
        await store.delete("s")
    assert faults.counts["claim"] == faults.counts["release"] == 1
    assert faults.claims_missing == 0
    session = go_live(registry, "s")
    session.append("feedback/record", {})
    registry.detach(session)
    await store.delete("s")
    assert not world.medium.sessions


async def test_delete_respects_other_writers(world: World) -> None:
    """A log that another process writes is deleted only by a takeover (W1)."""
    await world.keep("s", LogScript().turn().events)
    first, _ = world.store()
    second, faults = world.store()
    async with await first.prepare("s"):
        with pytest.raises(SessionBusyError):
            await second.delete("s")
        await second.delete("s", takeover=True)
    faults.heal()
    assert not world.medium.sessions


async def test_a_backend_that_cannot_delete_says_so(world: World) -> None:
    """Deleting is optional (W1)."""
    store, _ = world.store(without=["delete_stored"])
    with pytest.raises(UsageError):
        await store.delete("s")


async def test_a_created_session_can_be_stored_without_events(world: World) -> None:
    """`ensure_materialized` stores a created id once and leaves stored ones alone (B1)."""
    store, faults = world.store()
    await store.create(header("s"))
    await store.ensure_materialized("s")
    await store.ensure_materialized("s")
    assert faults.counts["materialize_header"] == 1
    assert len((await store.load("s")).events) == 0
    await store.append("s", [record(0)])
    await world.keep("t", LogScript().turn().events)
    await store.ensure_materialized("t")
    with pytest.raises(SessionNotFoundError):
        await store.ensure_materialized("nobody")
    plain, _ = world.store(without=["materialize_header"])
    await plain.create(header("u"))
    with pytest.raises(UsageError):
        await plain.ensure_materialized("u")


async def test_a_header_that_could_not_be_stored_is_still_created(world: World) -> None:
    """After a failure the created id can be used as before (B2, B3)."""
    store, faults = world.store()
    await store.create(header("s"))
    faults.fail("materialize_header", when="after", error=UNKNOWN)
    with pytest.raises(BackendError):
        await store.ensure_materialized("s")
    await store.append("s", [record(0)])
    assert len((await store.read_from("s", 0)).events) == 1
    assert len(store._books.claims) == 0


async def test_an_append_waits_for_a_retirement(world: World) -> None:
    """An append to an id that is being drained follows what is drained (W1)."""
    registry = SessionRegistry(Session)
    store, faults = world.store(registry)
    session = go_live(registry, "s")
    session.append("feedback/record", {})
    gate = faults.hang("append_batch")
    registry.detach(session)
    await gate.entered.wait()
    appending = asyncio.ensure_future(store.append("s", [record(1)]))
    await settle()
    gate.release()
    await appending
    assert faults.batches() == ((0, 0), (1, 1))


def cursor(session_id: str, *, materialized: bool, count: int = 1) -> Cursor:
    """Make the cursor of a small log."""
    log = EventLog(LogScript().turn().events[:count])
    return Cursor.at(header(session_id), log, materialized=materialized)


def test_cursors_forget_only_what_is_stored() -> None:
    """Ends of logs are kept within bounds of count and bytes; what is not stored stays (D4, B3)."""
    cursors = Cursors(2, 10_000)
    cursors.put(cursor("created", materialized=False, count=0))
    doubtful = cursor("doubtful", materialized=True)
    doubtful.doubt = doubtful.log.cut(0)
    cursors.put(doubtful)
    for session_id in ("a", "b", "c"):
        cursors.put(cursor(session_id, materialized=True))
    assert [cursors.get(i) is not None for i in ("created", "doubtful", "a", "b", "c")] == [
        True,
        True,
        False,
        True,
        True,
    ]
    assert cursors.created("created") is not None
    assert cursors.created("b") is None
    assert cursors.created("doubtful") is None
    grown = cursor("g", materialized=True)
    before = grown.nbytes
    assert before == grown.log.nbytes
    grown.admit(LogScript().turn().events[1:2])
    assert grown.nbytes == grown.log.nbytes > before
    small = Cursors(10, 1)
    small.put(cursor("a", materialized=True))
    assert len(small) == 0


def test_the_first_event_out_of_place_is_found() -> None:
    """A batch is dense from the next free seq (L1)."""
    events = LogScript().turn().events[:3]
    assert contiguous_fault(events, 0) is None
    assert contiguous_fault(events, 1) == (0, 1, 0)
    assert contiguous_fault([events[0], events[2]], 0) == (1, 1, 2)
