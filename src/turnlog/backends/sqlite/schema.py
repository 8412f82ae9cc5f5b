"""The tables of a database, and whether a database is one of ours (session log format, databases).

Owns the application id, the schema version, the steps from one version to the next, and the refusals. It
opens nothing.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Final

from turnlog.backends.sqlite.failures import damaged, refused
from turnlog.errors import UnsupportedFormatError

APPLICATION_ID: Final = 0x544C4F47
"""`TLOG`, in the header of every database that turnlog makes."""

_BASE: Final = 1
"""Up to this version headers have no checksum; no release writes or reads them."""

_STEPS: Final[tuple[Sequence[str], ...]] = (
    (
        # A session that is only claimed has a row without a header; readers do not see it.
        """create table sessions(
            key integer primary key,
            segment text not null unique,
            epoch integer not null,
            writer text,
            claimed_at integer not null,
            incarnation text not null,
            header blob,
            header_crc integer,
            next_seq integer not null default 0,
            size integer not null default 0,
            last_write integer,
            summary blob,
            summary_crc integer
        )""",
        # A table with row ids: frames of all sessions land on the same last pages, so that a commit for a
        # hundred sessions writes few of them; the index on the key is small.
        """create table frames(
            session integer not null,
            first_seq integer not null,
            last_seq integer not null,
            frame blob not null,
            primary key(session, first_seq)
        )""",
        "create table writers(writer text primary key, owner text not null, expires integer not null)",
    ),
)
"""Statements that lead from each version to the next; the first begins with an empty database.

A step adds and tunes; it never changes what a reader of an earlier version looks at, because a store is read
before it is first written, and reading brings nothing up (R3).
"""

VERSION: Final = _BASE + len(_STEPS)
"""The schema version this release writes, kept in `user_version`."""


def version_of(db: sqlite3.Connection, path: str) -> int:
    """Return the version of a database's tables.

    Args:
        db: An open connection.
        path: For messages.

    Returns:
        0 for an empty database, else a version that this release reads; a writer brings older ones up.

    Raises:
        BackendError: It belongs to another program.
        UnsupportedFormatError: This release does not read its version.
        CorruptLogError: It is ours, and its version is none.
    """
    application, version, objects = _seen(db)
    if application != APPLICATION_ID:
        if application != 0 or version != 0 or objects != 0:
            raise refused(
                path,
                f"the database belongs to another program (application id {application}, version {version}, "
                f"{objects} tables and indexes); give the path of another file",
            )
        return 0
    if version <= 0:
        raise damaged(path, f"it has the schema version {version}")
    if not _BASE < version <= VERSION:
        raise UnsupportedFormatError(
            session_id=None,
            found=version,
            supported=VERSION,
            direction="older" if version <= _BASE else "newer",
            path=path,
        )
    return version


def bring_up(db: sqlite3.Connection, path: str) -> None:
    """Make the tables in an empty database, or take an older one to this version, in one transaction.

    Args:
        db: A connection outside of a transaction.
        path: For messages.

    Raises:
        TurnlogError: As `version_of`, which is asked again under the write lock.
    """
    db.execute("begin immediate")
    try:
        version = version_of(db, path)
        if version < VERSION:
            for step in _STEPS[max(version - _BASE, 0) :]:
                for statement in step:
                    db.execute(statement)
            db.execute(f"pragma application_id = {APPLICATION_ID}")
            db.execute(f"pragma user_version = {VERSION}")
        db.execute("commit")
    finally:
        if db.in_transaction:
            db.execute("rollback")


def _seen(db: sqlite3.Connection) -> tuple[int, int, int]:
    """Return application id, version and number of objects, all of one moment."""
    own = not db.in_transaction
    if own:
        db.execute("begin")
    try:
        [objects] = db.execute("select count(*) from sqlite_master").fetchone()
        return _pragma(db, "application_id"), _pragma(db, "user_version"), objects
    finally:
        if own:
            db.execute("rollback")


def _pragma(db: sqlite3.Connection, name: str) -> int:
    [value] = db.execute(f"pragma {name}").fetchone()
    return int(value)
