"""`IdChains`: operations on one id run one at a time in order, on different ids in parallel.

Owns the tasks that run hooks, so that no caller's cancellation reaches one. It knows nothing of what the
operations do. An operation must not wait for another one on the same id: that would never end.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

logger = logging.getLogger(__name__)

T = TypeVar("T")


class _Link:
    """One caller's tie to its operation."""

    __slots__ = ("abandoned", "started")

    def __init__(self) -> None:
        self.started = False
        self.abandoned = False

    def skip(self) -> bool:
        """Decide, when the operation's turn comes, whether its caller has left."""
        self.started = not self.abandoned
        return self.abandoned


class IdChains:
    """The tail of every id's chain; an id whose chain has run empty leaves nothing behind."""

    def __init__(self) -> None:
        self._tails: dict[str, asyncio.Future[Any]] = {}

    def __len__(self) -> int:
        return len(self._tails)

    def submit(
        self,
        session_id: str,
        operation: Callable[[], Awaitable[T]],
        *,
        skip: Callable[[], bool] | None = None,
    ) -> asyncio.Task[T]:
        """Put an operation at the end of an id's chain.

        Args:
            session_id: The id.
            operation: Called when everything before it has settled, whether well or not.
            skip: Asked when its turn comes; true ends the task as cancelled without calling it.

        Returns:
            The task that runs it. It belongs to the chain and must not be cancelled; whoever does not
            wait for it takes care of its exception.
        """
        previous = self._tails.get(session_id)
        task = asyncio.get_running_loop().create_task(_in_turn(previous, operation, skip))
        self._tails[session_id] = task
        task.add_done_callback(lambda done: self._settled(session_id, done))
        return task

    def is_empty(self, session_id: str) -> bool:
        """Tell whether nothing of an id is running or waiting."""
        return session_id not in self._tails

    def add(self, session_id: str, running: asyncio.Future[Any]) -> None:
        """Take in an operation that has begun already; only where the id's chain is empty.

        Args:
            session_id: The id.
            running: What the operations that follow wait for.
        """
        assert self.is_empty(session_id)
        self._tails[session_id] = running
        running.add_done_callback(lambda done: self._settled(session_id, done))

    async def run(
        self,
        session_id: str,
        operation: Callable[[], Awaitable[T]],
        *,
        orphaned: Callable[[T], object] | None = None,
    ) -> T:
        """Run an operation in its turn and return its result.

        A cancelled caller leaves at once. The operation is skipped if it has not begun; if it has, it
        runs to its end, and a failure that nobody waits for is logged.

        Args:
            session_id: The id.
            operation: As in `submit`.
            orphaned: Gets the result if the caller left after the operation had begun.
        """
        link = _Link()
        task = self.submit(session_id, operation, skip=link.skip)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if link.started:
                task.add_done_callback(lambda done: _settle_orphan(done, orphaned))
            else:
                link.abandoned = True
            raise

    async def quiesce(self) -> None:
        """Wait until every chain is empty, operations that are added meanwhile included."""
        while self._tails:
            await asyncio.wait(list(self._tails.values()))

    def _settled(self, session_id: str, task: asyncio.Future[Any]) -> None:
        if self._tails.get(session_id) is task:
            del self._tails[session_id]


async def _in_turn(
    previous: asyncio.Future[Any] | None,
    operation: Callable[[], Awaitable[T]],
    skip: Callable[[], bool] | None,
) -> T:
    if previous is not None and not previous.done():
        await asyncio.wait((previous,))
    if skip is not None and skip():
        raise asyncio.CancelledError
    return await operation()


def _settle_orphan(task: asyncio.Task[T], orphaned: Callable[[T], object] | None) -> None:
    if task.cancelled():
        return
    if (error := task.exception()) is not None:
        logger.warning("an operation failed after its caller had been cancelled: %s", error)
    elif orphaned is not None:
        orphaned(task.result())
