"""Claims on PostgreSQL: an epoch in the row, a lease per process on the database's clock (W1)."""

from __future__ import annotations

import asyncio
import dataclasses
import sys

import pytest

from tests.unit.backends.logs import META, events
from tests.unit.backends.postgres.conftest import Make, Sql
from turnlog.backends.postgres.backend import PostgresBackend
from turnlog.backends.postgres.claiming import as_claim, lease_of
from turnlog.errors import (
    BackendError,
    BackendUnavailableError,
    ClaimOwner,
    SessionBusyError,
    SessionNotFoundError,
    WriterFencedError,
)
from turnlog.events.batch import EncodedBatch
from turnlog.persistence.claims import this_process

ELSEWHERE = ClaimOwner(pid=1, host="another-host.invalid", since=5, boot_id="b")


@pytest.fixture(name="held")
async def _held(make: Make) -> PostgresBackend:
    """Give a backend that holds a stored session, as a process on another host."""
    backend = make()
    claim = await backend.claim(META.id, ELSEWHERE, meta=META)
    await backend.append_batch(
        META, EncodedBatch.of(events(0, 1)), is_materialized=False, claim=claim, summary=None
    )
    return backend


async def test_a_second_writer_is_told_who_is_first(held: PostgresBackend, make: Make) -> None:
    """While the lease runs the session is busy, and the owner is named as it described itself."""
    with pytest.raises(SessionBusyError) as busy:
        await make().claim(META.id, this_process())
    assert busy.value.owner == ELSEWHERE


async def test_a_lease_that_has_run_out_holds_nothing(held: PostgresBackend, make: Make, sql: Sql) -> None:
    """The end of a lease is a time on the database's clock, exclusive."""
    sql("update {}.writers set expires = (extract(epoch from clock_timestamp()) * 1000)::bigint")
    claim = await make().claim(META.id, this_process())
    assert claim.epoch is not None
    found = [entry async for entry in held.list()]
    assert [entry.status for entry in found] == ["live"]


async def test_a_lease_row_that_is_gone_holds_nothing(held: PostgresBackend, make: Make, sql: Sql) -> None:
    """So does a writer that nobody describes."""
    sql("delete from {}.writers")
    assert [entry.status async for entry in held.list()] == ["ok"]
    await make().claim(META.id, this_process())


async def test_facts_that_describe_nobody_hold_nothing(held: PostgresBackend, make: Make, sql: Sql) -> None:
    """Another program's text in the place of an owner's facts is no owner."""
    sql("update {}.writers set owner = 'nobody'")
    await make().claim(META.id, this_process())
    assert lease_of("w", None, 1) is None
    assert lease_of(None, None, None) is None


async def test_a_dead_process_of_this_host_holds_nothing(make: Make) -> None:
    """Boot, namespace, pid and start time prove that the owner is gone: no need to wait for its lease."""
    child = await asyncio.create_subprocess_exec(sys.executable, "-c", "pass")
    await child.wait()
    first = make()
    gone = dataclasses.replace(this_process(), pid=child.pid)
    claim = await first.claim(META.id, gone, meta=META)
    await first.materialize_header(META, claim=claim)
    assert [entry.status async for entry in first.list()] == ["ok"]
    await make().claim(META.id, this_process())


async def test_every_write_prolongs_the_lease(held: PostgresBackend, sql: Sql) -> None:
    """An append renews the one row of its process, and so does `renew`."""
    claim = await held.claim(META.id, ELSEWHERE)
    for write in (
        held.append_batch(
            META, EncodedBatch.of(events(1, 1)), is_materialized=True, claim=claim, summary=None
        ),
        held.renew([claim]),
    ):
        sql("update {}.writers set expires = 0")
        await write
        [[left]] = sql(
            "select expires - (extract(epoch from clock_timestamp()) * 1000)::bigint from {}.writers"
        )
        assert 29_000 < left <= 30_000
    assert len(sql("select writer from {}.writers")) == 1


async def test_a_released_session_is_free(held: PostgresBackend, make: Make) -> None:
    """A claim that was given back fences its late writes, and lets the next one in."""
    claim = await held.claim(META.id, ELSEWHERE)
    await held.release(claim)
    await held.release(claim)
    with pytest.raises(WriterFencedError):
        await held.commit_repair(META, None, events(1, 1), claim=claim)
    await make().claim(META.id, this_process())


async def test_an_absent_session_is_claimed_by_storing_it(backend: PostgresBackend, make: Make) -> None:
    """Without a header there is nothing to claim; with one, nothing is stored before the first batch (B1)."""
    with pytest.raises(SessionNotFoundError):
        await backend.claim("nobody", this_process())
    claim = await backend.claim(META.id, this_process(), meta=META)
    assert await backend.read_stored_revision(META.id) is None
    await backend.release(claim)
    assert await make().load_stored(META.id) is None


async def test_closing_ends_the_lease(held: PostgresBackend, make: Make, sql: Sql) -> None:
    """What a closed store still held is free, and its row and those of processes long gone are away."""
    sql("insert into {}.writers values ('old', '{}', 5)")
    await held.aclose()
    assert sql("select writer from {}.writers") == []
    await make().claim(META.id, this_process())


async def test_a_row_that_keeps_changing_is_busy(
    held: PostgresBackend, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody else is first again and again: the call gives up as busy instead of trying for ever."""
    other = make()

    async def never(segment: str, epoch: int) -> int | None:
        return None

    monkeypatch.setattr(other._claims, "_take", never)
    with pytest.raises(SessionBusyError):
        await other.claim(META.id, this_process(), takeover=True)


async def test_two_take_over_at_once(held: PostgresBackend, make: Make, sql: Sql) -> None:
    """Of two takeovers each has an epoch of its own, and only the later one may write."""
    first, second = make(), make()
    claims = await asyncio.gather(
        first.claim(META.id, this_process(), takeover=True),
        second.claim(META.id, this_process(), takeover=True),
    )
    epochs = [claim.epoch for claim in claims]
    assert len(set(epochs)) == 2
    assert sql("select epoch from {}.sessions") == [(max(e for e in epochs if e is not None),)]


async def test_the_lost_reply_to_a_claim_leaves_nothing_held(
    held: PostgresBackend, make: Make, sql: Sql
) -> None:
    """A claim whose outcome is unknown is given back as soon as there is a way, so that others are let in."""
    await held.release(await held.claim(META.id, ELSEWHERE))
    other, third = make(), make()
    await other.renew([])
    sql("create sequence {}.calls")
    sql(
        "create function {}.refuse() returns trigger language plpgsql as $$ begin "
        "if nextval('{}.calls') % 2 = 0 then raise exception 'lost'; end if; return new; end $$"
    )
    for settle in ("renew", "claim", "aclose"):
        # The lease before the claim is written, the commit after it that makes it durable fails.
        sql("create trigger refuse before update on {}.writers for each row execute function {}.refuse()")
        with pytest.raises(BackendUnavailableError):
            await other.claim(META.id, ELSEWHERE)
        sql("drop trigger refuse on {}.writers")
        assert sql("select writer from {}.sessions") == [(other.lease.writer,)]
        if settle == "renew":
            await other.renew([])
        elif settle == "claim":
            await other.release(await other.claim(META.id, ELSEWHERE))
        else:
            await other.aclose()
        await third.release(await third.claim(META.id, this_process()))


async def test_a_claim_that_was_refused_is_not_in_doubt(held: PostgresBackend, make: Make, sql: Sql) -> None:
    """An error that the server has rolled back leaves nothing to be given back."""
    await held.release(await held.claim(META.id, ELSEWHERE))
    sql(
        "create function {}.refuse() returns trigger language plpgsql as "
        "$$ begin raise exception 'no'; end $$"
    )
    sql("create trigger refuse before update on {}.sessions for each row execute function {}.refuse()")
    other = make()
    with pytest.raises(BackendError) as refused:
        await other.claim(META.id, this_process())
    assert refused.value.wrote_nothing
    sql("drop trigger refuse on {}.sessions")
    await other.renew([])
    await make().claim(META.id, this_process())


async def test_the_lost_reply_to_a_first_batch_leaves_nothing_held(make: Make, sql: Sql) -> None:
    """A session that was stored without its writer's knowing is free when its claim is given back."""
    first = make()
    claim = await first.claim(META.id, ELSEWHERE, meta=META)
    await first.append_batch(
        META, EncodedBatch.of(events(0, 1)), is_materialized=False, claim=claim, summary=None
    )
    claim.epoch = None  # as when the reply is lost
    await first.release(claim)
    assert sql("select writer from {}.sessions") == [(None,)]
    await make().claim(META.id, this_process())


def test_a_claim_of_another_backend_is_refused() -> None:
    """A claim is opaque to callers, and only its own backend's claims are claims."""
    with pytest.raises(AssertionError, match="not one of this backend"):
        as_claim("claim")
