"""Connections to PostgreSQL that lose requests, replies or both, again and again, lose no event (B3, D2)."""

from __future__ import annotations

import asyncio
import random
from collections import Counter

import pytest

import turnlog
from tests.crash.scenarios import add_turn
from tests.faults.drill import SESSION_ID, Told, count, survivors, told
from tests.faults.lanes import SOAK, lane
from tests.faults.postgres_proxy import Proxy
from tests.faults.test_postgres_outages import NEVER, store_of
from tests.postgres_cluster import PORT, fresh_schema, shared_cluster
from turnlog.backends.postgres.address import parse_address
from turnlog.backends.postgres.backend import PostgresBackend

ROUNDS = 400 if SOAK else 40
WAYS = ("requests", "replies", "both", "at once")
"""What is lost: one direction, both, or the connection at a random moment."""
TRIES = 20


async def _lose(proxy: Proxy, way: str, chance: random.Random, flush: asyncio.Task[None]) -> None:
    """Lose something while a flush is under way, then break the connections and let new ones work."""
    before = proxy.swallowed
    for side in ("requests", "replies"):
        if way in (side, "both"):
            proxy.swallow(side)
    if way == "at once":
        await asyncio.sleep(chance.uniform(0, 0.003))
    while way != "at once" and proxy.swallowed == before and not flush.done():
        await asyncio.sleep(0)
    proxy.cut()
    await asyncio.sleep(0)
    proxy.heal()


async def _drill(schema: str, failures: Counter[str]) -> Told:
    chance = random.Random(11)
    async with Proxy(shared_cluster().home / f".s.PGSQL.{PORT}") as proxy:
        backend = PostgresBackend(parse_address(proxy.url(schema=schema)))
        async with store_of(backend, write_window=NEVER) as store:
            session = await store.create(id=SESSION_ID, cwd="/srv/app")
            for number in range(ROUNDS):
                way = WAYS[number % len(WAYS)]
                add_turn(session, session.next_turn)
                flush = asyncio.ensure_future(session.flush())
                await _lose(proxy, way, chance, flush)
                for _ in range(TRIES):
                    try:
                        await (flush if not flush.done() or flush.exception() is None else session.flush())
                    except turnlog.UndurableError:
                        failures[way] += 1
                        continue
                    break
                assert session.durable_seq == session.seq, (
                    f"{way}: not everything that was pending was written"
                )
            known = told(session)
            await session.aclose()
    return known


def test_lost_requests_and_replies(capsys: pytest.CaptureFixture[str]) -> None:
    """Each flush loses something; the next ones write what is not there, once, and nothing is missing."""
    schema = fresh_schema()
    failures: Counter[str] = Counter()
    with lane("connection cut, either way", "postgres", capsys) as figures:
        known = asyncio.run(_drill(schema, failures))
        count(figures, known, Told(), survivors(shared_cluster().url(schema=schema), known))
        figures.faults = ROUNDS
        figures.note = f"{sum(failures.values())} flushes failed and were repeated"
    assert set(failures) >= {"requests", "replies", "both"}, f"hardly anything was lost: {failures}"
