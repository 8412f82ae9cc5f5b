"""Markdown export: what a log says stays Markdown and never becomes HTML or structure of its own."""

from __future__ import annotations

import re

import pytest

from turnlog.transcripts.conversation import Card, Conversation, Message, Turn
from turnlog.transcripts.markdown import document, neutral


@pytest.mark.parametrize(
    "said",
    [
        "<script>alert(1)</script>",
        "a <b>x</b> </details> <!-- y --> <?php ?> <http://x>",
        "- item\n  ```\n<script>",  # a fence inside a list item ends with it
        "> ```\n<script>",
        "``` a`b\n<script>",  # no fence: the info text holds a backtick
        "~~~x\ncode\n~~~ no end\n~~~\n<script>",
        "````\n```\n````\n<script>",
        "```\ncode\n   ```  \n<script>",
        "``<script>",
    ],
)
def test_no_tag_outside_fences(said: str) -> None:
    """A `<` that could open a tag is escaped wherever a renderer could see one."""
    shown = neutral(said)
    assert not re.search(r"<(script|b|/|!|\?|http)", shown)


def test_code_in_a_fence_is_untouched() -> None:
    """Inside a fence of the first column text is code already."""
    assert neutral("see:\n```html\n<b>x</b>\n```\n1 < 2") == "see:\n```html\n<b>x</b>\n```\n1 < 2"


@pytest.mark.parametrize(("said", "end"), [("```\nx", "```"), ("~~~~\nx\n~~~", "~~~~")])
def test_open_fence_is_closed(said: str, end: str) -> None:
    """What follows a message is not swallowed by a fence that it left open."""
    assert neutral(said).split("\n")[-1] == end


def test_document_fences_results_and_escapes_names() -> None:
    """Results with fences in them, hostile names and control characters stay inside their place."""
    card = Card(
        0, "c`1", "`rm`\n# x", "{}", state="failed", result=[{"type": "text", "text": "a\n```\n# b\x1b[2J"}]
    )
    said = Message(1, 0, "assistant", "<b>_x_", [{"type": "text", "text": "hi <i>"}], partial=True)
    conversation = Conversation()
    conversation.title = "T <b> *x*"
    conversation.turns.append(Turn(1, items=[said, card], end="interrupted"))
    shown = "".join(document(conversation, session_id="s\n# y", facts=["in /a_b"]))
    assert shown.startswith("# T \\<b\\> \\*x\\*\n\n- session `s\\n# y`\n- in /a\\_b\n")
    assert "**\\<b\\>\\_x\\_**\n\nhi &lt;i>\n\n*The answer breaks off here.*\n" in shown
    assert "**Tool** `` `rm`\\n# x `` ``c`1``: failed\n" in shown
    assert "````\na\n```\n# b\\x1b[2J\n````\n" in shown
    assert shown.endswith("*Turn 1 ended: interrupted*\n")
