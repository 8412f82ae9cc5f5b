"""The closers of interrupted logs, byte for byte as the original writes them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.corpus import paths
from tests.corpus.differences import Case, Ledger, Rule
from turnlog.events import lossless
from turnlog.events.envelope import SessionEvent
from turnlog.events.log import EventLog
from turnlog.session.facts import facts_of, is_replacement
from turnlog.session.invariants import check_invariants
from turnlog.session.repair import interrupted_turn_closers

CASES = [
    pytest.param(case, id=case["name"] if "@" in case["name"] else f"{name}:{case['name']}")
    for name in paths.names("closers")
    for case in paths.read(name)["cases"]
]


def _requests_a_call_without_id(case: Case) -> bool:
    return any(
        block.get("id") == ""
        for event in case["events"]
        if event["type"] == "assistant/message"
        for block in event["data"]["message"]["content"]
    )


RULES = (
    Rule(
        "call-without-id",
        "L2",
        "an open call has an empty id; a result that names it could not be loaded again",
        _requests_a_call_without_id,
        "a result for the empty id",
        "none for the empty id",
        1,
    ),
)


def _expected(case: Case) -> list[dict[str, Any]]:
    """Return the closers turnlog makes: the original's, less those that could not be loaded again."""
    kept = [closer for closer in case["expected_closers"] if not _names_nothing(closer)]
    first = case["expected_closers"][0]["seq"] if kept else 0
    for seq, closer in enumerate(kept, first):
        if closer["seq"] != seq:
            closer = kept[seq - first] = json.loads(json.dumps({**closer, "seq": seq}))
            if closer["type"] == "tool/result":
                message = closer["data"]["message"]
                message["id"] = f"interrupted-tool-result-{message['source']['callId']}-{seq}"
    return kept


def _names_nothing(closer: dict[str, Any]) -> bool:
    return bool(closer["type"] == "tool/result" and closer["data"]["message"]["source"]["callId"] == "")


def run() -> Ledger:
    """Put every case to turnlog."""
    ledger = Ledger("closers", RULES)
    for case in (param.values[0] for param in CASES):
        assert isinstance(case, dict)
        has_one = any(map(_names_nothing, case["expected_closers"]))
        ours = any(_names_nothing(event.to_dict()) for event in interrupted_turn_closers(case["events"]))
        names = {True: "a result for the empty id", False: "none for the empty id"}
        ledger.record(case, names[has_one], names[ours])
    return ledger


def test_differences_fall_under_rules() -> None:
    """Every case gives the original's closers or falls under a rule, as often as the rule says."""
    run().check()


def _texts(events: list[SessionEvent]) -> list[bytes]:
    return [event.line for event in events]


@pytest.mark.parametrize("case", CASES)
def test_closers_equal_the_original(case: dict[str, Any]) -> None:
    """RP1-RP11, R1: plain objects give the original's closers, keys in the original's order."""
    expected = [lossless.encode(event) for event in _expected(case)]
    assert _texts(interrupted_turn_closers(case["events"])) == expected


@pytest.mark.parametrize("case", CASES)
def test_closers_of_a_log_equal_those_of_its_events(case: dict[str, Any]) -> None:
    """R1: reading only the last turn of an encoded log, from its first seq on, gives the same closers."""
    events = [SessionEvent.from_dict(event) for event in case["events"]]
    log = EventLog(events, first_seq=events[0].seq if events else 0)
    expected = [lossless.encode(event) for event in _expected(case)]
    assert _texts(interrupted_turn_closers(log)) == expected


@pytest.mark.parametrize("case", CASES)
def test_a_second_repair_adds_nothing(case: dict[str, Any]) -> None:
    """R1: a log with its closers is balanced."""
    assert interrupted_turn_closers([*case["events"], *_expected(case)]) == []


def _unanswerable_calls(events: list[dict[str, Any]]) -> set[str]:
    """Return the calls that the algorithm leaves alone: never requested, or with a rewritten result."""
    facts = [(event, facts_of(event["type"], event["data"])) for event in events]
    requested = {call_id for _, fact in facts for call_id in fact.requested}
    recorded = {fact.call_id for event, fact in facts if event["type"] == "tool/call"}
    rewritten = {fact.call_id for event, fact in facts if is_replacement(event.get("surfaceOp"))}
    return {call_id for call_id in (recorded - requested) | rewritten if call_id is not None}


def test_closers_break_no_rule() -> None:
    """L4: a well-ordered log is so with its closers, but for calls that the algorithm leaves alone."""
    excepted: list[str] = []
    for case in (param.values[0] for param in CASES):
        assert isinstance(case, dict)
        events = case["events"]
        if check_invariants(events):
            continue
        broken = check_invariants([*events, *_expected(case)])
        if broken and _unanswerable_calls(events):
            excepted.append(case["name"])
            assert [violation.rule for violation in broken] == ["step-end-pending-call"]
        else:
            assert not broken
    assert excepted == ["pruned-result-of-open-call@11", "call-without-assistant-block"]


def test_the_corpus_is_there() -> None:
    """The number of recorded cases; fewer means that data is missing."""
    assert len(CASES) == 398
