"""`Cursors`: where the logs end that callers append to without a live session.

Owns created ids that nothing is stored of yet, and a bounded memory of recently appended logs, so that a
run of appends does not read the log each time. A cursor is a guess once the claim is given back: the
backend checks the seq of every write (B3).
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING

from turnlog.events.log import EventLog
from turnlog.events.vocabulary import SURFACE_TYPES
from turnlog.session.surface import SurfaceManager

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from turnlog.events.batch import EncodedBatch
    from turnlog.events.envelope import SessionEvent
    from turnlog.events.header import SessionHeader


@dataclass(slots=True, eq=False)
class Cursor:
    """The end of one log that is not live.

    Attributes:
        meta: Its header.
        log: Its events.
        surface: What may be replaced in it.
        materialized: Whether anything is stored.
        nbytes: Encoded bytes of `log`, counted as it grows.
        doubt: A batch whose write had no known outcome; it is settled before anything else (B3).
    """

    meta: SessionHeader
    log: EventLog
    surface: SurfaceManager
    materialized: bool
    nbytes: int
    doubt: EncodedBatch | None = None

    @classmethod
    def at(cls, meta: SessionHeader, events: EventLog, *, materialized: bool) -> Cursor:
        """Make the cursor of a log.

        Args:
            meta: Its header.
            events: Its events; rows are shared, the log itself is not.
            materialized: Whether it is stored.

        Raises:
            InvalidEventError: An event joins the surface in a way that is not allowed.
        """
        log = EventLog()
        log.extend_rows(events.rows)
        surface = SurfaceManager(log.__getitem__)
        for row in log.significant():
            if row.type in SURFACE_TYPES:
                surface.feed(row.event())
        return cls(meta, log, surface, materialized, log.nbytes)

    def admit(self, events: Sequence[SessionEvent]) -> None:
        """Take events that are to be written; after a failure this cursor must not be used again.

        Raises:
            InvalidEventError: One joins the surface in a way that is not allowed (L2).
        """
        for event in events:
            self.log.append_event(event)
            self.surface.feed(event)
            self.nbytes += len(event.line) + 1


class Cursors:
    """The cursors of one coordinator by id; those that hold something not stored are never forgotten.

    Args:
        capacity: Cursors of stored logs that are kept.
        max_bytes: Encoded bytes of their logs together.
    """

    def __init__(self, capacity: int, max_bytes: int) -> None:
        self._capacity = capacity
        self._max_bytes = max_bytes
        self._cursors: OrderedDict[str, Cursor] = OrderedDict()

    def __len__(self) -> int:
        return len(self._cursors)

    def get(self, session_id: str) -> Cursor | None:
        """Return the cursor of an id, or None."""
        return self._cursors.get(session_id)

    def created(self, session_id: str) -> Cursor | None:
        """Return the cursor of an id that was created and certainly has nothing stored, or None."""
        cursor = self._cursors.get(session_id)
        return cursor if cursor is not None and not cursor.materialized and cursor.doubt is None else None

    def put(self, cursor: Cursor) -> None:
        """Remember a cursor as the latest."""
        self._cursors[cursor.meta.id] = cursor
        self._cursors.move_to_end(cursor.meta.id)
        spare = [c for c in self._cursors.values() if c.materialized and c.doubt is None]
        total = sum(c.nbytes for c in spare)
        while spare and (len(spare) > self._capacity or total > self._max_bytes):
            oldest = spare.pop(0)
            total -= oldest.nbytes
            self.drop(oldest.meta.id)

    def drop(self, session_id: str) -> None:
        """Forget the cursor of an id, if there is one."""
        self._cursors.pop(session_id, None)

    def clear(self) -> None:
        """Forget everything."""
        self._cursors.clear()


def contiguous_fault(events: Iterable[SessionEvent], first_seq: int) -> tuple[int, int, int] | None:
    """Find the first event that does not continue a log.

    Args:
        events: A batch.
        first_seq: The seq that its first event must have.

    Returns:
        Index, expected and actual seq, or None when all is well.
    """
    for index, event in enumerate(events):
        if event.seq != first_seq + index:
            return index, first_seq + index, event.seq
    return None
