"""`Lifecycle`: one live session's way to storage, from its publication to its retirement.

Owns what is materialised, the claim that goes with each write, and the drain at disposal. When to write is
`write_behind`'s decision, whose log it is `adoption`'s.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from turnlog.errors import (
    SessionBusyError,
    TurnlogError,
    UnexpectedSeqError,
    UsageError,
    WriterFencedError,
)
from turnlog.persistence.adoption import adopt
from turnlog.persistence.hooks import typed, wrote_nothing
from turnlog.persistence.summaries import SummaryFold
from turnlog.persistence.timing import LoopScheduler, Scheduler, Timing
from turnlog.persistence.write_behind import WriteBehind

if TYPE_CHECKING:
    from turnlog.events.batch import EncodedBatch
    from turnlog.persistence.backend import LogSummary
    from turnlog.persistence.books import Books
    from turnlog.session.session import Session

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Limits:
    """How long and how much a live session may wait.

    Attributes:
        budget: Bytes per session that may wait to become durable (D4).
        reserve: Bytes beyond it for events that close something.
        timing: Window and retries.
        scheduler: Where they get their time from.
    """

    budget: int = 64 << 20
    reserve: int = 4 << 20
    timing: Timing = field(default_factory=Timing)
    scheduler: Scheduler = field(default_factory=LoopScheduler)


class Lifecycle:
    """The sink of one live session; see `write_sink.Sink`.

    Args:
        books: The coordinator's state.
        session: The session, just published or found live.
        limits: Bounds and times.
    """

    def __init__(self, books: Books, session: Session, limits: Limits) -> None:
        self.session = session
        self.meta = session.header
        self.materialized = False
        self.retirement: asyncio.Task[None] | None = None
        self._books = books
        self._prior = books.retirements.get(session.id)
        self._header_in_doubt = False
        self._fold = SummaryFold(session)
        self.writer = WriteBehind(
            session.id,
            books.hooks.name,
            session.log,
            self,
            budget=limits.budget,
            reserve=limits.reserve,
            timing=limits.timing,
            scheduler=limits.scheduler,
        )
        session.gate = self.writer.gate

    @property
    def owns(self) -> bool:
        """Whether the stored log of the id belongs to this lifecycle."""
        return self._books.owners.get(self.session.id) is self

    def publish(self, durable_seq: int) -> None:
        """Go on from a reserved session whose first events are stored and whose claim is held."""
        self._books.owners[self.session.id] = self
        self._books.cursors.drop(self.session.id)
        self.materialized = True
        self.writer.start(durable_seq)

    # -- the sink --------------------------------------------------------------------------------

    def submit(self, operation: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
        """Run an operation on the id's chain, once the id's earlier lifecycle has been drained."""
        if self._prior is None or self._prior.done():
            return self._books.chains.submit(self.session.id, operation)
        return asyncio.get_running_loop().create_task(self._after(self._prior, operation))

    async def _after(self, prior: asyncio.Task[None], operation: Callable[[], Awaitable[None]]) -> None:
        await asyncio.wait((prior,))
        await asyncio.shield(self._books.chains.submit(self.session.id, operation))

    async def ready(self) -> int:
        """Settle whose log it is; return how many events are stored."""
        return await adopt(self._books, self)

    def summary(self) -> LogSummary:
        """Return the fold of the log as it is now."""
        return self._fold.now()

    async def write(self, batch: EncodedBatch, summary: LogSummary) -> None:
        """Write one batch under the claim; a new session's claim is taken right before it (W1)."""
        claim = await self._books.claims.take(self.meta.id, meta=self.meta)
        if self._header_in_doubt:
            await self._materialize_header(claim)
        try:
            await self._books.hooks.append(
                self.meta, batch, is_materialized=self.materialized, claim=claim, summary=summary
            )
        except TurnlogError as error:
            told = self.failure(error)
            raise told from told.__cause__
        self.materialized = True

    @property
    def is_free(self) -> bool:
        """Whether a write may begin at once: stored, claimed, and nothing of the id is running."""
        return (
            self.materialized
            and not self._header_in_doubt
            and self._books.chains.is_empty(self.meta.id)
            and self._books.claims.holds(self.meta.id)
            and (self._prior is None or self._prior.done())
        )

    def begin(self, batch: EncodedBatch, summary: LogSummary) -> asyncio.Future[object]:
        """Begin to write one batch in this turn of the loop; only where `is_free`."""
        writing: asyncio.Future[Any] = self._books.hooks.begin_append(
            self.meta, batch, claim=self._books.claims.get(self.meta.id), summary=summary
        )
        self._books.chains.add(self.meta.id, writing)
        return writing

    def failure(self, error: Exception) -> TurnlogError:
        """Give what the backend's write raised its type and its meaning: who lost the log is fenced."""
        told = typed(self._books.hooks.name, "append_batch", error)
        if not isinstance(told, UnexpectedSeqError | SessionBusyError | WriterFencedError):
            return told
        fenced = WriterFencedError(session_id=self.meta.id)
        fenced.__cause__ = told
        return fenced

    def drained(self) -> None:
        """Finish a retirement that had failed, now that everything is written after all."""
        if self.retirement is not None and self.retirement.done() and self in self._books.lives:
            self._start_retirement()

    # -- header only -----------------------------------------------------------------------------

    async def ensure_materialized(self) -> None:
        """Store the session even if it has no events (B1).

        Raises:
            UsageError: It has no events and the backend cannot store that.
            TurnlogError: As `SessionPersistence.flush`.
        """
        await self.writer.flush()
        if self.materialized:
            return
        self._books.check_open()
        if not self._books.hooks.has_header_only:
            raise UsageError(f"the {self._books.hooks.name} backend cannot store a session without events")

        async def store() -> None:
            if not self.materialized:
                claim = await self._books.claims.take(self.meta.id, meta=self.meta)
                await self._materialize_header(claim)

        await asyncio.shield(self.submit(store))

    async def _materialize_header(self, claim: object | None) -> None:
        self._header_in_doubt = True
        try:
            await self._books.hooks.materialize_header(self.meta, claim=claim)
        except TurnlogError as error:
            self._header_in_doubt = not wrote_nothing(error)
            raise
        self._header_in_doubt = False
        self.materialized = True

    # -- the end ---------------------------------------------------------------------------------

    def retire(self) -> None:
        """Admit nothing more, write what waits, then forget the session; runs in the background."""
        self.writer.gate.shut(
            lambda: UsageError(f"session {self.meta.id!r} is closed; resume it to append to it")
        )
        self._fold.stop()
        self._start_retirement()

    def leave(self) -> None:
        """Let go of a session that stays live when the store closes; it may go on without one."""
        self.writer.leave()
        self._fold.stop()
        if self.session.gate is self.writer.gate and self.retirement is None:
            self.session.gate = None

    def _start_retirement(self) -> None:
        session_id = self.meta.id
        task = asyncio.get_running_loop().create_task(self._retire())
        self.retirement = self._books.retirements[session_id] = task

        def settled(done: asyncio.Task[None]) -> None:
            if self._books.retirements.get(session_id) is done:
                del self._books.retirements[session_id]

        task.add_done_callback(settled)

    async def _retire(self) -> None:
        try:
            await self.writer.flush()
        except TurnlogError as error:
            if self.writer.ended is None:
                logger.warning(
                    "session %s: %d events could not be written at its end; they are kept and retried: %s",
                    self.meta.id,
                    self.writer.pending,
                    error,
                )
                return  # the store's end, or a retry that succeeds, finishes this
            logger.warning("session %s ended without its last events: %s", self.meta.id, error)
        await asyncio.shield(self.submit(self._forget))

    async def _forget(self) -> None:
        """Leave the books and give the claim back; runs on the id's chain."""
        self.writer.stop()
        self._books.lives.pop(self, None)
        if self._books.latest.get(self.session) is self:
            del self._books.latest[self.session]
        if self.owns:
            del self._books.owners[self.meta.id]
            await self._books.release_claim(self.meta.id)
