"""A bundle: one zip file with a session's log, its children, its images and the digest of each.

Owns the file's form: a root of plain JSONL logs beside a manifest, so that it can be read without turnlog.
What goes in is raw; a bundle with secrets marked says so and is not taken back.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import zipfile
from collections.abc import AsyncIterable, AsyncIterator
from dataclasses import dataclass, field
from typing import IO, TYPE_CHECKING, Any, Final

from turnlog.errors import BackendError, SessionNotFoundError
from turnlog.events.envelope import SessionEvent
from turnlog.events.header import SessionHeader, header_line
from turnlog.events.log import EventLog
from turnlog.events.segment import encode_segment, project_key
from turnlog.session.fork import descendants
from turnlog.transcripts.images import attachments_in
from turnlog.transcripts.redacted_log import redacted_lines
from turnlog.transcripts.redaction import Redactor

if TYPE_CHECKING:
    from turnlog.persistence.store import SessionStore

FORMAT: Final = "turnlog-bundle"
VERSION: Final = 1
MANIFEST: Final = "manifest.json"
ATTACHMENTS: Final = "attachments"

_ENOUGH_LEVEL: Final = 6
_TIME = (1980, 1, 1, 0, 0, 0)  # the earliest that a zip can state: equal sessions give equal bundles
_EXTENSIONS: Final = {"image/png": ".png", "image/jpeg": ".jpg", "image/webp": ".webp", "image/gif": ".gif"}


@dataclass(slots=True)
class Bundled:
    """What a bundle holds."""

    session_id: str
    sessions: list[dict[str, Any]] = field(default_factory=list)
    """One entry per log: id, path, bytes, sha256, number of events, digest of the events."""
    attachments: list[dict[str, Any]] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    """Ids of images that the logs name and the store does not have."""
    is_redacted: bool = False

    def manifest(self) -> dict[str, Any]:
        """Return the manifest as JSON."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "session": self.session_id,
            "redacted": self.is_redacted,
            "sessions": self.sessions,
            "attachments": self.attachments,
            "missing_attachments": self.missing,
        }


async def write_bundle(
    store: SessionStore,
    session_id: str,
    target: str | os.PathLike[str] | IO[bytes],
    *,
    redactor: Redactor | None = None,
) -> Bundled:
    """Write a bundle of a session and the sub-agent sessions below it.

    Args:
        store: Where they are; only read.
        session_id: The session.
        target: A path or a file opened for writing.
        redactor: Marks secrets; the bundle is then for reading only, and images are not in it.

    Returns:
        What was written.

    Raises:
        SessionNotFoundError: Nothing is stored under the id.
        CorruptLogError: One of the logs is damaged (R2).
        BackendError: The medium failed.
        OSError: The file cannot be written.
    """
    bundled = Bundled(session_id, is_redacted=redactor is not None)
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED, compresslevel=_ENOUGH_LEVEL) as archive:
        images: dict[str, str] = {}
        for member in [session_id, *await _descendants(store, session_id)]:
            await _add_session(store, member, archive, bundled, redactor, images)
        if redactor is None:
            for attachment_id, media_type in images.items():
                await _add_attachment(store, attachment_id, media_type, archive, bundled)
        manifest = json.dumps(bundled.manifest(), indent=1, ensure_ascii=True) + "\n"
        await asyncio.to_thread(archive.writestr, _entry(MANIFEST), manifest)
    return bundled


async def _descendants(store: SessionStore, session_id: str) -> tuple[str, ...]:
    """Return the sub-agent sessions below a session, parents first, siblings in the store's order."""
    children: dict[str, list[str]] = {}
    async for info in store.list():
        header = info.header
        if header is not None and header.origin == "subagent" and header.parent_session is not None:
            children.setdefault(header.parent_session, []).append(header.id)
    return descendants(children, session_id)


async def _add_session(
    store: SessionStore,
    session_id: str,
    archive: zipfile.ZipFile,
    bundled: Bundled,
    redactor: Redactor | None,
    images: dict[str, str],
) -> None:
    stored = await store.read_from(session_id, 0)
    if stored.events.first_seq != 0:
        raise SessionNotFoundError(session_id=session_id)
    name = "session.jsonl" if redactor is None else "session.redacted.jsonl"
    path = f"{project_key(stored.meta.cwd)}/{encode_segment(session_id)}/{name}"
    if redactor is not None:
        path = f"redacted/{len(bundled.sessions)}/{name}"
    digest, size = hashlib.sha256(), 0
    with archive.open(_entry(path), "w", force_zip64=True) as out:
        async for line in _lines(stored.meta, stored.events, redactor):
            digest.update(line)
            size += len(line)
            await asyncio.to_thread(out.write, line)
    entry: dict[str, Any] = {"path": path, "bytes": size, "sha256": digest.hexdigest()}
    if redactor is None:
        entry = {
            "id": session_id,
            **entry,
            "events": len(stored.events),
            "events_sha256": stored.events.digest(),
        }
    bundled.sessions.append(entry)
    for row in stored.events.significant():
        if b'"attachmentId"' in row.line:
            images |= _images_of(row.event().data)


async def _lines(meta: SessionHeader, log: EventLog, redactor: Redactor | None) -> AsyncIterator[bytes]:
    """Yield a log as plain text: its own rows, packed as they are stored, in pieces of some size."""
    if redactor is not None:
        async for line in redacted_lines(meta, _each(log), redactor):
            yield line.encode() + b"\n"
        return
    piece = bytearray(header_line(meta))
    for row in log.rows:
        piece += row.line + b"\n"
        if len(piece) > 1 << 20:
            yield bytes(piece)
            piece.clear()
    yield bytes(piece)


async def _each(log: EventLog) -> AsyncIterable[SessionEvent]:
    for event in log:
        yield event


def _images_of(data: Any) -> dict[str, str]:
    """Return the media type of each image that a payload names, by attachment id."""
    message = data.get("message", data) if isinstance(data, dict) else None
    return {
        str(attachment["attachmentId"]): str(attachment.get("mediaType"))
        for attachment in attachments_in(message)
        if isinstance(attachment.get("attachmentId"), str)
    }


async def _add_attachment(
    store: SessionStore, attachment_id: str, media_type: str, archive: zipfile.ZipFile, bundled: Bundled
) -> None:
    try:
        data = await store.attachments.get(attachment_id)
    except (BackendError, ValueError):
        bundled.missing.append(attachment_id)
        return
    digest = hashlib.sha256(data).hexdigest()
    path = f"{ATTACHMENTS}/{digest}{_EXTENSIONS.get(media_type, '')}"
    await asyncio.to_thread(archive.writestr, _entry(path), data)
    bundled.attachments.append({"id": attachment_id, "path": path, "bytes": len(data), "sha256": digest})


def _entry(path: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(path, _TIME)
    info.compress_type = zipfile.ZIP_DEFLATED
    info.external_attr = 0o600 << 16
    return info
