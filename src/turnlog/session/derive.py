"""The messages of a log: what each surface event says to the model, and answers that exist only as chunks.

Owns the projection and the free function over any events. The session keeps the incremental form; nothing
here changes a log, and every message handed out is a fresh object.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from turnlog.errors import UsageError
from turnlog.events.envelope import SessionEvent, as_event
from turnlog.events.log import EventLog
from turnlog.events.shapes import check_shape, expand_sources
from turnlog.events.vocabulary import SURFACE_TYPES
from turnlog.session.assembly import assemble_interrupted
from turnlog.session.surface import SurfaceManager

if TYPE_CHECKING:
    from turnlog.events.lossless import JsonValue
    from turnlog.session.facts import EventSource

_FRESH_START = frozenset({"llm/retry", "llm/retry-started"})
_NEW_STEP = frozenset({"step/start", "step/end", "turn/start", "turn/end"})

Partial = Literal["exclude", "include"]
"""Whether answers that exist only as streamed chunks are part of the messages."""


def project_message(event: SessionEvent | Mapping[str, Any]) -> dict[str, Any] | None:
    """Return what one event says to the model.

    Args:
        event: Any event; its place on the surface is not looked at.

    Returns:
        A fresh message, or `None` for events that say nothing: an `assistant/message` with empty content
        and every type that is not on the surface.
    """
    known = as_event(event)
    return message_of(known.type, known.data)


def message_of(type_: str, data: Any) -> dict[str, Any] | None:
    """Return the message inside a payload of a surface type, the object itself; `None` if there is none."""
    if type_ == "user/message":
        return data  # type: ignore[no-any-return]  # shape is checked where events enter a log
    if type_ == "tool/result":
        return data["message"]  # type: ignore[no-any-return]  # as above
    if type_ == "assistant/message":
        message = data["message"]
        return message if message["content"] else None
    return None


def derive_messages(events: EventSource, *, partial: Partial = "exclude") -> list[dict[str, Any]]:
    """Derive the messages that the model sees next from a log.

    Args:
        events: An `EventLog`, or any iterable of events or dictionaries with seqs dense from 0.
        partial: `"include"` adds one message for every step whose answer exists only as chunks, with
            its non-blank text and reasoning, `source.interrupted` set to true, at the place where the
            answer would stand. Such an answer inside a compacted range is left out.

    Returns:
        Fresh messages in surface order.

    Raises:
        InvalidEventError: The events do not form a log.
        UsageError: `partial` is neither of its two values.
    """
    check_partial(partial)
    fold = MessageFold(partial=partial == "include")
    for event in iterate_for_messages(events, partial=partial == "include"):
        fold.feed(event)
    return fold.messages()


def check_partial(partial: str) -> None:
    """Refuse any value of `partial` but its two.

    Raises:
        UsageError: Always for other values; the caller is at fault.
    """
    if partial not in ("exclude", "include"):
        raise UsageError(f"partial must be 'exclude' or 'include', not {partial!r}")


def iterate_for_messages(events: EventSource, *, partial: bool) -> Iterator[SessionEvent]:
    """Iterate the events that messages depend on; chunks of a log are decoded only for partial answers."""
    if isinstance(events, EventLog) and not partial:
        for row in events.significant():
            yield from row.events()
        return
    for item in events:
        yield as_event(item)


@dataclass(slots=True)
class _Answer:
    """The chunks of one step, kept until its answer arrives."""

    place: tuple[JsonValue, JsonValue]
    """Turn and step."""
    first_seq: int
    source: dict[str, Any]
    chunks: list[Mapping[str, Any]] = field(default_factory=list)


class MessageFold:
    """A fold from events to messages, with partial answers when asked for.

    Every node of the surface covers a range of the log: an appended one itself, a replacement everything
    from its first to its last shadowed node. Ranges stand in the order of the surface, so the place of an
    answer is after the last node whose range ends before its first chunk.
    """

    def __init__(self, *, partial: bool) -> None:
        self._partial = partial
        self._surface = SurfaceManager(self._event_at)
        self._events: dict[int, SessionEvent] = {}
        self._said: dict[int, dict[str, Any] | None] = {}
        self._ranges: list[tuple[int, int]] = []
        self._answers: list[_Answer] = []
        self._open: _Answer | None = None
        self._model: dict[str, Any] = {"provider": "unknown", "model": "unknown"}

    def _event_at(self, seq: int) -> SessionEvent:
        return self._events[seq]

    def feed(self, event: SessionEvent) -> None:
        """Follow one event.

        Raises:
            InvalidEventError: The event may not join the surface in this way, or holds no message.
        """
        if event.type not in SURFACE_TYPES:
            self._surface.feed(event)
        else:
            # Decoded once: a long log is mostly this.
            stored = event.to_dict()
            data, sources = stored["data"], stored.get("sourceEventSeqs")
            if sources is not None:
                sources = expand_sources(sources, event.seq)
            check_shape(event.type, data, event.seq)
            transition = self._surface.plan(event.type, event.seq, stored.get("surfaceOp"), sources, data)
            assert transition is not None  # every surface type has one
            self._surface.apply(event.seq, transition)
            self._events[event.seq] = event
            self._said[event.seq] = message_of(event.type, data)
            covered = self._ranges[transition.first : transition.last + 1]
            span = (covered[0][0], covered[-1][1]) if covered else (event.seq, event.seq)
            self._ranges[transition.first : transition.last + 1] = [span]
        if self._partial:
            self._follow_stream(event)

    def _follow_stream(self, event: SessionEvent) -> None:
        if event.type == "assistant/chunk":
            self._take_chunk(event)
        elif event.type in _FRESH_START or (
            event.type == "assistant/message" and event.surface_op == "append"
        ):
            # The answer has arrived, or another attempt begins: what came so far is no answer of its own.
            if self._open is not None:
                self._answers.pop()
            self._open = None
        elif event.type in _NEW_STEP:
            self._open = None
        elif event.type == "request/header":
            check_shape(event.type, event.data, event.seq)
            config = event.data["header"]["config"]
            self._model = {"provider": config["provider"], "model": config["model"]}

    def _take_chunk(self, event: SessionEvent) -> None:
        data = event.data
        chunk = data.get("chunk") if isinstance(data, Mapping) else None
        if not isinstance(chunk, Mapping):
            return
        place = (data.get("turn"), data.get("step"))
        if self._open is None or self._open.place != place:
            source = {"kind": "model", **self._model, "interrupted": True}
            self._open = _Answer(place, event.seq, source)
            self._answers.append(self._open)
        self._open.chunks.append(chunk)

    def messages(self) -> list[dict[str, Any]]:
        """Return the messages in surface order, the same objects on each call."""
        return [message for _, message in self.entries()]

    def entries(self) -> list[tuple[int, dict[str, Any]]]:
        """Return the messages with the seqs of their events; a partial answer has that of its first chunk."""
        placed = self._placed_answers()
        out: list[tuple[int, dict[str, Any]]] = []
        for place, seq in enumerate(self._surface.nodes):
            out.extend(placed.get(place, ()))
            message = self._said[seq]
            if message is not None:
                out.append((seq, message))
        out.extend(placed.get(len(self._surface.nodes), ()))
        return out

    def _placed_answers(self) -> dict[int, list[tuple[int, dict[str, Any]]]]:
        placed: dict[int, list[tuple[int, dict[str, Any]]]] = {}
        for answer in self._answers:
            content = assemble_interrupted(answer.chunks)
            if not content:
                continue
            place = sum(1 for _, end in self._ranges if end < answer.first_seq)
            if place < len(self._ranges) and self._ranges[place][0] < answer.first_seq:
                continue
            message = {
                "role": "assistant",
                "content": content,
                "source": answer.source,
                "id": f"partial-answer-{answer.first_seq}",
            }
            placed.setdefault(place, []).append((answer.first_seq, message))
        return placed
