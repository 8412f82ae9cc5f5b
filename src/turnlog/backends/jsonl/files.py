"""The one place where the JSONL backend touches the operating system.

Owns every file call and the modes, flags and sync primitives behind them; knows nothing of sessions.
Tests replace a `FileLayer` by one that fails on purpose. Below the root no symbolic link is followed (S1):
folders are opened one component at a time, and files relative to an open folder.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat as stat_module
import sys
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

try:
    import fcntl
except ImportError:  # pragma: no cover - Windows has no flock; reading works there, writing is refused
    fcntl = None  # type: ignore[assignment]  # absent on Windows

FILE_MODE: Final = 0o600
FOLDER_MODE: Final = 0o700

_CLOEXEC = getattr(os, "O_CLOEXEC", 0)
_NOFOLLOW = getattr(os, "O_NOFOLLOW", 0)
_DIRECTORY = getattr(os, "O_DIRECTORY", 0)

READ: Final = os.O_RDONLY | _CLOEXEC | _NOFOLLOW | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
"""Never blocks on a pipe that somebody put in a log's place."""
FOLDER: Final = os.O_RDONLY | _DIRECTORY | _CLOEXEC | _NOFOLLOW
"""Opens a folder in an open folder."""
UPDATE: Final = os.O_RDWR | _CLOEXEC | _NOFOLLOW
CREATE_NEW: Final = UPDATE | os.O_CREAT | os.O_EXCL
OPEN_OR_CREATE: Final = UPDATE | os.O_CREAT

NO_HARD_LINKS: Final = frozenset({errno.EOPNOTSUPP, errno.ENOTSUP, errno.EPERM, errno.ENOSYS})
"""The error numbers of `link` on file systems that have no hard links."""


class FolderEntry(NamedTuple):
    """One name in a folder. A symbolic link is neither a folder nor a file here (S1)."""

    name: str
    is_folder: bool
    is_link: bool


class FileLayer:
    """File calls of the backend; stateless but for counters that tests and benches read."""

    can_write = fcntl is not None and os.open in os.supports_dir_fd
    """Whether this platform has the locks and folder handles that writing needs."""

    def __init__(self) -> None:
        self.syncs = 0
        """Files and folders synced so far."""
        self.bytes_read = 0
        """Bytes read from logs so far."""

    # -- folders --------------------------------------------------------------------------------

    def open_folder(self, root: str, parts: Sequence[str] = ()) -> int:
        """Open `root`, then each of `parts` below it, following no symbolic link below the root.

        Raises:
            FileNotFoundError: A component is absent.
            NotADirectoryError: A component is not a folder, or is a symbolic link.
        """
        fd = os.open(root, os.O_RDONLY | _DIRECTORY | _CLOEXEC)
        for part in parts:
            try:
                below = os.open(part, FOLDER, dir_fd=fd)
            except OSError as error:
                _tell_whole_path(error, part, fd)
                raise
            finally:
                os.close(fd)
            fd = below
        return fd

    @contextlib.contextmanager
    def folder(self, root: str, parts: Sequence[str] = ()) -> Iterator[int]:
        """Open a folder as `open_folder` does for the length of a `with` block."""
        fd = self.open_folder(root, parts)
        try:
            yield fd
        finally:
            self.close(fd)

    def make_folder(self, name: str, *, folder: int | None = None) -> bool:
        """Create a folder with mode 0700 whatever the umask; tell whether it was absent."""
        try:
            os.mkdir(name, FOLDER_MODE, dir_fd=folder)
        except FileExistsError:
            return False
        except OSError as error:
            _tell_whole_path(error, name, folder)
            raise
        os.chmod(name, FOLDER_MODE, dir_fd=folder)
        return True

    def remove_folder(self, name: str, *, folder: int | None = None) -> None:
        """Remove an empty folder."""
        os.rmdir(name, dir_fd=folder)

    def entries(self, folder: int) -> list[FolderEntry]:
        """Return the names in an open folder, in no particular order."""
        with os.scandir(folder) as found:
            return [
                FolderEntry(entry.name, is_folder, not is_folder and entry.is_symlink())
                for entry in found
                for is_folder in [entry.is_dir(follow_symlinks=False)]
            ]

    # -- files ----------------------------------------------------------------------------------

    def open(self, name: str, flags: int, *, folder: int | None = None) -> int:
        """Open a file; one that is created gets mode 0600 whatever the umask."""
        try:
            fd = os.open(name, flags, FILE_MODE, dir_fd=folder)
        except OSError as error:
            _tell_whole_path(error, name, folder)
            raise
        if flags & os.O_CREAT:
            try:
                if stat_module.S_IMODE(os.fstat(fd).st_mode) != FILE_MODE:
                    os.fchmod(fd, FILE_MODE)
            except OSError:
                os.close(fd)
                raise
        return fd

    def close(self, fd: int) -> None:
        """Close a descriptor."""
        os.close(fd)

    def status(self, fd: int) -> os.stat_result:
        """Return the status of an open file."""
        return os.fstat(fd)

    def path_status(self, path: str, *, folder: int | None = None) -> os.stat_result:
        """Return the status of what a path names, not following a symbolic link at its end."""
        try:
            return os.stat(path, dir_fd=folder, follow_symlinks=False)
        except OSError as error:
            _tell_whole_path(error, path, folder)
            raise

    def read_at(self, fd: int, size: int, offset: int) -> bytes:
        """Read up to `size` bytes at `offset`; fewer only at the end of the file."""
        parts: list[bytes] = []
        while size > 0:
            part = os.pread(fd, size, offset)
            if not part:
                break
            self.bytes_read += len(part)
            parts.append(part)
            size -= len(part)
            offset += len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def write_at(self, fd: int, data: bytes, offset: int) -> None:
        """Write all of `data` at `offset`, also where the system takes it in several parts."""
        rest = memoryview(data)
        while rest:
            done = self.write_part(fd, rest, offset)
            rest = rest[done:]
            offset += done

    def write_part(self, fd: int, data: memoryview, offset: int) -> int:
        """Write some of `data` at `offset`; return how many bytes were taken."""
        return os.pwrite(fd, data, offset)

    def truncate(self, fd: int, size: int) -> None:
        """Cut a file to `size` bytes."""
        os.ftruncate(fd, size)

    def sync(self, fd: int) -> None:
        """Make a file or folder with all its metadata survive power loss."""
        self.syncs += 1
        _full_sync(fd)

    def sync_data(self, fd: int) -> None:
        """Make a file's bytes and size survive power loss; times may be lost."""
        self.syncs += 1
        _data_sync(fd)

    def link(self, name: str, new_name: str, *, folder: int) -> None:
        """Give a file a second name in the same folder; FileExistsError if the name is taken."""
        os.link(name, new_name, src_dir_fd=folder, dst_dir_fd=folder, follow_symlinks=False)

    def rename(self, name: str, new_name: str, *, folder: int) -> None:
        """Rename within one folder, replacing what has the new name."""
        os.rename(name, new_name, src_dir_fd=folder, dst_dir_fd=folder)

    def remove(self, name: str, *, folder: int) -> None:
        """Remove one name from a folder."""
        os.unlink(name, dir_fd=folder)

    def lock(self, fd: int) -> bool:
        """Try to take the exclusive `flock` of an open file or folder; tell whether it was free."""
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def _tell_whole_path(error: OSError, name: str, folder: int | None) -> None:
    """Put the folder before the name in an error that people will see; an absent file is rarely one."""
    if folder is None or isinstance(error, FileNotFoundError):
        return
    with contextlib.suppress(OSError):  # no such file system, as on a Mac: the name alone is told
        error.filename = os.path.join(os.readlink(f"/proc/self/fd/{folder}"), name)


if sys.platform == "darwin":  # pragma: no cover - macOS flushes the drive's cache only when asked like this

    def _full_sync(fd: int) -> None:
        try:
            fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
        except OSError:
            os.fsync(fd)  # file systems without F_FULLFSYNC, such as network mounts

    _data_sync = _full_sync
else:

    def _full_sync(fd: int) -> None:
        os.fsync(fd)

    _data_sync = getattr(os, "fdatasync", os.fsync)
