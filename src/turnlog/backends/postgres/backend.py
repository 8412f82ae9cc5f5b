"""`PostgresBackend`: the hooks of the storage seam over one PostgreSQL database.

Owns nothing but the putting together; each hook is one call into the module that does the work. It keeps
no orchestration state. Belongs to the event loop that first used it.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING

from turnlog.backends.leases import LEASE_SECONDS
from turnlog.backends.postgres.address import PostgresAddress
from turnlog.backends.postgres.appending import Appender
from turnlog.backends.postgres.claiming import Claims, PostgresClaim, as_claim, needed
from turnlog.backends.postgres.connecting import LOCK_SECONDS, POOL_SECONDS, REPLY_SECONDS, Connections
from turnlog.backends.postgres.erasing import vacuum
from turnlog.backends.postgres.failures import NAME
from turnlog.backends.postgres.group_commit import GroupCommit
from turnlog.backends.postgres.leasing import LeaseHolder
from turnlog.backends.postgres.listing import list_entries
from turnlog.backends.postgres.reading import Reader
from turnlog.backends.postgres.statements import Statements
from turnlog.backends.postgres.watching import PATIENCE_SECONDS, Watcher
from turnlog.errors import BackendError
from turnlog.events.segment import encode_segment

if TYPE_CHECKING:
    from turnlog.errors import ClaimOwner
    from turnlog.events.batch import Damage, EncodedBatch, StoredFrame
    from turnlog.events.envelope import SessionEvent
    from turnlog.events.header import SessionHeader
    from turnlog.persistence.backend import LogSummary, StoredEntry, StoredPrefix

logger = logging.getLogger(__name__)


class PostgresBackend:
    """Every hook of the storage seam over one schema of a PostgreSQL database.

    Nothing is connected before the first hook; the schema is made by the first hook that writes.

    Args:
        address: Where the database is.
        lease_seconds: How long this process's claims keep others out after their last renewal.
        pool_seconds: How long a call waits for a free connection.
        reply_seconds: How long one call's work may take before its outcome counts as unknown.
        lock_seconds: How long a statement waits for a row that another transaction keeps locked.
        patience_seconds: How long the server may be away before those who watch are told.
    """

    name = NAME

    def __init__(
        self,
        address: PostgresAddress,
        *,
        lease_seconds: float = LEASE_SECONDS,
        pool_seconds: float = POOL_SECONDS,
        reply_seconds: float = REPLY_SECONDS,
        lock_seconds: float = LOCK_SECONDS,
        patience_seconds: float = PATIENCE_SECONDS,
    ) -> None:
        self.address = address
        self.connections = Connections(
            address, pool_seconds=pool_seconds, reply_seconds=reply_seconds, lock_seconds=lock_seconds
        )
        self.lease = LeaseHolder(lease_seconds)
        self._statements = Statements(address.schema)
        self.commits = GroupCommit(self.connections, self._statements, self.lease)
        self._reader = Reader(self.connections, self._statements)
        self._appender = Appender(self.commits, self._reader, self._statements, self.lease)
        self._claims = Claims(self.connections, self.commits, self._statements, self.lease)
        self._watcher = Watcher(self.connections, self._statements, patience=patience_seconds)

    # -- reading --------------------------------------------------------------------------------

    async def load_stored(self, session_id: str) -> StoredPrefix | None:
        """Read the session's row and its frames; there is no torn tail in a database."""
        return await self._reader.load(session_id)

    async def read_stored_revision(self, session_id: str) -> str | None:
        """Read the revision from the session's row."""
        return await self._reader.revision(session_id)

    async def load_stored_from(self, session_id: str, seq: int, limit: int | None) -> StoredPrefix | None:
        """Read only the frames that hold the wanted events."""
        return await self._reader.load_from(session_id, seq, limit)

    def scan_stored(self, session_id: str) -> AsyncIterator[StoredFrame | Damage]:
        """Walk the frames page by page; positions are seqs."""
        return self._reader.scan(session_id)

    def list(self, after: str | None = None, limit: int | None = None) -> AsyncIterator[StoredEntry]:
        """Walk the sessions' rows page by page."""
        return list_entries(self.connections, self._statements, after, limit)

    def watch(self, session_id: str) -> AsyncIterator[None]:
        """Yield when the server notifies of the session, from whichever machine it was written."""
        return self._watcher.watch(encode_segment(session_id))

    def locate(self, meta: SessionHeader) -> str | None:
        """Return the database, schema and key of the session's row."""
        return f"{self.address.label}#{encode_segment(meta.id)}"

    # -- writing --------------------------------------------------------------------------------

    async def append_batch(
        self,
        meta: SessionHeader,
        batch: EncodedBatch,
        *,
        is_materialized: bool,
        claim: object | None,
        summary: LogSummary | None,
    ) -> str | None:
        """Append one frame with the next group commit, storing the header with the first one."""
        return await self._appender.append(
            meta, batch, is_materialized=is_materialized, claim=needed(claim), summary=summary
        )

    async def materialize_header(self, meta: SessionHeader, *, claim: object | None) -> None:
        """Store a header without events."""
        await self._appender.materialize(meta, needed(claim))

    async def commit_repair(
        self,
        meta: SessionHeader,
        torn_marker: object | None,
        closers: Sequence[SessionEvent],
        *,
        claim: object | None,
    ) -> None:
        """Append the closers as one frame."""
        await self._appender.repair(meta, closers, needed(claim))

    async def delete_stored(self, session_id: str, *, claim: object | None) -> None:
        """Delete the session's row and frames in one statement."""
        await self._appender.delete(session_id, needed(claim))

    async def erase_remains(self) -> bool:
        """Vacuum both tables; False while an old snapshot holds deleted rows back."""
        return await vacuum(self.connections, self._statements)

    # -- claims ---------------------------------------------------------------------------------

    async def claim(
        self,
        session_id: str,
        owner: ClaimOwner,
        *,
        meta: SessionHeader | None = None,
        takeover: bool = False,
    ) -> PostgresClaim:
        """Raise the epoch of the session's row; a session without a row is claimed when it is stored."""
        return await self._claims.claim(session_id, owner, meta=meta, takeover=takeover)

    async def renew(self, claims: Sequence[object]) -> None:
        """Prolong the lease that all claims of this process share."""
        await self._claims.renew()

    async def release(self, claim: object) -> None:
        """Free the session's row, if the claim still counts."""
        await self._claims.release(as_claim(claim))

    # -- the end --------------------------------------------------------------------------------

    async def aclose(self) -> None:
        """End the lease and close every connection."""
        await self.commits.aclose()
        await self._watcher.aclose()
        try:
            if self.connections.is_open:
                await self._claims.end()
        except BackendError as error:
            # Everything is written and every claim was given back or runs out with the lease.
            logger.info("the lease could not be ended and runs out by itself: %s", error)
        finally:
            await self.connections.aclose()

    def forget(self) -> None:
        """Cut the connections without a word, in a forked child or when the process is to look dead."""
        self.commits.forget()
        self._watcher.forget()
        self.connections.forget()
