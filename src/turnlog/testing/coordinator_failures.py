"""Contract of the coordinator, part two: failing media, lost replies, batches in doubt, full queues.

Owns tests only. Time is a `ManualScheduler`, failures come from the harness's `FaultyBackend`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from functools import partial

import pytest

from turnlog.errors import BackendError, BackpressureError, UndurableError
from turnlog.session.registry import SessionRegistry
from turnlog.session.session import Session
from turnlog.testing.coordinator_live import NEVER
from turnlog.testing.faulty_backend import When
from turnlog.testing.harness import CoordinatorHarness, opened, read_raw
from turnlog.testing.manual_time import ManualScheduler, until
from turnlog.testing.scripts import LogScript, append_live, dicts, go_live, header
from turnlog.testing.suite import ContractSuite


def stream(session: Session, texts: Iterable[str]) -> None:
    """Append one text delta per text to the first step of a live session."""
    for text in texts:
        session.append_chunk(1, 1, {"type": "text-delta", "index": 0, "text": text})


class FailureContract(ContractSuite, abstract=True):
    """Nothing admitted is lost while a medium fails, and nothing is stored twice."""

    async def test_a_failed_flush_keeps_everything(self, harness: CoordinatorHarness) -> None:
        """A flush that fails raises and keeps its events; the next one stores them (D2, WB9, JL90)."""
        registry = SessionRegistry(Session)
        async with opened(await harness.open(registry=registry, write_window=NEVER)) as store:
            session = go_live(registry, "s")
            append_live(session, LogScript().turn().events)
            harness.faults(store).fail("append_batch")
            with pytest.raises(UndurableError) as failed:
                await store.flush(session)
            assert failed.value.pending == session.seq
            assert failed.value.__cause__ is not None
            assert await read_raw(harness, "s") is None
            await store.flush(session)
            assert dicts((await store.read_from("s", 0)).events) == dicts(session.events)

    async def test_all_flushes_of_one_barrier_fail_together(self, harness: CoordinatorHarness) -> None:
        """Everybody who waited for the failed write hears of it (D2, WB9)."""
        registry = SessionRegistry(Session)
        async with opened(await harness.open(registry=registry, write_window=NEVER)) as store:
            session = go_live(registry, "s")
            await store.flush(session)
            append_live(session, LogScript().turn().events)
            harness.faults(store).fail("append_batch")
            results = await asyncio.gather(*(store.flush(session) for _ in range(3)), return_exceptions=True)
            assert [type(r) for r in results] == [UndurableError] * 3
            await store.flush(session)

    async def test_a_background_failure_is_retried_by_itself(
        self, harness: CoordinatorHarness, caplog: pytest.LogCaptureFixture
    ) -> None:
        """A background failure is visible, logged once, and retried with growing waits (D1, D2, WB7)."""
        clock = ManualScheduler()
        registry = SessionRegistry(Session)
        async with opened(await harness.open(registry=registry, write_window=0.2, scheduler=clock)) as store:
            session = go_live(registry, "s")
            await store.flush(session)
            faults = harness.faults(store)
            faults.fail("append_batch", on=None)
            append_live(session, LogScript().turn().events)

            def has_failed(times: int) -> bool:
                return faults.counts["append_batch"] == times and bool(clock.waiting)

            with caplog.at_level(logging.WARNING, logger="turnlog"):
                waits = []
                await clock.advance(0.2)
                for attempt in range(1, 5):
                    await until(partial(has_failed, attempt))
                    [wait] = clock.waiting
                    waits.append(wait)
                    if attempt == 4:
                        faults.heal()
                    await clock.advance(wait)
                await until(lambda: store.undurable(session) is None)
            assert waits == sorted(waits)
            assert waits[1] > waits[0]
            assert len([r for r in caplog.records if r.levelno >= logging.WARNING]) == 1
            assert dicts((await store.read_from("s", 0)).events) == dicts(session.events)

    async def test_a_failing_medium_is_visible(self, harness: CoordinatorHarness) -> None:
        """`undurable` tells what the last background write failed with (D1)."""
        clock = ManualScheduler()
        registry = SessionRegistry(Session)
        async with opened(await harness.open(registry=registry, write_window=0.2, scheduler=clock)) as store:
            session = go_live(registry, "s")
            await store.flush(session)
            harness.faults(store).fail("append_batch")
            append_live(session, LogScript().turn().events)
            await clock.advance(0.2)

            def has_failed() -> bool:
                waiting = store.undurable(session)
                return waiting is not None and waiting.error is not None

            await until(has_failed)
            assert store.durable_seq(session) == 0
            await store.flush(session)
            assert store.undurable(session) is None

    async def test_a_new_event_causes_a_retry(self, harness: CoordinatorHarness) -> None:
        """After a background failure the next event starts a window, and order is kept (D2, WB7)."""
        clock = ManualScheduler()
        registry = SessionRegistry(Session)
        async with opened(await harness.open(registry=registry, write_window=0.2, scheduler=clock)) as store:
            session = go_live(registry, "s")
            await store.flush(session)
            harness.faults(store).fail("append_batch")
            append_live(session, LogScript().start().events)
            await clock.advance(0.2)
            await until(lambda: bool(clock.waiting))
            append_live(session, LogScript(turn=1).step().events)
            await clock.advance(0.2)
            await until(lambda: store.durable_seq(session) == 2)
            assert dicts((await store.read_from("s", 0)).events) == dicts(session.events)

    async def test_a_flush_retries_an_overlapping_failure(self, harness: CoordinatorHarness) -> None:
        """A flush that began while a write failed writes again and succeeds (D2, PE5, WB8)."""
        clock = ManualScheduler()
        registry = SessionRegistry(Session)
        async with opened(await harness.open(registry=registry, write_window=0.2, scheduler=clock)) as store:
            session = go_live(registry, "s")
            await store.flush(session)
            faults = harness.faults(store)
            gate = faults.hang("append_batch")
            append_live(session, LogScript().start().events)
            await clock.advance(0.2)
            await gate.entered.wait()
            flush = asyncio.ensure_future(store.flush(session))
            await asyncio.sleep(0)
            gate.fail(BackendError(backend="test", reason="scripted", wrote_nothing=True))
            await flush
            assert store.durable_seq(session) == 1
            assert faults.counts["append_batch"] == 2

    async def test_a_lost_reply_is_no_conflict(self, harness: CoordinatorHarness) -> None:
        """A batch that was stored although its reply was lost is acknowledged by the retry (B3)."""
        registry = SessionRegistry(Session)
        async with opened(await harness.open(registry=registry, write_window=NEVER)) as store:
            session = go_live(registry, "s")
            append_live(session, LogScript().turn().events)
            harness.faults(store).fail("append_batch", when="after")
            with pytest.raises(UndurableError):
                await store.flush(session)
            stored = await read_raw(harness, "s")
            assert stored is not None
            await store.flush(session)
            now = await read_raw(harness, "s")
            assert now is not None
            assert now.log == stored.log
            append_live(session, LogScript(turn=1).turn().events)
            await store.flush(session)
            assert dicts((await store.read_from("s", 0)).events) == dicts(session.events)

    async def test_a_batch_in_doubt_is_retried_alone(self, harness: CoordinatorHarness) -> None:
        """A batch of unknown outcome goes out again with the same events, before anything newer (B3)."""
        registry = SessionRegistry(Session)
        async with opened(await harness.open(registry=registry, write_window=NEVER)) as store:
            session = go_live(registry, "s")
            append_live(session, LogScript().turn().events)
            first = session.seq
            await store.flush(session)
            for when in ("after", "before"):
                begin = session.seq
                append_live(session, LogScript(turn=session.next_turn - 1).turn().events)
                end = session.seq
                unknown = BackendError(backend="test", reason="no reply")
                harness.faults(store).fail("append_batch", when=when, error=unknown)
                with pytest.raises(UndurableError):
                    await store.flush(session)
                append_live(session, LogScript(turn=session.next_turn - 1).turn().events)
                await store.flush(session)
                spans = harness.faults(store).batches()[-3:]
                assert spans == ((begin, end - 1), (begin, end - 1), (end, session.seq - 1))
            assert first < session.seq
            assert dicts((await store.read_from("s", 0)).events) == dicts(session.events)

    async def test_a_refused_batch_may_be_merged(self, harness: CoordinatorHarness) -> None:
        """A batch that certainly left nothing goes out together with what came later (B3, B2)."""
        registry = SessionRegistry(Session)
        async with opened(await harness.open(registry=registry, write_window=NEVER)) as store:
            session = go_live(registry, "s")
            append_live(session, LogScript().turn().events)
            harness.faults(store).fail("append_batch", when="before")
            with pytest.raises(UndurableError):
                await store.flush(session)
            append_live(session, LogScript(turn=1).turn().events)
            await store.flush(session)
            assert harness.faults(store).batches()[-1] == (0, session.seq - 1)
            assert harness.faults(store).counts["append_batch"] == 2

    async def test_a_materialising_batch_in_doubt_is_retried_alone(self, harness: CoordinatorHarness) -> None:
        """The first batch, header and all, is acknowledged by its retry when its reply was lost (B3, B1)."""
        registry = SessionRegistry(Session)
        async with opened(await harness.open(registry=registry, write_window=NEVER)) as store:
            session = go_live(registry, "s")
            append_live(session, LogScript().turn().events)
            end = session.seq
            unknown = BackendError(backend="test", reason="no reply")
            harness.faults(store).fail("append_batch", when="after", error=unknown)
            with pytest.raises(UndurableError):
                await store.flush(session)
            append_live(session, LogScript(turn=1).turn().events)
            await store.flush(session)
            assert harness.faults(store).batches() == ((0, end - 1), (0, end - 1), (end, session.seq - 1))
            assert dicts((await store.read_from("s", 0)).events) == dicts(session.events)

    async def test_a_public_append_may_be_repeated(self, harness: CoordinatorHarness) -> None:
        """The caller of append repeats a batch whose reply was lost, and it is stored once (B3)."""
        events = LogScript().turn().events
        async with opened(await harness.open()) as store:
            await store.create(header("s"))
            harness.faults(store).fail("append_batch", when="after")
            with pytest.raises(BackendError):
                await store.append("s", events)
            await store.append("s", events)
            await store.append("s", LogScript(len(events), turn=1).turn().events)
            assert len((await store.load("s")).events) == 2 * len(events)

    async def test_a_failed_start_is_retried(self, harness: CoordinatorHarness) -> None:
        """A store that cannot be asked about the id at first keeps the events (D2, PE3, JL86)."""
        registry = SessionRegistry(Session)
        async with opened(await harness.open(registry=registry, write_window=NEVER)) as store:
            faults = harness.faults(store)
            faults.fail("load_stored", on=None)
            faults.fail("append_batch", on=None)
            session = go_live(registry, "s")
            append_live(session, LogScript().turn().events)
            with pytest.raises(UndurableError):
                await store.flush(session)
            faults.heal()
            await store.flush(session)
            assert dicts((await store.read_from("s", 0)).events) == dicts(session.events)

    async def test_a_big_failed_batch_is_kept(self, harness: CoordinatorHarness) -> None:
        """Twenty thousand events that could not be written are written by the next flush (D2, WB10)."""
        registry = SessionRegistry(Session)
        async with opened(await harness.open(registry=registry, write_window=NEVER)) as store:
            session = go_live(registry, "s")
            append_live(session, LogScript().start().step().events)
            stream(session, [str(number) for number in range(20_000)])
            harness.faults(store).fail("append_batch")
            with pytest.raises(UndurableError):
                await store.flush(session)
            await store.flush(session)
            suffix = await store.read_from("s", session.seq - 1)
            assert [e.data["chunk"]["text"] for e in suffix.events] == ["19999"]

    async def test_a_crash_inside_a_write_keeps_the_acknowledged(self, harness: CoordinatorHarness) -> None:
        """After a crash with only some events of a batch stored, all earlier batches are whole (B2, D2)."""
        registry = SessionRegistry(Session)
        store = await harness.open(registry=registry, write_window=NEVER)
        session = go_live(registry, "s")
        append_live(session, LogScript().turn().events)
        await store.flush(session)
        acknowledged = session.seq
        append_live(session, LogScript(turn=1).turn(calls=["c1"]).events)
        expected = dicts(session.events)
        harness.faults(store).crash("append_batch", when="partway", keep=3)
        flush = asyncio.ensure_future(store.flush(session))
        await until(lambda: harness.faults(store).dead)
        await harness.crash(store)
        async with opened(await harness.open()) as after:
            found = dicts((await after.read_from("s", 0)).events)
            assert found == expected[: acknowledged + 3]
        flush.cancel()

    @pytest.mark.parametrize("when", ["before", "after"])
    async def test_a_crash_around_a_write_keeps_whole_batches(
        self, harness: CoordinatorHarness, when: When
    ) -> None:
        """A crash before a write keeps none of its batch, one after it all of it (B2, D2)."""
        registry = SessionRegistry(Session)
        store = await harness.open(registry=registry, write_window=NEVER)
        session = go_live(registry, "s")
        append_live(session, LogScript().turn().events)
        await store.flush(session)
        acknowledged = session.seq
        append_live(session, LogScript(turn=1).turn().events)
        expected = dicts(session.events)
        harness.faults(store).crash("append_batch", when=when)
        flush = asyncio.ensure_future(store.flush(session))
        await until(lambda: harness.faults(store).dead)
        await harness.crash(store)
        async with opened(await harness.open()) as after:
            found = dicts((await after.read_from("s", 0)).events)
            assert found == (expected if when == "after" else expected[:acknowledged])
        flush.cancel()

    async def test_a_full_queue_refuses_and_drains(self, harness: CoordinatorHarness) -> None:
        """Over its byte budget a session refuses events, keeps a reserve, and drains (D4)."""
        registry = SessionRegistry(Session)
        options = {"pending_budget": 4000, "pending_reserve": 4000, "write_window": NEVER}
        async with opened(await harness.open(registry=registry, **options)) as store:
            session = go_live(registry, "s")
            append_live(session, LogScript().start().step().user().assistant(calls=["c1"]).call("c1").events)
            faults = harness.faults(store)
            faults.fail("append_batch", on=None)
            with pytest.raises(UndurableError):
                await store.flush(session)
            with pytest.raises(BackpressureError) as full:
                stream(session, ["x" * 100] * 1000)
            assert full.value.budget == 4000
            length = session.seq
            append_live(session, LogScript(turn=1, step=1).result("c1").end_step().end().events)
            assert session.seq == length + 3
            faults.heal()
            await store.drain(session)
            append_live(session, LogScript(turn=1).turn().events)
            await store.flush(session)
            assert dicts((await store.read_from("s", 0)).events) == dicts(session.events)

    async def test_an_empty_queue_takes_any_event(self, harness: CoordinatorHarness) -> None:
        """One event bigger than the budget is admitted when nothing waits (D4)."""
        registry = SessionRegistry(Session)
        async with opened(
            await harness.open(
                registry=registry, pending_budget=1000, pending_reserve=500, write_window=NEVER
            )
        ) as store:
            session = go_live(registry, "s")
            session.append("feedback/record", {"text": "x" * 10_000})
            with pytest.raises(BackpressureError):
                session.append("feedback/record", {"text": "y"})
            await store.drain(session)
            session.append("feedback/record", {"text": "y"})
            await store.flush(session)
            assert session.seq == 2

    async def test_a_cancelled_flush_loses_nothing(self, harness: CoordinatorHarness) -> None:
        """Cancelling a caller of flush never tears the batch; the write belongs to the store (D2, B2)."""
        registry = SessionRegistry(Session)
        async with opened(await harness.open(registry=registry, write_window=NEVER)) as store:
            session = go_live(registry, "s")
            append_live(session, LogScript().turn().events)
            gate = harness.faults(store).hang("append_batch")
            flush = asyncio.ensure_future(store.flush(session))
            await gate.entered.wait()
            flush.cancel()
            with pytest.raises(asyncio.CancelledError):
                await flush
            gate.release()
            await until(lambda: store.durable_seq(session) == session.seq)
            await store.flush(session)
            assert harness.faults(store).counts["append_batch"] == 1
