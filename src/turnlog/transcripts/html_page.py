"""The conversation as one HTML file for people: no script, no reference to anything outside of it.

Owns the document around the items and its content security policy. Whatever a log says is shown, never run:
texts are escaped, and the policy forbids scripts, frames, forms, fonts and any request.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from turnlog.transcripts import text
from turnlog.transcripts.conversation import Card, Conversation, Message, Note, Turn
from turnlog.transcripts.images import Images
from turnlog.transcripts.page_parts import Writer
from turnlog.transcripts.page_style import BAR_STEPS, style, style_digest
from turnlog.transcripts.redaction import Redactor


def policy() -> str:
    """Return the content security policy of every page."""
    return (
        f"default-src 'none'; img-src data:; style-src '{style_digest()}'; "
        "base-uri 'none'; form-action 'none'"
    )


def page(
    conversation: Conversation,
    *,
    session_id: str,
    facts: Sequence[str] = (),
    notice: str | None = None,
    redactor: Redactor | None = None,
    images: Images | None = None,
) -> Iterator[str]:
    """Write a conversation as an HTML document.

    Args:
        conversation: The folded log.
        session_id: Shown in the document's head.
        facts: Short statements for the document's head, such as its status.
        notice: A statement that stands out, such as that secrets are marked.
        redactor: Marks secrets, or None.
        images: Bytes by attachment id; an image without bytes is shown by its name.

    Yields:
        Pieces of the document, to be joined without anything between.
    """
    writer = Writer(redactor, images)
    title = writer.line(conversation.title or f"Session {session_id}")
    yield '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
    yield f'<meta http-equiv="Content-Security-Policy" content="{policy()}">\n'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
    yield '<meta name="referrer" content="no-referrer">\n<meta name="color-scheme" content="light dark">\n'
    yield f'<title>{title}</title>\n<style>{style()}</style>\n</head>\n<body>\n<div class="frame">\n'
    yield f'<header><h1>{title}</h1>\n<ul class="facts"><li>session {writer.line(session_id)}</li>'
    yield "".join(f"<li>{writer.line(fact)}</li>" for fact in (*facts, *_figures(conversation))) + "</ul>\n"
    if notice is not None:
        yield f'<p class="notice">{writer.line(notice)}</p>\n'
    yield "</header>\n"
    yield from _timeline(conversation)
    yield "<main>\n"
    for place, turn in enumerate(conversation.turns):
        yield from _turn(turn, place, writer)
    if not conversation.turns:
        yield '<p class="quiet">The session has no events to show.</p>\n'
    yield "</main>\n"
    yield "<footer>Made by turnlog. Nothing in this file is executed and nothing is loaded.</footer>\n"
    yield "</div>\n</body>\n</html>\n"


def _figures(conversation: Conversation) -> list[str]:
    turns = sum(turn.number is not None for turn in conversation.turns)
    calls = sum(isinstance(item, Card) for turn in conversation.turns for item in turn.items)
    usage = [entry.counts for turn in conversation.turns for entry in turn.usage]
    figures = [text.count(turns, "turn"), text.count(calls, "tool call")]
    if usage:
        read = sum(
            counts.get(key, 0)
            for counts in usage
            for key in ("inputTokens", "cacheReadTokens", "cacheWriteTokens")
        )
        figures.append(f"{read:,} tokens in, {sum(counts.get('outputTokens', 0) for counts in usage):,} out")
    return figures


def _spent(turn: Turn) -> int | None:
    return None if turn.started is None or turn.ended is None else max(0, turn.ended - turn.started)


def _timeline(conversation: Conversation) -> Iterator[str]:
    """Yield the list of turns with a bar for how long each took."""
    longest = max((_spent(turn) or 0 for turn in conversation.turns), default=0)
    yield '<nav aria-label="Turns"><details open><summary>Timeline</summary><ol>\n'
    for place, turn in enumerate(conversation.turns):
        if turn.number is None:
            continue
        spent = _spent(turn)
        step = 0 if not longest or spent is None else max(1, round(spent / longest * BAR_STEPS))
        bar = f'<span class="b{step}"></span>' if step else ""
        yield f'<li class="{_look(turn)}"><a href="#t{place}"><span>{turn.number}</span>'
        yield f'<span class="bar">{bar}</span><span>{text.duration(spent)}</span></a></li>\n'
    yield "</ol></details></nav>\n"


def _look(turn: Turn) -> str:
    if turn.end == "completed":
        return ""
    return "error" if turn.end == "error" else "odd"


def _turn(turn: Turn, place: int, writer: Writer) -> Iterator[str]:
    yield f'<section id="t{place}">\n'
    if turn.number is not None:
        yield f'<div class="turn"><h2>Turn {turn.number}</h2>'
        when = f"{text.clock(turn.started)} UTC · {text.duration(_spent(turn))}"
        yield f'<span class="quiet">{when}</span></div>\n'
    for item in turn.items:
        match item:
            case Message():
                yield from writer.message(item)
            case Card():
                yield from writer.card(item)
            case Note():
                yield writer.note(item)
    yield from writer.usage(turn.usage)
    if turn.number is not None and turn.end != "completed":
        detail = f" ({turn.end_detail})" if turn.end_detail else ""
        end = "has no end in the log" if turn.end is None else f"ended: {turn.end}{detail}"
        yield f'<p class="end {_look(turn)}">Turn {turn.number} {writer.line(end)}</p>\n'
    yield "</section>\n"
