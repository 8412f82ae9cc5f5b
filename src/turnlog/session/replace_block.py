"""Taking one bad block out of what the model sees: the event that replaces its message on the surface.

Owns what may be taken out and what stands in its place. The log keeps the original; the session appends
what is made here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from turnlog.errors import UsageError
from turnlog.session.facts import requested_calls

if TYPE_CHECKING:
    from collections.abc import Collection

    from turnlog.events.envelope import SessionEvent

PLACEHOLDER = "[content removed]"
"""Text that stands in for a block that was taken out without a replacement."""


class Replacement(NamedTuple):
    """What to append: a surface replacement of one node by itself with one block changed."""

    type: str
    data: dict[str, Any]
    surface_op: dict[str, Any]
    source_event_seqs: list[int]


def block_replacement(
    event: SessionEvent,
    index: int,
    block: Mapping[str, Any] | None,
    *,
    answered: Collection[str],
    pending: Collection[str],
) -> Replacement:
    """Make the event that puts another block in the place of one.

    The message keeps its id. An answer loses its `usage`, which would be counted twice, and the provider's
    replay state, which would bring the old block back. Of a tool result only the content may change, so
    `index` counts the blocks inside the result.

    Args:
        event: The message event, on the surface now.
        index: Which block, from 0.
        block: What stands there instead; `None` for a short text.
        answered: Ids of the calls that have a result on the surface.
        pending: Ids of the calls of the open step that wait for a result.

    Returns:
        What to append.

    Raises:
        UsageError: There is no such block, or a tool call that has or awaits a result would lose its id.
    """
    data = event.to_dict()["data"]
    message = data if event.type == "user/message" else data["message"]
    holder = message["content"][0] if event.type == "tool/result" else message
    blocks = holder["content"]
    if not 0 <= index < len(blocks):
        raise UsageError(f"the message at seq {event.seq} has {len(blocks)} blocks, none is block {index}")
    fresh = {"type": "text", "text": PLACEHOLDER} if block is None else dict(block)
    changed = [*blocks[:index], fresh, *blocks[index + 1 :]]
    if event.type == "assistant/message":
        _check_calls(event.seq, blocks, changed, answered, pending)
        data.pop("usage", None)
        message["source"].pop("replayState", None)
    holder["content"] = changed
    marker = {"op": "replace", "start": event.seq, "end": event.seq}
    return Replacement(event.type, data, marker, [event.seq])


def _check_calls(
    seq: int,
    before: list[Any],
    after: list[Any],
    answered: Collection[str],
    pending: Collection[str],
) -> None:
    kept = requested_calls({"content": after})
    for call_id in requested_calls({"content": before}):
        if call_id in kept:
            continue
        if call_id in pending:
            raise UsageError(
                f"call {call_id!r} at seq {seq} waits for its result: "
                "append the result, then take the block out"
            )
        if call_id in answered:
            raise UsageError(
                f"call {call_id!r} at seq {seq} has a result on the surface, which would answer nothing: "
                "give a replacement that is a tool-call block with the same id"
            )
