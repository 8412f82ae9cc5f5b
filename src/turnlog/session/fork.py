"""Where a session may be split and what a fork inherits, for live and stored sources alike.

Owns the boundary rules, the child's header and the walk from a session to all below it. Creating and
publishing the child is the registry's or the store's part.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from turnlog.errors import ForkError
from turnlog.events.envelope import EventRow, as_event
from turnlog.events.header import SessionHeader
from turnlog.events.log import EventLog

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from turnlog.session.facts import EventSource

_TURN_TYPES = frozenset({"turn/start", "turn/end"})


def fork_prefix(events: EventSource, at: int | None = None, *, session_id: str) -> EventLog:
    """Return the part of a log that a fork inherits.

    Any boundary outside a turn is stable, whatever the reason its last turn ended for; events between turns
    may be inherited.

    Args:
        events: The source: an `EventLog`, or any iterable of events or dictionaries.
        at: Seq of the last inherited event, inclusive; `None` for the last event there is.
        session_id: Id of the source, for errors.

    Returns:
        A log of `at + 1` events that shares the encoded rows of the source and does not grow with it;
        empty for an empty source.

    Raises:
        ForkError: `invalid-boundary` when no event stands at `at`, `open-turn` when it lies inside a turn.
            The caller is at fault.
    """
    log = events if isinstance(events, EventLog) else _log_of(events)
    if at is None:
        if len(log) == 0:
            return log.snapshot(0)
        at = len(log) - 1
    if type(at) is not int or at < 0:
        raise ForkError(
            session_id=session_id, reason=f"{at!r} is not the seq of an event", kind="invalid-boundary"
        )
    if at >= len(log):
        last = "none" if len(log) == 0 else str(len(log) - 1)
        raise ForkError(
            session_id=session_id, reason=f"seq {at} is past the last seq, {last}", kind="invalid-boundary"
        )
    if log[at].seq != at:
        raise ForkError(
            session_id=session_id, reason=f"seq {log[at].seq} stands in place {at}", kind="invalid-boundary"
        )
    prefix = log.snapshot(at + 1)
    _refuse_open_turn(prefix, at, session_id)
    return prefix


def fork_header(source: SessionHeader, child_id: str, *, seed_length: int, created_at: int) -> SessionHeader:
    """Make the header of a fork: it works in the same place under the same preset, and names its parent.

    Args:
        source: Header of the parent.
        child_id: Id of the child.
        seed_length: How many events it inherits.
        created_at: When it is made, Unix milliseconds.

    Returns:
        The header; `origin` and `delegation_depth` are not inherited.
    """
    return SessionHeader(
        id=child_id,
        created_at=created_at,
        cwd=source.cwd,
        parent_session=source.id,
        seed_length=seed_length,
        agent_preset=source.agent_preset,
    )


def _log_of(events: EventSource) -> EventLog:
    log = EventLog()
    for item in events:
        log.append_event(as_event(item))
    return log


def _refuse_open_turn(prefix: EventLog, at: int, session_id: str) -> None:
    for row in reversed(prefix.rows):
        if isinstance(row, EventRow) and row.type in _TURN_TYPES:
            if row.type == "turn/start":
                raise ForkError(
                    session_id=session_id,
                    reason=f"seq {at} lies inside the turn opened at seq {row.first_seq}",
                    kind="open-turn",
                )
            return


def descendants(children: Mapping[str, Sequence[str]], session_id: str) -> tuple[str, ...]:
    """Return every session below one, parents before their children, each once.

    Args:
        children: The sessions directly below each session.
        session_id: Where to begin; not among the result, also where stored headers go round in a circle.
    """
    found: dict[str, None] = {}
    sources = [session_id]
    for source in sources:
        for child in children.get(source, ()):
            if child not in found and child != session_id:
                found[child] = None
                sources.append(child)
    return tuple(found)
