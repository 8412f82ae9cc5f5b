"""The file calls where folders cannot be opened, as on Windows: reading by path, no writing at all.

Owns the same promises for readers as `FileLayer`, made by looking at each component before its use. There is
no lock that turnlog knows on such a platform, so whoever wants to write is refused before any call is made.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Sequence

from turnlog.backends.jsonl.files import FileLayer, FolderEntry


class PathFiles(FileLayer):
    """A reader's file layer without folder descriptors; an open folder is a negative number."""

    can_write = False

    def __init__(self) -> None:
        super().__init__()
        self._folders: dict[int, str] = {}
        self._next = -1

    def open_folder(self, root: str, parts: Sequence[str] = ()) -> int:
        """Check `root` and each of `parts` below it, as far as links are concerned, and remember the path."""
        path = root
        _check_folder(os.stat(path), path)
        for part in parts:
            path = os.path.join(path, part)
            _check_folder(os.lstat(path), path)
        token, self._next = self._next, self._next - 1
        self._folders[token] = path
        return token

    def entries(self, folder: int) -> list[FolderEntry]:
        """Return the names in an open folder, in no particular order."""
        with os.scandir(self._folders[folder]) as found:
            return [
                FolderEntry(entry.name, entry.is_dir(follow_symlinks=False), entry.is_symlink())
                for entry in found
            ]

    def open(self, name: str, flags: int, *, folder: int | None = None) -> int:
        """Open a file for reading; a symbolic link is refused as the system would with `O_NOFOLLOW`."""
        path = self._path(name, folder)
        if stat.S_ISLNK(os.lstat(path).st_mode):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
        return os.open(path, flags)

    def close(self, fd: int) -> None:
        """Close a file, or forget a folder."""
        if fd < 0:
            del self._folders[fd]
        else:
            os.close(fd)

    def path_status(self, path: str, *, folder: int | None = None) -> os.stat_result:
        """Return the status of what a path names, not following a symbolic link at its end."""
        return os.lstat(self._path(path, folder))

    def read_at(self, fd: int, size: int, offset: int) -> bytes:
        """Read up to `size` bytes at `offset`; fewer only at the end of the file."""
        os.lseek(fd, offset, os.SEEK_SET)
        parts: list[bytes] = []
        while size > 0 and (part := os.read(fd, size)):
            self.bytes_read += len(part)
            parts.append(part)
            size -= len(part)
        return b"".join(parts)

    def _path(self, name: str, folder: int | None) -> str:
        return name if folder is None else os.path.join(self._folders[folder], name)


def _check_folder(status: os.stat_result, path: str) -> None:
    if not stat.S_ISDIR(status.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
