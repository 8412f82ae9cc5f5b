"""`IoThreads`: blocking calls on a bounded number of threads, results delivered together."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from turnlog.backends.io_threads import IoThreads
from turnlog.errors import UsageError


@pytest.fixture
async def threads() -> AsyncIterator[IoThreads]:
    """Four threads, ended after the test."""
    made = IoThreads("test", 4)
    yield made
    await made.aclose()


def _add(a: int, b: int) -> int:
    return a + b


async def test_results_and_errors_come_back(threads: IoThreads) -> None:
    """A call's value is returned and its exception raised, on the loop that asked."""
    assert await threads.run(_add, 1, b=2) == 3
    with pytest.raises(ZeroDivisionError):
        await threads.run(lambda: 1 // 0)
    with pytest.raises(SystemExit):
        await threads.run(exit, 3)
    assert await threads.run(threading.get_ident) != threading.get_ident()


async def test_threads_are_bounded_and_reused(threads: IoThreads) -> None:
    """Never more calls at a time than threads, and one thread is enough for one call after the other."""
    for _ in range(5):
        await threads.run(_add, 1, 1)
    names = {await threads.run(lambda: threading.current_thread().name) for _ in range(5)}
    assert names == {"test-0"}
    gate, running, most = threading.Event(), [0], [0]
    lock = threading.Lock()

    def blocked() -> None:
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        gate.wait(5)
        with lock:
            running[0] -= 1

    calls = [threads.run(blocked) for _ in range(9)]
    await asyncio.sleep(0)
    gate.set()
    await asyncio.gather(*calls)
    assert most[0] <= 4


async def test_a_burst_of_results_wakes_the_loop_once(
    monkeypatch: pytest.MonkeyPatch, threads: IoThreads
) -> None:
    """What finishes while the loop is busy is delivered by one wake-up."""
    loop = asyncio.get_running_loop()
    wakes = [0]
    original = loop.call_soon_threadsafe

    def counted(callback: Callable[..., object], *args: Any, **kwargs: Any) -> asyncio.Handle:
        wakes[0] += 1
        return original(callback, *args, **kwargs)

    monkeypatch.setattr(loop, "call_soon_threadsafe", counted)
    left, done = [20], threading.Event()
    lock = threading.Lock()

    def work() -> None:
        with lock:
            left[0] -= 1
            if not left[0]:
                done.set()

    calls = [threads.run(work) for _ in range(20)]
    done.wait(5)  # the loop stands still until the last call is through
    await asyncio.gather(*calls)
    assert wakes[0] <= 4 + 1  # two threads may both find nobody awake; a late finisher wakes it once more


async def test_a_cancelled_wait_stops_nothing(threads: IoThreads) -> None:
    """Cancelling the future leaves the call running to its end, and its outcome goes nowhere."""
    begun, gate, ended = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        gate.wait(5)
        ended.set()

    call = threads.run(work)
    await asyncio.sleep(0)
    assert begun.wait(5)
    call.cancel()
    gate.set()
    await threads.run(ended.wait, 5)
    assert ended.is_set()


async def test_a_call_left_aside_is_made_by_a_free_thread() -> None:
    """Both calls run at the same time; the error of either goes to whoever asks."""
    threads = IoThreads("test", 1)
    both = threading.Barrier(2)

    def main() -> int:
        other = threads.aside(lambda: both.wait(5))
        both.wait(5)
        other.result()
        failing = threads.aside(lambda: 1 // 0)
        failing.end()
        failing.result()
        return 0

    with pytest.raises(ZeroDivisionError):
        await threads.run(main)
    await threads.aclose()


async def test_a_call_left_aside_is_made_by_its_own_thread_if_none_is_free() -> None:
    """Nobody waits for a thread that is busy, and nothing is called twice."""
    threads = IoThreads("test", 1)
    gate, begun = threading.Event(), threading.Event()
    made: list[str] = []

    def wait() -> None:
        begun.set()
        gate.wait(5)

    def main() -> None:
        busy = threads.aside(wait)
        begun.wait(5)
        other = threads.aside(lambda: made.append(threading.current_thread().name))
        other.result()
        other.result()
        gate.set()
        busy.result()

    await threads.run(main)
    assert made == ["test-0"]
    await threads.aclose()
    threads.aside(lambda: made.append("closed")).result()  # nobody else is there any more
    assert made == ["test-0", "closed"]


async def test_closing_lets_started_calls_finish() -> None:
    """aclose waits for what runs, can be repeated, and later calls are refused."""
    threads = IoThreads("test", 2)
    slow = threads.run(time.sleep, 0.02)
    await threads.aclose()
    await threads.aclose()
    assert slow.done()
    with pytest.raises(UsageError, match="closed"):
        threads.run(_add, 1, 1)


def test_another_loop_is_refused_while_the_first_lives() -> None:
    """The threads belong to one loop; after it has been closed another one may use them."""
    threads = IoThreads("test", 2)

    async def use() -> int:
        return await threads.run(_add, 1, 1)

    first = asyncio.new_event_loop()
    assert first.run_until_complete(use()) == 2
    second = asyncio.new_event_loop()
    with pytest.raises(UsageError, match="another event loop"):
        second.run_until_complete(use())
    first.close()
    assert second.run_until_complete(use()) == 2
    second.run_until_complete(threads.aclose())
    second.close()


def test_a_result_for_a_closed_loop_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call that outlives its loop ends quietly, and the thread serves the next loop."""
    threads = IoThreads("test", 1)
    gate, tried = threading.Event(), threading.Event()
    wake = threads._wake

    def wake_and_tell() -> None:
        wake()
        tried.set()

    monkeypatch.setattr(threads, "_wake", wake_and_tell)

    async def start() -> None:
        threads.run(gate.wait, 5)

    first = asyncio.new_event_loop()
    first.run_until_complete(start())
    first.close()
    gate.set()
    assert tried.wait(30)

    async def use() -> int:
        return await threads.run(_add, 1, 1)

    second = asyncio.new_event_loop()
    assert second.run_until_complete(use()) == 2
    second.run_until_complete(threads.aclose())
    second.close()
