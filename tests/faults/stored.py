"""Small steps of tests that store a log and look at it behind the store's back.

Owns writing and reading of one session, and the pieces of its file. Stores of each kind are in `stores`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import turnlog
from tests.faults.stores import JsonlPlace
from turnlog import SessionEvent
from turnlog.events import frames
from turnlog.testing.scripts import dicts


def note(seq: int, text: str = "x") -> dict[str, Any]:
    """Return one event that stands by itself."""
    return {"type": "feedback/record", "seq": seq, "time": 1, "data": {"text": text}}


def notes(count: int, first: int = 0) -> list[SessionEvent]:
    """Return some of these events in a row."""
    return [SessionEvent.from_dict(note(seq)) for seq in range(first, first + count)]


async def keep(
    store: turnlog.SessionStore, events: Sequence[SessionEvent], session_id: str = "s", *, each: bool = False
) -> None:
    """Store a log, in one batch or each event in a batch of its own."""
    async with store.create(id=session_id, cwd="/srv/app") as session:
        await store.ensure_materialized(session.id)
    for batch in [[event] for event in events] if each else [events]:
        await store.append(session_id, dicts(batch))


async def read(store: turnlog.SessionStore, session_id: str = "s") -> list[SessionEvent]:
    """Return the stored events."""
    return list((await store.read_from(session_id, 0)).events)


def log_file(place: JsonlPlace) -> Path:
    """Return the log of the only session."""
    (path,) = place.root.rglob("session.jsonl*")
    return path


def tree(place: JsonlPlace) -> dict[str, bytes]:
    """Return every file of a root."""
    return {str(p): p.read_bytes() for p in sorted(place.root.rglob("*")) if p.is_file()}


def pieces(path: Path) -> list[bytes]:
    """Return the lines or frames of a good log; the first one is its header."""
    data = path.read_bytes()
    if path.suffix == ".zstd":
        return [data[start:end] for start, end in frames.scan(data).spans]
    return data.splitlines(keepends=True)


def strict_lines(path: Path) -> list[dict[str, Any]]:
    """Parse every line of a log, which must be strict JSON and end with a newline."""
    stored = pieces(path)
    text = b"".join(map(frames.decompress, stored) if path.suffix == ".zstd" else stored)
    assert text.endswith(b"\n")
    return [json.loads(line, parse_constant=_refuse) for line in text.split(b"\n")[:-1]]


def _refuse(word: str) -> None:
    raise ValueError(f"{word} is not JSON")
