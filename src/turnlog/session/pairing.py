"""Where a surface may be cut without parting a tool call from its result.

Owns the running balance over surface nodes and the nearest balanced cuts; whoever replaces a range of the
surface asks here first.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from turnlog.errors import CorruptLogError
from turnlog.events.envelope import as_event
from turnlog.session.facts import facts_of

if TYPE_CHECKING:
    from turnlog.events.envelope import SessionEvent


class PairingBalance:
    """The balance of a surface: how many calls are open at each of its cuts.

    Cut `i` lies before node `i`; a surface of n nodes has the cuts 0 to n, both outer ones included. Extended
    node by node; start a new one when the surface has had a replacement.
    """

    def __init__(self) -> None:
        self._sums = [0]

    def __len__(self) -> int:
        """Return the number of nodes."""
        return len(self._sums) - 1

    @property
    def sums(self) -> tuple[int, ...]:
        """Open calls at each cut."""
        return tuple(self._sums)

    def extend(self, nodes: Iterable[SessionEvent | Mapping[str, Any]]) -> None:
        """Take further nodes at the tail.

        Args:
            nodes: Surface events in surface order.

        Raises:
            CorruptLogError: A result stands before its call; the surface cannot be balanced. Nodes before it
                have been taken.
        """
        for node in nodes:
            event = as_event(node)
            open_calls = self._sums[-1] + _weight(event)
            if open_calls < 0:
                raise CorruptLogError(
                    session_id=None,
                    reason="a tool result stands before its call on the surface",
                    seq=event.seq,
                    kind="pairing",
                )
            self._sums.append(open_calls)

    def is_balanced(self, cut: int) -> bool:
        """Say whether no call is open at a cut, from 0 to the number of nodes inclusive."""
        return self._sums[cut] == 0

    def nearest_before(self, cut: int) -> int:
        """Return the last balanced cut at or before `cut`; cut 0 is always balanced."""
        return next(place for place in range(cut, -1, -1) if self._sums[place] == 0)

    def nearest_after(self, cut: int) -> int | None:
        """Return the first balanced cut at or after `cut`, or `None` if calls stay open to the end."""
        return next((place for place in range(cut, len(self._sums)) if self._sums[place] == 0), None)


def tool_pairing_balance(nodes: Iterable[SessionEvent | Mapping[str, Any]]) -> PairingBalance:
    """Measure the balance of a whole surface.

    Args:
        nodes: Surface events in surface order.

    Returns:
        The balance, one cut more than there are nodes.

    Raises:
        CorruptLogError: A result stands before its call.
    """
    balance = PairingBalance()
    balance.extend(nodes)
    return balance


def _weight(event: SessionEvent) -> int:
    return -1 if event.type == "tool/result" else len(facts_of(event.type, event.data).requested)
