"""Redacted JSON lines: pairs stay, streamed secrets are found, and nothing takes them for a log."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from hypothesis import given

from turnlog import SessionEvent, SessionHeader
from turnlog.errors import CorruptLogError
from turnlog.events import lossless
from turnlog.events.header import parse_header_line
from turnlog.testing.log_strategies import session_logs
from turnlog.testing.scripts import LogScript, header
from turnlog.transcripts import Redactor, redacted_lines

KEY = "sk-ant-" + "a" * 30


async def lines(events: list[SessionEvent], meta: SessionHeader | None = None) -> list[dict[str, Any]]:
    """Return the redacted lines of a log."""

    async def each() -> AsyncIterator[SessionEvent]:
        for event in events:
            yield event

    found = redacted_lines(meta or header("s", cwd="/home/alice/x"), each(), Redactor())
    return [lossless.decode(line.encode()) async for line in found]


async def test_first_line_is_no_header() -> None:
    """The first line says what it is, without the home folder, and no reader takes it for a header."""
    first, *_ = await lines([])
    assert first["type"] == "redacted-session"
    assert first["redacted"] is True
    assert first["cwd"] == "~/x"
    with pytest.raises(CorruptLogError, match="not a session header"):
        parse_header_line(json.dumps(first).encode() + b"\n")


async def test_streamed_secret_is_marked() -> None:
    """A secret in pieces is marked in the first of them; other deltas and all seqs stay."""
    script = LogScript().start().step().chunks("The key is ", KEY[:9], KEY[9:20], KEY[20:], " there")
    script.chunks("another", index=1).assistant("x").end_step().end()
    _, *events = await lines(script.events)
    assert [event["seq"] for event in events] == list(range(len(script.events)))
    texts = [event["data"]["chunk"]["text"] for event in events if event["type"] == "assistant/chunk"]
    assert texts == ["The key is [redacted:api-key] there", "", "", "", "", "another"]


async def test_pairs_stay_together() -> None:
    """An id that holds a secret is the same new id in call, start and result."""
    script = LogScript().start().step().user("x").assistant("y", calls=[KEY]).call(KEY).result(KEY)
    _, *events = await lines(script.events)
    assert KEY not in json.dumps(events)
    asked = events[3]["data"]["message"]["content"][1]["id"]
    result = events[5]["data"]["message"]
    assert (
        asked
        == events[4]["data"]["callId"]
        == result["source"]["callId"]
        == result["content"][0]["toolCallId"]
    )


@given(events=session_logs(max_turns=2))
async def test_logs_without_secrets_stay(events: list[SessionEvent]) -> None:
    """Where nothing is to be marked, every event is what it was."""
    _, *found = await lines(events)
    assert [SessionEvent.from_dict(event) for event in found] == events


async def test_odd_payloads_pass() -> None:
    """Payloads of any shape are searched."""
    raw = [KEY, [KEY], {"message": KEY}, {"chunk": KEY}, None, {"message": {"content": KEY, "source": KEY}}]
    events = [
        SessionEvent.from_dict({"type": "assistant/chunk", "seq": seq, "time": 1, "data": data})
        for seq, data in enumerate(raw)
    ]
    assert KEY not in json.dumps(await lines(events))
