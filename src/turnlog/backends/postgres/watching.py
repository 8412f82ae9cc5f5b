"""Watching: one listening connection per store wakes everybody who follows a session (LISTEN, NOTIFY).

Owns that connection, its renewal after a loss, and who waits for what. Which session a notification means
is said by the short names of `group_commit`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Final

import psycopg

from turnlog.backends.postgres.group_commit import EVERY_SESSION, wake_name
from turnlog.errors import TurnlogError

if TYPE_CHECKING:
    from turnlog.backends.postgres.connecting import Connections
    from turnlog.backends.postgres.link import Link
    from turnlog.backends.postgres.statements import Statements

logger = logging.getLogger(__name__)

_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 5.0
PATIENCE_SECONDS: Final = 60.0
"""How long the server may be away before those who watch are told."""
STANDBY_POLL: Final = 1.0
"""Seconds between looks on a standby, which cannot notify."""


class _Watch:
    """Somebody who waits for one session."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.wakes = asyncio.Event()
        self.error: TurnlogError | None = None


class Watcher:
    """The listening connection of one store, made when the first watch begins, closed after the last.

    Args:
        connections: Makes the connection.
        statements: Names the channel.
        patience: See `PATIENCE_SECONDS`.
    """

    def __init__(
        self, connections: Connections, statements: Statements, *, patience: float = PATIENCE_SECONDS
    ) -> None:
        self._connections = connections
        self._channel = statements.channel
        self._patience = patience
        self._watches: set[_Watch] = set()
        self._listener: asyncio.Task[None] | None = None
        self._is_listening = False

    async def watch(self, segment: str) -> AsyncIterator[None]:
        """Yield once when watching has begun, then whenever the session may have changed.

        Args:
            segment: The session.

        Raises:
            BackendError: The server was away for too long, or refuses.
        """
        watch = _Watch(wake_name(segment))
        self._watches.add(watch)
        try:
            if self._listener is None or self._listener.done():
                self._listener = asyncio.get_running_loop().create_task(self._listen())
            elif self._is_listening:
                watch.wakes.set()
            while True:
                await watch.wakes.wait()
                watch.wakes.clear()
                if watch.error is not None:
                    raise watch.error
                yield
        finally:
            self._watches.discard(watch)
            if not self._watches:
                await self.aclose()

    async def aclose(self) -> None:
        """Stop listening."""
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.cancel()
            await asyncio.wait((listener,))

    def forget(self) -> None:
        """Let go of everything, as the end of the process would."""
        if self._listener is not None:
            with contextlib.suppress(RuntimeError):  # in a forked child its loop is gone
                self._listener.cancel()
            self._listener = None

    # -- the listener ---------------------------------------------------------------------------

    async def _listen(self) -> None:
        loop = asyncio.get_running_loop()
        pause, away_since = _FIRST_PAUSE, loop.time()
        try:
            while True:
                try:
                    link = await self._connections.connect_alone()
                except TurnlogError as error:
                    if not error.retryable or loop.time() - away_since >= self._patience:
                        self._fail(error)
                        return
                    await asyncio.sleep(pause)
                    pause = min(pause * 2, _LONGEST_PAUSE)
                    continue
                try:
                    await self._receive(link)
                except psycopg.Error as error:
                    logger.info("the listening connection was lost and is made again: %s", error)
                finally:
                    self._is_listening = False
                    await link.close()
                pause, away_since = _FIRST_PAUSE, loop.time()
        except Exception as error:  # noqa: BLE001  # a watch must not wait for a listener that is gone
            self._fail(TurnlogError(f"watching failed: {error}"))

    async def _receive(self, link: Link) -> None:
        """Listen until the connection breaks; what may have been missed before wakes everybody."""
        if link.in_recovery:
            while True:
                self._wake(EVERY_SESSION)
                await asyncio.sleep(STANDBY_POLL)
                await link.execute("select 1")
        await link.execute(f'listen "{self._channel}"'.encode())
        self._is_listening = True
        self._wake(EVERY_SESSION)
        async for notification in link.notifies():
            self._wake(notification.payload)

    def _wake(self, payload: str) -> None:
        names = None if payload == EVERY_SESSION else frozenset(payload.split())
        for watch in self._watches:
            if names is None or watch.name in names:
                watch.wakes.set()

    def _fail(self, error: TurnlogError) -> None:
        for watch in self._watches:
            watch.error = error
            watch.wakes.set()
