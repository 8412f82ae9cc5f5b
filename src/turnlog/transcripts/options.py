"""What an export is asked for: the options of its functions, and what they come to for one run.

Owns the two data types and the reading of options. It holds no rule of any provider.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from turnlog.errors import UsageError
from turnlog.session.derive import Partial
from turnlog.transcripts.images import Images
from turnlog.transcripts.limits import PROVIDER_LIMITS, SHAPES, Limits, Shape
from turnlog.transcripts.redaction import Redactor, redactor
from turnlog.transcripts.replay import Target, find_target
from turnlog.transcripts.report import Report

if TYPE_CHECKING:
    from turnlog.transcripts.history import History
    from turnlog.transcripts.ids import ToolNames

Reasoning = Literal["keep", "drop"]
"""Whether reasoning is passed on where its provider and model family take it back."""


class ExportOptions(TypedDict, total=False):
    """The options that every provider's export takes; see `export`."""

    header: Mapping[str, Any] | None
    limits: Limits | None
    redact: bool | Redactor | None
    target_provider: str | None
    target_model: str | None
    images: Images | None
    partial: Partial
    reasoning: Reasoning
    sendable: bool


@dataclass(slots=True)
class Settings:
    """One run of an export."""

    shape: Shape
    header: dict[str, Any] | None
    """The request header that is exported: the caller's, else the one in force."""
    limits: Limits
    redactor: Redactor | None
    target: Target
    images: Images | None
    keeps_reasoning: bool
    is_sendable: bool
    report: Report
    names: ToolNames | None = None
    """Tool names of the history; set while it is assembled."""

    def hide(self, text: str) -> str:
        """Return a text with its secrets marked, if that was asked for."""
        return text if self.redactor is None else self.redactor.text(text)

    def hide_value(self, value: Any) -> Any:
        """Return a JSON value with its secrets marked, if that was asked for."""
        return value if self.redactor is None else self.redactor.value(value)


def settings_for(shape: Shape, history: History, options: ExportOptions) -> Settings:
    """Read the options of an export.

    Args:
        shape: The shape to export.
        history: What the log says.
        options: What the caller gave.

    Returns:
        Settings with a fresh report.

    Raises:
        UsageError: An unknown shape, or an option with a value that it does not have.
    """
    if shape not in SHAPES:
        raise UsageError(f"{shape!r} is no shape; a shape is one of {', '.join(SHAPES)}")
    reasoning = options.get("reasoning", "keep")
    if reasoning not in ("keep", "drop"):
        raise UsageError(f"reasoning must be 'keep' or 'drop', not {reasoning!r}")
    given = options.get("header")
    header = history.header if given is None else dict(given)
    config = header.get("config") if header is not None else None
    candidates = [config] if isinstance(config, Mapping) else []
    candidates += [
        source
        for said in reversed(history.said)
        if isinstance(source := said.message.get("source"), Mapping) and source.get("kind") == "model"
    ]
    target = find_target(shape, candidates, options.get("target_provider"), options.get("target_model"))
    limits = (options.get("limits") or Limits()).over(PROVIDER_LIMITS[shape])
    return Settings(
        shape=shape,
        header=header,
        limits=limits,
        redactor=redactor(options.get("redact")),
        target=target,
        images=options.get("images"),
        keeps_reasoning=reasoning == "keep",
        is_sendable=options.get("sendable", False),
        report=Report(),
    )
