"""Messages whose roles alternate: what Anthropic and Gemini want of a conversation.

Owns the merging and the two messages that may have to be added. It knows nothing of what a message holds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from turnlog.transcripts.report import Report


@dataclass(slots=True)
class Alternating:
    """Collects content by role; what continues the same role joins the message before it."""

    user: str
    """The provider's word for the user's role."""
    report: Report
    messages: list[tuple[str, list[dict[str, Any]]]] = field(default_factory=list)
    """Role and content of each message."""

    def add(self, role: str, content: list[dict[str, Any]], seq: int, *, joins: bool = False) -> None:
        """Add content.

        Args:
            role: Who says it.
            content: What is said; not empty.
            seq: Seq of its event.
            joins: Whether it is a part of the message before it by nature, so that joining is no change.
        """
        if self.messages and self.messages[-1][0] == role:
            self.messages[-1][1].extend(content)
            if not joins:
                self.report.add("merged", seq)
            return
        self.messages.append((role, content))

    def begin_with_user(self, empty: dict[str, Any], goes_on: dict[str, Any]) -> None:
        """Make sure that there is a message and that the first one is the user's.

        Args:
            empty: Content that stands in for an empty conversation.
            goes_on: Content that stands before an answer that begins the conversation.
        """
        if not self.messages:
            self.report.add("conversation-empty")
            self.messages.append((self.user, [empty]))
        elif self.messages[0][0] != self.user:
            self.report.add("first-not-user")
            self.messages.insert(0, (self.user, [goes_on]))

    def end_with_user(self, cue: dict[str, Any]) -> None:
        """Make sure that the last message is the user's.

        Args:
            cue: Content that asks the model to go on.
        """
        if self.messages[-1][0] != self.user:
            self.report.add("user-turn-appended")
            self.messages.append((self.user, [cue]))
