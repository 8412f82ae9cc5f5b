"""The random lives of a store over SQLite."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from tests.contract.sqlite_harness import SQLITE_CAPABILITIES, SqliteHarness
from turnlog.testing import PersistenceMachine


class SqliteMachine(PersistenceMachine):
    """Over a database in a folder of its own."""

    capabilities = SQLITE_CAPABILITIES

    @staticmethod
    def make_harness() -> SqliteHarness:
        """Return a harness over a new database."""
        return SqliteHarness(Path(tempfile.mkdtemp(prefix="turnlog-machine-")))

    def teardown(self) -> None:
        super().teardown()
        assert isinstance(self.harness, SqliteHarness)
        self.harness.close()
        shutil.rmtree(self.harness.path.parent, ignore_errors=True)
