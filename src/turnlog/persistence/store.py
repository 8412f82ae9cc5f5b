"""`SessionStore`: the one object a program holds: its sessions, reading, and the attachments beside them.

Owns the lives of live sessions: create, resume, fork, close. Reading is `StoreReader`'s part, whole logs are
that of `StoreTools`; what is written, and when, is the coordinator's business.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, cast

from turnlog.errors import SessionCollisionError, TurnlogError, UsageError
from turnlog.persistence.awaitable_context import AwaitableContext
from turnlog.persistence.live_session import LiveSession
from turnlog.persistence.recorder import end_block
from turnlog.persistence.store_tools import StoreTools
from turnlog.session.fork import fork_header, fork_prefix
from turnlog.session.ids import new_session_id
from turnlog.session.session import system_clock

if TYPE_CHECKING:
    from turnlog.events.envelope import SessionEvent
    from turnlog.events.header import SessionHeader
    from turnlog.events.log import EventLog
    from turnlog.persistence.attachments import AttachmentStore
    from turnlog.persistence.coordinator import PersistenceCoordinator
    from turnlog.persistence.service import Preparation, SessionInspection, Undurable
    from turnlog.session.registry import SessionRegistry

_running: set[asyncio.Task[None]] = set()  # the loop holds tasks weakly, and a cancelled caller lets go


class SessionStore(StoreTools):
    """Sessions of one place; made by `turnlog.open`.

    Concurrency: belongs to one event loop; its sessions may be used side by side.
    """

    def __init__(
        self,
        coordinator: PersistenceCoordinator,
        registry: SessionRegistry[LiveSession],
        attachments: AttachmentStore,
    ) -> None:
        """Put a store together.

        Args:
            coordinator: Over the backend, on the same registry.
            registry: Makes `LiveSession` objects.
            attachments: The images beside the logs.
        """
        super().__init__(coordinator, registry, attachments)
        self._closing: asyncio.Task[None] | None = None

    # -- live sessions ----------------------------------------------------------------------------

    def create(
        self,
        *,
        id: str | None = None,
        cwd: str | os.PathLike[str] | None = None,
        agent_preset: str | None = None,
        origin: str | None = None,
        parent_session: str | None = None,
        delegation_depth: int | None = None,
        seed: Iterable[SessionEvent | Mapping[str, Any]] | None = None,
        strict: bool = True,
    ) -> AwaitableContext[LiveSession]:
        """Begin a new session; stored with its first durable batch, so an unused one leaves nothing (B1).

        Args:
            id: Its id; by default a new UUIDv7. A given id is looked up in the store.
            cwd: Absolute working directory.
            agent_preset: Preset the agent is composed from.
            origin: `subagent`, or None.
            parent_session: Id of the session that started this one.
            delegation_depth: Levels of delegation above it.
            seed: Events it begins with.
            strict: Whether live appends are held to the order of turns, steps and calls (L4).

        Returns:
            The session once awaited, or for the length of an `async with` block, which closes it.

        Raises:
            SessionExistsError: A session with this id is live or stored.
            InvalidSessionIdError: The id cannot name a stored session (S1).
            InvalidEventError: The metadata or a seed event is not valid.
            UsageError: The store is closed.
            BackendError: The medium failed.
        """

        async def start() -> LiveSession:
            self._check_open()
            session = self._registry.prepare(
                id,
                seed=seed,
                strict=strict,
                cwd=None if cwd is None else os.fspath(cwd),
                agent_preset=agent_preset,
                origin=origin,
                parent_session=parent_session,
                delegation_depth=delegation_depth,
            )
            await self._reserve(session, minted=id is None)
            return self._publish(session)

        return AwaitableContext("store.create()", start)

    def resume(
        self, session_id: str, *, takeover: bool = False, cwd: str | os.PathLike[str] | None = None
    ) -> AwaitableContext[LiveSession]:
        """Continue a stored session; an interrupted turn is closed durably first (R1).

        Args:
            session_id: A stored session.
            takeover: Take the session away from another writer, who is fenced from then on (W1).
            cwd: The working directory the caller expects; another one is an error.

        Returns:
            The session once awaited, or for the length of an `async with` block, which closes it.

        Raises:
            SessionNotFoundError: Nothing is stored under the id.
            SessionBusyError: It is live here, or another writer holds it.
            SessionCollisionError: It has another working directory than `cwd`.
            CorruptLogError: The log is damaged (R2).
            UnsupportedFormatError: Another format version, or an unknown required event type.
            UsageError: The store is closed.
            BackendError: The medium failed.
        """

        async def start() -> LiveSession:
            self._check_open()
            async with await self._coordinator.prepare(session_id, takeover=takeover) as preparation:
                session = cast("LiveSession", preparation.session)  # this store's registry made it
                if cwd is not None and session.header.cwd != os.fspath(cwd):
                    raise SessionCollisionError(
                        session_id=session_id,
                        reason=f"its working directory is {session.header.cwd!r}, not {os.fspath(cwd)!r}",
                    )
                self._check_open()
                return self._publish(session)

        return AwaitableContext("store.resume()", start)

    def fork(
        self, session_id: str, *, at: int | None = None, child_id: str | None = None, strict: bool = True
    ) -> AwaitableContext[LiveSession]:
        """Branch a session: a new one begins with a part of it, in the same place, under the same preset.

        Args:
            session_id: The source, live here or stored. A stored one is only read, unless `at` is left out
                and its last turn was interrupted, which is repaired first.
            at: Seq of the last inherited event, inclusive; by default the last one there is.
            child_id: Id of the new session; by default a new UUIDv7.
            strict: Whether its live appends are held to the order of turns, steps and calls (L4).

        Returns:
            The child once awaited, or for the length of an `async with` block, which closes it.

        Raises:
            SessionNotFoundError: The source is neither live here nor stored.
            SessionExistsError: `child_id` is taken.
            ForkError: `at` is no event of the source, or lies inside a turn.
            CorruptLogError: The source is damaged.
            SessionBusyError: The source must be repaired and another writer holds it.
            UsageError: The store is closed.
            BackendError: The medium failed.
        """

        async def start() -> LiveSession:
            self._check_open()
            source = self._registry.get(session_id)
            if source is not None:
                header, prefix = source.header, fork_prefix(source.log, at, session_id=session_id)
            else:
                header, prefix = await self._stored_prefix(session_id, at)
            self._check_open()
            child = new_session_id() if child_id is None else child_id
            session = self._registry.prepare(
                child,
                header=fork_header(header, child, seed_length=len(prefix), created_at=system_clock()),
                seed=prefix,
                strict=strict,
            )
            await self._reserve(session, minted=child_id is None)
            return self._publish(session)

        return AwaitableContext("store.fork()", start)

    async def _stored_prefix(self, session_id: str, at: int | None) -> tuple[SessionHeader, EventLog]:
        if at is not None:
            stored = await self._coordinator.read_from(session_id, 0)
            if at < len(stored.events):
                return stored.meta, fork_prefix(stored.events, at, session_id=session_id)
        loaded = await self._coordinator.load(session_id)
        return loaded.meta, fork_prefix(loaded.events, at, session_id=session_id)

    async def _reserve(self, session: LiveSession, *, minted: bool) -> None:
        # A minted id is new for certain, so only a given one costs a look into the store.
        if minted:
            self._coordinator.note_new(session.header)
        else:
            await self._coordinator.reserve(session.header)
            self._check_open()

    def _publish(self, session: LiveSession) -> LiveSession:
        """Make a prepared session live; its events go to the store from here on."""
        detach = self._registry.enter(session)
        try:
            session.bind(self)
            self._registry.announce(session)
        except BaseException:
            detach()
            raise
        return session

    # -- what live sessions ask -------------------------------------------------------------------

    async def flush_session(self, session: LiveSession) -> None:
        """Wait until everything a live session admitted before the call is durable (D2)."""
        await self._coordinator.flush(session)

    async def drain_session(self, session: LiveSession) -> None:
        """Wait for room in a live session's queue; see `LiveSession.drain`."""
        await self._coordinator.drain(session)

    def durable_seq(self, session: LiveSession) -> int:
        """Return the seq below which every event of a live session is durable."""
        return self._coordinator.durable_seq(session)

    def undurable(self, session: LiveSession) -> Undurable | None:
        """Describe the events of a live session that a crash would lose, or None."""
        return self._coordinator.undurable(session)

    def retire(self, session: LiveSession) -> asyncio.Task[None]:
        """Start to flush a live session, take it out of the store and release its claim."""
        return _start(self._retire(session))

    async def _retire(self, session: LiveSession) -> None:
        failure: TurnlogError | None = None
        try:
            if self._coordinator.undurable(session) is not None:
                await self._coordinator.flush(session)
        except TurnlogError as error:
            failure = error
        finally:
            # Also after a failure: the coordinator keeps what waits and tries again while it drains.
            self._registry.detach(session)
        await self._coordinator.retired(session.id)
        if failure is not None and self._coordinator.durable_seq(session) < session.seq:
            raise failure

    # -- writing without a live session -----------------------------------------------------------

    async def prepare(self, session_id: str, *, takeover: bool = False) -> Preparation:
        """Reserve a stored session without making it live; a pending repair is committed first (R1, W1).

        For programs that publish it themselves; `resume` does all of it. Close what is returned.

        Args:
            session_id: A stored session.
            takeover: Take it away from another writer, who is fenced from then on.

        Returns:
            The reservation; `.session` is the unpublished session.

        Raises:
            SessionNotFoundError: Nothing is stored under the id.
            SessionBusyError: It is live here, or another writer holds it.
            CorruptLogError: As `inspect`; so are `UnsupportedFormatError`, `BackendError` and `UsageError`.
        """
        return await self._coordinator.prepare(session_id, takeover=takeover)

    async def load(self, session_id: str, *, takeover: bool = False) -> SessionInspection:
        """Return the balanced log after committing a pending repair; claims only if there is one (W1).

        Args:
            session_id: A stored session, or a live one without an open turn.
            takeover: As in `prepare`.

        Returns:
            A frozen view.

        Raises:
            SessionNotFoundError: Not stored, or live without events.
            SessionBusyError: Live with an open turn, or another writer holds what must be repaired.
            CorruptLogError: As `inspect`; so are `UnsupportedFormatError`, `BackendError` and `UsageError`.
        """
        return await self._coordinator.load(session_id, takeover=takeover)

    async def append(self, session_id: str, events: Iterable[SessionEvent | Mapping[str, Any]]) -> None:
        """Append a batch to a session that is not live; durable when it returns, all or none (B2).

        Args:
            session_id: A stored session; an interrupted turn is closed first, `seq` goes on after that.
            events: Events, dense from the next free seq. Empty does nothing.

        Raises:
            InvalidEventError: An event could not be loaded again (L2); nothing was stored.
            UnexpectedSeqError: The batch does not follow the log (B3); nothing was stored.
            SessionNotFoundError: Nothing is stored under the id.
            SessionBusyError: It is live here, or another writer holds it.
            CorruptLogError: As `inspect`; so are `UnsupportedFormatError`, `BackendError` and `UsageError`.
        """
        await self._coordinator.append(session_id, events)

    async def ensure_materialized(self, session_id: str) -> None:
        """Store a live session that has no events yet; does nothing for a stored one (B1).

        Raises:
            SessionNotFoundError: Neither live nor stored.
            BackendError: The medium failed.
            UsageError: The backend cannot store a session without events, or the store is closed.
        """
        await self._coordinator.ensure_materialized(session_id)

    # -- the end ----------------------------------------------------------------------------------

    def close(self) -> asyncio.Task[None]:
        """Take no more calls and start to close; open turns of recorders end as disposed.

        Returns:
            The closing: everything written, every claim released; one task however often this is called.
        """
        if self._closing is None:
            closing = {session: session.close() for session in self._registry.list()}
            self._closing = _start(self._close(closing))
        return self._closing

    async def _close(self, closing: Mapping[LiveSession, asyncio.Task[None]]) -> None:
        await asyncio.gather(*closing.values(), return_exceptions=True)
        # What the coordinator still holds it tries once more and reports itself; the rest is lost for good.
        failures = [
            error
            for session, task in closing.items()
            if isinstance(error := task.exception(), Exception)
            and self._coordinator.undurable(session) is None
        ]
        try:
            await self._coordinator.aclose()
        except ExceptionGroup as group:
            failures.extend(group.exceptions)
        await self.attachments.aclose()
        if failures:
            raise ExceptionGroup("the store was closed but not everything was written", failures)

    async def aclose(self) -> None:
        """Close every session, wait until nothing is being written, release everything.

        An open turn of a recorder ends as disposed. Calling it again waits for the same end.

        Raises:
            ExceptionGroup: Everything that could not be written or released.

        Cancellation: only the waiting ends; the store closes.
        """
        await asyncio.shield(self.close())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await end_block(self.close(), error, "the store could not be closed")

    def _check_open(self) -> None:
        if self._closing is not None:
            raise UsageError("this store is closed; open it again with turnlog.open()")


def _start(work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """Run what must come to its end even if nobody waits for it."""
    task = asyncio.get_running_loop().create_task(work)
    _running.add(task)
    task.add_done_callback(_running.discard)
    return task
