"""Readers of stored logs: suffixes, iteration, following, listing; none of them writes or claims."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import aclosing
from typing import Any

import pytest

from tests.unit.persistence.world import World, interrupted, is_idle
from turnlog.errors import (
    BackendError,
    BackendUnavailableError,
    CorruptLogError,
    SessionNotFoundError,
    UnsupportedFormatError,
    UsageError,
)
from turnlog.events.batch import Damage, StoredFrame
from turnlog.events.envelope import SessionEvent
from turnlog.persistence import readers
from turnlog.persistence.coordinator import PersistenceCoordinator
from turnlog.session.registry import SessionRegistry
from turnlog.session.session import Session
from turnlog.testing.manual_time import settle
from turnlog.testing.scripts import LogScript, append_live, dicts, go_live

PLAIN: tuple[str, ...] = ("load_stored_from", "watch", "read_stored_revision")
"""Everything that makes reading cheaper."""


def record(seq: int, type: str = "feedback/record", **data: Any) -> dict[str, Any]:
    """Make a small event."""
    return {"type": type, "seq": seq, "time": 1, "data": data}


@pytest.mark.parametrize("without", [(), PLAIN])
async def test_a_suffix_is_exactly_the_range(world: World, without: tuple[str, ...]) -> None:
    """A read gives the events of the range and nothing beyond the end, however the backend reads (CO8)."""
    events = LogScript().turn(calls=["c1"]).events
    await world.keep("s", events)
    store, faults = world.store(without=without)
    every = dicts(events)
    for seq in range(len(every) + 2):
        for limit in (None, 0, 1, 3, 100):
            part = await store.read_from("s", seq, limit)
            assert dicts(part.events) == (every[seq:] if limit is None else every[seq : seq + limit])
            assert part.events.first_seq == min(seq, len(every))
    for n in (1, 2, len(every), len(every) + 5):
        assert dicts((await store.tail("s", n)).events) == every[-n:]
    assert faults.counts["claim"] == faults.counts["commit_repair"] == 0


async def test_ranges_that_cannot_be_meant_are_refused(world: World) -> None:
    """Negative, fractional and boolean ranges are the caller's fault (R3)."""
    store, faults = world.store()
    for seq, limit in ((-1, None), (0, -1), (1.5, None), (0, True)):
        with pytest.raises(UsageError):
            await store.read_from("s", seq, limit)  # type: ignore[arg-type]  # that is the point
    for n in (0, -1):
        with pytest.raises(UsageError):
            await store.tail("s", n)
    with pytest.raises(UsageError):
        store.iter_events("s", -1)
    with pytest.raises(UsageError):
        store.list(limit=-1)
    with pytest.raises(UsageError):
        store.follow("s", "1")  # type: ignore[arg-type]  # that is the point
    assert not faults.calls


@pytest.mark.parametrize("without", [(), PLAIN])
async def test_what_is_not_durable_is_not_read(world: World, without: tuple[str, ...]) -> None:
    """A torn tail and closers are never returned by a read (R3, R2)."""
    events = interrupted()
    await world.keep("s", events)
    await world.tear("s", LogScript(len(events), turn=2).turn().turn().events)
    store, faults = world.store(without=without)
    assert dicts((await store.read_from("s", 0)).events) == dicts(events)
    assert dicts((await store.tail("s", 2)).events) == dicts(events[-2:])
    assert faults.counts["commit_repair"] == 0


async def test_a_missing_session_is_not_found(world: World) -> None:
    """Every reader says that nothing is stored under the id (CC33, PE33)."""
    for without in ((), PLAIN):
        store, faults = world.store(without=without)
        for call in (store.read_from("s", 0), store.tail("s", 1), store.inspect("s"), store.load("s")):
            with pytest.raises(SessionNotFoundError):
                await call
        for events in (store.iter_events("s"), store.follow("s"), store.follow("s", -1)):
            with pytest.raises(SessionNotFoundError):
                await anext(events)
        faults.fail("load_stored", None)
        faults.fail("load_stored_from", None)
        with pytest.raises(BackendUnavailableError):
            await store.read_from("s", 0)
        faults.heal()
        await settle()
        assert is_idle(store)


async def test_a_suffix_is_checked_where_it_was_read(world: World) -> None:
    """A suffix read refuses a wrong header and unknown types in the suffix (L2, R2)."""
    await world.put("unknown", record(0), record(1, "acme/new"), record(2))
    await world.put("legacy", record(0), record(1, "mode/set"))
    await world.put("t", record(0))
    world.medium.sessions["wrong"] = world.medium.sessions["t"]
    store, _ = world.store()
    assert len((await store.read_from("unknown", 2)).events) == 1
    with pytest.raises(UnsupportedFormatError) as unknown:
        await store.read_from("unknown", 1)
    assert unknown.value.seq == 1
    with pytest.raises(CorruptLogError) as legacy:
        await store.read_from("legacy", 1)
    assert legacy.value.seq == 1
    with pytest.raises(CorruptLogError):
        await store.read_from("wrong", 0)
    plain, _ = world.store(without=PLAIN)
    with pytest.raises(UnsupportedFormatError):
        await plain.read_from("unknown", 2)


def legacy_result(seq: int, **envelope: Any) -> Mapping[str, Any]:
    """Make a tool result in the shape of logs without message ids."""
    data = {"turn": 1, "step": 1, "callId": "c1", "content": [], "isError": False}
    return {"type": "tool/result", "seq": seq, "time": 1, "data": data, **envelope}


async def test_a_legacy_suffix_that_needs_the_prefix_gets_it(world: World) -> None:
    """A replacing legacy result takes the message id of what it replaces, also across a suffix (L2, CC9)."""
    replacing = {"surfaceOp": {"op": "replace", "start": 1, "end": 1}, "sourceEventSeqs": [1]}
    await world.put("s", record(0), legacy_result(1, surfaceOp="append"), legacy_result(2, **replacing))
    store, faults = world.store()
    whole = (await store.read_from("s", 0)).events
    assert whole[2].data["message"]["id"] == whole[1].data["message"]["id"] == "legacy-message:s:1"
    assert faults.counts["load_stored"] == 0
    suffix = await store.read_from("s", 2)
    assert dicts(suffix.events) == dicts(whole[2:])
    assert faults.counts["load_stored"] == 1
    assert dicts((await store.read_from("s", 0, 2)).events) == dicts(whole[:2])


async def test_a_read_waits_for_a_drain(world: World) -> None:
    """A read of an id that is being drained sees all of it; it can be cancelled meanwhile (R3, PE34)."""
    registry = SessionRegistry(Session)
    store, faults = world.store(registry)
    session = go_live(registry, "s")
    append_live(session, LogScript().turn().events)
    gate = faults.hang("append_batch")
    registry.detach(session)
    await gate.entered.wait()
    reading = asyncio.ensure_future(store.read_from("s", 0))
    other = asyncio.ensure_future(store.inspect("s"))
    inspecting = asyncio.ensure_future(store.inspect("s"))
    await settle()
    inspecting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await inspecting
    gate.release()
    assert len((await reading).events) == session.seq
    assert len((await other).events) == session.seq


@pytest.mark.parametrize("without", [(), PLAIN])
async def test_iteration_pages_in_flat_memory(
    world: World, monkeypatch: pytest.MonkeyPatch, without: tuple[str, ...]
) -> None:
    """A long log is read page by page where suffixes can be read, else at once (D4)."""
    monkeypatch.setattr(readers, "PAGE", 4)
    events = LogScript().turn(calls=["c1"]).events
    await world.keep("s", events)
    store, faults = world.store(without=without)
    found = [event async for event in store.iter_events("s")]
    assert dicts(found) == dicts(events)
    assert dicts([event async for event in store.iter_events("s", 5)]) == dicts(events[5:])
    if without:
        assert faults.counts["load_stored"] == 2
    else:
        assert faults.counts["load_stored_from"] == len(events) // 4 + 1 + (len(events) - 5) // 4 + 1


async def follow(store: PersistenceCoordinator, seq: int, found: list[SessionEvent]) -> None:
    """Collect what follows."""
    async with aclosing(store.follow("s", seq)) as events:  # type: ignore[type-var]  # it is a generator
        async for event in events:
            found.append(event)  # noqa: PERF401  # what was found is read while the rest is waited for


@pytest.mark.parametrize("without", [(), ("watch",), ("watch", "read_stored_revision"), PLAIN])
async def test_following_sees_what_another_store_writes(world: World, without: tuple[str, ...]) -> None:
    """A follower gets every event once and in order, told or not told by the backend (R3)."""
    await world.keep("s", LogScript().turn().events)
    pauses: list[float] = []

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)
        await asyncio.sleep(0)

    reader, faults = world.store(without=without, sleep=sleep)
    found: list[SessionEvent] = []
    following = asyncio.ensure_future(follow(reader, 0, found))
    await settle()
    writer, _ = world.store()
    length = len(found)
    for seq in range(length, length + 5):
        await writer.append("s", [record(seq)])
        await settle()
    assert [event.seq for event in found] == list(range(length + 5))
    assert faults.counts["claim"] == 0
    assert bool(pauses) == ("watch" in without)
    assert set(pauses) <= {readers.POLL_PERIOD}
    following.cancel()
    with pytest.raises(asyncio.CancelledError):
        await following
    assert len(reader._books.waits) == 0


async def test_following_from_the_end(world: World) -> None:
    """A negative seq counts from the end (R3)."""
    events = LogScript().turn().events
    await world.keep("s", events)
    store, _ = world.store()
    found: list[SessionEvent] = []
    following = asyncio.ensure_future(follow(store, -2, found))
    await settle()
    assert dicts(found) == dicts(events[-2:])
    following.cancel()
    await settle()


async def test_following_misses_nothing_written_during_a_read(world: World) -> None:
    """The wait for news begins before the read, so an append in between is seen (R3)."""
    await world.keep("s", LogScript().turn().events)
    store, faults = world.store()
    found: list[SessionEvent] = []
    gate = faults.hang("load_stored_from", when="after")
    following = asyncio.ensure_future(follow(store, 0, found))
    await gate.entered.wait()
    writer, _ = world.store()
    seq = len(LogScript().turn().events)
    await writer.append("s", [record(seq)])
    gate.release()
    await settle()
    assert [event.seq for event in found] == list(range(seq + 1))
    following.cancel()
    await settle()


async def test_following_goes_on_when_the_watch_ends(world: World) -> None:
    """A backend that stops watching is polled from then on (R3)."""
    await world.keep("s", LogScript().turn().events)
    store, faults = world.store(sleep=asyncio.sleep)
    found: list[SessionEvent] = []
    faults.watch = lambda session_id: _nothing()  # type: ignore[method-assign]  # a watch that has ended
    following = asyncio.ensure_future(follow(store, 0, found))
    await settle()
    assert found
    assert faults.counts["read_stored_revision"] >= 1
    following.cancel()
    await settle()


async def _nothing() -> Any:
    for _ in ():
        yield


async def test_a_follower_hears_of_failures_and_of_the_end(world: World) -> None:
    """A failing watch and the close of the store end following with a typed error (D2)."""
    await world.keep("s", LogScript().turn().events)
    store, faults = world.store()
    gate = faults.hang("watch")
    failing = asyncio.ensure_future(follow(store, 0, []))
    await settle()
    gate.fail(BackendError(backend="test", reason="no more news"))
    with pytest.raises(BackendError, match="no more news"):
        await failing
    waiting = asyncio.ensure_future(follow(store, 0, []))
    await settle()
    await store.aclose()
    with pytest.raises(UsageError):
        await waiting


async def test_a_deleted_log_ends_its_followers(world: World) -> None:
    """Following a log that is deleted ends with not found (R3)."""
    await world.keep("s", LogScript().turn().events)
    store, _ = world.store()
    following = asyncio.ensure_future(follow(store, 0, []))
    await settle()
    other, _ = world.store()
    await other.delete("s")
    with pytest.raises(SessionNotFoundError):
        await following


async def test_listing_pages_and_merges_live_sessions(world: World) -> None:
    """Entries come in the backend's order; only sessions written here are made live (B4)."""
    for session_id in ("a", "b", "c"):
        await world.keep(session_id, LogScript().turn().events)
    registry = SessionRegistry(Session)
    store, _ = world.store(registry, without=["claim", "release", "renew"])
    session = go_live(registry, "d")
    session.append("feedback/record", {})
    await store.flush(session)
    stranger = go_live(registry, "a")
    entries = [entry async for entry in store.list()]
    assert [(entry.session_id, entry.status) for entry in entries] == [
        ("a", "ok"),
        ("b", "ok"),
        ("c", "ok"),
        ("d", "live"),
    ]
    page = [entry.session_id async for entry in store.list(after="a", limit=2)]
    assert page == ["b", "c"]
    registry.detach(stranger)


async def test_a_damaged_log_can_be_scanned(world: World) -> None:
    """A scan yields what is readable, from a torn end too, and what is not; it is optional (R2)."""
    events = LogScript().turn().events
    await world.keep("s", events)
    await world.tear("s", LogScript(len(events), turn=2).turn().events)
    store, faults = world.store()
    found = [part async for part in store.scan("s")]
    assert [type(part) for part in found] == [StoredFrame, StoredFrame, Damage]
    assert faults.counts["claim"] == 0
    plain, _ = world.store(without=["scan_stored"])
    with pytest.raises(UsageError):
        await anext(plain.scan("s"))


async def test_one_bad_entry_hides_no_other(world: World) -> None:
    """An unreadable entry is listed with its problem (B4)."""
    for session_id in ("a", "b"):
        await world.keep(session_id, LogScript().turn().events)
    world.medium.sessions["a"].header = b"not a header\n"
    store, faults = world.store()
    entries = [entry async for entry in store.list()]
    assert [entry.status for entry in entries] == ["corrupt", "ok"]
    assert entries[0].problem is not None
    faults.fail("list")
    with pytest.raises(BackendError):
        await anext(store.list())
    await store.aclose()
    with pytest.raises(UsageError):
        await anext(store.list())
