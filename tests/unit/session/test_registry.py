"""Live sessions: preparing, publishing, taking away, and who hears of it in which order."""

from __future__ import annotations

import gc
import logging
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.session.conversations import HEADER, conversation, delta, ticking, user
from turnlog.errors import (
    ForkError,
    InvalidEventError,
    SessionExistsError,
    SessionNotFoundError,
    UsageError,
)
from turnlog.session.registry import SessionRegistry
from turnlog.session.session import Session


class Named(Session):
    """A subclass, as the store's live session is."""

    __slots__ = ()


def _registry() -> SessionRegistry[Session]:
    return SessionRegistry(clock=ticking())


def _heard(registry: SessionRegistry[Session]) -> list[str]:
    heard: list[str] = []
    registry.on_created(lambda session: heard.append(f"created {session.id}"))
    registry.on_event(lambda session, event: heard.append(f"{event.type} {session.id}"))
    registry.on_disposed(lambda session: heard.append(f"disposed {session.id}"))
    return heard


def test_create_tells_created_then_every_event_then_disposed() -> None:
    """ST1: the order of notices, also for sessions that were live before the listener came."""
    registry = _registry()
    early = registry.create("early")
    heard = _heard(registry)
    session = registry.create("a")
    session.append("turn/start", {"turn": 1})
    early.append("turn/start", {"turn": 1})
    registry.detach(session)
    session.append("turn/end", {"turn": 1, "reason": {"kind": "completed"}})
    assert heard == ["created a", "turn/start a", "turn/start early", "disposed a"]
    assert [s.id for s in registry.list()] == ["early"]
    assert len(registry) == 1


def test_chunk_events_reach_listeners_that_ask() -> None:
    """ST1: a listener hears chunks only with `chunks=True`."""
    registry = _registry()
    plain: list[str] = []
    full: list[str] = []
    registry.on_event(lambda session, event: plain.append(event.type))
    registry.on_event(lambda session, event: full.append(event.type), chunks=True)
    session = registry.create(strict=False)
    session.append_chunk(1, 1, delta())
    assert (plain, full) == ([], ["assistant/chunk"])


def test_unsubscribed_listeners_hear_nothing_more() -> None:
    """ST1, IN17: ending a subscription ends it for live and later sessions; twice is harmless."""
    registry = _registry()
    first = registry.create("a")
    heard: list[str] = []
    undo: list[Callable[[], None]] = [
        registry.on_event(lambda session, event: heard.append("event")),
        registry.on_created(lambda session: heard.append("created")),
        registry.on_disposed(lambda session: heard.append("disposed")),
    ]
    first.append("turn/start", {"turn": 1})
    for each in (*undo, *undo):
        each()
    registry.create("b").append("turn/start", {"turn": 1})
    first.append("turn/end", {"turn": 1, "reason": {"kind": "completed"}})
    registry.detach(first)
    assert heard == ["event"]


def test_prepare_enter_announce_publish_step_by_step() -> None:
    """ST3, ST4: prepared is not live, entered is live and untold, announced is told once."""
    registry = _registry()
    heard = _heard(registry)
    session = registry.prepare("a")
    assert registry.get("a") is None
    detach = registry.enter(session)
    assert registry.get("a") is session
    assert heard == []
    registry.announce(session)
    with pytest.raises(UsageError, match="announced already"):
        registry.announce(session)
    assert heard == ["created a"]
    detach()
    detach()
    assert heard == ["created a", "disposed a"]


def test_a_session_that_was_never_announced_is_disposed_silently() -> None:
    """ST4: disposal is told exactly when creation was."""
    registry = _registry()
    heard = _heard(registry)
    registry.enter(registry.prepare("a"))()
    assert heard == []
    assert registry.get("a") is None


def test_live_ids_are_unique() -> None:
    """ST2, ST3, FK13: preparing or entering under a live id is refused and the live one stays."""
    registry = _registry()
    first, second = registry.prepare("a"), registry.prepare("a")
    registry.enter(first)
    for attempt in (
        lambda: registry.enter(second),
        lambda: registry.create("a"),
        lambda: registry.prepare(header={**HEADER, "id": "a"}),
        lambda: registry.prepare(header=first.header, restore_log=first.log.snapshot()),
    ):
        with pytest.raises(SessionExistsError) as caught:
            attempt()
        assert caught.value.where == "live"
    assert registry.get("a") is first


def test_one_object_is_live_in_one_registry() -> None:
    """ST5: a session that is live cannot be entered again, here or elsewhere; detached it can."""
    registry, other = _registry(), _registry()
    session = registry.create("a")
    for target in (registry, other):
        with pytest.raises(UsageError, match="already live"):
            target.enter(session)
    registry.detach(session)
    other.enter(session)
    assert other.get("a") is session


def test_announcing_what_is_not_live_is_refused() -> None:
    """ST6: only a live session can be announced, and not from inside its announcement."""
    registry = _registry()
    with pytest.raises(UsageError, match="not live"):
        registry.announce(registry.prepare("a"))
    errors: list[str] = []

    def again(session: Session) -> None:
        try:
            registry.announce(session)
        except UsageError as error:
            errors.append(str(error))

    registry.on_created(again)
    registry.create("b")
    assert len(errors) == 1


def test_a_created_listener_may_veto() -> None:
    """ST8, ST16: the creation is rolled back, its error is the caller's, its disposal is told."""
    registry = _registry()
    heard = _heard(registry)

    def veto(session: Session) -> None:
        raise ValueError("no more sessions")

    undo = registry.on_created(veto)
    with pytest.raises(ValueError, match="no more"):
        registry.create("a")
    undo()
    assert heard == ["created a", "disposed a"]
    assert registry.get("a") is None
    assert registry.create("a").seq == 0


def test_detach_during_the_announcement_waits_for_its_end() -> None:
    """ST7: every created listener hears of the session before its disposal is told."""
    registry = _registry()
    registry.on_created(registry.detach)
    heard = _heard(registry)
    session = registry.create("a")
    assert heard == ["created a", "disposed a"]
    assert session.registry is None


def test_detach_during_an_append_waits_for_its_end() -> None:
    """ST22: candidates, commit and observers of the running append still belong to the live session."""
    registry = _registry()
    heard = _heard(registry)
    registry.on_candidate(lambda session, event: registry.detach(session))
    registry.on_event(lambda session, event: heard.append(f"live {registry.get(session.id) is session}"))
    session = registry.create("a")
    session.append("turn/start", {"turn": 1})
    assert heard == ["created a", "turn/start a", "live True", "disposed a"]


def test_detach_during_a_vetoed_append_still_happens() -> None:
    """ST22: a veto ends the append as well."""
    registry = _registry()

    def veto(session: Session, event: Any) -> None:
        registry.detach(session)
        registry.detach(session)
        raise ValueError("no")

    registry.on_candidate(veto)
    session = registry.create("a")
    with pytest.raises(ValueError, match="no"):
        session.append("turn/start", {"turn": 1})
    assert (registry.get("a"), session.seq) == (None, 0)


def test_a_stale_detach_leaves_the_next_session_alone() -> None:
    """ST22: neither the returned function nor `detach` takes away another object under the same id."""
    registry = _registry()
    first = registry.prepare("a")
    detach = registry.enter(first)
    detach()
    second = registry.create("a")
    detach()
    registry.detach(first)
    assert registry.get("a") is second


def test_entering_binds_the_session_to_the_thread() -> None:
    """ST4, L1: a session prepared on another thread belongs to the one that makes it live."""
    registry = _registry()
    made: list[Session] = []
    thread = threading.Thread(target=lambda: made.append(registry.prepare("a")))
    thread.start()
    thread.join()
    registry.enter(made[0])
    assert made[0].append("turn/start", {"turn": 1}).seq == 0


def test_a_disposed_session_is_let_go() -> None:
    """SU14: neither the registry nor its listeners keep a session that was taken away."""
    registry = _registry()
    registry.on_event(lambda session, event: None)
    registry.on_candidate(lambda session, event: None)
    session = registry.create("a")
    session.append("turn/start", {"turn": 1})
    alive = weakref.ref(session)
    registry.detach(session)
    del session
    gc.collect()
    assert alive() is None


def test_failures_of_disposed_listeners_are_contained(caplog: pytest.LogCaptureFixture) -> None:
    """ST24, ST25: the session is gone, the failure is logged, the others hear of it."""
    registry = _registry()
    heard: list[str] = []

    def fail(session: Session) -> None:
        raise ValueError("late")

    registry.on_disposed(fail)
    registry.on_disposed(lambda session: heard.append(session.id))
    with caplog.at_level(logging.ERROR, logger="turnlog.session"):
        registry.detach(registry.create("a"))
    assert heard == ["a"]
    assert "late" in caplog.text


def test_metadata_lands_in_the_header() -> None:
    """ST10, ST11: all of it, and the time of the clock unless one is given."""
    registry = _registry()
    session = registry.create(
        "a",
        cwd="/w",
        parent_session="p",
        seed_length=3,
        origin="subagent",
        delegation_depth=1,
        agent_preset="code",
    )
    assert session.header.to_dict() == {
        "version": 0,
        "id": "a",
        "createdAt": 1000,
        "cwd": "/w",
        "parentSession": "p",
        "seedLength": 3,
        "origin": "subagent",
        "delegationDepth": 1,
        "agentPreset": "code",
    }
    assert registry.prepare("b", created_at=5).header.created_at == 5
    assert SessionRegistry().prepare("c").header.created_at > 1_600_000_000_000


@pytest.mark.parametrize(
    "meta",
    [
        {"cwd": "relative"},
        {"cwd": 1},
        {"parent_session": 1},
        {"seed_length": -1},
        {"seed_length": 0.5},
        {"origin": "fork"},
        {"delegation_depth": -1},
        {"agent_preset": 1},
    ],
)
def test_invalid_metadata_registers_nothing(meta: dict[str, Any]) -> None:
    """ST12, ST13: the field is named and no session is live."""
    registry = _registry()
    with pytest.raises(InvalidEventError):
        registry.create("a", **meta)
    assert registry.list() == []


def test_arguments_that_do_not_go_together_are_refused() -> None:
    """ST12: unknown metadata, metadata beside a header, a restore with a seed or without a header."""
    registry = _registry()
    log = conversation().log
    for options in (
        {"colour": "green"},
        {"header": HEADER, "cwd": "/w"},
        {"header": HEADER, "created_at": 4},
        {"restore_log": log},
        {"restore_log": log, "header": HEADER, "seed": []},
        {"restore_log": log, "header": HEADER, "cwd": "/w"},
    ):
        with pytest.raises(UsageError):
            registry.prepare(**options)


def test_ids_are_minted() -> None:
    """S1: a session without id and header gets a UUIDv7, with a header the header's id."""
    registry = _registry()
    assert len(registry.create().id) == 36
    assert registry.create(header={**HEADER, "id": "h"}).id == "h"


def test_restored_sessions_become_live() -> None:
    """ST4, SE7: a stored log is restored, entered and announced like any session."""
    registry = _registry()
    source = conversation()
    session = registry.create(header=source.header, restore_log=source.log.snapshot())
    assert registry.get("s") is session
    assert session.first_live_seq == source.seq


def test_sessions_are_of_the_given_class() -> None:
    """ST4: the store's class is used by every way of making a session."""
    registry: SessionRegistry[Named] = SessionRegistry(Named)
    parent = registry.create("a", strict=False)
    assert isinstance(parent, Named)
    assert not parent.strict
    assert isinstance(registry.fork("a", child_id="b"), Named)
    restored = registry.prepare(header={**HEADER, "id": "c"}, restore_log=parent.log.snapshot())
    assert isinstance(restored, Named)


def test_fork_gives_a_live_child() -> None:
    """FK1, FK2, FK3: same place and preset, the detached prefix up to the last event, then the marker."""
    registry = _registry()
    parent = registry.create("p", seed=conversation().log, cwd="/w", agent_preset="code", origin="subagent")
    child = registry.fork(parent)
    assert child.header.to_dict() == {
        "version": 0,
        "id": child.id,
        "createdAt": child.header.created_at,
        "cwd": "/w",
        "parentSession": "p",
        "seedLength": parent.seq,
        "agentPreset": "code",
    }
    assert list(child.events) == list(parent.events)
    parent.append("user/message", user("late"), surface_op="append")
    assert child.seq == parent.seq - 1
    assert child.derive_messages() == parent.derive_messages()[:-1]


def test_fork_checks_source_and_child_first() -> None:
    """FK9-FK11, FK13, FK14: a live child id before all else, then who the source is, then the boundary."""
    registry = _registry()
    parent = registry.create("p")
    stale = registry.prepare("q")
    with pytest.raises(SessionExistsError):
        registry.fork("nobody", -1, "p")
    for unknown in ("nobody", stale):
        with pytest.raises(SessionNotFoundError):
            registry.fork(unknown)
    registry.create("q")
    with pytest.raises(ForkError) as caught:
        registry.fork(stale)
    assert caught.value.kind == "not-live"
    with pytest.raises(ForkError) as caught:
        registry.fork(parent, 0)
    assert caught.value.kind == "invalid-boundary"
    assert len(registry) == 2
