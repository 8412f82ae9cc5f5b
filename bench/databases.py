"""Databases: turnlog on SQLite beside other Python session stores on SQLite, on the same durable work.

Owns the peers' environment, turnlog's side of this work, and the part of the report. The peers' calls are in
`peers`, the events in `turns`. Usage for one job: python -m bench.databases '{"url": ..., ...}'
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from bench.measure import ROOT, Figures, in_turn
from bench.turns import turn_events

HERE = Path(__file__).parent
REQUIREMENTS = HERE / "peers-requirements.txt"
ENVIRONMENT = HERE / ".peers-venv"
SESSIONS = 100
SYNCS_COUNTED = (2, 7)
"""Turns of the two runs between which syncs are counted."""
LABELS = {
    "langgraph": "LangGraph AsyncSqliteSaver.aput_writes",
    "openai_agents": "openai-agents SQLiteSession.add_items",
    "eventsourcing": "eventsourcing SQLite recorder",
    "pydantic_ai_harness": "pydantic-ai-harness SqliteStepStore.append_event",
    "adk": "ADK DatabaseSessionService.append_event (SQLite)",
}


class Scale(Protocol):
    """What this part asks of a run's scale."""

    @property
    def runs(self) -> int: ...
    @property
    def flushes(self) -> int: ...


def install_peers() -> Path:
    """Make the peers' environment if it is not the one that is pinned; return its Python."""
    python = ENVIRONMENT / "bin" / "python"
    stamp = ENVIRONMENT / ".installed"
    if not stamp.exists() or stamp.read_text() != REQUIREMENTS.read_text():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(ENVIRONMENT)], check=True)
        command = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
        subprocess.run([*command, "-r", str(REQUIREMENTS)], check=True)
        stamp.write_text(REQUIREMENTS.read_text())
    return python


async def ours(args: dict[str, Any]) -> Figures:
    """Turnlog's side: every session appends a turn's events and flushes, all sessions at once."""
    import turnlog

    async with turnlog.open(args["url"]) as store:
        sessions = [await store.create(id=f"s-{k}", cwd="/bench") for k in range(args["sessions"])]

        async def one(session: turnlog.LiveSession, first: int, last: int) -> None:
            for number in range(first, last + 1):
                for type, data in turn_events(number):
                    if type == "assistant/chunk":
                        session.append_chunk(data["turn"], data["step"], data["chunk"])
                    else:
                        session.append(type, data)
                await session.flush()

        await asyncio.gather(*(one(session, 1, 1) for session in sessions))
        start = time.perf_counter()
        await asyncio.gather(*(one(session, 2, args["turns"] + 1) for session in sessions))
        total = time.perf_counter() - start
    return {"total_s": total, "flushes": args["sessions"] * args["turns"], "failed": 0}


def run_job(command: list[str]) -> Figures:
    """Run one side's job in a process of its own; it prints its figures as one JSON line."""
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{ROOT / 'src'}"}
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, env=environment, timeout=900
    )
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
    figures: Figures = json.loads(done.stdout.strip().splitlines()[-1])
    return figures


def _counted(who: str, python: Path, turns: int, folder: Path) -> list[str]:
    folder.mkdir()
    return _command(who, folder, python, turns)


def _command(who: str, folder: Path, python: Path, turns: int) -> list[str]:
    if who in LABELS:
        args = {"root": str(folder), "sessions": SESSIONS, "turns": turns}
        return [str(python), "-m", "bench.peers", who, json.dumps(args)]
    url = f"sqlite:{folder}/ours.db" if who == "sqlite" else f"jsonl:{folder}?compression=none"
    job = json.dumps({"url": url, "sessions": SESSIONS, "turns": turns})
    return [sys.executable, "-m", "bench.databases", job]


def syncs_per_flush(command: Callable[[int, Path], list[str]], place: Path) -> float | None:
    """Run a job of few turns and one of more under strace; what more syncs the second makes, per flush.

    So opening, creating and closing do not count.
    """
    if shutil.which("strace") is None:
        return None
    calls, flushes = [], []
    for turns in SYNCS_COUNTED:
        with tempfile.TemporaryDirectory(dir=place, ignore_cleanup_errors=True) as folder:
            trace = Path(folder) / "trace"
            strace = ["strace", "-f", "-qq", "-o", str(trace), "-e", "trace=fsync,fdatasync"]
            figures = run_job([*strace, *command(turns, Path(folder) / "store")])
            calls.append(sum(b"sync(" in line for line in trace.read_bytes().splitlines()))
            flushes.append(figures["flushes"])
    return (calls[1] - calls[0]) / (flushes[1] - flushes[0])


def databases(scale: Scale, place: Path) -> Iterator[Any]:
    """100 sessions that make a turn of 26 events durable, all at once, on each store."""
    from bench.run import Row

    python = install_peers()
    turns = max(2, scale.flushes // 50)
    names = ["sqlite", "jsonl", *LABELS]

    def contestant(who: str) -> Callable[[Path], Figures]:
        return lambda folder: run_job(_command(who, folder, python, turns))

    found = in_turn(max(1, scale.runs // 2), {who: contestant(who) for who in names}, place)
    syncs: dict[str, float | None] = {}
    for who in names:
        syncs[who] = syncs_per_flush(partial(_counted, who, python), place)
    rates = {who: figures["flushes"] / figures["total_s"] for who, figures in found.items()}

    def shown(who: str) -> str:
        cost = syncs[who]
        return f"{rates[who]:,.0f} flushes/s" + ("" if cost is None else f", {cost:.2f} syncs each")

    name = f"{SESSIONS} sessions, flush per 26-event turn, SQLite"
    ratio = rates["sqlite"] / rates["jsonl"]
    yield Row(
        f"{name}, against plain JSONL", shown("sqlite"), shown("jsonl"), f"{ratio:.1f} ×", "≥ 1 ×", ratio >= 1
    )
    for who, label in LABELS.items():
        journal = "WAL" if found[who]["wal"] else "rollback journal"
        lost = found[who]["failed"]
        refused = f", {lost:,.0f} appends refused" if lost else ""
        ratio = rates["sqlite"] / rates[who]
        beside = f"{label}: {shown(who)} ({journal}, synchronous=FULL){refused}"
        yield Row(name, shown("sqlite"), beside, f"{ratio:.1f} ×", "> 1 ×", ratio > 1)


if __name__ == "__main__":
    print(json.dumps(asyncio.run(ours(json.loads(sys.argv[1])))))
