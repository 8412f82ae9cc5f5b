"""The contract suites on wrong PostgreSQL backends. Not collected: the classes are meant to fail."""

from __future__ import annotations

import pytest

from tests.contract.mutants import postgres_backends as wrong
from tests.contract.postgres_harness import POSTGRES_CAPABILITIES, PostgresHarness
from turnlog.backends.postgres.backend import PostgresBackend
from turnlog.testing import CoordinatorContract, PersistenceContract


class Postgres(PersistenceContract, CoordinatorContract, abstract=True):
    """Both suites over a PostgreSQL backend."""

    kind: type[PostgresBackend] = PostgresBackend

    @pytest.fixture
    def harness(self) -> PostgresHarness:
        """Return a harness of the wrong backend."""
        return PostgresHarness(kind=self.kind)


class TestNothingWrong(Postgres):
    """The control: the right backend passes what the wrong ones fail."""

    capabilities = POSTGRES_CAPABILITIES


class TestEventByEvent(Postgres):
    """Batches are not atomic."""

    capabilities = POSTGRES_CAPABILITIES
    kind = wrong.EventByEvent


class TestHeaderFirst(Postgres):
    """Header and first batch are not stored together."""

    capabilities = POSTGRES_CAPABILITIES
    kind = wrong.HeaderFirst


class TestNoSeqCheck(Postgres):
    """The seq is not checked."""

    capabilities = POSTGRES_CAPABILITIES
    kind = wrong.NoSeqCheck


class TestIgnoresTheClaim(Postgres):
    """Anybody may write."""

    capabilities = POSTGRES_CAPABILITIES
    kind = wrong.IgnoresTheClaim


class TestWritesAfterTakeover(Postgres):
    """A fenced writer still writes."""

    capabilities = POSTGRES_CAPABILITIES
    kind = wrong.WritesAfterTakeover


class TestConstantRevision(Postgres):
    """The revision does not follow the log."""

    capabilities = POSTGRES_CAPABILITIES
    kind = wrong.ConstantRevision


class TestLosesDataOnReopen(PersistenceContract, CoordinatorContract):
    """Nothing is kept."""

    capabilities = POSTGRES_CAPABILITIES

    @pytest.fixture
    def harness(self) -> PostgresHarness:
        """Return the harness that forgets."""
        return wrong.LosesDataOnReopen()
