"""The reading half of a session: its events, surface, messages and order state. Changes nothing.

Owns what can be asked; `session.Session` adds how the log grows. Everything handed out is fresh or frozen,
so that no reader can change the log.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, overload

from turnlog.events.envelope import SessionEvent
from turnlog.session.derive import Partial, check_partial, derive_messages
from turnlog.session.folds import SessionFolds
from turnlog.session.surface import SurfaceView

if TYPE_CHECKING:
    from turnlog.events.header import SessionHeader
    from turnlog.events.log import EventLog


class EventsView(Sequence[SessionEvent]):
    """The events of a session: a live view that grows with the log; slices and lists of it are snapshots."""

    __slots__ = ("_log",)

    def __init__(self, log: EventLog) -> None:
        self._log = log

    def __len__(self) -> int:
        return len(self._log)

    @overload
    def __getitem__(self, index: int) -> SessionEvent: ...
    @overload
    def __getitem__(self, index: slice) -> list[SessionEvent]: ...
    def __getitem__(self, index: int | slice) -> SessionEvent | list[SessionEvent]:
        return self._log[index]

    def __iter__(self) -> Iterator[SessionEvent]:
        # Ends where the log ends now, so that a loop which appends comes to an end.
        return islice(self._log.iter_from(0), len(self._log))

    def __repr__(self) -> str:
        return f"EventsView({len(self)} events)"


class SessionReader:
    """What can be read of a session.

    Args:
        header: Its metadata.
        log: Its log, which may grow behind this object only through the session.
    """

    __slots__ = ("_events", "_folds", "_log", "_surface_view", "_tracker", "header")

    def __init__(self, header: SessionHeader, log: EventLog) -> None:
        self.header = header
        self._log = log
        self._events = EventsView(log)
        self._folds = SessionFolds(log, header.id)
        self._tracker = self._folds.tracker
        self._surface_view = SurfaceView(self._folds.surface)

    @property
    def id(self) -> str:
        """The session's id."""
        return self.header.id

    @property
    def seq(self) -> int:
        """The seq of the next event, which is the number of events."""
        return len(self._log)

    @property
    def log(self) -> EventLog:
        """The log itself, for whoever makes it durable; only the session appends to it."""
        return self._log

    @property
    def events(self) -> EventsView:
        """The events, always current; one object per session."""
        return self._events

    @property
    def surface(self) -> SurfaceView:
        """What the model sees, as seqs, always current; one object per session."""
        return self._surface_view

    @property
    def open_turn(self) -> int | None:
        """Number of the open turn, `None` between turns."""
        return self._tracker.open_turn

    @property
    def open_step(self) -> int | None:
        """Number of the open step, `None` between steps."""
        return self._tracker.open_step

    @property
    def next_turn(self) -> int:
        """The number that the next `turn/start` carries."""
        return self._tracker.next_turn

    @property
    def next_step(self) -> int:
        """The number that the next `step/start` of the open turn carries."""
        return self._tracker.next_step

    @property
    def pending_calls(self) -> tuple[str, ...]:
        """Ids of the calls of the open step that have no result yet, in the order they were asked for."""
        return self._tracker.pending_calls

    def is_recorded(self, call_id: str) -> bool:
        """Say whether a pending call has its `tool/call`; a call that was only requested has not."""
        return self._tracker.calls.get(call_id, False)

    @property
    def last_time(self) -> int | None:
        """Time of the last event in Unix milliseconds, `None` for an empty log."""
        return self._log[-1].time if len(self._log) else None

    def derive_messages(self, *, partial: Partial = "exclude") -> list[dict[str, Any]]:
        """Derive the messages that the model sees next.

        Args:
            partial: `"include"` adds answers that exist only as chunks, also the one that is streaming now;
                see the function of the same name. It reads the whole log, `"exclude"` only what is new.

        Returns:
            Fresh messages in surface order.

        Raises:
            UsageError: `partial` is neither of its two values.
        """
        check_partial(partial)
        if partial == "include":
            return derive_messages(self._events, partial=partial)
        return self._folds.messages()

    def request_header(self) -> dict[str, Any] | None:
        """Return the latest complete request header in canonical form, fresh; `None` before the first."""
        return self._folds.request_header()

    def request_context(self) -> dict[str, Any] | None:
        """Return the latest request context, fresh; `None` before the first."""
        return self._folds.request_context()
