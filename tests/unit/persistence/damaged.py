"""Stores of each kind whose stored bytes a test can change: what the tests of whole-log tools share.

Owns access behind the backend's back; every change is to be found by the tool under test.
"""

from __future__ import annotations

import asyncio
import json
import struct
import zlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from turnlog.backends.jsonl.backend import JsonlBackend
from turnlog.backends.jsonl.layout import Encoding, place_of
from turnlog.backends.memory import MemoryBackend, MemoryMedium, _Frame, _Stored
from turnlog.events import frames
from turnlog.events.envelope import SessionEvent
from turnlog.events.header import header_line
from turnlog.events.segment import encode_segment
from turnlog.persistence.attachments import AttachmentStore
from turnlog.persistence.backend import PersistenceBackend
from turnlog.persistence.coordinator import PersistenceCoordinator
from turnlog.persistence.live_session import LiveSession
from turnlog.persistence.store import SessionStore
from turnlog.session.registry import SessionRegistry
from turnlog.testing.faulty_backend import FaultyBackend
from turnlog.testing.scripts import LogScript, header


def _png() -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", head)
        + chunk(b"IDAT", zlib.compress(b"\0\0"))
        + chunk(b"IEND", b"")
    )


IMAGE = _png()
"""The smallest image there is."""


def events(first: int, count: int) -> list[SessionEvent]:
    """Return consecutive events that stand by themselves."""
    script = LogScript(first)
    for _ in range(count):
        script.add("feedback/record", {"text": f"note {first + len(script.events)}"})
    return script.events


class Shelf:
    """One medium with a store on it."""

    def __init__(self, kind: str, folder: Path) -> None:
        self.kind = kind
        self.root = folder / "root"
        self.medium = MemoryMedium()
        self.images: Path | None = None if kind == "memory" else self.root / ".turnlog"
        self._attachments = AttachmentStore(self.images)
        self.faults = FaultyBackend(self._backend())
        self.store = self._open(self.faults)

    @property
    def encoding(self) -> Encoding:
        """How a root of this kind is stored."""
        return "none" if self.kind == "jsonl-plain" else "zstd"

    def _backend(self) -> PersistenceBackend:
        if self.kind == "memory":
            return MemoryBackend(self.medium)
        return JsonlBackend(self.root, compression=self.encoding)

    def _open(self, backend: Any) -> SessionStore:
        registry = SessionRegistry(session_type=LiveSession)
        attachments = self._attachments if self.images is None else AttachmentStore(self.images)
        return SessionStore(PersistenceCoordinator(backend, registry), registry, attachments)

    @asynccontextmanager
    async def second(self) -> AsyncIterator[SessionStore]:
        """Open a second store on the medium, as another process would."""
        async with self._open(self._backend()) as store:
            yield store

    async def keep(self, session_id: str, stored: Sequence[SessionEvent], **fields: Any) -> None:
        """Store a log in one batch."""
        await self.store._coordinator.create(header(session_id, **fields))
        await self.store.append(session_id, stored)

    async def append(self, session_id: str, stored: Sequence[SessionEvent]) -> None:
        """Store one batch, the first one with its header."""
        if stored[0].seq == 0:
            await self.keep(session_id, stored)
        else:
            await self.store.append(session_id, stored)

    # -- behind the backend's back ------------------------------------------------------------------

    def path(self, session_id: str) -> Path:
        """Return where the log of a session is."""
        return Path(place_of(str(self.root), header(session_id), self.encoding).log_path)

    def cut(self, session_id: str, size: int) -> None:
        """Take bytes off the end."""
        if self.kind == "memory":
            self.medium.tear(session_id, size)
        else:
            path = self.path(session_id)
            path.write_bytes(path.read_bytes()[:-size])

    def spoil(self, session_id: str, number: int) -> int:
        """Spoil the body of one batch so that it cannot be read; return its offset."""
        if self.kind == "memory":
            stored = self.medium.sessions[encode_segment(session_id)]
            frame = stored.frames[number]
            frame.data = _flipped(frame.data, len(frame.data) - 1)
            self.medium.touch(session_id)
            return len(stored.header) + sum(len(f.data) for f in stored.frames[:number])
        path = self.path(session_id)
        data = path.read_bytes()
        if self.encoding == "zstd":
            start, end = frames.scan(data).spans[number + 1]
            path.write_bytes(_flipped(data, end - 1))
            return start
        lines = data.split(b"\n")
        offset = sum(len(line) + 1 for line in lines[: number + 1])
        path.write_bytes(data[:offset] + b"!" + data[offset + 1 :])
        return offset

    def plant(
        self,
        session_id: str,
        stored: Sequence[SessionEvent],
        *,
        version: int = 0,
        header_id: str | None = None,
    ) -> None:
        """Store events that a store might refuse, under any header."""
        line = header_line(header(session_id))
        record = {**json.loads(line), "version": version, "id": header_id or session_id}
        head = json.dumps(record, separators=(",", ":")).encode() + b"\n"
        text = b"".join(event.line + b"\n" for event in stored)
        if self.kind == "memory":
            body = [_Frame(0, stored[-1].seq, frames.compress(text))]
            self.medium.sessions[encode_segment(session_id)] = _Stored(head, "r", 0, body)
            return
        path = self.path(session_id)
        path.parent.mkdir(parents=True, mode=0o700)
        parts = (head, text) if self.encoding == "none" else (frames.compress(head), frames.compress(text))
        path.write_bytes(b"".join(parts))

    def spoil_image(self, attachment_id: str) -> None:
        """Change one byte of an image."""
        digest = attachment_id.removeprefix("sha256:")
        if self.images is None:
            self._attachments._memory[digest] = _flipped(IMAGE, 20)
        else:
            path = next(self.images.rglob(digest))
            path.write_bytes(_flipped(path.read_bytes(), 20))

    def content(self) -> dict[str, object]:
        """Return everything stored, with times where there are files."""
        if self.kind == "memory":
            return {
                name: (s.header, s.revision, [f.data for f in s.frames], s.torn, dict(s.quarantine))
                for name, s in self.medium.sessions.items()
            }
        return {
            str(path): (path.read_bytes(), path.stat().st_mtime_ns)
            for path in sorted(self.root.rglob("*"))
            if path.is_file()
        }


def _flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :]


@asynccontextmanager
async def shelf_of(kind: str, folder: Path) -> AsyncIterator[Shelf]:
    """Open a store of one kind for the length of a test.

    Args:
        kind: `memory`, `jsonl` or `jsonl-plain`.
        folder: Where its files go.
    """
    await asyncio.to_thread(folder.mkdir, parents=True, exist_ok=True)
    shelf = Shelf(kind, folder)
    try:
        yield shelf
    finally:
        await shelf.store.aclose()
