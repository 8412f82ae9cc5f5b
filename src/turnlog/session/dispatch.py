"""The session as its observers see it: dispatch around a commit, what must wait for it, and the thread rule.

Owns who is called when, and the flag that an append is running. What is committed, and whether, is decided
by `session.Session`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from threading import get_ident
from typing import TYPE_CHECKING, Any

from turnlog.errors import TurnlogError, UsageError
from turnlog.events.deltas import CHUNK_TYPE
from turnlog.events.envelope import SessionEvent
from turnlog.session.observers import Observer, Subscriptions, Unsubscribe, log
from turnlog.session.reading import SessionReader

if TYPE_CHECKING:
    from turnlog.events.header import SessionHeader
    from turnlog.events.log import EventLog


class ObservedSession(SessionReader, ABC):
    """A session with observers, candidates and a queue of what waits for the running append.

    Args:
        header: Its metadata.
        log: Its log.
        strict: Whether live appends are held to L4.
    """

    __slots__ = (
        "_after",
        "_busy",
        "_candidates",
        "_chunk_observers",
        "_fast",
        "_idle",
        "_observers",
        "_strict",
        "_thread",
        "registry",
    )

    def __init__(self, header: SessionHeader, log: EventLog, *, strict: bool) -> None:
        super().__init__(header, log)
        self._strict = strict
        self._thread = get_ident()
        self._busy = False
        self._fast = strict
        self._observers = Subscriptions()
        self._chunk_observers = Subscriptions()
        self._candidates = Subscriptions()
        self._after: list[tuple[str, Any, dict[str, Any]]] = []
        self._idle: list[Callable[[], None]] = []
        self.registry: object | None = None

    @property
    def strict(self) -> bool:
        """Whether live appends are held to L4."""
        return self._strict

    @abstractmethod
    def append(
        self,
        type: str,
        data: Any,
        *,
        surface_op: Any = None,
        source_event_seqs: Any = None,
        ignorable: bool = False,
    ) -> SessionEvent:
        """Append one event; see `session.Session.append`."""

    def observe(self, callback: Observer, *, chunks: bool = False) -> Unsubscribe:
        """Call a function with every event after its commit, in order of subscription.

        A failing observer is logged and changes nothing else. An observer must not append; `append_after`
        queues an event.

        Args:
            callback: Called on the session's thread with one event.
            chunks: Whether it is also called for streamed chunks, which makes an event object for each.

        Returns:
            A function that ends the subscription; calling it again does nothing.
        """
        undo = [self._observers.add(callback)]
        if chunks:
            undo.append(self._chunk_observers.add(callback))

        def unsubscribe() -> None:
            for each in undo:
                each()

        return unsubscribe

    def subscribe_candidates(self, callback: Observer) -> Unsubscribe:
        """Call a function with every event right before its commit; what it raises refuses the event.

        Args:
            callback: Called on the session's thread with the event that would be committed, chunks included.

        Returns:
            A function that ends the subscription; calling it again does nothing.
        """
        undo = self._candidates.add(callback)
        self._set_busy(self._busy)

        def unsubscribe() -> None:
            undo()
            self._set_busy(self._busy)

        return unsubscribe

    def bind_to_thread(self) -> None:
        """Make the calling thread the one that may append, for a session that was made on another."""
        self._thread = get_ident()

    def _publish(self, event: SessionEvent | None) -> None:
        """Tell the observers about the last event, then do what waited for the append to end."""
        chunk = event is None or event.type == CHUNK_TYPE
        observers = self._chunk_observers if chunk else self._observers
        if observers:
            self._set_busy(True)
            try:
                observers.publish(self._log[-1] if event is None else event, self.id)
            finally:
                self._set_busy(False)
        if self._after or self._idle:
            self._settle()

    def _set_busy(self, busy: bool) -> None:
        self._busy = busy
        self._fast = self._strict and not busy and not self._candidates

    def _settle(self) -> None:
        """Do what waited for the running append to end: deferred actions, then queued events in order."""
        while self._idle:
            self._idle.pop(0)()
        while self._after:
            type_, data, options = self._after.pop(0)
            try:
                self.append(type_, data, **options)
            except TurnlogError:
                # The producer whose append has just ended did not make this event; nobody waits for it.
                log.exception("queued %s event could not be appended to session %s", type_, self.id)

    def append_after(self, type: str, data: Any, **options: Any) -> None:
        """Append when the running append has returned; at once if none is running.

        This is how an observer adds an event. A queued event that turns out to be invalid is logged, not
        raised.

        Args:
            type: As for `append`.
            data: As for `append`; kept until then, so it must not be changed meanwhile.
            options: The keyword arguments of `append`.

        Raises:
            TurnlogError: As `append`, when no append is running.
        """
        if self._busy and self._thread == get_ident():
            self._after.append((type, data, options))
        else:
            self.append(type, data, **options)

    def when_idle(self, action: Callable[[], None]) -> None:
        """Run an action when no append is running: now, or right after the running one.

        Args:
            action: Must not raise.
        """
        if self._busy:
            self._idle.append(action)
        else:
            action()

    def _enter(self, type_: str) -> None:
        if self._thread != get_ident():
            raise UsageError(
                f"session {self.id!r} belongs to the thread that opened it; "
                "hand events over with append_from_thread"
            )
        if self._busy:
            raise UsageError(
                f"{type_} was appended to session {self.id!r} by an observer while an append was running; "
                "use append_after"
            )

    def _consult(self, event: SessionEvent) -> None:
        if not self._candidates:
            return
        self._set_busy(True)
        try:
            self._candidates.consult(event)
        except BaseException:
            self._set_busy(False)
            self._settle()
            raise
        self._set_busy(False)
