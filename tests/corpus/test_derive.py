"""Messages, surface and request state of recorded logs, equal to what the original derives."""

from __future__ import annotations

from typing import Any

import pytest

from tests.corpus import paths
from turnlog.events import lossless
from turnlog.events.envelope import SessionEvent
from turnlog.events.log import EventLog
from turnlog.session.derive import derive_messages, project_message
from turnlog.session.request_state import fold_request_context, fold_request_header
from turnlog.session.session import Session
from turnlog.session.surface import fold_surface

CASES = [
    pytest.param(case, id=case["name"])
    for name in paths.names("derive")
    for case in paths.read(name)["cases"]
]


def _text(value: Any) -> bytes:
    return lossless.encode(value)


def _restored(case: dict[str, Any]) -> Session:
    log = EventLog(SessionEvent.from_dict(event) for event in case["events"])
    return Session.restore({"version": 0, "id": "s", "createdAt": 0}, log)


@pytest.mark.parametrize("case", CASES)
def test_messages_equal_the_original(case: dict[str, Any]) -> None:
    """SU22, SU32, SU34, SE7: function, seeded and restored session give the same messages, byte for byte."""
    expected = _text(case["expected_messages"])
    assert _text(derive_messages(case["events"])) == expected
    assert _text(Session.create("s", seed=case["events"]).derive_messages()) == expected
    assert _text(_restored(case).derive_messages()) == expected


@pytest.mark.parametrize("case", CASES)
def test_surface_equals_the_original(case: dict[str, Any]) -> None:
    """SU13, SU23-SU25, SU30, SU47: nodes, replacements and generation by fold and by session."""
    fold = fold_surface(case["events"])
    assert list(fold.nodes) == case["surface_nodes"]
    assert [
        {"seq": r.seq, "start": r.start, "end": r.end, "shadowedSeqs": list(r.shadowed_seqs)}
        for r in fold.replacements
    ] == case["replacements"]
    surface = _restored(case).surface
    assert list(surface.nodes) == case["surface_nodes"]
    assert surface.replace_generation == case["replace_generation"]


@pytest.mark.parametrize("case", CASES)
def test_request_state_equals_the_original(case: dict[str, Any]) -> None:
    """RH5, RH9: the latest header and context by fold and by session."""
    session = _restored(case)
    for header in (fold_request_header(case["events"]), session.request_header()):
        assert _text(header) == _text(case["request_header"])
    for context in (fold_request_context(case["events"]), session.request_context()):
        assert _text(context) == _text(case["request_context"])


@pytest.mark.parametrize("case", CASES)
def test_every_prefix_equals_the_original(case: dict[str, Any]) -> None:
    """DC1, DC2, SU21: a session that grows event by event derives at every prefix what is recorded."""
    session = Session.create("s", strict=False)
    prefixes = {prefix["n"]: prefix for prefix in case["prefixes"]}
    for count, event in enumerate(case["events"], start=1):
        session.append(
            event["type"],
            event["data"],
            surface_op=event.get("surfaceOp"),
            source_event_seqs=event.get("sourceEventSeqs"),
        )
        prefix = prefixes[count]
        assert [message["id"] for message in session.derive_messages()] == prefix["message_ids"]
        assert session.surface.replace_generation == prefix["replace_generation"]
        assert session.derive_messages() == derive_messages(list(session.events))


@pytest.mark.parametrize("case", CASES)
def test_seed_marker_equals_the_original(case: dict[str, Any]) -> None:
    """SE8, PR4: where live events begin, and whether a marker was added."""
    session = _restored(case)
    assert session.first_live_seq == case["first_live_seq"]
    assert (session.seq > session.first_live_seq) is case["seed_marker_added"]


@pytest.mark.parametrize("case", CASES)
def test_projection_of_one_event_is_its_part_of_the_messages(case: dict[str, Any]) -> None:
    """DC4: the messages are the projections of the nodes, in order, without the empty ones."""
    by_seq = {event["seq"]: event for event in case["events"]}
    projected = [project_message(by_seq[seq]) for seq in case["surface_nodes"]]
    assert [message for message in projected if message is not None] == case["expected_messages"]


def test_the_corpus_is_there() -> None:
    """The number of recorded cases; fewer means that data is missing."""
    assert len(CASES) == 90
