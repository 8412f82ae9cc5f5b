"""The conversation drawn for a terminal: turns, speakers, tool calls as cards.

Owns the layout of `turnlog show`; yields finished lines, so that nothing of a log is ever read as markup.
Width None means a pipe: lines stay as long as they are.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from rich.console import Console
from rich.text import Text

from turnlog.transcripts import text
from turnlog.transcripts.blocks import block_text, contents_text
from turnlog.transcripts.conversation import CallState, Card, Conversation, Message, Note, Turn

RESULT_LINES = 12
THOUGHT_LINES = 3
CONTEXT_LINES = 4
CUT_COLUMNS = 1000
"""A single line longer than this is cut, unless everything is asked for."""

_MARKS: dict[CallState, tuple[str, str]] = {
    "answered": ("✓", "green"),
    "failed": ("✗", "red"),
    "outcome unknown": ("?", "yellow"),
    "not started": ("–", "yellow"),
    "started": ("…", "yellow"),
    "requested": ("–", "yellow"),
}


@dataclass(frozen=True, slots=True)
class Drawing:
    """How to draw one conversation."""

    console: Console
    width: int | None
    """Columns to wrap at, or None for no wrapping."""
    full: bool
    """Whether long results and thoughts are shown whole."""
    is_live: bool
    """Whether a writer holds the session: an open turn is running then, not interrupted."""

    def lines(self, conversation: Conversation) -> Iterator[Text]:
        """Yield the conversation line by line."""
        for number, turn in enumerate(conversation.turns):
            if number:
                yield Text()
            yield from self._turn(turn)

    def _turn(self, turn: Turn) -> Iterator[Text]:
        if turn.number is not None:
            yield Text.assemble((f"── turn {turn.number} ", "bold"), (f"· {text.clock(turn.started)}", "dim"))
        previous: object = None
        for item in turn.items:
            if previous is not None and not (isinstance(item, Note) and isinstance(previous, Note)):
                yield Text()
            match item:
                case Message():
                    yield from self._message(item)
                case Card():
                    yield from self._card(item)
                case Note():
                    yield from self._wrapped(text.line(item.text), Text("  · ", "dim"), "dim")
            previous = item
        yield from self._turn_end(turn)

    def _turn_end(self, turn: Turn) -> Iterator[Text]:
        if turn.number is None or turn.end == "completed":
            return
        yield Text()
        if turn.end is not None:
            detail = f" ({text.line(turn.end_detail)})" if turn.end_detail else ""
            style = "red" if turn.end == "error" else "yellow"
            yield Text(f"── turn {turn.number} ended: {text.line(turn.end)}{detail}", style)
        elif self.is_live:
            yield Text(f"── turn {turn.number} is running", "cyan")
        else:
            yield Text(f"── turn {turn.number} was interrupted and is not closed yet", "yellow")

    def _message(self, message: Message) -> Iterator[Text]:
        speaker = "you" if message.role == "user" else text.line(message.label)
        style = {"user": "bold cyan", "assistant": "bold green", "context": "bold magenta"}[message.role]
        yield Text(speaker, style)
        for part in message.blocks:
            said = text.block(block_text(part))
            if not said.strip():
                continue
            if part.get("type") == "reasoning":
                yield from self._cut(said, Text("  ~ ", "dim"), "dim italic", THOUGHT_LINES)
            elif message.role == "context":
                yield from self._cut(said, Text("  "), "dim", CONTEXT_LINES)
            else:
                yield from self._wrapped(said, Text("  "), "")
        if message.partial:
            yield Text("  [the answer breaks off here]", "yellow")

    def _card(self, card: Card) -> Iterator[Text]:
        mark, style = _MARKS[card.state]
        bar = Text("  │ ", style)
        head = Text.assemble(
            ("  ┌ ", style),
            (text.line(card.name) or "(unnamed tool)", "bold"),
            (f"  {text.line(card.call_id)}", "dim"),
            (f"  {mark} {card.state}", style),
        )
        if card.started is not None and card.ended is not None and card.state in ("answered", "failed"):
            head.append(f" · {text.duration(card.ended - card.started)}", "dim")
        yield head
        if card.arguments:
            yield from self._cut(text.block(card.arguments), bar, "dim", THOUGHT_LINES)
        answer = text.block(contents_text(card.result))
        if answer:
            yield from self._cut(answer, bar + Text("→ ", style), "", RESULT_LINES, bar + Text("  "))
        elif card.state in ("started", "requested"):
            waiting = "it has no result in the log" if card.state == "started" else "it was not started"
            yield bar + Text(waiting, "yellow")

    def _cut(
        self, said: str, prefix: Text, style: str, most: int, rest: Text | None = None
    ) -> Iterator[Text]:
        """Draw text, cut to so many lines unless everything is asked for, with a note on what is missing."""
        lines = said.rstrip("\n").split("\n")
        shown, hidden = lines, ""
        if not self.full:
            shown = [line if len(line) <= CUT_COLUMNS else line[:CUT_COLUMNS] + "…" for line in lines[:most]]
            if len(lines) > most:
                hidden = f"… {text.count(len(lines) - most, 'more line')}, --full shows all"
            elif shown != lines:
                hidden = f"… {text.count(len(said), 'character')} in all, --full shows all"
        yield from self._wrapped("\n".join(shown), prefix, style, rest)
        if hidden:
            yield (rest or prefix) + Text(hidden, "dim")

    def _wrapped(self, said: str, prefix: Text, style: str, rest: Text | None = None) -> Iterator[Text]:
        """Draw text behind a prefix on every line; `rest` is the prefix of all lines but the first."""
        following = prefix if rest is None else rest
        room = None if self.width is None else max(20, self.width - following.cell_len)
        first = True
        for row in said.split("\n"):
            whole = Text(row, style)
            pieces = [whole] if room is None else list(whole.wrap(self.console, room, tab_size=4)) or [whole]
            for piece in pieces:
                piece.rstrip()
                yield (prefix if first else following) + piece
                first = False
