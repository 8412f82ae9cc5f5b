"""Secrets on the way out: keys, tokens, passwords, home folders, and patterns of the caller.

Owns what counts as a secret and how its place is marked. Works on text and on JSON values; which texts of an
export pass through here is decided where they are made, and the log itself is never changed.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

from turnlog.errors import UsageError

# Every repetition before the part that decides is bounded, so that no text makes a search slow.
_QUOTE = r"\\*[\"']?"
_SECRET_NAME = (
    r"[A-Za-z0-9_.-]{0,40}(?:password|passwd|passphrase|secret|api[_-]?key|access[_-]?key|private[_-]?key"
    # A number of tokens is a count.
    rf"|credential|token(?!s?{_QUOTE}\s{{0,9}}[:=]\s{{0,9}}\d+(?![A-Za-z0-9])))s?[A-Za-z0-9_]{{0,40}}"
)

PATTERNS: Final[tuple[tuple[str, re.Pattern[str]], ...]] = (
    (
        "private-key",
        re.compile(
            r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----.*?(?:-----END [A-Z0-9 ]*PRIVATE KEY-----|\Z)", re.DOTALL
        ),
    ),
    ("api-key", re.compile(r"\bsk-[A-Za-z0-9_-]{16,}")),
    ("api-key", re.compile(r"\b(?:sk|rk|pk)_(?:live|test)_[A-Za-z0-9]{10,}")),
    ("api-key", re.compile(r"\bAIza[A-Za-z0-9_-]{30,}")),
    ("token", re.compile(r"\b(?:gh[pousr]_[A-Za-z0-9]{16,}|github_pat_[A-Za-z0-9_]{16,})")),
    ("token", re.compile(r"\b(?:glpat-|npm_|hf_|pypi-|dop_v1_)[A-Za-z0-9_-]{16,}")),
    ("token", re.compile(r"\bxox[a-z]-[A-Za-z0-9-]{8,}")),
    ("access-key", re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{12,}")),
    ("token", re.compile(r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}(?:\.[A-Za-z0-9_-]*)?")),
    ("authorization", re.compile(r"(?i)\b((?:bearer|basic)\s+)[A-Za-z0-9._~+/=-]{8,}")),
    ("password", re.compile(r"((?<![a-z0-9])[a-z][a-z0-9+.-]{1,20}://[^\s/:@]{0,100}:)[^\s/@]{1,200}(?=@)")),
    (
        "password",
        re.compile(
            rf"(?i)((?<![A-Za-z0-9]){_SECRET_NAME}{_QUOTE}\s*[:=]\s*{_QUOTE})[^\s\"',;\\&|<>()]{{6,}}"
        ),
    ),
)
"""What is looked for, in this order; a first group is kept."""

HOME: Final = re.compile(r"(?:/home|/Users|[A-Za-z]:\\+Users)[/\\]+[^/\\\s\"':;,<>|]+|/root(?=[/\s\"':]|\Z)")
"""Home folders; `~` stands in their place."""

SECRET_KEY: Final = re.compile(rf"(?i)\A{_SECRET_NAME}\Z")
"""Keys of a JSON object whose text values are secrets whatever they look like."""

OPAQUE_KEYS: Final = frozenset(
    {"signature", "redactedData", "encryptedContent", "encrypted_content", "thoughtSignature"}
)
"""Values that a provider signed: they are passed on as they are or not at all."""

ID_KEYS: Final = frozenset(
    {"id", "callId", "toolCallId", "rootCallId", "parentCallId", "subCallId", "messageId", "approvalId"}
)
"""Keys of ids: two that differ must still differ when both hold a secret."""

_COUNTING = re.compile(
    r"(?i)(?:max|input|output|total|cache\w*|reasoning|num|count)[_-]?tokens?|tokens?[_-]?(?:count|limit)"
)


class Redactor:
    """Marks secrets in texts and values.

    Args:
        patterns: Further regular expressions; everything they match is marked as `custom`.
        defaults: Whether `PATTERNS` are looked for.
        home: Whether home folders become `~`.

    Raises:
        UsageError: A pattern is no regular expression, or matches the empty text.
    """

    def __init__(
        self, patterns: Iterable[str | re.Pattern[str]] = (), *, defaults: bool = True, home: bool = True
    ) -> None:
        custom = [("custom", _compiled(pattern)) for pattern in patterns]
        self._patterns = (*custom, *(PATTERNS if defaults else ()))
        self._home = home
        self.found: Counter[str] = Counter()
        """How many of each kind were marked so far."""
        self._ids: dict[str, str] = {}

    def text(self, text: str) -> str:
        """Return a text with every secret marked, such as `[redacted:token]`.

        Args:
            text: Any text.
        """
        for kind, pattern in self._patterns:
            text, count = pattern.subn(lambda match, kind=kind: _mark(match, kind), text)  # type: ignore[misc]  # the default only binds the loop's value
            if count:
                self.found[kind] += count
        if self._home:
            text, count = HOME.subn("~", text)
            if count:
                self.found["home"] += count
        return text

    def changes(self, text: str) -> bool:
        """Tell whether a text holds a secret, without counting it."""
        return any(pattern.search(text) for _, pattern in self._patterns) or (
            self._home and HOME.search(text) is not None
        )

    def identity(self, name: str) -> str:
        """Return an id as it is, or one of its own if it holds a secret; the same for the same id.

        Args:
            name: Any id.
        """
        if not self.changes(name):
            return name
        self.found["id"] += name not in self._ids
        return self._ids.setdefault(name, f"redacted-id-{len(self._ids) + 1}")

    def value(self, value: Any, *, depth: int = 0) -> Any:
        """Return a JSON value with every secret marked: in texts, in keys, and under telling keys.

        Args:
            value: JSON; what providers signed is left alone.
            depth: How deep inside another value it is; beyond a bound it is left out.

        Returns:
            A fresh value.
        """
        if isinstance(value, str):
            return self.text(value)
        if depth > 200:
            return "[left out: nested too deep to be searched for secrets]" if value else value
        if isinstance(value, list):
            return [self.value(item, depth=depth + 1) for item in value]
        if not isinstance(value, dict):
            return value
        out: dict[str, Any] = {}
        for key, item in value.items():
            if key in OPAQUE_KEYS:
                out[key] = item
            elif key in ID_KEYS and isinstance(item, str):
                out[key] = self.identity(item)
            elif isinstance(item, str) and item and self._is_secret_key(key):
                self.found["password"] += 1
                out[key] = "[redacted:password]"
            else:
                out[self.text(key)] = self.value(item, depth=depth + 1)
        return out

    def _is_secret_key(self, key: str) -> bool:
        return (
            len(self._patterns) > 0 and SECRET_KEY.match(key) is not None and _COUNTING.fullmatch(key) is None
        )


def _compiled(pattern: str | re.Pattern[str]) -> re.Pattern[str]:
    try:
        compiled = re.compile(pattern)
    except re.error as error:
        raise UsageError(f"{pattern!r} is no regular expression: {error}") from None
    if compiled.search(""):
        raise UsageError(f"{compiled.pattern!r} matches the empty text; it must match a secret")
    return compiled


def _mark(match: re.Match[str], kind: str) -> str:
    kept = match[1] if kind != "custom" and match.re.groups and match[1] else ""
    return f"{kept}[redacted:{kind}]"


def redactor(redact: bool | Redactor | None) -> Redactor | None:
    """Return the redactor that an option stands for: True the usual one, False and None none."""
    if isinstance(redact, Redactor):
        return redact
    return Redactor() if redact else None
