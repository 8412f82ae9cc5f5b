"""The hold-up drill: a stopped writer is taken over, goes on, and is fenced; two processes (W1)."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

import turnlog
from tests.crash.scenarios import CWD, SESSION_ID, add_turn, store_url
from tests.faults.lanes import SOAK, report
from turnlog.backends.jsonl.backend import JsonlBackend
from turnlog.backends.jsonl.files import FileLayer
from turnlog.persistence.attachments import AttachmentStore
from turnlog.persistence.coordinator import PersistenceCoordinator
from turnlog.persistence.live_session import LiveSession
from turnlog.persistence.store import SessionStore
from turnlog.session.registry import SessionRegistry

ROUNDS = 500 if SOAK else 50
POSITIONS = ("before-write", "before-sync", "before-last-check")


class StoppingFiles(FileLayer):
    """The real file layer, which stops its own process once at one place of the next append."""

    def __init__(self, position: str) -> None:
        super().__init__()
        self.position: str | None = None
        self._chosen = position

    def arm(self) -> None:
        """Stop at the chosen position of what comes next."""
        self.position = self._chosen

    def _stop_at(self, position: str) -> None:
        if self.position == position:
            self.position = None
            signal.pthread_kill(
                threading.get_ident(), signal.SIGSTOP
            )  # this very thread, before its next call

    def write_at(self, fd: int, data: bytes, offset: int) -> None:
        self._stop_at("before-write")
        super().write_at(fd, data, offset)

    def sync_data(self, fd: int) -> None:
        self._stop_at("before-sync")
        super().sync_data(fd)
        self._stop_at("before-last-check")


async def _writer_a(root: Path, compression: str, position: str, out: int) -> None:
    """Acknowledge a turn, be stopped inside the next append, tell what happened after that."""
    files = StoppingFiles(position)
    registry = SessionRegistry(session_type=LiveSession)
    coordinator = PersistenceCoordinator(JsonlBackend(root, compression=compression, files=files), registry)
    store = SessionStore(coordinator, registry, AttachmentStore(None))
    session = await store.create(id=SESSION_ID, cwd=CWD)
    add_turn(session, 1)
    await session.flush()
    _tell(out, acknowledged=session.durable_seq)
    add_turn(session, 2)
    files.arm()
    try:
        await session.flush()
    except turnlog.WriterFencedError as fenced:
        _tell(out, outcome="fenced", pending=[event.seq for event in fenced.pending])
    else:
        _tell(out, outcome="acknowledged")


async def _writer_b(root: Path, compression: str, out: int) -> None:
    """Take the session over, append a turn, tell from which seq on the log is B's."""
    async with turnlog.open(store_url(root, compression)) as store:
        session = await store.resume(SESSION_ID, takeover=True)
        first = session.first_live_seq
        add_turn(session, session.next_turn)
        await session.flush()
        _tell(out, first=first, acknowledged=session.durable_seq)


def _tell(fd: int, **facts: Any) -> None:
    os.write(fd, json.dumps(facts).encode() + b"\n")


class _Process:
    """A forked writer that tells facts through a pipe."""

    def __init__(self, coroutine: Any, *args: Any) -> None:
        read, write = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            status = 70
            try:
                asyncio.run(coroutine(*args, write))
                status = 0
            finally:
                os._exit(status)
        os.close(write)
        self.facts = os.fdopen(read, "rb")

    def next(self) -> dict[str, Any]:
        """The next line that the process told."""
        facts: dict[str, Any] = json.loads(self.facts.readline())
        return facts

    def until_stopped(self) -> None:
        """Wait until the process has stopped itself."""
        _, status = os.waitpid(self.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status), f"the writer was not stopped: status {status}"

    def end(self) -> None:
        """Wait for a clean end."""
        _, status = os.waitpid(self.pid, 0)
        assert status == 0, f"the writer failed: status {status}"
        self.facts.close()


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_a_held_up_writer_is_fenced(
    compression: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A is stopped between check and write (or later), B takes over and appends, A goes on and is fenced."""
    acknowledged = 0
    for number, position in zip(range(ROUNDS // 2), itertools.cycle(POSITIONS), strict=False):
        root = tmp_path / str(number)
        a = _Process(_writer_a, root, compression, position)
        told = a.next()["acknowledged"]
        a.until_stopped()
        b = _Process(_writer_b, root, compression)
        taken = b.next()
        b.end()
        os.kill(a.pid, signal.SIGCONT)
        outcome = a.next()
        a.end()
        assert outcome["outcome"] == "fenced", f"{position}: a late write was acknowledged"
        assert outcome["pending"][0] == told, f"{position}: unwritten events were not handed back"
        assert taken["first"] >= told, f"{position}: an acknowledged event is missing"
        asyncio.run(_check(root, compression, told, taken))
        acknowledged += told
    report(
        "SIGSTOP, takeover, SIGCONT",
        f"jsonl {compression}",
        capsys,
        faults=ROUNDS // 2,
        acknowledged=acknowledged,
        note="every late writer was fenced",
    )


async def _check(root: Path, compression: str, told: int, taken: dict[str, Any]) -> None:
    async with turnlog.open(store_url(root, compression)) as store:
        loaded = await store.load(SESSION_ID)
    events = [e.type for e in loaded.events]
    assert len(events) == taken["acknowledged"], "the log has something that B did not write"
    assert events[:told].count("turn/end") == 1
    assert "session/end-seed" in events[taken["first"] - 1 : taken["first"] + 1], "B's part begins elsewhere"
    assert events[-1] == "turn/end"
