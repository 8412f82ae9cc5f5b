"""Recorders of turns, steps and tool calls: what each way of leaving them writes, and what is refused."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any

import pytest

from tests.unit.persistence.live_stores import (
    CONFIG,
    KINDS,
    Place,
    call_block,
    code,
    ending,
    is_well_ordered,
    results,
    text,
    types,
)
from turnlog.errors import (
    BackendError,
    BackpressureError,
    InvalidEventError,
    ToolError,
    UndurableError,
    UsageError,
)
from turnlog.persistence.live_session import LiveSession
from turnlog.persistence.recorder import error_text, result_blocks, turn_ending
from turnlog.persistence.step_recorder import StepRecorder
from turnlog.persistence.store import SessionStore
from turnlog.persistence.tool_recorder import ToolRecorder
from turnlog.session.repair import TEXT_NOT_STARTED, TEXT_OUTCOME_UNKNOWN
from turnlog.testing.faulty_backend import FaultyBackend

STEP = ["turn/start", "step/start", "assistant/message"]
PARENT = {"kind": "aborted", "reason": {"kind": "parent"}}
OUTSIDE = [asyncio.CancelledError, KeyboardInterrupt, SystemExit, GeneratorExit]


@pytest.fixture(params=KINDS)
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    """One medium of each kind."""
    found = Place(request.param, tmp_path)
    yield found
    await found.aclose()


@pytest.fixture
def opened(place: Place) -> tuple[SessionStore, FaultyBackend]:
    """One store on that medium, and its faults."""
    return place.open()


@pytest.fixture
def store(opened: tuple[SessionStore, FaultyBackend]) -> SessionStore:
    """The store."""
    return opened[0]


@pytest.fixture
def faults(opened: tuple[SessionStore, FaultyBackend]) -> FaultyBackend:
    """The faults of the store's backend."""
    return opened[1]


@pytest.fixture
async def session(store: SessionStore) -> LiveSession:
    """A fresh live session."""
    return await store.create()


def answer(step: StepRecorder, *call_ids: str) -> None:
    """Record an answer that requests some calls."""
    step.assistant([call_block(id_) for id_ in call_ids], provider="acme", model="a1")


# -- the ordinary way -----------------------------------------------------------------------------


async def test_a_whole_turn_has_the_shapes_of_the_log_format(session: LiveSession, place: Place) -> None:
    """Every payload has the keys of the format in its order, and the stored log is the live one."""
    async with session.turn() as turn:
        turn.user("Which tests fail?")
        async with turn.step() as step:
            await step.request(config=CONFIG, system="Be brief.", tools=[], context={"contextWindow": 9})
            step.chunk({"type": "text-delta", "index": 0, "text": "Let "})
            step.chunk({"type": "text-delta", "index": 0, "text": "me"})
            blocks = [{"type": "text", "text": "Let me"}, call_block("c-1")]
            step.assistant(blocks, usage={"inputTokens": 1, "outputTokens": 2}, replay_state={"response": 1})
            async with step.tool("c-1", "shell", "{}") as tool:
                assert tool.idempotency_key == f"{session.id}:8"
                tool.result("ok", meta={"lines": 1})
    assert session.durable_seq == session.seq
    data = [event.data for event in session.events]
    assert types(session) == [
        "turn/start",
        "user/message",
        "step/start",
        "request/header",
        "request/context",
        "assistant/chunk",
        "assistant/chunk",
        "assistant/message",
        "tool/call",
        "tool/result",
        "step/end",
        "turn/end",
    ]
    assert data[0] == {"turn": 1}
    assert list(data[1]) == ["content", "source", "role", "id"]
    assert data[1]["content"] == [{"type": "text", "text": "Which tests fail?"}]
    assert data[1]["source"] == {"kind": "user"}
    assert data[3] == {"header": {"config": CONFIG, "system": "Be brief."}, "reason": "initial"}
    assert list(data[3]["header"]) == ["config", "system"]
    assert data[4] == {"provider": "acme", "model": "a1", "contextWindow": 9}
    assert list(data[7]) == ["turn", "step", "message", "usage"]
    assert list(data[7]["message"]) == ["role", "content", "source", "id"]
    assert data[7]["message"]["source"] == {
        "kind": "model",
        "provider": "acme",
        "model": "a1",
        "replayState": {"response": 1},
    }
    assert session.events[7].source_event_seqs == (5, 6)
    assert data[8] == {"turn": 1, "step": 1, "callId": "c-1", "name": "shell", "arguments": "{}"}
    assert list(data[9]) == ["turn", "step", "message", "meta"]
    assert list(data[9]["message"]) == ["source", "content", "role", "id"]
    assert data[9]["message"]["content"] == [
        {
            "type": "tool-result",
            "toolCallId": "c-1",
            "content": [{"type": "text", "text": "ok"}],
            "isError": False,
        }
    ]
    assert session.events[9].source_event_seqs == (8,)
    assert data[11] == {"turn": 1, "reason": {"kind": "completed"}}
    assert is_well_ordered(session)
    assert await place.stored(session.id) == list(session.events)


async def test_turns_and_steps_are_numbered(session: LiveSession) -> None:
    """Turns count per session, steps per turn."""
    for turn_number in (1, 2):
        async with session.turn() as turn:
            assert turn.number == turn_number
            for step_number in (1, 2, 3):
                async with turn.step() as step:
                    assert (step.turn_number, step.number) == (turn_number, step_number)
    assert is_well_ordered(session)


async def test_leaving_a_turn_flushes_and_a_step_does_not(session: LiveSession) -> None:
    """The end of a turn is durable when its block has been left; a step alone waits for that."""
    async with session.turn() as turn:
        async with turn.step():
            pass
        assert session.durable_seq == 0
    assert session.durable_seq == session.seq == 4
    assert session.undurable is None


@pytest.mark.parametrize(
    ("reason", "stored"),
    [
        ("max-tokens", {"kind": "max-tokens"}),
        ("blocked", {"kind": "blocked"}),
        ("completed", {"kind": "completed"}),
        (
            {"kind": "aborted", "reason": {"kind": "user"}},
            {"kind": "aborted", "reason": {"kind": "user"}},
        ),
        ({"kind": "handed-over", "to": "bob"}, {"kind": "handed-over", "to": "bob"}),
    ],
)
async def test_turn_end_says_what_was_set(session: LiveSession, reason: Any, stored: Any) -> None:
    """`turn.end` sets the reason; it is written when the turn is left, and the last one counts."""
    async with session.turn() as turn:
        turn.end("blocked")
        turn.end(reason)
        assert types(session) == ["turn/start"]
    assert ending(session) == stored


@pytest.mark.parametrize("reason", ["", "done", {}, {"kind": ""}, {"kind": 1}, 7, None])
def test_reasons_that_are_none(reason: Any) -> None:
    """Only known words and objects with a kind are reasons."""
    with pytest.raises(UsageError, match=r"turn\.end"):
        turn_ending(reason)


async def test_user_messages_take_blocks_and_sources(session: LiveSession) -> None:
    """Blocks, also of unknown types, and the source pass through; other content is refused."""
    async with session.turn() as turn:
        block = {"type": "hologram", "x": [1]}
        event = turn.user([block], source={"kind": "plugin", "plugin": "p"})
        assert event.data["content"] == [block]
        assert event.data["source"] == {"kind": "plugin", "plugin": "p"}
        for bad in (7, None, [1], [{"text": "no type"}], {"type": "text", "text": "not in a list"}):
            with pytest.raises(UsageError, match=r"turn\.user"):
                turn.user(bad)  # type: ignore[arg-type]  # wrong on purpose
    assert types(session) == ["turn/start", "user/message", "turn/end"]


# -- requests -------------------------------------------------------------------------------------


async def test_request_is_durable_before_it_returns(session: LiveSession, place: Place) -> None:
    """CP1, CP9, CP12: everything up to the request survives a kill before the request is sent."""
    async with session.turn() as turn:
        turn.user("hi")
        async with turn.step() as step:
            await step.request(config=CONFIG)
            assert session.durable_seq == session.seq
            assert await place.stored(session.id) == list(session.events)


async def test_header_is_logged_when_it_changes(session: LiveSession) -> None:
    """The first request logs it as initial, an equal one nothing, another one a change."""
    tools = [{"name": "t", "description": "d", "parameters": {"type": "object"}}]
    async with session.turn() as turn:
        for system, given in (("a", None), ("a", []), ("b", None), ("b", tools), ("b", tools)):
            async with turn.step() as step:
                await step.request(config=CONFIG, system=system, tools=given)
    logged = [e.data for e in session.events if e.type == "request/header"]
    assert [(d["reason"], d["header"].get("system"), "tools" in d["header"]) for d in logged] == [
        ("initial", "a", False),
        ("change", "b", False),
        ("change", "b", True),
    ]


async def test_adapter_defaults_belong_to_the_header(session: LiveSession) -> None:
    """What the adapter filled in is marked, and a different mark is a change."""
    async with session.turn() as turn:
        for marks in ({"maxTokens": True}, {"maxTokens": True}, None):
            async with turn.step() as step:
                await step.request(config={**CONFIG, "maxTokens": 5}, adapter_defaults=marks)
    headers = [e.data["header"] for e in session.events if e.type == "request/header"]
    assert [h.get("adapterDefaults") for h in headers] == [{"maxTokens": True}, None]


async def test_context_is_logged_when_it_changes(session: LiveSession) -> None:
    """Provider, model and window are logged when one differs; saying nothing changes nothing."""
    other = {"provider": "acme", "model": "a2"}
    async with session.turn() as turn:
        for config, context in (
            (CONFIG, None),
            (CONFIG, None),
            (CONFIG, {"contextWindow": 8}),
            (CONFIG, None),
            (CONFIG, {"contextWindow": 8}),
            (CONFIG, {"contextWindow": 9}),
            (other, None),
        ):
            async with turn.step() as step:
                await step.request(config=config, context=context)
    assert [e.data for e in session.events if e.type == "request/context"] == [
        CONFIG,
        {**CONFIG, "contextWindow": 8},
        {**CONFIG, "contextWindow": 9},
        other,
    ]


async def test_refused_flush_means_no_request(session: LiveSession, faults: FaultyBackend) -> None:
    """CP4: the failure comes out of `request`, the turn ends in error, and nothing recorded is lost."""
    faults.fail("append_batch", None)

    async def agent() -> None:
        async with session.turn() as turn:
            turn.user("hi")
            async with turn.step() as step:
                await step.request(config=CONFIG)
                pytest.fail("the request would have been sent")

    with pytest.raises(UndurableError) as caught:
        await agent()
    assert "could not be made durable" in "".join(caught.value.__notes__)
    assert ending(session)["kind"] == "error"
    assert is_well_ordered(session)
    assert session.durable_seq == 0
    faults.heal()
    await session.flush()
    assert session.durable_seq == session.seq


async def test_no_request_when_the_session_closes_meanwhile(
    session: LiveSession, faults: FaultyBackend
) -> None:
    """A request whose log was closed while it was made durable must not be sent: its answer has no place."""
    gate = faults.hang("append_batch")

    async def agent() -> None:
        async with session.turn() as turn, turn.step() as step:
            await step.request(config=CONFIG)
            pytest.fail("the request would have been sent")

    task = asyncio.create_task(agent())
    await gate.entered.wait()
    closing = session.close()
    gate.release()
    with pytest.raises(UsageError, match="after it was left"):
        await task
    await closing
    assert ending(session) == {"kind": "aborted", "reason": {"kind": "disposed"}}


async def test_a_config_without_a_route_is_refused(session: LiveSession) -> None:
    """A header that could not be loaded again is refused before anything is logged."""
    async with session.turn() as turn, turn.step() as step:
        for config in ({"provider": "acme"}, {"model": "m"}, {"provider": "", "model": "m"}):
            with pytest.raises(InvalidEventError):
                await step.request(config=config)
    assert "request/header" not in types(session)


async def test_another_attempt_cites_its_own_chunks(session: LiveSession) -> None:
    """Chunks of an attempt that was given up stay in the log and no answer cites them."""
    async with session.turn() as turn, turn.step() as step:
        await step.request(config=CONFIG)
        step.chunk({"type": "text-delta", "index": 0, "text": "lost"})
        await step.request(config=CONFIG)
        step.chunk({"type": "text-delta", "index": 0, "text": "kept"})
        event = step.assistant("kept")
        assert event.source_event_seqs == (5,)
        assert step.assistant("again").source_event_seqs == ()


async def test_chunks_between_other_events_are_all_cited(session: LiveSession) -> None:
    """A stream that other events interrupt is cited exactly, chunk by chunk."""
    async with session.turn() as turn, turn.step() as step:
        step.chunk({"type": "text-delta", "index": 0, "text": "a"})
        session.append("todo/write", {"todos": []})
        step.chunk({"type": "text-delta", "index": 0, "text": "b"})
        step.chunk({"type": "finish", "reason": {"kind": "stop"}})
        session.append("todo/write", {"todos": []})
        session.append("todo/write", {"todos": []})
        step.chunk({"type": "usage", "usage": {"inputTokens": 1, "outputTokens": 1}})
        event = step.assistant("ab", provider="p", model="m")
    assert event.source_event_seqs == (2, 4, 5, 8)
    assert all(session.events[seq].type == "assistant/chunk" for seq in event.source_event_seqs)


async def test_chunks_and_events_queued_by_observers(session: LiveSession) -> None:
    """An observer that queues an event after a chunk does not shift what the answer cites."""

    def note(event: Any) -> None:
        if event.type == "assistant/chunk":
            session.append_after("todo/write", {"todos": []})

    session.observe(note, chunks=True)
    async with session.turn() as turn, turn.step() as step:
        step.chunk({"type": "text-delta", "index": 0, "text": "a"})
        step.chunk({"type": "text-delta", "index": 0, "text": "b"})
        event = step.assistant("ab", provider="p", model="m")
    assert event.source_event_seqs == (2, 4)


async def test_an_answer_without_a_stream(session: LiveSession) -> None:
    """No chunk gives an empty list of sources, and empty content is legal."""
    async with session.turn() as turn, turn.step() as step:
        event = step.assistant([], provider="p", model="m")
    assert event.source_event_seqs == ()
    assert event.data["message"]["content"] == []
    assert "usage" not in event.data


async def test_an_interrupted_answer_is_marked(session: LiveSession) -> None:
    """The mark stands before the usage."""
    async with session.turn() as turn, turn.step() as step:
        event = step.assistant("x", provider="p", model="m", interrupted=True, usage={"inputTokens": 1})
    assert list(event.data) == ["turn", "step", "message", "interrupted", "usage"]
    assert event.data["interrupted"] is True


async def test_an_answer_needs_a_route(session: LiveSession) -> None:
    """Provider and model come from the call or from the request; without either the call is refused."""
    async with session.turn() as turn, turn.step() as step:
        with pytest.raises(UsageError, match="needs the provider"):
            step.assistant("x", model="m")
        with pytest.raises(UsageError, match="needs the model"):
            step.assistant("x", provider="p", model="")
        with pytest.raises(UsageError, match=r"step\.assistant"):
            step.assistant([3])  # type: ignore[list-item]  # wrong on purpose
    assert "assistant/message" not in types(session)


# -- tool calls -----------------------------------------------------------------------------------


async def test_call_is_durable_before_its_body(session: LiveSession, place: Place) -> None:
    """CP5, CP13: inside the body the call itself survives a kill, and its result would be unknown."""
    async with session.turn() as turn, turn.step() as step:
        answer(step, "c")
        async with step.tool("c", "shell", "{}") as tool:
            stored = await place.stored(session.id)
            assert stored == list(session.events)
            assert types(stored)[-1] == "tool/call"
            tool.result("done")


@pytest.mark.parametrize(
    ("content", "blocks"),
    [
        ("text", [{"type": "text", "text": "text"}]),
        ([{"type": "text", "text": "a"}, {"type": "image", "x": 1}], None),
        ({"b": 1, "a": [True]}, [{"type": "text", "text": '{"b":1,"a":[true]}'}]),
        ([1, 2.0], [{"type": "text", "text": "[1,2]"}]),
        ([], [{"type": "text", "text": "[]"}]),
        (None, [{"type": "text", "text": "null"}]),
        ([{"type": "bug", "id": 1}], [{"type": "text", "text": '[{"type":"bug","id":1}]'}]),
        ([{"type": 3}], [{"type": "text", "text": '[{"type":3}]'}]),
        ([{"type": "text"}], [{"type": "text", "text": '[{"type":"text"}]'}]),
        ([{"type": "text", "text": "a"}, 1], [{"type": "text", "text": '[{"type":"text","text":"a"},1]'}]),
    ],
)
def test_what_a_tool_may_return(content: Any, blocks: Any) -> None:
    """Text and known blocks stay, every other JSON value becomes its JSON text."""
    assert result_blocks(content) == (content if blocks is None else blocks)


async def test_results_say_whether_they_failed(session: LiveSession) -> None:
    """An error with a code marks the result as failed unless the caller says otherwise."""
    failure = {"name": "NotFound", "code": "NOT_FOUND"}
    async with session.turn() as turn, turn.step() as step:
        answer(step, "a", "b", "c")
        async with step.tool("a", "t", "{}") as tool:
            tool.result("x", error=failure)
        async with step.tool("b", "t", "{}") as tool:
            tool.result("x", is_error=True)
        async with step.tool("c", "t", "{}") as tool:
            tool.result("x", is_error=False, error=failure)
    found = results(session)
    assert [found[c]["message"]["content"][0]["isError"] for c in "abc"] == [True, True, False]
    assert [found[c].get("error") for c in "abc"] == [failure, None, failure]


@pytest.mark.parametrize(
    "error", [{"name": "X"}, {"name": "X", "code": ""}, {"name": "X", "code": 1, "z": 2}]
)
async def test_error_of_a_result_is_checked(session: LiveSession, error: Any) -> None:
    """An error without exactly a name and a code is refused, and the call can still be answered."""
    async with session.turn() as turn, turn.step() as step:
        answer(step, "c")
        async with step.tool("c", "t", "{}") as tool:
            with pytest.raises(UsageError, match="error="):
                tool.result("x", error=error)
            with pytest.raises(InvalidEventError):
                tool.result({"x": {1}})  # type: ignore[dict-item]  # wrong on purpose
            tool.result("x")
    assert code(session, "c") is None


async def test_calls_run_side_by_side(session: LiveSession) -> None:
    """Calls of one step overlap; each is answered under its own id and cites its own call."""
    both = asyncio.Barrier(3)

    async def run(step: StepRecorder, call_id: str) -> str:
        async with step.tool(call_id, "t", "{}") as tool:
            await both.wait()
            tool.result(f"result of {call_id}")
            return tool.idempotency_key

    async with session.turn() as turn, turn.step() as step:
        answer(step, "a", "b", "c")
        keys = await asyncio.gather(*(run(step, call_id) for call_id in "cab"))
    assert len(set(keys)) == 3
    for call_id in "abc":
        assert text(session, call_id) == f"result of {call_id}"
        (source,) = results(session)[call_id]["sources"]
        assert session.events[source].data["callId"] == call_id
    assert is_well_ordered(session)


async def test_refused_flush_means_no_body(session: LiveSession, faults: FaultyBackend) -> None:
    """CP7: the failure comes out of entering the call, which is answered as never dispatched."""

    async def agent() -> None:
        async with session.turn() as turn, turn.step() as step:
            answer(step, "c")
            faults.fail("append_batch", None)
            async with step.tool("c", "t", "{}"):
                pytest.fail("the body must not run")

    with pytest.raises(UndurableError):
        await agent()
    assert code(session, "c") == "ABORTED_BEFORE_DISPATCH"
    assert text(session, "c") == "Error: tool call aborted before dispatch"
    assert results(session)["c"]["sources"] == (3,)
    assert ending(session)["kind"] == "error"
    assert is_well_ordered(session)
    faults.heal()


async def test_full_queue_lets_a_call_be_entered_again(place: Place) -> None:
    """D4: a call that did not fit was not recorded; after a drain the same recorder enters."""
    store, _ = place.open(pending_budget=2000, pending_reserve=4000)
    session = await store.create()
    async with session.turn() as turn, turn.step() as step:
        answer(step, "c")
        tool = step.tool("c", "t", "x" * 1900)
        with pytest.raises(BackpressureError):
            await tool.__aenter__()
        await session.drain()
        async with tool:
            tool.result("ok")
    assert is_well_ordered(session)


# -- the table of exits ---------------------------------------------------------------------------


async def test_exception_in_a_turn(session: LiveSession) -> None:
    """Leaving a turn by an exception: error with its text, and the exception goes on."""
    error = ValueError("boom")
    with pytest.raises(ValueError, match="boom") as caught:
        async with session.turn():
            raise error
    assert caught.value is error
    assert not hasattr(error, "__notes__")
    assert ending(session) == {"kind": "error", "error": {"message": "boom", "code": "UNKNOWN"}}
    assert session.durable_seq == session.seq


async def test_exception_in_a_step(session: LiveSession) -> None:
    """Leaving a step by an exception writes `step/end`, then the turn ends."""
    with pytest.raises(ValueError, match="boom"):
        async with session.turn() as turn, turn.step():
            raise ValueError("boom")
    assert types(session) == ["turn/start", "step/start", "step/end", "turn/end"]
    assert ending(session)["error"]["message"] == "boom"


async def test_exception_in_a_tool(session: LiveSession) -> None:
    """Leaving a tool by an exception: error result, step end, turn end in error."""

    async def agent() -> None:
        async with session.turn() as turn, turn.step() as step:
            answer(step, "c")
            async with step.tool("c", "t", "{}"):
                raise ValueError("boom")

    with pytest.raises(ValueError, match="boom"):
        await agent()
    assert types(session) == [*STEP, "tool/call", "tool/result", "step/end", "turn/end"]
    assert text(session, "c") == "Error: boom"
    assert results(session)["c"]["message"]["content"][0]["isError"] is True
    assert "error" not in results(session)["c"]
    assert ending(session) == {"kind": "error", "error": {"message": "boom", "code": "UNKNOWN"}}


async def test_exception_caught_outside_the_tool(session: LiveSession) -> None:
    """Caught outside `step.tool()`, the step goes on; an error of turnlog leaves its code."""
    async with session.turn() as turn, turn.step() as step:
        answer(step, "a", "b")
        with pytest.raises(ToolError):
            async with step.tool("a", "t", "{}"):
                raise ToolError("no such file", name="t")
        async with step.tool("b", "t", "{}") as tool:
            tool.result("fine")
    assert results(session)["a"]["error"] == {"name": "ToolError", "code": "tool-error"}
    assert text(session, "b") == "fine"
    assert ending(session) == {"kind": "completed"}


async def test_exception_after_the_result(session: LiveSession) -> None:
    """A result that was given stands, whatever the body does afterwards."""

    async def agent() -> None:
        async with session.turn() as turn, turn.step() as step:
            answer(step, "c")
            async with step.tool("c", "t", "{}") as tool:
                tool.result("done")
                raise ValueError("late")

    with pytest.raises(ValueError, match="late"):
        await agent()
    assert text(session, "c") == "done"
    assert types(session).count("tool/result") == 1


async def test_error_message_tells_the_cause(session: LiveSession) -> None:
    """The message of the turn's end names the explicit causes, once each."""
    root = OSError("disk on fire")
    error = RuntimeError("cannot save")
    error.__cause__ = root
    root.__cause__ = error
    with pytest.raises(RuntimeError):
        async with session.turn():
            raise error
    assert ending(session)["error"]["message"] == "cannot save: disk on fire"


def test_error_text_never_fails() -> None:
    """An exception without text is named by its class, and so is one whose text cannot be made."""

    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert error_text(ValueError()) == "ValueError"
    assert error_text(Mute()) == "Mute"


async def test_exception_group_is_an_error(session: LiveSession) -> None:
    """What a task group raises for failed children ends the turn in error."""

    async def fail() -> None:
        raise ValueError("in group")

    with pytest.raises(ExceptionGroup):
        async with session.turn(), asyncio.TaskGroup() as group:
            group.create_task(fail())
    assert ending(session)["kind"] == "error"


@pytest.mark.parametrize("kind", OUTSIDE)
async def test_leaving_a_turn_from_outside(session: LiveSession, kind: type[BaseException]) -> None:
    """Cancellation, KeyboardInterrupt, SystemExit, GeneratorExit: the turn is aborted by its parent."""
    with pytest.raises(kind):
        async with session.turn():
            raise kind
    assert ending(session) == PARENT
    assert is_well_ordered(session)
    await session.flush()
    assert session.durable_seq == session.seq


@pytest.mark.parametrize("kind", OUTSIDE)
async def test_leaving_a_step_from_outside(session: LiveSession, kind: type[BaseException]) -> None:
    """The step ends, too, and calls that were not entered were never started."""

    async def agent() -> None:
        async with session.turn() as turn, turn.step() as step:
            answer(step, "c")
            raise kind

    with pytest.raises(kind):
        await agent()
    assert code(session, "c") == "TOOL_NOT_STARTED"
    assert types(session) == [*STEP, "tool/result", "step/end", "turn/end"]
    assert ending(session) == PARENT


@pytest.mark.parametrize("kind", OUTSIDE)
async def test_leaving_a_tool_body_from_outside(session: LiveSession, kind: type[BaseException]) -> None:
    """Nobody knows how far the body came: its outcome is unknown."""

    async def agent() -> None:
        async with session.turn() as turn, turn.step() as step:
            answer(step, "c")
            async with step.tool("c", "t", "{}"):
                raise kind

    with pytest.raises(kind):
        await agent()
    assert code(session, "c") == "TOOL_OUTCOME_UNKNOWN"
    assert text(session, "c") == TEXT_OUTCOME_UNKNOWN
    assert results(session)["c"]["sources"] == (3,)
    assert ending(session) == PARENT


async def test_cancelling_a_task_inside_a_tool_body(session: LiveSession) -> None:
    """A real cancellation closes everything, makes it durable, and the task ends cancelled."""
    running = asyncio.Event()

    async def agent() -> None:
        async with session.turn() as turn, turn.step() as step:
            answer(step, "c")
            async with step.tool("c", "t", "{}"):
                running.set()
                await asyncio.Event().wait()

    task = asyncio.create_task(agent())
    await running.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert code(session, "c") == "TOOL_OUTCOME_UNKNOWN"
    assert ending(session) == PARENT
    assert session.durable_seq == session.seq


async def test_cancelling_while_entering_a_tool(session: LiveSession, faults: FaultyBackend) -> None:
    """CP6: cancelled during the flush before the body: aborted before dispatch, the body is not run."""

    async def agent() -> None:
        async with session.turn() as turn, turn.step() as step:
            answer(step, "c")
            async with step.tool("c", "t", "{}"):
                pytest.fail("the body must not run")

    gate = faults.hang("append_batch")
    task = asyncio.create_task(agent())
    await gate.entered.wait()
    task.cancel()
    await asyncio.sleep(0)
    assert code(session, "c") == "ABORTED_BEFORE_DISPATCH"
    assert types(session)[-1] == "turn/end"
    gate.release()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ending(session) == PARENT
    assert session.durable_seq == session.seq
    assert is_well_ordered(session)


async def test_a_tool_that_takes_too_long(session: LiveSession) -> None:
    """A timeout around a call cancels its body only: the outcome is unknown and the step goes on."""

    async def too_slow(step: StepRecorder) -> None:
        async with asyncio.timeout(None) as limit, step.tool("slow", "t", "{}"):
            limit.reschedule(asyncio.get_running_loop().time())
            await asyncio.Event().wait()

    async with session.turn() as turn, turn.step() as step:
        answer(step, "slow", "quick")
        with pytest.raises(TimeoutError):
            await too_slow(step)
        async with step.tool("quick", "t", "{}") as tool:
            tool.result("x")
    assert code(session, "slow") == "TOOL_OUTCOME_UNKNOWN"
    assert ending(session) == {"kind": "completed"}


async def test_a_tool_body_without_a_result(session: LiveSession) -> None:
    """The call is answered as unknown and the mistake is a usage error, which ends step and turn."""

    async def agent() -> None:
        async with session.turn() as turn, turn.step() as step:
            answer(step, "c")
            async with step.tool("c", "t", "{}"):
                pass

    with pytest.raises(UsageError, match="without a result"):
        await agent()
    assert code(session, "c") == "TOOL_OUTCOME_UNKNOWN"
    assert ending(session)["kind"] == "error"


async def test_a_step_with_calls_never_entered(session: LiveSession) -> None:
    """One result each, in the order of the requests; nobody is at fault."""
    async with session.turn() as turn, turn.step() as step:
        answer(step, "a", "b", "c")
        async with step.tool("b", "t", "{}") as tool:
            tool.result("ran")
        step.tool("c", "t", "{}")
    assert list(results(session)) == ["b", "a", "c"]
    assert [code(session, c) for c in "abc"] == ["TOOL_NOT_STARTED", None, "TOOL_NOT_STARTED"]
    assert text(session, "a") == TEXT_NOT_STARTED
    assert results(session)["a"]["sources"] is None
    assert ending(session) == {"kind": "completed"}
    assert is_well_ordered(session)


async def test_one_of_several_running_calls_fails(session: LiveSession) -> None:
    """The failing call has an error result, the running one an unknown outcome, the third never started."""
    started = asyncio.Event()
    told: list[str] = []
    tasks: list[asyncio.Task[None]] = []

    async def fail(step: StepRecorder) -> None:
        async with step.tool("a", "t", "{}"):
            await started.wait()
            raise ValueError("boom")

    async def work(step: StepRecorder) -> None:
        async with step.tool("b", "t", "{}") as tool:
            started.set()
            try:
                await asyncio.Event().wait()
            finally:
                try:
                    tool.result("too late")
                except UsageError as error:
                    told.append(str(error))

    async def agent() -> None:
        async with session.turn() as turn, turn.step() as step:
            answer(step, "a", "b", "c")
            tasks.append(asyncio.create_task(work(step)))
            await asyncio.gather(fail(step), *tasks)

    with pytest.raises(ValueError, match="boom"):
        await agent()
    assert text(session, "a") == "Error: boom"
    assert code(session, "b") == "TOOL_OUTCOME_UNKNOWN"
    assert code(session, "c") == "TOOL_NOT_STARTED"
    assert ending(session)["kind"] == "error"
    seq = session.seq
    tasks[0].cancel()
    with pytest.raises(asyncio.CancelledError):
        await tasks[0]
    assert session.seq == seq
    assert "its step was left" in told[0]
    assert is_well_ordered(session)


async def test_step_left_while_a_call_is_entering(session: LiveSession, faults: FaultyBackend) -> None:
    """The call is answered as never dispatched, and its body does not run when the flush is through."""
    outcome: list[str] = []
    tasks: list[asyncio.Task[None]] = []

    async def enter(step: StepRecorder) -> None:
        try:
            async with step.tool("c", "t", "{}"):
                outcome.append("ran")
        except UsageError as error:
            outcome.append(str(error))

    gate = faults.hang("append_batch")
    async with session.turn() as turn:

        async def agent() -> None:
            async with turn.step() as step:
                answer(step, "c")
                tasks.append(asyncio.create_task(enter(step)))
                await gate.entered.wait()

        with pytest.raises(UsageError, match="while tool calls ran"):
            await agent()
        gate.release()
        await tasks[0]
    assert code(session, "c") == "ABORTED_BEFORE_DISPATCH"
    assert "before the call could run" in outcome[0]
    assert is_well_ordered(session)


async def test_step_left_while_an_entering_call_fails(session: LiveSession, faults: FaultyBackend) -> None:
    """A call that was answered by its step is not answered again when its own flush fails."""
    tasks: list[asyncio.Task[ToolRecorder]] = []
    await session.flush()  # so that the write which fails is begun by the call itself
    gate = faults.hang("append_batch")
    async with session.turn() as turn:

        async def agent() -> None:
            async with turn.step() as step:
                answer(step, "c")
                tasks.append(asyncio.create_task(step.tool("c", "t", "{}").__aenter__()))
                await gate.entered.wait()

        with pytest.raises(UsageError):
            await agent()
        gate.fail(BackendError(backend="memory", reason="scripted", wrote_nothing=True))
        with pytest.raises(UndurableError) as caught:
            await tasks[0]
        assert not hasattr(caught.value, "__notes__")
    assert types(session).count("tool/result") == 1
    assert is_well_ordered(session)


async def test_turn_left_while_a_step_is_open(session: LiveSession) -> None:
    """The step is closed with its turn and the mistake is named; the late exit of the step is silent."""

    steps: list[StepRecorder] = []

    async def agent() -> None:
        async with session.turn() as turn:
            steps.append(turn.step())
            await steps[0].__aenter__()
            answer(steps[0], "c")

    with pytest.raises(UsageError, match="while a step was open"):
        await agent()
    assert types(session) == [*STEP, "tool/result", "step/end", "turn/end"]
    await steps[0].__aexit__(None, None, None)
    assert session.seq == 6
    assert session.durable_seq == 6


async def test_calls_appended_by_hand_are_closed_too(session: LiveSession) -> None:
    """A call recorded without its recorder is answered as unknown, citing the call."""
    async with session.turn() as turn, turn.step() as step:
        answer(step, "x", "y")
        for call_id in "xy":
            data = {"turn": 1, "step": 1, "callId": call_id, "name": "t", "arguments": "{}"}
            session.append("tool/call", data)
        step.chunk({"type": "text-delta", "index": 0, "text": "a"})
    assert [code(session, c) for c in "xy"] == ["TOOL_OUTCOME_UNKNOWN"] * 2
    assert results(session)["x"]["sources"] == (3,)
    assert results(session)["y"]["sources"] == (4,)


async def test_a_call_answered_by_hand_is_answered(session: LiveSession) -> None:
    """Inside its block a call may be answered by a plain append; nothing is added then."""
    async with session.turn() as turn, turn.step() as step:
        answer(step, "c")
        async with step.tool("c", "t", "{}"):
            block = {"type": "tool-result", "toolCallId": "c", "content": [], "isError": False}
            message = {
                "source": {"kind": "tool", "callId": "c"},
                "content": [block],
                "role": "user",
                "id": "m",
            }
            session.append("tool/result", {"turn": 1, "step": 1, "message": message}, surface_op="append")
    assert types(session).count("tool/result") == 1
    assert ending(session) == {"kind": "completed"}


async def test_reasons_set_before_an_exception(session: LiveSession) -> None:
    """On the way out only a reason of the same kind is used: it says the same with more detail."""
    failure = {"kind": "error", "error": {"message": "slow down", "code": "RATE_LIMIT", "status": 429}}
    user = {"kind": "aborted", "reason": {"kind": "user"}}

    async def agent(chosen: Any, raised: BaseException) -> None:
        async with session.turn() as turn:
            turn.end(chosen)
            raise raised

    for chosen, raised, expected in (
        (failure, ValueError("x"), failure),
        ("max-tokens", ValueError("x"), {"kind": "error", "error": {"message": "x", "code": "UNKNOWN"}}),
        (user, asyncio.CancelledError(), user),
        ("completed", asyncio.CancelledError(), PARENT),
    ):
        with pytest.raises(type(raised)):
            await agent(chosen, raised)
        assert ending(session) == expected


# -- failing and waiting exits --------------------------------------------------------------------


async def test_failing_flush_at_a_normal_end(session: LiveSession, faults: FaultyBackend) -> None:
    """On the normal path the failure is raised; the end is recorded and durable with the next flush."""
    faults.fail("append_batch", None)
    with pytest.raises(UndurableError):
        async with session.turn():
            pass
    assert types(session) == ["turn/start", "turn/end"]
    faults.heal()
    await session.flush()
    assert session.durable_seq == 2


async def test_failing_flush_never_replaces_the_exception(
    session: LiveSession, faults: FaultyBackend, caplog: pytest.LogCaptureFixture
) -> None:
    """On the exception path a failing flush is a note on the exception and a warning."""
    faults.fail("append_batch", None)
    with (
        caplog.at_level(logging.WARNING, "turnlog.recorder"),
        pytest.raises(ValueError, match="boom") as caught,
    ):
        async with session.turn():
            raise ValueError("boom")
    assert any("could not be made durable" in note for note in caught.value.__notes__)
    assert any("could not be made durable" in record.message for record in caplog.records)
    faults.heal()


async def test_failing_appends_never_replace_the_exception(session: LiveSession) -> None:
    """If the closing events themselves are refused, the exception goes on with a note for each."""

    def veto(event: Any) -> None:
        if event.type in ("tool/result", "step/end", "turn/end"):
            raise RuntimeError(f"veto of {event.type}")

    async def agent() -> None:
        async with session.turn() as turn, turn.step() as step:
            answer(step, "a", "b")
            async with step.tool("a", "t", "{}"):
                raise ValueError("boom")

    undo = session.subscribe_candidates(veto)
    with pytest.raises(ValueError, match="boom") as caught:
        await agent()
    undo()
    notes = "\n".join(caught.value.__notes__)
    for what in ('tool call "a"', 'tool call "b"', "step/end", "turn/end"):
        assert what in notes
    assert session.open_turn == 1


async def test_failing_append_at_a_normal_end_is_raised(session: LiveSession) -> None:
    """On the normal path a refused closing event is the caller's to hear."""

    def veto(event: Any) -> None:
        if event.type == "turn/end":
            raise RuntimeError("veto")

    session.subscribe_candidates(veto)
    with pytest.raises(RuntimeError, match="veto"):
        async with session.turn():
            pass
    assert session.open_turn == 1


async def test_second_cancellation_is_honoured_after_the_append(
    session: LiveSession, faults: FaultyBackend
) -> None:
    """While the end is being made durable a second cancellation ends the wait; the write goes on."""

    async def agent() -> None:
        async with session.turn():
            await asyncio.Event().wait()

    gate = faults.hang("append_batch")
    task = asyncio.create_task(agent())
    await asyncio.sleep(0)
    task.cancel()
    await gate.entered.wait()
    assert types(session) == ["turn/start", "turn/end"]
    assert not task.done()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert session.durable_seq == 0
    gate.release()
    await session.flush()
    assert session.durable_seq == 2
    assert faults.batches() == ((0, 1),)


async def test_cancellation_while_an_exception_is_made_durable(
    session: LiveSession, faults: FaultyBackend
) -> None:
    """A cancellation that arrives during the flush of a failed turn is not swallowed."""

    async def agent() -> None:
        async with session.turn():
            raise ValueError("boom")

    gate = faults.hang("append_batch")
    task = asyncio.create_task(agent())
    await gate.entered.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ending(session)["kind"] == "error"
    gate.release()
    await session.flush()


def driven(body: Coroutine[Any, Any, None]) -> Coroutine[Any, Any, None]:
    """Run a coroutine by hand up to its first suspension."""
    body.send(None)
    return body


async def test_closing_a_suspended_coroutine(session: LiveSession) -> None:
    """GeneratorExit from `close()` must not wait: the end is appended, durable with the next flush."""

    async def agent() -> None:
        async with session.turn() as turn, turn.step() as step:
            answer(step, "c")
            await asyncio.sleep(0)

    driven(agent()).close()
    assert ending(session) == PARENT
    assert is_well_ordered(session)
    assert session.durable_seq == 0
    await session.flush()


async def test_closing_a_suspended_coroutine_in_another_thread(session: LiveSession) -> None:
    """Where the end cannot be appended the frame still closes; the turn is left to the repair on resume."""

    async def agent() -> None:
        async with session.turn():
            await asyncio.sleep(0)

    failed: list[BaseException] = []
    body = driven(agent())

    def close() -> None:
        try:
            body.close()
        except BaseException as error:  # noqa: BLE001 - the test keeps whatever comes
            failed.append(error)

    thread = threading.Thread(target=close)
    thread.start()
    thread.join()
    assert failed == []
    assert session.open_turn == 1
    assert types(session) == ["turn/start"]


# -- misuse ---------------------------------------------------------------------------------------


async def test_turn_outside_its_block(session: LiveSession) -> None:
    """A turn refuses every call before it is entered and after it was left, and says what to do."""
    turn = session.turn()
    for use in (lambda: turn.user("x"), turn.step, lambda: turn.end("completed")):
        with pytest.raises(UsageError, match="before it is entered"):
            use()
    async with turn:
        pass
    for use in (lambda: turn.user("x"), turn.step, lambda: turn.end("completed")):
        with pytest.raises(UsageError, match="after it was left"):
            use()
    with pytest.raises(UsageError, match="entered before"):
        await turn.__aenter__()
    assert session.seq == 2


async def test_step_outside_its_block(session: LiveSession) -> None:
    """A step refuses every call before it is entered and after it was left."""
    async with session.turn() as turn:
        step = turn.step()
        with pytest.raises(UsageError, match="before it is entered"):
            step.chunk({"type": "text-delta", "index": 0, "text": "x"})
        async with step:
            pass
        for use in (
            lambda: step.chunk({"type": "text-delta", "index": 0, "text": "x"}),
            lambda: step.assistant("x"),
            lambda: step.tool("c", "t", "{}"),
        ):
            with pytest.raises(UsageError, match="after it was left"):
                use()
        with pytest.raises(UsageError, match="after it was left"):
            await step.request(config=CONFIG)
        with pytest.raises(UsageError, match="entered before"):
            await step.__aenter__()
    assert session.seq == 4


async def test_brackets_do_not_nest(session: LiveSession) -> None:
    """A second turn or step while one is open is refused, when it is made and when it is entered."""
    early = session.turn()
    async with session.turn() as turn:
        with pytest.raises(UsageError, match=r"turn 1 .* still open"):
            session.turn()
        with pytest.raises(UsageError, match=r"turn 1 .* still open"):
            await early.__aenter__()
        async with turn.step():
            with pytest.raises(UsageError, match="step 1 of turn 1 is still open"):
                await turn.step().__aenter__()
    async with early:
        assert early.number == 2


async def test_a_turn_by_hand_blocks_the_recorder(session: LiveSession) -> None:
    """A turn that was opened by `append` is the caller's to close."""
    session.append("turn/start", {"turn": 1})
    with pytest.raises(UsageError, match="still open"):
        session.turn()
    session.append("turn/end", {"turn": 1, "reason": {"kind": "completed"}})
    async with session.turn() as turn:
        assert turn.number == 2


async def test_misuse_of_tool_calls(session: LiveSession) -> None:
    """Unrequested calls, calls entered twice, results twice or outside, and a key too early are refused."""
    async with session.turn() as turn, turn.step() as step:
        with pytest.raises(UsageError, match=r"no answer of step 1 requests .*c"):
            await step.tool("c", "t", "{}").__aenter__()
        answer(step, "c")
        with pytest.raises(UsageError, match="raw text"):
            step.tool("c", "t", {})  # type: ignore[arg-type]  # wrong on purpose
        tool = step.tool("c", "t", "{}")
        with pytest.raises(UsageError, match="no key"):
            _ = tool.idempotency_key
        with pytest.raises(UsageError, match="not running"):
            tool.result("x")
        async with tool:
            tool.result("x")
            with pytest.raises(UsageError, match="answered once"):
                tool.result("y")
        with pytest.raises(UsageError, match="each call runs once"):
            await tool.__aenter__()
        with pytest.raises(UsageError, match="each call runs once"):
            await step.tool("c", "t", "{}").__aenter__()
    assert types(session).count("tool/call") == 1
    with pytest.raises(UsageError, match="after it was left"):
        await step.tool("c", "t", "{}").__aenter__()


async def test_calls_requested_by_hand_can_be_entered(session: LiveSession) -> None:
    """What counts is the log: an answer appended by hand requests calls, one recorded by hand runs once."""
    async with session.turn() as turn, turn.step() as step:
        source = {"kind": "model", "provider": "p", "model": "m"}
        content = [call_block("a"), call_block("b")]
        message = {"role": "assistant", "content": content, "source": source, "id": "m-1"}
        session.append("assistant/message", {"turn": 1, "step": 1, "message": message}, surface_op="append")
        async with step.tool("a", "t", "{}") as tool:
            tool.result("x")
        data = {"turn": 1, "step": 1, "callId": "b", "name": "t", "arguments": "{}"}
        session.append("tool/call", data)
        with pytest.raises(UsageError, match="each call runs once"):
            await step.tool("b", "t", "{}").__aenter__()
    assert code(session, "b") == "TOOL_OUTCOME_UNKNOWN"


async def test_a_lenient_session_runs_unrequested_calls(store: SessionStore) -> None:
    """With `strict=False` a call needs no block that requests it."""
    session = await store.create(strict=False)
    async with session.turn() as turn, turn.step() as step, step.tool("c", "t", "{}") as tool:
        tool.result("x")
    assert text(session, "c") == "x"


async def test_a_step_that_cannot_start(place: Place) -> None:
    """If `step/start` is refused, the step is not open and can be entered later."""
    store, _ = place.open(pending_budget=300, pending_reserve=1000)
    session = await store.create()
    async with session.turn() as turn:
        with pytest.raises(BackpressureError):
            turn.user("x" * 400)
        turn.user("x" * 20)
        step = turn.step()
        with pytest.raises(BackpressureError):
            await step.__aenter__()
        await session.drain()
        async with step:
            assert step.number == 1
    assert is_well_ordered(session)
