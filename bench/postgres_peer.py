"""The peer's side of the PostgreSQL bench: eventsourcing's recorder, a turn's events in one commit.

Owns nothing but the calls; runs where the peers are installed and turnlog is not, and prints one JSON line.
Usage: python -m bench.postgres_peer '{"host": ..., "port": ..., "schema": ..., "sessions": ..., ...}'
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from bench.turns import as_items

POOL = 8
"""Connections, as many as turnlog has at most."""


def measure(args: dict[str, Any]) -> dict[str, float]:
    """Run `turns` turns in each of `sessions` sessions at once, each turn made durable before the next."""
    from eventsourcing.persistence import StoredEvent
    from eventsourcing.postgres import PostgresApplicationRecorder, PostgresDatastore

    datastore = PostgresDatastore(
        dbname="postgres",
        host=args["host"],
        port=args["port"],
        user="turnlog",
        password="",
        pool_size=POOL,
        max_overflow=0,
    )
    recorder = PostgresApplicationRecorder(datastore, events_table_name=f"events_{args['schema']}")
    recorder.create_table()

    async def one(turns: range, stream: uuid.UUID, version: int) -> int:
        def put(turn: int, version: int) -> None:
            events = []
            for number, item in enumerate(as_items(turn), version + 1):
                state = json.dumps(item["data"], separators=(",", ":")).encode()
                events.append(StoredEvent(stream, number, item["type"], state))
            recorder.insert_events(events)

        for turn in turns:
            await asyncio.get_running_loop().run_in_executor(threads, put, turn, version)
            version += len(as_items(turn))
        return version

    async def all_of_them() -> float:
        streams = [uuid.uuid4() for _ in range(args["sessions"])]
        versions = await asyncio.gather(*(one(range(1), stream, 0) for stream in streams))
        start = time.perf_counter()
        turns = range(1, args["turns"] + 1)
        await asyncio.gather(*(one(turns, s, v) for s, v in zip(streams, versions, strict=True)))
        return time.perf_counter() - start

    with ThreadPoolExecutor(POOL) as threads:
        total = asyncio.run(all_of_them())
    datastore.close()
    return {"total_s": total, "flushes": args["sessions"] * args["turns"]}


if __name__ == "__main__":
    print(json.dumps(measure(json.loads(sys.argv[1]))))
