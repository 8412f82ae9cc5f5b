"""Typed views of what payloads are made of: messages, stream chunks, usage, failures.

For reading only. Unknown fields are ignored and open unions stay plain objects: a view never decides what is
valid.
"""

from __future__ import annotations

from typing import Any

import msgspec


class View(msgspec.Struct, frozen=True, rename="camel", kw_only=True):
    """A read-only view of a JSON object; camelCase keys become snake_case fields."""


class Message(View, frozen=True):
    """A message of the surface."""

    id: str
    """Non-empty identity."""
    role: str
    """`system`, `user` or `assistant`."""
    content: list[dict[str, Any]]
    """Content blocks, each with a `type`; unknown ones as stored."""
    source: dict[str, Any]
    """Where the message comes from, with a `kind`."""


class TokenUsage(View, frozen=True):
    """Disjoint token counts of one model call."""

    input_tokens: int
    output_tokens: int
    cache_read_tokens: int | None = None
    cache_write_tokens: int | None = None
    reasoning_tokens: int | None = None


class Failure(View, frozen=True):
    """Why a model call failed."""

    message: str
    code: str
    status: int | None = None
    """HTTP status, 100 to 599."""
    provider_retry_after_ms: float | None = None
    """Milliseconds the provider asks to wait."""
    request_id: str | None = None


class StreamChunk(View, frozen=True):
    """One piece of a streamed answer; which fields there are depends on `type`."""

    type: str
    """`block-start`, `text-delta`, `reasoning-delta`, `tool-call-delta`, `block-end`, `usage` or `finish`."""
    index: int | float | None = None
    """Block index."""
    text: str | None = None
    id: str | None = None
    """Id of the tool call."""
    name: str | None = None
    """Name of the tool."""
    arguments_delta: str | None = None
    block_type: str | None = None
    block: dict[str, Any] | None = None
    """The complete block, at `block-end`."""
    usage: TokenUsage | None = None
    reason: dict[str, Any] | None = None
    """Why the stream ended, at `finish`, with a `kind`."""
    replay_state: dict[str, Any] | None = None


class RequestConfig(View, frozen=True):
    """What a model is asked with."""

    provider: str
    model: str
    reasoning_effort: str | None = None
    temperature: float | None = None
    max_tokens: int | None = None
    stop: Any = None


class RequestState(View, frozen=True):
    """All of a request that is not history."""

    config: RequestConfig
    adapter_defaults: dict[str, bool] | None = None
    """Which config values the adapter filled in."""
    system: str | None = None
    tools: list[dict[str, Any]] | None = None


class SeqRange(View, frozen=True):
    """A range of seqs, both ends inclusive."""

    start: int
    end: int
