"""Finding and reading only the part of a log that is wanted, in both encodings.

Owns the way from a seq to a place in the bytes: by the frame search of `events.frames` in a zstd log, by
bisection over lines in a plain one. Functions answer None where the bytes do not fit; the caller then reads
the whole log, which names what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from turnlog.backends.jsonl.layout import Encoding
from turnlog.backends.log_part import part_of
from turnlog.events import frames
from turnlog.events.chunk_runs import Row
from turnlog.events.log import EventLog
from turnlog.events.rows import RowError, decode_row
from turnlog.events.scan import RowScanner

ReadAt = Callable[[int, int], bytes]
_WINDOW: Final = 1 << 16
_LINE_PIECE: Final = 1 << 12
_PIECE: Final = 1 << 20


class ShrunkLogError(Exception):
    """A log is shorter than it was a moment ago: what is searched is being cut by a repair."""


def _exactly(read_at: ReadAt, size: int) -> ReadAt:
    """Return a reader that never gives less than is there, so that no search goes round in circles."""

    def read(offset: int, count: int) -> bytes:
        data = read_at(offset, count)
        if len(data) < min(count, size - offset):
            raise ShrunkLogError
        return data

    return read


def next_seq(encoding: Encoding, read_at: ReadAt, begin: int, size: int) -> int | None:
    """Return the seq after the last event, from the last frame or line alone; None if that is not whole."""
    if begin == size:
        return 0
    last_row = _last_row_of_frames if encoding == "zstd" else _last_line
    try:
        row = last_row(_exactly(read_at, size), begin, size)
    except ShrunkLogError:
        return None
    return None if row is None else row.last_seq + 1


def _last_row_of_frames(read_at: ReadAt, begin: int, size: int) -> Row | None:
    tail = frames.find_tail(read_at, size, lambda found: bool(found.text), start=begin)
    if tail is None or tail.torn_at is not None:
        return None
    return _row(_last_line_of(tail.frames[0].text))


def _last_line(read_at: ReadAt, begin: int, size: int) -> Row | None:
    step = _WINDOW
    while True:
        start = max(begin, size - step)
        text = read_at(start, size - start)
        line = _last_line_of(text)
        if line is None:
            return None
        if start == begin or len(line) + 1 < len(text):
            return _row(line)
        step *= 4


def _last_line_of(text: bytes) -> bytes | None:
    """Return the last line without its newline; None where the text does not end with one."""
    if not text.endswith(b"\n"):
        return None
    return text[text.rfind(b"\n", 0, len(text) - 1) + 1 : -1]


def _row(line: bytes | None) -> Row | None:
    if line is None:
        return None
    try:
        return decode_row(line)
    except RowError:
        return None  # a bad line: the whole log has to be read to judge it


def first_seq_of(text: bytes) -> int | None:
    """Return the seq of the first row in the plaintext of a frame, None if it holds no good row."""
    row = _row(text[: text.find(b"\n")]) if b"\n" in text else None
    return None if row is None else row.first_seq


def read_suffix(
    encoding: Encoding, read_at: ReadAt, begin: int, size: int, seq: int, limit: int | None
) -> EventLog | None:
    """Read at most `limit` events from `seq` on, decoding only what holds them.

    Args:
        encoding: How the log is stored.
        read_at: Reads it.
        begin: Where the body begins.
        size: Where it ends.
        seq: The first seq wanted (inclusive); a negative one counts from the end.
        limit: Events to read at most, or None for all.

    Returns:
        The events, beginning at `seq` or at the end of the log if that is earlier; None if the bytes do
        not fit together or the tail is torn.
    """
    if begin == size:
        return EventLog()
    end = None if seq >= 0 else next_seq(encoding, read_at, begin, size)
    if end is not None:
        seq = max(end + seq, 0)
    if seq < 0:
        return None
    read_at = _exactly(read_at, size)
    try:
        place = _seek(encoding, read_at, begin, size, seq)
        stop = None if limit is None else seq + limit
        log = None if place is None else _read(encoding, read_at, place, size, stop)
    except ShrunkLogError:
        return None
    return None if log is None else part_of(log, seq, limit)


def _seek(encoding: Encoding, read_at: ReadAt, begin: int, size: int, seq: int) -> tuple[int, int] | None:
    """Return where to begin reading for an event: the offset of a frame or line, and its first seq."""
    if encoding == "zstd":
        return _seek_frame(read_at, begin, size, seq)
    return _seek_line(read_at, begin, size, seq)


def _seek_frame(read_at: ReadAt, begin: int, size: int, seq: int) -> tuple[int, int] | None:
    """Walk back from the end for as long as that is cheap, as most suffixes are short; else bisect."""
    best: tuple[int, int] | None = None

    def enough(found: frames.FoundFrame) -> bool:
        nonlocal best
        first = first_seq_of(found.text)
        if first is not None:
            best = (found.start, first)
        return (best is not None and best[1] <= seq) or size - found.start > _WINDOW

    tail = frames.find_tail(read_at, size, enough, start=begin)
    if tail is None or tail.torn_at is not None:
        return None
    if best is not None and best[1] <= seq:
        return best
    offset = frames.seek(read_at, size, seq, first_seq_of, start=begin)
    found = None if offset is None else next(_frames_from(read_at, offset, size), None)
    first = None if found is None else first_seq_of(found[1])
    return None if first is None or offset is None else (offset, first)


def _seek_line(read_at: ReadAt, begin: int, size: int, seq: int) -> tuple[int, int] | None:
    """Find a line whose first seq is not above `seq`, at most one window before the last such line."""
    first = _line_from(read_at, begin, size)
    if first is None or first[0] != begin:
        return None
    found, low, high = (first[0], first[1]), first[2], size
    while high - low > _WINDOW:
        # The end is tried before the middle: most suffixes are short.
        middle = high - _WINDOW if high == size else low + (high - low) // 2
        start = _after_newline(read_at, middle, high)
        line = None if start is None else _line_from(read_at, start, high)
        if line is not None and line[1] <= seq:
            found, low = (line[0], line[1]), line[2]
        else:
            high = middle
    return found


def _after_newline(read_at: ReadAt, at: int, limit: int) -> int | None:
    """Return the start of the first line that begins after `at` and before `limit`."""
    while at < limit:
        text = read_at(at, min(_LINE_PIECE, limit - at))
        end = text.find(b"\n")
        if end >= 0:
            return at + end + 1 if at + end + 1 < limit else None
        at += len(text)
    return None


def _line_from(read_at: ReadAt, at: int, limit: int) -> tuple[int, int, int] | None:
    """Read the first good line at or after `at`: its offset, its first seq, the offset after it."""
    text = b""
    start = at
    while True:
        end = text.find(b"\n", start - at)
        if end < 0:
            more = read_at(at + len(text), max(_LINE_PIECE, len(text)))
            if not more:
                return None
            text += more
            continue
        if start >= limit:
            return None
        row = _row(text[start - at : end])
        if row is not None:
            return start, row.first_seq, at + end + 1
        start = at + end + 1


def _read(
    encoding: Encoding, read_at: ReadAt, place: tuple[int, int], size: int, stop: int | None
) -> EventLog | None:
    """Read from a frame or line on until `stop` (exclusive) is reached, or to the end.

    Returns:
        The events, or None where anything on the way is not as it should be.
    """
    offset, first = place
    scanner = RowScanner(first, offset)
    pieces = _frames_from(read_at, offset, size) if encoding == "zstd" else _text_from(read_at, offset, size)
    for end, text in pieces:
        if encoding == "zstd":
            scanner.feed_complete(text, in_complete_frame=True, frame_offset=offset, frame_end=end)
        else:
            scanner.feed_text(text)
        offset = end
        if stop is not None and scanner.log.next_seq >= stop:
            return scanner.log if scanner.issue is None else None
    result = scanner.finish(size=size if encoding == "zstd" else None)
    return result.log if offset == size and result.issue is None else None


def _text_from(read_at: ReadAt, offset: int, size: int) -> Iterator[tuple[int, bytes]]:
    """Yield pieces of plain text with the offset after each, small ones first."""
    step = _WINDOW
    while offset < size:
        text = read_at(offset, min(step, size - offset))
        offset += len(text)
        yield offset, text
        step = min(step * 2, _PIECE)


def _frames_from(read_at: ReadAt, offset: int, size: int) -> Iterator[tuple[int, bytes]]:
    """Yield the plaintext of whole frames with the offset after each, until one is torn or broken."""
    buf, at, step = b"", 0, _WINDOW
    while True:
        try:
            end = frames.frame_end(buf, at) if at < len(buf) else None
            text = b"" if end is None else frames.decompress(buf[at:end])
        except frames.FrameError:
            return
        if end is not None:
            yield offset + end, text
            at = end
            continue
        buf, offset, at = buf[at:], offset + at, 0
        more = read_at(offset + len(buf), min(max(step, len(buf)), size - offset - len(buf)))
        if not more:
            return
        buf += more
        step = min(step * 2, _PIECE)
