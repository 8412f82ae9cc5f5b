"""The event: its envelope, the checks at the door, and the lazy object that readers get.

Owns `SessionEvent` and the rows that are one event. What is right is decided in `shapes`; the order of
events and the surface belong to the session.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Raw

from turnlog.errors import InvalidEventError
from turnlog.events import ecmascript, lossless, payloads, vocabulary
from turnlog.events.deltas import CHUNK_TYPE as CHUNK_TYPE
from turnlog.events.deltas import Delta as Delta
from turnlog.events.ecmascript import MAX_DEPTH
from turnlog.events.lossless import SAFE_INTEGER, LosslessDecodeError
from turnlog.events.lossless import is_count as is_count
from turnlog.events.lossless import is_safe_int as is_safe_int
from turnlog.events.shapes import check_counts, expand_sources, type_of
from turnlog.events.shapes import check_envelope as check_envelope
from turnlog.events.shapes import check_shape as check_shape


class SessionEvent(msgspec.Struct, frozen=True, eq=False, weakref=True):
    """One event of a log, immutable, decoded only as far as it is asked.

    Made by `from_dict`, `from_line` or `build`, never by the constructor. Equality and hash follow the JSON
    value, not the order of keys. `data` and `to_dict` give fresh objects on each access, so that no reader
    can change what another one sees; keep them in a variable.
    """

    type: str
    """`namespace/name`."""
    seq: int
    """Position in the log, 0-based."""
    time: int
    """Unix milliseconds."""
    _line: bytes | None = None
    _delta: Delta | None = None

    @classmethod
    def build(
        cls,
        type: str,
        seq: int,
        time: int,
        data: object,
        *,
        source_event_seqs: object = None,
        surface_op: object = None,
        ignorable: bool = False,
    ) -> SessionEvent:
        """Check and encode a new event; this is the only encoding it ever gets (L2).

        Args:
            type: Event type.
            seq: Position, a non-negative safe integer.
            time: Unix milliseconds, a safe integer.
            data: The payload, any lossless JSON.
            source_event_seqs: Sequence of earlier seqs, or None to leave the key out.
            surface_op: `"append"`, a replace object, or None to leave the key out.
            ignorable: Whether readers that do not know the type may skip the event.

        Returns:
            The event, independent of the objects given.

        Raises:
            InvalidEventError: Not lossless JSON, or the envelope is wrong. The caller is at fault.
        """
        try:
            encoded = lossless.encode(data)
        except InvalidEventError as error:
            raise InvalidEventError(field=f"data{error.field[1:]}", reason=error.reason, type=type) from None
        if lossless.exceeds_depth(encoded, MAX_DEPTH - 1):
            # The envelope is one level more, and the whole line is what a load counts.
            reason = f"is nested deeper than {MAX_DEPTH - 1} levels inside its event"
            raise InvalidEventError(field="data", reason=reason, type=type)
        line = b'{"type":%s,"seq":%d,"time":%d,"data":%s' % (lossless.encode_string(type), seq, time, encoded)
        if source_event_seqs is not None:
            sources = list(source_event_seqs) if isinstance(source_event_seqs, tuple) else source_event_seqs
            line += b',"sourceEventSeqs":' + lossless.encode(sources)
        if surface_op is not None:
            line += b',"surfaceOp":' + lossless.encode(surface_op)
        line += b',"ignorable":true}' if ignorable else b"}"
        check_counts(seq, time, None)
        return cls(type, seq, time, line)

    @classmethod
    def from_dict(cls, event: Mapping[str, Any], index: int | None = None) -> SessionEvent:
        """Make an event of a plain object, keeping the order of its keys.

        Args:
            event: The envelope with its data.
            index: Position in the caller's list, for the message.

        Returns:
            The event, independent of `event`.

        Raises:
            InvalidEventError: Not lossless JSON, or the envelope is wrong. The caller is at fault.
        """
        plain = event if type(event) is dict else dict(event)
        try:
            line = lossless.encode(plain)
        except InvalidEventError as error:
            raise InvalidEventError(
                field=error.field, reason=error.reason, index=index, type=type_of(plain)
            ) from None
        check_envelope(plain, index)
        return cls(plain["type"], int(plain["seq"]), int(plain["time"]), line)

    @classmethod
    def from_line(cls, line: bytes) -> SessionEvent:
        """Make an event of one stored line.

        Args:
            line: UTF-8 JSON text of the envelope, kept byte for byte.

        Raises:
            InvalidEventError: The text is not lossless JSON or not an event. Its writer is at fault.
        """
        try:
            return parse_event_row(line).event()
        except LosslessDecodeError as error:
            raise InvalidEventError(field="$", reason=f"is not JSON: {error}") from None

    @property
    def line(self) -> bytes:
        """The encoded event without a newline, byte for byte as stored."""
        if self._line is not None:
            return self._line
        assert self._delta is not None  # one of the two is always given
        head = b'{"type":"assistant/chunk","seq":%d,"time":%d,"data":' % (self.seq, self.time)
        return head + lossless.encode(self._delta.data()) + b"}"

    @property
    def delta(self) -> Delta | None:
        """The streamed delta if the event came out of a packed run, else None."""
        return self._delta

    @property
    def data(self) -> Any:
        """The payload, decoded afresh on each access."""
        if self._delta is not None:
            return self._delta.data()
        return lossless.decode(self.line)["data"]

    def _optional(self, key: str) -> Any:
        """Return an optional envelope value, None when absent; a null one is refused at the door."""
        line = self._line
        if line is None or (f'"{key}"'.encode() not in line and b"\\u" not in line):
            return None
        return lossless.decode(line).get(key)

    @property
    def source_event_seqs(self) -> tuple[int, ...] | None:
        """Seqs of the events this one was made from, `[first, last]` pairs expanded; None when absent.

        Raises:
            InvalidEventError: The stored value is not a list of seqs. The writer is at fault.
        """
        stored = self._optional("sourceEventSeqs")
        return None if stored is None else expand_sources(stored, self.seq)

    @property
    def surface_op(self) -> Any:
        """`"append"`, the replace object, or None when absent; whatever was stored, unchecked."""
        return self._optional("surfaceOp")

    @property
    def ignorable(self) -> bool:
        """Whether a reader that does not know the type may skip the event."""
        return self._optional("ignorable") is True

    def to_dict(self) -> dict[str, Any]:
        """Return the whole event as a fresh plain object with its keys in stored order."""
        if self._delta is not None:
            return {"type": self.type, "seq": self.seq, "time": self.time, "data": self._delta.data()}
        decoded: dict[str, Any] = lossless.decode(self.line)
        return decoded

    def view(self) -> msgspec.Struct | None:
        """Return the payload as a typed struct, or None when there is none for it.

        A view is for reading; it never decides what is valid. None is given for an unknown type and for data
        that does not have the type's shape.
        """
        payload = payloads.PAYLOADS.get(self.type) or vocabulary.registered_payload(self.type)
        if payload is None:
            return None
        return _converted(self.data, payload)

    def canonical(self) -> str:
        """Return the canonical text of the whole event, equal exactly for equal events."""
        return ecmascript.canonical(self.to_dict())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SessionEvent):
            return NotImplemented
        if self.seq != other.seq or self.type != other.type or self.time != other.time:
            return False
        if self._delta is not None and other._delta is not None:
            return self._delta == other._delta
        return self.line == other.line or self.canonical() == other.canonical()

    def __ne__(self, other: object) -> bool:
        # A Struct answers `!=` by identity; Python derives it from `__eq__` only for plain objects.
        equal = self.__eq__(other)
        return equal if equal is NotImplemented else not equal

    def __hash__(self) -> int:
        return hash((self.type, self.seq, self.time))

    def __repr__(self) -> str:
        return f"SessionEvent(type={self.type!r}, seq={self.seq}, time={self.time})"

    def __reduce__(self) -> tuple[Any, ...]:
        return (SessionEvent.from_line, (self.line,))


def _converted(data: Any, payload: Any) -> msgspec.Struct | None:
    try:
        converted: msgspec.Struct = msgspec.convert(data, payload)
    except msgspec.ValidationError:
        return None
    except UnicodeEncodeError:  # an unknown key with a lone surrogate: msgspec cannot even ignore it
        known = {key: value for key, value in data.items() if key.isascii()} if type(data) is dict else data
        return None if len(known) == len(data) else _converted(known, payload)
    return converted


def as_event(event: SessionEvent | Mapping[str, Any], index: int | None = None) -> SessionEvent:
    """Return an event for an event or a plain object, so that functions accept either.

    Args:
        event: An event or its plain object.
        index: Position in the caller's list, for the message.

    Raises:
        InvalidEventError: As for `SessionEvent.from_dict`.
    """
    if isinstance(event, SessionEvent):
        return event
    if isinstance(event, Mapping):
        return SessionEvent.from_dict(event, index)
    raise InvalidEventError(field="$", reason=f"is a {type(event).__name__}, not an object", index=index)


_ABSENT = Raw(b"")


class _Envelope(msgspec.Struct, forbid_unknown_fields=True, gc=False, rename="camel"):
    """The stored envelope with its open parts kept as text; one typed decode checks keys and types."""

    type: str
    seq: int
    time: int
    data: Raw
    source_event_seqs: Raw = _ABSENT
    surface_op: Raw = _ABSENT
    ignorable: bool = True


_decode_envelope = msgspec.json.Decoder(_Envelope).decode


class EventRow(msgspec.Struct, frozen=True, gc=False, eq=False):
    """A stored row that is one event, verbatim."""

    first_seq: int
    """Its seq."""
    type: str
    """Event type."""
    time: int
    """Unix milliseconds."""
    line: bytes
    """The encoded event, without a newline."""

    @property
    def last_seq(self) -> int:
        """Its seq again (inclusive), so that both kinds of rows read alike."""
        return self.first_seq

    @property
    def count(self) -> int:
        """Number of events in the row: one."""
        return 1

    @property
    def nbytes(self) -> int:
        """Bytes of the encoded row without its newline."""
        return len(self.line)

    def event(self) -> SessionEvent:
        """Return the row's event; it shares the row's bytes."""
        return SessionEvent(self.type, self.first_seq, self.time, self.line)

    def events(self) -> Iterator[SessionEvent]:
        """Yield the row's event."""
        yield self.event()


def parse_event_row(line: bytes) -> EventRow:
    """Read one stored event line: lossless JSON and a right envelope, nothing about the payload.

    Args:
        line: The line without its newline, kept byte for byte.

    Returns:
        The row; its payload stays text until it is read.

    Raises:
        LosslessDecodeError: The line is not lossless JSON.
        InvalidEventError: It is JSON but not an event.
    """
    try:
        found = _decode_envelope(line)
    except (msgspec.MsgspecError, RecursionError):
        return _parse_exactly(line)
    if (
        not 0 <= found.seq <= SAFE_INTEGER
        or not -SAFE_INTEGER <= found.time <= SAFE_INTEGER
        or found.ignorable is not True
        or (found.surface_op is not _ABSENT and bytes(found.surface_op) == b"null")
        or (found.source_event_seqs is not _ABSENT and bytes(found.source_event_seqs) == b"null")
    ):
        return _parse_exactly(line)
    lossless.check_skipped(line)
    return EventRow(found.seq, found.type, found.time, line)


def _parse_exactly(line: bytes) -> EventRow:
    """Read what the typed decode refuses: lone surrogates, `1.0` for an integer, and what is really wrong."""
    event = lossless.decode(line)
    check_envelope(event)
    return EventRow(event["seq"], event["type"], event["time"], line)
