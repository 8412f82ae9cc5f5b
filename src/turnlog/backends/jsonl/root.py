"""The root folder as a whole: whether it is usable, which encoding it has, what file system it is on.

Owns the choice of the encoding for new sessions and the one warning about file systems whose locks are not
known to work between hosts. Looks at no session but the first one it finds.
"""

from __future__ import annotations

from typing import Final

from turnlog.backends.file_systems import file_system_type
from turnlog.backends.jsonl.files import FileLayer, FolderEntry
from turnlog.backends.jsonl.layout import ENCODING_OF_NAME, RESERVED_FOLDER, Encoding
from turnlog.errors import BackendError, UsageError

_LOCAL_TYPES: Final = frozenset(
    {
        "ext2",
        "ext3",
        "ext4",
        "xfs",
        "btrfs",
        "tmpfs",
        "ramfs",
        "overlay",
        "zfs",
        "f2fs",
        "vfat",
        "exfat",
        "ntfs3",
        "bcachefs",
        "apfs",
        "hfs",
        "fuseblk",
    }
)
"""File systems of one host, on which `flock` excludes every other writer there can be."""


class UnsafeLockWarning(UserWarning):
    """The root is on a file system whose locks are not known to work between hosts (W1)."""


class Root:
    """One root folder and the encoding its new sessions get.

    Args:
        files: The file layer.
        path: Absolute path of the root; it need not exist.
        compression: The encoding wanted for new sessions, or None for the one the root has.
        mixed: Allow `compression` to differ from what is stored.

    Raises:
        BackendError: The path is there and is not a readable folder.
        UsageError: `compression` is neither None, `zstd` nor `none`, or is not what the root holds.
    """

    def __init__(
        self, files: FileLayer, path: str, *, compression: str | None = None, mixed: bool = False
    ) -> None:
        if compression not in (None, "zstd", "none"):
            raise UsageError(f"compression is zstd or none, not {compression!r}")
        self._files = files
        self.path = path
        self._encoding: Encoding | None = None
        if self.check() and compression is not None and not mixed:
            held = self.stored_encoding()
            if held is not None and held != compression:
                raise UsageError(
                    f"the root {path} holds sessions with compression {held}; open it without a compression, "
                    f"or with mixed=1 if other programs that read it accept both"
                )
        if compression is not None:
            self._encoding = "zstd" if compression == "zstd" else "none"

    @property
    def known_encoding(self) -> Encoding | None:
        """The encoding of new sessions as far as it is known without looking."""
        return self._encoding

    def check(self) -> bool:
        """Tell whether the root exists.

        Raises:
            BackendError: It exists and is not a readable folder.
        """
        try:
            with self._files.folder(self.path):
                return True
        except FileNotFoundError:
            return False
        except OSError as error:
            raise self._unreadable(error) from error

    def _unreadable(self, error: OSError, parts: tuple[str, ...] = ()) -> BackendError:
        reason = "the root is not a readable folder ({}); give the path of a folder"
        if parts:
            reason = "a folder of the root cannot be read ({}); mend it, or give another root"
        return BackendError(
            backend="jsonl",
            reason=reason.format(error.strerror),
            path="/".join((self.path, *parts)),
            wrote_nothing=True,
        )

    def encoding(self) -> Encoding:
        """Return the encoding of new sessions: the root's own, zstd in an empty one.

        Remembered only when it is certain, so that a passing failure does not decide it.
        """
        if self._encoding is None:
            held = self.stored_encoding()
            if held is None:
                return "zstd"
            self._encoding = held
        return self._encoding

    def stored_encoding(self) -> Encoding | None:
        """Return the encoding of the first session found in the root, or None if there is none.

        Raises:
            BackendError: The root, or a session's folder before the first log, cannot be read.
        """
        for project in self._folders(()):
            if project == RESERVED_FOLDER:
                continue
            for segment in self._folders((project,)):
                names = {entry.name for entry in self._entries((project, segment))}
                for name, encoding in ENCODING_OF_NAME.items():
                    if name in names:
                        return encoding
        return None

    def _folders(self, parts: tuple[str, ...]) -> list[str]:
        return sorted(entry.name for entry in self._entries(parts) if entry.is_folder)

    def _entries(self, parts: tuple[str, ...]) -> list[FolderEntry]:
        try:
            with self._files.folder(self.path, parts) as folder:
                return self._files.entries(folder)
        except FileNotFoundError:  # never there, or deleted since its name was read
            return []
        except OSError as error:
            raise self._unreadable(error, parts) from error

    def lock_warning(self, mounts: str = "/proc/self/mountinfo") -> str | None:
        """Return why the root's locks may not exclude writers on other hosts, or None if they do.

        Args:
            mounts: The table of mounts, in the form of proc(5).
        """
        kind = file_system_type(self.path, mounts)
        if kind is None or kind in _LOCAL_TYPES:
            return None
        return (
            f"{self.path} is on a {kind} file system, where a lock is not known to keep out writers on other "
            "hosts; let only one host write there, or use a database backend"
        )
