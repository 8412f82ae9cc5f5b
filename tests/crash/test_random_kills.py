"""SIGKILL at random moments of a writer that never rests: the session survives every death (D2, R1, W1)."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from pathlib import Path

import pytest

import turnlog
from tests.crash.scenarios import CWD, SESSION_ID, acknowledge, add_turn, check_after_kill, store_url
from tests.faults.lanes import SOAK, report

ROUNDS = 1000 if SOAK else 200


async def _write_forever(root: Path, compression: str, ack: int) -> None:
    async with turnlog.open(store_url(root, compression), write_window=0.002) as store:
        try:
            session = await store.resume(SESSION_ID)
        except turnlog.SessionNotFoundError:
            session = await store.create(id=SESSION_ID, cwd=CWD)
        acknowledge(ack, session)
        while True:
            add_turn(session, session.next_turn)
            await session.flush()
            acknowledge(ack, session)


def _one_death(root: Path, compression: str, after: float) -> int:
    """Fork a writer, kill it `after` seconds, return the highest acknowledged count."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            asyncio.run(_write_forever(root, compression, write))
        finally:
            os._exit(70)
    os.close(write)
    time.sleep(after)
    os.kill(pid, signal.SIGKILL)
    with os.fdopen(read, "rb") as acks:
        told = [int(line) for line in acks.read().split()]
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status), f"the writer ended by itself with status {status}"
    return max(told, default=0)


@pytest.mark.parametrize("compression", ["none", "zstd"])
def test_random_deaths_lose_nothing(
    compression: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A writer killed at a random moment, resumed by the next, and so on, on sessions of growing length."""
    chance = random.Random(7)
    deaths = reached = events = 0
    acknowledged = 0
    for number in range(ROUNDS // 2):
        root = tmp_path / f"{number // 10}"  # a fresh session every ten deaths keeps each check short
        if number % 10 == 0:
            acknowledged = 0
        told = _one_death(root, compression, chance.uniform(0.0, 0.15))
        reached += told > acknowledged
        events += max(0, told - acknowledged)
        acknowledged = max(acknowledged, told)
        acknowledged = max(acknowledged, check_after_kill(root, compression, acknowledged))
        deaths += 1
    assert reached > ROUNDS // 20, "hardly any writer got as far as an acknowledgement"
    report(
        "SIGKILL at random",
        f"jsonl {compression}",
        capsys,
        faults=deaths,
        acknowledged=events,
        note=f"{reached} after new acknowledgements",
    )
