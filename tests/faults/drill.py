"""The drill behind the fault lanes: a writer that acknowledges, and the check of what is left afterwards.

Owns the writer process and the comparison. The writer tells, after each flush, how many events are durable
and their digest; whoever injects the fault then asks `survivors` whether all of these are there.
"""

from __future__ import annotations

import asyncio
import os
import signal
import traceback
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

import turnlog
from tests.crash.scenarios import CWD, add_turn
from tests.faults.lanes import Lane

SESSION_ID = "drill"


@dataclass(frozen=True, slots=True)
class Told:
    """What a writer has acknowledged."""

    events: int = 0
    digest: str = ""


def told(session: turnlog.LiveSession) -> Told:
    """Return what is durable of a session right now."""
    count = session.durable_seq
    return Told(count, session.log.snapshot(count).digest())


async def write(url: str, ack: int, *, turns: int = 1 << 30, session_id: str = SESSION_ID) -> None:
    """Resume or make the session, then add turns, telling what is durable after each flush.

    Args:
        url: The store.
        ack: Descriptor to tell on.
        turns: How many turns to add.
        session_id: The session.
    """
    async with turnlog.open(url, write_window=0.002) as store:
        try:
            session = await store.resume(session_id)
        except turnlog.SessionNotFoundError:
            session = await store.create(id=session_id, cwd=CWD)
        for _ in range(turns):
            add_turn(session, session.next_turn)
            await session.flush()
            tell(ack, session)


def tell(ack: int, session: turnlog.LiveSession) -> None:
    """Tell what is durable, in one line."""
    known = told(session)
    os.write(ack, f"{known.events} {known.digest}\n".encode())


class Writer:
    """A forked process that runs a coroutine and tells on a pipe.

    Args:
        work: Called in the child with the descriptor to tell on.
        before: Called in the child first.
    """

    def __init__(
        self, work: Callable[[int], Coroutine[Any, Any, None]], *, before: Callable[[], None] | None = None
    ) -> None:
        read, out = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            status = 70
            try:
                os.close(read)
                if before is not None:
                    before()
                asyncio.run(work(out))
                status = 0
            except BaseException:  # noqa: BLE001 - the child must not return into the parent's stack
                traceback.print_exc()
            finally:
                os._exit(status)
        os.close(out)
        self._acks = os.fdopen(read, "rb")
        self.last = Told()

    def next(self) -> Told | None:
        """Wait for the next acknowledgement; None when the process has ended."""
        line = self._acks.readline()
        if not line.endswith(b"\n"):
            return None
        count, digest = line.split()
        self.last = Told(int(count), digest.decode())
        return self.last

    def kill(self) -> Told:
        """Kill the process and return the last thing it acknowledged."""
        os.kill(self.pid, signal.SIGKILL)
        return self.end()

    def end(self) -> Told:
        """Wait for the end of the process and return the last thing it acknowledged; once is enough."""
        if self._acks.closed:
            return self.last
        while self.next() is not None:
            pass
        self._acks.close()
        _, self.status = os.waitpid(self.pid, 0)
        return self.last


@dataclass(frozen=True, slots=True)
class Survivors:
    """What is left of a session."""

    lost: int
    """Acknowledged events that are gone or are other ones."""
    loads: bool
    """Whether the session loads, can be resumed and written, and verifies."""
    known: Told
    """What is durable after the check has resumed the session and added a turn."""
    problem: str = ""


def survivors(url: str, acknowledged: Told, *, session_id: str = SESSION_ID) -> Survivors:
    """Look what is left, then resume the session and write to it.

    Args:
        url: The store.
        acknowledged: What a writer was told is durable.
        session_id: The session.
    """
    return asyncio.run(_survivors(url, acknowledged, session_id))


async def _survivors(url: str, acknowledged: Told, session_id: str) -> Survivors:
    try:
        async with turnlog.open(url) as store:
            try:
                view = await store.inspect(session_id)
            except turnlog.SessionNotFoundError:
                return Survivors(acknowledged.events, acknowledged.events == 0, Told())
            stored = len(view.events) - len(view.closers)
            lost = max(0, acknowledged.events - stored)
            if not lost and acknowledged.events:
                same = view.events.snapshot(acknowledged.events).digest() == acknowledged.digest
                lost = 0 if same else acknowledged.events
            await store.load(session_id)
            async with store.resume(session_id) as session:
                add_turn(session, session.next_turn)
                await session.flush()
                known = told(session)
            verdict = await store.verify(session_id)
            return Survivors(
                lost, verdict.is_good, known, str(verdict.findings) if not verdict.is_good else ""
            )
    except turnlog.TurnlogError as error:
        return Survivors(acknowledged.events, False, Told(), str(error))


def saved(url: str, acknowledged: Told, *, session_id: str = SESSION_ID) -> bool:
    """Tell whether a salvage of a damaged session gives back everything that was acknowledged.

    Args:
        url: The store.
        acknowledged: What a writer was told is durable.
        session_id: The session.
    """

    async def look() -> bool:
        async with turnlog.open(url) as store, turnlog.open("memory:") as target:
            report = await store.salvage(session_id, to=target)
            events = (await target.read_from(report.new_id, 0)).events
            return events.snapshot(acknowledged.events).digest() == acknowledged.digest

    return asyncio.run(look())


def count(figures: Lane, acknowledged: Told, before: Told, left: Survivors) -> Told:
    """Add one fault to the figures of a lane.

    Args:
        figures: The lane.
        acknowledged: What was acknowledged before the fault.
        before: What was known before this round's writer began.
        left: What is left.

    Returns:
        What is known now.
    """
    figures.faults += 1
    figures.acknowledged += max(0, acknowledged.events - before.events)
    figures.lost += left.lost
    figures.unloadable += not left.loads
    if not figures.control and (left.lost or not left.loads):
        print(f"  {figures.lane} {figures.backend}: acknowledged {acknowledged}, left {left}")
    return left.known
