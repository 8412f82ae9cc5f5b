"""One session's row of a listing, and which attachments its rows name: what several tools ask of a log.

Owns these two questions only. Neither reads more of a store than it must.
"""

from __future__ import annotations

import re
from contextlib import aclosing
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from turnlog.events.chunk_runs import Row
    from turnlog.persistence.backend import StoredEntry
    from turnlog.persistence.books import Books

_REFERENCE: Final = re.compile(rb'(?<!\\)"attachmentId":\s*"(sha256:[0-9a-f]{64})"')
_MENTION: Final = re.compile(rb"sha256:[0-9a-f]{64}")


async def stored_entry(books: Books, session_id: str) -> StoredEntry | None:
    """Return what a listing says of one session, or None when it is not listed.

    Args:
        books: The coordinator's state.
        session_id: The whole id.

    Raises:
        BackendError: The store as a whole cannot be read.
    """
    # Listings are ordered by id where backends can, so only ids that share nearly all of it come before.
    for after in dict.fromkeys((session_id[:-1] or None, None)):
        async with aclosing(books.hooks.list(after, None)) as entries:
            async for entry in entries:
                if entry.session_id == session_id:
                    return entry
    return None


def referred_attachments(rows: Iterable[Row]) -> set[str]:
    """Return the attachment ids that image blocks in these rows refer to.

    Args:
        rows: Encoded rows, in which a quoted block has escaped quotes and so does not count.
    """
    return {found.decode() for row in rows for found in _REFERENCE.findall(row.line)}


def mentioned_attachments(rows: Iterable[Row]) -> set[str]:
    """Return everything in these rows that looks like an attachment id, wherever it stands.

    Args:
        rows: Encoded rows. The answer is too much rather than too little.
    """
    return {found.decode() for row in rows for found in _MENTION.findall(row.line)}
