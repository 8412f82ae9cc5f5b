"""Transcripts: logs as provider requests, as pages for people, as training data and as bundles.

Owns the list of public names. Everything here reads stores and writes to none.
"""

from __future__ import annotations

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
from turnlog.transcripts.limits import SHAPES, Limits, Shape
from turnlog.transcripts.markdown import document
from turnlog.transcripts.page import page
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
