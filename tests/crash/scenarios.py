"""What the writers of the crash lane do, and the checks that every kill must leave true.

Owns the scripts of the four write paths (materialise, append, repair, takeover) and the one check after a
death. How a writer is killed is up to `killpoints` and `test_random_kills`.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import turnlog
from turnlog import LiveSession, SessionEvent

SESSION_ID = "crash"
CWD = "/srv/app"


def store_url(root: Path, compression: str) -> str:
    """The URL of the store under test; `sqlite` in the place of an encoding means a database in the root."""
    if compression == "sqlite":
        return f"sqlite:{root}/sessions.db"
    return f"jsonl:{root}?compression={compression}"


def acknowledge(fd: int, session: LiveSession) -> None:
    """Tell the parent which seqs are acknowledged: one line, one write."""
    os.write(fd, b"%d\n" % session.durable_seq)


def add_turn(session: LiveSession, number: int, *, until: str = "end") -> None:
    """Append one turn with chunks and two tool calls; stop after `until` ("call", "result" or "end")."""
    session.append("turn/start", {"turn": number})
    session.append("step/start", {"turn": number, "step": 1})
    session.append(
        "user/message",
        {
            "content": [{"type": "text", "text": f"question {number} é \ud83d"}],
            "source": {"kind": "user"},
            "role": "user",
            "id": f"u-{number}",
        },
        surface_op="append",
    )
    for k in range(6):
        chunk = {"type": "text-delta", "index": 0, "text": f"word {k} "}
        session.append("assistant/chunk", {"turn": number, "step": 1, "chunk": chunk})
    calls = [f"c-{number}-a", f"c-{number}-b"]
    blocks: list[dict[str, Any]] = [{"type": "text", "text": "let me look"}]
    blocks += [{"type": "tool-call", "id": call, "name": "shell", "arguments": "{}"} for call in calls]
    message = {
        "role": "assistant",
        "content": blocks,
        "source": {"kind": "model", "provider": "acme", "model": "a1"},
        "id": f"m-{number}",
    }
    session.append(
        "assistant/message",
        {"turn": number, "step": 1, "message": message},
        surface_op="append",
        source_event_seqs=[],
    )
    first = session.append(
        "tool/call", {"turn": number, "step": 1, "callId": calls[0], "name": "shell", "arguments": "{}"}
    )
    if until == "call":
        return
    session.append(
        "tool/result", _result(number, calls[0]), surface_op="append", source_event_seqs=[first.seq]
    )
    if until == "result":
        return
    second = session.append(
        "tool/call", {"turn": number, "step": 1, "callId": calls[1], "name": "shell", "arguments": "{}"}
    )
    session.append(
        "tool/result", _result(number, calls[1]), surface_op="append", source_event_seqs=[second.seq]
    )
    session.append("step/end", {"turn": number, "step": 1})
    session.append("turn/end", {"turn": number, "reason": {"kind": "completed"}})


def _result(number: int, call: str) -> dict[str, Any]:
    block = {
        "type": "tool-result",
        "toolCallId": call,
        "content": [{"type": "text", "text": "ok"}],
        "isError": False,
    }
    message = {
        "source": {"kind": "tool", "callId": call},
        "content": [block],
        "role": "user",
        "id": f"r-{call}",
    }
    return {"turn": number, "step": 1, "message": message}


@dataclass(frozen=True, slots=True)
class Scenario:
    """One write path; `prepare` runs untraced before, `write` is what gets killed."""

    name: str
    compression: str

    def prepare(self, root: Path) -> int:
        """Lay out what the writer finds; return how many events are acknowledged already."""
        if self.name == "materialise":
            return 0
        until = "result" if self.name == "repair" else "end"
        durable = asyncio.run(_record(root, self.compression, until))
        if self.name == "repair" and self.compression != "sqlite":  # a database has no torn tail
            _tear(root)
        return durable

    def write(self, root: Path, ack: int) -> None:
        """Run the write path, acknowledging on `ack`."""
        asyncio.run(_WRITERS[self.name](root, self.compression, ack))


async def _record(root: Path, compression: str, until: str) -> int:
    async with turnlog.open(store_url(root, compression)) as store:
        session = await store.create(id=SESSION_ID, cwd=CWD, strict=False)
        add_turn(session, 1)
        await session.flush()
        add_turn(session, 2, until=until)
        await session.flush()
        return session.durable_seq


def _tear(root: Path) -> None:
    """Leave the last batch half-written, as a power cut in the middle of an append does."""
    (log,) = root.glob("*/*/session.jsonl*")
    with log.open("ab") as file:
        file.write(log.read_bytes()[-40:-3] if log.suffix == ".zstd" else b'{"type":"turn/sta')


async def _materialise(root: Path, compression: str, ack: int) -> None:
    async with turnlog.open(store_url(root, compression)) as store:
        session = await store.create(id=SESSION_ID, cwd=CWD)
        add_turn(session, 1, until="call")
        await session.flush()
        acknowledge(ack, session)


async def _append(root: Path, compression: str, ack: int) -> None:
    async with turnlog.open(store_url(root, compression)) as store:
        session = await store.resume(SESSION_ID)
        for number in (session.next_turn, session.next_turn + 1):
            add_turn(session, number)
            await session.flush()
            acknowledge(ack, session)
        add_turn(session, session.next_turn, until="call")
        await session.flush()
        acknowledge(ack, session)


async def _repair(root: Path, compression: str, ack: int) -> None:
    async with turnlog.open(store_url(root, compression)) as store:
        loaded = await store.load(SESSION_ID)
        os.write(ack, b"%d\n" % len(loaded.events))


async def _takeover(root: Path, compression: str, ack: int) -> None:
    async with turnlog.open(store_url(root, compression)) as store:
        session = await store.resume(SESSION_ID, takeover=True)
        acknowledge(ack, session)
        add_turn(session, session.next_turn, until="call")
        await session.flush()
        acknowledge(ack, session)


_WRITERS = {"materialise": _materialise, "append": _append, "repair": _repair, "takeover": _takeover}


class StoppedHolder:
    """Another process that holds the session's claim and is stopped, for the takeover scenario."""

    def __init__(self, root: Path, compression: str) -> None:
        ready_read, ready_write = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            try:
                asyncio.run(self._hold(root, compression, ready_write))
            finally:
                os._exit(0)
        os.close(ready_write)
        os.read(ready_read, 1)
        os.close(ready_read)
        os.kill(self.pid, signal.SIGSTOP)

    async def _hold(self, root: Path, compression: str, ready: int) -> None:
        store = await turnlog.open(store_url(root, compression))
        await store.resume(SESSION_ID)
        os.write(ready, b"r")
        await asyncio.sleep(120)

    def end(self) -> None:
        """Kill and reap the holder."""
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


def check_after_kill(root: Path, compression: str, acknowledged: int) -> int:
    """Check everything that a kill must leave true; return how many events the log holds after the resume.

    Nothing acknowledged is missing, the session loads, a reader writes nothing, every call has a result after
    the repair, and a second repair adds nothing.
    """
    return asyncio.run(_check(root, compression, acknowledged))


async def _check(root: Path, compression: str, acknowledged: int) -> int:
    async with turnlog.open(store_url(root, compression)) as store:
        try:
            before = _tree(root)
            seen = await store.inspect(SESSION_ID)
        except turnlog.SessionNotFoundError:
            assert acknowledged == 0, f"{acknowledged} acknowledged events are gone"
            return 0
        assert _tree(root) == before, "a reader wrote"
        assert len(seen.events) - len(seen.closers) >= acknowledged, "an acknowledged event is missing"
        repaired = await store.load(SESSION_ID)
        events = list(repaired.events)
        _check_answers(events)
        again = await store.load(SESSION_ID)
        assert len(again.events) == len(events), "a second repair added events"
        async with store.resume(SESSION_ID) as session:
            assert session.open_turn is None
            add_turn(session, session.next_turn)
            await session.flush()
            final = session.durable_seq
        assert [e.to_dict() for e in (await store.load(SESSION_ID)).events][: len(events)] == [
            e.to_dict() for e in events
        ]
        return final


def _check_answers(events: list[SessionEvent]) -> None:
    """Every requested call has exactly one result, and every turn has its end."""
    requested: list[str] = []
    answered: list[str] = []
    turns = 0
    for event in events:
        if event.type == "assistant/message":
            requested += [b["id"] for b in event.data["message"]["content"] if b["type"] == "tool-call"]
        elif event.type == "tool/result":
            answered.append(event.data["message"]["source"]["callId"])
        turns += {"turn/start": 1, "turn/end": -1}.get(event.type, 0)
    assert sorted(requested) == sorted(answered), json.dumps({"requested": requested, "answered": answered})
    assert turns == 0, "a turn is open after the repair"


def _tree(root: Path) -> dict[str, bytes]:
    """Every file but what SQLite coordinates readers with: its shared memory, and a log without a byte."""
    found = {str(p): p.read_bytes() for p in sorted(root.rglob("*")) if p.is_file()}
    return {
        name: data
        for name, data in found.items()
        if not name.endswith("-shm") and (data or not name.endswith("-wal"))
    }
