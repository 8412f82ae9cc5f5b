"""Callbacks of one session: observers of committed events, isolated, and candidates before the commit, heard.

Owns subscription and dispatch. Observers can change nothing that has happened, so their failures are logged
and go no further; a candidate listener exists to refuse, so its failure is the producer's.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from itertools import count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from turnlog.events.envelope import SessionEvent

log = logging.getLogger("turnlog.session")

Observer = Callable[["SessionEvent"], object]
Unsubscribe = Callable[[], None]


class Subscriptions:
    """Ordered callbacks, each with an unsubscribe that may be called any number of times."""

    __slots__ = ("_entries", "_keys")

    def __init__(self) -> None:
        self._entries: dict[int, Observer] = {}
        self._keys = count()

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Observer]:
        return iter(tuple(self._entries.values()))

    def add(self, callback: Observer) -> Unsubscribe:
        """Add a callback at the end.

        Args:
            callback: Called with one event. The same callable may be added more than once.

        Returns:
            A function that takes exactly this subscription back.
        """
        key = next(self._keys)
        self._entries[key] = callback

        def unsubscribe() -> None:
            self._entries.pop(key, None)

        return unsubscribe

    def publish(self, event: SessionEvent, session_id: str) -> None:
        """Call every callback in order; one that raises is logged and keeps no other from being called.

        Args:
            event: The committed event.
            session_id: For the log record.
        """
        for callback in self:
            try:
                callback(event)
            except Exception:
                # Whatever an observer raises is its own failure: the event is in the log already.
                log.exception("observer %r failed on event %d of session %s", callback, event.seq, session_id)

    def consult(self, event: SessionEvent) -> None:
        """Call every callback in order and let the first exception through.

        Args:
            event: The event that would be committed.
        """
        for callback in self:
            callback(event)
