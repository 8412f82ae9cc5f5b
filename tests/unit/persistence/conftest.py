"""Fixtures of the persistence tests."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.unit.persistence.world import World


@pytest.fixture
async def world() -> AsyncIterator[World]:
    """A medium in memory; whatever stores a test opened on it are closed at the end."""
    made = World()
    yield made
    await made.close()
