"""Which reasoning goes back to its maker, and which is left out whole.

Owns the decision for each answer: all of its reasoning or none, because providers refuse an answer whose
reasoning was edited in part. What proves the reasoning genuine is told by the shape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from turnlog.transcripts.options import Settings
from turnlog.transcripts.parts import CallPart, ModelTurn, ReasoningPart, TextPart, Turn


def settle_reasoning(
    turns: Iterable[Turn],
    settings: Settings,
    *,
    proves: Callable[[ReasoningPart], bool] | None,
    extras: tuple[str, ...] = (),
) -> list[Turn]:
    """Keep or leave out the reasoning of each answer, and what belongs to it.

    Args:
        turns: The turns; their parts are changed in place.
        settings: The run.
        proves: Tells whether a part carries what the provider checks; None where it takes no reasoning back.
        extras: Replay keys that this shape sends with other parts; taken from answers of other makers.

    Returns:
        The turns without those of which nothing is left.
    """
    out: list[Turn] = []
    for turn in turns:
        if isinstance(turn, ModelTurn):
            _settle(turn, settings, proves)
            if not turn.is_native:
                _drop_extras(turn, settings, extras)
            if not turn.parts:
                settings.report.add("empty-message", turn.seq)
                continue
        out.append(turn)
    return out


def _settle(turn: ModelTurn, settings: Settings, proves: Callable[[ReasoningPart], bool] | None) -> None:
    thoughts = [part for part in turn.parts if isinstance(part, ReasoningPart)]
    if not thoughts:
        return
    why = _objection(turn, thoughts, settings, proves)
    if why is None:
        return
    turn.parts = [part for part in turn.parts if not isinstance(part, ReasoningPart)]
    settings.report.add("reasoning-left-out", turn.seq, why)


def _objection(
    turn: ModelTurn,
    thoughts: list[ReasoningPart],
    settings: Settings,
    proves: Callable[[ReasoningPart], bool] | None,
) -> str | None:
    if proves is None:
        return "this provider takes no reasoning back"
    if not settings.keeps_reasoning:
        return "it was asked to be left out"
    if not turn.is_native:
        return "another provider or model family made it"
    if not all(part.is_exact for part in thoughts):
        return "its text could not stay as it is"
    if not all(proves(part) for part in thoughts):
        return "a part of it has no signature"
    if isinstance(turn.parts[-1], ReasoningPart):
        return "nothing follows it in its answer"
    return None


def _drop_extras(turn: ModelTurn, settings: Settings, extras: tuple[str, ...]) -> None:
    for part in turn.parts:
        if isinstance(part, (TextPart, CallPart)) and any(key in part.replay for key in extras):
            settings.report.add("replay-left-out", turn.seq)
            part.replay = {}
