"""The content-addressed store of images: bytes beside the log, an image block with their digest in it.

Owns what may be stored (types, limits per image and per message) and the checks of what is read. The files
are in `attachment_files`; without a root everything stays in memory. It does not resize, and deletes nothing
by itself.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from turnlog.errors import BackendError, UsageError, quote
from turnlog.persistence.attachment_files import AttachmentFiles
from turnlog.persistence.image_header import read_image_header

_T = TypeVar("_T")

MAX_IMAGE_BYTES = 20 << 20
"""Bytes of one image."""
MAX_IMAGE_SIDE = 8192
"""Pixels of the longer side."""
MAX_IMAGE_PIXELS = 64_000_000
"""Pixels of one image."""
MAX_MESSAGE_IMAGES = 20
"""Images in one message."""
MAX_MESSAGE_BYTES = 200 << 20
"""Bytes of all images in one message."""

_ID = re.compile(r"sha256:([0-9a-f]{64})\Z")


class AttachmentStore:
    """Images by the digest of their bytes; the log holds the image block, this holds the image.

    Concurrency: methods may overlap; the same image stored twice at once is stored once.
    Cancellation: may leave an image that no event names; it is found again when it is put again.
    """

    def __init__(self, root: str | os.PathLike[str] | None) -> None:
        """Open nothing yet.

        Args:
            root: Folder of turnlog's own files, made by the first put; None keeps images in memory.
        """
        self._files = None if root is None else AttachmentFiles(Path(root), MAX_IMAGE_BYTES)
        self._memory: dict[str, bytes] = {}
        self._threads: ThreadPoolExecutor | None = None

    async def put(
        self, data: bytes, media_type: str | None = None, *, name: str | None = None
    ) -> dict[str, Any]:
        """Store one image durably and return the block that stands for it in a message.

        Args:
            data: The whole file: PNG, JPEG, WebP or GIF.
            media_type: What the caller believes it is; checked against the leading bytes.
            name: File name for people; kept in the block, never used as a path.

        Returns:
            A fresh block `{type, attachment: {attachmentId, mediaType, bytes, width, height, name?}}`.

        Raises:
            UsageError: Not an image of the four types, another type than stated, or over a limit.
            BackendError: The medium failed, or something other than a folder stands in the way.
        """
        block = image_block(data, media_type, name=name)
        await self._store(block["attachment"]["attachmentId"], data)
        return block

    async def put_all(self, images: Sequence[bytes]) -> list[dict[str, Any]]:
        """Store the images of one message; all are checked before the first is written.

        Args:
            images: The whole files, at most `MAX_MESSAGE_IMAGES` and `MAX_MESSAGE_BYTES` together.

        Returns:
            One image block each, in order.

        Raises:
            UsageError: Too many, too big together, or one is refused as in `put`; nothing was written.
            BackendError: The medium failed; images before the failing one may be stored.
        """
        if len(images) > MAX_MESSAGE_IMAGES:
            raise UsageError(
                f"a message carries {len(images)} images, at most {MAX_MESSAGE_IMAGES} are allowed; split it"
            )
        total = sum(map(len, images))
        if total > MAX_MESSAGE_BYTES:
            raise UsageError(
                f"the images of a message have {total} bytes, at most {MAX_MESSAGE_BYTES} are allowed; "
                "make them smaller or split the message"
            )
        blocks = [image_block(data) for data in images]
        for block, data in zip(blocks, images, strict=True):
            await self._store(block["attachment"]["attachmentId"], data)
        return blocks

    async def get(self, attachment_id: str) -> bytes:
        """Read one image and check it against its digest.

        Args:
            attachment_id: `sha256:` and 64 lower-case hex digits, as in the image block.

        Returns:
            The bytes that were put.

        Raises:
            UsageError: Not an attachment id.
            BackendError: No such image, its bytes do not have this digest, or the medium failed.
        """
        digest = _digest(attachment_id)
        files = self._files
        data = self._memory.get(digest) if files is None else await self._run(lambda: files.read(digest))
        if data is None:
            raise self._failure(f"it has no image {attachment_id}; it was stored in another store or removed")
        if hashlib.sha256(data).hexdigest() != digest:
            raise self._failure(
                f"the bytes of {attachment_id} no longer have this digest; put the image again"
            )
        return data

    async def exists(self, attachment_id: str) -> bool:
        """Tell whether an image is stored, without reading it.

        Args:
            attachment_id: As in `get`.

        Returns:
            True if `get` would find a file; its bytes are not checked here.

        Raises:
            UsageError: Not an attachment id.
            BackendError: The medium failed.
        """
        digest = _digest(attachment_id)
        files = self._files
        if files is None:
            return digest in self._memory
        return await self._run(lambda: files.has(digest))

    async def remove(self, attachment_id: str) -> bool:
        """Remove one image durably; whoever calls this knows that no log refers to it.

        Args:
            attachment_id: As in `get`.

        Returns:
            Whether it was there.

        Raises:
            UsageError: Not an attachment id.
            BackendError: The medium failed.
        """
        digest = _digest(attachment_id)
        files = self._files
        if files is None:
            return self._memory.pop(digest, None) is not None
        return await self._run(lambda: files.remove(digest))

    async def aclose(self) -> None:
        """Stop the thread once running work is done; images in memory are kept."""
        threads, self._threads = self._threads, None
        if threads is not None:
            await asyncio.get_running_loop().run_in_executor(None, threads.shutdown)

    async def _store(self, attachment_id: str, data: bytes) -> None:
        digest = _digest(attachment_id)
        files = self._files
        if files is None:
            self._memory[digest] = bytes(data)
        else:
            await self._run(lambda: files.write(digest, data))

    async def _run(self, work: Callable[[], _T]) -> _T:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(max_workers=2, thread_name_prefix="turnlog-attachments")
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        except OSError as error:
            raise self._failure(error.strerror or str(error)) from error

    def _failure(self, reason: str) -> BackendError:
        path = None if self._files is None else str(self._files.folder)
        return BackendError(backend="attachments", reason=reason, path=path)


def image_block(data: bytes, media_type: str | None = None, *, name: str | None = None) -> dict[str, Any]:
    """Check one image against the limits and build its block; nothing is stored.

    Args:
        data: The whole file.
        media_type: What the caller believes it is, or None.
        name: File name for people, or None.

    Returns:
        A fresh `image` block.

    Raises:
        UsageError: Not an image of the four types, another type than stated, or over a limit.
    """
    if len(data) > MAX_IMAGE_BYTES:
        raise UsageError(
            f"an image has {len(data)} bytes, at most {MAX_IMAGE_BYTES} are allowed; make it smaller first"
        )
    header = read_image_header(data)
    if media_type is not None and media_type != header.media_type:
        raise UsageError(
            f"an image is said to be {quote(media_type)} but its bytes are {header.media_type}; "
            "state that type or none"
        )
    if max(header.width, header.height) > MAX_IMAGE_SIDE or header.width * header.height > MAX_IMAGE_PIXELS:
        raise UsageError(
            f"an image has {header.width} x {header.height} pixels, at most {MAX_IMAGE_SIDE} a side and "
            f"{MAX_IMAGE_PIXELS} in all are allowed; scale it down first"
        )
    attachment: dict[str, Any] = {
        "attachmentId": f"sha256:{hashlib.sha256(data).hexdigest()}",
        "mediaType": header.media_type,
        "bytes": len(data),
        "width": header.width,
        "height": header.height,
    }
    if name is not None:
        attachment["name"] = name
    return {"type": "image", "attachment": attachment}


def _digest(attachment_id: str) -> str:
    match = _ID.match(attachment_id)
    if match is None:
        raise UsageError(
            f"{quote(attachment_id)} is not an attachment id; it is 'sha256:' and 64 lower-case hex digits"
        )
    return match[1]
