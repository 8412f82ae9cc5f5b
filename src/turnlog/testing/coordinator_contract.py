"""`CoordinatorContract`: the whole contract of `PersistenceCoordinator` over one backend.

Owns the joining of its parts, and the check that a backend declares exactly what it can do.
"""

from __future__ import annotations

from turnlog.persistence.backend import REQUIRED_HOOKS, supports
from turnlog.testing.capabilities import HOOKS
from turnlog.testing.coordinator_adoption import AdoptionContract
from turnlog.testing.coordinator_claims import ClaimContract
from turnlog.testing.coordinator_close import CloseContract
from turnlog.testing.coordinator_failures import FailureContract
from turnlog.testing.coordinator_live import LiveContract
from turnlog.testing.coordinator_prepared import PreparedContract
from turnlog.testing.harness import CoordinatorHarness
from turnlog.testing.suite import ContractSuite


class DeclarationContract(ContractSuite, abstract=True):
    """What is declared is what is there."""

    async def test_declared_capabilities_are_the_hooks(self, harness: CoordinatorHarness) -> None:
        """Every required hook exists, and an optional one exists iff its capability is declared (W1, B4)."""
        backend = harness.make_backend()
        assert [hook for hook in REQUIRED_HOOKS if not supports(backend, hook)] == []
        for capability, hooks in HOOKS.items():
            present = {hook: supports(backend, hook) for hook in hooks}
            assert present == dict.fromkeys(hooks, capability in self.capabilities), capability
        if supports(backend, "aclose"):
            await backend.aclose()  # type: ignore[attr-defined]  # an optional hook


class CoordinatorContract(
    DeclarationContract,
    LiveContract,
    FailureContract,
    AdoptionContract,
    PreparedContract,
    CloseContract,
    ClaimContract,
    abstract=True,
):
    """Everything the coordinator promises over a backend, and the backend to the coordinator.

    Subclass it, declare `capabilities`, and provide a `harness` fixture that returns a
    `CoordinatorHarness`.
    """
