"""Both doors of lossless JSON: what is encoded, what is decoded, what each refuses."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.events.samples import texts, values
from turnlog.errors import InvalidEventError
from turnlog.events import ecmascript, lossless
from turnlog.events.lossless import LosslessDecodeError


@given(values)
def test_encoding_is_the_printed_text(value: Any) -> None:
    """The fast path and the iterative writer give the same bytes."""
    assert lossless.encode(value) == ecmascript.dumps(value).encode()


@given(values)
def test_a_round_trip_loses_nothing(value: Any) -> None:
    """Encode and decode give the value back, also lone surrogates and big numbers (L2)."""
    text = lossless.encode(value)
    back = lossless.decode(text)
    assert ecmascript.canonical(back) == ecmascript.canonical(value)
    assert lossless.encode(back) == text


@given(texts)
def test_a_single_string_encodes_like_any_value(text: str) -> None:
    """The hot path of a delta writes the same literal."""
    assert lossless.encode_string(text) == lossless.encode(text)


@pytest.mark.parametrize(
    "value", [[1.5, {"a": 0.25}], {"7": 1, "3": 2}, [2**60], {"a": "\ud800"}, [True, None, -3, "ü"], {}]
)
def test_values_off_the_fast_path_encode_alike(value: Any) -> None:
    """Floats, index keys, big ints and surrogates fall back without a difference."""
    assert lossless.encode(value) == ecmascript.dumps(value).encode()


@pytest.mark.parametrize("value", [{"a": {1: 2}}, [set()], {"a": [float("nan")]}, 2**53 + 1, [-0.0]])
def test_what_cannot_be_stored_is_refused_at_the_door(value: Any) -> None:
    """The same refusals as the writer's, whichever path is tried first (L2)."""
    with pytest.raises(InvalidEventError):
        lossless.encode(value)


def nested(depth: int, opening: str = "[", closing: str = "]") -> bytes:
    """Make `depth` containers inside one another."""
    return (opening * depth + "1" + closing * depth).encode()


def test_depth_limit_is_the_same_at_both_doors() -> None:
    """512 levels pass encode and decode, 513 pass neither (S1)."""
    for opening, closing in (("[", "]"), ('{"a":', "}")):
        value = lossless.decode(nested(512, opening, closing))
        assert lossless.encode(value) == nested(512, opening, closing)
        with pytest.raises(LosslessDecodeError, match="nested deeper"):
            lossless.decode(nested(513, opening, closing))
        with pytest.raises(InvalidEventError, match="nested deeper"):
            lossless.encode([value])


def test_deep_values_pass_from_deep_in_the_stack() -> None:
    """A caller near the recursion limit gets the same answers: nothing here recurses."""
    raw = nested(400)

    def dig(levels: int) -> bytes:
        return dig(levels - 1) if levels else lossless.encode(lossless.decode(raw))

    used = len([1 for _ in iter(lambda: None, None)]) + 120
    assert dig(sys.getrecursionlimit() - used) == raw


def test_many_brackets_are_not_depth() -> None:
    """Wide values and brackets in strings do not count as depth."""
    wide = b"[" + b",".join([b"[]"] * 2000) + b"]"
    assert len(lossless.decode(wide)) == 2000
    text = lossless.encode(["[" * 3000, '\\"[{' * 900])
    assert lossless.decode(text) == ["[" * 3000, '\\"[{' * 900]
    assert not lossless.exceeds_depth(text)
    assert lossless.exceeds_depth(b"[" * 600)
    assert not lossless.exceeds_depth(b'"' + b"[" * 600)


ACCEPTED = [
    (b"1", 1),
    (b" [1 , 2 ]\r", [1, 2]),
    (b"1.0", 1),
    (b"1e2", 100),
    (b"-1.50E1", -15),
    (b"0.5", 0.5),
    (b"[0, 0.0, 0e5]", [0, 0, 0]),
    (b"12345678901234567890123", int(1.2345678901234568e22)),
    (b"[9007199254740993]", [9007199254740992]),
    (b"1e-400", 0),
    (b'{"a":1,"b":2,"a":3}', {"a": 3, "b": 2}),
    (b'{"__proto__":{"x":1}}', {"__proto__": {"x": 1}}),
    (b'"\\ud800"', "\ud800"),
    (b'["\\udc00\\ud800", "\\ud83d\\ude00", "\\u0041\\/"]', ["\udc00\ud800", "😀", "A/"]),
    (b'{"\\ud800":"-0", "k":[]}', {"\ud800": "-0", "k": []}),
    (b'["2024-01-01 -0", -0.5, {}]', ["2024-01-01 -0", -0.5, {}]),
    (b'[true,false,null,"\\udfff"]', [True, False, None, "\udfff"]),
    ('["ü\u2028\x7f"]'.encode(), ["ü\u2028\x7f"]),
    (b'[1234567890123456, "\\ud800", 1.5, -7]', [1234567890123456, "\ud800", 1.5, -7]),
]


@pytest.mark.parametrize(("raw", "value"), ACCEPTED)
def test_stored_text_decodes_as_an_engine_reads_it(raw: bytes, value: Any) -> None:
    """Integral numbers are ints, big ones are rounded like doubles, the last duplicate wins in place."""
    found = lossless.decode(raw)
    assert found == value
    assert repr(found) == repr(value)
    if isinstance(value, dict):
        assert list(found) == list(value)


REFUSED = [
    (b"", "ends early", True),
    (b"[1", "ends early", True),
    (b'{"a"', "ends early", True),
    (b'{"a":', "ends early", True),
    (b"{", "ends early", True),
    (b"[1,", "ends early", True),
    (b'{"a":1,', "ends early", True),
    (b'["ab', "ends early", True),
    (b'["ab\\', "ends early", True),
    (b'["ab\\u00', "ends early", True),
    (b'["\\ud800', "ends early", True),
    (b"tru", "ends early", True),
    (b"-", "ends early", True),
    (b"[1.", "ends early", True),
    (b"[1e+", "ends early", True),
    (b"[\xe2\x82", "invalid UTF-8", True),
    (b"[1 2]", "expected a comma", False),
    (b"[1,]", "expected a value", False),
    (b'{"a" 1}', "expected a colon", False),
    (b"{1:2}", "expected a key", False),
    (b"{'a':1}", "expected a key", False),
    (b"[1] x", "more text", False),
    (b"trux", "unknown literal", False),
    (b"NaN", "expected a value", False),
    (b"[01]", "expected a comma", False),
    (b"+1", "expected a value", False),
    (b"[.5]", "expected a value", False),
    (b'["a\x01b"]', "malformed string", False),
    (b'["a\\x"]', "malformed string", False),
    (b'["\\u12g4"]', "malformed string", False),
    (b"\xef\xbb\xbf1", "expected a value", False),
    (b'"\xff"', "invalid UTF-8", False),
    (b'["\xed\xa0\x80"]', "invalid UTF-8", False),
    (b"-0", "negative zero", False),
    (b"[-0]", "negative zero", False),
    (b'{"a": -0.0}', "negative zero", False),
    (b"[-0e3]", "negative zero", False),
    (b"[-1e-400]", "negative zero", False),
    (b"1e400", "range of a double", False),
    (b"[-1e400]", "range of a double", False),
    (b"1" * 400, "range of a double", False),
]


@pytest.mark.parametrize(("raw", "reason", "truncated"), REFUSED)
def test_what_is_not_lossless_json_is_refused(raw: bytes, reason: str, truncated: bool) -> None:
    """The error names the reason, and whether the text is a clean beginning of something longer."""
    with pytest.raises(LosslessDecodeError) as caught:
        lossless.decode(raw)
    assert reason in str(caught.value)
    assert caught.value.truncated is truncated
    assert 0 <= caught.value.offset <= len(raw)


def test_the_offset_counts_bytes() -> None:
    """Characters beyond ASCII before the fault do not shift its offset."""
    with pytest.raises(LosslessDecodeError) as caught:
        lossless.decode('["ü👋", x]'.encode())
    assert caught.value.offset == 11
    with pytest.raises(LosslessDecodeError) as caught:
        lossless.decode('["ü", -0]'.encode())
    assert caught.value.offset == 7


@given(values, st.data())
def test_every_cut_of_an_object_is_a_clean_beginning(value: Any, data: st.DataObject) -> None:
    """A torn write leaves text that is truncated and nothing else."""
    raw = lossless.encode({"type": "a/b", "seq": 1, "data": value})
    cut = data.draw(st.integers(0, len(raw) - 1))
    with pytest.raises(LosslessDecodeError) as caught:
        lossless.decode(raw[:cut])
    assert caught.value.truncated


@given(values)
def test_the_iterative_reader_agrees_with_the_standard_library(value: Any) -> None:
    """The exact reader, reached directly, reads what others read."""
    raw = json.dumps(value).encode()
    assert lossless.read_leniently(raw) == json.loads(raw, parse_int=float)


def test_lenient_reading_recognises_what_is_refused() -> None:
    """Bad UTF-8, depth, negative zero and overflow do not hide what a record was."""
    found = lossless.read_leniently(
        b'{"seq":3,"a":"\xff","b":-0,"c":1e400,"d":' + b"[" * 600 + b"]" * 600 + b"}"
    )
    assert found["seq"] == 3
    assert found["a"] == "\ufffd"
    assert str(found["b"]) == "-0.0"
    assert found["c"] == float("inf")
    with pytest.raises(LosslessDecodeError):
        lossless.read_leniently(b'{"seq":')


SKIPPED = [
    (b'{"a":-0}', "negative zero"),
    (b'{"a":[1, -0.0]}', "negative zero"),
    (b'{"a":1e400}', "range"),
    (b'{"a":1.5E+999}', "range"),
    (b'{"a":' + b"9" * 310 + b"}", "range"),
    (b'{"a":"\xff"}', "UTF-8"),
    (b'{"a":' + nested(600) + b"}", "nested"),
]


@pytest.mark.parametrize(("raw", "reason"), SKIPPED)
def test_skipped_text_is_checked(raw: bytes, reason: str) -> None:
    """What a typed decode skips as raw text is held to the same rules."""
    with pytest.raises(LosslessDecodeError, match=reason):
        lossless.check_skipped(raw)


@pytest.mark.parametrize(
    "raw",
    [
        b'{"a":"2024-01-01","b":"9e9999","c":-0.5,"d":1e-999999,"e":1e5}',
        b'{"a":"ue\xc3\xbc","b":' + b"8" * 290 + b"}",
        b'{"a":' + nested(500) + b', "b":"' + b"[" * 600 + b'"}',
        b'{"a":3e007}',
    ],
)
def test_harmless_look_alikes_pass(raw: bytes) -> None:
    """Dates, hex digests and long texts that only look suspicious are no fault."""
    lossless.check_skipped(raw)


def test_counts_and_safe_integers() -> None:
    """Bools are no numbers, integral floats are, the bounds are inclusive."""
    assert [lossless.is_safe_int(x) for x in (0, -(2**53) + 1, 1.0, 2**53, 1.5, True, "1", None)] == [
        True,
        True,
        True,
        False,
        False,
        False,
        False,
        False,
    ]
    assert [lossless.is_count(x) for x in (0, 5.0, -1, 2**53)] == [True, True, False, False]
