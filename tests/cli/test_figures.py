"""Figures: what is counted, and which times are paired."""

from __future__ import annotations

from typing import Any

from turnlog import SessionEvent
from turnlog.cli.figures import Figures
from turnlog.cli.stats import rows


def log(*entries: tuple[int, str, dict[str, Any]]) -> list[SessionEvent]:
    """Make events from time, type and payload."""
    out = []
    for seq, (time, type_, data) in enumerate(entries):
        raw: dict[str, Any] = {"type": type_, "seq": seq, "time": time, "data": data}
        if type_ in ("user/message", "assistant/message", "tool/result"):
            raw["surfaceOp"] = "append"
        out.append(SessionEvent.from_dict(raw))
    return out


PLACE = {"turn": 1, "step": 1}
MESSAGE = {
    "id": "m",
    "role": "assistant",
    "content": [],
    "source": {"kind": "model", "provider": "p", "model": "m"},
}


def chunk(**fields: Any) -> dict[str, Any]:
    """Make a chunk's payload."""
    return {**PLACE, "chunk": fields}


def result(call_id: str, *, is_error: bool = False) -> dict[str, Any]:
    """Make a result's payload."""
    block = {"type": "tool-result", "toolCallId": call_id, "content": [], "isError": is_error}
    return {
        **PLACE,
        "message": {
            "id": "r",
            "role": "user",
            "source": {"kind": "tool", "callId": call_id},
            "content": [block],
        },
    }


def fold(events: list[SessionEvent]) -> Figures:
    """Fold a log."""
    figures = Figures()
    for event in events:
        figures.feed(event)
    return figures


def test_times_and_tokens_of_one_step() -> None:
    """Model time is step start to answer; the first token is the first delta that brings something."""
    usage = {
        "inputTokens": 100,
        "outputTokens": 50,
        "cacheReadTokens": 300,
        "cacheWriteTokens": 0,
        "reasoningTokens": 7,
    }
    figures = fold(
        log(
            (0, "turn/start", {"turn": 1}),
            (0, "step/start", PLACE),
            (100, "assistant/chunk", chunk(type="text-delta", index=0, text="")),
            (400, "assistant/chunk", chunk(type="text-delta", index=0, text="x")),
            (900, "assistant/chunk", chunk(type="text-delta", index=0, text="y")),
            (1400, "assistant/message", {**PLACE, "message": MESSAGE, "usage": usage}),
            (1500, "tool/call", {**PLACE, "callId": "a", "name": "t", "arguments": ""}),
            (1600, "tool/call", {**PLACE, "callId": "b", "name": "t", "arguments": ""}),
            (1800, "tool/result", result("a")),
            (1700, "tool/result", result("b", is_error=True)),
            (1800, "step/end", PLACE),
            (1900, "turn/end", {"turn": 1, "reason": {"kind": "completed"}}),
        )
    ).as_json()
    assert figures["model_ms"] == 1400
    assert figures["first_token_ms"] == 400.0
    assert figures["tool_ms"] == 300 + 100
    assert figures["tokens_per_second"] == 50.0
    assert figures["tokens"] == {
        "input": 100,
        "output": 50,
        "cache_read": 300,
        "cache_write": 0,
        "reasoning": 7,
    }
    assert (figures["turns"], figures["steps"], figures["chunk_events"], figures["events"]) == (1, 1, 3, 12)
    assert (figures["tool_calls"], figures["tool_failures"], figures["turn_ends"]) == (2, 1, {"completed": 1})


def test_nothing_is_paired_across_turns_and_clocks_that_go_back_count_nothing() -> None:
    """A call left open by its turn is not timed by a result of the next one."""
    figures = fold(
        log(
            (100, "turn/start", {"turn": 1}),
            (100, "step/start", PLACE),
            (50, "assistant/message", {**PLACE, "message": MESSAGE}),
            (50, "tool/call", {**PLACE, "callId": "a", "name": "t", "arguments": ""}),
            (60, "turn/end", {"turn": 1, "reason": {"kind": "interrupted"}}),
            (9000, "tool/result", result("a")),
        )
    ).as_json()
    assert (figures["model_ms"], figures["tool_ms"], figures["first_token_ms"]) == (0, 0, None)
    assert figures["turn_ends"] == {"interrupted": 1}


def test_rows_of_an_empty_log() -> None:
    """A log without events has figures, too."""
    shown = dict(rows(Figures(), 0))
    assert (shown["turns"], shown["first token"], shown["stored"], shown["span"]) == (
        "0",
        "–",
        "0 B",
        "–, from – UTC",
    )
