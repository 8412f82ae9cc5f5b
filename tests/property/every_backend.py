"""Every backend by name, each as a harness over a new medium, for tests that compare them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.contract.jsonl_harness import JsonlHarness
from tests.contract.memory_harness import MemoryHarness
from tests.contract.sqlite_harness import SqliteHarness
from turnlog.testing import CoordinatorHarness


def _postgres(folder: Path) -> CoordinatorHarness:
    from tests.contract.postgres_harness import PostgresHarness  # starts a server: only where it is asked for

    return PostgresHarness()


HARNESSES: dict[str, Callable[[Path], CoordinatorHarness]] = {
    "memory": lambda folder: MemoryHarness(),
    "jsonl": lambda folder: JsonlHarness(folder, "none"),
    "jsonl-zstd": lambda folder: JsonlHarness(folder, "zstd"),
    "sqlite": SqliteHarness,
    "postgres": _postgres,
}
"""Makes a harness in an empty folder. A new backend gets a line here."""
