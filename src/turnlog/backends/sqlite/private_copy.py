"""A private copy of a database and its log, for readers that may not write beside the original.

Owns taking a copy that is of one moment, and telling when the original has moved on. SQLite's own way out,
to call the file immutable, would read a database without its log, or torn pages of one that changes.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from typing import Final

from turnlog.backends.sqlite import descriptors
from turnlog.backends.sqlite.failures import NAME, refused
from turnlog.errors import BackendUnavailableError

_LOOKS: Final = 8
_PIECE: Final = 1 << 20
_SUFFIXES: Final = ("", "-wal", "-journal")


class PrivateCopy:
    """Copies of a database and its log in a folder of this user alone.

    Args:
        path: The original.

    Raises:
        BackendError: It cannot be copied.
        BackendUnavailableError: It is being written faster than it can be copied; try again.
    """

    def __init__(self, path: str) -> None:
        self._original = path
        self._folder = tempfile.mkdtemp(prefix="turnlog-read-")
        self.path = os.path.join(self._folder, "copy.db")
        try:
            self._stamp = self._take()
        except BaseException:
            self.remove()
            raise

    @property
    def is_current(self) -> bool:
        """Whether the original is as it was when it was copied."""
        with contextlib.suppress(OSError):
            return _stamp_of(self._original) == self._stamp
        return False

    def remove(self) -> None:
        """Remove the copy."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _take(self) -> tuple[object, ...]:
        """Copy until two looks at the original agree, and return what was seen."""
        try:
            for _ in range(_LOOKS):
                before = _stamp_of(self._original)
                with descriptors.opened(self._original) as fd:
                    _copy_open(fd, self.path)
                for suffix in _SUFFIXES[1:]:
                    _copy(self._original + suffix, self.path + suffix)
                if _stamp_of(self._original) == before:
                    return before
        except OSError as error:
            raise refused(self._original, f"the database cannot be copied: {error.strerror}") from error
        raise BackendUnavailableError(
            backend=NAME,
            reason="the database is written faster than it can be copied for reading; try again",
            path=self._original,
            wrote_nothing=True,
        )


def _stamp_of(path: str) -> tuple[object, ...]:
    """Return what changes with every commit and every checkpoint: the files with their sizes and times."""
    found: list[tuple[int, int, int, int] | None] = []
    for suffix in _SUFFIXES:
        try:
            status = os.stat(path + suffix)
        except FileNotFoundError:
            found.append(None)
        else:
            found.append((status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns))
    return tuple(found)


def _copy_open(source: int, target: str) -> None:
    """Copy an open file."""
    with open(target, "wb") as file:
        offset = 0
        while data := os.pread(source, _PIECE, offset):
            file.write(data)
            offset += len(data)


def _copy(source: str, target: str) -> None:
    """Copy one file; one that is not there leaves none."""
    try:
        shutil.copyfile(source, target)
    except FileNotFoundError:
        with contextlib.suppress(FileNotFoundError):
            os.remove(target)
