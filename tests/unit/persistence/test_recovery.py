"""Reading, claiming, repairing and reserving stored sessions, and every way in which these can meet."""

from __future__ import annotations

import asyncio

import pytest

from tests.unit.persistence.world import World, interrupted, is_idle, publish
from turnlog.errors import (
    BackendError,
    BackendUnavailableError,
    CorruptLogError,
    SessionBusyError,
    SessionNotFoundError,
    UndurableError,
    UnexpectedSeqError,
    UnsupportedFormatError,
    UsageError,
)
from turnlog.persistence.recovery import MAX_ROUNDS
from turnlog.session.registry import SessionRegistry
from turnlog.session.session import Session
from turnlog.testing.manual_time import settle
from turnlog.testing.scripts import LogScript, append_live, dicts, go_live, header, types


async def test_prepare_commits_a_repair_once_and_keeps_the_session(world: World) -> None:
    """Repair is durable before the reservation; an untouched session is handed out again (R1, PE24, PE16)."""
    await world.keep("s", interrupted())
    store, faults = world.store()
    view = await store.inspect("s")
    assert types(list(view.closers)) == ["tool/result", "step/end", "turn/end"]
    assert faults.counts["commit_repair"] == 0
    async with await store.prepare("s") as first:
        assert first.inspection.closers == ()
        session = first.session
        assert dicts(first.inspection.events) == dicts(view.events)
        assert session.events[-1].type == "session/end-seed"
    async with await store.prepare("s") as second:
        assert second.session is session
    assert faults.counts["commit_repair"] == 1
    assert (faults.counts["claim"], faults.counts["release"]) == (2, 2)


async def test_a_touched_session_is_not_handed_out_again(world: World) -> None:
    """A prepared session that somebody appended to is read anew for the next one (R1)."""
    await world.keep("s", LogScript().turn().events)
    store, _ = world.store()
    async with await store.prepare("s") as first:
        first.session.append("feedback/record", {})
    async with await store.prepare("s") as second:
        assert second.session is not first.session


async def test_a_reservation_is_given_back_once(world: World) -> None:
    """Closing a reservation twice, or after publication, does nothing (W1)."""
    await world.keep("s", LogScript().turn().events)
    registry = SessionRegistry(Session)
    store, faults = world.store(registry)
    reservation = await store.prepare("s")
    await reservation.aclose()
    await reservation.aclose()
    assert faults.counts["release"] == 1
    async with await store.prepare("s") as held:
        session = publish(registry, held.session)
    assert faults.counts["release"] == 1
    await store.flush(session)


async def test_a_publication_after_the_reservation_is_adopted_like_any_other(world: World) -> None:
    """A session that is published too late still continues its log if that has not changed (L1, PE13)."""
    await world.keep("s", LogScript().turn().events)
    registry = SessionRegistry(Session)
    store, faults = world.store(registry)
    async with await store.prepare("s") as held:
        pass
    session = publish(registry, held.session)
    await store.flush(session)
    assert faults.batches() == ((session.seq - 1, session.seq - 1),)


async def test_a_failed_suffix_surfaces_at_flush(world: World) -> None:
    """What a resumed session could not write is told by its flush and written by the next (D2, PE14)."""
    await world.keep("s", LogScript().turn().events)
    registry = SessionRegistry(Session)
    store, faults = world.store(registry)
    async with await store.prepare("s") as held:
        session = publish(registry, held.session)
    faults.fail("append_batch")
    with pytest.raises(UndurableError):
        await store.flush(session)
    append_live(session, LogScript(turn=1).turn().events)
    await store.flush(session)
    assert dicts((await store.read_from("s", 0)).events) == dicts(session.events)


async def test_an_id_stays_closed_while_it_is_repaired(world: World) -> None:
    """Nobody goes live under an id whose repair is being committed (R1, W1, PE7)."""
    await world.keep("s", interrupted())
    registry = SessionRegistry(Session)
    store, faults = world.store(registry)
    gate = faults.hang("commit_repair")
    loading = asyncio.ensure_future(store.load("s"))
    await gate.entered.wait()
    with pytest.raises(SessionBusyError) as busy:
        go_live(registry, "s")
    assert busy.value.owner is not None
    assert registry.get("s") is None
    gate.release()
    assert (await loading).closers == ()


@pytest.mark.parametrize("hook", ["load_stored", "read_stored_revision", "claim"])
async def test_a_session_that_becomes_live_wins(world: World, hook: str) -> None:
    """A preparation that is overtaken by a live session gives up, before it commits (W1, PE11, PE12)."""
    events = LogScript().turn().events
    await world.keep("s", events)
    registry = SessionRegistry(Session)
    store, faults = world.store(registry)
    gate = faults.hang(hook)
    preparing = asyncio.ensure_future(store.prepare("s"))
    await gate.entered.wait()
    if hook == "load_stored":
        session = go_live(registry, "s", seed=events)
        gate.release()
        with pytest.raises(SessionBusyError):
            await preparing
        await store.flush(session)
    else:
        with pytest.raises(SessionBusyError):
            go_live(registry, "s", seed=events)
        gate.release()
        await (await preparing).aclose()
    await settle()
    assert faults.counts["claim"] - faults.counts["release"] == (1 if registry.get("s") else 0)


async def test_a_session_that_becomes_live_beside_a_ready_read_wins(world: World) -> None:
    """Also a preparation that reuses a read asks again whether the session is live (W1, PE11, PE12)."""
    events = LogScript().turn().events
    await world.keep("s", events)
    registry = SessionRegistry(Session)
    store, faults = world.store(registry)
    await store.inspect("s")
    gate = faults.hang("read_stored_revision")
    preparing = asyncio.ensure_future(store.prepare("s"))
    await gate.entered.wait()
    session = go_live(registry, "s", seed=events)
    gate.release()
    with pytest.raises(SessionBusyError):
        await preparing
    await store.flush(session)


async def test_an_id_created_here_and_stored_elsewhere_is_resumed_like_any_other(world: World) -> None:
    """What was only created in memory does not outlive the stored session that was resumed (B1)."""
    registry = SessionRegistry(Session)
    store, _ = world.store(registry)
    await store.create(header("s"))
    await world.keep("s", LogScript().turn().events)
    async with await store.prepare("s") as held:
        session = publish(registry, held.session)
    registry.detach(session)
    await store.append("s", [{"type": "feedback/record", "seq": session.seq, "time": 1, "data": {}}])
    assert len((await store.load("s")).events) == session.seq + 1


@pytest.mark.parametrize("reader", ["inspect", "load"])
async def test_a_read_that_is_overtaken_returns_the_live_session(world: World, reader: str) -> None:
    """Liveness is asked again when a queued cold read begins and when it ends (R3, CC3, PE11, PE32)."""
    events = LogScript().turn().events
    for hook, release_first in (("load_stored", False), ("read_stored_revision", True)):
        await world.keep(hook, events)
        registry = SessionRegistry(Session)
        store, faults = world.store(registry)
        ahead = None
        if release_first:
            gate = faults.hang("load_stored_from")
            ahead = asyncio.ensure_future(store.read_from(hook, 0))
        else:
            gate = faults.hang(hook)
        read = asyncio.ensure_future(getattr(store, reader)(hook))
        await gate.entered.wait()
        await settle()
        session = go_live(registry, hook, seed=events)
        session.append("feedback/record", {})
        gate.release()
        view = await read
        assert view.live
        assert len(view.events) == session.seq
        if ahead is not None:
            await ahead
        await store.aclose()
        registry.detach(session)


async def test_a_busy_load_of_a_cold_session_is_told(world: World) -> None:
    """A load that has to repair what another writer holds is refused, naming it (W1)."""
    await world.keep("s", LogScript().turn().events)
    first, _ = world.store()
    second, _ = world.store()
    async with await first.prepare("s"):
        await world.tear("s", LogScript(20, turn=1).turn().events)
        with pytest.raises(SessionBusyError):
            await second.load("s")


async def test_a_foreign_append_between_read_and_claim_is_read_again(world: World) -> None:
    """What was read without the claim counts only if its revision still stands under it (W1, PE10, PE18)."""
    events = LogScript().turn().events
    await world.keep("s", events)
    store, faults = world.store()
    gate = faults.hang("claim")
    preparing = asyncio.ensure_future(store.prepare("s"))
    await gate.entered.wait()
    other, _ = world.store()
    more = LogScript(len(events), turn=1).turn().events
    await other.append("s", more)
    gate.release()
    async with await preparing as held:
        assert dicts(held.inspection.events) == dicts([*events, *more])
    assert faults.counts["load_stored"] == 2


async def test_a_foreign_write_after_a_repair_is_read_again(world: World) -> None:
    """The log is read again after a repair, whoever wrote in between (R1, PE25)."""
    await world.keep("s", interrupted())
    store, faults = world.store(without=["claim"])
    gate = faults.hang("commit_repair", when="after")
    loading = asyncio.ensure_future(store.load("s"))
    await gate.entered.wait()
    other, _ = world.store()
    stored = (await other.read_from("s", 0)).events
    more = LogScript(len(stored), turn=2).turn().events
    await other.append("s", more)
    gate.release()
    assert len((await loading).events) == len(stored) + len(more)


async def test_a_repair_that_comes_too_late_is_decided_anew(world: World) -> None:
    """A repair refused because the log went on is not an error; the log as it is now is read (R1, PE10)."""
    await world.keep("s", interrupted())
    store, faults = world.store()
    faults.fail("commit_repair", error=UnexpectedSeqError(session_id="s", expected=1, actual=2))
    assert (await store.load("s")).closers == ()
    assert faults.counts["commit_repair"] == 2


async def test_a_log_that_never_stands_still_is_busy(world: World) -> None:
    """Somebody who keeps changing the log does not keep the caller for ever (W1)."""
    await world.keep("s", interrupted())
    store, faults = world.store()
    faults.fail("commit_repair", None, error=UnexpectedSeqError(session_id="s", expected=1, actual=2))
    with pytest.raises(SessionBusyError):
        await store.load("s")
    assert faults.counts["commit_repair"] == MAX_ROUNDS
    assert faults.counts["release"] == 1


async def test_a_log_that_vanishes_behind_a_repair_is_not_found(world: World) -> None:
    """A log deleted after its repair is reported as absent, and its claim is given back (PE26)."""
    await world.keep("s", interrupted())
    store, faults = world.store()
    gate = faults.hang("commit_repair", when="after")
    preparing = asyncio.ensure_future(store.prepare("s"))
    await gate.entered.wait()
    world.medium.sessions.clear()
    gate.release()
    with pytest.raises(SessionNotFoundError):
        await preparing
    assert faults.counts["release"] == 1
    assert is_idle(store)


@pytest.mark.parametrize("hook", ["claim", "commit_repair", "load_stored"])
async def test_a_failed_preparation_leaves_nothing_behind(world: World, hook: str) -> None:
    """A preparation that fails anywhere gives claim and reservation back; the next one succeeds (PP10)."""
    await world.keep("s", interrupted())
    store, faults = world.store()
    faults.fail(hook)
    with pytest.raises(BackendUnavailableError):
        await store.prepare("s")
    assert len(store._books.claims) == 0
    async with await store.prepare("s") as held:
        assert held.inspection.closers == ()


async def test_a_preparation_cancelled_while_it_commits_is_given_back(world: World) -> None:
    """The commit runs to its end without its caller, then everything is free again (B2, PP11, PP12)."""
    await world.keep("s", interrupted())
    store, faults = world.store()
    gate = faults.hang("commit_repair")
    preparing = asyncio.ensure_future(store.prepare("s"))
    await gate.entered.wait()
    preparing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await preparing
    gate.release()
    async with await store.prepare("s") as held:
        assert held.inspection.closers == ()
        await settle()
        assert len(store._books.claims) == 1
    await settle()
    assert faults.counts["commit_repair"] == 1
    assert faults.counts["claim"] == faults.counts["release"]
    assert len(store._books.claims) == 0


async def test_a_waiting_preparation_that_is_cancelled_began_nothing(world: World) -> None:
    """Who is cancelled in the queue gets nothing and leaves nothing (PP9)."""
    await world.keep("s", LogScript().turn().events)
    store, faults = world.store()
    gate = faults.hang("load_stored_from")
    reading = asyncio.ensure_future(store.read_from("s", 0))
    preparing = asyncio.ensure_future(store.prepare("s"))
    await gate.entered.wait()
    await settle()
    preparing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await preparing
    gate.release()
    await reading
    await settle()
    assert faults.counts["load_stored"] == faults.counts["claim"] == 0


async def test_two_preparations_in_one_turn_share_nothing_but_the_wait(world: World) -> None:
    """Of two callers in the same turn one waits for the other, and both get the same session (PE27, PP8)."""
    await world.keep("s", LogScript().turn().events)
    store, faults = world.store()
    tasks = [asyncio.ensure_future(store.prepare("s")) for _ in range(2)]
    done, waiting = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    assert len(done) == len(waiting) == 1
    first = done.pop().result()
    await first.aclose()
    second = await waiting.pop()
    assert second.session is first.session
    await second.aclose()
    assert faults.counts["load_stored"] == 1


async def test_inspecting_a_reserved_session_returns_what_was_prepared(world: World) -> None:
    """A reader never waits for a reservation, and never disturbs it (R3, PE19)."""
    await world.keep("s", LogScript().turn().events)
    store, faults = world.store()
    async with await store.prepare("s") as held:
        world.medium.touch("s")
        assert await store.inspect("s") is held.inspection
        assert await store.load("s") is held.inspection
        assert store._books.pool.is_held("s")
    assert faults.counts["load_stored"] == 1


async def test_an_inspection_queued_behind_a_preparation_gets_its_result(world: World) -> None:
    """An inspection that began before the reservation returns the reserved view (R3, PE19)."""
    await world.keep("s", LogScript().turn().events)
    store, faults = world.store()
    await store.inspect("s")
    gate = faults.hang("read_stored_revision")
    preparing = asyncio.ensure_future(store.prepare("s"))
    await gate.entered.wait()
    inspecting = asyncio.ensure_future(store.inspect("s"))
    await settle()
    gate.release()
    held = await preparing
    assert await inspecting is held.inspection
    await held.aclose()


async def test_a_ready_read_is_used_while_its_revision_stands(world: World) -> None:
    """Repeated inspections read the revision only; a change makes them read again (R3, PE16, PE17)."""
    await world.keep("s", LogScript().turn().events)
    store, faults = world.store()
    first = await store.inspect("s")
    assert await store.inspect("s") is first
    assert faults.counts["load_stored"] == 1
    world.medium.touch("s")
    assert await store.inspect("s") is not first
    assert faults.counts["load_stored"] == 2


async def test_without_revisions_nothing_is_reused(world: World) -> None:
    """A backend that cannot tell its revision is read each time, under the claim before a write (W1)."""
    await world.keep("s", interrupted())
    store, faults = world.store(without=["read_stored_revision"])
    await store.inspect("s")
    await store.inspect("s")
    assert faults.counts["load_stored"] == 2
    async with await store.prepare("s") as held:
        assert held.inspection.closers == ()
    assert faults.counts["load_stored"] == 5
    await store.load("s")
    assert faults.counts["load_stored"] == 6


async def test_without_claims_nothing_is_claimed(world: World) -> None:
    """A backend without claims is repaired and reserved all the same (R1)."""
    await world.keep("s", interrupted())
    store, faults = world.store(without=["claim", "release", "renew"])
    async with await store.prepare("s") as held:
        assert held.inspection.closers == ()
    assert faults.counts["commit_repair"] == 1


async def test_an_inspection_queued_behind_a_slow_read_can_be_cancelled(world: World) -> None:
    """A queued inspection leaves at once with its reason, is never run, and harms nobody (PE30, PP18)."""
    await world.keep("s", LogScript().turn().events)
    store, faults = world.store()
    gate = faults.hang("load_stored_from")
    reading = asyncio.ensure_future(store.read_from("s", 0))
    await gate.entered.wait()
    inspecting = asyncio.ensure_future(store.inspect("s"))
    await settle()
    inspecting.cancel("enough")
    with pytest.raises(asyncio.CancelledError, match="enough"):
        await inspecting
    gate.release()
    await reading
    await settle()
    assert faults.counts["load_stored"] == 0
    assert len((await store.inspect("s")).events) > 0


async def test_a_shared_read_outlives_its_creator(world: World) -> None:
    """The caller that began a cold read may leave; the others get the result (R3, PE31)."""
    await world.keep("s", LogScript().turn().events)
    store, faults = world.store()
    gate = faults.hang("load_stored")
    creator = asyncio.ensure_future(store.inspect("s"))
    await gate.entered.wait()
    observer = asyncio.ensure_future(store.inspect("s"))
    await settle()
    creator.cancel()
    with pytest.raises(asyncio.CancelledError):
        await creator
    gate.release()
    assert len((await observer).events) > 0
    assert faults.counts["load_stored"] == 1


async def test_an_append_in_the_same_turn_queues_behind_the_read(world: World) -> None:
    """Calls on one id run in the order they were made (W1, PE20, PE21)."""
    events = LogScript().turn().events
    more = LogScript(len(events), turn=1).turn().events
    await world.keep("s", events)
    store, _ = world.store()
    before, _, after = await asyncio.gather(
        store.inspect("s"), store.append("s", more), store.read_from("s", 0)
    )
    assert (len(before.events), len(after.events)) == (len(events), len(events) + len(more))
    last = LogScript(len(after.events), turn=2).turn().events
    _, then = await asyncio.gather(store.append("s", last), store.inspect("s"))
    assert len(then.events) == len(after.events) + len(last)


async def test_a_header_of_another_session_is_refused(world: World) -> None:
    """A stored header that names another id is damage, before any repair or claim (R2, PE6)."""
    await world.keep("s", interrupted())
    world.medium.sessions["t"] = world.medium.sessions["s"]
    store, faults = world.store()
    for call in (store.inspect, store.load, store.prepare):
        with pytest.raises((CorruptLogError, BackendError)):
            await call("t")
    assert faults.counts["commit_repair"] == faults.counts["claim"] == 0
    assert is_idle(store)


async def test_refused_logs_are_typed(world: World) -> None:
    """What no session accepts is refused with a typed error that names the place (R2, CC11, PE51, PE52)."""
    store, faults = world.store()
    good = {"type": "feedback/record", "seq": 0, "time": 1, "data": {}}
    cases: list[tuple[dict[str, object], type[Exception]]] = [
        ({"type": "user/message", "seq": 1, "time": 1, "data": {}, "surfaceOp": "append"}, CorruptLogError),
        ({"type": "user/message", "seq": 1, "time": 1, "data": {"content": []}}, CorruptLogError),
        ({"type": "request/header", "seq": 1, "time": 1, "data": {"reason": "fallback"}}, CorruptLogError),
        ({"type": "mode/set", "seq": 1, "time": 1, "data": {}}, CorruptLogError),
        ({"type": "turn/end", "seq": 1, "time": 1, "data": {"turn": 1}}, CorruptLogError),
        ({"type": "acme/new", "seq": 1, "time": 1, "data": {}}, UnsupportedFormatError),
    ]
    for number, (event, error) in enumerate(cases):
        await world.put(f"s{number}", good, event)
        for call in (store.inspect, store.load, store.prepare):
            with pytest.raises(error) as refused:
                await call(f"s{number}")
            assert getattr(refused.value, "seq", None) == 1
            assert getattr(refused.value, "session_id", None) == f"s{number}"
    assert faults.counts["claim"] == 0


async def test_a_torn_tail_is_described_and_cut(world: World) -> None:
    """Readers are told about a torn tail; load cuts it and then there is none (R2, CC40)."""
    events = LogScript().turn().events
    await world.keep("s", events)
    await world.tear("s", LogScript(len(events), turn=1).turn().events)
    store, _ = world.store()
    torn = (await store.inspect("s")).torn
    assert torn is not None
    assert torn.offset is not None
    assert torn.offset > 0
    assert (await store.load("s")).torn is None
    assert (await store.inspect("s")).torn is None


async def test_a_store_closed_during_a_preparation_keeps_no_session(world: World) -> None:
    """A reservation that is ready only after the close is refused instead of handed out (D2)."""
    await world.keep("s", LogScript().turn().events)
    store, faults = world.store()
    gate = faults.hang("claim")
    preparing = asyncio.ensure_future(store.prepare("s"))
    await gate.entered.wait()
    closing = asyncio.ensure_future(store.aclose())
    await settle()
    gate.release()
    with pytest.raises(UsageError):
        await preparing
    await closing
    assert is_idle(store)
    assert faults.counts["release"] == 1


async def test_a_claim_that_cannot_be_given_back_is_logged(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """A failing release does not undo what was done under the claim (W1)."""
    await world.keep("s", interrupted())
    store, faults = world.store()
    faults.fail("release")
    assert (await store.load("s")).closers == ()
    assert "could not be given back" in caplog.text
