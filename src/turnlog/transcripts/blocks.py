"""Content blocks, sources and loosely shaped payloads as text.

Owns the tolerant reading of payloads: a log may hold any JSON, and what has an unexpected shape is shown
as well as it can be, never refused. Knows nothing of events.
"""

from __future__ import annotations

from typing import Any

from turnlog.transcripts import text


def record(value: object) -> dict[str, Any]:
    """Return the value if it is a JSON object, else an empty one."""
    return value if isinstance(value, dict) else {}


def records(value: object) -> list[dict[str, Any]]:
    """Return the JSON objects of a list, without whatever else it holds."""
    return [entry for entry in value if isinstance(entry, dict)] if isinstance(value, list) else []


def string(value: object) -> str:
    """Return a string as it is, nothing for an absent value, and anything else as JSON."""
    if isinstance(value, str):
        return value
    return "" if value is None else text.json_line(value)


def integer(value: object) -> int | None:
    """Return the value if it is an integer, else None."""
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def block_text(part: dict[str, Any]) -> str:
    """Give one content block as text.

    Args:
        part: A content block of any type.

    Returns:
        The text of text and reasoning blocks; for others a short form in brackets.
    """
    kind = part.get("type")
    if kind in ("text", "reasoning"):
        return string(part.get("text"))
    if kind == "image":
        attachment = record(part.get("attachment"))
        name = attachment.get("name") or attachment.get("attachmentId") or "unnamed"
        stored = integer(attachment.get("bytes"))
        return (
            f"[image {name}, {attachment.get('mediaType', '?')}{f', {text.size(stored)}' if stored else ''}]"
        )
    if kind == "tool-call":
        return f"[tool call {part.get('id', '?')}: {part.get('name', '?')}]"
    if kind == "tool-result":
        return contents_text(part.get("content"))
    return f"[{kind if isinstance(kind, str) else 'block'}]"


def contents_text(content: object) -> str:
    """Give a list of content blocks as text, one below the other."""
    return "\n".join(block_text(part) for part in records(content))


def source_label(source: dict[str, Any]) -> str:
    """Name who a message comes from.

    Args:
        source: A message's `source`.

    Returns:
        `provider/model` for a model, `context from <plugin>` for a plugin, else the kind.
    """
    kind = source.get("kind")
    if kind == "model":
        return f"{source.get('provider', '?')}/{source.get('model', '?')}"
    if kind == "plugin":
        form = source.get("form")
        what = form if isinstance(form, str) else "context"
        return f"{what} from {source.get('plugin', 'a plugin')}"
    if kind == "tool":
        return f"tool {source.get('callId', '?')}"
    return kind if isinstance(kind, str) and kind else "unknown source"
