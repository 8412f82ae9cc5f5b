"""The surface: the ordered list of events that the model sees, and the rules by which one joins or replaces.

Owns planning (pure), applying, and the one-shot fold. It holds positions only; what a node says to the
model is `derive`'s part, and the log belongs to the session.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from turnlog.errors import InvalidEventError
from turnlog.events import ecmascript
from turnlog.events.envelope import as_event
from turnlog.events.vocabulary import SURFACE_TYPES
from turnlog.session.facts import is_replacement

if TYPE_CHECKING:
    from turnlog.events.envelope import SessionEvent
    from turnlog.events.lossless import JsonValue
    from turnlog.session.facts import EventSource

MAX_SAFE_INTEGER = 2**53 - 1
_REPLACE_KEYS = frozenset({"op", "start", "end"})


class Transition(NamedTuple):
    """A planned change of the surface: nodes `first..last` (positions, inclusive) give way to one node."""

    first: int
    last: int
    """Less than `first` when nothing is shadowed, which is an append at the tail."""
    shadowed: tuple[int, ...] = ()
    """The seqs that leave the surface, in surface order."""


@dataclass(frozen=True, slots=True)
class Replacement:
    """One replacement that a fold met."""

    seq: int
    start: int
    end: int
    """Seqs of the first and last shadowed node, inclusive; by surface order, not by number."""
    shadowed_seqs: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SurfaceFold:
    """The surface of a whole log."""

    nodes: tuple[int, ...]
    replacements: tuple[Replacement, ...]


class SurfaceManager:
    """Surface state that follows a log event by event: `plan`, then `apply` once the event is in the log.

    Planning looks a node up in constant time; a replacement costs time linear in the number of nodes.
    No history of replacements is kept.

    Args:
        event_at: Gives the event at a seq that is on the surface; used to compare rewritten tool results.
    """

    __slots__ = ("_event_at", "_frozen", "_places", "nodes", "replace_generation")

    def __init__(self, event_at: Callable[[int], SessionEvent]) -> None:
        self._event_at = event_at
        self._places: dict[int, int] = {}
        self._frozen: tuple[int, ...] | None = ()
        self.nodes: list[int] = []
        self.replace_generation = 0

    def frozen_nodes(self) -> tuple[int, ...]:
        """Return the seqs on the surface in order; the same object until the surface changes."""
        if self._frozen is None:
            self._frozen = tuple(self.nodes)
        return self._frozen

    def position(self, seq: int) -> int | None:
        """Return the place of a seq on the surface, from 0, or `None` if it is not on it."""
        return self._places.get(seq)

    def plan(
        self, type_: str, seq: int, surface_op: object, sources: object, data: JsonValue
    ) -> Transition | None:
        """Check how an event would join the surface; nothing is changed.

        Args:
            type_: Event type.
            seq: Seq that the event will have.
            surface_op: Its marker, `None` when absent.
            sources: Its `sourceEventSeqs`, `None` when absent.
            data: Its payload, looked at only for a rewritten tool result.

        Returns:
            The change to hand to `apply`, or `None` for events that never join.

        Raises:
            InvalidEventError: Marker or sources are not right; the maker of the event is at fault.
        """
        if type_ not in SURFACE_TYPES:
            _refuse_markers(type_, surface_op, sources)
            return None
        if surface_op == "append":
            _check_sources(type_, seq, sources, ())
            return Transition(len(self.nodes), len(self.nodes) - 1)
        start, end = _replace_range(type_, surface_op)
        first, last = self._find(type_, "start", start), self._find(type_, "end", end)
        if first > last:
            raise InvalidEventError(
                field="surfaceOp", reason=f"starts at seq {start}, after its end {end}", type=type_
            )
        shadowed = tuple(self.nodes[first : last + 1])
        _check_sources(type_, seq, sources, shadowed)
        if type_ == "tool/result":
            self._check_rewrite(shadowed, data)
        return Transition(first, last, shadowed)

    def apply(self, seq: int, transition: Transition) -> None:
        """Carry out a plan for the event that has just entered the log at `seq`."""
        self._frozen = None
        if transition.last < transition.first:
            self._places[seq] = len(self.nodes)
            self.nodes.append(seq)
            return
        self.nodes[transition.first : transition.last + 1] = [seq]
        self._places = {node: place for place, node in enumerate(self.nodes)}
        self.replace_generation += 1

    def feed(self, event: SessionEvent | Mapping[str, Any]) -> Transition | None:
        """Plan and apply one event that is already in a log.

        Args:
            event: The event; its `seq` names it.

        Returns:
            The change that was made, or `None`.

        Raises:
            InvalidEventError: As `plan`; the surface is unchanged.
        """
        known = as_event(event)
        data = known.data if known.type == "tool/result" else None
        transition = self.plan(known.type, known.seq, known.surface_op, known.source_event_seqs, data)
        if transition is not None:
            self.apply(known.seq, transition)
        return transition

    def _find(self, type_: str, edge: str, seq: int) -> int:
        place = self._places.get(seq)
        if place is None:
            raise InvalidEventError(
                field="surfaceOp", reason=f"has the {edge} seq {seq}, not found in surface", type=type_
            )
        return place

    def _check_rewrite(self, shadowed: tuple[int, ...], data: JsonValue) -> None:
        if len(shadowed) != 1:
            reason = "must rewrite exactly one current node when a tool/result replaces"
        else:
            target = self._event_at(shadowed[0])
            if target.type != "tool/result":
                reason = f"must target a current tool/result, seq {shadowed[0]} is {target.type}"
            elif _fixed_part(target.data) != _fixed_part(data):
                raise InvalidEventError(
                    field="data", reason="may change only content of the replaced result", type="tool/result"
                )
            else:
                return
        raise InvalidEventError(field="surfaceOp", reason=reason, type="tool/result")


class SurfaceView:
    """What readers see of a session's surface; one object per session, always current."""

    __slots__ = ("_manager",)

    def __init__(self, manager: SurfaceManager) -> None:
        self._manager = manager

    @property
    def nodes(self) -> tuple[int, ...]:
        """Seqs of the events on the surface, in the order the model sees them."""
        return self._manager.frozen_nodes()

    @property
    def replace_generation(self) -> int:
        """How many replacements there have been."""
        return self._manager.replace_generation


def fold_surface(events: EventSource) -> SurfaceFold:
    """Fold a log from its first event into its surface.

    Args:
        events: An `EventLog`, or any iterable of events or dictionaries with seqs dense from 0.

    Returns:
        The nodes and every replacement in log order.

    Raises:
        InvalidEventError: An event is out of sequence or joins the surface in a way that is not allowed.
    """
    known: dict[int, SessionEvent] = {}
    manager = SurfaceManager(known.__getitem__)
    replacements: list[Replacement] = []
    for expected, item in enumerate(events):
        event = as_event(item)
        if event.seq != expected:
            raise InvalidEventError(
                field="seq", reason=f"is {event.seq} where {expected} follows", type=event.type
            )
        transition = manager.feed(event)
        if transition is None:
            continue
        known[event.seq] = event
        if transition.shadowed:
            start, end = transition.shadowed[0], transition.shadowed[-1]
            replacements.append(Replacement(event.seq, start, end, transition.shadowed))
    return SurfaceFold(manager.frozen_nodes(), tuple(replacements))


def is_surface_type(type_: str) -> bool:
    """Say whether events of a type may join the surface; true for exactly three types."""
    return type_ in SURFACE_TYPES


def is_surface_event(event: SessionEvent | Mapping[str, Any]) -> bool:
    """Say whether an event is on or was on the surface: a surface type with a marker."""
    known = as_event(event)
    return known.type in SURFACE_TYPES and known.surface_op is not None


def is_append_event(event: SessionEvent | Mapping[str, Any]) -> bool:
    """Say whether an event joined the surface at its tail; transcripts for people use these."""
    return is_surface_event(event) and as_event(event).surface_op == "append"


def is_replacement_event(event: SessionEvent | Mapping[str, Any]) -> bool:
    """Say whether an event replaced nodes of the surface."""
    return is_surface_event(event) and is_replacement(as_event(event).surface_op)


def _refuse_markers(type_: str, surface_op: object, sources: object) -> None:
    for field, value in (("surfaceOp", surface_op), ("sourceEventSeqs", sources)):
        if value is not None:
            raise InvalidEventError(
                field=field, reason="is only for types that can be on the surface", type=type_
            )


def _replace_range(type_: str, surface_op: object) -> tuple[int, int]:
    if surface_op is None:
        reason = "is required: this type is on the surface"
    elif not isinstance(surface_op, Mapping):
        reason = 'must be "append" or a replacement'
    elif frozenset(surface_op) != _REPLACE_KEYS or surface_op["op"] != "replace":
        reason = "of a replacement must have exactly op, start and end"
    elif not (_is_seq(surface_op["start"]) and _is_seq(surface_op["end"])):
        reason = "of a replacement must name seqs as start and end"
    else:
        return surface_op["start"], surface_op["end"]
    raise InvalidEventError(field="surfaceOp", reason=reason, type=type_)


def _is_seq(value: object) -> bool:
    return type(value) is int and 0 <= value <= MAX_SAFE_INTEGER


def _check_sources(type_: str, seq: int, sources: object, shadowed: tuple[int, ...]) -> None:
    if sources is None:
        if not shadowed:
            return
        reason = f"must include every shadowed node; missing {_listed(shadowed)}"
    elif not isinstance(sources, (list, tuple)):
        reason = "must be an array when present"
    elif not sources:
        if type_ == "assistant/message" and not shadowed:
            return
        reason = (
            f"must include every shadowed node; missing {_listed(shadowed)}"
            if type_ == "assistant/message"
            else "must not be empty except on assistant/message"
        )
    elif set(map(type, sources)) != {int} or min(sources) < 0:
        reason = "must contain only non-negative safe integers"
    elif len(distinct := frozenset(sources)) != len(sources):
        reason = "must not repeat a seq"
    elif max(sources) >= seq:
        reason = f"must name earlier events, {max(sources)} is not before seq {seq}"
    elif missing := [node for node in shadowed if node not in distinct]:
        reason = f"must include every shadowed node; missing {_listed(missing)}"
    else:
        return
    raise InvalidEventError(field="sourceEventSeqs", reason=reason, type=type_)


def _listed(seqs: tuple[int, ...] | list[int]) -> str:
    return ", ".join(map(str, seqs))


def _fixed_part(data: JsonValue) -> str:
    """Return the canonical text of a tool result without the content of its block."""
    if isinstance(data, Mapping) and isinstance(message := data.get("message"), Mapping):
        content = message.get("content")
        if isinstance(content, list) and len(content) == 1 and isinstance(content[0], Mapping):
            block = {key: value for key, value in content[0].items() if key != "content"}
            data = {**data, "message": {**message, "content": [block]}}
    return ecmascript.canonical(data)
