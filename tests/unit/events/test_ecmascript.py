"""ECMAScript text: numbers, strings, key order, canonical form, refusals."""

from __future__ import annotations

import datetime
import enum
import json
from collections import OrderedDict
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.events.samples import texts, values
from turnlog.errors import InvalidEventError
from turnlog.events import ecmascript

NUMBERS = {
    0: "0",
    -1: "-1",
    1.0: "1",
    -5.5: "-5.5",
    0.1: "0.1",
    123.456: "123.456",
    1e-6: "0.000001",
    1.5e-6: "0.0000015",
    1e-7: "1e-7",
    1.5e-7: "1.5e-7",
    -1.5e-7: "-1.5e-7",
    5e-324: "5e-324",
    1e16: "10000000000000000",
    1e20: "100000000000000000000",
    123456789012345680000.0: "123456789012345680000",
    1e21: "1e+21",
    1.2e22: "1.2e+22",
    1.7976931348623157e308: "1.7976931348623157e+308",
    9007199254740993: "9007199254740992",
    2**60: "1152921504606847000",
    10**21: "1e+21",
    100.25: "100.25",
}


@pytest.mark.parametrize(("value", "text"), NUMBERS.items())
def test_numbers_print_as_an_engine_prints_them(value: float, text: str) -> None:
    """Shortest digits, exponents from 1e21 and below 1e-6, no padding (L2)."""
    assert ecmascript.number(value) == text


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_printed_numbers_read_back_as_the_same_double(value: float) -> None:
    """No digit is lost, whatever the double."""
    assert float(ecmascript.number(value)) == value


@pytest.mark.parametrize(
    ("text", "literal"),
    [
        ("", '""'),
        ('a"b\\c', '"a\\"b\\\\c"'),
        ("\b\t\n\f\r", '"\\b\\t\\n\\f\\r"'),
        ("\x00\x1f\x7f", '"\\u0000\\u001f\x7f"'),
        ("/ü\u2028👋", '"/ü\u2028👋"'),
        ("\ud800", '"\\ud800"'),
        ("x\udfff\ud83d", '"x\\udfff\\ud83d"'),
        ("\ud83d\udc4b", '"👋"'),
        ("\ud83d\ud83d\udc4b\udc4b", '"\\ud83d👋\\udc4b"'),
    ],
)
def test_strings_print_as_an_engine_prints_them(text: str, literal: str) -> None:
    """Short escapes, lower-case hex, raw text beyond ASCII, lone surrogates escaped, pairs joined."""
    assert ecmascript.string(text) == literal


def test_index_like_keys_come_first_in_numeric_order() -> None:
    """Objects enumerate canonical array indexes ascending, then the rest as inserted."""
    value = {"b": 1, "10": 2, "2": 3, "01": 4, "4294967294": 5, "4294967295": 6, "0": 7, "٣": 8}
    assert ecmascript.dumps(value) == (
        '{"0":7,"2":3,"10":2,"4294967294":5,"b":1,"01":4,"4294967295":6,"٣":8}'
    )
    assert ecmascript.dumps({"b": 1, "01": 2}) == '{"b":1,"01":2}'


def test_canonical_sorts_by_utf16_unit() -> None:
    """A character beyond the BMP sorts by its first surrogate, before U+FFFD."""
    assert ecmascript.canonical({"\ufffd": 1, "👋": 2, "a": {"2": 0, "10": 0}}) == (
        '{"a":{"10":0,"2":0},"👋":2,"\ufffd":1}'
    )


@given(values)
def test_text_is_json_for_everyone(value: Any) -> None:
    """What is printed parses as the same value with the standard library, all numbers being doubles."""
    text = ecmascript.dumps(value)
    text.encode()
    assert json.loads(text, parse_int=float) == json.loads(json.dumps(value), parse_int=float)


@given(st.dictionaries(texts, st.integers(0, 9), max_size=6))
def test_canonical_does_not_depend_on_insertion_order(value: dict[str, int]) -> None:
    """Equal objects have equal canonical text."""
    assert ecmascript.canonical(value) == ecmascript.canonical(dict(reversed(value.items())))


class _Text(str):
    """A subclass, which could override anything."""


class _Kind(enum.IntEnum):
    """A subclass of int."""

    ONE = 1


CYCLE: list[Any] = []
CYCLE.append({"again": CYCLE})

REFUSED = [
    (float("nan"), "$", "nan"),
    ([1, float("inf")], "$[1]", "inf"),
    ({"a": {"b": -float("inf")}}, "$.a.b", "-inf"),
    ({"a": -0.0}, "$.a", "negative zero"),
    (2**53 + 1, "$", "double"),
    (10**400, "$", "double"),
    ([b"x"], "$[0]", "bytes"),
    ({"a": {1}}, "$.a", "set"),
    ((1, 2), "$", "tuple"),
    (_Text("x"), "$", "_Text"),
    (_Kind.ONE, "$", "_Kind"),
    (OrderedDict(a=1), "$", "OrderedDict"),
    (datetime.date(2024, 1, 1), "$", "date"),
    ([{1: 2}], "$[0]", "key of type int"),
    ({"a": {_Text("k"): 1}}, "$.a", "key of type _Text"),
    (CYCLE, "", "deeper than 512"),
    (object(), "$", "object"),
]


@pytest.mark.parametrize(("value", "path", "reason"), REFUSED)
def test_what_json_would_lose_is_refused_with_its_path(value: object, path: str, reason: str) -> None:
    """The error names the bad part, so that its maker finds it (L2)."""
    with pytest.raises(InvalidEventError) as caught:
        ecmascript.dumps(value)
    assert reason in caught.value.reason
    if path:
        assert caught.value.field == path


def test_a_long_path_is_cut() -> None:
    """The path in a message is bounded although keys are not."""
    with pytest.raises(InvalidEventError) as caught:
        ecmascript.dumps({"k" * 150: {"l" * 150: {"m": float("nan")}}})
    assert len(caught.value.field) <= 201
    assert caught.value.field.endswith("…")


def test_depth_counts_containers() -> None:
    """512 containers around a scalar pass, one more is refused; empty ones count too (S1)."""
    value: Any = 1
    for _ in range(512):
        value = [value]
    assert ecmascript.dumps(value) == "[" * 512 + "1" + "]" * 512
    with pytest.raises(InvalidEventError, match="512 levels"):
        ecmascript.dumps([value])
    empty: Any = {}
    for _ in range(511):
        empty = {"k": empty}
    assert ecmascript.dumps(empty).count("{") == 512
    with pytest.raises(InvalidEventError, match="512 levels"):
        ecmascript.dumps([empty])


def test_a_shared_part_is_printed_twice() -> None:
    """One object referenced twice is no cycle."""
    part = {"x": [1]}
    assert ecmascript.dumps([part, part]) == '[{"x":[1]},{"x":[1]}]'
