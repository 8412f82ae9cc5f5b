"""`PreparationPool`: stored sessions that have been read and validated, by id, with their reservations.

Owns the phases of an entry, who waits for it, and eviction by count and bytes. It reads nothing: the
coordinator hands loads in and decides whether an entry is still current.
"""

from __future__ import annotations

import asyncio
import enum
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from turnlog.persistence.reading import Prepared
    from turnlog.session.session import Session


class Phase(enum.Enum):
    """Where an entry stands; `loading` leads to `ready`, and `committing` to `reserved` or away."""

    LOADING = "loading"
    READY = "ready"
    COMMITTING = "committing"
    RESERVED = "reserved"
    GONE = "gone"


class Entry:
    """One id in the pool.

    Attributes:
        session_id: The id.
        phase: Where it stands.
        prepared: What was read; None while loading.
        observers: Callers that wait for the load.
    """

    __slots__ = ("_settled", "observers", "phase", "prepared", "session_id", "task")

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        self.phase = Phase.LOADING
        self.prepared: Prepared | None = None
        self.observers = 0
        self.task: asyncio.Task[Prepared] | None = None
        self._settled: list[asyncio.Future[None]] = []

    @property
    def is_held(self) -> bool:
        """Whether somebody is about to have, or has, the exclusive reservation."""
        return self.phase in (Phase.COMMITTING, Phase.RESERVED)

    def is_unwanted(self) -> bool:
        """Whether every caller left before the load began, so that it need not run."""
        return self.observers == 0

    def move(self, phase: Phase) -> None:
        """Enter a phase and wake those who wait until nobody holds the entry."""
        self.phase = phase
        if not self.is_held:
            waiting, self._settled = self._settled, []
            for future in waiting:
                if not future.done():
                    future.set_result(None)

    async def free(self) -> None:
        """Wait until nobody holds the entry; a cancelled wait leaves the holder alone."""
        future = asyncio.get_running_loop().create_future()
        self._settled.append(future)
        try:
            await future
        finally:
            if future in self._settled:
                self._settled.remove(future)


class PreparationPool:
    """The entries of one coordinator, least recently used first.

    Only ready entries count against the two bounds and are evicted.

    Args:
        capacity: Ready entries that are kept.
        max_bytes: Encoded bytes of all ready entries together.
    """

    def __init__(self, capacity: int, max_bytes: int) -> None:
        self._capacity = capacity
        self._max_bytes = max_bytes
        self._entries: OrderedDict[str, Entry] = OrderedDict()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, session_id: str) -> Entry | None:
        """Return the entry of an id, or None."""
        return self._entries.get(session_id)

    def is_held(self, session_id: str) -> bool:
        """Tell whether the id is being committed or is reserved."""
        entry = self._entries.get(session_id)
        return entry is not None and entry.is_held

    async def free(self, session_id: str) -> None:
        """Wait until nobody holds a reservation of the id."""
        while (entry := self._entries.get(session_id)) is not None and entry.is_held:
            await entry.free()

    async def load(
        self, session_id: str, start: Callable[[Entry], asyncio.Task[Prepared]]
    ) -> tuple[Entry, Prepared]:
        """Join the load of an id, or begin one; every observer may leave without stopping it.

        A load that fails, or that nobody waits for when its turn comes, leaves the pool.

        Args:
            session_id: The id.
            start: Begins the load of a new entry.

        Returns:
            The entry, which may have gone on since, and what the load gave.
        """
        entry = self._entries.get(session_id)
        if entry is not None and entry.task is not None and entry.task.done():
            self._loaded(entry, entry.task)  # its callback has not had its turn yet
            entry = self._entries.get(session_id)
        if entry is None:
            entry = self._entries[session_id] = Entry(session_id)
            try:
                entry.task = start(entry)
            except BaseException:
                self._remove(entry)
                raise
            entry.task.add_done_callback(partial(self._loaded, entry))
        if entry.prepared is not None:
            return entry, entry.prepared
        assert entry.task is not None  # an entry without a result is being loaded
        entry.observers += 1
        try:
            return entry, await asyncio.shield(entry.task)
        finally:
            entry.observers -= 1

    def put(self, prepared: Prepared) -> Entry:
        """Replace whatever is known of an id by a fresh read, as a ready entry.

        A load that is waiting for its turn keeps its entry, and its callers.
        """
        session_id = prepared.inspection.meta.id
        entry = self._entries.get(session_id)
        if entry is None or entry.phase is not Phase.LOADING:
            self.drop(session_id)
            entry = self._entries[session_id] = Entry(session_id)
        entry.prepared = prepared
        entry.move(Phase.READY)
        self._touch(entry)
        return entry

    def take_ready(self, session_id: str) -> Prepared | None:
        """Return what a ready entry holds and mark it as used; None for any other phase."""
        entry = self._entries.get(session_id)
        if entry is None or entry.phase is not Phase.READY:
            return None
        self._touch(entry)
        return entry.prepared

    def commit(self, prepared: Prepared) -> Entry:
        """Close an id to everybody else while its repair or reservation is being committed.

        Args:
            prepared: What is committed; its entry may have been evicted meanwhile.
        """
        entry = self._entries.get(prepared.inspection.meta.id)
        if entry is None or entry.prepared is not prepared:
            self.drop(prepared.inspection.meta.id)
            entry = Entry(prepared.inspection.meta.id)
            entry.prepared = prepared
            self._entries[entry.session_id] = entry
        entry.move(Phase.COMMITTING)
        return entry

    def reserve(self, entry: Entry) -> None:
        """Turn a committing entry into a reserved one."""
        entry.move(Phase.RESERVED)

    def clear(self) -> None:
        """Forget everything and wake everybody who waits."""
        for entry in list(self._entries.values()):
            self._remove(entry)

    def release(self, entry: Entry, *, reusable: bool) -> None:
        """Give up a committing or reserved entry.

        Args:
            entry: The entry.
            reusable: Whether what was read still stands; then the entry is ready for the next caller.
        """
        if not entry.is_held:
            return
        if reusable:
            entry.move(Phase.READY)
            self._touch(entry)
        else:
            self._remove(entry)

    def refuses(self, session: Session) -> bool:
        """Tell whether the id is being committed, or is reserved for another session object."""
        entry = self._entries.get(session.id)
        return entry is not None and entry.is_held and not _is_for(entry, session)

    def publish(self, session: Session) -> Prepared | None:
        """Consume the reservation of exactly this session.

        Returns:
            What was prepared, or None when the session was not reserved here.
        """
        entry = self._entries.get(session.id)
        if entry is None or not _is_for(entry, session):
            return None
        self._remove(entry)
        return entry.prepared

    def drop(self, session_id: str) -> None:
        """Forget an id that has changed, whatever its phase; those who load it keep their result."""
        entry = self._entries.get(session_id)
        if entry is not None:
            self._remove(entry)

    # -- inside ---------------------------------------------------------------------------------

    def _loaded(self, entry: Entry, task: asyncio.Task[Prepared]) -> None:
        if self._entries.get(entry.session_id) is not entry:
            return  # invalidated, or left by everybody, while it loaded
        if task.cancelled() or task.exception() is not None:
            self._remove(entry)
        elif entry.phase is Phase.LOADING:
            entry.prepared = task.result()
            entry.move(Phase.READY)
            self._touch(entry)

    def _remove(self, entry: Entry) -> None:
        if self._entries.get(entry.session_id) is entry:
            del self._entries[entry.session_id]
        entry.move(Phase.GONE)

    def _touch(self, entry: Entry) -> None:
        self._entries.move_to_end(entry.session_id)
        ready = [e for e in self._entries.values() if e.phase is Phase.READY]
        total = sum(e.prepared.nbytes for e in ready if e.prepared is not None)
        while ready and (len(ready) > self._capacity or total > self._max_bytes):
            oldest = ready.pop(0)
            total -= oldest.prepared.nbytes if oldest.prepared is not None else 0
            self._remove(oldest)


def _is_for(entry: Entry, session: Session) -> bool:
    """Whether an entry is the reservation of exactly this session object."""
    return entry.phase is Phase.RESERVED and entry.prepared is not None and entry.prepared.session is session
