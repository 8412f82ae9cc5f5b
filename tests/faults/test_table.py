"""The pages that a long run writes: sums and lanes agree with what the lanes reported."""

from __future__ import annotations

import re

from tests.faults.lanes import Lane
from tests.faults.table import BEGIN, DURABILITY_PAGE, END, RESULTS_PAGE, page, sums, with_sums

LANES = [
    Lane("power loss", "jsonl zstd", faults=3, acknowledged=1200),
    Lane("out of memory", "jsonl-zstd", faults=2, acknowledged=30),
    Lane("power loss", "postgres, two hosts", faults=4, acknowledged=5),
    Lane("SIGKILL in copy", "jsonl none to sqlite", faults=1, acknowledged=1, lost=1),
    Lane("power loss, syncs ignored", "sqlite", faults=1, acknowledged=9, lost=9, control=True),
    Lane("two writers", "other", faults=1, acknowledged=300, lost=7, note="both wrote", peer=True),
]


def test_sums_are_those_of_the_lanes_that_promise_something() -> None:
    """Controls and other stores are told apart; kinds of the same backend are one row."""
    rows = sums(LANES[:4])[3:]
    assert rows == [
        "| JSONL, zstd | 2 | 5 | 1,230 | 0 | 0 |",
        "| PostgreSQL | 1 | 4 | 5 | 0 | 0 |",
        "| copies between them | 1 | 1 | 1 | 1 | 0 |",
        "| all | 4 | 10 | 1,236 | 1 | 0 |",
    ]


def test_the_page_has_every_lane_once() -> None:
    """Each lane is a row of the part it belongs to."""
    _, lanes, controls, others = re.split(r"^## .*$", page(LANES), flags=re.MULTILINE)
    assert "| power loss | jsonl zstd | 3 | 1,200 | 0 | 0 |  |" in lanes
    assert lanes.count("\n| ") == 4 + 1
    assert controls.count("\n| ") == 1 + 1
    assert "| two writers | other | 1 | 300 | 7 | 0 | both wrote |" in others


def test_sums_are_put_between_their_marks() -> None:
    """What stands around them stays."""
    text = with_sums(f"a\n\n{BEGIN}\n\nold\n\n{END}\n\nz\n", ["| new |"])
    assert text == f"a\n\n{BEGIN}\n\n| new |\n\n{END}\n\nz\n"


def test_both_pages_come_from_the_same_run() -> None:
    """The sums in the page about durability are those above the lanes."""
    between = DURABILITY_PAGE.read_text("utf-8").partition(BEGIN)[2].partition(END)[0].strip()
    assert "| all |" in between
    assert between in RESULTS_PAGE.read_text("utf-8")
