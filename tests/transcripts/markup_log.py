"""A log that says one thing everywhere: in each text, name, id and title that a page could show."""

from __future__ import annotations

import json

from turnlog import SessionEvent
from turnlog.testing.scripts import LogScript


def markup_log(said: str) -> list[SessionEvent]:
    """Return a log of two turns that holds a text in every place.

    Args:
        said: The text.
    """
    script = LogScript().start().step()
    script.add("session/title", {"title": said, "messageSeqs": [], "source": {"kind": "user"}})
    config = {"provider": said, "model": said}
    script.add("request/header", {"header": {"config": config, "tools": []}, "reason": "initial"})
    attachment = {
        "attachmentId": "sha256:x",
        "mediaType": said,
        "bytes": 1,
        "width": 1,
        "height": 1,
        "name": said,
    }
    user = [{"type": "text", "text": said}, {"type": "image", "attachment": attachment}, {"type": said}]
    for source in ({"kind": "user"}, {"kind": said}, {"kind": "plugin", "plugin": said, "form": said}):
        message = {"content": user, "source": source, "role": "user", "id": f"u{len(script.events)}"}
        script.add("user/message", message, surfaceOp="append")
    call = {
        "type": "tool-call",
        "id": said,
        "name": said,
        "arguments": json.dumps({said: said, "path": said}),
    }
    edit = {"path": said, "old_string": said, "new_string": f"{said}\n{said}"}
    content = [
        {"type": "reasoning", "text": said},
        {"type": "text", "text": f"```{said}\n{said}\n```\n{said}"},
        call,
        {"type": "tool-call", "id": "edit", "name": said, "arguments": json.dumps(edit)},
        {"type": "tool-call", "id": "raw", "name": said, "arguments": said},
    ]
    model = {"kind": "model", "provider": said, "model": said}
    answer = {"role": "assistant", "content": content, "source": model, "id": "a"}
    data = {"turn": 1, "step": 1, "message": answer, "usage": {"inputTokens": 1, said: 2}}
    script.add("assistant/message", data, surfaceOp="append")
    block = {"type": "tool-result", "toolCallId": said, "content": user, "isError": True}
    result = {"source": {"kind": "tool", "callId": said}, "content": [block], "role": "user", "id": "t"}
    meta = {"path": said, "diff": f"--- {said}\n+++ {said}\n@@ {said} @@\n-{said}\n+{said}"}
    data = {"turn": 1, "step": 1, "message": result, "error": {"name": said, "code": said}, "meta": meta}
    script.add("tool/result", data, surfaceOp="append")
    script.add("approval/asked", {"id": said, "toolName": said, "reason": said})
    script.add("llm/retry", {"failure": {"code": said, "message": said}})
    script.end_step()
    failure = {"kind": "error", "error": {"message": said, "code": said}}
    script.add("turn/end", {"turn": 1, "reason": failure})
    return script.start().step().chunks(said).events
