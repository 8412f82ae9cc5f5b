"""What the tests of the backends share: sessions, events, batches and a file layer that fails or stops."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator
from typing import Any

from turnlog.backends.jsonl.backend import JsonlBackend
from turnlog.backends.jsonl.files import FileLayer, FolderEntry
from turnlog.backends.jsonl.lock import JsonlClaim
from turnlog.events.batch import EncodedBatch
from turnlog.events.envelope import SessionEvent
from turnlog.events.header import SessionHeader
from turnlog.persistence.backend import StoredEntry, StoredPrefix
from turnlog.persistence.claims import this_process

META = SessionHeader(id="s-1", created_at=1_700_000_000_000, cwd="/srv/app")
OTHER = SessionHeader(id="s-2", created_at=1_700_000_000_001, cwd="/srv/app")


def event(seq: int, type: str = "session/title", **data: Any) -> SessionEvent:
    """Return one event; titles by default, because they are valid everywhere."""
    payload = data or {"title": f"title {seq}"}
    return SessionEvent.from_dict({"type": type, "seq": seq, "time": 1000 + seq, "data": payload})


def events(first: int, count: int) -> list[SessionEvent]:
    """Return consecutive titles."""
    return [event(seq) for seq in range(first, first + count)]


def deltas(first: int, count: int, size: int = 4) -> list[SessionEvent]:
    """Return consecutive text deltas of one block, with texts that do not compress."""
    return [
        event(
            seq,
            "assistant/chunk",
            turn=1,
            step=1,
            chunk={"type": "text-delta", "index": 0, "text": os.urandom(size).hex()},
        )
        for seq in range(first, first + count)
    ]


def turn(first: int, number: int = 1) -> list[SessionEvent]:
    """Return a whole turn of two events."""
    return [
        event(first, "turn/start", turn=number),
        event(first + 1, "turn/end", turn=number, reason={"kind": "completed"}),
    ]


def batch(first: int, count: int) -> EncodedBatch:
    """Return a batch of titles."""
    return EncodedBatch.of(events(first, count))


async def store(
    backend: JsonlBackend, *batches: EncodedBatch, meta: SessionHeader = META, keep: bool = False
) -> JsonlClaim:
    """Store batches one after another; the claim is given back unless it is to be kept."""
    claim = await backend.claim(meta.id, this_process(), meta=meta)
    for position, part in enumerate(batches):
        await append(backend, part, claim, meta=meta, new=position == 0)
    if not keep:
        await backend.release(claim)
    return claim


async def append(
    backend: JsonlBackend,
    part: EncodedBatch,
    claim: JsonlClaim | None,
    *,
    meta: SessionHeader = META,
    new: bool = False,
) -> str | None:
    """Append one batch without a summary."""
    return await backend.append_batch(meta, part, is_materialized=not new, claim=claim, summary=None)


async def loaded(backend: JsonlBackend, session_id: str = META.id) -> StoredPrefix:
    """Load a session that must be there."""
    prefix = await backend.load_stored(session_id)
    assert prefix is not None
    return prefix


async def listed(backend: JsonlBackend) -> list[StoredEntry]:
    """List everything."""
    return [entry async for entry in backend.list()]


class FailingFiles(FileLayer):
    """A file layer in which chosen calls fail, once or for as long as the rule says."""

    def __init__(self) -> None:
        super().__init__()
        self.rules: list[tuple[str, Iterator[bool], OSError]] = []
        self.before: dict[str, Callable[[], None]] = {}
        self.calls: list[str] = []

    def fail(self, call: str, *, times: int = 1, skip: int = 0, number: int = errno.EIO) -> None:
        """Let the next `times` calls fail after `skip` that succeed."""
        outcomes = iter([False] * skip + [True] * times)
        self.rules.append((call, outcomes, OSError(number, os.strerror(number))))

    def stop(self, call: str, action: Callable[[], None]) -> None:
        """Run something once, just before a call goes on."""
        self.before[call] = action

    def _on(self, call: str) -> None:
        self.calls.append(call)
        action = self.before.pop(call, None)
        if action is not None:
            action()
        for name, outcomes, error in self.rules:
            if name == call and next(outcomes, False):
                raise error

    def open_folder(self, root: str, parts: Any = ()) -> int:
        self._on("open_folder")
        return super().open_folder(root, parts)

    def make_folder(self, name: str, *, folder: int | None = None) -> bool:
        self._on("make_folder")
        return super().make_folder(name, folder=folder)

    def entries(self, folder: int) -> list[FolderEntry]:
        self._on("entries")
        return super().entries(folder)

    def open(self, name: str, flags: int, *, folder: int | None = None) -> int:
        self._on("open_folder" if flags & os.O_DIRECTORY else "create" if flags & os.O_EXCL else "open")
        return super().open(name, flags, folder=folder)

    def status(self, fd: int) -> os.stat_result:
        self._on("status")
        return super().status(fd)

    def path_status(self, path: str, *, folder: int | None = None) -> os.stat_result:
        self._on("path_status")
        return super().path_status(path, folder=folder)

    def read_at(self, fd: int, size: int, offset: int) -> bytes:
        self._on("read_at")
        return super().read_at(fd, size, offset)

    def write_at(self, fd: int, data: bytes, offset: int) -> None:
        self._on("write_at")
        super().write_at(fd, data, offset)
        self._on("written")

    def truncate(self, fd: int, size: int) -> None:
        self._on("truncate")
        super().truncate(fd, size)
        self._on("truncated")

    def sync(self, fd: int) -> None:
        self._on("sync")
        super().sync(fd)

    def sync_data(self, fd: int) -> None:
        self._on("sync_data")
        super().sync_data(fd)
        self._on("synced")

    def link(self, name: str, new_name: str, *, folder: int) -> None:
        self._on("link")
        super().link(name, new_name, folder=folder)
        self._on("linked")

    def rename(self, name: str, new_name: str, *, folder: int) -> None:
        self._on("rename")
        super().rename(name, new_name, folder=folder)
        self._on("renamed")

    def remove(self, name: str, *, folder: int) -> None:
        self._on("remove")
        super().remove(name, folder=folder)
