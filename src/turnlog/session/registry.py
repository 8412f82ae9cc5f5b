"""The live sessions of one process: making, publishing and taking them away, with observers of all of them.

Owns which session is live under an id and the order of created, event and disposed notices. It is usable
without any store: durability comes in as just another observer.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from turnlog.errors import ForkError, SessionExistsError, SessionNotFoundError, UsageError
from turnlog.session.fork import fork_header, fork_prefix
from turnlog.session.ids import new_session_id
from turnlog.session.session import Clock, Session, system_clock

if TYPE_CHECKING:
    from turnlog.events.envelope import SessionEvent
    from turnlog.events.header import SessionHeader
    from turnlog.events.log import EventLog
    from turnlog.session.facts import EventSource
    from turnlog.session.observers import Unsubscribe

S = TypeVar("S", bound=Session)

_log = logging.getLogger("turnlog.session")
_META = {
    "cwd": "cwd",
    "parent_session": "parentSession",
    "seed_length": "seedLength",
    "origin": "origin",
    "delegation_depth": "delegationDepth",
    "agent_preset": "agentPreset",
}


class _Entry(Generic[S]):
    """One live session."""

    def __init__(self, session: S) -> None:
        self.session = session
        self.announced = False
        self.announcing = False
        self.detaching = False
        self.undo: list[Unsubscribe] = []


class SessionRegistry(Generic[S]):
    """Live sessions by id, in creation order.

    `prepare` makes a session that nobody sees, `enter` puts it under its id, `announce` tells the created
    listeners; `create` does all three. Everything runs on the caller's thread.

    Args:
        session_type: The class of its sessions.
        clock: Gives times for their headers and events.
    """

    def __init__(self, session_type: type[S] = Session, *, clock: Clock | None = None) -> None:  # type: ignore[assignment]  # the default fits the default of S
        self._type = session_type
        self._clock = clock
        self._now = system_clock if clock is None else clock
        self._entries: dict[str, _Entry[S]] = {}
        self._created: list[Callable[[S], object]] = []
        self._disposed: list[Callable[[S], object]] = []
        self._wired: list[Callable[[S], Unsubscribe]] = []

    def prepare(
        self,
        id: str | None = None,
        *,
        header: SessionHeader | Mapping[str, Any] | None = None,
        seed: EventSource | None = None,
        restore_log: EventLog | None = None,
        strict: bool = True,
        created_at: int | None = None,
        **meta: Any,
    ) -> S:
        """Make a session without publishing it.

        Args:
            id: Its id; by default that of `header`, or a new UUIDv7.
            header: Its whole metadata; with `restore_log` it is required.
            seed: Events that a new session begins with.
            restore_log: A stored log to go on from; ownership passes to the session.
            strict: Whether live appends are held to L4.
            created_at: Unix milliseconds, now by default; without `header` only.
            meta: `cwd`, `parent_session`, `seed_length`, `origin`, `delegation_depth`, `agent_preset`; only
                without `header`.

        Returns:
            The session, not yet live.

        Raises:
            SessionExistsError: A session with this id is live.
            InvalidEventError: Metadata or a seed event is not valid.
            UsageError: The arguments do not go together.
            LogError: As `Session.create` and `Session.restore`.
        """
        if restore_log is not None:
            if header is None or seed is not None or meta:
                raise UsageError("restoring takes a header and a log, neither seed nor metadata")
            session = self._type.restore(header, restore_log, strict=strict, clock=self._clock)
            self._refuse_live(session.id)
            return session
        if header is None:
            id = new_session_id() if id is None else id
            header = self._header(id, created_at, meta)
        elif meta or created_at is not None:
            raise UsageError("metadata goes into the header, or beside no header, not both")
        self._refuse_live(id if id is not None else _id_of(header))
        return self._type.create(id, seed=seed, header=header, strict=strict, clock=self._clock)

    def enter(self, session: S) -> Callable[[], None]:
        """Make a prepared session live under its id. Nobody is told.

        The session is bound to the calling thread.

        Args:
            session: A session of this registry's type.

        Returns:
            A function that takes exactly this session away again; calling it again does nothing.

        Raises:
            SessionExistsError: Its id is live.
            UsageError: The session is live in some registry.
        """
        if session.registry is not None:
            raise UsageError(f"session {session.id!r} is already live in a registry")
        self._refuse_live(session.id)
        session.bind_to_thread()
        session.registry = self
        entry = _Entry(session)
        self._entries[session.id] = entry
        entry.undo = [wire(session) for wire in self._wired]
        return lambda: self._detach(entry)

    def announce(self, session: S) -> None:
        """Tell the created listeners, once.

        Args:
            session: A live session.

        Raises:
            UsageError: It is not live here, or has been announced, or is just being.
            Exception: What a created listener raised; it vetoes the creation. The session stays live until it
                is detached, and counts as announced.
        """
        entry = self._entry_of(session)
        if entry is None:
            raise UsageError(f"session {session.id!r} is not live in this registry")
        if entry.announced:
            raise UsageError(f"session {session.id!r} has been announced already")
        entry.announced = entry.announcing = True
        try:
            for listener in tuple(self._created):
                listener(session)
        finally:
            entry.announcing = False
            if entry.detaching:
                self._detach(entry)

    def create(
        self,
        id: str | None = None,
        *,
        header: SessionHeader | Mapping[str, Any] | None = None,
        seed: EventSource | None = None,
        restore_log: EventLog | None = None,
        strict: bool = True,
        **meta: Any,
    ) -> S:
        """Prepare, enter and announce a session.

        Args:
            id: As for `prepare`.
            header: As for `prepare`.
            seed: As for `prepare`.
            restore_log: As for `prepare`.
            strict: As for `prepare`.
            meta: As for `prepare`.

        Returns:
            The live session.

        Raises:
            LogError: As `prepare`.
            UsageError: As `prepare`.
            Exception: What a created listener raised; the session is not live then and its disposal was told.
        """
        session = self.prepare(id, header=header, seed=seed, restore_log=restore_log, strict=strict, **meta)
        detach = self.enter(session)
        try:
            self.announce(session)
        except BaseException:
            detach()
            raise
        return session

    def detach(self, session: S) -> None:
        """Take a session away: at once, or when its announcement or running append has ended.

        Args:
            session: Any session; one that is not live here is left alone.
        """
        entry = self._entry_of(session)
        if entry is not None:
            self._detach(entry)

    def get(self, id: str) -> S | None:
        """Return the live session with an id, or `None`."""
        entry = self._entries.get(id)
        return None if entry is None else entry.session

    def list(self) -> list[S]:
        """Return the live sessions in creation order, as a fresh list."""
        return [entry.session for entry in self._entries.values()]

    def __len__(self) -> int:
        return len(self._entries)

    def on_created(self, listener: Callable[[S], object]) -> Unsubscribe:
        """Call a listener for every announced session; what it raises vetoes the creation.

        Returns:
            A function that ends the subscription.
        """
        return _subscribe(self._created, listener)

    def on_disposed(self, listener: Callable[[S], object]) -> Unsubscribe:
        """Call a listener for every announced session that has been taken away; its failures are logged.

        Returns:
            A function that ends the subscription.
        """
        return _subscribe(self._disposed, listener)

    def on_event(self, listener: Callable[[S, SessionEvent], object], *, chunks: bool = False) -> Unsubscribe:
        """Call a listener with every event of every live session, also of those that are live already.

        Args:
            listener: Called after the commit, with the session and the event; isolated like any observer.
            chunks: Whether it is called for streamed chunks too.

        Returns:
            A function that ends the subscription.
        """
        return self._wire(
            lambda session: session.observe(lambda event: listener(session, event), chunks=chunks)
        )

    def on_candidate(self, listener: Callable[[S, SessionEvent], object]) -> Unsubscribe:
        """Call a listener with every event right before its commit; what it raises refuses the event.

        Returns:
            A function that ends the subscription.
        """
        return self._wire(
            lambda session: session.subscribe_candidates(lambda event: listener(session, event))
        )

    def fork(
        self, source: S | str, at: int | None = None, child_id: str | None = None, *, strict: bool = True
    ) -> S:
        """Create a live session that begins with a part of another live one.

        Args:
            source: The parent or its id.
            at: Seq of the last inherited event, inclusive; by default the last one there is.
            child_id: Id of the child; by default a new UUIDv7.
            strict: Whether its live appends are held to L4.

        Returns:
            The child: same `cwd` and preset, the inherited events, then `session/end-seed`.

        Raises:
            SessionExistsError: `child_id` is live.
            SessionNotFoundError: The source is not live here.
            ForkError: `not-live` when the object is not the one that is live under its id, `invalid-boundary`
                or `open-turn` as `fork_prefix`.
        """
        if child_id is not None:
            self._refuse_live(child_id)
        parent_id = source if isinstance(source, str) else source.id
        parent = self.get(parent_id)
        if parent is None:
            raise SessionNotFoundError(session_id=parent_id)
        if not isinstance(source, str) and source is not parent:
            raise ForkError(
                session_id=parent_id, reason="another object is live under this id", kind="not-live"
            )
        prefix = fork_prefix(parent.log, at, session_id=parent_id)
        child_id = new_session_id() if child_id is None else child_id
        header = fork_header(parent.header, child_id, seed_length=len(prefix), created_at=self._now())
        return self.create(child_id, header=header, seed=prefix, strict=strict)

    def _wire(self, wire: Callable[[S], Unsubscribe]) -> Unsubscribe:
        """Connect a listener to every live and every later session, and return how to disconnect it."""
        connected: dict[int, Unsubscribe] = {}

        def connect(session: S) -> Unsubscribe:
            undo = connected[id(session)] = wire(session)

            def disconnect() -> None:
                connected.pop(id(session), None)
                undo()

            return disconnect

        forget = _subscribe(self._wired, connect)
        for entry in self._entries.values():
            entry.undo.append(connect(entry.session))

        def unsubscribe() -> None:
            forget()
            for undo in tuple(connected.values()):
                undo()
            connected.clear()

        return unsubscribe

    def _entry_of(self, session: S) -> _Entry[S] | None:
        entry = self._entries.get(session.id)
        return entry if entry is not None and entry.session is session else None

    def _detach(self, entry: _Entry[S]) -> None:
        if self._entries.get(entry.session.id) is not entry:
            return
        if entry.announcing:
            entry.detaching = True
            return
        entry.session.when_idle(lambda: self._remove(entry))

    def _remove(self, entry: _Entry[S]) -> None:
        session = entry.session
        if self._entries.get(session.id) is not entry:
            return
        del self._entries[session.id]
        session.registry = None
        for undo in entry.undo:
            undo()
        if not entry.announced:
            return
        for listener in tuple(self._disposed):
            try:
                listener(session)
            except Exception:  # noqa: BLE001  # whatever it raises is logged, the others still have to hear
                _log.exception("disposed listener %r failed for session %s", listener, session.id)

    def _refuse_live(self, id: str) -> None:
        if id in self._entries:
            raise SessionExistsError(session_id=id, where="live")

    def _header(self, id: str, created_at: int | None, meta: Mapping[str, Any]) -> dict[str, Any]:
        unknown = sorted(set(meta) - set(_META))
        if unknown:
            raise UsageError(f"unknown session metadata: {', '.join(unknown)}")
        given = {_META[name]: value for name, value in meta.items() if value is not None}
        now = self._now() if created_at is None else created_at
        return {"version": 0, "id": id, "createdAt": now, **given}


def _id_of(header: SessionHeader | Mapping[str, Any]) -> str:
    return str(header["id"] if isinstance(header, Mapping) else header.id)


def _subscribe(listeners: list[Any], listener: Any) -> Unsubscribe:
    listeners.append(listener)

    def unsubscribe() -> None:
        if listener in listeners:
            listeners.remove(listener)

    return unsubscribe
