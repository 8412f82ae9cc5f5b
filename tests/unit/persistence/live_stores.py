"""Real stores over real backends for the tests of live sessions: open, reopen, and read what is stored."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from turnlog.backends.jsonl.backend import JsonlBackend
from turnlog.backends.memory import MemoryBackend, MemoryMedium
from turnlog.events.envelope import SessionEvent
from turnlog.persistence.attachments import AttachmentStore
from turnlog.persistence.backend import PersistenceBackend
from turnlog.persistence.coordinator import PersistenceCoordinator
from turnlog.persistence.live_session import LiveSession
from turnlog.persistence.store import SessionStore
from turnlog.session.invariants import check_invariants
from turnlog.session.registry import SessionRegistry
from turnlog.testing.faulty_backend import FaultyBackend

CONFIG = {"provider": "acme", "model": "a1"}
KINDS = ("memory", "jsonl")


class Place:
    """One medium, on which stores are opened one after another or side by side."""

    def __init__(self, kind: str, root: Path) -> None:
        self.kind = kind
        medium = MemoryMedium()
        makers: dict[str, Callable[[], PersistenceBackend]] = {
            "memory": lambda: MemoryBackend(medium),
            "jsonl": lambda: JsonlBackend(root / "root"),
        }
        self._make = makers[kind]
        self._opened: list[SessionStore] = []

    def open(self, **options: Any) -> tuple[SessionStore, FaultyBackend]:
        """Open a store; the second value injects faults into its backend."""
        faults = FaultyBackend(self._make())
        registry = SessionRegistry(session_type=LiveSession)
        options.setdefault("write_window", 60.0)
        coordinator = PersistenceCoordinator(faults, registry, **options)
        store = SessionStore(coordinator, registry, AttachmentStore(None))
        self._opened.append(store)
        return store, faults

    async def stored(self, session_id: str) -> list[SessionEvent]:
        """Read the stored events of a session through a store of their own."""
        store, _ = self.open()
        async with store:
            return list((await store.read_from(session_id, 0)).events)

    def forget(self) -> None:
        """Let go of every store whose loop is gone, as a forked child does."""
        for store in self._opened:
            store._coordinator.forget()
        self._opened.clear()

    async def aclose(self) -> None:
        """Close every store that a test left open, whatever it has to say."""
        for store in self._opened:
            try:
                await store.aclose()
            except ExceptionGroup:
                continue


def types(session: LiveSession | list[SessionEvent]) -> list[str]:
    """List the event types of a session."""
    events = session.events if isinstance(session, LiveSession) else session
    return [event.type for event in events]


def results(session: LiveSession) -> dict[str, dict[str, Any]]:
    """Return the data of every tool result by call id, with its `sources` beside."""
    found = {}
    for event in session.events:
        if event.type == "tool/result":
            data = dict(event.data)
            data["sources"] = event.source_event_seqs
            found[data["message"]["source"]["callId"]] = data
    return found


def code(session: LiveSession, call_id: str) -> str | None:
    """Return the error code of the result of a call, None when it has none."""
    failure = results(session)[call_id].get("error")
    return None if failure is None else str(failure["code"])


def text(session: LiveSession, call_id: str) -> str:
    """Return the text of the result of a call."""
    return str(results(session)[call_id]["message"]["content"][0]["content"][0]["text"])


def ending(session: LiveSession) -> Any:
    """Return the reason of the last `turn/end`."""
    return next(event for event in reversed(session.events) if event.type == "turn/end").data["reason"]


def call_block(call_id: str, name: str = "shell") -> dict[str, Any]:
    """Make the block by which an answer requests a call."""
    return {"type": "tool-call", "id": call_id, "name": name, "arguments": "{}"}


def is_well_ordered(session: LiveSession) -> bool:
    """Tell whether every turn, step and call of the log is closed and in order (L4)."""
    return check_invariants(session.events) == [] and session.open_turn is None
