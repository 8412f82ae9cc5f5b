"""Live sessions: durability asked for and seen, hand-over from threads, closing, forked processes, exit."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.persistence.live_stores import KINDS, Place, ending, is_well_ordered, types
from turnlog.errors import (
    BackendError,
    BackendUnavailableError,
    BackpressureError,
    InvalidEventError,
    UndurableError,
    UsageError,
    WriterFencedError,
)
from turnlog.persistence.live_session import LiveSession

DISPOSED = {"kind": "aborted", "reason": {"kind": "disposed"}}


@pytest.fixture(params=KINDS)
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    """One medium of each kind."""
    found = Place(request.param, tmp_path)
    yield found
    await found.aclose()


def note(session: LiveSession, text: str = "x") -> None:
    """Append one small event."""
    session.append("feedback/record", {"text": text})


# -- durability -----------------------------------------------------------------------------------


async def test_flush_makes_everything_durable(place: Place) -> None:
    """D1, D2: `durable_seq` and `undurable` say what a crash would lose; a flush leaves nothing."""
    store, faults = place.open()
    session = await store.create()
    assert session.undurable is None
    note(session)
    note(session)
    assert session.durable_seq == 0
    pending = session.undurable
    assert pending is not None
    assert (pending.first_seq, pending.end_seq, len(pending), pending.error) == (0, 2, 2, None)
    assert pending.nbytes == sum(len(event.line) for event in session.events)
    await session.flush()
    assert session.durable_seq == 2
    assert session.undurable is None
    assert faults.batches() == ((0, 1),)


async def test_concurrent_flushes_share_one_barrier(place: Place) -> None:
    """D2: any number of callers cost one batch."""
    store, faults = place.open()
    session = await store.create()
    note(session)
    await asyncio.gather(*(session.flush() for _ in range(10)))
    assert faults.counts["append_batch"] == 1


async def test_background_failure_is_visible(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    """D1: a failed background write shows in `undurable` and is logged once; the next flush recovers."""
    store, faults = place.open(write_window=0.0)
    session = await store.create()
    faults.fail("append_batch", None)
    with caplog.at_level(logging.WARNING):
        note(session)
        while session.undurable is None or session.undurable.error is None:
            await asyncio.sleep(0.001)
    assert isinstance(session.undurable.error, BackendUnavailableError)
    assert sum("background write failed" in record.message for record in caplog.records) == 1
    faults.heal()
    await session.flush()
    assert session.undurable is None


async def test_drain_waits_for_room(place: Place) -> None:
    """D4: over the budget an append is refused; after a drain the same event fits."""
    store, _ = place.open(pending_budget=500, pending_reserve=500)
    session = await store.create()
    note(session, "a" * 400)
    with pytest.raises(BackpressureError):
        note(session, "b" * 400)
    await session.drain()
    note(session, "b" * 400)
    await session.flush()
    assert [event.data["text"][0] for event in session.events] == ["a", "b"]


async def test_cancelling_a_flush_ends_only_the_wait(place: Place) -> None:
    """The write belongs to the store: what a cancelled caller waited for becomes durable all the same."""
    store, faults = place.open()
    session = await store.create()
    note(session)
    gate = faults.hang("append_batch")
    waiting = asyncio.create_task(session.flush())
    await gate.entered.wait()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    gate.release()
    await session.flush()
    assert faults.batches() == ((0, 0),)


async def test_an_unpublished_session_is_nobodys(place: Place) -> None:
    """A prepared session has no store to flush to; every such call says how to get one."""
    store, _ = place.open()
    async with store.create() as made:
        note(made)
    async with await store.prepare(made.id) as preparation:
        session = preparation.session
        assert isinstance(session, LiveSession)
        for call in (session.flush, session.drain, session.aclose):
            with pytest.raises(UsageError, match="belongs to no store"):
                await call()
        for use in (
            session.turn,
            lambda: session.durable_seq,
            lambda: session.undurable,
            lambda: session.append_from_thread("feedback/record", {"text": "x"}),
        ):
            with pytest.raises(UsageError, match="belongs to no store"):
                use()


# -- threads --------------------------------------------------------------------------------------


async def test_append_from_another_thread_is_handed_over(place: Place) -> None:
    """A thread hands events over, in order, and gets what `append` returned or raised."""
    store, _ = place.open()
    session = await store.create()
    outcome: list[Any] = []

    def work() -> None:
        futures = [session.append_from_thread("feedback/record", {"text": str(n)}) for n in range(50)]
        outcome.extend(future.result(10).seq for future in futures)
        try:
            session.append("feedback/record", {"text": "no"})
        except UsageError as error:
            outcome.append(str(error))
        bad = session.append_from_thread("feedback/record", {"text": {1}})
        outcome.append(type(bad.exception(10)))

    await asyncio.to_thread(work)
    assert outcome[:50] == list(range(50))
    assert "append_from_thread" in outcome[50]
    assert outcome[51] is InvalidEventError
    assert [event.data["text"] for event in session.events] == [str(n) for n in range(50)]


async def test_hand_over_keeps_every_option(place: Place) -> None:
    """Surface marker, sources and the ignorable mark go along."""
    store, _ = place.open()
    session = await store.create()
    message = {"content": [], "source": {"kind": "user"}, "role": "user", "id": "m"}
    first = session.append_from_thread("user/message", message, surface_op="append")
    second = session.append_from_thread(
        "user/message", {**message, "id": "n"}, surface_op="append", source_event_seqs=[0]
    )
    third = session.append_from_thread("acme/thing", {"x": 1}, ignorable=True)
    await asyncio.sleep(0)
    assert [future.result(0).seq for future in (first, second, third)] == [0, 1, 2]
    assert session.events[1].source_event_seqs == (0,)
    assert session.events[2].ignorable


async def test_a_hand_over_can_be_cancelled(place: Place) -> None:
    """A future that is cancelled before its turn appends nothing."""
    store, _ = place.open()
    session = await store.create()
    future = session.append_from_thread("feedback/record", {"text": "x"})
    assert future.cancel()
    await asyncio.sleep(0)
    assert session.seq == 0


def test_hand_over_to_a_loop_that_has_ended(tmp_path: Path) -> None:
    """Once the owning loop is gone there is nobody to hand over to."""
    place = Place("memory", tmp_path)

    async def leave_open() -> LiveSession:
        store, _ = place.open()
        session = await store.create()
        note(session)
        await session.flush()
        return session

    session = asyncio.run(leave_open())
    with pytest.raises(UsageError, match=r"event loop .* has ended"):
        session.append_from_thread("feedback/record", {"text": "x"})
    place.forget()


# -- closing --------------------------------------------------------------------------------------


async def test_leaving_the_context_closes_the_session(place: Place) -> None:
    """Flushed, out of the store, claim released: another writer can have it at once (W1)."""
    store, faults = place.open()
    async with store.create() as session:
        note(session)
        assert not session.is_closed
    assert session.is_closed
    assert faults.counts["release"] == 1
    other, _ = place.open()
    async with other.resume(session.id) as again:
        note(again)
    assert [e.data["text"] for e in await place.stored(session.id) if e.type == "feedback/record"] == [
        "x",
        "x",
    ]


async def test_an_awaited_session_is_closed_by_hand(place: Place) -> None:
    """What was awaited stays open until it is closed; closing twice is one closing."""
    store, faults = place.open()
    session = await store.create()
    note(session)
    await asyncio.gather(session.aclose(), session.aclose())
    await session.aclose()
    assert faults.counts["append_batch"] == 1
    assert faults.counts["release"] == 1


async def test_an_awaited_session_is_a_context_manager(place: Place) -> None:
    """`async with session` closes what was awaited before."""
    store, _ = place.open()
    session = await store.create()
    async with session as same:
        assert same is session
        note(session)
    assert session.is_closed


async def test_an_unused_session_leaves_nothing(place: Place) -> None:
    """B1: created and closed without an event, nothing is stored and no claim was taken."""
    store, faults = place.open()
    async with store.create() as session:
        pass
    assert [info async for info in store.list()] == []
    assert faults.counts["append_batch"] == faults.counts["claim"] == 0
    assert session.seq == 0


async def test_a_closed_session_refuses_everything(place: Place) -> None:
    """After the close every call says that the session is closed and what to do; nothing is written."""
    store, _ = place.open()
    async with store.create() as session, session.turn() as turn:
        step = turn.step()
    with pytest.raises(UsageError, match=r"is closed; resume it"):
        note(session)
    with pytest.raises(UsageError, match=r"is closed; resume it"):
        session.append_chunk(1, 1, {"type": "text-delta", "index": 0, "text": "x"})
    for use in (
        session.turn,
        lambda: session.append_from_thread("feedback/record", {"text": "x"}),
    ):
        with pytest.raises(UsageError, match=r"is closed; resume it"):
            use()
    for call in (session.flush, session.drain):
        with pytest.raises(UsageError, match=r"is closed; resume it"):
            await call()
    with pytest.raises(UsageError, match="after it was left"):
        await step.__aenter__()
    assert session.seq == session.durable_seq == 2
    assert session.undurable is None
    assert session.derive_messages() == []


async def test_a_session_takes_nothing_while_it_closes(place: Place) -> None:
    """From the moment it begins to close nothing enters, streamed chunks included."""
    store, faults = place.open()
    session = await store.create()
    session.append("turn/start", {"turn": 1})
    session.append("step/start", {"turn": 1, "step": 1})
    session.append_chunk(1, 1, {"type": "text-delta", "index": 0, "text": "x"})
    gate = faults.hang("append_batch")
    closing = session.close()
    await gate.entered.wait()
    with pytest.raises(UsageError, match=r"is closed; resume it"):
        session.append_chunk(1, 1, {"type": "text-delta", "index": 0, "text": "y"})
    with pytest.raises(UsageError, match=r"is closed; resume it"):
        session.append("step/end", {"turn": 1, "step": 1})
    gate.release()
    await closing
    assert len(await place.stored(session.id)) == 3


async def test_closing_after_a_turn_adds_nothing(place: Place, caplog: pytest.LogCaptureFixture) -> None:
    """A turn that has been left is not closed again, and there is nothing to report."""
    store, _ = place.open()
    with caplog.at_level(logging.WARNING):
        async with store.create() as session:
            async with session.turn():
                pass
            with pytest.raises(ValueError, match="boom"):
                async with session.turn():
                    raise ValueError("boom")
    assert types(session) == ["turn/start", "turn/end"] * 2
    assert caplog.records == []


async def test_closing_with_an_open_turn_ends_it_as_disposed(place: Place) -> None:
    """The recorder's turn is closed inside out with reason disposed, and its own exit is silent then."""
    store, _ = place.open()
    session = await store.create()
    async with session.turn() as turn, turn.step() as step:
        step.assistant(
            [{"type": "tool-call", "id": "c", "name": "t", "arguments": "{}"}], provider="p", model="m"
        )
        async with step.tool("c", "t", "{}") as tool:
            await session.aclose()
            with pytest.raises(UsageError, match="step was left"):
                tool.result("x")
    assert ending(session) == DISPOSED
    assert is_well_ordered(session)
    stored = await place.stored(session.id)
    assert stored == list(session.events)
    assert types(stored)[-4:] == ["tool/call", "tool/result", "step/end", "turn/end"]
    assert stored[-3].data["error"]["code"] == "TOOL_OUTCOME_UNKNOWN"


async def test_closing_the_store_ends_turns_as_disposed(place: Place) -> None:
    """An agent that runs while its store is closed finds its turn ended and stops with a usage error."""
    store, _ = place.open()
    session = await store.create()
    inside, go_on = asyncio.Event(), asyncio.Event()

    async def agent() -> None:
        async with session.turn() as turn:
            inside.set()
            await go_on.wait()
            turn.user("too late")

    task = asyncio.create_task(agent())
    await inside.wait()
    await store.aclose()
    assert ending(session) == DISPOSED
    go_on.set()
    with pytest.raises(UsageError, match="after it was left"):
        await task
    assert await place.stored(session.id) == list(session.events)


async def test_a_turn_by_hand_is_left_to_repair(place: Place) -> None:
    """A turn opened by `append` is closed by whoever resumes: interrupted (R1)."""
    store, _ = place.open()
    async with store.create() as session:
        session.append("turn/start", {"turn": 1})
    async with store.resume(session.id) as again:
        assert types(again) == ["turn/start", "turn/end", "session/end-seed"]
        assert again.events[1].data["reason"] == {"kind": "interrupted"}


async def test_closing_goes_on_when_the_disposed_end_is_refused(place: Place) -> None:
    """If the end of the turn cannot be appended, the session still closes and resume repairs it."""
    store, _ = place.open()
    session = await store.create()

    def veto(event: Any) -> None:
        if event.type == "turn/end":
            raise RuntimeError("veto")

    async with session.turn():
        session.subscribe_candidates(veto)
        await session.aclose()
    async with store.resume(session.id) as again:
        assert again.events[1].data["reason"] == {"kind": "interrupted"}


async def test_closing_while_the_medium_fails(place: Place) -> None:
    """The failure is raised, the events are kept, and closing again writes them."""
    store, faults = place.open()
    session = await store.create()
    note(session)
    faults.fail("append_batch", None)
    with pytest.raises(UndurableError):
        await session.aclose()
    with pytest.raises(UndurableError):
        await session.aclose()
    faults.heal()
    await session.aclose()
    await session.aclose()
    assert types(await place.stored(session.id)) == ["feedback/record"]


async def test_closing_while_the_medium_fails_never_replaces_the_exception(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    """An exception that leaves the session's block goes on; the failed close is a note on it."""
    store, faults = place.open()

    async def agent() -> None:
        async with store.create() as session:
            note(session)
            faults.fail("append_batch", None)
            raise ValueError("boom")

    with caplog.at_level(logging.WARNING), pytest.raises(ValueError, match="boom") as caught:
        await agent()
    assert any("could not be closed" in text for text in caught.value.__notes__)
    faults.heal()


async def test_failed_close_at_a_normal_end_is_raised(place: Place) -> None:
    """Without another exception on its way the failure of the close is the caller's to hear."""
    store, faults = place.open()

    async def agent() -> None:
        async with store.create() as session:
            note(session)
            faults.fail("append_batch", None)

    with pytest.raises(UndurableError):
        await agent()
    faults.heal()


@pytest.mark.parametrize("by_context", [True, False])
async def test_cancelling_a_close_ends_only_the_wait(place: Place, by_context: bool) -> None:
    """The session closes all the same, by the one closing that was begun."""
    store, faults = place.open()
    session = await store.create()
    note(session)
    gate = faults.hang("append_batch")
    closing = session.close()
    leave = session.__aexit__(None, None, None) if by_context else session.aclose()
    waiting = asyncio.create_task(leave)
    await gate.entered.wait()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    gate.release()
    await closing
    assert session.close() is closing
    await store.aclose()
    assert types(await place.stored(session.id)) == ["feedback/record"]


async def test_closing_a_suspended_owner(place: Place) -> None:
    """GeneratorExit must not wait: the session closes in the background, and the store waits for it."""
    store, _ = place.open()
    session = await store.create()

    async def agent() -> None:
        async with session, session.turn():
            await asyncio.sleep(0)

    body = agent()
    body.send(None)
    body.close()
    assert session.is_closed
    await store.aclose()
    assert types(await place.stored(session.id)) == ["turn/start", "turn/end"]


async def test_a_fenced_session_hands_its_events_back(place: Place) -> None:
    """W1: after a takeover the old writer's flush and close raise, with the unwritten events."""
    store, _ = place.open()
    session = await store.create()
    note(session, "mine")
    await session.flush()
    other, _ = place.open()
    async with other.resume(session.id, takeover=True) as taken:
        note(taken, "theirs")
    note(session, "late")
    with pytest.raises(WriterFencedError) as caught:
        await session.flush()
    assert [event.data["text"] for event in caught.value.pending] == ["late"]
    with pytest.raises(WriterFencedError):
        await session.aclose()
    await session.aclose()  # it was told; there is nothing left to close
    texts = [e.data["text"] for e in await place.stored(session.id) if e.type == "feedback/record"]
    assert texts == ["mine", "theirs"]


# -- processes ------------------------------------------------------------------------------------


async def test_a_forked_child_cannot_write(tmp_path: Path) -> None:
    """After `os.fork` the child's session refuses appends and flushes; the parent goes on."""
    place = Place("jsonl", tmp_path)
    store, _ = place.open()
    session = await store.create()
    note(session)
    await session.flush()
    note(session, "parent")
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        told = []
        for use in (lambda: note(session, "child"), lambda: session.flush().send(None)):
            try:
                use()
                told.append("admitted")
            except UsageError:
                told.append("refused")
        os.write(writing, " ".join(told).encode())
        os._exit(0)
    await asyncio.to_thread(os.waitpid, child, 0)
    assert os.read(reading, 99) == b"refused refused"
    os.close(reading)
    os.close(writing)
    await session.aclose()
    texts = [event.data["text"] for event in await place.stored(session.id)]
    assert texts == ["x", "parent"]
    await place.aclose()


def test_an_interrupt_from_the_keyboard_closes_everything(tmp_path: Path) -> None:
    """SIGINT in the middle of a tool body: call answered, turn aborted, all of it durable before the exit."""
    script = f"""
import asyncio, signal, turnlog
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell may have started us with it ignored
async def main():
    async with turnlog.open("jsonl:{tmp_path}/root", write_window=60.0) as store:
        async with store.create(id="s") as session, session.turn() as turn, turn.step() as step:
            block = {{"type": "tool-call", "id": "c", "name": "t", "arguments": "{{}}"}}
            step.assistant([block], provider="p", model="m")
            async with step.tool("c", "t", "{{}}"):
                print("inside", flush=True)
                await asyncio.Event().wait()
asyncio.run(main())
"""
    with subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == "inside\n"
            child.send_signal(signal.SIGINT)
            _, errors = child.communicate(timeout=30)
        finally:
            child.kill()
    assert "KeyboardInterrupt" in errors
    assert "left open" not in errors
    events = asyncio.run(Place("jsonl", tmp_path).stored("s"))
    assert types(events)[-4:] == ["tool/call", "tool/result", "step/end", "turn/end"]
    assert events[-3].data["error"]["code"] == "TOOL_OUTCOME_UNKNOWN"
    assert events[-1].data["reason"] == {"kind": "aborted", "reason": {"kind": "parent"}}


def test_a_store_left_open_at_exit_is_reported(tmp_path: Path) -> None:
    """The process says which store was left open and how many events a crash would have lost."""
    script = f"""
import asyncio, turnlog
async def main():
    store = await turnlog.open("jsonl:{tmp_path}/root", write_window=60.0)
    session = await store.create()
    session.append("feedback/record", {{"text": "x"}})
    session.append("feedback/record", {{"text": "y"}})
    return store
keep = asyncio.run(main())
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "left open at exit with 2 events" in done.stderr


async def test_closed_sessions_are_forgotten(place: Place) -> None:
    """A store that opens and closes many sessions keeps none of them alive."""
    store, _ = place.open()
    for _ in range(20):
        async with store.create() as session:
            note(session)
    del session
    await asyncio.sleep(0)
    gc.collect()
    assert sum(isinstance(thing, LiveSession) for thing in gc.get_objects()) == 0


async def test_the_thread_that_resumes_owns_the_session(place: Place) -> None:
    """Ownership moves with the loop that resumes a session, whoever prepared it before."""
    store, _ = place.open()
    async with store.create() as session:
        note(session)

    def elsewhere() -> list[str]:
        async def main() -> list[str]:
            other, _ = place.open()
            async with other, other.resume(session.id) as again:
                assert threading.current_thread() is not threading.main_thread()
                note(again)
                return types(again)

        return asyncio.run(main())

    if place.kind == "memory":
        assert await asyncio.to_thread(elsewhere) == [
            "feedback/record",
            "session/end-seed",
            "feedback/record",
        ]


async def test_a_failed_flush_says_where(tmp_path: Path) -> None:
    """D2: the path that the medium failed at is in the error that the caller gets."""
    from tests.unit.persistence.damaged import shelf_of

    async with shelf_of("memory", tmp_path) as shelf:
        session = await shelf.store.create(id="s")
        session.append("feedback/record", {})
        shelf.faults.fail("append_batch", error=BackendError(backend="test", reason="no", path="/r/x"))
        with pytest.raises(UndurableError) as found:
            await session.flush()
        assert found.value.path == "/r/x"
        await session.flush()
