"""SQLite on media that fail: a disk that runs full, folders that cannot be written, syncs that fail."""

from __future__ import annotations

import asyncio
import os
import random
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import turnlog
from tests.crash.killpoints import have_strace
from tests.faults.lanes import need
from tests.faults.media import fill_up, small_file_system, unwritable
from turnlog.backends.sqlite import links
from turnlog.errors import BackendError, UndurableError

TITLES = "session/title"


def say(session: turnlog.LiveSession, size: int = 40) -> None:
    """Append one event whose payload does not compress."""
    session.append("feedback/record", {"text": random.randbytes(size).hex()})


def texts(events: Any) -> list[str]:
    """Return the payloads of the events that `say` made."""
    return [event.data["text"] for event in events if event.type == "feedback/record"]


async def test_a_full_disk_is_told_and_loses_nothing(tmp_path: Path) -> None:
    """D2, B2: what was acknowledged stays, what was not is kept, and both are there once space is free."""
    with small_file_system(tmp_path / "small", "2m") as place:
        ballast = place / "ballast"
        ballast.write_bytes(bytes(1 << 20))
        async with turnlog.open(f"sqlite:{place}/sessions.db", write_window=1e9) as store:
            session = await store.create(id="s")
            acknowledged = 0

            async def write_on() -> None:
                nonlocal acknowledged
                for _ in range(200):
                    say(session, 8000)
                    await session.flush()
                    acknowledged = session.durable_seq

            with pytest.raises(UndurableError) as failed:
                await write_on()
            assert 0 < acknowledged < 200
            assert "disk is full" in str(failed.value)
            assert isinstance(failed.value.__cause__, BackendError)
            stored = await store.read_from("s", 0)
            assert texts(stored.events) == texts(session.events)[:acknowledged]
            await asyncio.to_thread(ballast.unlink)
            await session.flush()
            say(session)
            await session.flush()
            wanted = texts(session.events)
        async with turnlog.open(f"sqlite:{place}/sessions.db") as store:
            assert texts((await store.inspect("s")).events) == wanted
        db = sqlite3.connect(place / "sessions.db")
        assert db.execute("pragma integrity_check").fetchall() == [("ok",)]
        db.close()


async def test_no_room_for_a_new_database(tmp_path: Path) -> None:
    """A database that cannot even be made is a typed error, and works once there is room."""
    with small_file_system(tmp_path / "small", "256k") as place:
        ballast = place / "ballast"
        fill_up(ballast)
        async with turnlog.open(f"sqlite:{place}/sessions.db", write_window=1e9) as store:
            session = await store.create(id="s")
            say(session)
            with pytest.raises(UndurableError):
                await session.flush()
            await asyncio.to_thread(ballast.unlink)
            await session.flush()
            assert texts((await store.read_from("s", 0)).events) == texts(session.events)


async def fill(url: str, *ids: str, **options: Any) -> None:
    """Store sessions with three events each and close the store."""
    async with turnlog.open(url, **options) as store:
        for session_id in ids:
            async with await store.create(id=session_id) as session:
                for _ in range(3):
                    say(session)


async def test_a_folder_that_cannot_be_written_can_be_read(tmp_path: Path) -> None:
    """R3: reading goes on from a private copy of database and log, sees later commits, and leaves nothing."""
    folder = tmp_path / "store"
    folder.mkdir()
    url = f"sqlite:{folder}/sessions.db"
    await fill(url, "a")
    with unwritable(folder, tmp_path / "view") as view:
        before = set(os.listdir(folder))
        async with turnlog.open(f"sqlite:{view}/sessions.db") as reader:
            assert [info.session_id async for info in reader.list()] == ["a"]
            copies = [link.copy for link in links.open_links(f"{view}/sessions.db")]
            assert [copy is not None for copy in copies] == [True]
            if view != folder:  # root may still write through the folder itself
                async with turnlog.open(url) as writer:
                    session = await writer.create(id="b")
                    say(session)
                    await session.flush()
                    found = await reader.inspect("b")  # it is in the log only, and live
                    assert texts(found.events) == texts(session.events)
                assert [info.status async for info in reader.list()] == ["ok", "ok"]
        assert all(copy is None or not os.path.exists(copy.path) for copy in copies)
        assert set(os.listdir(folder)) == before


async def test_a_log_left_by_a_crash_is_read_from_a_copy(tmp_path: Path) -> None:
    """R3: commits that are only in the log of a dead writer are seen by readers that may not touch it."""
    folder = tmp_path / "store"
    folder.mkdir()
    await fill(f"sqlite:{tmp_path}/alive.db", "a")
    async with turnlog.open(f"sqlite:{tmp_path}/alive.db") as store:
        session = await store.create(id="late")
        say(session)
        await session.flush()
        for suffix in ("", "-wal"):  # what a process that dies now leaves, without its shared memory
            shutil.copy(f"{tmp_path}/alive.db{suffix}", f"{folder}/sessions.db{suffix}")
        wanted = texts(session.events)
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert set(before) == {"sessions.db", "sessions.db-wal"}
    with unwritable(folder, tmp_path / "view") as view:
        async with turnlog.open(f"sqlite:{view}/sessions.db") as reader:
            assert texts((await reader.inspect("late")).events) == wanted
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before


async def test_writing_where_nothing_can_be_written_is_refused(tmp_path: Path) -> None:
    """W1, B1: resuming and storing fail at once with the path and what to do; no file is left behind."""
    folder = tmp_path / "store"
    folder.mkdir()
    await fill(f"sqlite:{folder}/sessions.db", "a")
    with unwritable(folder, tmp_path / "view") as view:
        before = sorted(os.listdir(view))
        async with turnlog.open(f"sqlite:{view}/sessions.db", write_window=1e9) as store:
            with pytest.raises(BackendError) as refused:
                await store.resume("a")
            assert refused.value.path == f"{view}/sessions.db"
            assert [info.session_id async for info in store.list()] == ["a"]
        store = await turnlog.open(f"sqlite:{view}/deeper/sessions.db", write_window=1e9)
        session = await store.create(id="x")
        say(session)
        with pytest.raises(UndurableError, match=r"cannot be made: (Read-only|Permission)"):
            await session.flush()
        with pytest.raises(ExceptionGroup):
            await store.aclose()
        assert sorted(os.listdir(view)) == before


SYNC_FAILS = """
import asyncio, sys
import turnlog
from turnlog.errors import UndurableError

async def main(url):
    failures = 0
    async with turnlog.open(url, write_window=1e9) as store:
        session = await store.create(id="s")
        for number in range(12):
            session.append("feedback/record", {"text": f"event {number}"})
            while True:
                try:
                    await session.flush()
                    break
                except UndurableError:
                    failures += 1
            print(session.durable_seq, flush=True)
    print("failures", failures, flush=True)

asyncio.run(main(sys.argv[1]))
"""


WHEN = {"fdatasync": "9+7", "pwrite64": "30+60", "fsync": "2"}
"""Which calls fail, in the notation of strace; without a step, one of those that make the database."""


@pytest.mark.parametrize("call", sorted(WHEN))
def test_a_sync_that_fails_is_not_believed(tmp_path: Path, call: str) -> None:
    """D2: after an I/O error the same batch is written again through a new connection; nothing is lost."""
    need(have_strace(), "strace is missing; apt-get install strace")
    path = tmp_path / "sessions.db"
    inject = f"inject={call}:error=EIO:when={WHEN[call]}"
    command = ["strace", "-f", "-qq", "-o", str(tmp_path / "trace"), "-e", f"trace={call}", "-e", inject]
    done = subprocess.run(
        [*command, sys.executable, "-c", SYNC_FAILS, f"sqlite:{path}"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    *told, last = done.stdout.splitlines()
    assert int(last.split()[1]) > 0, "no failure reached a flush"
    assert [int(line) for line in told] == list(range(1, 13))
    db = sqlite3.connect(path)
    assert db.execute("pragma integrity_check").fetchall() == [("ok",)]
    assert db.execute("select next_seq from sessions").fetchall() == [(12,)]
    db.close()


MANY = """
import asyncio, sys
import turnlog

async def main(url):
    async with turnlog.open(url, write_window=1e9) as store:
        sessions = [await store.create(id=f"s-{number}") for number in range(100)]
        flushes = 0
        for _ in range(6):
            for session in sessions:
                session.append("feedback/record", {"text": "x" * 200})
            await asyncio.gather(*(session.flush() for session in sessions))
            flushes += len(sessions)
    print(flushes)

asyncio.run(main(sys.argv[1]))
"""


def syncs_of(trace: Path) -> int:
    """Count the syncs that a trace of strace holds."""
    return sum("sync(" in line for line in trace.read_text().splitlines())


def test_a_hundred_sessions_share_their_syncs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A hundred sessions that flush together need fewer syncs than flushes by more than five times."""
    need(have_strace(), "strace is missing; apt-get install strace")
    trace = tmp_path / "trace"
    command = ["strace", "-f", "-qq", "-o", str(trace), "-e", "trace=fsync,fdatasync"]
    done = subprocess.run(
        [*command, sys.executable, "-c", MANY, f"sqlite:{tmp_path}/sessions.db"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    flushes, syncs = int(done.stdout), syncs_of(trace)
    with capsys.disabled():
        print(f"\n  sqlite: {flushes} flushes of 100 sessions, {syncs} syncs, opening and closing included")
    assert 0 < syncs < flushes / 5
