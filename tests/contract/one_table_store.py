"""A store that implements `SessionPersistence` by itself, without the coordinator: one SQLite table.

It shows that the service contract is enough for a third party: short, synchronous inside, one row per
session. It has no live sessions, no claims between processes and no torn tails.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Coroutine, Iterable, Mapping
from pathlib import Path
from typing import Any

from turnlog.errors import (
    BackendError,
    CorruptLogError,
    InvalidEventError,
    SessionBusyError,
    SessionExistsError,
    SessionNotFoundError,
    UnexpectedSeqError,
    UnsupportedFormatError,
    UsageError,
)
from turnlog.events.batch import EncodedBatch
from turnlog.events.envelope import SessionEvent, as_event, check_shape
from turnlog.events.header import SessionHeader, header_line, parse_header_line
from turnlog.events.legacy import normalise
from turnlog.events.log import EventLog, check_loadable
from turnlog.events.scan import scan_text
from turnlog.events.segment import encode_segment
from turnlog.persistence.backend import StoredEntry
from turnlog.persistence.service import Preparation, SessionInspection, SessionPersistence, StoredSuffix
from turnlog.session.repair import interrupted_turn_closers
from turnlog.session.session import Session


class _Reserved(Preparation):
    """One reserved session; giving it back frees the id."""

    def __init__(self, store: OneTableStore, inspection: SessionInspection) -> None:
        self._store = store
        self._inspection = inspection
        log = EventLog(list(inspection.events))
        self._session = Session.restore(inspection.meta, log)

    @property
    def session(self) -> Session:
        return self._session

    @property
    def inspection(self) -> SessionInspection:
        return self._inspection

    async def aclose(self) -> None:
        self._store.reserved.discard(self._inspection.meta.id)


class OneTableStore(SessionPersistence):
    """Sessions as rows of one table, each with its header line and its event lines.

    Args:
        path: The database file.
    """

    def __init__(self, path: Path) -> None:
        self.reserved: set[str] = set()
        self._created: dict[str, SessionHeader] = {}
        self._db: sqlite3.Connection | None = sqlite3.connect(path, isolation_level=None)
        self._db.execute("pragma synchronous = full")
        self._db.execute(
            "create table if not exists log(segment text primary key, header blob, lines blob, length int)"
        )

    # -- writing --------------------------------------------------------------------------------

    async def create(self, meta: SessionHeader) -> None:
        checked = SessionHeader.from_dict(meta.to_dict())
        segment = encode_segment(checked.id)
        if checked.id in self._created:
            raise SessionExistsError(session_id=checked.id, where="memory")
        if self._row(segment) is not None:
            raise SessionExistsError(session_id=checked.id, where="storage")
        self._created[checked.id] = checked

    def append(
        self, session_id: str, events: Iterable[SessionEvent | Mapping[str, Any]]
    ) -> Coroutine[Any, Any, None]:
        batch = [as_event(event, index) for index, event in enumerate(events)]
        return self._append(session_id, batch)

    async def _append(self, session_id: str, batch: list[SessionEvent]) -> None:
        if not batch:
            return
        if session_id in self.reserved:
            raise SessionBusyError(session_id=session_id)
        log = EventLog() if session_id in self._created else (await self.load(session_id)).events
        for index, event in enumerate(batch):
            if event.seq != len(log) + index:
                raise UnexpectedSeqError(
                    session_id=session_id, expected=len(log) + index, actual=event.seq, index=index
                )
            check_shape(event.type, event.data, index)
        if session_id in self._created:
            meta = self._created.pop(session_id)
            text = EncodedBatch.of(batch).text()
            row = (encode_segment(session_id), header_line(meta), text, len(batch))
            self._connection.execute("insert into log values (?, ?, ?, ?)", row)
        else:
            self._extend(session_id, len(log), batch)

    def _extend(self, session_id: str, length: int, events: Iterable[SessionEvent]) -> None:
        batch = EncodedBatch.of(events)
        done = self._connection.execute(
            "update log set lines = cast(lines || ? as blob), length = length + ? "
            "where segment = ? and length = ?",
            (batch.text(), len(batch), encode_segment(session_id), length),
        )
        if done.rowcount != 1:
            raise UnexpectedSeqError(session_id=session_id, expected=length, actual=batch.first_seq)

    async def ensure_materialized(self, session_id: str) -> None:
        if session_id in self._created:
            row = (encode_segment(session_id), header_line(self._created.pop(session_id)), b"", 0)
            self._connection.execute("insert into log values (?, ?, ?, ?)", row)
        elif self._row(encode_segment(session_id)) is None:
            raise SessionNotFoundError(session_id=session_id)

    async def delete(self, session_id: str, *, takeover: bool = False) -> None:
        if self._created.pop(session_id, None) is not None:
            return
        done = self._connection.execute("delete from log where segment = ?", (encode_segment(session_id),))
        if done.rowcount == 0:
            raise SessionNotFoundError(session_id=session_id)

    # -- reading --------------------------------------------------------------------------------

    async def load(self, session_id: str, *, takeover: bool = False) -> SessionInspection:
        found = await self.inspect(session_id)
        if found.closers:
            self._extend(session_id, len(found.events) - len(found.closers), found.closers)
        return SessionInspection(found.meta, found.events)

    async def inspect(self, session_id: str) -> SessionInspection:
        meta, log = self._read(session_id)
        check_loadable(log, session_id)
        try:
            events = [normalise(event, session_id, log.__getitem__) for event in log]
            Session.restore(meta, EventLog(events))
        except InvalidEventError as error:
            raise CorruptLogError(session_id=session_id, reason=str(error), seq=error.index) from error
        closers = tuple(interrupted_turn_closers(events))
        return SessionInspection(meta, EventLog([*events, *closers]), closers)

    async def prepare(self, session_id: str, *, takeover: bool = False) -> Preparation:
        if session_id in self.reserved:
            raise SessionBusyError(session_id=session_id)
        found = await self.load(session_id)
        self.reserved.add(session_id)
        return _Reserved(self, found)

    async def read_from(self, session_id: str, seq: int, limit: int | None = None) -> StoredSuffix:
        if type(seq) is not int or seq < 0:
            raise UsageError(f"seq must be 0 or more, not {seq!r}")
        meta, log = self._read(session_id)
        wanted = log[seq:] if limit is None else log[seq : seq + limit]
        return StoredSuffix(meta, EventLog(wanted, first_seq=min(seq, len(log))))

    async def tail(self, session_id: str, n: int) -> StoredSuffix:
        _, log = self._read(session_id)
        return await self.read_from(session_id, max(len(log) - n, 0))

    async def iter_events(self, session_id: str, seq: int = 0) -> AsyncIterator[SessionEvent]:
        for event in (await self.read_from(session_id, seq)).events:
            yield event

    async def follow(self, session_id: str, seq: int = 0) -> AsyncIterator[SessionEvent]:
        while True:
            for event in (await self.read_from(session_id, seq)).events:
                yield event
                seq = event.seq + 1
            await asyncio.sleep(0.001)

    async def list(self, after: str | None = None, limit: int | None = None) -> AsyncIterator[StoredEntry]:
        start = "" if after is None else encode_segment(after)
        rows = self._connection.execute(
            "select header, lines, length from log where segment > ? order by segment limit ?",
            (start, -1 if limit is None else limit),
        ).fetchall()
        for header, lines, length in rows:
            try:
                meta = parse_header_line(header)
            except UnsupportedFormatError as error:
                size = len(header) + len(lines)
                yield StoredEntry(
                    None, None, "unsupported", f"{length}", size, None, None, problem=str(error)
                )
                continue
            is_open = bool(interrupted_turn_closers(scan_text(lines).log))
            yield StoredEntry(
                session_id=meta.id,
                meta=meta,
                status="interrupted" if is_open else "ok",
                revision=f"{length}",
                size=len(header) + len(lines),
                last_write=None,
                summary=None,
            )

    # -- the rest -------------------------------------------------------------------------------

    def locate(self, meta: SessionHeader) -> str | None:
        return None

    async def flush(self, session: Session) -> None:
        raise UsageError("this store has no live sessions; append instead")

    async def drain(self, session: Session) -> None:
        raise UsageError("this store has no live sessions; append instead")

    async def aclose(self) -> None:
        if self._db is not None:
            self._db.close()
            self._db = None

    @property
    def _connection(self) -> sqlite3.Connection:
        if self._db is None:
            raise BackendError(backend="one-table", reason="the store is closed", wrote_nothing=True)
        return self._db

    def _row(self, segment: str) -> tuple[bytes, bytes] | None:
        found = self._connection.execute("select header, lines from log where segment = ?", (segment,))
        row: tuple[bytes, bytes] | None = found.fetchone()
        return row

    def _read(self, session_id: str) -> tuple[SessionHeader, EventLog]:
        row = self._row(encode_segment(session_id))
        if row is None:
            raise SessionNotFoundError(session_id=session_id)
        result = scan_text(row[1])
        result.check(session_id)
        return parse_header_line(row[0], session_id=session_id), result.log
