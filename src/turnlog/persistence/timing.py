"""How long writes wait, and the clock that windows and retries get their time from.

Owns the times and the port to the clock. What happens when a time is over is `write_behind`'s decision.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol


class Timer(Protocol):
    """A callback that has been scheduled."""

    def cancel(self) -> None:
        """Forget the callback; harmless after it has run."""


class Scheduler(Protocol):
    """Where windows and retries get their time from."""

    def after(self, delay: float, callback: Callable[[], None]) -> Timer:
        """Call `callback` in `delay` seconds; 0 means the next turn of the loop."""


class LoopScheduler:
    """The running event loop's clock."""

    def after(self, delay: float, callback: Callable[[], None]) -> Timer:
        """Call `callback` in `delay` seconds; 0 means the next turn of the loop."""
        loop = asyncio.get_running_loop()
        return loop.call_later(delay, callback) if delay > 0 else loop.call_soon(callback)


@dataclass(frozen=True, slots=True)
class Timing:
    """How long things wait, in seconds.

    Attributes:
        window: From the first waiting event to its write; 0 is the next turn of the loop.
        retry_first: From a first failure to the automatic retry; doubled each time.
        retry_max: The longest wait between automatic retries.
        retry_floor: The least wait before an event that arrives after a failure causes a retry.
    """

    window: float = 0.2
    retry_first: float = 0.5
    retry_max: float = 30.0
    retry_floor: float = 0.05
