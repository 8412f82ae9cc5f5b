"""Work on many sessions: a few at a time, results in order, nothing left behind when somebody stops looking.

Owns the running of it; what is done to each session is its caller's business.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Any, Final, TypeVar

from turnlog.errors import UsageError, quote

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Coroutine, Iterable

_T = TypeVar("_T")

AHEAD: Final = 16
"""Jobs for each place that may be done before the oldest is, so that a long one holds up no others."""


def check_parallel(parallel: int) -> None:
    """Refuse a number of sessions at a time with which nothing would ever be done.

    Args:
        parallel: What the caller asked for.

    Raises:
        UsageError: It is no whole number above 0.
    """
    if type(parallel) is not int or parallel < 1:
        raise UsageError(f"parallel is a whole number from 1 on, not {quote(parallel)}")


async def in_turn(jobs: Iterable[Coroutine[Any, Any, _T]], parallel: int) -> AsyncGenerator[_T, None]:
    """Run jobs a few at a time and yield their results in order.

    Args:
        jobs: What is to be run; taken one by one, a bounded number of them ahead of the oldest.
        parallel: How many at a time.

    Yields:
        The result of each. Leaving early cancels what runs and begins nothing more.

    Raises:
        BaseException: What a job raises, in its turn; the others are cancelled.
    """
    places = asyncio.Semaphore(parallel)

    async def placed(job: Coroutine[Any, Any, _T]) -> _T:
        async with places:
            return await job

    waiting = iter(jobs)
    taken: deque[tuple[Coroutine[Any, Any, _T], asyncio.Task[_T]]] = deque()
    try:
        while True:
            while len(taken) < parallel * AHEAD and (job := next(waiting, None)) is not None:
                taken.append((job, asyncio.ensure_future(placed(job))))
            if not taken:
                return
            yield await taken[0][1]
            taken.popleft()
    finally:
        for _, task in taken:
            task.cancel()
        await asyncio.gather(*(task for _, task in taken), return_exceptions=True)
        for job in (*(job for job, _ in taken), *waiting):
            job.close()  # those that never began
