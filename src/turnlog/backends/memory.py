"""The reference backend: frames as bytes in a `MemoryMedium` that several backends may share.

Owns the medium, its claims with epochs, and the injected tear by which the suites exercise torn tails.
A medium outlives its backends, so opening a second backend on it is a crash and a restart at once.
It has no file, no thread and no durability, and holds no orchestration state.
"""

from __future__ import annotations

import asyncio
import itertools
import time
import uuid
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field

from turnlog.backends.log_part import part_of
from turnlog.backends.tail_status import TAIL_WINDOW, tail_status
from turnlog.errors import (
    BackendError,
    ClaimOwner,
    LogError,
    SessionBusyError,
    SessionCollisionError,
    SessionExistsError,
    SessionNotFoundError,
    UnexpectedSeqError,
    UnsupportedFormatError,
    WriterFencedError,
)
from turnlog.events import frames
from turnlog.events.batch import Damage, EncodedBatch, StoredFrame
from turnlog.events.envelope import SessionEvent
from turnlog.events.header import SessionHeader, header_line, parse_header_line
from turnlog.events.salvage import salvage_frames
from turnlog.events.scan import scan_frames
from turnlog.events.segment import decode_segment, encode_segment
from turnlog.persistence.backend import LogSummary, Quarantined, Status, StoredEntry, StoredPrefix


@dataclass(slots=True)
class _Frame:
    """One stored batch: its seq range (both inclusive) and its bytes."""

    first_seq: int
    last_seq: int
    data: bytes


@dataclass(slots=True)
class _Stored:
    """Everything the medium keeps of one session."""

    header: bytes
    revision: str
    last_write: int
    frames: list[_Frame] = field(default_factory=list)
    torn: bytes = b""
    quarantine: dict[int, bytes] = field(default_factory=dict)
    summary: tuple[str, LogSummary] | None = None

    @property
    def next_seq(self) -> int:
        return self.frames[-1].last_seq + 1 if self.frames else 0

    @property
    def committed_bytes(self) -> int:
        return len(self.header) + sum(len(frame.data) for frame in self.frames)

    @property
    def size(self) -> int:
        return self.committed_bytes + len(self.torn)


@dataclass(frozen=True, slots=True)
class MemoryClaim:
    """The write claim of one session: valid while its epoch is the newest of that session (W1)."""

    segment: str
    session_id: str
    epoch: int
    owner: ClaimOwner


@dataclass(frozen=True, slots=True)
class MemoryTear:
    """The torn marker: where the torn bytes begin and which events their whole blocks gave back."""

    offset: int
    size: int
    recovered: tuple[SessionEvent, ...]

    @property
    def recovered_events(self) -> int:
        """How many events the torn bytes gave back; shown to people, as are `offset` and `size`."""
        return len(self.recovered)


class MemoryMedium:
    """What survives a crash of every process: stored sessions. Shared by any number of backends.

    The methods beside the backend's hooks are the out-of-band access of the test suites.
    """

    def __init__(self) -> None:
        self.identity = uuid.uuid4().hex
        self.sessions: dict[str, _Stored] = {}
        self.claims: dict[str, MemoryClaim] = {}
        self._changes = itertools.count(1)
        self._epochs = itertools.count(1)
        self._watchers: dict[str, set[tuple[asyncio.AbstractEventLoop, asyncio.Event]]] = {}

    def crash(self) -> None:
        """Kill every writer: claims are free again, and what was stored stays stored."""
        self.claims.clear()

    def tear(self, session_id: str, drop: int = 1) -> int:
        """Tear the newest frame by removing its last `drop` bytes, as a crash inside a write would.

        Args:
            session_id: A stored session with at least one frame.
            drop: Bytes to remove, at least 1. The whole frame or more leaves no trace of it.

        Returns:
            The number of torn bytes that are left.
        """
        stored = self.sessions[encode_segment(session_id)]
        frame = stored.frames.pop()
        stored.torn = frame.data[:-drop]
        self.touch(session_id)
        return len(stored.torn)

    def plain_text(self, session_id: str) -> bytes | None:
        """Return the header line and all whole rows as text, or None when the session is absent."""
        stored = self.sessions.get(encode_segment(session_id))
        if stored is None:
            return None
        return stored.header + b"".join(frames.decompress(frame.data) for frame in stored.frames)

    def next_epoch(self) -> int:
        """Return a claim epoch above every earlier one."""
        return next(self._epochs)

    def touch(self, session_id: str) -> str:
        """Give a stored session a new revision and wake those who watch it."""
        segment = encode_segment(session_id)
        revision = f"{self.identity}:{next(self._changes)}"
        stored = self.sessions.get(segment)
        if stored is not None:
            stored.revision = revision
            stored.last_write = time.time_ns() // 1_000_000
        for loop, changed in self._watchers.get(segment, ()):
            loop.call_soon_threadsafe(changed.set)
        return revision

    async def changes(self, session_id: str) -> AsyncIterator[None]:
        """Yield after each change of one session; changes made meanwhile are joined into one."""
        changed = asyncio.Event()
        entry = (asyncio.get_running_loop(), changed)
        watchers = self._watchers.setdefault(encode_segment(session_id), set())
        watchers.add(entry)
        try:
            while True:
                await changed.wait()
                changed.clear()
                yield
        finally:
            watchers.discard(entry)


class MemoryBackend:
    """Every hook of the storage seam over a `MemoryMedium`.

    Args:
        medium: The medium to work on; a new, empty one by default.
    """

    name = "memory"

    def __init__(self, medium: MemoryMedium | None = None) -> None:
        self.medium = medium if medium is not None else MemoryMedium()
        self.frames_decoded = 0
        """Frames decompressed so far, for tests that count what a read costs."""
        self._claims: set[MemoryClaim] = set()

    # -- reading --------------------------------------------------------------------------------

    async def load_stored(self, session_id: str) -> StoredPrefix | None:
        """Read all frames of a session; a torn last one gives what its whole blocks hold."""
        stored = self.medium.sessions.get(encode_segment(session_id))
        if stored is None:
            return None
        meta = parse_header_line(stored.header, session_id=session_id)
        self.frames_decoded += len(stored.frames)
        body = b"".join(frame.data for frame in stored.frames) + stored.torn
        result = scan_frames(body, base=len(stored.header))
        result.check(session_id)
        marker = None
        if stored.torn:
            recovered = tuple(result.log.iter_from(result.committed_seq))
            marker = MemoryTear(result.committed_bytes, len(stored.torn), recovered)
        return StoredPrefix(meta, result.log, stored.revision, marker)

    async def read_stored_revision(self, session_id: str) -> str | None:
        """Return the revision that the last change gave the session."""
        stored = self.medium.sessions.get(encode_segment(session_id))
        return None if stored is None else stored.revision

    async def load_stored_from(self, session_id: str, seq: int, limit: int | None) -> StoredPrefix | None:
        """Decode only the frames that hold the wanted events."""
        stored = self.medium.sessions.get(encode_segment(session_id))
        if stored is None:
            return None
        meta = parse_header_line(stored.header, session_id=session_id)
        first = seq if seq >= 0 else max(stored.next_seq + seq, 0)
        if stored.torn:
            whole = await self.load_stored(session_id)
            assert whole is not None
            safe = whole.events.snapshot(upto=stored.next_seq)  # what a torn frame gives back is not durable
            return StoredPrefix(meta, part_of(safe, seq, limit), stored.revision)
        last = stored.next_seq if limit is None else first + limit - 1
        wanted = [frame for frame in stored.frames if frame.last_seq >= first and frame.first_seq <= last]
        self.frames_decoded += len(wanted)
        body = b"".join(frame.data for frame in wanted)
        begin = wanted[0].first_seq if wanted else min(first, stored.next_seq)
        log = scan_frames(body, expected_seq=begin).log
        return StoredPrefix(meta, part_of(log, first, limit), stored.revision)

    async def scan_stored(self, session_id: str) -> AsyncIterator[StoredFrame | Damage]:
        """Yield the frames in order, then what is torn."""
        stored = self.medium.sessions.get(encode_segment(session_id))
        if stored is None:
            return
        body = b"".join(frame.data for frame in stored.frames) + stored.torn
        for piece in salvage_frames(body, base=len(stored.header)):
            yield piece

    async def quarantined(self, session_id: str) -> Sequence[Quarantined]:
        """Return the torn bytes that repairs have kept."""
        stored = self.medium.sessions.get(encode_segment(session_id))
        kept = {} if stored is None else stored.quarantine
        return [Quarantined(f"torn-{offset}", offset, len(kept[offset])) for offset in sorted(kept)]

    async def list(self, after: str | None = None, limit: int | None = None) -> AsyncIterator[StoredEntry]:
        """Yield the sessions in the order of their segments."""
        start = None if after is None else encode_segment(after)
        segments = sorted(s for s in self.medium.sessions if start is None or s > start)
        for segment in itertools.islice(segments, limit):
            stored = self.medium.sessions.get(segment)
            if stored is not None:
                yield self._entry(segment, stored)

    def watch(self, session_id: str) -> AsyncIterator[None]:
        """Yield after each change of the session in this medium."""
        return self.medium.changes(session_id)

    def locate(self, meta: SessionHeader) -> str | None:
        """Return None: nothing in memory has a path."""
        return None

    # -- writing --------------------------------------------------------------------------------

    async def append_batch(
        self,
        meta: SessionHeader,
        batch: EncodedBatch,
        *,
        is_materialized: bool,
        claim: object | None,
        summary: LogSummary | None,
    ) -> str | None:
        """Append one frame, storing the header with the first one."""
        self._check_claim(meta.id, claim)
        segment = encode_segment(meta.id)
        stored = self.medium.sessions.get(segment)
        if stored is None:
            if is_materialized:
                raise BackendError(backend=self.name, reason=f"the stored log of {meta.id!r} has vanished")
            _expect(meta.id, 0, batch.first_seq)
            stored = _Stored(header_line(meta), "", 0)
        elif not is_materialized:
            self._check_same_session(meta, stored, batch)
        if batch.first_seq != stored.next_seq or stored.torn:
            self._check_repeated(meta.id, stored, batch)
            return stored.revision
        stored.frames.append(_Frame(batch.first_seq, batch.last_seq, batch.frame()))
        self.medium.sessions[segment] = stored
        return self._changed(meta.id, stored, summary)

    async def materialize_header(self, meta: SessionHeader, *, claim: object | None) -> None:
        """Store a header without events."""
        self._check_claim(meta.id, claim)
        segment = encode_segment(meta.id)
        stored = self.medium.sessions.get(segment)
        if stored is None:
            self.medium.sessions[segment] = _Stored(header_line(meta), "", 0)
            self.medium.touch(meta.id)
        elif stored.header != header_line(meta) or stored.frames:
            raise SessionExistsError(session_id=meta.id, where="storage")

    async def commit_repair(
        self,
        meta: SessionHeader,
        torn_marker: object | None,
        closers: Sequence[SessionEvent],
        *,
        claim: object | None,
    ) -> None:
        """Replace the torn bytes by one frame of what they gave back and the closers."""
        self._check_claim(meta.id, claim)
        stored = self.medium.sessions.get(encode_segment(meta.id))
        if stored is None:
            raise SessionNotFoundError(session_id=meta.id)
        added = list(closers)
        if torn_marker is not None:
            assert isinstance(torn_marker, MemoryTear)
            added = [*torn_marker.recovered, *added]
            if not stored.torn or torn_marker.offset != stored.committed_bytes:
                # The tail this marker names is gone: this repair, or another one, has been here.
                if added:
                    self._check_repeated(meta.id, stored, EncodedBatch.of(added))
                return
        if added and added[0].seq != stored.next_seq:
            self._check_repeated(meta.id, stored, EncodedBatch.of(added))
            return
        if torn_marker is not None:
            stored.quarantine[stored.committed_bytes] = stored.torn
            stored.torn = b""
        if added:
            batch = EncodedBatch.of(added)
            stored.frames.append(_Frame(batch.first_seq, batch.last_seq, batch.frame()))
        self._changed(meta.id, stored, None)

    async def delete_stored(self, session_id: str, *, claim: object | None) -> None:
        """Drop the session from the medium."""
        self._check_claim(session_id, claim)
        if self.medium.sessions.pop(encode_segment(session_id), None) is not None:
            self.medium.touch(session_id)

    # -- claims ---------------------------------------------------------------------------------

    async def claim(
        self,
        session_id: str,
        owner: ClaimOwner,
        *,
        meta: SessionHeader | None = None,
        takeover: bool = False,
    ) -> MemoryClaim:
        """Take the claim; a new epoch fences the claim that was there."""
        segment = encode_segment(session_id)
        holder = self.medium.claims.get(segment)
        if holder is not None and not takeover:
            raise SessionBusyError(session_id=session_id, owner=holder.owner)
        claim = MemoryClaim(segment, session_id, self.medium.next_epoch(), owner)
        self.medium.claims[segment] = claim
        self._claims.add(claim)
        return claim

    async def renew(self, claims: Sequence[object]) -> None:
        """Do nothing: a claim on a medium in memory does not run out."""

    async def release(self, claim: object) -> None:
        """Give a claim back, if it still counts."""
        assert isinstance(claim, MemoryClaim)
        self._claims.discard(claim)
        if self.medium.claims.get(claim.segment) == claim:
            del self.medium.claims[claim.segment]

    async def aclose(self) -> None:
        """Give back every claim that is still held."""
        for claim in tuple(self._claims):
            await self.release(claim)

    def forget(self) -> None:
        """Drop this backend's claims from its own books only; the parent process still holds them."""
        self._claims.clear()

    # -- parts ----------------------------------------------------------------------------------

    def _events(self, frame: _Frame) -> Iterator[SessionEvent]:
        self.frames_decoded += 1
        return iter(scan_frames(frame.data, expected_seq=frame.first_seq).log)

    def _entry(self, segment: str, stored: _Stored) -> StoredEntry:
        meta: SessionHeader | None = None
        status: Status = "corrupt"
        problem: str | None = None
        try:
            meta = parse_header_line(stored.header)
            status = self._status(segment, stored)
        except UnsupportedFormatError as error:
            status, problem = "unsupported", str(error)
        except LogError as error:
            problem = str(error)
        summary = stored.summary
        return StoredEntry(
            session_id=decode_segment(segment),
            meta=meta,
            status=status,
            revision=stored.revision,
            size=stored.size,
            last_write=stored.last_write,
            summary=summary[1] if summary is not None and summary[0] == stored.revision else None,
            problem=problem,
        )

    def _status(self, segment: str, stored: _Stored) -> Status:
        if segment in self.medium.claims:
            return "live"
        if stored.torn:
            return "torn"
        budget = TAIL_WINDOW
        newest_first: list[tuple[str, bool]] = []
        reaches_start = True
        for frame in reversed(stored.frames):
            budget -= len(frame.data)
            if budget < 0:
                reaches_start = False
                break
            self.frames_decoded += 1
            result = scan_frames(frame.data, expected_seq=frame.first_seq)
            if result.issue is not None:
                return "corrupt"
            newest_first.extend((e.type, isinstance(e.surface_op, dict)) for e in reversed(result.log))
        return tail_status(newest_first, reaches_start=reaches_start)

    def _changed(self, session_id: str, stored: _Stored, summary: LogSummary | None) -> str:
        revision = self.medium.touch(session_id)
        stored.summary = None if summary is None else (revision, summary)
        return revision

    def _check_claim(self, session_id: str, claim: object | None) -> None:
        holder = self.medium.claims.get(encode_segment(session_id))
        if claim is None:
            if holder is not None:
                raise SessionBusyError(session_id=session_id, owner=holder.owner)
        elif holder != claim:
            raise WriterFencedError(session_id=session_id)

    def _check_same_session(self, meta: SessionHeader, stored: _Stored, batch: EncodedBatch) -> None:
        """Let a materialising batch through only where a header alone, or this very batch, is stored."""
        held = parse_header_line(stored.header, session_id=meta.id)
        if header_line(held) != header_line(meta):
            raise SessionCollisionError(session_id=meta.id, reason="the stored header is another one")
        if stored.frames and not self._holds(stored, batch):
            raise SessionExistsError(session_id=meta.id, where="storage")

    def _check_repeated(self, session_id: str, stored: _Stored, batch: EncodedBatch) -> None:
        if not self._holds(stored, batch):
            raise UnexpectedSeqError(session_id=session_id, expected=stored.next_seq, actual=batch.first_seq)

    def _holds(self, stored: _Stored, batch: EncodedBatch) -> bool:
        """Tell whether the stored events from the batch's first seq to the end equal it (B3)."""
        if stored.torn or batch.last_seq + 1 != stored.next_seq:
            return False
        tail = [frame for frame in stored.frames if frame.last_seq >= batch.first_seq]
        held = (e for frame in tail for e in self._events(frame) if e.seq >= batch.first_seq)
        return list(held) == list(batch.events())


def _expect(session_id: str, expected: int, actual: int) -> None:
    if expected != actual:
        raise UnexpectedSeqError(session_id=session_id, expected=expected, actual=actual)
