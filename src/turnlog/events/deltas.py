"""Streamed deltas: the chunk events that a packed row can hold.

Owns what makes a chunk packable. Rows and runs of deltas are made elsewhere.
"""

from __future__ import annotations

from typing import Any

import msgspec

from turnlog.events.lossless import is_count, is_safe_int

TEXT_DELTA = "text-delta"
REASONING_DELTA = "reasoning-delta"
TOOL_CALL_DELTA = "tool-call-delta"
CHUNK_TYPE = "assistant/chunk"


class Delta(msgspec.Struct, frozen=True, gc=False):
    """The payload of one streamed delta, the part of a chunk event that a packed row keeps."""

    kind: str
    turn: int | float
    step: int | float
    index: int | float
    text: str
    call_id: str | None = None
    name: str | None = None

    def key(self) -> tuple[Any, ...]:
        """Return what all members of a run have in common."""
        return (self.kind, self.turn, self.step, self.index, self.call_id, self.name)

    def data(self) -> dict[str, Any]:
        """Return the event's data with keys in the order in which packed rows expand."""
        chunk: dict[str, Any] = {"type": self.kind, "index": self.index}
        if self.kind == TOOL_CALL_DELTA:
            chunk["id"] = self.call_id
            if self.name is not None:
                chunk["name"] = self.name
            chunk["argumentsDelta"] = self.text
        else:
            chunk["text"] = self.text
        return {"turn": self.turn, "step": self.step, "chunk": chunk}


_TEXT_KEYS = {"type", "index", "text"}
_CALL_KEYS = {"type", "index", "id", "argumentsDelta"}


def delta_of(event: object) -> Delta | None:
    """Return the delta of an event that may be packed, else None.

    Args:
        event: An event as a plain object, valid or not.
    """
    if type(event) is not dict or len(event) != 4 or event.get("type") != CHUNK_TYPE:
        return None
    if not is_count(event.get("seq")) or not is_safe_int(event.get("time")):
        return None
    return chunk_delta(event.get("data"))


def chunk_delta(data: object) -> Delta | None:
    """Return the delta of a chunk event's data if it has exactly the keys that packing keeps, else None.

    Args:
        data: The data of an `assistant/chunk` event.
    """
    if type(data) is not dict or len(data) != 3:
        return None
    turn: Any = data.get("turn")
    step: Any = data.get("step")
    chunk: Any = data.get("chunk")
    if type(chunk) is not dict or type(turn) not in (int, float) or type(step) not in (int, float):
        return None
    kind: Any = chunk.get("type")
    index: Any = chunk.get("index")
    if type(index) not in (int, float):
        return None
    if kind in (TEXT_DELTA, REASONING_DELTA):
        text = chunk.get("text")
        if chunk.keys() != _TEXT_KEYS or type(text) is not str:
            return None
        return Delta(kind, turn, step, index, text)
    if kind != TOOL_CALL_DELTA or chunk.keys() - {"name"} != _CALL_KEYS:
        return None
    call_id, text, name = chunk["id"], chunk["argumentsDelta"], chunk.get("name")
    if type(call_id) is not str or type(text) is not str or ("name" in chunk and type(name) is not str):
        return None
    return Delta(kind, turn, step, index, text, call_id, name)
