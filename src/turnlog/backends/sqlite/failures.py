"""What SQLite reports, as typed errors that say what to do.

Owns the mapping from result codes. Whether a failed write left something behind is known to whoever calls.
"""

from __future__ import annotations

import os
import sqlite3
from typing import Final

from turnlog.errors import BackendError, BackendUnavailableError, CorruptLogError, TurnlogError

NAME: Final = "sqlite"
"""Label of the backend in errors."""

_PRIMARY: Final = 0xFF
"""Mask that leaves the primary result code of an extended one."""

_REASONS: Final = {
    sqlite3.SQLITE_FULL: "the disk is full; free space and flush again",
    sqlite3.SQLITE_READONLY: "the database cannot be written; check the permissions of file and folder",
    sqlite3.SQLITE_CANTOPEN: "the database cannot be opened; check path and permissions of its folder",
    sqlite3.SQLITE_PERM: "access to the database was denied; check the permissions of file and folder",
    sqlite3.SQLITE_AUTH: "access to the database was denied; check the permissions of file and folder",
    sqlite3.SQLITE_NOTADB: "the file is no SQLite database; give the path of another file",
    sqlite3.SQLITE_TOOBIG: "a batch is larger than SQLite can store; flush more often",
    sqlite3.SQLITE_IOERR: "the medium failed",
}


def typed(
    error: sqlite3.Error, path: str, *, session_id: str | None = None, wrote_nothing: bool = False
) -> TurnlogError:
    """Return the typed error for what SQLite reported; the caller chains it.

    Args:
        error: The driver's exception.
        path: The database.
        session_id: The session that was read, where there is one.
        wrote_nothing: Whether the failed call certainly left nothing behind.

    Returns:
        `CorruptLogError` for a damaged database file, `BackendUnavailableError` for one that others keep
        locked, `BackendError` for everything else.
    """
    code = getattr(error, "sqlite_errorcode", None)
    primary = None if code is None else code & _PRIMARY
    if primary == sqlite3.SQLITE_CORRUPT:
        return damaged(path, str(error), session_id=session_id)
    if primary in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return BackendUnavailableError(
            backend=NAME,
            reason="other processes keep the database locked; try again",
            path=path,
            wrote_nothing=wrote_nothing,
        )
    if primary == sqlite3.SQLITE_IOERR and _is_full(path):
        primary = sqlite3.SQLITE_FULL  # the files beside the database fail in other words
    known = None if primary is None else _REASONS.get(primary)
    reason = str(error) if known is None else f"{known} ({error})"
    return BackendError(backend=NAME, reason=reason, path=path, wrote_nothing=wrote_nothing)


def _is_full(path: str) -> bool:
    """Tell whether the file system of a path has no room left."""
    try:
        return os.statvfs(os.path.dirname(path)).f_bavail == 0
    except OSError:
        return False


def damaged(path: str, reason: str, *, session_id: str | None = None) -> CorruptLogError:
    """Return the error for a database file that SQLite itself cannot read."""
    return CorruptLogError(
        session_id=session_id,
        reason=f"the database file is damaged: {reason}",
        kind="database",
        path=path,
    )


def refused(path: str, reason: str) -> BackendError:
    """Return the error for a place that cannot be used; nothing was written."""
    return BackendError(backend=NAME, reason=reason, path=path, wrote_nothing=True)
