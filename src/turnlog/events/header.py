"""The header: what a session is, written once before its events.

Owns `SessionHeader`, its checks, and the first line of a log file.
"""

from __future__ import annotations

import posixpath
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from turnlog.errors import CorruptLogError, InvalidEventError, UnsupportedFormatError
from turnlog.events import lossless
from turnlog.events.lossless import LosslessDecodeError, is_count

FORMAT_VERSION = 0
"""The one format version that this release reads and writes."""

_EMPTY: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class SessionHeader:
    """Metadata of one session, immutable."""

    id: str
    """The session id."""
    created_at: int
    """Unix milliseconds, not negative."""
    version: int = FORMAT_VERSION
    """Format version, always 0."""
    cwd: str | None = None
    """Absolute working directory."""
    parent_session: str | None = None
    """Id of the session this one was forked from."""
    seed_length: int | None = None
    """Number of leading events inherited from the parent."""
    origin: str | None = None
    """`subagent` or None."""
    delegation_depth: int | None = None
    """Levels of delegation above this session; None and 0 both mean none."""
    agent_preset: str | None = None
    """Preset the agent was composed from at creation."""
    extra: Mapping[str, Any] = field(default_factory=lambda: _EMPTY, hash=False)
    """Keys that this release does not know, kept as they are."""

    def to_dict(self) -> dict[str, Any]:
        """Return the header as a plain object, keys in the original's order, absent ones left out."""
        out: dict[str, Any] = {"version": self.version, "id": self.id, "createdAt": self.created_at}
        for name, key in _OPTIONAL.items():
            value = getattr(self, name)
            if value is not None:
                out[key] = value
        if self.extra:
            out.update(_copied(self.extra))
        return out

    @classmethod
    def from_dict(cls, header: Mapping[str, Any], *, session_id: str | None = None) -> SessionHeader:
        """Check a plain object and make a header of it.

        Args:
            header: The header with camelCase keys.
            session_id: The id it must have, or None for any.

        Raises:
            InvalidEventError: `.field` is the wrong key. Whoever made the header is at fault.
        """
        if not isinstance(header, Mapping):
            raise InvalidEventError(field="header", reason="must be an object", session_id=session_id)
        plain = dict(header)
        try:
            lossless.encode(plain)
        except InvalidEventError as error:
            raise InvalidEventError(
                field=f"header{error.field[1:]}", reason=error.reason, session_id=session_id
            ) from None
        _check(plain, session_id)
        known = {"version", "id", "createdAt", *_OPTIONAL.values()}
        values: dict[str, Any] = {name: plain.get(key) for name, key in _OPTIONAL.items()}
        for name in ("seed_length", "delegation_depth"):
            values[name] = None if values[name] is None else int(values[name])
        extra = {key: value for key, value in plain.items() if key not in known}
        return cls(
            id=plain["id"],
            created_at=int(plain["createdAt"]),
            extra=MappingProxyType(_copied(extra)) if extra else _EMPTY,
            **values,
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return (SessionHeader.from_dict, (self.to_dict(),))


_OPTIONAL = {
    "cwd": "cwd",
    "parent_session": "parentSession",
    "seed_length": "seedLength",
    "origin": "origin",
    "delegation_depth": "delegationDepth",
    "agent_preset": "agentPreset",
}


def _copied(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a deep copy of JSON values, so that a header shares nothing with its callers."""
    found: dict[str, Any] = lossless.decode(lossless.encode(dict(values)))
    return found


def _check(header: dict[str, Any], session_id: str | None) -> None:
    """Check each key in the original's order; an absent optional key is fine, a null one is not."""

    def require(good: bool, key: str, reason: str) -> None:
        if not good:
            raise InvalidEventError(field=f"header.{key}", reason=reason, session_id=session_id)

    version = header.get("version")
    require(type(version) in (int, float) and version == FORMAT_VERSION, "version", "must be 0")
    require(isinstance(header.get("id"), str), "id", "must be a string")
    require(session_id is None or header["id"] == session_id, "id", "must be the session's id")
    require(is_count(header.get("createdAt")), "createdAt", "must be a non-negative safe integer")
    if "cwd" in header:
        require(isinstance(header["cwd"], str), "cwd", "must be a string")
        require(_is_absolute(header["cwd"]), "cwd", "must be an absolute path")
    for key in ("parentSession", "agentPreset"):
        require(key not in header or isinstance(header[key], str), key, "must be a string")
    for key in ("seedLength", "delegationDepth"):
        require(key not in header or is_count(header[key]), key, "must be a non-negative safe integer")
    require(
        "origin" not in header or header["origin"] == "subagent", "origin", "must be 'subagent' or absent"
    )


def _is_absolute(path: str) -> bool:
    if sys.platform == "win32":  # pragma: no cover - another platform's rule of what is absolute
        import ntpath

        return ntpath.isabs(path)
    return posixpath.isabs(path)


def header_line(header: SessionHeader) -> bytes:
    """Encode the first line of a log file.

    Args:
        header: The header; `delegationDepth` is written even when it is absent, as 0.

    Returns:
        One line of JSON, ended by a newline.
    """
    out: dict[str, Any] = {"type": "session", "version": header.version, "id": header.id}
    out["createdAt"] = header.created_at
    for name, key in _OPTIONAL.items():
        value = getattr(header, name)
        if key == "delegationDepth":
            value = value or 0
        if value is not None:
            out[key] = value
    for key, value in header.extra.items():
        out.setdefault(key, value)
    return lossless.encode(out) + b"\n"


def parse_header_line(
    line: bytes, *, session_id: str | None = None, path: str | None = None
) -> SessionHeader:
    """Read the first line of a log file.

    Args:
        line: The line with its newline.
        session_id: The session asked for, for messages; a header with another id is returned all the same.
        path: Where the line was read, for messages.

    Returns:
        The header with unknown keys in `.extra`. `cwd`, `parentSession` and `seedLength` are checked, too.

    Raises:
        CorruptLogError: No header line, or not a header. The medium or its writer is at fault.
        UnsupportedFormatError: A header of another format version.
    """

    def corrupt(reason: str, kind: str = "header") -> CorruptLogError:
        return CorruptLogError(session_id=session_id, reason=reason, offset=0, kind=kind, path=path)

    if not line.endswith(b"\n") or line.count(b"\n") != 1:
        raise corrupt("the log is empty or has no header line", "no-header")
    try:
        found = lossless.decode(line)
    except LosslessDecodeError as error:
        raise corrupt(f"the header line is not valid JSON: {error}") from error
    version: Any = found.get("version") if isinstance(found, dict) else None
    if type(version) in (int, float) and version != FORMAT_VERSION:
        raise UnsupportedFormatError(
            session_id=str(found["id"]) if "id" in found else session_id,
            found=version,
            supported=FORMAT_VERSION,
            direction="newer" if version > FORMAT_VERSION else "older",
            path=path,
        )
    if not isinstance(found, dict) or found.get("type") != "session" or "delegationDepth" not in found:
        raise corrupt("the first line is not a session header")
    for key in ("sandboxMode", "approvalPolicy"):
        if key in found:
            raise corrupt(f"the header has the retired key {key}")
    del found["type"]
    try:
        return SessionHeader.from_dict(found)
    except InvalidEventError as error:
        raise corrupt(f"the first line is not a session header: {error.field} {error.reason}") from error
