"""Roots, file layers and backends for the tests of the backends."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from tests.unit.backends.logs import FailingFiles
from turnlog.backends.jsonl.backend import JsonlBackend
from turnlog.backends.jsonl.files import FileLayer

OpenBackend = Callable[..., JsonlBackend]


@pytest.fixture(params=["zstd", "none"])
def compression(request: pytest.FixtureRequest) -> str:
    """Give each encoding in turn."""
    return str(request.param)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Give the path of a root that does not exist yet."""
    return tmp_path / "root"


@pytest.fixture
def files() -> FailingFiles:
    """Give a file layer that can be made to fail."""
    return FailingFiles()


@pytest.fixture
async def make(root: Path, compression: str) -> AsyncIterator[OpenBackend]:
    """Give a function that opens another backend on the root; all are closed at the end."""
    opened: list[JsonlBackend] = []

    def open_one(files: FileLayer | None = None, **options: object) -> JsonlBackend:
        options.setdefault("compression", compression)
        backend = JsonlBackend(root, files=files, **options)  # type: ignore[arg-type]  # options of the test
        opened.append(backend)
        return backend

    yield open_one
    for backend in opened:
        await backend.aclose()


@pytest.fixture
def backend(make: OpenBackend) -> JsonlBackend:
    """Give one backend on the root."""
    return make()
