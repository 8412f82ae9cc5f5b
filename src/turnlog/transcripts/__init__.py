"""Transcripts: logs as provider requests, as pages for people, as training data and as bundles.

Owns the list of public names; each is loaded from its module when it is first used. Everything here reads
stores and writes to none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from turnlog.lazy_names import lazy_names

if TYPE_CHECKING:
    from turnlog.transcripts.bundle import Bundled, write_bundle
    from turnlog.transcripts.conversation import Conversation
    from turnlog.transcripts.exporting import (
        Export,
        export,
        export_anthropic,
        export_gemini,
        export_messages,
        export_openai_chat,
        export_openai_responses,
    )
    from turnlog.transcripts.html_page import page
    from turnlog.transcripts.limits import SHAPES, Limits, Shape
    from turnlog.transcripts.markdown import document
    from turnlog.transcripts.pydantic_ai import pydantic_ai_messages
    from turnlog.transcripts.redacted_log import redacted_lines, redacted_message
    from turnlog.transcripts.redaction import Redactor
    from turnlog.transcripts.report import RULES, Change
    from turnlog.transcripts.training import training_examples
    from turnlog.transcripts.unpacking import Unpacked, unpack_bundle
    from turnlog.transcripts.validating import VALIDATION_RULES, validate
    from turnlog.transcripts.validation.checks import Violation

__all__ = [
    "RULES",
    "SHAPES",
    "VALIDATION_RULES",
    "Bundled",
    "Change",
    "Conversation",
    "Export",
    "Limits",
    "Redactor",
    "Shape",
    "Unpacked",
    "Violation",
    "document",
    "export",
    "export_anthropic",
    "export_gemini",
    "export_messages",
    "export_openai_chat",
    "export_openai_responses",
    "page",
    "pydantic_ai_messages",
    "redacted_lines",
    "redacted_message",
    "training_examples",
    "unpack_bundle",
    "validate",
    "write_bundle",
]

_ELSEWHERE = {
    "Bundled": "turnlog.transcripts.bundle",
    "Change": "turnlog.transcripts.report",
    "Conversation": "turnlog.transcripts.conversation",
    "Export": "turnlog.transcripts.exporting",
    "Limits": "turnlog.transcripts.limits",
    "RULES": "turnlog.transcripts.report",
    "Redactor": "turnlog.transcripts.redaction",
    "SHAPES": "turnlog.transcripts.limits",
    "Shape": "turnlog.transcripts.limits",
    "Unpacked": "turnlog.transcripts.unpacking",
    "VALIDATION_RULES": "turnlog.transcripts.validating",
    "Violation": "turnlog.transcripts.validation.checks",
    "document": "turnlog.transcripts.markdown",
    "export": "turnlog.transcripts.exporting",
    "export_anthropic": "turnlog.transcripts.exporting",
    "export_gemini": "turnlog.transcripts.exporting",
    "export_messages": "turnlog.transcripts.exporting",
    "export_openai_chat": "turnlog.transcripts.exporting",
    "export_openai_responses": "turnlog.transcripts.exporting",
    "page": "turnlog.transcripts.html_page",
    "pydantic_ai_messages": "turnlog.transcripts.pydantic_ai",
    "redacted_lines": "turnlog.transcripts.redacted_log",
    "redacted_message": "turnlog.transcripts.redacted_log",
    "training_examples": "turnlog.transcripts.training",
    "unpack_bundle": "turnlog.transcripts.unpacking",
    "validate": "turnlog.transcripts.validating",
    "write_bundle": "turnlog.transcripts.bundle",
}
"""Module of each public name."""

__getattr__, __dir__ = lazy_names(globals(), _ELSEWHERE)
