"""The event types that are known here, and the registry of third-party types.

Owns the 48 types of format version 0, which three of them make the surface, and what a reader may load.
Does not know what their payloads look like (`payloads` does).
"""

from __future__ import annotations

from dataclasses import dataclass

from turnlog.errors import UsageError

KNOWN_TYPES: frozenset[str] = frozenset(
    {
        "agent-preset/selected",
        "agent/inbox/spliced",
        "approval/asked",
        "approval/decided",
        "approval/policy",
        "assistant/chunk",
        "assistant/message",
        "command/done",
        "command/run",
        "compaction/end",
        "compaction/prune",
        "compaction/start",
        "compaction/summary",
        "feedback/record",
        "goal/change",
        "hook/invoked",
        "hook/result",
        "llm/retry",
        "llm/retry-started",
        "permission/preset",
        "plan/mode",
        "request/context",
        "request/header",
        "sandbox/mode",
        "schedule/change",
        "session/end-seed",
        "session/title",
        "session/title-llm-request",
        "step/end",
        "step/start",
        "subagent/descriptor",
        "team/member",
        "team/message/delivered",
        "team/message/queued",
        "team/task",
        "todo/write",
        "tool-workflow/agent-end",
        "tool-workflow/agent-start",
        "tool-workflow/run-end",
        "tool-workflow/run-start",
        "tool/call",
        "tool/code-dispatch",
        "tool/code-dispatch-start",
        "tool/result",
        "turn/end",
        "turn/start",
        "user/message",
        "web/deepseek-search-llm-request",
    }
)
"""Every type that a reader of format version 0 knows."""

SURFACE_TYPES: frozenset[str] = frozenset({"user/message", "assistant/message", "tool/result"})
"""The types that join the surface, which is what the model sees."""

LEGACY_TYPES: frozenset[str] = frozenset({"steering/message", "request/header-delta", "mode/set"})
"""Types of older logs that reading migrates or refuses by name, so no unknown type hides them."""


@dataclass(frozen=True, slots=True)
class _Registration:
    required: bool
    payload: type | None


_registered: dict[str, _Registration] = {}


def register_event_type(type: str, *, required: bool = False, payload: type | None = None) -> None:
    """Make a third-party event type known to this process.

    Args:
        type: `namespace/name`; not one of the known types.
        required: False writes the event with `ignorable: true`, so that readers that do not know it skip it.
            True makes a log with the event unreadable where the type is not registered.
        payload: A `msgspec.Struct` class that `SessionEvent.view` decodes the data into.

    Raises:
        UsageError: The name is not `namespace/name`, is a known type, or was registered otherwise before.
    """
    space, slash, name = type.partition("/")
    if not (space and slash and name):
        raise UsageError(f"event type {type!r} must have the form namespace/name")
    if type in KNOWN_TYPES or type in LEGACY_TYPES:
        raise UsageError(f"event type {type!r} belongs to the format and cannot be registered")
    entry = _Registration(required, payload)
    if _registered.setdefault(type, entry) != entry:
        raise UsageError(f"event type {type!r} is already registered with other settings")


def unregister_event_type(type: str) -> None:
    """Forget a registration, for tests and reloading plugins. Unknown names are ignored.

    Args:
        type: The name given to `register_event_type`.
    """
    _registered.pop(type, None)


def is_registered(type: str) -> bool:
    """Whether a third party registered the type in this process."""
    return type in _registered


def is_loadable(type: str) -> bool:
    """Whether an event of the type may be loaded without being marked `ignorable`."""
    return type in KNOWN_TYPES or type in _registered


def must_mark_ignorable(type: str) -> bool:
    """Whether appending the type writes `ignorable: true`: registered, and not as required."""
    entry = _registered.get(type)
    return entry is not None and not entry.required


def registered_payload(type: str) -> type | None:
    """Return the payload class registered for a third-party type, or None."""
    entry = _registered.get(type)
    return None if entry is None else entry.payload
