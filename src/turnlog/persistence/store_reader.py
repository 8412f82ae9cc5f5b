"""The reading half of a store: inspect, suffixes, listing. Nothing here writes, locks or cleans up (R3).

Owns `SessionInfo` and the filters of a listing; what is read, and how, is the coordinator's business.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, get_args

from turnlog.errors import UsageError, quote
from turnlog.persistence.backend import Status

if TYPE_CHECKING:
    from turnlog.events.batch import Damage, StoredFrame
    from turnlog.events.envelope import SessionEvent
    from turnlog.events.header import SessionHeader
    from turnlog.persistence.backend import LogSummary, StoredEntry
    from turnlog.persistence.coordinator import PersistenceCoordinator
    from turnlog.persistence.live_session import LiveSession
    from turnlog.persistence.service import SessionInspection, StoredSuffix
    from turnlog.session.registry import SessionRegistry


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """One stored session as `list` shows it (B4)."""

    session_id: str | None
    """The id, or None when the entry does not even tell that."""
    header: SessionHeader | None
    """The header, or None when it cannot be read."""
    status: Status
    """What the header, the claim and the end of the log say."""
    revision: str | None
    """Opaque; equal revisions are equal logs. None when unknown."""
    summary: LogSummary | None
    """Turns, steps, title and last time as its writer left them, or None when missing or stale."""
    size: int
    """Stored bytes."""
    last_write: int | None
    """Unix milliseconds, or None when unknown."""
    path: str | None
    """The artifact's path for people, or None."""
    problem: str | None
    """One sentence on what is wrong, or None."""


class StoreReader:
    """What can be asked of a store; the base of `SessionStore`."""

    def __init__(self, coordinator: PersistenceCoordinator, registry: SessionRegistry[LiveSession]) -> None:
        """Put the reading half together.

        Args:
            coordinator: Over the backend, on the same registry.
            registry: The live sessions.
        """
        self._coordinator = coordinator
        self._registry = registry

    async def inspect(self, session_id: str) -> SessionInspection:
        """Return header and events as a repair would leave them; never writes (R3).

        Args:
            session_id: A stored or live session.

        Returns:
            A frozen view; closers of an interrupted turn are in it and named apart.

        Raises:
            SessionNotFoundError: Neither stored nor live.
            CorruptLogError: The log is damaged (R2).
            UnsupportedFormatError: Another format version, or an unknown required event type.
            BackendError: The medium failed.
            UsageError: The store is closed.
        """
        return await self._coordinator.inspect(session_id)

    async def read_from(self, session_id: str, seq: int, limit: int | None = None) -> StoredSuffix:
        """Read stored events from `seq` on; no torn tail, no closers (R3).

        Args:
            session_id: A stored session.
            seq: First seq, inclusive; beyond the end nothing is returned.
            limit: At most this many events, or all.

        Returns:
            Header and events.

        Raises:
            UsageError: `seq` or `limit` is negative, or the store is closed.
            SessionNotFoundError: Nothing is stored under the id.
            CorruptLogError: As `inspect`; so are `UnsupportedFormatError` and `BackendError`.
        """
        return await self._coordinator.read_from(session_id, seq, limit)

    async def tail(self, session_id: str, n: int) -> StoredSuffix:
        """Read the last `n` stored events, in time independent of the length where the backend can.

        Raises:
            TurnlogError: As `read_from`.
        """
        return await self._coordinator.tail(session_id, n)

    def iter_events(self, session_id: str, seq: int = 0) -> AsyncIterator[SessionEvent]:
        """Yield stored events from `seq` on in flat memory, up to the end as it is when it is reached.

        Raises:
            TurnlogError: As `read_from`.
        """
        return self._coordinator.iter_events(session_id, seq)

    def follow(self, session_id: str, seq: int = 0) -> AsyncIterator[SessionEvent]:
        """Yield stored events from `seq` on and go on as they become durable, also in other processes.

        Args:
            session_id: A stored session.
            seq: First seq, inclusive; a negative one counts from the end.

        Raises:
            TurnlogError: As `read_from`.
        """
        return self._coordinator.follow(session_id, seq)

    def scan(self, session_id: str) -> AsyncIterator[StoredFrame | Damage]:
        """Yield what can be read of a stored log and what cannot, in order; for damaged logs (R2, R3).

        Raises:
            UsageError: The backend cannot scan, or the store is closed.
            BackendError: The medium failed.
        """
        return self._coordinator.scan(session_id)

    async def list(
        self,
        *,
        cwd: str | os.PathLike[str] | None = None,
        status: Status | None = None,
        after: str | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[SessionInfo]:
        """Yield stored sessions, one bad entry never hiding another (B4, R3).

        Args:
            cwd: Only sessions of this working directory.
            status: Only sessions of this status.
            after: Only sessions after this id in the store's own stable order, exclusive: the last id of the
                page before.
            limit: At most this many, or all.

        Yields:
            What the header, the claim and the end of each log say.

        Raises:
            UsageError: The limit is negative, the status is none, or the store is closed.
            BackendError: The store as a whole cannot be read.
        """
        if status is not None and status not in get_args(Status):
            raise UsageError(
                f"{quote(status)} is no status; a status is one of {', '.join(get_args(Status))}"
            )
        if limit is not None and limit < 0:
            raise UsageError(f"a limit of {limit} makes no sense; give 0 or more, or None for all")
        folder = None if cwd is None else os.fspath(cwd)
        left = limit
        async for entry in self._coordinator.list(after, limit if cwd is status is None else None):
            if left == 0:
                return
            if status is not None and entry.status != status:
                continue
            if folder is not None and (entry.meta is None or entry.meta.cwd != folder):
                continue
            yield _info(entry)
            if left is not None:
                left -= 1

    def locate(self, header: SessionHeader) -> str | None:
        """Return where a session's artifact is or would be, for people; no I/O.

        Args:
            header: The session's header.

        Returns:
            A path, or None where the backend has none.
        """
        return self._coordinator.locate(header)


def _info(entry: StoredEntry) -> SessionInfo:
    return SessionInfo(
        session_id=entry.session_id,
        header=entry.meta,
        status=entry.status,
        revision=entry.revision,
        summary=entry.summary,
        size=entry.size,
        last_write=entry.last_write,
        path=entry.path,
        problem=entry.problem,
    )
