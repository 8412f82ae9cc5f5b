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
from turnlog.testing import Capability, CoordinatorHarness, PersistenceMachine

SEARCH = settings(
    max_examples=300,
    stateful_step_count=20,
    deadline=None,
    derandomize=True,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)


def machine_over(kind: str) -> type[PersistenceMachine]:
    """Return a machine over one wrong backend."""

    class Machine(PersistenceMachine):
        capabilities: ClassVar[frozenset[Capability]] = MEMORY_CAPABILITIES

        @staticmethod
        def make_harness() -> CoordinatorHarness:
            if kind == "LosesDataOnReopen":
                return backends.LosesDataOnReopen()
            if kind == "NoFolderSync":
                folder = Path(tempfile.mkdtemp(prefix="turnlog-mutant-"))
                return backends.JsonlMutant(folder, "none", backends.NoFolderSync)
            return backends.MemoryMutant(getattr(backends, kind))

    if kind == "NoFolderSync":
        Machine.capabilities = JSONL_CAPABILITIES
    return Machine


@pytest.mark.parametrize(
    "kind",
    ["LosesDataOnReopen", "NoFolderSync", "IgnoresTheClaim", "MutatingInspect", "ClosesWhileReading"],
)
def test_the_machine_fails_on_a_wrong_backend(kind: str) -> None:
    """A random life of a store on a wrong backend breaks a promise sooner or later."""
    with pytest.raises(BaseException) as found:
        run_state_machine_as_test(machine_over(kind), settings=SEARCH)
    assert not isinstance(found.value, KeyboardInterrupt)
