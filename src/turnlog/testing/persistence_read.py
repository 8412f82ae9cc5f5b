"""Contract of `SessionPersistence`, part two: reading, listing, following; readers never write.

Owns tests only. They use the service and the harness's out-of-band access, nothing of any backend.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from turnlog.errors import CorruptLogError, SessionNotFoundError, UsageError
from turnlog.persistence.service import SessionPersistence
from turnlog.testing.capabilities import Capability
from turnlog.testing.harness import Harness, opened, read_raw
from turnlog.testing.persistence_append import stored_ids
from turnlog.testing.scripts import LogScript, dicts, header
from turnlog.testing.suite import ContractSuite, needs


async def store_one(store: SessionPersistence, session_id: str, script: LogScript) -> None:
    """Create a session and append everything that is scripted for it."""
    await store.create(header(session_id))
    await store.append(session_id, script.events)


async def statuses(store: SessionPersistence) -> dict[str | None, str]:
    """Return the status of each listed session."""
    return {entry.session_id: entry.status async for entry in store.list()}


async def read_everything(store: SessionPersistence, session_id: str) -> None:
    """Call every reader of one session once."""
    await store.inspect(session_id)
    await store.read_from(session_id, 0)
    await store.tail(session_id, 3)
    [event async for event in store.iter_events(session_id)]
    [entry async for entry in store.list()]
    following = cast(Any, store.follow(session_id))
    await anext(following)
    await following.aclose()


class ReadContract(ContractSuite, abstract=True):
    """Reading sessions in every way the service offers."""

    async def test_missing_sessions_are_named(self, harness: Harness) -> None:
        """Every reader of an unknown id says that it does not exist (R3, CC33)."""
        async with opened(await harness.open()) as store:
            readers: list[Callable[[], Awaitable[Any]]] = [
                lambda: store.load("nope"),
                lambda: store.inspect("nope"),
                lambda: store.read_from("nope", 0),
                lambda: store.tail("nope", 1),
                lambda: store.prepare("nope"),
                lambda: anext(cast(Any, store.iter_events("nope"))),
            ]
            for reader in readers:
                with pytest.raises(SessionNotFoundError) as missing:
                    await reader()
                assert missing.value.session_id == "nope"
            assert await stored_ids(store) == []

    async def test_read_from_gives_exactly_the_suffix(self, harness: Harness) -> None:
        """From every seq the rest is returned, and nothing beyond the end (R3, CO8)."""
        script = LogScript().turn(calls=["c1"]).turn()
        async with opened(await harness.open()) as store:
            await store_one(store, "s", script)
            before = await read_raw(harness, "s")
            for seq in range(len(script.events) + 3):
                suffix = await store.read_from("s", seq)
                assert suffix.meta.id == "s"
                assert dicts(list(suffix.events)) == dicts(script.events[seq:])
            assert await read_raw(harness, "s") == before

    async def test_read_from_is_limited(self, harness: Harness) -> None:
        """A limit gives the first events of the suffix, also across batches and chunk runs (R3)."""
        script = LogScript()
        async with opened(await harness.open()) as store:
            await store.create(header("s"))
            for _ in range(3):
                first = len(script.events)
                script.turn()
                await store.append("s", script.events[first:])
            for seq, limit in [(0, 1), (3, 3), (4, 2), (len(script.events) - 2, 10), (5, 0)]:
                suffix = await store.read_from("s", seq, limit)
                assert dicts(list(suffix.events)) == dicts(script.events[seq : seq + limit])

    @pytest.mark.parametrize("seq", [-1, 1.5, "0", True], ids=repr)
    async def test_read_from_needs_a_seq(self, harness: Harness, seq: Any) -> None:
        """A seq that is negative or no integer is the caller's mistake (R3)."""
        async with opened(await harness.open()) as store:
            await store_one(store, "s", LogScript().turn())
            with pytest.raises(UsageError):
                await store.read_from("s", seq)

    async def test_tail_gives_the_last_events(self, harness: Harness) -> None:
        """The last n events, or all of a shorter log (R3)."""
        script = LogScript().turn(calls=["c1"]).turn()
        async with opened(await harness.open()) as store:
            await store_one(store, "s", script)
            for count in (1, 3, len(script.events), len(script.events) + 5):
                page = await store.tail("s", count)
                assert dicts(list(page.events)) == dicts(script.events[-count:])

    async def test_iter_events_yields_the_stored_log(self, harness: Harness) -> None:
        """Iteration yields each stored event once, from any seq (R3)."""
        script = LogScript().turn(calls=["c1"]).turn()
        async with opened(await harness.open()) as store:
            await store_one(store, "s", script)
            for seq in (0, 4, len(script.events)):
                found = [event async for event in store.iter_events("s", seq)]
                assert dicts(found) == dicts(script.events[seq:])

    async def test_follow_goes_on_with_what_is_appended(self, harness: Harness) -> None:
        """A follower sees stored events, then each later batch, from another store too (R3)."""
        script = LogScript().turn()
        half = len(script.events)
        script.turn()
        async with opened(await harness.open()) as writer, opened(await harness.open()) as reader:
            await writer.create(header("s"))
            await writer.append("s", script.events[:half])
            following = cast(Any, reader.follow("s", 2))
            seen = [await anext(following) for _ in range(half - 2)]
            later = asyncio.ensure_future(anext(following))
            await writer.append("s", script.events[half:])
            seen.append(await later)
            seen += [await anext(following) for _ in range(len(script.events) - half - 1)]
            await following.aclose()
            assert dicts(seen) == dicts(script.events[2:])

    async def test_list_shows_every_stored_session(self, harness: Harness) -> None:
        """Each stored session is listed once with its header and a status (B4)."""
        async with opened(await harness.open()) as store:
            await store_one(store, "whole", LogScript().turn())
            await store_one(store, "open", LogScript().turn().start().step().user())
            await store.create(header("nowhere", cwd=None))
            await store.append("nowhere", LogScript().turn().events)
            await store.create(header("never-used"))
        async with opened(await harness.open()) as store:
            found = {entry.session_id: entry async for entry in store.list()}
            assert set(found) == {"whole", "open", "nowhere"}
            assert {i: e.status for i, e in found.items()} == {
                "whole": "ok",
                "open": "interrupted",
                "nowhere": "ok",
            }
            assert all(e.meta is not None and e.meta.id == i and e.size > 0 for i, e in found.items())

    async def test_list_is_paged_in_a_stable_order(self, harness: Harness) -> None:
        """Pages made with `after` and `limit` join to the whole list (B4)."""
        ids = [f"s{n:02d}" for n in range(7)] + ["a/b", "Z"]
        async with opened(await harness.open()) as store:
            for session_id in ids:
                await store_one(store, session_id, LogScript().turn())
            whole = await stored_ids(store)
            assert sorted(cast("list[str]", whole)) == sorted(ids)
            pages: list[str | None] = []
            after: str | None = None
            for _ in range(10):
                page = [entry.session_id async for entry in store.list(after=after, limit=2)]
                if not page:
                    break
                assert len(page) <= 2
                pages += page
                after = page[-1]
            assert pages == whole

    async def test_listing_an_empty_store_yields_nothing(self, harness: Harness) -> None:
        """A store that was never written to is empty, and stays unwritten (B4, R3)."""
        async with opened(await harness.open()) as store:
            assert await stored_ids(store) == []

    @needs(Capability.REVISIONS)
    async def test_revisions_follow_the_log(self, harness: Harness) -> None:
        """The same log has the same revision, a longer one has another (B4, CO9)."""
        script = LogScript().turn()
        half = len(script.events)
        script.turn()
        async with opened(await harness.open()) as store:
            await store.create(header("s"))
            await store.append("s", script.events[:half])
            revisions = [[e.revision async for e in store.list()] for _ in range(2)]
            assert revisions[0] == revisions[1]
            assert revisions[0][0] is not None
            await store.append("s", script.events[half:])
            assert [e.revision async for e in store.list()] != revisions[0]

    async def test_reading_never_writes(self, harness: Harness) -> None:
        """No reader changes one stored byte, of a whole log or an interrupted one (R3)."""
        async with opened(await harness.open()) as store:
            await store_one(store, "whole", LogScript().turn())
            await store_one(store, "open", LogScript().turn().start().step().assistant(calls=["c1"]))
        async with opened(await harness.open()) as reader:
            for session_id in ("whole", "open"):
                before = await read_raw(harness, session_id)
                await read_everything(reader, session_id)
                assert await read_raw(harness, session_id) == before
        assert await read_raw(harness, "open") == before

    @needs(Capability.TORN_TAIL)
    async def test_reading_a_torn_log_never_writes(self, harness: Harness) -> None:
        """A torn tail is left where it is by every reader, and never returned (R3, R2)."""
        script = LogScript().turn()
        store = await harness.open()
        await store_one(store, "s", script)
        await harness.crash(store)
        await harness.tear("s", LogScript(len(script.events), turn=1).turn().events)
        before = await read_raw(harness, "s")
        async with opened(await harness.open()) as reader:
            await read_everything(reader, "s")
            found = dicts(list((await reader.read_from("s", 0)).events))
            assert found[: len(script.events)] == dicts(script.events)
        assert await read_raw(harness, "s") == before

    async def test_readers_do_not_wait_for_a_writer(self, harness: Harness) -> None:
        """A store that has the session open for writing does not keep another from reading (W1, R3)."""
        script = LogScript().turn()
        async with opened(await harness.open()) as writer, opened(await harness.open()) as reader:
            await store_one(writer, "s", script)
            await read_everything(reader, "s")
            assert dicts(list((await reader.inspect("s")).events)) == dicts(script.events)
            assert dicts(list((await reader.load("s")).events)) == dicts(script.events)

    async def test_inspections_are_snapshots(self, harness: Harness) -> None:
        """What load and inspect returned does not grow with the log (R3, CC8)."""
        script = LogScript().turn()
        half = len(script.events)
        script.turn()
        async with opened(await harness.open()) as store:
            await store.create(header("s"))
            await store.append("s", script.events[:half])
            views = [await store.inspect("s"), await store.load("s")]
            await store.append("s", script.events[half:])
            for view in views:
                assert dicts(list(view.events)) == dicts(script.events[:half])

    async def test_a_cancelled_reader_stops_with_its_reason(self, harness: Harness) -> None:
        """A cancelled reader stops at once, and the store goes on (R3, CO7, JL23, Z17)."""
        async with opened(await harness.open()) as store:
            await store_one(store, "s", LogScript().turn())
            readers: list[Callable[[], Any]] = [
                lambda: store.inspect("s"),
                lambda: store.load("s"),
                lambda: store.read_from("s", 0),
                lambda: store.tail("s", 1),
                lambda: stored_ids(store),
            ]
            for reader in readers:
                for steps in range(3):
                    task = asyncio.ensure_future(reader())
                    for _ in range(steps):
                        await asyncio.sleep(0)
                    if task.done():
                        continue
                    task.cancel("the user went away")
                    with pytest.raises(asyncio.CancelledError) as cancelled:
                        await task
                    assert cancelled.value.args in ((), ("the user went away",))
                await reader()

    @needs(Capability.DAMAGE)
    async def test_damage_is_a_located_error(self, harness: Harness) -> None:
        """Bad bytes before a valid event are refused with their place; nothing is cut (R2)."""
        script = LogScript().turn()
        half = len(script.events)
        script.turn()
        store = await harness.open()
        await store.create(header("s"))
        await store.append("s", script.events[:half])
        await store.append("s", script.events[half:])
        await harness.crash(store)
        await harness.damage("s")
        before = await read_raw(harness, "s")
        async with opened(await harness.open()) as reader:
            for call in (reader.inspect, reader.load, reader.prepare):
                with pytest.raises(CorruptLogError) as found:
                    await call("s")
                assert found.value.session_id == "s"
                assert found.value.line is not None or found.value.offset is not None
            with pytest.raises(CorruptLogError):
                await reader.append("s", LogScript(len(script.events), turn=2).turn().events)
        assert await read_raw(harness, "s") == before

    @needs(Capability.DAMAGE)
    async def test_one_bad_entry_hides_no_other(self, harness: Harness) -> None:
        """Listing yields the good sessions beside a damaged one (B4)."""
        async with opened(await harness.open()) as store:
            for session_id in ("a", "b", "c"):
                await store_one(store, session_id, LogScript().turn().turn())
        await harness.damage("b")
        async with opened(await harness.open()) as store:
            found = await statuses(store)
            assert {"a", "c"} <= set(found)
            assert found["a"] == found["c"] == "ok"
            assert len(found) == 3
