"""The reported faults of other tools as test inputs: reading `tests/data/reported-faults.yaml` as logs.

Owns the translation of its neutral notation into events. What the right outcome is, and whether it comes, is
the part of the lanes that test it.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from turnlog import SessionEvent
from turnlog.testing.scripts import EPOCH_MS

_FILE = Path(__file__).parent / "data" / "reported-faults.yaml"
_SOURCES = {"anthropic": "claude-opus-5-5", "openai": "gpt-5", "gemini": "gemini-2.5-pro"}


@cache
def cases() -> dict[str, dict[str, Any]]:
    """Return every case by its id."""
    return {case["id"]: case for case in yaml.safe_load(_FILE.read_text(encoding="utf-8"))}


def ids_of(*kinds: str) -> list[str]:
    """Return the ids of the cases of these kinds, in the order of the file."""
    return [name for name, case in cases().items() if case["kind"] in kinds]


def log_of(case_id: str, *, provider: str = "anthropic") -> list[SessionEvent]:
    """Return the events of a case as a log, up to its crash.

    Args:
        case_id: A case with `events`.
        provider: Who made the answers that name nobody.
    """
    return _Translator(provider).translate(cases()[case_id]["minimal_input"]["events"])


class _Translator:
    def __init__(self, provider: str) -> None:
        self._provider = provider
        self._events: list[SessionEvent] = []
        self._turn, self._step = 0, 0
        self._names: dict[str, str] = {}

    def translate(self, listed: list[Any]) -> list[SessionEvent]:
        for entry in listed:
            if isinstance(entry, str):
                break  # the process dies here
            self._one(dict(entry))
        return self._events

    def _add(self, kind: str, data: Any, **envelope: Any) -> None:
        seq = len(self._events)
        raw = {"type": kind, "seq": seq, "time": EPOCH_MS + seq, "data": data, **envelope}
        self._events.append(SessionEvent.from_dict(raw))

    def _one(self, entry: dict[str, Any]) -> None:
        assert entry.pop("seq") == len(self._events)
        kind = entry.pop("type")
        place = {"turn": self._turn, "step": self._step}
        if kind == "turn/start":
            self._turn, self._step = entry["turn"], 0
            self._add(kind, {"turn": self._turn})
        elif kind == "turn/end":
            self._add(kind, {"turn": entry["turn"], "reason": {"kind": entry["reason"]}})
        elif kind in ("step/start", "step/end"):
            self._step = entry["step"]
            self._add(kind, {"turn": self._turn, "step": self._step})
        elif kind == "user/message":
            content = entry.get("content", [{"type": "text", "text": entry.get("text")}])
            message = {"content": [self._block(block) for block in content], "source": {"kind": "user"}}
            self._add(kind, {**message, "role": "user", "id": f"u-{len(self._events)}"}, surfaceOp="append")
        elif kind == "assistant/message":
            self._add(kind, {**place, "message": self._answer(entry)}, surfaceOp="append")
        elif kind == "assistant/chunk":
            chunk = {"type": "text-delta", "index": entry["index"], "text": entry["delta"]}
            self._add(kind, {**place, "chunk": chunk})
        elif kind == "tool/call":
            call_id = entry["call_id"]
            call = {"callId": call_id, "name": self._names.get(call_id, ""), "arguments": "{}"}
            self._add(kind, {**place, **call})
        elif kind == "tool/result":
            self._result(entry, place)
        else:
            self._add(kind, entry.get("data"), ignorable=True)

    def _answer(self, entry: dict[str, Any]) -> dict[str, Any]:
        provider = entry.get("provider", self._provider)
        source = {"kind": "model", "provider": provider, "model": _SOURCES[provider]}
        content = [self._block(block) for block in entry["content"]]
        return {"role": "assistant", "content": content, "source": source, "id": f"a-{len(self._events)}"}

    def _result(self, entry: dict[str, Any], place: dict[str, int]) -> None:
        call_id = entry["call_id"]
        block = {
            "type": "tool-result",
            "toolCallId": call_id,
            "content": [{"type": "text", "text": entry["text"]}],
            "isError": entry.get("is_error", False),
        }
        source = {"kind": "tool", "callId": call_id}
        message = {"source": source, "content": [block], "role": "user", "id": f"t-{len(self._events)}"}
        self._add("tool/result", {**place, "message": message}, surfaceOp="append")

    def _block(self, block: dict[str, Any]) -> dict[str, Any]:
        kind = block["type"]
        if kind == "tool_call":
            self._names[block["id"]] = block["name"]
            call = {"type": "tool-call", "id": block["id"], "name": block["name"]}
            call["arguments"] = json.dumps(block["args"])
            renamed = {"item_id": "itemId", "thought_signature": "thoughtSignature"}
            return call | {key: block[name] for name, key in renamed.items() if name in block}
        if kind == "reasoning_redacted":
            return {"type": "reasoning", "text": "", "redactedData": block["data"]}
        if kind == "reasoning":
            renamed = {
                "signature": "signature",
                "id": "itemId",
                "summary": "summary",
                "encrypted": "encryptedContent",
            }
            found = {key: block[name] for name, key in renamed.items() if name in block}
            return {"type": "reasoning", "text": block.get("text", ""), **found}
        if kind == "image":
            attachment = {"attachmentId": "sha256:" + "0" * 64, "mediaType": block["mime"]}
            attachment |= {"bytes": block["size_bytes"], "width": block["width"], "height": block["height"]}
            return {"type": "image", "attachment": attachment}
        return block
