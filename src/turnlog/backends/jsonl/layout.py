"""Names below a JSONL root: which path a session has, and what each file in it is called.

Owns names only, made from the two path encoders of `events.segment`; it opens nothing and stats nothing.
"""

from __future__ import annotations

import functools
import os
import re
import secrets
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from turnlog.errors import InvalidSessionIdError
from turnlog.events.header import SessionHeader
from turnlog.events.segment import decode_segment, encode_segment, project_key

Encoding: TypeAlias = Literal["zstd", "none"]
"""How a log's bytes are stored: one zstd frame per batch, or plain text."""

LOG_NAMES: Final[dict[Encoding, str]] = {"zstd": "session.jsonl.zstd", "none": "session.jsonl"}
ENCODING_OF_NAME: Final[dict[str, Encoding]] = {name: encoding for encoding, name in LOG_NAMES.items()}

LOCK_NAME: Final = "session.lock"
SUMMARY_NAME: Final = "summary.json"
RESERVED_FOLDER: Final = ".turnlog"
"""A folder in the root that belongs to turnlog and holds no project."""

TEMP_NAME: Final = re.compile(r"(?:session\.jsonl(?:\.zstd)?|session\.lock)\.[0-9a-f]{12}\.tmp\Z")
QUARANTINE_NAME: Final = re.compile(r"torn-([0-9]+)(?:-[0-9]+)?\.bin\Z")
FLAT_NAME: Final = re.compile(r"(.+)\.jsonl(?:\.zstd)?\Z", re.DOTALL)
"""The single-file layout of early releases: `<project>/<id>.jsonl`, never read, named by `list`."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where one session's log is: a project folder, a session folder and an encoding."""

    root: str
    project: str
    segment: str
    encoding: Encoding

    @property
    def folder(self) -> str:
        """The session folder."""
        return f"{self.root}{os.sep}{self.project}{os.sep}{self.segment}"

    @property
    def parts(self) -> tuple[str, str]:
        """The session folder's components below the root."""
        return (self.project, self.segment)

    @property
    def log_name(self) -> str:
        """The log's file name."""
        return LOG_NAMES[self.encoding]

    @property
    def log_path(self) -> str:
        """The log's path."""
        return f"{self.root}{os.sep}{self.project}{os.sep}{self.segment}{os.sep}{LOG_NAMES[self.encoding]}"


@functools.lru_cache(maxsize=1024)
def project_of(cwd: str | None) -> str:
    """Return the project folder of a working directory; remembered, since sessions share few of them."""
    return project_key(cwd)


@functools.lru_cache(maxsize=1024)
def segment_of(session_id: str) -> str:
    """Return the session folder of an id; remembered, since every write of a session asks for it.

    Raises:
        InvalidSessionIdError: The id has no path segment of 1 to 240 bytes (S1).
    """
    return encode_segment(session_id)


def place_of(root: str, meta: SessionHeader, encoding: Encoding) -> Place:
    """Return where a session with this header belongs.

    Raises:
        InvalidSessionIdError: The id has no path segment of 1 to 240 bytes (S1).
    """
    return Place(root, project_of(meta.cwd), encode_segment(meta.id), encoding)


def temp_name(name: str) -> str:
    """Return a fresh temporary name for a file that will be published as `name`."""
    return f"{name}.{secrets.token_hex(6)}.tmp"


def quarantine_name(offset: int, copy: int = 0) -> str:
    """Return the name under which the bytes torn off at `offset` are kept (L1).

    Args:
        offset: Byte offset in the log at which the torn bytes began.
        copy: Counts up from 0 where other bytes are kept for this offset already.
    """
    return f"torn-{offset}.bin" if copy == 0 else f"torn-{offset}-{copy}.bin"


def id_of_segment(segment: str) -> str | None:
    """Return the session id that a folder name encodes, or None if no id encodes to it."""
    try:
        return decode_segment(segment)
    except InvalidSessionIdError:
        return None
