"""JSON text exactly as an ECMAScript engine prints it, made without recursion.

Owns numbers, strings, the order of index-like keys and the canonical form for digests and equality.
Does not decide what may be stored (`lossless` does) and reads nothing.
"""

from __future__ import annotations

import re
from json.encoder import encode_basestring as _quote_string
from typing import Any

from turnlog.errors import InvalidEventError

MAX_DEPTH = 512
"""Deepest nesting of a value, a scalar counting 0; the same at append and at load (S1)."""

_PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")
_LONE = re.compile("[\ud800-\udfff]")
_INDEX_KEY = re.compile(r"(?:0|[1-9][0-9]{0,9})\Z", re.ASCII)
_MAX_INDEX = 2**32 - 2
_DECIMAL_EXPONENT_LIMIT = 21
_SMALLEST_PLAIN_EXPONENT = -7


def number(value: float) -> str:
    """Print a number as ECMAScript does: the shortest digits that read back as the same double.

    Args:
        value: A finite int or float. An int is printed as the double nearest to it.

    Returns:
        Decimal text without spaces, for example `1`, `1e+21`, `1.5e-7`.

    Raises:
        OverflowError: An int beyond the range of a double. The caller is at fault.
    """
    if isinstance(value, int) and -(2**53) <= value <= 2**53:
        return str(int(value))
    text = repr(float(value))
    sign = ""
    if text[0] == "-":
        sign, text = "-", text[1:]
    mantissa, _, exponent = text.partition("e")
    whole, _, fraction = mantissa.partition(".")
    if fraction == "0":
        fraction = ""
    point = len(whole) + int(exponent or "0")
    digits = whole + fraction
    stripped = digits.lstrip("0")
    point -= len(digits) - len(stripped)
    digits = stripped.rstrip("0")
    if not digits:
        return "0"
    return sign + _place_point(digits, point)


def _place_point(digits: str, point: int) -> str:
    """Lay out `0.digits * 10**point` by the rules of ECMAScript's Number::toString."""
    count = len(digits)
    if count <= point <= _DECIMAL_EXPONENT_LIMIT:
        return digits + "0" * (point - count)
    if 0 < point <= _DECIMAL_EXPONENT_LIMIT:
        return f"{digits[:point]}.{digits[point:]}"
    if _SMALLEST_PLAIN_EXPONENT < point - 1 < 0:
        return f"0.{'0' * -point}{digits}"
    exponent = point - 1
    sign = "+" if exponent > 0 else "-"
    head = digits if count == 1 else f"{digits[0]}.{digits[1:]}"
    return f"{head}e{sign}{abs(exponent)}"


def string(value: str) -> str:
    """Print a string as a JSON string literal.

    Args:
        value: Any string; surrogates that form a pair are one character, lone ones are escaped.

    Returns:
        The literal with its quotes; encodable as UTF-8 whatever `value` holds.
    """
    return escape_lone_surrogates(_quote_string(value))


def escape_lone_surrogates(text: str) -> str:
    """Replace what UTF-8 cannot hold: join surrogate pairs and escape the surrogates that are alone.

    Args:
        text: JSON text.

    Returns:
        The same JSON value as text that encodes to UTF-8.
    """
    if text.isascii() or not _LONE.search(text):
        return text
    joined = _PAIR.sub(lambda m: m[0].encode("utf-16-be", "surrogatepass").decode("utf-16-be"), text)
    return _LONE.sub(lambda m: f"\\u{ord(m[0]):04x}", joined)


def utf16_key(key: str) -> bytes:
    """Return the sort key that orders strings by UTF-16 code unit."""
    return key.encode("utf-16-be", "surrogatepass")


def _is_index(key: str) -> bool:
    return _INDEX_KEY.match(key) is not None and int(key) <= _MAX_INDEX


def ordered_keys(value: dict[str, Any]) -> list[str]:
    """Return the keys in the order in which ECMAScript enumerates them.

    Args:
        value: An object; all keys are strings.

    Returns:
        Index-like keys (canonical decimals 0 … 2^32-2) ascending, then the others as inserted.
    """
    keys = list(value)
    if not any(key[:1].isdigit() for key in keys):
        return keys
    indexes = sorted((key for key in keys if _is_index(key)), key=int)
    if not indexes:
        return keys
    found = set(indexes)
    return indexes + [key for key in keys if key not in found]


def dumps(value: object) -> str:
    """Print a value as ECMAScript's `JSON.stringify` prints it, refusing what JSON would lose.

    Args:
        value: None, bool, int, float, str, list or dict with string keys, nested at most 512 deep.

    Returns:
        JSON text without spaces that encodes to UTF-8.

    Raises:
        InvalidEventError: The value is not lossless JSON; `.field` is the path of the bad part (L2).
            Whoever made the value is at fault.
    """
    return _write(value, ordered_keys)


def canonical(value: object) -> str:
    """Print a value with keys sorted by UTF-16 code unit, for digests and comparison.

    Args:
        value: As for `dumps`.

    Returns:
        JSON text; two values are equal as JSON exactly when these texts are equal.

    Raises:
        InvalidEventError: As for `dumps`.
    """
    return _write(value, lambda obj: sorted(obj, key=utf16_key))


class _Frame:
    """One open array or object of the iterative writer."""

    __slots__ = ("container", "items", "key", "position")

    def __init__(self, container: list[Any] | dict[str, Any], items: list[Any]) -> None:
        self.container = container
        self.items = items
        self.position = 0
        self.key: object = None


def _write(value: object, order: Any) -> str:
    """Check and print in one pass with a stack of our own: depth costs no recursion."""
    out: list[str] = []
    stack: list[_Frame] = []
    current: object = value
    while True:
        kind = type(current)
        if kind is dict or kind is list:
            if len(stack) >= MAX_DEPTH:
                raise _refuse(stack, f"is nested deeper than {MAX_DEPTH} levels")
            stack.append(_open(current, stack, order, out))
        else:
            out.append(_scalar(current, stack))
        while stack:
            frame = stack[-1]
            if frame.position < len(frame.items):
                break
            out.append("}" if type(frame.container) is dict else "]")
            stack.pop()
        if not stack:
            return escape_lone_surrogates("".join(out))
        current = _step(stack[-1], out)


def _open(current: Any, stack: list[_Frame], order: Any, out: list[str]) -> _Frame:
    if type(current) is list:
        out.append("[")
        return _Frame(current, current)
    for key in current:
        if type(key) is not str:
            raise _refuse(stack, f"has a key of type {type(key).__name__}; keys must be strings")
    out.append("{")
    return _Frame(current, order(current))


def _step(frame: _Frame, out: list[str]) -> object:
    """Move to the next child of the innermost open container and print what stands before it."""
    position = frame.position
    frame.position = position + 1
    if position:
        out.append(",")
    item = frame.items[position]
    if type(frame.container) is list:
        frame.key = position
        return item
    frame.key = item
    out.append(_quote_string(item))
    out.append(":")
    return frame.container[item]


def _scalar(value: Any, stack: list[_Frame]) -> str:
    kind = type(value)
    if kind is str:
        return str(_quote_string(value))
    if value is None:
        return "null"
    if kind is bool:
        return "true" if value else "false"
    if kind is int:
        return _int_text(value, stack)
    if kind is float:
        return _float_text(value, stack)
    raise _refuse(stack, f"is of type {kind.__name__}, which JSON cannot hold")


def _int_text(value: int, stack: list[_Frame]) -> str:
    try:
        exact = float(value) == value
    except OverflowError:
        exact = False
    if not exact:
        raise _refuse(stack, "is an integer that a double cannot hold exactly; store it as a string")
    return number(value)


def _float_text(value: float, stack: list[_Frame]) -> str:
    if value != value or value in (float("inf"), float("-inf")):
        raise _refuse(stack, f"is {value}, which JSON cannot hold")
    if value == 0 and str(value)[0] == "-":
        raise _refuse(stack, "is negative zero, which JSON text would lose")
    return number(value)


def _refuse(stack: list[_Frame], reason: str) -> InvalidEventError:
    path = "$"
    for frame in stack:
        path += f"[{frame.key}]" if type(frame.container) is list else f".{frame.key}"
        if len(path) > 200:
            path = path[:200] + "…"
            break
    return InvalidEventError(field=path, reason=reason)
