"""Packed rows: runs of streamed deltas as one line, and back.

Owns the checks and the decoding of stored rows, and the packing of plain objects. Runs that still grow are
encoded in `live_run`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import accumulate
from operator import sub
from typing import Any

import msgspec

from turnlog.events import lossless
from turnlog.events.deltas import (
    CHUNK_TYPE,
    REASONING_DELTA,
    TEXT_DELTA,
    TOOL_CALL_DELTA,
    Delta,
    delta_of,
)
from turnlog.events.envelope import EventRow, SessionEvent
from turnlog.events.lossless import SAFE_INTEGER, is_count, is_safe_int

MIN_PACKED = 3
"""Shortest run that is written as one row; shorter ones stay verbatim."""

TAG_OF_KIND = {
    TEXT_DELTA: "text-chunks",
    REASONING_DELTA: "reasoning-chunks",
    TOOL_CALL_DELTA: "tool-call-chunks",
}
KIND_OF_TAG = {tag: kind for kind, tag in TAG_OF_KIND.items()}
PACKED_TAGS = frozenset(KIND_OF_TAG)


class MalformedRowError(ValueError):
    """A line that carries the tag of a packed row and is not one; its writer is at fault."""

    def __init__(self, tag: str, reason: str) -> None:
        super().__init__(f"malformed {tag} storage row: {reason}")
        self.tag = tag
        self.reason = reason


Number = int | float


class _TextData(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    turn: Number
    step: Number
    index: Number
    dt: list[int]
    texts: list[str]


class _CallData(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    turn: Number
    step: Number
    index: Number
    dt: list[int]
    id: str
    args: list[str]
    name: str | msgspec.UnsetType = msgspec.UNSET


class _TextRow(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    type: str
    seq0: int
    time0: int
    data: _TextData


class _CallRow(msgspec.Struct, forbid_unknown_fields=True, gc=False):
    type: str
    seq0: int
    time0: int
    data: _CallData


_decode_text_row = msgspec.json.Decoder(_TextRow).decode
_decode_call_row = msgspec.json.Decoder(_CallRow).decode


class RunBody(msgspec.Struct, frozen=True, gc=False):
    """A packed row decoded: everything its events are made of."""

    first_seq: int
    kind: str
    turn: Number
    step: Number
    index: Number
    times: list[int]
    texts: list[str]
    call_id: str | None
    name: str | None

    def event(self, position: int) -> SessionEvent:
        """Return the event at a position of the run, 0-based."""
        delta = Delta(
            self.kind, self.turn, self.step, self.index, self.texts[position], self.call_id, self.name
        )
        return SessionEvent(CHUNK_TYPE, self.first_seq + position, self.times[position], None, delta)


class ChunkRow(msgspec.Struct, frozen=True, gc=False, eq=False):
    """A stored row that packs a run of streamed deltas; the deltas stay encoded."""

    first_seq: int
    """Seq of the first member."""
    count: int
    """Number of members, at least one."""
    kind: str
    """Chunk type of all members: `text-delta`, `reasoning-delta` or `tool-call-delta`."""
    turn: Number
    step: Number
    index: Number
    time0: int
    """Time of the first member, Unix milliseconds."""
    last_time: int
    """Time of the last member, Unix milliseconds."""
    line: bytes
    """The encoded row, without a newline."""

    @property
    def type(self) -> str:
        """Event type of all members."""
        return CHUNK_TYPE

    @property
    def time(self) -> int:
        """Time of the first member, Unix milliseconds."""
        return self.time0

    @property
    def last_seq(self) -> int:
        """Seq of the last member (inclusive)."""
        return self.first_seq + self.count - 1

    @property
    def nbytes(self) -> int:
        """Bytes of the encoded row without its newline."""
        return len(self.line)

    def body(self) -> RunBody:
        """Decode the row's deltas; one decode for all of them."""
        return _decode_body(self.line, TAG_OF_KIND[self.kind])

    def events(self) -> Iterator[SessionEvent]:
        """Yield the row's events in order, decoding the row once."""
        body = self.body()
        for position in range(self.count):
            yield body.event(position)


Row = EventRow | ChunkRow


def parse_row(line: bytes, tag: str) -> ChunkRow:
    """Read and fully check one packed row, keeping only its line and its bounds.

    Args:
        line: The line without its newline, kept byte for byte.
        tag: Its type: `text-chunks`, `reasoning-chunks` or `tool-call-chunks`.

    Returns:
        The row; its deltas are decoded again when they are asked for.

    Raises:
        MalformedRowError: The line has the tag and is not a packed row.
        LosslessDecodeError: The line is not lossless JSON.
    """
    body, total = _checked(line, tag)
    count = len(body.texts)
    return ChunkRow(
        body.first_seq,
        count,
        body.kind,
        body.turn,
        body.step,
        body.index,
        body.times[0],
        body.times[0] + total,
        line,
    )


def _checked(line: bytes, tag: str) -> tuple[RunBody, int]:
    """Decode a row with all checks; of its times only the first, and apart from it the sum of the gaps."""
    _check_zeros(line, b'"args":[' if tag == "tool-call-chunks" else b'"texts":[')
    call_id: str | None = None
    name: str | None = None
    try:
        if tag == "tool-call-chunks":
            call = _decode_call_row(line)
            row_seq, time0, data, texts = call.seq0, call.time0, call.data, call.data.args
            dt, call_id = data.dt, data.id
            name = None if data.name is msgspec.UNSET else data.name
            turn, step, index = data.turn, data.step, data.index
        else:
            row = _decode_text_row(line)
            row_seq, time0, texts, dt = row.seq0, row.time0, row.data.texts, row.data.dt
            turn, step, index = row.data.turn, row.data.step, row.data.index
    except (msgspec.MsgspecError, RecursionError):
        return _checked_exactly(line, tag)
    total = _check_bounds(tag, row_seq, time0, dt, len(texts))
    body = RunBody(row_seq, KIND_OF_TAG[tag], turn, step, index, [time0], texts, call_id, name)
    return body, total


def _check_zeros(line: bytes, texts_key: bytes) -> None:
    """Refuse a negative zero, which a typed decode reads as zero; texts that come last are not searched."""
    end = len(line)
    if line.endswith(b'"]}}') and (start := line.find(b'"dt":[')) >= 0:
        texts = line.find(texts_key, start)
        end = texts if texts >= 0 else end
    if line.find(b"-0", 0, end) >= 0:
        lossless.check_skipped(line)


def _check_bounds(tag: str, seq0: int, time0: int, dt: list[int], count: int) -> int:
    """Check every number of a row and return the sum of its gaps."""
    if not 0 <= seq0 <= SAFE_INTEGER:
        raise MalformedRowError(tag, "seq0 must be a non-negative safe integer")
    if not -SAFE_INTEGER <= time0 <= SAFE_INTEGER:
        raise MalformedRowError(tag, "time0 must be a safe integer")
    if count == 0:
        raise MalformedRowError(tag, "a row has at least one member")
    if len(dt) != count - 1:
        raise MalformedRowError(tag, "dt must have one entry less than there are members")
    if seq0 + count - 1 > SAFE_INTEGER:
        raise MalformedRowError(tag, "the last seq is not a safe integer")
    if not dt:
        return 0
    low, high = min(dt), max(dt)
    if low < -SAFE_INTEGER or high > SAFE_INTEGER:
        raise MalformedRowError(tag, "dt must hold safe integers")
    if abs(time0) + count * max(-low, high) > SAFE_INTEGER:
        times = accumulate(dt, initial=time0)
        if any(not -SAFE_INTEGER <= time <= SAFE_INTEGER for time in times):
            raise MalformedRowError(tag, "a running time is not a safe integer")
    return sum(dt)


def _checked_exactly(line: bytes, tag: str) -> tuple[RunBody, int]:
    """Read what the typed decode refuses: lone surrogates, `1.0` for an integer, and what is really wrong."""
    body = _body_of(lossless.decode(line), tag)
    return body, body.times[-1] - body.times[0]


def _decode_body(line: bytes, tag: str) -> RunBody:
    """Decode a row that was checked before, with the time of every member."""
    try:
        if tag == "tool-call-chunks":
            call = _decode_call_row(line)
            name = None if call.data.name is msgspec.UNSET else call.data.name
            times = list(accumulate(call.data.dt, initial=call.time0))
            data: _TextData | _CallData = call.data
            call_id: str | None = call.data.id
            texts, seq0 = call.data.args, call.seq0
        else:
            row = _decode_text_row(line)
            times = list(accumulate(row.data.dt, initial=row.time0))
            data, texts, seq0 = row.data, row.data.texts, row.seq0
            call_id = name = None
    except (msgspec.MsgspecError, RecursionError):
        return _body_of(lossless.decode(line), tag)
    return RunBody(seq0, KIND_OF_TAG[tag], data.turn, data.step, data.index, times, texts, call_id, name)


def _body_of(record: Any, tag: str) -> RunBody:
    """Check a decoded record and return its content."""
    if type(record) is not dict or set(record) != {"type", "seq0", "time0", "data"} or record["type"] != tag:
        raise MalformedRowError(tag, "its keys must be exactly type, seq0, time0, data")
    data = record["data"]
    is_call = tag == "tool-call-chunks"
    wanted = {"turn", "step", "index", "dt"} | ({"id", "args"} if is_call else {"texts"})
    if type(data) is not dict or set(data) - ({"name"} if is_call else set()) != wanted:
        raise MalformedRowError(tag, "data has other keys than a row of its kind")
    for key in ("turn", "step", "index"):
        if type(data[key]) not in (int, float):
            raise MalformedRowError(tag, f"{key} must be a number")
    texts, dt = data["args" if is_call else "texts"], data["dt"]
    if type(texts) is not list or any(type(text) is not str for text in texts):
        raise MalformedRowError(tag, "the members must be an array of strings")
    if type(dt) is not list or not all(is_safe_int(gap) for gap in dt):
        raise MalformedRowError(tag, "dt must be an array of safe integers")
    for key in ("id", "name"):
        if is_call and key in data and type(data[key]) is not str:
            raise MalformedRowError(tag, f"{key} must be a string")
    if not is_count(record["seq0"]) or not is_safe_int(record["time0"]):
        raise MalformedRowError(tag, "seq0 must be a non-negative safe integer and time0 a safe integer")
    gaps = [int(gap) for gap in dt]
    seq0, time0 = int(record["seq0"]), int(record["time0"])
    _check_bounds(tag, seq0, time0, gaps, len(texts))
    times = list(accumulate(gaps, initial=time0))
    return RunBody(
        seq0,
        KIND_OF_TAG[tag],
        data["turn"],
        data["step"],
        data["index"],
        times,
        texts,
        data.get("id"),
        data.get("name"),
    )


def expand(record: object) -> list[dict[str, Any]]:
    """Turn one stored record into the events it stands for.

    Args:
        record: A packed row as an object; anything else stands for itself, unchecked.

    Returns:
        The events as plain objects with keys in canonical order, or `[record]`.

    Raises:
        MalformedRowError: The record has the tag of a packed row and is not one.
    """
    tag = record.get("type") if isinstance(record, dict) else None
    if not isinstance(tag, str) or tag not in PACKED_TAGS:
        return [record]  # type: ignore[list-item]  # passes through whatever it is
    body = _body_of(record, tag)
    return [body.event(position).to_dict() for position in range(len(body.texts))]


def pack(events: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Turn events into storage records, packing each run of at least three deltas.

    Args:
        events: Plain objects in order; those that cannot be packed pass through unchecked.

    Returns:
        The records of one batch.
    """
    records: list[dict[str, Any]] = []
    members: list[tuple[Any, int, Delta]] = []
    for event in events:
        delta = delta_of(event)
        if members and not _continues(members[-1], event, delta):
            records += _record(members)
            members = []
        if delta is None:
            records.append(event)  # type: ignore[arg-type]  # passes through whatever it is
        else:
            members.append((event, int(event["time"]), delta))
    return records + _record(members)


def _continues(last: tuple[Any, int, Delta], event: Any, delta: Delta | None) -> bool:
    if delta is None:
        return False
    previous, time, earlier = last
    return bool(
        delta.key() == earlier.key()
        and event["seq"] == previous["seq"] + 1
        and abs(event["time"] - time) <= SAFE_INTEGER
    )


def _record(members: list[tuple[Any, int, Delta]]) -> list[dict[str, Any]]:
    if len(members) < MIN_PACKED:
        return [event for event, _, _ in members]
    first, time0, delta = members[0]
    times = [time for _, time, _ in members]
    data: dict[str, Any] = {"turn": delta.turn, "step": delta.step, "index": delta.index}
    data["dt"] = list(map(sub, times[1:], times))
    if delta.kind == TOOL_CALL_DELTA:
        data["id"] = delta.call_id
        if delta.name is not None:
            data["name"] = delta.name
    data["args" if delta.kind == TOOL_CALL_DELTA else "texts"] = [member.text for _, _, member in members]
    return [{"type": TAG_OF_KIND[delta.kind], "seq0": first["seq"], "time0": time0, "data": data}]


def pack_lines(events: Iterable[Mapping[str, Any]]) -> list[bytes]:
    """Turn events into the lines of one batch, without newlines.

    Args:
        events: As for `pack`.

    Raises:
        InvalidEventError: An event is not lossless JSON.
    """
    return [lossless.encode(record) for record in pack(events)]
