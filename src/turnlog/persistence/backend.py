"""The storage seam: the hooks a backend offers, and the data types that cross it.

Owns names and contracts only; it holds no orchestration state and does no I/O. The coordinator calls
the hooks, one at a time per session and in parallel across sessions, and never cancels one half-way.
A backend implements `PersistenceBackend` plus any of `OptionalHooks`, and subclasses nothing.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

import msgspec

if TYPE_CHECKING:
    from turnlog.errors import ClaimOwner
    from turnlog.events.batch import Damage, EncodedBatch, StoredFrame
    from turnlog.events.envelope import SessionEvent
    from turnlog.events.header import SessionHeader
    from turnlog.events.log import EventLog

Status: TypeAlias = Literal["live", "ok", "interrupted", "torn", "corrupt", "unsupported", "unknown"]
"""What a listing can say about one stored session from its header, claim and last 64 KiB (B4)."""

REQUIRED_HOOKS: tuple[str, ...] = ("name", "load_stored", "append_batch", "commit_repair", "list")
"""What every backend has; everything in `OptionalHooks` is detected by `supports`."""


class LogSummary(msgspec.Struct, frozen=True, forbid_unknown_fields=False):
    """A small fold of one log, kept by its writer and never authoritative (B4).

    Attributes:
        turns: Number of `turn/start` events.
        steps: Number of `step/start` events.
        title: The latest title, or None.
        last_time: Time of the last event in milliseconds since the epoch, or None for an empty log.
        open_turn: Number of the turn that has no end yet, or None.
    """

    turns: int = 0
    steps: int = 0
    title: str | None = None
    last_time: int | None = None
    open_turn: int | None = None


@dataclass(frozen=True, slots=True)
class StoredPrefix:
    """What one read of a stored log found.

    Attributes:
        meta: The stored header.
        events: The valid events, as rows, what was recovered from a torn tail included;
            `events.first_seq` is 0 except in a suffix read.
        revision: Opaque, compared for equality only; describes exactly the bytes that were read.
        torn_marker: Opaque; not None iff a torn tail has to be cut by `commit_repair` (R2), which
            then appends the recovered events again. Its attributes `offset`, `size` and
            `recovered_events` (a number, or the events) are shown to people where it has them.
    """

    meta: SessionHeader
    events: EventLog
    revision: str | None
    torn_marker: object | None = None


@dataclass(frozen=True, slots=True)
class StoredEntry:
    """One row of `list`: a session with a status, or an entry that cannot be read (B4).

    Attributes:
        session_id: The id, or None when not even the place of the entry tells it.
        meta: The header, or None when it is unreadable or of an unsupported format.
        status: See `Status`.
        revision: As in `StoredPrefix`, or None when unknown.
        size: Stored bytes.
        last_write: Milliseconds since the epoch, or None when unknown.
        summary: The stored summary if it belongs to this revision, else None.
        path: The artifact's path for people, or None.
        problem: One sentence on what is wrong, or None.
    """

    session_id: str | None
    meta: SessionHeader | None
    status: Status
    revision: str | None
    size: int
    last_write: int | None
    summary: LogSummary | None
    path: str | None = None
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class Quarantined:
    """Bytes that a repair has cut off and kept (L1).

    Attributes:
        name: What they are kept as, for people.
        offset: Where in the log they began.
        size: How many there are.
    """

    name: str
    offset: int
    size: int


class PersistenceBackend(Protocol):
    """The hooks every backend has. All are called by the coordinator only."""

    name: str
    """Label in errors and warnings."""

    async def load_stored(self, session_id: str) -> StoredPrefix | None:
        """Read one stored session from any scope; None when it is absent (R3: never writes).

        Args:
            session_id: The id whose segment names the session.

        Returns:
            The header and every valid event up to the end or the torn tail, or None.

        Raises:
            CorruptLogError: A valid event follows bad bytes: damage (R2), caused by the medium.
            UnsupportedFormatError: The log has another format version.
            BackendError: The medium failed; nothing was changed.
        """

    def append_batch(
        self,
        meta: SessionHeader,
        batch: EncodedBatch,
        *,
        is_materialized: bool,
        claim: object | None,
        summary: LogSummary | None,
    ) -> Awaitable[str | None]:
        """Append one batch, all or none; header and first batch become durable together (B1, B2).

        A coroutine function, or a function that begins the write without blocking and returns a future:
        then the coordinator needs no task of its own to wait for it.

        Returns only when the events would survive a kill and a power cut (D2). Seq and claim are
        checked in the same step as the write (W1). Safe to call again with the same batch after an
        unknown outcome: a stored tail that equals the batch as logical events is success (B3).

        Args:
            meta: The session's header; stored if the session is not materialised.
            batch: Contiguous events; `batch.first_seq` is the next free seq.
            is_materialized: Whether the caller believes that the session is stored already.
            claim: What `claim` returned, or None when the backend has no claims.
            summary: The fold up to the end of the batch, or None when the caller has none.

        Returns:
            The new revision if it is cheaply known, else None.

        Raises:
            UnexpectedSeqError: The log is elsewhere and its tail is not this batch; nothing written.
            SessionExistsError: Materialising found a stored session; nothing written.
            SessionBusyError: The claim belongs to another writer; nothing written.
            WriterFencedError: This writer's claim was taken over; nothing written.
            BackendError: The medium failed. The outcome is unknown unless `.wrote_nothing` is true.
        """

    async def commit_repair(
        self,
        meta: SessionHeader,
        torn_marker: object | None,
        closers: Sequence[SessionEvent],
        *,
        claim: object | None,
    ) -> None:
        """Cut the torn tail iff a marker is given, then append the closers, durably (L1).

        A reader after a crash finds the state before or the whole repair.

        Args:
            meta: The stored header.
            torn_marker: What `load_stored` returned; not None iff a tail is to be cut.
            closers: Contiguous events that follow the events that `load_stored` returned, the
                recovered ones included. May be empty.
            claim: As in `append_batch`.

        Raises:
            UnexpectedSeqError: The log has changed since it was read; nothing was written.
            BackendError: The medium failed; the repair is done whole or not yet.
        """

    def list(self, after: str | None = None, limit: int | None = None) -> AsyncIterator[StoredEntry]:
        """Yield stored sessions in a stable order by id segment; never fails for one bad entry (B4).

        Args:
            after: Yield only sessions after this id (exclusive), or from the start.
            limit: Yield at most this many, or all.

        Raises:
            BackendError: The store as a whole cannot be read.
        """


class OptionalHooks(Protocol):
    """Hooks that a backend may leave out; `supports` tells whether it has one."""

    async def read_stored_revision(self, session_id: str) -> str | None:
        """Return the current revision without reading events, or None when absent."""

    async def load_stored_from(self, session_id: str, seq: int, limit: int | None) -> StoredPrefix | None:
        """Read at most `limit` events from `seq` (inclusive) on; a negative `seq` counts from the end.

        `events.first_seq` of the result is the seq the read really began at; it is the end of the log
        when `seq` lies beyond it. Nothing of a torn tail is in it: that is durable only after a repair.
        Raises like `load_stored`, for the part that was read.
        """

    def scan_stored(self, session_id: str) -> AsyncIterator[StoredFrame | Damage]:
        """Yield every readable frame and every damaged place in order; never raises for damage."""

    async def quarantined(self, session_id: str) -> Sequence[Quarantined]:
        """Return what repairs of this session have cut off and kept (L1, R3: never writes)."""

    def watch(self, session_id: str) -> AsyncIterator[None]:
        """Yield whenever the log may have grown, until the iterator is closed."""

    async def materialize_header(self, meta: SessionHeader, *, claim: object | None) -> None:
        """Store a session that has a header and no events.

        Safe to call again after an unknown outcome: an equal header without events is success (B3).
        Raises like `append_batch`.
        """

    async def delete_stored(self, session_id: str, *, claim: object | None) -> None:
        """Erase one session with all its files. Deleting an absent session does nothing."""

    async def erase_remains(self) -> bool:
        """Overwrite what deleted sessions have left beside the live data, such as in a write-ahead log.

        Returns:
            True when nothing is left; False while a reader holds it back, so that it must be tried again.
        """

    async def claim(
        self,
        session_id: str,
        owner: ClaimOwner,
        *,
        meta: SessionHeader | None = None,
        takeover: bool = False,
    ) -> object:
        """Take the write claim of one session (W1).

        Args:
            session_id: The session.
            owner: Facts about this writer, shown to others.
            meta: Given for a session that is not stored yet; its place is derived from it.
            takeover: Take the claim away from a living owner, who is fenced from then on.

        Returns:
            An opaque claim for the write hooks, `renew` and `release`.

        Raises:
            SessionBusyError: Another writer holds the claim; names it.
            SessionNotFoundError: No `meta` is given and nothing is stored.
        """

    async def renew(self, claims: Sequence[object]) -> None:
        """Prolong claims. A lost claim is reported by the next write hook, not here."""

    async def release(self, claim: object) -> None:
        """Give a claim back. Releasing a lost claim does nothing."""

    def locate(self, meta: SessionHeader) -> str | None:
        """Return where the session's artifact is or would be, for people; no I/O."""

    async def aclose(self) -> None:
        """Release everything the backend holds; called once, after the coordinator has drained."""

    def forget(self) -> None:
        """Drop locks, handles and threads in a forked child without writing, flushing or releasing."""


class FullBackend(PersistenceBackend, OptionalHooks, Protocol):
    """A backend with every hook, for callers that have asked `supports` first."""


def supports(backend: object, hook: str) -> bool:
    """Tell whether `backend` offers `hook`: the attribute exists and is not None.

    Args:
        backend: Any backend.
        hook: The name of one hook, as in `OptionalHooks`.

    Returns:
        True if the hook may be called.
    """
    return getattr(backend, hook, None) is not None
