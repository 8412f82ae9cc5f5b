"""Who is told that a log has grown: at once within this process, by looking now and then otherwise.

Owns the waiting. What a revision is, and how it is read, is the reader's business.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final

_FIRST_LOOK: Final = 0.05
_LONGEST_WAIT: Final = 0.5
"""Seconds between two looks at a watched log: short after a change, longer while nothing happens."""


class Watchers:
    """The watched sessions of one backend."""

    def __init__(self) -> None:
        self._events: dict[str, set[tuple[asyncio.AbstractEventLoop, asyncio.Event]]] = {}

    def changed(self, segment: str) -> None:
        """Wake those who watch a session; called on any event loop's thread after a commit."""
        for loop, event in tuple(self._events.get(segment, ())):
            loop.call_soon_threadsafe(event.set)

    async def watch(self, segment: str, revision: Callable[[], Awaitable[str | None]]) -> AsyncIterator[None]:
        """Yield when the revision has changed, joining changes made meanwhile into one.

        Args:
            segment: The session's segment.
            revision: Reads the revision now; other processes' commits are seen by it only.
        """
        event = asyncio.Event()
        entry = (asyncio.get_running_loop(), event)
        watching = self._events.setdefault(segment, set())
        watching.add(entry)
        try:
            seen = await revision()
            wait = _FIRST_LOOK
            while True:
                try:
                    async with asyncio.timeout(wait):
                        await event.wait()
                except TimeoutError:
                    wait = min(wait * 1.5, _LONGEST_WAIT)
                event.clear()
                now = await revision()
                if now != seen:
                    seen, wait = now, _FIRST_LOOK
                    yield
        finally:
            watching.discard(entry)
            if not watching:
                self._events.pop(segment, None)
