"""From stored bytes to a session: the checks every read passes, closers in memory, the unpublished session.

Owns what a stored log is held to before anybody gets it, and `Prepared`, the result. It writes nothing
(R3) and keeps nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from turnlog.errors import (
    CorruptLogError,
    InvalidEventError,
    SessionExistsError,
    SessionNotFoundError,
    UnsupportedFormatError,
)
from turnlog.events import legacy
from turnlog.events.header import FORMAT_VERSION
from turnlog.events.log import EventLog, check_loadable
from turnlog.persistence.service import SessionInspection, TornTail
from turnlog.session.repair import interrupted_turn_closers

if TYPE_CHECKING:
    from turnlog.events.envelope import SessionEvent
    from turnlog.events.header import SessionHeader
    from turnlog.persistence.backend import StoredPrefix
    from turnlog.persistence.hooks import Hooks
    from turnlog.session.registry import SessionRegistry
    from turnlog.session.session import Session


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """One stored session, read, validated and restored, but not published.

    Attributes:
        inspection: What readers get; closers that are not stored yet are in it.
        session: The unpublished session; it ends in an end-of-seed event.
        revision: What the read was of.
        torn_marker: To be handed back to the backend.
        length: Length of the session when it was prepared.
        nbytes: Encoded bytes that this keeps in memory.
    """

    inspection: SessionInspection
    session: Session
    revision: str | None
    torn_marker: object | None
    length: int
    nbytes: int

    @property
    def needs_repair(self) -> bool:
        """Whether storage differs from what is shown here (R1)."""
        return self.torn_marker is not None or bool(self.inspection.closers)

    @property
    def is_untouched(self) -> bool:
        """Whether nobody has appended to the unpublished session."""
        return len(self.session.log) == self.length


async def read_prepared(hooks: Hooks, registry: SessionRegistry[Session], session_id: str) -> Prepared:
    """Read one stored session and make everything of it that a caller may want.

    Args:
        hooks: The backend.
        registry: Makes the session.
        session_id: The session.

    Raises:
        SessionNotFoundError: Nothing is stored under the id.
        SessionExistsError: The id became live meanwhile.
        CorruptLogError: The log is damaged or holds what no session accepts; the cause is chained.
        UnsupportedFormatError: Another version or an unknown required type.
        BackendError: The medium failed.
    """
    stored = await hooks.load(session_id)
    if stored is None:
        raise SessionNotFoundError(session_id=session_id)
    return prepare_stored(registry, session_id, stored, hooks.locate(stored.meta))


def prepare_stored(
    registry: SessionRegistry[Session], session_id: str, stored: StoredPrefix, path: str | None
) -> Prepared:
    """Make everything of a read log that a caller may want.

    Args:
        registry: Makes the session.
        session_id: The id it was asked for by.
        stored: What the backend read.
        path: The artifact for messages.

    Raises:
        LogError: As `read_prepared`.
    """
    log = checked_log(session_id, stored, path)
    try:
        closers = tuple(interrupted_turn_closers(log))
        log.extend_rows(EventLog(closers, first_seq=log.next_seq).rows)
        view = log.snapshot()
        session = registry.prepare(header=stored.meta, restore_log=log)
    except (SessionExistsError, UnsupportedFormatError, CorruptLogError):
        raise
    except InvalidEventError as error:
        raise corrupt_event(session_id, error, path) from error
    torn = None if stored.torn_marker is None else describe_torn(stored.torn_marker)
    return Prepared(
        inspection=SessionInspection(stored.meta, view, closers, torn),
        session=session,
        revision=stored.revision,
        torn_marker=stored.torn_marker,
        length=len(session.log),
        nbytes=view.nbytes,
    )


def checked_log(session_id: str, stored: StoredPrefix, path: str | None) -> EventLog:
    """Hold a stored log to its id, its version, today's shapes and the types known here.

    Args:
        session_id: The id it was asked for by.
        stored: What the backend read.
        path: The artifact for messages.

    Returns:
        The log with legacy shapes rewritten in memory; stored bytes stay as they are.

    Raises:
        CorruptLogError: The header names another session, or a legacy event is malformed.
        UnsupportedFormatError: Another version or an unknown required type.
    """
    check_header(session_id, stored.meta, path)
    try:
        log = normalised(stored.events, session_id)
    except InvalidEventError as error:
        raise corrupt_event(session_id, error, path) from error
    check_loadable(log, session_id, path)
    return log


def check_header(session_id: str, meta: SessionHeader, path: str | None) -> None:
    """Hold a stored header to the id it was asked for by and to the version that this release reads.

    Raises:
        CorruptLogError: It names another session.
        UnsupportedFormatError: It has another version.
    """
    if meta.id != session_id:
        raise CorruptLogError(
            session_id=session_id, reason=f"its header names session {meta.id!r}", kind="wrong-id", path=path
        )
    if meta.version != FORMAT_VERSION:
        raise UnsupportedFormatError(
            session_id=session_id,
            found=meta.version,
            supported=FORMAT_VERSION,
            direction="newer" if meta.version > FORMAT_VERSION else "older",
            path=path,
        )


class EarlierEventNeededError(Exception):
    """A legacy event of a suffix refers to an event before it; the whole log has to be read."""


def normalised(log: EventLog, session_id: str) -> EventLog:
    """Rewrite the legacy shapes of a log in memory.

    Args:
        log: A whole log, or a suffix.
        session_id: Part of the message ids that are made up.

    Returns:
        The same log if it has none, else a new one that shares all other rows.

    Raises:
        InvalidEventError: A malformed legacy event.
        EarlierEventNeededError: `log` is a suffix that does not stand by itself.
    """
    changed: dict[int, SessionEvent] = {}

    def lookup(seq: int) -> SessionEvent | None:
        if seq < log.first_seq:
            raise EarlierEventNeededError
        return changed.get(seq) or log[seq - log.first_seq]

    for significant in log.significant():
        if legacy.may_need(significant.type):
            event = significant.event()
            after = legacy.normalise(event, session_id, lookup)
            if after is not event:
                changed[event.seq] = after
    if not changed:
        return log
    fresh = EventLog(first_seq=log.first_seq)
    for row in log.rows:
        rewritten = changed.get(row.first_seq)
        if rewritten is None:
            fresh.extend_rows((row,))
        else:
            fresh.append_event(rewritten)
    return fresh


def describe_torn(marker: object) -> TornTail:
    """Read what people may see of an opaque torn marker; absent attributes stay None."""

    def number(name: str) -> int | None:
        value = getattr(marker, name, None)
        if isinstance(value, list | tuple):
            return len(value)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    return TornTail(number("offset"), number("size"), number("recovered_events"))


def corrupt_event(session_id: str, error: InvalidEventError, path: str | None) -> CorruptLogError:
    """Make the error for a stored event that is not valid; the caller chains the cause."""
    return CorruptLogError(
        session_id=session_id, reason=str(error), seq=error.index, kind="invalid-event", path=path
    )
