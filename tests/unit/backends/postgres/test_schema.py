"""The schema is made once, migrated by steps, and left alone by readers."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

from tests.postgres_cluster import Cluster
from tests.unit.backends.logs import META, events
from tests.unit.backends.postgres.conftest import Make, Sql
from turnlog.backends.postgres import schema as schema_module
from turnlog.errors import BackendError
from turnlog.events.batch import EncodedBatch
from turnlog.persistence.claims import this_process


async def test_many_processes_make_one_schema(make: Make, sql: Sql) -> None:
    """Of several first writers one makes the tables and the others find them."""
    await asyncio.gather(*[make().renew([]) for _ in range(6)])
    assert sql("select step from {}.schema_steps order by step") == [
        (number + 1,) for number in range(schema_module.VERSION)
    ]


async def test_an_older_schema_is_read_as_it_is_and_migrated_by_a_writer(
    make: Make, sql: Sql, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading an earlier version works and changes nothing; the first write takes the missing steps (R3)."""
    batch = EncodedBatch.of(events(0, 1))
    with monkeypatch.context() as patched:
        patched.setattr(schema_module, "VERSION", 1)
        old = make()
        claim = await old.claim(META.id, this_process(), meta=META)
        await old.append_batch(META, batch, is_materialized=False, claim=claim, summary=None)
        await old.release(claim)
    assert sql("select max(step) from {}.schema_steps") == [(1,)]
    both = make()
    found = await both.load_stored(META.id)
    assert found is not None
    assert [entry.status async for entry in both.list()] == ["ok"]
    assert sql("select max(step) from {}.schema_steps") == [(1,)]
    claim = await both.claim(META.id, this_process())
    await both.append_batch(
        META, EncodedBatch.of(events(1, 1)), is_materialized=True, claim=claim, summary=None
    )
    assert sql("select max(step) from {}.schema_steps") == [(schema_module.VERSION,)]
    found = await both.load_stored(META.id)
    assert found is not None
    assert len(found.events) == 2


async def test_a_step_that_fails_changes_nothing(
    make: Make, sql: Sql, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All steps are one transaction: after a failure there is no schema at all."""
    with monkeypatch.context() as patched:
        patched.setattr(schema_module, "_STEPS", (*schema_module._STEPS[:1], ("create nonsense",)))
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
