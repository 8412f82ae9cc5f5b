"""Promise P1: every log that a session accepts, cut anywhere, exports to every provider validly."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.transcripts.hostile_logs import hostile_logs
from tests.transcripts.sdk_types import sdk_problems
from turnlog import SessionEvent, derive_messages, interrupted_turn_closers
from turnlog.session.facts import answered_call
from turnlog.testing.log_strategies import session_logs
from turnlog.transcripts import SHAPES, Export, Limits, Shape, export, validate
from turnlog.transcripts.history import history_of
from turnlog.transcripts.options import ExportOptions

IMAGES = {"sha256:known": b"\x89PNG not really"}


def problems(exported: Export, *, sendable: bool = False) -> list[Any]:
    """Return what either validator finds."""
    own = validate(exported.shape, exported.request, sendable=sendable)
    return [*own, *sdk_problems(exported.shape, exported.request)]


@pytest.mark.parametrize("shape", SHAPES)
@given(events=hostile_logs(), choices=st.data())
def test_any_log_exports_validly(shape: Shape, events: list[SessionEvent], choices: st.DataObject) -> None:
    """Both validators accept the export of any log with any options, and it can be written as UTF-8."""
    options: ExportOptions = {
        "images": IMAGES,
        "redact": choices.draw(st.booleans()),
        "sendable": choices.draw(st.booleans()),
        "reasoning": choices.draw(st.sampled_from(["keep", "drop"])),
        "target_provider": choices.draw(st.sampled_from([None, "anthropic", "openai", "google", "martian"])),
        "limits": choices.draw(
            st.sampled_from([None, Limits(max_text=100, max_images=1), Limits(max_bytes=2000)])
        ),
    }
    exported = export(events, shape, **options)
    assert problems(exported, sendable=options["sendable"]) == []
    json.dumps(exported.request).encode()


@pytest.mark.parametrize("shape", SHAPES)
@given(events=session_logs())
def test_any_ordinary_log_exports_validly(shape: Shape, events: list[SessionEvent]) -> None:
    """Logs in the order of the live rules export validly, too."""
    assert problems(export(events, shape)) == []


@pytest.mark.parametrize("shape", SHAPES)
@given(events=hostile_logs())
def test_exports_are_deterministic(shape: Shape, events: list[SessionEvent]) -> None:
    """The same log gives the same request and the same report, whatever form it is given in."""
    first = export(events, shape, images=IMAGES)
    again = export([event.to_dict() for event in events], shape, images=IMAGES)
    assert first == again


@given(events=hostile_logs())
def test_history_is_what_the_model_sees(events: list[SessionEvent]) -> None:
    """The exporter's reading of a log is the session's own, partial answers included."""
    closers = interrupted_turn_closers(events)
    if any(answered_call(closer.data) == "" for closer in closers):
        return  # a call without an id has no closer that a log could hold
    closed = [*events, *closers]
    assert [said.message for said in history_of(events).said] == derive_messages(closed, partial="include")


@pytest.mark.parametrize("shape", SHAPES)
@given(events=hostile_logs(), cut=st.integers(0, 30))
def test_the_beginning_of_an_export_stays(shape: Shape, events: list[SessionEvent], cut: int) -> None:
    """Calls keep the id and the name of their first export when the log grows, unless it is compacted."""
    if any(isinstance(event.surface_op, dict) for event in events):
        return
    earlier, later = export(events[:cut], shape), export(events, shape)
    assert _calls(later.messages)[: len(_calls(earlier.messages))] == _calls(earlier.messages)


def _calls(messages: list[dict[str, Any]]) -> list[tuple[Any, Any]]:
    found = []
    for message in messages:
        blocks = [message, *(message.get("content") or []), *(message.get("parts") or [])]
        for block in [*blocks, *(message.get("tool_calls") or [])]:
            if isinstance(block, dict):
                call = block.get("functionCall") or block.get("function") or block
                call_id = (
                    block.get("call_id")
                    if block.get("type") == "function_call"
                    else block.get("id") or call.get("id")
                )
                if block.get("type") in ("tool_use", "function", "function_call") or "functionCall" in block:
                    found.append((call_id, call.get("name")))
    return found
