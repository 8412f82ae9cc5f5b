"""The primary is lost and its synchronous standby takes over: everything acknowledged is there (D2)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest

import turnlog
from tests.crash.scenarios import add_turn
from tests.faults.lanes import SOAK, report
from tests.faults.test_postgres_outages import write_until
from tests.postgres_cluster import PORT, Cluster
from turnlog.backends.postgres.address import parse_address
from turnlog.backends.postgres.backend import PostgresBackend
from turnlog.errors import BackendUnavailableError
from turnlog.events.batch import EncodedBatch
from turnlog.events.header import SessionHeader
from turnlog.persistence.claims import this_process

ROUNDS = 5 if SOAK else 1
NEVER = 1e9


class Pair:
    """A primary and a standby, which commits wait for."""

    def __init__(self) -> None:
        self.primary = Cluster()
        self.primary.start()
        self.standby = self.follow()

    def follow(self) -> Cluster:
        """Make a standby of the primary, wait until it streams, and make commits wait for it."""
        copy = self.primary.home / "copy"
        self.primary.run(
            "pg_basebackup", "-h", self.primary.home, "-p", str(PORT), "-U", "turnlog", "-D", copy,
            "-R", "-X", "stream", "-c", "fast", "--no-sync",
        )  # fmt: skip
        standby = Cluster(folder=copy)
        standby.start()
        admin = self.primary.admin()
        admin.execute("alter system set synchronous_standby_names = '*'")
        admin.execute("select pg_reload_conf()")
        streaming = "select 1 from pg_stat_replication where sync_state = 'sync'"
        while not admin.execute(streaming).fetchall():
            pass
        return standby

    def url(self) -> str:
        """Return the store URL that names both."""
        homes = [self.primary.home, self.standby.home]
        return f"postgresql://turnlog@/postgres?host={_joined(homes)}&port={PORT},{PORT}"

    def fail_over(self) -> None:
        """Lose the primary at once and promote the standby."""
        self.primary.kill()
        self.primary.remove()
        self.primary = self.standby
        admin = self.primary.admin()
        # The promoted server has no standby yet; what waits for one would wait for ever.
        admin.execute("alter system set synchronous_standby_names = ''")
        admin.execute("select pg_reload_conf()")
        admin.execute("select pg_promote()")

    def remove(self) -> None:
        """Stop both."""
        self.primary.remove()
        self.standby.remove()


def _joined(homes: list[Path]) -> str:
    return ",".join(str(home) for home in homes)


@pytest.fixture(name="pair")
def _pair() -> Iterator[Pair]:
    """Give a primary with its standby."""
    pair = Pair()
    yield pair
    pair.remove()


async def dicts(store: turnlog.SessionStore, session_id: str) -> list[dict[str, Any]]:
    """Read a whole session."""
    return [event.to_dict() for event in (await store.read_from(session_id, 0)).events]


@pytest.mark.parametrize("number", range(ROUNDS))
async def test_nothing_acknowledged_is_lost_in_a_failover(
    pair: Pair, number: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Writers and a follower go on at the standby; all that was acknowledged at the primary is there."""
    url = pair.url()
    async with turnlog.open(url, write_window=NEVER) as store, turnlog.open(url) as reader:
        sessions = [await store.create(id=f"s{n}") for n in range(3)]
        acknowledged: dict[str, int] = {}
        done, last = asyncio.Event(), asyncio.Event()

        async def progress() -> None:
            before = sum(acknowledged.values())
            while len(acknowledged) < 3 or sum(acknowledged.values()) < before + 200:
                await asyncio.sleep(0.01)

        followed: list[dict[str, Any]] = []

        async def follow() -> None:
            while True:
                try:
                    async for event in reader.follow("s0", len(followed)):
                        followed.append(event.to_dict())
                        if last.is_set() and len(followed) == sessions[0].seq:
                            return
                except BackendUnavailableError:
                    await asyncio.sleep(0.02)

        writers = [
            asyncio.ensure_future(write_until(done, session, acknowledged, rest=0.005))
            for session in sessions
        ]
        await progress()
        follower = asyncio.ensure_future(follow())
        await progress()
        pair.fail_over()
        seen = dict(acknowledged)
        async with turnlog.open(pair.primary.url()) as there:
            for session in sessions:
                stored = await dicts(there, session.id)
                assert len(stored) >= seen[session.id], "an acknowledged event is missing"
                assert stored == [e.to_dict() for e in session.events[: len(stored)]]
        await progress()
        done.set()
        await asyncio.gather(*writers)
        last.set()
        add_turn(sessions[0], sessions[0].next_turn)
        await sessions[0].flush()
        await follower
        assert followed == [e.to_dict() for e in sessions[0].events]
        for session in sessions:
            await session.aclose()
    report("failover to the standby", "postgres", capsys, faults=1, acknowledged=sum(seen.values()))


async def test_a_standby_is_read_and_not_written(pair: Pair) -> None:
    """A store on the standby alone reads and follows; writing is refused as a passing trouble."""
    async with turnlog.open(pair.primary.url()) as store, await store.create(id="s") as session:
        add_turn(session, 1)
        await session.flush()
        async with turnlog.open(pair.standby.url()) as standby:
            with psycopg.connect(pair.standby.conninfo()) as admin:
                while not admin.execute("select to_regclass('turnlog.frames')").fetchone():
                    pass
            while len(found := await dicts(standby, "s")) < session.seq:
                await asyncio.sleep(0.02)
            assert found == [e.to_dict() for e in session.events]
            seen, first = 0, session.seq
            async for _ in standby.follow("s", 0):
                seen += 1
                if seen == first:
                    add_turn(session, 2)
                    await session.flush()
                if seen > first:
                    break
    backend = PostgresBackend(parse_address(pair.standby.url()))
    meta = SessionHeader(id="new", created_at=1)
    claim = await backend.claim(meta.id, this_process(), meta=meta)
    batch = EncodedBatch.of(session.events[:3])
    with pytest.raises(BackendUnavailableError, match="standby") as refused:
        await backend.append_batch(meta, batch, is_materialized=False, claim=claim, summary=None)
    assert refused.value.wrote_nothing
    await backend.aclose()
