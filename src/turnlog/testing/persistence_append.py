"""Contract of `SessionPersistence`, part one: creating, appending, erasing; what is kept and what is refused.

Owns tests only. They use the service and the harness's out-of-band access, nothing of any backend.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from turnlog.errors import (
    InvalidEventError,
    InvalidSessionIdError,
    SessionExistsError,
    SessionNotFoundError,
    TurnlogError,
    UnexpectedSeqError,
)
from turnlog.events.header import SessionHeader
from turnlog.persistence.service import SessionPersistence
from turnlog.testing.capabilities import Capability
from turnlog.testing.harness import Harness, opened, read_raw
from turnlog.testing.scripts import EPOCH_MS, LogScript, dicts, header
from turnlog.testing.suite import ContractSuite, needs

HOSTILE_IDS = (
    "../../etc/passwd",
    ".",
    "..",
    "/etc/passwd",
    "a/b",
    "a\\b",
    "a~002Fb",
    "~",
    "nul\x00id",
    "line\nbreak",
    "grüße 👋",
    "\ud800",
    "\udc00",
    "CON",
    "x" * 240,
)
"""Ids that a careless store would turn into something else; each is a session of its own (S1)."""

UNSTORABLE_IDS = ("", "x" * 241, "ü" * 49, "x" * 4096)
"""Ids whose segment has not 1 to 240 bytes (S1)."""

NOT_JSON: tuple[Any, ...] = (
    float("nan"),
    float("inf"),
    -0.0,
    2**53 + 1,
    {1, 2},
    b"bytes",
    (1, 2),
    {1: "integer key"},
    object(),
)
"""Payload values that no log can hold (L2)."""


async def stored_ids(store: SessionPersistence) -> list[str | None]:
    """Return the ids that `list` yields, in its order."""
    return [entry.session_id async for entry in store.list()]


class AppendContract(ContractSuite, abstract=True):
    """Creating, appending and deleting sessions that are not live."""

    async def test_append_then_load_gives_the_same_log(self, harness: Harness) -> None:
        """What was appended is what load returns, header and events (L2, CO1)."""
        events = LogScript().turn(calls=["c1"]).events
        async with opened(await harness.open()) as store:
            await store.create(header("s"))
            await store.append("s", events)
            loaded = await store.load("s")
            assert loaded.meta.id == "s"
            assert loaded.meta.cwd == "/srv/app"
            assert loaded.meta.created_at == EPOCH_MS
            assert dicts(list(loaded.events)) == dicts(events)

    async def test_header_fields_are_kept(self, harness: Harness) -> None:
        """Lineage, depth, origin and preset come back from another store (B1, CC5, CC6, CC38)."""
        meta = header(
            "s",
            parent_session="p",
            seed_length=2,
            origin="subagent",
            delegation_depth=3,
            agent_preset="minimal",
        )
        async with opened(await harness.open()) as store:
            await store.create(meta)
            await store.append("s", LogScript().turn().events)
        async with opened(await harness.open()) as store:
            found = (await store.load("s")).meta
            assert (found.parent_session, found.seed_length) == ("p", 2)
            assert (found.origin, found.delegation_depth, found.agent_preset) == ("subagent", 3, "minimal")

    async def test_a_created_session_leaves_nothing(self, harness: Harness) -> None:
        """Creating a session stores nothing and lists nothing (B1, CO6)."""
        async with opened(await harness.open()) as store:
            await store.create(header("s"))
            assert await stored_ids(store) == []
            assert await read_raw(harness, "s") is None
        assert await read_raw(harness, "s") is None

    async def test_an_empty_append_stays_lazy(self, harness: Harness) -> None:
        """Appending nothing stores nothing, also to a session that has events (B1, CC32)."""
        async with opened(await harness.open()) as store:
            await store.create(header("s"))
            await store.append("s", [])
            assert await read_raw(harness, "s") is None
            await store.append("s", LogScript().turn().events)
            before = await read_raw(harness, "s")
            await store.append("s", [])
            assert await read_raw(harness, "s") == before

    async def test_header_and_first_batch_survive_together(self, harness: Harness) -> None:
        """After the first acknowledged append a crash loses neither header nor events (B1, D2)."""
        events = LogScript().turn().events
        store = await harness.open()
        await store.create(header("s"))
        await store.append("s", events)
        await harness.crash(store)
        async with opened(await harness.open()) as after:
            assert await stored_ids(after) == ["s"]
            assert dicts(list((await after.inspect("s")).events)) == dicts(events)

    async def test_acknowledged_events_survive_a_crash(self, harness: Harness) -> None:
        """Every acknowledged batch is whole after a crash, in order (D2, B2, L1)."""
        script = LogScript()
        store = await harness.open()
        await store.create(header("s"))
        for _ in range(4):
            first = len(script.events)
            script.turn(calls=["c1"])
            await store.append("s", script.events[first:])
        await harness.crash(store)
        async with opened(await harness.open()) as after:
            assert dicts(list((await after.load("s")).events)) == dicts(script.events)

    async def test_events_survive_an_orderly_close(self, harness: Harness) -> None:
        """A closed store has kept everything; the next one continues the numbering (D2, CC31)."""
        script = LogScript().turn()
        async with opened(await harness.open()) as store:
            await store.create(header("s"))
            await store.append("s", script.events)
        first = len(script.events)
        script.turn()
        async with opened(await harness.open()) as store:
            await store.append("s", script.events[first:])
            assert dicts(list((await store.load("s")).events)) == dicts(script.events)

    async def test_a_wrong_first_seq_writes_nothing(self, harness: Harness) -> None:
        """An append that does not start at the end of the log is refused by name (B3, CO10)."""
        events = LogScript().turn().events
        async with opened(await harness.open()) as store:
            await store.create(header("s"))
            with pytest.raises(UnexpectedSeqError) as early:
                await store.append("s", events[1:])
            assert (early.value.expected, early.value.actual) == (0, 1)
            assert await read_raw(harness, "s") is None
            await store.append("s", events)
            before = await read_raw(harness, "s")
            with pytest.raises(UnexpectedSeqError) as again:
                await store.append("s", LogScript(2, turn=1).turn("other").events)
            assert (again.value.expected, again.value.actual) == (len(events), 2)
            assert await read_raw(harness, "s") == before

    async def test_a_gap_inside_a_batch_writes_nothing(self, harness: Harness) -> None:
        """A batch with a hole is refused whole, naming the index (B2, B3, CO11)."""
        events = LogScript().turn().events
        async with opened(await harness.open()) as store:
            await store.create(header("s"))
            with pytest.raises(UnexpectedSeqError) as gap:
                await store.append("s", [*events[:2], *events[3:]])
            assert (gap.value.expected, gap.value.actual, gap.value.index) == (2, 3, 2)
            assert await read_raw(harness, "s") is None
            await store.append("s", events)

    @pytest.mark.parametrize("value", NOT_JSON, ids=lambda v: type(v).__name__)
    async def test_data_that_is_not_json_is_refused(self, harness: Harness, value: Any) -> None:
        """A value that the log cannot hold is refused at the door; nothing is stored (L2, B2, CO12)."""
        good = dicts(LogScript().turn().events)
        bad = [*good[:2], {**good[2], "data": {"value": [value]}}]
        async with opened(await harness.open()) as store:
            await store.create(header("s"))
            with pytest.raises(InvalidEventError):
                await store.append("s", bad)
            assert await read_raw(harness, "s") is None
            await store.append("s", good)
            assert dicts(list((await store.load("s")).events)) == good

    async def test_awkward_json_comes_back_equal(self, harness: Harness) -> None:
        """Lone surrogates, big and small numbers, odd keys and deep nesting survive (L2, JL92)."""
        deep: Any = "bottom"
        for _ in range(400):
            deep = [deep]
        data = {
            "text": "\ud800 lone \udfff \x00 \u2028 👋",
            "numbers": [0, 1e21, 5e-324, 1.5e-7, 2**60, -(2**53 - 1), 0.1],
            "2": 2,
            "1": 1,
            "__proto__": {"x": None},
            "deep": deep,
        }
        events = LogScript().add("feedback/record", data).events
        async with opened(await harness.open()) as store:
            await store.create(header("s"))
            await store.append("s", events)
        async with opened(await harness.open()) as store:
            found = list((await store.load("s")).events)
            assert dicts(found) == dicts(events)
            assert found == events

    async def test_the_batch_is_taken_at_the_time_of_the_call(self, harness: Harness) -> None:
        """What the caller does to its list and dictionaries after the call changes nothing (L2, CC12)."""
        events = dicts(LogScript().turn().events)
        expected = dicts(LogScript().turn().events)
        async with opened(await harness.open()) as store:
            await store.create(header("s"))
            pending = asyncio.ensure_future(store.append("s", events))
            events[2]["data"]["content"][0]["text"] = "changed"
            events.clear()
            await pending
            assert dicts(list((await store.load("s")).events)) == expected

    async def test_a_header_is_taken_at_the_time_of_the_call(self, harness: Harness) -> None:
        """What the caller does to the header's parts after create changes nothing (B1, JL64)."""
        note = {"labels": ["first"]}
        async with opened(await harness.open()) as store:
            await store.create(header("s", extra={"note": note}))
            note["labels"].append("later")
            await store.append("s", LogScript().turn().events)
        async with opened(await harness.open()) as store:
            assert (await store.load("s")).meta.extra["note"] == {"labels": ["first"]}

    async def test_an_id_is_created_once(self, harness: Harness) -> None:
        """A second create is refused while the id is in memory and when it is stored (S1, CC34, JL89)."""
        async with opened(await harness.open()) as store:
            await store.create(header("s"))
            with pytest.raises(SessionExistsError):
                await store.create(header("s"))
            await store.append("s", LogScript().turn().events)
        async with opened(await harness.open()) as store:
            with pytest.raises(SessionExistsError):
                await store.create(header("s"))
            with pytest.raises(SessionExistsError):
                await store.create(header("s", cwd="/elsewhere"))

    async def test_an_impossible_header_is_refused_and_the_id_stays_free(self, harness: Harness) -> None:
        """A creation time that is no integer creates nothing (L2, CO2)."""
        async with opened(await harness.open()) as store:
            with pytest.raises((TurnlogError, TypeError)):
                await store.create(SessionHeader(id="s", created_at=cast(int, 1.5)))
            await store.create(header("s"))

    async def test_appending_to_an_unknown_session_is_refused(self, harness: Harness) -> None:
        """An id that was neither created nor stored is not found, and stays so (S1, CC33)."""
        async with opened(await harness.open()) as store:
            with pytest.raises(SessionNotFoundError):
                await store.append("s", LogScript().turn().events)
            assert await read_raw(harness, "s") is None

    async def test_hostile_ids_are_sessions_of_their_own(self, harness: Harness) -> None:
        """Ids with separators, dots, NUL or lone surrogates are kept apart and stay inside (S1)."""
        async with opened(await harness.open()) as store:
            for number, session_id in enumerate(HOSTILE_IDS):
                await store.create(header(session_id))
                await store.append(session_id, LogScript(prefix=f"p{number}").turn().events)
        async with opened(await harness.open()) as store:
            assert sorted(map(ascii, await stored_ids(store))) == sorted(map(ascii, HOSTILE_IDS))
            for number, session_id in enumerate(HOSTILE_IDS):
                expected = LogScript(prefix=f"p{number}").turn().events
                assert dicts(list((await store.load(session_id)).events)) == dicts(expected)

    @pytest.mark.parametrize("session_id", UNSTORABLE_IDS, ids=lambda v: f"{len(v)}-characters")
    async def test_unstorable_ids_are_refused_at_creation(self, harness: Harness, session_id: str) -> None:
        """An id without a segment of 1 to 240 bytes is refused the same way everywhere (S1)."""
        async with opened(await harness.open()) as store:
            with pytest.raises(InvalidSessionIdError):
                await store.create(header(session_id))
            assert await stored_ids(store) == []

    async def test_stored_bytes_are_only_extended(self, harness: Harness) -> None:
        """Each batch leaves what was stored before it untouched (L1)."""
        script = LogScript()
        async with opened(await harness.open()) as store:
            await store.create(header("s"))
            earlier = None
            for _ in range(3):
                first = len(script.events)
                script.turn()
                await store.append("s", script.events[first:])
                now = await read_raw(harness, "s")
                assert now is not None
                assert earlier is None or (now.extends(earlier) and now.log != earlier.log)
                earlier = now

    async def test_sessions_do_not_mix(self, harness: Harness) -> None:
        """Sessions written at the same time each get their own events (L1, W1)."""
        logs = {f"s{n}": LogScript(prefix=f"p{n}").turn(f"prompt {n}").events for n in range(8)}
        async with opened(await harness.open()) as store:
            for session_id in logs:
                await store.create(header(session_id))
            await asyncio.gather(*(store.append(i, events) for i, events in logs.items()))
            for session_id, events in logs.items():
                assert dicts(list((await store.load(session_id)).events)) == dicts(events)

    async def test_of_two_appends_at_one_seq_one_is_refused(self, harness: Harness) -> None:
        """Two different batches for the same place are serialised: one is stored, one refused (B3)."""
        one = LogScript(prefix="one").turn().events
        two = LogScript(prefix="two").turn().events
        async with opened(await harness.open()) as store:
            await store.create(header("s"))
            results = await asyncio.gather(
                store.append("s", one), store.append("s", two), return_exceptions=True
            )
            assert results[0] is None
            assert isinstance(results[1], UnexpectedSeqError)
            assert dicts(list((await store.load("s")).events)) == dicts(one)

    async def test_a_cancelled_append_is_whole_or_absent(self, harness: Harness) -> None:
        """Cancelling the caller never tears a batch, and the store goes on working (B2)."""
        events = LogScript().turn().events
        for steps in range(6):
            session_id = f"s{steps}"
            async with opened(await harness.open()) as store:
                await store.create(header(session_id))
                task = asyncio.ensure_future(store.append(session_id, events))
                for _ in range(steps):
                    await asyncio.sleep(0)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
                try:
                    stored = dicts(list((await store.load(session_id)).events))
                except SessionNotFoundError:
                    await store.append(session_id, events)
                    stored = dicts(list((await store.load(session_id)).events))
                assert stored == dicts(events)

    async def test_a_crash_during_an_append_leaves_no_part(self, harness: Harness) -> None:
        """A crash at any moment of an append leaves all or nothing; files may keep whole events (B2)."""
        script = LogScript().turn()
        half = len(script.events)
        script.turn(calls=["c1"])
        for steps in range(0, 60, 2):
            session_id = f"s{steps}"
            store = await harness.open()
            await store.create(header(session_id))
            await store.append(session_id, script.events[:half])
            task = asyncio.ensure_future(store.append(session_id, script.events[half:]))
            for _ in range(steps):
                await asyncio.sleep(0)
            was_acknowledged = task.done()
            await harness.crash(store)
            task.cancel()
            await asyncio.wait({task}, timeout=0.01)
            async with opened(await harness.open()) as after:
                found = dicts((await after.read_from(session_id, 0)).events)
            assert found == dicts(script.events)[: len(found)]
            if was_acknowledged:
                assert len(found) == len(script.events)
            elif Capability.PARTIAL_BATCH not in self.capabilities:
                assert len(found) in {half, len(script.events)}

    async def test_a_crash_during_the_first_append_leaves_no_header(self, harness: Harness) -> None:
        """A crash at any moment of the first append leaves a session with events, or none (B1, B2)."""
        events = LogScript().turn(calls=["c1"]).events
        for steps in range(40):
            session_id = f"s{steps}"
            store = await harness.open()
            await store.create(header(session_id))
            task = asyncio.ensure_future(store.append(session_id, events))
            for _ in range(steps):
                await asyncio.sleep(0)
            await harness.crash(store)
            task.cancel()
            await asyncio.wait({task}, timeout=0.01)
            async with opened(await harness.open()) as after:
                if session_id in await stored_ids(after):
                    assert dicts((await after.read_from(session_id, 0)).events) == dicts(events)

    async def test_a_crash_at_the_first_trace_of_an_append_leaves_no_part(self, harness: Harness) -> None:
        """A crash as soon as an append shows in the medium leaves all of it; files may keep less (B1, B2)."""
        script = LogScript().turn(calls=["c1"]).turn(calls=["c2"])
        half = len(script.events) // 2
        for first in (0, half):
            session_id = f"s{first}"
            store = await harness.open()
            await store.create(header(session_id))
            if first:
                await store.append(session_id, script.events[:first])
            before = await read_raw(harness, session_id)
            task = asyncio.ensure_future(store.append(session_id, script.events[first:]))
            while not task.done() and await read_raw(harness, session_id) == before:  # noqa: ASYNC110 - the medium sets no event
                await asyncio.sleep(0)
            await harness.crash(store)
            task.cancel()
            await asyncio.wait({task}, timeout=0.01)
            async with opened(await harness.open()) as after:
                if session_id in await stored_ids(after):
                    found = dicts((await after.read_from(session_id, 0)).events)
                    assert found == dicts(script.events)[: len(found)]
                    if Capability.PARTIAL_BATCH not in self.capabilities:
                        assert len(found) in {first, len(script.events)} - {0}

    async def test_a_stale_writer_is_refused(self, harness: Harness) -> None:
        """A store whose view of the end is out of date writes nothing, whatever it remembers (B3, JL34)."""
        script = LogScript().turn()
        half = len(script.events)
        mine = LogScript(half, turn=1, prefix="mine").turn("mine").events
        async with opened(await harness.open()) as first, opened(await harness.open()) as second:
            await first.create(header("s"))
            await first.append("s", script.events)
            await second.append("s", script.turn().events[half:])
            before = await read_raw(harness, "s")
            with pytest.raises(UnexpectedSeqError) as stale:
                await first.append("s", mine)
            assert (stale.value.expected, stale.value.actual) == (len(script.events), half)
            assert await read_raw(harness, "s") == before
            assert dicts((await first.load("s")).events) == dicts(script.events)

    @needs(Capability.DELETE)
    async def test_delete_erases_everything(self, harness: Harness) -> None:
        """A deleted session leaves nothing, and its id is free again (L1, S1)."""
        async with opened(await harness.open()) as store:
            await store.create(header("s"))
            await store.append("s", LogScript().turn().events)
            await store.delete("s")
            assert await read_raw(harness, "s") is None
            assert await stored_ids(store) == []
            with pytest.raises(SessionNotFoundError):
                await store.load("s")
            with pytest.raises(SessionNotFoundError):
                await store.delete("s")
            await store.create(header("s"))
            await store.append("s", LogScript(prefix="new").turn().events)
            assert len((await store.load("s")).events) == len(LogScript().turn().events)

    @needs(Capability.HEADER_ONLY)
    async def test_ensure_materialized_stores_a_header(self, harness: Harness) -> None:
        """A session may be stored without events when that was asked for, and is continued from 0 (B1)."""
        async with opened(await harness.open()) as store:
            await store.create(header("s"))
            await store.ensure_materialized("s")
            first = await read_raw(harness, "s")
            assert first is not None
            await store.ensure_materialized("s")
            assert await read_raw(harness, "s") == first
        async with opened(await harness.open()) as store:
            assert await stored_ids(store) == ["s"]
            assert list((await store.load("s")).events) == []
            await store.append("s", LogScript().turn().events)
            now = await read_raw(harness, "s")
            assert now is not None
            assert now.extends(first)

    @needs(Capability.HEADER_ONLY)
    async def test_ensure_materialized_needs_a_session(self, harness: Harness) -> None:
        """An unknown id cannot be materialised (B1)."""
        async with opened(await harness.open()) as store:
            with pytest.raises(SessionNotFoundError):
                await store.ensure_materialized("s")

    @needs(Capability.LOCATE)
    async def test_locate_does_not_touch_the_medium(self, harness: Harness) -> None:
        """Asking for a place creates nothing and gives the same answer before and after (R3)."""
        async with opened(await harness.open()) as store:
            before = store.locate(header("s"))
            assert await read_raw(harness, "s") is None
            await store.create(header("s"))
            await store.append("s", LogScript().turn().events)
            assert store.locate(header("s")) == before
