"""The JSONL backend runs both suites in full, in both encodings."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contract.jsonl_harness import JSONL_CAPABILITIES, JsonlHarness
from turnlog.testing import CoordinatorContract, PersistenceContract


class PlainHarness:
    """Gives the harness of plain logs."""

    @pytest.fixture
    def harness(self, tmp_path: Path) -> JsonlHarness:
        """Return a harness over an empty root."""
        return JsonlHarness(tmp_path, "none")


class ZstdHarness:
    """Gives the harness of compressed logs."""

    @pytest.fixture
    def harness(self, tmp_path: Path) -> JsonlHarness:
        """Return a harness over an empty root."""
        return JsonlHarness(tmp_path, "zstd")


class TestPlainPersistence(PlainHarness, PersistenceContract):
    """The service over plain logs."""

    backend = "jsonl plain"
    capabilities = JSONL_CAPABILITIES


class TestPlainCoordinator(PlainHarness, CoordinatorContract):
    """The coordinator over plain logs."""

    backend = "jsonl plain"
    capabilities = JSONL_CAPABILITIES


class TestZstdPersistence(ZstdHarness, PersistenceContract):
    """The service over compressed logs."""

    backend = "jsonl zstd"
    capabilities = JSONL_CAPABILITIES


class TestZstdCoordinator(ZstdHarness, CoordinatorContract):
    """The coordinator over compressed logs."""

    backend = "jsonl zstd"
    capabilities = JSONL_CAPABILITIES
