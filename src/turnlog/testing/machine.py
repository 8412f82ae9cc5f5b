"""`PersistenceMachine`: random lives of a store, with crashes, torn tails, failures and takeovers.

Owns the rules and the model: per session the events that were acknowledged, and those that were admitted
but not acknowledged. A subclass gives the harness. Each machine has an event loop of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, precondition, rule

from turnlog.errors import SessionBusyError, TurnlogError, UndurableError, WriterFencedError
from turnlog.persistence.coordinator import PersistenceCoordinator
from turnlog.session.invariants import check_invariants
from turnlog.session.registry import SessionRegistry
from turnlog.session.session import Session
from turnlog.testing.capabilities import Capability
from turnlog.testing.harness import CoordinatorHarness, read_raw
from turnlog.testing.json_strategies import json_objects
from turnlog.testing.log_strategies import bursts, free_events
from turnlog.testing.scripts import LogScript, append_live, dicts, go_live, types
from turnlog.testing.suite import TEST_SECONDS

T = TypeVar("T")

NEVER = 1e9
"""A write window that does not end within an example: only flushes and closings write."""


@dataclass
class ModelSession:
    """What must be true of one session."""

    acknowledged: list[dict[str, Any]] = field(default_factory=list)
    """Events that a flush, an append, a load or an orderly close has acknowledged."""
    admitted: list[dict[str, Any]] = field(default_factory=list)
    """Events after those that were admitted; a crash may keep a prefix of them."""


class PersistenceMachine(RuleBasedStateMachine):
    """Drives one store, and a second one for takeovers, over one medium.

    Attributes:
        make_harness: Returns a harness over a fresh medium; given by the subclass.
        capabilities: As in the contract suites.
    """

    make_harness: ClassVar[Callable[[], CoordinatorHarness]]
    capabilities: ClassVar[frozenset[Capability]]

    sessions = Bundle("sessions")

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.harness = type(self).make_harness()
        self.model: dict[str, ModelSession] = {}
        self.live: dict[str, Session] = {}
        self.number = 0

    def run_async(self, main: Coroutine[Any, Any, T]) -> T:
        """Run one rule's body in the machine's loop, and fail when it hangs."""

        async def bounded() -> T:
            async with asyncio.timeout(TEST_SECONDS):
                return await main

        return self.runner.run(bounded())

    # -- life of the store ----------------------------------------------------------------------

    @initialize()
    def open_first(self) -> None:
        """Open the store for the first time."""
        self.run_async(self._open())

    async def _open(self) -> None:
        self.registry = SessionRegistry(Session)
        self.store: PersistenceCoordinator = await self.harness.open(
            registry=self.registry, write_window=NEVER
        )
        self.live = {}

    @rule()
    def reopen(self) -> None:
        """Close the store in order and open it again: everything admitted is acknowledged."""

        async def body() -> None:
            self.harness.faults(self.store).heal()
            await self.store.aclose()
            for session_id, session in self.live.items():
                self.model[session_id] = ModelSession(dicts(session.events))
            await self._open()
            await self._check_all()

        self.run_async(body())

    @rule()
    def crash(self) -> None:
        """Kill the process and start it again: what was acknowledged is there, then a prefix of the rest."""
        self.run_async(self._crash_and_open())

    async def _crash_and_open(self) -> None:
        for session_id, session in self.live.items():
            entry = self.model[session_id]
            entry.admitted = dicts(session.events)[len(entry.acknowledged) :]
        await self.harness.crash(self.store)
        await self._open()
        for session_id in list(self.model):
            await self._recover(session_id)

    async def _recover(self, session_id: str) -> None:
        """Check one session after a crash and take what was found as acknowledged."""
        entry = self.model[session_id]
        found = await self._stored(session_id)
        known = len(entry.acknowledged)
        assert found[:known] == entry.acknowledged
        rest = found[known:]
        assert rest == entry.admitted[: len(rest)]
        if not found and await read_raw(self.harness, session_id) is None:
            del self.model[session_id]
            return
        view = await self.store.inspect(session_id)
        shown = dicts(view.events)
        assert shown[: len(found)] == found
        self.model[session_id] = ModelSession(found)
        if not view.closers and view.torn is None:
            assert shown == found

    # -- sessions -------------------------------------------------------------------------------

    @rule(target=sessions)
    def create(self) -> str:
        """Create a live session."""
        self.number += 1
        session_id = f"s{self.number}"

        async def body() -> None:
            self.live[session_id] = go_live(self.registry, session_id)
            self.model[session_id] = ModelSession()

        self.run_async(body())
        return session_id

    @rule(session_id=sessions, calls=st.integers(0, 2))
    def whole_turn(self, session_id: str, calls: int) -> None:
        """Append a whole turn to a live session that is between turns."""

        def body(session: Session) -> None:
            if session.open_turn is None:
                names = [f"c{session.seq}-{n}" for n in range(calls)]
                script = LogScript(session.seq, turn=session.next_turn - 1).turn(calls=names)
                append_live(session, script.events)

        self._with_live(session_id, body)

    @rule(session_id=sessions, parts=bursts(), is_asking=st.booleans())
    def stream(self, session_id: str, parts: list[dict[str, Any]], is_asking: bool) -> None:
        """Open what is not open and stream a burst of chunks, perhaps up to an unanswered call."""

        def body(session: Session) -> None:
            if session.open_turn is None:
                session.append("turn/start", {"turn": session.next_turn})
            turn = session.open_turn
            assert turn is not None
            if session.open_step is None:
                session.append("step/start", {"turn": turn, "step": session.next_step})
            step = session.open_step
            assert step is not None
            if session.pending_calls:
                return
            for chunk in parts:
                session.append_chunk(turn, step, chunk)
            if is_asking:
                script = LogScript(session.seq, turn=turn, step=step)
                append_live(session, script.assistant(calls=[call := f"c{session.seq}"]).call(call).events)

        self._with_live(session_id, body)

    @rule(session_id=sessions)
    def finish_turn(self, session_id: str) -> None:
        """Answer every call and close what is open."""

        def body(session: Session) -> None:
            if session.open_turn is None:
                return
            script = LogScript(session.seq, turn=session.open_turn, step=session.open_step or 0)
            for call in session.pending_calls:
                script.result(call)
            if session.open_step is not None:
                script.end_step()
            append_live(session, script.end().events)

        self._with_live(session_id, body)

    @rule(session_id=sessions, data=json_objects())
    def side_event(self, session_id: str, data: dict[str, Any]) -> None:
        """Append an event that belongs to no turn, with any payload."""
        self._with_live(session_id, lambda session: session.append("feedback/record", data))

    @rule(session_id=sessions, failing=st.sampled_from([None, None, "before", "after"]))
    def flush(self, session_id: str, failing: str | None) -> None:
        """Flush a live session, perhaps with one failing write in between."""

        async def body() -> None:
            session = self.live.get(session_id)
            if session is None:
                return
            faults = self.harness.faults(self.store)
            if failing is not None and self.store.undurable(session) is not None:
                faults.fail("append_batch", when=failing)  # type: ignore[arg-type]  # drawn from its literals
                with contextlib.suppress(UndurableError):  # a flush that overlapped the failure retries
                    await self.store.flush(session)
                faults.heal()
            await self.store.flush(session)
            self.model[session_id] = ModelSession(dicts(session.events))

        self.run_async(body())

    @rule(session_id=sessions)
    def dispose(self, session_id: str) -> None:
        """Take a live session away; its queue is written first."""

        async def body() -> None:
            session = self.live.pop(session_id, None)
            if session is None:
                return
            self.registry.detach(session)
            expected = dicts(session.events)
            if not expected:
                await self.store.aclose()
                await self._reopen_after_close()
                del self.model[session_id]
                return
            assert await self._stored(session_id) == expected
            self.model[session_id] = ModelSession(expected)

        self.run_async(body())

    async def _reopen_after_close(self) -> None:
        """Open again; the sessions that were live have been stored by the close."""
        for session_id, session in self.live.items():
            self.model[session_id] = ModelSession(dicts(session.events))
        await self._open()

    @rule(session_id=sessions)
    def resume(self, session_id: str) -> None:
        """Prepare and publish a stored session: acknowledged events, closers, one end-of-seed mark."""

        async def body() -> None:
            if not self._is_stored_only(session_id):
                return
            before = self.model[session_id].acknowledged
            async with await self.store.prepare(session_id) as prepared:
                events = dicts(prepared.session.events)
                assert events[: len(before)] == before
                assert types(events)[-1] == "session/end-seed"
                self.registry.enter(prepared.session)
                self.registry.announce(prepared.session)
            self.live[session_id] = prepared.session
            self.model[session_id] = ModelSession(dicts(prepared.inspection.events))

        self.run_async(body())

    @rule(session_id=sessions, target=sessions)
    def fork(self, session_id: str) -> str:
        """Fork a live session that is between turns."""
        self.number += 1
        child_id = f"s{self.number}"

        async def body() -> None:
            source = self.live.get(session_id)
            if source is None or source.open_turn is not None:
                return
            self.live[child_id] = self.registry.fork(source, child_id=child_id)
            self.model[child_id] = ModelSession()

        self.run_async(body())
        return child_id

    @rule(session_id=sessions, data=st.data())
    def append_stored(self, session_id: str, data: st.DataObject) -> None:
        """Append to a session that is only stored; it is repaired first."""

        async def body() -> None:
            if not self._is_stored_only(session_id):
                return
            loaded = dicts((await self.store.load(session_id)).events)
            assert loaded[: len(self.model[session_id].acknowledged)] == self.model[session_id].acknowledged
            more = data.draw(free_events(first_seq=len(loaded), max_size=4))
            await self.store.append(session_id, more)
            self.model[session_id] = ModelSession([*loaded, *dicts(more)])

        self.run_async(body())

    @rule(session_id=sessions)
    def load_twice(self, session_id: str) -> None:
        """Load a stored session twice: what was inspected is stored, and the second repair adds nothing."""

        async def body() -> None:
            if not self._is_stored_only(session_id):
                return
            before = await read_raw(self.harness, session_id)
            shown = dicts((await self.store.inspect(session_id)).events)
            assert await read_raw(self.harness, session_id) == before
            assert dicts((await self.store.load(session_id)).events) == shown
            once = await read_raw(self.harness, session_id)
            again = await self.store.load(session_id)
            assert dicts(again.events) == shown
            assert (again.closers, again.torn) == ((), None)
            twice = await read_raw(self.harness, session_id)
            assert once is not None
            assert twice is not None
            assert once.log == twice.log
            assert "turn/start" not in types(shown)[_last(shown, "turn/end") + 1 :]
            self.model[session_id] = ModelSession(shown)

        self.run_async(body())

    @precondition(lambda self: Capability.TORN_TAIL in self.capabilities)
    @rule(session_id=sessions, data=st.data())
    def crash_in_a_write(self, session_id: str, data: st.DataObject) -> None:
        """Crash and leave a torn tail behind one session's acknowledged events."""

        async def body() -> None:
            await self._crash_and_open()
            entry = self.model.get(session_id)
            if entry is None or not entry.acknowledged:
                return
            view = await self.store.inspect(session_id)
            if view.torn is not None:
                return
            lost = data.draw(free_events(first_seq=len(entry.acknowledged), max_size=6))
            await self.harness.crash(self.store)
            await self.harness.tear(session_id, lost)
            entry.admitted = dicts(lost)
            await self._open()
            before = await read_raw(self.harness, session_id)
            shown = dicts((await self.store.inspect(session_id)).events)
            assert await read_raw(self.harness, session_id) == before
            known = len(entry.acknowledged)
            assert shown[:known] == entry.acknowledged

        self.run_async(body())

    @precondition(lambda self: Capability.CLAIMS in self.capabilities)
    @rule(session_id=sessions)
    def takeover(self, session_id: str) -> None:
        """Another process takes a live session over; the old writer is fenced and gets its events back."""

        async def body() -> None:
            session = self.live.get(session_id)
            if session is None:
                return
            self.harness.faults(self.store).heal()
            session.append("feedback/record", {"text": "before"})
            await self.store.flush(session)
            acknowledged = dicts(session.events)
            session.append("feedback/record", {"text": "late"})
            pending = dicts(session.events)[len(acknowledged) :]
            other = await self.harness.open()
            with pytest.raises(SessionBusyError):
                await other.prepare(session_id)
            async with await other.prepare(session_id, takeover=True) as prepared:
                theirs = dicts(prepared.inspection.events)
            await other.aclose()
            assert theirs[: len(acknowledged)] == acknowledged
            with pytest.raises(WriterFencedError) as fenced:
                await self.store.flush(session)
            assert dicts(fenced.value.pending) == pending
            self.model[session_id] = ModelSession(theirs)
            del self.live[session_id]
            await self._abandon_store()

        self.run_async(body())

    async def _abandon_store(self) -> None:
        """Drop the process that has a fenced session; the others' admitted events may be lost."""
        await self._crash_and_open()

    @precondition(lambda self: Capability.DELETE in self.capabilities)
    @rule(session_id=sessions)
    def delete(self, session_id: str) -> None:
        """Erase a stored session."""

        async def body() -> None:
            if not self._is_stored_only(session_id):
                return
            await self.store.delete(session_id)
            assert await read_raw(self.harness, session_id) is None
            del self.model[session_id]

        self.run_async(body())

    # -- what always holds ----------------------------------------------------------------------

    @invariant()
    def acknowledged_events_are_there(self) -> None:
        """Every acknowledged event is stored at its place, seqs are dense, and reading changed nothing."""
        if hasattr(self, "store"):
            self.run_async(self._check_all())

    async def _check_all(self) -> None:
        for session_id, entry in self.model.items():
            if not entry.acknowledged:
                continue
            before = await read_raw(self.harness, session_id)
            found = await self._stored(session_id)
            assert [event["seq"] for event in found] == list(range(len(found)))
            assert found[: len(entry.acknowledged)] == entry.acknowledged
            await self.store.inspect(session_id)
            assert await read_raw(self.harness, session_id) == before
        listed = {e.session_id async for e in self.store.list()}
        assert {i for i, entry in self.model.items() if entry.acknowledged} <= listed

    def teardown(self) -> None:
        """Close the loop; what is still open is dropped as by a crash."""

        async def body() -> None:
            if hasattr(self, "store"):
                await self.harness.crash(self.store)

        self.run_async(body())
        self.runner.close()

    # -- parts ----------------------------------------------------------------------------------

    def _is_stored_only(self, session_id: str) -> bool:
        entry = self.model.get(session_id)
        return entry is not None and bool(entry.acknowledged) and session_id not in self.live

    def _with_live(self, session_id: str, change: Callable[[Session], object]) -> None:
        async def body() -> None:
            session = self.live.get(session_id)
            if session is not None:
                change(session)
                assert check_invariants(session.events) == []

        self.run_async(body())

    async def _stored(self, session_id: str) -> list[dict[str, Any]]:
        """Return what the store has, without repair; empty when nothing is stored."""
        try:
            return dicts((await self.store.read_from(session_id, 0)).events)
        except TurnlogError as error:
            if error.code != "session-not-found":
                raise
            return []


def _last(events: list[dict[str, Any]], type: str) -> int:
    """Return the index of the last event of a type, -1 when there is none."""
    return max((n for n, event in enumerate(events) if event["type"] == type), default=-1)
