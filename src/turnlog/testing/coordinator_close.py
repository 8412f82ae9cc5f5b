"""Contract of the coordinator, part five: what closing waits for, in which order, and what it reports.

Owns tests only. Failures come from the harness's `FaultyBackend`.
"""

from __future__ import annotations

import asyncio

import pytest

from turnlog.errors import TurnlogError, UndurableError, UsageError
from turnlog.session.registry import SessionRegistry
from turnlog.session.session import Session
from turnlog.testing.coordinator_live import NEVER
from turnlog.testing.harness import CoordinatorHarness, opened, read_raw
from turnlog.testing.scripts import LogScript, append_live, dicts, go_live, header
from turnlog.testing.suite import ContractSuite


class CloseContract(ContractSuite, abstract=True):
    """Closing means quiescence: nothing runs afterwards and nothing was forgotten."""

    async def test_close_comes_after_the_drain(self, harness: CoordinatorHarness) -> None:
        """The backend is closed last, once, after every write (D2, PE42)."""
        registry = SessionRegistry(Session)
        store = await harness.open(registry=registry, write_window=NEVER)
        faults = harness.faults(store)
        for session_id in ("a", "b"):
            append_live(go_live(registry, session_id), LogScript().turn().events)
        await store.aclose()
        hooks = [call.hook for call in faults.calls]
        assert hooks.count("append_batch") == 2
        if "aclose" in hooks:
            assert hooks.index("aclose") == len(hooks) - 1
        assert faults.counts["aclose"] <= 1

    async def test_close_waits_for_a_running_append(self, harness: CoordinatorHarness) -> None:
        """A public append that runs when the store closes is finished first (D2, PE42)."""
        events = LogScript().turn().events
        store = await harness.open()
        await store.create(header("s"))
        gate = harness.faults(store).hang("append_batch")
        appending = asyncio.ensure_future(store.append("s", events))
        await gate.entered.wait()
        closing = asyncio.ensure_future(store.aclose())
        for _ in range(20):
            await asyncio.sleep(0)
        assert not closing.done()
        gate.release()
        await closing
        await appending
        async with opened(await harness.open()) as after:
            assert dicts((await after.load("s")).events) == dicts(events)

    async def test_close_waits_for_an_abandoned_append(self, harness: CoordinatorHarness) -> None:
        """An append whose caller was cancelled still belongs to the store (B2, D2, PE42)."""
        events = LogScript().turn().events
        store = await harness.open()
        await store.create(header("s"))
        gate = harness.faults(store).hang("append_batch")
        appending = asyncio.ensure_future(store.append("s", events))
        await gate.entered.wait()
        appending.cancel()
        with pytest.raises(asyncio.CancelledError):
            await appending
        closing = asyncio.ensure_future(store.aclose())
        gate.release()
        await closing
        async with opened(await harness.open()) as after:
            assert dicts((await after.load("s")).events) == dicts(events)

    async def test_close_waits_for_a_disposal(self, harness: CoordinatorHarness) -> None:
        """A disposed session whose drain still runs is waited for (D2, PE41)."""
        registry = SessionRegistry(Session)
        store = await harness.open(registry=registry, write_window=NEVER)
        session = go_live(registry, "s")
        append_live(session, LogScript().turn().events)
        gate = harness.faults(store).hang("append_batch")
        registry.detach(session)
        await gate.entered.wait()
        closing = asyncio.ensure_future(store.aclose())
        await asyncio.sleep(0)
        assert not closing.done()
        gate.release()
        await closing
        assert await read_raw(harness, "s") is not None

    async def test_close_retries_a_failed_disposal(self, harness: CoordinatorHarness) -> None:
        """Events that a disposal could not write are written by the close (D2, PE40)."""
        registry = SessionRegistry(Session)
        store = await harness.open(registry=registry, write_window=NEVER)
        session = go_live(registry, "s")
        append_live(session, LogScript().turn().events)
        expected = dicts(session.events)
        gate = harness.faults(store).hang("append_batch")
        registry.detach(session)
        await gate.entered.wait()
        gate.fail(OSError("scripted"))
        await store.aclose()
        async with opened(await harness.open()) as after:
            assert dicts((await after.load("s")).events) == expected

    async def test_close_reports_every_failure(self, harness: CoordinatorHarness) -> None:
        """What could not be drained is reported in one group, named after the backend (D2)."""
        registry = SessionRegistry(Session)
        store = await harness.open(registry=registry, write_window=NEVER)
        faults = harness.faults(store)
        for session_id in ("a", "b"):
            append_live(go_live(registry, session_id), LogScript().turn().events)
        faults.fail("append_batch", on=None)
        with pytest.raises(ExceptionGroup) as failures:
            await store.aclose()
        assert faults.name in str(failures.value)
        assert [type(e) for e in failures.value.exceptions] == [UndurableError, UndurableError]

    async def test_a_cancelled_close_can_be_repeated(self, harness: CoordinatorHarness) -> None:
        """Cancelling who closes loses nothing; closing again finishes (D2)."""
        registry = SessionRegistry(Session)
        store = await harness.open(registry=registry, write_window=NEVER)
        session = go_live(registry, "s")
        append_live(session, LogScript().turn().events)
        gate = harness.faults(store).hang("append_batch")
        closing = asyncio.ensure_future(store.aclose())
        await gate.entered.wait()
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        gate.release()
        await store.aclose()
        async with opened(await harness.open()) as after:
            assert dicts((await after.load("s")).events) == dicts(session.events)

    async def test_a_closed_store_takes_nothing(self, harness: CoordinatorHarness) -> None:
        """After closing every call is refused by name, and closing again does nothing (D2)."""
        store = await harness.open()
        await store.aclose()
        await store.aclose()
        for call in (store.load, store.inspect, store.prepare):
            with pytest.raises(TurnlogError):
                await call("s")
        with pytest.raises(TurnlogError):
            await store.create(header("s"))
        with pytest.raises(UsageError):
            await store.append("s", LogScript().turn().events)

    async def test_a_closed_store_lets_go_of_live_sessions(self, harness: CoordinatorHarness) -> None:
        """A session outlives its store: it still takes events, and another store may adopt it (D1, CC17)."""
        registry = SessionRegistry(Session)
        first = await harness.open(registry=registry, pending_budget=20_000, pending_reserve=1)
        session = go_live(registry, "s")
        append_live(session, LogScript().turn().events)
        await first.aclose()
        for _ in range(3):
            session.append("feedback/record", {"text": "x" * 15_000})
        append_live(session, LogScript(turn=1).turn().events)
        async with opened(await harness.open(registry=registry)) as second:
            await second.flush(session)
            assert dicts((await second.read_from("s", 0)).events) == dicts(session.events)
