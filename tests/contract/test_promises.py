"""What the storage seam promises in its docstrings is what the contract suites check."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import turnlog.persistence
from turnlog.testing import ContractSuite, CoordinatorContract, PersistenceContract
from turnlog.testing.suite import promises_of

PACKAGE = Path(turnlog.persistence.__file__).parent
PORTS = (PACKAGE / "backend.py", PACKAGE / "service.py")

ELSEWHERE = {
    "L3": "what the model saw is rebuilt from the log by the agent loop's tests",
    "L4": "the order of turns is enforced by the session, not by a store; tests/unit/session",
    "D3": "flushing before a request and a tool body is the recorder's; tests/unit/persistence",
    "P1": "exports are transcripts' tests",
}
"""Promises that no store makes, and where they are checked."""


def port_promises() -> frozenset[str]:
    """Return the promise ids that the docstrings and comments of the ports cite."""
    found: set[str] = set()
    for path in PORTS:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found |= promises_of(node.value)
    return frozenset(found)


def suite_promises() -> frozenset[str]:
    """Return the promise ids that contract tests cite."""
    return PersistenceContract.cited_promises() | CoordinatorContract.cited_promises()


def test_the_ports_promise_what_the_suites_check() -> None:
    """Neither side names a promise that the other does not."""
    assert port_promises() == suite_promises()


def test_promises_of_stores_are_all_checked() -> None:
    """Every promise of the design that concerns a store is cited by a contract test."""
    every = {f"L{n}" for n in (1, 2, 3, 4)} | {f"D{n}" for n in (1, 2, 3, 4)} | {"R1", "R2", "R3", "W1"}
    every |= {f"B{n}" for n in (1, 2, 3, 4)} | {"P1", "S1"}
    assert suite_promises() == every - set(ELSEWHERE)


@pytest.mark.parametrize("suite", [PersistenceContract, CoordinatorContract])
def test_every_contract_test_cites_a_promise(suite: type[ContractSuite]) -> None:
    """A contract test says in its docstring which promise it holds a store to."""
    silent = [name for name, test in suite.contract_tests().items() if not promises_of(test.__doc__)]
    assert silent == []


@pytest.mark.parametrize("suite", [PersistenceContract, CoordinatorContract])
def test_docstrings_of_contract_tests_are_one_line(suite: type[ContractSuite]) -> None:
    """One line says what is checked."""
    long = [name for name, test in suite.contract_tests().items() if "\n" in (test.__doc__ or "\n")]
    assert long == []
