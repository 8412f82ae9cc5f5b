"""The backend on the page about writing one runs both suites, as it stands there."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import lmdb
import pytest

from tests.docs.fences import PROJECT
from tools.gates.markdown import Page
from turnlog.testing import Capability, CoordinatorContract, CoordinatorHarness, PersistenceContract

PAGE = PROJECT / "docs" / "write-a-backend.md"
LONGEST = 80


def fences() -> list[str]:
    """Return the programs of the page."""
    return [f.body for f in Page(PAGE.read_text(encoding="utf-8")).fences if f.info.startswith("python")]


def names_of_the_page() -> dict[str, Any]:
    """Run the page's programs and return what they define."""
    found: dict[str, Any] = {"__name__": "page"}
    for body in fences():
        exec(compile(body, str(PAGE), "exec", dont_inherit=True), found)
    return found


NAMES = names_of_the_page()


def test_the_backend_fits_on_a_page() -> None:
    """A complete backend is short: fewer than 80 lines, blank ones and imports included."""
    [backend] = [body for body in fences() if "class LmdbBackend" in body]
    assert len(backend.splitlines()) < LONGEST
    assert NAMES["capabilities"] == {Capability.DAMAGE}


@pytest.fixture(name="harness")
def _harness(tmp_path: Path) -> Iterator[CoordinatorHarness]:
    with lmdb.open(str(tmp_path / "sessions"), map_size=1 << 30) as env:
        yield NAMES["LmdbHarness"](env)


class TestPagePersistence(PersistenceContract):
    """The service over the backend of the page."""

    backend = "lmdb (page)"
    capabilities = NAMES["capabilities"]


class TestPageCoordinator(CoordinatorContract):
    """The coordinator over the backend of the page."""

    backend = "lmdb (page)"
    capabilities = NAMES["capabilities"]
