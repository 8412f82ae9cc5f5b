"""The database's path: what may stand there, making it, and telling whether it is still the same file.

Owns everything that is done to the file and its folder without SQLite.
"""

from __future__ import annotations

import os
import stat
from typing import Final
from urllib.parse import quote

from turnlog.backends.file_systems import file_system_type
from turnlog.backends.sqlite import descriptors
from turnlog.backends.sqlite.failures import damaged, refused

MAGIC: Final = b"SQLite format 3\0"
_HEADER_SIZE: Final = 100

_NETWORK_TYPES: Final = frozenset(
    {
        "nfs",
        "nfs4",
        "cifs",
        "smb3",
        "smbfs",
        "9p",
        "virtiofs",
        "vboxsf",
        "afs",
        "ceph",
        "glusterfs",
        "lustre",
        "ocfs2",
        "gfs2",
        "gpfs",
        "orangefs",
        "davfs",
        "ncpfs",
        "coda",
        "fuse.ceph",
        "fuse.davfs",
        "fuse.gcsfuse",
        "fuse.glusterfs",
        "fuse.rclone",
        "fuse.s3fs",
        "fuse.sshfs",
        "fuse.vmhgfs-fuse",
        "prl_fs",
    }
)
"""File systems of several hosts, which do not share the memory that the write-ahead log needs."""

MOUNTS: Final = "/proc/self/mountinfo"


def uri(path: str, mode: str, vfs: str | None = None) -> str:
    """Return the URI by which SQLite opens a path, whatever characters it has.

    Args:
        path: Absolute path.
        mode: `ro` or `rw`.
        vfs: Name of a file layer within SQLite, or None for the default.
    """
    layer = "" if vfs is None else f"&vfs={vfs}"
    return f"file:{quote(os.fsencode(path))}?mode={mode}{layer}"


def check_place(path: str, mounts: str = MOUNTS) -> None:
    """Refuse a path where no database can be, before anything is made or opened there.

    Args:
        path: Absolute path of the database.
        mounts: The table of mounts, in the form of proc(5).

    Raises:
        BackendError: Something else than a file is there, or the file system belongs to several hosts.
    """
    kind = file_system_type(os.path.dirname(path), mounts)
    if kind in _NETWORK_TYPES:
        raise refused(
            path,
            f"it is on a {kind} file system, where SQLite loses data when two hosts write; "
            "choose a local path, or PostgreSQL for several hosts",
        )
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return
    except OSError as error:
        raise refused(path, f"the database cannot be opened: {error.strerror}") from error
    if stat.S_ISDIR(mode):
        raise refused(path, "it is a folder; give the path of a file in it")
    if not stat.S_ISREG(mode):
        raise refused(path, "it is no regular file; give the path of one")


def check_head(path: str) -> bool:
    """Look whether a file begins like a database; SQLite itself would say the same of all that does not.

    Args:
        path: A regular file.

    Returns:
        False for a file that is not there or empty.

    Raises:
        BackendError: It holds something else, or cannot be read.
        CorruptLogError: It is a database that was cut short.
    """
    file = descriptors.identity(path)
    if file is not None and descriptors.is_in_use(file):
        return True  # this process has it open, so it has been looked at
    try:
        with descriptors.opened(path) as fd:
            head = os.pread(fd, _HEADER_SIZE, 0)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise refused(path, f"the database cannot be opened: {error.strerror}") from error
    if not head:
        return False
    if head[: len(MAGIC)] != MAGIC[: len(head)]:
        raise refused(path, "the file is no SQLite database; give the path of another file")
    if len(head) < _HEADER_SIZE:
        raise damaged(path, f"it ends after {len(head)} bytes, inside its header")
    return True


def create(path: str) -> None:
    """Make an empty database file with mode 0600, and its folders with mode 0700; sync both.

    Args:
        path: Absolute path.

    Raises:
        BackendError: The operating system refuses.
    """
    try:
        _make_folder(os.path.dirname(path))
        try:
            with descriptors.created(path, 0o600) as fd:
                os.fsync(fd)
        except FileExistsError:
            return
        sync_folder(os.path.dirname(path))
    except OSError as error:
        raise refused(path, f"the database cannot be made: {error.strerror}") from error


def _make_folder(folder: str) -> None:
    """Make a folder and those above it as needed, each synced into the one above."""
    if os.path.isdir(folder):
        return
    above = os.path.dirname(folder)
    _make_folder(above)
    try:
        os.mkdir(folder, 0o700)
    except FileExistsError:
        if not os.path.isdir(folder):
            raise
    sync_folder(above)


def sync_folder(folder: str) -> None:
    """Make the names in a folder durable."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
