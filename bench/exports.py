"""The bench's export jobs: one long session, written once, exported to each form in a process of its own.

Owns the work that is timed. Repetition and the report are `run`'s.
"""

from __future__ import annotations

import json
import time
from typing import Any

import turnlog
from turnlog import LiveSession, transcripts
from turnlog.persistence.service import SessionInspection

FORMS = (*transcripts.SHAPES, "markdown", "html", "sft")
"""What is measured."""

_RESULT = "\n".join(f"tests/test_{k}.py::test_case_{k} PASSED in 0.0{k % 10}s" for k in range(40))


def _url(args: dict[str, Any]) -> str:
    return f"jsonl:{args['root']}?compression={args['compression']}"


def _turn(session: LiveSession, number: int) -> None:
    """About 100 events: a prompt, two steps with streamed answers, one call with a result of 1.6 kB."""
    session.append("turn/start", {"turn": number})
    for step in (1, 2):
        place = {"turn": number, "step": step}
        session.append("step/start", place)
        if step == 1:
            content = [{"type": "text", "text": f"Question {number}: which tests fail, and why? " * 3}]
            message = {"content": content, "source": {"kind": "user"}, "role": "user", "id": f"u-{number}"}
            session.append("user/message", message, surface_op="append")
        words = [f"word{k} " for k in range(44)]
        for word in words:
            session.append_chunk(number, step, {"type": "text-delta", "index": 0, "text": word})
        blocks: list[dict[str, Any]] = [{"type": "text", "text": "".join(words)}]
        call_id = f"call-{number}"
        if step == 1:
            arguments = json.dumps({"cmd": "pytest -q", "timeout": number})
            blocks.append({"type": "tool-call", "id": call_id, "name": "shell", "arguments": arguments})
        source = {"kind": "model", "provider": "acme", "model": "a1"}
        answer = {"role": "assistant", "content": blocks, "source": source, "id": f"a-{number}-{step}"}
        usage = {"inputTokens": 900 + number, "outputTokens": 60}
        session.append("assistant/message", {**place, "message": answer, "usage": usage}, surface_op="append")
        if step == 1:
            session.append("tool/call", {**place, "callId": call_id, "name": "shell", "arguments": "{}"})
            result = {
                "type": "tool-result",
                "toolCallId": call_id,
                "content": [{"type": "text", "text": _RESULT}],
            }
            told = {"source": {"kind": "tool", "callId": call_id}, "content": [result], "role": "user"}
            data = {**place, "message": {**told, "id": f"t-{number}"}}
            session.append("tool/result", data, surface_op="append")
        session.append("step/end", place)
    session.append("turn/end", {"turn": number, "reason": {"kind": "completed"}})


async def export_fill(args: dict[str, Any]) -> dict[str, float]:
    """Write one session of about `events` events."""
    async with turnlog.open(_url(args)) as store, store.create(id=args["id"], cwd="/bench") as session:
        number = 0
        while session.seq < args["events"]:
            number += 1
            _turn(session, number)
            if number % 20 == 0:
                await session.flush()
        return {"events": session.seq, "bytes": session.log.nbytes}


async def export_load(args: dict[str, Any]) -> dict[str, float]:
    """Read the session and export nothing: what the exports stand on."""
    async with turnlog.open(_url(args)) as store:
        start = time.perf_counter()
        found = await store.inspect(args["id"])
        return {"total_s": time.perf_counter() - start, "log_bytes": found.events.nbytes}


async def export_one(args: dict[str, Any]) -> dict[str, float]:
    """Read the session and export it to one form, as bytes."""
    async with turnlog.open(_url(args)) as store:
        start = time.perf_counter()
        found = await store.inspect(args["id"])
        loaded = time.perf_counter()
        size = _export(found, args["form"])
        end = time.perf_counter()
        return {
            "total_s": end - start,
            "export_s": end - loaded,
            "log_bytes": found.events.nbytes,
            "out_bytes": size,
        }


def _export(found: SessionInspection, form: str) -> int:
    if form in transcripts.SHAPES:
        shape: Any = form
        return len(json.dumps(transcripts.export(found, shape).request).encode())
    if form == "sft":
        return sum(len(json.dumps(example).encode()) for example in transcripts.training_examples(found))
    conversation = transcripts.Conversation.of(found.events)
    write: Any = {"markdown": transcripts.document, "html": transcripts.page}[form]
    return sum(len(piece.encode()) for piece in write(conversation, session_id="big", facts=[]))
