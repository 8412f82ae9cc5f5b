"""The contract suites on wrong SQLite backends. Not collected by itself: the classes are meant to fail."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.mutants import sqlite_backends as wrong
from tests.contract.mutants.database_suites import suites_over
from tests.contract.sqlite_harness import SQLITE_CAPABILITIES, SqliteHarness
from turnlog.backends.sqlite.backend import SqliteBackend
from turnlog.testing import CoordinatorContract, PersistenceContract


class Sqlite(PersistenceContract, CoordinatorContract, abstract=True):
    """Both suites over a SQLite backend."""

    capabilities = SQLITE_CAPABILITIES
    kind: type[SqliteBackend] = SqliteBackend

    @pytest.fixture
    def harness(self, tmp_path: Path) -> Iterator[SqliteHarness]:
        """Return a harness of the wrong backend."""
        harness = SqliteHarness(tmp_path, kind=self.kind)
        yield harness
        harness.close()


globals().update(suites_over(Sqlite, wrong))


class TestLosesDataOnReopen(Sqlite):
    """Nothing is kept."""

    @pytest.fixture
    def harness(self, tmp_path: Path) -> Iterator[SqliteHarness]:
        """Return the harness that forgets."""
        harness = wrong.LosesDataOnReopen(tmp_path)
        yield harness
        harness.close()
