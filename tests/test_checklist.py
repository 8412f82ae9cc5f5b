"""The checklist page is complete and true: every line has a test that exists, or a reason."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.checklist import IDS, PAGE, Row, cited_ids, coverage, read_page, sources, write_page

MEND = "run `python -m tests.checklist`"


@pytest.fixture(scope="module", name="rows")
def _rows() -> list[Row]:
    return [part for part in read_page(PAGE.read_text(encoding="utf-8")) if isinstance(part, Row)]


@pytest.fixture(scope="module", name="covered")
def _covered() -> dict[str, list[str]]:
    return coverage(sources())


def test_the_page_has_every_line_once(rows: list[Row]) -> None:
    """No id is forgotten, doubled or invented."""
    assert Counter(row.id for row in rows) == Counter(IDS)


def test_every_line_has_a_test_or_a_reason(rows: list[Row], covered: dict[str, list[str]]) -> None:
    """A line without a test says why it does not apply."""
    assert [row.id for row in rows if row.reason is None and row.id not in covered] == []


def test_no_line_has_a_test_and_a_reason(rows: list[Row], covered: dict[str, list[str]]) -> None:
    """A reason beside a tested line is out of date."""
    assert [row.id for row in rows if row.reason is not None and row.id in covered] == []


def test_reasons_say_something(rows: list[Row]) -> None:
    """A reason is a sentence, not a shrug."""
    assert [row.id for row in rows if row.reason is not None and len(row.reason.split()) < 4] == []


def test_only_known_ids_are_cited(covered: dict[str, list[str]]) -> None:
    """A docstring that cites an id beyond the end of its group has a slip of the pen."""
    assert {id: tests for id, tests in covered.items() if id not in IDS} == {}


def test_the_page_is_up_to_date(covered: dict[str, list[str]]) -> None:
    """The page names the tests as they are now."""
    text = PAGE.read_text(encoding="utf-8")
    assert text == write_page(read_page(text), covered), MEND


def test_a_line_without_a_test_is_found() -> None:
    """The check can fail: a row that nobody cites is marked as missing."""
    page = "| CR1 | packs | x |\n| CR2 | packs | not applicable: there is no such thing |\n"
    parts = read_page(page)
    assert write_page(parts, {}) == (
        "| CR1 | packs | **missing** |\n| CR2 | packs | not applicable: there is no such thing |\n"
    )
    assert write_page(parts, {"CR1": ["[a](b)"]}).startswith("| CR1 | packs | [a](b) |\n")


def test_ids_and_ranges_are_read_from_docstrings(tmp_path: Path) -> None:
    """Single ids, lists and ranges count; promise ids and longer words do not."""
    assert cited_ids("x (L1, CR1, CR3–CR5, SE10-12; W1, JL7)") == (
        ["CR1", "CR3", "CR4", "CR5", "SE10", "SE11", "SE12", "JL7"]
    )
    assert cited_ids("ZCR1 CR1x CC") == []
    assert cited_ids(None) == []
