"""The state machine is not blind: it finds lost logs and names, forgotten claims and readers that write."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import ClassVar

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.contract.jsonl_harness import JSONL_CAPABILITIES
from tests.contract.memory_harness import MEMORY_CAPABILITIES
from tests.contract.mutants import backends
from turnlog.errors import TurnlogError
from turnlog.testing import Capability, CoordinatorHarness, PersistenceMachine

SEARCH = settings(
    max_examples=300,
    stateful_step_count=20,
    deadline=None,
    derandomize=True,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


def machine_over(kind: str, folder: Path) -> type[PersistenceMachine]:
    """Return a machine over one wrong backend."""

    class Machine(PersistenceMachine):
        capabilities: ClassVar[frozenset[Capability]] = MEMORY_CAPABILITIES

        @staticmethod
        def make_harness() -> CoordinatorHarness:
            if kind == "LosesDataOnReopen":
                return backends.LosesDataOnReopen()
            if kind == "NoFolderSync":
                place = Path(tempfile.mkdtemp(dir=folder))
                return backends.JsonlMutant(place, "none", backends.NoFolderSync)
            return backends.MemoryMutant(getattr(backends, kind))

    if kind == "NoFolderSync":
        Machine.capabilities = JSONL_CAPABILITIES
    return Machine


def leaves(error: BaseException) -> list[BaseException]:
    """Return the exceptions that a group, or an error alone, stands for."""
    if isinstance(error, BaseExceptionGroup):
        return [leaf for part in error.exceptions for leaf in leaves(part)]
    return [error]


def is_broken_promise(error: BaseException) -> bool:
    """Tell whether a machine has ended by a check of its own or an error of the store, not by a slip."""
    broken = (AssertionError, TurnlogError, pytest.fail.Exception)
    return any(isinstance(leaf, broken) for leaf in leaves(error))


@pytest.mark.parametrize(
    "kind",
    ["LosesDataOnReopen", "NoFolderSync", "IgnoresTheClaim", "MutatingInspect", "ClosesWhileReading"],
)
def test_the_machine_fails_on_a_wrong_backend(kind: str, tmp_path: Path) -> None:
    """A random life of a store on a wrong backend breaks a promise sooner or later."""
    with pytest.raises(BaseException) as found:
        run_state_machine_as_test(machine_over(kind, tmp_path), settings=SEARCH)
    assert is_broken_promise(found.value), found.value
