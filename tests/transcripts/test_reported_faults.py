"""Reported faults of other tools, by id: what went wrong there does not go wrong in an export.

One function per case, in one table. The cases name the thread where the fault was reported.
"""

from __future__ import annotations

import io
import json
import tracemalloc
import zipfile
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

import turnlog
from tests.cli.logs import plant
from tests.reported_faults import ids_of, log_of
from tests.transcripts.markup_log import markup_log
from tests.transcripts.sdk_types import sdk_problems
from turnlog import Session, SessionEvent, interrupted_turn_closers
from turnlog.cli.main import main
from turnlog.errors import InvariantError
from turnlog.session.repair import TEXT_NOT_STARTED, TEXT_OUTCOME_UNKNOWN
from turnlog.testing.scripts import LogScript, append_live
from turnlog.transcripts import SHAPES, Conversation, Export, Limits, export, page, validate
from turnlog.transcripts.history import needed_events

KINDS = (
    "unanswered-tool-call",
    "orphan-tool-result",
    "reasoning-signature",
    "provider-shape",
    "replay-side-effects",
    "secret-exposure",
    "viewer",
    "history-loss",
    "size-limits",
)


def exports(source: Any, **options: Any) -> dict[str, Export]:
    """Export to every shape, each held to both validators."""
    found: dict[str, Export] = {shape: export(source, shape, **options) for shape in SHAPES}
    for shape, exported in found.items():
        assert validate(exported.shape, exported.request) == [], shape
        assert sdk_problems(exported.shape, exported.request) == [], shape
    return found


def rules(exported: Export) -> set[str]:
    """Return the rules that a report names."""
    return {change.rule for change in exported.report}


def said_next(events: list[SessionEvent], text: str) -> list[SessionEvent]:
    """Repair a log as a resume does, and let the user say something."""
    closed = [*events, *interrupted_turn_closers(events)]
    script = LogScript(first_seq=len(closed), turn=sum(e.type == "turn/start" for e in closed))
    return [*closed, *script.start().step().user(text).events]


def results(exported: Export) -> list[tuple[str, str, bool]]:
    """Return id, text and error flag of each result of an Anthropic export, in order."""
    blocks = [block for message in exported.messages for block in message["content"]]
    return [
        (block["tool_use_id"], block["content"][0]["text"], block.get("is_error", False))
        for block in blocks
        if block["type"] == "tool_result"
    ]


# -- unanswered-tool-call -------------------------------------------------------------------------


def uncall_01() -> None:
    events = said_next(log_of("uncall-01"), "Use the copy in staging instead")
    assert [e.type for e in events[5:8]] == ["tool/result", "step/end", "turn/end"]
    assert events[:5] == log_of("uncall-01")
    found = exports(events)
    assert results(found["anthropic"]) == [("c1", TEXT_OUTCOME_UNKNOWN, True)]
    for exported in found.values():
        text = json.dumps(exported.messages)
        assert text.count(TEXT_OUTCOME_UNKNOWN[:40]) == 1
        assert "Use the copy in staging instead" in text
    assert interrupted_turn_closers(events[:8]) == []


def uncall_02() -> None:
    events = log_of("uncall-02")
    found = exports(events)
    anthropic = found["anthropic"].messages
    assert [message["role"] for message in anthropic] == ["user", "assistant", "user"]
    assert results(found["anthropic"]) == [
        ("c1", "A ok", False),
        ("c2", TEXT_OUTCOME_UNKNOWN, True),
        ("c3", "C ok", False),
    ]
    chat = found["openai-chat"].messages
    assert [message["role"] for message in chat] == ["user", "assistant", "tool", "tool", "tool"]
    made_up = [change for change in found["anthropic"].report if change.rule == "result-made-up"]
    assert [change.detail for change in made_up] == ["c2"]


def uncall_03() -> None:
    events = log_of("uncall-03")
    codes = [e.data["error"]["code"] for e in interrupted_turn_closers(events) if e.type == "tool/result"]
    assert codes == ["TOOL_OUTCOME_UNKNOWN", "TOOL_NOT_STARTED"]
    found = exports(said_next(events, "Go on"))
    assert results(found["anthropic"]) == [
        ("k1", TEXT_OUTCOME_UNKNOWN, True),
        ("k2", TEXT_NOT_STARTED, True),
    ]


# -- orphan-tool-result ---------------------------------------------------------------------------


def orphan_01() -> None:
    script = LogScript().start().step().user("hi").result("toolu_x", "42").assistant("It is 42.")
    found = exports(script.end_step().end().events)
    assert found["anthropic"].messages == [
        {"role": "user", "content": [{"type": "text", "text": "hi"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "It is 42."}]},
    ]
    for exported in found.values():
        orphans = [change for change in exported.report if change.rule == "orphan-result"]
        assert [(change.seq, change.detail) for change in orphans] == [(3, "toolu_x")]


def orphan_03() -> None:
    session = Session.create("s")
    append_live(session, LogScript().start().step().user("x").events)
    before = session.seq
    stray = LogScript(turn=1, step=1).result("zz", "done").events[0]
    with pytest.raises(InvariantError, match="'zz'"):
        session.append(stray.type, stray.data, surface_op="append")
    assert session.seq == before
    # Where a log holds one all the same, as a seed may, an export copes with it.
    seeded = Session.create("t", seed=LogScript().start().step().user("x").result("zz").events, strict=False)
    assert all("orphan-result" in rules(exported) for exported in exports(seeded).values())


# -- reasoning-signature --------------------------------------------------------------------------


def reason_01() -> None:
    answer = export(log_of("reason-01"), "anthropic").messages[1]["content"]
    assert answer == [
        {"type": "thinking", "thinking": "17*23 = 391\n", "signature": "U0lHLUEtMDEyMzQ1Njc4OQ=="},
        {"type": "redacted_thinking", "data": "UkVE"},
        {"type": "tool_use", "id": "c1", "name": "calc", "input": {"e": "17*23"}},
    ]
    exports(log_of("reason-01"))
    emptied = [event.to_dict() for event in log_of("reason-01")]
    emptied[3]["data"]["message"]["content"][0]["text"] = ""
    passed = export(emptied, "anthropic").messages[1]["content"]
    assert passed[0] == {"type": "thinking", "thinking": "", "signature": "U0lHLUEtMDEyMzQ1Njc4OQ=="}
    del emptied[3]["data"]["message"]["content"][0]["signature"]
    unsigned = export(emptied, "anthropic")
    assert [block["type"] for block in unsigned.messages[1]["content"]] == ["tool_use"]
    assert "reasoning-left-out" in rules(unsigned)


def reason_03() -> None:
    events = said_next(log_of("reason-03", provider="openai"), "Go on")
    kept = exports(events)["openai-responses"]
    items = kept.messages
    assert [item.get("id") for item in items[:4]] == [None, "rs_1", "fc_1", None]
    assert items[1]["encrypted_content"] == "ZW5j"
    assert "rs_2" not in json.dumps(items)
    dropped = export(events, "openai-responses", reasoning="drop")
    text = json.dumps(dropped.messages)
    assert "rs_" not in text
    assert "fc_1" not in text
    assert [item["call_id"] for item in dropped.messages if item.get("type") == "function_call"] == ["call_1"]
    empty = [event.to_dict() for event in events]
    del empty[3]["data"]["message"]["content"][0]["encryptedContent"]
    assert not [
        item for item in export(empty, "openai-responses").messages if item.get("type") == "reasoning"
    ]


def reason_05() -> None:
    found = exports(log_of("reason-05"))
    parts = found["gemini"].messages[1]["parts"]
    assert [part.get("thoughtSignature") for part in parts] == ["c2lnLTE=", None]
    for shape in ("anthropic", "openai-chat", "openai-responses"):
        assert "c2lnLTE=" not in json.dumps(found[shape].request)


# -- provider-shape -------------------------------------------------------------------------------


def shape_01() -> None:
    found = exports(log_of("shape-01"))
    anthropic = found["anthropic"].messages
    assert [message["role"] for message in anthropic] == ["user", "assistant", "user"]
    blocks = anthropic[2]["content"]
    assert [block["type"] for block in blocks] == ["tool_result", "tool_result", "text"]
    assert [block["tool_use_id"] for block in blocks[:2]] == ["w1", "w2"]
    gemini = found["gemini"].messages[2]["parts"]
    assert [part["functionResponse"]["id"] for part in gemini if "functionResponse" in part] == ["w1", "w2"]
    chat = found["openai-chat"].messages
    assert [message["role"] for message in chat] == ["user", "assistant", "tool", "tool", "user"]


def shape_02() -> None:
    found = exports(log_of("shape-02"))
    for exported in found.values():
        text = json.dumps(exported.messages)
        assert "go on" in text
        assert "hello" in text
        assert {"blank-text", "empty-message"} <= rules(exported)
    empty_result = (
        LogScript().start().step().user("x").assistant("y", calls=["c"]).call("c").result("c", "").events
    )
    assert results(exports(empty_result)["anthropic"]) == [("c", "(no output)", False)]


def shape_04() -> None:
    script = LogScript().start().step().user("read note").assistant("", calls=["r1"])
    script.result("r1", "hi").result("r1", "hi").assistant("The note says hi.")
    gemini = exports(script.events)["gemini"]
    parts = [part for content in gemini.messages for part in content["parts"]]
    assert sum("functionCall" in part for part in parts) == 1
    assert sum("functionResponse" in part for part in parts) == 1
    assert [content["role"] for content in gemini.messages] == ["user", "model", "user", "model"]
    assert "duplicate-result" in rules(gemini)


# -- replay-side-effects --------------------------------------------------------------------------


def replay_01() -> None:
    script = LogScript().start().step().user("Send it").assistant("Sending.", calls=["s1"]).call("s1")
    before = [event.line for event in script.events]
    found = exports(script.events)
    # An export has nothing that it could run: it says that the outcome is unknown, and the log is as it was.
    assert results(found["anthropic"]) == [("s1", TEXT_OUTCOME_UNKNOWN, True)]
    assert [event.line for event in script.events] == before


# -- secret-exposure ------------------------------------------------------------------------------

SECRETS = [
    "sk-ant-" + "a" * 40,
    "ghp_" + "B" * 36,
    "AKIA" + "C" * 16,
    "xoxb-" + "1" * 12,
    "-----BEGIN PRIVATE KEY-----\nQUJD\n-----END PRIVATE KEY-----",
    "DB_PASSWORD=hunter2hunter2",
    "Authorization: Bearer " + "d" * 40,
]
TRACES = [secret.split("=")[-1].removeprefix("Authorization: Bearer ") for secret in SECRETS]
TRACES[4] = "QUJD"


def _secret_log(secret: str) -> list[SessionEvent]:
    script = LogScript().start().step()
    script.add(
        "session/title", {"title": f"Use {secret}", "messageSeqs": [3], "source": {"kind": "fallback"}}
    )
    script.user(f"Use {secret} please")
    half = len(secret) // 2
    script.chunks("It is ", secret[:half], secret[half:])
    content = [
        {"type": "reasoning", "text": f"The key {secret}", "signature": "U0c="},
        {"type": "text", "text": f"I use {secret}"},
        {"type": "tool-call", "id": "c", "name": "sh", "arguments": json.dumps({"cmd": secret, secret: "x"})},
    ]
    source = {"kind": "model", "provider": "anthropic", "model": "claude-opus-5-5"}
    message = {"role": "assistant", "content": content, "source": source, "id": "a"}
    script.add("assistant/message", {"turn": 1, "step": 1, "message": message}, surfaceOp="append")
    return script.call("c").result("c", f"env: {secret}").end_step().end().events


def secret_01(tmp_path: Path, run: Callable[..., str]) -> None:
    forms = [*SHAPES, "messages", "jsonl", "markdown", "html", "sft", "bundle"]
    for number, (secret, trace) in enumerate(zip(SECRETS, TRACES, strict=True)):
        _store(tmp_path, f"s{number}", _secret_log(secret), cwd="/home/alice/app")
        for form in forms:
            hidden = run("export", f"s{number}", "--format", form, "--redact")
            assert trace not in hidden, (form, secret)
            assert "redacted" in hidden, (form, secret)
            assert "alice" not in hidden, (form, secret)
            shown = run("export", f"s{number}", "--format", form, "--no-redact")
            assert trace in shown, (form, secret)
        for form in ("markdown", "html", "sft"):
            assert trace not in run("export", f"s{number}", "--format", form), "on by default"
    redacted = tmp_path / "redacted.jsonl"
    run("export", "s0", "--format", "jsonl", "--redact", "-o", redacted)
    assert main(["inspect", str(redacted)]) == 3
    bundle = tmp_path / "redacted.zip"
    run("export", "s0", "--format", "bundle", "--redact", "-o", bundle)
    assert main(["--store", f"jsonl:{tmp_path}/other", "import", str(bundle)]) == 2


# -- viewer ---------------------------------------------------------------------------------------

MARKUP = [
    "<img src=x onerror=window.__x=1>",
    "<script>window.__x=1</script>",
    "[a](javascript:window.__x=1)",
    "</script><svg onload=window.__x=1>",
    '"><b onmouseover=window.__x=1>',
    "\u202egnp.exe",
    "\x1b]8;;http://evil.invalid\x07x\x1b]8;;\x07",
]


TAGS = {
    "html",
    "head",
    "meta",
    "title",
    "style",
    "body",
    "div",
    "header",
    "h1",
    "h2",
    "ul",
    "li",
    "p",
    "nav",
    "details",
    "summary",
    "ol",
    "a",
    "span",
    "main",
    "section",
    "article",
    "pre",
    "table",
    "tr",
    "th",
    "td",
    "footer",
}
ATTRIBUTES = {"lang", "charset", "http-equiv", "content", "name", "class", "id", "href", "open", "aria-label"}


class PageReader(HTMLParser):
    """Collects what a browser would make of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}
        assert all(value.startswith("#t") for name, value in attrs if name == "href" and value is not None)

    def handle_data(self, data: str) -> None:
        self.text += data


def view_01() -> None:
    for said in MARKUP:
        conversation = Conversation.of(markup_log(said))
        html = "".join(page(conversation, session_id=said, facts=[f"in /{said}"], notice=said))
        read = PageReader()
        read.feed(html)
        assert read.tags <= TAGS
        assert read.attributes <= ATTRIBUTES
        assert not {"\u202e", "\x1b"} & set(html)
        shown = said.replace("\x1b", "\\x1b").replace("\x07", "\\x07").replace("\u202e", "\\u202e")
        assert read.text.count(shown) > 30, "shown literally, in every place"
    # That nothing runs in a browser either is shown in `test_browser.py`.


def view_02() -> None:
    # A page is a file: there is no stream to repeat. A text of any size costs the page a bounded preview.
    conversation = Conversation.of(LogScript().start().step().user("x" * 28_000_000).events)
    html = "".join(page(conversation, session_id="s"))
    assert len(html) < 1_000_000
    assert "28,000,000 characters in all" in html


# -- history-loss ---------------------------------------------------------------------------------


def loss_01() -> None:
    script = LogScript()
    for number in range(20):
        script.turn(f"question {number}")
    before = export(script.events, "anthropic")
    script.add("compaction/start", {"compactionId": "k", "turn": None})
    # A summary that never came leaves the export as it was.
    assert export(script.events, "anthropic") == before
    nodes = [event.seq for event in script.events if event.surface_op == "append"]
    message = {
        "content": [{"type": "text", "text": "We asked questions."}],
        "source": {"kind": "plugin", "plugin": "compact", "compactionId": "k"},
        "role": "user",
        "id": "sum",
    }
    op = {"op": "replace", "start": nodes[0], "end": nodes[-3]}
    script.add("user/message", message, surfaceOp=op, sourceEventSeqs=nodes[:-2])
    after = exports(script.events)["anthropic"].messages
    assert after[0]["content"][0]["text"] == "We asked questions."
    assert "question 19" in json.dumps(after)
    assert "question 3" not in json.dumps(after)
    assert len([event for event in script.events if event.type == "user/message"]) == 21


def loss_02(tmp_path: Path, run: Callable[..., str]) -> None:
    # An export reads and deletes nothing, however old a session is.
    _store(tmp_path, "old", LogScript().turn().events, time_shift=-400 * 86_400_000)
    files = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    for form in (*SHAPES, "messages", "jsonl", "markdown", "html", "sft", "bundle"):
        assert run("export", "old", "--format", form)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == files


def loss_04() -> None:
    events = said_next(log_of("loss-04"), "Continue from there")
    for exported in exports(events).values():
        text = json.dumps(exported.messages)
        assert "First, open the" in text
        assert "Continue from there" in text
        assert "partial-answer" in rules(exported)
    html = "".join(page(Conversation.of(events), session_id="s"))
    assert "First, open the" in html
    assert "The answer breaks off here." in html


# -- size-limits ----------------------------------------------------------------------------------


def size_01() -> None:
    big = "d" * 12_800_000
    script = LogScript().start().step().user("x").assistant("y", calls=["c"]).call("c").result("c", big)
    events = script.end_step().end().events
    tracemalloc.start()
    exported = export(events, "anthropic")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 6 * len(big)
    assert results(exported)[0][1] == big, "the text is intact where the provider takes it"
    chat = export(events, "openai-chat")
    assert "text-cut" in rules(chat), "OpenAI takes ten MiB characters of one text"
    assert validate("openai-chat", chat.request) == []


def size_02() -> None:
    # Chunks that an answer supersedes are never decoded: the export costs by messages, not by deltas.
    script = LogScript()
    for _ in range(20):
        script.start().step().user("q").chunks(*["token "] * 500).assistant("a").end_step().end()
    log = turnlog.Session.create("s", seed=script.events, strict=False).log
    assert sum(event.type == "assistant/chunk" for event in needed_events(log)) == 0
    assert len(export(log, "anthropic").messages) == 40


def size_03() -> None:
    events = said_next(log_of("size-03"), "still there?")
    images = {"sha256:" + "0" * 64: b"x" * 6_000_000}
    found = exports(events, images=images, limits=Limits(max_image_side=2000, max_image_bytes=5_000_000))
    for exported in found.values():
        text = json.dumps(exported.messages)
        assert "image, 1170 × 2532 pixels: left out" in text.encode().decode("unicode_escape")
        assert "hello?" in text
        assert "image-left-out" in rules(exported)
    session = Session.create("s", seed=events, strict=False)
    session.replace_block(1, 1)
    assert "[content removed]" in json.dumps(exports(session, images=images)["anthropic"].messages)
    pdf = {"type": "file", "attachment": {"attachmentId": "x", "mediaType": "application/pdf", "bytes": 20}}
    script = LogScript().start().step().user("x").assistant("y", calls=["c"]).call("c").result("c")
    raw = [event.to_dict() for event in script.events]
    raw[-1]["data"]["message"]["content"][0]["content"] = [pdf]
    assert all("unknown-block" in rules(exported) for exported in exports(raw).values())


# -- the table ------------------------------------------------------------------------------------

CASES: dict[str, Callable[..., None]] = {
    "uncall-01": uncall_01,
    "uncall-02": uncall_02,
    "uncall-03": uncall_03,
    "orphan-01": orphan_01,
    "orphan-03": orphan_03,
    "reason-01": reason_01,
    "reason-03": reason_03,
    "reason-05": reason_05,
    "shape-01": shape_01,
    "shape-02": shape_02,
    "shape-04": shape_04,
    "size-01": size_01,
    "size-02": size_02,
    "size-03": size_03,
    "loss-01": loss_01,
    "loss-04": loss_04,
    "replay-01": replay_01,
    "view-01": view_01,
    "view-02": view_02,
}
WITH_A_STORE: dict[str, Callable[..., None]] = {"secret-01": secret_01, "loss-02": loss_02}
OTHER_SIDE = {
    "size-04": "lookups in a store with many sessions; an export is handed the events of one",
}
"""Cases of these kinds in which an export has no part, with the reason."""


@pytest.mark.parametrize("case_id", CASES)
def test_reported_fault(case_id: str) -> None:
    """A fault reported for another tool has its right outcome here."""
    CASES[case_id]()


@pytest.mark.parametrize("case_id", WITH_A_STORE)
def test_reported_fault_on_the_command_line(
    case_id: str, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """A fault that shows in files has its right outcome, too."""

    def run(*arguments: object) -> str:
        capfdbinary.readouterr()
        code = main(["--store", f"jsonl:{tmp_path}/store", "-q", *map(str, arguments)])
        out = capfdbinary.readouterr().out
        assert code == 0, arguments
        if out.startswith(b"PK"):
            return _zip_text(out)
        return out.decode()

    WITH_A_STORE[case_id](tmp_path, run)


def test_table_is_whole() -> None:
    """Every case of the kinds is in the table or names the reason why an export has no part in it."""
    assert set(CASES) | set(WITH_A_STORE) | set(OTHER_SIDE) == set(ids_of(*KINDS))


def _zip_text(data: bytes) -> str:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return "".join(archive.read(name).decode() for name in archive.namelist())


def _store(
    folder: Path, session_id: str, events: list[SessionEvent], *, cwd: str = "/srv/app", time_shift: int = 0
) -> None:
    shifted = [SessionEvent.from_dict(e.to_dict() | {"time": e.time + time_shift}) for e in events]
    plant(folder / "store", session_id, shifted, cwd=cwd)
