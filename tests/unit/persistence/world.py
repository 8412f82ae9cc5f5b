"""One medium in memory with any number of stores on it: what the tests of the coordinator's parts share."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from tests.contract.memory_harness import MemoryHarness
from turnlog.events.envelope import SessionEvent
from turnlog.events.header import header_line
from turnlog.persistence.coordinator import PersistenceCoordinator
from turnlog.session.registry import SessionRegistry
from turnlog.session.session import Session
from turnlog.testing.faulty_backend import FaultyBackend
from turnlog.testing.scripts import LogScript, header

NEVER = 3600.0
"""A write window that no test lives to see end."""


class World(MemoryHarness):
    """A medium; every `store` is one more process on it. `close` closes what is still open."""

    def __init__(self) -> None:
        super().__init__()
        self._opened: list[PersistenceCoordinator] = []

    def store(
        self,
        registry: SessionRegistry[Session] | None = None,
        *,
        without: Sequence[str] = (),
        **options: Any,
    ) -> tuple[PersistenceCoordinator, FaultyBackend]:
        """Open a store over a backend that lacks the hooks in `without`."""
        faults = FaultyBackend(self.make_backend())
        for hook in without:
            setattr(faults, hook, None)
        live: SessionRegistry[Session] = registry if registry is not None else SessionRegistry(Session)
        store = PersistenceCoordinator(faults, live, **{"write_window": NEVER, **options})
        self._faults[id(store)] = faults
        self._opened.append(store)
        return store, faults

    async def keep(self, session_id: str, events: Sequence[SessionEvent], **fields: Any) -> None:
        """Store a log by a store that is closed again."""
        store, _ = self.store()
        await store.create(header(session_id, **fields))
        await store.append(session_id, events)
        await store.aclose()

    async def put(self, session_id: str, *events: Mapping[str, Any], **fields: Any) -> None:
        """Store events that a store would refuse, behind its back."""
        await self.plant(json.loads(header_line(header(session_id, **fields))), list(events))

    async def close(self) -> None:
        """Close every store that a test has left open; the tests say what closing must report."""
        for store in self._opened:
            try:
                await store.aclose()
            except ExceptionGroup:
                continue


def interrupted() -> list[SessionEvent]:
    """Return a log whose second turn was interrupted while a call waited to be recorded."""
    return list(LogScript().turn().start().step().assistant(calls=["c1"]).events)


def publish(registry: SessionRegistry[Session], session: Session) -> Session:
    """Make a prepared session live."""
    registry.enter(session)
    registry.announce(session)
    return session


def is_idle(store: PersistenceCoordinator) -> bool:
    """Tell whether none of the maps of a store holds anything."""
    books = store._books
    held = (
        books.chains,
        books.claims,
        books.pool,
        books.cursors,
        books.lives,
        books.latest,
        books.current,
        books.owners,
        books.retirements,
        books.waits,
    )
    return not any(len(map_) for map_ in held)
