"""`erase_remains`: what a deletion leaves beside the live data is taken away, or it is told who holds it."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

import turnlog
from tests.faults.stores import PostgresPlace, make_place
from turnlog.backends.sqlite import connecting
from turnlog.backends.sqlite.backend import SqliteBackend
from turnlog.backends.sqlite.erasing import erase_log
from turnlog.backends.sqlite.links import Link
from turnlog.errors import BackendError


async def filled(url: str) -> None:
    """Store one session."""
    async with turnlog.open(url) as store, store.create(id="s", cwd="/srv/app") as session:
        session.append("feedback/record", {"text": "x"})


async def test_without_a_database_nothing_is_left(tmp_path: Path) -> None:
    """Asking makes no database."""
    backend = SqliteBackend(tmp_path / "s.db")
    assert await backend.erase_remains()
    await backend.aclose()
    assert list(tmp_path.iterdir()) == []


async def test_the_write_ahead_log_is_emptied(tmp_path: Path) -> None:
    """After a deletion the log holds nothing, also while the store stays open."""
    place = make_place("sqlite", tmp_path)
    await filled(place.url)
    async with turnlog.open(place.url) as store:
        await store.append("s", [{"type": "feedback/record", "seq": 1, "time": 1, "data": {}}])
        assert (tmp_path / "sessions.db-wal").stat().st_size > 0
        assert (await store.delete("s")).erased
        # What gives the claim back is written afterwards and holds no content.
        assert (tmp_path / "sessions.db-wal").stat().st_size < 20_000


class _Failing:
    """A connection whose checkpoint fails in one way."""

    def __init__(self, error: sqlite3.Error) -> None:
        self.error = error
        self.closed = False
        self.db = self

    def execute(self, statement: str) -> None:
        raise self.error

    def close(self) -> None:
        self.closed = True


def _error(kind: type[sqlite3.Error], code: int) -> sqlite3.Error:
    error = kind("told by the test")
    error.sqlite_errorcode = code
    return error


@pytest.mark.parametrize("code", [sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED])
def test_locks_of_others_are_waited_for_by_the_caller(code: int, tmp_path: Path) -> None:
    """A database that somebody has locked is tried again later."""
    path = tmp_path / "s.db"
    path.touch()
    link = _Failing(_error(sqlite3.OperationalError, code))
    assert not erase_log(str(path), lambda: link)  # type: ignore[arg-type, return-value]  # a double of a link
    assert link.closed


@pytest.mark.parametrize("kind", [sqlite3.OperationalError, sqlite3.DatabaseError])
def test_a_failing_medium_is_told(kind: type[sqlite3.Error], tmp_path: Path) -> None:
    """Anything else is the medium's failure, typed and chained."""
    path = tmp_path / "s.db"
    path.touch()
    link = _Failing(_error(kind, sqlite3.SQLITE_IOERR))
    with pytest.raises(BackendError) as failed:
        erase_log(str(path), lambda: link)  # type: ignore[arg-type, return-value]  # a double of a link
    assert failed.value.__cause__ is link.error
    assert link.closed


def test_a_reader_holds_it_back(tmp_path: Path) -> None:
    """A reader inside a transaction is told by the checkpoint itself."""
    place = make_place("sqlite", tmp_path)
    path = str(tmp_path / "sessions.db")

    def connect() -> Link:
        return connecting.open_writer(path, busy=0.0)

    import asyncio

    asyncio.run(filled(place.url))
    writer = connect()
    reader = sqlite3.connect(path, isolation_level=None)
    reader.execute("begin")
    reader.execute("select * from sessions").fetchall()
    writer.db.execute("update sessions set last_write = last_write + 1")
    assert not erase_log(path, connect)
    reader.execute("rollback")
    reader.close()
    assert erase_log(path, connect)
    writer.close()


async def test_a_server_without_the_tables() -> None:
    """Where nothing was ever stored nothing is left, and no schema is made."""
    place = make_place("postgres", Path())
    assert isinstance(place, PostgresPlace)
    async with turnlog.open(place.url) as store:
        assert await store.erase_remains()
    found = place.run("select 1 from pg_namespace where nspname = ?", place.schema)
    assert found == []


async def test_a_transaction_of_a_server_holds_it_back() -> None:
    """A snapshot from before the deletion can still see the rows, so they are not erased."""
    import psycopg

    from tests.postgres_cluster import shared_cluster

    place = make_place("postgres", Path())
    assert isinstance(place, PostgresPlace)
    await filled(place.url)
    with psycopg.connect(shared_cluster().conninfo()) as reader:
        reader.execute("set transaction isolation level repeatable read")
        reader.execute("select 1")
        async with turnlog.open(place.url) as store:
            assert not (await store.delete("s")).erased
            reader.rollback()
            assert await store.erase_remains()
