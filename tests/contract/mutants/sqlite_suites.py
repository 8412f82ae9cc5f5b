"""The contract suites on wrong SQLite backends. Not collected by itself: the classes are meant to fail."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.mutants import sqlite_backends as wrong
from tests.contract.sqlite_harness import SQLITE_CAPABILITIES, SqliteHarness
from turnlog.backends.sqlite.backend import SqliteBackend
from turnlog.testing import CoordinatorContract, PersistenceContract


class Sqlite(PersistenceContract, CoordinatorContract, abstract=True):
    """Both suites over a SQLite backend."""

    kind: type[SqliteBackend] = SqliteBackend

    @pytest.fixture
    def harness(self, tmp_path: Path) -> Iterator[SqliteHarness]:
        """Return a harness of the wrong backend."""
        harness = SqliteHarness(tmp_path, kind=self.kind)
        yield harness
        harness.close()


class TestNothingWrong(Sqlite):
    """The control: the right backend passes what the wrong ones fail."""

    capabilities = SQLITE_CAPABILITIES


class TestEventByEvent(Sqlite):
    """Batches are not atomic."""

    capabilities = SQLITE_CAPABILITIES
    kind = wrong.EventByEvent


class TestHeaderFirst(Sqlite):
    """Header and first batch are not stored together."""

    capabilities = SQLITE_CAPABILITIES
    kind = wrong.HeaderFirst


class TestNoSeqCheck(Sqlite):
    """The seq is not checked."""

    capabilities = SQLITE_CAPABILITIES
    kind = wrong.NoSeqCheck


class TestIgnoresTheClaim(Sqlite):
    """Anybody may write."""

    capabilities = SQLITE_CAPABILITIES
    kind = wrong.IgnoresTheClaim


class TestWritesAfterTakeover(Sqlite):
    """A fenced writer still writes."""

    capabilities = SQLITE_CAPABILITIES
    kind = wrong.WritesAfterTakeover


class TestConstantRevision(Sqlite):
    """The revision does not follow the log."""

    capabilities = SQLITE_CAPABILITIES
    kind = wrong.ConstantRevision


class TestLosesDataOnReopen(PersistenceContract, CoordinatorContract):
    """Nothing is kept."""

    capabilities = SQLITE_CAPABILITIES

    @pytest.fixture
    def harness(self, tmp_path: Path) -> SqliteHarness:
        """Return the harness that forgets."""
        return wrong.LosesDataOnReopen(tmp_path)
