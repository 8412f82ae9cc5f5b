"""Databases and backends for the tests of the SQLite backend."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from turnlog.backends.sqlite.backend import SqliteBackend

OpenSqlite = Callable[..., SqliteBackend]


@pytest.fixture
def database(tmp_path: Path) -> Path:
    """Give the path of a database that does not exist yet."""
    return tmp_path / "store" / "sessions.db"


@pytest.fixture
async def make_sqlite(database: Path) -> AsyncIterator[OpenSqlite]:
    """Give a function that opens another backend on the database; all are closed at the end."""
    opened: list[SqliteBackend] = []

    def open_one(path: Path | None = None, **options: Any) -> SqliteBackend:
        backend = SqliteBackend(database if path is None else path, **options)
        opened.append(backend)
        return backend

    yield open_one
    for backend in opened:
        await backend.aclose()


@pytest.fixture
def sqlite(make_sqlite: OpenSqlite) -> SqliteBackend:
    """Give one backend on the database."""
    return make_sqlite()
