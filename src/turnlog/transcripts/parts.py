"""The conversation between a log and a provider: turns of user and model, each call with its result.

Owns the data only. Every call has its result here, wherever it stood in the log, so no shape has to look for
one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(slots=True)
class TextPart:
    """Text with at least one visible character."""

    text: str
    seq: int
    replay: dict[str, Any] = field(default_factory=dict)
    """What the provider that made it wants back with it."""


@dataclass(slots=True)
class ImagePart:
    """An image that can be sent."""

    data: bytes
    media_type: str
    label: str
    """What a person would call it; stands in its place when it is left out after all."""
    seq: int


@dataclass(slots=True)
class ReasoningPart:
    """Reasoning of a model; sent back only by shapes that can prove where it comes from."""

    text: str
    seq: int
    replay: dict[str, Any] = field(default_factory=dict)
    is_exact: bool = True
    """Whether the text is still what the model wrote."""


@dataclass(slots=True)
class Result:
    """What came of a call."""

    content: list[TextPart | ImagePart]
    is_error: bool
    seq: int


@dataclass(slots=True)
class CallPart:
    """A tool call."""

    id: str
    """Legal for the shape, and given once."""
    name: str
    """Legal for the shape."""
    log_id: str
    """Its id in the log."""
    value: dict[str, Any]
    """The arguments as an object."""
    arguments: str
    """The arguments as JSON text, the model's own where that was an object."""
    seq: int
    replay: dict[str, Any] = field(default_factory=dict)
    result: Result | None = None


ModelPart = TextPart | ReasoningPart | CallPart
UserPart = TextPart | ImagePart


@dataclass(slots=True)
class ModelTurn:
    """One answer of a model."""

    seq: int
    source: dict[str, Any]
    parts: list[ModelPart]
    is_native: bool
    """Whether the provider and model family that the export is for made it."""
    is_whole: bool = True
    """False for an answer that broke off."""

    @property
    def calls(self) -> list[CallPart]:
        """The calls in the order they were asked for."""
        return [part for part in self.parts if isinstance(part, CallPart)]


@dataclass(slots=True)
class UserTurn:
    """One message of the user, or context that travels as one."""

    seq: int
    parts: list[UserPart]


Turn = ModelTurn | UserTurn
