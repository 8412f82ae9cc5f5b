"""Messages: what each event says, the incremental form, and answers that exist only as chunks."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from tests.unit.session.conversations import (
    HEADER,
    answer,
    call,
    conversation,
    delta,
    fresh,
    in_step,
    replace,
    request_header,
    result,
    text,
    tool_call,
    user,
)
from turnlog.errors import InvalidEventError, UsageError
from turnlog.events.chunk_runs import ChunkRow
from turnlog.events.log import EventLog
from turnlog.session.derive import derive_messages, project_message
from turnlog.session.session import Session


def test_messages_are_fresh_each_time() -> None:
    """DC3, DC5, PR6, SE16: changing a derived message changes neither the log nor the next derivation."""
    session = conversation()
    first = session.derive_messages()
    expected = [dict(message) for message in session.derive_messages()]
    first[0]["content"].append("mutated")
    first.pop()
    assert session.derive_messages() == expected
    projected = project_message(session.events[1])
    assert projected is not None
    projected["content"].clear()
    assert project_message(session.events[1]) == expected[0]
    assert {message["role"] for message in expected} == {"user", "assistant"}


def test_every_append_keeps_the_cache_equal_to_a_replay() -> None:
    """DC1, DC2, SU34: after each event, replacements included, the session derives what a fold does."""
    source = conversation()
    session = fresh(strict=False)
    for event in source.events:
        session.append(
            event.type, event.data, surface_op=event.surface_op, source_event_seqs=event.source_event_seqs
        )
        assert session.derive_messages() == derive_messages(session.log)
    nodes = session.surface.nodes
    session.append(
        "user/message", user("s"), surface_op=replace(nodes[0], nodes[2]), source_event_seqs=nodes[:3]
    )
    assert session.derive_messages() == derive_messages(session.events)
    assert [message["id"] for message in session.derive_messages()] == ["s", "a-2", "u-2"]


def test_the_cache_holds_what_is_on_the_surface() -> None:
    """DC2, SU14: the text of replaced messages is not kept."""
    session = conversation()
    session.derive_messages()
    nodes = session.surface.nodes
    session.append(
        "user/message", user("s"), surface_op=replace(nodes[0], nodes[-1]), source_event_seqs=nodes
    )
    assert not session._folds._messages
    session.derive_messages()
    assert list(session._folds._messages) == list(session.surface.nodes)


def test_events_that_say_nothing_project_to_nothing() -> None:
    """DC6, SU33, SU37: an answer without content, brackets and chunks are no messages."""
    session = in_step()
    session.append_chunk(1, 1, delta())
    session.append("assistant/message", answer("a"), surface_op="append")
    assert session.derive_messages() == []
    assert [project_message(event) for event in session.events] == [None] * 4


def test_injected_context_and_prompts_are_user_messages() -> None:
    """SE2, SE5, SU32, SU35: every source of a user message is on the surface and derived whole."""
    session = fresh()
    injected = {**user("p"), "source": {"kind": "plugin", "plugin": "memory"}}
    session.append("user/message", injected, surface_op="append")
    session.append("user/message", user("u"), surface_op="append")
    assert session.derive_messages() == [injected, user("u")]


def test_an_answer_beyond_the_typed_decoder_is_derived() -> None:
    """SE11: lone surrogates in an answer, an empty one beside a surrogate."""
    session = in_step()
    data = answer("a", text("\ud800"))
    session.append("assistant/message", data, surface_op="append")
    session.append(
        "assistant/message", {**answer("\ud800"), "usage": {"outputTokens": 1}}, surface_op="append"
    )
    assert session.derive_messages() == [data["message"]] == derive_messages(session.log)


def test_a_free_derivation_refuses_events_that_hold_no_message() -> None:
    """SE9: events from anywhere are checked where a message is read."""
    event = {"type": "user/message", "seq": 0, "time": 0, "data": {}, "surfaceOp": "append"}
    with pytest.raises(InvalidEventError, match=r"data\.id"):
        derive_messages([event])


def test_chunks_of_a_log_are_not_decoded_for_messages() -> None:
    """SU33: packed rows cost nothing when messages are derived."""
    session = conversation()
    rows = session.log.rows
    unreadable = [
        msgspec.structs.replace(row, line=b"not read") if isinstance(row, ChunkRow) else row for row in rows
    ]
    log = EventLog()
    log.extend_rows(unreadable)
    assert derive_messages(log) == session.derive_messages()
    assert Session.restore(HEADER, log).derive_messages() == session.derive_messages()


def test_partial_has_two_values() -> None:
    """P1: anything else is a mistake of the caller."""
    with pytest.raises(UsageError, match="partial"):
        derive_messages([], partial="yes")  # type: ignore[arg-type]  # the mistake
    with pytest.raises(UsageError, match="partial"):
        fresh().derive_messages(partial="yes")  # type: ignore[arg-type]  # the mistake


def _ids(session: Session) -> list[str]:
    """Return the ids with partial answers, asserting that function and session agree."""
    messages = session.derive_messages(partial="include")
    assert messages == derive_messages(session.log, partial="include")
    assert messages == derive_messages([e.to_dict() for e in session.events], partial="include")
    return [message["id"] for message in messages]


def test_a_streaming_answer_is_included_until_it_arrives() -> None:
    """R1: text and reasoning so far, marked, with the model of the request; the answer takes its place."""
    session = in_step()
    session.append("request/header", request_header())
    session.append("user/message", user("u"), surface_op="append")
    session.append_chunk(1, 1, {"type": "reasoning-delta", "index": 0, "text": "Hm"})
    for word in ("Let", " me"):
        session.append_chunk(1, 1, delta(word, 1))
    session.append_chunk(1, 1, {"type": "tool-call-delta", "index": 2, "id": "c", "argumentsDelta": "{"})
    assert session.derive_messages() == [user("u")]
    assert session.derive_messages(partial="include") == [
        user("u"),
        {
            "role": "assistant",
            "content": [{"type": "reasoning", "text": "Hm"}, text("Let me")],
            "source": {"kind": "model", "provider": "acme", "model": "a1", "interrupted": True},
            "id": "partial-answer-4",
        },
    ]
    session.append("assistant/message", answer("a", text("Let me")), surface_op="append")
    assert _ids(session) == ["u", "a"]


def test_an_interrupted_answer_stands_where_the_answer_would() -> None:
    """R1: between the messages before and after it, for every step that has none, blank ones left out."""
    session = fresh()
    for turn in (1, 2, 3):
        session.append("turn/start", {"turn": turn})
        session.append("user/message", user(f"u-{turn}"), surface_op="append")
        session.append("step/start", {"turn": turn, "step": 1})
        session.append_chunk(turn, 1, delta("  " if turn == 2 else f"part {turn}"))
        session.append("step/end", {"turn": turn, "step": 1})
        session.append("turn/end", {"turn": turn, "reason": {"kind": "interrupted"}})
    messages = session.derive_messages(partial="include")
    assert [message["id"] for message in messages] == [
        "u-1",
        "partial-answer-3",
        "u-2",
        "u-3",
        "partial-answer-15",
    ]
    assert messages[1]["source"]["provider"] == "unknown"
    session.append("user/message", user("u-4"), surface_op="append")
    assert _ids(session)[-2:] == ["partial-answer-15", "u-4"]


def test_two_steps_of_one_turn_have_two_answers() -> None:
    """R1: chunks of the next step are another answer, whether its bracket was written or not."""
    session = fresh(strict=False)
    session.append_chunk(1, 1, delta("one"))
    session.append_chunk(1, 2, delta("two"))
    session.append("step/start", {"turn": 1, "step": 2})
    session.append_chunk(1, 2, delta("three"))
    assert _ids(session) == ["partial-answer-0", "partial-answer-1", "partial-answer-3"]


@pytest.mark.parametrize("type_", ["llm/retry", "llm/retry-started"])
def test_a_retried_stream_begins_again(type_: str) -> None:
    """R1: what a failed attempt streamed is no part of the answer."""
    session = in_step()
    session.append(type_, {"retryId": "r"})
    session.append_chunk(1, 1, delta("first try"))
    session.append(type_, {"retryId": "r"})
    session.append_chunk(1, 1, delta("second try"))
    (message,) = session.derive_messages(partial="include")
    assert message["content"] == [text("second try")]


def test_an_answer_inside_a_compacted_range_is_left_out() -> None:
    """R1: what was compacted stays compacted; partial answers before and after the range stand."""
    session = fresh(strict=False)
    session.append_chunk(1, 1, delta("before"))
    session.append("user/message", user("u-1"), surface_op="append")
    session.append_chunk(1, 2, delta("inside"))
    session.append("user/message", user("u-2"), surface_op="append")
    session.append_chunk(1, 3, delta("after"))
    session.append("user/message", user("s"), surface_op=replace(1, 3), source_event_seqs=[1, 3])
    assert _ids(session) == ["partial-answer-0", "s", "partial-answer-4"]
    session.append("user/message", user("s2"), surface_op=replace(5), source_event_seqs=[5])
    assert _ids(session) == ["partial-answer-0", "s2", "partial-answer-4"]


def test_chunks_that_are_none_are_passed_over() -> None:
    """L2: the payload of a chunk is no gate, so reading it must not fail."""
    session = fresh(strict=False)
    odd: list[Any] = [None, {"chunk": 7}, {"turn": 1, "step": 1, "chunk": {"type": "text-delta"}}]
    for data in odd:
        session.append("assistant/chunk", data)
    assert session.derive_messages(partial="include") == []


def test_a_rewritten_result_is_derived_with_its_new_content() -> None:
    """SU34: the function compares and projects rewritten results like the session."""
    session = in_step()
    session.append("tool/call", tool_call("c"))
    session.append("tool/result", result("c", text("long")), surface_op="append")
    session.append("tool/result", result("c", text("cut")), surface_op=replace(3), source_event_seqs=[3])
    assert derive_messages(session.log) == session.derive_messages() == [result("c", text("cut"))["message"]]


def test_a_rewritten_answer_does_not_end_a_stream() -> None:
    """R1: replacing an earlier answer while another streams leaves the streaming one open."""
    session = in_step()
    session.append("assistant/message", answer("a", call("c"), text("x")), surface_op="append")
    session.append("tool/call", {"turn": 1, "step": 1, "callId": "c", "name": "n", "arguments": ""})
    session.append_chunk(1, 1, delta("more"))
    session.replace_block(2, 1)
    assert _ids(session) == ["a", "partial-answer-4"]
