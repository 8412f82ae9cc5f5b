"""Every change of a session's rows, as statements inside the writer's transaction (W1, B1, B2, B3).

Owns the checks that go with each write: the epoch and the end of the log are named by the statement that
changes the row, so that a writer that lost its claim, or looks at an old end, changes nothing.
"""

from __future__ import annotations

import sqlite3
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from turnlog.backends import frame_rows, leases
from turnlog.backends.frame_rows import FrameRow
from turnlog.backends.leases import Lease, LeaseClaim
from turnlog.backends.row_facts import NO_SUMMARY, StoredSummary, header_crc
from turnlog.backends.sqlite.clock import lease_of
from turnlog.backends.sqlite.failures import NAME
from turnlog.errors import (
    BackendError,
    ClaimOwner,
    SessionBusyError,
    SessionCollisionError,
    SessionExistsError,
    SessionNotFoundError,
    UnexpectedSeqError,
    WriterFencedError,
)
from turnlog.events.batch import EncodedBatch
from turnlog.events.header import SessionHeader, header_line
from turnlog.events.segment import encode_segment

STORED = "(header is not null or next_seq > 0)"
"""Tells the rows of stored sessions from those that are only claimed. One that has events and no header is
damaged, and named as such."""

_HELD = "key = ? and epoch = ? and writer is ? and next_seq = ?"
_ADVANCE = (
    "update sessions set next_seq = ?, size = size + ?, last_write = ?, summary = ?, summary_crc = ? "
    f"where {_HELD} and header is not null"
)
_BEGIN = (
    "update sessions set next_seq = ?, size = size + ?, last_write = ?, summary = ?, summary_crc = ?, "
    f"header = ?, header_crc = ? where {_HELD} and header is null"
)

_ABANDONED_MS = 3_600_000
"""A row that was claimed, never stored and left behind is removed after an hour."""


@dataclass(frozen=True, slots=True)
class SqliteClaim(LeaseClaim):
    """A claim with what it makes quick: the row's key and the incarnation that revisions begin with."""

    key: int
    incarnation: str


class _Row(NamedTuple):
    """A session's row, and the lease of the writer in it."""

    key: int
    epoch: int
    writer: str | None
    incarnation: str
    header: bytes | None
    next_seq: int
    lease: Lease | None


class SessionRows:
    """Writes of one process. Every method runs inside a transaction of the writer thread.

    Args:
        path: The database, for messages.
        lease_ms: Length of a lease in milliseconds.
        now: The database's clock in milliseconds.
    """

    def __init__(self, path: str, *, lease_ms: int, now: Callable[[], int]) -> None:
        self._path = path
        self._lease_ms = lease_ms
        self._now = now
        self.writer = leases.new_writer()
        self._owner: str | None = None
        self._expires = 0

    # -- claims ---------------------------------------------------------------------------------

    def claim(
        self, db: sqlite3.Connection, session_id: str, owner: ClaimOwner, *, is_new: bool, takeover: bool
    ) -> SqliteClaim:
        """Take the claim of a session; raises as the `claim` hook does."""
        segment = encode_segment(session_id)
        row = self._row(db, segment)
        if not is_new and (row is None or row.header is None):
            raise SessionNotFoundError(session_id=session_id)
        now = self._now()
        if row is not None:
            leases.check_free(session_id, row.lease, now, writer=self.writer, takeover=takeover)
        self._owner = leases.encode_owner(owner)
        self._renew(db, now)
        return self._take(db, segment, session_id, row, now, self.writer)

    def _take(
        self,
        db: sqlite3.Connection,
        segment: str,
        session_id: str,
        row: _Row | None,
        now: int,
        writer: str | None,
    ) -> SqliteClaim:
        epoch = leases.next_epoch(None if row is None else row.epoch, now)
        wall = _wall_ms()
        if row is None:
            incarnation = uuid.uuid4().hex
            done = db.execute(
                "insert into sessions(segment, epoch, writer, claimed_at, incarnation) values(?, ?, ?, ?, ?)",
                (segment, epoch, writer, wall, incarnation),
            )
            assert done.lastrowid is not None
            key = done.lastrowid
        else:
            key, incarnation = row.key, row.incarnation
            db.execute(
                "update sessions set epoch = ?, writer = ?, claimed_at = ? where key = ?",
                (epoch, writer, wall, key),
            )
        return SqliteClaim(segment, session_id, epoch, writer or "", key, incarnation)

    def release(self, db: sqlite3.Connection, claim: SqliteClaim) -> None:
        """Give a claim back; a session that was never stored leaves no row behind (B1)."""
        held = (claim.key, claim.epoch, claim.writer)
        db.execute(f"delete from sessions where key = ? and epoch = ? and writer = ? and not {STORED}", held)
        db.execute("update sessions set writer = null where key = ? and epoch = ? and writer = ?", held)

    def retire(self, db: sqlite3.Connection) -> None:
        """Give the lease of this process back, and every claim with it."""
        db.execute(f"delete from sessions where writer = ? and not {STORED}", (self.writer,))
        db.execute("update sessions set writer = null where writer = ?", (self.writer,))
        db.execute("delete from writers where writer = ?", (self.writer,))
        self._owner = None

    def renew(self, db: sqlite3.Connection) -> None:
        """Prolong the lease of this process, if it has one."""
        if self._owner is not None:
            self._renew(db, self._now())

    def renew_if_due(self, db: sqlite3.Connection) -> None:
        """Prolong the lease in a transaction that writes anyway, once a part of it has passed."""
        now = self._now()
        if self._owner is not None and leases.needs_renewal(self._expires, now, self._lease_ms):
            self._renew(db, now)

    def _renew(self, db: sqlite3.Connection, now: int) -> None:
        self._expires = now + self._lease_ms
        db.execute(
            "insert or replace into writers(writer, owner, expires) values(?, ?, ?)",
            (self.writer, self._owner, self._expires),
        )

    def clean_up(self, db: sqlite3.Connection) -> None:
        """Remove leases that have run out long ago, and rows that were claimed and never stored."""
        now = self._now()
        for writer, owner, expires in db.execute("select writer, owner, expires from writers").fetchall():
            lease = lease_of(writer, owner, expires)
            if lease is None or lease.expires < now - _ABANDONED_MS:
                db.execute("delete from writers where writer = ?", (writer,))
        db.execute(
            f"delete from sessions where not {STORED} and claimed_at < ? "
            "and (writer is null or writer not in (select writer from writers))",
            (_wall_ms() - _ABANDONED_MS,),
        )

    # -- the log --------------------------------------------------------------------------------

    def append(
        self,
        db: sqlite3.Connection,
        meta: SessionHeader,
        batch: EncodedBatch,
        *,
        is_materialized: bool,
        claim: SqliteClaim | None,
        summary: StoredSummary,
    ) -> str:
        """Append one frame and return the revision; raises as the `append_batch` hook does."""
        held = claim if claim is not None else self._for_one_write(db, meta.id)
        frame = batch.frame()
        header = None if is_materialized else header_line(meta)
        if not self._advance(db, held, batch, frame, header, summary):
            return self._settle(db, meta, batch, frame, held, header, summary)
        return revision_of(held.incarnation, batch.last_seq + 1)

    def _advance(
        self,
        db: sqlite3.Connection,
        claim: SqliteClaim,
        batch: EncodedBatch,
        frame: bytes,
        header: bytes | None,
        summary: StoredSummary,
    ) -> bool:
        """Move the end of a log and store the frame, if claim and end are what the writer thinks they are.

        Args:
            db: The transaction.
            claim: The writer's claim.
            batch: What is appended.
            frame: Its bytes.
            header: The header line of a session that is stored with this batch, else None.
            summary: The summary as it is stored.

        Returns:
            False when the row is otherwise; nothing was changed.
        """
        end, (text, crc) = batch.last_seq + 1, summary
        held = (claim.key, claim.epoch, claim.writer or None, batch.first_seq)
        if header is None:
            done = db.execute(_ADVANCE, (end, len(frame), _wall_ms(), text, crc, *held))
        else:
            size = len(frame) + len(header)
            done = db.execute(_BEGIN, (end, size, _wall_ms(), text, crc, header, header_crc(header), *held))
        if done.rowcount != 1:
            return False
        db.execute(
            "insert into frames(session, first_seq, last_seq, frame) values(?, ?, ?, ?)",
            (claim.key, batch.first_seq, batch.last_seq, frame),
        )
        return True

    def _settle(
        self,
        db: sqlite3.Connection,
        meta: SessionHeader,
        batch: EncodedBatch,
        frame: bytes,
        claim: SqliteClaim,
        header: bytes | None,
        summary: StoredSummary,
    ) -> str:
        """Say why a row could not be advanced, or find that the batch is stored already (B3)."""
        row = self._checked(db, claim)
        if row.header is None:
            if header is None:
                reason = f"the stored log of {meta.id!r} has vanished; resume it to see what is there"
                raise BackendError(backend=NAME, reason=reason, path=self._path, wrote_nothing=True)
            raise UnexpectedSeqError(session_id=meta.id, expected=0, actual=batch.first_seq)
        if header is not None:
            if row.header != header:
                raise SessionCollisionError(session_id=meta.id, reason="the stored header is another one")
            if row.next_seq == 0 and self._advance(db, claim, batch, frame, None, summary):
                return revision_of(row.incarnation, batch.last_seq + 1)  # a header alone was stored before
            if row.next_seq and not self._holds(db, row, batch, meta.id):
                raise SessionExistsError(session_id=meta.id, where="storage")
        if not self._holds(db, row, batch, meta.id):
            raise UnexpectedSeqError(session_id=meta.id, expected=row.next_seq, actual=batch.first_seq)
        return revision_of(row.incarnation, row.next_seq)

    def materialize_header(
        self, db: sqlite3.Connection, meta: SessionHeader, claim: SqliteClaim | None
    ) -> None:
        """Store a header without events; an equal one is success (B3)."""
        held = claim if claim is not None else self._for_one_write(db, meta.id)
        row = self._checked(db, held)
        header = header_line(meta)
        if row.header is None:
            db.execute(
                "update sessions set header = ?, header_crc = ?, size = ?, last_write = ? where key = ?",
                (header, header_crc(header), len(header), _wall_ms(), row.key),
            )
        elif row.header != header or row.next_seq:
            raise SessionExistsError(session_id=meta.id, where="storage")

    def repair(
        self,
        db: sqlite3.Connection,
        meta: SessionHeader,
        closers: EncodedBatch | None,
        claim: SqliteClaim | None,
    ) -> None:
        """Append closers; a database has no torn tail to cut. Raises as the `commit_repair` hook does."""
        held = claim if claim is not None else self._for_one_write(db, meta.id)
        row = self._checked(db, held)
        if row.header is None:
            raise SessionNotFoundError(session_id=meta.id)
        if closers is None or self._advance(db, held, closers, closers.frame(), None, NO_SUMMARY):
            return
        if not self._holds(db, row, closers, meta.id):
            raise UnexpectedSeqError(session_id=meta.id, expected=row.next_seq, actual=closers.first_seq)

    def delete(self, db: sqlite3.Connection, session_id: str, claim: SqliteClaim | None) -> None:
        """Erase a session; an absent one is erased already."""
        if claim is None and self._row(db, encode_segment(session_id)) is None:
            return
        held = claim if claim is not None else self._for_one_write(db, session_id)
        row = self._checked(db, held)
        db.execute("delete from frames where session = ?", (row.key,))
        db.execute("delete from sessions where key = ?", (row.key,))

    # -- parts ----------------------------------------------------------------------------------

    def _row(self, db: sqlite3.Connection, segment: str) -> _Row | None:
        found = db.execute(
            "select key, epoch, sessions.writer, incarnation, header, next_seq, owner, expires "
            "from sessions left join writers using(writer) where segment = ?",
            (segment,),
        ).fetchone()
        if found is None:
            return None
        key, epoch, writer, incarnation, header, next_seq, owner, expires = found
        lease = lease_of(writer, owner, expires)
        # In a damaged file they may be no numbers; the row can still be claimed and deleted, not written.
        epoch = epoch if type(epoch) is int else 0
        next_seq = next_seq if type(next_seq) is int else -1
        return _Row(key, epoch, writer, incarnation, header, next_seq, lease)

    def _checked(self, db: sqlite3.Connection, claim: SqliteClaim) -> _Row:
        """Return the row of a claim that still counts.

        Raises:
            WriterFencedError: It does not.
        """
        row = self._row(db, claim.segment)
        if row is None or (row.epoch, row.writer) != (claim.epoch, claim.writer or None):
            raise WriterFencedError(session_id=claim.session_id)
        return row

    def _for_one_write(self, db: sqlite3.Connection, session_id: str) -> SqliteClaim:
        """Take a claim that ends with the transaction, for a caller that brings none.

        Raises:
            SessionBusyError: Somebody holds the session.
        """
        segment = encode_segment(session_id)
        row = self._row(db, segment)
        now = self._now()
        if row is not None and leases.is_respected(row.lease, now):
            assert row.lease is not None
            raise SessionBusyError(session_id=session_id, owner=row.lease.owner)
        return self._take(db, segment, session_id, row, now, None)

    def _holds(self, db: sqlite3.Connection, row: _Row, batch: EncodedBatch, session_id: str) -> bool:
        stored = frames_from(db, row.key, batch.first_seq)
        return frame_rows.holds(stored, batch, session_id=session_id, next_seq=row.next_seq, path=self._path)


def frames_from(
    db: sqlite3.Connection, key: int, first: int, end: int | None = None, limit: int = -1
) -> list[FrameRow]:
    """Return the frames that hold the events [first, end), or up to the end of the log.

    Args:
        db: A connection.
        key: The session's key.
        first: The first seq wanted (inclusive).
        end: The first seq not wanted, or None.
        limit: Frames at most; -1 for all.
    """
    found = db.execute(
        "select first_seq, last_seq, frame from frames where session = ?1 and first_seq >= coalesce("
        "(select max(first_seq) from frames where session = ?1 and first_seq <= ?2), ?2) "
        "and first_seq < ?3 order by first_seq limit ?4",
        (key, first, (1 << 62) if end is None else end, limit),
    )
    return [FrameRow.of(*row) for row in found]


def revision_of(incarnation: str, next_seq: int) -> str:
    """Return the revision of a log: it only grows, so its end tells one state from every other."""
    return f"{incarnation}:{next_seq}"


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000
