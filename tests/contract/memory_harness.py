"""The harness of the memory backend: the medium's own stored bytes are the out-of-band access."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from turnlog.backends.memory import MemoryBackend, MemoryMedium, _Frame, _Stored
from turnlog.events import frames
from turnlog.events.batch import EncodedBatch
from turnlog.events.ecmascript import dumps
from turnlog.events.envelope import SessionEvent
from turnlog.events.segment import encode_segment
from turnlog.persistence.backend import PersistenceBackend
from turnlog.testing.capabilities import ALL, Capability
from turnlog.testing.damage import flip_bit
from turnlog.testing.harness import CoordinatorHarness, RawSession

MEMORY_CAPABILITIES = ALL - {Capability.POWER_LOSS, Capability.PARTIAL_BATCH}
"""A medium in memory has no volatile part that a power cut could take, and stores a frame whole."""


class MemoryHarness(CoordinatorHarness):
    """Any number of `MemoryBackend`s over one `MemoryMedium`."""

    def __init__(self) -> None:
        super().__init__()
        self.medium = MemoryMedium()

    def make_backend(self) -> PersistenceBackend:
        return MemoryBackend(self.medium)

    async def crash_backend(self, backend: PersistenceBackend) -> None:
        assert isinstance(backend, MemoryBackend)
        await backend.aclose()  # which only frees its claims

    async def raw(self, session_id: str) -> RawSession | None:
        stored = self.medium.sessions.get(encode_segment(session_id))
        if stored is None:
            return None
        log = stored.header + b"".join(frame.data for frame in stored.frames) + stored.torn
        return RawSession(log, {f"torn-{at}": kept for at, kept in stored.quarantine.items()})

    async def tear(self, session_id: str, events: Sequence[SessionEvent]) -> None:
        frame = EncodedBatch.of(events).frame()
        self._stored(session_id).torn = frame[:-2]  # the checksum is cut, so the events come back
        self.medium.touch(session_id)

    async def damage(self, session_id: str) -> None:
        frame = self._stored(session_id).frames[0]
        frame.data = flip_bit(frame.data, len(frame.data) // 2)
        self.medium.touch(session_id)

    async def plant(self, header: Mapping[str, Any], events: Sequence[Mapping[str, Any]]) -> None:
        text = "".join(dumps(dict(event)) + "\n" for event in events).encode()
        stored = _Stored(dumps(dict(header)).encode() + b"\n", "", 0)
        stored.frames.append(_Frame(0, len(events) - 1, frames.compress(text)))
        self.medium.sessions[encode_segment(header["id"])] = stored
        self.medium.touch(header["id"])

    def _stored(self, session_id: str) -> _Stored:
        return self.medium.sessions[encode_segment(session_id)]
