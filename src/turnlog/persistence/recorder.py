"""What recorders write: messages, results, and the closing events that each way of leaving a block calls for.

Owns the payloads and the choice among them. When they are written is decided by the recorders of turns, steps
and tool calls; the order rules themselves belong to the session.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from turnlog.errors import TurnlogError, UsageError
from turnlog.events.ecmascript import dumps
from turnlog.session.ids import new_message_id
from turnlog.session.repair import result_data

if TYPE_CHECKING:
    from turnlog.events.lossless import JsonValue

logger = logging.getLogger("turnlog.recorder")

Block: TypeAlias = dict[str, Any]
"""A content block, for example `{"type": "text", "text": "..."}`."""

RESULT_BLOCKS = frozenset({"text", "reasoning", "image", "tool-call", "tool-result"})
"""Block types by which a list given as a tool's result is told from a plain JSON list."""

_SIMPLE_ENDINGS = ("completed", "blocked", "max-tokens")


def result_payload(
    turn: int,
    step: int,
    call_id: str,
    content: list[Block],
    *,
    is_error: bool,
    error: dict[str, str] | None = None,
    meta: JsonValue = None,
) -> dict[str, Any]:
    """Build the payload of a `tool/result` event.

    Args:
        turn: Number of the open turn.
        step: Number of the open step.
        call_id: The call that is answered.
        content: Blocks that the model sees.
        is_error: Whether the model is told that the call failed.
        error: `{name, code}` of a failure with a stable code, or None.
        meta: Any JSON value private to the tool, or None for no `meta` at all.

    Returns:
        A fresh payload, keys in the order of the session log format.
    """
    block = {"type": "tool-result", "toolCallId": call_id, "content": content, "isError": is_error}
    message = {
        "source": {"kind": "tool", "callId": call_id},
        "content": [block],
        "role": "user",
        "id": new_message_id(),
    }
    out: dict[str, Any] = {"turn": turn, "step": step, "message": message}
    if error is not None:
        out["error"] = error
    if meta is not None:
        out["meta"] = meta
    return out


def unanswered_payload(turn: int, step: int, call_id: str, *, started: bool) -> dict[str, Any]:
    """Build the result of a call that has none: its outcome is unknown, or it was never entered.

    Args:
        turn: Number of the open turn.
        step: Number of the open step.
        call_id: The call that is answered.
        started: Whether the call was recorded.

    Returns:
        A fresh payload that says the same as the closers of an interrupted turn (R1).
    """
    return result_data(turn=turn, step=step, call_id=call_id, message_id=new_message_id(), started=started)


def undispatched_payload(turn: int, step: int, call_id: str) -> dict[str, Any]:
    """Build the result of a call that was recorded and whose body certainly did not run (D3).

    Args:
        turn: Number of the open turn.
        step: Number of the open step.
        call_id: The call that is answered.

    Returns:
        A fresh payload with the code `ABORTED_BEFORE_DISPATCH`.
    """
    content = [text_block("Error: tool call aborted before dispatch")]
    failure = {"name": "AbortError", "code": "ABORTED_BEFORE_DISPATCH"}
    return result_payload(turn, step, call_id, content, is_error=True, error=failure)


def failed_payload(turn: int, step: int, call_id: str, error: Exception) -> dict[str, Any]:
    """Build the result of a call whose body raised.

    Args:
        turn: Number of the open turn.
        step: Number of the open step.
        call_id: The call that is answered.
        error: What was raised; only errors of turnlog have a stable code to record.

    Returns:
        A fresh payload.
    """
    failure = {"name": type(error).__name__, "code": error.code} if isinstance(error, TurnlogError) else None
    content = [text_block(f"Error: {error_text(error)}")]
    return result_payload(turn, step, call_id, content, is_error=True, error=failure)


def text_block(text: str) -> Block:
    """Make a text block."""
    return {"type": "text", "text": text}


def message_blocks(content: str | Sequence[Mapping[str, Any]], call: str) -> list[Block]:
    """Turn what a caller gave as message content into blocks; unknown block types pass through.

    Args:
        content: Text, or blocks.
        call: The method, for the message of the error.

    Returns:
        A fresh list of blocks.

    Raises:
        UsageError: Neither text nor a list of objects with a `type`.
    """
    if isinstance(content, str):
        return [text_block(content)]
    if isinstance(content, (list, tuple)) and all(map(_is_block, content)):
        return list(content)
    raise UsageError(
        f'{call} takes text or a list of content blocks such as {{"type": "text", "text": "..."}}, '
        f"not {type(content).__name__}"
    )


def _is_block(value: object) -> bool:
    return isinstance(value, dict) and isinstance(value.get("type"), str)


def result_blocks(content: JsonValue) -> list[Block]:
    """Turn what a tool returned into blocks for the model.

    Args:
        content: Text, a non-empty list of known content blocks, or any other JSON value, which becomes its
            JSON text. An empty list is a value, too: the model sees `[]`.

    Returns:
        A fresh list of blocks.

    Raises:
        InvalidEventError: Not a JSON value.
    """
    if isinstance(content, str):
        return [text_block(content)]
    if isinstance(content, list):
        blocks = [item for item in content if isinstance(item, dict) and _is_result_block(item)]
        if blocks and len(blocks) == len(content):
            return blocks
    return [text_block(dumps(content))]


def _is_result_block(value: dict[str, Any]) -> bool:
    kind = value.get("type")
    if not isinstance(kind, str) or kind not in RESULT_BLOCKS:
        return False
    return kind != "text" or isinstance(value.get("text"), str)


def turn_ending(reason: str | Mapping[str, Any]) -> dict[str, Any]:
    """Check what a caller gave as the reason of a turn's end.

    Args:
        reason: `"completed"`, `"blocked"`, `"max-tokens"`, or an object with a non-empty `kind`.

    Returns:
        A fresh reason object.

    Raises:
        UsageError: Neither of the two.
    """
    if isinstance(reason, Mapping) and isinstance(reason.get("kind"), str) and reason["kind"]:
        return dict(reason)
    if isinstance(reason, str) and reason in _SIMPLE_ENDINGS:
        return {"kind": reason}
    raise UsageError(
        f"turn.end() takes {', '.join(map(repr, _SIMPLE_ENDINGS))} or an object with a kind, such as "
        f'{{"kind": "aborted", "reason": {{"kind": "user"}}}}, not {reason!r}'
    )


def ending_for(error: BaseException | None, chosen: dict[str, Any] | None) -> dict[str, Any]:
    """Choose the reason of a turn's end by the way its block was left.

    Args:
        error: What left the block, or None.
        chosen: What the caller set by `turn.end`, or None. On the way out by an error or a cancellation it
            counts only if it is of the same kind, since it then says the same with more detail.

    Returns:
        The reason object of `turn/end`.
    """
    kind = "completed" if error is None else "error" if isinstance(error, Exception) else "aborted"
    if chosen is not None and (error is None or chosen["kind"] == kind):
        return chosen
    if error is None:
        return {"kind": kind}
    if isinstance(error, Exception):
        return {"kind": kind, "error": {"message": _cause_chain(error), "code": "UNKNOWN"}}
    # Cancellation, KeyboardInterrupt, SystemExit and GeneratorExit all come from outside the turn.
    return {"kind": kind, "reason": {"kind": "parent"}}


def error_text(error: BaseException) -> str:
    """Say what an exception says, never empty and never failing."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 - whatever a foreign __str__ raises, the class name still helps
        text = ""
    return text or type(error).__name__


def _cause_chain(error: BaseException) -> str:
    texts, seen = [error_text(error)], {id(error)}
    while error.__cause__ is not None and id(error.__cause__) not in seen:
        error = error.__cause__
        seen.add(id(error))
        texts.append(error_text(error))
    return ": ".join(texts)


def write_closing(write: Callable[[], object], cause: BaseException | None, what: str) -> None:
    """Write one closing event; while an exception is on its way, a failure joins it and never replaces it.

    Args:
        write: Appends the event.
        cause: The exception on its way, or None on the normal path.
        what: The event, for the note.

    Raises:
        Exception: Whatever `write` raised, on the normal path only.
    """
    try:
        write()
    except Exception as failure:
        if cause is None:
            raise
        note_failure(cause, failure, f"{what} could not be written")


async def end_block(closing: asyncio.Future[None], error: BaseException | None, what: str) -> None:
    """Wait for the end of something whose `async with` block is left; what fails meanwhile is not hidden.

    Args:
        closing: The closing, which has begun and goes on whatever happens here.
        error: The exception on its way out of the block. A frame that is being closed must not wait.
        what: What could not be done, for people.

    Raises:
        Exception: Closing failed and no other exception is on its way, on which it would be noted.
    """
    if isinstance(error, GeneratorExit):
        return
    try:
        await asyncio.shield(closing)
    except Exception as failure:
        if error is None:
            raise
        note_failure(error, failure, what)


def note_failure(cause: BaseException, failure: BaseException, what: str) -> None:
    """Report a failure on the way out of a block: a note on the exception on its way, and a warning.

    Args:
        cause: The exception that goes on.
        failure: What failed meanwhile.
        what: What was being done, for people.
    """
    cause.add_note(f"turnlog: {what}: {error_text(failure)}")
    logger.warning("%s: %s", what, error_text(failure), exc_info=failure)
