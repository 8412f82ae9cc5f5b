"""Ids of calls and names of tools that a provider accepts, the same on every export of a growing log.

Owns the two maps. A legal id stays as it is; what replaces another depends on it and on what came before
only, so appending to a log never changes the beginning of its export.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from turnlog.transcripts.limits import Shape


@dataclass(frozen=True, slots=True)
class Legal:
    """What ids and names may be."""

    call_id: re.Pattern[str]
    name: re.Pattern[str]


_OPENAI_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
LEGAL: Final[dict[Shape, Legal]] = {
    "anthropic": Legal(re.compile(r"[a-zA-Z0-9_-]{1,64}"), re.compile(r"[a-zA-Z0-9_-]{1,64}")),
    "openai-chat": Legal(re.compile(r"[!-~]{1,40}"), _OPENAI_NAME),
    "openai-responses": Legal(re.compile(r"[a-zA-Z0-9_-]{1,64}"), _OPENAI_NAME),
    "gemini": Legal(re.compile(r"[!-~]{1,64}"), re.compile(r"[a-zA-Z_][a-zA-Z0-9_.:-]{0,63}")),
}
"""By shape. Stricter than the provider where compatible servers are."""

_ILLEGAL = re.compile(r"[^a-zA-Z0-9_-]+")


def _digest(*parts: object) -> str:
    text = "\0".join(map(str, parts))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


class CallIds:
    """Gives each call of an export an id of its own.

    Args:
        legal: What an id may be.
        hide: Redaction of a text; an id that it would change is replaced whole.
    """

    def __init__(self, legal: re.Pattern[str], hide: Callable[[str], str]) -> None:
        self._legal = legal
        self._hide = hide
        self._used: set[str] = set()
        self._hidden = 0

    def take(self, call_id: str) -> str:
        """Return the id under which the next call is sent; each is given once.

        Args:
            call_id: Its id in the log.
        """
        wanted = call_id
        if self._hide(call_id) != call_id:
            # Not a digest of it: a short secret could be found by trying.
            self._hidden += 1
            wanted = f"call_redacted_{self._hidden}"
        elif not self._legal.fullmatch(call_id):
            wanted = f"call_{_digest(call_id)[:24]}"
        repeat = 1
        while wanted in self._used:
            repeat += 1
            wanted = f"call_{_digest(call_id, repeat)[:24]}"
        self._used.add(wanted)
        return wanted


class ToolNames:
    """Gives each tool a legal name, two tools never the same.

    Args:
        legal: What a name may be.
        hide: Redaction of a text; a name that it would change is replaced whole.
    """

    def __init__(self, legal: re.Pattern[str], hide: Callable[[str], str]) -> None:
        self._legal = legal
        self._hide = hide
        self._names: dict[str, str] = {}
        self._taken: set[str] = set()

    def of(self, name: str) -> str:
        """Return the name under which a tool is sent.

        Args:
            name: Its name in the log; any text.
        """
        if name not in self._names:
            self._names[name] = self._make(name)
            self._taken.add(self._names[name])
        return self._names[name]

    def _make(self, name: str) -> str:
        if self._hide(name) != name:
            return f"tool_redacted_{len(self._names) + 1}"
        if self._legal.fullmatch(name) and name not in self._taken:
            return name
        plain = _ILLEGAL.sub("_", name).strip("_")[:50] or "unnamed"
        if not plain[0].isalpha():
            plain = f"tool_{plain}"[:50]
        if plain in self._taken or plain != name:
            plain = f"{plain}_{_digest(name)[:8]}"
        return plain
