"""A writer killed because memory ran out, and clocks that step backwards: nothing acknowledged is lost."""

from __future__ import annotations

import asyncio
import functools
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import turnlog
from tests.crash.scenarios import CWD, add_turn
from tests.faults.drill import SESSION_ID, Told, Writer, count, survivors, tell
from tests.faults.lanes import SOAK, lane, need
from tests.faults.stores import KINDS, make_place

LIMIT = 256 << 20
"""Bytes of memory that the writer may have."""
_V1 = Path("/sys/fs/cgroup/memory")
_V2 = Path("/sys/fs/cgroup")


@contextmanager
def small_memory(name: str) -> Iterator[Path]:
    """Make a control group whose processes are killed when they need too much memory.

    Yields:
        The file that takes the ids of processes.
    """
    root = _V1 if (_V1 / "memory.limit_in_bytes").exists() else _V2
    group = root / f"turnlog-{name}-{os.getpid()}"
    try:
        group.mkdir()
        limit = "memory.limit_in_bytes" if root is _V1 else "memory.max"
        (group / limit).write_text(str(LIMIT))
    except OSError as error:
        need(False, f"a control group for memory cannot be made here: {error}")
    try:
        yield group / "cgroup.procs"
    finally:
        group.rmdir()


def _enter(processes: Path) -> None:
    """Put this process into a control group."""
    processes.write_text(str(os.getpid()))


async def _grow(url: str, ack: int) -> None:
    """Write turns, and hold on to more memory after each, until the kernel ends this process."""
    kept: list[bytearray] = []
    async with turnlog.open(url, write_window=0.002) as store:
        try:
            session = await store.resume(SESSION_ID)
        except turnlog.SessionNotFoundError:
            session = await store.create(id=SESSION_ID, cwd=CWD)
        while True:
            add_turn(session, session.next_turn)
            await session.flush()
            tell(ack, session)
            add_turn(session, session.next_turn)
            kept.append(bytearray(os.urandom(1 << 16) * 256))


@pytest.mark.parametrize("kind", KINDS)
def test_out_of_memory(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The kernel kills the writer while it works; everything acknowledged is there (D2)."""
    place = make_place(kind, tmp_path)
    with lane("out of memory", kind, capsys) as figures:
        known = Told()
        for _ in range(20 if SOAK else 1):
            with small_memory(kind) as processes:
                writer = Writer(
                    lambda ack: _grow(place.url, ack),
                    before=functools.partial(_enter, processes),
                )
                told = writer.end()
            assert os.WIFSIGNALED(writer.status), "the writer was not killed"
            known = count(figures, told, known, survivors(place.url, told))


@pytest.mark.parametrize("kind", KINDS)
def test_a_clock_that_steps_backwards(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Each turn is a day before the one before it; times are kept as read, seq decides the order."""
    place = make_place(kind, tmp_path)
    real, real_ns = time.time, time.time_ns
    back = [0]

    def stepping(module: Any) -> None:
        module.time = lambda: real() - back[0]
        module.time_ns = lambda: real_ns() - back[0] * 10**9

    async def work(ack: int) -> None:
        stepping(time)
        for _ in range(40 if SOAK else 4):
            back[0] += 86_400
            async with turnlog.open(place.url) as store:
                try:
                    session = await store.resume(SESSION_ID)
                except turnlog.SessionNotFoundError:
                    session = await store.create(id=SESSION_ID, cwd=CWD)
                add_turn(session, session.next_turn)
                await session.flush()
                tell(ack, session)
                await session.aclose()

    with lane("clock backwards", kind, capsys) as figures:
        writer = Writer(work)
        told = writer.end()
        assert writer.status == 0, "the writer failed by itself"
        count(figures, told, Told(), survivors(place.url, told))
        figures.faults = 40 if SOAK else 4
        times = asyncio.run(_times(place.url))
        assert times != sorted(times), "the clock did not step back"


async def _times(url: str) -> list[int]:
    async with turnlog.open(url) as store:
        return [event.time for event in (await store.read_from(SESSION_ID, 0)).events]
