"""The SQLite backend runs both suites in full."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.contract.sqlite_harness import SQLITE_CAPABILITIES, SqliteHarness
from turnlog.testing import CoordinatorContract, PersistenceContract


@pytest.fixture(name="harness")
def _harness(tmp_path: Path) -> Iterator[SqliteHarness]:
    harness = SqliteHarness(tmp_path)
    yield harness
    harness.close()


class TestSqlitePersistence(PersistenceContract):
    """The service over a database."""

    backend = "sqlite"
    capabilities = SQLITE_CAPABILITIES


class TestSqliteCoordinator(CoordinatorContract):
    """The coordinator over a database."""

    backend = "sqlite"
    capabilities = SQLITE_CAPABILITIES
