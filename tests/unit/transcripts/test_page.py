"""The HTML page without a browser: structure, policy, diffs, cuts, images and usage."""

from __future__ import annotations

import json
from typing import Any

import pytest

from turnlog import SessionEvent
from turnlog.testing.scripts import LogScript
from turnlog.transcripts import Conversation, Redactor, page
from turnlog.transcripts.diffs import MAX_LINES, compare, find_diffs
from turnlog.transcripts.html_page import policy
from turnlog.transcripts.page_parts import SHOWN
from turnlog.transcripts.page_style import BAR_STEPS, style, style_digest


def html_of(events: list[SessionEvent], **options: Any) -> str:
    """Return the page of a log."""
    return "".join(page(Conversation.of(events), **{"session_id": "s", **options}))


def edit_log(arguments: object, result: str = "ok", meta: object = None) -> list[SessionEvent]:
    """Return a log with one call that changes a file."""
    script = LogScript().start().step().user("x").assistant("y", calls=["c"])
    script.call("c").result("c", result)
    raw = [event.to_dict() for event in script.events]
    raw[3]["data"]["message"]["content"][1]["arguments"] = json.dumps(arguments)
    if meta is not None:
        raw[5]["data"]["meta"] = meta
    return [SessionEvent.from_dict(event) for event in raw]


def test_policy_names_the_style_sheet() -> None:
    """The policy allows the page's own style by digest, images as data, and nothing else."""
    html = html_of(LogScript().turn().events)
    assert f'content="{policy()}"' in html
    assert f"<style>{style()}</style>" in html
    assert style_digest() in policy()
    assert "unsafe" not in policy()
    assert "script" not in policy().replace("default-src", "")
    assert all(f".b{step} " in style() for step in range(1, BAR_STEPS + 1))


def test_page_shows_the_conversation() -> None:
    """Title, facts, turns, calls, the end of a turn and what was interrupted are all on the page."""
    script = LogScript().turn("Which tests fail?", calls=["c-1"])
    script.add("session/title", {"title": "Find tests", "messageSeqs": [], "source": {"kind": "user"}})
    script.start().step().user("And?").chunks("Half an ans")
    html = html_of(script.events, facts=["in /srv/app"], notice="Marked.")
    for shown in ("<title>Find tests</title>", "<li>in /srv/app</li>", "Marked.", "Turn 2", "Half an ans"):
        assert shown in html
    assert "The answer breaks off here." in html
    assert "has no end in the log" in html
    assert "<li>2 turns</li><li>1 tool call</li>" in html
    assert html_of([]).count("The session has no events to show.") == 1


def test_usage_is_shown_per_step_and_in_all() -> None:
    """What each step cost is in a table of its turn; the head has the sums, cached input included."""
    script = LogScript().start()
    for number in (1, 2):
        script.step().user("x")
        source = {"kind": "model", "provider": "acme", "model": "a1"}
        message = {
            "role": "assistant",
            "content": [{"type": "text", "text": "y"}],
            "source": source,
            "id": "a",
        }
        usage = {"inputTokens": 1000 * number, "outputTokens": 7, "cacheReadTokens": 500, "odd": "x"}
        data = {"turn": 1, "step": number, "message": message, "usage": usage}
        script.add("assistant/message", data, surfaceOp="append").end_step()
    html = html_of(script.end().events)
    assert "<tr><td>2</td><td>acme/a1</td><td>2,000</td><td>500</td><td>7</td></tr>" in html
    assert "<li>4,000 tokens in, 14 out</li>" in html


@pytest.mark.parametrize(
    ("arguments", "meta", "result"),
    [
        ({"path": "a.py", "old_string": "x\ny", "new_string": "x\nz"}, None, "ok"),
        ({"file_path": "a.py", "oldText": "x\ny", "newText": "x\nz"}, None, "ok"),
        ({"path": "a.py", "edits": [{"old_str": "x\ny", "new_str": "x\nz"}]}, None, "ok"),
        ({"cmd": "edit"}, {"diffs": [{"path": "a.py", "oldText": "x\ny", "newText": "x\nz"}]}, "ok"),
        ({"cmd": "edit"}, {"path": "a.py", "diff": "--- a.py\n+++ a.py\n@@ -1,2 +1,2 @@\n x\n-y\n+z"}, "ok"),
    ],
)
def test_changes_of_files_are_shown_as_diffs(arguments: object, meta: object, result: str) -> None:
    """Edits are found in what the tool left and in the arguments, whatever the tool calls them."""
    html = html_of(edit_log(arguments, result, meta))
    assert "changes of a.py" in html
    assert '<span class="removed">y</span>' in html
    assert '<span class="added">z</span>' in html
    assert '<span class="kept">x</span>' in html


def test_diff_in_a_result_is_coloured() -> None:
    """A unified diff that a tool printed is shown as one."""
    html = html_of(edit_log({"cmd": "git diff"}, "diff --git a b\n--- a\n+++ b\n@@ -1 +1 @@\n-old\n+new"))
    assert '<span class="removed">old</span>' in html


@pytest.mark.parametrize(
    "odd", [None, [], "x", {"new_string": 1}, {"diffs": "x"}, {"diff": 1}, {"edits": [1]}]
)
def test_other_shapes_are_no_diffs(odd: object) -> None:
    """What does not look like an edit is shown as it is."""
    assert find_diffs(odd, odd, "plain @@ text") == []


def test_new_files_and_long_files_are_compared() -> None:
    """A new file is all added lines; files too long to compare are shown one after the other."""
    assert find_diffs({"path": "a", "newText": "x", "oldText": None}, None, "")[0].lines[-1] == ("added", "x")
    long = "\n".join("x" for _ in range(MAX_LINES + 1))
    rows = compare("a", long)
    assert rows[0] == ("removed", "a")
    assert len(rows) == MAX_LINES + 2


def test_long_texts_are_cut_and_secrets_in_them_are_not_halved() -> None:
    """A preview says how much there is, and a secret across its end is marked before it is cut."""
    secret = "sk-" + "a" * 40
    text = "x " * (SHOWN // 2 - 5) + secret + " y" * 100
    html = html_of(LogScript().start().step().user(text).events, redactor=Redactor())
    assert "in all; the log holds the rest." in html
    assert "sk-a" not in html
    assert len(html) < SHOWN + 20_000


def test_secret_across_lines_is_marked_in_diffs_and_fences() -> None:
    """A key of several lines is marked as a whole wherever the page would show it line by line."""
    key = "-----BEGIN PRIVATE KEY-----\nQUJD\n-----END PRIVATE KEY-----"
    edit = {"path": "k", "old_string": "", "new_string": key}
    events = edit_log(edit, f"@@ x @@\n--- k\n+{key}", {"diff": f"@@\n{key}"})
    script = LogScript(len(events), turn=1, step=1).assistant(f"```\n{key}\n```")
    html = html_of([*events, *script.events], redactor=Redactor())
    assert "QUJD" not in html
    assert "[redacted:private-key]" in html


def test_images_are_shown_by_bytes_or_name() -> None:
    """An image with bytes is a picture, any other is named; no other type of data becomes one."""
    attachment = {"attachmentId": "sha256:i", "mediaType": "image/png", "bytes": 4, "width": 1, "height": 1}
    message = {"content": [{"type": "image", "attachment": attachment}], "source": {"kind": "user"}}
    script = LogScript().start().step()
    script.add("user/message", {**message, "role": "user", "id": "u"}, surfaceOp="append")
    assert 'src="data:image/png;base64,iVBORw=="' in html_of(script.events, images={"sha256:i": b"\x89PNG"})
    assert "[image sha256:i, image/png, 4 B]" in html_of(script.events)
    attachment["mediaType"] = "text/html"
    odd = LogScript().start().step()
    odd.add("user/message", {**message, "role": "user", "id": "u"}, surfaceOp="append")
    assert "data:" not in html_of(odd.events, images={"sha256:i": b"<b>"}).replace("img-src data:", "")


def test_fenced_code_stands_apart() -> None:
    """Fenced code is preformatted; everything else of Markdown is shown as it was written."""
    html = html_of(LogScript().start().step().user("a *b*\n```py\nx = 1\n```\nc\n~~~\nopen").events)
    assert '<div class="text">a *b*</div>' in html
    assert "<pre>x = 1</pre>" in html
    assert "<pre>open</pre>" in html
