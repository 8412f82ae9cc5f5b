"""Frames as rows of a database: stored blobs to logs, to the pieces of a scan, to a status (R2, B3, B4).

Owns everything between rows that a query has fetched and what the hooks return, the same for every
database. It runs no query, and the codec is that of `events`. A row that fails its checksum, holds other
seqs than it says, or does not continue the one before it is damage, never a torn tail.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from turnlog.backends.log_part import part_of
from turnlog.backends.row_facts import check_size
from turnlog.backends.tail_status import TAIL_WINDOW, tail_status
from turnlog.errors import CorruptLogError, UnexpectedSeqError
from turnlog.events import frames
from turnlog.events.batch import Damage, EncodedBatch, StoredFrame
from turnlog.events.chunk_runs import ChunkRow, Row
from turnlog.events.frames import FrameError
from turnlog.events.log import EventLog
from turnlog.events.rows import RowError, decode_row
from turnlog.persistence.backend import Status

PAGE: Final = 256
"""Sessions or frames per query where a whole table is walked."""


class FrameRow(NamedTuple):
    """One stored batch as a query returns it."""

    first_seq: int
    """Seq of the first event; the row's key within its session."""
    last_seq: int
    """Seq of the last event (inclusive)."""
    frame: bytes
    """One checksummed zstd frame."""

    @classmethod
    def of(cls, first_seq: object, last_seq: object, frame: object) -> FrameRow:
        """Make a row of columns that may hold anything, as those of a damaged file do.

        What is no seq becomes -1, and what is no blob becomes one that is no frame, so that whoever reads
        the row finds the damage.
        """
        if type(first_seq) is int and type(last_seq) is int and type(frame) is bytes:
            return cls(first_seq, last_seq, frame)
        return cls(
            first_seq if type(first_seq) is int else -1,
            last_seq if type(last_seq) is int else -1,
            frame if isinstance(frame, bytes) else _NO_FRAME,
        )


_NO_FRAME: Final = b"\0"


class BadFrameError(ValueError):
    """A stored frame that is not what its row says; the medium is at fault."""

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__(reason)
        self.kind = kind
        """A kind of `FrameError` or `RowError`, or `seq-gap`, `unterminated` or `frame-range`."""
        self.reason = reason


def rows_of(stored: FrameRow) -> list[Row]:
    """Decode one stored frame.

    Args:
        stored: The row.

    Returns:
        Its log rows, which cover `first_seq` to `last_seq` without a hole.

    Raises:
        BadFrameError: The frame fails its checksum, holds something else than rows, or other seqs.
    """
    try:
        text = frames.decompress(bytes(stored.frame))
    except FrameError as error:
        raise BadFrameError(error.kind, error.reason) from error
    if text and not text.endswith(b"\n"):
        raise BadFrameError("unterminated", "the frame ends inside a row")
    found: list[Row] = []
    expected = stored.first_seq
    try:
        for line in text.split(b"\n")[:-1]:
            row = decode_row(line)
            if row.first_seq != expected:
                raise BadFrameError("seq-gap", f"a row has seq {row.first_seq} where {expected} is due")
            found.append(row)
            expected = row.last_seq + 1
    except RowError as error:
        raise BadFrameError(error.kind, error.reason) from error
    if expected != stored.last_seq + 1:
        reason = f"the frame ends at seq {expected - 1}, its key says {stored.last_seq}"
        raise BadFrameError("frame-range", reason)
    return found


def log_of(
    stored: Iterable[FrameRow],
    *,
    session_id: str,
    next_seq: int,
    first_seq: int | None = 0,
    size: int | None = None,
    path: str | None = None,
) -> EventLog:
    """Make a log of stored frames.

    Args:
        stored: Rows in the order of their keys.
        session_id: For messages.
        next_seq: Where the session's row says that these frames end (exclusive).
        first_seq: Where they must begin, or None for wherever the first one does.
        size: Bytes that the session's row says they have, or None where they are not all there is.
        path: The database, for messages.

    Returns:
        The log; its `first_seq` is that of the first frame.

    Raises:
        CorruptLogError: A frame is bad, or one is missing, or the size is another. The medium is at fault.
    """
    log: EventLog | None = None if first_seq is None else EventLog(first_seq=first_seq)
    line, stored_bytes = 1, 0
    for row in stored:
        if log is None:
            log = EventLog(first_seq=row.first_seq)
        try:
            if row.first_seq != log.next_seq:
                reason = f"a frame begins at seq {row.first_seq} where {log.next_seq} is due"
                raise BadFrameError("seq-gap", reason)
            rows = rows_of(row)
        except BadFrameError as error:
            raise _corrupt(session_id, error, log, line, path) from error
        log.extend_rows(rows)
        line += len(rows)
        stored_bytes += len(row.frame)
    if log is None:
        log = EventLog(first_seq=next_seq)
    if log.next_seq != next_seq:
        short = BadFrameError("seq-gap", f"the frames end at seq {log.next_seq}, {next_seq} is due")
        raise _corrupt(session_id, short, log, line, path)
    if size is not None:
        check_size(size, stored_bytes, session_id=session_id, path=path)
    return log


def _corrupt(
    session_id: str, error: BadFrameError, log: EventLog, line: int, path: str | None
) -> CorruptLogError:
    """Say where a log goes bad; lines are known in a read that began at the first one."""
    return CorruptLogError(
        session_id=session_id,
        reason=error.reason,
        line=line if log.first_seq == 0 else None,
        seq=log.next_seq,
        kind=error.kind,
        path=path,
    )


def wanted_range(next_seq: int, seq: int, limit: int | None) -> tuple[int, int]:
    """Say which events a suffix read wants.

    Args:
        next_seq: The end of the stored log (exclusive).
        seq: As in `load_stored_from`: a negative one counts from the end.
        limit: Events at most, or None.

    Returns:
        `(first, end)`, the end exclusive; both within the log. Frames are wanted from the last one that
        begins at or before `first` up to the last one that begins before `end`.
    """
    first = min(max(next_seq + seq if seq < 0 else seq, 0), next_seq)
    end = next_seq if limit is None else min(first + max(limit, 0), next_seq)
    return first, end


def suffix_of(
    stored: list[FrameRow], *, session_id: str, next_seq: int, first: int, end: int, path: str | None = None
) -> EventLog:
    """Make the log of a suffix read from the frames that hold it.

    Args:
        stored: The frames of `wanted_range`, in order.
        session_id: For messages.
        next_seq: The end of the stored log (exclusive).
        first: First event wanted (inclusive).
        end: First event not wanted.
        path: The database, for messages.

    Raises:
        CorruptLogError: One of the frames is bad, or one is missing.
    """
    if first >= end:
        return EventLog(first_seq=first)
    stop = stored[-1].last_seq + 1 if stored and stored[-1].last_seq + 1 >= end else min(end, next_seq)
    begin = None if stored and stored[0].first_seq <= first else first
    log = log_of(stored, session_id=session_id, next_seq=stop, first_seq=begin, path=path)
    return part_of(log, first, end - first)


def pieces_of(stored: Iterable[FrameRow], expected: int) -> tuple[list[StoredFrame | Damage], int]:
    """Turn frames into the pieces of a scan; never raises for what is stored.

    Args:
        stored: Consecutive rows in the order of their keys.
        expected: Seq that the first of them should have.

    Returns:
        A piece for each row, and one of size 0 where events are missing before it, positions being seqs;
        and the seq that the next row should have. A spoilt row tells that only where it stands in its place.
    """
    pieces: list[StoredFrame | Damage] = []
    for row in stored:
        in_place = row.first_seq == expected
        if not in_place:
            pieces.append(Damage(expected, None, "seq-gap", 0))
        try:
            pieces.append(StoredFrame(row.first_seq, row.last_seq, tuple(rows_of(row)), row.first_seq))
            expected = row.last_seq + 1
        except BadFrameError as error:
            position = row.first_seq if row.first_seq >= 0 else expected
            pieces.append(Damage(position, None, error.kind, len(row.frame)))
            if in_place:
                expected = max(expected, row.last_seq + 1)
    return pieces, expected


def check_repeated(
    stored: Iterable[FrameRow],
    batch: EncodedBatch,
    *,
    session_id: str,
    next_seq: int,
    path: str | None = None,
) -> None:
    """Let a batch pass that is stored already, however it is framed (B3).

    Args:
        stored: The frames from the last one that begins at or before the batch, to the end of the log.
        batch: What was to be appended.
        session_id: For messages.
        next_seq: The end of the stored log (exclusive).
        path: The database, for messages.

    Raises:
        UnexpectedSeqError: The stored events from the batch's first seq to the end are not the batch.
        CorruptLogError: They cannot be read.
    """
    if not holds(stored, batch, session_id=session_id, next_seq=next_seq, path=path):
        raise UnexpectedSeqError(session_id=session_id, expected=next_seq, actual=batch.first_seq)


def holds(
    stored: Iterable[FrameRow],
    batch: EncodedBatch,
    *,
    session_id: str,
    next_seq: int,
    path: str | None = None,
) -> bool:
    """Tell whether the stored events from a batch's first seq to the end equal it; see `check_repeated`."""
    if batch.last_seq + 1 != next_seq:
        return False
    log = log_of(stored, session_id=session_id, next_seq=next_seq, first_seq=None, path=path)
    if log.first_seq > batch.first_seq:
        return False
    return list(log.iter_from(batch.first_seq)) == list(batch.events())


def end_status(newest_first: Iterable[FrameRow], next_seq: int) -> tuple[Status, str | None]:
    """Say what the end of a log is like from its last frames, 64 KiB of them at most (B4).

    Args:
        newest_first: The frames backwards from the end; consumed only until the status is known. Giving
            just the last one is allowed. A frame larger than the window need not be fetched: an empty one
            in its place counts as too large.
        next_seq: The end of the log as the session's row has it (exclusive).

    Returns:
        `ok`, `interrupted`, `unknown` or `corrupt`, and for the last what is wrong.
    """
    budget = TAIL_WINDOW
    expected = next_seq
    for row in newest_first:
        if row.last_seq + 1 != expected:
            return "corrupt", f"the log ends at seq {row.last_seq + 1}, {expected} is due"
        budget -= len(row.frame)
        if budget < 0 or not row.frame:
            return "unknown", None
        try:
            rows = rows_of(row)
        except BadFrameError as error:
            return "corrupt", f"the frame at seq {row.first_seq} is bad: {error.reason}"
        expected = row.first_seq
        status = tail_status(_newest(rows), reaches_start=expected == 0)
        if status != "unknown":
            return status, None
    if expected == next_seq and next_seq > 0:
        return "corrupt", "the frames at the end of the log are missing"
    return ("ok" if expected == 0 else "unknown"), None


def _newest(rows: list[Row]) -> Iterator[tuple[str, bool]]:
    """Yield type and replacement mark of a frame's events backwards; a packed run counts as one chunk."""
    for row in reversed(rows):
        if isinstance(row, ChunkRow):
            yield row.type, False
        else:
            yield row.type, isinstance(row.event().surface_op, dict)
