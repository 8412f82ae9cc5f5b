"""`export`: a log as a request that a provider accepts, with a report of every difference.

Owns the way from a source to a request and the fitting into a number of bytes. Each provider's mapping is a
module of its own; what is sent is never executed and never written.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Unpack

import msgspec

from turnlog.transcripts import anthropic, gemini, openai_chat, openai_responses
from turnlog.transcripts.assembling import assemble
from turnlog.transcripts.fitting import fit
from turnlog.transcripts.history import History, Said, Source, history_of
from turnlog.transcripts.limits import Shape
from turnlog.transcripts.options import ExportOptions, Settings, settings_for
from turnlog.transcripts.parts import Turn
from turnlog.transcripts.report import Change

_BUILDERS: Final[dict[Shape, Callable[[list[Turn], Settings], dict[str, Any]]]] = {
    "anthropic": anthropic.build,
    "openai-chat": openai_chat.build,
    "openai-responses": openai_responses.build,
    "gemini": gemini.build,
}
_MESSAGES: Final[dict[Shape, str]] = {
    "anthropic": "messages",
    "openai-chat": "messages",
    "openai-responses": "input",
    "gemini": "contents",
}


@dataclass(frozen=True, slots=True)
class Export:
    """A request, and how it differs from the log it was made of."""

    shape: Shape
    request: dict[str, Any]
    """What the provider's SDK is called with; for Gemini the model's name beside the body."""
    report: tuple[Change, ...]
    """Everything that was changed, left out, added or moved."""

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The conversation inside the request."""
        found: list[dict[str, Any]] = self.request[_MESSAGES[self.shape]]
        return found


def export(source: Source, shape: Shape, **options: Unpack[ExportOptions]) -> Export:
    """Export a log to a provider's shape; valid whatever the log went through (P1).

    The same log and options give the same export. Appending to a log leaves the beginning of its export as it
    is, so a provider's cache of it stays good.

    Args:
        source: A log, a session, an inspection, or events in log order. An interrupted turn is closed in the
            export; answers that exist only as chunks are part of it.
        shape: `anthropic`, `openai-chat`, `openai-responses` or `gemini`.
        options: `header`: a request header instead of the one in force (`config`, `system`, `tools`).
            `limits`: bounds beyond the provider's own. `redact`: True or a `Redactor` marks secrets.
            `target_provider`, `target_model`: whom the export is for, which decides whether reasoning is
            passed on; by default the header in force, if its provider may speak the shape, else the newest
            answer whose provider may. `images`: bytes by attachment id. `reasoning`: `keep` or `drop`.
            `partial`: `include` or `exclude` answers that exist only as chunks.
            `sendable`: whether an export that would end with an answer gets a message of the user, without
            which some models refuse a request.

    Returns:
        The request and the report.

    Raises:
        InvalidEventError: The events do not form a log.
        UsageError: An option has a value that it does not have.
    """
    return _export(history_of(source, options.get("partial", "include")), shape, options)


def export_messages(
    messages: Iterable[Mapping[str, Any]], shape: Shape, **options: Unpack[ExportOptions]
) -> Export:
    """Export messages that were derived before, such as those of a request that is being made.

    Args:
        messages: Messages as `derive_messages` gives them. A call without a result counts as not started.
        shape: As in `export`.
        options: As in `export`; without `header` there are no tools and no system prompt.

    Returns:
        The request and the report; `seq` in it counts the messages from 0.

    Raises:
        UsageError: An option has a value that it does not have.
    """
    said = [Said(place, dict(message)) for place, message in enumerate(messages)]
    return _export(History(said=said, end=len(said)), shape, options)


def _export(history: History, shape: Shape, options: ExportOptions) -> Export:
    settings = settings_for(shape, history, options)
    turns = assemble(history, settings)
    build = _BUILDERS[shape]
    request = build(turns, settings)
    most = settings.limits.max_bytes
    if most is not None and (size := _size(request)) > most:
        request = fit(turns, settings, size, lambda: build(turns, settings), _size)
    return Export(shape, request, settings.report.changes())


def _size(request: dict[str, Any]) -> int:
    return len(msgspec.json.encode(request))


def export_anthropic(source: Source, **options: Unpack[ExportOptions]) -> Export:
    """Export to Anthropic's Messages API; see `export`."""
    return export(source, "anthropic", **options)


def export_openai_chat(source: Source, **options: Unpack[ExportOptions]) -> Export:
    """Export to OpenAI's Chat Completions API; see `export`."""
    return export(source, "openai-chat", **options)


def export_openai_responses(source: Source, **options: Unpack[ExportOptions]) -> Export:
    """Export to OpenAI's Responses API; see `export`."""
    return export(source, "openai-responses", **options)


def export_gemini(source: Source, **options: Unpack[ExportOptions]) -> Export:
    """Export to Google's Gemini API; see `export`."""
    return export(source, "gemini", **options)
