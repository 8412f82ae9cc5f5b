"""A peer's writer for the fault drills; it runs in the bench's environment, which knows nothing of turnlog.

Usage: python -m tests.faults.peers_side PEER DATABASE FIRST COUNT. Prints the number of each turn that the
store said is stored, and `refused` for one that it refused.
"""

from __future__ import annotations

import asyncio
import sys
import uuid
from importlib import import_module
from pathlib import Path
from typing import Any


async def write(peer: str, path: Path, first: int, turns: int) -> None:
    """Write turns to one session, telling each outcome."""
    if peer == "eventsourcing":
        uuid.uuid4 = lambda: uuid.UUID(int=7, version=4)  # every process means the same session
    if peer == "adk":
        _resume_what_exists()
    # By name, since only this environment has what it imports.
    async with import_module("bench.peers").PEERS[peer](path, 1) as flushes:
        for turn in range(first, first + turns):
            try:
                await flushes[0](turn)
            except Exception as error:  # noqa: BLE001 - a refusal is what the drill asks for
                print("refused", type(error).__name__, flush=True)
            else:
                print(turn, flush=True)


def _resume_what_exists() -> None:
    """Let the second process of ADK get the session that the first one has created."""
    service = import_module("google.adk.sessions").DatabaseSessionService
    create = service.create_session

    async def create_or_get(self: Any, **named: Any) -> Any:
        found = await self.get_session(**named)
        return found if found is not None else await create(self, **named)

    service.create_session = create_or_get


if __name__ == "__main__":
    asyncio.run(write(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])))
