"""Every read of sessions, each in one transaction of a connection that cannot write (R3).

Owns the queries and a small stock of connections. Methods block; the backend calls them on its threads.
"""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Callable, Generator, Iterator
from typing import Any, NamedTuple, TypeVar

from turnlog.backends import frame_rows, leases
from turnlog.backends.frame_rows import PAGE, FrameRow
from turnlog.backends.row_facts import check_end, count, decode_summary, list_header, read_header
from turnlog.backends.sqlite.clock import lease_of
from turnlog.backends.sqlite.failures import typed
from turnlog.backends.sqlite.links import Link
from turnlog.backends.sqlite.session_rows import STORED, frames_from, revision_of
from turnlog.backends.tail_status import TAIL_WINDOW
from turnlog.events.batch import Damage, StoredFrame
from turnlog.events.header import SessionHeader
from turnlog.events.segment import encode_segment
from turnlog.persistence.backend import StoredEntry, StoredPrefix

T = TypeVar("T")

_STOCK = 8


class _Session(NamedTuple):
    """What a read needs of a session's row."""

    key: int
    header: bytes
    header_crc: object
    incarnation: str
    next_seq: int
    size: int

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
            with contextlib.closing(self._counted(db, session.key)) as stored:
                log = frame_rows.log_of(
                    stored,
                    session_id=session_id,
                    next_seq=session.next_seq,
                    size=session.size - len(session.header),
                    path=self._path,
                )
            return StoredPrefix(meta, log, session.revision)

    def load_from(self, session_id: str, seq: int, limit: int | None) -> StoredPrefix | None:
        """Read the part of a log that is wanted, and only the frames that hold it."""
        with self._transaction(session_id) as db:
            session = None if db is None else self._find(db, session_id)
            if db is None or session is None:
                return None
            meta = self._header(session, session_id)
            first, end = frame_rows.wanted_range(session.next_seq, seq, limit)
            is_tail = first < end == session.next_seq
            stored = frames_from(db, session.key, first, None if is_tail else end) if first < end else []
            self.frames_read += len(stored)
            last_seq = stored[-1].last_seq if is_tail and stored else _last_seq(db, session.key)
            check_end(session.next_seq, last_seq, session_id=session_id, path=self._path)
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

    def scan(
        self, session_id: str, first: int, expected: int
    ) -> tuple[list[StoredFrame | Damage], tuple[int, int] | None]:
        """Return some pieces of a scan.

        Args:
            session_id: The session.
            first: Smallest key of a frame that is wanted.
            expected: Seq that its first event should have; another number only behind a spoilt row.

        Returns:
            The pieces, and both numbers for the next call, or None at the end.
        """
        with self._transaction(session_id) as db:
            session = None if db is None else self._find(db, session_id)
            if db is None or session is None:
                return [], None
            found = db.execute(
                "select first_seq, last_seq, frame from frames where session = ? and first_seq >= ? "
                "order by first_seq limit ?",
                (session.key, first, PAGE),
            ).fetchall()
        stored = [FrameRow.of(*row) for row in found]
        pieces, expected = frame_rows.pieces_of(stored, expected)
        if len(stored) == PAGE and stored[-1].first_seq >= first:
            return pieces, (stored[-1].first_seq + 1, expected)
        if expected < session.next_seq:
            pieces.append(Damage(expected, None, "seq-gap", 0))
        return pieces, None

    def page(self, after: bytes, limit: int) -> list[tuple[bytes, StoredEntry]]:
        """Return listed sessions behind a segment (exclusive), each with its segment as it is stored."""
        with self._transaction(None) as db:
            if db is None:
                return []
            found = db.execute(
                "select cast(segment as blob), segment, key, header, header_crc, incarnation, next_seq, "
                "size, last_write, summary, summary_crc, sessions.writer, owner, expires "
                "from sessions left join writers using(writer) "
                f"where segment > cast(? as text) and {STORED} order by segment limit ?",
                (after, limit),
            ).fetchall()
            now = self._now()
            return [(row[0], self._entry(db, row[1:], now)) for row in found]

    # -- parts ----------------------------------------------------------------------------------

    def _find(self, db: sqlite3.Connection, session_id: str) -> _Session | None:
        found = db.execute(
            "select key, header, header_crc, incarnation, next_seq, size from sessions "
            f"where segment = ? and {STORED}",
            (encode_segment(session_id),),
        ).fetchone()
        if found is None:
            return None
        key, header, header_crc, incarnation, next_seq, size = found
        return _Session(key, header, header_crc, incarnation, count(next_seq), count(size))

    def _header(self, session: _Session, session_id: str) -> SessionHeader:
        return read_header(session.header, session.header_crc, session_id=session_id, path=self._path)

    def _counted(self, db: sqlite3.Connection, key: int) -> Generator[FrameRow]:
        """Yield all frames. Whoever stops early closes this: an open query outlives its transaction."""
        query = "select first_seq, last_seq, frame from frames where session = ? order by first_seq"
        with contextlib.closing(db.execute(query, (key,))) as found:
            for row in found:
                self.frames_read += 1
                yield FrameRow.of(*row)

    def _entry(self, db: sqlite3.Connection, row: tuple[Any, ...], now: int) -> StoredEntry:
        segment, key, header, header_crc, incarnation, next_seq, size, last_write, summary, summary_crc = row[
            :10
        ]
        next_seq = count(next_seq)
        session_id, meta, status, problem = list_header(str(segment), header, header_crc, path=self._path)
        if meta is not None:
            status, problem = frame_rows.end_status(self._backwards(db, key), next_seq)
            status, problem = leases.with_holder(status, problem, lease_of(*row[10:]), now)
        return StoredEntry(
            session_id=session_id,
            meta=meta,
            status=status,
            revision=revision_of(incarnation, next_seq),
            size=max(count(size), 0),
            last_write=None if count(last_write) < 0 else last_write,
            summary=decode_summary(summary, summary_crc, next_seq),
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
            yield FrameRow.of(*row)

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
                if link.db.in_transaction:  # some failures have ended it already
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


def _last_seq(db: sqlite3.Connection, key: int) -> int | None:
    """Return the last seq of a session's last frame, None where it has no frames."""
    found = db.execute(
        "select last_seq from frames where session = ? order by first_seq desc limit 1", (key,)
    ).fetchone()
    return None if found is None else count(found[0])
