"""The peers' side of the database bench: the same turns through each one's own interface.

Owns nothing but the calls; it runs in an environment that holds the peers and not turnlog, and prints its
figures as one JSON line. Usage: python -m bench.peers PEER '{"root": ..., "sessions": ..., "turns": ...}'
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from bench.turns import as_items, as_text

Flush = Callable[[int], Awaitable[Any]]
"""Makes the turn with this number durable in one session."""
Opened = list[Flush]


@asynccontextmanager
async def langgraph(path: Path, sessions: int) -> AsyncIterator[Opened]:
    """`AsyncSqliteSaver.aput_writes`: its cheapest durable append, without the state that `aput` rewrites."""
    from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver

    async with AsyncSqliteSaver.from_conn_string(str(path)) as saver:
        await saver.setup()
        await saver.conn.execute("pragma synchronous = full")

        def one(session: int) -> Flush:
            config: Any = {
                "configurable": {"thread_id": f"s-{session}", "checkpoint_ns": "", "checkpoint_id": "c"}
            }
            return lambda turn: saver.aput_writes(
                config, [("events", item) for item in as_items(turn)], f"t-{turn}"
            )

        yield [one(session) for session in range(sessions)]


@asynccontextmanager
async def openai_agents(path: Path, sessions: int) -> AsyncIterator[Opened]:
    """`SQLiteSession.add_items`: a turn's items in one commit."""
    from agents import SQLiteSession

    opened = [SQLiteSession(f"s-{session}", path) for session in range(sessions)]

    def one(session: Any) -> Flush:
        return lambda turn: session.add_items(as_items(turn))

    yield [one(session) for session in opened]
    for session in opened:
        session.close()


@asynccontextmanager
async def eventsourcing(path: Path, sessions: int) -> AsyncIterator[Opened]:
    """The SQLite recorder: a turn's events in one commit, on a thread, since it is synchronous."""
    from eventsourcing.persistence import StoredEvent
    from eventsourcing.sqlite import SQLiteApplicationRecorder, SQLiteDatastore

    recorder = SQLiteApplicationRecorder(SQLiteDatastore(str(path), lock_timeout=60, pool_size=1))
    recorder.create_table()

    def one() -> Flush:
        stream, version = uuid.uuid4(), 0

        def put(turn: int) -> None:
            nonlocal version
            events = []
            for item in as_items(turn):
                version += 1
                state = json.dumps(item["data"], separators=(",", ":")).encode()
                events.append(StoredEvent(stream, version, item["type"], state))
            recorder.insert_events(events)

        return lambda turn: asyncio.to_thread(put, turn)

    yield [one() for _ in range(sessions)]
    recorder.datastore.close()


@asynccontextmanager
async def pydantic_ai_harness(path: Path, sessions: int) -> AsyncIterator[Opened]:
    """`SqliteStepStore.append_event`: a turn's text as the metadata of one event, in one commit."""
    from pydantic_ai_harness.step_persistence import SqliteStepStore, StepEvent

    store = SqliteStepStore(database=str(path))

    def one(session: int) -> Flush:
        return lambda turn: store.append_event(
            StepEvent(
                run_id=f"s-{session}", kind="run_started", step_index=turn, metadata={"turn": as_text(turn)}
            )
        )

    yield [one(session) for session in range(sessions)]


@asynccontextmanager
async def adk(path: Path, sessions: int) -> AsyncIterator[Opened]:
    """`DatabaseSessionService.append_event`: a turn's text as the content of one event, in one commit."""
    from google.adk.events import Event
    from google.adk.sessions import DatabaseSessionService
    from google.genai.types import Content, Part

    service = DatabaseSessionService(f"sqlite+aiosqlite:///{path}", connect_args={"timeout": 60})
    opened = [
        await service.create_session(app_name="bench", user_id="u", session_id=f"s-{session}")
        for session in range(sessions)
    ]

    def one(session: Any) -> Flush:
        return lambda turn: service.append_event(
            session, Event(author="model", content=Content(role="model", parts=[Part(text=as_text(turn))]))
        )

    yield [one(session) for session in opened]
    await service.db_engine.dispose()


PEERS = {peer.__name__: peer for peer in (langgraph, openai_agents, eventsourcing, pydantic_ai_harness, adk)}


async def measure(peer: str, args: dict[str, Any]) -> dict[str, float]:
    """Run `turns` turns in each of `sessions` sessions at once, each turn made durable before the next."""
    path = Path(args["root"]) / "peer.db"
    failed = 0

    async def one(flush: Flush) -> None:
        nonlocal failed
        for turn in range(1, args["turns"] + 1):
            try:
                await flush(turn)
            except Exception:  # noqa: BLE001 - a refused append is a figure of the report
                failed += 1

    async with PEERS[peer](path, args["sessions"]) as flushes:
        await asyncio.gather(*(flush(0) for flush in flushes), return_exceptions=True)
        start = time.perf_counter()
        await asyncio.gather(*(one(flush) for flush in flushes))
        total = time.perf_counter() - start
    stored = args["sessions"] * args["turns"] - failed
    return {"total_s": total, "flushes": stored, "failed": failed, "wal": path.read_bytes()[18] == 2}


if __name__ == "__main__":
    print(json.dumps(asyncio.run(measure(sys.argv[1], json.loads(sys.argv[2])))))
