"""Text and values that every provider can read: no half characters, no arguments that are not an object.

Owns those two repairs and the cutting of long texts. It reports nothing; callers know where they are.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, Final

from turnlog.events import lossless
from turnlog.events.ecmascript import dumps

RAW_ARGUMENTS: Final = "raw_arguments"
"""Key of the text of arguments that are not a JSON object."""

MAX_ARGUMENT_DEPTH: Final = 64
"""Deeper arguments are passed on as text: providers parse them into structures of bounded depth."""

_SURROGATE = re.compile("[\ud800-\udfff]")
_ESCAPE = re.compile(r"\\(?:u(d[89a-f][0-9a-f]{2})|.)", re.DOTALL)


def has_half_characters(text: str) -> bool:
    """Tell whether a text holds a surrogate, which UTF-8 cannot."""
    return not text.isascii() and _SURROGATE.search(text) is not None


def whole_characters(text: str) -> str:
    """Return the text with paired surrogates joined and lone ones as U+FFFD."""
    if not has_half_characters(text):
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def whole_value(value: Any) -> tuple[Any, bool]:
    """Return a JSON value without half characters, keys included.

    Args:
        value: Lossless JSON.

    Returns:
        The value, the same object if nothing had to change, and whether it did.
    """
    text = dumps(value)
    replaced = False

    def replace(match: re.Match[str]) -> str:
        nonlocal replaced
        if match[1] is None:
            return match[0]
        replaced = True
        return "\\ufffd"

    fixed = _ESCAPE.sub(replace, text) if "\\ud" in text else text
    # Writing joined the halves that belong together, so beyond ASCII what was written is what counts.
    return (value, False) if fixed.isascii() and not replaced else (lossless.decode(fixed.encode()), replaced)


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is beyond a double")
    return number


def parse_arguments(raw: str) -> dict[str, Any] | None:
    """Read the arguments of a call as the model wrote them.

    Args:
        raw: The model's text.

    Returns:
        The object; None if the text is not a JSON object, or one nested deeper than `MAX_ARGUMENT_DEPTH`.
    """
    try:
        value = json.loads(raw, parse_constant=_refuse, parse_float=_finite)
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict) or _is_deep(value):
        return None
    return value


def _is_deep(value: object) -> bool:
    level: list[Any] = [value]
    for _ in range(MAX_ARGUMENT_DEPTH):
        level = [
            inner
            for outer in level
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, (dict, list))
        ]
        if not level:
            return False
    return True


def arguments_text(value: dict[str, Any]) -> str:
    """Write arguments as compact JSON, integers of any size exactly as they are."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def cut_middle(text: str, limit: int) -> str:
    """Shorten a text to about `limit` characters by leaving out its middle.

    Args:
        text: Text without half characters, so that no cut makes one.
        limit: Most characters of the result, the note included; at least 80.

    Returns:
        The text itself if it is short enough, else its head, a note on what is missing, and its tail.
    """
    if len(text) <= limit:
        return text
    note = f"\n[... {len(text):,} characters in all, the middle is left out ...]\n"
    room = max(0, limit - len(note))
    head = room * 2 // 3
    tail = room - head
    return text[:head] + note + (text[len(text) - tail :] if tail else "")
