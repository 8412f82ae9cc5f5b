"""The storage atom: the rows of one durable batch, and what a scan of stored bytes yields.

Owns the row text and the frame of a batch. Where frames are put and found is the backends' business.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from turnlog.errors import UsageError
from turnlog.events import frames
from turnlog.events.chunk_runs import Row
from turnlog.events.envelope import SessionEvent
from turnlog.events.live_run import pack_rows


class EncodedBatch:
    """The rows of consecutive events, encoded once (L2). Immutable, so any thread may use it."""

    __slots__ = ("_frame", "first_seq", "last_seq", "rows")

    def __init__(self, first_seq: int, last_seq: int, rows: Sequence[Row]) -> None:
        """Take rows that cover `first_seq` to `last_seq` (both inclusive) without a hole.

        Args:
            first_seq: Seq of the first event.
            last_seq: Seq of the last event (inclusive); `first_seq - 1` for an empty batch.
            rows: The encoded rows in order.
        """
        self.first_seq = first_seq
        self.last_seq = last_seq
        self.rows: tuple[Row, ...] = tuple(rows)
        self._frame: bytes | None = None

    @classmethod
    def of(cls, events: Iterable[SessionEvent]) -> EncodedBatch:
        """Pack events into a batch.

        Args:
            events: At least one event; their seqs are consecutive.

        Raises:
            UsageError: No event, or a hole in the seqs. The caller is at fault.
        """
        rows = pack_rows(events)
        if not rows:
            raise UsageError("a batch needs at least one event")
        for earlier, later in pairwise(rows):
            if later.first_seq != earlier.last_seq + 1:
                raise UsageError(f"a batch has no seq {earlier.last_seq + 1} before seq {later.first_seq}")
        return cls(rows[0].first_seq, rows[-1].last_seq, rows)

    def __len__(self) -> int:
        return self.last_seq - self.first_seq + 1

    @property
    def nbytes(self) -> int:
        """Bytes of the batch's text, newlines included."""
        return sum(len(row.line) + 1 for row in self.rows)

    def text(self) -> bytes:
        """Return the rows as text, each ended by a newline."""
        return b"".join([part for row in self.rows for part in (row.line, b"\n")])

    def frame(self) -> bytes:
        """Return the text as one checksummed zstd frame; compressed on the first call only."""
        if self._frame is None:
            self._frame = frames.compress(self.text())
        return self._frame

    def events(self) -> Iterator[SessionEvent]:
        """Yield the batch's events in order."""
        for row in self.rows:
            yield from row.events()

    def __repr__(self) -> str:
        return f"EncodedBatch(first_seq={self.first_seq}, last_seq={self.last_seq}, rows={len(self.rows)})"


@dataclass(frozen=True, slots=True)
class StoredFrame:
    """Readable rows as they lie in a medium; the good half of a scan."""

    first_seq: int
    """Seq of the first event."""
    last_seq: int
    """Seq of the last event (inclusive)."""
    rows: tuple[Row, ...]
    """The rows, verbatim."""
    position: int
    """Where the first row, or the frame that holds it, begins: a byte offset, or a key of the backend."""
    as_text: bool = False
    """Whether the rows lie there as plain text, one after another, so that each has an offset of its own."""

    def placed(self) -> Iterator[tuple[int, Row]]:
        """Yield each row with the nearest position known of it: its own offset, or that of the frame."""
        at = self.position
        for row in self.rows:
            yield at, row
            if self.as_text:
                at += len(row.line) + 1


@dataclass(frozen=True, slots=True)
class Damage:
    """A place that cannot be read; the bad half of a scan."""

    position: int
    """Byte offset of the bad bytes, or the key of the bad row in a database."""
    line: int | None
    """Body line, 1-based and without the header line; None where there are no lines."""
    kind: str
    """What is wrong, kebab-case, for example `unparsable`, `seq-gap`, `frame-checksum`, `torn`."""
    size: int
    """Bytes that could not be read."""
