"""Writing the rows of one log into a store as they are: what copy and salvage put their rows with.

Owns taking up where an earlier try has stopped: what is stored already must be the beginning of what comes,
and a torn end of it is cut. Rows are neither made nor read here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from turnlog.errors import SessionBusyError, SessionCollisionError, SessionExistsError, UsageError
from turnlog.events.batch import EncodedBatch
from turnlog.events.header import header_line
from turnlog.events.log import EventLog, same_events
from turnlog.persistence.reading import check_header
from turnlog.persistence.summaries import RowSummary

if TYPE_CHECKING:
    from types import TracebackType

    from turnlog.events.header import SessionHeader
    from turnlog.persistence.books import Books


class Carrier:
    """One log of a store that rows are carried into; holds its claim for the length of an `async with`.

    Args:
        books: The target's state.
        meta: The header of the log; a stored one must be equal.
        resume: Whether a log that is stored already may be continued.
    """

    def __init__(self, books: Books, meta: SessionHeader, *, resume: bool) -> None:
        self._books = books
        self._meta = meta
        self._resume = resume
        self._held = EventLog()
        self._torn: object | None = None
        self._stored = False
        self._summary = RowSummary()
        self.next_seq = 0
        """Seq of the next event that is due, those that were found stored included."""
        self.appended = 0
        """Events written so far."""

    async def __aenter__(self) -> Self:
        self._books.check_open()
        await self._books.retired(self._meta.id)
        await self._books.run(self._meta.id, self._begin)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._books.run(self._meta.id, lambda: self._books.release_claim(self._meta.id))

    async def _begin(self) -> None:
        books, session_id = self._books, self._meta.id
        books.refuse_owned(session_id)
        if books.pool.is_held(session_id):
            raise books.busy(session_id)
        if books.cursors.created(session_id) is not None:
            raise SessionExistsError(session_id=session_id, where="memory")
        books.cursors.drop(session_id)
        books.pool.drop(session_id)
        self._stored = await books.hooks.exists(session_id)
        if self._stored and not self._resume:
            raise SessionExistsError(session_id=session_id, where="storage")
        try:
            await books.claims.take(session_id, meta=None if self._stored else self._meta)
            if self._stored:
                await self._take_up()
        except BaseException:
            await books.release_claim(session_id)
            raise

    async def _take_up(self) -> None:
        """Read what is stored; whether it is the beginning of what comes is seen as that comes."""
        stored = await self._books.hooks.load(self._meta.id)
        if stored is None:
            raise SessionBusyError(session_id=self._meta.id)  # deleted in between
        check_header(self._meta.id, stored.meta, None)
        if header_line(stored.meta) != header_line(self._meta):
            raise self._collision("the stored header is another one")
        self._held, self._torn = stored.events, stored.torn_marker

    async def put(self, batch: EncodedBatch) -> None:
        """Write a batch that continues the log, or find that it is stored.

        Args:
            batch: Begins at `next_seq`.

        Raises:
            SessionCollisionError: Other events are stored there; nothing was written.
            BackendError: The medium failed; a new carrier takes up what is stored.
            WriterFencedError: Another writer has taken the log over.
        """
        assert batch.first_seq == self.next_seq
        for row in batch.rows:
            self._summary.add(row)
        end = self._held.next_seq
        rest: EncodedBatch | None = batch
        if batch.first_seq < end:
            rest = self._compare(batch, min(end, batch.last_seq + 1))
        if rest is not None:
            await self._books.run(self._meta.id, lambda: self._append(rest))
            self.appended += len(rest)
        self.next_seq = batch.last_seq + 1

    def _compare(self, batch: EncodedBatch, end: int) -> EncodedBatch | None:
        """Hold a batch to what is stored up to `end` (exclusive), and return what goes beyond it."""
        coming = EventLog(first_seq=batch.first_seq)
        coming.extend_rows(batch.rows)
        stored = EventLog(first_seq=batch.first_seq)
        stored.extend_rows(self._held.rows_from(batch.first_seq))
        if not same_events(stored.snapshot(end), coming.snapshot(end)):
            raise self._collision(f"other events are stored from seq {batch.first_seq} on")
        if end > batch.last_seq:
            return None
        return EncodedBatch(end, batch.last_seq, coming.rows_from(end))

    async def finish(self) -> None:
        """Settle what no batch has: a header without events, a torn end behind the last row.

        Raises:
            SessionCollisionError: More is stored than has come.
            UsageError: There is no event, and the backend cannot store a header alone.
            TurnlogError: As `put`.
        """
        if self._held.next_seq > self.next_seq:
            raise self._collision(f"it is longer there, up to seq {self._held.next_seq - 1}")
        await self._books.run(self._meta.id, self._finish)

    async def _finish(self) -> None:
        await self._cut()
        if self._stored:
            return
        hooks = self._books.hooks
        if not hooks.has_header_only:
            raise UsageError(f"the {hooks.name} backend cannot store a session without events")
        await hooks.materialize_header(self._meta, claim=self._books.claims.get(self._meta.id))

    async def _append(self, batch: EncodedBatch) -> None:
        await self._cut()
        try:
            await self._books.hooks.append(
                self._meta,
                batch,
                is_materialized=self._stored,
                claim=self._books.claims.get(self._meta.id),
                summary=self._summary.now(),
            )
        finally:
            self._books.pool.drop(self._meta.id)
        self._stored = True

    async def _cut(self) -> None:
        """Commit the repair of a torn end, without closers: the log is not interrupted, its copy is."""
        if self._torn is not None:
            claim = self._books.claims.get(self._meta.id)
            await self._books.hooks.repair(self._meta, self._torn, (), claim=claim)
            self._torn = None

    def _collision(self, reason: str) -> SessionCollisionError:
        advice = "keep one of the two, or take another store"
        return SessionCollisionError(session_id=self._meta.id, reason=reason, advice=advice)
