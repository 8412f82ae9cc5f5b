"""Giving a file its name so that it appears whole, durable and never over another one (B1).

Owns the order of folder creation, temporary file, syncs and link, and the variant without hard links. The
sequence is that of the session log format, section on the write path. What the bytes are is not its concern.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from turnlog.backends.jsonl.files import CREATE_NEW, FOLDER, NO_HARD_LINKS, FileLayer
from turnlog.backends.jsonl.layout import LOG_NAMES, TEMP_NAME, temp_name

_TEMP_LIFETIME: Final = 3600.0
"""Seconds after which a temporary file is taken for the leftover of a crash."""


class UnsureNameError(Exception):
    """The file has its name, but the folder could not be synced: the outcome is unknown (B3)."""


class OpenFolders(NamedTuple):
    """Descriptors of a session folder and of what is above it."""

    project: int
    session: int
    is_new: bool
    """Whether the session folder was made just now, so that nothing is in it."""


class FolderMaker:
    """Creates the folders of a root with mode 0700 and makes their entries durable.

    An entry is synced once per backend, also when the folder was there before: whoever made it may not
    have synced it. Session folders are not remembered, since each is published once.
    """

    def __init__(self, files: FileLayer, root: str) -> None:
        self._files = files
        self._root = root
        self._durable: set[str] = set()
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def opened(self, parts: tuple[str, str]) -> Iterator[OpenFolders]:
        """Open a session folder and the one above for the length of a `with` block, making what is absent.

        Everything above the session folder is durable then. The session folder's own entry has to be
        synced, in the project folder, before the log in it gets its name.
        """
        project, segment = parts
        above = self._open_project(project)
        try:
            is_new = False
            try:
                fd = self._files.open(segment, FOLDER, folder=above)
            except FileNotFoundError:
                is_new = self._files.make_folder(segment, folder=above)
                fd = self._files.open(segment, FOLDER, folder=above)
            try:
                yield OpenFolders(above, fd, is_new)
            finally:
                self._files.close(fd)
        finally:
            self._files.close(above)

    def _open_project(self, project: str) -> int:
        with self._lock:
            if os.path.join(self._root, project) in self._durable:
                with contextlib.suppress(FileNotFoundError):  # somebody removed it, or the root: once more
                    return self._files.open_folder(self._root, (project,))
            self._create_root(self._root)
            self._create_below(project)
        return self._files.open_folder(self._root, (project,))

    def _create_root(self, path: str) -> None:
        if path in self._durable:
            with contextlib.suppress(FileNotFoundError):
                self._files.path_status(path)
                return
        parent = os.path.dirname(path)
        try:
            created = self._files.make_folder(path)
        except FileNotFoundError:
            self._create_root(parent)
            created = self._files.make_folder(path)
        try:
            with self._files.folder(parent) as folder:
                self._files.sync(folder)
        except PermissionError:
            # A parent that may be passed but not read, such as /home, held the root before this process.
            if created:
                raise
        self._durable.add(path)

    def _create_below(self, project: str) -> None:
        with self._files.folder(self._root) as folder:
            self._files.make_folder(project, folder=folder)
            self._files.sync(folder)  # also where somebody else has made it just now
            self._durable.add(os.path.join(self._root, project))


def publish(
    files: FileLayer,
    folder: int,
    name: str,
    data: bytes,
    *,
    guard: Callable[[], None],
    replace: bool = False,
    beside: Callable[[], None] | None = None,
) -> int:
    """Write `data` to a temporary file and give it `name`, durably.

    `guard` runs between the creation of the temporary file and everything else. A takeover removes all
    temporary files after it has swapped the lock, so either the guard sees the new lock, or the temporary
    file existed before the swap and giving it a name fails: a late publication cannot happen.

    Args:
        files: The file layer.
        folder: Descriptor of the session folder.
        name: The file's final name.
        data: All its bytes.
        guard: Raises when the claim is no longer valid.
        replace: Put the file over an existing one instead of refusing.
        beside: Waits for what has to be durable before the name is given; called after the file's own sync.

    Returns:
        An open descriptor of the published file.

    Raises:
        FileExistsError: The name is taken; nothing was changed.
        UnsureNameError: The file is there, but the folder could not be synced.
        OSError: Anything else; the name was not given.
    """
    temp = temp_name(name if name in LOG_NAMES.values() else LOG_NAMES["none"])
    fd = files.open(temp, CREATE_NEW, folder=folder)
    try:
        guard()
        files.write_at(fd, data, 0)
        files.sync(fd)
        if beside is not None:
            beside()
        give_name(files, folder, temp, name, replace=replace)
    except BaseException:
        files.close(fd)
        with contextlib.suppress(OSError):
            files.remove(temp, folder=folder)
        raise
    try:
        files.sync(folder)
    except OSError as error:
        files.close(fd)
        raise UnsureNameError(error.strerror or str(error)) from error
    finally:
        with contextlib.suppress(OSError):
            files.remove(temp, folder=folder)
    return fd


def give_name(files: FileLayer, folder: int, temp: str, name: str, *, replace: bool = False) -> None:
    """Give a temporary file its name: by `link`, which refuses a taken name in the same step.

    Where the file system has no hard links, the claim of the session folder has to stand in for that:
    no other turnlog writer is there, so absence is checked and the file renamed.
    """
    if replace:
        files.rename(temp, name, folder=folder)
        return
    try:
        files.link(temp, name, folder=folder)
    except OSError as error:
        if error.errno not in NO_HARD_LINKS:
            raise
        try:
            files.path_status(name, folder=folder)
        except FileNotFoundError:
            files.rename(temp, name, folder=folder)
        else:
            raise FileExistsError(f"{name} exists already") from error


def remove_temporaries(files: FileLayer, folder: int, *, older_than: float = _TEMP_LIFETIME) -> int:
    """Remove temporary files that a crash left in a session folder; only ever called under the claim.

    Args:
        files: The file layer.
        folder: Descriptor of the session folder.
        older_than: Age in seconds from which on a file is removed; 0 removes all.

    Returns:
        How many were removed.
    """
    removed = 0
    limit = time.time() - older_than
    for entry in files.entries(folder):
        if TEMP_NAME.match(entry.name) is None:
            continue
        with contextlib.suppress(FileNotFoundError):
            if older_than == 0 or files.path_status(entry.name, folder=folder).st_mtime < limit:
                files.remove(entry.name, folder=folder)
                removed += 1
    return removed
