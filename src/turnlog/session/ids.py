"""Ids that turnlog mints: time-ordered session ids and random message ids. Checks no id that others made."""

from __future__ import annotations

import secrets
import threading
import time
import uuid

_RANDOM_BITS = 74
_RANDOM_MASK = (1 << _RANDOM_BITS) - 1

_lock = threading.Lock()
_last = 0


def new_session_id() -> str:
    """Mint a session id (S1): a UUIDv7, later than every id minted before it in this process.

    Ids of one millisecond, and ids minted after the clock was set back, count upwards from the last one,
    so sorting ids sorts sessions by creation.

    Returns:
        The canonical lower-case text of 36 characters.

    Concurrency: may be called from any thread.
    """
    global _last
    now = time.time_ns() // 1_000_000
    with _lock:
        # Half the random range stays free above a fresh value, so that counting up does not reach the time.
        fresh = (now << _RANDOM_BITS) | secrets.randbits(_RANDOM_BITS - 1)
        value = fresh if fresh > _last else _last + 1
        _last = value
    return str(uuid.UUID(int=_place(value >> _RANDOM_BITS, value & _RANDOM_MASK)))


def _place(milliseconds: int, random: int) -> int:
    """Spread 48 bits of time and 74 random bits around the version and variant fields (RFC 9562)."""
    high, low = random >> 62, random & ((1 << 62) - 1)
    return (milliseconds << 80) | (0x7 << 76) | (high << 64) | (0b10 << 62) | low


def new_message_id() -> str:
    """Mint a message id: a random UUID, as messages made by a live session carry.

    Returns:
        The canonical lower-case text of 36 characters.
    """
    return str(uuid.uuid4())
