"""Logs that a session accepts and no provider would: everything an export has to cope with, drawn at random.

Owns the strategy. Every log is made by a real `Session`, so nothing in it is beyond what a session takes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hypothesis import strategies as st

from turnlog import Session, SessionEvent
from turnlog.errors import InvalidEventError
from turnlog.testing.json_strategies import json_objects, texts

Draw = Callable[[st.SearchStrategy[Any]], Any]

IDS = ["c-1", "c-2", "c 2", "", "call/3", "x" * 80, "ключ", "toolu_01", "c-1"]
NAMES = ["shell", "read file", "", "9lives", "naïve", "x" * 90, "a.b"]
SOURCES = [
    ("anthropic", "claude-opus-5-5-20261101"),
    ("anthropic", "claude-haiku-5-5"),
    ("openai", "gpt-5-2025-08-07"),
    ("google", "gemini-3-pro-preview"),
    ("acme", "a1"),
]
ARGUMENTS = [
    '{"cmd":"ls"}', "{}", "", "  ", "{", "[1]", "null", '{"a":NaN}', '{"a":1e999}', '{"a":"\\ud83d"}', "text",
    '{"a":' * 70 + "1" + "}" * 70, '{"a":1,"a":2}', '{"big":123456789012345678901234567890}', '{"é":"😀"}',
]  # fmt: skip


def _text(draw: Draw) -> Any:
    return draw(
        st.one_of(texts(12), st.sampled_from(["", " ", "\n\n", "ok ", "\ud83d", "a\x00b", "<b>x</b>"]))
    )


def _replay(draw: Draw) -> Any:
    return draw(
        st.sampled_from(
            [
                {},
                {"signature": "U0lH"},
                {"signature": ""},
                {"redactedData": "UkVE"},
                {"itemId": "rs_1", "summary": [], "encryptedContent": "ZW5j"},
                {"itemId": f"rs_{draw(st.integers(0, 999))}", "encryptedContent": "ZW5j"},
                {"itemId": "bad", "encryptedContent": "x"},
                {"itemId": f"fc_{draw(st.integers(0, 999))}"},
                {"thoughtSignature": "c2ln"},
                {"thoughtSignature": "no base64!"},
                {"thoughtSignature": 7},
            ]
        )
    )


def _image(draw: Draw) -> dict[str, Any]:
    attachment = {
        "attachmentId": draw(st.sampled_from(["sha256:known", "sha256:unknown"])),
        "mediaType": draw(st.sampled_from(["image/png", "image/gif", "image/tiff"])),
        "bytes": draw(st.sampled_from([10, 10**9])),
        "width": draw(st.sampled_from([10, 9000])),
        "height": 20,
    }
    return {"type": "image", "attachment": attachment}


def _block(draw: Draw) -> Any:
    kind = draw(st.integers(0, 9))
    if kind < 4:
        return {"type": "text", "text": _text(draw)}
    if kind < 6:
        return {"type": "reasoning", "text": _text(draw), **_replay(draw)}
    if kind == 6:
        return _image(draw)
    if kind == 7:
        return {"type": "hologram", "data": "??"}
    if kind == 8:
        return {"type": "tool-result", "toolCallId": draw(st.sampled_from(IDS)), "content": []}
    return draw(st.one_of(json_objects(4), st.none(), texts(4)))


def _blocks(draw: Draw) -> list[Any]:
    return [_block(draw) for _ in range(draw(st.integers(0, 3)))]


def _call_block(draw: Draw) -> dict[str, Any]:
    return {
        "type": "tool-call",
        "id": draw(st.sampled_from(IDS)),
        "name": draw(st.sampled_from(NAMES)),
        "arguments": draw(st.sampled_from(ARGUMENTS)),
        **_replay(draw),
    }


def _assistant(draw: Draw, turn: int, step: int, seq: int) -> dict[str, Any]:
    # An answer is stored with objects as blocks.
    content = [block for block in _blocks(draw) if isinstance(block, dict)]
    content += [_call_block(draw) for _ in range(draw(st.integers(0, 3)))]
    provider, model = draw(st.sampled_from(SOURCES))
    source: dict[str, Any] = {"kind": "model", "provider": provider, "model": model}
    if draw(st.booleans()):
        source["replayState"] = {"response": {}, "blocks": [_replay(draw) or None for _ in content]}
    message = {"role": "assistant", "content": content, "source": source, "id": f"a-{seq}"}
    return {"turn": turn, "step": step, "message": message}


def _result(draw: Draw, turn: int, step: int, seq: int) -> dict[str, Any]:
    call_id = draw(st.sampled_from([i for i in IDS if i]))
    block = {
        "type": "tool-result",
        "toolCallId": call_id,
        "content": _blocks(draw),
        "isError": draw(st.booleans()),
    }
    source = {"kind": "tool", "callId": call_id}
    message = {"source": source, "content": [block], "role": "user", "id": f"t-{seq}"}
    return {"turn": turn, "step": step, "message": message}


def _user(draw: Draw, seq: int) -> dict[str, Any]:
    source = draw(st.sampled_from([{"kind": "user"}, {"kind": "plugin", "plugin": "p"}, {"kind": "martian"}]))
    return {"content": _blocks(draw), "source": source, "role": "user", "id": f"u-{seq}"}


def _header(draw: Draw) -> dict[str, Any]:
    provider, model = draw(st.sampled_from(SOURCES))
    config: dict[str, Any] = {"provider": provider, "model": model}
    config |= draw(
        st.sampled_from(
            [
                {},
                {"maxTokens": 4096, "temperature": 0.5, "stop": ["END"]},
                {"maxTokens": 0, "temperature": 7, "stop": ["", " ", "a", "b", "c", "d", "e", "f"]},
                {"maxTokens": "many", "stop": "x", "reasoningEffort": "high"},
                {"reasoningEffort": "ludicrous"},
            ]
        )
    )
    header: dict[str, Any] = {"config": config, "system": _text(draw)}
    names = draw(st.lists(st.sampled_from(NAMES), max_size=3))
    header["tools"] = [
        {
            "name": name,
            "description": _text(draw),
            "parameters": draw(st.sampled_from([{"type": "object"}, {}, {"type": "string"}])),
        }
        for name in names
    ]
    return {"header": header, "reason": "initial"}


class _Writer:
    """Appends to a session whatever it takes."""

    def __init__(self, draw: Draw, *, strict: bool) -> None:
        self.draw = draw
        ticks = iter(range(1_700_000_000_000, 1_800_000_000_000))
        self.session = Session.create("hostile", strict=strict, clock=lambda: next(ticks))

    def add(self, kind: str) -> None:
        draw, session = self.draw, self.session
        turn, step, seq = session.open_turn or 1, session.open_step or 1, session.seq
        append: dict[str, Any] = {"surface_op": "append"}
        try:
            if kind == "turn":
                session.append("turn/start", {"turn": session.next_turn})
            elif kind == "step":
                session.append("step/start", {"turn": turn, "step": session.next_step})
            elif kind == "end-step":
                session.append("step/end", {"turn": turn, "step": step})
            elif kind == "end-turn":
                session.append("turn/end", {"turn": turn, "reason": {"kind": "completed"}})
            elif kind == "user":
                session.append("user/message", _user(draw, seq), **append)
            elif kind == "assistant":
                session.append("assistant/message", _assistant(draw, turn, step, seq), **append)
            elif kind == "result":
                session.append("tool/result", _result(draw, turn, step, seq), **append)
            else:
                self._more(kind, turn, step)
        except InvalidEventError:
            pass  # the session does not take it here, so no log can hold it

    def _more(self, kind: str, turn: int, step: int) -> None:
        draw, session = self.draw, self.session
        if kind == "call":
            data = {"callId": draw(st.sampled_from(IDS)), "name": "shell", "arguments": "{}"}
            session.append("tool/call", {"turn": turn, "step": step, **data})
        elif kind == "answer":
            self._answer(turn, step)
        elif kind == "header":
            session.append("request/header", _header(draw))
        elif kind == "chunk":
            chunk = {
                "type": draw(st.sampled_from(["text-delta", "reasoning-delta"])),
                "index": 0,
                "text": _text(draw),
            }
            session.append("assistant/chunk", {"turn": turn, "step": step, "chunk": chunk})
        elif kind == "approval":
            session.append(
                "approval/asked", {"id": "ap", "toolName": "shell", "callId": draw(st.sampled_from(IDS))}
            )
        elif kind == "compact" and session.surface.nodes:
            nodes = session.surface.nodes
            first = draw(st.integers(0, len(nodes) - 1))
            last = draw(st.integers(first, len(nodes) - 1))
            shadowed = list(nodes[first : last + 1])
            op = {"op": "replace", "start": shadowed[0], "end": shadowed[-1]}
            session.append(
                "user/message", _user(draw, session.seq), surface_op=op, source_event_seqs=shadowed
            )

    def _answer(self, turn: int, step: int) -> None:
        """Answer a pending call, so that strict logs get through whole steps."""
        pending = self.session.pending_calls
        if not pending:
            return
        call_id = self.draw(st.sampled_from(list(pending)))
        self.session.append(
            "tool/call", {"turn": turn, "step": step, "callId": call_id, "name": "shell", "arguments": "{}"}
        )
        block = {
            "type": "tool-result",
            "toolCallId": call_id,
            "content": _blocks(self.draw),
            "isError": False,
        }
        source = {"kind": "tool", "callId": call_id}
        message = {"source": source, "content": [block], "role": "user", "id": f"t-{self.session.seq}"}
        self.session.append(
            "tool/result", {"turn": turn, "step": step, "message": message}, surface_op="append"
        )


KINDS = [
    "turn", "step", "end-step", "end-turn", "user", "user", "assistant", "assistant", "result", "result",
    "call", "answer", "answer", "header", "chunk", "approval", "compact",
]  # fmt: skip


@st.composite
def hostile_logs(draw: Draw) -> list[SessionEvent]:
    """Draw the events of a session, cut at any place."""
    writer = _Writer(draw, strict=draw(st.booleans()))
    for kind in ["turn", "step", *draw(st.lists(st.sampled_from(KINDS), max_size=22))]:
        writer.add(kind)
    events = list(writer.session.events)
    return events[: draw(st.integers(0, len(events)))]
