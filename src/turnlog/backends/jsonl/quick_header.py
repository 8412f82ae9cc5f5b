"""Header lines of the usual shape read in one step, for listings that read thousands of them.

Owns no rule: whatever is not plainly a good header goes through the one reader in `events.header`, which
says what is wrong with it.
"""

from __future__ import annotations

from typing import Annotated, Final, Literal

import msgspec

from turnlog.events.header import SessionHeader, parse_header_line

_Count = Annotated[int, msgspec.Meta(ge=0, le=(1 << 53) - 1)]


class _Header(msgspec.Struct, forbid_unknown_fields=True, rename="camel", gc=False):
    """Exactly the keys that a header of today may have, in their strict types."""

    type: Literal["session"]
    version: Literal[0]
    id: str
    created_at: _Count
    delegation_depth: _Count
    cwd: str | msgspec.UnsetType = msgspec.UNSET
    parent_session: str | msgspec.UnsetType = msgspec.UNSET
    seed_length: _Count | msgspec.UnsetType = msgspec.UNSET
    origin: Literal["subagent"] | msgspec.UnsetType = msgspec.UNSET
    agent_preset: str | msgspec.UnsetType = msgspec.UNSET


_decoder: Final = msgspec.json.Decoder(_Header)


def read_header(line: bytes, path: str | None) -> SessionHeader:
    """Read a header line; answers and raises as `parse_header_line`, only faster for the usual ones.

    Args:
        line: The line with its newline.
        path: Where it was read, for messages.
    """
    if b":-0" not in line and line.endswith(b"}\n") and line.count(b"\n") == 1:
        try:
            found = _decoder.decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return parse_header_line(line, path=path)
        if found.cwd is msgspec.UNSET or found.cwd.startswith("/"):
            return SessionHeader(
                id=found.id,
                created_at=found.created_at,
                cwd=found.cwd or None,
                parent_session=None if found.parent_session is msgspec.UNSET else found.parent_session,
                seed_length=None if found.seed_length is msgspec.UNSET else found.seed_length,
                origin=found.origin or None,
                delegation_depth=found.delegation_depth,
                agent_preset=None if found.agent_preset is msgspec.UNSET else found.agent_preset,
            )
    return parse_header_line(line, path=path)
