"""The hooks over SQLite beyond what the contract suites ask: rows, claims by themselves, watching."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import pytest

from tests.unit.backends.logs import META, OTHER, batch, event, events
from tests.unit.backends.sqlite.conftest import OpenSqlite
from turnlog.backends import frame_rows
from turnlog.backends.row_facts import header_crc
from turnlog.backends.sqlite import links, reading
from turnlog.backends.sqlite.backend import SqliteBackend
from turnlog.errors import (
    BackendError,
    ClaimOwner,
    CorruptLogError,
    SessionBusyError,
    SessionCollisionError,
    SessionExistsError,
    SessionNotFoundError,
    UnexpectedSeqError,
    UsageError,
    WriterFencedError,
)
from turnlog.events.batch import Damage, EncodedBatch, StoredFrame
from turnlog.events.header import SessionHeader
from turnlog.persistence.backend import LogSummary
from turnlog.persistence.claims import this_process

HERE = this_process(1)
ELSEWHERE = ClaimOwner(pid=1, host="elsewhere", since=1)


async def append(
    backend: SqliteBackend, first: int, count: int = 1, *, claim: object = None, meta: SessionHeader = META
) -> str | None:
    """Append titles; the first batch stores the session."""
    return await backend.append_batch(
        meta, batch(first, count), is_materialized=first > 0, claim=claim, summary=None
    )


def run(path: Path, text: str, *parameters: object) -> list[tuple[object, ...]]:
    """Run one statement behind the backend's back."""
    db = sqlite3.connect(path, isolation_level=None)
    try:
        return db.execute(text, parameters).fetchall()
    finally:
        db.close()


async def test_a_batch_is_one_row(sqlite: SqliteBackend, database: Path) -> None:
    """A frame is one row under its first seq, and end, size and summary stand in the session's row."""
    summary = LogSummary(turns=1, title="t")
    await sqlite.append_batch(META, batch(0, 3), is_materialized=False, claim=None, summary=None)
    await sqlite.append_batch(META, batch(3, 2), is_materialized=True, claim=None, summary=summary)
    assert run(database, "select first_seq, last_seq from frames order by 1") == [(0, 2), (3, 4)]
    [(next_seq, size)] = run(database, "select next_seq, size from sessions")
    [(held,)] = run(database, "select length(header) + (select sum(length(frame)) from frames) from sessions")
    assert (next_seq, size) == (5, held)
    [entry] = [found async for found in sqlite.list()]
    assert (entry.summary, entry.size, entry.path) == (summary, size, str(database))


async def test_a_suffix_reads_only_its_frames(sqlite: SqliteBackend) -> None:
    """A read of the end fetches the frames that hold it, however long the log is."""
    for number in range(50):
        await append(sqlite, number * 2, 2)
    before = sqlite.reader.frames_read
    found = await sqlite.load_stored_from(META.id, -3, None)
    assert found is not None
    assert [e.seq for e in found.events] == [97, 98, 99]
    assert sqlite.reader.frames_read - before == 2
    found = await sqlite.load_stored_from(META.id, 41, 2)
    assert found is not None
    assert [e.seq for e in found.events] == [41, 42]
    assert sqlite.reader.frames_read - before == 4


async def test_a_listing_reads_one_frame_of_a_log(sqlite: SqliteBackend) -> None:
    """B4: the last frame says how a log ends."""
    for first in range(0, 40, 2):
        stored = EncodedBatch.of(
            [
                event(first, "turn/start", turn=first + 1),
                event(first + 1, "turn/end", turn=first + 1, reason={"kind": "completed"}),
            ]
        )
        await sqlite.append_batch(META, stored, is_materialized=first > 0, claim=None, summary=None)
    before = sqlite.reader.frames_read
    assert [entry.status async for entry in sqlite.list()] == ["ok"]
    assert sqlite.reader.frames_read - before == 1


async def test_a_listing_goes_page_by_page(sqlite: SqliteBackend) -> None:
    """B4: more sessions than a page come in the order of their segments, from any of them on."""
    ids = [f"s-{number:03}" for number in range(300)]
    await asyncio.gather(*(append(sqlite, 0, meta=SessionHeader(id=i, created_at=1)) for i in reversed(ids)))
    assert [entry.session_id async for entry in sqlite.list()] == ids
    assert [entry.session_id async for entry in sqlite.list(after="s-010", limit=280)] == ids[11:291]
    assert [entry.session_id async for entry in sqlite.list(after="s-298")] == ["s-299"]
    assert [entry.session_id async for entry in sqlite.list(limit=0)] == []


async def test_a_scan_goes_page_by_page(sqlite: SqliteBackend, database: Path) -> None:
    """R2: more frames than a page come in order, with what is missing in between and at the end."""
    claim = await sqlite.claim(META.id, HERE, meta=META)
    for number in range(300):
        await append(sqlite, number, claim=claim)
    found = [piece async for piece in sqlite.scan_stored(META.id)]
    assert len(found) == 300
    run(database, "delete from frames where first_seq in (256, 257, 299)")
    damage = [piece async for piece in sqlite.scan_stored(META.id) if isinstance(piece, Damage)]
    assert [(piece.position, piece.kind) for piece in damage] == [(256, "seq-gap"), (299, "seq-gap")]


async def test_a_header_of_another_session_is_damage(sqlite: SqliteBackend, database: Path) -> None:
    """R2, B4: a row whose header names another id is neither loaded nor hidden."""
    await append(sqlite, 0)
    run(database, "update sessions set segment = 'other'")
    with pytest.raises(CorruptLogError, match="header names session"):
        await sqlite.load_stored("other")
    [entry] = [found async for found in sqlite.list()]
    assert (entry.session_id, entry.status) == ("other", "corrupt")


@pytest.mark.parametrize(
    "header",
    [b"{", b'{"type":"session","version":99,"id":"s-1","createdAt":1}\n'],
    ids=["unreadable", "newer"],
)
async def test_a_bad_header_hides_no_other_session(
    sqlite: SqliteBackend, database: Path, header: bytes
) -> None:
    """B4: a header that cannot be read is listed as corrupt or unsupported beside the good ones."""
    await append(sqlite, 0)
    await append(sqlite, 0, meta=OTHER)
    run(
        database,
        "update sessions set header = ?, header_crc = ? where segment = ?",
        header,
        header_crc(header),
        META.id,
    )
    found = {entry.session_id: entry.status async for entry in sqlite.list()}
    assert found == {"s-1": "unsupported" if b"99" in header else "corrupt", "s-2": "ok"}


async def damaged_reads(sqlite: SqliteBackend) -> set[str]:
    """Read a session in every way, each of which must name damage; return the kinds."""
    kinds = set()
    for read in (
        sqlite.load_stored(META.id),
        sqlite.load_stored_from(META.id, 0, None),
        sqlite.load_stored_from(META.id, 0, 1),
        sqlite.load_stored_from(META.id, -1, None),
        sqlite.load_stored_from(META.id, 99, None),
    ):
        with pytest.raises(CorruptLogError) as found:
            await read
        assert found.value.path == sqlite.path
        kinds.add(found.value.kind)
    return kinds


@pytest.mark.parametrize("end", [0, 1, 2, 4, 99, -3, 2**62, "'many'", "x'03'", "2.5"])
async def test_an_end_that_is_not_that_of_the_frames_is_damage(
    sqlite: SqliteBackend, database: Path, end: object
) -> None:
    """R2: a row that says more or less than the frames hold cuts nothing off and makes nothing up."""
    for number in range(3):
        await append(sqlite, number)
    await append(sqlite, 0, meta=OTHER)
    run(database, f"update sessions set next_seq = {end} where segment = ?", META.id)
    assert await damaged_reads(sqlite) == {"seq-gap"}
    assert len([piece async for piece in sqlite.scan_stored(META.id) if isinstance(piece, StoredFrame)]) == 3
    assert [entry.status async for entry in sqlite.list()] == ["corrupt", "ok"]
    assert await sqlite.read_stored_revision(META.id) is not None


async def test_a_size_that_is_not_that_of_the_frames_is_named(sqlite: SqliteBackend, database: Path) -> None:
    """R2: a load holds the size in the row against what is stored; a suffix is read all the same."""
    for number in range(3):
        await append(sqlite, number)
    run(database, "update sessions set size = size + 64")
    with pytest.raises(CorruptLogError) as named:
        await sqlite.load_stored(META.id)
    assert named.value.kind == "row-size"
    found = await sqlite.load_stored_from(META.id, -1, None)
    assert found is not None
    assert found.events.first_seq == 2


async def test_a_flipped_header_is_damage(sqlite: SqliteBackend, database: Path) -> None:
    """R2, B4: a header with one flipped bit is read by nobody, and listed as corrupt."""
    await append(sqlite, 0)
    run(database, "update sessions set header = cast(replace(header, '/srv/app', '/srv/aqp') as blob)")
    assert await damaged_reads(sqlite) == {"header-checksum"}
    [entry] = [found async for found in sqlite.list()]
    assert (entry.session_id, entry.meta, entry.status) == (META.id, None, "corrupt")


async def test_a_header_that_is_gone_hides_no_events(make_sqlite: OpenSqlite, database: Path) -> None:
    """R2: a row with events and no header is damaged, not a claim, and no writer cleans it away."""
    await append(first := make_sqlite(), 0)
    await first.aclose()
    run(database, "update sessions set header = null, header_crc = null, claimed_at = 0")
    backend = make_sqlite()
    assert await damaged_reads(backend) == {"header-checksum"}
    await append(backend, 0, meta=OTHER)
    assert [entry.status async for entry in backend.list()] == ["corrupt", "ok"]
    with pytest.raises(SessionNotFoundError):
        await backend.claim(META.id, HERE)
    claim = await backend.claim(META.id, HERE, meta=META)
    with pytest.raises(UnexpectedSeqError):
        await append(backend, 0, claim=claim)
    await backend.release(claim)
    await backend.aclose()
    assert run(database, "select count(*) from frames") == [(2,)]
    assert run(database, "select count(*) from sessions") == [(2,)]


async def test_a_read_that_meets_damage_holds_nothing_back(sqlite: SqliteBackend, database: Path) -> None:
    """R3: its query ends with it, also while somebody keeps the error, so the log can be truncated."""
    for number in range(4):
        await append(sqlite, number)
    run(database, "update frames set frame = x'00' where first_seq = 1")
    with pytest.raises(CorruptLogError) as kept:
        await sqlite.load_stored(META.id)
    assert await sqlite.erase_remains()
    assert kept.value.seq == 1


async def test_a_damaged_row_can_be_deleted(sqlite: SqliteBackend, database: Path) -> None:
    """A row with numbers that are none is claimed and erased like every other one."""
    await append(sqlite, 0)
    run(database, "update sessions set epoch = x'ff', next_seq = x'00', size = x'', last_write = 'never'")
    [entry] = [found async for found in sqlite.list()]
    assert (entry.status, entry.size, entry.last_write) == ("corrupt", 0, None)
    await sqlite.delete_stored(META.id, claim=await sqlite.claim(META.id, HERE))
    assert [found async for found in sqlite.list()] == []
    assert run(database, "select count(*) from frames") == [(0,)]


@pytest.mark.parametrize("key", ["'no~key'", "cast(x'66f069' as text)"], ids=["no id", "no text"])
async def test_a_key_that_is_none_hides_no_other_session(
    sqlite: SqliteBackend, database: Path, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    """B4: a row under a key that no id has is listed once as corrupt beside the good ones."""
    await append(sqlite, 0)
    await append(sqlite, 0, meta=OTHER)
    run(database, f"update sessions set segment = {key} where segment = ?", META.id)
    monkeypatch.setattr(frame_rows, "PAGE", 1)
    found = [(entry.session_id, entry.status) async for entry in sqlite.list()]
    assert found == [(None, "corrupt"), (OTHER.id, "ok")]


async def test_a_scan_ends_whatever_the_seqs_are(
    sqlite: SqliteBackend, database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R2: seqs that are none, or lead back, are damage; every other frame is yielded once."""
    for number in range(6):
        await append(sqlite, number)
    monkeypatch.setattr(reading, "PAGE", 2)
    run(database, "update frames set last_seq = 0 where first_seq = 3")
    run(database, "update frames set first_seq = x'05' where first_seq = 5")
    pieces = [piece async for piece in sqlite.scan_stored(META.id)]
    assert [piece.first_seq for piece in pieces if isinstance(piece, StoredFrame)] == [0, 1, 2, 4]
    damage = [(piece.kind, piece.position) for piece in pieces if isinstance(piece, Damage)]
    assert damage == [("frame-range", 3), ("seq-gap", 3), *[("seq-gap", 5)] * 3]


# -- claims -----------------------------------------------------------------------------------------


async def test_a_claim_alone_is_no_session(make_sqlite: OpenSqlite, database: Path) -> None:
    """B1: a claimed and never stored session is seen by nobody, and gone with its claim."""
    first, second = make_sqlite(), make_sqlite()
    claim = await first.claim(META.id, HERE, meta=META)
    assert [entry async for entry in second.list()] == []
    assert await second.load_stored(META.id) is None
    with pytest.raises(SessionNotFoundError):
        await second.claim(META.id, HERE)
    with pytest.raises(SessionBusyError):
        await second.claim(META.id, HERE, meta=META)
    await first.release(claim)
    assert run(database, "select count(*) from sessions") == [(0,)]


async def test_a_lease_that_has_run_out_keeps_nobody_out(make_sqlite: OpenSqlite, database: Path) -> None:
    """W1: after the lease another writer takes the session, and the first is fenced by its epoch."""
    first, second = make_sqlite(), make_sqlite()
    claim = await first.claim(META.id, ELSEWHERE, meta=META)
    await append(first, 0, claim=claim)
    with pytest.raises(SessionBusyError) as busy:
        await second.claim(META.id, HERE)
    assert busy.value.owner == ELSEWHERE
    run(database, "update writers set expires = 0")
    theirs = await second.claim(META.id, HERE)
    with pytest.raises(WriterFencedError):
        await append(first, 1, claim=claim)
    for late in (
        first.materialize_header(META, claim=claim),
        first.commit_repair(META, None, events(1, 1), claim=claim),
        first.delete_stored(META.id, claim=claim),
    ):
        with pytest.raises(WriterFencedError):
            await late
    await first.release(claim)  # a lost claim: nothing happens
    await append(second, 1, claim=theirs)


async def test_renewing_and_writing_prolong_a_lease(make_sqlite: OpenSqlite, database: Path) -> None:
    """W1: a renewal, and a write once part of the lease has passed, move its end."""
    backend = make_sqlite(lease=1)
    claim = await backend.claim(META.id, HERE, meta=META)

    def end() -> int:
        return int(str(run(database, "select expires from writers")[0][0]))

    ends = [end()]
    await asyncio.sleep(0.05)
    await backend.renew([claim])
    ends.append(end())
    await asyncio.sleep(0.05)
    await append(backend, 0, claim=claim)
    ends.append(end())
    assert ends == sorted(set(ends))
    await backend.release(claim)


async def test_a_claim_taken_again_ends_the_one_before(sqlite: SqliteBackend) -> None:
    """W1: of two claims of one process the newer epoch counts, as after a claim whose reply was lost."""
    first = await sqlite.claim(META.id, HERE, meta=META)
    second = await sqlite.claim(META.id, HERE, meta=META)
    assert second.epoch > first.epoch
    with pytest.raises(WriterFencedError):
        await append(sqlite, 0, claim=first)
    await append(sqlite, 0, claim=second)


async def test_nothing_is_renewed_without_a_claim(sqlite: SqliteBackend, database: Path) -> None:
    """W1: a process that claims nothing has no lease."""
    await append(sqlite, 0)
    await sqlite.renew([])
    assert run(database, "select count(*) from writers") == [(0,)]


async def test_a_lease_of_another_boot_has_run_out(
    make_sqlite: OpenSqlite, database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """W1: after a restart of the host nobody waits for leases of before, whatever they say."""
    first, second = make_sqlite(), make_sqlite()
    claim = await first.claim(META.id, HERE, meta=META)
    await append(first, 0, claim=claim)
    run(database, "update writers set expires = 1 << 60")
    run(database, "update writers set owner = replace(owner, ?, 'earlier')", HERE.boot_id)
    run(database, "update writers set owner = replace(owner, ?, 'elsewhere')", HERE.host)
    await second.claim(META.id, HERE)


async def test_a_write_without_a_claim_respects_others(make_sqlite: OpenSqlite, database: Path) -> None:
    """W1: a write that brings no claim is refused while somebody holds the session, and fences the dead."""
    first, second = make_sqlite(), make_sqlite()
    claim = await first.claim(META.id, HERE, meta=META)
    await append(first, 0, claim=claim)
    with pytest.raises(SessionBusyError):
        await append(second, 1)
    run(database, "update writers set expires = 0")
    await append(second, 1)
    with pytest.raises(WriterFencedError):
        await append(first, 2, claim=claim)


async def test_what_a_dead_writer_left_is_cleaned_up(make_sqlite: OpenSqlite, database: Path) -> None:
    """Claims that were never stored and leases that ended are removed an hour later, and nothing else."""
    first = make_sqlite()
    await append(first, 0)
    await first.claim("never-stored", HERE, meta=META)
    run(database, "update sessions set claimed_at = 0 where header is null")
    run(database, "insert into writers values('old', ?, -100000000)", '{"pid":1,"host":"h","since":1}')
    run(database, "insert into writers values('odd', '', 1 << 60)")
    await append(make_sqlite(), 1)
    assert run(database, "select count(*) from sessions where header is null") == [(1,)]  # its lease counts
    assert run(database, "select count(*) from writers") == [(1,)]
    run(database, "update writers set expires = -100000000")
    await append(make_sqlite(), 2)
    assert run(database, "select segment from sessions") == [(META.id,)]


# -- writing ----------------------------------------------------------------------------------------


async def test_a_first_batch_finds_what_is_stored(sqlite: SqliteBackend) -> None:
    """B1, B3: a header alone is filled, the same batch is success, other events or headers are refused."""
    await sqlite.materialize_header(META, claim=None)
    await sqlite.materialize_header(META, claim=None)
    with pytest.raises(UnexpectedSeqError):
        await sqlite.append_batch(META, batch(2, 1), is_materialized=False, claim=None, summary=None)
    first = await append(sqlite, 0, 3)
    assert await append(sqlite, 0, 3) == first
    with pytest.raises(SessionExistsError):
        await append(sqlite, 0, 2)
    with pytest.raises(SessionExistsError):
        await sqlite.materialize_header(META, claim=None)
    moved = SessionHeader(id=META.id, created_at=META.created_at, cwd="/elsewhere")
    with pytest.raises(SessionCollisionError):
        await append(sqlite, 0, 3, meta=moved)


async def test_a_new_log_begins_at_zero(sqlite: SqliteBackend, database: Path) -> None:
    """B3: a first batch at another seq stores nothing, not even the header."""
    with pytest.raises(UnexpectedSeqError) as refused:
        await sqlite.append_batch(META, batch(4, 1), is_materialized=False, claim=None, summary=None)
    assert (refused.value.expected, refused.value.actual) == (0, 4)
    assert run(database, "select count(*) from sessions") == [(0,)]


async def test_a_log_that_has_vanished_is_not_begun_anew(sqlite: SqliteBackend) -> None:
    """B3: an append to a session that was deleted meanwhile writes nothing and says so."""
    with pytest.raises(BackendError, match="vanished") as gone:
        await append(sqlite, 1)
    assert gone.value.wrote_nothing
    with pytest.raises(SessionNotFoundError):
        await sqlite.commit_repair(META, None, [], claim=None)


async def test_a_repair_is_appended_once(sqlite: SqliteBackend) -> None:
    """R1, B3: closers at the end are stored, the same again is success, others are refused."""
    await append(sqlite, 0, 2)
    closers = events(2, 2)
    for _ in range(2):
        await sqlite.commit_repair(META, None, closers, claim=None)
    await sqlite.commit_repair(META, None, [], claim=None)
    with pytest.raises(UnexpectedSeqError):
        await sqlite.commit_repair(META, None, events(2, 1), claim=None)
    found = await sqlite.load_stored(META.id)
    assert found is not None
    assert len(found.events) == 4
    assert await sqlite.read_stored_revision(META.id) == found.revision


async def test_a_deleted_session_leaves_no_bytes(sqlite: SqliteBackend, database: Path) -> None:
    """Rows of a deleted session are overwritten in the database; deleting once more does nothing."""
    secret = EncodedBatch.of([event(0, title="q7Zp" * 50)])
    await sqlite.append_batch(META, secret, is_materialized=False, claim=None, summary=None)
    await append(sqlite, 0, meta=OTHER)
    held = secret.frame()[-60:]
    await sqlite.delete_stored(META.id, claim=None)
    await sqlite.delete_stored(META.id, claim=None)
    await sqlite.aclose()
    assert held not in database.read_bytes()
    assert run(database, "select segment from sessions") == [(OTHER.id,)]


async def test_a_session_made_again_is_another_one(sqlite: SqliteBackend) -> None:
    """A revision from before a deletion never fits the session that is made under the same id later."""
    first = await append(sqlite, 0)
    await sqlite.delete_stored(META.id, claim=None)
    assert await append(sqlite, 0) != first


async def test_a_large_batch_is_stored(sqlite: SqliteBackend) -> None:
    """A batch of megabytes is compressed aside and stored like any other."""
    large = EncodedBatch.of([event(0, title="x" * (2 << 20))])
    await sqlite.append_batch(META, large, is_materialized=False, claim=None, summary=None)
    found = await sqlite.load_stored(META.id)
    assert found is not None
    assert found.events[0].data["title"] == "x" * (2 << 20)


# -- watching and closing ---------------------------------------------------------------------------


async def test_own_and_others_commits_are_seen(make_sqlite: OpenSqlite) -> None:
    """A watcher hears of each change, whoever made it, and of nothing else."""
    first, second = make_sqlite(), make_sqlite()
    await append(first, 0)
    watching = first.watch(META.id)
    seen = asyncio.ensure_future(anext(watching))
    await asyncio.sleep(0.01)
    await append(first, 0, meta=OTHER)
    await append(first, 0)  # is stored already: a write that changes nothing
    await asyncio.sleep(0.02)
    assert not seen.done()
    await append(first, 1)
    async with asyncio.timeout(10):
        await seen
        seen = asyncio.ensure_future(anext(watching))
        await asyncio.sleep(0.01)
        await append(second, 2)
        await seen
    await watching.aclose()  # type: ignore[attr-defined]  # it is a generator


async def test_a_failing_end_closes_all_the_same(sqlite: SqliteBackend, database: Path) -> None:
    """A claim that cannot be given back is told, and neither connection nor thread is left open."""
    await append(sqlite, 0)
    await sqlite.claim(META.id, HERE)
    await sqlite.load_stored(META.id)
    run(database, "drop table writers")
    with pytest.raises(BackendError):
        await sqlite.aclose()
    assert links.open_links(str(database)) == []
    with pytest.raises(UsageError):
        await sqlite.load_stored(META.id)


async def test_a_closed_backend_is_closed(sqlite: SqliteBackend, database: Path) -> None:
    """Closing twice is harmless, leaves one file and no lease, and everything is refused afterwards."""
    claim = await sqlite.claim(META.id, HERE, meta=META)
    await append(sqlite, 0, claim=claim)
    await sqlite.aclose()
    await sqlite.aclose()
    assert [path.name for path in database.parent.iterdir()] == [database.name]
    assert run(database, "select count(*) from writers") == [(0,)]
    assert run(database, "select writer from sessions") == [(None,)]
    for late in (append(sqlite, 1), sqlite.load_stored(META.id)):
        with pytest.raises(UsageError, match="closed"):
            await late
