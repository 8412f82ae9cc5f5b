"""Roots laid out as the recorded cases say, and one JSONL store over each."""

from __future__ import annotations

import base64
import contextlib
import hashlib
from collections.abc import AsyncIterator, Iterable, Mapping
from pathlib import Path
from typing import Any

from turnlog.backends.jsonl.backend import JsonlBackend
from turnlog.backends.jsonl.files import FileLayer
from turnlog.events.ecmascript import canonical
from turnlog.events.envelope import SessionEvent
from turnlog.events.header import SessionHeader
from turnlog.persistence.backend import StoredEntry
from turnlog.persistence.coordinator import PersistenceCoordinator
from turnlog.session.registry import SessionRegistry
from turnlog.session.session import Session


def lay_out(root: Path, files: Mapping[str, Mapping[str, str]]) -> None:
    """Write the files of a case below `root`."""
    for name, content in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        data = base64.b64decode(content["b64"]) if "b64" in content else content["text"].encode()
        path.write_bytes(data)


@contextlib.asynccontextmanager
async def opened(
    root: Path, compression: str | None = None, *, files: FileLayer | None = None
) -> AsyncIterator[PersistenceCoordinator]:
    """Open a store on a root, in whatever encoding the root is, and close it afterwards."""
    backend = JsonlBackend(root, compression=compression, mixed=True, files=files)
    registry: SessionRegistry[Session] = SessionRegistry()
    coordinator = PersistenceCoordinator(backend, registry)
    try:
        yield coordinator
    finally:
        await coordinator.aclose()


async def listed(coordinator: PersistenceCoordinator) -> list[StoredEntry]:
    """List a store."""
    return [entry async for entry in coordinator.list()]


def plain_header(meta: SessionHeader) -> dict[str, Any]:
    """Return a header as the original shows it: without the keys that it drops."""
    shown = {key: value for key, value in meta.to_dict().items() if key not in meta.extra}
    return {"delegationDepth": 0} | shown


def digest(events: Iterable[SessionEvent]) -> str:
    """Return the first eight digits of the digest by which the cases name a list of events."""
    text = "[" + ",".join(canonical(event.to_dict()) for event in events) + "]"
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()[:8]
