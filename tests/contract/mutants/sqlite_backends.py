"""SQLite backends that are wrong in one way each, with the harnesses that run them."""

from __future__ import annotations

import dataclasses
import itertools
import os
import sqlite3
from pathlib import Path
from typing import Any

from tests.contract.mutants import faults
from tests.contract.sqlite_harness import SqliteHarness
from turnlog.backends.sqlite import clock
from turnlog.backends.sqlite.backend import SqliteBackend
from turnlog.backends.sqlite.session_rows import SessionRows, SqliteClaim
from turnlog.events.batch import EncodedBatch
from turnlog.events.header import SessionHeader
from turnlog.persistence.backend import PersistenceBackend


class LosesDataOnReopen(SqliteHarness):
    """What one process stored is not there for the next one."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._names = (folder / f"{number}.db" for number in itertools.count())

    def make_backend(self) -> PersistenceBackend:
        self.path = next(self._names)
        return super().make_backend()


class EventByEvent(faults.EventByEvent, SqliteBackend):
    """Batches are not atomic."""


class HeaderFirst(faults.HeaderFirst, SqliteBackend):
    """Header and first batch are not stored together."""


class ConstantRevision(faults.ConstantRevision, SqliteBackend):
    """The revision does not follow the log."""


class _OtherRows(SqliteBackend):
    """Runs other statements than the right ones."""

    rows: type[SessionRows]

    def __init__(self, path: str | os.PathLike[str]) -> None:
        super().__init__(path)
        self._rows = self.rows(self.path, lease_ms=30_000, now=clock.now_ms)


class _RowsWithoutSeqCheck(SessionRows):
    def append(self, db: sqlite3.Connection, meta: SessionHeader, batch: EncodedBatch, **options: Any) -> str:
        if options["claim"] is not None and options["is_materialized"]:
            key = options["claim"].key
            db.execute("delete from frames where session = ? and first_seq = ?", (key, batch.first_seq))
            db.execute("update sessions set next_seq = ? where key = ?", (batch.first_seq, key))
        return super().append(db, meta, batch, **options)


class NoSeqCheck(_OtherRows):
    """Appends whatever comes, wherever the log ends."""

    rows = _RowsWithoutSeqCheck


class _RowsWithoutEpoch(SessionRows):
    def _held_now(self, db: sqlite3.Connection, claim: SqliteClaim) -> SqliteClaim:
        row = self._row(db, claim.segment)
        if row is None:
            return claim
        return dataclasses.replace(claim, epoch=row.epoch, writer=row.writer or "")

    def _advance(self, db: sqlite3.Connection, claim: SqliteClaim, *args: Any) -> bool:
        return super()._advance(db, self._held_now(db, claim), *args)

    def _checked(self, db: sqlite3.Connection, claim: SqliteClaim) -> Any:
        return super()._checked(db, self._held_now(db, claim))


class WritesAfterTakeover(_OtherRows):
    """Refuses a second writer, but lets the first one go on writing after a takeover."""

    rows = _RowsWithoutEpoch


class IgnoresTheClaim(faults.TakesEveryClaim, WritesAfterTakeover):
    """Gives the claim to everybody and checks nobody's."""
