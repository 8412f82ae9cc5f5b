"""What a provider wants back exactly as it gave it: signatures, encrypted reasoning, item ids.

Owns where they are kept in a log, and whether they may be passed on: only to the provider and the model
family that made them. How each provider writes them belongs to its shape.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from turnlog.transcripts.limits import Shape

_SPELLINGS: Final = {
    "signature": ("signature",),
    "redactedData": ("redactedData",),
    "itemId": ("itemId",),
    "summary": ("summary",),
    "encryptedContent": ("encryptedContent", "encrypted_content"),
    "thoughtSignature": ("thoughtSignature", "thought_signature"),
}
"""The keys of a replay entry, and how a provider's own block spells them."""

_SHAPES_OF: Final[dict[str, frozenset[Shape]]] = {
    "anthropic": frozenset({"anthropic"}),
    "claude": frozenset({"anthropic"}),
    "bedrock": frozenset({"anthropic"}),
    "openai": frozenset({"openai-chat", "openai-responses"}),
    "azure": frozenset({"openai-chat", "openai-responses"}),
    "codex": frozenset({"openai-responses"}),
    "google": frozenset({"gemini"}),
    "gemini": frozenset({"gemini"}),
    "vertex": frozenset({"gemini", "anthropic"}),
    "vertexai": frozenset({"gemini", "anthropic"}),
    "deepseek": frozenset({"openai-chat", "anthropic"}),
}
"""Which shapes the providers of well-known names speak; a provider of another name may speak any."""

_DATED = re.compile(r"(?:[-@](?:\d{8}|\d{4}-\d{2}-\d{2}|latest|preview|exp|v\d+(?::\d+)?).*|:.*)\Z")


def replay_entries(message: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return what must be passed on unchanged, block by block.

    Args:
        message: An assistant message. An entry is the element of `source.replayState.blocks` at the same
            place, completed by the block's own fields; keys of other names are passed over.

    Returns:
        One dictionary per content block, empty for most.
    """
    content = message["content"]
    source = message.get("source")
    state = source.get("replayState") if isinstance(source, Mapping) else None
    blocks = state.get("blocks") if isinstance(state, Mapping) else None
    stored: list[Any] = blocks if isinstance(blocks, list) and len(blocks) == len(content) else []
    stored = stored or [None] * len(content)
    return [_read(block) | _read(entry) for block, entry in zip(content, stored, strict=True)]


def _read(entry: object) -> dict[str, Any]:
    if not isinstance(entry, Mapping):
        return {}
    found = {
        key: entry[spelling] for key, names in _SPELLINGS.items() for spelling in names if spelling in entry
    }
    # A provider's own block, kept whole by an adapter, names two of them otherwise.
    if entry.get("type") == "redacted_thinking" and "data" in entry:
        found.setdefault("redactedData", entry["data"])
    if entry.get("type") in ("reasoning", "function_call", "message") and "itemId" not in found:
        item = entry.get("id")
        if isinstance(item, str) and item.startswith(("rs_", "fc_", "msg_")):
            found["itemId"] = item
    return found


def family(model: str) -> str:
    """Return the model family: the name without provider path, date and release suffix.

    Args:
        model: Such as `anthropic/claude-opus-4-5-20251101`.

    Returns:
        Such as `claude-opus-4-5`.
    """
    name = model.lower().rpartition("/")[2]
    for prefix in ("us.", "eu.", "apac.", "global.", "anthropic.", "google."):
        name = name.removeprefix(prefix)
    return _DATED.sub("", name)


@dataclass(frozen=True, slots=True)
class Target:
    """Whom an export is for."""

    provider: str | None
    model: str | None

    def made(self, source: Mapping[str, Any]) -> bool:
        """Tell whether this provider and model family made a message.

        Args:
            source: The message's source.
        """
        provider, model = source.get("provider"), source.get("model")
        if self.provider is None or self.model is None:
            return False
        if not isinstance(provider, str) or not isinstance(model, str):
            return False
        return provider.lower() == self.provider.lower() and family(model) == family(self.model)


def find_target(
    shape: Shape, candidates: Iterable[Mapping[str, Any]], provider: str | None, model: str | None
) -> Target:
    """Decide whom an export is for.

    Args:
        shape: The shape that is exported.
        candidates: Mappings with `provider` and `model`, best first: the request header in force, then the
            sources of the answers, newest first.
        provider: The provider that the caller names, or None.
        model: The model that the caller names, or None.

    Returns:
        What the caller names; where that is silent, the first candidate that may speak the shape.
    """
    if provider is not None and model is not None:
        return Target(provider, model)
    for candidate in candidates:
        found, its_model = candidate.get("provider"), candidate.get("model")
        if not isinstance(found, str) or not isinstance(its_model, str):
            continue
        if provider is not None and found.lower() != provider.lower():
            continue
        if provider is None and not may_speak(found, shape):
            continue
        return Target(found, model or its_model)
    return Target(provider, model)


def may_speak(provider: str, shape: Shape) -> bool:
    """Tell whether a provider may take a shape; one of an unknown name may take any."""
    known = [_SHAPES_OF[word] for word in re.split(r"[^a-z]+", provider.lower()) if word in _SHAPES_OF]
    return not known or any(shape in shapes for shapes in known)
