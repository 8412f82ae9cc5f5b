"""Everything readable in a body, good or bad, in order: for verify, salvage and copy.

Owns the walk over damage. It decides nothing about cutting (`scan` does) and never raises for stored bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from turnlog.events import frames
from turnlog.events.batch import Damage, StoredFrame
from turnlog.events.chunk_runs import Row
from turnlog.events.frames import FrameError
from turnlog.events.rows import RowError, SearchLimitError, decode_row, parts

_ROWS_PER_FRAME = 4096
_PIECE = 1 << 20


def salvage_rows(
    chunks: bytes | Iterable[bytes], *, first_offset: int = 0, first_line: int = 1
) -> Iterator[StoredFrame | Damage]:
    """Walk over a plain body.

    Args:
        chunks: The bytes after the header line, whole or in pieces.
        first_offset: Offset of the first byte in its file.
        first_line: Number of the first body line.

    Yields:
        Runs of readable rows whose seqs are dense within the run, and the places between them. A hole in the
        seqs, a repetition or a step back begins a new run; whoever reads decides what to do with it.
    """
    walk = _Walk()
    offset, line = first_offset, first_line
    rest: list[bytes] = []
    for chunk in _pieces(chunks):
        rest.append(chunk)
        if b"\n" not in chunk:
            continue
        text = b"".join(rest)
        at = 0
        while (end := text.find(b"\n", at)) >= 0:
            yield from walk.take(text[at:end], offset + at, line, end + 1 - at)
            line += 1
            at = end + 1
        rest = [text[at:]]
        offset += at
    last = b"".join(rest)
    if last:
        yield from walk.take_last(last, offset, line)
    yield from walk.flush()


def salvage_frames(buf: bytes, *, start: int = 0, base: int = 0) -> Iterator[StoredFrame | Damage]:
    """Walk over a zstd body.

    Args:
        buf: The bytes of the file, or its part from a frame on.
        start: Position in `buf` of the first body frame.
        base: Offset of `buf` in its file.

    Yields:
        As for `salvage_rows`; positions are those of the frames.
    """
    at = start
    line = 1
    while at < len(buf):
        end: int | None = None
        try:
            end = frames.frame_end(buf, at)
            text = b"" if end is None else frames.decompress(buf[at:end])
        except FrameError as error:
            stop = _next_frame(buf, at, end)
            yield Damage(base + at, None, error.kind, stop - at)
            at = stop
            continue
        if end is None:
            stop = _next_frame(buf, at, None)
            recovered = frames.decode_prefix(buf[at:stop])
            yield from _in_frame(recovered[: recovered.rfind(b"\n") + 1], base + at, line)
            yield Damage(base + at, None, "torn" if stop == len(buf) else "frame-torn", stop - at)
            at = stop
            continue
        yield from _in_frame(text, base + at, line)
        line += text.count(b"\n")
        at = end


def _next_frame(buf: bytes, at: int, end: int | None) -> int:
    """Return where to go on behind a bad frame: at its end, or at a good frame that begins before that."""
    limit = len(buf) if end is None else end
    following = frames.find_complete(buf, at + 1)
    return limit if following is None else min(limit, following)


def _in_frame(text: bytes, position: int, line: int) -> Iterator[StoredFrame | Damage]:
    """Walk over the plaintext of one frame; all positions are the frame's."""
    for found in salvage_rows(text, first_line=line):
        if isinstance(found, StoredFrame):
            yield StoredFrame(found.first_seq, found.last_seq, found.rows, position)
        else:
            yield Damage(position, found.line, found.kind, found.size)


def _pieces(chunks: bytes | Iterable[bytes]) -> Iterable[bytes]:
    if isinstance(chunks, bytes):
        return (chunks[at : at + _PIECE] for at in range(0, len(chunks), _PIECE))
    return chunks


class _Walk:
    """The run of good rows that is being collected."""

    def __init__(self) -> None:
        self._rows: list[Row] = []
        self._position = 0

    def flush(self) -> Iterator[StoredFrame]:
        """Yield the run, if there is one, and begin anew."""
        if self._rows:
            rows = tuple(self._rows)
            self._rows = []
            yield StoredFrame(rows[0].first_seq, rows[-1].last_seq, rows, self._position, as_text=True)

    def _add(self, row: Row, position: int) -> Iterator[StoredFrame]:
        if self._rows and (
            row.first_seq != self._rows[-1].last_seq + 1 or len(self._rows) >= _ROWS_PER_FRAME
        ):
            yield from self.flush()
        if not self._rows:
            self._position = position
        self._rows.append(row)

    def take(self, line: bytes, position: int, number: int, size: int) -> Iterator[StoredFrame | Damage]:
        """Take one line; of a broken one, the events inside it."""
        try:
            row = decode_row(line)
        except RowError as error:
            yield from self.flush()
            yield Damage(position, number, error.kind, size)
            if not error.truncated:
                yield from self._take_parts(line, position)
            return
        yield from self._add(row, position)

    def _take_parts(self, line: bytes, position: int) -> Iterator[StoredFrame]:
        try:
            for at, _, part in parts(line, 1):
                yield from self._add(part, position + at)
        except SearchLimitError:
            pass  # the whole line was reported as damage; what was found in it so far is handed out

    def take_last(self, line: bytes, position: int, number: int) -> Iterator[StoredFrame | Damage]:
        """Take a last line without newline: never acknowledged, so it is reported and not returned."""
        yield from self.flush()
        yield Damage(position, number, "torn", len(line))
