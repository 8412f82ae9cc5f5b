"""The log in memory: encoded rows and one live run, decoded only as far as someone reads.

Owns the sequence of events of one session, cutting it into batches, snapshots and comparison. Rules about
what may be appended belong to the session, bytes in a medium to the backends.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, overload

from turnlog.errors import UnsupportedFormatError, UsageError
from turnlog.events import lossless, vocabulary
from turnlog.events.batch import EncodedBatch
from turnlog.events.chunk_runs import ChunkRow, Row, RunBody
from turnlog.events.deltas import CHUNK_TYPE
from turnlog.events.envelope import EventRow as EventRow
from turnlog.events.envelope import SessionEvent
from turnlog.events.live_run import LiveRun, event_delta, pack_rows

if TYPE_CHECKING:
    from collections.abc import Callable

_first_seq: Callable[[Any], int] = attrgetter("first_seq")
DELTA_OVERHEAD = 24
"""Bytes that one delta costs in a packed row and a batch beyond its encoded text."""


class EventLog(Sequence[SessionEvent]):
    """A dense sequence of events, kept as encoded rows.

    Index 0 is the event with seq `first_seq`, which is 0 for a whole log and more for a suffix. Appending is
    amortised constant time; events are made when asked. Not for concurrent appends; snapshots may be read by
    other threads.
    """

    __slots__ = (
        "_body",
        "_body_row",
        "_end",
        "_first",
        "_rows",
        "_rows_stop",
        "_run",
        "_run_stop",
        "_shared",
    )

    def __init__(self, events: Iterable[SessionEvent] = (), *, first_seq: int = 0) -> None:
        """Make a log of events.

        Args:
            events: Consecutive events, the first with seq `first_seq`.
            first_seq: Seq of the first event.
        """
        self._first = first_seq
        self._end = first_seq
        self._rows: list[Row] = []
        self._rows_stop = 0
        self._run: LiveRun | None = None
        self._run_stop = 0
        self._shared = False
        self._body_row: ChunkRow | None = None
        self._body: RunBody | None = None
        for event in events:
            self.append_event(event)

    @property
    def first_seq(self) -> int:
        """Seq of the first event this log may hold."""
        return self._first

    @property
    def next_seq(self) -> int:
        """Seq that the next event will have."""
        return self._end

    def __len__(self) -> int:
        return self._end - self._first

    # Appending

    def append_event(self, event: SessionEvent) -> None:
        """Append one event; a delta that may be packed joins the live run.

        Args:
            event: Its seq must be `next_seq`.

        Raises:
            UsageError: Its seq is another one. The caller is at fault.
        """
        if event.seq != self._end:
            raise UsageError(f"the log continues at seq {self._end}, not at {event.seq}")
        delta = event_delta(event)
        if delta is None:
            self.append_encoded(event.type, event.seq, event.time, event.line)
        else:
            text = lossless.encode_string(delta.text)
            self.append_delta(
                delta.kind, delta.turn, delta.step, delta.index, event.time, text, delta.call_id, delta.name
            )

    def append_encoded(self, type: str, seq: int, time: int, line: bytes) -> None:
        """Append one event that is encoded already.

        Args:
            type: Its type.
            seq: Its seq, `next_seq`; not checked.
            time: Its time, Unix milliseconds.
            line: The encoded event, without a newline.
        """
        if self._run is not None or self._shared:
            self._seal()
        self._rows.append(EventRow(seq, type, time, line))
        self._rows_stop += 1
        self._end += 1

    def append_delta(
        self,
        kind: str,
        turn: int | float,
        step: int | float,
        index: int | float,
        time: int,
        encoded_text: bytes,
        call_id: str | None = None,
        name: str | None = None,
    ) -> int:
        """Append one streamed delta; the hot path, a few hundred nanoseconds.

        Args:
            kind: `text-delta`, `reasoning-delta` or `tool-call-delta`.
            turn: Number of the turn.
            step: Number of the step.
            index: Block index.
            time: Unix milliseconds.
            encoded_text: The delta as JSON string literal, from `lossless.encode_string`.
            call_id: Id of the tool call, for `tool-call-delta` only.
            name: Name of the tool, where the delta has one.

        Returns:
            The bytes this event adds to what is pending.
        """
        key = (kind, turn, step, index, call_id, name)
        run = self._run
        if run is None or run.key != key or self._shared:
            self._seal()
            run = self._run = LiveRun(self._end, key)
        run.texts.append(encoded_text)
        run.times.append(time)
        self._run_stop += 1
        self._end += 1
        return len(encoded_text) + DELTA_OVERHEAD

    def extend_rows(self, rows: Iterable[Row]) -> None:
        """Append stored rows.

        Args:
            rows: Rows that continue the log without a hole.

        Raises:
            UsageError: A row begins elsewhere; rows before it are in the log. The caller is at fault.
        """
        if self._run is not None or self._shared:
            self._seal()
        end, target = self._end, self._rows
        try:
            for row in rows:
                if row.first_seq != end:
                    raise UsageError(f"the log continues at seq {end}, not at {row.first_seq}")
                target.append(row)
                end = row.last_seq + 1
        finally:
            self._end, self._rows_stop = end, len(target)

    def _seal(self) -> None:
        """Turn the live run into rows and, in a snapshot that is to grow, take the rows for itself."""
        run, stop = self._run, self._run_stop
        if self._shared:
            self._rows = self._rows[: self._rows_stop]
            self._shared = False
        if run is not None:
            self._rows += run.rows(0, stop)
            self._rows_stop = len(self._rows)
            self._run = None
            self._run_stop = 0

    # Batches

    def cut(self, first_seq: int) -> EncodedBatch:
        """Seal the live run and return everything from `first_seq` on as one batch.

        The batch is made of the log's own rows: nothing is copied or encoded again, also when the same batch
        is cut a second time. Each run is one row per batch.

        Args:
            first_seq: First seq of the batch (inclusive), at least the log's own.

        Raises:
            UsageError: `first_seq` is not in the log. The caller is at fault.
        """
        if not self._first <= first_seq <= self._end:
            raise UsageError(f"seq {first_seq} is not in a log of seqs {self._first} to {self._end - 1}")
        self._seal()
        if first_seq == self._end:
            return EncodedBatch(first_seq, first_seq - 1, ())
        start = self._split(first_seq)
        return EncodedBatch(first_seq, self._end - 1, self._rows[start:])

    def _split(self, seq: int) -> int:
        """Make a row begin at `seq` and return its position; rows that snapshots share stay as they are."""
        position = bisect_right(self._rows, seq, key=_first_seq) - 1
        row = self._rows[position]
        if row.first_seq == seq:
            return position
        before, after = split_row(row, seq)
        self._rows = [*self._rows[:position], *before, *after, *self._rows[position + 1 :]]
        self._rows_stop = len(self._rows)
        return position + len(before)

    # Reading

    @property
    def rows(self) -> list[Row]:
        """The rows of all events in order; a live run appears as the rows it would be now."""
        rows = self._rows[: self._rows_stop]
        if self._run is not None:
            rows += self._run.rows(0, self._run_stop)
        return rows

    def row_at(self, seq: int) -> Row | None:
        """Return the sealed row that begins exactly at `seq`, or None."""
        position = bisect_right(self._rows, seq, 0, self._rows_stop, key=_first_seq) - 1
        row = self._rows[position] if position >= 0 else None
        return row if row is not None and row.first_seq == seq else None

    def rows_from(self, seq: int) -> list[Row]:
        """Return the rows from `seq` on (inclusive), splitting a packed row that begins before it."""
        rows = self.rows
        start = bisect_right(rows, seq, key=_first_seq) - 1
        if start < 0 or rows[start].first_seq == seq:
            return rows[max(start, 0) :]
        if rows[start].last_seq < seq:
            return rows[start + 1 :]
        return [*split_row(rows[start], seq)[1], *rows[start + 1 :]]

    @property
    def nbytes(self) -> int:
        """Bytes of the encoded log, newlines included."""
        total = sum(len(row.line) + 1 for row in self._rows[: self._rows_stop])
        if self._run is not None:
            total += sum(len(text) + DELTA_OVERHEAD for text in self._run.texts[: self._run_stop])
        return total

    @overload
    def __getitem__(self, index: int) -> SessionEvent: ...
    @overload
    def __getitem__(self, index: slice) -> list[SessionEvent]: ...
    def __getitem__(self, index: int | slice) -> SessionEvent | list[SessionEvent]:
        if isinstance(index, slice):
            start, stop, step = index.indices(len(self))
            if step == 1:
                return list(self.iter_from(self._first + start, self._first + max(start, stop)))
            return [self._at(self._first + position) for position in range(start, stop, step)]
        position = index + len(self) if index < 0 else index
        if not 0 <= position < len(self):
            raise IndexError(f"event {index} of {len(self)}")
        return self._at(self._first + position)

    def _at(self, seq: int) -> SessionEvent:
        run = self._run
        if run is not None and seq >= run.first_seq:
            return run.event(seq - run.first_seq)
        row = self._rows[bisect_right(self._rows, seq, 0, self._rows_stop, key=_first_seq) - 1]
        if isinstance(row, EventRow):
            return row.event()
        return self._body_of(row).event(seq - row.first_seq)

    def _body_of(self, row: ChunkRow) -> RunBody:
        """Decode a packed row, remembering the last one, so that indexing through it decodes it once."""
        body = self._body
        if self._body_row is not row or body is None:
            body = row.body()
            self._body_row, self._body = row, body
        return body

    def __iter__(self) -> Iterator[SessionEvent]:
        return self.iter_from(self._first)

    def iter_from(self, seq: int, stop: int | None = None) -> Iterator[SessionEvent]:
        """Yield the events from `seq` on, as the log is at the time of each step.

        Args:
            seq: First seq (inclusive).
            stop: First seq not to yield, or None for the end.
        """
        at = max(seq, self._first)
        while at < (self._end if stop is None else min(stop, self._end)):
            run = self._run
            if run is not None and at >= run.first_seq:
                yield run.event(at - run.first_seq)
                at += 1
                continue
            row = self._rows[bisect_right(self._rows, at, 0, self._rows_stop, key=_first_seq) - 1]
            if isinstance(row, EventRow):
                yield row.event()
                at += 1
                continue
            body = row.body()
            last = min(row.last_seq, (self._end if stop is None else min(stop, self._end)) - 1)
            for position in range(at - row.first_seq, last - row.first_seq + 1):
                yield body.event(position)
            at = last + 1

    def significant(self) -> Iterator[EventRow]:
        """Yield the rows that are not streamed chunks, still encoded, for cheap folds."""
        for position in range(self._rows_stop):
            row = self._rows[position]
            if isinstance(row, EventRow) and row.type != CHUNK_TYPE:
                yield row

    # Views of the whole

    def snapshot(self, upto: int | None = None) -> EventLog:
        """Return a view of the log as it is now; it shares the rows and does not change when this log grows.

        Appending to a snapshot is allowed: it takes its own rows then.

        Args:
            upto: First seq that the view leaves out, or None for everything.

        Raises:
            UsageError: `upto` is not in the log. The caller is at fault.
        """
        end = self._end if upto is None else upto
        if not self._first <= end <= self._end:
            raise UsageError(f"seq {end} is not in a log of seqs {self._first} to {self._end - 1}")
        view = EventLog(first_seq=self._first)
        view._rows, view._shared, view._end = self._rows, True, end
        run = self._run
        if run is not None and end > run.first_seq:
            view._run, view._run_stop, view._rows_stop = run, end - run.first_seq, self._rows_stop
            return view
        stop = self._rows_stop if upto is None else self._row_stop(end)
        if stop and self._rows[stop - 1].last_seq >= end:
            view._rows = [*self._rows[: stop - 1], *split_row(self._rows[stop - 1], end)[0]]
            stop = len(view._rows)
        view._rows_stop = stop
        return view

    def _row_stop(self, end: int) -> int:
        """Return the number of rows that hold an event before `end`."""
        return bisect_right(self._rows, end - 1, 0, self._rows_stop, key=_first_seq)

    def digest(self) -> str:
        """Return the SHA-256 of the events' canonical text, hexadecimal, the same for any framing."""
        digest = hashlib.sha256(b"[")
        for position, event in enumerate(self):
            if position:
                digest.update(b",")
            digest.update(event.canonical().encode())
        digest.update(b"]")
        return digest.hexdigest()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, EventLog):
            return NotImplemented
        return self._first == other._first and same_events(self, other)

    __hash__ = None  # type: ignore[assignment]  # a growing sequence has no hash

    def __repr__(self) -> str:
        return f"EventLog(first_seq={self._first}, len={len(self)}, rows={len(self.rows)})"


def split_row(row: Row, seq: int) -> tuple[list[Row], list[Row]]:
    """Split a packed row before an event, encoding the two halves anew.

    Args:
        row: A row that holds `seq` beyond its first event.
        seq: First event of the second half.
    """
    events = list(row.events())
    cut = seq - row.first_seq
    return pack_rows(events[:cut]), pack_rows(events[cut:])


def same_events(
    a: EventLog | EncodedBatch | Iterable[SessionEvent], b: EventLog | EncodedBatch | Iterable[SessionEvent]
) -> bool:
    """Whether two logs hold the same events, however they are framed; fast where their rows are equal bytes.

    Args:
        a: A log, a batch, or events.
        b: The other one.

    Returns:
        True if both have the same events with the same seqs.
    """
    rows_a, rows_b = _row_iterator(a), _row_iterator(b)
    left: Row | None = next(rows_a, None)
    right: Row | None = next(rows_b, None)
    while left is not None and right is not None:
        if left is right or (left.first_seq == right.first_seq and left.line == right.line):
            left, right = next(rows_a, None), next(rows_b, None)
            continue
        events_a, events_b = _EventsOf(left, rows_a), _EventsOf(right, rows_b)
        while True:
            if events_a.take() != events_b.take():
                return False
            if events_a.at_boundary and events_b.at_boundary:
                break
        left, right = next(rows_a, None), next(rows_b, None)
    return left is None and right is None


class _EventsOf:
    """Events of rows, one after another, aware of where a row ends."""

    def __init__(self, row: Row, rows: Iterator[Row]) -> None:
        self._rows = rows
        self._events = row.events()
        self._left = row.count

    def take(self) -> SessionEvent | None:
        """Return the next event, None after the last."""
        if self._left == 0:
            row = next(self._rows, None)
            if row is None:
                return None
            self._events, self._left = row.events(), row.count
        self._left -= 1
        return next(self._events)

    @property
    def at_boundary(self) -> bool:
        """Whether the last event taken ended its row."""
        return self._left == 0


def _row_iterator(source: EventLog | EncodedBatch | Iterable[SessionEvent]) -> Iterator[Row]:
    if isinstance(source, (EventLog, EncodedBatch)):
        return iter(source.rows)
    return iter([EventRow(event.seq, event.type, event.time, event.line) for event in source])


def check_loadable(log: EventLog, session_id: str | None, path: str | None = None) -> None:
    """Refuse a log with an event of a required type that is not known here.

    Args:
        log: The log; only rows that are not streamed chunks are looked at.
        session_id: For the message.
        path: Where the log lies, for the message.

    Raises:
        UnsupportedFormatError: `.found` is the type, `.seq` the event. The reader lacks a registration.
    """
    for row in log.significant():
        if (
            not vocabulary.is_loadable(row.type)
            and row.type not in vocabulary.LEGACY_TYPES
            and not row.event().ignorable
        ):
            raise UnsupportedFormatError(
                session_id=session_id,
                found=row.type,
                supported="the known and registered types",
                direction="unknown-type",
                path=path,
                seq=row.first_seq,
            )
