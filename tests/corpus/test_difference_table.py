"""Prints every rule of difference from the original with the number of cases it covers."""

from __future__ import annotations

from importlib import import_module

import pytest

from tests.corpus.differences import AREAS, Ledger, Rule, classify


def test_print_the_table(capsys: pytest.CaptureFixture[str]) -> None:
    """L2, R2, B4: the differences of all areas in one table; run with `-s` or see the run's output."""
    tables = []
    for place in AREAS.values():
        module, _, function = place.partition(":")
        ledger = getattr(import_module(module), function)()
        assert isinstance(ledger, Ledger)
        tables.append(ledger.table())
    with capsys.disabled():
        print("\n" + "\n".join(tables))


RULE = Rule("r", "L2", "always", lambda case: True, "accept", "reject", 1)


def test_equal_outcomes_need_no_rule() -> None:
    """The engine: no rule is applied to a case on which both agree."""
    assert classify({"name": "c"}, "accept", "accept", [RULE]) is None


def test_a_difference_without_a_rule_fails() -> None:
    """The engine: a difference in the other direction than the rule's is not covered by it."""
    with pytest.raises(AssertionError, match="no rule covers it"):
        classify({"name": "c"}, "reject", "accept", [RULE])


def test_a_difference_under_two_rules_fails() -> None:
    """The engine: rules may not overlap."""
    with pytest.raises(AssertionError, match="more than one rule"):
        classify({"name": "c"}, "accept", "reject", [RULE, RULE])


def test_another_number_of_cases_fails() -> None:
    """The engine: a rule that covers more or fewer cases than it says is out of date."""
    ledger = Ledger("area", (RULE,))
    with pytest.raises(AssertionError):
        ledger.check()
    ledger.record({"name": "c"}, "accept", "reject")
    ledger.check()
    ledger.record({"name": "d"}, "accept", "reject")
    with pytest.raises(AssertionError):
        ledger.check()
