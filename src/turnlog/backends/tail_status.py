"""What the last events of a log say about its state: the `ok`, `interrupted` and `unknown` of a listing (B4).

Owns that one judgement, shared by every backend. Does not read media and never looks at a whole log:
`list` promises to read no more than the header and the last 64 KiB.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Literal

TAIL_WINDOW: Final = 64 * 1024
"""Most bytes of a log's end that a listing may read (B4)."""

_INSIDE_A_TURN: Final = frozenset(
    {
        "turn/start",
        "step/start",
        "step/end",
        "assistant/chunk",
        "assistant/message",
        "tool/call",
        "tool/result",
        "request/header",
    }
)
"""Types that only a turn in progress writes; the others may stand between two turns as well.

`tool/result` and `assistant/message` are listed although a replacement of an older node may stand between
turns: such a replacement carries a `surfaceOp` object and is passed over.
"""


def tail_status(
    newest_first: Iterable[tuple[str, bool]], *, reaches_start: bool
) -> Literal["ok", "interrupted", "unknown"]:
    """Judge the end of a log from its last events.

    Args:
        newest_first: `(type, is_replacement)` of the last events, the newest first. Consumed only until an
            event decides.
        reaches_start: Whether the events go back to the first one of the log.

    Returns:
        `ok` when no turn is open at the end, `interrupted` when one is, `unknown` when the events given
        do not say.
    """
    for event_type, is_replacement in newest_first:
        if event_type == "turn/end":
            return "ok"
        if event_type in _INSIDE_A_TURN and not is_replacement:
            return "interrupted"
    return "ok" if reaches_start else "unknown"
