"""The state machine over each first-party backend."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from tests.contract.jsonl_harness import JSONL_CAPABILITIES, JsonlHarness
from tests.contract.memory_harness import MEMORY_CAPABILITIES, MemoryHarness
from tests.contract.postgres_harness import POSTGRES_CAPABILITIES, PostgresHarness
from turnlog.persistence.backend import PersistenceBackend
from turnlog.testing import PersistenceMachine


class AlternatingHarness(JsonlHarness):
    """A root in a folder of its own, where every other crash is a power cut as well."""

    def __init__(self, compression: str) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="turnlog-machine-"))
        super().__init__(self.folder, compression)

    async def crash_backend(self, backend: PersistenceBackend) -> None:
        self.cuts_power = not self.cuts_power
        await super().crash_backend(backend)

    def remove(self) -> None:
        """Remove the folder."""
        shutil.rmtree(self.folder, ignore_errors=True)


class MemoryMachine(PersistenceMachine):
    """Over memory."""

    make_harness = MemoryHarness
    capabilities = MEMORY_CAPABILITIES


class JsonlMachine(PersistenceMachine):
    """Over files; a subclass says in which encoding."""

    capabilities = JSONL_CAPABILITIES

    def teardown(self) -> None:
        super().teardown()
        assert isinstance(self.harness, AlternatingHarness)
        self.harness.remove()


class PlainMachine(JsonlMachine):
    """Over plain logs."""

    @staticmethod
    def make_harness() -> AlternatingHarness:
        """Return a harness over an empty root."""
        return AlternatingHarness("none")


class ZstdMachine(JsonlMachine):
    """Over compressed logs."""

    @staticmethod
    def make_harness() -> AlternatingHarness:
        """Return a harness over an empty root."""
        return AlternatingHarness("zstd")


class PostgresMachine(PersistenceMachine):
    """Over a schema of a real server."""

    make_harness = PostgresHarness
    capabilities = POSTGRES_CAPABILITIES
