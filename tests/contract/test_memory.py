"""The memory backend runs both suites in full."""

from __future__ import annotations

import pytest

from tests.contract.memory_harness import MEMORY_CAPABILITIES, MemoryHarness
from turnlog.testing import CoordinatorContract, PersistenceContract


@pytest.fixture(name="harness")
def _harness() -> MemoryHarness:
    return MemoryHarness()


class TestMemoryPersistence(PersistenceContract):
    """The service over memory."""

    backend = "memory"
    capabilities = MEMORY_CAPABILITIES


class TestMemoryCoordinator(CoordinatorContract):
    """The coordinator over memory."""

    backend = "memory"
    capabilities = MEMORY_CAPABILITIES
