"""`validate`: would a provider accept this request?

Owns the choice of the validator; the rules of each provider are in `validation`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from turnlog.errors import UsageError
from turnlog.transcripts.limits import Shape
from turnlog.transcripts.validation import anthropic, gemini, openai_chat, openai_responses
from turnlog.transcripts.validation.checks import Checker, Violation

_CHECKS: Final[dict[Shape, Callable[..., Checker]]] = {
    "anthropic": anthropic.check,
    "openai-chat": openai_chat.check,
    "openai-responses": openai_responses.check,
    "gemini": gemini.check,
}
VALIDATION_RULES: Final[dict[Shape, Mapping[str, str]]] = {
    "anthropic": anthropic.RULES,
    "openai-chat": openai_chat.RULES,
    "openai-responses": openai_responses.RULES,
    "gemini": gemini.RULES,
}
"""What `validate` checks, by shape: the name of each rule and what it says."""


def validate(shape: Shape, request: Mapping[str, Any], *, sendable: bool = False) -> list[Violation]:
    """Check a request against the rules that its provider documents.

    Args:
        shape: The provider's shape.
        request: What its SDK would be called with, as `Export.request`; from any maker.
        sendable: Whether it is to be sent as it is. False takes it for a history, to which the user's next
            message is added before it is sent.

    Returns:
        What the provider would refuse, in the order of the request; empty for a good one.

    Raises:
        UsageError: There is no such shape.
    """
    check = _CHECKS.get(shape)
    if check is None:
        raise UsageError(f"{shape!r} is no shape; a shape is one of {', '.join(_CHECKS)}")
    return check(dict(request), sendable=sendable).found
