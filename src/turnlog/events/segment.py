"""Names of directories: session ids and working directories as path segments.

Owns the two encodings; every path of a store is made of them, so no id can leave the root. Touches no file.
"""

from __future__ import annotations

import re

from turnlog.errors import InvalidSessionIdError, UsageError

MAX_SEGMENT = 240
"""Longest segment of a session id in bytes (S1)."""
MAX_PROJECT = 251
"""Longest slug of a working directory before it is wrapped, in characters."""
NO_CWD = "_no-cwd"
"""Directory of the sessions without a working directory."""

_SAFE = re.compile(r"[A-Za-z0-9._-]", re.ASCII)
_ALL_SAFE = re.compile(r"[A-Za-z0-9._-]*", re.ASCII)
_ESCAPE = re.compile(r"~([0-9A-F]{4})", re.ASCII)
_SEPARATORS = "/\\:"


def _units(text: str) -> list[int]:
    raw = text.encode("utf-16-be", "surrogatepass")
    return [raw[at] << 8 | raw[at + 1] for at in range(0, len(raw), 2)]


def _escape_unit(unit: int) -> str:
    char = chr(unit)
    return char if _SAFE.match(char) else f"~{unit:04X}"


def encode_segment(session_id: str) -> str:
    """Encode a session id as one path segment; different ids give different segments.

    Args:
        session_id: Any string, lone surrogates included.

    Returns:
        1 to 240 characters of `[A-Za-z0-9._~-]`, never `.` or `..`.

    Raises:
        InvalidSessionIdError: The id is empty or its segment is longer (S1). The caller must take another id.
    """
    if not session_id:
        raise InvalidSessionIdError(session_id=session_id, reason="it is empty")
    if session_id in (".", ".."):
        return "~002E" * len(session_id)
    plain = _ALL_SAFE.fullmatch(session_id) is not None
    segment = session_id if plain else "".join(map(_escape_unit, _units(session_id)))
    if len(segment) > MAX_SEGMENT:
        raise InvalidSessionIdError(
            session_id=session_id,
            reason=f"its path segment has {len(segment)} bytes, more than {MAX_SEGMENT}",
        )
    return segment


def decode_segment(segment: str) -> str:
    """Decode a path segment into the session id it stands for.

    Args:
        segment: A directory name.

    Raises:
        InvalidSessionIdError: `encode_segment` gives no such name. Someone else made the directory.
    """
    units = _ESCAPE.sub(lambda m: chr(int(m[1], 16)), segment)
    session_id = units.encode("utf-16-be", "surrogatepass").decode("utf-16-be", "surrogatepass")
    if encode_segment(session_id) != segment:
        raise InvalidSessionIdError(session_id=segment, reason="it is not the encoded form of any id")
    return session_id


def project_key(cwd: str | None) -> str:
    """Return the name of the directory for sessions of one working directory.

    Args:
        cwd: The working directory, or None.

    Returns:
        `_no-cwd`, or `--<slug>--` of at most 255 characters. Different directories may share a name.

    Raises:
        UsageError: `cwd` is the empty string.
    """
    if cwd is None:
        return NO_CWD
    if not cwd:
        raise UsageError("the working directory must not be an empty string")
    slug: list[str] = []
    in_run = False
    for unit in _units(cwd):
        if chr(unit) in _SEPARATORS:
            if not in_run:
                slug.append("-")
            in_run = True
        else:
            slug.append(_escape_unit(unit))
            in_run = False
    name = "".join(slug).lstrip("-") or "root"
    return f"--{name[:MAX_PROJECT]}--"
