"""The work that every database store is measured with: turns of 26 events, the same for all of them.

Owns the events and nothing else; it is loaded beside packages that know nothing of turnlog.
"""

from __future__ import annotations

import json
from typing import Any


def turn_events(number: int) -> list[tuple[str, dict[str, Any]]]:
    """Type and payload of the events of one turn."""
    where = {"turn": number, "step": 1}
    chunks = [
        {**where, "chunk": {"type": "text-delta", "index": 0, "text": f"token {k} of turn {number} "}}
        for k in range(22)
    ]
    return [
        ("turn/start", {"turn": number}),
        ("step/start", where),
        *(("assistant/chunk", chunk) for chunk in chunks),
        ("step/end", where),
        ("turn/end", {"turn": number, "reason": {"kind": "completed"}}),
    ]


def as_items(number: int) -> list[dict[str, Any]]:
    """One turn as dictionaries, for stores of items."""
    return [{"type": type, "data": data} for type, data in turn_events(number)]


def as_text(number: int) -> str:
    """One turn as one text, for stores of larger things."""
    return json.dumps(as_items(number), separators=(",", ":"))
