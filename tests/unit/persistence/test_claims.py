"""Who holds a claim: facts about processes, and the claims that one store holds."""

from __future__ import annotations

import asyncio
import dataclasses
import os
import subprocess
import sys
from pathlib import Path

import pytest

from turnlog.backends.memory import MemoryBackend
from turnlog.errors import BackendError, BackendUnavailableError, ClaimOwner, SessionBusyError
from turnlog.persistence import claims
from turnlog.persistence.claim_keeper import ClaimKeeper
from turnlog.persistence.claims import is_alive, process_start, this_process
from turnlog.persistence.hooks import Hooks
from turnlog.testing.faulty_backend import FaultyBackend
from turnlog.testing.manual_time import settle
from turnlog.testing.scripts import header


def test_this_process_is_described_and_alive() -> None:
    """The facts of this process name it and prove that it lives (W1)."""
    owner = this_process(since=5)
    assert (owner.pid, owner.since) == (os.getpid(), 5)
    assert this_process().since > 1_600_000_000_000
    assert is_alive(owner) is True


def test_a_dead_process_is_known_to_be_dead() -> None:
    """A process that has ended holds nothing (W1)."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    assert is_alive(dataclasses.replace(this_process(), pid=ended.pid)) is False


def test_a_process_that_only_waits_to_be_reaped_is_dead() -> None:
    """An ended process that its parent has not collected holds nothing any more (W1)."""
    ended = subprocess.Popen([sys.executable, "-c", ""], stdout=subprocess.PIPE)
    assert ended.stdout is not None
    ended.stdout.read()
    os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
    assert is_alive(dataclasses.replace(this_process(), pid=ended.pid)) is False
    ended.wait()
    ended.stdout.close()


def test_a_reused_pid_is_another_process() -> None:
    """The start time tells a process from a later one with its pid; the boot from an earlier one (W1)."""
    owner = this_process()
    assert owner.start_time is not None
    assert is_alive(dataclasses.replace(owner, start_time=owner.start_time + 1)) is False
    assert is_alive(dataclasses.replace(owner, start_time=None)) is True
    assert is_alive(dataclasses.replace(owner, boot_id="another")) is False
    assert is_alive(dataclasses.replace(owner, boot_id=None)) is True


def test_facts_survive_their_storage_and_are_completed() -> None:
    """Facts go through JSON unchanged, and a process knows more of itself than it was told (W1)."""
    owner = this_process(since=5)
    assert claims.owner_of(claims.facts_of(owner)) == owner
    short = ClaimOwner(pid=owner.pid, host="here", since=7)
    assert claims.facts_of(short) == {"pid": owner.pid, "host": "here", "since": 7}
    assert claims.owner_of(claims.facts_of(short)) == short
    assert claims.completed(owner) is owner
    assert claims.completed(short) == dataclasses.replace(owner, host="here", since=7)
    stranger = dataclasses.replace(short, pid=owner.pid + 1)
    assert claims.completed(stranger) is stranger
    with pytest.raises(KeyError):
        claims.owner_of({"pid": 1})


def test_another_host_or_namespace_cannot_be_judged() -> None:
    """A pid means nothing elsewhere (W1)."""
    owner = this_process()
    assert is_alive(dataclasses.replace(owner, host="elsewhere")) is None
    assert is_alive(dataclasses.replace(owner, pid_namespace="pid:[1]")) is None
    assert is_alive(dataclasses.replace(owner, pid_namespace=None)) is True


def test_without_a_process_table_the_kernel_is_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Where processes cannot be read a signal of 0 tells whether one is there (W1)."""
    owner = this_process()
    monkeypatch.setattr(claims, "_PROC", tmp_path)
    assert process_start(owner.pid) is None
    assert is_alive(owner) is None
    old = dataclasses.replace(owner, start_time=None)
    assert is_alive(old) is True
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    assert is_alive(dataclasses.replace(old, pid=ended.pid)) is False

    def refuse(pid: int, signal: int) -> None:
        raise PermissionError

    monkeypatch.setattr(os, "kill", refuse)
    assert is_alive(old) is True
    (tmp_path / str(owner.pid)).mkdir()
    (tmp_path / str(owner.pid) / "stat").write_text("1 (odd) S")
    assert process_start(owner.pid) is None
    monkeypatch.setattr(os, "readlink", lambda path: (_ for _ in ()).throw(OSError))
    assert claims.pid_namespace() is None
    claims.boot_id.cache_clear()
    try:
        assert claims.boot_id() is None
    finally:
        claims.boot_id.cache_clear()


class Beat:
    """A sleep that ends when the test says so."""

    def __init__(self) -> None:
        self.asked: list[float] = []
        self._next = asyncio.Event()

    async def sleep(self, seconds: float) -> None:
        self.asked.append(seconds)
        await self._next.wait()
        self._next.clear()

    async def tick(self) -> None:
        """Let one sleep end and what follows happen."""
        self._next.set()
        await settle()


def keeper(faults: FaultyBackend, beat: Beat) -> ClaimKeeper:
    """Make the books of one process on a backend."""
    return ClaimKeeper(Hooks(faults), this_process(), period=10.0, sleep=beat.sleep)


async def test_a_claim_is_taken_once_and_given_back_once() -> None:
    """One id has one claim in a process, however often it is asked for (W1)."""
    faults = FaultyBackend(MemoryBackend())
    books = keeper(faults, Beat())
    assert not books.holds("s")
    claim = await books.take("s", meta=header("s"))
    assert await books.take("s") is claim
    assert books.get("s") is claim
    assert books.holds("s")
    assert len(books) == 1
    await books.release("s")
    await books.release("s")
    assert (faults.counts["claim"], faults.counts["release"]) == (1, 1)
    assert await books.aclose() == []


async def test_a_failed_release_is_out_of_the_books() -> None:
    """A claim that could not be given back is not used again (W1)."""
    faults = FaultyBackend(MemoryBackend())
    books = keeper(faults, Beat())
    await books.take("s")
    faults.fail("release")
    with pytest.raises(BackendUnavailableError):
        await books.release("s")
    assert len(books) == 0
    with pytest.raises(SessionBusyError):
        await books.take("s")
    await books.take("s", takeover=True)
    await books.take("t")
    faults.fail("release")
    failures = await books.aclose()
    assert [type(failure) for failure in failures] == [BackendUnavailableError]
    assert faults.counts["release"] == 3


async def test_a_backend_without_claims_needs_none() -> None:
    """Without the hook everything counts as held and nothing is called (W1)."""
    faults = FaultyBackend(MemoryBackend())
    faults.claim = None  # type: ignore[assignment,method-assign]  # how a wrapper leaves a hook out
    books = keeper(faults, Beat())
    assert books.holds("s")
    assert await books.take("s") is None
    await books.release("s")
    assert await books.aclose() == []
    assert not faults.calls


async def test_claims_are_renewed_together() -> None:
    """Every period all claims that are held are renewed in one call; none when none is held (W1)."""
    faults = FaultyBackend(MemoryBackend())
    beat = Beat()
    books = keeper(faults, beat)
    await books.take("a")
    await books.take("b")
    await settle()
    assert beat.asked == [10.0]
    await beat.tick()
    assert faults.counts["renew"] == 1
    await books.release("a")
    await books.release("b")
    await beat.tick()
    assert faults.counts["renew"] == 1
    await books.take("c")
    await beat.tick()
    assert faults.counts["renew"] == 2
    assert await books.aclose() == []
    await beat.tick()
    assert faults.counts["renew"] == 2


async def test_a_failing_renewal_is_told_once_and_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    """A renewal that fails is one warning per run of failures; the next write decides (W1)."""
    faults = FaultyBackend(MemoryBackend())
    beat = Beat()
    books = keeper(faults, beat)
    await books.take("s")
    await settle()
    faults.fail("renew", None)
    await beat.tick()
    await beat.tick()
    assert len(caplog.records) == 1
    faults.heal()
    await beat.tick()
    faults.fail("renew")
    await beat.tick()
    assert len(caplog.records) == 2
    await books.aclose()


@pytest.mark.parametrize("error", [None, BackendError(backend="test", reason="late")])
async def test_closing_waits_for_a_running_renewal(error: Exception | None) -> None:
    """Stopping the renewal never cuts a hook in half (B2)."""
    faults = FaultyBackend(MemoryBackend())
    beat = Beat()
    books = keeper(faults, beat)
    await books.take("s")
    await settle()
    gate = faults.hang("renew")
    await beat.tick()
    closing = asyncio.ensure_future(books.aclose())
    await settle()
    assert not closing.done()
    if error is None:
        gate.release()
    else:
        gate.fail(error)
    assert await closing == []
    assert faults.counts["release"] == 1


async def test_a_forked_child_forgets_its_claims() -> None:
    """The books of a child are empty, and nothing is given back (W1)."""
    faults = FaultyBackend(MemoryBackend())
    books = keeper(faults, Beat())
    await books.take("s")
    renewer = books._renewer
    books.forget()
    assert len(books) == 0
    assert await books.aclose() == []
    assert faults.counts["release"] == 0
    assert renewer is not None
    renewer.cancel()
