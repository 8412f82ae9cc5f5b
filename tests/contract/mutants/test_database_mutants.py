"""Every wrong database backend is caught by the contract test for its fault, and the right one by none."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contract.mutants.database_suites import CAUGHT_BY
from tests.contract.mutants.running import CONTROL, HARMLESS, Outcomes, run_named
from tests.postgres_cluster import needed_bin_folder


@pytest.fixture(scope="module", name="outcomes", params=["sqlite", "postgres"])
def _outcomes(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    """Run the named tests of one database once; return the outcome by suite and test."""
    if request.param == "postgres":
        needed_bin_folder()
    suites = Path(__file__).with_name(f"{request.param}_suites.py")
    return run_named(suites, CAUGHT_BY, tmp_path_factory.mktemp("mutants") / "report.xml")


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
