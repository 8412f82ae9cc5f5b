"""The clock that leases on a local database are measured with.

Owns one choice: time since the host's boot, suspension included. All processes that can use the database
share a kernel, so they share this clock, and nobody who sets the time of day ends or prolongs a lease.
"""

from __future__ import annotations

import time
from typing import Final

from turnlog.backends.leases import Lease, decode_owner
from turnlog.persistence.claims import boot_id

_CLOCK: Final = getattr(time, "CLOCK_BOOTTIME", None)


def now_ms() -> int:
    """Return milliseconds since boot; where there is no such clock, of the monotonic one."""
    if _CLOCK is not None:
        return time.clock_gettime_ns(_CLOCK) // 1_000_000
    return time.monotonic_ns() // 1_000_000  # pragma: no cover - macOS, whose monotonic clock is the same


def lease_of(writer: str | None, owner: str | None, expires: int | None) -> Lease | None:
    """Make the lease of a session's writer of what its row says.

    Args:
        writer: The writer in the session's row.
        owner: Its facts, or None where it has no lease row.
        expires: When its lease runs out.

    Returns:
        The lease; one of another boot has run out, because its clock has ended with that boot. None where
        nobody holds the session.
    """
    facts = decode_owner(owner)
    if writer is None or facts is None or type(expires) is not int:
        return None
    if facts.boot_id is not None and boot_id() is not None and facts.boot_id != boot_id():
        expires = 0
    return Lease(writer, facts, expires)
