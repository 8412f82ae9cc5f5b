"""The contract suites on wrong backends. Not collected by itself: every class here is meant to fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contract.jsonl_harness import JSONL_CAPABILITIES
from tests.contract.memory_harness import MEMORY_CAPABILITIES, MemoryHarness
from tests.contract.mutants import backends
from turnlog.backends.memory import MemoryBackend
from turnlog.testing import CoordinatorContract, CoordinatorHarness, PersistenceContract


class Memory(PersistenceContract, CoordinatorContract, abstract=True):
    """Both suites over a memory backend."""

    kind: type[MemoryBackend] = MemoryBackend

    @pytest.fixture
    def harness(self) -> MemoryHarness:
        """Return a harness of the wrong backend."""
        return backends.MemoryMutant(self.kind)


class TestNothingWrong(Memory):
    """The control: the right backend passes what the wrong ones fail."""

    capabilities = MEMORY_CAPABILITIES


class TestEventByEvent(Memory):
    """Batches are not atomic."""

    capabilities = MEMORY_CAPABILITIES
    kind = backends.EventByEvent


class TestHeaderFirst(Memory):
    """Header and first batch are not stored together."""

    capabilities = MEMORY_CAPABILITIES
    kind = backends.HeaderFirst


class TestNoSeqCheck(Memory):
    """The seq is not checked."""

    capabilities = MEMORY_CAPABILITIES
    kind = backends.NoSeqCheck


class TestMutatingInspect(Memory):
    """Reading repairs."""

    capabilities = MEMORY_CAPABILITIES
    kind = backends.MutatingInspect


class TestClosesWhileReading(Memory):
    """Reading writes beside the log."""

    capabilities = MEMORY_CAPABILITIES
    kind = backends.ClosesWhileReading


class TestIgnoresTheClaim(Memory):
    """Anybody may write."""

    capabilities = MEMORY_CAPABILITIES
    kind = backends.IgnoresTheClaim


class TestWritesAfterTakeover(Memory):
    """A fenced writer still writes."""

    capabilities = MEMORY_CAPABILITIES
    kind = backends.WritesAfterTakeover


class TestLosesTheTornEvents(Memory):
    """Torn bytes are not kept."""

    capabilities = MEMORY_CAPABILITIES
    kind = backends.LosesTheTornEvents


class TestCutsBeforeItAppends(Memory):
    """A repair is not atomic."""

    capabilities = MEMORY_CAPABILITIES
    kind = backends.CutsBeforeItAppends


class TestConstantRevision(Memory):
    """The revision does not follow the log."""

    capabilities = MEMORY_CAPABILITIES
    kind = backends.ConstantRevision


class TestLosesDataOnReopen(PersistenceContract, CoordinatorContract):
    """Nothing is kept."""

    capabilities = MEMORY_CAPABILITIES

    @pytest.fixture
    def harness(self) -> CoordinatorHarness:
        """Return the harness that forgets."""
        return backends.LosesDataOnReopen()


class TestNoFolderSync(PersistenceContract, CoordinatorContract):
    """A power cut takes the names of new files."""

    capabilities = JSONL_CAPABILITIES

    @pytest.fixture
    def harness(self, tmp_path: Path) -> CoordinatorHarness:
        """Return a harness whose folders are never synced."""
        return backends.JsonlMutant(tmp_path, "none", backends.NoFolderSync)


class TestNoFileSync(PersistenceContract, CoordinatorContract):
    """A power cut takes the bytes of files."""

    capabilities = JSONL_CAPABILITIES

    @pytest.fixture
    def harness(self, tmp_path: Path) -> CoordinatorHarness:
        """Return a harness whose files are never synced."""
        return backends.JsonlMutant(tmp_path, "zstd", backends.NoFileSync)
