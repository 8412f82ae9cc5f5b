"""PostgreSQL backends that are wrong in one way each, with the harnesses that run them."""

from __future__ import annotations

import dataclasses
from collections.abc import AsyncIterator
from typing import Any

from tests.contract.postgres_harness import PostgresHarness
from tests.postgres_cluster import fresh_schema
from turnlog.backends.postgres.address import PostgresAddress
from turnlog.backends.postgres.backend import PostgresBackend
from turnlog.backends.postgres.claiming import PostgresClaim
from turnlog.errors import ClaimOwner
from turnlog.events.batch import EncodedBatch
from turnlog.events.header import SessionHeader
from turnlog.persistence.backend import LogSummary, PersistenceBackend, StoredEntry, StoredPrefix


class LosesDataOnReopen(PostgresHarness):
    """What one process stored is not there for the next one."""

    def make_backend(self) -> PersistenceBackend:
        self.schema = fresh_schema()
        self.url = self.cluster.url(schema=self.schema, more="&pool=4")
        return super().make_backend()


class EventByEvent(PostgresBackend):
    """Stores a batch one event at a time, each in a transaction of its own."""

    async def append_batch(
        self,
        meta: SessionHeader,
        batch: EncodedBatch,
        *,
        is_materialized: bool,
        claim: object | None,
        summary: LogSummary | None,
    ) -> str | None:
        revision = None
        for event in batch.events():
            revision = await super().append_batch(
                meta,
                EncodedBatch.of([event]),
                is_materialized=is_materialized,
                claim=claim,
                summary=summary,
            )
            is_materialized = True
        return revision


class HeaderFirst(PostgresBackend):
    """Stores the header of a new session in a transaction before its first batch."""

    async def append_batch(
        self,
        meta: SessionHeader,
        batch: EncodedBatch,
        *,
        is_materialized: bool,
        claim: object | None,
        summary: LogSummary | None,
    ) -> str | None:
        if not is_materialized and await self.read_stored_revision(meta.id) is None:
            await self.materialize_header(meta, claim=claim)
        return await super().append_batch(
            meta, batch, is_materialized=is_materialized, claim=claim, summary=summary
        )


class ConstantRevision(PostgresBackend):
    """Says that nothing has ever changed."""

    async def load_stored(self, session_id: str) -> StoredPrefix | None:
        found = await super().load_stored(session_id)
        return found and dataclasses.replace(found, revision="always")

    async def read_stored_revision(self, session_id: str) -> str | None:
        return await super().read_stored_revision(session_id) and "always"

    async def list(self, after: str | None = None, limit: int | None = None) -> AsyncIterator[StoredEntry]:
        async for entry in super().list(after, limit):
            yield dataclasses.replace(entry, revision="always")

    async def append_batch(self, *args: Any, **options: Any) -> str | None:
        await super().append_batch(*args, **options)
        return "always"


class _OtherStatement(PostgresBackend):
    """Appends with another statement than the right one."""

    def __init__(self, address: PostgresAddress) -> None:
        super().__init__(address)
        text = self._statements.append
        self._statements.append = self.changed(text)
        assert self._statements.append != text

    def changed(self, text: bytes) -> bytes:
        """Return the wrong statement."""
        raise NotImplementedError


class NoSeqCheck(_OtherStatement):
    """Appends whatever comes, wherever the log ends."""

    def changed(self, text: bytes) -> bytes:
        return text.replace(b" and next_seq = %(first)s", b"").replace(
            b"%(frame)b from log",
            b"%(frame)b from log on conflict (session, first_seq) do update set frame = excluded.frame",
        )


class WritesAfterTakeover(_OtherStatement):
    """Refuses a second writer, but lets the first one go on writing after a takeover."""

    def changed(self, text: bytes) -> bytes:
        return text.replace(b" and epoch = %(epoch)s", b" and epoch <> -%(epoch)s")


class IgnoresTheClaim(WritesAfterTakeover):
    """Gives the claim to everybody and checks nobody's."""

    async def claim(
        self,
        session_id: str,
        owner: ClaimOwner,
        *,
        meta: SessionHeader | None = None,
        takeover: bool = False,
    ) -> PostgresClaim:
        return await super().claim(session_id, owner, meta=meta, takeover=True)
