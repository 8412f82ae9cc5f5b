"""The folder that holds images on disk: one file per digest, published whole or not at all.

Owns paths, modes, syncs and temporary files below `<root>/attachments/`. Every call blocks; what an image may
be, and which thread runs this, is decided by the attachment store.
"""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_STALE_SECONDS = 3600.0  # an image is written in far less; older temporary files belong to a dead process
_FLAGS = os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
_FOLDER = os.O_RDONLY | _FLAGS | getattr(os, "O_DIRECTORY", 0)
_NO_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EMLINK, errno.ENOSYS})


class AttachmentFiles:
    """Files by digest below one root; folders are 0700, files 0600 (S1).

    Each folder is opened relative to the one above it and never through a symlink, so nothing below the root
    can lead a read or a write out of it.
    """

    def __init__(self, root: Path, max_bytes: int) -> None:
        """Touch nothing yet.

        Args:
            root: Folder of turnlog's own files; made by the first write.
            max_bytes: No stored file is bigger; at most one byte more is read of any.
        """
        self.folder = root / "attachments"
        self._root = root
        self._max_bytes = max_bytes
        self._cleaned = False

    def read(self, digest: str) -> bytes | None:
        """Read one file, unchecked.

        Args:
            digest: 64 lower-case hex digits.

        Returns:
            Its bytes, or None when it is absent.

        Raises:
            OSError: The medium failed, or a symlink stands in the way.
        """
        try:
            with self._folders(digest, make=False) as (_, shard):
                return self._read(shard, digest)
        except FileNotFoundError:
            return None

    def has(self, digest: str) -> bool:
        """Tell whether a regular file is stored under a digest.

        Args:
            digest: 64 lower-case hex digits.

        Returns:
            True if `read` would return bytes.

        Raises:
            OSError: The medium failed, or a symlink stands in the way.
        """
        try:
            with self._folders(digest, make=False) as (_, shard):
                return stat.S_ISREG(os.stat(digest, dir_fd=shard, follow_symlinks=False).st_mode)
        except FileNotFoundError:
            return False

    def write(self, digest: str, data: bytes) -> None:
        """Store bytes under their digest; durable, with the folder's entry, when it returns.

        A stored file whose bytes went bad is replaced.

        Args:
            digest: sha256 of `data`, 64 lower-case hex digits.
            data: The bytes.

        Raises:
            OSError: The medium failed or a symlink stands in the way; no partial file has the final name.
        """
        with self._folders(digest, make=True) as (folder, shard):
            if not self._cleaned:
                _remove_stale(folder)
                self._cleaned = True
            if not self._is_intact(shard, digest):
                temporary = f"tmp-{secrets.token_hex(8)}"
                try:
                    _write(folder, temporary, data)
                    _publish(folder, temporary, shard, digest)
                finally:
                    with suppress(FileNotFoundError):  # renamed, or never made
                        os.unlink(temporary, dir_fd=folder)
            # Also when another writer published it: that writer may not have synced the folder yet.
            os.fsync(shard)

    def remove(self, digest: str) -> bool:
        """Remove one file; durable, with the folder's entry, when it returns.

        Args:
            digest: 64 lower-case hex digits.

        Returns:
            Whether it was there.

        Raises:
            OSError: The medium failed or a symlink stands in the way.
        """
        try:
            with self._folders(digest, make=False) as (_, shard):
                os.unlink(digest, dir_fd=shard)
                os.fsync(shard)
        except FileNotFoundError:
            return False
        return True

    def _is_intact(self, shard: int, digest: str) -> bool:
        try:
            if hashlib.sha256(self._read(shard, digest)).hexdigest() == digest:
                return True
        except FileNotFoundError:
            return False
        os.unlink(digest, dir_fd=shard)
        return False

    def _read(self, shard: int, digest: str) -> bytes:
        with open(os.open(digest, os.O_RDONLY | _FLAGS, dir_fd=shard), "rb") as file:
            return file.read(self._max_bytes + 1)

    @contextmanager
    def _folders(self, digest: str, *, make: bool) -> Iterator[tuple[int, int]]:
        if make:
            self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
        # The root itself may be reached through a symlink: whoever named it chose that.
        root = os.open(self._root, os.O_RDONLY | os.O_CLOEXEC)
        try:
            folder = _enter(root, "attachments", make=make)
        finally:
            os.close(root)
        try:
            shard = _enter(folder, digest[:2], make=make)
            try:
                yield folder, shard
            finally:
                os.close(shard)
        finally:
            os.close(folder)


def _enter(parent: int, name: str, *, make: bool) -> int:
    if make:
        with suppress(FileExistsError):
            os.mkdir(name, 0o700, dir_fd=parent)
            os.fsync(parent)
    return os.open(name, _FOLDER, dir_fd=parent)


def _write(folder: int, name: str, data: bytes) -> None:
    handle = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FLAGS, 0o600, dir_fd=folder)
    with open(handle, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(handle)


def _publish(folder: int, temporary: str, shard: int, digest: str) -> None:
    try:
        os.link(temporary, digest, src_dir_fd=folder, dst_dir_fd=shard, follow_symlinks=False)
    except FileExistsError:
        return  # another writer published the same bytes meanwhile
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        # No hard links here. Replacing is harmless: both files have the bytes that the name states.
        os.rename(temporary, digest, src_dir_fd=folder, dst_dir_fd=shard)


def _remove_stale(folder: int) -> None:
    now = time.time()
    with os.scandir(folder) as entries:
        for entry in entries:
            with suppress(FileNotFoundError):  # another writer removes them, too
                age = now - entry.stat(follow_symlinks=False).st_mtime
                if entry.name.startswith("tmp-") and age > _STALE_SECONDS:
                    os.unlink(entry.name, dir_fd=folder)
