"""Messages and whole conversations for the tests of the session package."""

from __future__ import annotations

from typing import Any

from turnlog.session.session import Session

HEADER: dict[str, Any] = {"version": 0, "id": "s", "createdAt": 0}


def text(value: str) -> dict[str, Any]:
    """Return a text block."""
    return {"type": "text", "text": value}


def call(call_id: str, name: str = "read") -> dict[str, Any]:
    """Return a tool-call block."""
    return {"type": "tool-call", "id": call_id, "name": name, "arguments": "{}"}


def user(message_id: str = "u", *content: Any) -> dict[str, Any]:
    """Return the payload of a `user/message`."""
    blocks = list(content) or [text("hi")]
    return {"id": message_id, "role": "user", "source": {"kind": "user"}, "content": blocks}


def answer(message_id: str = "a", *content: Any, turn: int = 1, step: int = 1) -> dict[str, Any]:
    """Return the payload of an `assistant/message`."""
    message = {
        "id": message_id,
        "role": "assistant",
        "source": {"kind": "model", "provider": "acme", "model": "a1"},
        "content": list(content),
    }
    return {"turn": turn, "step": step, "message": message}


def result(call_id: str, *content: Any, turn: int = 1, step: int = 1, **more: Any) -> dict[str, Any]:
    """Return the payload of a `tool/result`; `block` in `more` changes its block."""
    block = {"type": "tool-result", "toolCallId": call_id, "content": list(content), **more.pop("block", {})}
    message = {
        "id": f"r-{call_id}",
        "role": "user",
        "source": {"kind": "tool", "callId": call_id},
        "content": [block],
    }
    return {"turn": turn, "step": step, "message": message, **more}


def excuse(call_id: str, *, turn: int = 1, step: int = 1) -> dict[str, Any]:
    """Return the payload of a result that says its call never started."""
    error = {"name": "ToolNotStartedError", "code": "TOOL_NOT_STARTED"}
    return result(call_id, turn=turn, step=step, error=error, block={"isError": True})


def tool_call(call_id: str, *, turn: int = 1, step: int = 1) -> dict[str, Any]:
    """Return the payload of a `tool/call`."""
    return {"turn": turn, "step": step, "callId": call_id, "name": "read", "arguments": "{}"}


def delta(value: str = "x", index: int = 0) -> dict[str, Any]:
    """Return a text delta."""
    return {"type": "text-delta", "index": index, "text": value}


def request_header(model: str = "a1", **more: Any) -> dict[str, Any]:
    """Return the payload of a `request/header`."""
    return {"header": {"config": {"provider": "acme", "model": model}, **more}, "reason": "initial"}


def replace(start: int, end: int | None = None) -> dict[str, Any]:
    """Return the marker of a replacement; of one node without `end`."""
    return {"op": "replace", "start": start, "end": start if end is None else end}


def ticking(start: int = 1000, by: int = 7) -> Any:
    """Return a clock that goes on by the same step on each reading."""
    times = iter(range(start, start + by * 100_000, by))
    return lambda: next(times)


def fresh(**options: Any) -> Session:
    """Return an empty session with a ticking clock."""
    options.setdefault("clock", ticking())
    return Session.create("s", **options)


def in_step(turn: int = 1, **options: Any) -> Session:
    """Return a session with an open step."""
    session = fresh(**options)
    session.append("turn/start", {"turn": turn})
    session.append("step/start", {"turn": turn, "step": 1})
    return session


def conversation() -> Session:
    """Return a finished turn with a call, its result, chunks and answers; then a message between turns."""
    session = fresh()
    session.append("turn/start", {"turn": 1})
    session.append("user/message", user("u-1"), surface_op="append")
    session.append("step/start", {"turn": 1, "step": 1})
    session.append("request/header", request_header())
    session.append("request/context", {"provider": "acme", "model": "a1", "contextWindow": 9})
    for word in ("Let", " me", " look", " it up"):
        session.append_chunk(1, 1, delta(word))
    session.append(
        "assistant/message",
        answer("a-1", text("Let me look it up"), call("c-1")),
        surface_op="append",
        source_event_seqs=[5, 6, 7, 8],
    )
    recorded = session.append("tool/call", tool_call("c-1"))
    session.append(
        "tool/result", result("c-1", text("42")), surface_op="append", source_event_seqs=[recorded.seq]
    )
    session.append("step/end", {"turn": 1, "step": 1})
    session.append("step/start", {"turn": 1, "step": 2})
    session.append("assistant/message", answer("a-2", text("It is 42."), step=2), surface_op="append")
    session.append("step/end", {"turn": 1, "step": 2})
    session.append("turn/end", {"turn": 1, "reason": {"kind": "completed"}})
    session.append("user/message", user("u-2", text("thanks")), surface_op="append")
    return session
