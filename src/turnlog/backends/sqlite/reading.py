"""Every read of sessions, each in one transaction of a connection that cannot write (R3).

Owns the queries and a small stock of connections. Methods block; the backend calls them on its threads.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeVar

from turnlog.backends import frame_rows, leases
from turnlog.backends.frame_rows import PAGE, FrameRow
from turnlog.backends.sqlite.clock import lease_of
from turnlog.backends.sqlite.failures import typed
from turnlog.backends.sqlite.links import Link
from turnlog.backends.sqlite.session_rows import frames_from, revision_of
from turnlog.backends.tail_status import TAIL_WINDOW
from turnlog.errors import CorruptLogError, LogError, UnsupportedFormatError
from turnlog.events.batch import Damage, StoredFrame
from turnlog.events.header import SessionHeader, parse_header_line
from turnlog.events.segment import decode_segment, encode_segment
from turnlog.persistence.backend import Status, StoredEntry, StoredPrefix

T = TypeVar("T")

_STOCK = 8


class _Session(NamedTuple):
    """What a read needs of a session's row."""

    key: int
    header: bytes
    incarnation: str
    next_seq: int

    @property
    def revision(self) -> str:
        return revision_of(self.incarnation, self.next_seq)


class Reader:
    """Reads of one database.

    Args:
        path: The database.
        connect: Opens a connection for reading; None where there is no database yet.
        now: The clock of leases in milliseconds.
    """

    def __init__(self, path: str, connect: Callable[[], Link | None], now: Callable[[], int]) -> None:
        self._path = path
        self._connect = connect
        self._now = now
        self._idle: list[Link] = []
        self._lock = threading.Lock()
        self.frames_read = 0
        """Frames fetched so far, for tests that count what a read costs."""

    # -- the hooks ------------------------------------------------------------------------------

    def load(self, session_id: str) -> StoredPrefix | None:
        """Read a whole log."""
        with self._transaction(session_id) as db:
            session = None if db is None else self._find(db, session_id)
            if db is None or session is None:
                return None
            meta = self._header(session, session_id)
            stored = self._counted(db, session.key)
            log = frame_rows.log_of(stored, session_id=session_id, next_seq=session.next_seq, path=self._path)
            return StoredPrefix(meta, log, session.revision)

    def load_from(self, session_id: str, seq: int, limit: int | None) -> StoredPrefix | None:
        """Read the part of a log that is wanted, and only the frames that hold it."""
        with self._transaction(session_id) as db:
            session = None if db is None else self._find(db, session_id)
            if db is None or session is None:
                return None
            meta = self._header(session, session_id)
            first, end = frame_rows.wanted_range(session.next_seq, seq, limit)
            stored = frames_from(db, session.key, first, end) if first < end else []
            self.frames_read += len(stored)
            log = frame_rows.suffix_of(
                stored,
                session_id=session_id,
                next_seq=session.next_seq,
                first=first,
                end=end,
                path=self._path,
            )
            return StoredPrefix(meta, log, session.revision)

    def revision(self, session_id: str) -> str | None:
        """Return the revision of a stored log from its row."""
        with self._transaction(session_id) as db:
            session = None if db is None else self._find(db, session_id)
            return None if session is None else session.revision

    def scan(self, session_id: str, first: int) -> tuple[list[StoredFrame | Damage], int | None]:
        """Return the pieces of a scan from one seq on, and where to go on, or None at the end."""
        with self._transaction(session_id) as db:
            session = None if db is None else self._find(db, session_id)
            if db is None or session is None:
                return [], None
            found = db.execute(
                "select first_seq, last_seq, frame from frames where session = ? and first_seq >= ? "
                "order by first_seq limit ?",
                (session.key, first, PAGE),
            ).fetchall()
        stored = [FrameRow(*row) for row in found]
        pieces = list(frame_rows.pieces_of(stored, first))
        if len(stored) == PAGE:
            return pieces, stored[-1].last_seq + 1
        end = stored[-1].last_seq + 1 if stored else first
        if end < session.next_seq:
            pieces.append(Damage(end, None, "seq-gap", 0))
        return pieces, None

    def page(self, after: str, limit: int) -> list[tuple[str, StoredEntry]]:
        """Return listed sessions behind a segment (exclusive), each with its segment."""
        with self._transaction(None) as db:
            if db is None:
                return []
            found = db.execute(
                "select segment, key, header, incarnation, next_seq, size, last_write, summary, "
                "sessions.writer, owner, expires from sessions left join writers using(writer) "
                "where segment > ? and header is not null order by segment limit ?",
                (after, limit),
            ).fetchall()
            now = self._now()
            return [(row[0], self._entry(db, row, now)) for row in found]

    # -- parts ----------------------------------------------------------------------------------

    def _find(self, db: sqlite3.Connection, session_id: str) -> _Session | None:
        found = db.execute(
            "select key, header, incarnation, next_seq from sessions "
            "where segment = ? and header is not null",
            (encode_segment(session_id),),
        ).fetchone()
        return None if found is None else _Session(*found)

    def _header(self, session: _Session, session_id: str) -> SessionHeader:
        meta = parse_header_line(bytes(session.header), session_id=session_id, path=self._path)
        if meta.id != session_id:
            raise CorruptLogError(
                session_id=session_id,
                reason=f"the header belongs to session {meta.id!r}",
                kind="header-id",
                path=self._path,
            )
        return meta

    def _counted(self, db: sqlite3.Connection, key: int) -> Iterator[FrameRow]:
        found = db.execute(
            "select first_seq, last_seq, frame from frames where session = ? order by first_seq", (key,)
        )
        for row in found:
            self.frames_read += 1
            yield FrameRow(*row)

    def _entry(self, db: sqlite3.Connection, row: tuple[object, ...], now: int) -> StoredEntry:
        segment, key, header, incarnation, next_seq, size, last_write, summary, writer, owner, expires = row
        meta: SessionHeader | None = None
        status: Status = "corrupt"
        problem: str | None = None
        session_id = decode_segment(str(segment))
        session = _Session(key, header, incarnation, next_seq)  # type: ignore[arg-type]  # columns of a row
        try:
            meta = self._header(session, session_id)
            status, problem = frame_rows.end_status(self._backwards(db, session.key), session.next_seq)
        except UnsupportedFormatError as error:
            status, problem = "unsupported", str(error)
        except LogError as error:
            problem = str(error)
        if meta is not None:
            lease = lease_of(writer, owner, expires)  # type: ignore[arg-type]  # columns of a row
            status, problem = leases.with_holder(status, problem, lease, now)
        return StoredEntry(
            session_id=session_id,
            meta=meta,
            status=status,
            revision=session.revision,
            size=size,  # type: ignore[arg-type]  # a column of the row
            last_write=last_write,  # type: ignore[arg-type]  # a column of the row
            summary=frame_rows.decode_summary(summary),  # type: ignore[arg-type]  # a column of the row
            path=self._path,
            problem=problem,
        )

    def _backwards(self, db: sqlite3.Connection, key: int) -> Iterator[FrameRow]:
        """Yield frames from the end; one beyond the window of a listing is not even read."""
        found = db.execute(
            "select first_seq, last_seq, case when length(frame) > ? then x'' else frame end "
            "from frames where session = ? order by first_seq desc",
            (TAIL_WINDOW, key),
        )
        for row in found:
            self.frames_read += 1
            yield FrameRow(*row)

    # -- connections ----------------------------------------------------------------------------

    @contextlib.contextmanager
    def _transaction(self, session_id: str | None) -> Iterator[sqlite3.Connection | None]:
        """Give a connection in a read transaction; None where there is no database."""
        link = self._take()
        if link is None:
            yield None
            return
        try:
            link.db.execute("begin")
            try:
                yield link.db
            finally:
                link.db.execute("rollback")
        except sqlite3.Error as error:
            link.close()
            raise typed(error, self._path, session_id=session_id, wrote_nothing=True) from error
        except BaseException:
            self._put_back(link)
            raise
        self._put_back(link)

    def _take(self) -> Link | None:
        """Return an idle connection whose file still stands, or a new one."""
        while True:
            with self._lock:
                link = self._idle.pop() if self._idle else None
            if link is None:
                return self._connect()
            if link.is_current:
                return link
            link.close()

    def _put_back(self, link: Link) -> None:
        with self._lock:
            if len(self._idle) < _STOCK:
                self._idle.append(link)
                return
        link.close()

    def close(self) -> None:
        """Close every idle connection; none may be in use."""
        with self._lock:
            idle, self._idle = self._idle, []
        for link in idle:
            link.close()

    def forget(self) -> None:
        """Drop the connections of a parent process without touching them."""
        self._idle = []
        self._lock = threading.Lock()
