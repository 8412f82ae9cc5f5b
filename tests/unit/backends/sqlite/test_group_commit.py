"""The writer thread: who shares a commit, who is told what, and what one failing job does to the others."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from turnlog.backends.sqlite import connecting, links
from turnlog.backends.sqlite.group_commit import GroupCommit
from turnlog.errors import BackendError, BackendUnavailableError, UnexpectedSeqError, UsageError

Work = Callable[[sqlite3.Connection], Any]


def put(value: int) -> Work:
    """Return a job that stores a number in the table of writers."""

    def work(db: sqlite3.Connection) -> int:
        db.execute("insert into writers values(?, '', 0)", (str(value),))
        return value

    return work


@pytest.fixture
def path(tmp_path: Path) -> str:
    """Give the path of a database that does not exist yet."""
    return str(tmp_path / "sessions.db")


@pytest.fixture
async def writer(path: str) -> AsyncIterator[GroupCommit]:
    """Give a writer; it is closed at the end."""
    found = GroupCommit(
        path, lambda: connecting.open_writer(path, busy=0.2), first=lambda db: None, last=lambda db: None
    )
    yield found
    await asyncio.to_thread(found.close)


def stored(path: str) -> set[int]:
    """Return the numbers that are stored."""
    db = sqlite3.connect(path)
    found = {int(row[0]) for row in db.execute("select writer from writers")}
    db.close()
    return found


async def together(writer: GroupCommit, *works: Work) -> list[Any]:
    """Run jobs so that they are all in one group: the thread is held up until the last one waits."""
    entered, gate = threading.Event(), threading.Event()

    def hold(db: sqlite3.Connection) -> None:
        entered.set()
        gate.wait(10)

    first = asyncio.ensure_future(writer.run(hold))
    await asyncio.to_thread(entered.wait, 10)
    jobs = [asyncio.ensure_future(writer.run(work)) for work in works]
    await asyncio.sleep(0)  # each has put itself into the queue
    gate.set()
    await first
    return await asyncio.gather(*jobs, return_exceptions=True)


async def test_what_waits_shares_one_commit(writer: GroupCommit, path: str) -> None:
    """Jobs that gather while a commit is under way need one further commit, however many they are."""
    assert await together(writer, *(put(n) for n in range(100))) == list(range(100))
    assert writer.commits == 2
    assert stored(path) == set(range(100))


async def test_a_lone_job_waits_for_nobody(writer: GroupCommit) -> None:
    """One job after the other has a commit each."""
    for number in range(5):
        assert await writer.run(put(number)) == number
    assert writer.commits == 5


async def test_a_conflict_is_its_own_job_s_alone(writer: GroupCommit, path: str) -> None:
    """B2: a job that fails is rolled back with all it did; its neighbours in the group are stored."""

    def conflict(db: sqlite3.Connection) -> None:
        put(50)(db)
        raise UnexpectedSeqError(session_id="s", expected=1, actual=2)

    found = await together(writer, put(1), conflict, put(2))
    assert (found[0], type(found[1]), found[2]) == (1, UnexpectedSeqError, 2)
    assert stored(path) == {1, 2}
    assert writer.commits == 2


async def test_a_driver_error_is_typed_and_chained(writer: GroupCommit, path: str) -> None:
    """A statement that SQLite refuses is a BackendError that left nothing, the driver's own behind it."""
    [_, failed] = await together(writer, put(1), put(1))
    assert isinstance(failed, BackendError)
    assert failed.wrote_nothing
    assert isinstance(failed.__cause__, sqlite3.IntegrityError)
    assert stored(path) == {1}


async def test_a_job_that_ends_the_transaction_is_left_out(writer: GroupCommit, path: str) -> None:
    """B2: when SQLite rolls the whole group back with one job, the others are run again without it."""

    def too_much(db: sqlite3.Connection) -> None:
        db.execute("insert or rollback into writers values('1', '', 0)")  # as a full disk may do

    found = await together(writer, put(1), too_much, put(2), too_much)
    assert (found[0], found[2]) == (1, 2)
    for failed in (found[1], found[3]):
        assert isinstance(failed, BackendError)
        assert failed.wrote_nothing
    assert stored(path) == {1, 2}


async def test_only_spoilers_are_no_commit(writer: GroupCommit, path: str) -> None:
    """A group of nothing but jobs that end the transaction commits nothing, and the next one works."""

    def rolls_back(db: sqlite3.Connection) -> None:
        db.execute("rollback")
        raise ValueError("gone")

    await writer.run(put(1))
    before = writer.commits
    with pytest.raises(ValueError, match="gone"):
        await writer.run(rolls_back)
    assert writer.commits == before
    await writer.run(put(2))
    assert stored(path) == {1, 2}


class FailingCommit(sqlite3.Connection):
    """A connection whose commits fail while it is told so, before or after they are stored."""

    how = ""

    def execute(self, sql: str, *args: Any) -> sqlite3.Cursor:
        if sql == "commit" and type(self).how:
            if type(self).how == "after":
                super().execute(sql)
            error = sqlite3.OperationalError("disk I/O error")
            error.sqlite_errorcode = sqlite3.SQLITE_IOERR
            raise error
        return super().execute(sql, *args)


@pytest.mark.parametrize("how", ["before", "after"])
async def test_a_failed_commit_leaves_the_outcome_open(
    path: str, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """D2, B3: every job of the group hears that it is not known, and the next group has a new connection."""
    connect = sqlite3.connect
    monkeypatch.setattr(
        sqlite3, "connect", lambda *args, **rest: connect(*args, factory=FailingCommit, **rest)
    )
    opened = []

    def open_one() -> links.Link:
        opened.append(connecting.open_writer(path))
        return opened[-1]

    writer = GroupCommit(path, open_one, first=lambda db: None, last=lambda db: None)
    await writer.run(put(1))
    monkeypatch.setattr(FailingCommit, "how", how)
    for number in (2, 3):
        with pytest.raises(BackendError) as failed:
            await writer.run(put(number))
        assert not failed.value.wrote_nothing
    monkeypatch.setattr(FailingCommit, "how", "")
    await writer.run(put(4))
    assert len(opened) == 3
    await asyncio.to_thread(writer.close)
    assert stored(path) == ({1, 4} if how == "before" else {1, 2, 3, 4})


async def test_nobody_waits_for_a_job_that_was_cancelled(writer: GroupCommit, path: str) -> None:
    """A caller that gives up gets no result; the work was begun and is stored all the same."""
    gate = threading.Event()
    first = asyncio.ensure_future(writer.run(lambda db: gate.wait(10)))
    given_up = asyncio.ensure_future(writer.run(put(1)))
    await asyncio.sleep(0.02)
    given_up.cancel()
    gate.set()
    await first
    await writer.run(put(2))
    assert given_up.cancelled()
    assert stored(path) == {1, 2}


async def test_an_error_of_the_place_reaches_everybody(tmp_path: Path) -> None:
    """A database that cannot be opened fails every job of the group with the same typed error."""
    (tmp_path / "folder").mkdir()
    path = str(tmp_path / "folder")
    writer = GroupCommit(
        path, lambda: connecting.open_writer(path), first=lambda db: None, last=lambda db: None
    )
    found = await asyncio.gather(*(writer.run(put(n)) for n in range(3)), return_exceptions=True)
    assert [type(error) for error in found] == [BackendError] * 3
    await asyncio.to_thread(writer.close)


async def test_a_closed_writer_takes_nothing(writer: GroupCommit, path: str) -> None:
    """What waits when a writer is closed is finished first; what comes later is refused."""
    waiting = asyncio.ensure_future(writer.run(put(1)))
    await asyncio.sleep(0)
    await asyncio.to_thread(writer.close)
    assert await waiting == 1
    with pytest.raises(UsageError, match="closed"):
        await writer.run(put(2))
    assert stored(path) == {1}


async def test_a_forgotten_writer_runs_nothing_more(path: str) -> None:
    """What waits when a writer is forgotten, as in a crash, is not stored."""
    writer = GroupCommit(
        path, lambda: connecting.open_writer(path), first=lambda db: None, last=lambda db: None
    )
    await writer.run(put(1))
    gate = threading.Event()
    held = asyncio.ensure_future(writer.run(lambda db: gate.wait(10)))
    await asyncio.sleep(0.02)
    late = asyncio.ensure_future(writer.run(put(2)))
    await asyncio.sleep(0)
    thread = writer._thread
    assert thread is not None
    writer.forget()
    gate.set()
    await held
    await asyncio.to_thread(thread.join)
    late.cancel()
    assert stored(path) == {1}
    for link in links.open_links(path):
        link.close()


async def test_a_busy_database_leaves_nothing(writer: GroupCommit, path: str) -> None:
    """A group that does not get the write lock is a retryable error, and certainly not stored."""
    await writer.run(put(1))
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("begin immediate")
    with pytest.raises(BackendUnavailableError) as busy:
        await writer.run(put(2))
    assert busy.value.wrote_nothing
    other.execute("rollback")
    other.close()
    await writer.run(put(3))
    assert stored(path) == {1, 3}
