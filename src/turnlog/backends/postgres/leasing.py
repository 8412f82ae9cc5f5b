"""The lease row of this process: who it is, and until when its claims keep others out.

Owns the parameters of the lease statement. What a lease means is decided in `backends.leases`; it is
renewed by every group of writes, by every claim and by `renew`.
"""

from __future__ import annotations

from typing import Any, Final

from turnlog.backends.leases import LEASE_SECONDS, encode_owner, new_writer
from turnlog.errors import ClaimOwner
from turnlog.persistence.claims import this_process

FORGET_MILLISECONDS: Final = 3_600_000
"""How long after its end a lease row of a process that is gone is kept."""


class LeaseHolder:
    """One writing process in the table of writers.

    Args:
        seconds: How long a lease lasts after its last renewal.
    """

    def __init__(self, seconds: float = LEASE_SECONDS) -> None:
        self.writer = new_writer()
        self.milliseconds = int(seconds * 1000)
        self._owner: str | None = None

    @property
    def is_registered(self) -> bool:
        """Whether anything was claimed, so that there is a lease row."""
        return self._owner is not None

    def describe(self, owner: ClaimOwner) -> None:
        """Take over the facts about this process that claims come with."""
        self._owner = encode_owner(owner)

    def parameters(self) -> dict[str, Any]:
        """Return the parameters of the lease statement."""
        if self._owner is None:
            self.describe(this_process())
        return {"writer": self.writer, "owner": self._owner, "lease": self.milliseconds}
