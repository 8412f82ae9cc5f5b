"""zstd frames: one frame per durable batch, found by structure and proven by checksum.

Owns compression, the structural scan, the recovery of a torn frame's complete blocks, and the search for
frames from the end or by seq without reading the whole log. Rows inside frames are read by `scan`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING or sys.version_info < (3, 14):
    from backports import zstd
else:  # pragma: no cover - the standard library's module of Python 3.14, same interface
    from compression import zstd

MAGIC = b"\x28\xb5\x2f\xfd"
"""First bytes of every frame."""

_LEVEL = 3
_OPTIONS: dict[int, int] = {
    int(zstd.CompressionParameter.compression_level): _LEVEL,
    int(zstd.CompressionParameter.checksum_flag): 1,
    int(zstd.CompressionParameter.content_size_flag): 0,
}
_SKIPPABLE = b"\x2a\x4d\x18"
_COMPRESSORS_KEPT = 8
_idle_compressors: list[zstd.ZstdCompressor] = []
"""Compressors between frames: making one costs twenty times what compressing a small batch does. All threads
share them; taking from a list and putting back to it are each one step."""
_RESERVED_BITS = 0x18
_CHECKSUM_BIT = 0x04
_SINGLE_SEGMENT_BIT = 0x20
_RLE_BLOCK = 1
_RESERVED_BLOCK = 3
_WINDOW = 1 << 16
_BLOCK = 1 << 14


class FrameError(ValueError):
    """Bytes that are not the zstd frame they should be; the medium is at fault."""

    def __init__(self, offset: int, reason: str, kind: str = "frame-structure") -> None:
        super().__init__(f"{reason} at byte {offset}")
        self.offset = offset
        self.reason = reason
        self.kind = kind
        """`frame-magic`, `frame-skippable`, `frame-structure` or `frame-checksum`."""


@dataclass(slots=True)
class FrameScan:
    """Where frames begin and end."""

    spans: list[tuple[int, int]] = field(default_factory=list)
    """Complete frames as `(start, end)` byte offsets, end exclusive."""
    torn_at: int | None = None
    """Start of a last frame that is cut short, or None."""


def compress(data: bytes) -> bytes:
    """Compress a batch's text as one frame, byte for byte as the original writes it.

    Args:
        data: Any bytes.

    Returns:
        Level 3, with checksum, without content size; two calls, because one would write the size.
    """
    try:
        compressor = _idle_compressors.pop()
    except IndexError:
        compressor = zstd.ZstdCompressor(options=_OPTIONS)
    # One that fails in the middle of a frame is not put back.
    frame = compressor.compress(data) + compressor.flush(zstd.ZstdCompressor.FLUSH_FRAME)
    if len(_idle_compressors) < _COMPRESSORS_KEPT:
        _idle_compressors.append(compressor)
    return frame


def decompress(frame: bytes) -> bytes:
    """Decompress exactly one frame and verify its checksum.

    Args:
        frame: The bytes of one complete frame.

    Raises:
        FrameError: The frame does not decode, fails its checksum, ends early or has bytes after it.
    """
    decompressor = zstd.ZstdDecompressor()
    try:
        text = decompressor.decompress(frame)
    except zstd.ZstdError as error:
        raise FrameError(0, f"the frame does not decode ({error})", "frame-checksum") from error
    if not decompressor.eof or decompressor.unused_data:
        raise FrameError(0, "the frame does not end where it should", "frame-structure")
    return text


def frame_end(buf: bytes, start: int) -> int | None:
    """Find the end of the frame at `start` by its structure alone.

    Args:
        buf: Bytes that hold the frame.
        start: Offset of its first byte.

    Returns:
        The offset after its last byte, or None if the frame is cut short by the end of `buf`.

    Raises:
        FrameError: The bytes cannot be a frame.
    """
    size = len(buf)
    magic = buf[start : start + 4]
    if magic != MAGIC[: len(magic)]:
        if len(magic) == 4 and magic[0] & 0xF0 == 0x50 and magic[1:] == _SKIPPABLE:
            raise FrameError(start, "a skippable frame, which no log has", "frame-skippable")
        raise FrameError(start, "invalid frame magic", "frame-magic")
    if size - start < 5:
        return None
    descriptor = buf[start + 4]
    if descriptor & _RESERVED_BITS:
        raise FrameError(start, "reserved bit set in the frame header")
    at = start + _header_size(descriptor)
    while True:
        if at + 3 > size:
            return None
        header = int.from_bytes(buf[at : at + 3], "little")
        kind = header >> 1 & 3
        if kind == _RESERVED_BLOCK:
            raise FrameError(start, "reserved block type")
        at += 3 + (1 if kind == _RLE_BLOCK else header >> 3)
        if header & 1:
            break
    at += 4 if descriptor & _CHECKSUM_BIT else 0
    return at if at <= size else None


def scan(buf: bytes, start: int = 0) -> FrameScan:
    """Find all frames by their structure, without decompressing.

    Args:
        buf: The whole log, or its part from a frame's start on.
        start: Offset of the first frame.

    Raises:
        FrameError: Bytes where a frame should begin cannot be one.
    """
    found = FrameScan()
    at = start
    while at < len(buf):
        end = frame_end(buf, at)
        if end is None:
            found.torn_at = at
            break
        found.spans.append((at, end))
        at = end
    return found


def find_complete(buf: bytes, start: int) -> int | None:
    """Find the first complete frame with a good checksum.

    Args:
        buf: Any bytes.
        start: First offset at which the frame may begin.

    Returns:
        Its offset, or None.
    """
    at = buf.find(MAGIC, start)
    while at >= 0:
        try:
            end = frame_end(buf, at)
            if end is not None:
                decompress(buf[at:end])
                return at
        except FrameError:
            pass  # the four bytes of the magic inside something else
        at = buf.find(MAGIC, at + 1)
    return None


def decode_prefix(torn: bytes) -> bytes:
    """Decompress the complete blocks of a frame that is cut short.

    Args:
        torn: The beginning of one frame.

    Returns:
        Their text, not protected by any checksum (R2); empty if no block is complete.
    """
    decompressor = zstd.ZstdDecompressor()
    out: list[bytes] = []
    try:
        at = 0
        for end in [*_block_ends(torn), len(torn)]:
            out.append(decompressor.decompress(torn[at:end]))
            at = end
    except zstd.ZstdError:
        pass  # a bad block, or a checksum that does not fit: what came before it was handed over whole
    return b"".join(out)


def _block_ends(torn: bytes) -> list[int]:
    """Return the offsets at which the blocks of a torn frame end."""
    ends: list[int] = []
    at = _header_size(torn[4]) if len(torn) > 4 else len(torn)
    while at + 3 <= len(torn):
        header = int.from_bytes(torn[at : at + 3], "little")
        at += 3 + (1 if header >> 1 & 3 == _RLE_BLOCK else header >> 3)
        if at > len(torn):
            break
        ends.append(at)
        if header & 1:
            break
    return ends


def _header_size(descriptor: int) -> int:
    """Return the bytes before the first block, magic and descriptor included."""
    single = bool(descriptor & _SINGLE_SEGMENT_BIT)
    size_flag = descriptor >> 6
    content_size = (1 if single else 0) if size_flag == 0 else 1 << size_flag
    return 5 + (0 if single else 1) + (0, 1, 2, 4)[descriptor & 3] + content_size


ReadAt = Callable[[int, int], bytes]
"""`read_at(offset, size)` returns exactly `size` bytes; it raises when a log has become shorter."""


@dataclass(frozen=True, slots=True)
class FoundFrame:
    """A frame found by search, decoded and verified."""

    start: int
    """Offset of its first byte."""
    end: int
    """Offset after its last byte."""
    text: bytes
    """Its plaintext."""


@dataclass(frozen=True, slots=True)
class FrameTail:
    """The last frames of a log."""

    frames: tuple[FoundFrame, ...]
    """Consecutive frames in order; the last one ends at `torn_at` or at the end of the log."""
    torn_at: int | None
    """Start of a last frame that is cut short, or None."""


class _Window:
    """The end of a log, read backwards, each byte once."""

    def __init__(self, read_at: ReadAt, size: int) -> None:
        self.read_at = read_at
        self.size = size
        self.base = size
        self.buf = b""

    def grow_to(self, offset: int) -> None:
        """Make the window begin at `offset` or before."""
        if offset < self.base:
            self.buf = self.read_at(offset, self.base - offset) + self.buf
            self.base = offset


def find_tail(
    read_at: ReadAt, size: int, want_from: Callable[[FoundFrame], bool] | None = None, *, start: int = 0
) -> FrameTail | None:
    """Find the last frames by searching backwards from the end of a log.

    A magic counts as a frame's start only if the chain of frames from it reaches the end of the log and the
    frame passes its checksum, so that the same four bytes inside a frame never mislead.

    Args:
        read_at: Reads the log.
        size: Length of the log in bytes.
        want_from: Asked with each frame, from the last backwards; True means that no earlier one is needed.
            Without it only the last frame is found.
        start: Where the first frame may begin.

    Returns:
        The frames, or None if no complete frame ends the log (damage, or no frame at all).
    """
    window = _Window(read_at, size)
    last = _last_frame(window, start)
    if last is None:
        return None
    found, torn_at = last
    frames = [found]
    while want_from is not None and not want_from(frames[-1]) and frames[-1].start > start:
        earlier = _frame_before(window, frames[-1].start, start)
        if earlier is None:
            break
        frames.append(earlier)
    return FrameTail(tuple(reversed(frames)), torn_at)


def _last_frame(window: _Window, start: int) -> tuple[FoundFrame, int | None] | None:
    """Find the last complete frame; what follows it must be nothing or the beginning of a frame."""
    for at in _magics_before(window, window.size, start):
        try:
            chain = scan(window.buf, at - window.base)
        except FrameError:
            continue  # the four bytes inside a frame, or garbage behind the last frame
        if not chain.spans:
            continue
        begin, end = chain.spans[-1]
        text = _verified(window.buf[begin:end])
        if text is not None:
            torn = None if chain.torn_at is None else chain.torn_at + window.base
            return FoundFrame(begin + window.base, end + window.base, text), torn
        if len(chain.spans) > 1 and _verified(window.buf[slice(*chain.spans[0])]) is not None:
            return None  # a true chain whose last frame is bad: nothing before it can be the end
    return None


def _frame_before(window: _Window, end: int, start: int) -> FoundFrame | None:
    """Find the frame that ends exactly at `end`."""
    for at in _magics_before(window, end, start):
        begin = at - window.base
        try:
            found = frame_end(window.buf[: end - window.base], begin)
        except FrameError:
            continue
        if found is not None and found + window.base == end:
            text = _verified(window.buf[begin:found])
            if text is not None:
                return FoundFrame(at, end, text)
    return None


def _magics_before(window: _Window, end: int, start: int) -> Iterator[int]:
    """Yield the offsets of the magic before `end`, the nearest first, reading backwards as needed."""
    upper = end
    step = _WINDOW
    while upper > start:
        lower = max(start, min(window.base, upper - step))
        window.grow_to(lower)
        reach = len(MAGIC) - 1  # a magic may begin before `upper` and end behind it
        at = window.buf.rfind(MAGIC, 0, upper - window.base + reach)
        while at >= lower - window.base:
            yield at + window.base
            at = window.buf.rfind(MAGIC, 0, at + reach)
        upper = lower
        step *= 4


def _verified(frame: bytes) -> bytes | None:
    try:
        return decompress(frame)
    except FrameError:
        return None


class _Blocks:
    """A log read in blocks, each once, for reads that come back to the same place."""

    def __init__(self, read_at: ReadAt, size: int) -> None:
        self._read_at = read_at
        self._blocks: dict[int, bytes] = {}
        self.size = size

    def read(self, offset: int, end: int) -> bytes:
        """Return the bytes of [offset, end)."""
        first, last = offset // _BLOCK, -(-end // _BLOCK)
        for block in range(first, last):
            if block not in self._blocks:
                at = block * _BLOCK
                self._blocks[block] = self._read_at(at, min(_BLOCK, self.size - at))
        begin = first * _BLOCK
        return b"".join(self._blocks[block] for block in range(first, last))[offset - begin : end - begin]


def seek(
    read_at: ReadAt, size: int, seq: int, first_seq: Callable[[bytes], int | None], *, start: int = 0
) -> int | None:
    """Find the frame that holds an event by bisection over the bytes of a log.

    Args:
        read_at: Reads the log.
        size: Length of the log in bytes.
        seq: The wanted seq.
        first_seq: Tells the first seq of a frame's plaintext; None if it holds no row.
        start: Where the first body frame begins.

    Returns:
        The offset of the last frame whose first seq is not above `seq`; None if there is none.
    """
    blocks = _Blocks(read_at, size)
    low, high = start, size
    best: int | None = None
    while low < high:
        middle = low + (high - low) // 2 if high - low > _BLOCK else low
        found = _frame_from(blocks, middle, high, first_seq)
        if found is not None and found[2] <= seq:
            best, low = found[0], found[1]
        elif middle == low:
            break
        else:
            high = middle
    return best


def _frame_from(
    blocks: _Blocks, at: int, limit: int, first_seq: Callable[[bytes], int | None]
) -> tuple[int, int, int] | None:
    """Find the first frame that begins in [at, limit) and holds a row: `(start, end, first seq)`."""
    reach = min(at + _BLOCK, blocks.size)
    buf = blocks.read(at, reach)
    begin = 0
    while True:
        found = buf.find(MAGIC, begin)
        if found >= limit - at:
            return None
        if found < 0 and reach >= min(limit + len(MAGIC) - 1, blocks.size):
            return None
        end: int | None = None
        begin = found
        if found < 0:
            begin = max(0, len(buf) - len(MAGIC) + 1)
        else:
            try:
                end = frame_end(buf, found)
            except FrameError:
                begin += 1
                continue
        if end is not None:
            text = _verified(buf[found:end])
            seq = None if text is None else first_seq(text)
            if seq is not None:
                return at + found, at + end, seq
            begin += 1
        elif reach < blocks.size:
            reach = min(reach + len(buf), blocks.size)
            buf = blocks.read(at, reach)
        else:
            begin += 1  # cut short by the end of the log: the torn last frame, or no frame at all
