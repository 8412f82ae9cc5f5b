"""The end of a store: order, quiescence, every failure told at once, nothing remembered."""

from __future__ import annotations

import asyncio

import pytest

from tests.unit.persistence.world import World, interrupted, is_idle
from turnlog.errors import (
    BackendError,
    BackendUnavailableError,
    UndurableError,
    UsageError,
    WriterFencedError,
)
from turnlog.session.registry import SessionRegistry
from turnlog.session.session import Session
from turnlog.testing.manual_time import ManualScheduler, settle
from turnlog.testing.scripts import LogScript, append_live, dicts, go_live, header

Registry = SessionRegistry[Session]


async def test_everything_is_written_before_the_backend_is_closed(world: World) -> None:
    """Live sessions are flushed, claims given back, and the backend is closed last (D2, CC16, PE42)."""
    registry = Registry()
    store, faults = world.store(registry)
    sessions = [go_live(registry, session_id) for session_id in ("a", "b")]
    for session in sessions:
        append_live(session, LogScript().turn().events)
    await store.aclose()
    hooks = [call.hook for call in faults.calls]
    assert hooks[-3:] == ["release", "release", "aclose"]
    assert hooks.count("append_batch") == 2
    assert is_idle(store)
    assert not world.medium.claims


async def test_every_failure_is_in_one_group(world: World) -> None:
    """Flushes, claims and the backend's own end may all fail, and all of it is told (D2)."""
    registry, clock = Registry(), ManualScheduler()
    store, faults = world.store(registry, scheduler=clock)
    failing = go_live(registry, "a")
    good = go_live(registry, "b")
    for session in (failing, good):
        session.append("feedback/record", {})
    await store.flush(good)
    faults.fail("append_batch", None)
    faults.fail("release")
    faults.fail("aclose")
    with pytest.raises(ExceptionGroup, match="memory") as told:
        await store.aclose()
    kinds = [type(error) for error in told.value.exceptions]
    assert kinds == [UndurableError, BackendUnavailableError, BackendUnavailableError]
    assert is_idle(store)
    assert clock.waiting == ()
    await clock.advance(100)
    assert faults.counts["append_batch"] == 2
    await store.aclose()
    assert faults.counts["aclose"] == 1


async def test_a_failed_retirement_is_tried_again_at_the_end(world: World) -> None:
    """What a disposal could not write is written by the close, and then nothing is reported (PE40, PE41)."""
    registry = Registry()
    store, faults = world.store(registry)
    session = go_live(registry, "s")
    append_live(session, LogScript().turn().events)
    faults.fail("append_batch")
    registry.detach(session)
    await store.retired("s")
    assert store.undurable_events() == session.seq
    await store.aclose()
    assert is_idle(store)
    other, _ = world.store()
    assert dicts((await other.read_from("s", 0)).events) == dicts(session.events)


async def test_a_running_retirement_is_waited_for(world: World) -> None:
    """The close ends after a drain that was running when it began (PE41)."""
    registry = Registry()
    store, faults = world.store(registry)
    session = go_live(registry, "s")
    session.append("feedback/record", {})
    gate = faults.hang("append_batch")
    registry.detach(session)
    await gate.entered.wait()
    closing = asyncio.ensure_future(store.aclose())
    await settle()
    assert not closing.done()
    gate.release()
    await closing
    assert faults.calls[-1].hook == "aclose"
    assert is_idle(store)


async def test_a_detached_operation_is_waited_for(world: World) -> None:
    """An append, a load and an inspection that run when the store closes end before it (PE42)."""
    await world.keep("s", interrupted())
    store, faults = world.store()
    await store.create(header("t"))
    gates = [faults.hang(hook) for hook in ("append_batch", "commit_repair")]
    running = [
        asyncio.ensure_future(store.append("t", LogScript().turn().events)),
        asyncio.ensure_future(store.load("s")),
    ]
    for gate in gates:
        await gate.entered.wait()
    closing = asyncio.ensure_future(store.aclose())
    await settle()
    assert not closing.done()
    for gate in gates:
        gate.release()
    await closing
    await asyncio.gather(*running)
    assert faults.calls[-1].hook == "aclose"
    assert is_idle(store)


async def test_a_session_stays_usable_without_its_store(world: World) -> None:
    """A session that outlives the store takes events, and the next store adopts it (CC17)."""
    registry = Registry()
    store, _ = world.store(registry)
    session = go_live(registry, "s")
    append_live(session, LogScript().turn().events)
    await store.aclose()
    assert session.gate is None
    append_live(session, LogScript(turn=1).turn().events)
    successor, _ = world.store(registry)
    await successor.flush(session)
    assert dicts((await successor.read_from("s", 0)).events) == dicts(session.events)


async def test_a_second_store_keeps_its_gate_when_the_first_closes(world: World) -> None:
    """Closing a store lets go only of its own hold on a session (CC17)."""
    registry = Registry()
    first, _ = world.store(registry)
    session = go_live(registry, "s")
    second, _ = world.store(registry)
    gate = session.gate
    await first.aclose()
    assert session.gate is gate
    await second.flush(session)


async def test_a_fenced_session_counts_only_if_events_are_lost(world: World) -> None:
    """An end that lost nothing is not reported again; one that lost events is (W1)."""
    for lost in (0, 1):
        registry = Registry()
        store, faults = world.store(registry)
        session = go_live(registry, f"s{lost}")
        session.append("feedback/record", {})
        await store.flush(session)
        session.append("feedback/record", {})
        when = "before" if lost else "after"
        fence = WriterFencedError(session_id=session.id)
        faults.fail("append_batch", when=when, error=fence)  # type: ignore[arg-type]  # one of two literals
        with pytest.raises(WriterFencedError):
            await store.flush(session)
        if not lost:
            store._books.latest[session].writer.gate.durable_seq = session.seq
            await store.aclose()
        else:
            with pytest.raises(ExceptionGroup) as told:
                await store.aclose()
            assert told.group_contains(WriterFencedError)


async def test_a_cancelled_close_goes_on(world: World) -> None:
    """Who closes may be cancelled; the close is finished, and others who close wait for it (D2)."""
    registry = Registry()
    store, faults = world.store(registry)
    go_live(registry, "s").append("feedback/record", {})
    gate = faults.hang("append_batch")
    closing = asyncio.ensure_future(store.aclose())
    await gate.entered.wait()
    closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    again = asyncio.ensure_future(store.aclose())
    await settle()
    assert not again.done()
    gate.release()
    await again
    assert faults.counts["aclose"] == 1


async def test_a_closed_store_says_so(world: World) -> None:
    """Every call after the end is refused with one reason (D2)."""
    store, faults = world.store()
    await store.aclose()
    calls = (
        store.create(header("s")),
        store.append("s", LogScript().turn().events),
        store.append("s", []),
        store.prepare("s"),
        store.load("s"),
        store.inspect("s"),
        store.read_from("s", 0),
        store.tail("s", 1),
        store.delete("s"),
        store.ensure_materialized("s"),
        anext(store.iter_events("s")),
        anext(store.follow("s")),
        anext(store.list()),
    )
    for call in calls:
        with pytest.raises(UsageError, match="closed"):
            await call
    assert [call.hook for call in faults.calls] == ["aclose"]


async def test_a_waiting_preparation_hears_of_the_end(world: World) -> None:
    """Who waits for a reservation when the store closes is refused, not left waiting (D2)."""
    await world.keep("s", LogScript().turn().events)
    store, _ = world.store()
    held = await store.prepare("s")
    waiting = asyncio.ensure_future(store.prepare("s"))
    await settle()
    await store.aclose()
    with pytest.raises(UsageError):
        await waiting
    await held.aclose()
    assert is_idle(store)


async def test_a_backend_that_cannot_be_closed_is_told(world: World) -> None:
    """The backend's own failure at the end is in the group even if all else went well (D2)."""
    store, faults = world.store()
    faults.fail("aclose", error=OSError("stuck"))
    with pytest.raises(ExceptionGroup) as told:
        await store.aclose()
    assert told.group_contains(BackendError, match="stuck")


async def test_a_producer_that_never_stops_does_not_hold_the_close(world: World) -> None:
    """What a live session goes on to append while its store closes is left to the next store (D2, CC17)."""
    registry = Registry()
    store, faults = world.store(registry)
    session = go_live(registry, "s")
    await store.flush(session)
    session.append("feedback/record", {})
    stop = False

    async def produce() -> None:
        while not stop:
            session.append("feedback/record", {})
            await asyncio.sleep(0)

    producer = asyncio.ensure_future(produce())
    await asyncio.sleep(0)
    await asyncio.wait_for(store.aclose(), 10)
    stop = True
    await producer
    assert faults.counts["append_batch"] <= 2
    successor, _ = world.store(registry)
    await successor.flush(session)
    assert dicts((await successor.read_from("s", 0)).events) == dicts(session.events)


async def test_a_flush_that_comes_too_late_is_refused(world: World) -> None:
    """Once a store is closing nothing new is written or claimed by it (D2)."""
    registry = Registry()
    store, faults = world.store(registry)
    session = go_live(registry, "s")
    await store.flush(session)
    gate = faults.hang("aclose")
    closing = asyncio.ensure_future(store.aclose())
    await gate.entered.wait()
    session.append("feedback/record", {})
    for call in (store.flush, store.drain):
        with pytest.raises(UsageError, match="closed"):
            await call(session)
    with pytest.raises(UsageError, match="closed"):
        await store.ensure_materialized("s")
    gate.release()
    await closing
    assert faults.counts["append_batch"] == faults.counts["claim"] == 0


async def test_a_header_is_not_stored_by_a_store_that_closes_meanwhile(world: World) -> None:
    """A request that was waiting for its session when the store closed is refused (D2, B1)."""
    registry = Registry()
    store, faults = world.store(registry)
    gate = faults.hang("read_stored_revision")
    go_live(registry, "s")
    storing = asyncio.ensure_future(store.ensure_materialized("s"))
    await gate.entered.wait()
    closing = asyncio.ensure_future(store.aclose())
    await settle()
    gate.release()
    with pytest.raises(UsageError, match="closed"):
        await storing
    await closing
    assert faults.counts["materialize_header"] == faults.counts["claim"] == 0
