"""What a contract suite is given by whoever runs it: open, crash, and access behind the backend's back.

Owns the harness interfaces and the check that out-of-band access really is out of band. It knows no
backend. All methods are coroutines; the pytest fixture that returns the harness is a plain one.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

from turnlog.events.envelope import SessionEvent
from turnlog.persistence.backend import PersistenceBackend
from turnlog.persistence.coordinator import PersistenceCoordinator
from turnlog.persistence.service import SessionPersistence
from turnlog.session.registry import SessionRegistry
from turnlog.session.session import Session
from turnlog.testing.faulty_backend import FaultyBackend


@dataclass(frozen=True)
class RawSession:
    """One session as the medium holds it, read without the backend."""

    log: bytes | tuple[bytes, ...]
    """The append-only part: the bytes of a file, or the rows of a database in order."""
    beside: Mapping[str, bytes] = field(default_factory=dict)
    """Everything else stored for the session by name: locks, summaries, quarantined bytes."""

    def extends(self, earlier: RawSession) -> bool:
        """Tell whether this log begins with everything that `earlier` holds (L1)."""
        if isinstance(self.log, bytes) and isinstance(earlier.log, bytes):
            return self.log.startswith(earlier.log)
        return tuple(self.log[: len(earlier.log)]) == tuple(earlier.log)


class Harness(ABC):
    """One medium that lives as long as one test.

    `open` may be called again at any time: it stands for a further process on the same medium. The last
    three methods belong to capabilities and may be left out when those are not declared.
    """

    @abstractmethod
    async def open(self) -> SessionPersistence:
        """Open a new store over the medium, as a process that starts would."""

    @abstractmethod
    async def crash(self, store: Any) -> None:
        """Kill the process that `store` stands for: nothing more is written, its claims are dead.

        With `POWER_LOSS` also drop everything that was not synced.
        """

    @abstractmethod
    async def raw(self, session_id: str) -> RawSession | None:
        """Read one session from the medium without using the backend; None when nothing is stored."""

    async def tear(self, session_id: str, events: Sequence[SessionEvent]) -> None:
        """Leave what a crash inside the unacknowledged write of `events` leaves (`TORN_TAIL`).

        The log must end in bytes that have to be cut; whole events before them may be readable.
        """
        raise NotImplementedError

    async def damage(self, session_id: str) -> None:
        """Spoil stored bytes in the middle of a log, so that valid events follow them (`DAMAGE`)."""
        raise NotImplementedError

    async def plant(self, header: Mapping[str, Any], events: Sequence[Mapping[str, Any]]) -> None:
        """Store a header and events that turnlog itself might refuse to write (`PLANT`)."""
        raise NotImplementedError


StoreT = TypeVar("StoreT", bound=SessionPersistence)


class CoordinatorHarness(Harness):
    """A harness of a backend that runs under `PersistenceCoordinator`.

    Each store gets a `FaultyBackend` around its backend, by which the suite fails, hangs and counts.
    A subclass gives `make_backend`, `crash_backend` and `raw`.
    """

    def __init__(self) -> None:
        self._faults: dict[int, FaultyBackend] = {}

    @abstractmethod
    def make_backend(self) -> PersistenceBackend:
        """Return a new backend over the same medium."""

    @abstractmethod
    async def crash_backend(self, backend: PersistenceBackend) -> None:
        """Do to the medium what the death of the backend's process does. No hook is running."""

    async def open(
        self, *, registry: SessionRegistry[Session] | None = None, **options: Any
    ) -> PersistenceCoordinator:
        """Open a coordinator over a new backend.

        Args:
            registry: The registry of live sessions; a new, empty one by default.
            options: Handed to `PersistenceCoordinator`.
        """
        faults = FaultyBackend(self.make_backend())
        store = PersistenceCoordinator(
            faults, registry if registry is not None else SessionRegistry(), **options
        )
        self._faults[id(store)] = faults
        return store

    def faults(self, store: PersistenceCoordinator) -> FaultyBackend:
        """Return the wrapper around the backend of one opened store."""
        return self._faults[id(store)]

    async def crash(self, store: Any) -> None:
        """Kill the process that an opened store stands for, in the middle of whatever it does."""
        faults = self._faults[id(store)]
        faults.kill()
        await self.crash_backend(faults.inner)
        store.forget()


@asynccontextmanager
async def opened(store: StoreT) -> AsyncIterator[StoreT]:
    """Close `store` at the end of a block.

    Args:
        store: What a harness opened.

    Yields:
        The same store.
    """
    try:
        yield store
    finally:
        await store.aclose()


async def read_raw(harness: Harness, session_id: str) -> RawSession | None:
    """Read one session out of band and refuse a harness that lets the backend answer for itself.

    Args:
        harness: The harness of the test.
        session_id: The session.

    Returns:
        The stored session, or None.

    Raises:
        AssertionError: `raw` returned something else than plain stored bytes.
    """
    found = await harness.raw(session_id)
    if found is None:
        return None
    assert isinstance(found, RawSession), f"raw() must return a RawSession, not {type(found).__name__}"
    units = (found.log,) if isinstance(found.log, bytes) else tuple(found.log)
    plain = all(type(unit) is bytes for unit in (*units, *found.beside.values()))
    assert plain, "raw() must return stored bytes, never objects of the backend"
    return found
