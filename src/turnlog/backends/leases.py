"""Write claims on a database: an epoch in the session's row, one lease row per writing process (W1).

Owns the rules as pure functions over rows, the same for every database. Where the rows lie, in which
statement the epoch is checked and what the database's clock is, is each backend's business.

A claim is an epoch. Whoever takes a session raises its epoch, and every write names the epoch it was
claimed with, so that a writer that was held up and has lost its claim changes nothing when it goes on. The
lease only tells others when they may take over without being asked to: when it has run out, or before that
when the process table proves that its owner is dead.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from turnlog.errors import ClaimOwner, SessionBusyError
from turnlog.persistence.backend import Status
from turnlog.persistence.claims import facts_of, is_alive, owner_of

LEASE_SECONDS: Final = 30.0
"""How long a lease lasts after its last renewal; the coordinator renews every 10 seconds."""

RENEWAL_SLACK: Final = 30
"""An append renews a lease of which more than this fraction (one part in ...) has passed."""


@dataclass(frozen=True, slots=True)
class LeaseClaim:
    """The write claim of one session: valid while the session's row has this epoch and this writer (W1)."""

    segment: str
    session_id: str
    epoch: int
    writer: str


@dataclass(frozen=True, slots=True)
class Lease:
    """The lease row of one writing process."""

    writer: str
    owner: ClaimOwner
    expires: int
    """Milliseconds on the database's clock (exclusive)."""


def new_writer() -> str:
    """Return a name for a writing process that no other one has or will have."""
    return uuid.uuid4().hex


def next_epoch(held: int | None, now: int) -> int:
    """Return the epoch of a claim that is being taken.

    Args:
        held: The epoch in the session's row, or None for a session without a row.
        now: Milliseconds on the database's clock.

    Returns:
        More than `held`. It begins at the clock, so that a row that was deleted and made again does not
        come back to the epoch of a claim that somebody may still hold.
    """
    return max(-1 if held is None else held, now) + 1


def encode_owner(owner: ClaimOwner) -> str:
    """Return an owner's facts as the text of a lease row."""
    return json.dumps(facts_of(owner), separators=(",", ":"))


def decode_owner(text: str | None) -> ClaimOwner | None:
    """Read the text of a lease row; None when it describes nobody."""
    try:
        return None if text is None else owner_of(json.loads(text))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None  # another program's text


def needs_renewal(expires: int, now: int, length: int) -> bool:
    """Tell whether a write should renew its process's lease.

    Args:
        expires: When the lease runs out, as far as its owner knows.
        now: Milliseconds on the same clock.
        length: Length of a lease in milliseconds.

    Returns:
        True when a noticeable part of it has passed, so that not every commit writes the lease row.
    """
    return now >= expires - length + length // RENEWAL_SLACK


def is_respected(
    lease: Lease | None, now: int, alive: Callable[[ClaimOwner], bool | None] = is_alive
) -> bool:
    """Tell whether the claims behind a lease keep other writers out.

    Args:
        lease: The lease row of the writer in a session's row, or None when there is no such row.
        now: Milliseconds on the database's clock.
        alive: Judges an owner by the process table.

    Returns:
        False once the lease has run out, and before that only if the owner is proven dead: same host, and
        boot, pid namespace, pid and start time say that its process is gone.
    """
    return lease is not None and now < lease.expires and alive(lease.owner) is not False


def check_free(session_id: str, lease: Lease | None, now: int, *, writer: str, takeover: bool) -> None:
    """Refuse to take a session that another writer holds.

    Args:
        session_id: The session.
        lease: The lease of the writer in its row, None for a session that nobody holds.
        now: Milliseconds on the database's clock.
        writer: Who wants it. Its own older claim, left by a call of unknown outcome, is no obstacle.
        takeover: Whether a living owner is to be fenced.

    Raises:
        SessionBusyError: It is held; names the owner.
    """
    if lease is not None and lease.writer != writer and not takeover and is_respected(lease, now):
        raise SessionBusyError(session_id=session_id, owner=lease.owner)


def with_holder(
    status: Status, problem: str | None, lease: Lease | None, now: int
) -> tuple[Status, str | None]:
    """Let a writer that holds a readable session decide its status in a listing (B4).

    Args:
        status: What the end of the log says.
        problem: What is wrong with it, or None.
        lease: The lease of the writer in the session's row, or None.
        now: Milliseconds on the database's clock.

    Returns:
        `live` and no problem while the lease is respected, else what was given.
    """
    return ("live", None) if is_respected(lease, now) else (status, problem)
