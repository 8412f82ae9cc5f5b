"""The rules of contract suites: declared capabilities, no silent overrides, tests in their own loop."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

import pytest

from turnlog.testing.capabilities import Capability
from turnlog.testing.suite import ContractSuite, needs, promises_of, run, waive


class Published(ContractSuite, abstract=True):
    """A suite of two tests, as `turnlog.testing` publishes them."""

    async def test_one(self, harness: Any) -> None:
        """One (B1)."""

    @needs(Capability.DELETE)
    async def test_two(self, harness: Any) -> None:
        """Two (B2, W1)."""


def test_a_suite_without_capabilities_is_refused() -> None:
    """Forgetting to declare capabilities is an error when the class is made."""
    with pytest.raises(TypeError, match="must declare capabilities"):
        type("Forgot", (Published,), {})


@pytest.mark.parametrize("wrong", [{Capability.SCAN}, frozenset({"scan"}), ["scan"]], ids=repr)
def test_capabilities_come_from_the_closed_set(wrong: object) -> None:
    """Strings, lists and mutable sets are no declaration."""
    with pytest.raises(TypeError, match=r"frozenset of turnlog\.testing\.Capability"):
        type("Wrong", (Published,), {"capabilities": wrong})


@pytest.mark.parametrize("replacement", [lambda self, harness: None, None], ids=["function", "none"])
def test_a_silent_override_is_refused(replacement: object) -> None:
    """A subclass that replaces or removes a published test is refused by name."""
    with pytest.raises(TypeError, match=r"Silencer\.test_one replaces a contract test"):
        type("Silencer", (Published,), {"capabilities": frozenset(), "test_one": replacement})


def test_an_override_by_a_mixin_is_refused() -> None:
    """A test smuggled in front of the suite by another base is found too."""
    mixin = type("Mixin", (), {"test_one": lambda self, harness: None})
    with pytest.raises(TypeError, match=r"Mixin\.test_one replaces"):
        type("Smuggler", (mixin, Published), {"capabilities": frozenset()})


def test_an_override_of_an_intermediate_class_is_refused() -> None:
    """A concrete class between the suite and the test class does not launder an override."""
    between = type("Between", (Published,), {"capabilities": frozenset(), "helper": 1})
    with pytest.raises(TypeError, match=r"Below\.test_two replaces"):
        type("Below", (between,), {"test_two": lambda self, harness: None})


def test_a_waived_override_is_accepted_with_its_reason() -> None:
    """A waiver lets an override through and is kept for the summary."""

    @waive(reason="the medium has no names")
    def test_one(self: Any, harness: Any) -> None: ...

    suite = type("Waived", (Published,), {"capabilities": frozenset(), "test_one": test_one})
    assert getattr(suite.contract_tests()["test_one"], "__waived__") == "the medium has no names"  # type: ignore[attr-defined]  # noqa: B009 - made by type()


def test_a_waiver_needs_a_reason() -> None:
    """An empty reason is no reason."""
    with pytest.raises(ValueError, match="needs a reason"):
        waive(reason="  ")


def test_own_tests_may_be_added() -> None:
    """A subclass is free to test more than the contract."""
    suite = type("More", (Published,), {"capabilities": frozenset(), "test_three": lambda self: None})
    assert set(suite.contract_tests()) == {"test_one", "test_two", "test_three"}  # type: ignore[attr-defined]  # see above


def test_coroutine_tests_become_plain_functions() -> None:
    """No async plugin has to be present, in any mode."""
    assert not inspect.iscoroutinefunction(Published.test_one)
    assert list(inspect.signature(Published.test_one).parameters) == ["self", "harness"]


def test_cited_promises_are_collected() -> None:
    """The ids in docstrings are what the suite claims to check."""
    assert Published.cited_promises() == {"B1", "B2", "W1"}
    assert promises_of("Append (L2, D4); see SL1, JL12, R10 and B") == {"L2", "D4"}


def test_a_hanging_test_fails() -> None:
    """A body that never ends is a failure, not a hanging run."""
    with pytest.raises(TimeoutError):
        run(asyncio.sleep(60), seconds=0.01)
