"""Where turnlog answers otherwise than the original: rules, the check that every difference has one, a table.

A rule is a promise, a condition on the case, what the original does, what turnlog does, and how many cases
it covers. A test records every case; a difference without a rule, or a rule with another number of cases,
fails.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

Case = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Rule:
    """One deliberate difference from the original."""

    id: str
    """Short name, unique among the rules of an area."""
    promise: str
    """Id of the promise it follows from, for example `L2`."""
    describes: str
    """The condition in words."""
    condition: Callable[[Case], bool]
    """The condition as a predicate over the case; never looks at its name or at our answer."""
    theirs: str
    """The original's outcome."""
    ours: str
    """Our outcome."""
    count: int
    """How many cases it covers."""


def classify(case: Case, theirs: str, ours: str, rules: Iterable[Rule]) -> Rule | None:
    """Find the rule that a difference falls under.

    Args:
        case: The recorded case.
        theirs: The original's outcome.
        ours: Our outcome.
        rules: The rules of the area.

    Returns:
        The rule, or `None` when the outcomes are equal.

    Raises:
        AssertionError: The outcomes differ and not exactly one rule covers that.
    """
    if theirs == ours:
        return None
    found = [rule for rule in rules if (rule.theirs, rule.ours) == (theirs, ours) and rule.condition(case)]
    name = case.get("name", "?")
    assert found, f"case {name}: the original says {theirs}, turnlog says {ours}, and no rule covers it"
    assert len(found) == 1, f"case {name} falls under more than one rule: {[rule.id for rule in found]}"
    return found[0]


@dataclass(slots=True)
class Ledger:
    """The cases of one area and the rules they fell under."""

    area: str
    rules: tuple[Rule, ...]
    cases: int = 0
    left_out: dict[str, str] = field(default_factory=dict)
    """Names of cases that cannot be put to Python, with the reason."""
    by_rule: Counter[str] = field(default_factory=Counter)

    def record(self, case: Case, theirs: str, ours: str) -> Rule | None:
        """Count one case.

        Args:
            case: The recorded case.
            theirs: The original's outcome.
            ours: Our outcome.

        Returns:
            The rule that it falls under, `None` when the outcomes are equal.

        Raises:
            AssertionError: As `classify`.
        """
        self.cases += 1
        rule = classify(case, theirs, ours, self.rules)
        if rule is not None:
            self.by_rule[rule.id] += 1
        return rule

    def leave_out(self, case: Case, reason: str) -> None:
        """Count a case that has no counterpart in Python."""
        self.left_out[case["name"]] = reason

    def check(self) -> None:
        """Check that every rule covers exactly as many cases as it says.

        Raises:
            AssertionError: A number is off, or two rules share an id.
        """
        expected = {rule.id: rule.count for rule in self.rules}
        assert len(expected) == len(self.rules), f"{self.area}: two rules share an id"
        assert dict(self.by_rule) == {id_: count for id_, count in expected.items() if count}, self.table()

    def table(self) -> str:
        """Return the differences as text, one line per rule."""
        lines = [f"{self.area}: {self.cases} cases, {sum(self.by_rule.values())} differ by rule"]
        lines += [
            f"  {rule.promise:4} {rule.id:28} {rule.theirs} -> {rule.ours}: {rule.describes}"
            f" ({self.by_rule[rule.id]} of {rule.count})"
            for rule in self.rules
        ]
        lines += [f"  left out {name}: {reason}" for name, reason in sorted(self.left_out.items())]
        return "\n".join(lines)


AREAS: dict[str, str] = {
    "closers": "tests.corpus.test_closers:run",
    "append": "tests.corpus.test_append_cases:run",
    "create": "tests.corpus.test_seed_cases:run_create",
    "restore": "tests.corpus.test_seed_cases:run_restore",
    "fork": "tests.corpus.test_fork_cases:run",
    "invariants": "tests.corpus.test_invariant_cases:run",
    "text": "tests.corpus.test_text_cases:run",
    "torn": "tests.corpus.test_torn_cases:run",
    "persistence": "tests.corpus.test_persistence_cases:run",
}
"""`module:function` by area; each function puts its cases to turnlog and returns the `Ledger`."""
