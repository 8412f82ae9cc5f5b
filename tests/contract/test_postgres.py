"""The PostgreSQL backend runs both suites in full on a real server."""

from __future__ import annotations

import pytest

from tests.contract.postgres_harness import POSTGRES_CAPABILITIES, PostgresHarness
from turnlog.testing import CoordinatorContract, PersistenceContract


@pytest.fixture(name="harness")
def _harness() -> PostgresHarness:
    return PostgresHarness()


class TestPostgresPersistence(PersistenceContract):
    """The service over PostgreSQL."""

    backend = "postgresql"
    capabilities = POSTGRES_CAPABILITIES


class TestPostgresCoordinator(CoordinatorContract):
    """The coordinator over PostgreSQL."""

    backend = "postgresql"
    capabilities = POSTGRES_CAPABILITIES
