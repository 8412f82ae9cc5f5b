"""The order of turns, steps and tool calls (L4): one tracker, used live, by `verify` and by tests.

Owns the rules and their names. It does not decide when they apply: a strict session asks before it
commits, `check_invariants` reports on logs that were never held to them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from turnlog.events.envelope import EventRow, as_event
from turnlog.events.log import EventLog
from turnlog.session.facts import NO_FACTS, EventFacts, facts_of, is_replacement

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from turnlog.events.envelope import SessionEvent
    from turnlog.events.lossless import JsonValue
    from turnlog.session.facts import EventSource

RULES: Mapping[str, str] = {
    "seq-increases": "the seq of an event is greater than that of the event before it",
    "turn-not-nested": "a turn starts only when no turn is open",
    "turn-number": "turns are numbered 1, 2, 3, … per session",
    "turn-end-matches": "turn/end names the open turn",
    "turn-end-open-step": "a turn ends only when no step is open",
    "step-in-turn": "a step starts in the open turn",
    "step-not-nested": "a step starts only when no step is open",
    "step-number": "steps are numbered 1, 2, 3, … per turn",
    "step-end-matches": "step/end names the open turn and step",
    "step-end-pending-call": "a step ends only when every requested or recorded tool call is answered",
    "in-open-step": "chunks, answers, tool calls and tool results name the open turn and step",
    "result-answers-call": "a tool result answers a recorded call, or says that a requested one never ran",
    "in-open-turn": "rewritten tool results, todo lists and request state are written inside a turn",
}
"""Every rule by its stable name, with what it asks for."""

_STEP_TYPES = frozenset({"assistant/chunk", "assistant/message", "tool/call", "tool/result"})
_TURN_TYPES = frozenset({"todo/write", "request/header", "request/context"})


@dataclass(frozen=True, slots=True)
class InvariantViolation:
    """One event of a log that breaks one rule."""

    seq: int
    """Position of the event."""
    rule: str
    """Name of the rule, a key of `RULES`."""
    message: str
    """What was expected and what was found."""


class InvariantTracker:
    """The state that the rules depend on, for one session.

    `check` never changes it and `apply` never refuses: a log that breaks rules is followed as well as its
    events allow, so that a restored session goes on from where its log stands.
    """

    __slots__ = ("calls", "last_seq", "last_step", "last_turn", "open_step", "open_turn")

    def __init__(self) -> None:
        self.last_seq = -1
        self.last_turn = 0
        self.last_step = 0
        self.open_turn: int | None = None
        self.open_step: int | None = None
        self.calls: dict[str, bool] = {}

    @property
    def next_turn(self) -> int:
        """The number that the next `turn/start` must carry."""
        return self.last_turn + 1

    @property
    def next_step(self) -> int:
        """The number that the next `step/start` of the open turn must carry."""
        return self.last_step + 1

    @property
    def pending_calls(self) -> tuple[str, ...]:
        """Ids of the calls of the open step without a result, in the order they were first seen."""
        return tuple(self.calls)

    def feed(self, event: SessionEvent | Mapping[str, Any]) -> InvariantViolation | None:
        """Check one event, then follow it whatever the outcome.

        Args:
            event: The next event of the log.

        Returns:
            The first rule that it breaks, or `None`.
        """
        known = as_event(event)
        facts = facts_of(known.type, known.data)
        found = self.check(known.type, facts, replacing=is_replacement(known.surface_op), seq=known.seq)
        self.apply(known.type, facts, replacing=is_replacement(known.surface_op))
        self.last_seq = known.seq
        return None if found is None else InvariantViolation(known.seq, *found)

    def check(
        self, type_: str, facts: EventFacts, *, replacing: bool = False, seq: int | None = None
    ) -> tuple[str, str] | None:
        """Say which rule an event would break if it came next.

        Args:
            type_: Event type.
            facts: What `facts_of` read from its payload.
            replacing: Whether it replaces nodes of the surface.
            seq: Its position, or `None` when the log itself assigns it.

        Returns:
            Rule name and explanation, or `None` if every rule holds.
        """
        if seq is not None and seq <= self.last_seq:
            return "seq-increases", f"seq {seq} follows seq {self.last_seq}"
        if type_ in _STEP_TYPES:
            return self._check_in_step(type_, facts, replacing)
        if type_ in _TURN_TYPES:
            return self._check_in_turn(type_)
        check = _BRACKETS.get(type_)
        return None if check is None else check(self, facts)

    def apply(self, type_: str, facts: EventFacts = NO_FACTS, *, replacing: bool = False) -> None:
        """Follow an event that has entered the log.

        Args:
            type_: Event type.
            facts: What `facts_of` read from its payload.
            replacing: Whether it replaces nodes of the surface.
        """
        if type_ == "turn/start":
            self.open_turn = self.last_turn = _whole(facts.turn, self.last_turn)
            self.open_step, self.last_step = None, 0
            self.calls.clear()
        elif type_ == "turn/end":
            self.open_turn = self.open_step = None
            self.calls.clear()
        elif type_ == "step/start":
            self.open_step = self.last_step = _whole(facts.step, self.last_step)
        elif type_ == "step/end":
            self.open_step = None
            self.calls.clear()
        elif replacing:
            return
        elif type_ == "assistant/message" and self.open_step is not None:
            for call_id in facts.requested:
                self.calls.setdefault(call_id, False)
        elif type_ == "tool/call" and facts.call_id is not None:
            self.calls[facts.call_id] = True
        elif type_ == "tool/result" and facts.call_id is not None:
            self.calls.pop(facts.call_id, None)

    def _check_turn_start(self, facts: EventFacts) -> tuple[str, str] | None:
        if self.open_turn is not None:
            return "turn-not-nested", f"turn {facts.turn} starts while turn {self.open_turn} is open"
        if not _is(facts.turn, self.next_turn):
            return "turn-number", f"the next turn is {self.next_turn}, not {facts.turn}"
        return None

    def _check_turn_end(self, facts: EventFacts) -> tuple[str, str] | None:
        if not _is(facts.turn, self.open_turn):
            return "turn-end-matches", f"turn {facts.turn} ends but {self._place()}"
        if self.open_step is not None:
            return "turn-end-open-step", f"turn {facts.turn} ends while step {self.open_step} is open"
        return None

    def _check_step_start(self, facts: EventFacts) -> tuple[str, str] | None:
        if not _is(facts.turn, self.open_turn):
            return "step-in-turn", f"a step of turn {facts.turn} starts but {self._place()}"
        if self.open_step is not None:
            return "step-not-nested", f"step {facts.step} starts while step {self.open_step} is open"
        if not _is(facts.step, self.next_step):
            return (
                "step-number",
                f"the next step of turn {self.open_turn} is {self.next_step}, not {facts.step}",
            )
        return None

    def _check_step_end(self, facts: EventFacts) -> tuple[str, str] | None:
        if not self._names_open_step(facts):
            return "step-end-matches", f"step {facts.step} of turn {facts.turn} ends but {self._place()}"
        if self.calls:
            return "step-end-pending-call", f"no result for {_listed(self.calls)}"
        return None

    def _check_in_step(self, type_: str, facts: EventFacts, replacing: bool) -> tuple[str, str] | None:
        if replacing:
            # A rewritten answer keeps the turn and step it was given in, so only its place on the surface
            # counts; a rewritten result is part of running a turn.
            return self._check_in_turn(type_) if type_ == "tool/result" else None
        if not self._names_open_step(facts):
            return "in-open-step", f"it names step {facts.step} of turn {facts.turn} but {self._place()}"
        if type_ != "tool/result":
            return None
        recorded = self.calls.get(facts.call_id) if facts.call_id is not None else None
        if recorded or (recorded is not None and facts.excused):
            return None
        state = "was requested but never recorded as started" if recorded is False else "is not pending"
        return "result-answers-call", f"call {facts.call_id!r} {state}"

    def _check_in_turn(self, type_: str) -> tuple[str, str] | None:
        return ("in-open-turn", f"{type_} stands outside every turn") if self.open_turn is None else None

    def _names_open_step(self, facts: EventFacts) -> bool:
        return _is(facts.turn, self.open_turn) and _is(facts.step, self.open_step)

    def _place(self) -> str:
        if self.open_turn is None:
            return "no turn is open"
        if self.open_step is None:
            return f"turn {self.open_turn} is open without a step"
        return f"step {self.open_step} of turn {self.open_turn} is open"


_BRACKETS = {
    "turn/start": InvariantTracker._check_turn_start,
    "turn/end": InvariantTracker._check_turn_end,
    "step/start": InvariantTracker._check_step_start,
    "step/end": InvariantTracker._check_step_end,
}


def check_invariants(events: EventSource) -> list[InvariantViolation]:
    """Report every event of a log that breaks the order of turns, steps and tool calls (L4).

    Args:
        events: An `EventLog`, or any iterable of events or dictionaries, in log order.

    Returns:
        At most one violation per event, in log order; empty for a well-ordered log. A log that ends inside
        a turn is well-ordered: `interrupted_turn_closers` says how to close it.
    """
    tracker = InvariantTracker()
    if not isinstance(events, EventLog):
        return [found for event in events if (found := tracker.feed(event)) is not None]
    violations: list[InvariantViolation] = []
    for row in events.rows:
        if isinstance(row, EventRow):
            found = tracker.feed(row.event())
            violations += [] if found is None else [found]
            continue
        # The members of a packed row name one turn and one step, and chunks change no state.
        broken = tracker.check(row.type, EventFacts(row.turn, row.step))
        if broken is not None:
            seqs = range(row.first_seq, row.last_seq + 1)
            violations += [InvariantViolation(seq, *broken) for seq in seqs]
    return violations


def _is(value: JsonValue, expected: int | None) -> bool:
    # True equals 1 in Python, but a flag is no number in a log.
    return expected is not None and value == expected and not isinstance(value, bool)


def _whole(value: JsonValue, fallback: int) -> int:
    if isinstance(value, float):
        return int(value) if value.is_integer() else fallback
    return value if isinstance(value, int) and not isinstance(value, bool) else fallback


def _listed(calls: Mapping[str, bool]) -> str:
    shown = ", ".join(repr(call_id) for call_id in list(calls)[:3])
    more = len(calls) - 3
    return f"call {shown}" if more <= 0 else f"calls {shown} and {more} more"
