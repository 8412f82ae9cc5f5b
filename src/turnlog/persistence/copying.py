"""Copying sessions from one store to another, row by row, checked by digest, taken up where it has stopped.

Owns what of a log is copied and when a copy counts as equal. Rows are carried as they are: a log that began
as a plain file comes back byte for byte from any store. Writing is `carrying`'s business.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from turnlog.errors import (
    BackendError,
    CorruptLogError,
    SessionNotFoundError,
    TurnlogError,
    UsageError,
    quote,
)
from turnlog.events.log import same_events
from turnlog.persistence.carrying import Carrier
from turnlog.persistence.entries import referred_attachments
from turnlog.persistence.in_turn import check_parallel, in_turn
from turnlog.persistence.reading import check_header
from turnlog.persistence.stored_rows import StoredRows, durable_part

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from turnlog.events.batch import EncodedBatch
    from turnlog.events.header import SessionHeader
    from turnlog.persistence.attachments import AttachmentStore
    from turnlog.persistence.books import Books

PARALLEL: Final = 4
"""Sessions copied at once."""


@dataclass(frozen=True, slots=True)
class CopiedSession:
    """What became of one session."""

    session_id: str | None
    events: int = 0
    """Events of the copy."""
    appended: int = 0
    """Of these, the ones that this call has written; the others were there from an earlier one."""
    digest: str | None = None
    """SHA-256 of the rows, equal in source and copy."""
    torn_bytes: int = 0
    """Bytes of an unfinished write at the source's end, which are not copied."""
    attachments: int = 0
    """Images copied beside the log."""
    missing_attachments: tuple[str, ...] = ()
    """Images that the log refers to and the source does not have."""
    error: TurnlogError | None = None
    """Why there is no whole copy, or None."""

    def as_json(self) -> dict[str, Any]:
        """Return the facts for programs."""
        return {
            "id": self.session_id,
            "events": self.events,
            "appended": self.appended,
            "digest": self.digest,
            "torn_bytes": self.torn_bytes,
            "attachments": self.attachments,
            "missing_attachments": list(self.missing_attachments),
            "error": None
            if self.error is None
            else {"code": self.error.code, "message": str(self.error), **self.error.details()},
        }


@dataclass(frozen=True, slots=True)
class CopyReport:
    """What became of every session that was to be copied."""

    sessions: tuple[CopiedSession, ...]

    @property
    def failed(self) -> tuple[CopiedSession, ...]:
        """The sessions without a whole copy."""
        return tuple(session for session in self.sessions if session.error is not None)


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two stores."""

    books: Books
    attachments: AttachmentStore


async def copy_sessions(
    source: Side,
    target: Side,
    session_ids: Sequence[str] | None,
    *,
    parallel: int = PARALLEL,
    progress: Callable[[int, int], None] | None = None,
    each: Callable[[CopiedSession], None] | None = None,
) -> CopyReport:
    """Copy sessions, all of the store by default; one that fails does not hold up the others.

    Args:
        source: Only read.
        target: Where the copies go, under the same ids.
        session_ids: The sessions, or None for every one that the source lists.
        parallel: How many at a time.
        progress: Told how many of how many are done.
        each: Told what became of each as soon as that is known, in order.

    Returns:
        What became of each, in order.

    Raises:
        UsageError: Both sides are one store, one of them is closed, `parallel` is below 1, or `session_ids`
            is a single string.
        BackendError: The source as a whole cannot be listed.
    """
    check_parallel(parallel)
    source.books.check_open()
    target.books.check_open()
    if source.books is target.books:
        raise UsageError("a store cannot be copied into itself; open another one as the target")
    wanted = await _wanted(source.books, session_ids)

    async def one(wish: CopiedSession) -> CopiedSession:
        return wish if wish.error is not None else await _copy_one(source, target, str(wish.session_id))

    done: list[CopiedSession] = []
    async with aclosing(in_turn((one(wish) for wish in wanted), parallel)) as results:
        async for copied in results:
            done.append(copied)
            if each is not None:
                each(copied)
            if progress is not None:
                progress(len(done), len(wanted))
    return CopyReport(tuple(done))


async def _wanted(books: Books, session_ids: Sequence[str] | None) -> list[CopiedSession]:
    if isinstance(session_ids, str):
        raise UsageError(f"session_ids is a sequence of ids; write [{session_ids!r}]")
    if session_ids is not None:
        return [CopiedSession(session_id) for session_id in dict.fromkeys(session_ids)]
    wanted: list[CopiedSession] = []
    async with aclosing(books.hooks.list(None, None)) as entries:
        async for entry in entries:
            error = None
            if entry.session_id is None:
                reason = entry.problem or "an entry that is no session"
                error = CorruptLogError(session_id=None, reason=reason, kind="entry", path=entry.path)
            wanted.append(CopiedSession(entry.session_id, error=error))
    return wanted


class _SameStoreError(UsageError):
    """Both sides are one store; true of every other session, too."""


async def _copy_one(source: Side, target: Side, session_id: str) -> CopiedSession:
    try:
        return await copy_session(source, target, session_id)
    except _SameStoreError:
        raise
    except TurnlogError as error:
        return CopiedSession(session_id, error=error)


async def copy_session(source: Side, target: Side, session_id: str) -> CopiedSession:
    """Copy one session and read the copy back.

    Args:
        source: Only read.
        target: Where the copy goes, under the same id.
        session_id: A stored session; its events as they are stored, without closers.

    Returns:
        What was copied.

    Raises:
        SessionNotFoundError: The source does not have it.
        CorruptLogError: The source is damaged (R2).
        SessionCollisionError: The target has another session under this id.
        UsageError: Both stores keep this session in one place.
        SessionBusyError: Somebody writes to the target's session.
        BackendError: A medium failed, or the copy read back is not what was written.
    """
    await source.books.retired(session_id)
    meta = await _header_of(source.books, session_id)
    if await target.books.hooks.exists(session_id) and _is_same_place(source.books, target.books, meta):
        raise _SameStoreError(
            f"a store cannot be copied into itself: both keep session {quote(session_id)} in one place; "
            "open another one as the target"
        )
    stored = StoredRows(source.books, session_id)
    images = AttachmentCopier(source.attachments, target.attachments)
    digest = hashlib.sha256()
    async with Carrier(target.books, meta, resume=True) as carrier, aclosing(stored.batches()) as batches:
        async for batch in batches:
            digest.update(batch.text())
            await images.copy(batch)  # first, so that no copy lacks what it refers to
            await carrier.put(batch)
        await carrier.finish()
        await _check_copy(source.books, target.books, session_id, digest.hexdigest())
    return CopiedSession(
        session_id,
        carrier.next_seq,
        carrier.appended,
        digest.hexdigest(),
        stored.torn_bytes,
        images.copied,
        tuple(sorted(images.missing)),
    )


def _is_same_place(one: Books, other: Books, meta: SessionHeader) -> bool:
    """Tell whether two stores that were opened apart are one; a link and another spelling lead there, too."""
    here, there = one.hooks.locate(meta), other.hooks.locate(meta)
    if here is None or there is None or one.hooks.name != other.hooks.name:
        return False
    try:
        return here == there or os.path.samefile(here, there)
    except OSError:
        return False  # not files


async def _header_of(books: Books, session_id: str) -> SessionHeader:
    hooks = books.hooks
    suffixes = hooks.has_suffix_reads
    stored = await (hooks.load_from(session_id, 0, 1) if suffixes else hooks.load(session_id))
    if stored is None:
        raise SessionNotFoundError(session_id=session_id)
    check_header(session_id, stored.meta, hooks.locate(stored.meta))
    return stored.meta


async def _check_copy(source: Books, target: Books, session_id: str, digest: str) -> None:
    """Read a copy back and hold it to the digest; rows that are packed otherwise are compared as events.

    Raises:
        BackendError: The copy is not what was written; the target's medium is at fault.
    """
    read_back = hashlib.sha256()
    async with aclosing(StoredRows(target, session_id).batches()) as batches:
        async for batch in batches:
            read_back.update(batch.text())
    if read_back.hexdigest() == digest:
        return
    original, copy = await source.hooks.load(session_id), await target.hooks.load(session_id)
    if original is None or copy is None or not same_events(durable_part(original), durable_part(copy)):
        raise BackendError(
            backend=target.hooks.name,
            reason=f"the copy of session {session_id} read back differs from its source; copy it again",
        )


class AttachmentCopier:
    """Copies the images that rows refer to, each once.

    Args:
        source: Where they are.
        target: Where they are to be, too; may be the source.
    """

    def __init__(self, source: AttachmentStore, target: AttachmentStore) -> None:
        self._source = source
        self._target = target
        self._seen: set[str] = set()
        self.copied = 0
        """Images written so far."""
        self.missing: set[str] = set()
        """Images that the source does not have, or not with the bytes they had."""

    async def copy(self, batch: EncodedBatch) -> None:
        """Copy what a batch refers to, as far as the source has it and the target does not."""
        for name in sorted(referred_attachments(batch.rows) - self._seen):
            self._seen.add(name)
            if await self._target.exists(name):
                continue
            try:
                data = await self._source.get(name)
            except BackendError:
                self.missing.add(name)
                continue
            await self._target.put(data)
            self.copied += 1
