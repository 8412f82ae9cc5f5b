"""Contract of the coordinator, part three: which live session may own which stored log.

Owns tests only. "Late" means that the store is opened while sessions are live already.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from turnlog.errors import LogError, SessionBusyError, SessionCollisionError, SessionExistsError, TurnlogError
from turnlog.events.envelope import SessionEvent
from turnlog.persistence.coordinator import PersistenceCoordinator
from turnlog.session.registry import SessionRegistry
from turnlog.session.session import Session
from turnlog.testing.capabilities import Capability
from turnlog.testing.coordinator_live import NEVER
from turnlog.testing.harness import CoordinatorHarness, opened, read_raw
from turnlog.testing.scripts import LogScript, append_live, dicts, go_live, header, types
from turnlog.testing.suite import ContractSuite, needs

COLLISION = (SessionCollisionError, SessionExistsError)


async def store_log(
    harness: CoordinatorHarness, events: Sequence[SessionEvent], *, cwd: str | None = "/srv/app"
) -> None:
    """Store one session with the id ``s`` and close the store that did it."""
    async with opened(await harness.open()) as store:
        await store.create(header("s", cwd=cwd))
        await store.append("s", events)


async def refused(store: PersistenceCoordinator, session: Session) -> None:
    """Expect that a live session may not own the stored log of its id."""
    append_live(session, LogScript(turn=session.next_turn - 1).turn("mine").events)
    with pytest.raises(COLLISION):
        await store.flush(session)


class AdoptionContract(ContractSuite, abstract=True):
    """A live session is tied to a stored log only if it really continues it."""

    async def test_opening_late_picks_up_live_sessions(self, harness: CoordinatorHarness) -> None:
        """A store that opens after the sessions stores what they hold and what follows (L1, CC15)."""
        registry = SessionRegistry(Session)
        session = go_live(registry, "s")
        append_live(session, LogScript().turn().events)
        async with opened(await harness.open(registry=registry)) as store:
            await store.flush(session)
            append_live(session, LogScript(turn=1).turn().events)
            await store.flush(session)
            assert dicts((await store.read_from("s", 0)).events) == dicts(session.events)

    async def test_a_reload_adopts_a_live_session(self, harness: CoordinatorHarness) -> None:
        """A store that hands over to another adds no new mark to a live session (L1, CC17, CC18)."""
        registry = SessionRegistry(Session)
        first = await harness.open(registry=registry, write_window=NEVER)
        session = go_live(registry, "s")
        append_live(session, LogScript().turn().events)
        await first.flush(session)
        await first.aclose()
        append_live(session, LogScript(turn=1).turn().events)
        async with opened(await harness.open(registry=registry)) as second:
            await second.flush(session)
            stored = list((await second.read_from("s", 0)).events)
            assert dicts(stored) == dicts(session.events)
            assert "session/end-seed" not in types(stored)

    async def test_adoption_never_closes_an_open_turn(self, harness: CoordinatorHarness) -> None:
        """A live session that is adopted in the middle of a turn keeps the turn open (R1, CC19)."""
        registry = SessionRegistry(Session)
        first = await harness.open(registry=registry)
        session = go_live(registry, "s")
        append_live(session, LogScript().start().step().events)
        await first.flush(session)
        await first.aclose()
        async with opened(await harness.open(registry=registry)) as second:
            append_live(session, LogScript(turn=1, step=1).user().events)
            await second.flush(session)
            assert types(list((await second.read_from("s", 0)).events)) == [
                "turn/start",
                "step/start",
                "user/message",
            ]

    @needs(Capability.TORN_TAIL)
    async def test_adoption_cuts_a_torn_tail_without_closers(self, harness: CoordinatorHarness) -> None:
        """Behind a torn tail the live session is the authority (L1, R2, CC18, CC19)."""
        registry = SessionRegistry(Session)
        first = await harness.open(registry=registry)
        session = go_live(registry, "s")
        append_live(session, LogScript().start().step().events)
        await first.flush(session)
        append_live(session, LogScript(turn=1, step=1).user().chunks("a", "b", "c").events)
        await harness.crash(first)
        await harness.tear("s", list(session.events)[2:])
        async with opened(await harness.open(registry=registry)) as second:
            await second.flush(session)
            assert dicts((await second.read_from("s", 0)).events) == dicts(session.events)

    async def test_a_stranger_may_not_take_a_stored_id(self, harness: CoordinatorHarness) -> None:
        """A new live session with a stored id is refused and the stored log untouched (L1, CC20, CC25)."""
        await store_log(harness, LogScript().turn().events)
        before = await read_raw(harness, "s")
        registry = SessionRegistry(Session)
        store = await harness.open(registry=registry)
        await refused(store, go_live(registry, "s"))
        with pytest.raises(ExceptionGroup):
            await store.aclose()
        now = await read_raw(harness, "s")
        assert before is not None
        assert now is not None
        assert now.log == before.log

    async def test_other_events_may_not_take_a_stored_id(self, harness: CoordinatorHarness) -> None:
        """A seed that differs in one payload is not the stored log (L1, JL80)."""
        await store_log(harness, LogScript().turn("one").events)
        registry = SessionRegistry(Session)
        store = await harness.open(registry=registry)
        await refused(store, go_live(registry, "s", seed=LogScript().turn("two").events))
        with pytest.raises(ExceptionGroup):
            await store.aclose()

    async def test_a_matching_seed_claims_the_stored_log(self, harness: CoordinatorHarness) -> None:
        """A seed that is the stored log is not written again; only the mark is (L1, CC26)."""
        events = LogScript().turn().events
        await store_log(harness, events)
        registry = SessionRegistry(Session)
        async with opened(await harness.open(registry=registry)) as store:
            session = go_live(registry, "s", seed=events)
            await store.flush(session)
            assert harness.faults(store).batches() == ((len(events), len(events)),)
            assert dicts((await store.read_from("s", 0)).events) == dicts(session.events)

    async def test_a_longer_seed_writes_its_suffix(self, harness: CoordinatorHarness) -> None:
        """Of a seed that begins with the stored log only the rest is written (L1, CC27)."""
        script = LogScript().turn()
        half = len(script.events)
        script.turn()
        await store_log(harness, script.events[:half])
        registry = SessionRegistry(Session)
        async with opened(await harness.open(registry=registry)) as store:
            session = go_live(registry, "s", seed=script.events)
            await store.flush(session)
            assert harness.faults(store).batches()[0][0] == half
            assert dicts((await store.read_from("s", 0)).events) == dicts(session.events)

    async def test_a_created_id_is_claimed_with_its_seed(self, harness: CoordinatorHarness) -> None:
        """A created, unused id belongs to the first live session of that place (B1, CC24)."""
        registry = SessionRegistry(Session)
        async with opened(await harness.open(registry=registry)) as store:
            await store.create(header("s"))
            session = go_live(registry, "s", seed=LogScript().turn().events)
            await store.flush(session)
            assert dicts((await store.read_from("s", 0)).events) == dicts(session.events)

    @pytest.mark.parametrize(
        ("stored", "live"), [("/srv/app", "/other"), (None, "/srv/app"), ("/srv/app", None)]
    )
    async def test_another_place_is_another_session(
        self, harness: CoordinatorHarness, stored: str | None, live: str | None
    ) -> None:
        """A session of another working directory may not continue the log (L1, CC28, CC29, CC30, JL79)."""
        events = LogScript().turn().events
        await store_log(harness, events, cwd=stored)
        before = await read_raw(harness, "s")
        registry = SessionRegistry(Session)
        store = await harness.open(registry=registry)
        await refused(store, go_live(registry, "s", cwd=live, seed=events))
        with pytest.raises(ExceptionGroup):
            await store.aclose()
        now = await read_raw(harness, "s")
        assert before is not None
        assert now is not None
        assert now.log == before.log

    async def test_another_place_may_not_claim_a_created_id(self, harness: CoordinatorHarness) -> None:
        """The same holds for an id that was only created (B1, CC28)."""
        registry = SessionRegistry(Session)
        store = await harness.open(registry=registry)
        await store.create(header("s", cwd="/srv/app"))
        await refused(store, go_live(registry, "s", cwd="/other"))
        with pytest.raises(ExceptionGroup):
            await store.aclose()
        assert await read_raw(harness, "s") is None

    async def test_an_abandoned_id_can_be_used_again(self, harness: CoordinatorHarness) -> None:
        """A session that was never stored leaves its id free when it goes (B1, CC21, PE35)."""
        registry = SessionRegistry(Session)
        async with opened(await harness.open(registry=registry)) as store:
            registry.detach(go_live(registry, "s"))
            session = go_live(registry, "s", cwd="/other")
            append_live(session, LogScript().turn().events)
            await store.flush(session)
            assert dicts((await store.read_from("s", 0)).events) == dicts(session.events)

    async def test_a_disposed_id_is_not_a_free_one(self, harness: CoordinatorHarness) -> None:
        """A stranger that takes the id of a disposed, stored session is refused (L1, PE37, JL78)."""
        registry = SessionRegistry(Session)
        store = await harness.open(registry=registry, write_window=NEVER)
        session = go_live(registry, "s")
        append_live(session, LogScript().turn().events)
        expected = dicts(session.events)
        registry.detach(session)
        await refused(store, go_live(registry, "s"))
        with pytest.raises(ExceptionGroup):
            await store.aclose()
        async with opened(await harness.open()) as after:
            assert dicts((await after.read_from("s", 0)).events) == expected

    async def test_a_collision_leaves_other_sessions_alone(self, harness: CoordinatorHarness) -> None:
        """A refused session does not keep another from being stored (L1, JL36)."""
        await store_log(harness, LogScript().turn().events)
        registry = SessionRegistry(Session)
        store = await harness.open(registry=registry)
        stranger = go_live(registry, "s")
        good = go_live(registry, "good")
        append_live(good, LogScript().turn().events)
        await refused(store, stranger)
        await store.flush(good)
        with pytest.raises(ExceptionGroup) as failures:
            await store.aclose()
        assert all(isinstance(e, TurnlogError) for e in failures.value.exceptions)
        async with opened(await harness.open()) as after:
            assert dicts((await after.load("good")).events) == dicts(good.events)

    async def test_a_live_id_is_not_created_or_appended_to(self, harness: CoordinatorHarness) -> None:
        """The public calls do not write behind a live session's back (W1, CC34)."""
        registry = SessionRegistry(Session)
        async with opened(await harness.open(registry=registry)) as store:
            session = go_live(registry, "s")
            append_live(session, LogScript().turn().events)
            await store.flush(session)
            more = LogScript(session.seq, turn=1).turn().events
            with pytest.raises(SessionExistsError):
                await store.create(header("s"))
            with pytest.raises(SessionBusyError):
                await store.append("s", more)
            with pytest.raises(SessionBusyError):
                await store.prepare("s")
            if Capability.DELETE in self.capabilities:
                with pytest.raises(SessionBusyError):
                    await store.delete("s")
            assert dicts((await store.read_from("s", 0)).events) == dicts(session.events)

    @needs(Capability.CLAIMS)
    async def test_adoption_reads_again_under_its_claim(self, harness: CoordinatorHarness) -> None:
        """What another writer appends before the claim is taken is not overlooked (W1, L1, CC20)."""
        events = LogScript().turn().events
        await store_log(harness, events)
        registry = SessionRegistry(Session)
        store = await harness.open(registry=registry)
        gate = harness.faults(store).hang("claim")
        session = go_live(registry, "s", seed=events)
        await gate.entered.wait()
        async with opened(await harness.open()) as other:
            await other.append("s", LogScript(len(events), turn=1).turn("theirs").events)
            expected = dicts((await other.read_from("s", 0)).events)
        gate.release()
        await refused(store, session)
        with pytest.raises(ExceptionGroup):
            await store.aclose()
        async with opened(await harness.open()) as after:
            assert dicts((await after.read_from("s", 0)).events) == expected

    async def test_an_id_that_is_not_drained_is_busy(self, harness: CoordinatorHarness) -> None:
        """While a disposed session's events cannot be written, nobody else takes its id (D2, PE37)."""
        registry = SessionRegistry(Session)
        store = await harness.open(registry=registry, write_window=NEVER)
        faults = harness.faults(store)
        first = go_live(registry, "s")
        append_live(first, LogScript().turn("first").events)
        faults.fail("append_batch", on=None)
        registry.detach(first)
        second = go_live(registry, "s")
        append_live(second, LogScript().turn("second").events)
        with pytest.raises(LogError):
            await store.flush(second)
        faults.heal()
        with pytest.raises(ExceptionGroup):
            await store.aclose()
        async with opened(await harness.open()) as after:
            assert dicts((await after.read_from("s", 0)).events) == dicts(first.events)

    async def test_one_process_has_one_live_session_per_id(self, harness: CoordinatorHarness) -> None:
        """A second live session with the id of a first one is refused, and the first goes on (W1, JL81)."""
        registry = SessionRegistry(Session)
        async with opened(await harness.open(registry=registry)) as store:
            session = go_live(registry, "s")
            append_live(session, LogScript().turn().events)
            with pytest.raises(SessionExistsError):
                go_live(registry, "s")
            await store.flush(session)
            assert dicts((await store.read_from("s", 0)).events) == dicts(session.events)

    async def test_races_for_one_id_have_one_winner(self, harness: CoordinatorHarness) -> None:
        """Of a public create and a live session for one new id, one writes (L1, B3, PE21)."""
        registry = SessionRegistry(Session)
        store = await harness.open(registry=registry)
        session = go_live(registry, "s")
        append_live(session, LogScript().turn().events)
        results = await asyncio.gather(
            store.create(header("s")), store.flush(session), return_exceptions=True
        )
        assert isinstance(results[0], SessionExistsError)
        assert results[1] is None
        assert dicts((await store.read_from("s", 0)).events) == dicts(session.events)
        await store.aclose()
