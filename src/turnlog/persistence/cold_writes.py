"""Writing to sessions that are not live: create, append, materialise a header, delete.

Owns the door for events that come from outside a session (L2), the order in which an append is checked,
and settling a batch in doubt (B3). Everything but `checked_events` runs on the id's chain; each claim is
held for one operation.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from turnlog.errors import (
    InvalidEventError,
    SessionExistsError,
    SessionNotFoundError,
    TurnlogError,
    UnexpectedSeqError,
    UsageError,
    WriterFencedError,
)
from turnlog.events.batch import EncodedBatch
from turnlog.events.envelope import SessionEvent, as_event
from turnlog.events.log import EventLog, same_events
from turnlog.persistence.cursors import Cursor, contiguous_fault
from turnlog.persistence.hooks import wrote_nothing
from turnlog.persistence.recovery import recover
from turnlog.session.admission import admit_type, check_content

if TYPE_CHECKING:
    from turnlog.events.header import SessionHeader
    from turnlog.persistence.books import Books


def checked_events(events: Iterable[SessionEvent | Mapping[str, Any]]) -> list[SessionEvent]:
    """Take a batch as it is now and hold each event to what a load would hold it to (L2).

    Args:
        events: Events or their dictionaries.

    Returns:
        Events that no longer depend on what was given.

    Raises:
        InvalidEventError: One of them could not be loaded again; `.index` says which.
    """
    taken: list[SessionEvent] = []
    for index, given in enumerate(events):
        event = as_event(given, index)
        admit_type(event.type, ignorable=event.ignorable, index=index)
        check_content(event, event.data, index=index)
        taken.append(event)
    return taken


async def create(books: Books, meta: SessionHeader) -> None:
    """Reserve an id in memory; see `SessionPersistence.create`."""
    session_id = meta.id
    if session_id in books.current or session_id in books.owners:
        raise SessionExistsError(session_id=session_id, where="live")
    if books.cursors.get(session_id) is not None:
        raise SessionExistsError(session_id=session_id, where="memory")
    if await books.hooks.exists(session_id):
        raise SessionExistsError(session_id=session_id, where="storage")
    books.cursors.put(Cursor.at(meta, EventLog(), materialized=False))


async def append(books: Books, session_id: str, events: Sequence[SessionEvent]) -> None:
    """Append a checked, non-empty batch; see `SessionPersistence.append`."""
    _refuse_held(books, session_id)
    try:
        remembered = books.cursors.get(session_id)
        if remembered is None or not await _append_remembered(books, remembered, events):
            prepared = await recover(books, session_id, claim=True)
            view = prepared.inspection
            await _write(books, Cursor.at(view.meta, view.events, materialized=True), events)
    except WriterFencedError as error:
        error.pending = tuple(events)
        raise
    finally:
        await books.release_claim(session_id)


async def ensure_materialized(books: Books, session_id: str) -> None:
    """Store the header of a created session; see `SessionPersistence.ensure_materialized`."""
    books.refuse_owned(session_id)
    cursor = books.cursors.created(session_id)
    if cursor is None:
        if not await books.hooks.exists(session_id):
            raise SessionNotFoundError(session_id=session_id)
        return
    if not books.hooks.has_header_only:
        raise UsageError(f"the {books.hooks.name} backend cannot store a session without events")
    try:
        claim = await books.claims.take(session_id, meta=cursor.meta)
        await books.hooks.materialize_header(cursor.meta, claim=claim)
        cursor.materialized = True
    finally:
        await books.release_claim(session_id)


async def delete(
    books: Books,
    session_id: str,
    *,
    takeover: bool,
    before: Callable[[], Awaitable[None]] | None = None,
) -> None:
    """Erase a stored session or forget a created one; see `SessionPersistence.delete`.

    Args:
        books: The coordinator's state.
        session_id: The session.
        takeover: Take it away from another writer.
        before: Called under the claim before anything of the log is removed.
    """
    if not books.hooks.has_delete:
        raise UsageError(f"the {books.hooks.name} backend cannot delete sessions")
    _refuse_held(books, session_id)
    if books.cursors.created(session_id) is not None:
        books.cursors.drop(session_id)
        return
    if not await books.hooks.exists(session_id):
        raise SessionNotFoundError(session_id=session_id)
    books.cursors.drop(session_id)
    books.pool.drop(session_id)
    try:
        claim = await books.claims.take(session_id, takeover=takeover)
        if before is not None:
            await before()
        await books.hooks.delete(session_id, claim=claim)
    finally:
        await books.release_claim(session_id)


def _refuse_held(books: Books, session_id: str) -> None:
    """Refuse to write to a session that is live, or reserved by whoever is about to resume it (W1)."""
    books.refuse_owned(session_id)
    if books.pool.is_held(session_id):
        raise books.busy(session_id)


async def _append_remembered(books: Books, cursor: Cursor, events: Sequence[SessionEvent]) -> bool:
    """Append at a remembered end of a log; tell whether that could be decided without reading it."""
    session_id = cursor.meta.id
    try:
        await books.claims.take(session_id, meta=None if cursor.materialized else cursor.meta)
    except SessionNotFoundError:
        books.cursors.drop(session_id)
        return False  # another writer has deleted it
    doubt = cursor.doubt
    if doubt is not None:
        settled = await _settle(books, cursor, doubt)
        if not settled or same_events(doubt, events):
            return settled
    if not cursor.materialized:
        await _write(books, cursor, events)
        return True
    try:
        await _write(books, cursor, events)
    except UnexpectedSeqError:
        books.cursors.drop(session_id)
        return False  # only a fresh read may refuse: another writer may have appended since
    return True


async def _settle(books: Books, cursor: Cursor, doubt: EncodedBatch) -> bool:
    """Write a batch in doubt again, alone and unchanged (B3); tell whether it is stored now."""
    try:
        await _store(books, cursor, doubt)
    except UnexpectedSeqError:
        books.cursors.drop(cursor.meta.id)  # the log went on without it
        return False
    cursor.doubt = None
    cursor.materialized = True
    return True


async def _write(books: Books, cursor: Cursor, events: Sequence[SessionEvent]) -> None:
    """Check a batch against the end of the log, store it, and remember the new end."""
    session_id = cursor.meta.id
    fault = contiguous_fault(events, len(cursor.log))
    if fault is not None:
        index, expected, actual = fault
        raise UnexpectedSeqError(session_id=session_id, expected=expected, actual=actual, index=index)
    batch = EncodedBatch.of(events)
    try:
        cursor.admit(events)
        await _store(books, cursor, batch)
    except TurnlogError as error:
        if isinstance(error, InvalidEventError) or wrote_nothing(error):
            _forget_end(books, cursor)
        else:
            cursor.doubt = batch
            books.cursors.put(cursor)
        raise
    cursor.materialized = True
    books.cursors.put(cursor)


def _forget_end(books: Books, cursor: Cursor) -> None:
    """Undo an admission: a stored log is read again next time, a created one is empty again."""
    if cursor.materialized:
        books.cursors.drop(cursor.meta.id)
    else:
        books.cursors.put(Cursor.at(cursor.meta, EventLog(), materialized=False))


async def _store(books: Books, cursor: Cursor, batch: EncodedBatch) -> None:
    session_id = cursor.meta.id
    try:
        await books.hooks.append(
            cursor.meta,
            batch,
            is_materialized=cursor.materialized,
            claim=books.claims.get(session_id),
            summary=None,
        )
    finally:
        books.pool.drop(session_id)
