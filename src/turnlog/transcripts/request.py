"""The part of a request that is not history: system prompt, tools, model and sampling, from the header.

Owns the reading of a request header into values that are certain to be sendable. How a provider spells them
belongs to its shape.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from turnlog.transcripts.ids import LEGAL, ToolNames
from turnlog.transcripts.options import Settings
from turnlog.transcripts.wire_text import whole_characters, whole_value

UNKNOWN_MODEL: Final = "unknown-model"
"""Stands for the model when nothing names one."""

EMPTY_CONVERSATION: Final = "[the conversation is empty]"
CONVERSATION_GOES_ON: Final = "[the conversation begins with the answer below]"
CONTINUE: Final = "Continue."
"""The texts of messages that an export adds."""


@dataclass(frozen=True, slots=True)
class Tool:
    """One tool definition, legal everywhere."""

    name: str
    description: str
    parameters: dict[str, Any]

    def described(self) -> dict[str, str]:
        """Return name and, unless it is empty, description, by their usual keys."""
        return {"name": self.name} | ({"description": self.description} if self.description else {})


def config_of(settings: Settings) -> dict[str, Any]:
    """Return the config of the header, empty if there is none."""
    config = settings.header.get("config") if settings.header is not None else None
    return dict(config) if isinstance(config, Mapping) else {}


def model_name(settings: Settings) -> str:
    """Return the model to ask; a placeholder, reported, when nothing names one."""
    if settings.target.model is not None:
        return whole_characters(settings.target.model)
    settings.report.add("model-unknown")
    return UNKNOWN_MODEL


def system_text(settings: Settings) -> str | None:
    """Return the system prompt, or None if there is none with a visible character."""
    system = settings.header.get("system") if settings.header is not None else None
    if not isinstance(system, str) or not system.strip():
        return None
    whole = whole_characters(system)
    if whole != system:
        settings.report.add("lone-surrogate", detail="the system prompt")
    hidden = settings.hide(whole)
    if hidden != whole:
        settings.report.add("redacted", detail="the system prompt")
    return hidden


def tools_of(settings: Settings) -> list[Tool]:
    """Return the tool definitions, each name once."""
    stored = settings.header.get("tools") if settings.header is not None else None
    names = settings.names or ToolNames(LEGAL[settings.shape].name, settings.hide)
    found: dict[str, Tool] = {}
    for entry in stored if isinstance(stored, list) else []:
        name = entry.get("name") if isinstance(entry, Mapping) else None
        if not isinstance(name, str) or not name:
            settings.report.add("tool-left-out", detail="it has no name")
            continue
        wire = names.of(name)
        if wire in found:
            settings.report.add("tool-left-out", detail=f"{wire} is defined twice")
            continue
        if wire != name:
            settings.report.add("tool-name-changed", detail=wire)
        found[wire] = Tool(wire, _description(entry.get("description"), settings), _schema(entry, settings))
    return list(found.values())


def _description(said: object, settings: Settings) -> str:
    return settings.hide(whole_characters(said)) if isinstance(said, str) else ""


def _schema(entry: Mapping[str, Any], settings: Settings) -> dict[str, Any]:
    stored = entry.get("parameters")
    schema, _ = whole_value(stored if isinstance(stored, dict) else {})
    schema = settings.hide_value(schema)
    if schema.get("type") != "object" or not isinstance(schema.get("properties", {}), dict):
        settings.report.add("tool-schema-changed", detail=entry["name"])
        rest = {key: value for key, value in schema.items() if key not in ("type", "properties")}
        return {"type": "object", "properties": {}} | ({} if stored is None else rest)
    if "properties" not in schema:
        return {**schema, "properties": {}}
    return dict(schema)


class Config:
    """Takes settings out of a header's config and reports those that cannot be sent.

    Args:
        settings: The run.
    """

    def __init__(self, settings: Settings) -> None:
        self._report = settings.report
        self._config = config_of(settings)
        self._provider = settings.target.provider

    def leave_out(self, name: str, why: str) -> None:
        """Report a setting, if the header has it, as one that is not sent."""
        if self._config.get(name) not in (None, []):
            self._report.add("config-left-out", detail=f"{name}: {why}")

    def ceiling(self, least: int = 1) -> int | None:
        """Return `maxTokens` if it is a whole number of at least `least`."""
        value = self._config.get("maxTokens")
        if isinstance(value, int) and not isinstance(value, bool) and value >= least:
            return value
        self.leave_out("maxTokens", f"it must be a whole number of at least {least}")
        return None

    def temperature(self, most: float) -> float | None:
        """Return `temperature` if it lies between 0 and `most`, inclusive."""
        value = self._config.get("temperature")
        if isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= most:
            return value
        self.leave_out("temperature", f"it must lie between 0 and {most:g}")
        return None

    def stops(self, most: int) -> list[str]:
        """Return the stop sequences with a visible character, at most so many."""
        stored = self._config.get("stop")
        listed = stored if isinstance(stored, list) else []
        kept = [whole_characters(stop) for stop in listed if isinstance(stop, str) and stop.strip()]
        if len(kept) > most or len(kept) != len(listed):
            self.leave_out("stop", f"at most {most} texts, none of them blank")
        return kept[:most]

    def effort(self, accepted: frozenset[str]) -> str | None:
        """Return `reasoningEffort` if the provider knows the word."""
        value = self._config.get("reasoningEffort")
        is_own = self._config.get("provider") == self._provider
        if is_own and isinstance(value, str) and value in accepted:
            return value
        self.leave_out("reasoningEffort", "the word is another provider's")
        return None
