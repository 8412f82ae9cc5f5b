"""Hypothesis strategies for lossless JSON: every value a log may carry, and the ones it must refuse.

Owns values only; events and logs are built in `log_strategies`.
"""

from __future__ import annotations

import datetime
import itertools
import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

MAX_SAFE = 2**53 - 1
"""The largest integer up to which every integer is a double of its own."""


def texts(max_size: int = 12) -> st.SearchStrategy[str]:
    """Draw text of any kind, with NUL and lone surrogates, but no surrogate pair as two code points.

    Args:
        max_size: Most characters.

    Returns:
        A strategy. A high surrogate followed by a low one is left out: in a log that is one character.
    """
    plain = st.characters(exclude_categories=["Cs"])
    lone = st.sampled_from(["\ud800", "\udbff", "\udc00", "\udfff"])
    awkward = st.sampled_from(['"', "\\", "\x00", "\n", "\r", "\x7f", "\u2028", "\u2029", "\ufeff", "👋"])
    return st.text(st.one_of(plain, awkward, lone), max_size=max_size).filter(_has_no_pair)


def numbers() -> st.SearchStrategy[int | float]:
    """Draw numbers that a double holds exactly: no NaN, no infinity, no negative zero."""
    exact_big = st.integers(min_value=2**53, max_value=2**70).map(lambda n: int(float(n)))
    floats = st.floats(allow_nan=False, allow_infinity=False).filter(
        lambda x: x != 0 or math.copysign(1, x) > 0
    )
    return st.one_of(st.integers(min_value=-MAX_SAFE, max_value=MAX_SAFE), exact_big, floats)


def scalars() -> st.SearchStrategy[Any]:
    """Draw null, booleans, numbers and text."""
    return st.one_of(st.none(), st.booleans(), numbers(), texts())


def json_values(max_leaves: int = 12) -> st.SearchStrategy[Any]:
    """Draw any lossless JSON value, with awkward keys such as ``"0"`` and ``"__proto__"``.

    Args:
        max_leaves: About how many scalars the value has.

    Returns:
        A strategy.
    """
    return st.recursive(
        scalars(),
        lambda children: st.one_of(
            st.lists(children, max_size=4), st.dictionaries(keys(), children, max_size=4)
        ),
        max_leaves=max_leaves,
    )


def keys() -> st.SearchStrategy[str]:
    """Draw object keys, among them those that ECMAScript orders or treats in its own way."""
    awkward = st.sampled_from(["0", "1", "10", "01", "-1", "4294967294", "4294967295", "__proto__", "", "é"])
    return st.one_of(awkward, texts(8))


def json_objects(max_leaves: int = 8) -> st.SearchStrategy[dict[str, Any]]:
    """Draw JSON objects.

    Args:
        max_leaves: About how many scalars the object has.

    Returns:
        A strategy.
    """
    return st.dictionaries(keys(), json_values(max_leaves), max_size=4)


def not_json() -> st.SearchStrategy[Any]:
    """Draw values that no log can hold, alone or inside a container."""
    makers: list[Callable[[], Any]] = [
        lambda: math.nan,
        lambda: math.inf,
        lambda: -math.inf,
        lambda: -0.0,
        lambda: 2**53 + 1,
        lambda: b"bytes",
        lambda: {1, 2},
        lambda: (1, 2),
        lambda: {1: "integer key"},
        lambda: object(),
        lambda: Decimal("1.5"),
        lambda: datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC),
        _cycle,
    ]
    bad = st.sampled_from(makers).map(lambda make: make())
    return st.one_of(bad, bad.map(lambda v: [v]), bad.map(lambda v: {"deep": [{"value": v}]}))


def _cycle() -> list[Any]:
    ring: list[Any] = []
    ring.append(ring)
    return ring


def _has_no_pair(text: str) -> bool:
    pairs = itertools.pairwise(text)
    return not any("\ud800" <= a <= "\udbff" and "\udc00" <= b <= "\udfff" for a, b in pairs)
