"""Contract of `SessionPersistence`, part three: interrupted turns, torn tails, other formats, preparing.

Owns tests only. They use the service and the harness's out-of-band access, nothing of any backend.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from turnlog.errors import (
    LogError,
    SessionBusyError,
    UnexpectedSeqError,
    UnsupportedFormatError,
)
from turnlog.persistence.service import SessionInspection
from turnlog.testing.capabilities import Capability
from turnlog.testing.harness import Harness, RawSession, opened, read_raw
from turnlog.testing.persistence_read import statuses, store_one
from turnlog.testing.scripts import EPOCH_MS, LogScript, dicts, types
from turnlog.testing.suite import ContractSuite, needs

PLANTED_HEADER: dict[str, Any] = {
    "type": "session",
    "version": 0,
    "id": "s",
    "createdAt": EPOCH_MS,
    "cwd": "/srv/app",
    "delegationDepth": 0,
}


def interrupted(*, started: bool) -> LogScript:
    """Script a log that stops inside a step with one tool call that was, or was not, started."""
    script = LogScript().turn().start().step().user().assistant(calls=["c1"])
    return script.call("c1") if started else script


def event(seq: int, type: str, data: Any, **envelope: Any) -> dict[str, Any]:
    """Make the dictionary of one stored event."""
    return {"type": type, "seq": seq, "time": EPOCH_MS + seq, "data": data, **envelope}


class RepairContract(ContractSuite, abstract=True):
    """What becomes of a log whose writer died, and of logs that turnlog did not write."""

    async def test_an_interrupted_turn_is_kept_and_closed(self, harness: Harness) -> None:
        """Load closes an open turn with exactly its closers and changes nothing before them (R1, CO3)."""
        script = LogScript().turn().start().step().user()
        store = await harness.open()
        await store_one(store, "s", script)
        await harness.crash(store)
        async with opened(await harness.open()) as after:
            loaded = list((await after.load("s")).events)
            assert dicts(loaded[: len(script.events)]) == dicts(script.events)
            assert types(loaded[len(script.events) :]) == ["step/end", "turn/end"]
            assert loaded[-1].data == {"turn": 2, "reason": {"kind": "interrupted"}}
            assert all(e.time == script.events[-1].time for e in loaded[len(script.events) :])

    async def test_a_second_repair_adds_nothing(self, harness: Harness) -> None:
        """Once repaired, a log stays as it is, in this store and in the next one (R1, L1, CO3)."""
        store = await harness.open()
        await store_one(store, "s", interrupted(started=True))
        await harness.crash(store)
        async with opened(await harness.open()) as after:
            first = dicts(list((await after.load("s")).events))
            stored = await read_raw(harness, "s")
            assert dicts(list((await after.load("s")).events)) == first
        async with opened(await harness.open()) as again:
            assert dicts(list((await again.load("s")).events)) == first
            assert (await again.inspect("s")).closers == ()
        now = await read_raw(harness, "s")
        assert now is not None
        assert stored is not None
        assert now.log == stored.log

    async def test_a_repair_survives_a_crash(self, harness: Harness) -> None:
        """What load returned is durable, and the old bytes are a prefix of the new ones (R1, D2, L1)."""
        store = await harness.open()
        await store_one(store, "s", interrupted(started=True))
        await harness.crash(store)
        before = await read_raw(harness, "s")
        second = await harness.open()
        loaded = dicts(list((await second.load("s")).events))
        await harness.crash(second)
        after = await read_raw(harness, "s")
        assert before is not None
        assert after is not None
        assert after.extends(before)
        async with opened(await harness.open()) as third:
            assert dicts(list((await third.inspect("s")).events)) == loaded

    async def test_a_call_that_was_not_started_may_be_retried(self, harness: Harness) -> None:
        """A requested call without a start is answered as not started (R1, CO4)."""
        store = await harness.open()
        await store_one(store, "s", interrupted(started=False))
        await harness.crash(store)
        async with opened(await harness.open()) as after:
            closers = (await after.inspect("s")).closers
            assert types(closers) == ["tool/result", "step/end", "turn/end"]
            assert closers[0].data["error"]["code"] == "TOOL_NOT_STARTED"
            assert closers[0].source_event_seqs is None

    async def test_a_started_call_has_an_unknown_outcome(self, harness: Harness) -> None:
        """A started call without a result is answered as of unknown outcome, naming the call (R1, CO5)."""
        script = interrupted(started=True)
        store = await harness.open()
        await store_one(store, "s", script)
        await harness.crash(store)
        async with opened(await harness.open()) as after:
            closers = (await after.inspect("s")).closers
            assert closers[0].data["error"]["code"] == "TOOL_OUTCOME_UNKNOWN"
            assert tuple(closers[0].source_event_seqs or ()) == (script.events[-1].seq,)

    async def test_inspect_shows_what_load_will_store(self, harness: Harness) -> None:
        """Inspecting and loading give the same log; only load writes it (R1, R3)."""
        store = await harness.open()
        await store_one(store, "s", interrupted(started=True))
        await harness.crash(store)
        before = await read_raw(harness, "s")
        async with opened(await harness.open()) as after:
            shown = dicts(list((await after.inspect("s")).events))
            assert await read_raw(harness, "s") == before
            assert dicts(list((await after.load("s")).events)) == shown
        now = await read_raw(harness, "s")
        assert before is not None
        assert now is not None
        assert now.log != before.log

    async def test_append_repairs_first(self, harness: Harness) -> None:
        """Appending to an interrupted log goes on after its closers, nowhere else (R1, B3)."""
        script = interrupted(started=True)
        store = await harness.open()
        await store_one(store, "s", script)
        await harness.crash(store)
        end = len(script.events)
        async with opened(await harness.open()) as after:
            with pytest.raises(UnexpectedSeqError) as wrong:
                await after.append("s", LogScript(end, turn=2).turn().events)
            assert wrong.value.expected == end + 3
            await after.append("s", LogScript(end + 3, turn=2).turn().events)
            found = list((await after.load("s")).events)
            assert [e.seq for e in found] == list(range(len(found)))
            assert types(found[end : end + 4]) == ["tool/result", "step/end", "turn/end", "turn/start"]

    async def test_prepare_gives_a_session_that_continues(self, harness: Harness) -> None:
        """A prepared session holds the repaired log and one end-of-seed mark, not yet stored (R1, CC14)."""
        script = interrupted(started=True)
        store = await harness.open()
        await store_one(store, "s", script)
        await harness.crash(store)
        async with opened(await harness.open()) as after:
            async with await after.prepare("s") as prepared:
                events = list(prepared.session.events)
                assert types(events[-2:]) == ["turn/end", "session/end-seed"]
                assert prepared.session.first_live_seq == len(events) - 1
                assert dicts(list(prepared.inspection.events)) == dicts(events[:-1])
                stored = await after.read_from("s", 0)
                assert dicts(list(stored.events)) == dicts(events[:-1])
            assert dicts(list((await after.load("s")).events)) == dicts(events[:-1])

    async def test_a_prepared_session_is_reserved(self, harness: Harness) -> None:
        """Nobody appends to a session while it is reserved; afterwards it is free again (W1, PE29)."""
        script = LogScript().turn()
        more = LogScript(len(script.events), turn=1).turn().events
        async with opened(await harness.open()) as store:
            await store_one(store, "s", script)
            async with await store.prepare("s"):
                before = await read_raw(harness, "s")
                with pytest.raises(SessionBusyError):
                    await store.append("s", more)
                now = await read_raw(harness, "s")
                assert now is not None
                assert before is not None
                assert now.log == before.log
            await store.append("s", more)

    @needs(Capability.TORN_TAIL)
    async def test_a_torn_tail_is_cut_and_the_turn_closed(self, harness: Harness) -> None:
        """A torn write loses nothing acknowledged; one load cuts, closes and makes it durable (R2, CC40)."""
        script = LogScript().turn().start().step().user()
        end = len(script.events)
        lost = LogScript(end, prefix="lost", turn=2, step=1).chunks("a", "b").assistant().events
        store = await harness.open()
        await store_one(store, "s", script)
        await harness.crash(store)
        await harness.tear("s", lost)
        async with opened(await harness.open()) as after:
            assert (await statuses(after))["s"] == "torn"
            view = await after.inspect("s")
            assert view.torn is not None
            shown = list(view.events)
            assert dicts(shown[:end]) == dicts(script.events)
            kept = len(shown) - end - len(view.closers)
            assert 0 <= kept <= len(lost)
            assert dicts(shown[end : end + kept]) == dicts(lost[:kept])
            assert types(shown[-2:]) == ["step/end", "turn/end"]
            assert dicts(list((await after.load("s")).events)) == dicts(shown)
            await after.append("s", LogScript(len(shown), turn=2).turn().events)
        second = await harness.open()
        again = await second.inspect("s")
        assert again.torn is None
        assert dicts(list(again.events)[: len(shown)]) == dicts(shown)
        await harness.crash(second)

    @needs(Capability.TORN_TAIL)
    async def test_torn_bytes_are_kept(self, harness: Harness) -> None:
        """What a repair cuts is found beside the log afterwards, byte for byte (L1)."""
        script = LogScript().turn()
        store = await harness.open()
        await store_one(store, "s", script)
        await harness.crash(store)
        clean = await read_raw(harness, "s")
        await harness.tear("s", LogScript(len(script.events), turn=1).turn().events)
        torn = await read_raw(harness, "s")
        assert clean is not None
        assert torn is not None
        async with opened(await harness.open()) as after:
            await after.load("s")
        now = await read_raw(harness, "s")
        assert now is not None
        assert now.extends(clean)
        assert isinstance(torn.log, bytes)
        assert isinstance(now.log, bytes)
        kept = [part for part in now.beside.values() if part and torn.log.endswith(part)]
        assert kept
        assert now.log.startswith(torn.log[: len(torn.log) - len(kept[0])])

    @needs(Capability.TORN_TAIL)
    async def test_a_repaired_torn_log_is_whole_after_a_crash(self, harness: Harness) -> None:
        """A repaired torn log is whole after a crash right behind the repair (L1, R1)."""
        script = LogScript().turn().start().step().user()
        store = await harness.open()
        await store_one(store, "s", script)
        await harness.crash(store)
        await harness.tear("s", LogScript(len(script.events), turn=2, step=1).assistant().events)
        second = await harness.open()
        loaded = dicts(list((await second.load("s")).events))
        await harness.crash(second)
        async with opened(await harness.open()) as third:
            view = await third.inspect("s")
            assert dicts(list(view.events)) == loaded
            assert (view.torn, view.closers) == (None, ())

    @needs(Capability.TORN_TAIL)
    async def test_a_crash_during_a_repair_loses_nothing(self, harness: Harness) -> None:
        """Whenever a repair is killed, the next reader sees the same log (L1, R1)."""
        for moment in range(16):
            session_id = f"s{moment}"
            script = LogScript().turn().start().step().user()
            store = await harness.open()
            await store_one(store, session_id, script)
            await harness.crash(store)
            lost = LogScript(len(script.events), turn=2, step=1).chunks("a", "b").assistant().events
            await harness.tear(session_id, lost)
            before = await read_raw(harness, session_id)
            second = await harness.open()
            shown = dicts((await second.inspect(session_id)).events)
            task = asyncio.ensure_future(second.load(session_id))
            await self._let_it_run(harness, session_id, before, task, moment)
            await harness.crash(second)
            task.cancel()
            await asyncio.wait({task}, timeout=0.01)
            async with opened(await harness.open()) as third:
                assert dicts((await third.inspect(session_id)).events) == shown
                assert dicts((await third.load(session_id)).events) == shown
                assert (await third.inspect(session_id)).torn is None

    async def _let_it_run(
        self,
        harness: Harness,
        session_id: str,
        before: RawSession | None,
        task: asyncio.Future[SessionInspection],
        moment: int,
    ) -> None:
        """Let a repair run for a few turns of the loop, or until it has changed something a few times."""
        if moment % 2:
            for _ in range(moment * 2):
                await asyncio.sleep(0)
            return
        for _ in range(moment // 2 % 4 + 1):
            while not task.done() and await read_raw(harness, session_id) == before:  # noqa: ASYNC110 - no event
                await asyncio.sleep(0)
            before = await read_raw(harness, session_id)

    @needs(Capability.PLANT)
    @pytest.mark.parametrize(("version", "direction"), [(1, "newer"), (42, "newer"), (-1, "older")])
    async def test_other_format_versions_are_named(
        self, harness: Harness, version: int, direction: str
    ) -> None:
        """Another format version is refused as newer or older and listed so (R2, B4, CC35, CC36)."""
        await harness.plant({**PLANTED_HEADER, "version": version}, dicts(LogScript().turn().events))
        before = await read_raw(harness, "s")
        async with opened(await harness.open()) as store:
            for call in (store.inspect, store.load, store.prepare):
                with pytest.raises(UnsupportedFormatError) as refused:
                    await call("s")
                assert refused.value.direction == direction
                assert refused.value.found == version
            assert "unsupported" in (await statuses(store)).values()
        assert await read_raw(harness, "s") == before

    @needs(Capability.PLANT)
    async def test_unknown_event_types_are_refused_unless_ignorable(self, harness: Harness) -> None:
        """An unknown type stops a load unless it is marked ignorable; then it passes unchanged (L2, CC37)."""
        good = dicts(LogScript().turn().events)
        unknown = event(len(good), "acme/thing", {"x": [1]})
        await harness.plant(PLANTED_HEADER, [*good, unknown])
        await harness.plant({**PLANTED_HEADER, "id": "t"}, [*good, {**unknown, "ignorable": True}])
        async with opened(await harness.open()) as store:
            with pytest.raises(UnsupportedFormatError) as refused:
                await store.load("s")
            assert (refused.value.direction, refused.value.seq) == ("unknown-type", len(good))
            loaded = list((await store.load("t")).events)
            assert loaded[-1].to_dict() == {**unknown, "ignorable": True}

    @needs(Capability.PLANT)
    async def test_logs_from_before_message_ids_are_resumable(self, harness: Harness) -> None:
        """Messages without identity get one in memory; the stored bytes stay (L1, R1, CC9)."""
        old = [
            event(0, "turn/start", {"turn": 1}),
            event(1, "step/start", {"turn": 1, "step": 1}),
            event(2, "user/message", {"content": [], "source": {"kind": "user"}}, surfaceOp="append"),
            event(
                3,
                "assistant/message",
                {"turn": 1, "step": 1, "content": [], "provenance": {"provider": "acme", "model": "a1"}},
                surfaceOp="append",
            ),
            event(4, "step/end", {"turn": 1, "step": 1}),
            event(5, "turn/end", {"turn": 1, "reason": {"kind": "completed"}}),
        ]
        await harness.plant(PLANTED_HEADER, old)
        before = await read_raw(harness, "s")
        async with opened(await harness.open()) as store:
            found = list((await store.inspect("s")).events)
            assert found[2].data["id"] == "legacy-message:s:2"
            assert found[3].data["message"]["source"]["kind"] == "model"
            async with await store.prepare("s") as prepared:
                assert prepared.session.events[2].data["role"] == "user"
        now = await read_raw(harness, "s")
        assert before is not None
        assert now is not None
        assert now.log == before.log

    @needs(Capability.PLANT)
    async def test_logs_from_before_the_react_loop_are_resumable(self, harness: Harness) -> None:
        """Triggers, steering and old turn ends are read as today's events (L1, R1, CC10)."""
        old = [
            event(0, "turn/start", {"turn": 1, "trigger": {"kind": "user"}}),
            event(1, "step/start", {"turn": 1, "step": 1}),
            event(
                2,
                "steering/message",
                {"turn": 1, "content": [{"type": "text", "text": "stop"}], "source": {"kind": "user"}},
                surfaceOp="append",
            ),
            event(3, "step/end", {"turn": 1, "step": 1}),
            event(4, "turn/end", {"turn": 1, "reason": {"kind": "disposed"}}),
        ]
        await harness.plant(PLANTED_HEADER, old)
        async with opened(await harness.open()) as store:
            found = list((await store.load("s")).events)
            assert found[0].data == {"turn": 1}
            assert found[2].type == "user/message"
            assert found[4].data["reason"] == {"kind": "aborted", "reason": {"kind": "disposed"}}
            async with await store.prepare("s") as prepared:
                assert len(prepared.session.events) == len(old) + 1

    @needs(Capability.PLANT)
    @pytest.mark.parametrize(
        "bad",
        [
            event(
                0,
                "user/message",
                {"id": "", "role": "user", "content": [], "source": {"kind": "user"}},
                surfaceOp="append",
            ),
            event(
                0,
                "user/message",
                {"id": "m", "role": "user", "content": [], "source": None},
                surfaceOp="append",
            ),
            event(0, "request/header-delta", {}),
            event(
                0,
                "request/header",
                {"header": {"config": {"provider": "a", "model": "b"}}, "reason": "fallback"},
            ),
            event(0, "mode/set", {"mode": "plan"}),
            {**event(0, "turn/start", {"turn": 1}), "extra": 1},
        ],
        ids=["no-message-id", "no-source", "header-delta", "fallback", "mode-set", "extra-key"],
    )
    async def test_malformed_stored_events_are_refused(self, harness: Harness, bad: dict[str, Any]) -> None:
        """A stored event that no session accepts is refused before anything is returned (L2, CC11)."""
        await harness.plant(PLANTED_HEADER, [bad])
        before = await read_raw(harness, "s")
        async with opened(await harness.open()) as store:
            for call in (store.inspect, store.load, store.prepare):
                with pytest.raises(LogError):
                    await call("s")
        assert await read_raw(harness, "s") == before
