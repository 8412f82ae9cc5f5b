"""Backends over a schema of the server that tests share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from tests.postgres_cluster import Cluster, fresh_schema, shared_cluster
from turnlog.backends.postgres.address import parse_address
from turnlog.backends.postgres.backend import PostgresBackend

Make = Callable[..., PostgresBackend]
Sql = Callable[..., list[tuple[Any, ...]]]


@pytest.fixture
def cluster() -> Cluster:
    """Give the server that tests share."""
    return shared_cluster()


@pytest.fixture
def schema() -> str:
    """Give the name of a schema that does not exist yet."""
    return fresh_schema()


@pytest.fixture
def sql(cluster: Cluster, schema: str) -> Sql:
    """Give a function that runs a statement behind the backend's back; braces stand for the schema."""

    def run(text: str, *parameters: Any) -> list[tuple[Any, ...]]:
        cursor = cluster.admin().execute(text.replace("{}", schema).encode(), parameters or None)
        return cursor.fetchall() if cursor.description else []

    return run


@pytest.fixture
async def make(cluster: Cluster, schema: str) -> AsyncIterator[Make]:
    """Give a function that opens another backend on the schema; all are closed at the end."""
    opened: list[PostgresBackend] = []

    def open_one(**options: Any) -> PostgresBackend:
        backend = PostgresBackend(parse_address(cluster.url(schema=schema, more="&pool=4")), **options)
        opened.append(backend)
        return backend

    yield open_one
    for backend in opened:
        await backend.aclose()


@pytest.fixture
def backend(make: Make) -> PostgresBackend:
    """Give one backend on the schema."""
    return make()
