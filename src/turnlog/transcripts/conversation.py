"""A log as a conversation for people: turns, messages, tool calls with their results, and notes.

Owns one fold over events, fed one event at a time; holds no chunks beyond the open step. It does not
print: the command line draws it, `markdown` and `page` write it, `as_json` gives it to programs.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

from turnlog.events.envelope import SessionEvent
from turnlog.session.assembly import assemble_interrupted
from turnlog.transcripts import text
from turnlog.transcripts.blocks import integer, record, records, source_label, string

CallState = Literal["answered", "failed", "outcome unknown", "not started", "started", "requested"]

_STATES_BY_CODE: dict[str, CallState] = {
    "TOOL_OUTCOME_UNKNOWN": "outcome unknown",
    "TOOL_NOT_STARTED": "not started",
    "ABORTED_BEFORE_DISPATCH": "not started",
}


@dataclass(slots=True)
class Message:
    """Something that was said."""

    seq: int
    time: int
    role: Literal["user", "assistant", "context"]
    label: str
    """Who said it, such as `acme/a1` or the plugin's name."""
    blocks: list[dict[str, Any]]
    """Content blocks without tool calls; those are cards."""
    partial: bool = False
    """The answer is unfinished: it exists as chunks only, or was stored as interrupted."""


@dataclass(slots=True)
class Card:
    """One tool call and what came of it."""

    seq: int
    call_id: str
    name: str
    arguments: str
    state: CallState = "requested"
    started: int | None = None
    ended: int | None = None
    result: list[Any] = field(default_factory=list)
    """The result's content blocks."""
    code: str | None = None
    """The failure's code, such as TOOL_OUTCOME_UNKNOWN."""
    meta: Any = None
    """What the tool left for whoever shows the call; private to the tool, so not part of `as_json`."""


@dataclass(slots=True)
class Note:
    """Something that happened beside the conversation, in one sentence."""

    seq: int
    text: str


@dataclass(slots=True)
class StepUsage:
    """What one model call cost, as the provider counted it."""

    seq: int
    step: int | None
    model: str
    counts: dict[str, int]
    """Tokens by the log's own names: `inputTokens`, `outputTokens`, `cacheReadTokens` and so on."""


@dataclass(slots=True)
class Turn:
    """One request-to-end, or what stands between two of them (`number` is None)."""

    number: int | None
    started: int | None = None
    ended: int | None = None
    end: str | None = None
    """The kind of the turn's end, such as `completed`; None while it is open."""
    end_detail: str = ""
    items: list[Message | Card | Note] = field(default_factory=list)
    usage: list[StepUsage] = field(default_factory=list)
    """One entry per answer that says what it cost; not part of `as_json`."""


class Conversation:
    """The fold. Feed it a log's events in order, then call `finish`."""

    def __init__(self) -> None:
        self.turns: list[Turn] = []
        self.title: str | None = None
        self._cards: dict[str, Card] = {}
        self._chunks: list[tuple[int, int, dict[str, Any]]] = []
        self._model = "assistant"

    @classmethod
    def of(cls, events: Iterable[SessionEvent]) -> Conversation:
        """Fold a whole log."""
        folded = cls()
        for event in events:
            folded.feed(event)
        folded.finish()
        return folded

    def feed(self, event: SessionEvent) -> None:
        """Take the next event; data of an unexpected shape is passed over, never an error."""
        data = event.data
        if not isinstance(data, dict):
            return
        handler = _HANDLERS.get(event.type)
        if handler is not None:
            handler(self, event, data)

    def finish(self) -> None:
        """Say that no more events follow: what is open stays open, what was streamed is shown."""
        self._flush_partial()

    def as_json(self) -> dict[str, Any]:
        """Return the conversation for programs: the title and the turns with their items in order."""
        return {"title": self.title, "turns": [_turn_json(turn) for turn in self.turns]}

    # One method per event type; `_HANDLERS` names them.

    def _turn_start(self, event: SessionEvent, data: dict[str, Any]) -> None:
        self.turns.append(Turn(number=integer(data.get("turn")), started=event.time))
        self._cards.clear()

    def _turn_end(self, event: SessionEvent, data: dict[str, Any]) -> None:
        self._flush_partial()
        turn = self._turn()
        reason = record(data.get("reason"))
        turn.ended = event.time
        turn.end = str(reason.get("kind", "unknown"))
        cause = record(reason.get("reason"))
        error = record(reason.get("error"))
        if error:
            turn.end_detail = f"{error.get('code', 'UNKNOWN')}: {error.get('message', '')}"
        elif cause:
            turn.end_detail = f"by {cause.get('reason') or cause.get('kind', '')}"
        self._cards.clear()

    def _step_start(self, event: SessionEvent, data: dict[str, Any]) -> None:
        self._flush_partial()

    def _step_end(self, event: SessionEvent, data: dict[str, Any]) -> None:
        self._flush_partial()

    def _chunk(self, event: SessionEvent, data: dict[str, Any]) -> None:
        chunk = data.get("chunk")
        if isinstance(chunk, dict):
            self._chunks.append((event.seq, event.time, chunk))

    def _user(self, event: SessionEvent, data: dict[str, Any]) -> None:
        source = record(data.get("source"))
        person = source.get("kind") == "user"
        self._note_replacement(event)
        self._items().append(
            Message(
                seq=event.seq,
                time=event.time,
                role="user" if person else "context",
                label="user" if person else source_label(source),
                blocks=records(data.get("content")),
            )
        )

    def _assistant(self, event: SessionEvent, data: dict[str, Any]) -> None:
        self._chunks.clear()
        message = record(data.get("message"))
        source = record(message.get("source"))
        content = records(message.get("content"))
        said = [part for part in content if part.get("type") != "tool-call"]
        partial = data.get("interrupted") is True
        self._note_replacement(event)
        self._note_usage(event, data, source)
        if said or partial:
            label = source_label(source) if source else self._model
            self._items().append(Message(event.seq, event.time, "assistant", label, said, partial))
        for part in content:
            if part.get("type") == "tool-call":
                self._request(event.seq, part)

    def _note_usage(self, event: SessionEvent, data: dict[str, Any], source: dict[str, Any]) -> None:
        counts = {
            name: count
            for name, value in record(data.get("usage")).items()
            if (count := integer(value)) is not None
        }
        if counts:
            model = source_label(source) if source else self._model
            self._turn().usage.append(StepUsage(event.seq, integer(data.get("step")), model, counts))

    def _request(self, seq: int, part: dict[str, Any]) -> None:
        card = Card(
            seq=seq,
            call_id=str(part.get("id", "")),
            name=str(part.get("name", "")),
            arguments=string(part.get("arguments")),
        )
        self._cards[card.call_id] = card
        self._items().append(card)

    def _call(self, event: SessionEvent, data: dict[str, Any]) -> None:
        call_id = str(data.get("callId", ""))
        card = self._cards.get(call_id)
        if card is None:
            self._request(
                event.seq, {"id": call_id, "name": data.get("name"), "arguments": data.get("arguments")}
            )
            card = self._cards[call_id]
        card.state = "started"
        card.started = event.time

    def _result(self, event: SessionEvent, data: dict[str, Any]) -> None:
        answers = records(record(data.get("message")).get("content"))
        answer = answers[0] if answers else {}
        call_id = str(answer.get("toolCallId", ""))
        if isinstance(event.surface_op, dict):
            self._items().append(Note(event.seq, f"the result of call {call_id} was replaced for the model"))
            return
        card = self._cards.pop(call_id, None)
        if card is None:
            card = Card(seq=event.seq, call_id=call_id, name="", arguments="")
            self._items().append(card)
        code = record(data.get("error")).get("code")
        card.code = code if isinstance(code, str) else None
        content = answer.get("content")
        card.result = content if isinstance(content, list) else []
        card.ended = event.time
        card.meta = data.get("meta")
        failed: CallState = "failed" if answer.get("isError") is True else "answered"
        card.state = _STATES_BY_CODE.get(card.code or "", failed)

    def _header(self, event: SessionEvent, data: dict[str, Any]) -> None:
        header = record(data.get("header"))
        config = record(header.get("config"))
        model = f"{config.get('provider', '?')}/{config.get('model', '?')}"
        if model != self._model:
            tools = header.get("tools")
            offered = text.count(len(tools) if isinstance(tools, list) else 0, "tool")
            self._items().append(Note(event.seq, f"model {model}, {offered}"))
            self._model = model

    def _title(self, event: SessionEvent, data: dict[str, Any]) -> None:
        if isinstance(data.get("title"), str):
            self.title = data["title"]

    def _seed_end(self, event: SessionEvent, data: dict[str, Any]) -> None:
        self._items().append(Note(event.seq, "resumed"))

    def _retry(self, event: SessionEvent, data: dict[str, Any]) -> None:
        self._chunks.clear()
        failure = record(data.get("failure"))
        why = f": {failure.get('code', 'UNKNOWN')}, {failure.get('message', '')}" if failure else ""
        self._items().append(Note(event.seq, f"the request failed and is tried again{why}"))

    def _compaction(self, event: SessionEvent, data: dict[str, Any]) -> None:
        shadowed = data.get("shadowedSeqs")
        number = len(shadowed) if isinstance(shadowed, list) else 0
        self._items().append(
            Note(event.seq, f"compacted: {text.count(number, 'message')} left the model's context")
        )

    def _approval(self, event: SessionEvent, data: dict[str, Any]) -> None:
        if event.type == "approval/asked":
            why = f": {data['reason']}" if isinstance(data.get("reason"), str) else ""
            self._items().append(Note(event.seq, f"approval asked for {data.get('toolName', 'a tool')}{why}"))
        else:
            self._items().append(Note(event.seq, f"approval {data.get('outcome', 'decided')}"))

    def _todo(self, event: SessionEvent, data: dict[str, Any]) -> None:
        todos = [record(entry) for entry in data["todos"]] if isinstance(data.get("todos"), list) else []
        done = sum(entry.get("status") == "completed" for entry in todos)
        self._items().append(Note(event.seq, f"todo list: {done} of {len(todos)} done"))

    def _note_replacement(self, event: SessionEvent) -> None:
        op = event.surface_op
        if isinstance(op, dict):
            self._items().append(
                Note(event.seq, f"for the model, this replaces seq {op.get('start')} to {op.get('end')}")
            )

    def _flush_partial(self) -> None:
        """Show an answer that only exists as chunks: the stream broke off before it was complete."""
        if not self._chunks:
            return
        seq, time, _ = self._chunks[0]
        said = assemble_interrupted(chunk for _, _, chunk in self._chunks)
        self._chunks.clear()
        if said:
            self._items().append(Message(seq, time, "assistant", self._model, said, partial=True))

    def _turn(self) -> Turn:
        if not self.turns or self.turns[-1].end is not None:
            self.turns.append(Turn(number=None))
        return self.turns[-1]

    def _items(self) -> list[Message | Card | Note]:
        return self._turn().items


def _turn_json(turn: Turn) -> dict[str, Any]:
    # Not asdict(): it copies by recursion, and content may be nested as deep as the log allows.
    items = [
        {"kind": type(item).__name__.lower()}
        | {name: getattr(item, name) for name in item.__slots__ if name != "meta"}
        for item in turn.items
    ]
    return {
        "turn": turn.number,
        "started": turn.started,
        "ended": turn.ended,
        "end": turn.end,
        "end_detail": turn.end_detail or None,
        "items": items,
    }


_HANDLERS = {
    "turn/start": Conversation._turn_start,
    "turn/end": Conversation._turn_end,
    "step/start": Conversation._step_start,
    "step/end": Conversation._step_end,
    "assistant/chunk": Conversation._chunk,
    "assistant/message": Conversation._assistant,
    "user/message": Conversation._user,
    "tool/call": Conversation._call,
    "tool/result": Conversation._result,
    "request/header": Conversation._header,
    "session/title": Conversation._title,
    "session/end-seed": Conversation._seed_end,
    "llm/retry": Conversation._retry,
    "compaction/summary": Conversation._compaction,
    "compaction/prune": Conversation._compaction,
    "approval/asked": Conversation._approval,
    "approval/decided": Conversation._approval,
    "todo/write": Conversation._todo,
}
