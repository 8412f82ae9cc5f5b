"""Values that JSON cannot hold, as the recorded cases spell them, and their nearest Python counterparts."""

from __future__ import annotations

import datetime
import re
from types import FunctionType
from typing import Any


class ArraySubclass(list[Any]):
    """Stands for an array with another prototype."""


class TextSubclass(str):
    """Stands for a boxed string."""

    __slots__ = ()


class Instance:
    """Stands for an instance of a class."""

    def __init__(self) -> None:
        self.a = 1


class DecoratedArray(list[Any]):
    """Stands for an array with properties of its own."""

    def __init__(self, props: list[str]) -> None:
        super().__init__()
        for name in props:
            setattr(self, name, 1)


ABSENT = object()
"""Stands for `undefined`."""

NO_COUNTERPART = frozenset({"object-with-hidden-key", "object-with-symbol-key", "null-prototype"})
"""Tags without a Python counterpart: a dictionary has no hidden keys and no prototype."""

_SIMPLE: dict[str, Any] = {
    "NaN": float("nan"),
    "Infinity": float("inf"),
    "-Infinity": float("-inf"),
    "-0": -0.0,
    "symbol": object(),
    "Date": datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC),
    "Map": type("Map", (), {})(),
    "Set": {1},
    "Uint8Array": b"\x01",
    "RegExp": re.compile("x"),
}


def decode(value: Any) -> Any:
    """Replace every `{"$js": tag}` in a recorded value by its Python counterpart.

    Args:
        value: A value read from a case file. A dictionary with a key for `undefined` keeps the key, with
            `ABSENT` as its value.

    Returns:
        A fresh value.

    Raises:
        LookupError: The tag has no counterpart here.
    """
    if isinstance(value, list):
        return [decode(item) for item in value]
    if not isinstance(value, dict):
        return value
    if "$js" in value:
        return _special(value)
    out: dict[str, Any] = {}
    for key, item in value.items():
        out[key] = out if isinstance(item, dict) and item.get("$js") == "cycle" else decode(item)
    return out


def _special(tagged: dict[str, Any]) -> Any:
    tag = tagged["$js"]
    if tag in _SIMPLE:
        return _SIMPLE[tag]
    if tag == "undefined":
        return ABSENT
    if tag == "bigint":
        return 2**53 + int(tagged["value"]) * 2 + 1
    if tag == "function":
        return _function
    if tag == "boxed":
        return TextSubclass(tagged["value"])
    if tag == "array-subclass":
        return ArraySubclass([1])
    if tag == "array-with-props":
        return DecoratedArray(tagged["props"])
    if tag == "sparse-array":
        return [ABSENT if place in tagged["holes"] else place for place in range(tagged["length"])]
    if tag == "class-instance":
        return Instance()
    if tag == "nested-array":
        value: Any = tagged["leaf"]
        for _ in range(tagged["depth"]):
            value = [value]
        return value
    raise LookupError(f"{tag} has no Python counterpart")


def has_tag(value: Any, tags: frozenset[str] | set[str]) -> bool:
    """Say whether a recorded value holds one of some `$js` tags anywhere."""
    if isinstance(value, list):
        return any(has_tag(item, tags) for item in value)
    if isinstance(value, dict):
        return value.get("$js") in tags or any(has_tag(item, tags) for item in value.values())
    return False


def _function() -> None:
    """Stand for a function value."""


assert isinstance(_function, FunctionType)
