"""Random schedules: live sessions, appenders, readers and takeovers of two stores meet over a few ids.

Nothing here knows what should happen next; what must hold afterwards is checked: what was acknowledged is
stored, every log loads, and no store remembers or holds anything.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pytest

from tests.unit.persistence.world import World, is_idle, publish
from turnlog.errors import BackendError, BackpressureError, LogError, TurnlogError, UsageError
from turnlog.persistence.coordinator import PersistenceCoordinator
from turnlog.persistence.timing import Timing
from turnlog.session.registry import SessionRegistry
from turnlog.session.session import Session
from turnlog.testing.faulty_backend import FaultyBackend
from turnlog.testing.scripts import dicts, header

IDS = ("a", "b", "c")
HOOKS = ("append_batch", "load_stored", "commit_repair", "claim", "release", "read_stored_revision")
EXPECTED = (LogError, BackendError, UsageError)
"""What an actor may be told; anything else is a bug."""


class Slow(FaultyBackend):
    """A backend whose hooks take a random number of turns of the loop and sometimes fail."""

    def __init__(self, inner: Any, dice: random.Random, rate: float) -> None:
        super().__init__(inner)
        self._dice = dice
        self._rate = rate
        self.running: dict[str | None, int] = {}
        self.overlaps = 0

    async def _call(self, hook: str, session_id: str | None, work: Any, **options: Any) -> Any:
        if hook in HOOKS and self._dice.random() < self._rate:
            known = self._dice.random() < 0.5
            error = BackendError(backend="slow", reason=f"dice in {hook}", wrote_nothing=known)
            self.fail(hook, when="before" if known or self._dice.random() < 0.5 else "after", error=error)
        if session_id is not None:
            self.running[session_id] = self.running.get(session_id, 0) + 1
            self.overlaps += self.running[session_id] > 1
        try:
            for _ in range(self._dice.randrange(4)):
                await asyncio.sleep(0)
            return await super()._call(hook, session_id, work, **options)
        finally:
            if session_id is not None:
                self.running[session_id] -= 1


class Town:
    """Two stores over one medium, and what their users have been promised."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.world = World()
        alone = self.dice.random() < 0.2
        self.registries = [SessionRegistry(Session) for _ in range(1 if alone else 2)]
        self.rate = self.dice.choice((0.0, 0.05, 0.2))
        lacking: tuple[tuple[str, ...], ...] = ((), ("read_stored_revision",), ("watch", "load_stored_from"))
        self.without = self.dice.choice(lacking)
        if alone:
            self.without += ("claim", "release", "renew")
        self.backends: list[Slow] = []
        self.opened: list[PersistenceCoordinator] = []
        self.stores = [self.open(registry) for registry in self.registries]
        self.promised: dict[tuple[str, int], dict[str, Any]] = {}

    def open(self, registry: SessionRegistry[Session]) -> PersistenceCoordinator:
        """Open one more store on the medium."""
        backend = Slow(self.world.make_backend(), self.dice, self.rate)
        for hook in self.without:
            setattr(backend, hook, None)
        self.backends.append(backend)
        store = PersistenceCoordinator(
            backend,
            registry,
            write_window=self.dice.choice((0, 0.001)),
            prepared_sessions=self.dice.choice((1, 5)),
            pending_budget=self.dice.choice((600, 1 << 20)),
            timing=Timing(retry_first=0.001, retry_max=0.002, retry_floor=0.001),
        )
        self.opened.append(store)
        return store

    def promise(self, session_id: str, events: list[dict[str, Any]]) -> None:
        """Note events that somebody was told are durable."""
        for event in events:
            self.promised[session_id, event["seq"]] = event

    async def live(self, number: int) -> None:
        """Create or resume a session, append and flush, dispose of it."""
        store, registry = self.stores[number], self.registries[number]
        session_id = self.dice.choice(IDS)
        try:
            if self.dice.random() < 0.5:
                takeover = self.dice.random() < 0.2
                async with await store.prepare(session_id, takeover=takeover) as held:
                    await self._pause()
                    session = publish(registry, held.session)
            else:
                session = registry.create(session_id, header=header(session_id))
        except EXPECTED:
            return
        durable = store.durable_seq(session)
        try:
            for _ in range(self.dice.randrange(1, 5)):
                await self._work(session)
                if self.dice.random() < 0.7:
                    length = session.seq
                    if self.dice.random() < 0.2:
                        hasty = asyncio.ensure_future(store.flush(session))
                        await self._pause()
                        hasty.cancel()
                        await asyncio.wait((hasty,))
                        if not hasty.cancelled():
                            hasty.exception()
                    await store.flush(session)
                    self.promise(session_id, dicts(session.events[durable:length]))
                    durable = length
                if self.dice.random() < 0.1:
                    registry.detach(session)
                    await self._pause()
                    publish(registry, session)
                await self._pause()
            await self.stores[number].ensure_materialized(session_id)
        except EXPECTED:
            pass
        finally:
            seen = store.durable_seq(session)
            self.promise(session_id, dicts(session.events[durable:seen]))
            registry.detach(session)

    async def _work(self, session: Session) -> None:
        turn = session.next_turn
        for type_, data in (
            ("turn/start", {"turn": turn}),
            ("feedback/record", {"text": "x" * self.dice.randrange(300), "by": str(self.dice.random())}),
            ("turn/end", {"turn": turn, "reason": {"kind": "completed"}}),
        ):
            try:
                session.append(type_, data)
            except BackpressureError:
                return
            if self.dice.random() < 0.1:
                return

    async def append(self, number: int) -> None:
        """Append from outside at wherever the log seems to end."""
        store, session_id = self.stores[number], self.dice.choice(IDS)
        try:
            if self.dice.random() < 0.3:
                await store.create(header(session_id))
                seq = 0
            else:
                seq = len((await store.read_from(session_id, 0)).events)
            batch = [
                {"type": "feedback/record", "seq": seq + n, "time": 1, "data": {"n": self.dice.random()}}
                for n in range(self.dice.randrange(1, 4))
            ]
            await store.append(session_id, batch)
        except EXPECTED:
            return
        self.promise(session_id, batch)

    async def read(self, number: int) -> None:
        """Inspect, load, read, list; sometimes leave before the answer."""
        store, session_id = self.stores[number], self.dice.choice(IDS)
        how = self.dice.choice(("inspect", "load", "read", "list", "prepare"))
        try:
            if how == "list":
                _ = [entry async for entry in store.list()]
                return
            call: Any = {
                "inspect": lambda: store.inspect(session_id),
                "load": lambda: store.load(session_id),
                "read": lambda: store.read_from(session_id, 0),
                "prepare": lambda: store.prepare(session_id),
            }[how]
            task = asyncio.ensure_future(call())
            if self.dice.random() < 0.4:
                await self._pause()
                task.cancel()
            answer = await task
            if how == "prepare":
                await self._pause()
                await answer.aclose()
        except EXPECTED:
            return
        except asyncio.CancelledError:
            return

    async def reload(self, number: int) -> None:
        """Replace a store by another one while its sessions are live."""
        if self.dice.random() < 0.7:
            return
        old = self.stores[number]
        if self.dice.random() < 0.5:
            self.stores[number] = self.open(self.registries[number])
        try:
            await old.aclose()
        except* EXPECTED:
            pass
        if self.stores[number] is old:
            self.stores[number] = self.open(self.registries[number])

    async def _pause(self) -> None:
        for _ in range(self.dice.randrange(6)):
            await asyncio.sleep(0)

    async def actor(self) -> None:
        """Do one thing after another."""
        for _ in range(6):
            number = self.dice.randrange(len(self.stores))
            await self.dice.choice((self.live, self.live, self.append, self.read, self.reload))(number)
            await self._pause()

    async def close(self) -> None:
        """Close both stores; what a faulty medium refuses then is told, not lost silently."""
        for backend in self.backends:
            backend._rate = 0.0
            backend.heal()
        for store in self.opened:
            try:
                await store.aclose()
            except* TurnlogError:
                pass


@pytest.mark.parametrize("seed", range(60))
async def test_nothing_acknowledged_is_lost_in_any_order(seed: int) -> None:
    """Whatever meets whatever, promised events are stored, logs load, and nothing is held (D2, W1, PE53)."""
    town = Town(seed)
    await asyncio.wait_for(asyncio.gather(*(town.actor() for _ in range(8))), 20)
    await asyncio.wait_for(town.close(), 20)
    assert all(is_idle(store) for store in town.opened)
    assert sum(backend.overlaps for backend in town.backends) == 0
    assert not town.world.medium.claims
    reader, _ = town.world.store()
    for session_id in IDS:
        promised = {seq: event for (name, seq), event in town.promised.items() if name == session_id}
        if session_id not in town.world.medium.sessions:
            assert not promised
            continue
        stored = {event["seq"]: event for event in dicts((await reader.load(session_id)).events)}
        for seq, event in promised.items():
            assert stored[seq] == event
    await town.world.close()
