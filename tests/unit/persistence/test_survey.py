"""The survey of what is left of a log: which rows are kept, and what every other place is called."""

from __future__ import annotations

import pytest

from turnlog.events.batch import Damage, StoredFrame
from turnlog.events.chunk_runs import Row
from turnlog.events.live_run import pack_rows
from turnlog.persistence.survey import LARGEST_GAP, Survey, survey
from turnlog.testing.scripts import LogScript


def rows(*seqs: int, text: str = "x") -> list[Row]:
    """Return one row per seq."""
    found: list[Row] = []
    for seq in seqs:
        found += pack_rows(LogScript(seq).add("feedback/record", {"text": text}).events)
    return found


def run(position: int, *seqs: int, text: str = "x", as_text: bool = False) -> StoredFrame:
    """Return a run of rows at one place."""
    held = tuple(rows(*seqs, text=text))
    return StoredFrame(held[0].first_seq, held[-1].last_seq, held, position, as_text)


def seqs(found: Survey) -> list[int]:
    """Return the seqs of the rows that were kept."""
    return [row.first_seq for row in found.rows]


def kinds(found: Survey) -> list[tuple[str, int | None]]:
    """Return what was found and where."""
    return [(finding.kind, finding.offset) for finding in found.findings]


def test_a_good_log_has_nothing_to_say() -> None:
    """Runs that follow each other are the log."""
    found = survey([run(0, 0, 1), run(50, 2), run(90, 3, 4)])
    assert (seqs(found), found.findings, found.missing) == ([0, 1, 2, 3, 4], (), ())
    assert found.event_count == 5


def test_nothing_at_all() -> None:
    """An empty log is a log."""
    assert survey([]) == Survey((), (), ())


def test_damage_explains_the_hole_behind_it() -> None:
    """A damaged place and the events it held are one finding and one entry of missing events."""
    found = survey([run(0, 0, 1), Damage(40, 3, "unparsable", 12), run(52, 3)])
    assert kinds(found) == [("unparsable", 40)]
    assert [(gap.first_seq, gap.last_seq, gap.offset) for gap in found.missing] == [(2, 2, 52)]
    assert len(found.missing[0]) == 1
    assert found.findings[0].line == 3


def test_a_hole_without_damage_is_a_finding() -> None:
    """Lines that are simply gone leave no bad byte, only the number that is due."""
    found = survey([run(0, 0), run(30, 4)])
    assert kinds(found) == [("seq-gap", 30)]
    assert found.findings[0].seq == 1
    assert [(gap.first_seq, gap.last_seq) for gap in found.missing] == [(1, 3)]


def test_missing_at_the_beginning() -> None:
    """The first event that is left need not be the first one."""
    found = survey([run(10, 2, 3)])
    assert [(gap.first_seq, gap.last_seq) for gap in found.missing] == [(0, 1)]


def test_a_hole_that_the_backend_names_is_named_once() -> None:
    """A database reports missing rows itself, with size 0."""
    found = survey([run(0, 0), Damage(1, None, "seq-gap", 0), run(3, 3)])
    assert kinds(found) == [("seq-gap", 1)]
    assert found.findings[0].reason == "events are missing here"


def test_a_torn_end_is_not_damage() -> None:
    """R2: what was cut short at the end was never acknowledged."""
    found = survey([run(0, 0), Damage(20, None, "torn", 5)])
    assert [(f.kind, f.severity, f.size) for f in found.findings] == [("torn", "torn", 5)]


def test_a_repetition_keeps_the_first_copy() -> None:
    """The same rows once more, as a retried write leaves them, change nothing and are named once."""
    found = survey([run(0, 0, 1, 2), run(60, 1, 2)])
    assert seqs(found) == [0, 1, 2]
    assert kinds(found) == [("repeat", 60)]
    assert found.findings[0].reason == "seq 1 to 2 stands here once more"


def test_an_overlap_is_taken_row_by_row() -> None:
    """A retry that went on further than the first try loses neither its new rows nor the old ones."""
    found = survey([run(0, 0, 1, 2, 3), run(80, 2, 3, 4, 5)])
    assert seqs(found) == [0, 1, 2, 3, 4, 5]
    assert kinds(found) == [("repeat", 80)]


def test_other_content_under_a_used_seq() -> None:
    """Of two rows with one seq the first counts, and the second is named."""
    found = survey([run(0, 0, 1), run(40, 1, text="other"), run(60, 2)])
    assert [row.line for row in found.rows] == [row.line for row in rows(0, 1, 2)]
    assert kinds(found) == [("conflict", 40)]


def test_a_spoiled_number_loses_against_the_rightful_one() -> None:
    """A row whose seq was changed to that of its neighbour does not take the neighbour's place."""
    found = survey([run(0, 0, 1), run(40, 3, text="was 2"), run(60, 3, 4)])
    assert [row.line for row in found.rows] == [row.line for row in rows(0, 1, 3, 4)]
    assert kinds(found) == [("conflict", 40)]
    assert [(gap.first_seq, gap.last_seq) for gap in found.missing] == [(2, 2)]


def test_a_row_that_jumps_ahead_does_not_hide_the_rest() -> None:
    """One row with a number too high costs itself, not everything up to that number."""
    found = survey([run(0, 0, 1), run(40, 8, text="was 2"), run(60, 3, 4, 5)])
    assert seqs(found) == [0, 1, 3, 4, 5]
    assert kinds(found) == [("out-of-place", 40)]


@pytest.mark.parametrize("seq", [LARGEST_GAP + 3, 2**52])
def test_a_number_out_of_all_proportion_is_spoiled(seq: int) -> None:
    """No gap is filled that could not be real: the report and the new log stay bounded."""
    found = survey([run(0, 0, 1), run(40, seq)])
    assert seqs(found) == [0, 1]
    assert (kinds(found), found.missing) == ([("out-of-place", 40)], ())
    assert survey([run(0, 0, 1), run(40, LARGEST_GAP + 1)]).event_count == 3


def test_rows_of_plain_text_have_offsets_of_their_own() -> None:
    """In the middle of a run, too, a finding names the byte where its row begins."""
    first = run(100, 0, 1, as_text=True)
    second = run(100 + sum(len(row.line) + 1 for row in first.rows), 1, 2, as_text=True)
    strange = StoredFrame(0, 1, (*first.rows, *second.rows), 100, as_text=True)
    found = survey([strange])
    assert seqs(found) == [0, 1, 2]
    assert kinds(found) == [("repeat", second.position)]


def test_strays_of_different_kinds_are_named_apart() -> None:
    """A repetition, a conflict and a row out of place in one series are three findings."""
    stray = StoredFrame(1, 9, (*rows(1), *rows(2, text="other"), *rows(9)), 70)
    found = survey([run(0, 0, 1, 2, 3, 4), stray, run(99, 5, 6)])
    assert seqs(found) == [0, 1, 2, 3, 4, 5, 6]
    assert kinds(found) == [("repeat", 70), ("conflict", 70), ("out-of-place", 70)]


def test_copies_in_another_order() -> None:
    """A first copy that stands before its predecessor is not taken: the log must read forward."""
    found = survey([run(0, 1), run(20, 0), run(40, 1, 2)])
    assert seqs(found) == [0, 1, 2]
    assert kinds(found) == [("repeat", 0)]


def test_rows_out_of_order_are_put_where_they_belong() -> None:
    """Rows that changed places are all left, each named where it stands, and nothing is missing."""
    found = survey([run(0, 0, 1), run(40, 6), run(60, 3, 4, 5), run(80, 2), run(90, 7, 8)])
    assert seqs(found) == list(range(9))
    assert kinds(found) == [("out-of-place", 40), ("out-of-place", 80)]
    assert found.missing == ()


def test_a_row_of_the_end_that_stands_too_early() -> None:
    """What goes on directly behind the last event is left; what would leave a hole there is not."""
    found = survey([run(0, 0), run(20, 5), run(40, 7), run(60, 1, 2, 3, 4)])
    assert seqs(found) == [0, 1, 2, 3, 4, 5]
    assert kinds(found) == [("out-of-place", 20), ("out-of-place", 40)]


def test_a_hole_that_is_filled_in_part() -> None:
    """Only what no row anywhere holds is missing, and a copy that would overlap is no filling."""
    found = survey([run(0, 0, 1), run(40, 8, 9, 10), run(60, 4), run(80, 3, 4), run(99, 4)])
    assert seqs(found) == [0, 1, 3, 4, 8, 9, 10]
    assert [(gap.first_seq, gap.last_seq) for gap in found.missing] == [(2, 2), (5, 7)]


def test_a_finding_for_programs() -> None:
    """Every key is there, whatever is known."""
    (finding,) = survey([Damage(7, 2, "bad-utf8", 3)]).findings
    assert finding.as_json() == {
        "kind": "bad-utf8",
        "severity": "damage",
        "reason": "3 bytes cannot be read",
        "offset": 7,
        "line": 2,
        "seq": None,
        "size": 3,
    }


@pytest.mark.parametrize("kind", ["header", "no-header", "seq-gap"])
def test_what_is_missing_is_said(kind: str) -> None:
    """Damage that takes no bytes says what should stand there."""
    (finding,) = survey([Damage(0, None, kind, 0)]).findings
    assert "something" not in finding.reason
