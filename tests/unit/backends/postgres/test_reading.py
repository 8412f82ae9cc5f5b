"""Reading a PostgreSQL store: pages, suffixes, damage that is named, listings (R2, R3, B4)."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.unit.backends.logs import META, OTHER, deltas, event, events
from tests.unit.backends.postgres.conftest import Make, Sql
from turnlog.backends.postgres import listing, statements
from turnlog.backends.postgres.backend import PostgresBackend
from turnlog.backends.row_facts import encode_summary, header_crc
from turnlog.errors import CorruptLogError
from turnlog.events import frames
from turnlog.events.batch import Damage, EncodedBatch
from turnlog.events.header import SessionHeader, header_line
from turnlog.persistence.backend import LogSummary, StoredPrefix
from turnlog.persistence.claims import this_process


async def store(
    backend: PostgresBackend,
    *batches: EncodedBatch,
    meta: SessionHeader = META,
    summary: LogSummary | None = None,
) -> None:
    """Store a session of the given frames and let it go."""
    claim = await backend.claim(meta.id, this_process(), meta=meta)
    for number, batch in enumerate(batches):
        await backend.append_batch(meta, batch, is_materialized=number > 0, claim=claim, summary=summary)
    await backend.release(claim)


def titles(count: int, each: int = 1) -> list[EncodedBatch]:
    """Return frames of a few titles each."""
    return [EncodedBatch.of(events(first, each)) for first in range(0, count * each, each)]


def seqs(found: StoredPrefix | None) -> list[int]:
    """Return the seqs of what was read."""
    assert found is not None
    return [e.seq for e in found.events]


@pytest.fixture(params=["few-frames", "few-bytes"])
def small_pages(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make pages end after two frames, or after a byte."""
    old, new = (
        ("limit 256", "limit 2") if request.param == "few-frames" else (f"before < {8 << 20}", "before < 1")
    )
    for name in ("_FRAMES", "_FRAMES_AROUND"):
        text = getattr(statements, name)
        assert old in text
        monkeypatch.setattr(statements, name, text.replace(old, new))


@pytest.mark.usefixtures("small_pages")
async def test_logs_are_read_page_by_page(make: Make) -> None:
    """Whatever the size of a page, whole logs, suffixes and scans are complete and in order."""
    backend = make()
    await store(backend, *titles(7, 2))
    assert seqs(await backend.load_stored(META.id)) == list(range(14))
    for seq, limit in (
        (0, None),
        (3, None),
        (3, 4),
        (5, 1),
        (-5, None),
        (13, 9),
        (14, None),
        (99, 1),
        (-99, 2),
        (4, 0),
    ):
        found = await backend.load_stored_from(META.id, seq, limit)
        first = min(max(14 + seq if seq < 0 else seq, 0), 14)
        end = 14 if limit is None else min(first + limit, 14)
        assert seqs(found) == list(range(first, end))
    pieces = [piece async for piece in backend.scan_stored(META.id)]
    assert [getattr(piece, "first_seq", None) for piece in pieces] == list(range(0, 14, 2))


async def test_absent_sessions_read_as_nothing(backend: PostgresBackend, sql: Sql) -> None:
    """Before the schema is there, and after: None, no rows, and nothing is made (R3)."""
    for _ in range(2):
        assert await backend.load_stored("s") is None
        assert await backend.load_stored_from("s", 0, None) is None
        assert await backend.read_stored_revision("s") is None
        assert [piece async for piece in backend.scan_stored("s")] == []
        assert [entry async for entry in backend.list()] == []
        assert sql("select count(*) from pg_namespace where nspname = '{}'") in ([(0,)], [(1,)])
        await backend.renew([])


async def test_many_bytes_are_decoded_beside_the_loop(
    backend: PostgresBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long log is decoded on a thread, a short one at once."""
    calls: list[str] = []
    inner = asyncio.to_thread

    async def counted(work: Any) -> Any:
        calls.append("thread")
        return await inner(work)

    await store(backend, *titles(2))
    await store(backend, EncodedBatch.of(deltas(0, 40, size=4000)), meta=OTHER)
    monkeypatch.setattr(asyncio, "to_thread", counted)
    await backend.load_stored(META.id)
    assert calls == []
    await backend.load_stored(OTHER.id)
    assert calls == ["thread"]


async def test_a_bad_frame_is_damage(backend: PostgresBackend, sql: Sql) -> None:
    """A frame with flipped bits is named by its seq; what is before and after it can be scanned (R2)."""
    await store(backend, *titles(3))
    sql("update {}.frames set frame = set_byte(frame, length(frame) / 2, 7) where first_seq = 1")
    with pytest.raises(CorruptLogError) as damaged:
        await backend.load_stored(META.id)
    assert damaged.value.seq == 1
    assert damaged.value.path == backend.address.label
    assert seqs(await backend.load_stored_from(META.id, 2, None)) == [2]
    pieces = [piece async for piece in backend.scan_stored(META.id)]
    assert [isinstance(piece, Damage) for piece in pieces] == [False, True, False]


async def test_missing_frames_are_damage(backend: PostgresBackend, sql: Sql) -> None:
    """A frame that is gone from the middle or the end is noticed, since the session's row knows the end."""
    await store(backend, *titles(3))
    sql("delete from {}.frames where first_seq = 2")
    with pytest.raises(CorruptLogError):
        await backend.load_stored(META.id)
    with pytest.raises(CorruptLogError):
        await backend.load_stored_from(META.id, -1, None)
    pieces = [piece async for piece in backend.scan_stored(META.id)]
    assert pieces[-1] == Damage(2, None, "seq-gap", 0)
    assert [entry.status async for entry in backend.list()] == ["corrupt"]
    sql("delete from {}.frames where first_seq = 0")
    kinds = [type(piece).__name__ async for piece in backend.scan_stored(META.id)]
    assert kinds == ["Damage", "StoredFrame", "Damage"]


@pytest.mark.parametrize("end", [0, 1, 2, 4, 99])
async def test_an_end_that_is_not_that_of_the_frames_is_damage(
    backend: PostgresBackend, sql: Sql, end: int
) -> None:
    """A row that says more or less than the frames hold cuts nothing off and makes nothing up (R2)."""
    await store(backend, *titles(3))
    sql("update {}.sessions set next_seq = %s", end)
    for read in (
        backend.load_stored(META.id),
        backend.load_stored_from(META.id, 0, None),
        backend.load_stored_from(META.id, 0, 1),
        backend.load_stored_from(META.id, -1, None),
        backend.load_stored_from(META.id, 99, None),
    ):
        with pytest.raises(CorruptLogError, match=f"{end} is due"):
            await read
    assert [entry.status async for entry in backend.list()] == ["corrupt"]


async def test_a_size_that_is_not_that_of_the_frames_is_named(backend: PostgresBackend, sql: Sql) -> None:
    """A load holds the size in the row against what is stored; a suffix is read all the same."""
    await store(backend, *titles(3))
    sql("update {}.sessions set size = size + 64")
    with pytest.raises(CorruptLogError) as named:
        await backend.load_stored(META.id)
    assert named.value.kind == "row-size"
    assert seqs(await backend.load_stored_from(META.id, -1, None)) == [2]


async def test_a_flipped_header_is_damage(backend: PostgresBackend, sql: Sql) -> None:
    """A header with one flipped bit is read by nobody, and listed as corrupt (R2, B4)."""
    await store(backend, *titles(1))
    sql("update {}.sessions set header = set_bit(header, position('srv'::bytea in header) * 8, 1)")
    sql("update {}.sessions set header_crc = header_crc # 1")
    for read in (backend.load_stored(META.id), backend.load_stored_from(META.id, 0, None)):
        with pytest.raises(CorruptLogError) as named:
            await read
        assert named.value.kind == "header-checksum"
    [entry] = [entry async for entry in backend.list()]
    assert (entry.session_id, entry.meta, entry.status) == (META.id, None, "corrupt")


async def test_a_key_that_is_none_hides_no_other_session(backend: PostgresBackend, sql: Sql) -> None:
    """A row under a key that no id has is listed as corrupt beside the good ones (B4)."""
    await store(backend, *titles(1))
    await store(backend, *titles(1), meta=OTHER)
    sql("update {}.sessions set segment = 'no~key' where segment = %s", META.id)
    found = [(entry.session_id, entry.status) async for entry in backend.list()]
    assert found == [(None, "corrupt"), (OTHER.id, "ok")]


async def test_a_session_that_is_deleted_under_a_read_is_not_damage(
    backend: PostgresBackend, make: Make, sql: Sql, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its row was read and its frames were gone: the read begins again and finds nothing, or the new one."""
    await store(backend, *titles(2))
    inner = backend._reader._from

    async def late(*args: Any) -> Any:
        monkeypatch.undo()
        sql("delete from {}.sessions")
        sql("delete from {}.frames")
        await store(make(), *titles(1))
        return await inner(*args)

    monkeypatch.setattr(backend._reader, "_from", late)
    assert seqs(await backend.load_stored(META.id)) == [0]


async def test_revisions_follow_the_log_only(backend: PostgresBackend) -> None:
    """Claims and releases leave the revision alone; a session made anew has another one."""
    await store(backend, *titles(2))
    before = await backend.read_stored_revision(META.id)
    claim = await backend.claim(META.id, this_process())
    assert await backend.read_stored_revision(META.id) == before
    await backend.delete_stored(META.id, claim=claim)
    await store(backend, *titles(2))
    assert await backend.read_stored_revision(META.id) not in (None, before)


async def test_the_listing_goes_on_after_a_page(
    backend: PostgresBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pages join without a gap, and a limit and a beginning are kept."""
    ids = [f"s{n}" for n in range(5)]
    for session_id in ids:
        await store(backend, *titles(1), meta=SessionHeader(id=session_id, created_at=1))
    monkeypatch.setattr(listing, "PAGE_SESSIONS", 2)
    assert [entry.session_id async for entry in backend.list()] == ids
    assert [entry.session_id async for entry in backend.list("s1", 3)] == ids[2:]
    assert [entry.session_id async for entry in backend.list(None, 2)] == ids[:2]
    assert [entry async for entry in backend.list(None, 0)] == []


async def test_what_the_listing_says_of_each_session(backend: PostgresBackend, sql: Sql) -> None:
    """One bad entry does not disturb the others, and each says what is wrong with it (B4)."""
    summary = LogSummary(turns=1, open_turn=1)
    big = EncodedBatch.of([event(0, "session/title", title="x" * 20)])
    for name in ("bad-header", "big", "closed", "empty", "newer", "other", "spoilt"):
        meta = SessionHeader(id=name, created_at=1)
        await store(backend, big, meta=meta, summary=summary if name == "big" else None)
    sql("update {}.sessions set header = 'x' where segment = 'bad-header'")
    newer = header_line(SessionHeader(id="newer", created_at=1)).replace(b'"version":0', b'"version":9')
    sql(
        "update {}.sessions set header = %s, header_crc = %s where segment = 'newer'",
        newer,
        header_crc(newer),
    )
    sql("update {}.sessions set segment = 'moved' where segment = 'other'")
    large = frames.compress(b"x" * 10) + bytes(70_000)
    sql(
        "update {}.frames f set frame = %s from {}.sessions s where s.number = session and segment = 'big'",
        large,
    )
    sql(
        "update {}.frames f set frame = 'x' from {}.sessions s "
        "where s.number = session and segment = 'spoilt'"
    )
    sql("update {}.sessions set next_seq = 0 where segment = 'empty'")
    sql("delete from {}.frames using {}.sessions s where s.number = session and segment = 'empty'")
    found = {entry.session_id: entry async for entry in backend.list()}
    assert {name: entry.status for name, entry in found.items()} == {
        "bad-header": "corrupt",
        "big": "interrupted",  # too large to look at, so the stored summary decides
        "closed": "ok",
        "empty": "ok",
        "moved": "corrupt",
        "newer": "unsupported",
        "spoilt": "corrupt",
    }
    for name in ("bad-header", "moved", "newer", "spoilt"):
        assert found[name].problem
    sql("update {}.sessions set summary = %s, summary_crc = %s", *encode_summary(LogSummary(turns=1), 1))
    assert {entry.session_id: entry.status async for entry in backend.list()}["big"] == "ok"
    sql("update {}.sessions set summary = null")
    assert {entry.session_id: entry.status async for entry in backend.list()}["big"] == "unknown"
