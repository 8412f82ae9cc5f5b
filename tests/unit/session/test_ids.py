"""Minted ids."""

from __future__ import annotations

import threading
import uuid

import pytest

from turnlog.events.segment import encode_segment
from turnlog.session.ids import new_message_id, new_session_id


def test_session_ids_are_version_7_and_increase() -> None:
    """S1: canonical text, version and variant set, each later than the one before, fit for every store."""
    made = [new_session_id() for _ in range(2000)]
    assert made == sorted(set(made))
    for session_id in made[:50]:
        parsed = uuid.UUID(session_id)
        assert (parsed.version, parsed.variant, str(parsed)) == (7, uuid.RFC_4122, session_id)
        assert encode_segment(session_id) == session_id


def test_ids_increase_when_the_clock_is_set_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """S1: within a process the order of ids is the order of minting, whatever the clock does."""
    first = new_session_id()
    monkeypatch.setattr("turnlog.session.ids.time.time_ns", lambda: 0)
    second, third = new_session_id(), new_session_id()
    assert first < second < third


def test_ids_of_threads_do_not_collide() -> None:
    """S1: minting from several threads gives distinct ids."""
    made: list[str] = []
    threads = [
        threading.Thread(target=lambda: made.extend(new_session_id() for _ in range(500))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(made)) == 2000


def test_message_ids_are_random() -> None:
    """SE6: messages of a live session carry a random UUID."""
    first, second = new_message_id(), new_message_id()
    assert first != second
    assert uuid.UUID(first).version == 4
