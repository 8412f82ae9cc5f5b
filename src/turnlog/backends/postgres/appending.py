"""Writes of sessions: appended, materialised, deleted; and what it means that a statement had no row.

Owns the three write statements' parameters and the judgement of a conflict (B3, W1): stored already, taken
over, or elsewhere. The way to the server is `group_commit`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from turnlog.backends.frame_rows import holds
from turnlog.backends.postgres.group_commit import Write
from turnlog.backends.postgres.reading import ON_THE_LOOP, Reader, SessionRow
from turnlog.backends.row_facts import encode_summary, header_crc
from turnlog.errors import (
    LogError,
    SessionCollisionError,
    SessionExistsError,
    SessionNotFoundError,
    UnexpectedSeqError,
    WriterFencedError,
)
from turnlog.events.batch import EncodedBatch
from turnlog.events.header import header_line, parse_header_line

if TYPE_CHECKING:
    from turnlog.backends.postgres.claiming import PostgresClaim
    from turnlog.backends.postgres.group_commit import GroupCommit
    from turnlog.backends.postgres.leasing import LeaseHolder
    from turnlog.backends.postgres.link import Link
    from turnlog.backends.postgres.statements import Statements
    from turnlog.events.envelope import SessionEvent
    from turnlog.events.header import SessionHeader
    from turnlog.persistence.backend import LogSummary


class Appender:
    """The writes of one store.

    Args:
        commits: The lane they go out on.
        reader: Reads what is stored where a write found a conflict.
        statements: The SQL.
        lease: This process's lease.
    """

    def __init__(
        self, commits: GroupCommit, reader: Reader, statements: Statements, lease: LeaseHolder
    ) -> None:
        self._commits = commits
        self._reader = reader
        self._statements = statements
        self._lease = lease

    async def append(
        self,
        meta: SessionHeader,
        batch: EncodedBatch,
        *,
        is_materialized: bool,
        claim: PostgresClaim,
        summary: LogSummary | None,
    ) -> str:
        """Append one batch; see `PersistenceBackend.append_batch`."""
        line = header_line(meta)
        if batch.nbytes > ON_THE_LOOP:
            await asyncio.to_thread(batch.frame)  # compressed once, and kept
        while True:
            if claim.epoch is not None:
                write = self._append(claim, batch, summary, None if is_materialized else line)
            elif not is_materialized:
                if batch.first_seq != 0:
                    raise UnexpectedSeqError(session_id=meta.id, expected=0, actual=batch.first_seq)
                claim.was_tried = True
                write = self._create(claim, line, summary, batch)
            else:
                raise WriterFencedError(session_id=meta.id)
            row = await self._commits.submit(write)
            if row is not None:
                return _accept(claim, row)
            found = await self._judge(meta, line, batch, claim, is_materialized)
            if isinstance(found, str):
                return found
            line = found  # what is compared has to be the bytes that are stored

    async def materialize(self, meta: SessionHeader, claim: PostgresClaim) -> None:
        """Store a header without events; see `OptionalHooks.materialize_header`."""
        line = header_line(meta)
        if claim.epoch is None:
            claim.was_tried = True
            row = await self._commits.submit(self._create(claim, line, None, None))
            if row is not None:
                _accept(claim, row)
                return
        stored = await self._reader.row(meta.id)
        if stored is None:
            raise WriterFencedError(session_id=meta.id)
        self._adopt(claim, stored)
        if stored.next_seq > 0 or not _same_header(stored.header, line):
            raise SessionExistsError(session_id=meta.id, where="storage")
        if claim.epoch != stored.epoch:
            raise WriterFencedError(session_id=meta.id)
        await self._commits.barrier(claim.segment)

    async def repair(
        self, meta: SessionHeader, closers: Sequence[SessionEvent], claim: PostgresClaim
    ) -> None:
        """Append closers; a database has no torn tail to cut."""
        if await self._reader.row(meta.id) is None:
            raise SessionNotFoundError(session_id=meta.id)
        if closers:
            await self.append(meta, EncodedBatch.of(closers), is_materialized=True, claim=claim, summary=None)

    async def delete(self, session_id: str, claim: PostgresClaim) -> None:
        """Erase one session; see `OptionalHooks.delete_stored`."""
        if claim.epoch is not None:
            parameters = {"segment": claim.segment, "epoch": claim.epoch}
            write = Write(self._statements.delete, parameters, claim.segment)
            if await self._commits.submit(write) is not None:
                return
        if await self._reader.row(session_id) is not None:
            raise WriterFencedError(session_id=session_id)

    # -- statements -----------------------------------------------------------------------------

    def _append(
        self, claim: PostgresClaim, batch: EncodedBatch, summary: LogSummary | None, header: bytes | None
    ) -> Write:
        frame = batch.frame()
        end = batch.last_seq + 1
        text, crc = encode_summary(summary, end)
        parameters: dict[str, Any] = {
            "segment": claim.segment,
            "epoch": claim.epoch,
            "first": batch.first_seq,
            "end": end,
            "size": len(frame),
            "frame": frame,
            "summary": text,
            "summary_crc": crc,
            "header": header,
        }
        return Write(self._statements.append, parameters, claim.segment, len(frame))

    def _create(
        self, claim: PostgresClaim, header: bytes, summary: LogSummary | None, batch: EncodedBatch | None
    ) -> Write:
        frame = b"" if batch is None else batch.frame()
        end = 0 if batch is None else batch.last_seq + 1
        text, crc = encode_summary(summary, end)
        parameters: dict[str, Any] = {
            "segment": claim.segment,
            "writer": self._lease.writer,
            "end": end,
            "size": len(header) + len(frame),
            "header": header,
            "header_crc": header_crc(header),
            "frame": frame,
            "summary": text,
            "summary_crc": crc,
        }
        return Write(self._statements.create, parameters, claim.segment, len(frame), is_claim=True)

    # -- conflicts ------------------------------------------------------------------------------

    async def _judge(
        self,
        meta: SessionHeader,
        line: bytes,
        batch: EncodedBatch,
        claim: PostgresClaim,
        is_materialized: bool,
    ) -> str | bytes:
        """Say why a batch found nothing to write to.

        Returns:
            The revision if the batch is stored already; the stored header if the batch may be tried again
            with the claim as it is now.

        Raises:
            LogError: It conflicts; nothing was written.
        """

        async def look(link: Link) -> tuple[SessionRow, bool] | None:
            stored = await self._reader.row_on(link, meta.id)
            if stored is None:
                return None
            if batch.last_seq + 1 != stored.next_seq:
                return stored, False
            frames = await self._reader.frames_on(link, stored.number, batch.first_seq, stored.next_seq)
            return stored, holds(frames, batch, session_id=meta.id, next_seq=stored.next_seq)

        found = await self._reader.read(look, empty=None)
        if found is None:
            raise WriterFencedError(session_id=meta.id)  # only its owner may delete a session
        stored, is_repeated = found
        same_header = _same_header(stored.header, line)
        if not is_materialized and not same_header:
            raise SessionCollisionError(session_id=meta.id, reason="the stored header is another one")
        self._adopt(claim, stored)
        if is_repeated:
            # It may be visible and not yet durable: its writer's connection broke before the sync.
            await self._commits.barrier(claim.segment)
            return stored.revision
        if claim.epoch is None:
            raise SessionExistsError(session_id=meta.id, where="storage")
        if claim.epoch != stored.epoch:
            raise WriterFencedError(session_id=meta.id)
        if stored.next_seq != batch.first_seq:
            self._refuse(meta.id, stored, batch, is_materialized)
        return stored.header

    def _adopt(self, claim: PostgresClaim, stored: SessionRow) -> None:
        """Take over the epoch of a row that this process stored without hearing of it."""
        if claim.epoch is None and claim.was_tried and stored.writer == self._lease.writer:
            claim.epoch = stored.epoch

    def _refuse(
        self, session_id: str, stored: SessionRow, batch: EncodedBatch, is_materialized: bool
    ) -> NoReturn:
        error: LogError
        if not is_materialized and stored.next_seq > 0:
            error = SessionExistsError(session_id=session_id, where="storage")
        else:
            error = UnexpectedSeqError(
                session_id=session_id, expected=stored.next_seq, actual=batch.first_seq
            )
        raise error


def _accept(claim: PostgresClaim, row: tuple[Any, ...]) -> str:
    """Take the epoch of a write that went well; return the revision."""
    number, claim.epoch, revision = row[:3]
    return f"{number}.{revision}"


def _same_header(stored: bytes, line: bytes) -> bool:
    """Tell whether a stored header says the same, however it is spelt."""
    if stored == line:
        return True
    try:
        return header_line(parse_header_line(stored)) == line
    except LogError:
        return False
