"""Work on many sessions: bounded, in order, and nothing left behind."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import aclosing
from typing import Any

import pytest

from turnlog.errors import UsageError
from turnlog.persistence.in_turn import AHEAD, check_parallel, in_turn


class Work:
    """Jobs that count how many of them run at once."""

    def __init__(self, jobs: int) -> None:
        self.jobs = jobs
        self.begun: list[int] = []
        self.running = 0
        self.most = 0
        self.first_may_end = asyncio.Event()

    def __iter__(self) -> Iterator[Coroutine[Any, Any, int]]:
        return (self.job(number) for number in range(self.jobs))

    async def job(self, number: int) -> int:
        """Do one; the first takes until it is told to end."""
        self.begun.append(number)
        self.running += 1
        self.most = max(self.most, self.running)
        await (self.first_may_end.wait() if number == 0 else asyncio.sleep(0))
        self.running -= 1
        if number == 3:
            raise ValueError("the fourth")
        return number


async def test_results_come_in_order_and_few_run_at_once() -> None:
    """Whatever ends first, the oldest is handed out first."""
    work = Work(3)
    work.first_may_end.set()
    async with aclosing(in_turn(work, 2)) as results:
        assert [result async for result in results] == [0, 1, 2]
    assert work.most == 2


async def test_a_long_one_holds_up_no_others_within_bounds() -> None:
    """While the first runs, those behind it are done, and no more than the bound allows."""
    work = Work(1000)
    async with aclosing(in_turn(work, 2)) as results:
        first = asyncio.ensure_future(anext(results))
        while len(work.begun) < 2 * AHEAD:
            await asyncio.sleep(0)
        for _ in range(100):
            await asyncio.sleep(0)
        assert work.begun == list(range(2 * AHEAD))
        assert work.running == 1
        work.first_may_end.set()
        assert await first == 0


async def test_leaving_early_ends_what_runs_and_begins_nothing() -> None:
    """No job is left running or never awaited, the one that runs is cancelled."""
    work = Work(100)
    async with aclosing(in_turn(work, 4)) as results:
        looking = asyncio.ensure_future(anext(results))
        await asyncio.sleep(0)
        looking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await looking
    assert len(work.begun) <= 4
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_an_error_comes_in_its_turn() -> None:
    """What stands before it is handed out, what stands behind it is ended."""
    work = Work(50)
    work.first_may_end.set()
    async with aclosing(in_turn(work, 2)) as results:
        assert [await anext(results) for _ in range(3)] == [0, 1, 2]
        with pytest.raises(ValueError, match="the fourth"):
            await anext(results)
    assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.parametrize("parallel", [0, -1, True, 1.5, "4"])
def test_a_number_that_would_do_nothing_is_refused(parallel: Any) -> None:
    """Nobody waits for ever because of a zero."""
    with pytest.raises(UsageError, match="whole number from 1 on"):
        check_parallel(parallel)
