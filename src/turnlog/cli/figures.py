"""Figures of one log: turns, steps, times, tokens, bytes.

Owns one fold over events. Turns and steps count at their start, as in every listing; model time runs from
`step/start` to `assistant/message`, first token from there to the first delta that brings something; a call
is paired with its result by id within its turn. Clocks that go back count as no time.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from turnlog.events.envelope import SessionEvent
from turnlog.transcripts.blocks import integer, record, records

_TOKENS = ("inputTokens", "outputTokens", "cacheReadTokens", "cacheWriteTokens", "reasoningTokens")


@dataclass(slots=True)
class Figures:
    """The fold. Feed it a log's events in order; all times are milliseconds."""

    events: int = 0
    chunks: int = 0
    turns: int = 0
    steps: int = 0
    messages: int = 0
    tool_calls: int = 0
    tool_failures: int = 0
    model_ms: int = 0
    tool_ms: int = 0
    first_token_ms: int = 0
    first_token_steps: int = 0
    decode_ms: int = 0
    decode_tokens: int = 0
    first_time: int | None = None
    last_time: int | None = None
    tokens: dict[str, int] = field(default_factory=lambda: dict.fromkeys(_TOKENS, 0))
    ends: dict[str, int] = field(default_factory=dict)
    """How the turns ended, by kind."""

    _step_start: int | None = None
    _first_token: int | None = None
    _pending: dict[str, int] = field(default_factory=dict)

    def feed(self, event: SessionEvent) -> None:
        """Take the next event; data of an unexpected shape is counted as an event and no more."""
        self.events += 1
        if self.first_time is None:
            self.first_time = event.time
        self.last_time = event.time
        data = record(event.data)
        match event.type:
            case "assistant/chunk":
                self._chunk(event.time, record(data.get("chunk")))
            case "turn/start":
                self.turns += 1
            case "step/start":
                self.steps += 1
                self._step_start, self._first_token = event.time, None
            case "step/end":
                self._step_start = self._first_token = None
            case "assistant/message":
                self.messages += 1
                self._answer(event.time, record(data.get("usage")))
            case "user/message":
                self.messages += 1
            case "tool/call":
                self.tool_calls += 1
                self._pending[str(data.get("callId"))] = event.time
            case "tool/result":
                if not isinstance(event.surface_op, dict):
                    self._result(event.time, data)
            case "turn/end":
                self._pending.clear()
                kind = str(record(data.get("reason")).get("kind", "unknown"))
                self.ends[kind] = self.ends.get(kind, 0) + 1

    def _chunk(self, time: int, chunk: dict[str, Any]) -> None:
        self.chunks += 1
        if self._first_token is None and self._step_start is not None and _is_token(chunk):
            self._first_token = time
            self.first_token_ms += max(0, time - self._step_start)
            self.first_token_steps += 1

    def _answer(self, time: int, usage: dict[str, Any]) -> None:
        for name in _TOKENS:
            self.tokens[name] += integer(usage.get(name)) or 0
        if self._step_start is None:
            return
        self.model_ms += max(0, time - self._step_start)
        output = integer(usage.get("outputTokens"))
        if self._first_token is not None and output is not None and output >= 0:
            self.decode_ms += max(0, time - self._first_token)
            self.decode_tokens += output

    def _result(self, time: int, data: dict[str, Any]) -> None:
        for answer in records(record(data.get("message")).get("content"))[:1]:
            started = self._pending.pop(str(answer.get("toolCallId")), None)
            if started is not None:
                # Results of calls that never started are no failures of a tool.
                self.tool_failures += answer.get("isError") is True
                self.tool_ms += max(0, time - started)

    def as_json(self) -> dict[str, Any]:
        """Return the figures for programs; what cannot be said yet is None."""
        return {
            "events": self.events,
            "chunk_events": self.chunks,
            "turns": self.turns,
            "steps": self.steps,
            "messages": self.messages,
            "tool_calls": self.tool_calls,
            "tool_failures": self.tool_failures,
            "model_ms": self.model_ms,
            "tool_ms": self.tool_ms,
            "first_token_ms": _share(self.first_token_ms, self.first_token_steps),
            "tokens_per_second": _share(self.decode_tokens * 1000, self.decode_ms),
            "tokens": {
                "input": self.tokens["inputTokens"],
                "output": self.tokens["outputTokens"],
                "cache_read": self.tokens["cacheReadTokens"],
                "cache_write": self.tokens["cacheWriteTokens"],
                "reasoning": self.tokens["reasoningTokens"],
            },
            "turn_ends": dict(self.ends),
            "first_time": self.first_time,
            "last_time": self.last_time,
        }


def _is_token(chunk: dict[str, Any]) -> bool:
    """Tell whether a chunk brings something of the answer; an empty delta does not."""
    match chunk.get("type"):
        case "text-delta" | "reasoning-delta":
            return bool(chunk.get("text"))
        case "tool-call-delta":
            return bool(chunk.get("argumentsDelta")) or "name" in chunk
    return False


def _share(total: int, parts: int) -> float | None:
    return round(total / parts, 1) if parts else None
