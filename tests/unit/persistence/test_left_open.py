"""Stores that nobody closes: reported at exit, let go of in a forked child."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import textwrap

import pytest

from tests.unit.persistence.world import World
from turnlog.errors import UsageError
from turnlog.persistence import left_open
from turnlog.session.registry import SessionRegistry
from turnlog.session.session import Session
from turnlog.testing.scripts import LogScript, append_live, go_live

PROGRAM = """
import asyncio, os, sys
from turnlog.backends.memory import MemoryBackend
from turnlog.persistence.coordinator import PersistenceCoordinator
from turnlog.session.registry import SessionRegistry

async def main(how):
    registry = SessionRegistry()
    store = PersistenceCoordinator(MemoryBackend(), registry, write_window=60)
    session = registry.create("s")
    for n in range(3):
        session.append("feedback/record", {"n": n})
    if how == "flush":
        await store.flush(session)
    if how == "close":
        await store.aclose()

asyncio.run(main(sys.argv[1]))
"""


def run(how: str) -> str:
    """Run the program in a process of its own and return what it wrote to stderr."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(PROGRAM), how],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )
    return done.stderr


def test_a_store_left_open_is_reported_at_exit() -> None:
    """A process that ends with an open store says how many events are not durable (D1)."""
    assert "memory store was left open at exit with 3 events that are not durable" in run("leave")


def test_a_closed_store_is_not_reported() -> None:
    """A process that closes its store ends silently (D1)."""
    assert run("close") == ""


async def test_a_forked_child_lets_go_without_writing(world: World) -> None:
    """A child has no store: it writes, flushes and releases nothing, and says so when used (W1)."""
    registry: SessionRegistry[Session] = SessionRegistry(Session)
    store, faults = world.store(registry)
    session = go_live(registry, "s")
    append_live(session, LogScript().turn().events)
    await store.flush(session)
    session.append("feedback/record", {})
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        answers = [str(faults.counts["forget"]), str(faults.counts["release"]), str(store.undurable_events())]
        try:
            session.append("feedback/record", {})
        except UsageError:
            answers.append("refused")
        except BaseException as error:  # noqa: BLE001  # the child must answer and end, whatever happens
            answers.append(repr(error))
        os.write(writer, " ".join(answers).encode())
        os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)  # noqa: ASYNC222  # nothing else may run before the child has answered
    with os.fdopen(reader) as answers_of_child:
        assert answers_of_child.read() == "1 0 0 refused"
    session.append("feedback/record", {})
    await store.flush(session)
    assert store.durable_seq(session) == session.seq
    assert faults.counts["forget"] == 0


async def test_what_was_let_go_of_stays_closed(world: World) -> None:
    """A store that was let go of refuses every call, and closing it does nothing (W1)."""
    registry: SessionRegistry[Session] = SessionRegistry(Session)
    store, faults = world.store(registry)
    session = go_live(registry, "s")
    session.append("feedback/record", {})
    assert store.undurable_events() == 1
    assert store.label == "memory"
    store.forget()
    with pytest.raises(UsageError, match="process that opened it"):
        await store.inspect("s")
    with pytest.raises(UsageError):
        session.append("feedback/record", {})
    await store.aclose()
    go_live(registry, "t").append("feedback/record", {})
    assert faults.counts["append_batch"] == faults.counts["aclose"] == 0


async def test_one_store_that_fails_does_not_keep_the_others(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Letting go of all stores goes on when one of them fails (W1)."""
    monkeypatch.setattr(left_open, "_open", set())
    stores = [world.store() for _ in range(2)]

    def fail() -> None:
        raise OSError("no such descriptor")

    stores[0][1].forget = fail  # type: ignore[method-assign]  # a backend whose own clean-up fails
    left_open.forget_all()
    assert "could not be let go of" in caplog.text
    assert stores[1][1].counts["forget"] == 1
    assert not left_open._open


async def test_the_report_names_every_open_store(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each open store is one warning with its number of events (D1)."""
    monkeypatch.setattr(left_open, "_open", set())
    registry: SessionRegistry[Session] = SessionRegistry(Session)
    world.store(registry)
    go_live(registry, "s").append("feedback/record", {})
    closed, _ = world.store()
    await closed.aclose()
    with caplog.at_level(logging.WARNING):
        left_open.report_all()
    assert ["1 events" in record.message for record in caplog.records] == [True]


def test_a_store_left_open_with_nothing_to_lose_is_not_reported() -> None:
    """Where everything is durable nothing is lost, and the exit is silent."""
    assert run("flush") == ""
