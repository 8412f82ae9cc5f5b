"""The two writers of the hold-up drill, each a process of its own that is told what to do line by line.

Owns what they do: A stops itself in the middle of an append, B takes the session when A's lease has run
out. Who lets A go on, and what must be true afterwards, is the drill's.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from typing import Any

from tests.crash.scenarios import add_turn
from turnlog.backends.postgres.address import PostgresAddress, parse_address
from turnlog.backends.postgres.backend import PostgresBackend
from turnlog.errors import SessionBusyError, TurnlogError, UndurableError, WriterFencedError
from turnlog.persistence.attachments import AttachmentStore
from turnlog.persistence.coordinator import PersistenceCoordinator
from turnlog.persistence.live_session import LiveSession
from turnlog.persistence.store import SessionStore
from turnlog.session.registry import SessionRegistry

LEASE_SECONDS = 0.3
NEVER = 1e9


def _stop() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


class StoppingBackend(PostgresBackend):
    """Stops its own process once, at one place of the next append.

    `before-send`: nothing of it has left. `in-group`: the write is on its way, the commit that makes it
    durable is not. `after-reply`: it is stored, and nobody was told.
    """

    def __init__(self, address: PostgresAddress, **options: Any) -> None:
        super().__init__(address, **options)
        self.position: str | None = None
        self._inner = self.lease.parameters
        self.lease.parameters = self._parameters  # type: ignore[method-assign]  # stops in between

    def _reached(self, position: str) -> None:
        if self.position == position:
            self.position = None
            _stop()

    def _parameters(self) -> dict[str, Any]:
        self._reached("in-group")
        return self._inner()

    async def append_batch(self, *args: Any, **options: Any) -> str | None:
        self._reached("before-send")
        revision = await super().append_batch(*args, **options)
        self._reached("after-reply")
        return revision


def _tell(**facts: Any) -> None:
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


async def _asked() -> dict[str, Any] | None:
    line = await asyncio.to_thread(sys.stdin.readline)
    return json.loads(line) if line else None


def _store(url: str) -> tuple[StoppingBackend, SessionStore]:
    backend = StoppingBackend(parse_address(url), lease_seconds=LEASE_SECONDS, reply_seconds=1.0)
    registry = SessionRegistry(session_type=LiveSession)
    coordinator = PersistenceCoordinator(backend, registry, write_window=NEVER)
    return backend, SessionStore(coordinator, registry, AttachmentStore(None))


async def _flush(session: LiveSession) -> list[int] | None:
    """Flush until it is decided; return the seqs that were handed back, None when all are stored."""
    while True:
        try:
            await session.flush()
        except WriterFencedError as fenced:
            return [event.seq for event in fenced.pending]
        except UndurableError:
            await asyncio.sleep(0.02)
        else:
            return None


async def writer_a(url: str) -> None:
    """Acknowledge a turn, be held up inside the next one, go on with it and with a third."""
    backend, store = _store(url)
    while (asked := await _asked()) is not None:
        session = await store.create(id=asked["session"])
        add_turn(session, 1)
        await session.flush()
        _tell(acknowledged=session.durable_seq)
        add_turn(session, 2)
        if asked["position"] == "network":
            await _asked()  # the line is down now
        else:
            backend.position = asked["position"]
        pending = await _flush(session)
        acknowledged = session.durable_seq
        if pending is None:
            add_turn(session, 3)
            pending = await _flush(session)
        _tell(acknowledged=acknowledged, pending=pending)
        with contextlib.suppress(TurnlogError, ExceptionGroup):
            await session.aclose()


async def writer_b(url: str) -> None:
    """Wait until the session is free, and append a turn."""
    _, store = _store(url)
    while (asked := await _asked()) is not None:
        refusals, owner = 0, None
        while True:
            try:
                session = await store.resume(asked["session"])
            except SessionBusyError as busy:
                refusals += 1
                owner = busy.owner and busy.owner.host
                if refusals == 1 and asked.get("report"):
                    _tell(refused=owner)
                await asyncio.sleep(0.02)
            else:
                break
        first = session.first_live_seq
        add_turn(session, session.next_turn)
        await session.flush()
        _tell(first=first, acknowledged=session.durable_seq, refusals=refusals, owner=owner)
        await session.aclose()
    await store.aclose()


if __name__ == "__main__":
    asyncio.run({"a": writer_a, "b": writer_b}[sys.argv[1]](sys.argv[2]))
