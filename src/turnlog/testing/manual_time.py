"""`ManualScheduler`: a clock that stands still until a test moves it.

Owns timers that the write-behind asks for. Nothing sleeps, so windows and retries are counted, not timed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(eq=False)
class ManualTimer:
    """One scheduled callback."""

    due: float
    """When it runs, in seconds of the manual clock."""
    delay: float
    """How long it was asked to wait, in seconds."""
    callback: Callable[[], None]
    cancelled: bool = False

    def cancel(self) -> None:
        """Forget the callback."""
        self.cancelled = True


class ManualScheduler:
    """Runs callbacks when `advance` passes their time; hand it to the coordinator as `scheduler`.

    Attributes:
        now: Seconds since the scheduler was made.
        asked: Every delay that was asked for, in order.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self.asked: list[float] = []
        self._timers: list[ManualTimer] = []

    def after(self, delay: float, callback: Callable[[], None]) -> ManualTimer:
        """Schedule a callback.

        Args:
            delay: Seconds from now on this clock.
            callback: What to call.

        Returns:
            The timer.
        """
        timer = ManualTimer(self.now + delay, delay, callback)
        self.asked.append(delay)
        self._timers.append(timer)
        return timer

    @property
    def waiting(self) -> tuple[float, ...]:
        """The delays of all timers that have neither run nor been cancelled."""
        return tuple(timer.delay for timer in self._timers if not timer.cancelled)

    async def advance(self, seconds: float) -> None:
        """Move the clock, run what is due in order, and let what was started come to rest.

        Args:
            seconds: How far; 0 runs what is due now.
        """
        end = self.now + seconds
        while True:
            self._timers = [timer for timer in self._timers if not timer.cancelled]
            due = min((t for t in self._timers if t.due <= end), key=lambda t: t.due, default=None)
            if due is None:
                break
            self._timers.remove(due)
            self.now = max(self.now, due.due)
            due.callback()
            await settle()
        self.now = end
        await settle()


async def settle(turns: int = 50) -> None:
    """Give every task that is ready to run a few turns of the loop.

    Args:
        turns: How many.
    """
    for _ in range(turns):
        await asyncio.sleep(0)


async def until(condition: Callable[[], bool]) -> None:
    """Wait until `condition` holds; the suite's time limit ends a wait that is in vain.

    Args:
        condition: Asked again after each short sleep.
    """
    while not condition():  # noqa: ASYNC110 - conditions are plain reads, nobody could set an event
        await asyncio.sleep(0.001)
