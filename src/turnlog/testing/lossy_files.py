"""`LossyFiles`: a file layer on a real folder that forgets at a power cut what was never synced.

Owns the model of what is durable: the bytes of a file as of its last sync, the names in a folder as of
the folder's last sync. It is stricter than any file system, so code that passes here relies on nothing
that POSIX does not promise. The calls themselves really happen; only `power_cut` rebuilds the tree.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import shutil
import stat
import threading
from collections.abc import Sequence
from pathlib import Path

from turnlog.backends.jsonl.files import FileLayer


class PowerModel:
    """What of the tree below `top` would survive a power cut; shared by all layers on it.

    Nodes are told apart by numbers given at creation, since a file system uses inode numbers again.

    Args:
        top: An existing folder; what is in it at this moment counts as durable.
    """

    def __init__(self, top: Path) -> None:
        self.top = top
        self.cuts = 0
        """Power cuts so far."""
        self._guard = threading.RLock()
        self._numbers = itertools.count(1)
        self._nodes: dict[tuple[int, int], int] = {}
        self._data: dict[int, bytes] = {}
        self._names: dict[int, dict[str, tuple[int, bool]]] = {}
        self._adopt(top)

    def created(self, status: os.stat_result) -> None:
        """Note that a file or folder is new: nothing of it is durable yet."""
        with self._guard:
            node = self._nodes[status.st_dev, status.st_ino] = next(self._numbers)
            if stat.S_ISDIR(status.st_mode):
                self._names[node] = {}
            else:
                self._data[node] = b""

    def synced(self, fd: int) -> None:
        """Note that the file or folder behind `fd` was synced."""
        with self._guard:
            status = os.fstat(fd)
            node = self._node(status)
            if stat.S_ISDIR(status.st_mode):
                with os.scandir(fd) as found:
                    self._names[node] = {
                        entry.name: (
                            self._node(entry.stat(follow_symlinks=False)),
                            entry.is_dir(follow_symlinks=False),
                        )
                        for entry in found
                    }
            else:
                self._data[node] = _read(fd, status.st_size)

    def power_cut(self) -> None:
        """Throw the volatile tree away and put the durable one in its place."""
        with self._guard:
            durable = self._collect(self._node(os.stat(self.top)), Path())
            for entry in list(self.top.iterdir()):
                if entry.is_dir() and not entry.is_symlink():
                    shutil.rmtree(entry)
                else:
                    entry.unlink()
            for path, content in durable:
                target = self.top / path
                if content is None:
                    target.mkdir(mode=0o700)
                else:
                    target.write_bytes(content)
                    target.chmod(0o600)
            self.cuts += 1
            self._nodes.clear()
            self._data.clear()
            self._names.clear()
            self._adopt(self.top)

    def _collect(self, node: int, path: Path) -> list[tuple[Path, bytes | None]]:
        """List the durable tree below one folder, folders before what they hold."""
        found: list[tuple[Path, bytes | None]] = []
        for name, (child, is_folder) in sorted(self._names.get(node, {}).items()):
            if is_folder:
                found.append((path / name, None))
                found.extend(self._collect(child, path / name))
            else:
                found.append((path / name, self._data.get(child, b"")))
        return found

    def _adopt(self, folder: Path) -> int:
        """Take a tree as durable the way it is."""
        self.created(folder.stat())
        node = self._node(folder.stat())
        names: dict[str, tuple[int, bool]] = {}
        for entry in folder.iterdir():
            if entry.is_dir() and not entry.is_symlink():
                names[entry.name] = (self._adopt(entry), True)
            else:
                self.created(entry.lstat())
                child = self._node(entry.lstat())
                self._data[child] = entry.read_bytes()
                names[entry.name] = (child, False)
        self._names[node] = names
        return node

    def _node(self, status: os.stat_result) -> int:
        key = (status.st_dev, status.st_ino)
        if key not in self._nodes:
            self.created(status)
        return self._nodes[key]


class LossyFiles(FileLayer):
    """The file calls of one process on a `PowerModel`.

    Args:
        model: What is durable.

    Attributes:
        dead: Whether the process is gone; every later call that would change something fails.
    """

    def __init__(self, model: PowerModel) -> None:
        super().__init__()
        self.model = model
        self.dead = False
        self._open: dict[int, tuple[int, int]] = {}
        self._guard = threading.RLock()

    @property
    def is_open(self) -> bool:
        """Whether the process lives and holds a file or folder open."""
        return not self.dead and bool(self._open)

    def die(self) -> None:
        """Close every descriptor, which frees the locks, and let no later call change anything."""
        with self._guard:
            self.dead = True
            for fd, identity in self._open.items():
                with contextlib.suppress(OSError):  # closed by somebody who did not come through here
                    if _identity(os.fstat(fd)) == identity:
                        os.close(fd)
            self._open.clear()

    def open_folder(self, root: str, parts: Sequence[str] = ()) -> int:
        return self._track(super().open_folder(root, parts))

    def make_folder(self, name: str, *, folder: int | None = None) -> bool:
        self._check_alive()
        made = super().make_folder(name, folder=folder)
        if made:
            self.model.created(os.stat(name, dir_fd=folder))
        return made

    def remove_folder(self, name: str, *, folder: int | None = None) -> None:
        self._check_alive()
        super().remove_folder(name, folder=folder)

    def open(self, name: str, flags: int, *, folder: int | None = None) -> int:
        if flags & (os.O_CREAT | os.O_TRUNC):
            self._check_alive()
        with self._guard:
            is_new = bool(flags & os.O_CREAT) and not _exists(name, folder)
            fd = super().open(name, flags, folder=folder)
            if is_new:
                self.model.created(os.fstat(fd))
            return self._track(fd)

    def close(self, fd: int) -> None:
        with self._guard:
            if self.dead and fd not in self._open:
                return
            self._open.pop(fd, None)
            super().close(fd)

    def write_part(self, fd: int, data: memoryview, offset: int) -> int:
        self._check_alive()
        return super().write_part(fd, data, offset)

    def truncate(self, fd: int, size: int) -> None:
        self._check_alive()
        super().truncate(fd, size)

    def sync(self, fd: int) -> None:
        self._check_alive()
        super().sync(fd)
        self.model.synced(fd)

    def sync_data(self, fd: int) -> None:
        self._check_alive()
        super().sync_data(fd)
        self.model.synced(fd)

    def link(self, name: str, new_name: str, *, folder: int) -> None:
        self._check_alive()
        super().link(name, new_name, folder=folder)

    def rename(self, name: str, new_name: str, *, folder: int) -> None:
        self._check_alive()
        super().rename(name, new_name, folder=folder)

    def remove(self, name: str, *, folder: int) -> None:
        self._check_alive()
        super().remove(name, folder=folder)

    def _track(self, fd: int) -> int:
        with self._guard:
            if self.dead:
                os.close(fd)
                raise OSError(errno.EIO, "this process is dead")
            self._open[fd] = _identity(os.fstat(fd))
        return fd

    def _check_alive(self) -> None:
        if self.dead:
            raise OSError(errno.EIO, "this process is dead")


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _exists(name: str, folder: int | None) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def _read(fd: int, size: int) -> bytes:
    parts: list[bytes] = []
    offset = 0
    while offset < size:
        part = os.pread(fd, size - offset, offset)
        if not part:
            break
        parts.append(part)
        offset += len(part)
    return b"".join(parts)
