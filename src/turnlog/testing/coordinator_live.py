"""Contract of the coordinator, part one: live sessions, windows, the flush barrier, disposal.

Owns tests only. Time is a `ManualScheduler`, failures come from the harness's `FaultyBackend`.
"""

from __future__ import annotations

import asyncio

import pytest

from turnlog.errors import SessionBusyError, SessionNotFoundError, UsageError
from turnlog.session.registry import SessionRegistry
from turnlog.session.session import Session
from turnlog.testing.capabilities import Capability
from turnlog.testing.harness import CoordinatorHarness, opened, read_raw
from turnlog.testing.manual_time import ManualScheduler, until
from turnlog.testing.scripts import LogScript, append_live, dicts, go_live, header, types
from turnlog.testing.suite import ContractSuite, needs

NEVER = 1e9
"""A window, in seconds, that no test lives to see the end of."""


class LiveContract(ContractSuite, abstract=True):
    """What happens to the events of a live session on their way to the medium."""

    async def test_flushed_events_survive_a_crash(self, harness: CoordinatorHarness) -> None:
        """Everything admitted before a flush is found after a crash (D2, L1, CC1)."""
        registry = SessionRegistry(Session)
        store = await harness.open(registry=registry, write_window=NEVER)
        session = go_live(registry, "s")
        append_live(session, LogScript().turn(calls=["c1"]).events)
        await store.flush(session)
        assert store.durable_seq(session) == session.seq
        expected = dicts(session.events)
        append_live(session, LogScript(turn=1).start().events)
        await harness.crash(store)
        async with opened(await harness.open()) as after:
            assert dicts((await after.read_from("s", 0)).events) == expected

    async def test_append_does_not_write(self, harness: CoordinatorHarness) -> None:
        """Appending only queues; the window is one, fixed, from the first event (D1, B1, WB1, WB2)."""
        clock = ManualScheduler()
        registry = SessionRegistry(Session)
        async with opened(await harness.open(registry=registry, write_window=0.2, scheduler=clock)) as store:
            session = go_live(registry, "s")
            await store.flush(session)
            assert await read_raw(harness, "s") is None
            for event in LogScript().turn().events:
                append_live(session, [event])
                await clock.advance(0.01)
            assert harness.faults(store).counts["append_batch"] == 0
            assert clock.waiting == (0.2,)
            await clock.advance(0.2)
            await until(lambda: store.durable_seq(session) == session.seq)
            assert harness.faults(store).batches() == ((0, session.seq - 1),)

    async def test_undurable_events_are_visible(self, harness: CoordinatorHarness) -> None:
        """Between append and write the undurable range is what the session holds beyond (D1)."""
        registry = SessionRegistry(Session)
        async with opened(await harness.open(registry=registry, write_window=NEVER)) as store:
            session = go_live(registry, "s")
            append_live(session, LogScript().turn().events)
            waiting = store.undurable(session)
            assert waiting is not None
            assert (waiting.first_seq, waiting.end_seq) == (0, session.seq)
            await store.flush(session)
            assert store.undurable(session) is None

    async def test_a_flush_of_nothing_writes_nothing(self, harness: CoordinatorHarness) -> None:
        """Flushing twice writes once; flushing an empty session leaves nothing (D2, B1, CC13)."""
        registry = SessionRegistry(Session)
        async with opened(await harness.open(registry=registry)) as store:
            empty = go_live(registry, "empty")
            await store.flush(empty)
            assert await read_raw(harness, "empty") is None
            session = go_live(registry, "s")
            append_live(session, LogScript().turn().events)
            await store.flush(session)
            before = await read_raw(harness, "s")
            await store.flush(session)
            assert await read_raw(harness, "s") == before
            assert harness.faults(store).counts["append_batch"] == 1

    async def test_concurrent_flushes_share_one_barrier(self, harness: CoordinatorHarness) -> None:
        """Ten flushes of the same events cause one write (D2, WB3)."""
        registry = SessionRegistry(Session)
        async with opened(await harness.open(registry=registry, write_window=NEVER)) as store:
            session = go_live(registry, "s")
            append_live(session, LogScript().turn().events)
            await asyncio.gather(*(store.flush(session) for _ in range(10)))
            assert harness.faults(store).batches() == ((0, session.seq - 1),)

    async def test_a_flush_is_not_prolonged_by_later_events(self, harness: CoordinatorHarness) -> None:
        """Events admitted during a flush ride in at most one more batch, however many follow (D2, PE4)."""
        registry = SessionRegistry(Session)
        async with opened(await harness.open(registry=registry, write_window=NEVER)) as store:
            session = go_live(registry, "s")
            append_live(session, LogScript().start().step().events)
            gate = harness.faults(store).hang("append_batch")
            flush = asyncio.ensure_future(store.flush(session))
            await gate.entered.wait()
            append_live(session, LogScript(turn=1, step=1).chunks("a", "b", "c").events)
            second = harness.faults(store).hang("append_batch")
            gate.release()
            if not flush.done():
                ended = asyncio.ensure_future(second.entered.wait())
                await asyncio.wait({flush, ended}, return_when=asyncio.FIRST_COMPLETED)
                ended.cancel()
            append_live(session, LogScript(turn=1, step=1).chunks("d", "e").events)
            second.release()
            await flush
            assert harness.faults(store).counts["append_batch"] <= 2
            assert store.durable_seq(session) >= 2
            await store.flush(session)
            assert dicts((await store.read_from("s", 0)).events) == dicts(session.events)

    async def test_an_overdue_tail_follows_the_write_at_once(self, harness: CoordinatorHarness) -> None:
        """Events whose window ends during a write are written right after it (D1, WB5)."""
        clock = ManualScheduler()
        registry = SessionRegistry(Session)
        async with opened(await harness.open(registry=registry, write_window=0.2, scheduler=clock)) as store:
            session = go_live(registry, "s")
            await store.flush(session)
            gate = harness.faults(store).hang("append_batch")
            append_live(session, LogScript().start().events)
            await clock.advance(0.2)
            await gate.entered.wait()
            append_live(session, LogScript(turn=1).step().events)
            await clock.advance(0.2)
            assert harness.faults(store).counts["append_batch"] == 1
            gate.release()
            await until(lambda: store.durable_seq(session) == 2)
            assert harness.faults(store).batches() == ((0, 0), (1, 1))

    async def test_a_tail_keeps_its_own_window(self, harness: CoordinatorHarness) -> None:
        """Events that come during a write wait for their own window, not less, not more (D1, WB6)."""
        clock = ManualScheduler()
        registry = SessionRegistry(Session)
        async with opened(await harness.open(registry=registry, write_window=0.2, scheduler=clock)) as store:
            session = go_live(registry, "s")
            await store.flush(session)
            gate = harness.faults(store).hang("append_batch")
            append_live(session, LogScript().start().events)
            await clock.advance(0.2)
            await gate.entered.wait()
            append_live(session, LogScript(turn=1).step().events)
            gate.release()
            await until(lambda: store.durable_seq(session) == 1)
            await clock.advance(0.19)
            assert harness.faults(store).counts["append_batch"] == 1
            await clock.advance(0.01)
            await until(lambda: store.durable_seq(session) == 2)

    async def test_work_after_a_flush_starts_a_new_window(self, harness: CoordinatorHarness) -> None:
        """After a barrier the next event waits for a full window (D1, WB4)."""
        clock = ManualScheduler()
        registry = SessionRegistry(Session)
        async with opened(await harness.open(registry=registry, write_window=0.2, scheduler=clock)) as store:
            session = go_live(registry, "s")
            append_live(session, LogScript().start().events)
            await store.flush(session)
            append_live(session, LogScript(turn=1).step().events)
            await clock.advance(0.19)
            assert store.durable_seq(session) == 1
            await clock.advance(0.01)
            await until(lambda: store.durable_seq(session) == 2)

    async def test_a_session_of_another_store_cannot_be_flushed(self, harness: CoordinatorHarness) -> None:
        """Flushing what is not live here is the caller's mistake (D2, SC10, SC11)."""
        registry = SessionRegistry(Session)
        async with opened(await harness.open(registry=registry)) as store:
            stranger = go_live(SessionRegistry(Session), "s")
            with pytest.raises(UsageError):
                await store.flush(stranger)
            session = go_live(registry, "t")
            append_live(session, LogScript().turn().events)
            registry.detach(session)
            await store.load("t")
            with pytest.raises(UsageError):
                await store.flush(session)

    async def test_load_refuses_an_open_live_turn(self, harness: CoordinatorHarness) -> None:
        """A live session in the middle of a turn is neither closed nor returned by load (R1, CC2, PE23)."""
        registry = SessionRegistry(Session)
        async with opened(await harness.open(registry=registry)) as store:
            session = go_live(registry, "s")
            append_live(session, LogScript().start().step().events)
            await store.flush(session)
            before = await read_raw(harness, "s")
            with pytest.raises(SessionBusyError):
                await store.load("s")
            view = await store.inspect("s")
            assert view.live
            assert types(list(view.events)) == ["turn/start", "step/start"]
            assert await read_raw(harness, "s") == before

    async def test_load_of_a_live_session_flushes_it(self, harness: CoordinatorHarness) -> None:
        """A live session between turns is flushed and returned as it is (D2, CC8)."""
        registry = SessionRegistry(Session)
        async with opened(await harness.open(registry=registry, write_window=NEVER)) as store:
            session = go_live(registry, "s")
            append_live(session, LogScript().turn().events)
            loaded = dicts((await store.load("s")).events)
            assert loaded == dicts(session.events)
            assert store.durable_seq(session) == session.seq
            append_live(session, LogScript(turn=1).start().events)
            assert len(loaded) == session.seq - 1

    async def test_load_of_an_empty_live_session_finds_nothing(self, harness: CoordinatorHarness) -> None:
        """A live session without events is not a stored one (B1, CC4)."""
        registry = SessionRegistry(Session)
        async with opened(await harness.open(registry=registry)) as store:
            go_live(registry, "s")
            with pytest.raises(SessionNotFoundError):
                await store.load("s")

    async def test_a_flush_may_come_before_initialisation(self, harness: CoordinatorHarness) -> None:
        """A flush in the same turn of the loop as the creation works (D2, CC39)."""
        registry = SessionRegistry(Session)
        async with opened(await harness.open(registry=registry)) as store:
            session = go_live(registry, "s")
            append_live(session, LogScript().turn().events)
            await store.flush(session)
            assert dicts((await store.read_from("s", 0)).events) == dicts(session.events)

    async def test_payloads_are_taken_when_appended(self, harness: CoordinatorHarness) -> None:
        """A producer that changes its payload later changes nothing that is stored (L2, CC7)."""
        registry = SessionRegistry(Session)
        async with opened(await harness.open(registry=registry, write_window=NEVER)) as store:
            session = go_live(registry, "s")
            data = {"todos": [{"content": "first", "status": "pending"}]}
            append_live(session, LogScript().start().events)
            session.append("todo/write", data)
            data["todos"][0]["content"] = "changed"
            await store.flush(session)
            stored = list((await store.read_from("s", 0)).events)
            assert stored[1].data["todos"][0]["content"] == "first"

    async def test_disposal_drains_before_the_id_is_free(self, harness: CoordinatorHarness) -> None:
        """Detaching a session writes its queue; readers and the next owner wait for that (D2, CC22, PE34)."""
        registry = SessionRegistry(Session)
        async with opened(await harness.open(registry=registry, write_window=NEVER)) as store:
            session = go_live(registry, "s")
            append_live(session, LogScript().turn().events)
            expected = dicts(session.events)
            registry.detach(session)
            assert dicts((await store.load("s")).events) == expected
            more = LogScript(len(expected), turn=1).turn().events
            await store.append("s", more)

    async def test_a_seed_is_written_once(self, harness: CoordinatorHarness) -> None:
        """A forked session stores its seed and its mark once, and continues after them (L1, CC13, CC5)."""
        registry = SessionRegistry(Session)
        async with opened(await harness.open(registry=registry)) as store:
            source = go_live(registry, "s")
            append_live(source, LogScript().turn().events)
            child = registry.fork(source, child_id="child")
            await store.flush(child)
            stored = list((await store.read_from("child", 0)).events)
            assert types(stored) == [*types(list(source.events)), "session/end-seed"]
            before = await read_raw(harness, "child")
            await store.flush(child)
            assert await read_raw(harness, "child") == before
            append_live(child, LogScript(turn=1).turn().events)
            await store.flush(child)
            assert dicts((await store.read_from("child", 0)).events) == dicts(child.events)

    async def test_closing_the_store_drains_every_session(self, harness: CoordinatorHarness) -> None:
        """What is queued when the store closes is stored, for every session (D2, CC16)."""
        registry = SessionRegistry(Session)
        store = await harness.open(registry=registry, write_window=NEVER)
        expected = {}
        for number in range(5):
            session = go_live(registry, f"s{number}")
            append_live(session, LogScript(prefix=f"p{number}").turn().events)
            expected[session.id] = dicts(session.events)
        await store.aclose()
        async with opened(await harness.open()) as after:
            for session_id, events in expected.items():
                assert dicts((await after.load(session_id)).events) == events

    async def test_announcing_again_does_not_initialise_again(self, harness: CoordinatorHarness) -> None:
        """One live session is adopted once, whatever touches it (B3, CC23)."""
        registry = SessionRegistry(Session)
        async with opened(await harness.open(registry=registry)) as store:
            session = go_live(registry, "s")
            append_live(session, LogScript().turn().events)
            await asyncio.gather(store.flush(session), store.inspect("s"), store.flush(session))
            await store.flush(session)
            assert harness.faults(store).batches() == ((0, session.seq - 1),)

    async def test_batches_of_a_live_session_are_whole_and_in_order(
        self, harness: CoordinatorHarness
    ) -> None:
        """Background writes and flushes together store each event once, in order (L1, B2)."""
        registry = SessionRegistry(Session)
        async with opened(await harness.open(registry=registry, write_window=0)) as store:
            session = go_live(registry, "s")
            for number in range(6):
                append_live(session, LogScript(turn=number).turn(calls=["c"]).events)
                await asyncio.sleep(0)
                if number % 2:
                    await store.flush(session)
            await store.flush(session)
            spans = harness.faults(store).batches()
            assert [first for first, _ in spans] == [0, *(last + 1 for _, last in spans[:-1])]
            assert spans[-1][1] == session.seq - 1
            assert dicts((await store.read_from("s", 0)).events) == dicts(session.events)

    async def test_a_header_reaches_the_medium_as_created(self, harness: CoordinatorHarness) -> None:
        """Lineage and depth of a live session are stored with its first batch (B1, CC5, CC6, CC38)."""
        registry = SessionRegistry(Session)
        meta = header("s", parent_session="p", delegation_depth=2)
        async with opened(await harness.open(registry=registry)) as store:
            session = registry.create("s", header=meta)
            append_live(session, LogScript().turn().events)
            await store.flush(session)
        async with opened(await harness.open()) as after:
            found = (await after.load("s")).meta
            assert (found.parent_session, found.delegation_depth) == ("p", 2)

    @needs(Capability.SUMMARIES)
    async def test_list_knows_turns_and_title(self, harness: CoordinatorHarness) -> None:
        """The summary that was stored with the last batch is listed with it (B4)."""
        title = {"title": "Fix build", "messageSeqs": [], "source": {"kind": "user"}}
        registry = SessionRegistry(Session)
        async with opened(await harness.open(registry=registry)) as store:
            session = go_live(registry, "s")
            append_live(session, LogScript().turn().turn().add("session/title", title).events)
            await store.flush(session)
        async with opened(await harness.open()) as after:
            [entry] = [entry async for entry in after.list()]
            assert entry.summary is not None
            assert (entry.summary.turns, entry.summary.steps, entry.summary.title) == (2, 2, "Fix build")
            assert entry.summary.open_turn is None
            assert entry.summary.last_time == session.last_time
