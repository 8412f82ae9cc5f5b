"""Sessions as training data: chats as JSON, with a mask for what the model produced.

Owns which messages count as the model's own work. The messages are those of the Chat Completions export.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, Unpack

from turnlog.errors import UsageError
from turnlog.events.envelope import SessionEvent
from turnlog.events.log import EventLog
from turnlog.transcripts import openai_chat
from turnlog.transcripts.assembling import assemble
from turnlog.transcripts.history import Source, header_of, history_of, log_of
from turnlog.transcripts.options import ExportOptions, settings_for
from turnlog.transcripts.parts import ModelTurn, Turn
from turnlog.transcripts.request import model_name

Unit = Literal["session", "turn"]
"""What one line is about."""


def training_examples(
    source: Source, *, by: Unit = "session", session_id: str | None = None, **options: Unpack[ExportOptions]
) -> Iterator[dict[str, Any]]:
    """Make chat examples of a session.

    An answer counts, with `weight` 1 and 1 in `mask`, if a model produced it whole. Answers that broke off,
    results, prompts and everything that an export adds have 0.

    Args:
        source: A log, a session, an inspection, or events in log order.
        by: `session`: one example of all messages. `turn`: one per turn, with what the model saw up to its
            end, where only that turn's answers count.
        session_id: Named in the example; by default the source's own id.
        options: As in `export`; `sendable` has no effect.

    Yields:
        `{"session", "turn", "model", "messages", "mask", "tools"?}`; examples in which nothing counts are
        left out.

    Raises:
        UsageError: `by` is neither of its two values.
        InvalidEventError: The events do not form a log.
    """
    if by not in ("session", "turn"):
        raise UsageError(f"by must be 'session' or 'turn', not {by!r}")
    log = log_of(source)
    header = header_of(source)
    name = session_id if session_id is not None else header.id if header is not None else None
    spans = [(None, 0, log.next_seq)] if by == "session" else list(_turns(log))
    for number, start, end in spans:
        example = _example(log.snapshot(end), start, {**options, "sendable": False})
        if any(example["mask"]):
            yield {"session": name, "turn": number, **example}


def _turns(log: EventLog) -> Iterator[tuple[Any, int, int]]:
    """Yield number, first seq and end of each turn, the end exclusive."""
    opened: SessionEvent | None = None
    for row in log.significant():
        if row.type == "turn/start":
            opened = row.event()
        elif row.type == "turn/end" and opened is not None:
            yield opened.data.get("turn"), opened.seq, row.last_seq + 1
            opened = None
    if opened is not None:
        yield opened.data.get("turn"), opened.seq, log.next_seq


def _example(log: EventLog, start: int, options: ExportOptions) -> dict[str, Any]:
    history = history_of(log, options.get("partial", "include"))
    settings = settings_for("openai-chat", history, options)
    pairs = openai_chat.conversation(assemble(history, settings), settings)
    messages: list[dict[str, Any]] = []
    mask: list[int] = []
    for turn, message in pairs:
        counts = int(_is_produced(turn) and turn is not None and turn.seq >= start)
        mask.append(counts)
        messages.append({**message, "weight": counts} if message["role"] == "assistant" else message)
    example = {"model": model_name(settings), "messages": messages, "mask": mask}
    tools = openai_chat.tools(settings)
    return {**example, "tools": tools} if tools else example


def _is_produced(turn: Turn | None) -> bool:
    return isinstance(turn, ModelTurn) and turn.is_whole and turn.source.get("kind") == "model"
