"""Making a request smaller until it fits: oldest first, images before results before other texts.

Owns the order in which content gives way. The newest content is what the model needs most, and pairs stay
whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from turnlog.transcripts.options import Settings
from turnlog.transcripts.parts import ImagePart, ModelTurn, Result, TextPart, Turn, UserTurn
from turnlog.transcripts.wire_text import cut_middle

RESULT_ROOM: Final = 2000
"""Characters that a cut result keeps."""
TEXT_ROOM: Final = 8000
"""Characters that any other cut text keeps."""

_ROUNDS: Final = 8


def fit(
    turns: list[Turn],
    settings: Settings,
    size: int,
    build: Callable[[], dict[str, Any]],
    measure: Callable[[dict[str, Any]], int],
) -> dict[str, Any]:
    """Cut content until the request fits.

    Args:
        turns: What the request is made of; changed in place.
        settings: The run.
        size: Bytes of the request as it is.
        build: Builds the request of the turns again.
        measure: Tells the bytes of a request.

    Returns:
        The request, as small as it can be if it does not fit even then, which is reported.
    """
    most = settings.limits.max_bytes
    assert most is not None  # the caller has compared with it
    cuts = _cuts(turns, settings)
    request: dict[str, Any] | None = None
    for _ in range(_ROUNDS):
        saved, is_dry = 0, True
        for won in cuts:
            is_dry = False
            saved += won
            if saved >= size - most:
                break
        request = build()
        size = measure(request)
        if size <= most or is_dry:
            break
    if size > most:
        settings.report.add("over-limit", detail=f"{size} bytes, at most {most}")
    return request if request is not None else build()


def _cuts(turns: list[Turn], settings: Settings) -> Iterator[int]:
    """Cut one piece at a time, and yield about how many bytes each cut saves."""
    yield from _image_cuts(turns, settings)
    for content in _results(turns):
        for part in content:
            if isinstance(part, TextPart) and len(part.text) > RESULT_ROOM:
                yield _cut(part, RESULT_ROOM, settings)
    for turn in turns:
        for said in turn.parts:
            if isinstance(said, TextPart) and len(said.text) > TEXT_ROOM:
                yield _cut(said, TEXT_ROOM, settings)


def _image_cuts(turns: list[Turn], settings: Settings) -> Iterator[int]:
    holders: list[list[Any]] = []
    for turn in turns:
        holders += [turn.parts] if isinstance(turn, UserTurn) else [r.content for r in _results_of(turn)]
    for content in holders:
        for place, part in enumerate(content):
            if isinstance(part, ImagePart):
                settings.report.add("image-left-out", part.seq, "the request is over its limit of bytes")
                content[place] = TextPart(f"[{part.label}: left out, the request is too big]", part.seq)
                yield len(part.data) * 4 // 3


def _results(turns: list[Turn]) -> Iterator[list[TextPart | ImagePart]]:
    for turn in turns:
        for result in _results_of(turn) if isinstance(turn, ModelTurn) else ():
            yield result.content


def _results_of(turn: ModelTurn) -> list[Result]:
    return [call.result for call in turn.calls if call.result is not None]


def _cut(part: TextPart, room: int, settings: Settings) -> int:
    before = len(part.text.encode())
    settings.report.add("text-cut", part.seq, "the request is over its limit of bytes")
    part.text = cut_middle(part.text, room)
    return before - len(part.text.encode())
