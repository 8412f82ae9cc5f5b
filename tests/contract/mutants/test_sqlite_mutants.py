"""Every wrong SQLite backend is caught by the contract test for its fault, and the right one by none."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contract.mutants.running import CONTROL, HARMLESS, Outcomes, run_named

SUITES = Path(__file__).with_name("sqlite_suites.py")

CAUGHT_BY = {
    "TestLosesDataOnReopen": (
        "test_acknowledged_events_survive_a_crash",
        "test_events_survive_an_orderly_close",
        "test_flushed_events_survive_a_crash",
    ),
    "TestEventByEvent": ("test_a_crash_at_the_first_trace_of_an_append_leaves_no_part",),
    "TestHeaderFirst": ("test_a_crash_at_the_first_trace_of_an_append_leaves_no_part",),
    "TestNoSeqCheck": ("test_a_stale_writer_is_refused",),
    "TestIgnoresTheClaim": (
        "test_a_second_writer_is_told_who_is_first",
        "test_takeover_fences_the_first_writer",
    ),
    "TestWritesAfterTakeover": (
        "test_takeover_fences_the_first_writer",
        "test_a_write_held_up_over_a_takeover_does_not_arrive[before-theirs]",
    ),
    "TestConstantRevision": ("test_revisions_follow_the_log", "test_a_changed_log_is_read_again"),
}
"""Which tests must fail on which wrong backend."""


@pytest.fixture(scope="module", name="outcomes")
def _outcomes(tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    """Run the named tests once; return the outcome by suite and test."""
    return run_named(SUITES, CAUGHT_BY, tmp_path_factory.mktemp("mutants") / "report.xml")


@pytest.mark.parametrize(
    ("suite", "test"), [(suite, test) for suite, tests in CAUGHT_BY.items() for test in tests]
)
def test_the_mutant_is_caught(outcomes: Outcomes, suite: str, test: str) -> None:
    """The contract test that exists for this fault fails on it, and passes on the right backend."""
    assert outcomes[suite, test] == "failure"
    assert outcomes[CONTROL, test] == "passed"


@pytest.mark.parametrize("suite", sorted(CAUGHT_BY))
def test_the_mutant_is_wrong_in_one_way_only(outcomes: Outcomes, suite: str) -> None:
    """What the fault does not touch still passes, so it is the fault that is caught."""
    assert outcomes[suite, HARMLESS] == "passed"
