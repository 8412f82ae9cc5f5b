"""Known types, registration of third-party types, and what a log may hold to be loadable."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest

from tests.unit.events.samples import delta, events, plain
from turnlog.errors import UnsupportedFormatError, UsageError
from turnlog.events import vocabulary
from turnlog.events.envelope import SessionEvent
from turnlog.events.log import EventLog, check_loadable
from turnlog.events.payloads import PAYLOADS


@pytest.fixture(autouse=True)
def forget_registrations() -> Iterator[None]:
    """Leave the process-wide registry as it was."""
    yield
    for type in ("acme/note", "acme/rule"):
        vocabulary.unregister_event_type(type)


class Note(msgspec.Struct):
    """A third party's view."""

    text: str


def test_there_are_48_known_types_and_each_has_a_view() -> None:
    """The closed list of format version 0, three of them on the surface."""
    assert len(vocabulary.KNOWN_TYPES) == 48
    assert set(PAYLOADS) == vocabulary.KNOWN_TYPES
    assert vocabulary.SURFACE_TYPES < vocabulary.KNOWN_TYPES
    assert not vocabulary.LEGACY_TYPES & vocabulary.KNOWN_TYPES


def test_a_registered_type_is_ignorable_by_default() -> None:
    """Other readers can skip what they do not know, unless the owner says otherwise."""
    vocabulary.register_event_type("acme/note", payload=Note)
    vocabulary.register_event_type("acme/rule", required=True)
    assert vocabulary.is_registered("acme/note")
    assert vocabulary.must_mark_ignorable("acme/note")
    assert not vocabulary.must_mark_ignorable("acme/rule")
    assert not vocabulary.must_mark_ignorable("turn/start")
    assert vocabulary.is_loadable("acme/rule")
    assert not vocabulary.is_loadable("acme/other")
    assert vocabulary.registered_payload("acme/note") is Note
    assert vocabulary.registered_payload("acme/rule") is None
    assert vocabulary.registered_payload("acme/other") is None


def test_registering_again_alike_is_fine_otherwise_refused() -> None:
    """Two plugins cannot disagree about one type silently."""
    vocabulary.register_event_type("acme/note")
    vocabulary.register_event_type("acme/note")
    with pytest.raises(UsageError, match="other settings"):
        vocabulary.register_event_type("acme/note", required=True)


@pytest.mark.parametrize("type", ["turn/start", "mode/set", "note", "/note", "acme/", ""])
def test_bad_or_taken_names_are_refused(type: str) -> None:
    """Names have the form namespace/name and do not shadow the format's own."""
    with pytest.raises(UsageError):
        vocabulary.register_event_type(type)


def test_a_registered_view_is_used() -> None:
    """`view` decodes into the class that the third party gave."""
    vocabulary.register_event_type("acme/note", payload=Note)
    assert SessionEvent.build("acme/note", 0, 1, {"text": "x", "more": 1}).view() == Note("x")
    assert SessionEvent.build("acme/note", 0, 1, {"other": "x"}).view() is None
    assert SessionEvent.build("acme/gone", 0, 1, {"text": "x"}).view() is None


def log_with(event: SessionEvent) -> EventLog:
    """Make a log whose third event is the given one, with seq 2."""
    return EventLog([*events([plain(0), delta(1)]), event])


def test_an_unknown_required_type_refuses_the_load() -> None:
    """The error names type, seq and place; nothing is skipped silently."""
    log = log_with(SessionEvent.build("acme/rule", 2, 1, {}))
    with pytest.raises(UnsupportedFormatError) as caught:
        check_loadable(log, "s", "/logs/s")
    assert (caught.value.found, caught.value.seq, caught.value.direction) == ("acme/rule", 2, "unknown-type")
    vocabulary.register_event_type("acme/rule", required=True)
    check_loadable(log, "s")


def test_an_unknown_ignorable_type_and_legacy_types_pass() -> None:
    """What may be skipped is kept; old types are for the legacy reader to judge."""
    check_loadable(log_with(SessionEvent.build("acme/x", 2, 1, {}, ignorable=True)), "s")
    check_loadable(log_with(SessionEvent.build("mode/set", 2, 1, {})), "s")
