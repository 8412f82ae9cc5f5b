"""Contract of the coordinator, part four: prepared sessions, their reuse, reservation and eviction.

Owns tests only. What was read is counted on the harness's `FaultyBackend`.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from turnlog.errors import CorruptLogError, SessionBusyError, SessionNotFoundError, UsageError
from turnlog.events.batch import EncodedBatch
from turnlog.session.registry import SessionRegistry
from turnlog.session.session import Session
from turnlog.testing.capabilities import Capability
from turnlog.testing.harness import CoordinatorHarness, opened, read_raw
from turnlog.testing.scripts import LogScript, append_live, dicts, header, types
from turnlog.testing.suite import ContractSuite, needs


async def store_sessions(harness: CoordinatorHarness, *ids: str, script: LogScript | None = None) -> None:
    """Store the same log under each id and close the store that did it."""
    events = (script or LogScript().turn(calls=["c1"])).events
    async with opened(await harness.open()) as store:
        for session_id in ids:
            await store.create(header(session_id))
            await store.append(session_id, events)


class PreparedContract(ContractSuite, abstract=True):
    """A session that was read once is handed out again while nothing has changed."""

    async def test_a_prepared_session_is_published_and_continued(self, harness: CoordinatorHarness) -> None:
        """Publishing stores one end-of-seed mark, never the seed again, and goes on from there (R1, CC14)."""
        await store_sessions(harness, "s")
        registry = SessionRegistry(Session)
        async with opened(await harness.open(registry=registry)) as store:
            async with await store.prepare("s") as prepared:
                session = prepared.session
                seed = len(session.events) - 1
                registry.enter(session)
                registry.announce(session)
            await store.flush(session)
            append_live(session, LogScript(turn=1).turn().events)
            await store.flush(session)
            spans = harness.faults(store).batches()
            assert [first for first, _ in spans] == [seed, seed + 1]
            stored = list((await store.read_from("s", 0)).events)
            assert dicts(stored) == dicts(session.events)
            assert types(stored).count("session/end-seed") == 1

    async def test_resuming_an_untouched_session_adds_nothing_new(self, harness: CoordinatorHarness) -> None:
        """A log that ends in an end-of-seed mark gets no second one (R1, SE8, PR4)."""
        await store_sessions(harness, "s")
        for _ in range(2):
            registry = SessionRegistry(Session)
            async with opened(await harness.open(registry=registry)) as store:
                async with await store.prepare("s") as prepared:
                    registry.enter(prepared.session)
                    registry.announce(prepared.session)
                await store.flush(prepared.session)
        async with opened(await harness.open()) as store:
            assert types(list((await store.load("s")).events)).count("session/end-seed") == 1

    @needs(Capability.REVISIONS)
    async def test_inspect_and_prepare_read_once(self, harness: CoordinatorHarness) -> None:
        """While the revision stands, inspecting and preparing again read no events (R3, PE16)."""
        await store_sessions(harness, "s")
        async with opened(await harness.open()) as store:
            await store.inspect("s")
            async with await store.prepare("s") as first:
                one = first.session
            async with await store.prepare("s") as second:
                assert second.session is one
            await store.inspect("s")
            assert harness.faults(store).counts["load_stored"] == 1

    @needs(Capability.REVISIONS)
    async def test_a_changed_log_is_read_again(self, harness: CoordinatorHarness) -> None:
        """After a foreign append neither inspect nor prepare returns the old view (R3, PE17, PE18)."""
        await store_sessions(harness, "s")
        more = LogScript(len(LogScript().turn(calls=["c1"]).events), turn=1)
        async with opened(await harness.open()) as store:
            old = len((await store.inspect("s")).events)
            for reader in ("inspect", "prepare"):
                first = len(more.events)
                more.turn()
                async with opened(await harness.open()) as other:
                    await other.append("s", more.events[first:])
                if reader == "inspect":
                    assert len((await store.inspect("s")).events) == old + len(more.events)
                else:
                    async with await store.prepare("s") as prepared:
                        assert len(prepared.inspection.events) == old + len(more.events)

    @needs(Capability.CLAIMS)
    async def test_prepare_reads_again_under_its_claim(self, harness: CoordinatorHarness) -> None:
        """What another writer appends before the claim is taken is in the prepared session (W1, PE25)."""
        await store_sessions(harness, "s")
        length = len(LogScript().turn(calls=["c1"]).events)
        async with opened(await harness.open()) as store:
            gate = harness.faults(store).hang("claim")
            preparing = asyncio.ensure_future(store.prepare("s"))
            await gate.entered.wait()
            async with opened(await harness.open()) as other:
                await other.append("s", LogScript(length, turn=1).turn("theirs").events)
                expected = dicts((await other.read_from("s", 0)).events)
            gate.release()
            async with await preparing as prepared:
                assert dicts(prepared.inspection.events) == expected

    async def test_a_repair_is_committed_exactly_once(self, harness: CoordinatorHarness) -> None:
        """Inspecting keeps the repair in memory; preparing commits it, once (R1, PE24)."""
        script = LogScript().turn().start().step().assistant(calls=["c1"])
        await store_sessions(harness, "s", script=script)
        async with opened(await harness.open()) as store:
            faults = harness.faults(store)
            await store.inspect("s")
            assert faults.counts["commit_repair"] == 0
            for _ in range(2):
                async with await store.prepare("s"):
                    pass
            await store.load("s")
            assert faults.counts["commit_repair"] == 1

    @needs(Capability.TORN_TAIL)
    async def test_the_torn_marker_is_handed_back_unopened(self, harness: CoordinatorHarness) -> None:
        """The marker of the read reaches the commit as the very same object (R2, CC40)."""
        await store_sessions(harness, "s")
        await harness.tear("s", LogScript(len(LogScript().turn(calls=["c1"]).events), turn=1).turn().events)
        async with opened(await harness.open()) as store:
            faults = harness.faults(store)
            await store.load("s")
            assert faults.markers_seen[0] is not None
            assert [m is faults.markers_seen[0] for m in faults.markers_returned] == [True]

    async def test_a_second_prepare_waits_for_the_first(self, harness: CoordinatorHarness) -> None:
        """A reservation is exclusive; the next one gets the session when it is given back (W1, PE27, PP8)."""
        await store_sessions(harness, "s")
        async with opened(await harness.open()) as store:
            first = await store.prepare("s")
            waiting = asyncio.ensure_future(store.prepare("s"))
            for _ in range(20):
                await asyncio.sleep(0)
            assert not waiting.done()
            await first.aclose()
            second = await waiting
            assert second.session.id == "s"
            await second.aclose()

    async def test_a_waiting_prepare_can_be_cancelled(self, harness: CoordinatorHarness) -> None:
        """Cancelling one who waits leaves the holder alone (W1, PP9)."""
        await store_sessions(harness, "s")
        async with opened(await harness.open()) as store:
            async with await store.prepare("s") as held:
                waiting = asyncio.ensure_future(store.prepare("s"))
                await asyncio.sleep(0)
                waiting.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await waiting
                assert held.session.id == "s"
            async with await store.prepare("s"):
                pass

    async def test_inspect_during_a_reservation(self, harness: CoordinatorHarness) -> None:
        """A reader does not wait for the holder of a reservation (R3, PE19)."""
        await store_sessions(harness, "s")
        async with opened(await harness.open()) as store, await store.prepare("s") as held:
            assert dicts((await store.inspect("s")).events) == dicts(held.inspection.events)

    @needs(Capability.REVISIONS)
    async def test_a_session_that_grew_is_not_reused(self, harness: CoordinatorHarness) -> None:
        """What somebody appended to a prepared session and did not publish is thrown away (R1, PE13)."""
        await store_sessions(harness, "s")
        async with opened(await harness.open()) as store:
            async with await store.prepare("s") as first:
                append_live(first.session, LogScript(turn=1).turn().events)
            async with await store.prepare("s") as second:
                assert second.session is not first.session
                assert dicts(second.session.events)[:-1] == dicts(second.inspection.events)

    @needs(Capability.REVISIONS)
    async def test_ready_sessions_are_evicted_by_count(self, harness: CoordinatorHarness) -> None:
        """The least recently used session is forgotten first; reserved ones stay (D4, PE28, PP6)."""
        await store_sessions(harness, "a", "b", "c", "held")
        async with opened(await harness.open(prepared_sessions=2)) as store:
            faults = harness.faults(store)
            async with await store.prepare("held"):
                for session_id in ("a", "b", "c"):
                    await store.inspect(session_id)
                assert faults.counts["load_stored"] == 4
                await store.inspect("c")
                await store.inspect("b")
                await store.inspect("held")
                assert faults.counts["load_stored"] == 4
                await store.inspect("a")
                assert faults.counts["load_stored"] == 5
                await store.inspect("b")
                assert faults.counts["load_stored"] == 5
                await store.inspect("c")
                assert faults.counts["load_stored"] == 6

    @needs(Capability.REVISIONS)
    async def test_ready_sessions_are_evicted_by_bytes(self, harness: CoordinatorHarness) -> None:
        """The bytes of the sessions kept ready are bounded, too (D4)."""
        await store_sessions(harness, "a", "b", "c")
        size = EncodedBatch.of(LogScript().turn(calls=["c1"]).events).nbytes
        async with opened(
            await harness.open(prepared_sessions=100, prepared_bytes=size + size // 2)
        ) as store:
            for session_id in ("a", "b", "c", "c"):
                await store.inspect(session_id)
            assert harness.faults(store).counts["load_stored"] == 3
            await store.inspect("a")
            assert harness.faults(store).counts["load_stored"] == 4

    @pytest.mark.parametrize("option", ["prepared_sessions", "write_window"])
    @pytest.mark.parametrize("value", [-1, "many", float("nan")])
    async def test_impossible_options_are_refused(
        self, harness: CoordinatorHarness, option: str, value: object
    ) -> None:
        """A negative or non-numeric limit is the caller's mistake (D4, PE8, PE9)."""
        options: dict[str, Any] = {option: value}
        with pytest.raises((UsageError, TypeError)):
            await harness.open(**options)

    @needs(Capability.REVISIONS)
    async def test_a_shared_read_survives_its_first_caller(self, harness: CoordinatorHarness) -> None:
        """Cancelling the caller who began a read does not take it from the others (R3, PE31, PP2)."""
        await store_sessions(harness, "s")
        async with opened(await harness.open()) as store:
            gate = harness.faults(store).hang("load_stored")
            first = asyncio.ensure_future(store.inspect("s"))
            await gate.entered.wait()
            second = asyncio.ensure_future(store.inspect("s"))
            await asyncio.sleep(0)
            first.cancel()
            with pytest.raises(asyncio.CancelledError):
                await first
            gate.release()
            assert (await second).meta.id == "s"
            assert harness.faults(store).counts["load_stored"] == 1

    async def test_a_failed_read_is_not_kept(self, harness: CoordinatorHarness) -> None:
        """A read that failed is made again by the next caller (R3, PP4)."""
        await store_sessions(harness, "s")
        async with opened(await harness.open()) as store:
            harness.faults(store).fail(
                "load_stored", error=CorruptLogError(session_id="s", reason="scripted")
            )
            with pytest.raises(CorruptLogError):
                await store.inspect("s")
            assert (await store.inspect("s")).meta.id == "s"

    async def test_a_failed_repair_gives_the_session_back(self, harness: CoordinatorHarness) -> None:
        """A repair that failed leaves nothing reserved, here or for others (R1, W1, PP10)."""
        await store_sessions(harness, "s", script=LogScript().turn().start().step())
        async with opened(await harness.open()) as store:
            harness.faults(store).fail("commit_repair")
            with pytest.raises(Exception, match="scripted failure"):
                await store.prepare("s")
            async with opened(await harness.open()) as other, await other.prepare("s") as prepared:
                assert types(prepared.session.events)[-3:] == ["step/end", "turn/end", "session/end-seed"]

    async def test_a_lost_reply_of_a_repair_is_no_conflict(self, harness: CoordinatorHarness) -> None:
        """A repair that was stored although its reply was lost is not stored twice (R1, B3)."""
        await store_sessions(harness, "s", script=LogScript().turn().start().step())
        async with opened(await harness.open()) as store:
            harness.faults(store).fail("commit_repair", when="after")
            with pytest.raises(Exception, match="scripted failure"):
                await store.load("s")
            stored = await read_raw(harness, "s")
            found = types(list((await store.load("s")).events))
            assert found[-2:] == ["step/end", "turn/end"]
            assert found.count("turn/end") == 2
            now = await read_raw(harness, "s")
            assert stored is not None
            assert now is not None
            assert now.log == stored.log

    async def test_appends_queue_behind_a_read(self, harness: CoordinatorHarness) -> None:
        """An append made during a read comes after it, and is in the next view (B3, PE20)."""
        await store_sessions(harness, "s")
        length = len(LogScript().turn(calls=["c1"]).events)
        async with opened(await harness.open()) as store:
            gate = harness.faults(store).hang("load_stored")
            reading = asyncio.ensure_future(store.inspect("s"))
            await gate.entered.wait()
            appending = asyncio.ensure_future(store.append("s", LogScript(length, turn=1).turn().events))
            await asyncio.sleep(0)
            assert harness.faults(store).counts["append_batch"] == 0
            gate.release()
            assert len((await reading).events) == length
            await appending
            assert len((await store.inspect("s")).events) > length

    async def test_a_queued_reader_that_is_cancelled_never_runs(self, harness: CoordinatorHarness) -> None:
        """A reader cancelled while it waits its turn reads nothing, and the queue goes on (R3, PE30)."""
        await store_sessions(harness, "s")
        length = len(LogScript().turn(calls=["c1"]).events)
        async with opened(await harness.open()) as store:
            faults = harness.faults(store)
            gate = faults.hang("append_batch")
            appending = asyncio.ensure_future(store.append("s", LogScript(length, turn=1).turn().events))
            await gate.entered.wait()
            loads = faults.counts["load_stored"] + faults.counts["load_stored_from"]
            queued = asyncio.ensure_future(store.read_from("s", 0))
            await asyncio.sleep(0)
            queued.cancel()
            with pytest.raises(asyncio.CancelledError):
                await queued
            gate.release()
            await appending
            assert faults.counts["load_stored"] + faults.counts["load_stored_from"] == loads
            assert len((await store.read_from("s", 0)).events) > length

    @needs(Capability.DELETE)
    async def test_a_vanished_session_is_not_found(self, harness: CoordinatorHarness) -> None:
        """A session that another store deleted is gone here as well (R3, PE26)."""
        await store_sessions(harness, "s")
        async with opened(await harness.open()) as store:
            await store.inspect("s")
            async with opened(await harness.open()) as other:
                await other.delete("s")
            with pytest.raises(SessionNotFoundError):
                await store.inspect("s")
            with pytest.raises(SessionNotFoundError):
                await store.prepare("s")

    async def test_publishing_another_object_is_refused(self, harness: CoordinatorHarness) -> None:
        """While a session is reserved nobody else may go live under its id (W1, PE12, PP16)."""
        await store_sessions(harness, "s")
        registry = SessionRegistry(Session)
        async with opened(await harness.open(registry=registry)) as store:
            async with await store.prepare("s") as prepared:
                stranger = registry.prepare("s", header=header("s"))
                registry.enter(stranger)
                with pytest.raises(SessionBusyError):
                    registry.announce(stranger)
                registry.detach(stranger)
                registry.enter(prepared.session)
                registry.announce(prepared.session)
            await store.flush(prepared.session)
