"""Listing a root: every session with a status, in a stable order, whatever state it is in (B4).

Owns the walk, the entries for what cannot be read, and a cache of what headers and ends said. Of a log it
reads at most the header and the last 64 KiB; whether all of it is good is not its question.
"""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from turnlog.backends.jsonl.files import READ, FileLayer, FolderEntry
from turnlog.backends.jsonl.layout import (
    FLAT_NAME,
    LOCK_NAME,
    LOG_NAMES,
    RESERVED_FOLDER,
    Place,
    id_of_segment,
)
from turnlog.backends.jsonl.lock import owner_at
from turnlog.backends.jsonl.log_end import end_status
from turnlog.backends.jsonl.quick_header import read_header
from turnlog.backends.jsonl.reading import LogReader, revision_of
from turnlog.backends.jsonl.summary_file import StampedSummary, read_summary
from turnlog.backends.tail_status import TAIL_WINDOW
from turnlog.errors import CorruptLogError, LogError, UnsupportedFormatError
from turnlog.events.header import SessionHeader
from turnlog.persistence.backend import Status, StoredEntry
from turnlog.persistence.claims import is_alive

_FOLDERS_OPEN: Final = 64
_CACHED: Final = 50_000
"""Logs whose header and end are remembered; about 500 bytes each."""


class Item(NamedTuple):
    """One thing found in the root, before anything in it is opened."""

    key: str
    """Order of the listing: the session's segment; things without one come first, by their path."""
    project: str
    name: str
    """The folder or file in the project folder; empty for a project that cannot be read."""
    problem: str
    """Why this is no session folder, or empty."""


class _Found(NamedTuple):
    """What is in one session folder."""

    place: Place
    status: os.stat_result
    both: bool
    """Whether the session is there in both encodings."""


@dataclass(frozen=True, slots=True)
class _Known:
    """What header and end of one log said at one size and time."""

    stamp: tuple[int, int, int, int]
    meta: SessionHeader | None
    status: Status
    problem: str | None


class Listing:
    """Lists one root. Methods block; the backend calls them on its own threads."""

    def __init__(self, files: FileLayer, reader: LogReader, root: str) -> None:
        self._files = files
        self._reader = reader
        self._root = root
        self._known: dict[Place, _Known] = {}
        self._lock = threading.Lock()
        self.logs_opened = 0
        """Logs opened so far because nothing was remembered of them."""

    def entries(self, after: str | None) -> Iterator[StoredEntry]:
        """Yield a row for everything behind a segment (exclusive), reading each only when it is due.

        Raises:
            OSError: The root itself cannot be read.
        """
        items = self.items()
        return self._entries(items, after)

    def _entries(self, items: list[Item], after: str | None) -> Iterator[StoredEntry]:
        folders = _ProjectFolders(self._files, self._root)
        try:
            for item, duplicate in _with_duplicates(items):
                if after is None or item.key > after:
                    entry = self._entry(folders, item, duplicate)
                    if entry is not None:
                        yield entry
        finally:
            folders.close()

    # -- the walk -------------------------------------------------------------------------------

    def items(self) -> list[Item]:
        """Return everything in the root that is or should be a session, in the order of the listing.

        Raises:
            OSError: The root itself cannot be read. An absent root is empty.
        """
        try:
            with self._files.folder(self._root) as folder:
                projects = self._files.entries(folder)
        except FileNotFoundError:
            return []
        found: list[Item] = []
        for project in projects:
            if project.is_folder and project.name != RESERVED_FOLDER:
                found.extend(self._in_project(project.name))
            elif project.is_link:
                found.append(Item("", project.name, "", "a symbolic link, which is not followed"))
        found.sort()
        return found

    def _in_project(self, project: str) -> list[Item]:
        try:
            with self._files.folder(self._root, (project,)) as folder:
                entries = self._files.entries(folder)
        except FileNotFoundError:
            return []  # removed meanwhile
        except OSError as error:
            return [Item("", project, "", f"the project folder cannot be read: {error.strerror}")]
        items = (_item_of(project, entry) for entry in entries)
        return [item for item in items if item is not None]

    # -- entries --------------------------------------------------------------------------------

    def _entry(self, folders: _ProjectFolders, item: Item, duplicate: bool) -> StoredEntry | None:
        """Return the row of one item, or None for a folder that holds no log.

        Args:
            folders: Open project folders.
            item: The item.
            duplicate: Whether another project holds the same id.
        """
        if item.problem:
            return self._unreadable(item, item.problem, "unsupported" if item.key else "unknown")
        try:
            project = folders.open(item.project)
            found = self._find(project, item)
            if found is None:
                return None
            return self._row(project, found, duplicate)
        except FileNotFoundError:
            return None  # deleted meanwhile
        except OSError as error:
            return self._unreadable(item, f"the session folder cannot be read: {error.strerror}", "unknown")

    def _find(self, project: int, item: Item) -> _Found | None:
        found: _Found | None = None
        for encoding, name in LOG_NAMES.items():
            status = self._status(project, f"{item.name}/{name}")
            if status is not None:
                place = Place(self._root, item.project, item.name, encoding)
                found = _Found(place, status, both=found is not None)
        return found

    def _status(self, folder: int, name: str) -> os.stat_result | None:
        try:
            return self._files.path_status(name, folder=folder)
        except FileNotFoundError:
            return None

    def _unreadable(self, item: Item, problem: str, status: Status) -> StoredEntry:
        path = os.path.join(self._root, item.project, item.name).rstrip(os.sep)
        return StoredEntry(
            session_id=id_of_segment(item.key) if item.key else None,
            meta=None,
            status=status,
            revision=None,
            size=0,
            last_write=None,
            summary=None,
            path=path,
            problem=problem,
        )

    def _row(self, project: int, found: _Found, duplicate: bool) -> StoredEntry:
        place, status, both = found
        revision = revision_of(status)
        kept = read_summary(self._files, project, place.segment, revision)
        known = self._look(project, found, kept)
        state, problem = known.status, known.problem
        if both:
            state, problem = "corrupt", "stored in both encodings; move one of the logs away"
        elif duplicate:
            state, problem = "corrupt", "the id is stored in two projects; move one of the folders away"
        elif known.meta is not None:
            state, problem = self._with_owner(project, place, state, problem)
        return StoredEntry(
            session_id=_session_of(place, known.meta),
            meta=known.meta,
            status=state,
            revision=revision,
            size=status.st_size,
            last_write=status.st_mtime_ns // 1_000_000,
            summary=None if kept is None else kept.summary,
            path=place.log_path,
            problem=problem,
        )

    def _with_owner(
        self, project: int, place: Place, state: Status, problem: str | None
    ) -> tuple[Status, str | None]:
        """Let a living owner decide the status; one that cannot be seen from here leaves it open."""
        lock = f"{place.segment}/{LOCK_NAME}"
        status = self._status(project, lock)
        owner = owner_at(self._files, project, lock) if status is not None and status.st_size else None
        if owner is None:
            return state, problem
        alive = is_alive(owner)
        if alive:
            return "live", None
        if alive is None:
            return "unknown", f"process {owner.pid} on {owner.host}, out of sight from here, may be writing"
        return state, problem

    def _look(self, project: int, found: _Found, kept: StampedSummary | None) -> _Known:
        """Return what header and end of a log say, from memory if it has not changed."""
        place, status, _ = found
        stamp = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
        known = self._known.get(place)
        if known is None or known.stamp != stamp:
            known = self._as_left(place, stamp, kept) or self._open(project, found, stamp)
            with self._lock:
                if len(self._known) >= _CACHED:
                    self._known.clear()
                self._known[place] = known
        return known

    def _as_left(
        self, place: Place, stamp: tuple[int, int, int, int], kept: StampedSummary | None
    ) -> _Known | None:
        """Take header and end as the writer left them, if nothing has touched the log since."""
        if kept is None:
            return None
        try:
            meta = read_header(bytes(kept.header) + b"\n", None)
        except LogError:
            return None  # not what a writer puts there: the log itself is asked
        if self._problem(place, meta) is not None:
            return None
        return _Known(stamp, meta, "ok" if kept.summary.open_turn is None else "interrupted", None)

    def _problem(self, place: Place, meta: SessionHeader) -> str | None:
        session_id = meta.id if meta.id == place.segment else id_of_segment(place.segment)
        return self._reader.identity_problem(place, session_id, meta)

    def _open(self, project: int, found: _Found, stamp: tuple[int, int, int, int]) -> _Known:
        place, status, _ = found
        self.logs_opened += 1
        if not stat.S_ISREG(status.st_mode):
            return _Known(stamp, None, "corrupt", "the log is not a file")
        fd = self._files.open(f"{place.segment}/{place.log_name}", READ, folder=project)
        try:
            return self._judge(place, stamp, status.st_size, fd)
        except UnsupportedFormatError as error:
            return _Known(stamp, None, "unsupported", str(error))
        except CorruptLogError as error:
            return _Known(stamp, None, "corrupt", error.reason)
        finally:
            self._files.close(fd)

    def _judge(self, place: Place, stamp: tuple[int, int, int, int], size: int, fd: int) -> _Known:
        """Read header and end; a log that fits into the window is read with one call."""
        if size <= TAIL_WINDOW:
            held = self._files.read_at(fd, size, 0)

            def read_at(offset: int, count: int) -> bytes:
                return held[offset : offset + count]
        else:

            def read_at(offset: int, count: int) -> bytes:
                return self._files.read_at(fd, count, offset)

        line, begin = self._reader.header_line(place, None, read_at)
        meta = read_header(line, None)
        problem = self._problem(place, meta)
        if problem is not None:
            return _Known(stamp, meta, "corrupt", problem)
        state, problem = end_status(place.encoding, read_at, begin, size)
        return _Known(stamp, meta, state, problem)


class _ProjectFolders:
    """Project folders held open while a listing goes through their sessions; a bounded number of them."""

    def __init__(self, files: FileLayer, root: str) -> None:
        self._files = files
        self._root = root
        self._open: dict[str, int] = {}

    def open(self, project: str) -> int:
        """Return a descriptor of a project folder."""
        fd = self._open.get(project)
        if fd is None:
            if len(self._open) >= _FOLDERS_OPEN:
                self.close()
            fd = self._open[project] = self._files.open_folder(self._root, (project,))
        return fd

    def close(self) -> None:
        """Close all of them."""
        for fd in self._open.values():
            self._files.close(fd)
        self._open.clear()


def _item_of(project: str, entry: FolderEntry) -> Item | None:
    """Classify one name in a project folder; other people's files are none of a listing's business."""
    if entry.is_folder:
        return Item(entry.name, project, entry.name, "")
    flat = FLAT_NAME.match(entry.name)
    if flat is not None:
        return Item(
            flat[1], project, entry.name, "a log without a folder, from an early release; it is not read"
        )
    if entry.is_link:
        return Item("", project, entry.name, "a symbolic link, which is not followed")
    return None


def _session_of(place: Place, meta: SessionHeader | None) -> str | None:
    """Return the id that a folder stands for: a header of another session makes no second one of that."""
    if meta is not None and meta.id == place.segment:
        return meta.id
    return id_of_segment(place.segment)


def _with_duplicates(items: list[Item]) -> Iterator[tuple[Item, bool]]:
    """Yield sorted items, each with whether its id is stored in another project as well."""
    last = len(items) - 1
    for position, item in enumerate(items):
        before = items[position - 1] if position else None
        after = items[position + 1] if position < last else None
        yield item, _is_same(before, item) or _is_same(after, item)


def _is_same(other: Item | None, item: Item) -> bool:
    return other is not None and other.key == item.key and not other.problem
