"""How big a request may be: limits that the caller gives, over the ones that each provider documents.

Owns the numbers. What happens to content beyond them is decided where the content is made smaller.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final, Literal

Shape = Literal["anthropic", "openai-chat", "openai-responses", "gemini"]
"""A provider's form of a request."""

SHAPES: Final[tuple[Shape, ...]] = ("anthropic", "openai-chat", "openai-responses", "gemini")

_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class Limits:
    """Upper bounds, inclusive. None means the provider's own documented bound, or none if it has none."""

    max_bytes: int | None = None
    """Bytes of the whole request as UTF-8 JSON."""
    max_text: int | None = None
    """Characters of one text."""
    max_images: int | None = None
    """Images in the whole request; the newest are kept."""
    max_image_bytes: int | None = None
    """Bytes of one image file, before its encoding as base64."""
    max_image_side: int | None = None
    """Pixels of the longer side."""

    def over(self, other: Limits) -> Limits:
        """Return these limits with those of `other` where nothing is given."""
        return Limits(
            *(
                getattr(other, f.name) if (mine := getattr(self, f.name)) is None else mine
                for f in fields(Limits)
            )
        )


PROVIDER_LIMITS: Final[dict[Shape, Limits]] = {
    # 32 MB a request, 100 images, 5 MB each in base64, 8000 pixels a side.
    "anthropic": Limits(32 * 1_000_000, None, 100, 5 * _MIB // 4 * 3, 8000),
    # 50 MB of images a request, 500 of them; a text has at most 10 MiB characters.
    "openai-chat": Limits(50 * 1_000_000, 10 * _MIB, 500, 20 * 1_000_000, None),
    "openai-responses": Limits(50 * 1_000_000, 10 * _MIB, 500, 20 * 1_000_000, None),
    # 20 MB a request with everything inline.
    "gemini": Limits(20 * 1_000_000, None, 3000, 15 * 1_000_000, None),
}
"""What the providers' documentation says; a request beyond it is refused as a whole."""

MANY_IMAGES: Final = 20
MANY_IMAGES_SIDE: Final = 2000
"""Anthropic: with more than `MANY_IMAGES` images in a request, each has at most this many pixels a side."""
