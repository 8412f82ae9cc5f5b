"""`LogScript`: well-formed session logs written down in a few words, for suites, strategies and examples.

Owns nothing but the shapes of ordinary events. Times are counted, not read, so that two scripts built
by the same calls are equal.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from turnlog.events.envelope import SessionEvent
from turnlog.events.header import SessionHeader
from turnlog.session.registry import SessionRegistry
from turnlog.session.session import Session

EPOCH_MS = 1_700_000_000_000
"""Time of the first event of a script, in milliseconds since the epoch."""


def header(session_id: str, *, cwd: str | None = "/srv/app", **fields: Any) -> SessionHeader:
    """Make a header with a fixed creation time.

    Args:
        session_id: The id.
        cwd: Absolute working directory, or None.
        fields: Further fields of `SessionHeader`.

    Returns:
        The header.
    """
    return SessionHeader(id=session_id, created_at=EPOCH_MS, cwd=cwd, **fields)


class LogScript:
    """Builds one valid log step by step; every method returns the script.

    Args:
        first_seq: Seq of the first event.
        prefix: Put in front of message ids, so that two parts of one log differ.

    Attributes:
        events: The events so far.
    """

    def __init__(self, first_seq: int = 0, *, prefix: str = "m", turn: int = 0, step: int = 0) -> None:
        self.events: list[SessionEvent] = []
        self._first = first_seq
        self._prefix = prefix
        self._turn = turn
        self._step = step

    def add(self, type: str, data: Any, **envelope: Any) -> LogScript:
        """Add any event.

        Args:
            type: The event type.
            data: Its payload.
            envelope: Further envelope keys by their wire names, such as ``surfaceOp``.
        """
        seq = self._first + len(self.events)
        raw = {"type": type, "seq": seq, "time": EPOCH_MS + seq, "data": data, **envelope}
        self.events.append(SessionEvent.from_dict(raw))
        return self

    def start(self) -> LogScript:
        """Open the next turn."""
        self._turn += 1
        self._step = 0
        return self.add("turn/start", {"turn": self._turn})

    def end(self, kind: str = "completed") -> LogScript:
        """Close the turn with a reason that has no further fields."""
        return self.add("turn/end", {"turn": self._turn, "reason": {"kind": kind}})

    def step(self) -> LogScript:
        """Open the next step of the turn."""
        self._step += 1
        return self.add("step/start", self._place())

    def end_step(self) -> LogScript:
        """Close the step."""
        return self.add("step/end", self._place())

    def user(self, text: str = "Which tests fail?") -> LogScript:
        """Add a prompt."""
        message = {
            "content": [{"type": "text", "text": text}],
            "source": {"kind": "user"},
            "role": "user",
            "id": self._id(),
        }
        return self.add("user/message", message, surfaceOp="append")

    def chunks(self, *texts: str, index: int = 0) -> LogScript:
        """Add one text delta per text."""
        for text in texts:
            chunk = {"type": "text-delta", "index": index, "text": text}
            self.add("assistant/chunk", {**self._place(), "chunk": chunk})
        return self

    def assistant(self, text: str = "Let me look.", *, calls: Sequence[str] = ()) -> LogScript:
        """Add an answer that asks for the tool calls with the ids `calls`."""
        content: list[dict[str, Any]] = [{"type": "text", "text": text}] if text else []
        content += [{"type": "tool-call", "id": c, "name": "shell", "arguments": "{}"} for c in calls]
        message = {
            "role": "assistant",
            "content": content,
            "source": {"kind": "model", "provider": "acme", "model": "a1"},
            "id": self._id(),
        }
        return self.add("assistant/message", {**self._place(), "message": message}, surfaceOp="append")

    def call(self, call_id: str) -> LogScript:
        """Record that a tool call was started."""
        data = {**self._place(), "callId": call_id, "name": "shell", "arguments": "{}"}
        return self.add("tool/call", data)

    def result(self, call_id: str, text: str = "ok") -> LogScript:
        """Answer a tool call."""
        message = {
            "source": {"kind": "tool", "callId": call_id},
            "content": [
                {
                    "type": "tool-result",
                    "toolCallId": call_id,
                    "content": [{"type": "text", "text": text}],
                    "isError": False,
                }
            ],
            "role": "user",
            "id": self._id(),
        }
        return self.add("tool/result", {**self._place(), "message": message}, surfaceOp="append")

    def turn(self, text: str = "Which tests fail?", *, calls: Sequence[str] = ()) -> LogScript:
        """Add one whole completed turn with an answered call per id in `calls`."""
        self.start().step().user(text).chunks("Let ", "me ", "look.").assistant(calls=calls)
        for call_id in calls:
            self.call(call_id).result(call_id)
        return self.end_step().end()

    def _place(self) -> dict[str, int]:
        return {"turn": self._turn, "step": self._step}

    def _id(self) -> str:
        return f"{self._prefix}-{self._first + len(self.events)}"


def dicts(events: Iterable[SessionEvent]) -> list[dict[str, Any]]:
    """Return events as plain dictionaries, for comparing and for `plant`.

    Args:
        events: Any events.

    Returns:
        A fresh list.
    """
    return [event.to_dict() for event in events]


def append_live(session: Session, events: Sequence[SessionEvent]) -> None:
    """Append the payloads of scripted events to a live session; it gives them its own seq and time.

    Args:
        session: A live `Session`.
        events: What to append, in order.
    """
    for event in events:
        options: dict[str, Any] = {}
        if event.surface_op is not None:
            options["surface_op"] = event.surface_op
        if event.source_event_seqs is not None:
            options["source_event_seqs"] = event.source_event_seqs
        session.append(event.type, event.data, **options)


def types(events: Sequence[SessionEvent] | Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the type of each event.

    Args:
        events: Events or their dictionaries.

    Returns:
        The types in order.
    """
    return [e.type if isinstance(e, SessionEvent) else str(e["type"]) for e in events]


def go_live(
    registry: SessionRegistry[Session], session_id: str, *, cwd: str | None = "/srv/app", **options: Any
) -> Session:
    """Create and announce a live session with a fixed header.

    Args:
        registry: Where it becomes live.
        session_id: Its id.
        cwd: Its working directory, or None.
        options: Handed to `SessionRegistry.create`.

    Returns:
        The session.
    """
    return registry.create(session_id, header=header(session_id, cwd=cwd), **options)
