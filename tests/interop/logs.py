"""Logs for the interop lane: drawn events cut into batches, written by either side, compared as they read.

Owns the drawing and the two writers. Does not own the questions asked (the tests).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from tests.interop.peer_process import Peer
from turnlog.backends.jsonl.backend import JsonlBackend
from turnlog.events.ecmascript import canonical
from turnlog.events.envelope import SessionEvent
from turnlog.events.header import SessionHeader
from turnlog.persistence.coordinator import PersistenceCoordinator
from turnlog.persistence.service import SessionInspection
from turnlog.session.registry import SessionRegistry
from turnlog.testing.log_strategies import session_logs

COMPRESSIONS = ("none", "zstd")
SESSION_ID = "demo-1"
META = SessionHeader(id=SESSION_ID, created_at=1_700_000_000_000, cwd="/srv/app")

Batches = list[list[SessionEvent]]

_numbers = itertools.count()


@st.composite
def batched_logs(draw: Any) -> Batches:
    """Draw a log of types that the original knows, cut into non-empty durable batches."""
    events = draw(session_logs().filter(bool))
    cuts = sorted(draw(st.sets(st.integers(1, max(1, len(events) - 1)), max_size=4)))
    return [part for part in (events[a:b] for a, b in itertools.pairwise([0, *cuts, len(events)])) if part]


def fresh_root(folder: Path) -> Path:
    """A new root for one example."""
    return folder / f"root-{next(_numbers)}"


def coordinator(root: Path, compression: str | None) -> PersistenceCoordinator:
    """turnlog's persistence over a JSONL root."""
    return PersistenceCoordinator(JsonlBackend(root, compression=compression), SessionRegistry())


async def write_ours(root: Path, compression: str, batches: Batches) -> None:
    """Write the batches with turnlog, one durable append each."""
    persistence = coordinator(root, compression)
    await persistence.create(META)
    for batch in batches:
        await persistence.append(SESSION_ID, batch)
    await persistence.aclose()


def write_theirs(peer: Peer, root: Path, compression: str, batches: Batches) -> None:
    """Write the batches with the original, one durable append each."""
    peer.ask(
        "write",
        root=str(root),
        compression=compression,
        meta=META.to_dict(),
        batches=[[event.to_dict() for event in batch] for batch in batches],
    )


async def inspect_ours(root: Path, compression: str | None) -> SessionInspection:
    """Inspect with turnlog."""
    persistence = coordinator(root, compression)
    try:
        return await persistence.inspect(SESSION_ID)
    finally:
        await persistence.aclose()


def canon(events: Sequence[SessionEvent] | Sequence[dict[str, Any]]) -> list[str]:
    """Events as canonical text, whatever the order of their keys."""
    return [canonical(e.to_dict() if isinstance(e, SessionEvent) else e) for e in events]


def log_bytes(root: Path) -> bytes:
    """The bytes of the one log below `root`."""
    (log,) = root.glob("*/*/session.jsonl*")
    return log.read_bytes()
