"""The small fold of a log that listings show: of a live session event by event, of carried rows (B4).

Owns counts and the title. It is handed to the backend with each batch and is never authoritative.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from turnlog.events.chunk_runs import ChunkRow
from turnlog.persistence.backend import LogSummary

if TYPE_CHECKING:
    from collections.abc import Callable

    from turnlog.events.chunk_runs import Row
    from turnlog.events.envelope import SessionEvent
    from turnlog.session.session import Session


class SummaryFold:
    """The fold of one live session; it never looks at a streamed delta.

    Args:
        session: The session; what its log holds already is folded at once.
    """

    def __init__(self, session: Session) -> None:
        self._session = session
        self._turns = 0
        self._steps = 0
        self._title: str | None = None
        title: SessionEvent | None = None
        for row in session.log.significant():
            if row.type == "session/title":
                title = session.log[row.first_seq]
            else:
                self._count(row.type)
        if title is not None:
            self.add(title)
        self.stop: Callable[[], None] = session.observe(self.add)
        """Stops following the session."""

    def add(self, event: SessionEvent) -> None:
        """Fold one event."""
        if event.type == "session/title":
            data = event.data
            title = data.get("title") if isinstance(data, dict) else None
            self._title = title if isinstance(title, str) else self._title
        else:
            self._count(event.type)

    def now(self) -> LogSummary:
        """Return the fold of the whole log as it is now."""
        return LogSummary(
            turns=self._turns,
            steps=self._steps,
            title=self._title,
            last_time=self._session.last_time,
            open_turn=self._session.open_turn,
        )

    def _count(self, type_: str) -> None:
        if type_ == "turn/start":
            self._turns += 1
        elif type_ == "step/start":
            self._steps += 1


class RowSummary:
    """The fold of rows that are carried from one store to another; streamed deltas are never decoded."""

    def __init__(self) -> None:
        self._turns = 0
        self._steps = 0
        self._title: str | None = None
        self._last_time: int | None = None
        self._open_turn: int | None = None

    def add(self, row: Row) -> None:
        """Fold one row.

        Args:
            row: The next row of the log.
        """
        self._last_time = row.last_time if isinstance(row, ChunkRow) else row.time
        if row.type == "turn/start":
            self._turns += 1
            turn = _field(row, "turn")
            self._open_turn = turn if type(turn) is int else None
        elif row.type == "turn/end":
            self._open_turn = None
        elif row.type == "step/start":
            self._steps += 1
        elif row.type == "session/title":
            title = _field(row, "title")
            self._title = title if isinstance(title, str) else self._title

    def now(self) -> LogSummary:
        """Return the fold of the rows so far."""
        return LogSummary(
            turns=self._turns,
            steps=self._steps,
            title=self._title,
            last_time=self._last_time,
            open_turn=self._open_turn,
        )


def _field(row: Row, name: str) -> object:
    data = next(row.events()).data
    return data.get(name) if isinstance(data, dict) else None
