"""The connections of a store: the pool they come from, who may use one, and what becomes of broken ones.

Owns borrowing and giving back, and the mapping of the driver's exceptions at the border. What a connection
is checked for is known to `link`. Belongs to the event loop that first used it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final, TypeVar

import psycopg
from psycopg import pq
from psycopg_pool import AsyncConnectionPool, PoolClosed

from turnlog.backends.postgres.address import PostgresAddress
from turnlog.backends.postgres.failures import NAME, typed
from turnlog.backends.postgres.link import Link
from turnlog.backends.postgres.schema import Schema
from turnlog.errors import BackendError, BackendUnavailableError, UsageError

T = TypeVar("T")

POOL_SECONDS: Final = 10.0
"""How long a call waits for a free connection."""
REPLY_SECONDS: Final = 60.0
"""How long the work of one call may take on its connection before its outcome counts as unknown."""
LOCK_SECONDS: Final = 5.0
"""How long one statement waits for a row that another transaction keeps locked."""
SLOWEST_LINE: Final = 1_000_000
"""Bytes per second that a line has at least; larger writes have more time."""

_UNHEARD: Final = logging.NullHandler()
_FORGOTTEN: list[Connections] = []
"""Keeps the pools of a parent process, whose tasks belong to its loop, from being collected in a child."""


class Connections:
    """The connections of one store.

    Args:
        address: Where to.
        pool_seconds: See `POOL_SECONDS`.
        reply_seconds: See `REPLY_SECONDS`.
        lock_seconds: See `LOCK_SECONDS`.
    """

    def __init__(
        self,
        address: PostgresAddress,
        *,
        pool_seconds: float = POOL_SECONDS,
        reply_seconds: float = REPLY_SECONDS,
        lock_seconds: float = LOCK_SECONDS,
    ) -> None:
        self.address = address
        self.lock_seconds = lock_seconds
        self.schema = Schema(address.schema, address.label)
        self.links: weakref.WeakSet[Link] = weakref.WeakSet()
        """Every connection that may be open."""
        self.connect_failure: Exception | None = None
        """What the last failed attempt to connect failed with."""
        self._pool_seconds = pool_seconds
        self._reply_seconds = reply_seconds
        self._pool: AsyncConnectionPool[Link] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._opening = asyncio.Lock()
        self._given_up: asyncio.Future[None] | None = None
        self._late: set[asyncio.Task[None]] = set()
        self._is_closed = False

    # -- for the rest of the backend ------------------------------------------------------------

    async def read(self, work: Callable[[Link], Awaitable[T]], *, empty: T) -> T:
        """Do work that only reads, once more if its connection breaks.

        Args:
            work: Called with a connection.
            empty: The result where there is no schema yet.

        Returns:
            What the work returned.

        Raises:
            BackendError: The server cannot be reached or refused.
        """
        try:
            return await self._read(work, empty)
        except BackendUnavailableError as error:
            if not isinstance(error.__cause__, psycopg.OperationalError) or error.wrote_nothing:
                raise
        return await self._read(work, empty)

    async def _read(self, work: Callable[[Link], Awaitable[T]], empty: T) -> T:
        async with self.use() as link:
            return await work(link) if await self.schema.is_readable(link) else empty

    async def write(self, work: Callable[[Link], Awaitable[T]]) -> T:
        """Do work that writes; it is done once, and durable when this returns.

        Args:
            work: Called with a connection.

        Returns:
            What the work returned.

        Raises:
            BackendError: It failed; the outcome is unknown unless `.wrote_nothing` is true.
        """
        async with self.use() as link:
            await self.schema.make_ready(link)
            result = await work(link)
            self.check_durable(link)
            return result

    def check_durable(self, link: Link) -> None:
        """Refuse to acknowledge what a synchronous standby may not have."""
        if link.is_undurable:
            link.is_undurable = False
            raise BackendUnavailableError(
                backend=NAME,
                reason="the commit stopped waiting for the synchronous standby; it is not acknowledged",
                path=self.address.label,
            )

    @contextlib.asynccontextmanager
    async def use(self, nbytes: int = 0) -> AsyncIterator[Link]:
        """Borrow a connection; the driver's exceptions leave as typed errors, a doubtful one is closed.

        Args:
            nbytes: How much is sent, so that a slow line has the time it needs.
        """
        link = await self._borrow()
        try:
            async with self._watched(link, nbytes):
                yield link
        except psycopg.Error as error:
            if error.sqlstate in ("42P01", "3F000"):
                self.schema.forget()
            lost = link.closed
            if lost or error.sqlstate == "25006":
                await link.close()
            cause = TimeoutError() if lost and link.has_timed_out else error
            raise typed(cause, self.address.label, in_recovery=link.in_recovery, lost=lost) from error
        except BaseException:
            # Cancelled, or the process this stands for is gone: what the connection does is anybody's guess.
            if link.pgconn.transaction_status != pq.TransactionStatus.IDLE:
                await link.close()
            raise
        finally:
            await self._give_back(link)

    @contextlib.asynccontextmanager
    async def _watched(self, link: Link, nbytes: int) -> AsyncIterator[None]:
        """Break a connection off when its work takes too long; `link.give_time` begins anew."""
        loop = asyncio.get_running_loop()
        seconds = self._reply_seconds + nbytes / SLOWEST_LINE
        breaking: list[asyncio.Task[None]] = []

        def arm() -> asyncio.TimerHandle:
            return loop.call_later(seconds, lambda: breaking.append(loop.create_task(link.break_off())))

        timer = arm()

        def give_time() -> None:
            nonlocal timer
            timer.cancel()
            timer = arm()

        link.give_time = give_time
        try:
            yield
        finally:
            timer.cancel()
            for task in breaking:
                task.cancel()
                await asyncio.wait((task,))
                await link.close()

    def welcome(self, link: Link) -> None:
        """Take a new connection into the books, unless the pool is late and the store is closed."""
        if self._is_closed:
            raise PoolClosed("the store is closed")
        self.links.add(link)

    async def connect_alone(self) -> Link:
        """Make a connection outside of the pool; the caller closes it.

        Raises:
            BackendError: As `read`.
        """
        self._check_loop()
        try:
            return await Link.connect(self.address.conninfo, owner=self)
        except Exception as error:
            raise typed(error, self.address.label) from error

    async def aclose(self) -> None:
        """Close the pool and every connection in it."""
        self._is_closed = True
        if self._pool is not None:
            self._check_loop()
            await self._pool.close()
        if self in _FORGOTTEN:
            _FORGOTTEN.remove(self)

    def forget(self) -> None:
        """Cut every connection without a word, as the end of the process would.

        `aclose` may follow where the event loop still runs; in a forked child it does not.
        """
        self._is_closed = True
        _FORGOTTEN.append(self)
        for link in tuple(self.links):
            link.cut()

    @property
    def is_open(self) -> bool:
        """Whether anything was ever connected and not closed since."""
        return self._pool is not None and not self._is_closed

    # -- the pool -------------------------------------------------------------------------------

    async def _borrow(self) -> Link:
        pool = await self._opened()
        while True:
            try:
                link = await self._next(pool)
            except Exception as error:
                raise typed(error, self.address.label) from error
            if not link.is_broken():
                link.is_undurable = False
                return link
            await link.close()
            await self._give_back(link)

    async def _next(self, pool: AsyncConnectionPool[Link]) -> Link:
        """Take a connection of the pool, or hear at once that none can be made."""
        if pool.get_stats()["pool_available"]:
            return await pool.getconn(self._pool_seconds)
        loop = asyncio.get_running_loop()
        if self._given_up is None or self._given_up.done():
            self._given_up = loop.create_future()
        given_up = self._given_up
        getting = asyncio.ensure_future(pool.getconn(self._pool_seconds))
        try:
            await asyncio.wait((getting, given_up), return_when=asyncio.FIRST_COMPLETED)
            if getting.done():
                return getting.result()
            assert self.connect_failure is not None
            raise self.connect_failure
        except BaseException:
            # What it may still be given goes back; cancelled at the wrong moment it would keep it.
            getting.add_done_callback(self._return_late)
            raise

    def _return_late(self, getting: asyncio.Future[Link]) -> None:
        """Give a connection back that came when nobody waited for it any more."""
        if not getting.cancelled() and getting.exception() is None:
            task = asyncio.get_running_loop().create_task(self._give_back(getting.result()))
            self._late.add(task)
            task.add_done_callback(self._late.discard)

    def _no_connection(self, _: AsyncConnectionPool[Link]) -> None:
        """Hear from the pool that it cannot connect."""
        if self._given_up is not None and not self._given_up.done():
            self._given_up.set_result(None)

    async def _give_back(self, link: Link) -> None:
        assert self._pool is not None, "a connection that was borrowed came from a pool"
        await self._pool.putconn(link)

    async def _opened(self) -> AsyncConnectionPool[Link]:
        self._check_loop()
        if self._is_closed:
            raise BackendError(
                backend=NAME, reason="the store is closed", path=self.address.label, wrote_nothing=True
            )
        async with self._opening:
            if self._pool is None:
                # Every failure is raised as a typed error; the pool's own lines would only repeat it.
                logging.getLogger("psycopg.pool").addHandler(_UNHEARD)
                pool = AsyncConnectionPool(
                    self.address.conninfo,
                    connection_class=Link,
                    kwargs={"owner": self},
                    min_size=0,
                    max_size=self.address.pool_size,
                    open=False,
                    reconnect_timeout=0.0,
                    reconnect_failed=self._no_connection,
                    name=f"turnlog {self.address.label}",
                )
                await pool.open()
                self._pool = pool
            return self._pool

    def _check_loop(self) -> None:
        loop = asyncio.get_running_loop()
        if self._loop is None:
            self._loop = loop
        elif self._loop is not loop:
            raise UsageError(
                "a postgresql store belongs to the event loop that first used it; open another one here"
            )
