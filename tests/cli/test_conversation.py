"""The conversation fold and its drawing: what people see of a log, whatever the log went through."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest

from turnlog import SessionEvent, interrupted_turn_closers
from turnlog.cli.cards import CUT_COLUMNS, RESULT_LINES, Drawing
from turnlog.cli.figures import Figures
from turnlog.cli.terminal import Screen
from turnlog.cli.timeline import event_line, event_lines
from turnlog.testing.scripts import LogScript
from turnlog.transcripts.conversation import Card, Conversation, Message, Note
from turnlog.transcripts.markdown import document

CORPUS = Path(__file__).parent.parent / "corpus" / "data"


def drawn(
    events: list[SessionEvent], *, full: bool = False, is_live: bool = False, width: int | None = None
) -> str:
    """Draw events as they would be printed into a pipe, or wrapped to a width."""
    screen = Screen(io.StringIO())
    lines = Drawing(screen.console, width, full=full, is_live=is_live).lines(Conversation.of(events))
    return "\n".join(line.plain for line in lines)


def cards(events: list[SessionEvent]) -> list[Card]:
    """Return the tool calls of a log in order."""
    return [item for turn in Conversation.of(events).turns for item in turn.items if isinstance(item, Card)]


def test_a_whole_turn() -> None:
    """A completed turn is drawn without any mark of trouble; chunks of a finished answer do not show."""
    assert drawn(LogScript().turn(calls=["c-1"]).events) == (
        "── turn 1 · 2023-11-14 22:13:20\n"
        "you\n"
        "  Which tests fail?\n"
        "\n"
        "acme/a1\n"
        "  Let me look.\n"
        "\n"
        "  ┌ shell  c-1  ✓ answered · 1 ms\n"
        "  │ {}\n"
        "  │ → ok"
    )


def test_a_turn_killed_in_a_tool_call() -> None:
    """Before a repair: the running call and the one that never started are told apart, the turn is open."""
    script = LogScript().start().step().user().assistant("Both.", calls=["c-1", "c-2"]).call("c-1")
    assert [card.state for card in cards(script.events)] == ["started", "requested"]
    shown = drawn(script.events)
    assert "it has no result in the log" in shown
    assert "it was not started" in shown
    assert shown.endswith("── turn 1 was interrupted and is not closed yet")
    assert drawn(script.events, is_live=True).endswith("── turn 1 is running")


def test_a_repaired_turn() -> None:
    """After a repair both calls say what is known, and the end says interrupted."""
    script = LogScript().start().step().user().assistant("Both.", calls=["c-1", "c-2"]).call("c-1")
    events = [*script.events, *interrupted_turn_closers(script.events)]
    assert [(card.state, card.code) for card in cards(events)] == [
        ("outcome unknown", "TOOL_OUTCOME_UNKNOWN"),
        ("not started", "TOOL_NOT_STARTED"),
    ]
    assert drawn(events).endswith("── turn 1 ended: interrupted")


def test_an_answer_that_exists_only_as_chunks() -> None:
    """A stream that broke off is shown as far as it came, and marked."""
    events = LogScript().start().step().user().chunks("Let ", "me ").events
    said = [item for item in Conversation.of(events).turns[0].items if isinstance(item, Message)]
    assert (said[-1].partial, said[-1].blocks) == (True, [{"type": "text", "text": "Let me "}])
    assert "  Let me\n  [the answer breaks off here]" in drawn(events)


def test_data_of_a_shape_nothing_has() -> None:
    """The log takes any payload for types it does not check; all of them are drawn somehow."""
    odd: list[Any] = [
        None,
        7,
        "x",
        [],
        {"chunk": 3},
        {"chunk": {"type": 1}},
        {"todos": 4, "reason": 3},
        {"content": 3},
    ]
    types = ["acme/x", "todo/write", "llm/retry", "compaction/prune", "approval/asked", "session/title"]
    events = [
        SessionEvent.from_dict({"type": kind, "seq": seq, "time": 0, "data": data, "ignorable": True})
        for seq, (kind, data) in enumerate((kind, data) for kind in types for data in odd)
    ]
    assert "todo list: 0 of 0 done" in drawn(events)
    assert len(list(event_lines(events))) == len(events)
    assert "".join(document(Conversation.of(events), session_id="s", facts=[]))
    figures = Figures()
    for event in events:
        figures.feed(event)
    assert figures.events == len(events)


def test_long_results_are_cut_with_a_note() -> None:
    """Rows beyond a screenful and endless rows are cut, and the note says how to see them."""
    script = LogScript().start().step().assistant("", calls=["c-1", "c-2"]).call("c-1")
    script.result("c-1", "\n".join(f"row {n}" for n in range(100))).call("c-2").result("c-2", "x" * 5000)
    shown = drawn(script.events)
    assert f"row {RESULT_LINES - 1}\n" in shown
    assert f"row {RESULT_LINES}\n" not in shown
    assert f"… {100 - RESULT_LINES} more lines, --full shows all" in shown
    assert "… 5,000 characters in all, --full shows all" in shown
    assert max(map(len, shown.split("\n"))) < CUT_COLUMNS + 20
    whole = drawn(script.events, full=True)
    assert "row 99" in whole
    assert "x" * 5000 in whole
    assert "--full" not in whole


def test_wrapping_keeps_the_card_together() -> None:
    """On a terminal every wrapped row of a result keeps its bar."""
    script = LogScript().start().step().assistant("", calls=["c-1"]).call("c-1").result("c-1", "word " * 50)
    rows = drawn(script.events, width=40).split("\n")
    assert all(len(row) <= 40 for row in rows if "word" in row)
    assert sum("word" in row and row.startswith("  │ ") for row in rows) > 5


def test_markup_and_controls_in_a_log_are_text() -> None:
    """Rich markup, escape sequences and emoji codes of a log are printed as they are written."""
    script = (
        LogScript()
        .start()
        .step()
        .user("[red]x[/red] :smile: \x1b[2J")
        .assistant("", calls=["[b]c"])
        .call("[b]c")
    )
    assert "[red]x[/red] :smile: \\x1b[2J" in drawn(script.events)
    out = io.StringIO()
    Screen(out).lines(event_lines(script.events))
    assert "[b]c" in out.getvalue()
    assert "\x1b" not in out.getvalue()


def test_notes() -> None:
    """What happens beside the conversation is one line each."""
    script = (
        LogScript()
        .add("session/title", {"title": "Fix it", "messageSeqs": [], "source": {"kind": "user"}})
        .start()
    )
    header = {"config": {"provider": "p", "model": "m"}, "tools": [{"name": "a"}, {"name": "b"}]}
    script.add("request/header", {"header": header, "reason": "initial"})
    script.add("request/header", {"header": header, "reason": "resume"})
    failure = {"message": "slow down", "code": "RATE_LIMIT"}
    script.add("llm/retry", {"retryId": "r", "turn": 1, "step": 1, "retry": 1, "failure": failure})
    script.add(
        "todo/write",
        {"todos": [{"content": "a", "status": "completed"}, {"content": "b", "status": "pending"}]},
    )
    script.add("approval/asked", {"id": "a", "toolName": "shell", "reason": "writes"})
    script.add("approval/decided", {"id": "a", "outcome": "rejected"})
    script.add(
        "compaction/prune",
        {"shadowedRange": {"start": 1, "end": 2}, "shadowedSeqs": [1, 2], "shadowedTokenCount": 9},
    )
    script.end().add("session/end-seed", {})
    conversation = Conversation.of(script.events)
    assert conversation.title == "Fix it"
    assert [item.text for turn in conversation.turns for item in turn.items if isinstance(item, Note)] == [
        "model p/m, 2 tools",
        "the request failed and is tried again: RATE_LIMIT, slow down",
        "todo list: 1 of 2 done",
        "approval asked for shell: writes",
        "approval rejected",
        "compacted: 2 messages left the model's context",
        "resumed",
    ]


@pytest.mark.parametrize(
    ("reason", "shown"),
    [
        ({"kind": "aborted", "reason": {"kind": "user"}}, "ended: aborted (by user)"),
        ({"kind": "aborted", "reason": {"kind": "hook", "reason": "no"}}, "ended: aborted (by no)"),
        (
            {"kind": "error", "error": {"code": "QUOTA", "message": "paid up?"}},
            "ended: error (QUOTA: paid up?)",
        ),
        ({"kind": "max-tokens"}, "ended: max-tokens"),
        ({"kind": "third-party"}, "ended: third-party"),
    ],
)
def test_turn_ends(reason: dict[str, Any], shown: str) -> None:
    """Every end but a completed one is said, kinds of others included."""
    events = LogScript().start().add("turn/end", {"turn": 1, "reason": reason}).events
    assert drawn(events).endswith(f"── turn 1 {shown}")


def test_runs_of_chunks_are_one_line() -> None:
    """`show --events` folds the chunks of one stream; `tail` gives them one by one."""
    events = LogScript().turn().events
    rows = [line.plain for line in event_lines(events)]
    assert [row.split()[2] for row in rows].count("assistant/chunk") == 1
    assert "3–5" in rows[3]
    assert rows[3].endswith("text-delta ×3 Let me look.")
    assert event_line(events[3]).plain.endswith("text-delta Let")


def test_json_of_a_conversation() -> None:
    """Programs get the same items with their kinds."""
    value = Conversation.of(LogScript().turn(calls=["c-1"]).events).as_json()
    assert [item["kind"] for item in value["turns"][0]["items"]] == ["message", "message", "card"]
    assert value["turns"][0]["items"][2]["state"] == "answered"
    assert json.loads(json.dumps(value)) == value


@pytest.mark.parametrize("path", sorted((CORPUS / "derive").glob("*.json")), ids=lambda path: path.stem)
def test_every_conformance_log_can_be_drawn(path: Path) -> None:
    """No valid log of the original makes any of the drawings fail, and all of them say what was said."""
    for case in json.loads(path.read_text())["cases"]:
        events = [SessionEvent.from_dict(event) for event in case["events"]]
        shown = drawn(events, full=True)
        conversation = Conversation.of(events)
        written = "".join(document(conversation, session_id="s", facts=[]))
        assert len(list(event_lines(events))) <= len(events)
        for turn in conversation.turns:
            for item in turn.items:
                if isinstance(item, Card):
                    assert item.call_id in shown
                    assert item.call_id in written
