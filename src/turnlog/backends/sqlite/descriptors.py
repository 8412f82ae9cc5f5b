"""Descriptors on a database file beside SQLite's own, which must not be closed while SQLite has locks on it.

Owns one rule of POSIX: when a process closes any descriptor of a file, it loses every lock it holds on that
file, those that SQLite took through another descriptor included. Another process could then take the log of
a connection that is in use for one that nobody needs, and delete it with the last commits. So a descriptor
of ours stays open until the last connection of this process to the same file is closed.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeAlias

Identity: TypeAlias = tuple[int, int]
"""Device and inode number of a file."""

_guard = threading.Lock()
_users: dict[Identity, int] = {}
"""How many connections, being opened or open, and descriptors in use there are for each file."""
_kept: dict[Identity, list[int]] = {}
"""Descriptors that nobody uses, waiting for the last user of their file to go."""


def identity(path: str) -> Identity | None:
    """Return which file a path names now, or None."""
    try:
        return _identity_of(os.stat(path))
    except OSError:
        return None


def _identity_of(status: os.stat_result) -> Identity:
    return (status.st_dev, status.st_ino)


def is_in_use(file: Identity) -> bool:
    """Tell whether this process has the file open, by SQLite or otherwise."""
    with _guard:
        return file in _users


def enter(file: Identity) -> None:
    """Note that SQLite is about to open a file; `leave` follows when that connection is closed."""
    with _guard:
        _enter(file)


def leave(file: Identity) -> None:
    """Note that a connection is closed; after the last one the descriptors that waited are closed, too."""
    with _guard:
        _leave(file)


@contextmanager
def opened(path: str) -> Iterator[int]:
    """Open a database file for reading with `os.pread`.

    Args:
        path: The file.

    Yields:
        A descriptor, which others may use as well.

    Raises:
        OSError: The file cannot be opened.
    """
    with _guard:
        fd = _reused(path)
        file = _identity_of(os.fstat(fd))
        _enter(file)
    try:
        yield fd
    finally:
        let_go(fd, file)


@contextmanager
def created(path: str, mode: int) -> Iterator[int]:
    """Make a database file.

    Args:
        path: Where; nothing may be there.
        mode: Permission bits.

    Yields:
        A descriptor for writing.

    Raises:
        FileExistsError: Something is there.
        OSError: The file cannot be made.
    """
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    file = _identity_of(os.fstat(fd))
    enter(file)
    try:
        yield fd
    finally:
        let_go(fd, file)


def let_go(fd: int, file: Identity) -> None:
    """Give a descriptor up: it is closed as soon as that takes no lock away."""
    with _guard:
        waiting = _kept.setdefault(file, [])
        if fd not in waiting:
            waiting.append(fd)
        _leave(file)


def _reused(path: str) -> int:
    """Return a descriptor that waits for its file to be free, or a new one."""
    file = identity(path)
    waiting = _kept.get(file) if file is not None else None
    return waiting[0] if waiting else os.open(path, os.O_RDONLY | os.O_CLOEXEC)


def _enter(file: Identity) -> None:
    _users[file] = _users.get(file, 0) + 1


def _leave(file: Identity) -> None:
    _users[file] -= 1
    if _users[file] == 0:
        del _users[file]
        for fd in _kept.pop(file, []):
            os.close(fd)
