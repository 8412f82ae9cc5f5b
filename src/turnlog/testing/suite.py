"""What makes a class a contract suite: declared capabilities, waivers instead of silent overrides.

Owns the base class, the loop each test runs in and the properties the summary is printed from. It
knows no backend and no test. Tests are written as coroutines and turned into plain functions here, so
that a suite runs the same with any async plugin in any mode, and with none.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import re
from collections.abc import Awaitable, Callable
from typing import Any, ClassVar, TypeVar

import pytest

from turnlog.testing.capabilities import Capability

TEST_SECONDS = 30.0
"""How long one contract test may take before it counts as hanging, in seconds."""

PROMISE = re.compile(r"\b(?:L[1-4]|D[1-4]|R[1-3]|W1|B[1-4]|P1|S1)\b")
"""A promise id as docstrings cite it."""

_F = TypeVar("_F", bound=Callable[..., Any])

BACKEND_PROPERTY = "turnlog-backend"
CAPABILITIES_PROPERTY = "turnlog-capabilities"
WAIVER_PROPERTY = "turnlog-waiver"


def waive(*, reason: str) -> Callable[[_F], _F]:
    """Mark an overriding test as a deliberate exception from the contract.

    Args:
        reason: Why this backend is excused; printed at the end of every run. Not empty.

    Returns:
        A decorator for the overriding test.

    Raises:
        ValueError: The reason is empty.
    """
    if not reason.strip():
        raise ValueError("a waiver needs a reason")

    def mark(function: _F) -> _F:
        function.__waived__ = reason  # type: ignore[attr-defined]  # an attribute on a function object
        return function

    return mark


def needs(*capabilities: Capability) -> Callable[[_F], _F]:
    """Skip a test for backends that do not declare all of `capabilities`.

    Args:
        capabilities: What the test exercises.

    Returns:
        A decorator for the test.
    """

    def mark(function: _F) -> _F:
        function.__needs__ = frozenset(capabilities)  # type: ignore[attr-defined]  # see waive
        return function

    return mark


def run(main: Awaitable[None], *, seconds: float = TEST_SECONDS) -> None:
    """Run one coroutine in a fresh event loop and fail when it hangs.

    Args:
        main: The body of a test.
        seconds: How long it may take.

    Raises:
        TimeoutError: The body did not finish in time.
    """

    async def bounded() -> None:
        async with asyncio.timeout(seconds):
            await main

    asyncio.run(bounded())


def promises_of(text: str | None) -> frozenset[str]:
    """Return the promise ids that a docstring cites.

    Args:
        text: A docstring, or None.

    Returns:
        Ids such as ``"B3"``.
    """
    return frozenset(PROMISE.findall(text or ""))


class ContractSuite:
    """Base of every published suite.

    A concrete subclass declares `capabilities` and provides a `harness` fixture (a plain, synchronous
    pytest fixture; the methods of the harness are coroutines). It may add tests of its own. It may
    replace a published test only with `@waive(reason=...)`.

    Attributes:
        capabilities: What the backend can do; a frozenset of `Capability`.
        backend: Label in the summary; the class name by default.
    """

    capabilities: ClassVar[frozenset[Capability]]
    backend: ClassVar[str]
    abstract: ClassVar[bool] = True

    def __init_subclass__(cls, *, abstract: bool = False, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.abstract = abstract
        for name, value in list(vars(cls).items()):
            if name.startswith("test_") and inspect.iscoroutinefunction(value):
                setattr(cls, name, _in_own_loop(value))
        if not abstract:
            _check_capabilities(cls)
            _check_overrides(cls)
            if "backend" not in vars(cls):
                cls.backend = cls.__name__

    @pytest.fixture(autouse=True)
    def _declare(self, request: pytest.FixtureRequest) -> None:
        """Skip what the backend cannot do; note what the summary prints (works across workers)."""
        test = getattr(type(self), request.node.originalname or request.node.name)
        notes = request.node.user_properties  # `record_property` would refuse the default junit family
        notes.append((BACKEND_PROPERTY, self.backend))
        notes.append((CAPABILITIES_PROPERTY, ",".join(sorted(self.capabilities))))
        waived = getattr(test, "__waived__", None)
        if waived is not None:
            notes.append((WAIVER_PROPERTY, waived))
        missing: frozenset[Capability] = getattr(test, "__needs__", frozenset()) - self.capabilities
        if missing:
            pytest.skip(f"{self.backend} does not declare {', '.join(sorted(missing))}")

    @classmethod
    def contract_tests(cls) -> dict[str, Callable[..., None]]:
        """Return the tests of this suite by name, own and inherited."""
        names = sorted({n for base in cls.__mro__ for n in vars(base) if n.startswith("test_")})
        return {name: getattr(cls, name) for name in names}

    @classmethod
    def cited_promises(cls) -> frozenset[str]:
        """Return every promise id that a test of this suite cites in its docstring."""
        return frozenset().union(*(promises_of(test.__doc__) for test in cls.contract_tests().values()))


def _in_own_loop(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Turn a coroutine test into a plain one that runs in an event loop of its own."""

    @functools.wraps(test)
    def wrapper(*args: Any, **kwargs: Any) -> None:
        run(test(*args, **kwargs))

    return wrapper


def _check_capabilities(cls: type[ContractSuite]) -> None:
    """Refuse a suite that does not say, in terms of the closed set, what its backend can do."""
    declared = getattr(cls, "capabilities", None)
    if declared is None:
        raise TypeError(f"{cls.__name__} must declare capabilities = frozenset({{Capability.…}})")
    if not isinstance(declared, frozenset) or not all(isinstance(c, Capability) for c in declared):
        raise TypeError(f"{cls.__name__}.capabilities must be a frozenset of turnlog.testing.Capability")


def _check_overrides(cls: type[ContractSuite]) -> None:
    """Refuse a test of a published suite that somebody replaced without a waiver."""
    published = {
        name
        for base in cls.__mro__
        if issubclass(base, ContractSuite) and base.__dict__.get("abstract", False)
        for name in vars(base)
        if name.startswith("test_")
    }
    for name in sorted(published):
        owner = next(base for base in cls.__mro__ if name in vars(base))
        if issubclass(owner, ContractSuite) and owner.__dict__.get("abstract", False):
            continue
        if not getattr(vars(owner)[name], "__waived__", None):
            raise TypeError(
                f"{owner.__name__}.{name} replaces a contract test; decorate it with @waive(reason=...)"
            )
