"""What validators share: violations, and looking into a request of any shape without trusting it.

Owns the walking tools. The rules themselves are in one module per provider.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from turnlog.transcripts.wire_text import has_half_characters

TOOL_SCHEMA_RULE: Final = "a tool's parameters are a JSON Schema of type object"


@dataclass(frozen=True, slots=True)
class Violation:
    """One place in a request that the provider would refuse."""

    rule: str
    """Name of the rule, from the validator's own list."""
    path: str
    """Where, such as `messages[2].content[0].text`."""
    problem: str
    """What is wrong there."""


class Checker:
    """Collects violations of one request."""

    def __init__(self) -> None:
        self.found: list[Violation] = []

    def fail(self, rule: str, path: str, problem: str) -> None:
        """Note a violation."""
        self.found.append(Violation(rule, path, problem))

    def need(self, condition: bool, rule: str, path: str, problem: str) -> bool:
        """Note a violation unless the condition holds, and return the condition."""
        if not condition:
            self.fail(rule, path, problem)
        return condition

    def fields(
        self, value: Mapping[str, Any], path: str, *, needs: tuple[str, ...] = (), may: tuple[str, ...] = ()
    ) -> bool:
        """Check the keys of an object against what the provider knows.

        Args:
            value: The object.
            path: Where it is.
            needs: Keys that must be there.
            may: Further keys that may.

        Returns:
            Whether all needed keys are there.
        """
        for key in value:
            self.need(
                key in needs or key in may, "known-fields", f"{path}.{key}", "the provider has no such field"
            )
        missing = [key for key in needs if key not in value]
        for key in missing:
            self.fail("known-fields", path, f"{key} is missing")
        return not missing

    def once(self, value: object, seen: set[str], rule: str, path: str) -> None:
        """Check that a value was not seen before, and remember it."""
        self.need(name(value) not in seen, rule, path, f"{value!r} is used twice")
        seen.add(name(value))

    def text(self, value: object, path: str) -> bool:
        """Check that a value is text with a visible character that UTF-8 can hold."""
        if not self.need(isinstance(value, str), "text-is-visible", path, "is not text"):
            return False
        assert isinstance(value, str)  # as checked
        return self.need(bool(value.strip()), "text-is-visible", path, "has no visible character")

    def encodable(self, request: object) -> None:
        """Check that a request can be written as JSON in UTF-8."""
        for path, text in _texts(request):
            self.need(not has_half_characters(text), "utf-8", path, "holds half a character")

    def matches(self, value: object, pattern: str, rule: str, path: str) -> bool:
        """Check a text against a pattern that it must match whole."""
        ok = isinstance(value, str) and re.fullmatch(pattern, value) is not None
        return self.need(ok, rule, path, f"must match {pattern}")

    def schema(self, value: object, path: str) -> None:
        """Check a tool's parameters."""
        ok = isinstance(value, dict) and value.get("type") == "object"
        self.need(ok, "tool-schema", path, "must be a JSON Schema of type object")

    def number(self, value: object, least: float, most: float, rule: str, path: str) -> None:
        """Check a number against its bounds, inclusive."""
        ok = isinstance(value, (int, float)) and not isinstance(value, bool) and least <= value <= most
        self.need(ok, rule, path, f"must be a number from {least:g} to {most:g}")

    def whole(self, value: object, least: int, rule: str, path: str) -> None:
        """Check a whole number against its lower bound, inclusive."""
        ok = isinstance(value, int) and not isinstance(value, bool) and value >= least
        self.need(ok, rule, path, f"must be a whole number of at least {least}")

    def size(self, request: object, most: int) -> None:
        """Check the bytes of the whole request."""
        try:
            size = len(msgspec.json.encode(request))
        except (UnicodeEncodeError, TypeError, msgspec.MsgspecError, RecursionError):
            self.fail("json", "$", "cannot be written as JSON")
            return
        self.need(size <= most, "request-size", "$", f"has {size} bytes, at most {most}")


def name(value: object) -> str:
    """Return a text as it is and anything else in a form that can be compared and kept in a set."""
    return value if isinstance(value, str) else repr(value)


def listed(value: object) -> list[Any]:
    """Return a list as it is, and an empty one for anything else."""
    return value if isinstance(value, list) else []


def mapping(value: object) -> dict[str, Any]:
    """Return an object as it is, and an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def objects(value: object) -> list[tuple[int, dict[str, Any]]]:
    """Return the objects of a list with their places, passing over whatever else it holds."""
    return [(place, item) for place, item in enumerate(listed(value)) if isinstance(item, dict)]


def decoded(data: object) -> bytes | None:
    """Return what base64 text stands for, or None if it is none."""
    if not isinstance(data, str):
        return None
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return None


def data_url(url: object) -> tuple[str, bytes] | None:
    """Return media type and bytes of a `data:` URL with base64, or None if it is none."""
    found = re.match(r"data:([a-z]+/[a-z0-9.+-]+);base64,", url) if isinstance(url, str) else None
    data = decoded(url[found.end() :]) if found is not None and isinstance(url, str) else None
    return (found[1], data) if found is not None and data is not None else None


def _texts(request: object) -> Iterator[tuple[str, str]]:
    stack: list[tuple[str, object]] = [("$", request)]
    while stack:
        path, value = stack.pop()
        if isinstance(value, str):
            yield path, value
        elif isinstance(value, dict):
            for key, item in value.items():
                yield f"{path} (a key)", key
                stack.append((f"{path}.{key}" if key.isascii() else f"{path}.?", item))
        elif isinstance(value, list):
            stack.extend((f"{path}[{place}]", item) for place, item in enumerate(value))
