"""The order rules of a strict session against the original's invariants companion, step by step."""

from __future__ import annotations

from typing import Any

from tests.corpus import paths
from tests.corpus.differences import Case, Ledger, Rule
from turnlog.errors import InvalidEventError, InvariantError
from turnlog.events.vocabulary import KNOWN_TYPES
from turnlog.session.facts import facts_of
from turnlog.session.invariants import check_invariants
from turnlog.session.session import Session

CASES = paths.read("invalid/invariants.json")["cases"]


def _ends_step_with_pending_call(case: Case) -> bool:
    return bool(case["op"]["type"] == "step/end" and case["pending"])


def _is_orphan_excuse(case: Case) -> bool:
    op = case["op"]
    facts = facts_of(op["type"], op["data"])
    return op["type"] == "tool/result" and facts.excused and facts.call_id not in case["pending"]


RULES = (
    Rule(
        "step-end-pending-call",
        "L4",
        "a step ends while a call has no result",
        _ends_step_with_pending_call,
        "accept",
        "reject",
        1,
    ),
    Rule(
        "orphan-excuse",
        "L4",
        "a result says that a call never started which nobody requested",
        _is_orphan_excuse,
        "accept",
        "reject",
        1,
    ),
)


def _append(session: Session, op: dict[str, Any]) -> None:
    options = op.get("opts", {})
    session.append(
        op["type"],
        op["data"],
        surface_op=options.get("surfaceOp"),
        source_event_seqs=options.get("sourceEventSeqs"),
        ignorable=op["type"] not in KNOWN_TYPES,
    )


def _put(case: dict[str, Any], ledger: Ledger) -> None:
    """Put every step of a case to a strict session; a step that we alone refuse is then taken leniently."""
    strict = Session.create("s")
    accepted: list[dict[str, Any]] = []
    for number, step in enumerate(case["steps"]):
        op = step["op"]
        seen = {"name": f"{case['name']}#{number}", "op": op, "pending": set(strict.pending_calls)}
        before = (strict.seq, strict.open_turn, strict.open_step, strict.pending_calls)
        try:
            _append(strict, op)
            ours = "accept"
        except InvariantError:
            assert (strict.seq, strict.open_turn, strict.open_step, strict.pending_calls) == before
            ours = "reject"
        except InvalidEventError as error:
            ours = f"reject {error.field}"
        rule = ledger.record(seen, step["expected"], ours)
        if step["expected"] == "accept":
            accepted.append(op)
        if rule is not None:
            strict = _rebuilt(accepted)
    assert strict.seq == case["final_length"] + (strict.first_live_seq > 0)


def _rebuilt(ops: list[dict[str, Any]]) -> Session:
    """Go on from what the original accepted: a log that is not held to our rules until here."""
    lenient = Session.create("s", strict=False)
    for op in ops:
        _append(lenient, op)
    return Session.restore({"version": 0, "id": "s", "createdAt": 0}, lenient.log.snapshot())


def run() -> Ledger:
    """Put every case and return the ledger."""
    ledger = Ledger("invariants", RULES)
    for case in CASES:
        if "steps" in case:
            _put(case, ledger)
    ledger.check()
    return ledger


def test_every_step_has_the_original_outcome_or_a_rule() -> None:
    """IN2, IN6-IN13, IN16: each append is decided alike or by a rule; a refusal changes nothing."""
    assert run().cases == 93


def test_closers_satisfy_the_rules() -> None:
    """L4, R1: the recorded logs with closers have the original's types and break no rule."""
    from turnlog.session.repair import interrupted_turn_closers

    recorded = {tuple(case["seed_types"]) for case in CASES if "seed_types" in case}
    found = set()
    for name in paths.names("closers"):
        for case in paths.read(name)["cases"]:
            events = [*case["events"], *interrupted_turn_closers(case["events"])]
            types = tuple(event["type"] if isinstance(event, dict) else event.type for event in events)
            if types in recorded and not check_invariants(events):
                found.add(types)
    assert found == recorded
