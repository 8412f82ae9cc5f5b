"""Following over PostgreSQL: one listening connection per store wakes all that wait, and survives outages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from tests.postgres_cluster import Cluster
from tests.unit.backends.logs import META, OTHER, events
from tests.unit.backends.postgres.conftest import Make, Sql
from turnlog.backends.postgres import watching
from turnlog.backends.postgres.address import parse_address
from turnlog.backends.postgres.backend import PostgresBackend
from turnlog.errors import BackendError, BackendUnavailableError, TurnlogError
from turnlog.events.batch import EncodedBatch
from turnlog.events.header import SessionHeader
from turnlog.persistence.claims import this_process


async def write(backend: PostgresBackend, meta: SessionHeader, first: int) -> None:
    """Append one event to a session."""
    claim = await backend.claim(meta.id, this_process(), meta=meta)
    batch = EncodedBatch.of(events(first, 1))
    await backend.append_batch(meta, batch, is_materialized=first > 0, claim=claim, summary=None)
    await backend.release(claim)


async def woken(watch: AsyncIterator[None]) -> None:
    """Wait for the next wake."""
    async with asyncio.timeout(10):
        await anext(watch)


async def quiet(watch: AsyncIterator[None]) -> asyncio.Future[None]:
    """Begin to wait and see that nothing comes."""
    wait = asyncio.ensure_future(woken(watch))
    await asyncio.sleep(0.1)
    assert not wait.done()
    return wait


async def test_a_watch_is_woken_by_its_own_session_only(make: Make, sql: Sql) -> None:
    """From another store, once per write, and not by claims, renewals and other sessions."""
    reader, writer = make(), make()
    await write(writer, META, 0)
    mine, theirs = reader.watch(META.id), reader.watch(OTHER.id)
    await woken(mine)
    await woken(theirs)
    wait = await quiet(mine)
    await write(writer, OTHER, 0)
    await woken(theirs)
    await writer.renew([])
    await asyncio.sleep(0.05)
    assert not wait.done()
    await write(writer, META, 1)
    await wait
    await write(writer, META, 2)
    await woken(mine)
    listeners = "select count(*) from pg_stat_activity where query like 'listen \"turnlog_{}\"%%'"
    assert sql(listeners.replace("%%", "%")) == [(1,)]
    await mine.aclose()  # type: ignore[attr-defined]  # it is a generator
    await theirs.aclose()  # type: ignore[attr-defined]  # likewise
    while sql(listeners.replace("%%", "%")) != [(0,)]:
        await asyncio.sleep(0.01)


async def test_a_watch_that_begins_late_is_woken_at_once(make: Make) -> None:
    """Who joins a listening store is woken once, since the log may have grown before."""
    backend = make()
    first, second = backend.watch(META.id), backend.watch(META.id)
    await woken(first)
    await woken(second)


async def test_two_that_begin_together_share_a_listener(make: Make) -> None:
    """Who comes while the connection is being made is woken with the one it is made for."""
    backend = make()
    await asyncio.gather(*[woken(backend.watch(META.id)) for _ in range(3)])


async def test_a_lost_listener_is_made_again(make: Make, sql: Sql) -> None:
    """The server ends the connection: it is made anew, and everybody is woken for what was missed."""
    backend = make()
    watch = backend.watch(META.id)
    await woken(watch)
    wait = await quiet(watch)
    sql("select pg_terminate_backend(pid) from pg_stat_activity where query = 'listen \"turnlog_{}\"'")
    await wait
    wait = await quiet(watch)
    await write(make(), META, 0)
    await wait


async def test_a_server_that_stays_away_is_told(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a while of trying those who watch get the error that a read would get; a refusal at once."""
    monkeypatch.setattr(watching, "_FIRST_PAUSE", 0.01)
    backend = PostgresBackend(parse_address("postgresql://127.0.0.1:1/d"), patience_seconds=0.05)
    with pytest.raises(BackendUnavailableError):
        await woken(backend.watch(META.id))
    await backend.aclose()
    refused = PostgresBackend(parse_address(f"postgresql://nobody@/postgres?host={cluster.home}"))
    with pytest.raises(BackendError, match="nobody"):
        await woken(refused.watch(META.id))
    await refused.aclose()


async def test_a_listener_that_fails_is_told(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever ends the listener, nobody waits for it for ever."""
    backend = make()

    async def broken(link: object) -> None:
        raise ValueError("no")

    monkeypatch.setattr(backend._watcher, "_receive", broken)
    with pytest.raises(TurnlogError, match="watching failed"):
        await woken(backend.watch(META.id))


async def test_a_standby_is_looked_at_from_time_to_time(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nobody can notify, those who watch are woken regularly."""
    monkeypatch.setattr(watching, "STANDBY_POLL", 0.01)
    backend = make()
    inner = backend.connections.connect_alone

    async def standby() -> object:
        link = await inner()
        link.in_recovery = True
        return link

    monkeypatch.setattr(backend.connections, "connect_alone", standby)
    watch = backend.watch(META.id)
    for _ in range(3):
        await woken(watch)


async def test_forgetting_ends_the_listener(make: Make) -> None:
    """A store that forgets listens no more."""
    backend = make()
    watch = backend.watch(META.id)
    await woken(watch)
    backend.forget()
    await watch.aclose()  # type: ignore[attr-defined]  # it is a generator
