"""Whose log is it: settling what is stored under a live session's id before its first write.

Owns the adoption cases: new, created before, stored and reproduced by the session (a store that is opened
while sessions are live), and every kind of collision. It runs on the id's chain and writes only to cut a
torn tail; it never closes a turn, because the live session is the authority.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from turnlog.errors import SessionBusyError, SessionCollisionError, UnexpectedSeqError, quote
from turnlog.events.log import same_events
from turnlog.persistence.reading import checked_log
from turnlog.persistence.recovery import MAX_ROUNDS

if TYPE_CHECKING:
    from turnlog.persistence.books import Books
    from turnlog.persistence.lifecycle import Lifecycle


async def adopt(books: Books, life: Lifecycle) -> int:
    """Make a live session the owner of its id in this process.

    Args:
        books: The coordinator's state.
        life: A session that owns nothing yet.

    Returns:
        How many of its events are stored already.

    Raises:
        SessionCollisionError: What is stored or created under the id is another session.
        SessionBusyError: Another writer holds it, or this process still drains an earlier lifecycle.
        CorruptLogError: What is stored is damaged; so are `UnsupportedFormatError` and `BackendError`.
    """
    session_id = life.session.id
    if session_id in books.owners:
        raise books.busy(session_id)  # it could not be drained yet; a later attempt may find it gone
    created = books.cursors.created(session_id)
    if created is not None:
        _check_cwd(life, created.meta.cwd)
        life.meta = created.meta
        return _own(books, life, 0)
    if not await books.hooks.exists(session_id):
        return _own(books, life, 0)
    try:
        return await _adopt_stored(books, life)
    finally:
        await books.release_claim(session_id)  # kept if the session owns the id now


async def _adopt_stored(books: Books, life: Lifecycle) -> int:
    """Agree with what is stored, claim it, and cut its torn tail."""
    session_id = life.session.id
    for _ in range(MAX_ROUNDS):
        claimed = books.claims.holds(session_id)
        stored = await books.hooks.load(session_id)
        if stored is None:
            return _own(books, life, 0)  # deleted meanwhile: it is a new session after all
        _check_cwd(life, stored.meta.cwd)
        log = checked_log(session_id, stored, books.hooks.locate(stored.meta))
        own = life.session.log
        if len(log) > len(own) or not same_events(log, own.snapshot(len(log))):
            raise SessionCollisionError(
                session_id=session_id, reason=f"its {len(log)} events are not the start of the live ones"
            )
        claim = await books.claims.take(session_id)
        if not claimed:
            continue  # read again: another writer may have appended before the claim was ours
        if stored.torn_marker is not None:
            try:
                await books.hooks.repair(stored.meta, stored.torn_marker, (), claim=claim)
            except UnexpectedSeqError:
                continue  # another program wrote meanwhile
        life.meta = stored.meta
        life.materialized = True
        return _own(books, life, len(log))
    raise SessionBusyError(session_id=session_id)


def _own(books: Books, life: Lifecycle, durable_seq: int) -> int:
    books.owners[life.session.id] = life
    books.cursors.drop(life.session.id)
    books.pool.drop(life.session.id)
    return durable_seq


def _check_cwd(life: Lifecycle, stored: str | None) -> None:
    own = life.session.header.cwd
    if own != stored:
        shown = [repr(None) if cwd is None else quote(cwd) for cwd in (stored, own)]
        raise SessionCollisionError(
            session_id=life.session.id,
            reason=f"it belongs to the working directory {shown[0]}, the live one to {shown[1]}",
        )
