"""Races and refusals around opening, copying and reading a database, each brought about on purpose."""

from __future__ import annotations

import asyncio
import errno
import os
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.unit.backends.logs import META, batch
from tests.unit.backends.sqlite.conftest import OpenSqlite
from turnlog.backends.sqlite import connecting, descriptors, failures, group_commit, links, place, schema
from turnlog.backends.sqlite import private_copy as copying
from turnlog.backends.sqlite.backend import SqliteBackend
from turnlog.backends.sqlite.private_copy import PrivateCopy
from turnlog.errors import BackendError, BackendUnavailableError, CorruptLogError


async def append(backend: SqliteBackend, first: int, count: int = 1) -> None:
    """Append titles; the first batch stores the session."""
    await backend.append_batch(META, batch(first, count), is_materialized=first > 0, claim=None, summary=None)


def no_folder_is_writable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let every folder look as one that cannot be written, whoever runs the test."""
    monkeypatch.setattr(os, "access", lambda *_, **__: False)


async def test_a_private_copy_follows_the_original(
    make_sqlite: OpenSqlite, database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R3: where nothing can be written beside a database, a copy is read, and never a stale one."""
    no_folder_is_writable(monkeypatch)
    writer, reader = make_sqlite(), make_sqlite()
    await append(writer, 0)
    for end in (1, 2):
        found = await reader.load_stored(META.id)
        assert found is not None
        assert len(found.events) == end
        [link] = [link for link in links.open_links(str(database)) if link.copy is not None]
        assert link.is_current
        await append(writer, end)
        assert not link.is_current
    database.parent.rename(tmp_path / "moved")
    database.parent.touch()
    assert not link.is_current
    folder = os.path.dirname(link.copy.path) if link.copy is not None else ""
    await reader.aclose()
    assert not os.path.exists(folder)


@pytest.mark.parametrize("is_copied", [False, True], ids=["direct", "copy"])
async def test_nothing_of_ours_is_an_empty_store(
    make_sqlite: OpenSqlite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_copied: bool
) -> None:
    """R3: a database without any table is an empty store, and reading it leaves no copy."""
    if is_copied:
        no_folder_is_writable(monkeypatch)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    path = tmp_path / "odd.db"
    db = sqlite3.connect(path)
    db.execute("pragma application_id = 0")
    db.execute("vacuum")  # writes a page, so that the file begins like a database
    db.close()
    assert [entry async for entry in make_sqlite(path).list()] == []
    assert [found.name for found in tmp_path.iterdir()] == ["odd.db"]


async def test_a_full_disk_is_read_from_a_copy(
    make_sqlite: OpenSqlite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R3: when SQLite cannot make its shared memory, a copy is read; another failure is told."""
    await append(make_sqlite(), 0)
    codes = iter([sqlite3.SQLITE_FULL, sqlite3.SQLITE_AUTH])

    def fails(*_: object) -> None:
        error = sqlite3.OperationalError("no")
        error.sqlite_errorcode = next(codes)
        raise error

    monkeypatch.setattr(connecting, "_open_direct", fails)
    assert await make_sqlite().load_stored(META.id) is not None
    with pytest.raises(BackendError, match="denied"):
        await make_sqlite().load_stored(META.id)


def test_a_copy_is_taken_until_it_is_of_one_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """R3: a copy during which the original changed is taken again, and given up when it always changes."""
    path = tmp_path / "x.db"
    path.write_bytes(b"x")
    copy_open = copying._copy_open
    taken = []

    def while_it_changes(source: int, target: str) -> None:
        copy_open(source, target)
        taken.append(target)
        if len(taken) in changes:
            path.write_bytes(path.read_bytes() + b"x")

    monkeypatch.setattr(copying, "_copy_open", while_it_changes)
    changes: Any = {1}
    copy = PrivateCopy(str(path))
    assert (len(taken), Path(copy.path).read_bytes()) == (2, b"xx")
    copy.remove()
    changes = range(1000)
    with pytest.raises(BackendUnavailableError, match="faster than it can be copied"):
        PrivateCopy(str(path))
    path.unlink()
    with pytest.raises(BackendError, match="cannot be copied"):
        PrivateCopy(str(path))


def test_a_log_that_is_gone_is_gone_from_the_copy(tmp_path: Path) -> None:
    """R3: what a first look copied and the second one does not find does not stay in the copy."""
    (tmp_path / "target").write_bytes(b"old")
    copying._copy(str(tmp_path / "absent"), str(tmp_path / "target"))
    assert not (tmp_path / "target").exists()


def test_a_file_that_cannot_be_read_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system's reason stands in the error."""

    @contextmanager
    def denied(path: str) -> Iterator[int]:
        raise PermissionError(errno.EACCES, "Permission denied", path)
        yield 0

    monkeypatch.setattr(descriptors, "opened", denied)
    with pytest.raises(BackendError, match="Permission denied"):
        place.check_head(str(tmp_path / "x.db"))


def test_two_may_make_a_database_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file and a folder that another process makes at the same moment are as good as one's own."""
    path = tmp_path / "a" / "b" / "x.db"
    mkdir = os.mkdir

    def somebody_was_first(folder: str, mode: int) -> None:
        mkdir(folder, mode)
        mkdir(folder, mode)

    monkeypatch.setattr(os, "mkdir", somebody_was_first)
    place.create(str(path))
    place.create(str(path))
    assert path.stat().st_size == 0


@pytest.mark.parametrize("below", ["x.db", "folder/x.db"])
def test_a_folder_that_cannot_be_made(tmp_path: Path, below: str) -> None:
    """A file where a folder has to be made is told with the system's reason."""
    (tmp_path / "file").touch()
    with pytest.raises(BackendError, match="cannot be made"):
        place.create(str(tmp_path / "file" / below))


def test_a_database_that_vanishes_while_it_is_opened(tmp_path: Path) -> None:
    """Whoever removes the file at that very moment causes a typed error that may be retried."""
    with pytest.raises(BackendError, match="removed while it was being opened"):
        links.enter(str(tmp_path / "gone.db"))


@pytest.mark.parametrize("how", ["writer", "reader", "copy"])
def test_setting_up_a_connection_may_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """A connection whose settings SQLite refuses is closed, and the file is not in use afterwards."""
    path = str(tmp_path / "x.db")
    connecting.open_writer(path).close()
    monkeypatch.setattr(connecting, "_SETTINGS", ("no such statement",))
    if how == "copy":
        no_folder_is_writable(monkeypatch)
    with pytest.raises(BackendError, match="syntax error"):
        (connecting.open_writer if how == "writer" else connecting.open_reader)(path)
    file = descriptors.identity(path)
    assert file is not None
    assert not descriptors.is_in_use(file)


class BusySwitch(sqlite3.Connection):
    """A connection whose switch to WAL meets others, a few times or for ever."""

    left = 0

    def execute(self, sql: str, *args: Any) -> sqlite3.Cursor:
        if sql == "pragma journal_mode = wal" and type(self).left:
            type(self).left -= 1
            error = sqlite3.OperationalError("database is locked")
            error.sqlite_errorcode = sqlite3.SQLITE_BUSY
            raise error
        return super().execute(sql, *args)


def test_the_switch_to_wal_waits_for_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The switch is tried again while others are in the way, and in the end told as busy."""
    connect = sqlite3.connect
    monkeypatch.setattr(sqlite3, "connect", lambda *args, **rest: connect(*args, factory=BusySwitch, **rest))
    monkeypatch.setattr(BusySwitch, "left", 3)
    link = connecting.open_writer(str(tmp_path / "x.db"))
    assert link.db.execute("pragma journal_mode").fetchone() == ("wal",)
    link.close()
    link.close()  # closing twice does nothing
    monkeypatch.setattr(BusySwitch, "left", 1000)
    with pytest.raises(BackendUnavailableError):
        connecting.open_writer(str(tmp_path / "x.db"), busy=0.03)


def test_whoever_comes_second_finds_the_tables(tmp_path: Path) -> None:
    """Making the tables asks once more under the lock; a statement that fails leaves no transaction open."""
    path = str(tmp_path / "x.db")
    link = connecting.open_writer(path)
    schema.bring_up(link.db, path)
    assert not link.db.in_transaction
    assert link.db.execute("select count(*) from sqlite_master where type = 'table'").fetchone() == (3,)
    link.close()


def test_a_failed_step_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tables are made whole or not at all."""
    path = str(tmp_path / "x.db")
    monkeypatch.setattr(schema, "_STEPS", (("create table a(x)", "no such statement"),))
    with pytest.raises(BackendError):
        connecting.open_writer(path)
    db = sqlite3.connect(path)
    assert db.execute("select count(*) from sqlite_master").fetchone() == (0,)
    db.close()


def test_a_full_disk_has_many_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An I/O error on a disk without room is told as what it is; elsewhere it stays an I/O error."""
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR | 18 << 8
    assert "the medium failed" in str(failures.typed(error, str(tmp_path / "x.db")))
    assert "the medium failed" in str(failures.typed(error, str(tmp_path / "not" / "there.db")))
    full = os.statvfs_result((4096, 4096, 10, 0, 0, 1, 1, 1, 0, 255))
    monkeypatch.setattr(os, "statvfs", lambda path: full)
    assert "the disk is full" in str(failures.typed(error, str(tmp_path / "x.db")))
    assert "odd" in str(failures.typed(sqlite3.Error("odd"), str(tmp_path / "x.db")))


async def test_a_damaged_page_is_told_by_the_read_that_meets_it(
    make_sqlite: OpenSqlite, database: Path
) -> None:
    """R2: a page that goes bad is damage of that read; its connection is not used again."""
    await append(first := make_sqlite(), 0, 100)
    await first.aclose()
    reader = make_sqlite()
    assert await reader.read_stored_revision("absent") is None
    data = bytearray(database.read_bytes())
    data[8192:] = b"\xff" * (len(data) - 8192)
    database.write_bytes(data)
    with pytest.raises(CorruptLogError, match="database file is damaged") as found:
        await reader.load_stored(META.id)
    assert (found.value.session_id, found.value.kind) == (META.id, "database")


async def test_more_readers_than_are_kept(make_sqlite: OpenSqlite, database: Path) -> None:
    """Connections beyond the stock are closed when their read is done; one to a replaced file is, too."""
    await append(backend := make_sqlite(), 0)
    reader = backend.reader
    taken = [reader._take() for _ in range(10)]
    for link in taken:
        assert link is not None
        reader._put_back(link)
    assert len(reader._idle) == 8
    assert len(links.open_links(str(database))) == 9
    await backend.aclose()
    assert links.open_links(str(database)) == []


async def test_a_replaced_database_is_read_anew(make_sqlite: OpenSqlite, database: Path) -> None:
    """R3: a connection to a file that was replaced is not used again."""
    await append(first := make_sqlite(), 0)
    await first.aclose()
    reader = make_sqlite()
    assert await reader.load_stored(META.id) is not None
    database.rename(f"{database}.old")
    assert await reader.load_stored(META.id) is None


async def test_a_group_has_a_largest_size(sqlite: SqliteBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    """More jobs than a group takes are done in the next ones."""
    monkeypatch.setattr(group_commit, "_LARGEST_GROUP", 2)

    def answer(number: int) -> Callable[[sqlite3.Connection], int]:
        return lambda db: number

    done = await asyncio.gather(*(sqlite.writer.run(answer(number)) for number in range(7)))
    assert done == list(range(7))


async def test_a_file_that_moves_during_a_commit_is_noticed(sqlite: SqliteBackend, database: Path) -> None:
    """D2: a commit into a file that lost its name meanwhile is not acknowledged."""
    await append(sqlite, 0)

    def move(db: sqlite3.Connection) -> None:
        db.execute("update sessions set size = size")
        database.rename(f"{database}.moved")

    with pytest.raises(BackendError, match="removed or replaced") as lost:
        await sqlite.writer.run(move)
    assert not lost.value.wrote_nothing


async def test_a_transaction_that_a_failure_has_ended(tmp_path: Path) -> None:
    """Some errors make SQLite roll back by itself; what went wrong is told, not that nothing was open."""
    connecting.open_writer(str(tmp_path / "x.db")).close()
    backend = SqliteBackend(tmp_path / "x.db")
    transaction = backend.reader._transaction(None)
    db = transaction.__enter__()
    assert db is not None
    db.execute("rollback")
    error = ZeroDivisionError()
    assert not transaction.__exit__(type(error), error, None), "the error was swallowed"
    with backend.reader._transaction(None) as again:
        assert again is not None
        again.execute("rollback")
    await backend.aclose()
