"""Operations by id: order, independence, cancellation of those who wait, and what is left behind."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

import pytest

from turnlog.persistence.id_chains import IdChains
from turnlog.testing.manual_time import settle


def noting(notes: list[str], name: str, held: asyncio.Event | None = None) -> Callable[[], Awaitable[str]]:
    """Make an operation that notes its begin and end and may wait in between."""

    async def operation() -> str:
        notes.append(f"{name} begins")
        if held is not None:
            await held.wait()
        notes.append(f"{name} ends")
        return name

    return operation


async def test_one_id_one_at_a_time_in_order() -> None:
    """Operations on one id never overlap and keep the order of the calls (W1)."""
    chains, held = IdChains(), asyncio.Event()
    notes: list[str] = []
    first = asyncio.ensure_future(chains.run("a", noting(notes, "one", held)))
    second = asyncio.ensure_future(chains.run("a", noting(notes, "two")))
    await settle()
    assert notes == ["one begins"]
    held.set()
    assert list(await asyncio.gather(first, second)) == ["one", "two"]
    assert notes == ["one begins", "one ends", "two begins", "two ends"]
    await settle()
    assert len(chains) == 0


async def test_ids_run_in_parallel() -> None:
    """A waiting operation on one id holds up no other id (W1)."""
    chains, held = IdChains(), asyncio.Event()
    notes: list[str] = []
    waiting = asyncio.ensure_future(chains.run("a", noting(notes, "one", held)))
    await settle()
    assert await chains.run("b", noting(notes, "two")) == "two"
    held.set()
    assert await waiting == "one"


async def test_a_failure_goes_to_its_own_caller() -> None:
    """An operation that fails leaves the chain healthy for the next (W1)."""
    chains = IdChains()
    notes: list[str] = []

    async def fails() -> None:
        raise ValueError("mine")

    failing = asyncio.ensure_future(chains.run("a", fails))
    following = asyncio.ensure_future(chains.run("a", noting(notes, "next")))
    with pytest.raises(ValueError, match="mine"):
        await failing
    assert await following == "next"


async def test_a_queued_operation_of_a_cancelled_caller_is_skipped() -> None:
    """Who leaves before the turn comes is gone at once and never runs (R3, PE30, PP17, PP18)."""
    chains, held = IdChains(), asyncio.Event()
    notes: list[str] = []
    first = asyncio.ensure_future(chains.run("a", noting(notes, "one", held)))
    queued = asyncio.ensure_future(chains.run("a", noting(notes, "two")))
    third = asyncio.ensure_future(chains.run("a", noting(notes, "three")))
    await settle()
    queued.cancel("reason")
    with pytest.raises(asyncio.CancelledError, match="reason"):
        await queued
    assert notes == ["one begins"]
    held.set()
    assert list(await asyncio.gather(first, third)) == ["one", "three"]
    assert "two begins" not in notes


async def test_a_caller_that_is_cancelled_at_once_never_begins() -> None:
    """A call cancelled before its first turn of the loop does nothing (R3, PP19)."""
    chains = IdChains()
    notes: list[str] = []
    queued = asyncio.ensure_future(chains.run("a", noting(notes, "one")))
    queued.cancel()
    with pytest.raises(asyncio.CancelledError):
        await queued
    await settle()
    assert notes == []
    assert len(chains) == 0


async def test_a_started_operation_ends_without_its_caller() -> None:
    """An operation that has begun is never cancelled half-way; its result finds its way (B2, PP20)."""
    chains, held = IdChains(), asyncio.Event()
    notes: list[str] = []
    orphans: list[str] = []
    caller = asyncio.ensure_future(chains.run("a", noting(notes, "one", held), orphaned=orphans.append))
    await settle()
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    held.set()
    await chains.quiesce()
    await settle()
    assert notes == ["one begins", "one ends"]
    assert orphans == ["one"]


async def test_a_caller_cancelled_after_the_end_still_hands_the_result_on() -> None:
    """A result that its caller was about to receive when it was cancelled is not lost (B2)."""
    chains, held = IdChains(), asyncio.Event()
    orphans: list[str] = []
    caller = asyncio.ensure_future(chains.run("a", noting([], "one", held), orphaned=orphans.append))
    await settle()
    held.set()
    while len(chains):
        await asyncio.sleep(0)
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    await settle()
    assert orphans == ["one"]


async def test_a_failure_nobody_waits_for_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """The failure of an operation whose caller has left is a warning, not a lost exception (B2)."""
    chains, held = IdChains(), asyncio.Event()

    async def fails() -> None:
        await held.wait()
        raise ValueError("unheard")

    caller = asyncio.ensure_future(chains.run("a", fails))
    await settle()
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    with caplog.at_level(logging.WARNING):
        held.set()
        await settle()
    assert "unheard" in caplog.text


async def test_an_orphan_without_a_heir_is_dropped() -> None:
    """A result that nobody asked to inherit is simply gone, also when the loop tears the task down (B2)."""
    chains, held = IdChains(), asyncio.Event()
    notes: list[str] = []
    first = asyncio.ensure_future(chains.run("a", noting(notes, "one", held)))
    await settle()
    first.cancel()
    held.set()
    await settle()
    assert notes == ["one begins", "one ends"]
    held.clear()
    torn = chains.submit("a", noting(notes, "two", held))
    second = asyncio.ensure_future(chains.run("b", noting(notes, "three", held)))
    await settle()
    inner = chains._tails["b"]
    second.cancel()
    await asyncio.sleep(0)
    inner.cancel()
    torn.cancel()
    await settle()
    assert torn.cancelled()
    assert inner.cancelled()
    assert len(chains) == 0


async def test_a_settled_tail_cannot_remove_a_newer_one() -> None:
    """The end of an operation leaves an operation that was added behind it alone (PE39)."""
    chains, held = IdChains(), asyncio.Event()
    notes: list[str] = []
    first = chains.submit("a", noting(notes, "one"))
    second = chains.submit("a", noting(notes, "two", held))
    await first
    await settle()
    assert len(chains) == 1
    third = chains.submit("a", noting(notes, "three"))
    held.set()
    await asyncio.gather(second, third)
    assert notes[-2:] == ["three begins", "three ends"]


async def test_quiesce_waits_for_what_is_added_meanwhile() -> None:
    """The end of all chains includes operations that were added while waiting for it (D2)."""
    chains = IdChains()
    notes: list[str] = []

    async def adds() -> None:
        chains.submit("b", noting(notes, "added"))

    chains.submit("a", adds)
    await chains.quiesce()
    assert notes == ["added begins", "added ends"]
    await chains.quiesce()


async def test_a_skip_decides_when_its_turn_comes() -> None:
    """A submitted operation may still be called off at the moment it would begin (PP3)."""
    chains, held = IdChains(), asyncio.Event()
    notes: list[str] = []
    chains.submit("a", noting(notes, "one", held))
    unwanted = False
    skipped = chains.submit("a", noting(notes, "two"), skip=lambda: unwanted)
    wanted = chains.submit("a", noting(notes, "three"), skip=lambda: not unwanted)
    await settle()
    unwanted = True
    held.set()
    await chains.quiesce()
    assert skipped.cancelled()
    assert await wanted == "three"
    assert "two begins" not in notes
