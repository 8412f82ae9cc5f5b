"""The other tools for tests: scripts, strategies, damage, the manual clock, the summary and the fixture."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnlog.errors import InvalidEventError
from turnlog.events import lossless
from turnlog.events.envelope import SessionEvent
from turnlog.events.vocabulary import KNOWN_TYPES
from turnlog.session.invariants import check_invariants
from turnlog.session.session import Session
from turnlog.testing import (
    ManualScheduler,
    damaged,
    free_events,
    interrupted_logs,
    json_values,
    not_json,
    watch_invariants,
    whole_logs,
)
from turnlog.testing.damage import OPERATORS
from turnlog.testing.harness import RawSession, read_raw
from turnlog.testing.scripts import LogScript, append_live, dicts
from turnlog.testing.suite import BACKEND_PROPERTY, CAPABILITIES_PROPERTY, WAIVER_PROPERTY
from turnlog.testing.summary import collect, summary_lines

__all__ = ["watch_invariants"]


def test_a_script_is_a_valid_log() -> None:
    """A scripted log keeps the order of turns, can be seeded, and can be appended live."""
    script = LogScript().turn(calls=["c1", "c2"]).start().step().user().chunks("a").assistant(calls=["c3"])
    script.call("c3").result("c3").end_step().end("max-tokens")
    assert check_invariants(script.events) == []
    assert [event.seq for event in script.events] == list(range(len(script.events)))
    assert len(Session.create("s", seed=script.events).events) == len(script.events) + 1
    session = Session.create("s")
    append_live(session, script.events)
    assert [e.type for e in session.events] == [e.type for e in script.events]


def test_equal_scripts_are_equal() -> None:
    """Nothing in a script depends on the moment it is built."""
    assert dicts(LogScript().turn().events) == dicts(LogScript().turn().events)


@given(json_values())
def test_drawn_values_are_lossless(value: Any) -> None:
    """Everything the strategy draws is accepted at the door and comes back equal (PR1)."""
    assert lossless.decode(lossless.encode(value)) == value


@given(not_json())
def test_drawn_non_values_are_refused(value: Any) -> None:
    """Everything that is drawn as impossible is refused at the door."""
    with pytest.raises(InvalidEventError):
        lossless.encode(value)


@given(whole_logs())
def test_whole_logs_are_balanced(events: list[SessionEvent]) -> None:
    """A whole log keeps every live rule, ends between turns and is accepted as a seed (PR2)."""
    assert check_invariants(events) == []
    session = Session.create("s", seed=events)
    assert session.open_turn is None
    assert {event.type for event in events} <= KNOWN_TYPES


@given(interrupted_logs())
def test_interrupted_logs_are_prefixes(events: list[SessionEvent]) -> None:
    """An interrupted log is not empty, dense from 0 and breaks no rule up to where it ends."""
    assert events
    assert [event.seq for event in events] == list(range(len(events)))
    assert check_invariants(events) == []


@given(free_events(first_seq=7))
def test_free_events_are_contiguous(events: list[SessionEvent]) -> None:
    """Free events go on from the seq that was asked for, and may be appended anywhere."""
    assert [event.seq for event in events] == list(range(7, 7 + len(events)))


@given(st.data())
def test_damage_changes_only_what_lies_behind(data: st.DataObject) -> None:
    """No operator touches a byte before the first offset it may work at, but for the line it is in."""
    stored = b"header line\nfirst line\nsecond line\n"
    found = data.draw(damaged(stored, first=12))
    assert found.data.startswith(b"header line\n")
    assert OPERATORS[found.kind](stored, found.position) == found.data


async def test_the_manual_clock_runs_what_is_due_in_order() -> None:
    """Callbacks run when their time has come, in order of time, and cancelled ones never."""
    clock = ManualScheduler()
    ran: list[str] = []
    clock.after(2, lambda: ran.append("second"))
    clock.after(1, lambda: ran.append("first"))
    clock.after(1.5, lambda: ran.append("never")).cancel()
    clock.after(0, lambda: ran.append("now"))
    await clock.advance(0)
    assert ran == ["now"]
    await clock.advance(1.9)
    assert ran == ["now", "first"]
    assert clock.waiting == (2,)
    await clock.advance(0.1)
    assert ran == ["now", "first", "second"]
    assert clock.asked == [2, 1, 1.5, 0]


def test_the_fixture_watches_sessions(watch_invariants: Callable[[Session], Session]) -> None:
    """A watched session is handed back and checked at the end of the test."""
    session = watch_invariants(Session.create("s"))
    append_live(session, LogScript().turn().events)
    assert session.seq == 9


def test_the_fixture_fails_a_broken_session(tmp_path: Path) -> None:
    """A session that broke the order fails its test when the test ends."""
    (tmp_path / "test_it.py").write_text(
        "from turnlog.session.session import Session\n"
        "from turnlog.testing import watch_invariants\n"
        "def test_it(watch_invariants):\n"
        "    session = watch_invariants(Session.create('s', strict=False))\n"
        "    session.append('turn/end', {'turn': 3, 'reason': {'kind': 'completed'}})\n"
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:asyncio", "."]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert "session 's' breaks" in done.stdout


def report(node: str, backend: str, capabilities: str, waiver: str | None = None) -> Any:
    """Make what the summary reads of one test report."""
    notes: list[tuple[str, object]] = [(BACKEND_PROPERTY, backend), (CAPABILITIES_PROPERTY, capabilities)]
    if waiver:
        notes.append((WAIVER_PROPERTY, waiver))
    return SimpleNamespace(nodeid=node, user_properties=notes)


def test_the_summary_is_a_table_of_backends() -> None:
    """Each backend has a column; outcomes are counted; waivers are printed with their reason."""
    reports = [
        ("passed", report("a::x", "memory", "claims,scan")),
        ("skipped", report("a::y", "memory", "claims,scan")),
        ("failed", report("b::x", "files", "claims", "no names here")),
        ("passed", SimpleNamespace(nodeid="other", user_properties=[])),
    ]
    lines = summary_lines(collect(reports))
    rows = {line.split()[0]: line.split()[1:] for line in lines}
    assert rows["memory"] == ["files"]
    assert (rows["claims"], rows["scan"], rows["watch"]) == (["yes", "yes"], ["yes", "-"], ["-", "-"])
    assert (rows["passed"], rows["skipped"], rows["failed"]) == (["1", "0"], ["1", "0"], ["0", "1"])
    assert lines[-2:] == ["waivers: 1", "  b::x: no names here"]


def test_the_summary_is_silent_without_suites() -> None:
    """A run without contract tests prints nothing."""
    assert summary_lines(collect([("passed", SimpleNamespace(nodeid="x", user_properties=[]))])) == []  # type: ignore[list-item]  # the part of a report that is read


@pytest.mark.parametrize(
    "wrong",
    [object(), b"bytes", RawSession(cast(bytes, object())), RawSession(b"", {"lock": cast(bytes, object())})],
    ids=["no-record", "bytes", "log-object", "beside-object"],
)
async def test_raw_access_through_the_backend_is_refused(wrong: Any) -> None:
    """A harness whose `raw` returns anything but stored bytes fails the test at once."""

    async def raw(session_id: str) -> Any:
        return wrong

    harness: Any = SimpleNamespace(raw=raw)
    with pytest.raises((AssertionError, TypeError)):
        await read_raw(harness, "s")


def test_raw_sessions_know_extension() -> None:
    """Bytes extend bytes, rows extend rows, and nothing extends what was changed."""
    assert RawSession(b"abc").extends(RawSession(b"ab"))
    assert not RawSession(b"ab").extends(RawSession(b"abc"))
    assert RawSession((b"a", b"b")).extends(RawSession((b"a",)))
    assert not RawSession((b"x", b"b")).extends(RawSession((b"a",)))


def test_importing_turnlog_loads_no_test_tool() -> None:
    """`import turnlog` loads neither pytest nor Hypothesis."""
    code = (
        "import sys, turnlog;"
        "sys.exit(any(m in sys.modules for m in ('pytest', 'hypothesis', 'turnlog.testing')))"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 0


def test_the_public_names_are_sorted_and_there() -> None:
    """`__all__` is sorted and complete: each name exists."""
    import turnlog.testing as package

    assert package.__all__ == sorted(package.__all__)
    assert [name for name in package.__all__ if not hasattr(package, name)] == []
