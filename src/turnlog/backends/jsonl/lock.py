"""The write claim of one session on one host: `flock` on `session.lock` in the session folder (W1).

Owns taking, checking, giving back and taking over the lock, and the owner's facts inside it. The lock is
never taken on the log itself. What a claim protects, and in which order, is argued in `takeover`.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
import weakref
from collections.abc import Callable
from typing import Final, TypeAlias

from turnlog.backends.jsonl.files import OPEN_OR_CREATE, READ, FileLayer
from turnlog.backends.jsonl.layout import LOCK_NAME
from turnlog.errors import ClaimOwner, SessionBusyError
from turnlog.persistence.claims import facts_of, is_alive, owner_of

Identity: TypeAlias = tuple[int, int]
"""Device and inode number of a file."""

DYING_SECONDS = 1.0
"""How long to wait for the lock of a process that is dead: the system closes the files of a killed process a
moment after it calls it dead. A lock that is held for longer is held by a child that has inherited it."""

_DYING_PAUSE: Final = 0.002
_ATTEMPTS: Final = 3
_FACTS_LIMIT: Final = 4096


class JsonlClaim:
    """One held lock: the opaque claim that the write hooks take. Compared by identity.

    The descriptor stays open as long as the claim is held, so the inode number it stands for cannot be
    given to another file meanwhile. In a forked child it is closed and the claim is void; closing a
    copied descriptor does not release the parent's lock.
    """

    __slots__ = (
        "__weakref__",
        "_path",
        "fd",
        "folder",
        "identity",
        "is_new",
        "owner",
        "session_id",
        "swap_pending",
        "unsaved",
    )

    def __init__(
        self, session_id: str, folder: str, fd: int, identity: Identity, owner: ClaimOwner, swap_pending: bool
    ) -> None:
        self.session_id = session_id
        self.folder = folder
        self.fd: int | None = fd
        self.identity = identity
        self.owner = owner
        self.swap_pending = swap_pending
        """Whether the log has still to be swapped before anything is written; see `takeover`."""
        self.is_new = False
        """Whether the session folder was made for this claim and nothing has been stored under it yet."""
        self.unsaved: Callable[[], None] | None = None
        """Writes the last summary, if it is not in the session folder yet."""
        self._path = os.path.join(folder, LOCK_NAME)
        _HELD.add(self)

    def is_current(self, files: FileLayer) -> bool:
        """Tell whether the lock's path still names the file this claim has locked."""
        if self.fd is None:
            return False
        try:
            return identity(files.path_status(self._path)) == self.identity
        except (FileNotFoundError, NotADirectoryError):
            return False

    def describe(self, files: FileLayer, *, swap_pending: bool) -> None:
        """Write the owner's facts, and whether the log has still to be swapped, into the lock."""
        assert self.fd is not None
        write_owner(files, self.fd, self.owner, swap_pending=swap_pending)
        self.swap_pending = swap_pending

    def release(self, files: FileLayer) -> None:
        """Give the lock back: wipe the owner's facts, then close the descriptor."""
        fd, self.fd = self.fd, None
        _HELD.discard(self)
        if fd is None:
            return
        # The facts go first, so that no reader takes a living process for the owner of a free lock. A
        # medium that refuses leaves stale facts behind, which only make `list` say `live` too long. A
        # swap that was not finished has to stay written for the next holder.
        if not self.swap_pending:
            with contextlib.suppress(OSError):
                files.truncate(fd, 0)
        files.close(fd)

    def forget(self) -> None:
        """Close the descriptor in a forked child, leaving the parent's lock and facts as they are."""
        fd, self.fd = self.fd, None
        if fd is not None:
            with contextlib.suppress(OSError):  # closed by the child itself, as daemons do: just as well
                os.close(fd)


_HELD: weakref.WeakSet[JsonlClaim] = weakref.WeakSet()


def _forget_in_child() -> None:
    for claim in tuple(_HELD):
        claim.forget()
    _HELD.clear()


if hasattr(os, "register_at_fork"):  # pragma: no branch - there is no fork on Windows
    os.register_at_fork(after_in_child=_forget_in_child)


def take(files: FileLayer, folder: int, folder_path: str, session_id: str, owner: ClaimOwner) -> JsonlClaim:
    """Take the lock in an open session folder.

    Args:
        files: The file layer.
        folder: Descriptor of the session folder.
        folder_path: Its path, under which the lock is compared before every write.
        session_id: For errors.
        owner: Facts about this writer.

    Returns:
        The claim.

    Raises:
        SessionBusyError: Another open file holds the lock; names its owner where the lock says so.
        FileNotFoundError: The folder was removed meanwhile; the caller starts over.
    """
    deadline = time.monotonic() + DYING_SECONDS
    left = _ATTEMPTS
    while left > 0:
        try:
            claim = _try(files, folder, folder_path, session_id, owner)
        except SessionBusyError as busy:
            if busy.owner is None or is_alive(busy.owner) is not False or time.monotonic() > deadline:
                raise
            time.sleep(_DYING_PAUSE)
            continue
        if claim is not None:
            return claim
        left -= 1
    raise SessionBusyError(session_id=session_id, owner=owner_at(files, folder))


def _try(
    files: FileLayer, folder: int, folder_path: str, session_id: str, owner: ClaimOwner
) -> JsonlClaim | None:
    """Take the lock once; None if the file that was locked is not the one that the path names."""
    fd = files.open(LOCK_NAME, OPEN_OR_CREATE, folder=folder)
    try:
        if not files.lock(fd):
            raise SessionBusyError(session_id=session_id, owner=read_facts(files, fd)[0])
        status = files.status(fd)
        held = identity(status)
        if _named(files, os.path.join(folder_path, LOCK_NAME)) == held:
            pending = status.st_size > 0 and read_facts(files, fd)[1]
            write_owner(files, fd, owner, swap_pending=pending)
            return JsonlClaim(session_id, folder_path, fd, held, owner, pending)
    except BaseException:
        files.close(fd)
        raise
    files.close(fd)
    return None


def identity(status: os.stat_result) -> Identity:
    """Return what tells one file from another for as long as either is open."""
    return (status.st_dev, status.st_ino)


def _named(files: FileLayer, path: str) -> Identity | None:
    try:
        return identity(files.path_status(path))
    except FileNotFoundError:
        return None


def write_owner(files: FileLayer, fd: int, owner: ClaimOwner, *, swap_pending: bool = False) -> None:
    """Write the owner's facts into a locked file; readers see the old facts or the new ones."""
    facts = facts_of(owner)
    if swap_pending:
        facts["swap"] = "pending"
    text = json.dumps(facts, separators=(",", ":")).encode() + b"\n"
    files.write_at(fd, text, 0)
    files.truncate(fd, len(text))


def read_facts(files: FileLayer, fd: int) -> tuple[ClaimOwner | None, bool]:
    """Read an open lock file: who owns it, and whether the log has still to be swapped."""
    return decode_facts(files.read_at(fd, _FACTS_LIMIT, 0))


def owner_at(files: FileLayer, folder: int, name: str = LOCK_NAME) -> ClaimOwner | None:
    """Read the owner's facts from a lock file, without touching the lock.

    Args:
        files: The file layer.
        folder: Descriptor of an open folder.
        name: Where the lock is, seen from there.

    Returns:
        None when there is no lock file, or when it names nobody: the lock is free, or held by a program
        that leaves no facts.
    """
    try:
        fd = files.open(name, READ, folder=folder)
    except OSError:
        return None  # absent or unreadable: a reader has nothing to say about it
    try:
        return read_facts(files, fd)[0]
    finally:
        files.close(fd)


def decode_facts(text: bytes) -> tuple[ClaimOwner | None, bool]:
    """Read the text of a lock file: its owner if it describes one, and whether a swap is pending."""
    if not text:
        return None, False
    try:
        facts = json.loads(text)
        pending = facts.get("swap") == "pending"
        owner = owner_of(facts)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None, False  # another program's text, or a write that is under way
    return owner, pending
