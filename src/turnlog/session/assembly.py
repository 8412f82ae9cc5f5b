"""Streamed chunks joined into content blocks: the answer of a finished stream, what is left of a broken one.

Owns the joining rules only; whether a stream follows its grammar is the model adapter's part, and chunks
that are none are passed over.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from turnlog.errors import UsageError


@dataclass(slots=True)
class AssembledAnswer:
    """What a finished stream amounts to."""

    content: list[dict[str, Any]]
    """Content blocks by first-seen index."""
    finish: dict[str, Any]
    """The finish reason; `{"kind": "stop"}` when the stream named none."""
    usage: dict[str, Any] | None = None
    """Token usage, if the stream reported it."""
    replay_state: dict[str, Any] | None = None
    """Opaque provider state that still matches the blocks."""


@dataclass(slots=True)
class _Block:
    """One block while its deltas arrive."""

    kind: str
    parts: list[str] = field(default_factory=list)
    call_id: str | None = None
    name: str = ""
    closed: dict[str, Any] | None = None

    def finished(self, index: int) -> dict[str, Any]:
        if self.closed is not None:
            return self.closed
        text = "".join(self.parts)
        if self.kind in ("text", "reasoning"):
            return {"type": self.kind, "text": text}
        if self.kind == "tool-call":
            call_id = self.call_id or f"call-{index}"
            return {"type": "tool-call", "id": call_id, "name": self.name, "arguments": text}
        raise UsageError(f"block {index} of type {self.kind!r} was not closed, so it cannot be assembled")


def assemble_answer(chunks: Iterable[Mapping[str, Any]]) -> AssembledAnswer:
    """Join the chunks of a finished stream.

    Deltas alone are enough; a `block-end` is authoritative and the first one wins. A `max-tokens` finish
    drops every tool call, since its arguments may be cut, and the replay entries that belong to them.

    Args:
        chunks: Stream chunks in order.

    Returns:
        Blocks, finish reason, usage and replay state.

    Raises:
        UsageError: A block of a type that deltas cannot make was never closed.
    """
    blocks, finish, usage = _collect(chunks)
    content = [block.finished(index) for index, block in blocks.items()]
    reason = {"kind": "stop"} if finish is None else dict(finish.get("reason", {"kind": "stop"}))
    replay = None if finish is None else finish.get("replayState")
    replay = dict(replay) if isinstance(replay, Mapping) else None
    entries = None if replay is None else replay.get("blocks")
    if isinstance(entries, list) and len(entries) != len(content):
        replay = None
    if reason.get("kind") == "max-tokens":
        kept = [place for place, block in enumerate(content) if block.get("type") != "tool-call"]
        content = [content[place] for place in kept]
        if replay is not None and isinstance(entries, list):
            replay["blocks"] = [entries[place] for place in kept]
    return AssembledAnswer(content, reason, usage, replay)


def assemble_interrupted(chunks: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Join what is left of a stream that broke off.

    Args:
        chunks: Stream chunks in order, as far as they came.

    Returns:
        The text and reasoning blocks with non-blank text, by first-seen index; tool calls are dropped,
        since nothing says that their arguments are whole.
    """
    blocks, _, _ = _collect(chunks)
    content = [
        block.finished(index)
        for index, block in blocks.items()
        if (block.closed or {"type": block.kind}).get("type") in ("text", "reasoning")
    ]
    return [block for block in content if isinstance(text := block.get("text"), str) and text.strip()]


def _collect(
    chunks: Iterable[Mapping[str, Any]],
) -> tuple[dict[int, _Block], Mapping[str, Any] | None, dict[str, Any] | None]:
    """Sort chunks by block; return the blocks by first-seen index, the finish chunk and the usage."""
    blocks: dict[int, _Block] = {}
    finish: Mapping[str, Any] | None = None
    usage: dict[str, Any] | None = None
    for chunk in chunks:
        kind, index = chunk.get("type"), chunk.get("index")
        if kind == "finish":
            finish = chunk
        elif kind == "usage":
            usage = chunk.get("usage")
        elif isinstance(index, int):
            _take_block_chunk(blocks, kind, index, chunk)
    return blocks, finish, usage


def _take_block_chunk(blocks: dict[int, _Block], kind: object, index: int, chunk: Mapping[str, Any]) -> None:
    if kind in ("text-delta", "reasoning-delta"):
        _take_delta(blocks, index, str(kind).removesuffix("-delta"), chunk.get("text"), chunk)
    elif kind == "tool-call-delta":
        _take_delta(blocks, index, "tool-call", chunk.get("argumentsDelta"), chunk)
    elif kind == "block-start":
        blocks.setdefault(index, _Block(str(chunk.get("blockType"))))
    elif kind == "block-end" and isinstance(closed := chunk.get("block"), Mapping):
        block = blocks.setdefault(index, _Block(str(closed.get("type"))))
        block.closed = block.closed or dict(closed)


def _take_delta(
    blocks: dict[int, _Block], index: int, kind: str, text: object, chunk: Mapping[str, Any]
) -> None:
    block = blocks.setdefault(index, _Block(kind))
    if block.closed is not None or not isinstance(text, str):
        return
    block.parts.append(text)
    block.call_id = block.call_id or chunk.get("id")
    block.name = chunk.get("name") or block.name
