"""Random lives of a store on each backend: nothing acknowledged is lost, nothing read is changed."""

from __future__ import annotations

import pytest
from hypothesis.stateful import run_state_machine_as_test

from tests.property.machines import MemoryMachine, PlainMachine, PostgresMachine, ZstdMachine
from turnlog.testing import PersistenceMachine


@pytest.mark.parametrize(
    "machine", [MemoryMachine, PlainMachine, PostgresMachine, ZstdMachine], ids=lambda m: m.__name__
)
def test_acknowledged_events_survive_every_life(machine: type[PersistenceMachine]) -> None:
    """Creating, appending, crashing, reopening, taking over and forking in any order keep the promises."""
    run_state_machine_as_test(machine)
