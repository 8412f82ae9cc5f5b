"""The rows of one stored log in order, as batches to be written elsewhere; flat memory while the log is good.

Owns the way from a scan to a whole log and the fall back to a load, which alone judges what is torn and what
is damaged (R2). Nothing is written.
"""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING, Final

from turnlog.errors import SessionNotFoundError
from turnlog.events.batch import Damage, EncodedBatch
from turnlog.events.log import EventLog
from turnlog.persistence.reading import describe_torn

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from turnlog.events.batch import StoredFrame
    from turnlog.events.chunk_runs import Row
    from turnlog.persistence.backend import StoredPrefix
    from turnlog.persistence.books import Books

BATCH_BYTES: Final = 1 << 20
"""Bytes of rows in one batch; a row larger than that is a batch of its own."""


class _IrregularError(Exception):
    """A scan came to something that only a load can judge."""


class StoredRows:
    """The stored rows of one log: no torn tail, nothing recovered from one, no closers.

    Args:
        books: The store.
        session_id: The session.
    """

    def __init__(self, books: Books, session_id: str) -> None:
        self._books = books
        self._session_id = session_id
        self._pending: list[Row] = []
        self._pending_bytes = 0
        self._next_seq = 0
        self.torn_bytes = 0
        """Bytes of an unfinished write at the end; known when all batches were taken."""

    async def batches(self) -> AsyncGenerator[EncodedBatch, None]:
        """Yield the rows, dense from 0, as much at a time as is to be written together.

        Raises:
            CorruptLogError: The log is damaged; what comes before the damage may have been yielded.
            SessionNotFoundError: It is gone.
            BackendError: The medium failed.
        """
        try:
            async with aclosing(self._scanned()) as rows:
                async for row in rows:
                    if (batch := self._with(row)) is not None:
                        yield batch
        except _IrregularError:
            for row in await self._loaded():
                if (batch := self._with(row)) is not None:
                    yield batch
        if self._pending:
            yield self._cut()

    def _with(self, row: Row) -> EncodedBatch | None:
        """Take one row; return a batch when there is enough for one."""
        self._pending.append(row)
        self._pending_bytes += len(row.line) + 1
        self._next_seq = row.last_seq + 1
        return self._cut() if self._pending_bytes >= BATCH_BYTES else None

    def _cut(self) -> EncodedBatch:
        batch = EncodedBatch(self._pending[0].first_seq, self._pending[-1].last_seq, self._pending)
        self._pending, self._pending_bytes = [], 0
        return batch

    async def _scanned(self) -> AsyncGenerator[Row, None]:
        """Yield rows as they lie; those at the last position only when it is certain that it is not torn."""
        if not self._books.hooks.has_scan:
            raise _IrregularError
        held: list[StoredFrame] = []
        expected = 0
        async with aclosing(self._books.hooks.scan(self._session_id)) as pieces:
            async for piece in pieces:
                if isinstance(piece, Damage) or piece.first_seq != expected:
                    raise _IrregularError
                expected = piece.last_seq + 1
                if held and held[0].position != piece.position:
                    for frame in held:
                        for row in frame.rows:
                            yield row
                    held = []
                held.append(piece)
        for frame in held:
            for row in frame.rows:
                yield row

    async def _loaded(self) -> list[Row]:
        """Return the rows that were not yielded yet, from a read that tells torn from damaged."""
        stored = await self._books.hooks.load(self._session_id)
        if stored is None:
            raise SessionNotFoundError(session_id=self._session_id)
        if stored.torn_marker is not None:
            self.torn_bytes = describe_torn(stored.torn_marker).size or 0
        return durable_part(stored).rows_from(self._next_seq)


def durable_part(stored: StoredPrefix) -> EventLog:
    """Return what is stored for good of a log; what a torn tail gave back is not.

    Args:
        stored: A whole log.
    """
    recovered = None if stored.torn_marker is None else describe_torn(stored.torn_marker).recovered_events
    return stored.events.snapshot(stored.events.next_seq - (recovered or 0))
