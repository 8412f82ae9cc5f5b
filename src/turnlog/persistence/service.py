"""`SessionPersistence`: what a store of session logs can do, and the values it answers with.

Owns the service API and its data types. `PersistenceCoordinator` implements it over any backend; a
third party may implement it directly. It holds no state and imports no backend.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from types import TracebackType

    from turnlog.events.envelope import SessionEvent
    from turnlog.events.header import SessionHeader
    from turnlog.events.log import EventLog
    from turnlog.persistence.backend import StoredEntry
    from turnlog.session.session import Session


@dataclass(frozen=True, slots=True)
class TornTail:
    """What is known about a torn tail (R2); a backend that tells nothing leaves all three None.

    Attributes:
        offset: Byte offset at which the log is cut by a repair.
        size: Bytes from there to the end.
        recovered_events: Whole events that the tail still gave up; the repair appends them again.
    """

    offset: int | None = None
    size: int | None = None
    recovered_events: int | None = None


@dataclass(frozen=True, slots=True)
class SessionInspection:
    """One session as a reader sees it; nothing was written to make it (R3).

    Attributes:
        meta: The header.
        events: A frozen view of the events, the closers of an interrupted turn included.
        closers: The events at the end of `events` that are not stored; a repair appends exactly these.
        torn: What is known about a torn tail, or None when the end is clean.
        live: Whether this process is writing the session; then a turn may be open and nothing is closed.
    """

    meta: SessionHeader
    events: EventLog
    closers: tuple[SessionEvent, ...] = ()
    torn: TornTail | None = None
    live: bool = False


@dataclass(frozen=True, slots=True)
class StoredSuffix:
    """The stored events from one seq on.

    Attributes:
        meta: The header.
        events: Events with `seq >= events.first_seq`; never a torn tail, never closers.
    """

    meta: SessionHeader
    events: EventLog


@dataclass(frozen=True, slots=True)
class Undurable:
    """The events of a live session that a crash would lose (D1).

    Attributes:
        first_seq: First seq that is not known to be durable.
        end_seq: End of the range, exclusive; the length of the log.
        nbytes: Encoded bytes that wait, counted since the session became live.
        since: Time of the oldest of these events, milliseconds since the epoch.
        error: What the last write failed with, or None while nothing has failed.
    """

    first_seq: int
    end_seq: int
    nbytes: int
    since: int
    error: Exception | None = None

    def __len__(self) -> int:
        return self.end_seq - self.first_seq


class Preparation(ABC):
    """An exclusive reservation of one stored session that is not published yet.

    Entering the session into the registry (`enter`, then `announce`) consumes it. Leaving the block
    without that gives the reservation back.
    """

    @property
    @abstractmethod
    def session(self) -> Session:
        """The unpublished session; repeated preparations of an unchanged log give the same object."""

    @property
    @abstractmethod
    def inspection(self) -> SessionInspection:
        """The stored log behind the session, repaired, without the end-of-seed event."""

    @abstractmethod
    async def aclose(self) -> None:
        """Give the reservation back, once; does nothing after publication or a second time."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.aclose()


class SessionPersistence(ABC):
    """A store of session logs.

    Cancellation: a cancelled caller stops waiting at once; work that has begun runs to its end, and
    work that still waited for its turn is not begun.
    Concurrency: calls for one id run one at a time, in the order they were made; others in parallel.
    """

    @abstractmethod
    async def create(self, meta: SessionHeader) -> None:
        """Reserve an id in memory; nothing is stored before the first append (B1).

        Args:
            meta: The header that the session will be stored with.

        Raises:
            SessionExistsError: The id is in use in this process or in the store.
            InvalidSessionIdError: The id cannot name a stored session (S1).
            UnsupportedFormatError: The header has a version that this release does not write.
            BackendError: The store could not be asked; the id is still free.
        """

    @abstractmethod
    def append(
        self, session_id: str, events: Iterable[SessionEvent | Mapping[str, Any]]
    ) -> Coroutine[Any, Any, None]:
        """Append events to a session that is not live, all or none, and wait until they are durable.

        The batch is taken as it is at the time of the call, not of the first await. A session that is
        only stored is repaired first; `seq` then goes on after the closers. Repeating a batch whose
        outcome was unknown is safe (B3).

        Args:
            session_id: A created or stored session.
            events: Events or their dictionaries, dense from the next free seq. Empty does nothing.

        Raises:
            InvalidEventError: An event could not be loaded again (L2); nothing was stored.
            UnexpectedSeqError: The first seq that does not follow, with its index; nothing was stored.
            SessionNotFoundError: Neither created nor stored.
            SessionBusyError: Live or reserved here, or claimed by another writer (W1).
            CorruptLogError: The stored log is damaged.
            BackendError: The medium failed; the outcome is unknown unless `.wrote_nothing`.
        """

    @abstractmethod
    async def prepare(self, session_id: str, *, takeover: bool = False) -> Preparation:
        """Reserve a stored session for resuming; pending repair is committed first (R1, W1).

        Waits while somebody else holds the reservation.

        Args:
            session_id: A stored session.
            takeover: Take the claim away from another writer, who is fenced from then on.

        Raises:
            SessionNotFoundError: Nothing is stored under the id.
            SessionBusyError: Live here, or claimed by another writer.
            CorruptLogError: The log is damaged, or holds events that no session accepts.
            UnsupportedFormatError: Another format version, or an unknown required event type.
            BackendError: The medium failed.
        """

    @abstractmethod
    async def load(self, session_id: str, *, takeover: bool = False) -> SessionInspection:
        """Return the balanced log after committing a pending repair; takes no claim otherwise (W1).

        A live session is flushed and returned as it is, if no turn is open.

        Args:
            session_id: A stored or live session.
            takeover: As in `prepare`; matters only if there is something to repair.

        Raises:
            SessionNotFoundError: Not stored, or live without any event.
            SessionBusyError: Live with an open turn, or another writer holds the log to repair.
            CorruptLogError: As in `prepare`; so are `UnsupportedFormatError` and `BackendError`.
        """

    @abstractmethod
    async def inspect(self, session_id: str) -> SessionInspection:
        """Return the balanced log without writing, locking or publishing anything (R3).

        Args:
            session_id: A stored or live session.

        Raises:
            SessionNotFoundError: Neither stored nor live.
            CorruptLogError: As in `prepare`; so are `UnsupportedFormatError` and `BackendError`.
        """

    @abstractmethod
    async def read_from(self, session_id: str, seq: int, limit: int | None = None) -> StoredSuffix:
        """Read stored events from `seq` on; detached and uncached (R3).

        Args:
            session_id: A stored session, live or not; events that are not durable are not returned.
            seq: First seq, inclusive. Beyond the end nothing is returned.
            limit: At most this many events, or all.

        Raises:
            UsageError: `seq` or `limit` is negative or not an integer.
            SessionNotFoundError: Nothing is stored under the id.
            CorruptLogError: As in `prepare`; so are `UnsupportedFormatError` and `BackendError`.
        """

    @abstractmethod
    async def tail(self, session_id: str, n: int) -> StoredSuffix:
        """Read the last `n` stored events. Raises like `read_from`."""

    @abstractmethod
    def iter_events(self, session_id: str, seq: int = 0) -> AsyncIterator[SessionEvent]:
        """Yield stored events from `seq` on, in flat memory if the backend reads suffixes.

        Ends at the end of the log as it is when it is reached. Raises like `read_from`.
        """

    @abstractmethod
    def follow(self, session_id: str, seq: int = 0) -> AsyncIterator[SessionEvent]:
        """Yield stored events from `seq` on and go on as they become durable, also in other processes.

        A negative `seq` counts from the end. Never ends by itself. Raises like `read_from`.
        """

    @abstractmethod
    def list(self, after: str | None = None, limit: int | None = None) -> AsyncIterator[StoredEntry]:
        """Yield every stored session with a status, one bad entry never hiding another (B4).

        Args:
            after: Only sessions after this id in the backend's stable order, exclusive.
            limit: At most this many, or all.

        Raises:
            BackendError: The store as a whole cannot be read.
        """

    @abstractmethod
    async def ensure_materialized(self, session_id: str) -> None:
        """Store a created or live session that has no events yet; does nothing for a stored one (B1).

        Raises:
            UsageError: The backend cannot store a session without events.
            SessionNotFoundError: Neither created, live nor stored.
            BackendError: The medium failed.
        """

    @abstractmethod
    async def delete(self, session_id: str, *, takeover: bool = False) -> None:
        """Erase one session, damaged ones too, or forget a created one.

        Raises:
            UsageError: The backend cannot delete.
            SessionNotFoundError: Neither created nor stored.
            SessionBusyError: Live or reserved here, or claimed by another writer (W1).
            BackendError: The medium failed.
        """

    @abstractmethod
    def locate(self, meta: SessionHeader) -> str | None:
        """Return where the session's artifact is or would be, for people; no I/O."""

    @abstractmethod
    async def flush(self, session: Session) -> None:
        """Wait until every event admitted before the call is durable (D2).

        Args:
            session: A live session of this store.

        Raises:
            UsageError: The session is not live here.
            UndurableError: The medium failed; everything is kept in order and written again.
            WriterFencedError: Another writer took the session over; `.pending` are the lost events.
            SessionCollisionError: The id belongs to another stored session; so does `SessionExistsError`.
            SessionBusyError: Another writer holds the session.
        """

    @abstractmethod
    async def drain(self, session: Session) -> None:
        """Wait until the pending queue has room for what was last refused (D4). Raises like `flush`."""

    @abstractmethod
    async def aclose(self) -> None:
        """Flush every live session, wait for everything that runs, release everything.

        Raises:
            ExceptionGroup: Everything that failed, named after the backend.
        """
