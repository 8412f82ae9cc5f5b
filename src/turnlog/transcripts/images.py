"""Images of a log as a provider can take them, or the short text that stands in their place.

Owns which images are sent. Their bytes come from the caller: a log holds only the attachment that names them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from turnlog.transcripts.limits import MANY_IMAGES, MANY_IMAGES_SIDE, Limits, Shape

Images = Mapping[str, bytes] | Callable[[str], bytes | None]
"""Bytes by attachment id, such as `{"sha256:…": b"…"}`, or a function that returns them or None."""

MEDIA_TYPES: Final[dict[Shape, frozenset[str]]] = {
    "anthropic": frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"}),
    "openai-chat": frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"}),
    "openai-responses": frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"}),
    "gemini": frozenset({"image/png", "image/jpeg", "image/webp", "image/heic", "image/heif"}),
}


def attachments_in(value: Any) -> Iterator[dict[str, Any]]:
    """Yield the attachments of a message in order, each as often as it stands there.

    Args:
        value: A message, a block or a list of blocks; nested results are searched, too.
    """
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, list):
            stack.extend(reversed(item))
        elif isinstance(item, dict):
            if isinstance(item.get("attachment"), dict):
                yield item["attachment"]
            stack.append(item.get("content"))


def attachment_ids(value: Any) -> list[str]:
    """Return the ids of the attachments that a message names, in order, each once.

    Args:
        value: As for `attachments_in`.
    """
    ids = (attachment.get("attachmentId") for attachment in attachments_in(value))
    return list(dict.fromkeys(name for name in ids if isinstance(name, str)))


def read_image(images: Images | None, attachment_id: object) -> bytes | None:
    """Return the bytes of an attachment, or None when the caller did not give them."""
    if images is None or not isinstance(attachment_id, str):
        return None
    return images(attachment_id) if callable(images) else images.get(attachment_id)


class ImageGate:
    """Decides about each image of one export.

    Args:
        shape: The provider's shape.
        limits: What holds for the request.
        images: Where bytes come from.
        total: Images that the whole history holds; many at once have a stricter bound on their size.
    """

    def __init__(self, shape: Shape, limits: Limits, images: Images | None, total: int) -> None:
        self._shape = shape
        self._limits = limits
        self._images = images
        self._side = limits.max_image_side
        if shape == "anthropic" and total > MANY_IMAGES:
            self._side = min(self._side or MANY_IMAGES_SIDE, MANY_IMAGES_SIDE)
        allowed = total if limits.max_images is None else limits.max_images
        self._to_skip = max(0, total - allowed)
        self._reason_to_skip = f"more than {allowed} images in the request"

    def judge(self, attachment: Mapping[str, Any]) -> tuple[bytes, str] | str:
        """Decide about one image.

        Args:
            attachment: The block's `attachment`.

        Returns:
            Its bytes and media type, or the reason for leaving it out.
        """
        if self._to_skip:
            self._to_skip -= 1
            return self._reason_to_skip
        media_type = attachment.get("mediaType")
        if media_type not in MEDIA_TYPES[self._shape]:
            return "its type is not accepted"
        side = max((n for k in ("width", "height") if isinstance(n := attachment.get(k), int)), default=0)
        if self._side is not None and side > self._side:
            return f"{side} pixels on its longer side, at most {self._side}"
        size, limit = attachment.get("bytes"), self._limits.max_image_bytes
        if limit is not None and isinstance(size, int) and size > limit:
            return f"{size} bytes, at most {limit}"
        data = read_image(self._images, attachment.get("attachmentId"))
        if not data:
            return "its bytes were not given"
        if limit is not None and len(data) > limit:
            return f"{len(data)} bytes, at most {limit}"
        return data, str(media_type)


def image_label(attachment: Mapping[str, Any]) -> str:
    """Return the text that stands in the place of an image, without brackets."""
    name = attachment.get("name")
    label = f"image {name}" if isinstance(name, str) and name.strip() else "image"
    width, height = attachment.get("width"), attachment.get("height")
    size = f", {width} × {height} pixels" if isinstance(width, int) and isinstance(height, int) else ""
    return label + size
