"""What an export changed, left out, added or moved, and why: the report beside every export.

Owns the closed list of rules and their wording; the modules that apply a rule say where it was applied.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

Action = Literal["added", "changed", "left-out", "moved"]

RULES: Final[dict[str, tuple[Action, str]]] = {
    "arguments-empty": ("changed", "the call has no arguments at all; they became an empty object"),
    "arguments-wrapped": (
        "changed",
        "the arguments are not a JSON object; their text is the value of `raw_arguments`",
    ),
    "blank-text": ("left-out", "a text without a visible character is refused"),
    "call-id-changed": ("changed", "the id of the call is not legal for this provider, or was used before"),
    "config-left-out": ("left-out", "this provider has no such setting, or not with this value"),
    "conversation-empty": ("added", "a request needs a message and the log has none to send"),
    "duplicate-result": ("left-out", "the call already has a result"),
    "empty-message": ("left-out", "nothing of the message is left to send"),
    "error-flag": ("left-out", "this provider cannot mark a result as an error; the text is all it gets"),
    "first-not-user": ("added", "the first message must be the user's"),
    "image-left-out": ("changed", "the image cannot be sent; a short text stands in its place"),
    "image-moved": ("moved", "a result cannot hold an image here; it follows in the user's message"),
    "lone-surrogate": ("changed", "half a character cannot be sent; U+FFFD stands in its place"),
    "max-tokens-added": ("added", "the provider wants a ceiling and the log names none"),
    "merged": ("changed", "the message continues the one before it, because roles must alternate"),
    "model-unknown": ("added", "the log names no model; a placeholder stands in its place"),
    "orphan-result": ("left-out", "the result answers no call that is part of the messages"),
    "over-limit": ("changed", "the request is bigger than the limit and nothing more can be cut"),
    "partial-answer": ("added", "the answer broke off while it was streamed; this is what came of it"),
    "pending-approval": ("added", "the call waits for an approval; its result says that it was not run"),
    "reasoning-left-out": ("left-out", "all reasoning of the message is left out"),
    "redacted": ("changed", "a secret is marked in its place"),
    "replay-left-out": (
        "left-out",
        "ids and signatures of another provider or model family are not passed on",
    ),
    "result-empty": ("changed", "an empty result is refused; a short text stands in its place"),
    "result-made-up": ("added", "the call has no result; this one says so"),
    "result-moved": ("moved", "the result must follow its call; what stood between comes after it"),
    "role-changed": ("changed", "the role is not one that a message can have here; it became the user's"),
    "signature-placeholder": (
        "added",
        "the model wants a signature on the call, which another model made; the documented placeholder",
    ),
    "text-cut": ("changed", "the text is longer than the limit; its middle is left out"),
    "tool-left-out": ("left-out", "the tool's definition cannot be sent"),
    "tool-name-changed": ("changed", "the tool's name is not legal for this provider"),
    "tool-schema-changed": ("changed", "parameters must be a JSON Schema of an object"),
    "tools-added": ("added", "the history holds tool calls, so tools must be defined; they cannot be called"),
    "trailing-space": ("changed", "the last answer must not end in white space"),
    "unknown-block": ("changed", "the block has no counterpart here; a short text stands in its place"),
    "user-turn-appended": ("added", "the model answers a user, and the log ends with an answer"),
}
"""Every rule: what it does, and why. The names are an interface."""


@dataclass(frozen=True, slots=True)
class Change:
    """One thing that an export says differently from the log."""

    rule: str
    """A key of `RULES`."""
    action: Action
    """What the rule does."""
    reason: str
    """Why, in one sentence without a full stop."""
    seq: int | None = None
    """Seq of the event, or None for what belongs to the request as a whole."""
    detail: str | None = None
    """What in particular: an id, a setting, a number."""

    def to_dict(self) -> dict[str, Any]:
        """Return the change as JSON; absent parts are left out."""
        parts = {"rule": self.rule, "action": self.action, "reason": self.reason}
        return parts | {
            name: value for name in ("seq", "detail") if (value := getattr(self, name)) is not None
        }


class Report:
    """Collects changes in the order they are made, each once."""

    def __init__(self) -> None:
        self._changes: dict[Change, None] = {}

    def add(self, rule: str, seq: int | None = None, detail: str | None = None) -> None:
        """Note that a rule was applied.

        Args:
            rule: A key of `RULES`.
            seq: Seq of the event.
            detail: What in particular.
        """
        action, reason = RULES[rule]
        self._changes.setdefault(Change(rule, action, reason, seq, detail))

    def changes(self) -> tuple[Change, ...]:
        """Return the changes so far."""
        return tuple(self._changes)
