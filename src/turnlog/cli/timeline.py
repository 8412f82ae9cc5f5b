"""Events one by one for people: a line with seq, time, type and the gist of the payload.

Owns those lines, for `show --events` and `tail`. A run of streamed chunks can be one line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

from rich.text import Text

import turnlog
from turnlog.transcripts import text
from turnlog.transcripts.blocks import block_text, contents_text, record, records, source_label, string

GIST: Final = 100
"""Most characters of a payload's gist."""

_STYLES: Final = {
    "turn": "bold",
    "step": "",
    "user": "cyan",
    "assistant": "green",
    "tool": "yellow",
    "request": "dim",
    "session": "dim",
    "llm": "red",
}


def event_line(event: turnlog.SessionEvent) -> Text:
    """Give one event as a line."""
    return _line(str(event.seq), event, gist(event))


def event_lines(events: Iterable[turnlog.SessionEvent]) -> Iterator[Text]:
    """Give events as lines, a run of chunks of one step and kind as a single one."""
    run: list[turnlog.SessionEvent] = []
    for event in events:
        if run and _stream(event) != _stream(run[0]):
            yield _run_line(run)
            run = []
        if event.type == "assistant/chunk":
            run.append(event)
        else:
            yield event_line(event)
    if run:
        yield _run_line(run)


def _stream(event: turnlog.SessionEvent) -> tuple[object, ...]:
    data = record(event.data)
    chunk = record(data.get("chunk"))
    return (
        event.type,
        data.get("turn"),
        data.get("step"),
        string(chunk.get("type")),
        string(chunk.get("index")),
    )


def _run_line(run: list[turnlog.SessionEvent]) -> Text:
    if len(run) == 1:
        return event_line(run[0])
    said = "".join(_delta(record(record(event.data).get("chunk"))) for event in run)
    kind = string(record(record(run[0].data).get("chunk")).get("type"))
    return _line(f"{run[0].seq}–{run[-1].seq}", run[0], f"{kind} ×{len(run)}  {said}")


def _line(seq: str, event: turnlog.SessionEvent, what: str) -> Text:
    style = _STYLES.get(event.type.partition("/")[0], "dim")
    return Text.assemble(
        (f"{seq:>9}  ", "dim"),
        (f"{text.clock(event.time)[11:]:<8}  ", "dim"),
        (f"{text.line(event.type):<18}", style),
        f"  {text.summary(what, GIST)}" if what else "",
    )


def gist(event: turnlog.SessionEvent) -> str:
    """Say in a few words what an event holds; not yet safe for a terminal and not cut.

    Args:
        event: Any event, of a known type or not.

    Returns:
        Its gist; for types without a form of their own, the payload as JSON.
    """
    data = record(event.data)
    match event.type:
        case "turn/start" | "step/start" | "step/end":
            return _place(data)
        case "turn/end":
            reason = record(data.get("reason"))
            error = record(reason.get("error"))
            what = f"{_place(data)}: {string(reason.get('kind'))}"
            return f"{what}, {string(error.get('code'))}: {string(error.get('message'))}" if error else what
        case "user/message":
            return f"{source_label(record(data.get('source')))}: {contents_text(data.get('content'))}"
        case "assistant/message":
            return contents_text(record(data.get("message")).get("content"))
        case "assistant/chunk":
            chunk = record(data.get("chunk"))
            return f"{string(chunk.get('type'))}  {_delta(chunk)}"
        case "tool/call":
            return f"{string(data.get('callId'))} {string(data.get('name'))} {string(data.get('arguments'))}"
        case "tool/result":
            return _result(data)
        case "request/header":
            config = record(record(data.get("header")).get("config"))
            model = f"{string(config.get('provider'))}/{string(config.get('model'))}"
            return f"{model} ({string(data.get('reason'))})"
        case "session/title":
            return string(data.get("title"))
        case "session/end-seed":
            return ""
    return text.json_line(event.data)


def _place(data: dict[str, Any]) -> str:
    step = f", step {string(data['step'])}" if "step" in data else ""
    return f"turn {string(data.get('turn'))}{step}"


def _delta(chunk: dict[str, Any]) -> str:
    for name in ("text", "argumentsDelta", "blockType"):
        if isinstance(chunk.get(name), str):
            return str(chunk[name])
    if "block" in chunk:
        return block_text(record(chunk["block"]))
    rest = {name: value for name, value in chunk.items() if name not in ("type", "index")}
    return text.json_line(rest) if rest else ""


def _result(data: dict[str, Any]) -> str:
    answers = records(record(data.get("message")).get("content"))
    answer = answers[0] if answers else {}
    code = record(data.get("error")).get("code")
    failed = f" {code if isinstance(code, str) else 'failed'}" if answer.get("isError") is True else ""
    return f"{string(answer.get('toolCallId'))}{failed}: {block_text(answer) if answer else ''}"
