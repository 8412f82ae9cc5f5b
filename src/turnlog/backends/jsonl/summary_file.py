"""`summary.json` in a session folder: the writer's fold of the log, stamped with the log's revision.

Owns its format. It is never synced, never authoritative, and read only where its stamp fits the log as it
is now: then header and end are what the writer left, and a listing need not open the log to see them again.
A missing, stale or broken one means that a listing looks at the log and shows blanks.
"""

from __future__ import annotations

import contextlib

import msgspec

from turnlog.backends.jsonl.files import OPEN_OR_CREATE, READ, FileLayer
from turnlog.backends.jsonl.layout import SUMMARY_NAME, Place
from turnlog.events.header import SessionHeader, header_line
from turnlog.persistence.backend import LogSummary

_LIMIT = 64 * 1024


class StampedSummary(msgspec.Struct, frozen=True, gc=False):
    """What the file holds."""

    revision: str
    """The log's revision when this was written."""
    summary: LogSummary
    """The fold up to the end of the log."""
    header: msgspec.Raw
    """The log's header line, an object."""


_decoder = msgspec.json.Decoder(StampedSummary)


def write_summary(
    files: FileLayer, place: Place, meta: SessionHeader, revision: str, summary: LogSummary
) -> None:
    """Keep a summary for listings; a medium that refuses is no error, since nothing depends on it."""
    stamped = StampedSummary(revision, summary, msgspec.Raw(header_line(meta)[:-1]))
    try:
        text = msgspec.json.encode(stamped) + b"\n"
    except UnicodeEncodeError:
        return  # a title with a lone surrogate has no place in this file
    with contextlib.suppress(OSError), files.folder(place.root, place.parts) as folder:
        fd = files.open(SUMMARY_NAME, OPEN_OR_CREATE, folder=folder)
        try:
            files.write_at(fd, text, 0)
            files.truncate(fd, len(text))
        finally:
            files.close(fd)


def read_summary(files: FileLayer, project: int, segment: str, revision: str) -> StampedSummary | None:
    """Return what is kept of a session if it belongs to this revision of the log.

    Args:
        files: The file layer.
        project: Descriptor of the project folder.
        segment: Name of the session folder.
        revision: The log's revision now.
    """
    try:
        fd = files.open(f"{segment}/{SUMMARY_NAME}", READ, folder=project)
    except OSError:
        return None  # absent or unreadable: a listing shows blanks
    try:
        stamped = _decoder.decode(files.read_at(fd, _LIMIT, 0))
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None
    finally:
        files.close(fd)
    return stamped if stamped.revision == revision else None
