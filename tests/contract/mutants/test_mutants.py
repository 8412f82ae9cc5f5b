"""Every wrong backend is caught by the contract test that exists for its fault, and the right one by none.

The suites run in a pytest of their own, in a subprocess, since their failures are what is expected here.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contract.mutants.running import CONTROL, HARMLESS, Outcomes, run_named

SUITES = Path(__file__).with_name("suites.py")

CAUGHT_BY = {
    "TestLosesDataOnReopen": (
        "test_acknowledged_events_survive_a_crash",
        "test_events_survive_an_orderly_close",
        "test_flushed_events_survive_a_crash",
    ),
    "TestEventByEvent": ("test_a_crash_during_an_append_leaves_no_part",),
    "TestHeaderFirst": ("test_a_crash_during_the_first_append_leaves_no_header",),
    "TestNoSeqCheck": ("test_a_stale_writer_is_refused", "test_a_lost_reply_is_no_conflict"),
    "TestMutatingInspect": ("test_reading_a_torn_log_never_writes",),
    "TestClosesWhileReading": ("test_reading_never_writes", "test_inspect_shows_what_load_will_store"),
    "TestIgnoresTheClaim": (
        "test_a_second_writer_is_told_who_is_first",
        "test_takeover_fences_the_first_writer",
    ),
    "TestWritesAfterTakeover": (
        "test_takeover_fences_the_first_writer",
        "test_a_write_held_up_over_a_takeover_does_not_arrive[before-theirs]",
    ),
    "TestLosesTheTornEvents": ("test_torn_bytes_are_kept",),
    "TestCutsBeforeItAppends": ("test_a_crash_during_a_repair_loses_nothing",),
    "TestConstantRevision": ("test_revisions_follow_the_log", "test_a_changed_log_is_read_again"),
    "TestNoFolderSync": (
        "test_header_and_first_batch_survive_together",
        "test_flushed_events_survive_a_crash",
    ),
    "TestNoFileSync": ("test_acknowledged_events_survive_a_crash", "test_a_repair_survives_a_crash"),
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
