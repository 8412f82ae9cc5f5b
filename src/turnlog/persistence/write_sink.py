"""`Sink`: what the writes of one live session go through, as `write_behind` sees it.

Owns the port only; `lifecycle` implements it over a backend's hooks.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import asyncio

    from turnlog.events.batch import EncodedBatch
    from turnlog.persistence.backend import LogSummary


class Sink(Protocol):
    """What one live session's writes go through."""

    def submit(self, operation: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
        """Run an operation in its turn; it belongs to the sink and is never cancelled."""

    async def ready(self) -> int:
        """Settle who owns the stored log, once; return how many events are durable already."""

    async def write(self, batch: EncodedBatch, summary: LogSummary) -> None:
        """Make one batch durable, whatever has to be settled first.

        Raises:
            WriterFencedError: The log belongs to another writer now.
            TurnlogError: Anything else; `wrote_nothing` tells whether the outcome is known.
        """

    @property
    def is_free(self) -> bool:
        """Whether `begin` may be called: nothing is to be settled, and nothing of the id is running."""

    def begin(self, batch: EncodedBatch, summary: LogSummary) -> asyncio.Future[object]:
        """Make one batch durable as `write` does, in the turn of the loop in which it is called.

        Returns:
            A future; `failure` tells what it means that it failed.
        """

    def failure(self, error: Exception) -> Exception:
        """Return what `write` would have raised where `begin` failed with `error`."""

    def summary(self) -> LogSummary:
        """Return the fold of the log as it is now."""

    def drained(self) -> None:
        """Hear that nothing is left to write."""
