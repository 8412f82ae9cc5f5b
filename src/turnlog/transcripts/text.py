"""Text that is safe to print: what a log holds must not steer the terminal it is shown on.

Owns escaping of control characters, and short forms of sizes, durations and times for people. It does
not print, and knows nothing of events.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Final

from turnlog.events.ecmascript import dumps

_BIDI: Final = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
_UNSAFE_CLASS: Final = rf"\x7f-\x9f{_BIDI}\u2028\u2029\ufeff\ud800-\udfff"

_UNSAFE_BLOCK: Final = re.compile(rf"\r\n|[\x00-\x08\x0b-\x1f{_UNSAFE_CLASS}]")
_UNSAFE_LINE: Final = re.compile(rf"[\x00-\x1f{_UNSAFE_CLASS}]")
_UNSAFE_JSON: Final = re.compile(rf"[\r{_UNSAFE_CLASS}]")

_NAMED: Final = {"\n": "\\n", "\t": "\\t", "\r": "\\r", "\r\n": "\n"}


def _escape(match: re.Match[str]) -> str:
    found = match.group()
    if found in _NAMED:
        return _NAMED[found]
    code = ord(found)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def block(text: str) -> str:
    """Make text of several lines safe for a terminal.

    Args:
        text: Anything a log may hold, lone surrogates included.

    Returns:
        The text with newlines and tabs kept, CRLF as a newline, and every other C0 and C1 control, DEL,
        bidirectional override, line separator and lone surrogate as a visible escape such as `\\x1b`.
    """
    return _UNSAFE_BLOCK.sub(_escape, text)


def line(text: str) -> str:
    """Make text safe for one line of a terminal: as `block`, with newlines and tabs escaped, too."""
    return _UNSAFE_LINE.sub(_escape, text)


def summary(text: str, width: int) -> str:
    """Show the beginning of a text on one line.

    Args:
        text: Any text.
        width: Most characters of the result, at least 1.

    Returns:
        The text with runs of white space as one space, safe as in `line`, cut with an ellipsis.
    """
    flat = line(" ".join(text.split()))
    return flat if len(flat) <= width else flat[: width - 1] + "…"


def json_line(value: object) -> str:
    """Write a value as JSON on one line, in the log's own number and string forms.

    Characters that could steer a terminal are written as JSON escapes, so the text means the same value.

    Args:
        value: Lossless JSON.

    Returns:
        The JSON text without a newline.
    """
    return json_text(dumps(value))


def json_text(text: str) -> str:
    """Escape what could steer a terminal in JSON text that is already written; the value stays the same."""
    return _UNSAFE_JSON.sub(_escape_json, text)


def _escape_json(match: re.Match[str]) -> str:
    # A bare carriage return can only stand between tokens, where a space means the same.
    return " " if match.group() == "\r" else f"\\u{ord(match.group()):04x}"


def size(count: int) -> str:
    """Give a number of bytes for people, in units of 1024."""
    if count < 1024:
        return f"{count} B"
    value = float(count)
    for unit in ("KiB", "MiB", "GiB"):
        value /= 1024
        if value < 1024:
            return f"{value:.1f} {unit}"
    return f"{value / 1024:.1f} TiB"


def duration(milliseconds: int | float | None) -> str:
    """Give a duration for people; an unknown one is a dash, a clock that went back is `0 ms`."""
    if milliseconds is None:
        return "–"
    ms = max(0, round(milliseconds))
    if ms < 1000:
        return f"{ms} ms"
    if ms < 60_000:
        return f"{ms / 1000:.1f} s"
    minutes, seconds = divmod(round(ms / 1000), 60)
    if minutes < 60:
        return f"{minutes} min {seconds:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min"


def count(number: int, noun: str, plural: str | None = None) -> str:
    """Give a number with its noun, as in `1 turn` and `2 turns`."""
    return f"{number:,} {noun if number == 1 else plural or noun + 's'}"


def ago(then: int | None, now: int) -> str:
    """Give a past time relative to now.

    Args:
        then: Milliseconds since the epoch, or None when unknown.
        now: The present, in the same unit.

    Returns:
        Such as `3 min ago`; a date beyond 30 days; a dash when unknown.
    """
    if then is None:
        return "–"
    seconds = (now - then) / 1000
    if seconds < 5:
        return "now" if seconds > -60 else clock(then)
    for unit, length, below in (
        ("s", 1, 60),
        ("min", 60, 3600),
        ("h", 3600, 86400),
        ("d", 86400, 30 * 86400),
    ):
        if seconds < below:
            return f"{int(seconds // length)} {unit} ago"
    return clock(then)[:10]


def clock(milliseconds: int | None) -> str:
    """Give a time as UTC, such as `2025-01-01 09:30:00`; one outside the calendar as a number."""
    if milliseconds is None:
        return "–"
    try:
        return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S")
    except (OverflowError, ValueError, OSError):
        return f"{milliseconds} ms"
