"""`Link`: one open connection, the file it stands for, and the rules for both across threads and forks.

Owns the books of what this process has open. How a connection is opened and set up is not its business.
"""

from __future__ import annotations

import os
import sqlite3

from turnlog.backends.sqlite import descriptors
from turnlog.backends.sqlite.descriptors import Identity
from turnlog.backends.sqlite.failures import refused
from turnlog.backends.sqlite.private_copy import PrivateCopy
from turnlog.errors import UsageError

_OPEN: set[Link] = set()
"""Every open connection. Also what keeps those of a parent process from being closed in a forked child."""


class Link:
    """One open connection.

    Args:
        db: The connection.
        path: The path it was opened under.
        identity: The file that the path named then, entered by `enter`; None for a private copy.
        copy: The private copy that the connection reads, or None.
    """

    __slots__ = ("_log", "_pid", "copy", "db", "identity", "path")

    def __init__(
        self, db: sqlite3.Connection, path: str, identity: Identity | None, copy: PrivateCopy | None = None
    ) -> None:
        self.db = db
        self.path = path
        self.identity = identity
        self.copy = copy
        self._log: Identity | None = None
        self._pid = os.getpid()
        _OPEN.add(self)

    @property
    def is_inherited(self) -> bool:
        """Whether a parent process opened it."""
        return self._pid != os.getpid()

    @property
    def is_current(self) -> bool:
        """Whether the path still names the files that the connection has open, and the copy is fresh."""
        if self.copy is not None:
            return self.copy.is_current
        if descriptors.identity(self.path) != self.identity:
            return False
        log = descriptors.identity(f"{self.path}-wal")  # it comes with the first use, and stays from then on
        if self._log is None:
            self._log = log
        return log == self._log

    def close(self) -> None:
        """Close the connection. In a forked child it is left alone: closing would touch its locks."""
        if self.is_inherited or self not in _OPEN:
            return
        _OPEN.discard(self)
        self.db.close()
        if self.identity is not None:
            descriptors.leave(self.identity)
        if self.copy is not None:
            self.copy.remove()


def enter(path: str) -> Identity:
    """Note that SQLite is about to open a database.

    Args:
        path: The database, which exists.

    Returns:
        Which file it is; whoever makes no link of it calls `descriptors.leave`.

    Raises:
        UsageError: A parent process had it open when this one was forked. SQLite's books in this process
            say that its locks are held, and they are not, so the commits of others would be in danger.
        BackendError: The file has vanished.
    """
    file = descriptors.identity(path)
    if file is None:
        raise refused(path, "the database was removed while it was being opened; try again")
    if any(link.is_inherited and link.identity == file for link in _OPEN):
        raise UsageError(
            f"{path} was open when this process was forked, so this process cannot open it again; "
            "fork before opening a store, or start processes with spawn"
        )
    descriptors.enter(file)
    return file


def open_links(path: str) -> list[Link]:
    """Return the connections to one database that this process has opened and not closed."""
    return [link for link in tuple(_OPEN) if link.path == path and not link.is_inherited]
