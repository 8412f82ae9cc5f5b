"""`LiveGate`: what a live session passes on every append: the byte budget and the starting signal.

Owns the admission rule (D4) and the reasons for which a session takes no more events. It does no I/O;
`write_behind` empties the queue that it counts.
"""

from __future__ import annotations

from collections.abc import Callable

from turnlog.errors import BackpressureError, TurnlogError
from turnlog.session.write_gate import WriteGate


class LiveGate(WriteGate):
    """The gate of one live session.

    Args:
        session_id: The session, for messages.
        backend: The backend's name, for messages.
        budget: Bytes that may wait to become durable.
        reserve: Bytes beyond the budget for events that close something.
        wake: Called with True when the queue is full, with False when its first event arrived.
    """

    __slots__ = ("_backend", "_shut", "_wake", "durable_seq", "wanted")

    def __init__(
        self, *, session_id: str, backend: str, budget: int, reserve: int, wake: Callable[[bool], None]
    ) -> None:
        super().__init__(budget, reserve=reserve, session_id=session_id)
        self.durable_seq = 0
        """Every event below this seq is durable (D1); exclusive."""
        self.wanted = 0
        """Bytes of the event that was last refused; `drain` waits until it fits."""
        self._backend = backend
        self._wake = wake
        self._shut: Callable[[], TurnlogError] | None = None

    def arm(self) -> None:
        """Start the window of the first event that waits."""
        self._wake(False)

    def refuse(self, nbytes: int, closing: bool) -> None:
        """Decide about an event beyond the budget (D4), and about every event once the gate is shut."""
        if self._shut is not None:
            raise self._shut()
        if self.fits(nbytes, self.budget + self.reserve if closing else self.budget):
            return
        self.wanted = nbytes
        self._wake(True)
        raise BackpressureError(
            session_id=self.session_id,
            pending_bytes=self.pending_bytes,
            budget=self.budget,
            backend=self._backend,
        )

    def fits(self, nbytes: int, limit: int) -> bool:
        """Tell whether an event may join the queue: an empty one takes any size (D4).

        Args:
            nbytes: Size of the event.
            limit: Bytes the queue may hold with it.
        """
        return self.pending_bytes == 0 or self.pending_bytes + nbytes <= limit

    @property
    def has_room(self) -> bool:
        """Whether the event that was last refused would be admitted now."""
        return self.fits(max(self.wanted, 1), self.budget)

    def shut(self, why: Callable[[], TurnlogError]) -> None:
        """Admit nothing from now on.

        Args:
            why: Makes the error that every further append raises.
        """
        self._shut = why
        self.budget = -1  # below any sum, so that the session asks `refuse` about every event
