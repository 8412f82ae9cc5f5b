"""The reference backend in memory, where the contract suites do not look: raw access, shared media, edges."""

from __future__ import annotations

import asyncio
import os

import pytest

from tests.unit.backends.logs import META, OTHER, batch, event, events, turn
from turnlog.backends.memory import MemoryBackend, MemoryClaim, MemoryMedium, MemoryTear
from turnlog.errors import (
    BackendError,
    CorruptLogError,
    SessionBusyError,
    SessionCollisionError,
    SessionExistsError,
    SessionNotFoundError,
    UnexpectedSeqError,
    WriterFencedError,
)
from turnlog.events.batch import Damage, EncodedBatch, StoredFrame
from turnlog.events.header import SessionHeader, header_line
from turnlog.persistence.backend import LogSummary, StoredEntry, StoredPrefix
from turnlog.persistence.claims import this_process


async def _append(
    backend: MemoryBackend, part: EncodedBatch, claim: object | None = None, *, new: bool = False
) -> str | None:
    return await backend.append_batch(META, part, is_materialized=not new, claim=claim, summary=None)


async def _loaded(backend: MemoryBackend) -> StoredPrefix:
    prefix = await backend.load_stored(META.id)
    assert prefix is not None
    return prefix


async def _entry(backend: MemoryBackend) -> StoredEntry:
    (entry,) = [entry async for entry in backend.list()]
    return entry


async def test_a_medium_outlives_its_backends() -> None:
    """W1: two backends share one medium; after a crash the claims are free and the data is there."""
    medium = MemoryMedium()
    a, b = MemoryBackend(medium), MemoryBackend(medium)
    claim = await a.claim(META.id, this_process(), meta=META)
    await _append(a, batch(0, 2), claim, new=True)
    with pytest.raises(SessionBusyError):
        await b.claim(META.id, this_process())
    with pytest.raises(SessionBusyError):
        await _append(b, batch(2, 1))
    medium.crash()
    await _append(b, batch(2, 1), await b.claim(META.id, this_process()))
    with pytest.raises(WriterFencedError):
        await _append(a, batch(3, 1), claim)
    await a.release(claim)  # takes nothing away from the new owner
    with pytest.raises(SessionBusyError):
        await a.claim(META.id, this_process())
    assert list((await _loaded(a)).events) == events(0, 3)


async def test_a_takeover_fences_by_epoch() -> None:
    """W1: the newest epoch counts, and closing gives back only what is held."""
    medium = MemoryMedium()
    a, b = MemoryBackend(medium), MemoryBackend(medium)
    old = await a.claim(META.id, this_process(), meta=META)
    new = await b.claim(META.id, this_process(), meta=META, takeover=True)
    assert new.epoch > old.epoch
    await b.renew([new])
    with pytest.raises(WriterFencedError):
        await _append(a, batch(0, 1), old, new=True)
    await a.aclose()
    assert medium.claims == {"s-1": new}
    await b.aclose()
    assert medium.claims == {}
    kept = await b.claim(META.id, this_process(), meta=META)
    b.forget()
    await b.aclose()
    assert medium.claims == {"s-1": kept}


async def test_the_stored_text_and_its_tear() -> None:
    """R2, L1: a tear keeps whole blocks; the repair keeps the torn bytes and appends one frame."""
    medium = MemoryMedium()
    backend = MemoryBackend(medium)
    assert medium.plain_text(META.id) is None
    await _append(backend, batch(0, 2), new=True)
    await _append(backend, batch(2, 2))
    assert medium.plain_text(META.id) == header_line(META) + batch(0, 4).text()
    left = medium.tear(META.id, 1)
    found = await _loaded(backend)
    assert isinstance(found.torn_marker, MemoryTear)
    assert list(found.torn_marker.recovered) == events(2, 2)
    assert list(found.events) == events(0, 4)
    part = await backend.load_stored_from(META.id, -1, None)
    assert part is not None
    assert list(part.events) == events(1, 1), "what a torn tail gives back is durable only after a repair"
    pieces = [piece async for piece in backend.scan_stored(META.id)]
    assert isinstance(pieces[0], StoredFrame)
    assert any(isinstance(piece, Damage) for piece in pieces)
    assert (await _entry(backend)).status == "torn"
    with pytest.raises(UnexpectedSeqError):
        await _append(backend, batch(2, 2))  # the tail has to be repaired first
    closer = event(4, title="closer")
    for _ in range(2):
        await backend.commit_repair(META, found.torn_marker, [closer], claim=None)
    assert list((await _loaded(backend)).events) == [*events(0, 4), closer]
    stored = medium.sessions["s-1"]
    assert [len(torn) for torn in stored.quarantine.values()] == [left]
    medium.tear(META.id, 10_000)
    assert (await _loaded(backend)).torn_marker is None


async def test_a_repair_of_stray_bytes_and_of_nothing() -> None:
    """L1: a marker without recovered events only cuts, also when it is used twice; closers alone append."""
    backend = MemoryBackend()
    await _append(backend, batch(0, 2), new=True)
    backend.medium.sessions["s-1"].torn = b"\x28\xb5"
    marker = (await _loaded(backend)).torn_marker
    for _ in range(2):
        await backend.commit_repair(META, marker, [], claim=None)
    await backend.commit_repair(META, None, [event(2)], claim=None)
    await backend.commit_repair(META, None, [event(2)], claim=None)
    with pytest.raises(UnexpectedSeqError):
        await backend.commit_repair(META, marker, [event(7)], claim=None)
    assert list((await _loaded(backend)).events) == events(0, 3)
    with pytest.raises(SessionNotFoundError):
        await backend.commit_repair(OTHER, None, [event(0)], claim=None)


async def test_what_is_refused_writes_nothing() -> None:
    """B1, B3: wrong seqs, other headers, vanished logs, repeated batches."""
    backend = MemoryBackend()
    with pytest.raises(UnexpectedSeqError):
        await _append(backend, batch(1, 1), new=True)
    with pytest.raises(BackendError, match="vanished"):
        await _append(backend, batch(0, 1))
    await backend.materialize_header(META, claim=None)
    await backend.materialize_header(META, claim=None)
    first = await _append(backend, batch(0, 2), new=True)
    assert await _append(backend, batch(0, 2), new=True) == first
    assert await _append(backend, batch(1, 1)) == first
    with pytest.raises(SessionExistsError):
        await _append(backend, EncodedBatch.of([event(0, title="other")]), new=True)
    with pytest.raises(SessionExistsError):
        await backend.materialize_header(META, claim=None)
    with pytest.raises(UnexpectedSeqError):
        await _append(backend, batch(5, 1))
    other = SessionHeader(id=META.id, created_at=9)
    with pytest.raises(SessionCollisionError):
        await backend.append_batch(other, batch(0, 1), is_materialized=False, claim=None, summary=None)
    assert list((await _loaded(backend)).events) == events(0, 2)


async def test_listing_pages_statuses_and_summaries() -> None:
    """B4: order by segment, pages, status from the end, summary of this revision only."""
    backend = MemoryBackend()
    for number in range(4):
        meta = SessionHeader(id=f"m-{number}", created_at=1)
        await backend.append_batch(
            meta,
            EncodedBatch.of(turn(0)),
            is_materialized=False,
            claim=None,
            summary=LogSummary(turns=number),
        )
    entries = [entry async for entry in backend.list(None, 2)]
    entries += [entry async for entry in backend.list(entries[-1].session_id)]
    assert [entry.session_id for entry in entries] == [f"m-{n}" for n in range(4)]
    assert [entry.summary and entry.summary.turns for entry in entries] == [0, 1, 2, 3]
    assert {entry.status for entry in entries} == {"ok"}
    backend.medium.sessions["m-0"].header = b"hello\n"
    backend.medium.touch("m-1")
    found = {entry.session_id: entry async for entry in backend.list()}
    assert found["m-0"].status == "corrupt"
    backend.medium.sessions["m-0"].header = b'{"version":7,"id":"m-0"}\n'
    assert [entry.status async for entry in backend.list(None, 1)] == ["unsupported"]
    frame = backend.medium.sessions["m-3"].frames[0]
    frame.data = frame.data[:-1] + bytes([frame.data[-1] ^ 1])
    assert [entry.status async for entry in backend.list("m-2")] == ["corrupt"]
    assert [type(piece) async for piece in backend.scan_stored("m-3")] == [Damage]
    assert found["m-1"].summary is None
    await backend.claim("m-2", this_process())
    assert [e.status async for e in backend.list("m-1", 1)] == ["live"]


async def test_a_session_deleted_while_it_is_listed() -> None:
    """B4: what goes away between two entries is left out."""
    backend = MemoryBackend()
    for number in range(2):
        meta = SessionHeader(id=f"m-{number}", created_at=1)
        await backend.append_batch(meta, batch(0, 1), is_materialized=False, claim=None, summary=None)
    listing = backend.list()
    await anext(listing)
    await backend.delete_stored("m-1", claim=None)
    await backend.delete_stored("m-1", claim=None)
    assert [entry async for entry in listing] == []


async def test_a_long_end_is_unknown() -> None:
    """B4: a listing looks at no more than 64 KiB of frames."""
    backend = MemoryBackend()
    await _append(backend, EncodedBatch.of(turn(0)), new=True)
    for seq in range(2, 6):
        await _append(backend, EncodedBatch.of([event(seq, title=os.urandom(30_000).hex())]))
    assert (await _entry(backend)).status == "unknown"


async def test_absent_sessions_and_damage() -> None:
    """R2: nothing is None; a frame that does not check is damage."""
    backend = MemoryBackend()
    assert await backend.load_stored("x") is None
    assert await backend.load_stored_from("x", 0, None) is None
    assert await backend.read_stored_revision("x") is None
    assert [p async for p in backend.scan_stored("x")] == []
    assert backend.locate(META) is None
    await _append(backend, batch(0, 2), new=True)
    assert await backend.read_stored_revision(META.id) == (await _loaded(backend)).revision
    frame = backend.medium.sessions["s-1"].frames[0]
    frame.data = frame.data[:-1] + bytes([frame.data[-1] ^ 1])
    with pytest.raises(CorruptLogError):
        await _loaded(backend)


async def test_suffixes_decode_only_their_frames() -> None:
    """Suffix reads decode the frames that hold the wanted events and no others."""
    backend = MemoryBackend()
    for first in range(0, 100, 10):
        await _append(backend, batch(first, 10), new=first == 0)
    for seq, limit, count, decoded in ((-5, None, 5, 1), (40, 10, 10, 1), (45, 10, 10, 2), (500, None, 0, 0)):
        before = backend.frames_decoded
        part = await backend.load_stored_from(META.id, seq, limit)
        assert part is not None
        assert (len(part.events), backend.frames_decoded - before) == (count, decoded)


async def test_watching_joins_changes() -> None:
    """A watch yields after changes of its session only, and is forgotten when it is closed."""
    backend = MemoryBackend()
    await _append(backend, batch(0, 1), new=True)
    watch = backend.watch(META.id)
    waiting = asyncio.ensure_future(anext(watch))
    await asyncio.sleep(0)
    await backend.append_batch(OTHER, batch(0, 1), is_materialized=False, claim=None, summary=None)
    await asyncio.sleep(0.01)
    assert not waiting.done()
    await _append(backend, batch(1, 1))
    await _append(backend, batch(2, 1))
    await asyncio.wait_for(waiting, 5)
    await watch.aclose()  # type: ignore[attr-defined]  # an async generator
    assert not backend.medium._watchers["s-1"]
    assert isinstance(await backend.claim(META.id, this_process()), MemoryClaim)
