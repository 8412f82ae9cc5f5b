"""Live sessions from publication to retirement: whose log it is, what is written, what is left behind."""

from __future__ import annotations

import asyncio
import logging

import pytest

from tests.unit.persistence.world import NEVER, World, is_idle, publish
from turnlog.backends.memory import MemoryTear
from turnlog.errors import (
    BackendError,
    CorruptLogError,
    InvalidEventError,
    SessionBusyError,
    SessionCollisionError,
    SessionExistsError,
    SessionNotFoundError,
    UndurableError,
    UnexpectedSeqError,
    UnsupportedFormatError,
    UsageError,
    WriterFencedError,
)
from turnlog.persistence.backend import LogSummary
from turnlog.persistence.recovery import MAX_ROUNDS
from turnlog.session.registry import SessionRegistry
from turnlog.session.session import Session
from turnlog.testing.manual_time import ManualScheduler, settle
from turnlog.testing.scripts import LogScript, append_live, dicts, go_live, header

Registry = SessionRegistry[Session]


async def test_the_log_itself_is_the_queue(world: World) -> None:
    """What is written are the rows of the live log, not copies of them (D4, L2, PE2)."""
    registry = Registry()
    store, faults = world.store(registry)
    session = go_live(registry, "s")
    append_live(session, LogScript().turn().events)
    life = store._books.current["s"]
    batch = session.log.cut(0)
    assert life.writer._log is session.log
    assert all(a is b for a, b in zip(batch.rows, session.log.rows, strict=True))
    await store.flush(session)
    assert faults.batches() == ((0, session.seq - 1),)


async def test_maps_are_empty_after_every_session_has_gone(world: World) -> None:
    """Nothing is remembered of sessions that were disposed (D4, PE53)."""
    registry = Registry()
    store, _ = world.store(registry)
    sessions = [go_live(registry, f"s{number}") for number in range(5)]
    for session in sessions[:3]:
        append_live(session, LogScript().turn().events)
    for session in sessions:
        registry.detach(session)
    for session in sessions:
        await store.retired(session.id)
    await settle()
    assert is_idle(store)
    assert not world.medium.claims


async def test_a_disposed_session_takes_nothing_more(world: World) -> None:
    """Appending to a session that has left its store is an error, not a silent loss (D1, CC22)."""
    registry = Registry()
    store, _ = world.store(registry)
    session = go_live(registry, "s")
    append_live(session, LogScript().turn().events)
    registry.detach(session)
    with pytest.raises(UsageError):
        session.append("feedback/record", {})
    await store.retired("s")
    assert store.durable_seq(session) == session.seq
    assert store.undurable(session) is None
    with pytest.raises(UsageError):
        await store.flush(session)


async def test_announcing_twice_starts_nothing_twice(world: World) -> None:
    """A session that the store knows is not taken in again (CC23)."""
    registry = Registry()
    store, _ = world.store(registry)
    session = go_live(registry, "s")
    gate = session.gate
    store._created(session)
    assert session.gate is gate
    assert len(store._books.lives) == 1


async def test_a_vetoed_creation_leaves_the_books_alone(world: World) -> None:
    """A disposal of a session that was never taken in is ignored (W1)."""
    registry = Registry()
    store, _ = world.store(registry)
    await world.keep("s", LogScript().turn().events)
    async with await store.prepare("s"):
        with pytest.raises(SessionBusyError):
            go_live(registry, "s")
        assert len(store._books.lives) == 0
    stray = Session.create("s")
    store._disposed(stray)
    assert store.durable_seq(stray) == 0


def test_a_session_outside_a_loop_is_refused() -> None:
    """Opening a session without a running loop says what to do (D1)."""
    registry = Registry()

    async def open_store() -> World:
        world = World()
        world.store(registry)
        return world

    world = asyncio.run(open_store())
    with pytest.raises(UsageError, match="event loop"):
        go_live(registry, "s")
    assert registry.get("s") is None
    asyncio.run(world.close())


async def test_an_empty_session_leaves_nothing(world: World) -> None:
    """A session that was never used is not stored and frees its id (B1, CC21, PE35)."""
    registry = Registry()
    store, faults = world.store(registry)
    registry.detach(go_live(registry, "s"))
    successor = go_live(registry, "s", cwd="/other")
    append_live(successor, LogScript().turn().events)
    await store.flush(successor)
    assert faults.counts["append_batch"] == 1
    assert (await store.inspect("s")).meta.cwd == "/other"


async def test_a_successor_waits_for_the_drain_before_it(world: World) -> None:
    """The next lifecycle of an id begins when the last one is written and gone (W1, PE37, PE38)."""
    registry = Registry()
    store, faults = world.store(registry)
    first = go_live(registry, "s")
    append_live(first, LogScript().turn().events)
    gate = faults.hang("append_batch")
    registry.detach(first)
    await gate.entered.wait()
    second = go_live(registry, "s", seed=first.events[:])
    flush = asyncio.ensure_future(store.flush(second))
    load = asyncio.ensure_future(store.inspect("s"))
    await settle()
    assert not flush.done()
    gate.release()
    await flush
    assert (await load).live
    assert faults.batches()[-1] == (first.seq, second.seq - 1)
    assert dicts((await store.read_from("s", 0)).events) == dicts(second.events)


async def test_a_stranger_behind_a_drain_collides(world: World) -> None:
    """A fresh session that takes the id of one that is being drained is refused at its flush (L1, PE37)."""
    registry = Registry()
    store, faults = world.store(registry)
    first = go_live(registry, "s")
    append_live(first, LogScript().turn().events)
    gate = faults.hang("append_batch")
    registry.detach(first)
    await gate.entered.wait()
    second = go_live(registry, "s")
    append_live(second, LogScript(prefix="n").turn().events)
    gate.release()
    with pytest.raises(SessionCollisionError):
        await store.flush(second)
    registry.detach(second)
    await store.retired("s")
    await settle()
    assert is_idle(store)


async def test_three_lifecycles_of_one_id_follow_each_other(world: World) -> None:
    """A retirement that is over does not end the wait for a later one (PE36)."""
    registry = Registry()
    store, faults = world.store(registry)
    session = go_live(registry, "s")
    append_live(session, LogScript().turn().events)
    gates = [faults.hang("append_batch", on=number) for number in (1, 2)]
    registry.detach(session)
    await gates[0].entered.wait()
    second = go_live(registry, "s", seed=session.events[:])
    registry.detach(second)
    third = go_live(registry, "s", seed=second.events[:])
    flush = asyncio.ensure_future(store.flush(third))
    gates[0].release()
    await gates[1].entered.wait()
    await settle()
    assert not flush.done()
    assert "s" in store._books.retirements
    gates[1].release()
    await flush
    assert dicts((await store.read_from("s", 0)).events) == dicts(third.events)


async def test_the_same_session_may_come_back_while_it_leaves(world: World) -> None:
    """A session that is entered again during its drain is adopted where the drain ends (L1, CC17)."""
    registry = Registry()
    store, faults = world.store(registry)
    session = go_live(registry, "s")
    append_live(session, LogScript().turn().events)
    gate = faults.hang("append_batch")
    registry.detach(session)
    await gate.entered.wait()
    publish(registry, session)
    append_live(session, LogScript(turn=1).turn().events)
    gate.release()
    await store.flush(session)
    assert dicts((await store.read_from("s", 0)).events) == dicts(session.events)
    assert session.gate is not None
    assert session.gate.pending_bytes == 0


async def test_a_failed_retirement_is_told_once_and_finished_later(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """A drain that fails is one warning; a retry that succeeds ends the retirement (D2, PE40)."""
    registry, clock = Registry(), ManualScheduler()
    store, faults = world.store(registry, scheduler=clock)
    session = go_live(registry, "s")
    await store.flush(session)
    append_live(session, LogScript().turn().events)
    faults.fail("append_batch", None)
    with caplog.at_level(logging.WARNING):
        registry.detach(session)
        await store.retired("s")
        for _ in range(3):
            await clock.advance(30)
    assert len(caplog.records) == 1
    assert store.undurable_events() == session.seq
    other = go_live(registry, "s")
    append_live(other, LogScript().turn().events)
    with pytest.raises(SessionBusyError) as busy:
        await store.flush(other)
    assert busy.value.owner is not None
    faults.heal()
    await clock.advance(30)
    await settle()
    await store.retired("s")
    assert session not in store._books.latest
    with pytest.raises(SessionCollisionError):
        await store.flush(other)


async def test_a_session_that_ended_for_good_retires_with_a_warning(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """A collided or fenced session does not block its id after it is gone (W1)."""
    await world.keep("s", LogScript().turn().events)
    registry = Registry()
    store, _ = world.store(registry)
    session = go_live(registry, "s")
    append_live(session, LogScript(prefix="n").turn().events)
    with pytest.raises(SessionCollisionError):
        await store.flush(session)
    registry.detach(session)
    await store.retired("s")
    assert "ended without its last events" in caplog.text
    async with await store.prepare("s"):
        pass


async def test_a_store_opened_late_takes_live_sessions_in(world: World) -> None:
    """Sessions that were live before are adopted at once (CC15, CC18)."""
    registry = Registry()
    session = go_live(registry, "s")
    append_live(session, LogScript().turn().events)
    store, _ = world.store(registry)
    append_live(session, LogScript(turn=1).turn().events)
    await store.flush(session)
    assert dicts((await store.read_from("s", 0)).events) == dicts(session.events)


async def test_late_adoption_reads_again_under_the_claim(world: World) -> None:
    """What was stored before the claim was taken does not count (W1, CC18)."""
    events = LogScript().turn().events
    await world.keep("s", events)
    registry = Registry()
    session = go_live(registry, "s", seed=events)
    store, faults = world.store(registry)
    gate = faults.hang("claim")
    flush = asyncio.ensure_future(store.flush(session))
    await gate.entered.wait()
    other, _ = world.store()
    await other.append("s", [dicts(session.events)[-1]])
    gate.release()
    await flush
    assert faults.batches() == ()
    session.append("feedback/record", {})
    await store.flush(session)
    assert (faults.counts["claim"], faults.counts["release"]) == (1, 0)
    assert dicts((await store.read_from("s", 0)).events) == dicts(session.events)


async def test_late_adoption_of_a_log_that_is_deleted_meanwhile(world: World) -> None:
    """A log that vanishes during the adoption leaves a new session (L1)."""
    events = LogScript().turn().events
    await world.keep("s", events)
    registry = Registry()
    session = go_live(registry, "s", seed=events)
    store, faults = world.store(registry)
    gate = faults.hang("load_stored")
    flush = asyncio.ensure_future(store.flush(session))
    await gate.entered.wait()
    world.medium.sessions.clear()
    gate.release()
    await flush
    assert dicts((await store.read_from("s", 0)).events) == dicts(session.events)


async def test_late_adoption_cuts_a_torn_tail(world: World) -> None:
    """Adoption cuts what is torn, closes nothing, and tries again if the log went on (L1, CC19)."""
    script = LogScript().start().step()
    await world.keep("s", script.events)
    registry = Registry()
    session = go_live(registry, "s", seed=script.events)
    await world.tear("s", session.events[2:])
    store, faults = world.store(registry)
    faults.fail("commit_repair", error=UnexpectedSeqError(session_id="s", expected=1, actual=2))
    await store.flush(session)
    assert [type(marker) for marker in faults.markers_returned] == [MemoryTear, MemoryTear]
    assert dicts((await store.read_from("s", 0)).events) == dicts(session.events)


async def test_late_adoption_of_a_log_that_never_stands_still(world: World) -> None:
    """An adoption that never comes to rest is busy, and may be tried again (W1)."""
    script = LogScript().start()
    await world.keep("s", script.events)
    registry = Registry()
    session = go_live(registry, "s", seed=script.events)
    await world.tear("s", session.events[1:])
    store, faults = world.store(registry)
    faults.fail("commit_repair", None, error=UnexpectedSeqError(session_id="s", expected=1, actual=2))
    with pytest.raises(SessionBusyError):
        await store.flush(session)
    assert faults.counts["commit_repair"] == MAX_ROUNDS - 1
    faults.heal()
    await store.flush(session)


async def test_what_is_stored_decides_about_a_live_session(world: World) -> None:
    """A live session is tied only to a loadable log that it reproduces, of its place (CC20, CC29, PE50)."""
    events = LogScript().turn().events
    await world.keep("place", events, cwd="/other")
    await world.keep("longer", LogScript().turn().turn().events)
    await world.keep("other", LogScript(prefix="x").turn().events)
    await world.put("legacy", {"type": "request/header-delta", "seq": 0, "time": 1, "data": {}})
    await world.put("unknown", {"type": "acme/new", "seq": 0, "time": 1, "data": {}})
    await world.keep("damaged", [*events, *LogScript(len(events), turn=1).turn().events])
    world.medium.sessions["damaged"].frames.append(world.medium.sessions["other"].frames[0])
    world.medium.sessions["damaged"].frames.reverse()
    expected = {
        "place": SessionCollisionError,
        "longer": SessionCollisionError,
        "other": SessionCollisionError,
        "legacy": CorruptLogError,
        "unknown": UnsupportedFormatError,
        "damaged": CorruptLogError,
    }
    registry = Registry()
    store, faults = world.store(registry)
    for session_id, error in expected.items():
        session = go_live(registry, session_id, seed=events)
        with pytest.raises(error):
            await store.flush(session)
    assert faults.counts["append_batch"] == faults.counts["claim"] == 0


async def test_a_created_id_is_claimed_by_the_session_of_its_place(world: World) -> None:
    """A created id goes to the first live session with its cwd, under the created header (B1, CC24, CC28)."""
    registry = Registry()
    store, _ = world.store(registry)
    await store.create(header("s", origin="subagent"))
    await store.create(header("t", cwd="/elsewhere"))
    session, stranger = go_live(registry, "s"), go_live(registry, "t")
    session.append("feedback/record", {})
    await store.flush(session)
    assert (await store.read_from("s", 0)).meta.origin == "subagent"
    registry.detach(session)
    await store.append("s", [{"type": "feedback/record", "seq": 1, "time": 1, "data": {}}])
    assert len((await store.read_from("s", 0)).events) == 2
    with pytest.raises(SessionCollisionError, match="/elsewhere"):
        await store.flush(stranger)


async def test_a_new_id_that_somebody_else_claims_first_is_busy(world: World) -> None:
    """Two new sessions of one id: the second is busy, then exists (W1, B1)."""
    registries = Registry(), Registry()
    (first, _), (second, faults) = world.store(registries[0]), world.store(registries[1])
    sessions = [go_live(registry, "s") for registry in registries]
    for store, session in zip((first, second), sessions, strict=True):
        await store.flush(session)
    sessions[0].append("feedback/record", {"n": 1})
    sessions[1].append("feedback/record", {"n": 2})
    await first.flush(sessions[0])
    with pytest.raises(SessionBusyError):
        await second.flush(sessions[1])
    assert faults.counts["append_batch"] == 0
    registries[0].detach(sessions[0])
    await first.retired("s")
    with pytest.raises(SessionExistsError):
        await second.flush(sessions[1])
    with pytest.raises(SessionExistsError):
        sessions[1].append("feedback/record", {})


@pytest.mark.parametrize("at_once", [True, False])
@pytest.mark.parametrize(
    "error",
    [
        UnexpectedSeqError(session_id="s", expected=1, actual=0),
        SessionBusyError(session_id="s"),
        WriterFencedError(session_id="s"),
    ],
)
async def test_a_lost_log_fences_the_writer(world: World, error: Exception, at_once: bool) -> None:
    """However the medium says that the log is somebody else's, the writer is fenced (W1, B3)."""
    registry = Registry()
    store, faults = world.store(registry)
    session = go_live(registry, "s")
    session.append("feedback/record", {})
    await store.flush(session)
    if at_once:
        await settle()  # the id's chain runs empty, so that the next write begins with its flush
    session.append("feedback/record", {"n": 1})
    faults.fail("append_batch", error=error)
    with pytest.raises(WriterFencedError) as fenced:
        await store.flush(session)
    assert dicts(fenced.value.pending) == dicts(session.events[1:])
    assert fenced.value.__cause__ is error
    with pytest.raises(WriterFencedError):
        session.append("feedback/record", {})
    registry.detach(session)
    await store.retired("s")
    assert is_idle(store)


async def test_a_live_producer_cannot_store_what_no_reader_takes(world: World) -> None:
    """Old formats are refused at the live door already (L2, PE48, PE49)."""
    registry = Registry()
    store, _ = world.store(registry)
    session = go_live(registry, "s")
    with pytest.raises(InvalidEventError):
        session.append("request/header-delta", {})
    with pytest.raises(InvalidEventError):
        session.append("request/header", {"reason": "fallback", "header": {"config": {}}})
    assert session.seq == 0
    await store.flush(session)


async def test_a_summary_goes_with_every_batch(world: World) -> None:
    """Listings show the fold of a live log, also before it is stored with a batch (B4)."""
    registry = Registry()
    store, _ = world.store(registry)
    session = go_live(registry, "s")
    append_live(session, LogScript().turn().start().events)
    await store.flush(session)
    stored = world.medium.sessions["s"].summary
    assert stored is not None
    assert stored[1] == LogSummary(turns=2, steps=1, title=None, last_time=session.last_time, open_turn=2)
    session.append("session/title", {"title": "Rename", "messageSeqs": [], "source": {"kind": "user"}})
    await store.create(header("created"))
    entries = [entry async for entry in store.list()]
    assert [(entry.session_id, entry.status) for entry in entries] == [("s", "live")]
    assert entries[0].summary is not None
    assert entries[0].summary.title == "Rename"


async def test_a_header_can_be_stored_without_events(world: World) -> None:
    """`ensure_materialized` stores a live session once, by its events if it has some (B1)."""
    registry = Registry()
    store, faults = world.store(registry)
    empty, used = go_live(registry, "empty"), go_live(registry, "used")
    used.append("feedback/record", {})
    for session_id in ("empty", "used", "empty"):
        await store.ensure_materialized(session_id)
    assert (faults.counts["materialize_header"], faults.counts["append_batch"]) == (1, 1)
    empty.append("feedback/record", {})
    await store.flush(empty)
    assert len((await store.read_from("empty", 0)).events) == 1
    assert faults.claims_missing == 0


async def test_two_callers_store_a_header_once(world: World) -> None:
    """Concurrent requests for a header-only session write it once (B1)."""
    registry = Registry()
    store, faults = world.store(registry)
    session = go_live(registry, "s")
    await store.flush(session)
    await asyncio.gather(store.ensure_materialized("s"), store.ensure_materialized("s"))
    assert faults.counts["materialize_header"] == 1


@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_header_in_doubt_is_settled_before_the_first_batch(world: World, when: str) -> None:
    """A header of unknown outcome is written again before anything else (B3, B1)."""
    registry = Registry()
    store, faults = world.store(registry)
    session = go_live(registry, "s")
    lost = BackendError(backend="test", reason="no reply")
    faults.fail("materialize_header", when=when, error=lost)  # type: ignore[arg-type]  # a parametrised literal
    with pytest.raises(BackendError):
        await store.ensure_materialized("s")
    session.append("feedback/record", {})
    faults.fail("materialize_header")
    with pytest.raises(UndurableError):
        await store.flush(session)
    assert faults.batches() == ()
    await store.flush(session)
    assert faults.counts["materialize_header"] == 2
    assert len((await store.read_from("s", 0)).events) == 1


async def test_a_header_that_was_refused_is_no_doubt(world: World) -> None:
    """A header that certainly was not written is not written again by itself (B3)."""
    registry = Registry()
    store, faults = world.store(registry)
    session = go_live(registry, "s")
    faults.fail("materialize_header")
    with pytest.raises(BackendError):
        await store.ensure_materialized("s")
    session.append("feedback/record", {})
    await store.flush(session)
    assert faults.counts["materialize_header"] == 1


async def test_a_backend_without_header_only_sessions_says_so(world: World) -> None:
    """A live session without events cannot be stored everywhere (B1)."""
    registry = Registry()
    store, _ = world.store(registry, without=["materialize_header"])
    session = go_live(registry, "s")
    with pytest.raises(UsageError):
        await store.ensure_materialized("s")
    session.append("feedback/record", {})
    await store.ensure_materialized("s")


async def test_a_window_of_the_store_is_the_session_s(world: World) -> None:
    """The write window given to the store is the one its sessions use (D1)."""
    registry, clock = Registry(), ManualScheduler()
    store, faults = world.store(registry, write_window=0.3, scheduler=clock)
    session = go_live(registry, "s")
    await store.flush(session)
    session.append("feedback/record", {})
    await clock.advance(0.299)
    assert faults.counts["append_batch"] == 0
    await clock.advance(0.001)
    assert store.durable_seq(session) == 1
    assert NEVER not in clock.asked


async def test_a_load_of_a_live_session(world: World) -> None:
    """A live session is flushed and returned as it is, unless it is empty or in a turn (CC2, CC4)."""
    registry = Registry()
    store, faults = world.store(registry)
    session = go_live(registry, "s")
    with pytest.raises(SessionNotFoundError):
        await store.load("s")
    session.append("turn/start", {"turn": 1})
    with pytest.raises(SessionBusyError):
        await store.load("s")
    assert store.durable_seq(session) == 1
    session.append("turn/end", {"turn": 1, "reason": {"kind": "completed"}})
    view = await store.load("s")
    assert (len(view.events), view.live, store.durable_seq(session)) == (2, True, 2)
    session.append("feedback/record", {})
    assert len(view.events) == 2
    assert faults.counts["commit_repair"] == 0


async def test_drain_goes_to_the_live_session(world: World) -> None:
    """The store's drain makes room in the queue of one session (D4)."""
    registry = Registry()
    store, faults = world.store(registry, pending_budget=200, pending_reserve=0)
    session = go_live(registry, "s")
    session.append("feedback/record", {"text": "x" * 300})
    await store.drain(session)
    assert faults.counts["append_batch"] == 1
    with pytest.raises(UsageError):
        await store.drain(Session.create("t"))


async def test_an_adopted_session_is_not_kept_twice(world: World) -> None:
    """What was read of a log is dropped when a live session owns it: the live one is the memory (D4)."""
    events = LogScript().turn().events
    await world.keep("s", events)
    registry = Registry()
    store, _ = world.store(registry)
    await store.inspect("s")
    session = go_live(registry, "s", seed=events)
    await store.flush(session)
    assert len(store._books.pool) == 0
