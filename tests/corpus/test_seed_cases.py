"""What a session may begin with: creating from a seed and restoring, case by case, with the differences."""

from __future__ import annotations

from typing import Any

from tests.corpus import jsvalues, paths
from tests.corpus.differences import Case, Ledger, Rule
from turnlog.errors import CorruptLogError, InvalidEventError, UnsupportedFormatError
from turnlog.events.envelope import SessionEvent
from turnlog.events.log import EventLog
from turnlog.events.vocabulary import KNOWN_TYPES
from turnlog.session.session import Session

CASES = paths.read("invalid/seed.json")["cases"]
LOSSY = frozenset({"NaN", "Infinity", "-Infinity", "-0", "Date", "undefined"})


def _has_unknown_type(case: Case) -> bool:
    return any(
        isinstance(event, dict)
        and isinstance(event.get("type"), str)
        and event["type"] not in KNOWN_TYPES
        and "ignorable" not in event
        for event in case["seed"]
    )


def _is_lossy(case: Case) -> bool:
    return jsvalues.has_tag(case["seed"], LOSSY) or jsvalues.has_tag(case["header"], LOSSY)


CREATE_RULES = (
    Rule(
        "unknown-type",
        "L2",
        "an event of a type that is neither known, registered nor marked as ignorable",
        lambda case: _has_unknown_type(case) and not _is_lossy(case),
        "accept",
        "reject",
        1,
    ),
)
RESTORE_RULES = (
    *CREATE_RULES,
    Rule(
        "lossy-value",
        "L2",
        "a value that JSON text cannot carry; a stored log is text, so it never reaches a restore here",
        _is_lossy,
        "accept",
        "reject",
        4,
    ),
)


def _create(case: dict[str, Any]) -> Session:
    header = jsvalues.decode(case["header"])
    return Session.create(case["id"], seed=jsvalues.decode(case["seed"]), header=header, strict=False)


def _restore(case: dict[str, Any]) -> Session:
    header = jsvalues.decode(case["header"])
    events = [
        SessionEvent.from_dict(event, index) if isinstance(event, dict) else _not_an_event(event, index)
        for index, event in enumerate(jsvalues.decode(case["seed"]))
    ]
    log = EventLog()
    for index, event in enumerate(events):
        if event.seq != index:
            raise CorruptLogError(session_id=case["id"], reason="seq gap", seq=index)
        log.append_event(event)
    if isinstance(header, dict) and header.get("id") != case["id"]:
        raise CorruptLogError(session_id=case["id"], reason="another session's header")
    return Session.restore(header, log, strict=False)


def _not_an_event(event: Any, index: int) -> SessionEvent:
    raise InvalidEventError(field="$", reason=f"is a {type(event).__name__}", index=index)


def _check_accepted(case: dict[str, Any], way: str, session: Session) -> None:
    expected = case[way]
    assert session.seq == expected["events_after"]
    assert session.first_live_seq == expected["first_live_seq"]
    if "types_after" in expected:
        assert [event.type for event in session.events] == expected["types_after"]
    if "header" in expected:
        assert session.header.to_dict() == jsvalues.decode(expected["header"])


def _run(way: str) -> Ledger:
    make, rules = (_create, CREATE_RULES) if way == "create" else (_restore, RESTORE_RULES)
    ledger = Ledger(way, rules)
    for case in CASES:
        try:
            session = make(case)
        except (InvalidEventError, CorruptLogError, UnsupportedFormatError):
            ours = "reject"
        else:
            ours = "accept"
        rule = ledger.record(case, case[way]["expected"], ours)
        if rule is None and ours == "accept":
            _check_accepted(case, way, session)
    ledger.check()
    return ledger


def run_create() -> Ledger:
    """Put every case to `Session.create` and return the ledger."""
    return _run("create")


def run_restore() -> Ledger:
    """Put every case to `Session.restore` and return the ledger."""
    return _run("restore")


def test_every_created_seed_has_the_original_outcome_or_a_rule() -> None:
    """SE8-SE10, SE14, SE15, SE20-SE23, SE26-SE28, SE39, SE44-SE46: creating from a seed."""
    assert run_create().cases == 93


def test_every_restored_log_has_the_original_outcome_or_a_rule() -> None:
    """SE8-SE10, SE14, SE15, SE21-SE23, SE39, SE44-SE46: restoring a stored log."""
    assert run_restore().cases == 93
