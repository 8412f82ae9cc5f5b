"""The pieces of the HTML page: messages, tool calls, diffs, images, usage.

Owns what one item looks like as HTML. Every text of a log is escaped by one of two functions here.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from typing import Any, Final

from turnlog.transcripts import text
from turnlog.transcripts.blocks import block_text, contents_text, record, records
from turnlog.transcripts.conversation import Card, Message, Note, StepUsage
from turnlog.transcripts.diffs import FileDiff, find_diffs
from turnlog.transcripts.images import Images, read_image
from turnlog.transcripts.redaction import Redactor

SHOWN: Final = 100_000
"""Characters of one text that a page shows; what is longer is cut with a note on its size."""

_GIST: Final = 120
_FENCE = re.compile(r"^(`{3,}|~{3,})[^\n]*\n(.*?)(?:^\1[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)
_IMAGE_TYPES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
_STATE_CLASSES: Final = {"answered": "", "failed": " bad"}
_COUNTS: Final = (
    ("inputTokens", "input"),
    ("cacheReadTokens", "from cache"),
    ("cacheWriteTokens", "to cache"),
    ("outputTokens", "output"),
    ("reasoningTokens", "reasoning"),
)


@dataclass(frozen=True, slots=True)
class Writer:
    """Writes items as HTML.

    Secrets are marked in whole texts and values, before anything is cut or split: a part of a secret is one,
    too.

    Args:
        redactor: Marks secrets, or None.
        images: Where the bytes of images come from.
    """

    redactor: Redactor | None
    images: Images | None

    def hidden(self, said: str) -> str:
        """Return a text with its secrets marked."""
        return said if self.redactor is None else self.redactor.text(said)

    def _hidden_value(self, value: Any) -> Any:
        return value if self.redactor is None else self.redactor.value(value)

    def line(self, said: str) -> str:
        """Return a text of a log as HTML on one line: redacted, without control characters, escaped."""
        return _escaped_line(self.hidden(said))

    def message(self, message: Message) -> Iterator[str]:
        """Yield one message."""
        who = "user" if message.role == "user" else message.label
        yield f'<article class="said {message.role}"><div class="who">{self.line(who)}</div>\n'
        yield '<div class="body">\n'
        for part in message.blocks:
            yield from self._block(part)
        if message.partial:
            yield '<span class="broken">The answer breaks off here.</span>\n'
        yield "</div></article>\n"

    def _block(self, part: dict[str, Any]) -> Iterator[str]:
        kind = part.get("type")
        if kind == "image":
            yield self.image(part)
            return
        said = self.hidden(block_text(part))
        if kind == "reasoning":
            yield '<details class="thought"><summary>Reasoning '
            yield f'<span class="quiet">{text.count(len(said), "character")}</span></summary>'
            yield f'<div class="inside">{_pre(said)}</div></details>\n'
        elif kind == "text":
            yield from _prose(said)
        else:
            yield f'<div class="text quiet">{_escaped(said)}</div>\n'

    def image(self, part: dict[str, Any]) -> str:
        """Return an image block: the picture if its bytes are at hand, else what it was."""
        attachment = record(part.get("attachment"))
        data = read_image(self.images, attachment.get("attachmentId"))
        media_type = attachment.get("mediaType")
        name = self.line(block_text(part))
        if not data or media_type not in _IMAGE_TYPES:
            return f'<div class="text quiet">{name}</div>\n'
        encoded = base64.b64encode(data).decode("ascii")
        return f'<img alt="{name}" src="data:{media_type};base64,{encoded}">\n'

    def card(self, card: Card) -> Iterator[str]:
        """Yield one tool call with its result, closed until somebody opens it."""
        arguments = self._hidden_value(_parsed(card.arguments))
        asked = self.hidden(card.arguments) if arguments is None else _pretty(arguments)
        answer = self.hidden(contents_text([p for p in records(card.result) if p.get("type") != "image"]))
        state = _STATE_CLASSES.get(card.state, " odd")
        spent = None if card.started is None or card.ended is None else card.ended - card.started
        yield '<details class="call"><summary>'
        yield f'<span class="name">{self.line(card.name or "unnamed tool")}</span>'
        yield f'<span class="gist">{_escaped_line(_gist(arguments, asked))}</span>'
        if spent is not None:
            yield f'<span class="quiet">{text.duration(spent)}</span>'
        yield f'<span class="state{state}">{self.line(card.state)}</span></summary><div class="inside">\n'
        yield f'<div class="label">call {self.line(card.call_id)}</div>{_pre(asked)}'
        for diff in find_diffs(arguments, self._hidden_value(card.meta), answer):
            yield from _diff(diff)
        if card.result:
            yield f'<div class="label">result{f", {self.line(card.code)}" if card.code else ""}</div>'
            yield _pre(answer)
            for part in records(card.result):
                if part.get("type") == "image":
                    yield self.image(part)
        yield "</div></details>\n"

    def note(self, note: Note) -> str:
        """Return one note."""
        return f'<div class="note">{self.line(note.text)}</div>\n'

    def usage(self, usage: list[StepUsage]) -> Iterator[str]:
        """Yield a table of what the steps of a turn cost."""
        if not usage:
            return
        shown = [(key, name) for key, name in _COUNTS if any(key in entry.counts for entry in usage)]
        yield '<div class="usage"><table><tr><th>step</th><th>model</th>'
        yield "".join(f"<th>{name}</th>" for _, name in shown) + "</tr>"
        for entry in usage:
            step = "" if entry.step is None else str(entry.step)
            yield f"<tr><td>{step}</td><td>{self.line(entry.model)}</td>"
            yield "".join(f"<td>{_count(entry.counts.get(key))}</td>" for key, _ in shown) + "</tr>"
        yield "</table></div>\n"


def _escaped(shown: str) -> str:
    return escape(text.block(shown), quote=True)


def _escaped_line(shown: str) -> str:
    return escape(text.line(shown[:SHOWN]), quote=True)


def _prose(said: str) -> Iterator[str]:
    """Yield text with its fenced code set apart; nothing else of Markdown is read."""
    shown = said[:SHOWN]
    at = 0
    for fence in _FENCE.finditer(shown):
        yield _paragraph(shown[at : fence.start()])
        yield _pre(fence[2])
        at = fence.end()
    yield _paragraph(shown[at:]) + _cut_note(said)


def _paragraph(shown: str) -> str:
    body = shown.strip("\n")
    return f'<div class="text">{_escaped(body)}</div>\n' if body.strip() else ""


def _pre(said: str) -> str:
    body = said[:SHOWN].rstrip("\n")
    return f"<pre>{_escaped(body)}</pre>{_cut_note(said)}\n" if body.strip() else ""


def _diff(diff: FileDiff) -> Iterator[str]:
    yield f'<div class="label">changes{f" of {_escaped_line(diff.path)}" if diff.path else ""}</div>'
    yield '<pre class="diff">'
    for kind, line in diff.lines:
        yield f'<span class="{kind}">{_escaped_line(line)}</span>'
    yield "</pre>\n"


def _count(number: int | None) -> str:
    return "" if number is None else f"{number:,}"


def _parsed(arguments: str) -> Any:
    try:
        value = json.loads(arguments)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) and value else None


def _pretty(arguments: Any) -> str:
    return json.dumps(arguments, indent=2, ensure_ascii=False)


def _gist(arguments: Any, raw: str) -> str:
    """Return the beginning of what a call asks for: its only text, or all of it."""
    if isinstance(arguments, dict):
        texts = [value for value in arguments.values() if isinstance(value, str) and value.strip()]
        raw = texts[0] if texts else raw
    return text.summary(raw[: _GIST * 4], _GIST)


def _cut_note(said: str) -> str:
    if len(said) <= SHOWN:
        return ""
    return f'<div class="note">… {text.count(len(said), "character")} in all; the log holds the rest.</div>'
