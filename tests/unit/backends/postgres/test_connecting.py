"""Connections: one loop, closed where they are doubtful, and left to the parent after a fork."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import pytest
from psycopg_pool import AsyncConnectionPool

from tests.postgres_cluster import Cluster
from tests.unit.backends.logs import META, events
from tests.unit.backends.postgres.conftest import Make
from turnlog.backends.postgres import link as link_module
from turnlog.backends.postgres.address import parse_address
from turnlog.backends.postgres.backend import PostgresBackend
from turnlog.errors import BackendError, BackendUnavailableError, UsageError
from turnlog.events.batch import EncodedBatch
from turnlog.persistence.claims import this_process


def test_a_store_belongs_to_one_event_loop(cluster: Cluster, schema: str) -> None:
    """Used from a second loop it refuses, instead of waiting for what happens in the first."""
    backend = PostgresBackend(parse_address(cluster.url(schema=schema)))

    async def use() -> None:
        await backend.load_stored("s")

    with asyncio.Runner() as first:
        first.run(use())
        with asyncio.Runner() as second, pytest.raises(UsageError, match="event loop"):
            second.run(use())
        first.run(backend.aclose())


async def test_a_store_that_was_never_used_closes(make: Make) -> None:
    """Nothing was connected, so nothing is said to anybody."""
    backend = make()
    await backend.aclose()
    backend = make()
    backend.forget()


async def test_a_cancelled_call_leaves_no_doubtful_connection(make: Make) -> None:
    """A call that is cancelled in the middle of a statement gives back no half-used connection."""
    connections = make().connections

    async def sleep() -> None:
        async with connections.use() as link:
            await link.execute("select pg_sleep(60)")

    task = asyncio.ensure_future(sleep())
    while not connections.links:
        await asyncio.sleep(0.005)
    await asyncio.sleep(0.05)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with connections.use() as link:
        cursor = await link.execute("select 7")
        assert await cursor.fetchone() == (7,)


async def test_a_wait_for_a_connection_may_be_cancelled(cluster: Cluster, schema: str) -> None:
    """Whoever gives up waiting takes no connection away from the others."""
    backend = PostgresBackend(parse_address(cluster.url(schema=schema, more="&pool=1")))
    connections = backend.connections

    async def use() -> None:
        async with connections.use():
            pass

    async with connections.use():
        waiting = [asyncio.ensure_future(use()) for _ in range(3)]
        await asyncio.sleep(0.02)
        for task in waiting[:2]:
            task.cancel()
        await asyncio.wait(waiting[:2])
    # One is cancelled in the very moment in which it is given the connection.
    await waiting[2]
    async with connections.use():
        late = asyncio.ensure_future(use())
        await asyncio.sleep(0.02)
    late.cancel()
    await asyncio.wait([late])
    await use()
    await backend.aclose()


async def test_many_wait_and_each_hears_that_the_server_is_gone(cluster: Cluster) -> None:
    """Everybody who waits for a connection that cannot be made is told at once."""
    backend = PostgresBackend(parse_address("postgresql://127.0.0.1:1/d"), pool_seconds=30)
    results = await asyncio.gather(*[backend.load_stored("s") for _ in range(5)], return_exceptions=True)
    assert all(isinstance(result, BackendUnavailableError) for result in results)
    with pytest.raises(BackendUnavailableError):
        await backend.connections.connect_alone()
    await backend.aclose()


async def test_a_failure_that_nobody_waits_for(make: Make) -> None:
    """The pool cannot replace a broken connection: the next call hears of it, nobody else."""
    backend = make()
    async with backend.connections.use() as link:
        backend.connections._no_connection(link._pool)  # type: ignore[arg-type]  # the pool it came from
    assert await backend.load_stored("s") is None


async def test_calls_that_come_together_share_a_pool(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long it takes to open one."""
    inner = AsyncConnectionPool.open
    opened = []

    async def slow(pool: AsyncConnectionPool[Any], wait: bool = False, timeout: float = 30.0) -> None:
        opened.append(pool)
        await asyncio.sleep(0.01)
        await inner(pool, wait, timeout)

    monkeypatch.setattr(AsyncConnectionPool, "open", slow)
    backend = make()
    assert await asyncio.gather(*[backend.load_stored("s") for _ in range(3)]) == [None] * 3
    assert len(opened) == 1


async def test_an_old_server_is_refused(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """With both versions in the message."""
    monkeypatch.setattr(link_module, "OLDEST_SERVER", 990_000)
    with pytest.raises(BackendError, match="turnlog needs 99") as refused:
        await make().load_stored("s")
    assert not refused.value.retryable


async def test_time_is_given_anew_for_each_page(make: Make) -> None:
    """Long work is not broken off as long as it comes along; work that stands still is."""
    connections = make(reply_seconds=0.4).connections
    async with connections.use() as link:
        for _ in range(4):
            await link.execute("select pg_sleep(0.2)")
            link.give_time()
    with pytest.raises(BackendUnavailableError):
        async with connections.use() as link:
            await link.execute("select pg_sleep(60)")


async def test_a_forked_child_leaves_the_parents_connections_alone(make: Make) -> None:
    """The child forgets: nothing is said to the server in the parent's name, and the parent goes on."""
    backend = make()
    claim = await backend.claim(META.id, this_process(), meta=META)
    await backend.append_batch(
        META, EncodedBatch.of(events(0, 1)), is_materialized=False, claim=claim, summary=None
    )
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            backend.forget()
            status = 0 if all(link.closed for link in backend.connections.links) else 2
        finally:
            os._exit(status)
    _, status = os.waitpid(pid, 0)  # noqa: ASYNC222 - the child is done in an instant
    assert os.waitstatus_to_exitcode(status) == 0
    await backend.append_batch(
        META, EncodedBatch.of(events(1, 1)), is_materialized=True, claim=claim, summary=None
    )
    found = await backend.load_stored(META.id)
    assert found is not None
    assert len(found.events) == 2
    assert len(backend.connections.links) == 1, "the connection was made anew"


async def test_the_first_calls_of_all_open_one_pool(make: Make) -> None:
    """Whoever comes while the pool is being opened waits for that one."""
    connections = make().connections
    one, other = await asyncio.gather(connections._opened(), connections._opened())
    assert one is other


async def test_what_a_check_does_not_foresee_reaches_the_caller(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pool keeps errors to itself; one of no known kind is told as it is."""

    async def broken(self: Any, lock_seconds: float) -> None:
        raise ZeroDivisionError

    backend = make()
    monkeypatch.setattr(link_module.Link, "check", broken)
    with pytest.raises(Exception) as failed:  # how it is wrapped is not what is shown
        await backend.load_stored("s")
    causes = [failed.value, failed.value.__cause__]
    assert any(isinstance(cause, ZeroDivisionError) for cause in causes)
