"""Where a session may be forked and what the child gets, case by case, with the rules of difference."""

from __future__ import annotations

from typing import Any

from tests.corpus import jsvalues, paths
from tests.corpus.differences import Case, Ledger, Rule
from turnlog.errors import (
    ForkError,
    InvalidEventError,
    InvalidSessionIdError,
    LogError,
    SessionExistsError,
    SessionNotFoundError,
)
from turnlog.session.registry import SessionRegistry
from turnlog.session.session import Session

RECORDED = paths.read("invalid/fork.json")


def _is_null_boundary(case: Case) -> bool:
    return "boundary" in case and case["boundary"] is None


def _has_empty_id(case: Case) -> bool:
    return case.get("id") == ""


RULES = (
    Rule(
        "none-is-absent",
        "API",
        "the boundary is null, which in Python is the same as not giving it",
        _is_null_boundary,
        "INVALID_BOUNDARY",
        "OPEN_TURN",
        1,
    ),
    Rule("empty-id", "S1", "the id is empty, which no store can hold", _has_empty_id, "accept", "reject", 1),
)

_KINDS = {"open-turn": "OPEN_TURN", "invalid-boundary": "INVALID_BOUNDARY", "not-live": "SESSION_NOT_LIVE"}


def _code(error: LogError) -> str:
    if isinstance(error, ForkError):
        return _KINDS[error.kind]
    if isinstance(error, SessionExistsError):
        return "SESSION_ALREADY_EXISTS"
    if isinstance(error, SessionNotFoundError):
        return "SESSION_NOT_FOUND"
    assert isinstance(error, (InvalidEventError, InvalidSessionIdError))
    return "reject"


def _theirs(case: Case) -> str:
    if case["expected"] == "accept":
        return "accept"
    # Creating under a live id has no code in the original, but the same meaning.
    code: str = case["error"].get("code") or (
        "SESSION_ALREADY_EXISTS" if "already exists" in case["error"]["message"] else "reject"
    )
    return code


def _registry() -> SessionRegistry[Session]:
    registry: SessionRegistry[Session] = SessionRegistry(clock=lambda: 0)
    source = registry.create("src", strict=False, cwd="/g")
    for event in RECORDED["source_events"]:
        source.append(event["type"], event["data"], surface_op=event.get("surfaceOp"))
    registry.create("empty")
    return registry


def _put(registry: SessionRegistry[Session], case: dict[str, Any]) -> Session:
    if "source" in case:
        boundary = jsvalues.decode(case.get("boundary"))
        child = case.get("child") or case.get("header", {}).get("id")
        return registry.fork(case["source"], None if boundary is jsvalues.ABSENT else boundary, child)
    if "options" not in case:
        return registry.create("src")
    meta = {"cwd": "cwd", "delegationDepth": "delegation_depth"}
    given = {meta[key]: value for key, value in case["options"].get("meta", {}).items()}
    return registry.create(case["id"], **given)


def run() -> Ledger:
    """Put every case to a registry and return the ledger."""
    ledger = Ledger("fork", RULES)
    for case in RECORDED["cases"]:
        registry = _registry()
        try:
            made = _put(registry, case)
        except LogError as error:
            ours = _code(error)
            assert [session.id for session in registry.list()] == ["src", "empty"]
        else:
            ours = "accept"
        if ledger.record(case, _theirs(case), ours) is None and ours == "accept":
            _check_child(case, made)
    ledger.check()
    return ledger


def _check_child(case: dict[str, Any], child: Session) -> None:
    assert child.header.to_dict() == case["header"]
    if "events" in case:
        assert child.seq == case["events"]
        types = [event.type for event in child.events]
        assert types[-len(case["types_tail"]) :] == case["types_tail"]
    if "first_live_seq" in case:
        assert child.first_live_seq == case["first_live_seq"]


def test_every_case_has_the_original_outcome_or_a_rule() -> None:
    """FK1, FK4, FK7, FK12-FK14, ST2, ST9, ST10, ST12, ST13: forks are decided alike or by a rule."""
    assert run().cases == 17
