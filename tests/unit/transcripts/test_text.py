"""Text made safe for terminals, and figures made short for people."""

from __future__ import annotations

import json

import pytest

from turnlog.transcripts import text

HOSTILE = "a\x1b[31mb\x07\x9bc\x7f\u202ed\u2066e\ud800\u2028\ufeff\x85"


@pytest.mark.parametrize("form", [text.block, text.line])
def test_no_control_character_survives(form: object) -> None:
    """C0, C1, DEL, bidirectional overrides, separators and lone surrogates become visible escapes."""
    assert callable(form)
    shown = form(HOSTILE)
    assert shown == r"a\x1b[31mb\x07\x9bc\x7f\u202ed\u2066e\ud800\u2028\ufeff\x85"
    assert shown.encode("utf-8").decode("ascii") == shown


def test_block_keeps_lines_and_line_does_not() -> None:
    """Newlines and tabs are layout in a block; a single line shows them."""
    assert text.block("a\r\nb\tc\rd") == "a\nb\tc\\rd"
    assert text.line("a\r\nb\tc\rd") == "a\\r\\nb\\tc\\rd"


def test_ordinary_text_is_not_touched() -> None:
    """Accents, emoji with joiners and right-to-left letters are text, not control."""
    said = "naïve 👩\u200d🚀 שלום [bold]x[/bold]"
    assert text.block(said) == text.line(said) == said


def test_json_keeps_the_value() -> None:
    """JSON for the terminal is escaped and still means the same value."""
    value = {"k\u202e": HOSTILE, "n": 1e-7, "i": 3.0}
    shown = text.json_line(value)
    assert json.loads(shown) == value
    assert not any(0x7F <= ord(c) <= 0x9F or ord(c) < 0x20 or c in "\u202e\u2066\u2028\ufeff" for c in shown)
    assert '"n":1e-7,"i":3' in shown


def test_json_text_of_a_stored_line() -> None:
    """A carriage return between tokens of a stored line becomes a space; inside strings there is none."""
    assert json.loads(text.json_text('{"a":\r"\u009b"}\r')) == {"a": "\u009b"}
    assert "\r" not in text.json_text('{"a":\r1}\r')


@pytest.mark.parametrize(
    ("count", "shown"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (5 << 20, "5.0 MiB"),
        (3 << 30, "3.0 GiB"),
        (2 << 40, "2.0 TiB"),
    ],
)
def test_sizes(count: int, shown: str) -> None:
    """Sizes are in units of 1024."""
    assert text.size(count) == shown


@pytest.mark.parametrize(
    ("ms", "shown"),
    [
        (None, "–"),
        (-5, "0 ms"),
        (999, "999 ms"),
        (1500, "1.5 s"),
        (61_000, "1 min 01 s"),
        (3_660_000, "1 h 01 min"),
    ],
)
def test_durations(ms: int | None, shown: str) -> None:
    """A clock that went back is no time at all."""
    assert text.duration(ms) == shown


@pytest.mark.parametrize(
    ("age", "shown"),
    [
        (0, "now"),
        (30, "30 s ago"),
        (90, "1 min ago"),
        (7200, "2 h ago"),
        (3 * 86400, "3 d ago"),
        (60 * 86400, "2023-09-15"),
        (-3600, "2023-11-14 23:13:20"),
    ],
)
def test_past_times(age: int, shown: str) -> None:
    """Times are relative up to 30 days; a time in the future is a date."""
    now = 1_700_000_000_000
    assert text.ago(now - age * 1000, now) == shown


def test_times_outside_the_calendar() -> None:
    """The format allows any safe integer as a time; none of them is an error."""
    assert text.clock(2**53 - 1) == "9007199254740991 ms"
    assert text.clock(-(2**53)) == "-9007199254740992 ms"
    assert text.ago(None, 0) == "–"


def test_summary_is_one_line_of_bounded_width() -> None:
    """White space is folded and the cut is marked."""
    assert text.summary("  a\n\n b\x1b ", 20) == "a b\\x1b"
    assert text.summary("abcdef", 4) == "abc…"
