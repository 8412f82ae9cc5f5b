"""Kept append handles: what this writer knows of the logs it has open.

Owns the handle record and the bounded pool. It neither writes nor decides; see `appending`. A handle in
doubt (a write whose outcome is unknown) is never evicted, since it alone knows where to cut.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import Final

from turnlog.backends.jsonl.files import FileLayer
from turnlog.backends.jsonl.layout import Place
from turnlog.backends.jsonl.lock import Identity
from turnlog.backends.jsonl.summary_file import SummaryFile

HANDLES_KEPT: Final = 128
"""Logs kept open between appends; more sessions than this reopen theirs."""


@dataclass(slots=True, eq=False)
class AppendHandle:
    """One log open for appending."""

    place: Place
    fd: int
    identity: Identity
    """Device and inode of the log; the open descriptor keeps the number from being given away."""
    begin: int
    """Where the body begins, after the header."""
    size: int
    """Bytes that are acknowledged, and the size the log must have before the next write."""
    next_seq: int
    """The seq that the log expects next."""
    attempted: int = 0
    """Bytes of a write whose outcome is unknown (D2, B3); 0 when there is none."""
    log_path: str = field(init=False)
    """The log's path, made once."""
    summary: SummaryFile = field(init=False)
    """The session's summary, opened when it is first written."""

    def __post_init__(self) -> None:
        self.log_path = self.place.log_path
        self.summary = SummaryFile(self.place)

    @property
    def doubtful(self) -> bool:
        """Whether a write of unknown outcome has to be cut away before the next one."""
        return self.attempted > 0

    @property
    def descriptors(self) -> tuple[int, ...]:
        """Every descriptor that is open."""
        return (self.fd,) if self.summary.fd is None else (self.fd, self.summary.fd)

    def close(self, files: FileLayer) -> None:
        """Close the descriptors."""
        self.summary.close(files)
        files.close(self.fd)


class HandlePool:
    """Handles between uses, the oldest closed first. A handle in use is outside the pool."""

    def __init__(self, files: FileLayer, limit: int = HANDLES_KEPT) -> None:
        self._files = files
        self._limit = limit
        self._kept: OrderedDict[str, AppendHandle] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._kept)

    def take(self, segment: str) -> AppendHandle | None:
        """Take a session's handle out of the pool for use."""
        with self._lock:
            return self._kept.pop(segment, None)

    def give_back(self, handle: AppendHandle) -> None:
        """Put a handle back; close the oldest ones that are too many and not in doubt."""
        with self._lock:
            self._kept[handle.place.segment] = handle
            if len(self._kept) <= self._limit:
                return
            closing = []
            for segment, kept in tuple(self._kept.items()):
                if len(self._kept) <= self._limit:
                    break
                if not kept.doubtful:
                    closing.append(self._kept.pop(segment))
        for kept in closing:
            kept.close(self._files)

    def drop(self, segment: str) -> None:
        """Close a session's handle, if there is one."""
        handle = self.take(segment)
        if handle is not None:
            handle.close(self._files)

    def close(self) -> None:
        """Close every handle."""
        with self._lock:
            handles = tuple(self._kept.values())
            self._kept.clear()
        for handle in handles:
            handle.close(self._files)

    def forget(self) -> None:
        """Close every descriptor in a forked child; no lock is taken, since its holder is not here."""
        while self._kept:
            _, handle = self._kept.popitem()
            for fd in handle.descriptors:
                with contextlib.suppress(OSError):  # closed by the child itself, as daemons do: just as well
                    os.close(fd)
        self._lock = threading.Lock()
