"""pydantic-ai's own repair finds nothing to do in our exports to its messages."""

from __future__ import annotations

from hypothesis import given
from pydantic_ai.messages import ModelMessagesTypeAdapter, repair_messages

from tests.reported_faults import log_of
from tests.transcripts.hostile_logs import hostile_logs
from tests.transcripts.test_sdks import full_log
from turnlog import SessionEvent
from turnlog.testing.log_strategies import session_logs
from turnlog.transcripts import pydantic_ai_messages


def check(events: list[SessionEvent]) -> None:
    """Assert that the library reads the messages and repairs nothing."""
    messages = ModelMessagesTypeAdapter.validate_python(
        pydantic_ai_messages(events, images={"sha256:known": b"x", "sha256:p": b"x"})
    )
    assert repair_messages(messages) == messages


@given(events=hostile_logs())
def test_repair_changes_no_export_of_any_log(events: list[SessionEvent]) -> None:
    """Whatever a log went through, its messages are what the library's repair would make of them."""
    check(events)


@given(events=session_logs())
def test_repair_changes_no_export_of_an_ordinary_log(events: list[SessionEvent]) -> None:
    """Logs in the order of the live rules need no repair either."""
    check(events)


def test_calls_results_and_images_arrive() -> None:
    """Calls with their results, images and reasoning are all there, in the library's own types."""
    messages = ModelMessagesTypeAdapter.validate_python(
        pydantic_ai_messages(full_log(), images={"sha256:p": b"x"})
    )
    kinds = [part.part_kind for message in messages for part in message.parts]
    assert kinds == [
        "system-prompt",
        "user-prompt",
        "text",
        "tool-call",
        "tool-call",
        "tool-return",
        "tool-return",
        "user-prompt",
    ]
    check(log_of("uncall-02"))
    thoughts = pydantic_ai_messages(log_of("reason-01"))[1]["parts"]
    assert [part["part_kind"] for part in thoughts] == ["thinking", "tool-call"]
