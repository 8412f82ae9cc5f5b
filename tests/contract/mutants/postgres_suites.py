"""The contract suites on wrong PostgreSQL backends. Not collected: the classes are meant to fail."""

from __future__ import annotations

import pytest

from tests.contract.mutants import postgres_backends as wrong
from tests.contract.mutants.database_suites import suites_over
from tests.contract.postgres_harness import POSTGRES_CAPABILITIES, PostgresHarness
from turnlog.backends.postgres.backend import PostgresBackend
from turnlog.testing import CoordinatorContract, PersistenceContract


class Postgres(PersistenceContract, CoordinatorContract, abstract=True):
    """Both suites over a PostgreSQL backend."""

    capabilities = POSTGRES_CAPABILITIES
    kind: type[PostgresBackend] = PostgresBackend

    @pytest.fixture
    def harness(self) -> PostgresHarness:
        """Return a harness of the wrong backend."""
        return PostgresHarness(kind=self.kind)


globals().update(suites_over(Postgres, wrong))


class TestLosesDataOnReopen(Postgres):
    """Nothing is kept."""

    @pytest.fixture
    def harness(self) -> PostgresHarness:
        """Return the harness that forgets."""
        return wrong.LosesDataOnReopen()
