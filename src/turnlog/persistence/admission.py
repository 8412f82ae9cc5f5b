"""Which stored events a session refuses, all of them; a load names the first only.

Owns following a log event by event past the ones that are refused. The rules are those of `session` and
`events`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from turnlog.errors import InvalidEventError, quote
from turnlog.events import legacy, vocabulary
from turnlog.events.envelope import EventRow
from turnlog.events.shapes import check_shape
from turnlog.session.surface import SurfaceManager

if TYPE_CHECKING:
    from turnlog.events.chunk_runs import Row
    from turnlog.events.envelope import SessionEvent
    from turnlog.events.log import EventLog


class Admission:
    """The state that a row is held to: everything before it.

    Args:
        session_id: Part of the ids that older messages get.
        log: Holds the rows before the one that is asked about; whole, from seq 0 on.
    """

    def __init__(self, session_id: str, log: EventLog) -> None:
        self._session_id = session_id
        self._log = log
        self._today: dict[int, SessionEvent] = {}
        self._surface = SurfaceManager(self._at)

    def refusal(self, row: Row) -> tuple[str, str] | None:
        """Say why no session accepts a row where it stands, or None; a good one is followed.

        Args:
            row: The next row of the log.

        Returns:
            The kind of a finding, and the reason.
        """
        if not isinstance(row, EventRow):
            return None
        event = row.event()
        try:
            read = legacy.normalise(event, self._session_id, self._at)
            if not read.ignorable and not vocabulary.is_loadable(read.type):
                return "unsupported", f"the required type {quote(read.type)} is not known here"
            check_shape(read.type, read.data, read.seq)
            if read is not event:
                self._today[read.seq] = read
            self._surface.feed(read)
        except InvalidEventError as error:
            self._today.pop(event.seq, None)
            return "invalid-event", f"{error.field} {error.reason}"
        return None

    def _at(self, seq: int) -> SessionEvent:
        return self._today.get(seq) or self._log[seq]
