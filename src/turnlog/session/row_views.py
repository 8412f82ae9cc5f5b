"""Typed views of stored rows: just enough of each to check and follow a log without decoding it whole.

Owns one decoder per type. A row that its view does not take is not wrong for that: the caller then checks
it the exact way, so a view may be stricter than the format and never laxer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, Generic, Literal, TypeVar

import msgspec
from msgspec import UNSET, Meta, Raw, Struct, UnsetType

from turnlog.session.facts import NO_FACTS, EventFacts

if TYPE_CHECKING:
    from collections.abc import Mapping

_MAX = 2**53 - 1
_Seq = Annotated[int, Meta(ge=0, le=_MAX)]
_Time = Annotated[int, Meta(ge=-_MAX, le=_MAX)]
_Text = Annotated[str, Meta(min_length=1)]
_Data = TypeVar("_Data")


class ReplaceMarker(Struct, forbid_unknown_fields=True):
    """The surface marker of a replacement."""

    op: Literal["replace"]
    start: _Seq
    end: _Seq

    def as_dict(self) -> dict[str, Any]:
        """Return the marker as it stands in an event."""
        return {"op": self.op, "start": self.start, "end": self.end}


class RowView(Struct, Generic[_Data], forbid_unknown_fields=True):
    """One stored event whose envelope is valid, with a view of its payload."""

    type: str
    seq: _Seq
    time: _Time
    data: _Data
    source_event_seqs: list[_Seq] | UnsetType = msgspec.field(name="sourceEventSeqs", default=UNSET)
    surface_op: Literal["append"] | ReplaceMarker | UnsetType = msgspec.field(name="surfaceOp", default=UNSET)
    ignorable: Literal["never"] | UnsetType = UNSET
    """Flagged rows are rare and take the exact way: no view accepts the flag."""


class _Turn(Struct):
    turn: int


class _Step(Struct):
    turn: int
    step: int


class _Call(Struct):
    turn: int
    step: int
    call_id: str = msgspec.field(name="callId")


class _AnySource(Struct):
    kind: _Text


class _ModelSource(Struct):
    kind: Literal["model"]
    provider: _Text
    model: _Text


class _ToolSource(Struct):
    kind: Literal["tool"]
    call_id: _Text = msgspec.field(name="callId")


class _UserMessage(Struct):
    id: _Text
    role: Literal["user"]
    source: _AnySource
    content: list[Raw]


class _Block(Struct):
    type: str = ""
    id: str | UnsetType = UNSET


class _AssistantMessage(Struct):
    id: _Text
    role: Literal["assistant"]
    source: _ModelSource
    content: list[_Block]


class _Assistant(Struct):
    turn: int
    step: int
    message: _AssistantMessage


class _ResultBlock(Struct):
    type: Literal["tool-result"]
    tool_call_id: str = msgspec.field(name="toolCallId")
    content: list[Raw]


class _ResultMessage(Struct):
    id: _Text
    role: Literal["user"]
    source: _ToolSource
    content: Annotated[list[_ResultBlock], Meta(min_length=1, max_length=1)]


class _Result(Struct):
    turn: int
    step: int
    message: _ResultMessage


def _no_facts(data: Any) -> EventFacts | None:
    return NO_FACTS


def _assistant_facts(data: _Assistant) -> EventFacts | None:
    blocks = (block for block in data.message.content if block.type == "tool-call")
    calls = tuple(block.id for block in blocks if block.id is not UNSET and block.id)
    return EventFacts(data.turn, data.step, requested=calls)


def _result_facts(data: _Result) -> EventFacts | None:
    call_id = data.message.source.call_id
    if data.message.content[0].tool_call_id != call_id:
        return None
    return EventFacts(data.turn, data.step, call_id)


_Facts = Callable[[Any], "EventFacts | None"]
_Decode = Callable[[bytes], "RowView[Any]"]


def _view(data: Any, facts: _Facts) -> tuple[_Decode, _Facts]:
    return msgspec.json.Decoder(RowView[data]).decode, facts


_OTHER = _view(Raw, _no_facts)
_VIEWS: Mapping[str, tuple[_Decode, _Facts]] = {
    "turn/start": _view(_Turn, lambda data: EventFacts(data.turn)),
    "turn/end": _view(_Turn, lambda data: EventFacts(data.turn)),
    "step/start": _view(_Step, lambda data: EventFacts(data.turn, data.step)),
    "step/end": _view(_Step, lambda data: EventFacts(data.turn, data.step)),
    "tool/call": _view(_Call, lambda data: EventFacts(data.turn, data.step, data.call_id or None)),
    "user/message": _view(_UserMessage, _no_facts),
    "assistant/message": _view(_Assistant, _assistant_facts),
    "tool/result": _view(_Result, _result_facts),
}

_NO_VIEW = frozenset({"request/header", "request/header-delta"})
"""Types with rules that no view expresses."""


def view_row(type_: str, seq: int, line: bytes) -> tuple[RowView[Any], EventFacts] | None:
    """View one stored event.

    Args:
        type_: The type that the row is said to have.
        seq: The seq that it is said to have.
        line: Its stored text without the newline.

    Returns:
        The view and the facts of a row whose envelope and shape are certainly valid, or `None` when that
        takes the exact check.
    """
    if type_ in _NO_VIEW:
        return None
    decode, read = _VIEWS.get(type_, _OTHER)
    try:
        row = decode(line)
    except (msgspec.MsgspecError, RecursionError):
        return None
    facts = read(row.data)
    return None if facts is None or (row.type, row.seq) != (type_, seq) else (row, facts)
