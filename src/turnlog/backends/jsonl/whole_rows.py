"""How much of some bytes from a log's end is whole: frames that check, or lines that end.

Owns that measure for bytes taken out of context; judging the rows themselves is the row scanner's.
"""

from __future__ import annotations

from turnlog.backends.jsonl.layout import Encoding
from turnlog.events import frames


def whole_length(encoding: Encoding, data: bytes) -> int:
    """Return how many bytes at the start of `data` are whole frames (zstd) or whole lines (plain)."""
    if encoding == "none":
        return data.rfind(b"\n") + 1
    whole = 0
    try:
        for start, end in frames.scan(data).spans:
            frames.decompress(data[start:end])
            whole = end
    except frames.FrameError:
        return whole  # what follows is no frame
    return whole
