"""Lossless JSON at both doors: checking and encoding what is appended, decoding what is stored.

Owns the one rule of what may be stored (L2) and the only decoder of stored text. Plain values take the fast
path of msgspec; what it would lose, round or refuse goes through the iterative writer and reader.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from json import decoder as _json_decoder
from typing import Any, TypeAlias

import msgspec

from turnlog.events import ecmascript
from turnlog.events.ecmascript import MAX_DEPTH

JsonValue: TypeAlias = "bool | int | float | str | list[JsonValue] | dict[str, JsonValue] | None"
"""A JSON value as Python objects; integral numbers are ints."""

SAFE_INTEGER = 2**53 - 1
"""Largest integer that a double holds exactly together with its neighbours."""


def is_safe_int(value: object) -> bool:
    """Whether a value is an integral number within ±(2^53-1); bools are not numbers."""
    if type(value) is float:
        return value.is_integer() and -SAFE_INTEGER <= value <= SAFE_INTEGER
    return type(value) is int and -SAFE_INTEGER <= value <= SAFE_INTEGER


def is_count(value: object) -> bool:
    """Whether a value is a non-negative safe integer."""
    return is_safe_int(value) and value >= 0  # type: ignore[operator]  # is_safe_int has checked the type


class LosslessDecodeError(ValueError):
    """Stored text that is not lossless JSON; the medium or a foreign writer is at fault."""

    def __init__(self, reason: str, offset: int, *, truncated: bool = False) -> None:
        super().__init__(f"{reason} at byte {offset}")
        self.reason = reason
        self.offset = offset
        self.truncated = truncated
        """Whether the text is a clean beginning of a JSON value, as a torn write leaves it."""


_scan_string: Callable[[str, int, bool], tuple[str, int]] = vars(_json_decoder)["scanstring"]  # untyped
_encoder = msgspec.json.Encoder()
_encode_plain = _encoder.encode


def encode_string(text: str) -> bytes:
    """Encode one string as a JSON literal; the hot path of a streamed delta.

    Args:
        text: Any string, lone surrogates included.

    Returns:
        The literal with its quotes, UTF-8.
    """
    try:
        return _encode_plain(text)
    except UnicodeEncodeError:
        return ecmascript.string(text).encode()


def encode(value: object) -> bytes:
    """Check that a value is lossless JSON and encode it as ECMAScript prints it.

    Args:
        value: None, bool, int, float, str, list or dict with string keys, nested at most 512 deep.

    Returns:
        UTF-8 text without spaces that decodes to an equal value.

    Raises:
        InvalidEventError: The value is not lossless JSON; `.field` is the path of the bad part (L2).
            Whoever made the value is at fault.
    """
    if _is_plain(value):
        try:
            return _encode_plain(value)
        except (UnicodeEncodeError, RecursionError):
            pass  # a lone surrogate, or a caller deep in its own stack: the iterative writer does both
    return ecmascript.dumps(value).encode()


def _is_plain(value: object) -> bool:
    """Whether msgspec prints `value` as ECMAScript does: exact types, safe ints, no floats, no index keys."""
    stack: list[tuple[object, int]] = [(value, 0)]
    pop = stack.pop
    push = stack.append
    while stack:
        current, depth = pop()
        kind = type(current)
        if kind is str or kind is bool or current is None:
            continue
        if kind is int:
            if not -SAFE_INTEGER <= current <= SAFE_INTEGER:  # type: ignore[operator]  # kind is exact
                return False
        elif kind is dict:
            if depth >= MAX_DEPTH:
                return False
            for key, child in current.items():  # type: ignore[attr-defined]  # kind is exact
                if type(key) is not str or key[:1].isdigit():
                    return False
                if type(child) is not str:
                    push((child, depth + 1))
        elif kind is list:
            if depth >= MAX_DEPTH:
                return False
            for child in current:  # type: ignore[attr-defined]  # kind is exact
                if type(child) is not str:
                    push((child, depth + 1))
        else:
            return False
    return True


def _parse_number(text: str) -> int | float:
    """Read a number that has a fraction, an exponent or many digits as the double that ECMAScript reads."""
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise LosslessDecodeError("number beyond the range of a double", 0)
    if value == 0 and text[0] == "-":
        raise LosslessDecodeError("negative zero", 0)
    return int(value) if value.is_integer() else value


_decoder = msgspec.json.Decoder(float_hook=_parse_number)

# Digits become 0, and so does the plus sign, so that one search finds every exponent of three digits.
_DIGITS = bytes.maketrans(b"123456789+E", b"0000000000e")
_LONG_DIGITS = b"0" * 16
_OVERFLOWING_DIGITS = b"0" * 300
_LONG_EXPONENT = b"0e000"
_SHALLOW_LENGTH = 2 * MAX_DEPTH + 2
_SUSPECT_NUMBER = re.compile(rb"(?:\A|[\[:,])[ \t\r\n]*(?:-0|-?[0-9]{16})")
_SUSPECT_SKIPPED = re.compile(rb"[\[:,][ \t\r\n]*(?:-0|-?[0-9.]+[eE]\+?[0-9]{3}|-?[0-9]{300})")
STRING_OR_BRACKET = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*(?:"|\Z)|[\[\]{}]', re.DOTALL)


def exceeds_depth(raw: bytes, limit: int = MAX_DEPTH) -> bool:
    """Whether JSON text opens more than `limit` containers inside one another.

    Args:
        raw: JSON text, valid or not; brackets inside strings do not count.
        limit: Deepest level that is allowed.
    """
    if raw.count(b"[") + raw.count(b"{") <= limit:
        return False  # most text ends here; only a line with many brackets is read in order
    depth = 0
    for match in STRING_OR_BRACKET.finditer(raw):
        first = raw[match.start()]
        if first in b"[{":
            depth += 1
            if depth > limit:
                return True
        elif first in b"]}":
            depth -= 1
    return False


def _has_suspect_number(raw: bytes) -> bool:
    """Whether msgspec might read a number otherwise than ECMAScript: `-0` or 16 digits and more."""
    if _LONG_DIGITS not in raw.translate(_DIGITS) and (b"-" not in raw or b"-0" not in raw):
        return False
    return _SUSPECT_NUMBER.search(raw) is not None


def _may_hide_number(raw: bytes) -> bool:
    """Whether raw text that msgspec skips might hold a number that is not lossless."""
    digits = raw.translate(_DIGITS)
    if _LONG_EXPONENT not in digits and _OVERFLOWING_DIGITS not in digits and b"-0" not in raw:
        return False
    return _SUSPECT_SKIPPED.search(raw) is not None


def check_skipped(raw: bytes) -> None:
    """Check what msgspec does not look at in the parts of a line that it skips as raw text.

    Args:
        raw: A line that msgspec has accepted as JSON.

    Raises:
        LosslessDecodeError: Invalid UTF-8, too deep, negative zero or a number beyond the range of a double.
    """
    if _may_hide_number(raw) or (len(raw) > _SHALLOW_LENGTH and exceeds_depth(raw)):
        decode(raw)
    elif not raw.isascii():
        try:
            raw.decode()
        except UnicodeDecodeError as error:
            raise LosslessDecodeError("invalid UTF-8", error.start) from None


def decode(raw: bytes) -> Any:
    """Decode stored JSON text, refusing everything that `encode` could not have been given.

    Args:
        raw: One JSON value as UTF-8, optionally surrounded by JSON whitespace.

    Returns:
        The value. Integral numbers are ints, ints beyond 2^53 are rounded like a double, lone surrogates
        stay, of duplicate keys the last value stands at the first one's place.

    Raises:
        LosslessDecodeError: Not JSON, not UTF-8, nested deeper than 512, negative zero, or a number beyond
            the range of a double. The medium or a foreign writer is at fault.
    """
    if not _has_suspect_number(raw) and (len(raw) <= _SHALLOW_LENGTH or not exceeds_depth(raw)):
        try:
            return _decoder.decode(raw)
        except (msgspec.MsgspecError, LosslessDecodeError, RecursionError):
            pass  # the iterative reader names the byte, and reads what msgspec alone refuses
    return _Reader(raw).whole()


def read_leniently(raw: bytes) -> Any:
    """Read JSON as an ECMAScript parser would, with all that it loses; only to recognise what it was.

    Args:
        raw: Stored text that `decode` has refused.

    Returns:
        The value: bad UTF-8 replaced, any depth, negative zero and overflow taken as they come.

    Raises:
        LosslessDecodeError: Not JSON for anyone.
    """
    return _Reader(raw, lenient=True).whole()


_WHITESPACE = re.compile(r"[ \t\n\r]*")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?", re.ASCII)
_PARTIAL_NUMBER = re.compile(r"-?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?(?:[eE][+-]?[0-9]*)?)?\Z", re.ASCII)
_PARTIAL_STRING = re.compile(
    r'"(?:[^"\\\x00-\x1f]++|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+(?:\\(?:u[0-9a-fA-F]{0,3})?)?\Z', re.ASCII
)
_LITERALS: dict[str, tuple[str, JsonValue]] = {
    "t": ("true", True),
    "f": ("false", False),
    "n": ("null", None),
}
_EXACT_DIGITS = 16


class _Reader:
    """The iterative reader: exact, slower than msgspec, without recursion."""

    __slots__ = ("_lenient", "_text", "position")

    def __init__(self, raw: bytes, *, lenient: bool = False) -> None:
        self._lenient = lenient
        try:
            self._text = raw.decode("utf-8", "replace" if lenient else "strict")
        except UnicodeDecodeError as error:
            cut_short = error.reason == "unexpected end of data"
            raise LosslessDecodeError("invalid UTF-8", error.start, truncated=cut_short) from None
        self.position = 0

    def _fail(self, reason: str, position: int) -> LosslessDecodeError:
        truncated = position >= len(self._text)
        offset = len(self._text[:position].encode())
        return LosslessDecodeError(
            "the text ends early" if truncated else reason, offset, truncated=truncated
        )

    def _skip(self) -> str:
        """Move over whitespace and return the next character, empty at the end."""
        match = _WHITESPACE.match(self._text, self.position)
        self.position = match.end() if match else self.position
        return self._text[self.position : self.position + 1]

    def whole(self) -> Any:
        """Read one value that fills the text."""
        value = self.value()
        if self._skip():
            raise self._fail("more text after the value", self.position)
        return value

    def value(self) -> Any:
        """Read one value that begins at `position`."""
        stack: list[list[Any] | dict[str, Any]] = []
        keys: list[str] = []
        while True:
            first = self._skip()
            if first in ("[", "{") and first:
                if len(stack) >= MAX_DEPTH and not self._lenient:
                    raise LosslessDecodeError(f"nested deeper than {MAX_DEPTH} levels", self._byte())
                self.position += 1
                fresh: list[Any] | dict[str, Any] = [] if first == "[" else {}
                closing = self._skip()
                if closing != ("]" if first == "[" else "}"):
                    stack.append(fresh)
                    if first == "{":
                        keys.append(self._key())
                    continue
                self.position += 1
                done: Any = fresh
            else:
                done = self._scalar(first)
            finished, done = self._close(stack, keys, done)
            if finished:
                return done

    def _close(self, stack: list[Any], keys: list[str], done: Any) -> tuple[bool, Any]:
        """Put a finished value into its container and close the containers that end here."""
        while stack:
            top = stack[-1]
            is_list = type(top) is list
            if is_list:
                top.append(done)
            else:
                top[keys.pop()] = done
            following = self._skip()
            if following == ",":
                self.position += 1
                if not is_list:
                    keys.append(self._key())
                return False, None
            if following != ("]" if is_list else "}"):
                raise self._fail("expected a comma or the end of the container", self.position)
            self.position += 1
            done = stack.pop()
        return True, done

    def _byte(self) -> int:
        return len(self._text[: self.position].encode())

    def _key(self) -> str:
        if self._skip() != '"':
            raise self._fail("expected a key", self.position)
        key = self._string()
        if self._skip() != ":":
            raise self._fail("expected a colon", self.position)
        self.position += 1
        return key

    def _string(self) -> str:
        try:
            value, self.position = _scan_string(self._text, self.position + 1, True)
        except ValueError as error:
            partial = _PARTIAL_STRING.match(self._text, self.position)
            at = len(self._text) if partial else getattr(error, "pos", self.position)
            raise self._fail("malformed string", at) from None
        return str(value)

    def _scalar(self, first: str) -> Any:
        if first == '"':
            return self._string()
        if first in _LITERALS:
            word, value = _LITERALS[first]
            rest = self._text[self.position : self.position + len(word)]
            if rest != word:
                at = len(self._text) if word.startswith(rest) else self.position
                raise self._fail("unknown literal", at)
            self.position += len(word)
            return value
        match = _NUMBER.match(self._text, self.position)
        if match is None or match.end() < len(self._text):
            if _PARTIAL_NUMBER.match(self._text, self.position):
                raise self._fail("expected a value", len(self._text))
            if match is None:
                raise self._fail("expected a value", self.position)
        text = match[0]
        start = self._byte()
        self.position = match.end()
        if match[1] is None and match[2] is None and len(text) < _EXACT_DIGITS and text != "-0":
            return int(text)
        if self._lenient:
            return float(text)
        try:
            return _parse_number(text)
        except LosslessDecodeError as error:
            raise LosslessDecodeError(error.reason, start) from None
