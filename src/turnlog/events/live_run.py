"""Runs of deltas that still grow, and their encoding as rows.

Owns the one encoder of packed rows. Where a run ends is decided by the log that feeds it.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from operator import sub
from typing import Any

from turnlog.events import lossless
from turnlog.events.chunk_runs import MIN_PACKED, TAG_OF_KIND, ChunkRow, Row
from turnlog.events.deltas import CHUNK_TYPE, TOOL_CALL_DELTA, Delta, delta_of
from turnlog.events.envelope import EventRow, SessionEvent
from turnlog.events.lossless import SAFE_INTEGER


class LiveRun:
    """A run of deltas that still grows: encoded texts and times, nothing else per member."""

    __slots__ = ("first_seq", "key", "nbytes", "texts", "times")

    def __init__(self, first_seq: int, key: tuple[Any, ...]) -> None:
        self.first_seq = first_seq
        self.key = key
        """`(kind, turn, step, index, call_id, name)`, the same for all members."""
        self.texts: list[bytes] = []
        """Encoded JSON string literals."""
        self.times: list[int] = []
        self.nbytes = 0

    def event(self, position: int) -> SessionEvent:
        """Return the event at a position of the run, 0-based."""
        kind, turn, step, index, call_id, name = self.key
        text = lossless.decode(self.texts[position])
        delta = Delta(kind, turn, step, index, text, call_id, name)
        return SessionEvent(CHUNK_TYPE, self.first_seq + position, self.times[position], None, delta)

    def rows(self, start: int, stop: int) -> list[Row]:
        """Encode members as rows: packed where at least three may be, verbatim else.

        Args:
            start: First position (inclusive).
            stop: Last position (exclusive).
        """
        times = self.times[start:stop]
        if len(times) < MIN_PACKED:
            return [self._verbatim(position) for position in range(start, stop)]
        gaps = list(map(sub, times[1:], times))
        if min(gaps) >= -SAFE_INTEGER and max(gaps) <= SAFE_INTEGER:
            return [self._packed(start, times, gaps)]
        rows: list[Row] = []
        begin = start
        for position, (earlier, later) in enumerate(pairwise(times), start + 1):
            if abs(later - earlier) > SAFE_INTEGER:
                rows += self.rows(begin, position)
                begin = position
        return rows + self.rows(begin, stop)

    def _packed(self, start: int, times: list[int], gaps: list[int]) -> ChunkRow:
        kind, turn, step, index, call_id, name = self.key
        count = len(times)
        line = b'{"type":"%s","seq0":%d,"time0":%d,"data":{"turn":%s,"step":%s,"index":%s,"dt":[%s],' % (
            TAG_OF_KIND[kind].encode(),
            self.first_seq + start,
            times[0],
            lossless.encode(turn),
            lossless.encode(step),
            lossless.encode(index),
            ",".join(map(str, gaps)).encode(),
        )
        texts = b",".join(self.texts[start : start + count])
        if kind == TOOL_CALL_DELTA:
            line += b'"id":' + lossless.encode_string(call_id)
            if name is not None:
                line += b',"name":' + lossless.encode_string(name)
            line += b',"args":[%s]}}' % texts
        else:
            line += b'"texts":[%s]}}' % texts
        return ChunkRow(self.first_seq + start, count, kind, turn, step, index, times[0], times[-1], line)

    def _verbatim(self, position: int) -> EventRow:
        kind, turn, step, index, call_id, name = self.key
        seq, time = self.first_seq + position, self.times[position]
        line = (
            b'{"type":"assistant/chunk","seq":%d,"time":%d,"data":{"turn":%s,"step":%s,"chunk":{"type":"%s"'
            % (
                seq,
                time,
                lossless.encode(turn),
                lossless.encode(step),
                kind.encode(),
            )
        )
        line += b',"index":' + lossless.encode(index)
        if kind == TOOL_CALL_DELTA:
            line += b',"id":' + lossless.encode_string(call_id)
            if name is not None:
                line += b',"name":' + lossless.encode_string(name)
            line += b',"argumentsDelta":%s}}}' % self.texts[position]
        else:
            line += b',"text":%s}}}' % self.texts[position]
        return EventRow(seq, CHUNK_TYPE, time, line)


def pack_rows(events: Iterable[SessionEvent]) -> list[Row]:
    """Encode events as the rows of one batch, each maximal run packed.

    Args:
        events: Events in order; a hole in their seqs ends a run.
    """
    rows: list[Row] = []
    run: LiveRun | None = None
    for event in events:
        delta = event_delta(event)
        if run is not None:
            key = None if delta is None else delta.key()
            if key != run.key or event.seq != run.first_seq + len(run.texts):
                rows += run.rows(0, len(run.texts))
                run = None
        if delta is None:
            rows.append(EventRow(event.seq, event.type, event.time, event.line))
            continue
        if run is None:
            run = LiveRun(event.seq, delta.key())
        run.texts.append(lossless.encode_string(delta.text))
        run.times.append(event.time)
    if run is not None:
        rows += run.rows(0, len(run.texts))
    return rows


def event_delta(event: SessionEvent) -> Delta | None:
    """Return the delta of an event if it may be packed, else None.

    Args:
        event: Any event; one that came out of a packed run answers without decoding.
    """
    if event.type != CHUNK_TYPE:
        return None
    return event.delta if event.delta is not None else delta_of(event.to_dict())
