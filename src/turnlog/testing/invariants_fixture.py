"""A pytest fixture that holds every session of a test to the order of turns, steps and calls (L4).

Owns the watching only; the rules are `check_invariants`. Import `watch_invariants` into a conftest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from turnlog.session.invariants import check_invariants
from turnlog.session.session import Session


@pytest.fixture
def watch_invariants() -> Iterator[Callable[[Session], Session]]:
    """Give a function that registers a session; at the end of the test each is checked.

    Yields:
        A function that takes a session and returns it.
    """
    watched: list[Session] = []

    def watch(session: Session) -> Session:
        watched.append(session)
        return session

    yield watch
    for session in watched:
        broken = check_invariants(session.events)
        assert broken == [], f"session {session.id!r} breaks {broken}"
