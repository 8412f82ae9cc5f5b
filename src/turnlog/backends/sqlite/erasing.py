"""Taking deleted content out of the write-ahead log: what a deletion leaves beside the database.

Owns one truncating checkpoint. In the database itself SQLite overwrites what is deleted (`secure_delete`).
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable

from turnlog.backends.sqlite.failures import typed
from turnlog.backends.sqlite.links import Link


def erase_log(path: str, connect: Callable[[], Link]) -> bool:
    """Move everything into the database and truncate the log.

    Args:
        path: The database.
        connect: Opens a connection for writing that waits for others only briefly.

    Returns:
        True when the log is empty; False while a reader or writer holds it back.

    Raises:
        BackendError: The medium failed.
    """
    if not os.path.exists(path):
        return True
    link = connect()
    try:
        [busy, _, _] = link.db.execute("pragma wal_checkpoint(truncate)").fetchone()
        return not busy
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return False
        raise typed(error, path, wrote_nothing=True) from error
    except sqlite3.Error as error:
        raise typed(error, path, wrote_nothing=True) from error
    finally:
        link.close()
