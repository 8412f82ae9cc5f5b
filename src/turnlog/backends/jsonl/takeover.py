"""Taking a session over from a writer that still lives, so that its late writes reach a dead file (W1).

A is the old writer, B the new one. A can be stopped between any two of its system calls and go on at any
time later. What each does, in order:

  A, for every write      a1  open the log (or use the kept descriptor)
                          a2  check that the lock's path still names A's lock file
                          a3  write and sync through the descriptor
                          a4  check the lock's path and the log's path again; acknowledge
  A, for a publication    p1  create the temporary file;  p2  check the lock's path;  p3  write and sync it,
                          and the entry of its folder
                          p4  link it to its name;  p5  sync the folder;  p6  as a4
  B                       b1  rename B's own, locked lock file over the lock's path
                          b2  remove every temporary file in the session folder
                          b3  copy the log until two looks at it agree, sync the copy, rename it over the log
                          b4  read what the old file got since; append what is whole to the new one

No acknowledged event is lost: A acknowledges only after a4 saw A's lock, so before b1; what it wrote was in
the old file by then, and b3 copies the old file after b1. (b4 is for writers of other programs that hold
the same lock and do not look at it again.)

No late write reaches the log: a descriptor that A opened (a1) before a check that passed (a2) was opened
before b1, thus before the swap of b3, so it leads to the old file for ever; and after b1 no check passes.
Rolling back and settling a doubtful write compare the inode of what they reopen with the old descriptor's,
which is still open, so that the number cannot have been given to another file. A publication whose check
(p2) passed made its temporary file before b1, so that either its link came before b2 looked for it, and b3
copies the result, or the temporary file is gone and p4 fails. The same holds for B's own copy when a
third writer takes over from B in the middle.

B dies in between: before b1 nothing has happened. After b1 the lock says `swap: pending`; whoever takes the
free lock next reads that and does b2 to b4 before anything else, because A may still be stopped before a3.

Two takeovers race: b1 happens under a lock on the session folder and only while the path still names the
lock file that was found busy, so the second one finds another lock there and is told that it is busy.
Deleting a session removes files by name and therefore holds the folder's lock all the while.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Final

from turnlog.backends.jsonl.files import CREATE_NEW, READ, FileLayer
from turnlog.backends.jsonl.layout import LOCK_NAME, LOG_NAMES, Encoding, temp_name
from turnlog.backends.jsonl.lock import Identity, JsonlClaim, identity, owner_at, write_owner
from turnlog.backends.jsonl.publication import remove_temporaries
from turnlog.backends.jsonl.whole_rows import whole_length
from turnlog.errors import ClaimOwner, SessionBusyError

_PIECE: Final = 1 << 20
_LOOKS: Final = 16
"""Copies after which b3 goes on although another program keeps writing; b4 fetches the rest."""


@contextlib.contextmanager
def folder_lock(files: FileLayer, root: str, parts: tuple[str, str], session_id: str) -> Iterator[None]:
    """Hold the lock on a session folder itself, which serialises takeovers and deletions.

    Raises:
        SessionBusyError: Another takeover or a deletion is under way.
    """
    with files.folder(root, parts) as folder:
        if not files.lock(folder):
            raise SessionBusyError(session_id=session_id, owner=owner_at(files, folder))
        yield


def lock_identity(files: FileLayer, folder: int) -> Identity | None:
    """Return which file the lock's name in an open session folder stands for, or None."""
    try:
        return identity(files.path_status(LOCK_NAME, folder=folder))
    except FileNotFoundError:
        return None


def replace_lock(
    files: FileLayer, folder: int, folder_path: str, session_id: str, owner: ClaimOwner, busy: Identity | None
) -> JsonlClaim:
    """Put a locked file of one's own in the place of a busy lock (b1); called under `folder_lock`.

    Args:
        files: The file layer.
        folder: Descriptor of the session folder.
        folder_path: Its path.
        session_id: For errors.
        owner: Facts about the new writer.
        busy: The lock file that was found busy.

    Returns:
        A claim whose `swap_pending` is true.

    Raises:
        SessionBusyError: The path names another lock file by now: another takeover was first.
    """
    if lock_identity(files, folder) != busy:
        raise SessionBusyError(session_id=session_id, owner=owner_at(files, folder))
    temp = temp_name(LOCK_NAME)
    fd = files.open(temp, CREATE_NEW, folder=folder)
    try:
        files.lock(fd)
        write_owner(files, fd, owner, swap_pending=True)
        files.rename(temp, LOCK_NAME, folder=folder)
        return JsonlClaim(session_id, folder_path, fd, identity(files.status(fd)), owner, True)
    except BaseException:
        files.close(fd)
        with contextlib.suppress(OSError):
            files.remove(temp, folder=folder)
        raise


def swap_logs(files: FileLayer, folder: int, claim: JsonlClaim) -> None:
    """Put copies of the session's log in its place (b2 to b4) and write down that this is done.

    Raises:
        SessionBusyError: Another writer has taken over meanwhile.
        OSError: The medium failed; the swap stays pending and the claim must be given up.
    """
    remove_temporaries(files, folder, older_than=0)
    for encoding, name in LOG_NAMES.items():
        try:
            old = files.open(name, READ, folder=folder)
        except FileNotFoundError:
            continue
        try:
            _swap(files, folder, claim, encoding, old)
        finally:
            files.close(old)
    claim.describe(files, swap_pending=False)


def _swap(files: FileLayer, folder: int, claim: JsonlClaim, encoding: Encoding, old: int) -> None:
    name = LOG_NAMES[encoding]
    temp = temp_name(name)
    new = files.open(temp, CREATE_NEW, folder=folder)
    try:
        try:
            if not claim.is_current(files):
                raise _taken_over(files, folder, claim)
            size = _copy_until_stable(files, old, new)
            files.sync(new)
            files.rename(temp, name, folder=folder)
        except FileNotFoundError as error:
            raise _taken_over(files, folder, claim) from error
        except BaseException:
            with contextlib.suppress(OSError):
                files.remove(temp, folder=folder)
            raise
        files.sync(folder)
        _fetch(files, encoding, old, new, size)
    finally:
        files.close(new)


def _copy_until_stable(files: FileLayer, old: int, new: int) -> int:
    """Copy the old log until it did not change meanwhile; return the copied size."""
    for _ in range(_LOOKS):
        before = files.status(old)
        for offset in range(0, before.st_size, _PIECE):
            files.write_at(new, files.read_at(old, min(_PIECE, before.st_size - offset), offset), offset)
        files.truncate(new, before.st_size)
        after = files.status(old)
        if (before.st_size, before.st_mtime_ns) == (after.st_size, after.st_mtime_ns):
            break
    return before.st_size


def _fetch(files: FileLayer, encoding: Encoding, old: int, new: int, size: int) -> None:
    """Append what the old file got after the copy, as far as it is whole (b4)."""
    grown = files.status(old).st_size - size
    if grown <= 0:
        return
    late = files.read_at(old, grown, size)
    late = late[: whole_length(encoding, late)]
    if late:
        files.write_at(new, late, size)
        files.sync_data(new)


def _taken_over(files: FileLayer, folder: int, claim: JsonlClaim) -> SessionBusyError:
    return SessionBusyError(session_id=claim.session_id, owner=owner_at(files, folder))
