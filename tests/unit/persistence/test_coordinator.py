"""The coordinator itself: its arguments, and the corners of its public calls."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.unit.persistence.world import World
from turnlog.backends.memory import MemoryBackend
from turnlog.errors import SessionBusyError, UsageError
from turnlog.persistence.backend import StoredPrefix
from turnlog.persistence.coordinator import PersistenceCoordinator
from turnlog.persistence.service import Undurable
from turnlog.session.registry import SessionRegistry
from turnlog.session.session import Session
from turnlog.testing.manual_time import settle
from turnlog.testing.scripts import LogScript, append_live, dicts, go_live, header


@pytest.mark.parametrize(
    "options",
    [
        {"prepared_sessions": 0},
        {"prepared_sessions": 1.5},
        {"prepared_sessions": True},
        {"prepared_bytes": -1},
        {"pending_budget": 0},
        {"pending_reserve": -1},
        {"write_window": -0.1},
        {"write_window": float("inf")},
        {"write_window": float("nan")},
        {"write_window": True},
        {"write_window": "0.2"},
    ],
)
async def test_bounds_that_cannot_be_meant_are_refused(options: dict[str, Any]) -> None:
    """Counts are positive integers and the window is finite and not negative (PE8, PE9)."""
    with pytest.raises(UsageError):
        PersistenceCoordinator(MemoryBackend(), SessionRegistry(Session), **options)


async def test_a_window_of_zero_is_allowed(world: World) -> None:
    """A window of 0 writes in the next turn of the loop (D1, PE9)."""
    registry: SessionRegistry[Session] = SessionRegistry(Session)
    store, faults = world.store(registry, write_window=0)
    session = go_live(registry, "s")
    await store.flush(session)
    append_live(session, LogScript().turn().events)
    await settle()
    assert faults.batches() == ((0, session.seq - 1),)


def test_a_store_can_be_made_outside_a_loop() -> None:
    """Only a live session needs the loop; a store can be made before it runs (D1)."""
    store = PersistenceCoordinator(MemoryBackend(), SessionRegistry(Session))

    async def use() -> int:
        await store.create(header("s"))
        await store.append("s", LogScript().turn().events)
        length = len((await store.inspect("s")).events)
        await store.aclose()
        return length

    assert asyncio.run(use()) == len(LogScript().turn().events)


async def test_undurable_is_the_range_that_waits(world: World) -> None:
    """What a crash would lose is a range with its bytes and its age (D1)."""
    registry: SessionRegistry[Session] = SessionRegistry(Session)
    store, _ = world.store(registry)
    session = go_live(registry, "s")
    assert store.undurable(session) is None
    session.append("feedback/record", {"n": 1})
    waiting = store.undurable(session)
    assert waiting == Undurable(0, 1, len(session.events[0].line), session.events[0].time, None)
    assert len(waiting) == 1
    await store.flush(session)
    assert store.undurable(session) is None
    assert store.durable_seq(session) == 1
    assert store.undurable(Session.create("t")) is None


async def test_a_live_session_is_inspected_as_it_is(world: World) -> None:
    """A live session is shown with its open turn, frozen, without touching storage (PE23)."""
    registry: SessionRegistry[Session] = SessionRegistry(Session)
    store, faults = world.store(registry)
    session = go_live(registry, "s")
    append_live(session, LogScript().start().step().events)
    await store.flush(session)
    before = list(faults.calls)
    view = await store.inspect("s")
    append_live(session, LogScript(turn=1, step=1).user().events)
    assert (view.live, view.closers, len(view.events)) == (True, (), 2)
    assert faults.calls == before


async def test_a_read_that_ends_beside_a_live_session_gives_the_live_one(world: World) -> None:
    """A session that becomes live in the very turn in which a cold read ends wins (CC3, PE11)."""
    events = LogScript().turn().events
    await world.keep("s", events)
    registry: SessionRegistry[Session] = SessionRegistry(Session)
    store, _ = world.store(registry)
    inspecting = asyncio.ensure_future(store.inspect("s"))
    while (entry := store._books.pool.get("s")) is None or entry.task is None or not entry.task.done():
        await asyncio.sleep(0)
    session = go_live(registry, "s", seed=events)
    view = await inspecting
    assert view.live
    assert dicts(view.events) == dicts(session.events)


async def test_a_session_that_nobody_announced_is_busy(world: World) -> None:
    """A session that was entered and never announced is live without this store: nobody prepares it (W1)."""
    await world.keep("s", LogScript().turn().start().events)
    registry: SessionRegistry[Session] = SessionRegistry(Session)
    store, _ = world.store(registry)
    registry.enter(registry.prepare("s", header=header("s")))
    assert (await store.inspect("s")).live
    for call in (store.prepare("s"), store.load("s")):
        with pytest.raises(SessionBusyError):
            await call


async def test_a_load_that_waits_behind_a_reservation_returns_its_view(world: World) -> None:
    """A load of a reserved session needs neither its claim nor a second repair (W1)."""
    await world.keep("s", LogScript().turn().start().events)
    store, faults = world.store()
    async with await store.prepare("s") as held:
        assert await store.load("s") is held.inspection
    assert faults.counts["commit_repair"] == 1


async def test_the_artifact_of_a_session_is_named_by_the_backend() -> None:
    """`locate` is the backend's answer, None where it has none (CO1)."""

    class Placed(MemoryBackend):
        def locate(self, meta: Any) -> str:
            return f"/srv/{meta.id}"

        async def load_stored(self, session_id: str) -> StoredPrefix | None:
            return None

    store = PersistenceCoordinator(Placed(), SessionRegistry(Session))
    assert store.locate(header("s")) == "/srv/s"
    await store.aclose()
