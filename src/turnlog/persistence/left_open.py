"""Stores that are open in this process: let go of in a forked child, reported when the process ends.

Owns the one list of open coordinators and the two process hooks. It never writes: a child must not touch
what belongs to its parent, and at exit there is no loop left to write on.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
from typing import Protocol

logger = logging.getLogger(__name__)


class Opened(Protocol):
    """A store that has not been closed."""

    def undurable_events(self) -> int:
        """Return how many events of live sessions are not known to be durable."""

    def forget(self) -> None:
        """Close without flushing or releasing anything."""

    @property
    def label(self) -> str:
        """The name of the store for messages."""


_open: set[Opened] = set()
"""Strong references: a store that nobody closes must still be there to be reported."""


def opened(store: Opened) -> None:
    """Note a store that has been opened."""
    _open.add(store)


def closed(store: Opened) -> None:
    """Note a store that has been closed; harmless when repeated."""
    _open.discard(store)


def forget_all() -> None:
    """Let go of every store, in a forked child (W1)."""
    for store in list(_open):
        try:
            store.forget()
        except Exception:
            # A backend's own clean-up failed; the child must still get rid of the other stores.
            logger.exception("the %s store could not be let go of after a fork", store.label)
    _open.clear()


def report_all() -> None:
    """Warn about every store that is still open when the process ends and takes events with it."""
    for store in _open:
        lost = store.undurable_events()
        if lost == 0:
            continue  # nothing is lost, and a claim ends with its process
        logger.warning(
            "the %s store was left open at exit with %d events that are not durable; "
            "close it with `async with` or `await store.aclose()`",
            store.label,
            lost,
        )


if sys.platform != "win32":  # pragma: no branch - Windows cannot fork
    os.register_at_fork(after_in_child=forget_all)
atexit.register(report_all)
