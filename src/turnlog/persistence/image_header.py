"""What the first bytes of an image say: its media type and its size in pixels.

Owns the four formats an image block may have (PNG, JPEG, WebP, GIF). It reads headers only, never decodes
pixels, and does no I/O: whoever holds the bytes decides what to do with them.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from turnlog.errors import UsageError

MEDIA_TYPES = ("image/png", "image/jpeg", "image/webp", "image/gif")
"""Media types an image block may carry (session log format, section on content blocks)."""

# JPEG frame headers SOF0-SOF15; C4, C8 and CC share the range and are tables or reserved.
_JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
# JPEG markers that stand alone, without a length: TEM and RST0-RST7.
_JPEG_BARE = frozenset({0x01, *range(0xD0, 0xD8)})
_JPEG_END = frozenset({0xD9, 0xDA})  # end of image, start of scan: no frame header can follow


class ImageHeader(NamedTuple):
    """What an image says about itself."""

    media_type: str
    """One of `MEDIA_TYPES`, found by the leading bytes."""
    width: int
    """Pixels, at least 1."""
    height: int
    """Pixels, at least 1."""


def read_image_header(data: bytes) -> ImageHeader:
    """Find the media type of an image by its leading bytes and its size by its header.

    Args:
        data: The whole file, or at least its header.

    Returns:
        Media type, width and height.

    Raises:
        UsageError: The bytes are none of PNG, JPEG, WebP, GIF, or their header is cut or states no pixels.
    """
    if data.startswith(b"\x89PNG\r\n\x1a\n"):
        media_type, size = "image/png", _png(data)
    elif data.startswith(b"\xff\xd8\xff"):
        media_type, size = "image/jpeg", _jpeg(data)
    elif data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        media_type, size = "image/webp", _webp(data)
    elif data[:6] in (b"GIF87a", b"GIF89a"):
        media_type, size = "image/gif", _gif(data)
    else:
        raise UsageError(
            f"an attachment is none of {', '.join(MEDIA_TYPES)} (its first bytes are {data[:8].hex()!r}); "
            "convert it to one of these first"
        )
    if size is None or size[0] < 1 or size[1] < 1:
        raise UsageError(
            f"an attachment begins like {media_type} but its header states no size in pixels; "
            "the bytes are cut or damaged, read the file again"
        )
    return ImageHeader(media_type, *size)


def _png(data: bytes) -> tuple[int, int] | None:
    if len(data) < 24 or data[12:16] != b"IHDR":
        return None
    width, height = struct.unpack_from(">II", data, 16)
    return width, height


def _gif(data: bytes) -> tuple[int, int] | None:
    if len(data) < 10:
        return None
    width, height = struct.unpack_from("<HH", data, 6)
    return width, height


def _webp(data: bytes) -> tuple[int, int] | None:
    kind = data[12:16]
    if kind == b"VP8X" and len(data) >= 30:
        return int.from_bytes(data[24:27], "little") + 1, int.from_bytes(data[27:30], "little") + 1
    if kind == b"VP8L" and len(data) >= 25 and data[20] == 0x2F:
        bits = int.from_bytes(data[21:25], "little")
        return (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    if kind == b"VP8 " and len(data) >= 30 and data[23:26] == b"\x9d\x01\x2a":
        width, height = struct.unpack_from("<HH", data, 26)
        return width & 0x3FFF, height & 0x3FFF  # the two high bits are an upscaling hint
    return None


def _jpeg(data: bytes) -> tuple[int, int] | None:
    at = 2
    while at + 4 <= len(data):
        if data[at] != 0xFF:
            return None
        marker = data[at + 1]
        if marker == 0xFF:  # fill byte before a marker
            at += 1
        elif marker in _JPEG_BARE:
            at += 2
        elif marker in _JPEG_END:
            return None
        elif marker in _JPEG_FRAMES:
            if at + 9 > len(data):
                return None
            height, width = struct.unpack_from(">HH", data, at + 5)
            return width, height
        else:
            at += 2 + max(2, int.from_bytes(data[at + 2 : at + 4], "big"))
    return None
