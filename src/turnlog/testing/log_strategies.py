"""Hypothesis strategies for session logs: valid turns, interrupted ones, and every known event type.

Owns the shapes. A log drawn here is well formed in the sense of the live rules (L4) up to the place
where it was cut, contains only types of format version 0, and is made of `SessionEvent` objects.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from turnlog.events.envelope import SessionEvent
from turnlog.testing.json_strategies import MAX_SAFE, json_objects, json_values, texts

Draw = Callable[[st.SearchStrategy[Any]], Any]

SIDE_PAYLOADS: dict[str, dict[str, Any]] = {
    "agent/inbox/spliced": {"target": "next-turn", "start": 0, "inserted": []},
    "agent-preset/selected": {"agentPreset": "minimal"},
    "approval/asked": {"id": "ap-1", "toolName": "shell", "callId": "c-1", "reason": "writes"},
    "approval/decided": {"id": "ap-1", "outcome": "rejected"},
    "approval/policy": {"policy": "never", "source": "delegation"},
    "command/run": {"commandId": "cmd-1", "name": "rename", "args": " x", "source": {"kind": "user"}},
    "command/done": {"commandId": "cmd-1", "kind": "success", "sourceEventSeq": 0},
    "compaction/start": {"compactionId": "k-1", "turn": None},
    "compaction/end": {"compactionId": "k-1", "turn": None},
    "feedback/record": {"text": "Good answer"},
    "goal/change": {
        "kind": "goal/change",
        "version": 1,
        "operation": "clear",
        "cleared": {"id": "g-1", "revision": 1},
        "clearedAt": 1,
    },
    "permission/preset": {"preset": "auto"},
    "plan/mode": {"active": True},
    "sandbox/mode": {"mode": "read-only"},
    "schedule/change": {"version": 1, "operation": "delete", "id": "s-1"},
    "session/title": {"title": "Rename", "messageSeqs": [], "source": {"kind": "user"}},
    "session/title-llm-request": {
        "titleProvider": "first-prompt",
        "messageSeqs": [0],
        "route": {"provider": "acme", "model": "a1"},
        "system": "Name it",
        "messages": [],
        "maxTokens": 64,
    },
    "subagent/descriptor": {"version": 2, "mode": "one-shot", "provider": "default"},
    "team/member": {
        "version": 1,
        "teamId": "t-1",
        "member": {
            "id": "x",
            "name": "x",
            "description": "d",
            "provider": "p",
            "context": "fresh",
            "phase": "active",
        },
    },
    "team/task": {
        "version": 1,
        "teamId": "t-1",
        "task": {
            "id": "k",
            "revision": 1,
            "subject": "s",
            "description": "d",
            "status": "pending",
            "blockedBy": [],
            "writeScopes": [],
        },
    },
    "team/message/queued": {
        "version": 1,
        "teamId": "t-1",
        "message": {
            "id": "tm-1",
            "senderId": "a",
            "senderName": "A",
            "targetId": "b",
            "delivery": "quiet",
            "content": "hi",
        },
    },
    "team/message/delivered": {"version": 1, "teamId": "t-1", "messageId": "tm-1", "targetId": "b"},
    "tool-workflow/run-start": {"runId": "w-1", "name": "review"},
    "tool-workflow/agent-start": {"runId": "w-1", "seq": 1, "label": "a", "childId": "s-2"},
    "tool-workflow/agent-end": {"runId": "w-1", "seq": 1, "outcome": "completed"},
    "tool-workflow/run-end": {"runId": "w-1", "stopReason": "completed"},
    "web/deepseek-search-llm-request": {
        "endpoint": "https://example.invalid/v1/messages",
        "apiVersion": "2023-06-01",
        "body": {"model": "m", "max_tokens": 8, "messages": [], "tools": []},
    },
}
"""One payload for each type that may stand anywhere and is bound to no turn."""

TURN_PAYLOADS: dict[str, dict[str, Any]] = {
    "todo/write": {"todos": [{"content": "Add a test", "status": "in_progress"}]},
    "request/header": {"header": {"config": {"provider": "acme", "model": "a1"}}, "reason": "initial"},
    "request/context": {"provider": "acme", "model": "a1", "contextWindow": 128000},
}
"""Types that need an open turn but do not name it."""


class _Writer:
    """Builds one log; keeps what later events must refer to."""

    def __init__(self, draw: Draw) -> None:
        self.draw = draw
        self.events: list[dict[str, Any]] = []
        self.turn = 0
        self.step = 0
        self.time = draw(st.integers(0, 2**42))
        self.users: list[int] = []
        self.nodes: list[int] = []
        self.last_chunks: list[int] = []

    def add(self, type: str, data: Any, **envelope: Any) -> int:
        self.time = min(max(self.time + self.draw(st.integers(-50, 5000)), 0), MAX_SAFE)
        seq = len(self.events)
        self.events.append({"type": type, "seq": seq, "time": self.time, "data": data, **envelope})
        return seq

    def side(self) -> None:
        """Add events that are bound to no turn."""
        for name in self.draw(st.lists(st.sampled_from(sorted(SIDE_PAYLOADS)), max_size=2)):
            self.add(name, SIDE_PAYLOADS[name])

    def user(self) -> None:
        source = self.draw(
            st.sampled_from([{"kind": "user"}, {"kind": "plugin", "plugin": "p", "form": "recall"}])
        )
        content = [{"type": "text", "text": self.draw(texts())}]
        message = {"content": content, "source": source, "role": "user", "id": f"u-{len(self.events)}"}
        self.nodes.append(self.add("user/message", message, surfaceOp="append"))

    def replace_one(self) -> None:
        """Shadow one surface node that is a user message by another one."""
        candidates = [n for n in self.nodes if self.events[n]["type"] == "user/message"]
        if not candidates:
            return
        old = self.draw(st.sampled_from(candidates))
        message = {
            "content": [{"type": "text", "text": "short"}],
            "source": {"kind": "plugin", "plugin": "compact"},
            "role": "user",
            "id": f"u-{len(self.events)}",
        }
        op = {"op": "replace", "start": old, "end": old}
        new = self.add("user/message", message, sourceEventSeqs=[old], surfaceOp=op)
        self.nodes[self.nodes.index(old)] = new

    def chunks(self) -> None:
        """Add a stream of one answer: deltas of one or two kinds, with or without their brackets."""
        place = {"turn": self.turn, "step": self.step}
        first = len(self.events)
        for index, kind in enumerate(self.draw(st.lists(st.sampled_from(["text", "reasoning"]), max_size=2))):
            if self.draw(st.booleans()):
                chunk: dict[str, Any] = {"type": "block-start", "index": index, "blockType": kind}
                self.add("assistant/chunk", {**place, "chunk": chunk})
            for text in self.draw(st.lists(texts(6), max_size=6)):
                chunk = {"type": f"{kind}-delta", "index": index, "text": text}
                self.add("assistant/chunk", {**place, "chunk": chunk})
        if self.draw(st.booleans()):
            name = self.draw(st.sampled_from([{}, {"name": "read"}]))
            for part in self.draw(st.lists(texts(4), max_size=5)):
                chunk = {"type": "tool-call-delta", "index": 2, "id": "c", **name, "argumentsDelta": part}
                self.add("assistant/chunk", {**place, "chunk": chunk})
        if self.draw(st.booleans()):
            finish = {"type": "finish", "reason": {"kind": "stop"}}
            self.add("assistant/chunk", {**place, "chunk": finish})
        self.last_chunks = list(range(first, len(self.events)))

    def assistant(self, calls: list[str]) -> None:
        content: list[dict[str, Any]] = [{"type": "text", "text": self.draw(texts())}]
        content += [{"type": "tool-call", "id": c, "name": "shell", "arguments": "{"} for c in calls]
        message = {
            "role": "assistant",
            "content": content,
            "source": {"kind": "model", "provider": "acme", "model": "a1"},
            "id": f"a-{len(self.events)}",
        }
        data = {"turn": self.turn, "step": self.step, "message": message}
        if self.draw(st.booleans()):
            data["usage"] = {"inputTokens": 12, "outputTokens": 4}
        envelope: dict[str, Any] = {"sourceEventSeqs": self.last_chunks} if self.draw(st.booleans()) else {}
        self.nodes.append(self.add("assistant/message", data, **envelope, surfaceOp="append"))

    def tool(self, call_id: str) -> None:
        data: dict[str, Any] = {"turn": self.turn, "step": self.step, "callId": call_id}
        call = self.add("tool/call", {**data, "name": "shell", "arguments": self.draw(texts())})
        block = {
            "type": "tool-result",
            "toolCallId": call_id,
            "content": [{"type": "text", "text": self.draw(texts())}],
            "isError": self.draw(st.booleans()),
        }
        message = {
            "source": {"kind": "tool", "callId": call_id},
            "content": [block],
            "role": "user",
            "id": f"t-{len(self.events)}",
        }
        result: dict[str, Any] = {"turn": self.turn, "step": self.step, "message": message}
        if self.draw(st.booleans()):
            result["meta"] = self.draw(json_values(4))
        self.nodes.append(self.add("tool/result", result, sourceEventSeqs=[call], surfaceOp="append"))

    def one_step(self) -> None:
        self.step += 1
        place = {"turn": self.turn, "step": self.step}
        self.add("step/start", dict(place))
        for _ in range(self.draw(st.integers(0, 2))):
            self.user()
        for name in self.draw(st.lists(st.sampled_from(sorted(TURN_PAYLOADS)), max_size=1)):
            self.add(name, TURN_PAYLOADS[name])
        self.chunks()
        calls = [f"c-{len(self.events)}-{n}" for n in range(self.draw(st.integers(0, 2)))]
        self.assistant(calls)
        for call_id in calls:
            self.tool(call_id)
        self.add("step/end", dict(place))

    def one_turn(self) -> None:
        self.turn += 1
        self.step = 0
        self.add("turn/start", {"turn": self.turn})
        for _ in range(self.draw(st.integers(0, 2))):
            self.one_step()
        if self.draw(st.integers(0, 3)) == 0:
            self.replace_one()
        reason = self.draw(
            st.sampled_from(
                [
                    {"kind": "completed"},
                    {"kind": "max-tokens"},
                    {"kind": "aborted", "reason": {"kind": "user"}},
                ]
            )
        )
        self.add("turn/end", {"turn": self.turn, "reason": reason})


@st.composite
def whole_logs(draw: Draw, *, max_turns: int = 3, min_turns: int = 0) -> list[SessionEvent]:
    """Draw a log in which every turn is closed and every tool call is answered.

    Args:
        draw: Given by Hypothesis.
        max_turns: Most turns.
        min_turns: Fewest turns.

    Returns:
        The events, seq dense from 0.
    """
    writer = _Writer(draw)
    writer.side()
    for _ in range(draw(st.integers(min_turns, max_turns))):
        writer.one_turn()
        writer.side()
    return [SessionEvent.from_dict(event) for event in writer.events]


@st.composite
def interrupted_logs(draw: Draw, *, max_turns: int = 2) -> list[SessionEvent]:
    """Draw a log that stops anywhere, as one that a crash left behind; not empty.

    Args:
        draw: Given by Hypothesis.
        max_turns: Most turns.

    Returns:
        The events, seq dense from 0.
    """
    events: list[SessionEvent] = draw(whole_logs(max_turns=max_turns, min_turns=1))
    return events[: draw(st.integers(1, len(events)))]


def session_logs(*, max_turns: int = 3) -> st.SearchStrategy[list[SessionEvent]]:
    """Draw whole and interrupted logs.

    Args:
        max_turns: Most turns.

    Returns:
        A strategy.
    """
    return st.one_of(whole_logs(max_turns=max_turns), interrupted_logs(max_turns=max_turns))


@st.composite
def free_events(draw: Draw, *, first_seq: int = 0, max_size: int = 8) -> list[SessionEvent]:
    """Draw contiguous events of turn-free types whose payloads are any lossless JSON object.

    Args:
        draw: Given by Hypothesis.
        first_seq: Seq of the first event.
        max_size: Most events.

    Returns:
        The events.
    """
    kinds = draw(st.lists(st.sampled_from(sorted(SIDE_PAYLOADS)), min_size=1, max_size=max_size))
    events = []
    for offset, kind in enumerate(kinds):
        raw = {
            "type": kind,
            "seq": first_seq + offset,
            "time": draw(st.integers(-MAX_SAFE, MAX_SAFE)),
            "data": draw(json_objects()),
        }
        events.append(SessionEvent.from_dict(raw))
    return events


@st.composite
def bursts(draw: Draw, *, max_size: int = 20) -> list[dict[str, Any]]:
    """Draw the chunks of one burst of streaming, as payloads of `append_chunk`.

    Args:
        draw: Given by Hypothesis.
        max_size: Most chunks.

    Returns:
        Chunk dictionaries.
    """
    kind = draw(st.sampled_from(["text-delta", "reasoning-delta"]))
    index = draw(st.integers(0, 3))
    parts = draw(st.lists(texts(5), min_size=1, max_size=max_size))
    return [{"type": kind, "index": index, "text": part} for part in parts]
