"""The row of a session: header and summary with their checksums, the end and the size of its log."""

from __future__ import annotations

import dataclasses
import zlib

import pytest

from tests.unit.backends.logs import META, OTHER
from turnlog.backends.row_facts import (
    NO_SUMMARY,
    check_end,
    count,
    decode_summary,
    encode_summary,
    header_crc,
    list_header,
    read_header,
)
from turnlog.errors import CorruptLogError, UnsupportedFormatError
from turnlog.events.header import header_line
from turnlog.persistence.backend import LogSummary
from turnlog.testing.damage import flip_bit

HEADER = dataclasses.replace(META, delegation_depth=0)
LINE = header_line(HEADER)
SUMMARY = LogSummary(turns=2, steps=3, title="Größe 漢字 \x00", last_time=5, open_turn=2)


def test_a_header_is_read_as_it_was_stored() -> None:
    """The line and its checksum give the header back."""
    assert read_header(LINE, header_crc(LINE), session_id=META.id) == HEADER
    assert list_header(META.id, LINE, header_crc(LINE)) == (META.id, HEADER, "ok", None)


def test_every_flipped_bit_of_a_header_is_damage() -> None:
    """R2: no single bit of line or checksum can change without being noticed."""
    crc = header_crc(LINE)
    for bit in range(len(LINE) * 8):
        with pytest.raises(CorruptLogError) as refused:
            read_header(flip_bit(LINE, bit // 8, bit % 8), crc, session_id=META.id, path="x.db")
        assert (refused.value.kind, refused.value.path) == ("header-checksum", "x.db")
    for bit in range(32):
        with pytest.raises(CorruptLogError):
            read_header(LINE, crc ^ 1 << bit, session_id=META.id)


@pytest.mark.parametrize("line", [None, 7, "text", b""], ids=["null", "number", "text", "empty"])
def test_a_header_that_is_none_is_damage(line: object) -> None:
    """R2: a column of a damaged file may hold anything."""
    for crc in (None, 0, "0", header_crc(LINE)):
        with pytest.raises(CorruptLogError):
            read_header(line, crc, session_id=META.id)


def test_a_listing_goes_on_whatever_a_row_holds() -> None:
    """B4: another session's header, another format and a key that is none are named."""
    other, later = header_line(OTHER), LINE.replace(b'"version":0', b'"version":9')
    found = list_header(META.id, other, header_crc(other), path="x.db")
    assert (found.session_id, found.meta, found.status) == (META.id, None, "corrupt")
    assert OTHER.id in str(found.problem)
    found = list_header(META.id, later, header_crc(later))
    assert (found.session_id, found.meta, found.status) == (META.id, None, "unsupported")
    found = list_header("no~key", LINE, header_crc(LINE))
    assert (found.session_id, found.meta, found.status) == (None, None, "corrupt")


def test_another_format_is_told_from_damage() -> None:
    """A good header of a later format is no damage."""
    later = LINE.replace(b'"version":0', b'"version":9')
    with pytest.raises(UnsupportedFormatError):
        read_header(later, header_crc(later), session_id=META.id)


def test_counts_out_of_a_damaged_file() -> None:
    """What is no count is -1, which no log ends at."""
    assert [count(value) for value in (0, 5, 2**53 - 1)] == [0, 5, 2**53 - 1]
    for value in (-1, 2**53, 2**62, 1.0, True, None, "5", b"5"):
        assert count(value) == -1


def test_an_end_is_held_against_the_last_frame() -> None:
    """R2: a row that says more or less than the frames is named with the seq where they part."""
    check_end(0, None, session_id="s")
    check_end(7, 6, session_id="s")
    for next_seq, last_seq, seq in ((7, None, 0), (0, 6, 0), (8, 6, 7), (5, 6, 5), (-1, None, -1)):
        with pytest.raises(CorruptLogError) as refused:
            check_end(next_seq, last_seq, session_id="s", path="x.db")
        assert (refused.value.kind, refused.value.seq) == ("seq-gap", seq)


def test_a_summary_survives_its_row() -> None:
    """B4: what a writer summarised is what a listing shows; what cannot be kept is blank."""
    assert decode_summary(*encode_summary(SUMMARY, 9), 9) == SUMMARY
    assert encode_summary(None, 9) == NO_SUMMARY
    assert encode_summary(LogSummary(title="\ud800"), 9) == NO_SUMMARY
    assert decode_summary(*NO_SUMMARY, 9) is None


def test_a_summary_that_is_not_the_stored_one_is_blank() -> None:
    """B4: no flipped bit shows another title, and no summary is shown for another end of the log."""
    text, crc = encode_summary(SUMMARY, 9)
    assert text is not None
    assert crc is not None
    for bit in range(len(text) * 8):
        assert decode_summary(flip_bit(text, bit // 8, bit % 8), crc, 9) is None
    for other in (crc ^ 1, None, str(crc)):
        assert decode_summary(text, other, 9) is None
    for end in (0, 8, 10, 99):
        assert decode_summary(text, crc, end) is None
    for stored in (None, 7, "{}"):
        assert decode_summary(stored, crc, 9) is None


def test_a_summary_of_another_program_is_blank() -> None:
    """A row may be written by others: what has a checksum and is no summary is blank, too."""
    for text in (b"", b"{", b'{"turns":"two"}', b"\xff"):
        assert decode_summary(text, zlib.crc32(text, 9), 9) is None
