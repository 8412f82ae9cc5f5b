"""The end of a store: everything written, waited for and given back, every failure told at once.

Owns the order: live sessions, retirements, chains, claims, backend. Afterwards nothing runs and nothing is
remembered, whatever failed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import TYPE_CHECKING

from turnlog.errors import TurnlogError

if TYPE_CHECKING:
    from turnlog.persistence.books import Books
    from turnlog.persistence.lifecycle import Lifecycle


async def shut_down(books: Books) -> None:
    """Bring a store, whose intake is closed, to rest.

    Args:
        books: The coordinator's state.

    Raises:
        ExceptionGroup: Everything that failed, named after the backend.
    """
    failures: list[Exception] = []
    for wait in books.waits:
        wait.cancel()
    books.pool.clear()
    for life in books.lives:
        life.leave()
    # Those that retire come first: a successor cannot be written before its predecessor is gone.
    for retiring in (True, False):
        lives = [life for life in books.lives if (life.retirement is not None) is retiring]
        outcomes = await asyncio.gather(*(_flush(life) for life in lives))
        failures += [outcome for outcome in outcomes if outcome is not None]
        while books.retirements:
            await asyncio.wait(list(books.retirements.values()))
    await books.chains.quiesce()
    failures += await books.claims.aclose()
    failures += await _tried(books.hooks.aclose())
    books.lives.clear()
    books.latest.clear()
    books.current.clear()
    books.owners.clear()
    books.cursors.clear()
    books.pool.clear()
    if failures:
        raise ExceptionGroup(f"closing the {books.hooks.name} store failed", failures)


async def _flush(life: Lifecycle) -> Exception | None:
    """Write what waits; a session that ended for good counts only if events of it are lost."""
    try:
        await life.writer.flush()
    except TurnlogError as error:
        return error if life.writer.pending else None
    return None


async def _tried(last: Awaitable[None]) -> list[Exception]:
    try:
        await last
    except TurnlogError as error:
        return [error]
    return []
