"""Opening a database: what is made, what is set on every connection, what is refused."""

from __future__ import annotations

import logging
import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import turnlog
from tests.unit.backends.logs import META, batch
from tests.unit.backends.sqlite.conftest import OpenSqlite
from turnlog.backends.sqlite import descriptors, links, place, private_copy, schema
from turnlog.backends.sqlite.backend import SqliteBackend
from turnlog.errors import BackendError, BackendUnavailableError, CorruptLogError, UnsupportedFormatError


async def store(backend: SqliteBackend) -> None:
    """Store one session with three events."""
    await backend.append_batch(META, batch(0, 3), is_materialized=False, claim=None, summary=None)


def settings(db: sqlite3.Connection) -> dict[str, Any]:
    """Return what is set on a connection."""
    names = ("journal_mode", "synchronous", "secure_delete", "query_only", "trusted_schema", "mmap_size")
    return {name: row[0] for name in names for row in db.execute(f"pragma {name}")}


async def test_files_and_folders_belong_to_the_user_alone(sqlite: SqliteBackend, database: Path) -> None:
    """S1: database, log and shared memory have mode 0600, made folders 0700, whatever the umask says."""
    old = os.umask(0)
    try:
        await store(sqlite)
    finally:
        os.umask(old)
    modes = {path.name: path.stat().st_mode & 0o777 for path in database.parent.iterdir()}
    assert modes == {"sessions.db": 0o600, "sessions.db-wal": 0o600, "sessions.db-shm": 0o600}
    assert database.parent.stat().st_mode & 0o777 == 0o700


async def test_every_connection_syncs_fully(sqlite: SqliteBackend, database: Path) -> None:
    """D2: WAL, synchronous=FULL and secure_delete hold on connections that write and that read."""
    await store(sqlite)
    await sqlite.load_stored(META.id)
    found = [settings(link.db) for link in links.open_links(str(database))]
    assert len(found) == 2
    for values in found:
        assert values["journal_mode"] == "wal"
        assert (values["synchronous"], values["secure_delete"]) == (2, 1)
        assert (values["trusted_schema"], values["mmap_size"]) == (0, 0)
    assert sorted(values["query_only"] for values in found) == [0, 1]


async def test_a_reader_cannot_write(sqlite: SqliteBackend, database: Path) -> None:
    """R3: a connection for reading refuses to write and takes no part of the log into the database."""
    await store(sqlite)
    await sqlite.load_stored(META.id)
    [reader] = [link for link in links.open_links(str(database)) if settings(link.db)["query_only"]]
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        reader.db.execute("delete from frames")
    [automatic] = reader.db.execute("pragma wal_autocheckpoint").fetchone()
    assert automatic == 0


async def test_reading_makes_nothing(sqlite: SqliteBackend, database: Path) -> None:
    """R3: a store that was never written has no file, and reads like an empty one."""
    assert await sqlite.load_stored("s-1") is None
    assert await sqlite.read_stored_revision("s-1") is None
    assert await sqlite.load_stored_from("s-1", 0, None) is None
    assert [entry async for entry in sqlite.list()] == []
    assert [piece async for piece in sqlite.scan_stored("s-1")] == []
    assert not database.parent.exists()


async def test_an_empty_file_is_a_new_database(make_sqlite: OpenSqlite, tmp_path: Path) -> None:
    """A file that a crash left empty is read as no sessions, and written to like a new one."""
    path = tmp_path / "empty.db"
    path.touch()
    backend = make_sqlite(path)
    assert [entry async for entry in backend.list()] == []
    await store(backend)
    assert [entry.session_id async for entry in backend.list()] == [META.id]


async def test_our_name_is_in_the_file(sqlite: SqliteBackend, database: Path) -> None:
    """The application id and the schema version stand in the file's header, for every tool to see."""
    await store(sqlite)
    await sqlite.aclose()
    head = database.read_bytes()[:100]
    assert head[68:72] == b"TLOG"
    assert int.from_bytes(head[60:64], "big") == schema.VERSION


@pytest.mark.parametrize("name", ["with space.db", "quote'?%23#&.db", "日本語 é.db", "-.db"])
async def test_any_path_will_do(make_sqlite: OpenSqlite, tmp_path: Path, name: str) -> None:
    """Spaces, letters of every script and characters with a meaning in URIs are nothing special in a path."""
    path = tmp_path / "a folder ü" / name
    backend = make_sqlite(path)
    await store(backend)
    await backend.aclose()
    assert [found.name for found in path.parent.iterdir()] == [name]
    assert (await make_sqlite(path).load_stored(META.id)) is not None


async def test_a_link_to_a_database_leads_to_its_log(make_sqlite: OpenSqlite, tmp_path: Path) -> None:
    """Two names of one database share its log, which lies beside the real file."""
    real, link = tmp_path / "real.db", tmp_path / "link.db"
    link.symlink_to(real)
    first, second = make_sqlite(link), make_sqlite(real)
    await store(first)
    assert (await second.load_stored(META.id)) is not None
    assert {path.name for path in tmp_path.iterdir()} == {"link.db", "real.db", "real.db-wal", "real.db-shm"}


def foreign(path: Path, *statements: str) -> None:
    """Make a database with other statements than ours."""
    db = sqlite3.connect(path)
    for statement in statements:
        db.execute(statement)
    db.commit()
    db.close()


@pytest.mark.parametrize(
    "statements",
    [
        ("create table bookmarks(url)",),
        ("pragma application_id = 7", "create table t(x)"),
        ("pragma user_version = 3",),
    ],
    ids=["tables", "application", "version"],
)
async def test_another_program_s_database_is_left_alone(
    make_sqlite: OpenSqlite, tmp_path: Path, statements: tuple[str, ...]
) -> None:
    """A database that is not ours is named as such by readers and writers, and no byte of it changes."""
    path = tmp_path / "theirs.db"
    foreign(path, *statements)
    before = path.read_bytes()
    backend = make_sqlite(path)
    with pytest.raises(BackendError, match="belongs to another program"):
        await store(backend)
    with pytest.raises(BackendError, match="belongs to another program"):
        await backend.load_stored(META.id)
    assert path.read_bytes() == before
    assert [found.name for found in tmp_path.iterdir()] == ["theirs.db"]


async def test_a_newer_schema_is_refused(make_sqlite: OpenSqlite, database: Path) -> None:
    """A database of a later release is neither read nor written; the error says both versions."""
    await store(first := make_sqlite())
    await first.aclose()
    foreign(database, f"pragma user_version = {schema.VERSION + 1}")
    backend = make_sqlite()
    for call in (store(backend), backend.load_stored(META.id), backend.read_stored_revision(META.id)):
        with pytest.raises(UnsupportedFormatError) as refused:
            await call
        assert (refused.value.found, refused.value.supported) == (schema.VERSION + 1, schema.VERSION)
        assert refused.value.direction == "newer"
        assert refused.value.path == str(database)


def one_more_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this release have a schema that is one step longer."""
    monkeypatch.setattr(schema, "_STEPS", (*schema._STEPS, ("create table later(x)",)))
    monkeypatch.setattr(schema, "VERSION", schema.VERSION + 1)


def version(path: Path) -> int:
    """Return the schema version in a database."""
    db = sqlite3.connect(path)
    [found] = db.execute("pragma user_version").fetchone()
    db.close()
    return int(found)


async def test_an_older_schema_is_read_as_it_is_and_brought_up_by_a_writer(
    make_sqlite: OpenSqlite, database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R3: reading an earlier version works and changes nothing; the first write takes the missing steps."""
    await store(first := make_sqlite())
    await first.aclose()
    older = schema.VERSION
    one_more_step(monkeypatch)
    backend = make_sqlite()
    assert await backend.load_stored(META.id) is not None
    assert [entry.status async for entry in backend.list()] == ["ok"]
    assert version(database) == older
    await backend.append_batch(META, batch(3, 1), is_materialized=True, claim=None, summary=None)
    assert version(database) == older + 1
    found = await backend.load_stored(META.id)
    assert found is not None
    assert len(found.events) == 4


async def test_a_store_brings_an_older_schema_up(database: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a store reads before its first write does not keep it from writing, to old sessions and new."""
    url = f"sqlite:{database}"
    async with turnlog.open(url) as sessions, sessions.create(id="old") as session:
        session.append("session/title", {"title": "one"})
    one_more_step(monkeypatch)
    async with turnlog.open(url) as sessions:
        assert [entry.status async for entry in sessions.list()] == ["ok"]
        async with sessions.resume("old") as session:
            session.append("session/title", {"title": "two"})
        async with sessions.create(id="new") as session:
            session.append("session/title", {"title": "three"})
        assert [entry.status async for entry in sessions.list()] == ["ok", "ok"]
    assert version(database) == schema.VERSION


async def test_a_database_whose_headers_have_no_checksum_is_refused(
    make_sqlite: OpenSqlite, database: Path
) -> None:
    """A version that this release does not read is named, for readers and writers, and nothing is changed."""
    database.parent.mkdir()
    foreign(
        database,
        "create table sessions(key integer primary key, segment text not null unique, header blob)",
        f"pragma application_id = {schema.APPLICATION_ID}",
        "pragma user_version = 1",
    )
    before = database.read_bytes()
    backend = make_sqlite()
    for call in (store(backend), backend.load_stored(META.id), anext(backend.list())):
        with pytest.raises(UnsupportedFormatError) as refused:
            await call
        assert (refused.value.found, refused.value.supported) == (1, schema.VERSION)
        assert refused.value.direction == "older"
    assert database.read_bytes() == before


@pytest.mark.parametrize("found", [0, -1, -(2**31)])
async def test_a_schema_version_that_is_none_is_damage(
    make_sqlite: OpenSqlite, database: Path, found: int
) -> None:
    """R2: a database of ours is no empty store because its version was spoiled."""
    await store(first := make_sqlite())
    await first.aclose()
    foreign(database, f"pragma user_version = {found}")
    backend = make_sqlite()
    for call in (store(backend), backend.load_stored(META.id), anext(backend.list())):
        with pytest.raises(CorruptLogError, match=f"schema version {found}"):
            await call


@pytest.mark.parametrize(
    ("content", "error", "reason"),
    [
        (b"hello, this is a text file\n", BackendError, "no SQLite database"),
        (b"SQLite format 2\0" + bytes(200), BackendError, "no SQLite database"),
        (b"SQLite form", CorruptLogError, "inside its header"),
        (place.MAGIC + bytes(20), CorruptLogError, "inside its header"),
        (place.MAGIC + bytes(4080), BackendError, "no SQLite database"),
    ],
    ids=["text", "older", "cut-in-magic", "cut-in-header", "zeros"],
)
async def test_a_file_that_is_no_database_is_refused(
    make_sqlite: OpenSqlite, tmp_path: Path, content: bytes, error: type[Exception], reason: str
) -> None:
    """What is no database, or only the beginning of one, is told apart and stays as it is."""
    path = tmp_path / "odd.db"
    path.write_bytes(content)
    backend = make_sqlite(path)
    with pytest.raises(error, match=reason):
        await store(backend)
    with pytest.raises(error, match=reason):
        await backend.load_stored(META.id)
    assert path.read_bytes() == content


async def test_a_truncated_database_is_damage(make_sqlite: OpenSqlite, database: Path) -> None:
    """R2: pages that are missing at the end are damage for readers and writers alike."""
    first = make_sqlite()
    for number in range(20):
        await first.append_batch(
            META, batch(number * 20, 20), is_materialized=number > 0, claim=None, summary=None
        )
    await first.aclose()
    os.truncate(database, database.stat().st_size // 2)
    before = database.read_bytes()
    backend = make_sqlite()
    with pytest.raises(CorruptLogError, match="damaged") as found:
        await backend.load_stored(META.id)
    assert (found.value.kind, found.value.path) == ("database", str(database))
    with pytest.raises(CorruptLogError, match="damaged"):
        await backend.append_batch(META, batch(400, 1), is_materialized=True, claim=None, summary=None)
    assert database.read_bytes() == before


@pytest.mark.parametrize("kind", ["folder", "fifo"])
async def test_only_a_file_will_do(make_sqlite: OpenSqlite, tmp_path: Path, kind: str) -> None:
    """A folder or a device where the database should be is named."""
    path = tmp_path / "odd"
    path.mkdir() if kind == "folder" else os.mkfifo(path)
    backend = make_sqlite(path)
    for call in (store(backend), backend.load_stored(META.id)):
        with pytest.raises(BackendError, match="give the path") as refused:
            await call
        assert refused.value.wrote_nothing


async def test_a_file_where_a_folder_should_be(make_sqlite: OpenSqlite, tmp_path: Path) -> None:
    """A path below a file is refused, with what the system says about it."""
    (tmp_path / "file").touch()
    backend = make_sqlite(tmp_path / "file" / "sessions.db")
    for call in (store(backend), backend.load_stored(META.id)):
        with pytest.raises(BackendError, match="Not a directory"):
            await call


@pytest.mark.parametrize("kind", ["nfs4", "cifs", "9p", "fuse.sshfs"])
async def test_network_file_systems_are_refused(make_sqlite: OpenSqlite, tmp_path: Path, kind: str) -> None:
    """A file system of several hosts is recognised by its type, before anything is made on it."""
    table = tmp_path / "mountinfo"
    table.write_text(f"1 0 0:1 / / rw - ext4 /dev/x rw\n2 1 0:2 / {tmp_path} rw - {kind} server rw\n")
    backend = make_sqlite(tmp_path / "share" / "sessions.db", mounts=str(table))
    for call in (store(backend), backend.load_stored(META.id)):
        with pytest.raises(BackendError, match=kind):
            await call
    assert not (tmp_path / "share").exists()


async def test_without_wal_the_journal_is_synced_fully(
    make_sqlite: OpenSqlite, database: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """D2: where no write-ahead log is possible, synchronous=EXTRA holds, and one warning says so."""
    backend = make_sqlite(vfs="unix-dotfile")  # a file layer without shared memory, as on such file systems
    with caplog.at_level(logging.WARNING, logger="turnlog"):
        await store(backend)
        await backend.append_batch(META, batch(3, 2), is_materialized=True, claim=None, summary=None)
        [link] = links.open_links(str(database))
        values = settings(link.db)
        assert (values["journal_mode"], values["synchronous"]) == ("delete", 3)
        await backend.aclose()
        backend = make_sqlite(vfs="unix-dotfile")
        await backend.append_batch(META, batch(5, 1), is_materialized=True, claim=None, summary=None)
    [record] = caplog.records
    assert str(database) in record.getMessage()
    found = await backend.load_stored(META.id)
    assert found is not None
    assert len(found.events) == 6


class NoSharedMemory(sqlite3.Connection):
    """A connection on a file system where the switch to WAL fails, as one reported from a network drive."""

    def execute(self, sql: str, *args: Any) -> sqlite3.Cursor:
        if sql == "pragma journal_mode = wal":
            error = sqlite3.OperationalError("locking protocol")
            error.sqlite_errorcode = sqlite3.SQLITE_PROTOCOL
            raise error
        return super().execute(sql, *args)


async def test_a_failing_switch_is_no_empty_store(
    make_sqlite: OpenSqlite, database: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A switch to WAL that raises leads to a rollback journal with a warning, and the sessions are there."""
    connect = sqlite3.connect
    monkeypatch.setattr(
        sqlite3, "connect", lambda *args, **options: connect(*args, factory=NoSharedMemory, **options)
    )
    backend = make_sqlite()
    with caplog.at_level(logging.WARNING, logger="turnlog"):
        await store(backend)
    assert "locking protocol" in caplog.text
    assert [entry.session_id async for entry in backend.list()] == [META.id]


async def test_a_database_held_by_another_is_told_as_busy(make_sqlite: OpenSqlite, database: Path) -> None:
    """A lock that another process does not let go of is a retryable error that left nothing."""
    backend = make_sqlite(busy=0.05)
    await store(backend)
    other = sqlite3.connect(database, isolation_level=None)
    other.execute("begin immediate")
    with pytest.raises(BackendUnavailableError) as busy:
        await backend.append_batch(META, batch(3, 1), is_materialized=True, claim=None, summary=None)
    assert (busy.value.retryable, busy.value.wrote_nothing) == (True, True)
    other.execute("rollback")
    other.close()
    await backend.append_batch(META, batch(3, 1), is_materialized=True, claim=None, summary=None)


@pytest.mark.parametrize("suffix", ["", "-wal"])
async def test_a_file_that_is_taken_away_is_noticed(
    make_sqlite: OpenSqlite, database: Path, suffix: str
) -> None:
    """A write into a removed database or log is not acknowledged; the next one begins with what is there."""
    backend = make_sqlite()
    await store(backend)
    os.remove(f"{database}{suffix}")
    with pytest.raises(BackendError, match="removed or replaced"):
        await backend.append_batch(META, batch(3, 1), is_materialized=True, claim=None, summary=None)
    if suffix:  # the log was still open, and closing the connection took it into the database
        await backend.append_batch(META, batch(3, 1), is_materialized=True, claim=None, summary=None)
        found = await backend.load_stored(META.id)
        assert found is not None
        assert len(found.events) == 4
    else:
        assert await backend.load_stored(META.id) is None


CHILD = """
import asyncio, os, sys
import turnlog
from tests.unit.backends.logs import META, batch
from turnlog.backends.sqlite.backend import SqliteBackend
from turnlog.errors import UsageError

async def append(backend, first):
    await backend.append_batch(META, batch(first, 1), is_materialized=first > 0, claim=None, summary=None)

async def refuses(call):
    try:
        await call
    except UsageError:
        return
    os._exit(3)

async def in_child(backend):
    await refuses(append(backend, 1))
    await refuses(backend.load_stored(META.id))
    again = SqliteBackend(sys.argv[1])
    await refuses(append(again, 1))
    await refuses(again.load_stored(META.id))
    other = SqliteBackend(sys.argv[1] + ".other")
    await append(other, 0)
    await other.aclose()

async def in_parent(backend, child):
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 7, status
    assert os.path.getsize(sys.argv[1] + "-wal") > 0
    await append(backend, 1)
    await backend.aclose()

backend = None
async def start():
    global backend
    backend = SqliteBackend(sys.argv[1])
    await append(backend, 0)
    await backend.load_stored(META.id)

asyncio.run(start())
child = os.fork()
if child == 0:
    asyncio.run(in_child(backend))
    backend.forget()
    del backend
    sys.exit(7)
asyncio.run(in_parent(backend, child))
"""


def test_no_connection_crosses_a_fork(tmp_path: Path) -> None:
    """A forked child leaves its parent's database alone, by old backends and new ones; the parent goes on."""
    path = tmp_path / "sessions.db"
    done = subprocess.run(
        [sys.executable, "-c", CHILD, str(path)], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    db = sqlite3.connect(path)
    assert db.execute("select count(*) from frames").fetchone() == (2,)
    db.close()


def locks_on(path: Path) -> int:
    """Return how many locks this process holds on a file."""
    inode = path.stat().st_ino
    lines = Path("/proc/locks").read_text().splitlines()
    return sum(f" {os.getpid()} " in line and f":{inode} " in line for line in lines)


async def test_looking_at_the_file_takes_no_lock_away(make_sqlite: OpenSqlite, database: Path) -> None:
    """W1: SQLite keeps its lock on the database whatever else this process opens and closes there."""
    writer = make_sqlite()
    await store(writer)
    assert locks_on(database) > 0
    place.check_head(str(database))
    private_copy.PrivateCopy(str(database)).remove()
    reader = make_sqlite()
    await reader.load_stored(META.id)
    await reader.aclose()
    assert locks_on(database) > 0
    await writer.aclose()
    file = descriptors.identity(str(database))
    assert file is not None
    assert not descriptors.is_in_use(file)


async def test_a_descriptor_waits_for_the_last_connection(make_sqlite: OpenSqlite, database: Path) -> None:
    """A descriptor from before SQLite opened the file is kept, used again, and closed with the last link."""
    await store(first := make_sqlite())
    await first.aclose()
    with descriptors.opened(str(database)) as fd:
        backend = make_sqlite()
        await backend.append_batch(META, batch(3, 1), is_materialized=True, claim=None, summary=None)
    with descriptors.opened(str(database)) as again:
        assert again == fd
    assert locks_on(database) > 0
    await backend.aclose()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)
