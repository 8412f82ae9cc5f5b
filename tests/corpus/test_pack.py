"""Packing as the original packs: records, lines, and the way back."""

from __future__ import annotations

from typing import Any

import pytest

from tests.corpus.paths import read
from turnlog.errors import InvalidEventError, TurnlogError, UsageError
from turnlog.events import chunk_runs, lossless
from turnlog.events.batch import EncodedBatch
from turnlog.events.chunk_runs import PACKED_TAGS, parse_row
from turnlog.events.envelope import SessionEvent

CASES: list[dict[str, Any]] = read("jsonl/pack.json")["cases"]


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_records_and_lines_are_the_originals(case: dict[str, Any]) -> None:
    """The same records, the same bytes per line, and expansion gives the events back."""
    assert chunk_runs.pack(case["events"]) == case["expected_records"]
    assert [line.decode() for line in chunk_runs.pack_lines(case["events"])] == case["expected_lines"]
    expanded = [event for record in case["expected_records"] for event in chunk_runs.expand(record)]
    assert lossless.encode(expanded) == lossless.encode(case["events"])


NOT_STORED: dict[str, type[TurnlogError]] = {
    "empty": UsageError,  # a batch holds at least one event
    "seq-hole-breaks": UsageError,  # and has no hole
    "fractional-time-verbatim": InvalidEventError,  # times are whole milliseconds
    "negative-seq-verbatim": InvalidEventError,
}
"""Cases that show how the original packs what no log can hold."""


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_batches_write_the_same_lines(case: dict[str, Any]) -> None:
    """The encoder of live sessions gives the original's bytes, and refuses what cannot be stored."""
    if case["name"] in NOT_STORED:
        with pytest.raises(NOT_STORED[case["name"]]):
            EncodedBatch.of([SessionEvent.from_dict(event) for event in case["events"]])
        return
    batch = EncodedBatch.of([SessionEvent.from_dict(event) for event in case["events"]])
    assert [row.line.decode() for row in batch.rows] == case["expected_lines"]


def test_every_packed_line_passes_the_typed_reader() -> None:
    """Rows are kept verbatim and give the original's events."""
    seen = 0
    for case in CASES:
        for line in case["expected_lines"]:
            record = lossless.decode(line.encode())
            if record["type"] in PACKED_TAGS:
                row = parse_row(line.encode(), record["type"])
                assert row.line.decode() == line
                assert [event.to_dict() for event in row.events()] == chunk_runs.expand(record)
                seen += 1
    assert seen > 10
