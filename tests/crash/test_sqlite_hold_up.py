"""The hold-up drill on SQLite: a stopped writer loses its lease, is taken over, and is fenced (W1)."""

from __future__ import annotations

import asyncio
import itertools
import os
import signal
import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest

import turnlog
from tests.crash.scenarios import CWD, SESSION_ID, add_turn
from tests.crash.test_hold_up import _Process as WriterProcess
from tests.crash.test_hold_up import _tell as tell
from tests.faults.lanes import SOAK, report
from turnlog.backends.sqlite.backend import SqliteBackend
from turnlog.persistence.attachments import AttachmentStore
from turnlog.persistence.coordinator import PersistenceCoordinator
from turnlog.persistence.live_session import LiveSession
from turnlog.persistence.store import SessionStore
from turnlog.session.registry import SessionRegistry

ROUNDS = 250 if SOAK else 50
LEASE = 0.1
POSITIONS = ("idle", "before-begin", "after-commit")


def stop() -> None:
    """Stop this process, as a closed lid or a debugger does."""
    signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)


def open_store(path: Path, lease: float = LEASE) -> tuple[SessionStore, SqliteBackend]:
    """Open a store with leases of a given length."""
    backend = SqliteBackend(path, lease=lease)
    registry = SessionRegistry(session_type=LiveSession)
    return SessionStore(PersistenceCoordinator(backend, registry), registry, AttachmentStore(None)), backend


def stop_once(backend: SqliteBackend, position: str) -> None:
    """Stop the writer thread, and with it the process, at one place of its next group."""
    writer = backend.writer
    connection, run_group = writer._connection, writer._run_group

    def before() -> sqlite3.Connection:
        writer._connection = connection  # type: ignore[method-assign]  # once only
        stop()
        return connection()

    def after(jobs: Any) -> None:
        writer._run_group = run_group  # type: ignore[method-assign]  # once only
        run_group(jobs)
        stop()

    if position == "before-begin":
        writer._connection = before  # type: ignore[method-assign]  # once only
    else:
        writer._run_group = after  # type: ignore[method-assign]  # once only


async def writer_a(path: Path, position: str, out: int) -> None:
    """Acknowledge a turn, be stopped around the next append, tell what happened after that."""
    store, backend = open_store(path)
    session = await store.create(id=SESSION_ID, cwd=CWD)
    add_turn(session, 1)
    await session.flush()
    tell(out, acknowledged=session.durable_seq)
    if position == "idle":
        stop()
    add_turn(session, 2)
    if position != "idle":
        stop_once(backend, position)
    if position == "after-commit":
        await session.flush()
        tell(out, acknowledged=session.durable_seq)
        add_turn(session, 3)
    try:
        await session.flush()
    except turnlog.WriterFencedError as fenced:
        tell(out, outcome="fenced", pending=[event.seq for event in fenced.pending])
    else:
        tell(out, outcome="acknowledged")


async def writer_b(path: Path, out: int) -> None:
    """Wait for the lease to run out, resume without asking for a takeover, append a turn."""
    store, _ = open_store(path, lease=30)
    refused = 0
    while True:
        try:
            session = await store.resume(SESSION_ID)
            break
        except turnlog.SessionBusyError:
            refused += 1
            await asyncio.sleep(LEASE / 10)
    first = session.first_live_seq
    add_turn(session, session.next_turn)
    await session.flush()
    tell(out, first=first, acknowledged=session.durable_seq, refused=refused)
    await store.aclose()


async def stored(path: Path) -> list[str]:
    """Return the types of the stored events."""
    store, _ = open_store(path)
    found = (await store.inspect(SESSION_ID)).events
    await store.aclose()
    return [event.type for event in found]


def test_a_held_up_writer_is_fenced(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A is stopped, its lease runs out, B takes over and appends; A goes on, fenced, its events in hand."""
    refused = acknowledged = 0
    for number, position in zip(range(ROUNDS), itertools.cycle(POSITIONS), strict=False):
        path = tmp_path / f"{number}.db"
        a = WriterProcess(writer_a, path, position)
        told = a.next()["acknowledged"]
        a.until_stopped()
        b = WriterProcess(writer_b, path)
        taken = b.next()
        b.end()
        os.kill(a.pid, signal.SIGCONT)
        if position == "after-commit":
            told = a.next()["acknowledged"]  # its commit came before the takeover, so it stands
        outcome = a.next()
        a.end()
        assert outcome["outcome"] == "fenced", f"{position}: a late write was acknowledged"
        assert outcome["pending"][0] == told, f"{position}: unwritten events were not handed back"
        assert taken["first"] >= told, f"{position}: an acknowledged event is missing"
        acknowledged += told
        events = asyncio.run(stored(path))
        assert len(events) == taken["acknowledged"], f"{position}: the log has something B did not write"
        assert events[-1] == "turn/end"
        refused += taken["refused"] > 0
    assert refused > 0, "no lease ever kept B out, so the drill shows nothing"
    report(
        "SIGSTOP, takeover, SIGCONT",
        "sqlite",
        capsys,
        faults=ROUNDS,
        acknowledged=acknowledged,
        note="every late writer was fenced",
    )


async def killed_writer(path: Path, out: int) -> None:
    """Acknowledge a turn and die with a lease that would last for half a minute."""
    store, _ = open_store(path, lease=30)
    session = await store.create(id=SESSION_ID, cwd=CWD)
    add_turn(session, 1)
    await session.flush()
    tell(out, acknowledged=session.durable_seq)
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_dead_writer_is_not_waited_for(tmp_path: Path) -> None:
    """The process table proves that a killed owner is dead: nobody waits for the end of its lease."""
    path = tmp_path / "sessions.db"
    a = WriterProcess(killed_writer, path)
    told = a.next()["acknowledged"]
    os.waitpid(a.pid, 0)
    a.facts.close()
    b = WriterProcess(writer_b, path)
    taken = b.next()
    b.end()
    assert (taken["refused"], taken["first"]) == (0, told)


async def stopped_inside(path: Path, out: int) -> None:
    """Be stopped inside a transaction, with the database's lock in hand."""
    store, backend = open_store(path)
    session = await store.create(id=SESSION_ID, cwd=CWD)
    add_turn(session, 1)
    await session.flush()
    tell(out, acknowledged=session.durable_seq)
    await backend.writer.run(lambda db: stop())
    add_turn(session, 2)
    await session.flush()
    tell(out, acknowledged=session.durable_seq)
    await store.aclose()


def test_a_writer_stopped_inside_a_commit_holds_the_database(tmp_path: Path) -> None:
    """The lock of a stopped process cannot be taken away: others are told to try again, nothing is lost."""
    path = tmp_path / "sessions.db"
    a = WriterProcess(stopped_inside, path)
    a.next()
    a.until_stopped()

    async def try_to_resume() -> None:
        backend = SqliteBackend(path, busy=0.2)
        registry = SessionRegistry(session_type=LiveSession)
        store = SessionStore(PersistenceCoordinator(backend, registry), registry, AttachmentStore(None))
        assert len((await store.inspect(SESSION_ID)).events) > 0
        with pytest.raises(turnlog.BackendUnavailableError):
            await store.resume(SESSION_ID, takeover=True)
        await store.aclose()

    asyncio.run(try_to_resume())
    os.kill(a.pid, signal.SIGCONT)
    told = a.next()["acknowledged"]
    a.end()
    assert len(asyncio.run(stored(path))) == told
