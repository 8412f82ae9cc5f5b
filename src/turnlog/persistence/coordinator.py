"""`PersistenceCoordinator`: the whole persistence service over any backend that has the hooks.

Owns the public calls, their order with respect to live sessions and retirements, and the end of the store.
Each job behind them has a module of its own; what they share is in `books`. A backend is only ever called
through `hooks`, on the chain of the id concerned.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from turnlog.errors import (
    SessionBusyError,
    SessionExistsError,
    SessionNotFoundError,
    TurnlogError,
    UsageError,
)
from turnlog.events.header import SessionHeader
from turnlog.events.log import EventLog
from turnlog.events.segment import encode_segment
from turnlog.persistence import cold_writes, left_open, readers
from turnlog.persistence.books import Books
from turnlog.persistence.claim_keeper import RENEWAL_PERIOD, ClaimKeeper
from turnlog.persistence.claims import this_process
from turnlog.persistence.cursors import Cursor, Cursors
from turnlog.persistence.hooks import Hooks
from turnlog.persistence.id_chains import IdChains
from turnlog.persistence.lifecycle import Lifecycle, Limits
from turnlog.persistence.live_gate import LiveGate
from turnlog.persistence.preparations import Entry, Phase, PreparationPool
from turnlog.persistence.recovery import Reservation, current, recover, reserve
from turnlog.persistence.service import SessionInspection, SessionPersistence, StoredSuffix, Undurable
from turnlog.persistence.shutdown import shut_down
from turnlog.persistence.timing import LoopScheduler, Scheduler, Timing

if TYPE_CHECKING:
    from turnlog.errors import ClaimOwner
    from turnlog.events.batch import Damage, StoredFrame
    from turnlog.events.envelope import SessionEvent
    from turnlog.persistence.backend import PersistenceBackend, StoredEntry
    from turnlog.persistence.reading import Prepared
    from turnlog.session.registry import SessionRegistry
    from turnlog.session.session import Session


class PersistenceCoordinator(SessionPersistence):
    """`SessionPersistence` by composition of a backend's hooks and a registry of live sessions.

    Sessions that are live already are adopted at once; this, and every other call, needs a running loop.

    Args:
        backend: Any object with the hooks of `PersistenceBackend`.
        registry: The live sessions that this store makes durable.
        prepared_sessions: Validated sessions kept for the next reader, at least 1.
        prepared_bytes: Encoded bytes of these together.
        write_window: Seconds from the first waiting event to its write; 0 is the next turn of the loop.
        pending_budget: Bytes per session that may wait to become durable (D4).
        pending_reserve: Bytes beyond it for events that close something.
        owner: Facts about this process for claims; found out by default.
        timing: Retry times; its `window` is replaced by `write_window`.
        scheduler: Where windows and retries get their time from.
        sleep: Waits between claim renewals and between looks at a log that is followed.
        renewal_period: Seconds between claim renewals.

    Raises:
        UsageError: A bound or a time is out of range, or the backend lacks a hook.
    """

    def __init__(
        self,
        backend: PersistenceBackend,
        registry: SessionRegistry[Any],
        *,
        prepared_sessions: int = 5,
        prepared_bytes: int = 64 << 20,
        write_window: float = 0.2,
        pending_budget: int = 64 << 20,
        pending_reserve: int = 4 << 20,
        owner: ClaimOwner | None = None,
        timing: Timing | None = None,
        scheduler: Scheduler | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        renewal_period: float = RENEWAL_PERIOD,
    ) -> None:
        _check_count("prepared_sessions", prepared_sessions, least=1)
        _check_count("prepared_bytes", prepared_bytes, least=0)
        _check_count("pending_budget", pending_budget, least=1)
        _check_count("pending_reserve", pending_reserve, least=0)
        _check_window(write_window)
        retries = timing if timing is not None else Timing()
        self._limits = Limits(
            budget=pending_budget,
            reserve=pending_reserve,
            timing=Timing(write_window, retries.retry_first, retries.retry_max, retries.retry_floor),
            scheduler=scheduler if scheduler is not None else LoopScheduler(),
        )
        hooks = Hooks(backend)
        self._sleep = sleep
        self._books = Books(
            hooks=hooks,
            registry=registry,
            chains=IdChains(),
            claims=ClaimKeeper(
                hooks, owner if owner is not None else this_process(), period=renewal_period, sleep=sleep
            ),
            pool=PreparationPool(prepared_sessions, prepared_bytes),
            cursors=Cursors(prepared_sessions, prepared_bytes),
        )
        self._closing: asyncio.Task[None] | None = None
        self._unsubscribe = (registry.on_created(self._created), registry.on_disposed(self._disposed))
        for session in registry.list():
            self._created(session)
        left_open.opened(self)

    # -- live sessions ---------------------------------------------------------------------------

    def _created(self, session: Session) -> None:
        """Take a published session in; an exception vetoes its publication."""
        books = self._books
        _require_loop()
        life = books.current.get(session.id)
        if life is not None and life.session is session:
            return
        if books.pool.refuses(session):
            raise books.busy(session.id)
        prepared = books.pool.publish(session)
        life = Lifecycle(books, session, self._limits)
        books.lives[life] = None
        books.latest[session] = books.current[session.id] = life
        if prepared is not None:
            life.publish(len(prepared.inspection.events))
        else:
            life.writer.start()

    def _disposed(self, session: Session) -> None:
        life = self._books.current.get(session.id)
        if life is not None and life.session is session:
            del self._books.current[session.id]
            life.retire()

    def _life(self, session: Session) -> Lifecycle:
        self._books.check_open()
        life = self._books.latest.get(session)
        if life is None:
            raise UsageError(f"session {session.id!r} is not live in this store")
        return life

    async def retired(self, session_id: str) -> None:
        """Wait until no ended lifecycle of an id is still being drained; its failure was logged.

        Args:
            session_id: Any id.
        """
        await self._books.retired(session_id)

    async def flush(self, session: Session) -> None:
        """Implement `SessionPersistence.flush`."""
        await self._life(session).writer.flush()

    async def drain(self, session: Session) -> None:
        """Implement `SessionPersistence.drain`."""
        await self._life(session).writer.drain()

    def durable_seq(self, session: Session) -> int:
        """Return the seq below which every event of a session is durable (D1).

        Args:
            session: A session that is or was live here; 0 for any other.
        """
        gate = session.gate
        return gate.durable_seq if isinstance(gate, LiveGate) else 0

    def undurable(self, session: Session) -> Undurable | None:
        """Describe what a crash would lose of a live session, or None when that is nothing (D1).

        Args:
            session: A session; one that is not live here has nothing that this store could lose.
        """
        life = self._books.latest.get(session)
        return None if life is None else life.writer.undurable()

    # -- cold sessions ---------------------------------------------------------------------------

    async def create(self, meta: SessionHeader) -> None:
        """Implement `SessionPersistence.create`."""
        own = SessionHeader.from_dict(meta.to_dict())
        encode_segment(own.id)
        await self.reserve(own)

    async def reserve(self, meta: SessionHeader) -> None:
        """Do what `create` does, for the header of a session: it is checked and belongs to nobody else.

        Args:
            meta: The header.

        Raises:
            SessionExistsError: As `create`, like everything else that this raises.
        """
        await self._cold(meta.id, lambda: cold_writes.create(self._books, meta))

    def note_new(self, meta: SessionHeader) -> None:
        """Do what `reserve` does, for an id that was made just now: it is not looked for in the store.

        Args:
            meta: The header of a session that goes live in this turn of the loop.
        """
        self._books.cursors.put(Cursor.at(meta, EventLog(), materialized=False))

    def append(
        self, session_id: str, events: Iterable[SessionEvent | Mapping[str, Any]]
    ) -> Coroutine[Any, Any, None]:
        """Implement `SessionPersistence.append`."""
        try:
            batch = cold_writes.checked_events(events)
        except TurnlogError as error:
            return _raise(error)
        return self._append(session_id, batch)

    async def _append(self, session_id: str, batch: list[SessionEvent]) -> None:
        self._books.check_open()
        if batch:
            await self._cold(session_id, lambda: cold_writes.append(self._books, session_id, batch))

    async def ensure_materialized(self, session_id: str) -> None:
        """Implement `SessionPersistence.ensure_materialized`."""
        self._books.check_open()
        life = self._books.current.get(session_id)
        if life is not None:
            await life.ensure_materialized()
        else:
            await self._cold(session_id, lambda: cold_writes.ensure_materialized(self._books, session_id))

    async def delete(
        self,
        session_id: str,
        *,
        takeover: bool = False,
        before: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Implement `SessionPersistence.delete`; `before` is called once the session is claimed."""
        await self._cold(
            session_id,
            lambda: cold_writes.delete(self._books, session_id, takeover=takeover, before=before),
        )

    async def _cold(self, session_id: str, operation: Callable[[], Awaitable[None]]) -> None:
        self._books.check_open()
        await self._books.retired(session_id)
        await self._books.run(session_id, operation)

    async def prepare(self, session_id: str, *, takeover: bool = False) -> Reservation:
        """Implement `SessionPersistence.prepare`."""
        books = self._books
        while True:
            books.check_open()
            books.refuse_live(session_id)
            await books.retired(session_id)
            await books.pool.free(session_id)
            reservation = await books.run(
                session_id,
                lambda: reserve(books, session_id, takeover=takeover),
                orphaned=lambda late: None if late is None else late.give_back(),
            )
            if reservation is not None:
                books.check_open()  # a store that is closing gives every claim back by itself
                return reservation

    async def load(self, session_id: str, *, takeover: bool = False) -> SessionInspection:
        """Implement `SessionPersistence.load`."""
        books = self._books
        while True:
            books.check_open()
            if (life := books.current.get(session_id)) is not None:
                return await self._load_live(life)
            await books.retired(session_id)
            try:
                return await books.run(session_id, lambda: self._load_cold(session_id, takeover))
            except SessionBusyError:
                if session_id not in books.current:
                    raise  # otherwise it became live while it was read

    async def _load_live(self, life: Lifecycle) -> SessionInspection:
        view, open_turn = life.session.log.snapshot(), life.session.open_turn
        await life.writer.flush()
        if not len(view):
            raise SessionNotFoundError(session_id=life.meta.id)
        if open_turn is not None:
            raise self._books.busy(life.meta.id)
        return SessionInspection(life.meta, view, live=True)

    async def _load_cold(self, session_id: str, takeover: bool) -> SessionInspection:
        books = self._books
        books.refuse_live(session_id)
        entry = books.pool.get(session_id)
        if entry is not None and entry.is_held and entry.prepared is not None:
            return entry.prepared.inspection  # whoever reserved it has committed the repair
        try:
            return (await recover(books, session_id, claim=False, takeover=takeover)).inspection
        finally:
            await books.release_claim(session_id)

    # -- readers ---------------------------------------------------------------------------------

    async def inspect(self, session_id: str) -> SessionInspection:
        """Implement `SessionPersistence.inspect`."""
        books = self._books
        while True:
            books.check_open()
            live: Session | None = books.registry.get(session_id)
            if live is not None:
                return SessionInspection(live.header, live.log.snapshot(), live=True)
            if await books.retired(session_id):
                continue
            entry = books.pool.get(session_id)
            if entry is not None and entry.is_held and entry.prepared is not None:
                return entry.prepared.inspection
            try:
                if entry is None or entry.phase is Phase.LOADING:
                    prepared = (await books.pool.load(session_id, self._start_load))[1]
                else:
                    prepared = await books.run(session_id, lambda: self._current(session_id))
            except SessionExistsError:
                continue  # it became live while it was read
            if books.registry.get(session_id) is None:
                return prepared.inspection

    def _start_load(self, entry: Entry) -> asyncio.Task[Prepared]:
        return self._books.chains.submit(
            entry.session_id, lambda: self._current(entry.session_id), skip=entry.is_unwanted
        )

    async def _current(self, session_id: str) -> Prepared:
        if self._books.registry.get(session_id) is not None:
            raise SessionExistsError(session_id=session_id, where="live")
        entry = self._books.pool.get(session_id)
        if entry is not None and entry.is_held and entry.prepared is not None:
            return entry.prepared
        return await current(self._books, session_id)

    async def read_from(self, session_id: str, seq: int, limit: int | None = None) -> StoredSuffix:
        """Implement `SessionPersistence.read_from`."""
        readers.check_range(seq, limit)
        return await readers.read_suffix(self._books, session_id, seq, limit)

    async def tail(self, session_id: str, n: int) -> StoredSuffix:
        """Implement `SessionPersistence.tail`."""
        readers.check_range(n, None)
        if n == 0:
            raise UsageError("n must be at least 1")
        return await readers.read_suffix(self._books, session_id, -n, None)

    def iter_events(self, session_id: str, seq: int = 0) -> AsyncIterator[SessionEvent]:
        """Implement `SessionPersistence.iter_events`."""
        readers.check_range(seq, None)
        return readers.iter_events(self._books, session_id, seq)

    def follow(self, session_id: str, seq: int = 0) -> AsyncIterator[SessionEvent]:
        """Implement `SessionPersistence.follow`."""
        if type(seq) is not int:
            raise UsageError(f"seq must be an integer, not {seq!r}")
        return readers.follow(self._books, session_id, seq, self._sleep)

    def scan(self, session_id: str) -> AsyncIterator[StoredFrame | Damage]:
        """Yield what can be read of a stored log and what cannot; see `readers.scan`."""
        return readers.scan(self._books, session_id)

    def list(self, after: str | None = None, limit: int | None = None) -> AsyncIterator[StoredEntry]:
        """Implement `SessionPersistence.list`."""
        readers.check_range(0, limit)
        return readers.list_entries(self._books, after, limit)

    def locate(self, meta: SessionHeader) -> str | None:
        """Implement `SessionPersistence.locate`."""
        return self._books.hooks.locate(meta)

    # -- the end ---------------------------------------------------------------------------------

    async def aclose(self) -> None:
        """Implement `SessionPersistence.aclose`."""
        if self._closing is None:
            if self._books.closed is not None:
                return
            self._stop_intake("the store is closed")
            self._closing = asyncio.get_running_loop().create_task(shut_down(self._books))
        elif self._closing.done():
            return
        await asyncio.shield(self._closing)

    def forget(self) -> None:
        """Close without flushing or releasing anything: what belongs to the parent of a forked child.

        The parent, or the next process, finds everything as a kill would have left it.
        """
        self._stop_intake("the store belongs to the process that opened it; open another one here")
        books = self._books
        for life in books.lives:
            life.writer.abandon(UsageError(str(books.closed)))
        books.lives.clear()
        books.latest.clear()
        books.current.clear()
        books.owners.clear()
        books.claims.forget()
        books.hooks.forget()

    def _stop_intake(self, why: str) -> None:
        self._books.closed = why
        for unsubscribe in self._unsubscribe:
            unsubscribe()
        left_open.closed(self)

    def undurable_events(self) -> int:
        """Return how many events of live sessions are not known to be durable."""
        return sum(life.writer.pending for life in self._books.lives)

    @property
    def books(self) -> Books:
        """The shared state, for the tools of this package that work on whole logs."""
        return self._books

    @property
    def label(self) -> str:
        """The backend's name."""
        return self._books.hooks.name


async def _raise(error: TurnlogError) -> None:
    """Hand an error found at the time of the call to whoever awaits the result."""
    raise error


def _require_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        raise UsageError("a session of a store must be opened inside a running event loop") from None


def _check_count(name: str, value: int, *, least: int) -> None:
    if type(value) is not int or value < least:
        raise UsageError(f"{name} must be an integer of at least {least}, not {value!r}")


def _check_window(value: float) -> None:
    if type(value) not in (int, float) or not 0 <= value < math.inf:
        raise UsageError(f"write_window must be seconds of at least 0, not {value!r}")
