"""PostgreSQL goes away in every way it can: nothing acknowledged is lost, nothing stored twice (B3, D2)."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import turnlog
from tests.crash.scenarios import add_turn
from tests.faults.lanes import SOAK, report
from tests.faults.postgres_proxy import Proxy
from tests.postgres_cluster import PORT, Cluster, fresh_schema, shared_cluster
from turnlog.backends.postgres.address import parse_address
from turnlog.backends.postgres.backend import PostgresBackend
from turnlog.errors import BackendError, BackendUnavailableError, UndurableError
from turnlog.persistence.attachments import AttachmentStore
from turnlog.persistence.coordinator import PersistenceCoordinator
from turnlog.persistence.live_session import LiveSession
from turnlog.persistence.store import SessionStore
from turnlog.session.registry import SessionRegistry

NEVER = 1e9
"""A write window that does not end within a test: only flushes write."""


def store_of(backend: PostgresBackend, **options: Any) -> SessionStore:
    """Put a store together over a backend with options that URLs do not have."""
    registry = SessionRegistry(session_type=LiveSession)
    coordinator = PersistenceCoordinator(backend, registry, **options)
    return SessionStore(coordinator, registry, AttachmentStore(None))


async def stored_frames(cluster: Cluster, schema: str) -> list[tuple[int, int]]:
    """Return first and last seq of every stored frame, read behind the backend's back."""
    rows = cluster.admin().execute(
        f"select first_seq, last_seq from {schema}.frames order by session, first_seq".encode()
    )
    return [(int(first), int(last)) for first, last in rows.fetchall()]


async def until(condition: Callable[[], Any]) -> None:
    """Wait until something is so."""
    while not condition():
        await asyncio.sleep(0.005)


class Own:
    """A server that tests may kill, with a schema of the test's own in it."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.schema = fresh_schema()
        self.url = cluster.url(schema=self.schema)

    def run(self, text: str) -> list[tuple[Any, ...]]:
        """Run a statement behind the backend's back."""
        cursor = self.cluster.admin().execute(text.encode())
        return cursor.fetchall() if cursor.description else []


@pytest.fixture(name="killable", scope="module")
def _killable() -> Iterator[Cluster]:
    """Give the server that the tests of this module may kill."""
    cluster = Cluster()
    yield cluster
    cluster.remove()


@pytest.fixture(name="own")
def _own(killable: Cluster) -> Own:
    """Give that server, running."""
    if killable.server is None:
        killable.start()
    return Own(killable)


@asynccontextmanager
async def behind_proxy(schema: str, **options: Any) -> AsyncIterator[tuple[Proxy, LiveSession, SessionStore]]:
    """Give a live session with one durable turn, whose store reaches the server through a proxy."""
    async with Proxy(shared_cluster().home / f".s.PGSQL.{PORT}") as proxy:
        backend = PostgresBackend(parse_address(proxy.url(schema=schema)), **options)
        async with store_of(backend, write_window=NEVER) as store, await store.create(id="s") as session:
            add_turn(session, 1)
            await session.flush()
            yield proxy, session, store
            proxy.heal()


async def everything(url: str, session_id: str = "s") -> list[dict[str, Any]]:
    """Read a session with a store of its own."""
    async with turnlog.open(url) as store:
        return [event.to_dict() for event in (await store.read_from(session_id, 0)).events]


async def test_a_lost_reply_is_recognised_as_success() -> None:
    """The batch is stored, the reply is lost, the retry finds it: stored once and acknowledged (B3)."""
    schema = fresh_schema()
    cluster = shared_cluster()
    async with behind_proxy(schema) as (proxy, session, _):
        durable = session.durable_seq
        add_turn(session, 2)
        proxy.swallow("replies")
        flush = asyncio.ensure_future(session.flush())
        while len(await stored_frames(cluster, schema)) < 2:
            await asyncio.sleep(0.005)
        assert not flush.done()
        proxy.heal()
        proxy.cut()
        with pytest.raises(UndurableError) as undurable:
            await flush
        assert undurable.value.retryable
        assert isinstance(undurable.value.__cause__, BackendUnavailableError)
        assert session.durable_seq == durable
        await session.flush()
        assert session.durable_seq == session.seq
        assert await stored_frames(cluster, schema) == [(0, durable - 1), (durable, session.seq - 1)]
        add_turn(session, 3)
        await session.flush()
        expected = [event.to_dict() for event in session.events]
        assert await everything(cluster.url(schema=schema)) == expected


async def test_a_lost_reply_to_the_first_batch_is_recognised() -> None:
    """So is the batch that makes the session, and the writer learns that it holds it (B1, B3)."""
    schema = fresh_schema()
    cluster = shared_cluster()
    async with behind_proxy(schema) as (proxy, _, store):
        other = await store.create(id="t", cwd="/marker")
        add_turn(other, 1)
        proxy.swallow_replies_after(b"/marker")  # the claim before it is answered
        flush = asyncio.ensure_future(other.flush())
        while len(await stored_frames(cluster, schema)) < 2:
            await asyncio.sleep(0.005)
        proxy.heal()
        proxy.cut()
        with pytest.raises(UndurableError):
            await flush
        await other.flush()
        add_turn(other, 2)
        await other.flush()
        assert await everything(cluster.url(schema=schema), "t") == [e.to_dict() for e in other.events]
        await other.aclose()


async def test_a_lost_request_is_sent_again() -> None:
    """What never reached the server is written by the next flush, once (D2)."""
    schema = fresh_schema()
    cluster = shared_cluster()
    async with behind_proxy(schema) as (proxy, session, _):
        durable = session.durable_seq
        add_turn(session, 2)
        proxy.swallow("requests")
        flush = asyncio.ensure_future(session.flush())
        await until(lambda: proxy.swallowed)
        proxy.heal()
        proxy.cut()
        with pytest.raises(UndurableError):
            await flush
        assert await stored_frames(cluster, schema) == [(0, durable - 1)]
        await session.flush()
        assert await everything(cluster.url(schema=schema)) == [e.to_dict() for e in session.events]


async def test_a_server_that_does_not_answer_is_given_up() -> None:
    """A connection on which nothing comes back is closed after a while; its outcome is unknown (B3)."""
    schema = fresh_schema()
    async with behind_proxy(schema, reply_seconds=0.3) as (proxy, session, _):
        add_turn(session, 2)
        proxy.swallow("replies")
        with pytest.raises(UndurableError) as undurable:
            await session.flush()
        cause = undurable.value.__cause__
        assert isinstance(cause, BackendUnavailableError)
        assert not cause.wrote_nothing
        proxy.heal()
        await session.flush()
        assert await everything(shared_cluster().url(schema=schema)) == [e.to_dict() for e in session.events]


async def test_an_idle_connection_that_broke_is_not_noticed() -> None:
    """The server has closed every idle connection: the next call makes a new one, without an error."""
    schema = fresh_schema()
    async with behind_proxy(schema) as (proxy, session, _):
        before = proxy.connections
        proxy.cut()
        await asyncio.sleep(0.05)
        add_turn(session, 2)
        await session.flush()
        assert session.durable_seq == session.seq
        assert proxy.connections > before


async def test_a_read_is_repeated_on_a_new_connection() -> None:
    """A connection that breaks under a read costs nothing but a second look (R3)."""
    schema = fresh_schema()
    async with behind_proxy(schema) as (proxy, session, store):
        proxy.swallow("replies")
        read = asyncio.ensure_future(store.read_from("s", 0))
        await until(lambda: proxy.swallowed)
        proxy.heal()
        proxy.cut()
        assert len((await read).events) == session.seq


async def test_an_exhausted_pool_loses_nothing() -> None:
    """With every connection in use a flush fails as retryable and keeps its events; later it succeeds."""
    schema = fresh_schema()
    cluster = shared_cluster()
    address = parse_address(cluster.url(schema=schema, more="&pool=1"))
    backend = PostgresBackend(address, pool_seconds=0.2)
    async with store_of(backend, write_window=NEVER) as store, await store.create(id="s") as session:
        add_turn(session, 1)
        await session.flush()
        add_turn(session, 2)
        async with backend.connections.use():
            with pytest.raises(UndurableError) as undurable:
                await session.flush()
            with pytest.raises(BackendUnavailableError, match="pool"):
                await store.read_from("s", 0)
        cause = undurable.value.__cause__
        assert isinstance(cause, BackendUnavailableError)
        assert cause.wrote_nothing
        assert "pool" in str(cause)
        await session.flush()
        assert await everything(cluster.url(schema=schema)) == [e.to_dict() for e in session.events]


async def test_a_server_without_free_slots_is_unavailable() -> None:
    """`max_connections` reached: retryable, and it says which setting is meant."""
    cluster = Cluster({"max_connections": "4", "superuser_reserved_connections": "0", "max_wal_senders": "0"})
    try:
        cluster.start()
        taken = [await turnlog_connect(cluster) for _ in range(4)]
        with pytest.raises(BackendUnavailableError, match=r"too many clients|slots"):
            await everything(cluster.url())
        for connection in taken:
            await connection.aclose()
    finally:
        cluster.remove()


async def turnlog_connect(cluster: Cluster) -> Any:
    """Take one connection slot of a server."""
    backend = PostgresBackend(parse_address(cluster.url()))
    await backend.read_stored_revision("x")
    return backend


async def test_a_restart_between_two_flushes_is_not_noticed(own: Own) -> None:
    """An orderly restart while nothing is on its way costs no error and no event."""
    async with turnlog.open(own.url) as store, await store.create(id="s") as session:
        add_turn(session, 1)
        await session.flush()
        own.cluster.stop()
        own.cluster.start()
        add_turn(session, 2)
        await session.flush()
        assert await everything(own.url) == [e.to_dict() for e in session.events]


async def test_a_server_that_is_down_is_an_error_at_once(own: Own) -> None:
    """Flushes and reads of a stopped server fail as retryable, and go on when it is back."""
    async with turnlog.open(own.url, write_window=NEVER) as store, await store.create(id="s") as session:
        add_turn(session, 1)
        await session.flush()
        own.cluster.stop()
        add_turn(session, 2)
        with pytest.raises(UndurableError):
            await session.flush()
        with pytest.raises(BackendUnavailableError):
            await store.read_from("s", 0)
        own.cluster.start()
        await session.flush()
        assert await everything(own.url) == [e.to_dict() for e in session.events]


async def test_closing_a_store_whose_server_is_gone_ends(own: Own) -> None:
    """A store with nothing unwritten closes although its server is down; its lease runs out by itself."""
    async with turnlog.open(own.url) as store:
        session = await store.create(id="s")
        add_turn(session, 1)
        await session.aclose()
        own.cluster.stop()
    own.cluster.start()
    assert await everything(own.url) == [e.to_dict() for e in session.events]
    async with turnlog.open(own.url) as store, store.resume("s") as session:
        assert session.open_turn is None


async def write_until(
    done: asyncio.Event, session: LiveSession, acknowledged: dict[str, int], *, rest: float = 0
) -> None:
    """Add turns to a session and flush each until that succeeds; note what is durable.

    Args:
        done: Ends it after a turn.
        session: The session.
        acknowledged: Gets the number of durable events by session.
        rest: Seconds between two turns.
    """
    while not done.is_set():
        add_turn(session, session.next_turn)
        while True:
            try:
                await session.flush()
            except UndurableError:
                await asyncio.sleep(0.02)
            else:
                break
        acknowledged[session.id] = session.durable_seq
        await asyncio.sleep(rest)


KILLS = 20 if SOAK else 3


async def test_nothing_acknowledged_is_lost_when_the_server_is_killed(
    own: Own, capsys: pytest.CaptureFixture[str]
) -> None:
    """kill -9 of the whole server under a stream of flushes, again and again: what was acknowledged stays."""
    async with turnlog.open(own.url, write_window=NEVER) as store:
        sessions = [await store.create(id=f"s{n}") for n in range(4)]
        acknowledged: dict[str, int] = {}
        done = asyncio.Event()

        writers = [asyncio.ensure_future(write_until(done, session, acknowledged)) for session in sessions]
        for _ in range(KILLS):
            before = sum(acknowledged.values())
            await until(lambda before=before: len(acknowledged) == 4 and sum(acknowledged.values()) > before)  # type: ignore[misc]  # bound early
            await asyncio.sleep(0.03)
            own.cluster.kill()
            seen = dict(acknowledged)
            own.cluster.start()
            for session in sessions:
                stored = await everything(own.url, session.id)
                assert len(stored) >= seen[session.id]
                assert stored == [e.to_dict() for e in session.events[: len(stored)]]
        done.set()
        await asyncio.gather(*writers)
        for session in sessions:
            assert await everything(own.url, session.id) == [e.to_dict() for e in session.events]
            await session.aclose()
    report(
        "server killed with -9, writers go on",
        "postgres",
        capsys,
        faults=KILLS,
        acknowledged=sum(acknowledged.values()),
        note="four sessions at once, nothing stored twice",
    )


async def test_a_commit_without_its_standby_is_not_acknowledged(own: Own) -> None:
    """The wait for a synchronous standby is cancelled: the server reports success, the flush does not."""
    async with turnlog.open(own.url, write_window=NEVER) as store, await store.create(id="s") as session:
        add_turn(session, 1)
        await session.flush()
        own.run("alter system set synchronous_standby_names = 'nobody'")
        own.run("select pg_reload_conf()")
        add_turn(session, 2)
        flush = asyncio.ensure_future(session.flush())
        waiting = "select pid from pg_stat_activity where wait_event = 'SyncRep'"
        await until(lambda: own.run(waiting))
        own.run(f"select pg_cancel_backend(pid) from ({waiting}) as waiting")
        with pytest.raises(UndurableError) as undurable:
            await flush
        assert "standby" in str(undurable.value)
        assert session.durable_seq < session.seq
        # It is there, so the retry finds it; but it is acknowledged only once a standby could have it.
        again = asyncio.ensure_future(session.flush())
        await until(lambda: own.run(waiting))
        assert not again.done()
        own.run("alter system reset synchronous_standby_names")
        own.run("select pg_reload_conf()")
        await again
        assert await everything(own.url) == [e.to_dict() for e in session.events]


async def test_a_locked_row_holds_up_its_own_session_only(own: Own) -> None:
    """A row that another transaction keeps locked is a retryable error; the rest of the group is stored."""
    backend = PostgresBackend(parse_address(own.url), lock_seconds=0.3)
    async with store_of(backend, write_window=NEVER) as store:
        first, second = await store.create(id="a"), await store.create(id="b")
        for session in (first, second):
            add_turn(session, 1)
        await asyncio.gather(first.flush(), second.flush())
        own.run("begin")
        own.run(f"select 1 from {own.schema}.sessions where segment = 'a' for update")
        for session in (first, second):
            add_turn(session, 2)
        results = await asyncio.gather(first.flush(), second.flush(), return_exceptions=True)
        assert isinstance(results[0], UndurableError)
        assert "locked" in str(results[0])
        assert results[1] is None
        own.run("rollback")
        await first.flush()
        for session in (first, second):
            await session.aclose()


async def test_a_stopped_server_is_given_up(own: Own) -> None:
    """A server that is held up entirely is an unknown outcome after a while, and goes on afterwards."""
    backend = PostgresBackend(parse_address(own.url), reply_seconds=0.5)
    async with store_of(backend, write_window=NEVER) as store, await store.create(id="s") as session:
        add_turn(session, 1)
        await session.flush()
        servers = [
            row[0] for row in own.run("select pid from pg_stat_activity where application_name = 'turnlog'")
        ]
        for pid in servers:
            os.kill(pid, signal.SIGSTOP)
        add_turn(session, 2)
        with pytest.raises(UndurableError):
            await session.flush()
        for pid in servers:
            os.kill(pid, signal.SIGCONT)
        await session.flush()
        assert await everything(own.url) == [e.to_dict() for e in session.events]


async def test_what_no_retry_mends_is_not_called_retryable(own: Own) -> None:
    """A schema that was dropped under a running store is a plain failure that says so."""
    async with turnlog.open(own.url, write_window=NEVER) as store:
        session = await store.create(id="s")
        add_turn(session, 1)
        await session.flush()
        own.run(f"drop table {own.schema}.frames")
        with pytest.raises(BackendError, match="table of the store is gone") as failed:
            await store.read_from("s", 0)
        assert not failed.value.retryable
        await session.aclose()
