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


class SummaryFile:
    """One session's summary as its writer keeps it: open from the first time on, so that a turn is one write.

    A medium that refuses is no error, since nothing depends on the file. A descriptor that is kept beyond a
    takeover or a deletion writes where nobody reads, or a stamp that fits no log.

    Args:
        place: Where the session is.
    """

    __slots__ = ("_header", "_place", "_size", "fd", "turns")

    def __init__(self, place: Place) -> None:
        self._place = place
        self._header: msgspec.Raw | None = None
        self._size = 0
        self.fd: int | None = None
        """The open file, or None before the first write."""
        self.turns = -1
        """Turns in the summary that was last written, so that each turn end writes it once."""

    def write(self, files: FileLayer, meta: SessionHeader, revision: str, summary: LogSummary) -> None:
        """Keep a summary for listings."""
        if self._header is None:
            self._header = msgspec.Raw(header_line(meta)[:-1])
        stamped = StampedSummary(revision, summary, self._header)
        try:
            text = msgspec.json.encode(stamped)
        except UnicodeEncodeError:
            return  # a title with a lone surrogate has no place in this file
        # White space covers the end of a longer one, so that a turn needs no truncation.
        text = text.ljust(self._size - 1) + b"\n"
        with contextlib.suppress(OSError):
            if self.fd is None:
                self.fd = self._open(files)
            files.write_at(self.fd, text, 0)
            if self._size == 0:
                files.truncate(self.fd, len(text))  # what an earlier writer left behind it
            self._size = len(text)
        self.turns = summary.turns

    def close(self, files: FileLayer) -> None:
        """Close the file if it is open."""
        fd, self.fd, self._size = self.fd, None, 0
        if fd is not None:
            files.close(fd)

    def _open(self, files: FileLayer) -> int:
        with files.folder(self._place.root, self._place.parts) as folder:
            return files.open(SUMMARY_NAME, OPEN_OR_CREATE, folder=folder)


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
