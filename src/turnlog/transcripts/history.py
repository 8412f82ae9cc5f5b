"""What a log says to a model, with the place of every message: the messages, the closers, the request header.

Owns the way from any source of events to one list of messages with their seqs. It closes an interrupted turn
in memory (R1), reads only the streamed chunks that no message supersedes, and writes nothing.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from turnlog.events.chunk_runs import Row
from turnlog.events.deltas import CHUNK_TYPE
from turnlog.events.envelope import SessionEvent, as_event
from turnlog.events.header import SessionHeader
from turnlog.events.log import EventLog, EventRow
from turnlog.persistence.service import SessionInspection
from turnlog.session.derive import MessageFold, Partial, check_partial
from turnlog.session.facts import answered_call
from turnlog.session.reading import SessionReader
from turnlog.session.repair import interrupted_turn_closers
from turnlog.session.request_state import fold_request_header

Source = EventLog | SessionReader | SessionInspection | Iterable[SessionEvent | Mapping[str, Any]]
"""What can be exported: a log, a session live or not, an inspection, or events in log order."""

_BOUNDARIES = frozenset({"step/start", "step/end", "turn/start", "turn/end"})
_SUPERSEDING = frozenset({"llm/retry", "llm/retry-started"})


@dataclass(frozen=True, slots=True)
class Said:
    """One message and where it stands."""

    seq: int
    """Seq of its event; of the first chunk for an answer that exists only as chunks."""
    message: dict[str, Any]


@dataclass(slots=True)
class History:
    """What a log amounts to for a model."""

    said: list[Said] = field(default_factory=list)
    """The messages of the surface, in order."""
    header: dict[str, Any] | None = None
    """The request header in force, canonical."""
    started: dict[str, list[int]] = field(default_factory=dict)
    """Seqs of the `tool/call` events of each call id."""
    waiting: frozenset[str] = frozenset()
    """Ids of the calls whose approval is still open."""
    interrupted: frozenset[int] = frozenset()
    """Seqs of the answers that broke off, stored or existing as chunks only."""
    end: int = 0
    """Number of stored events; what is said at a later seq was made to close the log."""

    def was_started(self, call_id: str, after: int) -> bool:
        """Tell whether a call was recorded as started.

        Args:
            call_id: The call.
            after: Seq of the message that asked for it.
        """
        seqs = self.started.get(call_id, ())
        return bisect_right(seqs, after) < len(seqs)


def log_of(source: Source) -> EventLog:
    """Return the events of a source as a log that does not change any more.

    Args:
        source: What to export.

    Raises:
        InvalidEventError: An item is no event.
        UsageError: The events do not follow each other.
    """
    if isinstance(source, SessionReader):
        return source.log.snapshot()
    if isinstance(source, SessionInspection):
        return source.events
    if isinstance(source, EventLog):
        return source.snapshot()
    events = [as_event(item, index) for index, item in enumerate(source)]
    return EventLog(events, first_seq=events[0].seq if events else 0)


def header_of(source: Source) -> SessionHeader | None:
    """Return the session's header if the source knows it."""
    if isinstance(source, SessionReader):
        return source.header
    return source.meta if isinstance(source, SessionInspection) else None


def history_of(source: Source, partial: Partial = "include") -> History:
    """Read a source into what a model would see of it.

    Args:
        source: What to export. An interrupted turn is closed in the result, not in the source.
        partial: Whether answers that exist only as chunks are part of it.

    Returns:
        The history.

    Raises:
        InvalidEventError: The events do not form a log.
        UsageError: The events do not follow each other, or `partial` is neither of its two values.
    """
    check_partial(partial)
    log = log_of(source)
    history = History(end=log.next_seq)
    fold = MessageFold(partial=partial == "include")
    asked: dict[str, str] = {}
    broken: set[int] = set()
    for event in needed_events(log):
        fold.feed(event)
        if event.type == "tool/call":
            _note_start(history, event)
        elif event.type in ("approval/asked", "approval/decided"):
            _note_approval(asked, event)
        elif event.type == "assistant/message" and b'"interrupted"' in event.line:
            broken |= {event.seq} if event.data.get("interrupted") is True else set()
    if isinstance(source, SessionInspection) and source.closers:
        history.end = source.closers[0].seq
    for closer in interrupted_turn_closers(log):
        # No log can hold a result without a call id; pairing answers such a call.
        if closer.type == "tool/result" and answered_call(closer.data):
            fold.feed(closer)
    history.said = [Said(seq, message) for seq, message in fold.entries()]
    history.header = fold_request_header(log)
    history.waiting = frozenset(asked.values())
    streamed = {said.seq for said in history.said if said.message["source"].get("interrupted") is True}
    history.interrupted = frozenset(broken | streamed)
    return history


def _note_start(history: History, event: SessionEvent) -> None:
    data = event.data
    call_id = data.get("callId") if isinstance(data, dict) else None
    if isinstance(call_id, str):
        history.started.setdefault(call_id, []).append(event.seq)


def _note_approval(asked: dict[str, str], event: SessionEvent) -> None:
    data = event.data
    if not isinstance(data, dict) or not isinstance(data.get("id"), str):
        return
    if event.type == "approval/decided":
        asked.pop(data["id"], None)
    elif isinstance(data.get("callId"), str):
        asked[data["id"]] = data["callId"]


def needed_events(log: EventLog) -> Iterator[SessionEvent]:
    """Yield the events that messages depend on: all but the chunks of answers that arrived.

    Args:
        log: Any log. Packed rows that an answer or a retry supersedes are never decoded.

    Yields:
        Events in order; each run of chunks that is left comes before the event that ends its step.
    """
    streamed: list[Row] = []
    for row in log.rows:
        if not isinstance(row, EventRow) or row.type == CHUNK_TYPE:
            streamed.append(row)
            continue
        event = row.event()
        if row.type in _SUPERSEDING or (row.type == "assistant/message" and event.surface_op == "append"):
            _drop_last_answer(streamed)
        elif row.type in _BOUNDARIES:
            for chunks in streamed:
                yield from chunks.events()
            streamed.clear()
        yield event
    for chunks in streamed:
        yield from chunks.events()


def _drop_last_answer(streamed: list[Row]) -> None:
    """Take the chunks of the step that streamed last off the end."""
    place = _place(streamed[-1]) if streamed else None
    while streamed and _place(streamed[-1]) == place:
        streamed.pop()


def _place(row: Row) -> tuple[Any, Any]:
    if not isinstance(row, EventRow):
        return row.turn, row.step
    data = row.event().data
    return (data.get("turn"), data.get("step")) if isinstance(data, dict) else (None, None)
