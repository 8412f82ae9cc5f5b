"""turnlog's side of the bench: one job per process, its figures as one JSON line.

Owns the work that is timed. Does not own repetition, comparison or the report (`run`).
Usage: python -m bench.jobs JOB '{"root": ..., "compression": ...}'
"""

from __future__ import annotations

import asyncio
import json
import resource
import sys
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import turnlog
from bench.exports import export_fill, export_load, export_one
from bench.floors import Floors
from turnlog import LiveSession

Args = dict[str, Any]
Figures = dict[str, float]


def _url(args: Args) -> str:
    return f"jsonl:{args['root']}?compression={args['compression']}"


def _percentile(values: list[float], part: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * part))]


def _delta(k: int) -> dict[str, Any]:
    return {"type": "text-delta", "index": 0, "text": f"token {k % 997} "}


def _turn(session: LiveSession, number: int) -> None:
    """26 events, as the original's side appends them."""
    session.append("turn/start", {"turn": number})
    session.append("step/start", {"turn": number, "step": 1})
    for k in range(22):
        session.append_chunk(number, 1, {"type": "text-delta", "index": 0, "text": f"token {k} "})
    session.append("step/end", {"turn": number, "step": 1})
    session.append("turn/end", {"turn": number, "reason": {"kind": "completed"}})


async def _open_sessions(store: turnlog.SessionStore, count: int) -> list[LiveSession]:
    sessions = [await store.create(id=f"s-{k}", cwd="/bench") for k in range(count)]
    for session in sessions:
        session.append("turn/start", {"turn": 1})
        session.append("step/start", {"turn": 1, "step": 1})
    await asyncio.gather(*(s.flush() for s in sessions))
    return sessions


async def _close_turns(sessions: list[LiveSession]) -> None:
    for session in sessions:
        session.append("step/end", {"turn": 1, "step": 1})
        session.append("turn/end", {"turn": 1, "reason": {"kind": "completed"}})
    await asyncio.gather(*(s.flush() for s in sessions))


async def append(args: Args) -> Figures:
    """Producer cost of one chunk event: live rules, encoding and gate, nothing awaited in between."""
    async with turnlog.open("memory:", pending_budget=1 << 30) as store:
        (session,) = await _open_sessions(store, 1)
        chunks = [_delta(k) for k in range(args["events"])]
        start = time.perf_counter()
        for chunk in chunks:
            session.append_chunk(1, 1, chunk)
        spent = time.perf_counter() - start
        await _close_turns([session])
    return {"ns_per_event": spent / args["events"] * 1e9}


async def stream(args: Args) -> Figures:
    """`events` chunk events over `sessions` sessions, a yield every 100 appends, one flush at the end."""
    async with turnlog.open(_url(args), pending_budget=1 << 30) as store:
        sessions = await _open_sessions(store, args["sessions"])
        events, count = args["events"], args["sessions"]
        producing = 0.0
        start = time.perf_counter()
        for base in range(0, events, 100):
            since = time.perf_counter()
            for k in range(base, min(base + 100, events)):
                sessions[k % count].append_chunk(1, 1, _delta(k))
            producing += time.perf_counter() - since
            await asyncio.sleep(0)
        await asyncio.gather(*(s.flush() for s in sessions))
        total = time.perf_counter() - start
        await _close_turns(sessions)
    return {"producer_s": producing, "total_s": total}


async def turns(args: Args) -> Figures:
    """Every session: `turns` turns of 26 events, a flush after each; all sessions at once."""

    async def one(session: LiveSession) -> None:
        for number in range(2, args["turns"] + 2):
            _turn(session, number)
            await session.flush()

    async with turnlog.open(_url(args)) as store:
        sessions = [await store.create(id=f"s-{k}", cwd="/bench") for k in range(args["sessions"])]
        for session in sessions:
            _turn(session, 1)
        await asyncio.gather(*(s.flush() for s in sessions))
        start = time.perf_counter()
        await asyncio.gather(*(one(s) for s in sessions))
        total = time.perf_counter() - start
    return {"total_s": total, "flushes": args["sessions"] * args["turns"]}


async def _flush_one(session: LiveSession) -> float:
    since = time.perf_counter()
    session.append("feedback/record", {"text": "x" * 60})
    await session.flush()
    return time.perf_counter() - since


async def single(args: Args) -> Figures:
    """One event per flush, one session."""
    async with turnlog.open(_url(args)) as store:
        (session,) = await _open_sessions(store, 1)
        times = [await _flush_one(session) for _ in range(args["events"])]
        await _close_turns([session])
    return {"p50_s": _percentile(times, 0.5), "p99_s": _percentile(times, 0.99)}


async def beside_floors(args: Args) -> Figures:
    """One event per flush by turns with the floor through a hop, then the bare floor alone."""
    times, hop = [], []
    floors = Floors(Path(args["root"]))
    async with turnlog.open(_url({**args, "root": f"{args['root']}/store"})) as store:
        (session,) = await _open_sessions(store, 1)
        for _ in range(args["events"]):
            hop.append(await floors.hop())
            times.append(await _flush_one(session))
        await _close_turns([session])
    bare = [floors.bare() for _ in range(args["events"])]
    floors.close()
    figures = {"p50_s": times, "hop_s": hop, "bare_s": bare}
    return {name: _percentile(values, 0.5) for name, values in figures.items()}


async def create(args: Args) -> Figures:
    """Create a session and make its first event durable, one after the other."""
    times = []
    async with turnlog.open(_url(args)) as store:
        for k in range(args["sessions"]):
            since = time.perf_counter()
            session = await store.create(id=f"c-{k}", cwd="/bench")
            session.append("turn/start", {"turn": 1})
            await session.flush()
            times.append(time.perf_counter() - since)
    return {"p50_s": _percentile(times, 0.5), "total_s": sum(times)}


async def inspect(args: Args) -> Figures:
    """Restore one stored session in memory."""
    async with turnlog.open(_url(args)) as store:
        start = time.perf_counter()
        found = await store.inspect(args["id"])
        return {"total_s": time.perf_counter() - start, "events": len(found.events)}


async def tail(args: Args) -> Figures:
    """Read the last 50 events, cold; the median of 20 fresh stores."""
    times = []
    for _ in range(20):
        async with turnlog.open(_url(args)) as store:
            start = time.perf_counter()
            page = await store.tail(args["id"], 50)
            times.append(time.perf_counter() - start)
            assert len(page.events) == 50
    return {"total_s": _percentile(times, 0.5)}


async def listing(args: Args) -> Figures:
    """List everything cold, then the first page warm."""
    async with turnlog.open(_url(args)) as store:
        start = time.perf_counter()
        count = len([None async for _ in store.list()])
        cold = time.perf_counter() - start
        start = time.perf_counter()
        page = len([None async for _ in store.list(limit=50)])
        warm = time.perf_counter() - start
    return {"total_s": cold, "sessions": count, "page_s": warm, "page": page}


async def fill(args: Args) -> Figures:
    """Write one session of `events` chunk events in turns of 500, for the reading jobs."""
    async with turnlog.open(_url(args)) as store, store.create(id=args["id"], cwd="/bench") as session:
        number = 0
        while session.seq < args["events"]:
            number += 1
            session.append("turn/start", {"turn": number})
            session.append("step/start", {"turn": number, "step": 1})
            for k in range(496):
                session.append_chunk(number, 1, _delta(k))
            session.append("step/end", {"turn": number, "step": 1})
            session.append("turn/end", {"turn": number, "reason": {"kind": "completed"}})
            if number % 4 == 0:
                await session.flush()
        size = session.seq
    return {"events": size}


async def fill_many(args: Args) -> Figures:
    """Write `sessions` short sessions in 50 projects, for the listing job."""
    async with turnlog.open(_url(args)) as store:
        for base in range(0, args["sessions"], 100):
            batch = [
                await store.create(id=f"l-{k}", cwd=f"/bench/{k % 50}")
                for k in range(base, min(base + 100, args["sessions"]))
            ]
            for session in batch:
                _turn(session, 1)
            await asyncio.gather(*(s.aclose() for s in batch))
    return {"sessions": args["sessions"]}


async def start(_: Args) -> Figures:
    """What a process costs that has imported turnlog and opened a store."""
    async with turnlog.open("memory:"):
        return {}


JOBS: dict[str, Callable[[Args], Coroutine[Any, Any, Figures]]] = {
    job.__name__: job
    for job in (
        append,
        stream,
        turns,
        single,
        beside_floors,
        create,
        inspect,
        tail,
        listing,
        fill,
        fill_many,
        start,
        export_fill,
        export_load,
        export_one,
    )
}


def main() -> None:
    """Run the job that the command line names."""
    job, args = JOBS[sys.argv[1]], json.loads(sys.argv[2]) if len(sys.argv) > 2 else {}
    figures = asyncio.run(job(args))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(json.dumps({**figures, "peak_rss": peak}))


if __name__ == "__main__":
    main()
