"""`FaultyBackend` does exactly what it is told, and nothing when it is told nothing."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

import pytest

from turnlog.backends.memory import MemoryBackend
from turnlog.errors import BackendUnavailableError
from turnlog.events.batch import EncodedBatch
from turnlog.persistence.backend import OptionalHooks, supports
from turnlog.testing.faulty_backend import OPTIONAL, FaultyBackend
from turnlog.testing.manual_time import until
from turnlog.testing.scripts import LogScript, header


async def append(backend: FaultyBackend, session_id: str = "s") -> str | None:
    """Store one batch of nine events as a new session."""
    batch = EncodedBatch.of(LogScript().turn().events)
    return await backend.append_batch(
        header(session_id), batch, is_materialized=False, claim=None, summary=None
    )


async def stored(backend: FaultyBackend, session_id: str = "s") -> int:
    """Return how many events the backend inside has."""
    found = await backend.inner.load_stored(session_id)
    return 0 if found is None else len(found.events)


async def test_nothing_scripted_changes_nothing() -> None:
    """Without a script calls pass through and are counted."""
    backend = FaultyBackend(MemoryBackend())
    await append(backend)
    assert await stored(backend) == 9
    assert (backend.counts["append_batch"], backend.batches()) == (1, ((0, 8),))
    assert [entry.session_id async for entry in backend.list()] == ["s"]
    assert [call.hook for call in backend.calls] == ["append_batch", "list"]


async def test_fail_before_leaves_nothing() -> None:
    """A call that fails before its work certainly wrote nothing, once."""
    backend = FaultyBackend(MemoryBackend())
    backend.fail("append_batch")
    with pytest.raises(BackendUnavailableError) as failed:
        await append(backend)
    assert failed.value.wrote_nothing
    assert await stored(backend) == 0
    await append(backend)
    assert await stored(backend) == 9


async def test_fail_after_loses_only_the_reply() -> None:
    """A lost reply is an unknown outcome; the work is done."""
    backend = FaultyBackend(MemoryBackend())
    backend.fail("append_batch", when="after")
    with pytest.raises(BackendUnavailableError) as failed:
        await append(backend)
    assert not failed.value.wrote_nothing
    assert await stored(backend) == 9


async def test_fail_partway_keeps_the_first_events() -> None:
    """Only the first events of the batch are stored."""
    backend = FaultyBackend(MemoryBackend())
    backend.fail("append_batch", when="partway", keep=4)
    with pytest.raises(BackendUnavailableError):
        await append(backend)
    assert await stored(backend) == 4


async def test_faults_are_numbered_from_now_on() -> None:
    """The second call from now fails, the first and third do not; None means every call."""
    backend = FaultyBackend(MemoryBackend())
    await append(backend, "a")
    backend.fail("append_batch", on=2)
    await append(backend, "b")
    with pytest.raises(BackendUnavailableError):
        await append(backend, "c")
    await append(backend, "c")
    backend.fail("append_batch", on=None)
    for _ in range(3):
        with pytest.raises(BackendUnavailableError):
            await append(backend, "d")
    backend.heal()
    await append(backend, "d")
    assert backend.counts["append_batch"] == 8


async def test_iterating_hooks_fail_too() -> None:
    """Hooks that yield fail before the first item or after the last."""
    backend = FaultyBackend(MemoryBackend())
    await append(backend)
    backend.fail("list")
    with pytest.raises(BackendUnavailableError):
        [entry async for entry in backend.list()]
    backend.fail("list", when="after")
    entries = backend.list()
    assert (await anext(entries)).session_id == "s"
    with pytest.raises(BackendUnavailableError):
        await anext(entries)


async def test_a_gate_holds_a_call() -> None:
    """A hanging call waits for its release, or ends with the error it is given."""
    backend = FaultyBackend(MemoryBackend())
    gate = backend.hang("append_batch")
    task = asyncio.ensure_future(append(backend))
    await gate.entered.wait()
    assert await stored(backend) == 0
    gate.release()
    await task
    assert await stored(backend) == 9
    gate = backend.hang("append_batch")
    task = asyncio.ensure_future(append(backend, "t"))
    await gate.entered.wait()
    gate.fail(OSError("scripted"))
    with pytest.raises(OSError, match="scripted"):
        await task


@pytest.mark.parametrize(("when", "kept"), [("before", 0), ("after", 9)])
async def test_a_dead_process_never_answers(when: Any, kept: int) -> None:
    """From a crash on no call returns, and no later one begins."""
    backend = FaultyBackend(MemoryBackend())
    backend.crash("append_batch", when=when)
    tasks = [asyncio.ensure_future(append(backend))]
    await until(lambda: backend.dead)
    tasks.append(asyncio.ensure_future(append(backend, "t")))
    done, _ = await asyncio.wait(tasks, timeout=0.01)
    assert not done
    assert (await stored(backend), await stored(backend, "t")) == (kept, 0)
    for task in tasks:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


async def test_kill_stops_what_is_running() -> None:
    """A backend that is in the middle of its work is stopped where it stands."""

    class Slow(MemoryBackend):
        async def read_stored_revision(self, session_id: str) -> str | None:
            await asyncio.sleep(0)
            raise AssertionError("a dead process went on")

    backend = FaultyBackend(Slow())
    task = asyncio.ensure_future(backend.read_stored_revision("s"))
    await asyncio.sleep(0)
    backend.kill()
    done, _ = await asyncio.wait({task}, timeout=0.01)
    assert not done
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def test_a_dead_call_can_be_cancelled() -> None:
    """At the end of a loop even what a crash left waiting goes away."""

    class Slow(MemoryBackend):
        async def read_stored_revision(self, session_id: str) -> str | None:
            await asyncio.sleep(60)
            return None

    backend = FaultyBackend(Slow())
    task = asyncio.ensure_future(backend.read_stored_revision("s"))
    await asyncio.sleep(0)
    backend.kill()
    for running in asyncio.all_tasks() - {asyncio.current_task()}:
        running.cancel()
    done, _ = await asyncio.wait({task}, timeout=1)
    assert done == {task}
    assert task.cancelled()


async def test_cancelling_the_caller_is_not_a_crash() -> None:
    """Only a kill makes a call hang; a cancelled caller is cancelled."""
    backend = FaultyBackend(MemoryBackend())
    gate = backend.hang("append_batch")
    task = asyncio.ensure_future(append(backend))
    await gate.entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


def test_the_wrapper_has_the_hooks_of_what_it_wraps() -> None:
    """An optional hook that the backend lacks is not there on the wrapper either."""

    class Small:
        name = "small"
        load_stored = append_batch = commit_repair = list = None

    wrapped: Any = Small()
    assert [hook for hook in OPTIONAL if supports(FaultyBackend(wrapped), hook)] == []
    for hook in OPTIONAL:
        assert supports(FaultyBackend(MemoryBackend()), hook) == supports(MemoryBackend(), hook)


def test_the_wrapper_knows_every_hook() -> None:
    """A hook that the port gains is wrapped, too, or it would pass by unseen."""
    named = {name for name in vars(OptionalHooks) if not name.startswith("_")}
    assert set(OPTIONAL) == named
    assert [name for name in OPTIONAL if name not in vars(FaultyBackend)] == []


async def test_writes_without_a_claim_are_counted() -> None:
    """A write that carries no claim although the backend has claims is seen."""
    backend = FaultyBackend(MemoryBackend())
    await append(backend)
    assert backend.claims_missing == 1
