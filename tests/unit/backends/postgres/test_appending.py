"""What a PostgreSQL backend makes of a write that found nothing to write to, and of one that was repeated."""

from __future__ import annotations

import dataclasses

import pytest

from tests.unit.backends.logs import META, OTHER, deltas, events
from tests.unit.backends.postgres.conftest import Make, Sql
from turnlog.backends.postgres.backend import PostgresBackend
from turnlog.backends.postgres.claiming import PostgresClaim
from turnlog.backends.row_facts import header_crc
from turnlog.errors import (
    BackendError,
    SessionCollisionError,
    SessionExistsError,
    SessionNotFoundError,
    UnexpectedSeqError,
    WriterFencedError,
)
from turnlog.events.batch import EncodedBatch
from turnlog.events.header import SessionHeader
from turnlog.persistence.backend import LogSummary
from turnlog.persistence.claims import this_process


def batch(first: int, count: int = 2) -> EncodedBatch:
    """Return a batch of titles."""
    return EncodedBatch.of(events(first, count))


async def claimed(backend: PostgresBackend, *, takeover: bool = False) -> PostgresClaim:
    """Take the claim of the session."""
    return await backend.claim(META.id, this_process(), meta=META, takeover=takeover)


async def append(
    backend: PostgresBackend,
    claim: PostgresClaim | None,
    first: int,
    *,
    stored: bool = True,
    meta: SessionHeader = META,
) -> str | None:
    """Append two events."""
    return await backend.append_batch(meta, batch(first), is_materialized=stored, claim=claim, summary=None)


async def seqs(backend: PostgresBackend) -> list[int]:
    """Return the seqs that are stored."""
    found = await backend.load_stored(META.id)
    assert found is not None
    return [event.seq for event in found.events]


async def forgetful(backend: PostgresBackend) -> PostgresClaim:
    """Store a first batch and return the claim as it is when the reply was lost."""
    claim = await claimed(backend)
    await append(backend, claim, 0, stored=False)
    return PostgresClaim(META.id, claim.segment, None, was_tried=True)


async def test_a_write_needs_a_claim(backend: PostgresBackend) -> None:
    """Without one nothing is written."""
    with pytest.raises(BackendError, match="needs the claim") as refused:
        await append(backend, None, 0, stored=False)
    assert refused.value.wrote_nothing
    assert await backend.load_stored(META.id) is None


async def test_a_session_begins_at_the_first_event(backend: PostgresBackend) -> None:
    """The batch that makes a session begins at seq 0."""
    with pytest.raises(UnexpectedSeqError):
        await append(backend, await claimed(backend), 2, stored=False)
    assert await backend.load_stored(META.id) is None


async def test_a_session_that_was_never_stored_is_not_appended_to(backend: PostgresBackend) -> None:
    """A claim of an absent session does not let anybody write to one that is said to be stored."""
    with pytest.raises(WriterFencedError):
        await append(backend, await claimed(backend), 0)


async def test_the_reply_to_the_first_batch_may_be_lost(backend: PostgresBackend) -> None:
    """The same batch again is success, and the claim learns its epoch (B3)."""
    claim = await forgetful(backend)
    await append(backend, claim, 0, stored=False)
    assert claim.epoch is not None
    await append(backend, claim, 2)
    assert await seqs(backend) == [0, 1, 2, 3]


async def test_another_first_batch_is_no_repetition(backend: PostgresBackend) -> None:
    """What is stored by this process and is another batch is somebody's session (B3)."""
    claim = await forgetful(backend)
    other = EncodedBatch.of(deltas(0, 2))
    with pytest.raises(SessionExistsError):
        await backend.append_batch(META, other, is_materialized=False, claim=claim, summary=None)


async def test_two_writers_make_one_session(make: Make) -> None:
    """Two processes that create one id: the second is told that it exists, or that it is another one."""
    first, second = make(), make()
    claims = await claimed(first), await claimed(second)
    await append(first, claims[0], 0, stored=False)
    different = EncodedBatch.of(deltas(0, 2))
    with pytest.raises(SessionExistsError):
        await second.append_batch(META, different, is_materialized=False, claim=claims[1], summary=None)
    other = dataclasses.replace(META, cwd="/elsewhere")
    with pytest.raises(SessionCollisionError):
        await append(second, claims[1], 0, stored=False, meta=other)
    with pytest.raises(SessionExistsError):
        await second.materialize_header(META, claim=claims[1])


async def test_a_repeated_batch_is_success_however_it_is_framed(backend: PostgresBackend) -> None:
    """The stored tail equals the batch, though it lies in two frames (B3)."""
    claim = await claimed(backend)
    await append(backend, claim, 0, stored=False)
    await append(backend, claim, 2)
    groups = backend.commits.groups
    revision = await backend.append_batch(META, batch(0, 4), is_materialized=True, claim=claim, summary=None)
    assert revision == await backend.read_stored_revision(META.id)
    assert backend.commits.groups == groups + 2, "it was acknowledged without a commit that makes it durable"
    assert await seqs(backend) == [0, 1, 2, 3]


async def test_a_batch_elsewhere_is_refused(backend: PostgresBackend) -> None:
    """A gap, and a batch that is stored but not at the end, write nothing (B3)."""
    claim = await claimed(backend)
    await append(backend, claim, 0, stored=False)
    await append(backend, claim, 2)
    for first in (0, 1, 5):
        with pytest.raises(UnexpectedSeqError) as refused:
            await append(backend, claim, first)
        assert (refused.value.expected, refused.value.actual) == (4, first)
    assert await seqs(backend) == [0, 1, 2, 3]


async def test_a_fenced_writer_changes_nothing(make: Make) -> None:
    """After a takeover every write hook of the old claim is refused (W1)."""
    first, second = make(), make()
    old = await claimed(first)
    await append(first, old, 0, stored=False)
    new = await claimed(second, takeover=True)
    for attempt in (
        append(first, old, 2),
        first.commit_repair(META, None, events(2, 1), claim=old),
        first.delete_stored(META.id, claim=old),
        append(first, old, 2, stored=False),
    ):
        with pytest.raises((WriterFencedError, SessionExistsError)):
            await attempt
    await first.release(old)
    await append(second, new, 2)
    assert await seqs(second) == [0, 1, 2, 3]


async def test_a_deleted_session_is_not_written(make: Make) -> None:
    """The session was taken over and deleted: its old writer is fenced, and no write brings it back."""
    first, second = make(), make()
    old = await claimed(first)
    await append(first, old, 0, stored=False)
    new = await claimed(second, takeover=True)
    await second.delete_stored(META.id, claim=new)
    await second.delete_stored(META.id, claim=new)
    with pytest.raises(WriterFencedError):
        await append(first, old, 2)
    with pytest.raises(SessionNotFoundError):
        await first.commit_repair(META, None, [], claim=old)
    again = await claimed(second)
    await append(second, again, 0, stored=False)
    with pytest.raises(WriterFencedError):
        await append(first, old, 2)
    assert await seqs(second) == [0, 1]


async def test_deleting_an_absent_session_does_nothing(backend: PostgresBackend) -> None:
    """A claim of a session that is not stored deletes nothing."""
    await backend.delete_stored(META.id, claim=await claimed(backend))
    assert await backend.load_stored(META.id) is None


async def test_a_repair_without_closers_changes_nothing(backend: PostgresBackend) -> None:
    """A database has no torn tail, so nothing is left to do."""
    claim = await claimed(backend)
    await append(backend, claim, 0, stored=False)
    revision = await backend.read_stored_revision(META.id)
    await backend.commit_repair(META, None, [], claim=claim)
    assert await backend.read_stored_revision(META.id) == revision


async def test_a_header_alone_takes_the_first_batch(backend: PostgresBackend, sql: Sql) -> None:
    """A session that has a header only goes on with its first batch, if the header says the same."""
    claim = await claimed(backend)
    await backend.materialize_header(META, claim=claim)
    lost = PostgresClaim(META.id, claim.segment, None)
    await backend.materialize_header(META, claim=lost)
    assert lost.epoch == claim.epoch
    other = dataclasses.replace(META, cwd="/elsewhere")
    with pytest.raises(SessionCollisionError):
        await append(backend, claim, 0, stored=False, meta=other)
    with pytest.raises(SessionExistsError):
        await backend.materialize_header(other, claim=claim)
    # The same header with its keys in another order, as another program may have written it.
    [[header]] = sql("select header from {}.sessions")
    assert bytes(header).endswith(b"}\n")
    spaced = bytes(header).replace(b'":', b'" :', 1)
    changed = "update {}.sessions set header = %s, header_crc = %s, size = %s"
    sql(changed, spaced, header_crc(spaced), len(spaced))
    await append(backend, claim, 0, stored=False)
    with pytest.raises(SessionExistsError):
        await append(backend, claim, 4, stored=False)
    assert await seqs(backend) == [0, 1]


async def test_the_reply_to_a_header_may_be_lost(backend: PostgresBackend) -> None:
    """The first batch then finds a header that this process has stored, and goes on with it (B3)."""
    claim = await claimed(backend)
    await backend.materialize_header(META, claim=claim)
    lost = PostgresClaim(META.id, claim.segment, None, was_tried=True)
    summary = LogSummary(turns=7)
    await backend.append_batch(META, batch(0), is_materialized=False, claim=lost, summary=summary)
    assert lost.epoch == claim.epoch
    assert [entry.summary async for entry in backend.list()] == [summary]


async def test_a_header_that_cannot_be_read_is_another_one(backend: PostgresBackend, sql: Sql) -> None:
    """A spoilt header is never taken for the writer's own."""
    claim = await claimed(backend)
    await backend.materialize_header(META, claim=claim)
    sql("update {}.sessions set header = %s", b"{}\n")
    with pytest.raises(SessionCollisionError):
        await append(backend, claim, 0, stored=False)


async def test_a_header_of_a_fenced_writer(make: Make) -> None:
    """Repeating the header after a takeover is refused; after a deletion, too."""
    first, second = make(), make()
    old = await claimed(first)
    await first.materialize_header(META, claim=old)
    new = await claimed(second, takeover=True)
    with pytest.raises(WriterFencedError):
        await first.materialize_header(META, claim=old)
    await second.delete_stored(META.id, claim=new)
    with pytest.raises(WriterFencedError):
        await first.materialize_header(META, claim=old)


async def test_a_large_batch_is_compressed_beside_the_loop(backend: PostgresBackend) -> None:
    """Batches of many bytes are stored like small ones, and read back the same."""
    big = EncodedBatch.of(deltas(0, 40, size=4000))
    claim = await claimed(backend)
    await backend.append_batch(META, big, is_materialized=False, claim=claim, summary=None)
    found = await backend.load_stored(META.id)
    assert found is not None
    assert list(found.events) == list(big.events())


async def test_other_sessions_are_untouched(backend: PostgresBackend) -> None:
    """Deleting one session leaves the frames of another."""
    claim = await claimed(backend)
    await append(backend, claim, 0, stored=False)
    other = await backend.claim(OTHER.id, this_process(), meta=OTHER)
    await append(backend, other, 0, stored=False, meta=OTHER)
    await backend.delete_stored(OTHER.id, claim=other)
    assert await seqs(backend) == [0, 1]
    assert await backend.load_stored(OTHER.id) is None
