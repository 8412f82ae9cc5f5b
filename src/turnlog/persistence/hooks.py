"""`Hooks`: one backend as the coordinator calls it, with optional hooks detected and errors typed.

Owns detection, the default for an absent hook, and the mapping of a stray exception to `BackendError`.
It serialises nothing and keeps no state of any session.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractContextManager, asynccontextmanager
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar, cast

from turnlog.errors import (
    BackendError,
    CorruptLogError,
    SessionBusyError,
    SessionCollisionError,
    SessionExistsError,
    TurnlogError,
    UnexpectedSeqError,
    UnsupportedFormatError,
    UsageError,
    WriterFencedError,
)
from turnlog.persistence.backend import REQUIRED_HOOKS, FullBackend, supports

if TYPE_CHECKING:
    from turnlog.errors import ClaimOwner
    from turnlog.events.batch import Damage, EncodedBatch, StoredFrame
    from turnlog.events.envelope import SessionEvent
    from turnlog.events.header import SessionHeader
    from turnlog.persistence.backend import (
        LogSummary,
        PersistenceBackend,
        Quarantined,
        StoredEntry,
        StoredPrefix,
    )

T = TypeVar("T")

NOTHING_WRITTEN = (
    UnexpectedSeqError,
    SessionBusyError,
    SessionExistsError,
    SessionCollisionError,
    WriterFencedError,
    UsageError,
)
"""Errors of a write hook after which certainly nothing of the batch is stored (B3)."""


def wrote_nothing(error: BaseException) -> bool:
    """Tell whether a failed write certainly left nothing behind (B3).

    Args:
        error: What the write hook raised.

    Returns:
        False when the outcome is unknown, so that the same batch must be retried alone.
    """
    if isinstance(error, NOTHING_WRITTEN):
        return True
    return isinstance(error, BackendError) and error.wrote_nothing


def typed(backend: str, hook: str, error: Exception) -> TurnlogError:
    """Give what a hook raised a type: a `TurnlogError` as it is, anything else as a `BackendError` of it.

    Args:
        backend: The backend's name.
        hook: The hook's name.
        error: What it raised.
    """
    if isinstance(error, TurnlogError):
        return error
    stray = BackendError(backend=backend, reason=f"{hook} raised {type(error).__name__}: {error}")
    stray.__cause__ = error
    return stray


class _Typed(AbstractContextManager[None]):
    """Turns an exception that is no `TurnlogError` into a `BackendError` chained to it."""

    __slots__ = ("_backend", "_hook")

    def __init__(self, backend: str, hook: str) -> None:
        self._backend = backend
        self._hook = hook

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(error, Exception) and not isinstance(error, TurnlogError | StopAsyncIteration):
            raise typed(self._backend, self._hook, error) from error


@asynccontextmanager
async def _closing(iterator: AsyncIterator[T]) -> AsyncGenerator[AsyncIterator[T], None]:
    """Close an iterator at the end of a block, if it is one that can be closed."""
    try:
        yield iterator
    finally:
        if isinstance(iterator, AsyncGenerator):
            await iterator.aclose()


class Hooks:
    """The hooks of one backend; each optional one with a `has_` flag or a stated default.

    Args:
        backend: Any object with the required hooks.

    Raises:
        UsageError: A required hook is missing.
    """

    def __init__(self, backend: PersistenceBackend) -> None:
        missing = [hook for hook in REQUIRED_HOOKS if not supports(backend, hook)]
        if missing:
            raise UsageError(f"{type(backend).__name__} is no backend: it has no {', '.join(missing)}")
        self.name = backend.name
        self._backend = cast("FullBackend", backend)  # every optional hook is guarded by its flag
        self.has_revisions = supports(backend, "read_stored_revision")
        self.has_suffix_reads = supports(backend, "load_stored_from")
        self.has_watch = supports(backend, "watch")
        self.has_scan = supports(backend, "scan_stored")
        self.has_header_only = supports(backend, "materialize_header")
        self.has_delete = supports(backend, "delete_stored")
        self.has_claims = supports(backend, "claim")
        self.has_renewal = self.has_claims and supports(backend, "renew")

    def _typed(self, hook: str) -> _Typed:
        return _Typed(self.name, hook)

    async def load(self, session_id: str) -> StoredPrefix | None:
        """Call `load_stored`."""
        with self._typed("load_stored"):
            return await self._backend.load_stored(session_id)

    async def revision(self, session_id: str) -> str | None:
        """Call `read_stored_revision`; only where `has_revisions`."""
        with self._typed("read_stored_revision"):
            return await self._backend.read_stored_revision(session_id)

    async def exists(self, session_id: str) -> bool:
        """Tell whether anything is stored under an id, readable or not."""
        if self.has_revisions:
            return await self.revision(session_id) is not None
        try:
            return await self.load(session_id) is not None
        except (CorruptLogError, UnsupportedFormatError):
            return True

    async def load_from(self, session_id: str, seq: int, limit: int | None) -> StoredPrefix | None:
        """Call `load_stored_from`; only where `has_suffix_reads`."""
        with self._typed("load_stored_from"):
            return await self._backend.load_stored_from(session_id, seq, limit)

    async def append(
        self,
        meta: SessionHeader,
        batch: EncodedBatch,
        *,
        is_materialized: bool,
        claim: object | None,
        summary: LogSummary | None,
    ) -> str | None:
        """Call `append_batch`."""
        with self._typed("append_batch"):
            return await self._backend.append_batch(
                meta, batch, is_materialized=is_materialized, claim=claim, summary=summary
            )

    def begin_append(
        self, meta: SessionHeader, batch: EncodedBatch, *, claim: object | None, summary: LogSummary | None
    ) -> asyncio.Future[str | None]:
        """Call `append_batch` for a stored session, in this turn of the loop if it returns a future.

        Args:
            meta: The session's header.
            batch: The batch.
            claim: The claim that is held for the session.
            summary: The fold up to the end of the batch.

        Returns:
            A future of the hook's outcome; what it fails with has no type yet, see `typed`.
        """
        try:
            return asyncio.ensure_future(
                self._backend.append_batch(meta, batch, is_materialized=True, claim=claim, summary=summary)
            )
        except Exception as error:  # noqa: BLE001  # whatever it is, it is the outcome of the call
            failed: asyncio.Future[str | None] = asyncio.get_running_loop().create_future()
            failed.set_exception(error)
            return failed

    async def repair(
        self,
        meta: SessionHeader,
        torn_marker: object | None,
        closers: Sequence[SessionEvent],
        *,
        claim: object | None,
    ) -> None:
        """Call `commit_repair`."""
        with self._typed("commit_repair"):
            await self._backend.commit_repair(meta, torn_marker, closers, claim=claim)

    async def materialize_header(self, meta: SessionHeader, *, claim: object | None) -> None:
        """Call `materialize_header`; only where `has_header_only`."""
        with self._typed("materialize_header"):
            await self._backend.materialize_header(meta, claim=claim)

    async def delete(self, session_id: str, *, claim: object | None) -> None:
        """Call `delete_stored`; only where `has_delete`."""
        with self._typed("delete_stored"):
            await self._backend.delete_stored(session_id, claim=claim)

    async def erase_remains(self) -> bool:
        """Call `erase_remains`; True where the backend leaves nothing behind that would need it."""
        if not supports(self._backend, "erase_remains"):
            return True
        with self._typed("erase_remains"):
            return await self._backend.erase_remains()

    async def quarantined(self, session_id: str) -> Sequence[Quarantined]:
        """Call `quarantined`; nothing where the backend keeps nothing aside."""
        if not supports(self._backend, "quarantined"):
            return ()
        with self._typed("quarantined"):
            return await self._backend.quarantined(session_id)

    async def claim(
        self, session_id: str, owner: ClaimOwner, *, meta: SessionHeader | None, takeover: bool
    ) -> object:
        """Call `claim`; only where `has_claims`."""
        with self._typed("claim"):
            return await self._backend.claim(session_id, owner, meta=meta, takeover=takeover)

    async def renew(self, claims: Sequence[object]) -> None:
        """Call `renew`; only where `has_renewal`."""
        with self._typed("renew"):
            await self._backend.renew(claims)

    async def release(self, claim: object) -> None:
        """Call `release`, if the backend has it."""
        if supports(self._backend, "release"):
            with self._typed("release"):
                await self._backend.release(claim)

    async def list(self, after: str | None, limit: int | None) -> AsyncGenerator[StoredEntry, None]:
        """Iterate `list`; closing the generator closes the backend's."""
        with self._typed("list"):
            async with _closing(self._backend.list(after, limit)) as entries:
                async for entry in entries:
                    yield entry

    async def scan(self, session_id: str) -> AsyncGenerator[StoredFrame | Damage, None]:
        """Iterate `scan_stored`; only where `has_scan`. Closing the generator closes the backend's."""
        with self._typed("scan_stored"):
            async with _closing(self._backend.scan_stored(session_id)) as found:
                async for part in found:
                    yield part

    async def watch(self, session_id: str) -> AsyncGenerator[None, None]:
        """Iterate `watch`; only where `has_watch`. Closing the generator closes the backend's."""
        with self._typed("watch"):
            async with _closing(self._backend.watch(session_id)) as changes:
                async for _ in changes:
                    yield

    def locate(self, meta: SessionHeader) -> str | None:
        """Call `locate`; None where the backend has no place for people."""
        if not supports(self._backend, "locate"):
            return None
        with self._typed("locate"):
            return self._backend.locate(meta)

    async def aclose(self) -> None:
        """Call `aclose`, if the backend has it."""
        await self._optional("aclose")

    def forget(self) -> None:
        """Call `forget`, if the backend has it."""
        if supports(self._backend, "forget"):
            self._backend.forget()

    async def _optional(self, hook: str) -> None:
        if supports(self._backend, hook):
            call: Callable[[], Awaitable[None]] = getattr(self._backend, hook)
            with self._typed(hook):
                await call()
