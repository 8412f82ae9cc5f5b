"""What can be wrong with a backend whatever its medium is, to be put in front of a right one.

Owns faults that need nothing but hooks. Those that reach into a medium stand with the backends of it.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncIterator
from typing import Any

from turnlog.events.batch import EncodedBatch
from turnlog.events.header import SessionHeader
from turnlog.persistence.backend import StoredEntry, StoredPrefix


class EventByEvent:
    """Stores a batch one event at a time, each by itself."""

    async def append_batch(
        self, meta: SessionHeader, batch: EncodedBatch, *, is_materialized: bool, **options: Any
    ) -> str | None:
        right: Any = super()
        revision: str | None = None
        for event in batch.events():
            await asyncio.sleep(0)
            revision = await right.append_batch(
                meta, EncodedBatch.of([event]), is_materialized=is_materialized, **options
            )
            is_materialized = True
        return revision


class HeaderFirst:
    """Stores the header of a new session before its first batch."""

    async def append_batch(
        self, meta: SessionHeader, batch: EncodedBatch, *, is_materialized: bool, **options: Any
    ) -> str | None:
        right: Any = super()
        if not is_materialized and await right.read_stored_revision(meta.id) is None:
            await right.materialize_header(meta, claim=options["claim"])
            await asyncio.sleep(0)
        revision: str | None = await right.append_batch(
            meta, batch, is_materialized=is_materialized, **options
        )
        return revision


class ConstantRevision:
    """Says that nothing has ever changed."""

    async def load_stored(self, session_id: str) -> StoredPrefix | None:
        right: Any = super()
        found: StoredPrefix | None = await right.load_stored(session_id)
        return found and dataclasses.replace(found, revision="always")

    async def read_stored_revision(self, session_id: str) -> str | None:
        right: Any = super()
        found: str | None = await right.read_stored_revision(session_id)
        return found and "always"

    async def list(self, after: str | None = None, limit: int | None = None) -> AsyncIterator[StoredEntry]:
        right: Any = super()
        async for entry in right.list(after, limit):
            yield dataclasses.replace(entry, revision="always")

    async def append_batch(self, *args: Any, **options: Any) -> str | None:
        right: Any = super()
        await right.append_batch(*args, **options)
        return "always"


class TakesEveryClaim:
    """Gives the claim of a session to everybody."""

    async def claim(self, *args: Any, **options: Any) -> Any:
        right: Any = super()
        return await right.claim(*args, **{**options, "takeover": True})
