"""The conversation as a Markdown document.

Owns that one format. Text from the log keeps its Markdown but loses the power to be HTML: outside fenced
code every `<` that could open a tag is escaped, and a fence left open is closed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from turnlog.transcripts import text
from turnlog.transcripts.blocks import block_text, contents_text
from turnlog.transcripts.conversation import Card, Conversation, Message, Note, Turn
from turnlog.transcripts.redaction import Redactor

Hide = Callable[[str], str]

# Only fences in the first column: an indented one may belong to a list item and end with it.
_FENCE_OPEN = re.compile(r"(`{3,})[^`]*$|(~{3,}).*$")
_FENCE_CLOSE = re.compile(r" {0,3}(`{3,}|~{3,})[ \t]*$")
_TAG = re.compile(r"<(?=[A-Za-z/!?])")
# A target that runs code: the bracket before it is escaped, so that no renderer makes a link of it.
_LINK = re.compile(r"\](?=[(:]\s*<?\s*(?:javascript|vbscript|data)\s*:)", re.IGNORECASE)


def document(
    conversation: Conversation, *, session_id: str, facts: Sequence[str], redactor: Redactor | None = None
) -> Iterator[str]:
    """Write a conversation as Markdown.

    Args:
        conversation: The folded log.
        session_id: Shown in the document's head.
        facts: Short statements for the document's head, such as its status.
        redactor: Marks secrets, or None.

    Yields:
        Pieces of the document; joined without anything between, they end in one newline.
    """
    hide: Hide = str if redactor is None else redactor.text
    yield f"# {_inline(hide(conversation.title or 'Session ' + session_id))}\n\n"
    yield f"- session {_code(hide(session_id))}\n"
    for fact in facts:
        yield f"- {_inline(hide(fact))}\n"
    for turn in conversation.turns:
        yield from _turn(turn, hide)


def _turn(turn: Turn, hide: Hide) -> Iterator[str]:
    if turn.number is not None:
        yield f"\n## Turn {turn.number}\n"
    for item in turn.items:
        yield "\n"
        match item:
            case Message():
                yield from _message(item, hide)
            case Card():
                yield from _card(item, hide)
            case Note():
                yield f"*{_inline(hide(item.text))}*\n"
    if turn.number is not None and turn.end != "completed":
        detail = f" ({turn.end_detail})" if turn.end_detail else ""
        end = "has no end in the log" if turn.end is None else f"ended: {turn.end}{detail}"
        yield f"\n*Turn {turn.number} {_inline(hide(end))}*\n"


def _message(message: Message, hide: Hide) -> Iterator[str]:
    yield f"**{_inline('User' if message.role == 'user' else hide(message.label))}**\n\n"
    for part in message.blocks:
        said = hide(block_text(part))
        if part.get("type") == "reasoning":
            yield "<details><summary>Reasoning</summary>\n\n" + _fenced(said) + "\n</details>\n\n"
        else:
            yield neutral(said).rstrip("\n") + "\n"
    if message.partial:
        yield "\n*The answer breaks off here.*\n"


def _card(card: Card, hide: Hide) -> Iterator[str]:
    yield f"**Tool** {_code(hide(card.name or 'unnamed'))} {_code(hide(card.call_id))}: {card.state}\n"
    if card.arguments:
        yield "\n" + _fenced(hide(card.arguments), "json")
    answer = hide(contents_text(card.result))
    if answer:
        yield "\n" + _fenced(answer)


def neutral(said: str) -> str:
    """Return Markdown text without raw HTML and with every fence closed.

    Args:
        said: Text from a log.

    Returns:
        The text, safe to place in a larger document.
    """
    out: list[str] = []
    fence = ""
    for row in text.block(said).split("\n"):
        if not fence:
            opening = _FENCE_OPEN.match(row)
            if opening:
                fence = opening.group(1) or opening.group(2)
                out.append(row.replace("<", "&lt;"))
            else:
                out.append(_LINK.sub(r"\\\g<0>", _TAG.sub("&lt;", row)))
            continue
        out.append(row)
        closing = _FENCE_CLOSE.match(row)
        if closing and closing.group(1)[0] == fence[0] and len(closing.group(1)) >= len(fence):
            fence = ""
    if fence:
        out.append(fence)
    return "\n".join(out)


def _fenced(said: str, language: str = "") -> str:
    body = text.block(said).rstrip("\n")
    longest = max((len(run) for run in re.findall(r"`+", body)), default=0)
    ticks = "`" * max(3, longest + 1)
    return f"{ticks}{language}\n{body}\n{ticks}\n"


def _inline(said: str) -> str:
    return re.sub(r"([\\`*_\[\]<>#])", r"\\\1", text.line(said))


def _code(said: str) -> str:
    shown = text.line(said)
    longest = max((len(run) for run in re.findall(r"`+", shown)), default=0)
    ticks = "`" * (longest + 1)
    pad = " " if shown.startswith("`") or shown.endswith("`") else ""
    return f"{ticks}{pad}{shown}{pad}{ticks}"
