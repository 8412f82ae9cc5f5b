"""Backends that are wrong in one way each, with the harnesses that run them.

Owns the faults. Each is a first-party backend with one thing broken, so that a suite that passes it has
a hole; `suites` runs the contract on them and `test_mutants` says which test must notice.
"""

from __future__ import annotations

import asyncio
import os
import stat
from collections.abc import Sequence
from pathlib import Path

from tests.contract.jsonl_harness import JsonlHarness
from tests.contract.memory_harness import MemoryHarness
from tests.contract.mutants import faults
from turnlog.backends.memory import MemoryBackend, MemoryMedium, _Frame
from turnlog.events.batch import EncodedBatch
from turnlog.events.envelope import SessionEvent
from turnlog.events.header import SessionHeader
from turnlog.events.segment import encode_segment
from turnlog.persistence.backend import LogSummary, StoredPrefix
from turnlog.testing import LossyFiles


class LosesDataOnReopen(MemoryHarness):
    """What one process stored is not there for the next one."""

    def make_backend(self) -> MemoryBackend:
        self.medium = MemoryMedium()
        return MemoryBackend(self.medium)


class EventByEvent(faults.EventByEvent, MemoryBackend):
    """Batches are not atomic."""


class HeaderFirst(faults.HeaderFirst, MemoryBackend):
    """Header and first batch are not stored together."""


class NoSeqCheck(MemoryBackend):
    """Appends whatever comes, wherever the log ends."""

    async def append_batch(
        self,
        meta: SessionHeader,
        batch: EncodedBatch,
        *,
        is_materialized: bool,
        claim: object | None,
        summary: LogSummary | None,
    ) -> str | None:
        stored = self.medium.sessions.get(encode_segment(meta.id))
        if stored is None:
            return await super().append_batch(
                meta, batch, is_materialized=is_materialized, claim=claim, summary=summary
            )
        stored.frames.append(_Frame(batch.first_seq, batch.last_seq, batch.frame()))
        return self.medium.touch(meta.id)


class MutatingInspect(MemoryBackend):
    """Cuts a torn tail while it reads."""

    async def load_stored(self, session_id: str) -> StoredPrefix | None:
        found = await super().load_stored(session_id)
        if found is not None and found.torn_marker is not None:
            self.medium.sessions[encode_segment(session_id)].torn = b""
            self.medium.touch(session_id)
        return found


class ClosesWhileReading(MemoryBackend):
    """Stores something each time a session is read."""

    async def load_stored(self, session_id: str) -> StoredPrefix | None:
        found = await super().load_stored(session_id)
        if found is not None:
            self.medium.sessions[encode_segment(session_id)].quarantine[0] = b"seen"
        return found


class WritesAfterTakeover(MemoryBackend):
    """Refuses a second writer, but lets the first one go on writing after a takeover."""

    def _check_claim(self, session_id: str, claim: object | None) -> None:
        """Let every write through."""


class IgnoresTheClaim(faults.TakesEveryClaim, WritesAfterTakeover):
    """Gives the claim to everybody and checks nobody's."""


class LosesTheTornEvents(MemoryBackend):
    """Throws the bytes of a torn tail away instead of keeping them."""

    async def commit_repair(
        self,
        meta: SessionHeader,
        torn_marker: object | None,
        closers: Sequence[SessionEvent],
        *,
        claim: object | None,
    ) -> None:
        await super().commit_repair(meta, torn_marker, closers, claim=claim)
        self.medium.sessions[encode_segment(meta.id)].quarantine.clear()


class CutsBeforeItAppends(MemoryBackend):
    """Repairs in two steps: the torn tail is gone before what it gave up is stored again."""

    async def commit_repair(
        self,
        meta: SessionHeader,
        torn_marker: object | None,
        closers: Sequence[SessionEvent],
        *,
        claim: object | None,
    ) -> None:
        stored = self.medium.sessions[encode_segment(meta.id)]
        torn, stored.torn = stored.torn, b""
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        stored.torn = torn
        await super().commit_repair(meta, torn_marker, closers, claim=claim)


class ConstantRevision(faults.ConstantRevision, MemoryBackend):
    """The revision does not follow the log."""


class MemoryMutant(MemoryHarness):
    """Runs one wrong memory backend.

    Args:
        kind: Its class.
    """

    def __init__(self, kind: type[MemoryBackend]) -> None:
        super().__init__()
        self.kind = kind

    def make_backend(self) -> MemoryBackend:
        return self.kind(self.medium)


class NoFolderSync(LossyFiles):
    """Never syncs a folder, though it says so."""

    def sync(self, fd: int) -> None:
        if not stat.S_ISDIR(os.fstat(fd).st_mode):
            super().sync(fd)

    def sync_data(self, fd: int) -> None:
        if not stat.S_ISDIR(os.fstat(fd).st_mode):
            super().sync_data(fd)


class NoFileSync(LossyFiles):
    """Never syncs a file, though it says so."""

    def sync(self, fd: int) -> None:
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            super().sync(fd)

    def sync_data(self, fd: int) -> None:
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            super().sync_data(fd)


class JsonlMutant(JsonlHarness):
    """Runs the JSONL backend over wrong file calls.

    Args:
        folder: An empty folder.
        compression: As for `JsonlHarness`.
        files: The class of the file layer.
    """

    def __init__(self, folder: Path, compression: str, files: type[LossyFiles]) -> None:
        super().__init__(folder, compression)
        self.files = files

    def make_files(self) -> LossyFiles:
        return self.files(self.power)
