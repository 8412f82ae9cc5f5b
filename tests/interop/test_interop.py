"""Both ways against the original's published packages: same events, closers, messages and bytes."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

import turnlog
from tests.faults.lanes import need
from tests.interop.logs import (
    COMPRESSIONS,
    META,
    SESSION_ID,
    Batches,
    batched_logs,
    canon,
    fresh_root,
    inspect_ours,
    log_bytes,
    write_ours,
    write_theirs,
)
from tests.interop.peer_process import Peer

EXAMPLES = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@pytest.mark.parametrize("compression", COMPRESSIONS)
@EXAMPLES
@given(batches=batched_logs())
def test_the_original_reads_what_turnlog_writes(
    compression: str, batches: Batches, peer: Peer, tmp_path: Path
) -> None:
    """A log written by turnlog gives the original the same events and the same closers (R1)."""
    root = fresh_root(tmp_path)
    asyncio.run(write_ours(root, compression, batches))
    events = [event for batch in batches for event in batch]
    theirs = peer.ask("inspect", root=str(root), compression=compression, id=SESSION_ID)
    expected = [*events, *turnlog.interrupted_turn_closers(events)]
    assert canon(theirs["events"]) == canon(expected)
    assert theirs["meta"] == {**META.to_dict(), "delegationDepth": 0}


@pytest.mark.parametrize("compression", COMPRESSIONS)
@EXAMPLES
@given(batches=batched_logs())
def test_turnlog_reads_what_the_original_writes(
    compression: str, batches: Batches, peer: Peer, tmp_path: Path
) -> None:
    """A log written by the original gives turnlog the same events, closers and model messages (R1, L3)."""
    root = fresh_root(tmp_path)
    write_theirs(peer, root, compression, batches)
    ours = asyncio.run(inspect_ours(root, None))
    theirs = peer.ask("inspect", root=str(root), compression=compression, id=SESSION_ID)
    assert canon(list(ours.events)) == canon(theirs["events"])
    derived = peer.ask("derive", id=SESSION_ID, events=theirs["events"])
    assert turnlog.derive_messages(ours.events) == derived["messages"]


@pytest.mark.parametrize("compression", COMPRESSIONS)
@EXAMPLES
@given(batches=batched_logs())
def test_both_write_the_same_bytes(compression: str, batches: Batches, peer: Peer, tmp_path: Path) -> None:
    """The same batches give the same file: plain always, zstd where both have library 1.5.7."""
    ours, theirs = fresh_root(tmp_path), fresh_root(tmp_path)
    asyncio.run(write_ours(ours, compression, batches))
    write_theirs(peer, theirs, compression, batches)
    if compression == "zstd":
        theirs_is_same = peer.ask("versions")["zstd"] == "1.5.7"
        need(theirs_is_same, "the original's zstd library is not 1.5.7; use the Node that the lane installs")
    assert log_bytes(ours) == log_bytes(theirs)
    assert [p.relative_to(ours) for p in ours.glob("*/*/session.jsonl*")] == [
        p.relative_to(theirs) for p in theirs.glob("*/*/session.jsonl*")
    ]


@EXAMPLES
@given(batches=batched_logs())
def test_same_answers_to_the_same_questions(batches: Batches, peer: Peer) -> None:
    """Closers have the same bytes in the same key order, and runs are packed alike."""
    events = [event for batch in batches for event in batch]
    plain = [event.to_dict() for event in events]
    ours = turnlog.interrupted_turn_closers(events)
    assert [e.to_dict() for e in ours] == peer.ask("closers", events=plain)


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_a_session_of_the_original_is_continued_by_turnlog_and_read_again(
    compression: str, peer: Peer, tmp_path: Path
) -> None:
    """A directory of the original is listed, inspected and continued here, and read by the original again."""
    started: list[tuple[str, dict[str, Any], dict[str, Any] | None]] = [
        ("turn/start", {"turn": 1}, None),
        ("step/start", {"turn": 1, "step": 1}, None),
        (
            "assistant/message",
            {
                "turn": 1,
                "step": 1,
                "message": {
                    "role": "assistant",
                    "content": [{"type": "tool-call", "id": "c1", "name": "shell", "arguments": "{}"}],
                    "source": {"kind": "model", "provider": "acme", "model": "a1"},
                    "id": "m-1",
                },
            },
            {"surfaceOp": "append"},
        ),
        ("tool/call", {"turn": 1, "step": 1, "callId": "c1", "name": "shell", "arguments": "{}"}, None),
    ]
    plain = [
        {"type": t, "seq": n, "time": 1000 + n, "data": d, **(o or {})} for n, (t, d, o) in enumerate(started)
    ]
    peer.ask("write", root=str(tmp_path), compression=compression, meta=META.to_dict(), batches=[plain])
    last = asyncio.run(_continue(tmp_path))
    theirs = peer.ask("load", root=str(tmp_path), compression=compression, id=SESSION_ID)
    assert len(theirs["events"]) == last
    assert theirs["events"][-1]["data"]["reason"] == {"kind": "completed"}
    resumed = peer.ask(
        "resume", root=str(tmp_path), compression=compression, id=SESSION_ID, appends=started[:1]
    )
    assert [event["type"] for event in resumed["events"][last:]] == ["session/end-seed", "turn/start"]
    asyncio.run(_read_again(tmp_path, len(resumed["events"])))


async def _continue(root: Path) -> int:
    """List, inspect, resume and finish a turn with turnlog; return the length of the log."""
    async with turnlog.open(f"jsonl:{root}") as store:
        (info,) = [entry async for entry in store.list()]
        assert (info.session_id, info.status) == (SESSION_ID, "interrupted")
        seen = await store.inspect(SESSION_ID)
        assert [e.type for e in seen.closers] == ["tool/result", "step/end", "turn/end"]
        async with store.resume(SESSION_ID) as session:
            async with session.turn() as turn:
                turn.user("go on")
            await session.flush()
            return session.durable_seq


async def _read_again(root: Path, stored: int) -> None:
    """What the original appended after turnlog is read by turnlog, the open turn closed."""
    async with turnlog.open(f"jsonl:{root}") as store:
        loaded = await store.load(SESSION_ID)
        assert len(loaded.events) == stored + 1
        assert loaded.events[-1].data["reason"] == {"kind": "interrupted"}
