"""The coverage floor counts lines and branches by package and names what is missing."""

from __future__ import annotations

from tools.coverage_floor import FLOORS, judge, shares

REPORT = {
    "files": {
        "src/turnlog/events/log.py": {
            "summary": {"covered_lines": 9, "num_statements": 10, "covered_branches": 3, "num_branches": 4},
            "missing_lines": [7],
            "missing_branches": [[6, 7]],
        },
        "src/turnlog/session/fork.py": {
            "summary": {"covered_lines": 5, "num_statements": 5, "covered_branches": 0, "num_branches": 0},
            "missing_lines": [],
            "missing_branches": [],
        },
        "src/turnlog/cli/main.py": {
            "summary": {"covered_lines": 0, "num_statements": 9},
            "missing_lines": [1],
        },
    }
}


def test_shares_count_lines_and_branches() -> None:
    """A package's share is its covered lines and branches over all of them, with the gaps named."""
    found = shares(REPORT, ["events", "session"])
    assert (found["events"].covered, found["events"].total) == (12, 14)
    assert found["events"].missing == ("src/turnlog/events/log.py: 7, 6->7",)
    assert (found["session"].percent, found["session"].missing) == (100.0, ())


def test_judge_names_packages_below_their_floor() -> None:
    """One missing line is below 100, and a package that no test imported is below any floor."""
    found = shares(REPORT, list(FLOORS))
    assert judge(found, FLOORS) == ["events", "persistence", "backends"]
    assert judge(shares(REPORT, ["session"]), {"session": 100.0}) == []
