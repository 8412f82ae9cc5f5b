"""Contract of the coordinator, part six: one writer at a time, and what becomes of the others (W1).

Owns tests only. Two stores on one medium stand for two processes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from turnlog.errors import ClaimOwner, LogError, SessionBusyError, TurnlogError, WriterFencedError
from turnlog.session.registry import SessionRegistry
from turnlog.session.session import Session
from turnlog.testing.capabilities import Capability
from turnlog.testing.coordinator_live import NEVER
from turnlog.testing.coordinator_prepared import store_sessions
from turnlog.testing.harness import CoordinatorHarness, opened, read_raw
from turnlog.testing.manual_time import ManualScheduler, until
from turnlog.testing.persistence_read import statuses
from turnlog.testing.scripts import LogScript, append_live, dicts, go_live, header
from turnlog.testing.suite import ContractSuite, needs


class ClaimContract(ContractSuite, abstract=True):
    """Writers are kept apart by the medium; readers are not kept from anything."""

    @needs(Capability.CLAIMS)
    async def test_a_second_writer_is_told_who_is_first(self, harness: CoordinatorHarness) -> None:
        """Whoever wants to write a session that is being written hears by whom and since when (W1)."""
        owner = ClaimOwner(pid=4711, host="elsewhere", since=1234)
        registry = SessionRegistry(Session)
        async with (
            opened(await harness.open(registry=registry, owner=owner)) as first,
            opened(await harness.open()) as second,
        ):
            session = go_live(registry, "s")
            append_live(session, LogScript().turn().events)
            await first.flush(session)
            before = await read_raw(harness, "s")
            more = LogScript(session.seq, turn=1).turn().events
            writers: list[Callable[[], Awaitable[object]]] = [
                lambda: second.append("s", more),
                lambda: second.prepare("s"),
                lambda: second.delete("s"),
            ]
            for write in writers:
                with pytest.raises(SessionBusyError) as busy:
                    await write()
                assert busy.value.owner is not None
                assert (busy.value.owner.pid, busy.value.owner.host) == (4711, "elsewhere")
            now = await read_raw(harness, "s")
            assert before is not None
            assert now is not None
            assert now.log == before.log
            append_live(session, LogScript(turn=1).turn().events)
            await first.flush(session)

    @needs(Capability.CLAIMS)
    async def test_a_new_session_is_claimed_by_its_first_write(self, harness: CoordinatorHarness) -> None:
        """Of two live sessions with one new id exactly one is stored, and it owns the id (W1, B1)."""
        registries = SessionRegistry(Session), SessionRegistry(Session)
        first = await harness.open(registry=registries[0])
        second = await harness.open(registry=registries[1])
        sessions = [go_live(registry, "s") for registry in registries]
        for number, session in enumerate(sessions):
            append_live(session, LogScript(prefix=f"p{number}").turn().events)
        results = await asyncio.gather(
            first.flush(sessions[0]), second.flush(sessions[1]), return_exceptions=True
        )
        won = [number for number, result in enumerate(results) if result is None]
        assert len(won) == 1
        assert all(isinstance(r, LogError) for n, r in enumerate(results) if n not in won)
        stored = dicts((await first.read_from("s", 0)).events)
        assert stored == dicts(sessions[won[0]].events)
        await (first, second)[won[0]].aclose()
        await harness.crash((first, second)[1 - won[0]])

    @needs(Capability.CLAIMS)
    async def test_a_claim_ends_with_the_session(self, harness: CoordinatorHarness) -> None:
        """A disposed session, a returned reservation and a closed store leave the id free (W1)."""
        registry = SessionRegistry(Session)
        async with (
            opened(await harness.open(registry=registry)) as first,
            opened(await harness.open()) as second,
        ):
            session = go_live(registry, "s")
            append_live(session, LogScript().turn().events)
            await first.flush(session)
            registry.detach(session)
            await until(lambda: harness.faults(first).counts["release"] == 1)
            async with await second.prepare("s"):
                with pytest.raises(SessionBusyError):
                    await first.prepare("s")
            async with await first.prepare("s") as prepared:
                assert dicts(prepared.inspection.events) == dicts(session.events)

    @needs(Capability.CLAIMS)
    async def test_a_late_drain_ends_the_claim(self, harness: CoordinatorHarness) -> None:
        """A disposed session that a retry has drained at last is let go of (W1, D2)."""
        clock = ManualScheduler()
        registry = SessionRegistry(Session)
        async with (
            opened(await harness.open(registry=registry, write_window=NEVER, scheduler=clock)) as first,
            opened(await harness.open()) as second,
        ):
            session = go_live(registry, "s")
            await first.flush(session)
            append_live(session, LogScript().turn().events)
            faults = harness.faults(first)
            faults.fail("append_batch")
            registry.detach(session)
            await until(lambda: faults.counts["append_batch"] == 1 and bool(clock.waiting))
            await clock.advance(max(wait for wait in clock.waiting if wait < NEVER))
            await until(lambda: faults.counts["append_batch"] == 2 and faults.counts["release"] == 1)
            async with await second.prepare("s") as prepared:
                assert dicts(prepared.inspection.events) == dicts(session.events)

    @needs(Capability.CLAIMS)
    async def test_a_dead_writer_holds_nothing(self, harness: CoordinatorHarness) -> None:
        """After a crash the next writer takes the session without asking (W1)."""
        registry = SessionRegistry(Session)
        first = await harness.open(registry=registry)
        session = go_live(registry, "s")
        append_live(session, LogScript().turn().events)
        await first.flush(session)
        await harness.crash(first)
        async with opened(await harness.open()) as second:
            await second.append("s", LogScript(session.seq, turn=1).turn().events)
            assert len((await second.read_from("s", 0)).events) == 2 * session.seq

    @needs(Capability.CLAIMS)
    async def test_the_list_shows_who_is_live(self, harness: CoordinatorHarness) -> None:
        """A session held by a writer is listed as live, and as ok when it was let go (B4, W1)."""
        registry = SessionRegistry(Session)
        async with opened(await harness.open()) as reader:
            async with opened(await harness.open(registry=registry)) as writer:
                session = go_live(registry, "s")
                append_live(session, LogScript().turn().events)
                await writer.flush(session)
                assert await statuses(reader) == {"s": "live"}
            assert await statuses(reader) == {"s": "ok"}

    @needs(Capability.CLAIMS)
    async def test_readers_take_no_claim(self, harness: CoordinatorHarness) -> None:
        """Reading a session claims nothing, and load claims only to repair (W1, R3)."""
        await store_sessions(harness, "whole")
        await store_sessions(harness, "open", script=LogScript().turn().start())
        async with opened(await harness.open()) as store:
            faults = harness.faults(store)
            await store.inspect("whole")
            await store.inspect("open")
            await store.read_from("whole", 0)
            await store.tail("whole", 1)
            await store.load("whole")
            assert faults.counts["claim"] == 0
            await store.load("open")
            assert faults.counts["claim"] == 1
            assert faults.counts["release"] == 1

    @needs(Capability.CLAIMS)
    async def test_takeover_fences_the_first_writer(self, harness: CoordinatorHarness) -> None:
        """After a takeover the old writer's events are handed back, and none of them is stored (W1)."""
        registry = SessionRegistry(Session)
        first = await harness.open(registry=registry, write_window=NEVER)
        session = go_live(registry, "s")
        append_live(session, LogScript().turn().events)
        await first.flush(session)
        acknowledged = dicts(session.events)
        async with opened(await harness.open()) as second:
            async with await second.prepare("s", takeover=True) as prepared:
                assert dicts(prepared.inspection.events) == acknowledged
                append_live(session, LogScript(turn=1).turn("late").events)
                late = dicts(session.events)[len(acknowledged) :]
                with pytest.raises(WriterFencedError) as fenced:
                    await first.flush(session)
                assert dicts(fenced.value.pending) == late
            theirs = LogScript(len(acknowledged), turn=1, prefix="theirs").turn().events
            await second.append("s", theirs)
            assert dicts((await second.load("s")).events) == [*acknowledged, *dicts(theirs)]
        with pytest.raises(TurnlogError):
            session.append("feedback/record", {"text": "too late"})
        with pytest.raises(ExceptionGroup):
            await first.aclose()

    @pytest.mark.parametrize("is_later", [False, True], ids=["before-theirs", "after-theirs"])
    @needs(Capability.CLAIMS)
    async def test_a_write_held_up_over_a_takeover_does_not_arrive(
        self, harness: CoordinatorHarness, is_later: bool
    ) -> None:
        """A write on its way during a takeover is handed back, before or after the new owner writes (W1)."""
        registry = SessionRegistry(Session)
        first = await harness.open(registry=registry, write_window=NEVER)
        session = go_live(registry, "s")
        append_live(session, LogScript().turn().events)
        await first.flush(session)
        acknowledged = dicts(session.events)
        append_live(session, LogScript(turn=1).turn("late").events)
        gate = harness.faults(first).hang("append_batch")
        flush = asyncio.ensure_future(first.flush(session))
        await gate.entered.wait()
        async with opened(await harness.open()) as second:
            theirs = LogScript(len(acknowledged), turn=1, prefix="theirs").turn().events
            async with await second.prepare("s", takeover=True):
                pass
            if is_later:
                await second.append("s", theirs)
            gate.release()
            with pytest.raises(WriterFencedError) as fenced:
                await flush
            assert dicts(fenced.value.pending) == dicts(session.events)[len(acknowledged) :]
            if not is_later:
                await second.append("s", theirs)
            assert dicts((await second.load("s")).events) == [*acknowledged, *dicts(theirs)]
        with pytest.raises(ExceptionGroup):
            await first.aclose()

    @needs(Capability.CLAIMS)
    async def test_every_write_carries_the_claim(self, harness: CoordinatorHarness) -> None:
        """No write hook is ever called without the claim that was taken for it (W1)."""
        registry = SessionRegistry(Session)
        async with opened(await harness.open(registry=registry)) as store:
            session = go_live(registry, "s")
            append_live(session, LogScript().turn().events)
            await store.flush(session)
            await store.create(header("t"))
            await store.append("t", LogScript().turn().start().events)
        async with opened(await harness.open()) as store:
            await store.load("t")
            assert harness.faults(store).claims_missing == 0
            if Capability.DELETE in self.capabilities:
                await store.delete("t")
                assert harness.faults(store).claims_missing == 0
