"""Write claims: taken with an epoch, kept by a lease, given back (W1).

Owns the claim and its statements. Who may take a session from whom is decided in `backends.leases`; that a
late write changes nothing is checked by the statements that write, which name the epoch.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from turnlog.backends.leases import Lease, check_free, decode_owner
from turnlog.backends.postgres.group_commit import GroupCommit, Write
from turnlog.backends.postgres.leasing import FORGET_MILLISECONDS
from turnlog.errors import BackendError, ClaimOwner, SessionBusyError, SessionNotFoundError
from turnlog.events.segment import encode_segment

if TYPE_CHECKING:
    from turnlog.backends.postgres.connecting import Connections
    from turnlog.backends.postgres.leasing import LeaseHolder
    from turnlog.backends.postgres.link import Link
    from turnlog.backends.postgres.statements import Statements
    from turnlog.events.header import SessionHeader

_ROUNDS: Final = 16
"""Looks at a row that others keep changing before the call gives up as busy."""


@dataclass(slots=True, eq=False)
class PostgresClaim:
    """The write claim of one session: valid while the session's row has its epoch."""

    session_id: str
    segment: str
    epoch: int | None
    """None for a session that is not stored yet; storing it is what claims it."""
    was_tried: bool = False
    """Whether a statement was sent that would store it."""


class Holder(NamedTuple):
    """Who holds a session, as its row and the lease of the writer in it say."""

    epoch: int
    lease: Lease | None
    now: int


def lease_of(writer: str | None, owner: str | None, expires: int | None) -> Lease | None:
    """Make a lease of the columns of a joined row; None for a session that nobody holds."""
    facts = decode_owner(owner)
    if writer is None or expires is None or facts is None:
        return None
    return Lease(writer, facts, expires)


class Claims:
    """The claims of one store.

    Args:
        connections: Where connections come from.
        commits: The lane on which claims are taken and given back.
        statements: The SQL.
        lease: This process's lease.
    """

    def __init__(
        self, connections: Connections, commits: GroupCommit, statements: Statements, lease: LeaseHolder
    ) -> None:
        self._connections = connections
        self._commits = commits
        self._statements = statements
        self._lease = lease
        self._doubtful: set[str] = set()
        """Sessions that may be held by this process without its knowing: the reply to a claim was lost."""
        self._settling = asyncio.Lock()

    async def claim(
        self, session_id: str, owner: ClaimOwner, *, meta: SessionHeader | None, takeover: bool
    ) -> PostgresClaim:
        """Take the claim of one session; see `OptionalHooks.claim`."""
        segment = encode_segment(session_id)
        if not self._lease.is_registered:
            self._lease.describe(owner)
        if self._doubtful:
            await self._connections.write(self._settle)
        for _ in range(_ROUNDS):
            holder = await self._connections.read(partial(self._look, segment), empty=None)
            if holder is None:
                if meta is None:
                    raise SessionNotFoundError(session_id=session_id)
                return PostgresClaim(session_id, segment, None)
            check_free(session_id, holder.lease, holder.now, writer=self._lease.writer, takeover=takeover)
            epoch = await self._take(segment, holder.epoch)
            if epoch is not None:
                return PostgresClaim(session_id, segment, epoch)
        raise SessionBusyError(session_id=session_id)

    async def renew(self) -> None:
        """Prolong the lease, and with it every claim of this process."""

        async def work(link: Link) -> None:
            await link.execute(self._statements.lease, self._lease.parameters())
            await self._settle(link)

        await self._connections.write(work)

    async def release(self, claim: PostgresClaim) -> None:
        """Give a claim back, if it still counts."""
        if claim.epoch is None:
            if claim.was_tried:
                self._doubtful.add(claim.segment)
                await self._connections.write(self._settle)
            return
        parameters = {"segment": claim.segment, "epoch": claim.epoch}
        await self._commits.submit(
            Write(self._statements.release, parameters, claim.segment, is_change=False)
        )

    async def end(self) -> None:
        """Take this process out of the table of writers, and others that are long gone: they hold nothing."""
        if not self._lease.is_registered:
            return

        async def work(link: Link) -> None:
            await self._settle(link)
            await link.execute(
                self._statements.end_lease, {"writer": self._lease.writer, "age": FORGET_MILLISECONDS}
            )

        await self._connections.write(work)

    async def _look(self, segment: str, link: Link) -> Holder | None:
        """Read who holds a session."""
        cursor = await link.execute(self._statements.look, {"segment": segment})
        row: tuple[Any, ...] | None = await cursor.fetchone()
        if row is None:
            return None
        epoch, writer, owner, expires, now = row
        return Holder(epoch, lease_of(writer, owner, expires), now)

    async def _take(self, segment: str, epoch: int) -> int | None:
        """Raise the epoch of a session's row, unless somebody else was first."""
        parameters = {"segment": segment, "epoch": epoch, "writer": self._lease.writer}
        try:
            row = await self._commits.submit(
                Write(self._statements.take, parameters, segment, is_change=False, is_claim=True)
            )
        except BackendError as error:
            if not error.wrote_nothing:
                self._doubtful.add(segment)
            raise
        return None if row is None else int(row[0])

    async def _settle(self, link: Link) -> None:
        """Give back what may be held without this process's knowing."""
        async with self._settling:  # so that it never gives back what a claim has taken meanwhile
            doubtful = sorted(self._doubtful)
            if doubtful:
                await link.execute(
                    self._statements.release_doubtful, {"segments": doubtful, "writer": self._lease.writer}
                )
                self._doubtful.difference_update(doubtful)


def as_claim(claim: object) -> PostgresClaim:
    """Return an opaque claim as what it is."""
    assert isinstance(claim, PostgresClaim), "the claim is not one of this backend"
    return claim


def needed(claim: object | None) -> PostgresClaim:
    """Return the claim that a write came with.

    Raises:
        BackendError: There is none; the caller of the hook is at fault.
    """
    if claim is None:
        raise BackendError(
            backend="postgresql", reason="a write needs the claim of its session", wrote_nothing=True
        )
    return as_claim(claim)
