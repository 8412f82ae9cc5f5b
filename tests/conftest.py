"""What every lane shares: the contract-suite summary and the Hypothesis profiles."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from hypothesis import HealthCheck, settings

from turnlog.testing.summary import print_summary

if TYPE_CHECKING:
    import pytest

_QUIET = (HealthCheck.too_slow, HealthCheck.data_too_large)

settings.register_profile(
    "dev", max_examples=25, stateful_step_count=20, deadline=None, suppress_health_check=_QUIET
)
settings.register_profile(
    "ci",
    max_examples=100,
    stateful_step_count=30,
    deadline=None,
    derandomize=True,
    print_blob=True,
    suppress_health_check=_QUIET,
)
settings.register_profile(
    "nightly", max_examples=2000, stateful_step_count=60, deadline=None, suppress_health_check=_QUIET
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Print which backend was held to which part of the contract."""
    print_summary(terminalreporter)
