"""Bringing a stored session into a state that can be written: read, claimed, repaired, reserved.

Owns the commit of a pending repair (R1), the agreement between a read, its revision and the claim, and
the reservation handed to whoever resumes. Everything here but `Reservation` runs on the id's chain.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from turnlog.errors import SessionBusyError, SessionExistsError, UnexpectedSeqError
from turnlog.persistence.reading import read_prepared
from turnlog.persistence.service import Preparation

if TYPE_CHECKING:
    from turnlog.persistence.books import Books
    from turnlog.persistence.preparations import Entry
    from turnlog.persistence.reading import Prepared
    from turnlog.persistence.service import SessionInspection
    from turnlog.session.session import Session

MAX_ROUNDS = 16
"""Reads of a log that somebody else keeps changing before the call gives up as busy."""


class Reservation(Preparation):
    """The reservation of one entry of the pool.

    Args:
        books: The coordinator's state.
        entry: A reserved entry.
        prepared: What it holds.
    """

    def __init__(self, books: Books, entry: Entry, prepared: Prepared) -> None:
        self._books = books
        self._entry = entry
        self._prepared = prepared

    @property
    def session(self) -> Session:
        """The unpublished session."""
        return self._prepared.session

    @property
    def inspection(self) -> SessionInspection:
        """The repaired stored log."""
        return self._prepared.inspection

    async def aclose(self) -> None:
        """Give the reservation and the claim back, once."""
        task = self.give_back()
        if task is not None:
            await asyncio.shield(task)

    def give_back(self) -> asyncio.Task[None] | None:
        """Give the reservation back now and the claim in its turn.

        Returns:
            The task that releases the claim, or None if the reservation was consumed or given back.
        """
        if not self._entry.is_held:
            return None
        self._books.pool.release(self._entry, reusable=self._prepared.is_untouched)
        session_id = self._entry.session_id
        return self._books.chains.submit(session_id, lambda: self._books.release_claim(session_id))


async def reserve(books: Books, session_id: str, *, takeover: bool) -> Reservation | None:
    """Claim, repair and reserve a stored session.

    Args:
        books: The coordinator's state.
        session_id: The session.
        takeover: Take the claim away from another writer.

    Returns:
        The reservation, or None while somebody else holds it.

    Raises:
        SessionBusyError: It is live here, or claimed by another writer.
        TurnlogError: As `SessionPersistence.prepare`.
    """
    if books.pool.is_held(session_id):
        return None
    try:
        prepared = await recover(books, session_id, claim=True, takeover=takeover)
        entry = books.pool.commit(prepared)
        books.pool.reserve(entry)
    except BaseException:
        await books.release_claim(session_id)
        raise
    return Reservation(books, entry, prepared)


async def recover(books: Books, session_id: str, *, claim: bool, takeover: bool = False) -> Prepared:
    """Read a stored session, committing its pending repair.

    Args:
        books: The coordinator's state.
        session_id: The session.
        claim: Whether to hold the claim at the end even if nothing had to be repaired.
        takeover: Take the claim away from another writer.

    Returns:
        A balanced session that agrees with storage. The claim is held if `claim`, and may be held after a
        repair and after a failure; the caller gives it back.

    Raises:
        SessionBusyError: It is live here, claimed by another writer, or changes faster than it is read.
        TurnlogError: As `SessionPersistence.prepare`.
    """
    for _ in range(MAX_ROUNDS):
        try:
            prepared = await current(books, session_id)
        except SessionExistsError as error:
            raise books.busy(session_id) from error  # it became live while it was read
        books.refuse_owned(session_id)
        if not (claim or prepared.needs_repair):
            return prepared
        entry = books.pool.commit(prepared)
        agreed = False
        try:
            agreed = await _claimed(books, prepared, takeover=takeover)
            if agreed and prepared.needs_repair:
                agreed = False  # whatever comes of it, the log must be read again
                await _repair(books, prepared)
        finally:
            books.pool.release(entry, reusable=agreed)
        if agreed:
            return prepared
    raise SessionBusyError(session_id=session_id)


async def current(books: Books, session_id: str) -> Prepared:
    """Return a read of a session that agrees with storage, a ready one if its revision still stands."""
    known = books.pool.take_ready(session_id)
    if known is not None and books.hooks.has_revisions:
        revision = await books.hooks.revision(session_id)
        if revision == known.revision:
            return known
    prepared = await read_prepared(books.hooks, books.registry, session_id)
    books.pool.put(prepared)
    return prepared


async def _claimed(books: Books, prepared: Prepared, *, takeover: bool) -> bool:
    """Take the claim; tell whether what was read without it still is what is stored."""
    session_id = prepared.inspection.meta.id
    if books.claims.holds(session_id):
        return True
    await books.claims.take(session_id, takeover=takeover)
    if not books.hooks.has_revisions:
        return False
    return await books.hooks.revision(session_id) == prepared.revision


async def _repair(books: Books, prepared: Prepared) -> None:
    session_id = prepared.inspection.meta.id
    with suppress(UnexpectedSeqError):  # another program wrote; the next round reads what it left
        await books.hooks.repair(
            prepared.inspection.meta,
            prepared.torn_marker,
            prepared.inspection.closers,
            claim=books.claims.get(session_id),
        )
