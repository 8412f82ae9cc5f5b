"""The schema is made once, migrated by steps, and left alone by readers."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

import turnlog
from tests.postgres_cluster import Cluster
from tests.unit.backends.logs import META, events
from tests.unit.backends.postgres.conftest import Make, Sql
from turnlog.backends.postgres import schema as schema_module
from turnlog.errors import BackendError, UnsupportedFormatError
from turnlog.events.batch import EncodedBatch
from turnlog.persistence.claims import this_process


def one_more_step(monkeypatch: pytest.MonkeyPatch, *statements: str) -> None:
    """Let this release have a schema that is one step longer."""
    step = statements or ("create table turnlog.later (x integer)",)
    monkeypatch.setattr(schema_module, "_STEPS", (*schema_module._STEPS, step))
    monkeypatch.setattr(schema_module, "VERSION", schema_module.VERSION + 1)


async def test_many_processes_make_one_schema(make: Make, sql: Sql) -> None:
    """Of several first writers one makes the tables and the others find them."""
    await asyncio.gather(*[make().renew([]) for _ in range(6)])
    assert sql("select step from {}.schema_steps order by step") == [
        (number + 1,) for number in range(schema_module._BASE, schema_module.VERSION)
    ]


async def test_an_older_schema_is_read_as_it_is_and_migrated_by_a_writer(
    make: Make, sql: Sql, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading an earlier version works and changes nothing; the first write takes the missing steps (R3)."""
    batch = EncodedBatch.of(events(0, 1))
    old = make()
    claim = await old.claim(META.id, this_process(), meta=META)
    await old.append_batch(META, batch, is_materialized=False, claim=claim, summary=None)
    await old.release(claim)
    older = schema_module.VERSION
    one_more_step(monkeypatch)
    both = make()
    found = await both.load_stored(META.id)
    assert found is not None
    assert [entry.status async for entry in both.list()] == ["ok"]
    assert sql("select max(step) from {}.schema_steps") == [(older,)]
    claim = await both.claim(META.id, this_process())
    await both.append_batch(
        META, EncodedBatch.of(events(1, 1)), is_materialized=True, claim=claim, summary=None
    )
    assert sql("select max(step) from {}.schema_steps") == [(older + 1,)]
    found = await both.load_stored(META.id)
    assert found is not None
    assert len(found.events) == 2


async def test_a_store_brings_an_older_schema_up(
    make: Make, cluster: Cluster, schema: str, sql: Sql, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a store reads before its first write does not keep it from writing, to old sessions and new."""
    url = cluster.url(schema=schema)
    async with turnlog.open(url) as store, store.create(id="old") as session:
        session.append("session/title", {"title": "one"})
    one_more_step(monkeypatch)
    async with turnlog.open(url) as store:
        assert [entry.status async for entry in store.list()] == ["ok"]
        async with store.resume("old") as session:
            session.append("session/title", {"title": "two"})
        async with store.create(id="new") as session:
            session.append("session/title", {"title": "three"})
        assert [entry.status async for entry in store.list()] == ["ok", "ok"]
    assert sql("select max(step) from {}.schema_steps") == [(schema_module.VERSION,)]


async def test_a_schema_whose_headers_have_no_checksum_is_refused(make: Make, sql: Sql) -> None:
    """Steps that this release does not read are named, for readers and writers, and nothing is changed."""
    sql("create schema {}")
    sql("create table {}.schema_steps (step integer primary key, taken timestamptz not null)")
    sql("insert into {}.schema_steps values (1, now()), (2, now())")
    sql("create table {}.sessions (number bigint primary key, segment text, header bytea)")
    backend = make()
    for call in (backend.load_stored(META.id), backend.renew([]), anext(backend.list().__aiter__())):
        with pytest.raises(UnsupportedFormatError) as refused:
            await call
        assert (refused.value.found, refused.value.direction) == (2, "older")
        assert refused.value.supported == schema_module.VERSION
    assert sql("select max(step) from {}.schema_steps") == [(2,)]


async def test_a_step_that_fails_changes_nothing(
    make: Make, sql: Sql, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All steps are one transaction: after a failure there is no schema at all."""
    with monkeypatch.context() as patched:
        one_more_step(patched, "create nonsense")
        with pytest.raises(BackendError):
            await make().renew([])
    assert sql("select count(*) from pg_namespace where nspname = '{}'") == [(0,)]
    await make().renew([])


async def test_a_schema_that_vanishes_is_made_again(make: Make, sql: Sql, cluster: Cluster) -> None:
    """A running writer that finds its schema gone says so once, and makes it with its next write."""
    backend = make()
    await backend.renew([])
    sql("drop schema {} cascade")
    with pytest.raises(BackendError, match="gone") as gone:
        await backend.renew([])
    assert isinstance(gone.value.__cause__, psycopg.errors.UndefinedTable)
    await backend.renew([])
