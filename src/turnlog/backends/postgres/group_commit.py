"""Group commit: writes of many sessions in one pipeline, each its own transaction, one sync for all.

Owns the queue and the order in a pipeline. What a write means, and why one had no row, is known to
`appending`. Whatever waits while a group is on its way forms the next group.

A pipeline is: where it takes claims, the lease they stand on; the writes, each a transaction that does not
wait for its sync; the renewal of this process's lease, a transaction that does wait, and whose sync carries
everything before it in the server's log to the disk and to a synchronous standby; one notification for all.
Nothing is acknowledged before that renewal has come back, so a group costs one sync and one notification
whatever its size, and no session's failure undoes another's write.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import psycopg

from turnlog.backends.postgres.failures import NAME, typed
from turnlog.errors import BackendError, BackendUnavailableError

if TYPE_CHECKING:
    from turnlog.backends.postgres.connecting import Connections
    from turnlog.backends.postgres.leasing import LeaseHolder
    from turnlog.backends.postgres.link import Link
    from turnlog.backends.postgres.statements import Statements

GROUP_WRITES: Final = 256
"""Most writes of one group."""
GROUP_BYTES: Final = 8 << 20
"""Bytes of frames after which a group is closed; a single larger write is a group of its own."""
_PAYLOAD_BYTES: Final = 7000
"""Most bytes of a notification; PostgreSQL allows a little less than 8000."""
EVERY_SESSION: Final = "*"
"""Payload that stands for any session, where the names of a group are too many."""


def wake_name(segment: str) -> str:
    """Return the short name under which a session is named in notifications."""
    return hashlib.sha256(segment.encode()).hexdigest()[:12]


def payload_of(segments: Sequence[str]) -> str:
    """Return the payload of one notification for several sessions."""
    payload = " ".join(sorted({wake_name(segment) for segment in segments}))
    return payload if len(payload) <= _PAYLOAD_BYTES else EVERY_SESSION


@dataclass(slots=True, eq=False)
class Write:
    """One statement for one session; see `statements` for what it returns."""

    statement: bytes
    parameters: Mapping[str, Any]
    segment: str
    nbytes: int = 0
    is_change: bool = True
    """Whether it changes the log, so that those who follow it are to be woken."""
    is_claim: bool = False
    """Whether it makes this process the holder of the session, which nobody respects without a lease."""
    done: asyncio.Future[tuple[Any, ...] | None] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


class GroupCommit:
    """The one lane on which a store's writes go out.

    Args:
        connections: Where connections come from.
        statements: The SQL.
        lease: This process's lease, which each group renews.
    """

    def __init__(self, connections: Connections, statements: Statements, lease: LeaseHolder) -> None:
        self.groups = 0
        """Groups sent so far, for tests and benches that count."""
        self._connections = connections
        self._statements = statements
        self._lease = lease
        self._queue: deque[Write] = deque()
        self._lane: asyncio.Task[None] | None = None

    async def submit(self, write: Write) -> tuple[Any, ...] | None:
        """Send a write with the next group.

        Args:
            write: A new write.

        Returns:
            The statement's row, durable; or None where it found nothing to write to.

        Raises:
            BackendError: It failed; the outcome is unknown unless `.wrote_nothing` is true.
        """
        self._queue.append(write)
        if not self.is_busy:
            self._lane = asyncio.get_running_loop().create_task(self._run())
        return await write.done

    async def barrier(self, segment: str) -> None:
        """Make sure that what is visible of a session is durable, too: it may be another's doing."""
        await self.submit(Write(b"select 1", {}, segment, is_change=False))

    @property
    def is_busy(self) -> bool:
        """Whether a group is on its way."""
        return self._lane is not None and not self._lane.done()

    async def aclose(self) -> None:
        """Wait until nothing is on its way."""
        if self._lane is not None:
            await asyncio.wait((self._lane,))

    def forget(self) -> None:
        """Let go of everything; nothing more is sent."""
        self._queue.clear()
        if self._lane is not None:
            with suppress(RuntimeError):  # in a forked child its loop is gone
                self._lane.cancel()
            self._lane = None

    # -- the lane -------------------------------------------------------------------------------

    async def _run(self) -> None:
        while self._queue:
            group = self._next_group()
            try:
                await self._send(group)
            except Exception as error:  # noqa: BLE001  # whatever it is, those who wait must hear of it
                for write in group:
                    _fail(write, error)

    def _next_group(self) -> list[Write]:
        group = [self._queue.popleft()]
        size = group[0].nbytes
        while self._queue and len(group) < GROUP_WRITES:
            size += self._queue[0].nbytes
            if size > GROUP_BYTES:
                break
            group.append(self._queue.popleft())
        return group

    async def _send(self, group: list[Write]) -> None:
        """Send a group; of several that failed and left the connection whole, each goes again, alone."""
        self.groups += 1
        async with self._connections.use(sum(write.nbytes for write in group)) as link:
            await self._connections.schema.make_ready(link)
            failed, error = await self._pipeline(link, group)
            if len(failed) == 1:
                assert error is not None
                _fail(failed[0], self._typed(error, link))
                return
            for write in failed:  # the error is that of the first; each is to hear of its own
                _, error = await self._pipeline(link, [write])
                if error is not None:
                    _fail(write, self._typed(error, link))

    def _typed(self, error: psycopg.Error, link: Link) -> Exception:
        found = typed(error, self._connections.address.label, in_recovery=link.in_recovery)
        found.__cause__ = error
        return found

    async def _pipeline(self, link: Link, group: list[Write]) -> tuple[list[Write], psycopg.Error | None]:
        """Run one pipeline and answer the writes that went well.

        Returns:
            The writes that certainly failed, and the first error.

        Raises:
            psycopg.Error: The connection broke: the outcome of the whole group is unknown.
            BackendUnavailableError: A commit did not wait for its standby: likewise.
        """
        cursors = [link.cursor(binary=True) for _ in group]
        barrier = link.cursor()
        first: psycopg.Error | None = None
        try:
            async with link.pipeline() as pipeline:
                if any(write.is_claim for write in group):
                    # Before the claim: a holder without a lease would be taken over at once.
                    await link.execute(self._statements.lease, self._lease.parameters())
                    await pipeline.sync()
                for write, cursor in zip(group, cursors, strict=True):
                    try:
                        await cursor.execute(write.statement, write.parameters)
                        await pipeline.sync()
                    except psycopg.Error as error:
                        if link.closed:
                            raise
                        first = first or error
                await barrier.execute(self._statements.lease, self._lease.parameters())
                await pipeline.sync()
                changed = [write.segment for write in group if write.is_change]
                if changed:
                    parameters = {"channel": self._statements.channel, "payload": payload_of(changed)}
                    await link.execute(self._statements.notify, parameters)
        except psycopg.Error as error:
            if link.closed:
                raise
            first = first or error
        self._connections.check_durable(link)
        failed = []
        for write, cursor in zip(group, cursors, strict=True):
            if cursor.pgresult is None:
                failed.append(write)
            elif barrier.pgresult is None:
                _fail(write, self._no_barrier(first))
            elif not write.done.done():
                write.done.set_result(await cursor.fetchone())
        return failed, first

    def _no_barrier(self, why: psycopg.Error | None) -> BackendUnavailableError:
        error = BackendUnavailableError(
            backend=NAME,
            reason=f"the commit that makes a group durable failed; the outcome is unknown ({why})",
            path=self._connections.address.label,
        )
        error.__cause__ = why
        return error


def _fail(write: Write, error: Exception) -> None:
    """Tell one caller; each gets an error of its own, since callers add to them."""
    if write.done.done():
        return
    if isinstance(error, BackendError):
        told = type(error)(
            backend=error.backend, reason=error.reason, path=error.path, wrote_nothing=error.wrote_nothing
        )
        told.__cause__ = error.__cause__
        error = told
    write.done.set_exception(error)
