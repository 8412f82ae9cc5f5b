"""Random lives of a store over SQLite, and the same over wrong backends, which do not survive them."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis.stateful import run_state_machine_as_test

from tests.contract.mutants import sqlite_backends as wrong
from tests.contract.sqlite_harness import SqliteHarness
from tests.property.sqlite_machines import SqliteMachine
from tests.property.test_the_machine_finds_mutants import SEARCH, is_broken_promise
from turnlog.backends.sqlite.backend import SqliteBackend


def test_acknowledged_events_survive_every_life() -> None:
    """Creating, appending, crashing, reopening, taking over and forking in any order keep the promises."""
    run_state_machine_as_test(SqliteMachine)


@pytest.mark.parametrize("kind", [wrong.IgnoresTheClaim, wrong.WritesAfterTakeover])
def test_the_machine_fails_on_a_wrong_backend(kind: type[SqliteBackend]) -> None:
    """A random life of a store on a wrong backend breaks a promise sooner or later."""

    class Machine(SqliteMachine):
        @staticmethod
        def make_harness() -> SqliteHarness:
            return SqliteHarness(Path(tempfile.mkdtemp(prefix="turnlog-mutant-")), kind=kind)

    with pytest.raises(BaseException) as found:
        run_state_machine_as_test(Machine, settings=SEARCH)
    assert is_broken_promise(found.value), found.value
