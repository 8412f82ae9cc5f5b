"""`FaultyBackend`: any backend, with scripted failures by hook and call number, and exact counts.

Owns failing before, failing after (a lost reply), keeping only the first events, hanging and dying.
It does not simulate media: what survives a crash is the harness's business.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Literal, TypeVar, cast

from turnlog.errors import BackendUnavailableError, ClaimOwner
from turnlog.events.batch import Damage, EncodedBatch, StoredFrame
from turnlog.events.envelope import SessionEvent
from turnlog.events.header import SessionHeader
from turnlog.persistence.backend import (
    FullBackend,
    LogSummary,
    PersistenceBackend,
    Quarantined,
    StoredEntry,
    StoredPrefix,
    supports,
)

T = TypeVar("T")

When = Literal["before", "after", "partway"]
"""`before`: the medium is not touched. `after`: the work is done, the reply is lost. `partway`: only the
first events of a batch are stored."""

OPTIONAL = (
    "read_stored_revision",
    "load_stored_from",
    "scan_stored",
    "quarantined",
    "watch",
    "materialize_header",
    "delete_stored",
    "erase_remains",
    "claim",
    "renew",
    "release",
    "locate",
    "aclose",
    "forget",
)
"""Optional hooks; the wrapper has exactly those of the backend inside."""


@dataclass(frozen=True)
class Call:
    """One hook call that was made, in order."""

    hook: str
    session_id: str | None
    batch: tuple[int, int] | None = None
    """First and last seq (inclusive) of the batch, for `append_batch`."""


class Gate:
    """A place where one hook call waits until the test lets it go on."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        """Set once the call has arrived."""
        self._open = asyncio.Event()
        self._error: BaseException | None = None

    def release(self) -> None:
        """Let the waiting call go on."""
        self._open.set()

    def fail(self, error: BaseException) -> None:
        """Let the waiting call end with an error instead."""
        self._error = error
        self._open.set()

    async def pass_through(self) -> None:
        """Announce the call and wait for `release` or `fail`."""
        self.entered.set()
        await self._open.wait()
        if self._error is not None:
            raise self._error


@dataclass
class _Fault:
    """What happens to one call."""

    when: When
    error: BaseException | None = None
    gate: Gate | None = None
    dies: bool = False
    keep: int = 0


@dataclass
class _Script:
    """Faults of one hook by call number, and the one for every call, if any."""

    by_call: dict[int, _Fault] = field(default_factory=dict)
    always: _Fault | None = None


class FaultyBackend:
    """A backend that behaves as the one inside, except where it is told otherwise.

    Calls are numbered per hook from 1. Counts include failed and hanging calls.

    Args:
        inner: The backend to wrap.

    Attributes:
        inner: The backend inside.
        counts: Calls so far by hook name.
        calls: Every call in order.
        dead: Whether the process that this backend stands for is gone; then no call ever returns.
        markers_seen: Every torn marker that `load_stored` returned.
        markers_returned: Every torn marker that `commit_repair` was given, None left out.
        claims_missing: Write calls that came without a claim although the backend has claims.
    """

    def __init__(self, inner: PersistenceBackend) -> None:
        self.inner = inner
        self.name = inner.name
        self.counts: Counter[str] = Counter()
        self.calls: list[Call] = []
        self.dead = False
        self.markers_seen: list[object] = []
        self.markers_returned: list[object] = []
        self.claims_missing = 0
        self._scripts: dict[str, _Script] = {}
        self._running: set[asyncio.Future[Any]] = set()
        self._limbo: list[
            asyncio.Future[None]
        ] = []  # holds what waits, or it would be collected and reported
        for hook in OPTIONAL:
            if not supports(inner, hook):
                setattr(self, hook, None)

    # -- scripting ------------------------------------------------------------------------------

    def fail(
        self,
        hook: str,
        on: int | None = 1,
        *,
        when: When = "before",
        error: BaseException | None = None,
        keep: int = 0,
    ) -> None:
        """Make a call fail.

        Args:
            hook: The hook's name.
            on: Number of the call from now on, 1 is the next; None means every call from now on.
            when: See `When`.
            error: What to raise; by default an unavailable backend, which certainly wrote nothing iff
                `when` is ``"before"``.
            keep: For ``"partway"``: how many events of the batch are stored.
        """
        raised = error or BackendUnavailableError(
            backend=self.name, reason="scripted failure", wrote_nothing=when == "before"
        )
        self._plan(hook, on, _Fault(when, error=raised, keep=keep))

    def hang(self, hook: str, on: int = 1, *, when: When = "before") -> Gate:
        """Make a call wait.

        Args:
            hook: The hook's name.
            on: Number of the call from now on, 1 is the next.
            when: Whether it waits before or after its work.

        Returns:
            The gate it waits at.
        """
        gate = Gate()
        self._plan(hook, on, _Fault(when, gate=gate))
        return gate

    def crash(self, hook: str, on: int = 1, *, when: When = "before", keep: int = 0) -> None:
        """Make the process die in a call: it never returns, and neither does any later one.

        Args:
            hook: The hook's name.
            on: Number of the call from now on, 1 is the next.
            when: Whether it dies before its work, after it, or with only `keep` events stored.
            keep: For ``"partway"``.
        """
        self._plan(hook, on, _Fault(when, dies=True, keep=keep))

    def heal(self, hook: str | None = None) -> None:
        """Drop every scripted fault of one hook, or of all."""
        if hook is None:
            self._scripts.clear()
        else:
            self._scripts.pop(hook, None)

    def kill(self) -> None:
        """Die now: running calls stop where they are, later ones never begin, and none returns."""
        self.dead = True
        for task in tuple(self._running):
            task.cancel()

    def batches(self) -> tuple[tuple[int, int], ...]:
        """Return first and last seq of every batch that was handed to `append_batch`, in order."""
        return tuple(call.batch for call in self.calls if call.batch is not None)

    # -- required hooks -------------------------------------------------------------------------

    async def load_stored(self, session_id: str) -> StoredPrefix | None:
        found = await self._call("load_stored", session_id, lambda: self.inner.load_stored(session_id))
        if found is not None and found.torn_marker is not None:
            self.markers_seen.append(found.torn_marker)
        return found

    async def append_batch(
        self,
        meta: SessionHeader,
        batch: EncodedBatch,
        *,
        is_materialized: bool,
        claim: object | None,
        summary: LogSummary | None,
    ) -> str | None:
        def store(part: EncodedBatch) -> Awaitable[str | None]:
            return self.inner.append_batch(
                meta, part, is_materialized=is_materialized, claim=claim, summary=summary
            )

        def first(keep: int) -> Awaitable[str | None]:
            return store(EncodedBatch.of(list(islice(batch.events(), keep))))

        self._note_claim(claim)
        span = (batch.first_seq, batch.last_seq)
        return await self._call("append_batch", meta.id, lambda: store(batch), batch=span, partly=first)

    async def commit_repair(
        self,
        meta: SessionHeader,
        torn_marker: object | None,
        closers: Sequence[SessionEvent],
        *,
        claim: object | None,
    ) -> None:
        self._note_claim(claim)
        if torn_marker is not None:
            self.markers_returned.append(torn_marker)
        await self._call(
            "commit_repair",
            meta.id,
            lambda: self.inner.commit_repair(meta, torn_marker, closers, claim=claim),
        )

    def list(self, after: str | None = None, limit: int | None = None) -> AsyncIterator[StoredEntry]:
        return self._iterate("list", None, lambda: self.inner.list(after, limit))

    # -- optional hooks -------------------------------------------------------------------------

    async def read_stored_revision(self, session_id: str) -> str | None:
        return await self._call(
            "read_stored_revision", session_id, lambda: self._full.read_stored_revision(session_id)
        )

    async def load_stored_from(self, session_id: str, seq: int, limit: int | None) -> StoredPrefix | None:
        return await self._call(
            "load_stored_from", session_id, lambda: self._full.load_stored_from(session_id, seq, limit)
        )

    def scan_stored(self, session_id: str) -> AsyncIterator[StoredFrame | Damage]:
        return self._iterate("scan_stored", session_id, lambda: self._full.scan_stored(session_id))

    async def quarantined(self, session_id: str) -> Sequence[Quarantined]:
        return await self._call("quarantined", session_id, lambda: self._full.quarantined(session_id))

    def watch(self, session_id: str) -> AsyncIterator[None]:
        return self._iterate("watch", session_id, lambda: self._full.watch(session_id))

    async def materialize_header(self, meta: SessionHeader, *, claim: object | None) -> None:
        self._note_claim(claim)
        await self._call(
            "materialize_header", meta.id, lambda: self._full.materialize_header(meta, claim=claim)
        )

    async def delete_stored(self, session_id: str, *, claim: object | None) -> None:
        self._note_claim(claim)
        await self._call(
            "delete_stored", session_id, lambda: self._full.delete_stored(session_id, claim=claim)
        )

    async def erase_remains(self) -> bool:
        return await self._call("erase_remains", None, lambda: self._full.erase_remains())

    async def claim(
        self,
        session_id: str,
        owner: ClaimOwner,
        *,
        meta: SessionHeader | None = None,
        takeover: bool = False,
    ) -> object:
        return await self._call(
            "claim", session_id, lambda: self._full.claim(session_id, owner, meta=meta, takeover=takeover)
        )

    async def renew(self, claims: Sequence[object]) -> None:
        await self._call("renew", None, lambda: self._full.renew(claims))

    async def release(self, claim: object) -> None:
        await self._call("release", None, lambda: self._full.release(claim))

    def locate(self, meta: SessionHeader) -> str | None:
        self.counts["locate"] += 1
        return self._full.locate(meta)

    async def aclose(self) -> None:
        await self._call("aclose", None, lambda: self._full.aclose())

    def forget(self) -> None:
        self.counts["forget"] += 1
        self._full.forget()

    # -- how a call goes ------------------------------------------------------------------------

    @property
    def _full(self) -> FullBackend:
        return cast(FullBackend, self.inner)

    def _note_claim(self, claim: object | None) -> None:
        if claim is None and supports(self.inner, "claim"):
            self.claims_missing += 1

    def _plan(self, hook: str, on: int | None, fault: _Fault) -> None:
        script = self._scripts.setdefault(hook, _Script())
        if on is None:
            script.always = fault
        else:
            script.by_call[self.counts[hook] + on] = fault

    def _arrive(self, hook: str, session_id: str | None, batch: tuple[int, int] | None) -> _Fault | None:
        self.counts[hook] += 1
        self.calls.append(Call(hook, session_id, batch))
        script = self._scripts.get(hook)
        if script is None:
            return None
        return script.by_call.pop(self.counts[hook], script.always)

    async def _call(
        self,
        hook: str,
        session_id: str | None,
        work: Callable[[], Awaitable[T]],
        *,
        batch: tuple[int, int] | None = None,
        partly: Callable[[int], Awaitable[Any]] | None = None,
    ) -> T:
        if self.dead:
            await self._never()
        fault = self._arrive(hook, session_id, batch)
        if fault is None:
            result = await self._alive(work())
        elif fault.when == "before":
            await self._strike(fault)
            result = await self._alive(work())
        elif fault.when == "partway":
            if partly is not None and fault.keep > 0:
                await self._alive(partly(fault.keep))
            await self._strike(fault)
            raise AssertionError("a call that is kept partway must fail or die")
        else:
            result = await self._alive(work())
            await self._strike(fault)
        if self.dead:
            await self._never()
        return result

    async def _alive(self, work: Awaitable[T]) -> T:
        """Let the backend inside work until it is done or the process dies."""
        task = asyncio.ensure_future(work)
        self._running.add(task)
        try:
            return await task
        except asyncio.CancelledError:
            caller = asyncio.current_task()
            is_callers = caller is not None and caller.cancelling() > 0
            if self.dead and not is_callers:
                await self._never()
            task.cancel()
            raise
        finally:
            self._running.discard(task)

    async def _iterate(
        self, hook: str, session_id: str | None, work: Callable[[], AsyncIterator[T]]
    ) -> AsyncIterator[T]:
        if self.dead:
            await self._never()
        fault = self._arrive(hook, session_id, None)
        if fault is not None and fault.when == "before":
            await self._strike(fault)
        async for item in work():
            yield item
        if fault is not None and fault.when != "before":
            await self._strike(fault)

    async def _strike(self, fault: _Fault) -> None:
        if fault.dies:
            self.kill()
            await self._never()
        if fault.gate is not None:
            await fault.gate.pass_through()
        if fault.error is not None:
            raise fault.error

    async def _never(self) -> None:
        """Wait for what cannot come: a dead process does not answer."""
        future = asyncio.get_running_loop().create_future()
        self._limbo.append(future)
        await future
