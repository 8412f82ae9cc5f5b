"""What the end of a log says about its state, from at most 64 KiB (B4).

Owns the reading of that window in both encodings. The judgement of events is `tail_status`, shared by all
backends; a full verdict on torn or damaged is the row scanner's and needs the whole log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from turnlog.backends.jsonl.layout import Encoding
from turnlog.backends.tail_status import TAIL_WINDOW, tail_status
from turnlog.events import frames
from turnlog.events.chunk_runs import ChunkRow, Row
from turnlog.events.rows import RowError, decode_row
from turnlog.persistence.backend import Status

_UNREADABLE = "the end of the log cannot be read; verify says what is wrong"


def end_status(
    encoding: Encoding, read_at: Callable[[int, int], bytes], begin: int, size: int
) -> tuple[Status, str | None]:
    """Return the status of a log that nobody writes, and what is wrong with it if anything is.

    Args:
        encoding: How the log is stored.
        read_at: Reads it.
        begin: Where the body begins.
        size: Where it ends.
    """
    if begin >= size:
        return "ok", None
    start = max(begin, size - TAIL_WINDOW)
    window = read_at(start, size - start)
    if encoding == "none":
        return _text_status(window, start == begin)
    return _frames_status(window, start == begin)


def _text_status(window: bytes, whole: bool) -> tuple[Status, str | None]:
    if not window.endswith(b"\n"):
        return "torn", None
    if not whole:
        first = window.find(b"\n") + 1
        if first == len(window):
            return "unknown", None  # the last line alone is longer than the window
        window = window[first:]
    return _lines_status(window, whole, bad="torn")


def _frames_status(window: bytes, whole: bool) -> tuple[Status, str | None]:
    """Find the last frames in the window by their structure; the last one must pass its checksum."""
    if not whole:
        return _search_status(window)
    try:
        found = frames.scan(window)
    except frames.FrameError as error:
        if frames.MAGIC not in window[error.offset :]:
            return "torn", None  # zeros, for example, and no frame after them
        return _search_status(window)
    if found.torn_at is not None:
        return "torn", None
    return _span_status(window, found.spans)


def _span_status(window: bytes, spans: list[tuple[int, int]]) -> tuple[Status, str | None]:
    """Judge all frames of a body, from the last one back to the first that decides."""
    text = b""
    state: tuple[Status, str | None] = ("ok", None)
    for position in range(len(spans) - 1, -1, -1):
        start, end = spans[position]
        try:
            text = frames.decompress(window[start:end]) + text
        except frames.FrameError:
            return "corrupt", _UNREADABLE
        if text:  # an empty frame says nothing
            state = _lines_status(text, position == 0, bad="corrupt")
            if state[0] != "unknown":
                break
    return state


def _search_status(window: bytes) -> tuple[Status, str | None]:
    """Judge a window that begins inside a frame, or whose frames do not follow each other."""
    text = b""
    state: tuple[Status, str | None] = ("unknown", None)

    def decides(found: frames.FoundFrame) -> bool:
        nonlocal text, state
        text = found.text + text
        if text:
            state = _lines_status(text, False, bad="corrupt")
        return state[0] != "unknown"

    tail = frames.find_tail(lambda offset, size: window[offset : offset + size], len(window), decides)
    if tail is None:
        # No frame ends here: one longer than the window, or bytes that are none.
        return state if len(window) >= TAIL_WINDOW else ("corrupt", _UNREADABLE)
    return state if tail.torn_at is None else ("torn", None)


def _lines_status(text: bytes, whole: bool, *, bad: Status) -> tuple[Status, str | None]:
    """Judge whole lines; the last one has to be a good row, the others are only asked for their type."""
    if not text.endswith(b"\n"):
        return "corrupt", _UNREADABLE
    begin = text.rfind(b"\n", 0, len(text) - 1) + 1
    try:
        row = decode_row(text[begin:-1])
    except RowError:
        return bad, None if bad == "torn" else _UNREADABLE
    return tail_status(_events(row, text, begin), reaches_start=whole), None


def _events(last: Row, text: bytes, begin: int) -> Iterator[tuple[str, bool]]:
    """Yield type and replacement of the events in some lines, the newest first; a bad line ends it."""
    row = last
    while True:
        if isinstance(row, ChunkRow):
            yield "assistant/chunk", False
        else:
            yield row.type, b'"surfaceOp":{' in row.line
        if begin == 0:
            return
        end = begin - 1
        begin = text.rfind(b"\n", 0, end) + 1
        try:
            row = decode_row(text[begin:end])
        except RowError:
            return
