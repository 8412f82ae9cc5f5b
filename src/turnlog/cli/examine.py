"""What one session's log is like, as far as it can be read: the facts behind `turnlog inspect`.

Owns the joining of what a listing, an inspection and a scan of damaged bytes say. Never writes.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import turnlog
from turnlog.cli.targets import relocated
from turnlog.errors import (
    CorruptLogError,
    LogError,
    SessionNotFoundError,
    UnsupportedFormatError,
    UsageError,
)
from turnlog.events.batch import StoredFrame
from turnlog.events.chunk_runs import Row
from turnlog.persistence.backend import Status
from turnlog.persistence.service import SessionInspection, TornTail
from turnlog.transcripts.blocks import record


@dataclass(slots=True)
class Examination:
    """Everything `inspect` says about one log."""

    session_id: str
    header: turnlog.SessionHeader | None
    status: Status
    event_count: int = 0
    """Stored events that can be read, those in a torn tail included, closers not."""
    turns: int = 0
    steps: int = 0
    closers: tuple[turnlog.SessionEvent, ...] = ()
    torn: TornTail | None = None
    damage: list[dict[str, Any]] = field(default_factory=list)
    problem: str | None = None
    """What is wrong with a corrupt or unsupported log, in one sentence."""

    def as_json(self) -> dict[str, Any]:
        """Return the facts for programs, in the shape that is an interface."""
        torn = self.torn
        return {
            "header": self.header.to_dict() if self.header is not None else {},
            "event_count": self.event_count,
            "status": self.status,
            "closers": [closer.type for closer in self.closers],
            "torn": None
            if torn is None
            else {"offset": torn.offset, "bytes": torn.size, "recovered_events": torn.recovered_events},
            "damage": self.damage,
            "turns": self.turns,
            "steps": self.steps,
        }


def closer_name(event: dict[str, Any]) -> str:
    """Name a closing event by what it says, such as `tool/result c-2 TOOL_OUTCOME_UNKNOWN`.

    Args:
        event: The event as a dictionary.

    Returns:
        Its type and what tells it apart; not yet safe for a terminal.
    """
    data = record(event.get("data"))
    parts: list[object] = [event.get("type")]
    if parts == ["tool/result"]:
        call = record(record(data.get("message")).get("source")).get("callId")
        parts += [call, record(data.get("error")).get("code", "")]
    elif parts == ["turn/end"]:
        parts.append(record(data.get("reason")).get("kind", ""))
    return " ".join(str(part) for part in parts if part)


async def status_of(store: turnlog.SessionStore, session_id: str) -> turnlog.SessionInfo:
    """Return what a listing says about one session.

    Args:
        store: The open store.
        session_id: The whole id.

    Returns:
        Its entry.

    Raises:
        SessionNotFoundError: The store has no such session.
    """
    # Listings are ordered by id where backends can, so only ids that share nearly all of it come before.
    for after in dict.fromkeys((session_id[:-1] or None, None)):
        async for info in store.list(after=after):
            if info.session_id == session_id:
                return info
    raise SessionNotFoundError(session_id=session_id)


async def examine(
    store: turnlog.SessionStore, session_id: str, *, copied_from: str | None = None
) -> Examination:
    """Say what a log holds, damaged or not.

    Args:
        store: The open store.
        session_id: The whole id.
        copied_from: The file that people know, where the store holds a temporary copy of it.

    Returns:
        The facts; damage and unknown formats are facts, too.

    Raises:
        SessionNotFoundError: The store has no such session.
        BackendError: The medium failed.
    """
    info = await status_of(store, session_id)
    found = Examination(session_id, info.header, info.status)
    try:
        inspection = await store.inspect(session_id)
    except CorruptLogError as error:
        found.status, found.problem = "corrupt", str(_about(error, copied_from))
        await _add_readable(store, found)
        if not found.damage:
            found.damage.append({"line": error.line, "offset": error.offset, "kind": error.kind})
    except UnsupportedFormatError as error:
        found.status, found.problem = "unsupported", str(_about(error, copied_from))
        await _add_readable(store, found)
        found.damage.clear()
    else:
        _add_inspection(found, inspection, is_live=info.status == "live")
    return found


def _about(error: LogError, copied_from: str | None) -> LogError:
    return error if copied_from is None else relocated(error, copied_from)


def _add_inspection(found: Examination, inspection: SessionInspection, *, is_live: bool) -> None:
    found.header = inspection.meta
    found.event_count = len(inspection.events) - len(inspection.closers)
    _count(found, inspection.events.rows)
    if is_live or inspection.live:
        # A writer is at work: an open turn is running, and the end of the file may be half of its next write.
        found.status = "live"
        return
    found.closers = inspection.closers
    found.torn = inspection.torn
    found.status = "torn" if found.torn else "interrupted" if found.closers else "ok"


async def _add_readable(store: turnlog.SessionStore, found: Examination) -> None:
    """Count what can be read around the damage, and name the damaged places."""
    # A backend that cannot scan, or no single log to scan: the error alone says where the damage is.
    with suppress(UsageError, CorruptLogError, UnsupportedFormatError):
        async for part in store.scan(found.session_id):
            if isinstance(part, StoredFrame):
                found.event_count += part.last_seq - part.first_seq + 1
                _count(found, part.rows)
            else:
                found.damage.append({"line": part.line, "offset": part.position, "kind": part.kind})


def _count(found: Examination, rows: Iterable[Row]) -> None:
    for row in rows:
        found.turns += row.type == "turn/start"
        found.steps += row.type == "step/start"
