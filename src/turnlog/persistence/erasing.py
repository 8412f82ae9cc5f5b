"""Deleting sessions so that their content is gone: log, leftovers, images of their own, write-ahead logs.

Owns the order of it and the answer to what is left: forks that keep the prefix they copied, and remains that
a reader holds back. Removing files and rows is the backend's business.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from turnlog.errors import CorruptLogError, UnsupportedFormatError
from turnlog.events.batch import Damage
from turnlog.persistence.entries import mentioned_attachments, referred_attachments
from turnlog.persistence.verification import scanned
from turnlog.session.fork import descendants

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from turnlog.persistence.attachments import AttachmentStore
    from turnlog.persistence.coordinator import PersistenceCoordinator

TRIES: Final = 20
"""Times that remains held back by a reader are asked for again before the call returns."""
PAUSE: Final = 0.1
"""Seconds between two of these."""


@dataclass(frozen=True, slots=True)
class Erasure:
    """What a deletion did."""

    deleted: tuple[str, ...]
    """The sessions that are gone, the one asked for last."""
    erased: bool
    """Whether no byte of them is left in the store. False while a reader holds a database's write-ahead log
    back; `store.erase_remains()` tries again."""
    forks: tuple[str, ...] = ()
    """Sessions that began with a part of a deleted one and keep it."""
    attachments: tuple[str, ...] = ()
    """Images that only the deleted sessions referred to, removed."""
    kept_attachments: tuple[str, ...] = ()
    """Images of deleted sessions that others name, or may name in a part that cannot be read."""

    def as_json(self) -> dict[str, Any]:
        """Return the facts for programs."""
        return {
            "deleted": list(self.deleted),
            "erased": self.erased,
            "forks": list(self.forks),
            "attachments": list(self.attachments),
            "kept_attachments": list(self.kept_attachments),
        }


async def forks_of(coordinator: PersistenceCoordinator, session_id: str) -> tuple[str, ...]:
    """Return the sessions that began with a part of this one, those forked from its forks after them.

    Args:
        coordinator: The store.
        session_id: The source; it need not be stored.

    Raises:
        BackendError: The store as a whole cannot be read.
        UsageError: The store is closed.
    """
    coordinator.books.check_open()
    children: dict[str, list[str]] = {}
    async with aclosing(coordinator.books.hooks.list(None, None)) as entries:
        async for entry in entries:
            meta = entry.meta
            if meta is not None and meta.parent_session is not None and meta.seed_length is not None:
                children.setdefault(meta.parent_session, []).append(meta.id)
    return descendants(children, session_id)


async def erase(
    coordinator: PersistenceCoordinator,
    attachments: AttachmentStore,
    session_id: str,
    *,
    takeover: bool = False,
    with_forks: bool = False,
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> Erasure:
    """Delete a session, and its forks if asked to; can be repeated after it was interrupted anywhere.

    Args:
        coordinator: The store.
        attachments: The images beside the logs.
        session_id: The session.
        takeover: Take it away from another writer first; forks are not taken away.
        with_forks: Delete the sessions that began with a part of it, too.
        pause: Waits between tries.

    Returns:
        What is gone and what is left.

    Raises:
        SessionNotFoundError: Nothing is stored under the id.
        SessionBusyError: Somebody writes to it, or to a fork that is to be deleted; forks deleted before
            that are gone.
        BackendError: The medium failed; delete again.
        UsageError: The backend cannot delete.
    """
    coordinator.books.check_open()
    forks = await forks_of(coordinator, session_id)
    # From the last fork to the source, so that an interrupted deletion can still find the rest.
    doomed = (*reversed(forks), session_id) if with_forks else (session_id,)
    removed: list[str] = []
    kept: set[str] = set()
    for each in doomed:

        async def remove_images(each: str = each) -> None:
            # Before the log, which names them: after a crash in between they are found again.
            gone, held = await _remove_images(coordinator, attachments, each)
            removed.extend(gone)
            kept.update(held)

        await coordinator.delete(each, takeover=takeover and each == session_id, before=remove_images)
    erased = await erase_remains(coordinator, pause=pause)
    left = () if with_forks else forks
    return Erasure(doomed, erased, left, tuple(sorted(removed)), tuple(sorted(kept - set(removed))))


async def erase_remains(
    coordinator: PersistenceCoordinator,
    *,
    tries: int = TRIES,
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> bool:
    """Overwrite what deleted sessions have left beside the live data, waiting a while for readers.

    Args:
        coordinator: The store.
        tries: How often to ask.
        pause: Waits between tries.

    Returns:
        Whether nothing is left.

    Raises:
        BackendError: The medium failed.
    """
    coordinator.books.check_open()
    for attempt in range(tries):
        if attempt:
            await pause(PAUSE)
        if await coordinator.books.hooks.erase_remains():
            return True
    return False


async def _remove_images(
    coordinator: PersistenceCoordinator, attachments: AttachmentStore, session_id: str
) -> tuple[list[str], set[str]]:
    """Remove the images of one session that no other one mentions; return these and those that stay."""
    pieces = await scanned(coordinator.books, session_id)
    own: set[str] = set()
    for piece in pieces:
        if not isinstance(piece, Damage):
            own |= referred_attachments(piece.rows)
    candidates = {name for name in own if await attachments.exists(name)}
    if not candidates:
        return [], set()
    held = await _mentioned_elsewhere(coordinator, session_id, candidates)
    gone = sorted(candidates - held)
    for name in gone:
        await attachments.remove(name)
    return gone, held


async def _mentioned_elsewhere(
    coordinator: PersistenceCoordinator, session_id: str, names: set[str]
) -> set[str]:
    """Return which of some images another session mentions, or may mention where it cannot be read."""
    books = coordinator.books
    held: set[str] = set()
    for live in books.registry.list():
        held |= names & mentioned_attachments(live.log.rows)
    async with aclosing(books.hooks.list(None, None)) as entries:
        others = [entry.session_id async for entry in entries if entry.session_id != session_id]
    for other in others:
        if held == names:
            break
        held |= names & await _mentions(coordinator, other, names)
    return held


async def _mentions(coordinator: PersistenceCoordinator, other: str | None, names: Iterable[str]) -> set[str]:
    books = coordinator.books
    if other is None or not books.hooks.has_scan:
        return set(names)
    found: set[str] = set()
    try:
        async with aclosing(books.hooks.scan(other)) as pieces:
            async for piece in pieces:
                if isinstance(piece, Damage):
                    return set(names)
                found |= mentioned_attachments(piece.rows)
    except (CorruptLogError, UnsupportedFormatError):
        return set(names)
    return found
