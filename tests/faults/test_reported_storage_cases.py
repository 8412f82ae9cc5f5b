"""Faults that users of other session stores reported, each by its id, on every backend that keeps anything.

The inputs and the right outcome of each id are in `tests/data/reported-faults.yaml`. Where turnlog answers
otherwise than is said there, a comment at the test says why.
"""

from __future__ import annotations

import asyncio
import os
import random
import re
import signal
import sqlite3
import sys
import threading
import time
import traceback
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

import turnlog
from tests.faults.media import unwritable
from tests.faults.stores import SUMMARY_FAULTS, JsonlPlace, Place, make_place
from tests.unit.backends.sqlite.test_opening import NoSharedMemory
from turnlog.backends.sqlite.backend import SqliteBackend
from turnlog.errors import (
    BackendError,
    CorruptLogError,
    SessionBusyError,
    SessionNotFoundError,
    TurnlogError,
    UnexpectedSeqError,
)
from turnlog.persistence.coordinator import PersistenceCoordinator
from turnlog.session.registry import SessionRegistry

CASES = Path(__file__).parents[1] / "data" / "reported-faults.yaml"
OWN_KINDS = ("database-contention", "index-divergence", "concurrent-writers", "write-failure")
ELSEWHERE = {"index-02": "about importing another program's transcripts; the importers' tests have it"}

KILLS = 50
"""Kills per backend; 200 over all of them."""


def test_every_case_of_these_kinds_is_here() -> None:
    """Each reported fault about contention, failing writes or stale indexes has a test by its id."""
    entries = re.split(r"\n(?=- id: )", CASES.read_text(encoding="utf-8"))
    ids = {
        entry.split(maxsplit=3)[2]
        for entry in entries
        if re.search(rf"^  kind: ({'|'.join(OWN_KINDS)})$", entry, re.MULTILINE)
    }
    assert len(ids) >= 9
    here = {name for name in globals() if name.startswith("test_")}
    missing = {i for i in ids - set(ELSEWHERE) if not any(i.replace("-", "_") in name for name in here)}
    assert missing == set()


def say(session: turnlog.LiveSession, text: str = "x") -> None:
    """Append one event."""
    session.append("feedback/record", {"text": text})


def event(seq: int, text: str = "x") -> dict[str, Any]:
    """Return one event as a dictionary."""
    return {"type": "feedback/record", "seq": seq, "time": 1, "data": {"text": text}}


async def store_sessions(url: str, *ids: str) -> None:
    """Store sessions with a turn each."""
    async with turnlog.open(url) as store:
        for session_id in ids:
            async with await store.create(id=session_id) as session, session.turn():
                say(session, session_id)


async def payloads(url: str, session_id: str) -> list[str]:
    """Return the texts of a session's events."""
    async with turnlog.open(url) as store:
        found = await store.read_from(session_id, 0)
    return [e.data["text"] for e in found.events if e.type == "feedback/record"]


def fork(body: Callable[[int], Coroutine[Any, Any, None]]) -> tuple[int, int]:
    """Run a coroutine in a forked process; it gets a descriptor to tell something on.

    Returns:
        The process id, and the descriptor to read from.
    """
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 70
        try:
            os.close(read)
            asyncio.run(body(write))
            status = 0
        except BaseException:  # noqa: BLE001 - a forked child must not return into the parent's stack
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)
    os.close(write)
    return pid, read


# -- concurrent-writers -----------------------------------------------------------------------------


def test_conc_01_two_processes_on_one_session(place: Place) -> None:
    """The second writer hears who is first; readers work; after a kill the next one needs no clean-up."""
    asyncio.run(store_sessions(place.url, "s"))

    async def hold(out: int) -> None:
        async with turnlog.open(place.url, write_window=1e9) as store:
            session = await store.resume("s")
            say(session, "one")
            await session.flush()
            os.write(out, b"%d\n" % session.durable_seq)
            while True:  # in the middle of whatever it does when the kill comes
                say(session, "two" * 50)
                await session.flush()
                os.write(out, b"%d\n" % session.durable_seq)

    async def others(pid: int) -> None:
        async with turnlog.open(place.url) as store:
            with pytest.raises(SessionBusyError) as busy:
                await store.resume("s")
            assert busy.value.owner is not None
            assert (busy.value.owner.pid, busy.value.owner.host) == (pid, os.uname().nodename)
            assert len((await store.inspect("s")).events) > 0

    async def next_writer(told: int) -> None:
        async with turnlog.open(place.url) as store:
            assert len((await store.read_from("s", 0)).events) >= told
            session = await store.resume("s")
            await session.aclose()

    for attempt in range(KILLS):
        pid, read = fork(hold)
        with os.fdopen(read, "rb") as lines:
            told = int(lines.readline())
            if attempt == 0:
                asyncio.run(others(pid))
            time.sleep(random.uniform(0, 0.01))
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            told = max([told, *(int(line) for line in lines.read().splitlines() if line)])
        asyncio.run(next_writer(told))
    texts = asyncio.run(payloads(place.url, "s"))
    assert texts.count("one") == KILLS
    assert set(texts) <= {"s", "one", "two" * 50}


def test_conc_01_two_threads_of_one_process(place: Place) -> None:
    """Stores in two threads keep each other out as processes do; exactly one of them writes at a time."""
    asyncio.run(store_sessions(place.url, "s"))
    written: list[int] = []
    refused: list[BaseException] = []
    barrier = threading.Barrier(2)

    async def write(name: str) -> None:
        async with turnlog.open(place.url) as store:
            for number in range(25):
                try:
                    async with await store.resume("s") as session:
                        say(session, f"{name}-{number}")
                        await session.flush()
                    written.append(1)
                except (SessionBusyError, UnexpectedSeqError) as error:
                    refused.append(error)

    def run(name: str) -> None:
        barrier.wait()
        asyncio.run(write(name))

    threads = [threading.Thread(target=run, args=(name,)) for name in "ab"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(written) + len(refused) == 50
    texts = asyncio.run(payloads(place.url, "s"))
    assert len(texts) == len(written) + 1
    assert len(set(texts)) == len(texts)


async def test_conc_02_clocks_decide_nothing(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """A frozen clock, and one set back by an hour, refuse no append: only the seq counts."""
    now = [1_700_000_000.0]
    monkeypatch.setattr(time, "time", lambda: now[0])
    monkeypatch.setattr(time, "time_ns", lambda: int(now[0] * 1e9))
    async with turnlog.open(place.url, write_window=1e9) as store, await store.create(id="s") as session:
        for _ in range(1000):
            say(session)
            await session.flush()
        now[0] -= 3600
        for _ in range(10):
            say(session)
            await session.flush()
    async with turnlog.open(place.url) as store:
        assert [info.session_id async for info in store.list()] == ["s"]
        await store.append("s", [event(1010)])
        assert len((await store.read_from("s", 0)).events) == 1011


async def test_conc_04_each_session_keeps_its_own(place: Place) -> None:
    """Two sessions of one process never write into each other; a log under another id is damage."""
    # Events of turnlog carry no session id, so a foreign one is told by its seq alone.
    async with turnlog.open(place.url) as store:
        a = await store.create(id="A")
        say(a, "a0")
        say(a, "a1")
        b = await store.create(id="B")
        say(b, "b0")
        say(b, "b1")
        say(a, "a2")
        await b.aclose()
        await a.aclose()
        foreign = (await store.read_from("B", 1)).events[0]
        with pytest.raises(UnexpectedSeqError):
            await store.append("A", [foreign])
    assert await payloads(place.url, "A") == ["a0", "a1", "a2"]
    assert await payloads(place.url, "B") == ["b0", "b1"]
    place.rename("B", "C")
    async with turnlog.open(place.url) as store:
        for read in (store.inspect("C"), store.resume("C"), store.read_from("C", 0)):
            with pytest.raises(CorruptLogError):
                await read
        found = {info.session_id: info.status async for info in store.list()}
        assert (found["A"], len(found)) == ("ok", 2)
        assert "corrupt" in found.values()


# -- database-contention ----------------------------------------------------------------------------


@pytest.mark.parametrize(("kind", "rounds"), [("sqlite", 20), ("jsonl-zstd", 3), ("postgres", 3)])
def test_db_02_many_open_a_new_store_at_once(tmp_path: Path, kind: str, rounds: int) -> None:
    """Eight processes that open one new store at the same moment all succeed, also when one is killed."""
    for number in range(rounds):
        folder = tmp_path / str(number)
        folder.mkdir()
        place = make_place(kind, folder)
        start = os.pipe()

        async def one(out: int, url: str = place.url, pipe: tuple[int, int] = start) -> None:
            os.close(pipe[1])
            os.read(pipe[0], 1)  # the end of the pipe is the barrier
            name = f"s-{os.getpid()}"
            async with turnlog.open(url) as store, await store.create(id=name) as session:
                say(session)
                await session.flush()
            os.write(out, b"ok")

        children = [fork(one) for _ in range(8)]
        victim = children[0][0] if number % 4 == 3 else None
        os.close(start[0])
        os.close(start[1])
        if victim is not None:
            time.sleep(random.uniform(0, 0.02))
            os.kill(victim, signal.SIGKILL)
        told = {}
        for pid, read in children:
            with os.fdopen(read, "rb") as file:
                told[pid] = file.read()
            os.waitpid(pid, 0)
        alive = {pid for pid in told if pid != victim}
        assert {pid: told[pid] for pid in alive} == dict.fromkeys(alive, b"ok")
        found = asyncio.run(ids(place.url))
        assert {f"s-{pid}" for pid in alive} <= found


async def ids(url: str) -> set[str | None]:
    """Return the ids of a store."""
    async with turnlog.open(url) as store:
        return {info.session_id async for info in store.list()}


async def test_db_03_success_means_stored(place: Place) -> None:
    """Of twenty appends at one position exactly one succeeds; of twenty without one all do; reads go on."""
    await store_sessions(place.url, "s")
    async with turnlog.open(place.url, write_window=1e9) as store:
        async with store.resume("s") as session:

            async def without(number: int) -> None:
                say(session, f"without-{number}")
                await session.flush()

            await asyncio.gather(*(without(number) for number in range(20)))
        head = len((await store.read_from("s", 0)).events)

        async def expecting(number: int) -> BaseException | None:
            try:
                await store.append("s", [event(head, f"with-{number}")])
            except TurnlogError as error:
                assert len((await store.read_from("s", 0)).events) >= head
                return error
            return None

        outcomes = await asyncio.gather(*(expecting(number) for number in range(20)))
        assert [type(error) for error in outcomes if error is not None] == [UnexpectedSeqError] * 19
        assert len((await store.read_from("s", 0)).events) == head + 1


async def test_db_03_through_many_stores(place: Place) -> None:
    """Through twenty stores a session has one writer at a time: what was told as stored is what is there."""
    # The others are told that the session is busy, or that its end has moved; with a claim there are no
    # several writers without an expected position.
    await store_sessions(place.url, "s")
    head = len(await payloads(place.url, "s"))
    async with turnlog.open(place.url) as reader:
        head = len((await reader.read_from("s", 0)).events)

        async def one(number: int) -> BaseException | None:
            async with turnlog.open(place.url) as store:
                try:
                    await store.append("s", [event(head, f"with-{number}")])
                except TurnlogError as error:
                    await store.read_from("s", 0)
                    return error
            return None

        outcomes = await asyncio.gather(*(one(number) for number in range(20)))
        refused = [error for error in outcomes if error is not None]
        assert len(refused) == 19
        assert {type(error) for error in refused} <= {SessionBusyError, UnexpectedSeqError}
        assert len((await reader.read_from("s", 0)).events) == head + 1


@pytest.mark.parametrize("variant", ["raises", "stays-with-delete"])
async def test_db_04_no_write_ahead_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, variant: str
) -> None:
    """Where WAL cannot be switched on, a rollback journal serves with one warning; nothing looks empty."""
    # File systems that are known to be remote are refused before the switch is tried.
    path = tmp_path / "sessions.db"
    vfs = None
    if variant == "raises":
        connect = sqlite3.connect
        monkeypatch.setattr(
            sqlite3, "connect", lambda *args, **rest: connect(*args, factory=NoSharedMemory, **rest)
        )
    else:
        vfs = "unix-dotfile"
    store = PersistenceCoordinator(SqliteBackend(path, vfs=vfs), SessionRegistry())
    await store.create(turnlog.SessionHeader(id="s", created_at=1))
    await store.append("s", [event(0)])
    await store.append("s", [event(1)])
    assert [entry.session_id async for entry in store.list()] == ["s"]
    assert len((await store.read_from("s", 0)).events) == 2
    await store.aclose()
    [record] = [r for r in caplog.records if "write-ahead log" in r.getMessage()]
    assert str(path) in record.getMessage()


# -- index-divergence -------------------------------------------------------------------------------


@pytest.mark.parametrize("fault", SUMMARY_FAULTS)
async def test_index_01_what_is_beside_the_logs_decides_nothing(place: Place, fault: str) -> None:
    """A spoilt, lost or stale summary hides no session; it is written anew by the next writer."""
    # The logs have no index that could diverge. A bad summary is not kept aside: nothing can be learnt
    # of it.
    await store_sessions(place.url, "a", "b", "c")
    logs = [place.log(session_id) for session_id in "abc"]
    place.spoil_summaries(fault)
    async with turnlog.open(place.url) as store:
        assert [(info.session_id, info.status) async for info in store.list()] == [
            ("a", "ok"),
            ("b", "ok"),
            ("c", "ok"),
        ]
        for session_id in "abc":
            assert len((await store.inspect(session_id)).events) > 0
        assert [place.log(session_id) for session_id in "abc"] == logs
        async with store.resume("a") as session, session.turn():
            say(session)
        [info] = [info async for info in store.list() if info.session_id == "a"]
        assert info.summary is not None
        assert info.summary.turns == 2


async def test_index_03_an_unreadable_log_is_not_a_missing_one(place: Place) -> None:
    """An unreadable session and an absent one are two errors; neither makes a new session."""
    await store_sessions(place.url, "s", "t")
    place.spoil_log("s", random.Random(1).randbytes(50))
    bytes_before = place.log("s")
    async with turnlog.open(place.url) as store:
        for call in (store.resume, store.inspect, store.load):
            with pytest.raises(CorruptLogError):
                await call("s")
            with pytest.raises(SessionNotFoundError):
                await call("absent")
        assert [info.session_id async for info in store.list()] == ["s", "t"]
    assert place.log("s") == bytes_before


# -- write-failure ----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["jsonl", "jsonl-zstd", "sqlite"])
async def test_write_02_a_store_that_cannot_be_written(tmp_path: Path, kind: str) -> None:
    """Reading works where nothing can be written; a writer is told with the path and the system's reason."""
    # Creating a session touches nothing until its first flush, which is where the error is raised (B1).
    folder = tmp_path / "store"
    folder.mkdir()
    await store_sessions(make_place(kind, folder).url, "s")
    with unwritable(folder, tmp_path / "view") as view:
        before = {str(p.relative_to(view)): p.stat().st_size for p in view.rglob("*")}
        place = make_place(kind, view)
        store = await turnlog.open(place.url, write_window=1e9)
        assert [info.status async for info in store.list()] == ["ok"]
        assert len((await store.inspect("s")).events) == 3
        assert len([e async for e in store.iter_events("s")]) == 3
        with pytest.raises(BackendError) as refused:
            await store.resume("s")
        assert re.search("Read-only file system|Permission denied|cannot be opened", str(refused.value))
        assert refused.value.path is not None
        session = await store.create(id="new")
        say(session)
        with pytest.raises(BackendError):
            await session.flush()
        with pytest.raises(ExceptionGroup):
            await store.aclose()
        assert {str(p.relative_to(view)): p.stat().st_size for p in view.rglob("*")} == before
    (tmp_path / "file").write_text("x")
    odd = tmp_path / "file" / "below"
    url = f"sqlite:{odd}" if kind == "sqlite" else JsonlPlace(odd, "none").url
    with pytest.raises(TurnlogError, match=r"Not a directory|file"):
        await ids(url)
    missing = tmp_path / "not" / "there"
    assert await ids(make_place(kind, missing).url) == set()
    assert not missing.exists()
