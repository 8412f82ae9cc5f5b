"""Stores of each kind for the fault lanes."""

from __future__ import annotations

import subprocess
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

import turnlog
from tests.cli.logs import Result, command
from tests.faults.stores import KINDS, JsonlPlace, Place, make_place


@pytest.fixture(params=KINDS, name="place")
def _place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    """Give an empty store of each kind in turn."""
    return make_place(request.param, tmp_path)


@pytest.fixture(params=["jsonl", "jsonl-zstd"], name="files")
def _files(request: pytest.FixtureRequest, tmp_path: Path) -> JsonlPlace:
    """Give an empty root of files, plain and compressed in turn."""
    found = make_place(request.param, tmp_path)
    assert isinstance(found, JsonlPlace)
    return found


@pytest.fixture(name="plain")
def _plain(tmp_path: Path) -> JsonlPlace:
    """Give an empty root of plain files."""
    found = make_place("jsonl", tmp_path)
    assert isinstance(found, JsonlPlace)
    return found


@pytest.fixture(name="store")
async def _store(place: Place) -> AsyncIterator[turnlog.SessionStore]:
    """Give an open store of each kind."""
    async with turnlog.open(place.url) as store:
        yield store


@pytest.fixture(name="cli_on")
def _cli_on() -> Callable[..., Result]:
    """Run the command line in a process of its own on any store."""

    def run(url: str, *arguments: str) -> Result:
        done = subprocess.run(
            command("--store", url, *arguments), capture_output=True, text=True, timeout=120, check=False
        )
        return Result(done.returncode, done.stdout, done.stderr)

    return run
