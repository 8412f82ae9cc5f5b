"""The budget of bytes that are admitted but not yet durable (D4), as the session sees it. No I/O.

Owns the arithmetic and the default decision. Whoever makes a session durable hands it a gate, lowers
`pending_bytes` as batches become durable and starts its write window when the gate arms.
"""

from __future__ import annotations

from turnlog.errors import BackpressureError

DEFAULT_BUDGET = 64 << 20
DEFAULT_RESERVE = 4 << 20


class WriteGate:
    """Counts pending bytes for one session; asked before an event is committed, told after.

    The session calls `refuse` only for an event that would pass the budget, and `arm` only while `armed` is
    false. Subclasses override either.

    Args:
        budget: Bytes that may wait.
        reserve: Bytes beyond the budget for events that close something.
        session_id: For the error.
    """

    __slots__ = ("armed", "budget", "pending_bytes", "reserve", "session_id")

    def __init__(
        self, budget: int = DEFAULT_BUDGET, *, reserve: int = DEFAULT_RESERVE, session_id: str = ""
    ) -> None:
        self.budget = budget
        self.reserve = reserve
        self.session_id = session_id
        self.pending_bytes = 0
        self.armed = False

    def refuse(self, nbytes: int, closing: bool) -> None:
        """Decide about an event that would pass the budget: return to admit it.

        An empty queue takes one event of any size; a closing event may use the reserve.

        Args:
            nbytes: Encoded size of the event.
            closing: Whether it answers a pending call or ends a step or a turn.

        Raises:
            BackpressureError: There is no room; wait for `drain` and append again.
        """
        if self.pending_bytes == 0:
            return
        if closing and self.pending_bytes + nbytes <= self.budget + self.reserve:
            return
        raise BackpressureError(
            session_id=self.session_id, pending_bytes=self.pending_bytes, budget=self.budget
        )

    def arm(self) -> None:
        """Take note that an event waits for durability; the owner starts its write window here."""
        self.armed = True
