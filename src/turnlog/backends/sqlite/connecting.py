"""How each connection is opened and what is set on it.

Owns the settings that durability and safety rest on. Every connection syncs fully and erases what it
deletes; one that reads cannot write and never checkpoints.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import time
from typing import Final

from turnlog.backends.sqlite import descriptors, links, place, schema
from turnlog.backends.sqlite.failures import typed
from turnlog.backends.sqlite.links import Link
from turnlog.backends.sqlite.private_copy import PrivateCopy

logger = logging.getLogger(__name__)

BUSY_SECONDS: Final = 10.0
"""How long a statement waits for the locks of other processes."""

_WAL_PAUSE: Final = 0.01
_SETTINGS: Final = (
    "pragma trusted_schema = off",  # a database is data: nothing in its schema is run
    "pragma cell_size_check = on",
    "pragma mmap_size = 0",  # a truncated file is an error, not a signal that ends the process
    "pragma secure_delete = on",
    "pragma synchronous = full",
)

_NO_SHARED_MEMORY: Final = (
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_FULL,
)
"""What opening for reading fails with where SQLite cannot make its shared memory, as on a full disk."""

_WITHOUT_WAL: set[str] = set()
"""Databases of which it has been said that they have no write-ahead log."""


def _connect(path: str, mode: str, *, vfs: str | None, busy: float) -> sqlite3.Connection:
    db = sqlite3.connect(
        place.uri(path, mode, vfs),
        uri=True,
        timeout=busy,
        isolation_level=None,  # transactions are written out
        check_same_thread=False,  # each is used by one thread at a time
    )
    db.text_factory = _text
    try:
        for setting in _SETTINGS:
            db.execute(setting)
        if mode == "ro":
            db.execute("pragma query_only = on")
            db.execute("pragma wal_autocheckpoint = 0")
    except BaseException:
        db.close()
        raise
    return db


def _text(stored: bytes) -> str:
    """Decode a text, whatever it is in a damaged file: one bad row spoils no query over many (B4)."""
    return stored.decode("utf-8", "replace")


def open_writer(
    path: str, *, vfs: str | None = None, busy: float = BUSY_SECONDS, mounts: str = place.MOUNTS
) -> Link:
    """Open a database for writing, making it if it is not there.

    Args:
        path: Absolute path, not a symbolic link.
        vfs: Name of a file layer within SQLite, or None for the default.
        busy: Seconds to wait for locks of others.
        mounts: The table of mounts.

    Returns:
        The connection, in WAL mode with `synchronous=FULL`; where the file system makes WAL impossible,
        with a rollback journal and `synchronous=EXTRA`.

    Raises:
        BackendError: The place cannot be used, or holds the database of another program.
        UnsupportedFormatError: The database is of a newer release.
        CorruptLogError: The database file is damaged.
    """
    place.check_place(path, mounts)
    if not place.check_head(path):
        place.create(path)
    file = links.enter(path)
    db: sqlite3.Connection | None = None
    try:
        db = _connect(path, "rw", vfs=vfs, busy=busy)
        if schema.version_of(db, path) < schema.VERSION:
            schema.bring_up(db, path)
        place.sync_folder(os.path.dirname(path))  # whoever made the file may not have come that far
        _use_log(db, path, busy)
        return Link(db, path, file)
    except BaseException as error:
        if db is not None:
            db.close()
        descriptors.leave(file)
        if isinstance(error, sqlite3.Error):
            raise typed(error, path, wrote_nothing=True) from error
        raise


def _use_log(db: sqlite3.Connection, path: str, busy: float) -> None:
    """Switch to the write-ahead log, or settle for a rollback journal that syncs its folder as well."""
    try:
        mode = _switch(db, busy)
        reason = f"SQLite stays with the journal mode {mode}"
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode == sqlite3.SQLITE_BUSY:
            raise
        [mode] = db.execute("pragma journal_mode = delete").fetchone()
        reason = str(error)
    if mode == "wal":
        return
    db.execute("pragma synchronous = extra")
    if path not in _WITHOUT_WAL:
        _WITHOUT_WAL.add(path)
        logger.warning(
            "%s has no write-ahead log, because its file system does not allow one (%s); "
            "it is as durable, but slower, and readers wait for writers",
            path,
            reason,
        )


def _switch(db: sqlite3.Connection, busy: float) -> str:
    """Ask for the write-ahead log; the switch itself does not wait for others, so it is tried again."""
    deadline = time.monotonic() + busy
    while True:
        try:
            [mode] = db.execute("pragma journal_mode = wal").fetchone()
            return str(mode)
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode != sqlite3.SQLITE_BUSY or time.monotonic() >= deadline:
                raise
            time.sleep(_WAL_PAUSE)


def open_reader(
    path: str, *, vfs: str | None = None, busy: float = BUSY_SECONDS, mounts: str = place.MOUNTS
) -> Link | None:
    """Open a database for reading only.

    Args:
        path: As for `open_writer`, like the others.
        vfs: Name of a file layer within SQLite, or None for the default.
        busy: Seconds to wait for locks of others.
        mounts: The table of mounts.

    Returns:
        The connection; None where there is no database yet. In a folder that cannot be written, or on a full
        disk, it reads a private copy, because SQLite needs shared memory beside a database with a log.

    Raises:
        BackendError: As `open_writer`.
        UnsupportedFormatError: As `open_writer`.
        CorruptLogError: As `open_writer`.
    """
    place.check_place(path, mounts)
    if not place.check_head(path):
        return None
    try:
        if os.access(os.path.dirname(path), os.W_OK):
            try:
                return _open_direct(path, vfs, busy)
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF not in _NO_SHARED_MEMORY:
                    raise
        return _open_copy(path, vfs, busy)
    except sqlite3.Error as error:
        raise typed(error, path, wrote_nothing=True) from error


def _open_direct(path: str, vfs: str | None, busy: float) -> Link | None:
    """Open the database itself; None if there is nothing of ours in it yet."""
    file = links.enter(path)
    db: sqlite3.Connection | None = None
    link: Link | None = None
    try:
        db = _connect(path, "ro", vfs=vfs, busy=busy)
        if schema.version_of(db, path):
            link = Link(db, path, file)
        return link
    finally:
        if link is None:
            if db is not None:
                db.close()
            descriptors.leave(file)


def _open_copy(path: str, vfs: str | None, busy: float) -> Link | None:
    """Open a copy of database and log, for writing, so that SQLite takes the log into account."""
    copy = PrivateCopy(path)
    db: sqlite3.Connection | None = None
    link: Link | None = None
    try:
        db = _connect(copy.path, "rw", vfs=vfs, busy=busy)
        db.execute("pragma query_only = on")
        if schema.version_of(db, path):
            link = Link(db, path, None, copy)
        return link
    finally:
        if link is None:
            if db is not None:
                db.close()
            copy.remove()
