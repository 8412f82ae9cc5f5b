"""Many sessions share one pipeline, one sync and one notification; one session's trouble is its own."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest

import turnlog
from tests.postgres_cluster import Cluster
from tests.unit.backends.logs import META, events
from tests.unit.backends.postgres.conftest import Make, Sql
from turnlog.backends.postgres import group_commit
from turnlog.backends.postgres.backend import PostgresBackend
from turnlog.backends.postgres.group_commit import EVERY_SESSION, Write, payload_of, wake_name
from turnlog.errors import BackendError, BackendUnavailableError, UnsupportedFormatError
from turnlog.events.batch import EncodedBatch
from turnlog.events.header import SessionHeader
from turnlog.persistence.claims import this_process

SESSIONS = 100


async def stored(backend: PostgresBackend, number: int) -> list[Any]:
    """Store that many sessions of one batch; return header and claim of each."""
    metas = [SessionHeader(id=f"s{n:03}", created_at=1) for n in range(number)]
    claims = [await backend.claim(meta.id, this_process(), meta=meta) for meta in metas]
    found = list(zip(metas, claims, strict=True))
    await append_all(backend, found, 0, is_materialized=False)
    return found


async def append_all(
    backend: PostgresBackend, sessions: list[Any], first: int, *, is_materialized: bool = True
) -> list[Any]:
    """Append one event to each session at the same time."""
    batch = EncodedBatch.of(events(first, 1))
    return await asyncio.gather(
        *[
            backend.append_batch(meta, batch, is_materialized=is_materialized, claim=claim, summary=None)
            for meta, claim in sessions
        ],
        return_exceptions=True,
    )


async def test_a_hundred_sessions_share_groups_syncs_and_notifications(
    backend: PostgresBackend, cluster: Cluster, schema: str
) -> None:
    """A hundred flushes at the same time are two groups at most, with a notification each and few syncs."""
    sessions = await stored(backend, SESSIONS)
    with psycopg.connect(cluster.conninfo(), autocommit=True) as listener:
        listener.execute(f"listen turnlog_{schema}".encode())
        before = backend.commits.groups
        rounds = 10
        syncs = cluster.wal_syncs()
        for number in range(1, rounds + 1):
            results = await append_all(backend, sessions, number)
            assert all(isinstance(revision, str) for revision in results)
        groups = backend.commits.groups - before
        assert groups <= 2 * rounds
        await backend.connections.aclose()  # what a connection counted is seen when it ends
        assert cluster.wal_syncs() - syncs <= rounds * SESSIONS / 5
        told = list(listener.notifies(timeout=1, stop_after=groups))
        assert len(told) == groups
        assert sum(len(n.payload.split()) for n in told) == rounds * SESSIONS


async def test_each_session_is_a_transaction_of_its_own(backend: PostgresBackend, sql: Sql) -> None:
    """An error in one session's statement takes no other session along, and each hears of its own."""
    sessions = await stored(backend, 6)
    for name in ("s001", "s004"):
        sql(
            "create or replace function {}.refuse() returns trigger language plpgsql as "
            "$$ begin raise exception 'no more of %', new.segment; end $$"
        )
        sql(
            f"create trigger refuse_{name} before update on {{}}.sessions for each row "
            f"when (new.segment = '{name}') execute function {{}}.refuse()"
        )
    results = await append_all(backend, sessions, 1)
    for number, result in enumerate(results):
        if number in (1, 4):
            assert isinstance(result, BackendError)
            assert f"no more of s00{number}" in str(result)
            assert result.wrote_nothing
        else:
            assert isinstance(result, str)
    sql("drop trigger refuse_s004 on {}.sessions")
    results = await append_all(backend, [sessions[1], sessions[4]], 1)
    assert [type(result) for result in results] == [BackendError, str]


async def test_a_passing_trouble_of_several_sessions_passes(backend: PostgresBackend, sql: Sql) -> None:
    """Those that failed together go again alone, and are stored if the trouble is over."""
    sessions = await stored(backend, 3)
    sql("create sequence {}.calls")
    sql(
        "create function {}.refuse() returns trigger language plpgsql as $$ begin "
        "if nextval('{}.calls') <= 2 then raise exception 'not yet'; end if; return new; end $$"
    )
    sql("create trigger refuse before update on {}.sessions for each row execute function {}.refuse()")
    assert all(isinstance(revision, str) for revision in await append_all(backend, sessions, 1))
    assert sql("select count(*) from {}.frames") == [(6,)]


async def test_a_newer_schema_is_told_to_everybody_in_the_group(make: Make, sql: Sql) -> None:
    """A group that cannot be sent at all fails as a whole, also for those who have stopped waiting."""
    await stored(make(), 1)
    late = make()
    sql("insert into {}.schema_steps values (99, now())")
    writes = [asyncio.ensure_future(late.commits.submit(Write(b"select 1", {}, "s"))) for _ in range(3)]
    await asyncio.sleep(0)
    writes[0].cancel()
    results = await asyncio.gather(*writes, return_exceptions=True)
    kinds = [type(result) for result in results]
    assert kinds == [asyncio.CancelledError, UnsupportedFormatError, UnsupportedFormatError]
    sql("delete from {}.schema_steps where step = 99")


async def test_nothing_is_acknowledged_without_the_last_commit(backend: PostgresBackend, sql: Sql) -> None:
    """The commit that makes a group durable fails: every outcome in it is unknown, and a retry settles it."""
    sessions = await stored(backend, 3)
    sql(
        "create function {}.refuse() returns trigger language plpgsql as "
        "$$ begin raise exception 'no lease'; end $$"
    )
    sql("create trigger refuse before insert or update on {}.writers execute function {}.refuse()")
    for result in await append_all(backend, sessions, 1):
        assert isinstance(result, BackendUnavailableError)
        assert not result.wrote_nothing
    sql("drop trigger refuse on {}.writers")
    assert sql("select distinct next_seq from {}.sessions") == [(2,)], "visible, and not acknowledged"
    assert all(isinstance(revision, str) for revision in await append_all(backend, sessions, 1))
    assert sql("select count(*) from {}.frames") == [(6,)]


async def test_no_session_has_a_holder_without_a_lease(make: Make, sql: Sql) -> None:
    """The lease is there before the claim is visible: others would take the session at once (W1)."""
    first = make()
    await stored(first, 1)
    await first.aclose()
    sql(
        "create function {}.check_lease() returns trigger language plpgsql as $$ begin "
        "if new.writer is not null and not exists (select 1 from {}.writers w where w.writer = new.writer) "
        "then raise exception 'a holder without a lease'; end if; return new; end $$"
    )
    sql(
        "create trigger leased before insert or update on {}.sessions "
        "for each row execute function {}.check_lease()"
    )
    second = make()
    claim = await second.claim("s000", this_process())
    await second.release(claim)
    third = make()
    claim = await third.claim(META.id, this_process(), meta=META)
    await third.append_batch(
        META, EncodedBatch.of(events(0, 1)), is_materialized=False, claim=claim, summary=None
    )


async def test_large_writes_close_a_group(backend: PostgresBackend, monkeypatch: pytest.MonkeyPatch) -> None:
    """A group ends before it is too large, and a write that is too large alone goes alone."""
    sessions = await stored(backend, 6)
    monkeypatch.setattr(group_commit, "GROUP_BYTES", 1)
    before = backend.commits.groups
    assert all(isinstance(revision, str) for revision in await append_all(backend, sessions, 1))
    assert backend.commits.groups == before + 6


async def test_a_caller_that_is_gone_disturbs_nobody(backend: PostgresBackend) -> None:
    """A cancelled call is written with its group, or not; its neighbours are answered."""
    sessions = await stored(backend, 3)
    batch = EncodedBatch.of(events(1, 1))
    tasks = [
        asyncio.ensure_future(
            backend.append_batch(meta, batch, is_materialized=True, claim=claim, summary=None)
        )
        for meta, claim in sessions
    ]
    while not backend.commits.is_busy:
        await asyncio.sleep(0)
    tasks[0].cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    assert isinstance(results[0], asyncio.CancelledError)
    assert all(isinstance(revision, str) for revision in results[1:])


async def test_a_value_the_driver_refuses_is_the_callers_error_only(backend: PostgresBackend) -> None:
    """What cannot be sent is refused before it is sent, and the rest of the group goes on."""
    await stored(backend, 1)
    bad = backend.commits.submit(Write(b"select %(x)s", {"x": object()}, "s"))
    good = backend.commits.submit(Write(b"select 7", {}, "s"))
    results = await asyncio.gather(bad, good, return_exceptions=True)
    assert isinstance(results[0], BackendError)
    assert results[0].wrote_nothing
    assert results[1] == (7,)


def test_payloads_name_sessions_until_they_are_too_many() -> None:
    """Each session once and in a short form; beyond what a notification may hold it means everybody."""
    assert payload_of(["a", "b", "a"]).split() == sorted([wake_name("a"), wake_name("b")])
    assert payload_of([f"s{n}" for n in range(1000)]) == EVERY_SESSION


async def test_a_closed_store_writes_nothing(backend: PostgresBackend) -> None:
    """After `aclose` every hook says that the store is closed."""
    await stored(backend, 1)
    await backend.aclose()
    with pytest.raises(BackendError, match="closed"):
        await backend.load_stored("s000")
    with pytest.raises(BackendError, match="closed"):
        await backend.commits.submit(Write(b"select 1", {}, "s"))


async def test_everything_is_on_the_way_when_a_store_closes(cluster: Cluster, schema: str) -> None:
    """A store that is closed right after an append waits for it."""
    url = cluster.url(schema=schema)
    async with turnlog.open(url) as store:
        session = await store.create(id="s")
        session.append("session/title", {"title": "t"})
    async with turnlog.open(url) as store:
        assert len((await store.read_from("s", 0)).events) == 1
