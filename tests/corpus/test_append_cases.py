"""What may be appended: the original's `append` and ours, case by case, with the rules of difference."""

from __future__ import annotations

from typing import Any

from tests.corpus import jsvalues, paths
from tests.corpus.differences import Case, Ledger, Rule
from turnlog.errors import InvalidEventError
from turnlog.events.ecmascript import MAX_DEPTH
from turnlog.events.vocabulary import (
    KNOWN_TYPES,
    SURFACE_TYPES,
    register_event_type,
    unregister_event_type,
)
from turnlog.session.session import Session

CASES = paths.read("invalid/append.json")["cases"]
HEADER = {"version": 0, "id": "s", "createdAt": 0}
REGISTERED = "x/custom"
"""The type that most cases use for payloads of any kind; registered here, the original knows no registry."""
START = 1_700_000_000_000


def _type(case: Case) -> str:
    found: str = case["candidate"]["type"]
    return found


def _is_too_deep(case: Case) -> bool:
    data = case["candidate"]["data"]
    return isinstance(data, dict) and data.get("$js") == "nested-array" and data["depth"] > MAX_DEPTH


def _has_null_sources(case: Case) -> bool:
    options = case["candidate"].get("opts", {})
    return "sourceEventSeqs" in options and options["sourceEventSeqs"] is None


def _is_misshapen(case: Case) -> bool:
    return _type(case) in SURFACE_TYPES or _type(case) == "request/header"


RULES = (
    Rule(
        "depth",
        "L2",
        f"the payload is nested deeper than {MAX_DEPTH} levels",
        _is_too_deep,
        "accept",
        "reject",
        2,
    ),
    Rule(
        "unloadable-type",
        "L2",
        "the type is neither known nor registered nor marked, so that no reader could load it",
        lambda case: _type(case) not in KNOWN_TYPES | {REGISTERED},
        "accept",
        "reject",
        5,
    ),
    Rule(
        "unloadable-shape",
        "L2",
        "a message or request header without the shape that loading asks for",
        _is_misshapen,
        "accept",
        "reject",
        3,
    ),
    Rule(
        "none-is-absent",
        "API",
        "an option is given as null, which in Python is the same as not giving it",
        _has_null_sources,
        "reject",
        "accept",
        1,
    ),
)


def _append(session: Session, op: dict[str, Any]) -> None:
    options = op.get("opts", {})
    session.append(
        op["type"],
        jsvalues.decode(op["data"]),
        surface_op=options.get("surfaceOp"),
        source_event_seqs=options.get("sourceEventSeqs"),
    )


def _observe(case: dict[str, Any]) -> tuple[str, str]:
    """Put one case to a lenient session; return the original's outcome and ours with what they stored."""
    ticks = iter(range(START, START + 1000, 7))
    session = Session.create("s", header=HEADER, strict=False, clock=lambda: next(ticks))
    for op in case["setup"]:
        _append(session, op)
    before = (session.seq, session.surface.nodes, session.log.digest())
    try:
        _append(session, case["candidate"])
    except InvalidEventError:
        assert (session.seq, session.surface.nodes, session.log.digest()) == before
        return case["expected"], "reject"
    assert session.seq == before[0] + 1
    if case["expected"] == "accept":
        assert session.events[-1].to_dict() == jsvalues.decode(case["event"])
    return case["expected"], "accept"


def run() -> Ledger:
    """Put every case to both and return the ledger."""
    ledger = Ledger("append", RULES)
    register_event_type(REGISTERED, required=True)
    try:
        _put_all(ledger)
    finally:
        unregister_event_type(REGISTERED)
    ledger.check()
    return ledger


def _put_all(ledger: Ledger) -> None:
    for case in CASES:
        if jsvalues.has_tag(case["candidate"], jsvalues.NO_COUNTERPART):
            ledger.leave_out(case, "a Python dictionary has no hidden keys")
            continue
        if case["expected"] == "accept" and case["event"]["data"] != case["candidate"]["data"]:
            ledger.leave_out(case, "a Python dictionary has no getters that change what is read")
            continue
        theirs, ours = _observe(case)
        ledger.record(case, theirs, ours)


def test_every_case_has_the_original_outcome_or_a_rule() -> None:
    """SE17-SE19, SE35, SE36, SE38, SE39, SU1-SU9, SU26-SU28, JS1, JS2, JS5-JS7: each as recorded."""
    ledger = run()
    assert ledger.cases == 82
    assert list(ledger.left_out) == ["data:hidden-key", "data:getter"]
