"""What a flush and a new session cost on JSONL, in counts: hops to a thread, tasks, looks, writes, syncs."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from tests.unit.backends.logs import FailingFiles
from turnlog.backends.io_threads import IoThreads
from turnlog.backends.jsonl.backend import JsonlBackend
from turnlog.persistence.attachments import AttachmentStore
from turnlog.persistence.coordinator import PersistenceCoordinator
from turnlog.persistence.live_session import LiveSession
from turnlog.persistence.store import SessionStore
from turnlog.session.registry import SessionRegistry

FILE_CALLS = ("open", "open_folder", "path_status", "write_at", "truncate", "sync_data", "sync")


class Meter:
    """A store over counting files, with counts of hops and of the tasks that the loop makes."""

    def __init__(self, root: Path, compression: str, patch: pytest.MonkeyPatch) -> None:
        self.files = FailingFiles()
        self.backend = JsonlBackend(root, files=self.files, compression=compression)
        registry = SessionRegistry(LiveSession)
        coordinator = PersistenceCoordinator(self.backend, registry, write_window=60)
        self.store = SessionStore(coordinator, registry, AttachmentStore(None))
        self.hops = 0
        self.tasks = 0
        run = IoThreads.run

        def counted(threads: IoThreads, *args: Any, **options: Any) -> asyncio.Future[Any]:
            self.hops += 1
            return run(threads, *args, **options)

        patch.setattr(IoThreads, "run", counted)

        def task(
            loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Any], **options: Any
        ) -> asyncio.Task[Any]:
            self.tasks += 1
            return asyncio.Task(work, loop=loop, **options)

        asyncio.get_running_loop().set_task_factory(task)  # type: ignore[arg-type]  # generators make none here

    def reset(self) -> None:
        """Count from zero."""
        self.hops = self.tasks = 0
        self.files.calls.clear()

    def counts(self) -> list[int]:
        """Return how often each of `FILE_CALLS` was made."""
        return [self.files.calls.count(call) for call in FILE_CALLS]


@pytest.fixture
async def meter(root: Path, compression: str, monkeypatch: pytest.MonkeyPatch) -> Meter:
    """Give a metered store on a fresh root."""
    return Meter(root, compression, monkeypatch)


async def _settled() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


async def test_a_flush_is_one_hop_and_no_task(meter: Meter) -> None:
    """D2: lock and log are looked at before the write and after the sync, and nothing else is done."""
    async with meter.store as store, store.create(id="s", cwd="/w") as session:
        session.append("feedback/record", {})
        await session.flush()
        await _settled()
        meter.reset()
        for n in range(5):
            session.append("feedback/record", {"n": n})
            await session.flush()
        assert (meter.hops, meter.tasks) == (5, 0)
        assert meter.counts() == [0, 0, 5 * 4, 5, 0, 5, 0]


async def test_the_end_of_a_turn_is_one_write_more(meter: Meter) -> None:
    """B4: the summary's file is open from the first turn on; each turn writes it once."""
    async with meter.store as store, store.create(id="s", cwd="/w") as session:
        for turn in range(1, 6):
            session.append("turn/start", {"turn": turn})
            session.append("turn/end", {"turn": turn, "reason": {"kind": "completed"}})
            await session.flush()
            if turn == 2:
                await _settled()
                meter.reset()
        assert (meter.hops, meter.tasks) == (3, 0)
        assert meter.counts() == [0, 0, 3 * 4, 3 * 2, 0, 3, 0]


@pytest.mark.parametrize(("id", "hops", "walks"), [("given", 3, 1), (None, 2, 0)])
async def test_a_new_session_is_sought_only_under_a_given_id(
    meter: Meter, id: str | None, hops: int, walks: int
) -> None:
    """B1, D2: a claim and a publication with three syncs; an id made here costs no look at the store."""
    async with meter.store as store:
        async with store.create(id="first", cwd="/w") as first:
            first.append("feedback/record", {})
            await first.flush()
        meter.reset()
        before = meter.backend.discovery.walks
        async with store.create(id=id, cwd="/w") as session:
            session.append("feedback/record", {})
            await session.flush()
            assert meter.hops == hops
            assert meter.backend.discovery.walks - before == walks
            assert meter.files.calls.count("sync") == 3
