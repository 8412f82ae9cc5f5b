"""The session in memory: the one place where events enter a log (L1, L2, L4). Synchronous, without I/O.

Owns the order of effects of an append, seeds and restored logs, the thread rule and dispatch to observers.
Durability is somebody else's: whoever provides it sets `gate` and reads `log`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from threading import get_ident
from typing import TYPE_CHECKING, Any, Self

from turnlog.errors import CorruptLogError, InvalidEventError, InvariantError, UsageError
from turnlog.events import lossless, vocabulary
from turnlog.events.deltas import CHUNK_TYPE
from turnlog.events.envelope import SessionEvent, as_event
from turnlog.events.header import FORMAT_VERSION, SessionHeader
from turnlog.events.log import DELTA_OVERHEAD, EventLog
from turnlog.events.lossless import SAFE_INTEGER, encode_string
from turnlog.events.segment import encode_segment
from turnlog.session.admission import admit_type, check_content
from turnlog.session.dispatch import ObservedSession
from turnlog.session.facts import NO_FACTS, facts_of, is_replacement
from turnlog.session.ids import new_session_id
from turnlog.session.reading import EventsView
from turnlog.session.replace_block import block_replacement
from turnlog.session.write_gate import WriteGate

if TYPE_CHECKING:
    from turnlog.session.facts import EventFacts, EventSource
    from turnlog.session.surface import Transition

__all__ = ["Clock", "EventsView", "Session", "WriteGate", "system_clock"]

Clock = Callable[[], int]
"""Gives the time of an event in Unix milliseconds."""

END_SEED = "session/end-seed"
_CLOSING_TYPES = frozenset({"step/end", "turn/end"})


def system_clock() -> int:
    """Return the time of the system's clock in Unix milliseconds."""
    return time.time_ns() // 1_000_000


def _checked(clock: Clock) -> Clock:
    """Return a clock whose readings are certain to be storable."""

    def read() -> int:
        now = clock()
        if type(now) is not int or not -SAFE_INTEGER <= now <= SAFE_INTEGER:
            raise UsageError(f"the clock gave {now!r}, not Unix milliseconds as a whole number")
        return now

    return read


def _own_header(header: SessionHeader | Mapping[str, Any], session_id: str | None) -> SessionHeader:
    """Check a header and make it independent of what it was given as."""
    plain = header.to_dict() if isinstance(header, SessionHeader) else header
    checked = SessionHeader.from_dict(plain, session_id=session_id)
    if not checked.extra:
        return checked
    return SessionHeader.from_dict(lossless.decode(lossless.encode(checked.to_dict())))


class Session(ObservedSession):
    """One append-only log with everything that is derived from it while it grows.

    Made by `create` or `restore`. It belongs to the thread that made it, or that last called
    `bind_to_thread`.

    Args:
        header: Its metadata; fixed.
        log: A stored log to go on from; ownership passes to the session.
        seed: Events to begin with.
        strict: Whether `append` enforces the order of turns, steps and calls (L4). What comes with `log` or
            `seed` is not held to it.
        clock: Gives the time of new events.
    """

    __slots__ = (
        "__weakref__",
        "_append_row",
        "_clock",
        "first_live_seq",
        "gate",
    )

    def __init__(
        self,
        header: SessionHeader,
        *,
        log: EventLog | None = None,
        seed: EventSource | None = None,
        strict: bool = True,
        clock: Clock | None = None,
    ) -> None:
        inherited = seed.snapshot() if isinstance(seed, EventLog) else None
        stored = log if log is not None else inherited
        super().__init__(header, EventLog() if stored is None else stored, strict=strict)
        self.gate: WriteGate | None = None
        self._clock = system_clock if clock is None else _checked(clock)
        self._append_row = self._log.append_delta
        if stored is not None:
            self._folds.follow_log()
        elif seed is not None:
            self._take_seed(seed)
        self.first_live_seq = len(self._log)
        if (stored is not None or seed is not None) and not self._ends_in_marker():
            self._commit(self._build(END_SEED, {}, None, None, False), NO_FACTS, None)

    @classmethod
    def create(
        cls,
        id: str | None = None,
        *,
        seed: EventSource | None = None,
        header: SessionHeader | Mapping[str, Any] | None = None,
        strict: bool = True,
        clock: Clock | None = None,
    ) -> Self:
        """Make a new session.

        A session with a seed, even an empty one, marks its end with one `session/end-seed`, unless the seed
        ends in one.

        Args:
            id: Its id; without one, that of `header`, or a new UUIDv7.
            seed: Events it begins with, an `EventLog` or any iterable of events or dictionaries. Independent
                of it afterwards.
            header: Its metadata; by default id and time only.
            strict: Whether live appends are held to L4.
            clock: Gives the time of new events in Unix milliseconds.

        Returns:
            The session; nothing is stored or published.

        Raises:
            InvalidSessionIdError: The id cannot name a stored session (S1).
            InvalidEventError: The header is not valid or not that of `id`, or the seed event at `.index` is
                not valid (L2). The caller is at fault; no session exists.
        """
        if header is None:
            now = system_clock if clock is None else _checked(clock)
            id = new_session_id() if id is None else id
            header = {"version": FORMAT_VERSION, "id": id, "createdAt": now()}
        checked = _own_header(header, id)
        encode_segment(checked.id)
        return cls(checked, seed=seed, strict=strict, clock=clock)

    @classmethod
    def restore(
        cls,
        header: SessionHeader | Mapping[str, Any],
        log: EventLog,
        *,
        strict: bool = True,
        clock: Clock | None = None,
    ) -> Self:
        """Go on from a stored log.

        Costs time by the significant rows of the log; its chunks stay packed. A `session/end-seed` is
        appended unless the log ends in one. A log that ends inside a turn is taken as it is.

        Args:
            header: Its stored metadata.
            log: Its stored events, legacy forms already normalised. Ownership passes to the session.
            strict: Whether live appends are held to L4.
            clock: Gives the time of new events in Unix milliseconds.

        Returns:
            The session; nothing is stored or published.

        Raises:
            CorruptLogError: An event of the log is not valid, `.seq` says which. Its writer is at fault.
            UnsupportedFormatError: A required event type is not known here.
            InvalidEventError: The header is not valid.
        """
        own = _own_header(header, None)
        try:
            return cls(own, log=log, strict=strict, clock=clock)
        except InvalidEventError as error:
            raise CorruptLogError(
                session_id=own.id, reason=str(error), seq=error.index, kind="invalid-event"
            ) from error

    def append(
        self,
        type: str,
        data: Any,
        *,
        surface_op: Any = None,
        source_event_seqs: Any = None,
        ignorable: bool = False,
    ) -> SessionEvent:
        """Append one event. Costs time linear in the payload and does no I/O (D1).

        Everything is checked before anything is changed: after an error the log, the surface and all derived
        state are as before.

        Args:
            type: Event type, known, registered, or marked with `ignorable`.
            data: The payload, any lossless JSON; the event is independent of it.
            surface_op: For the three surface types: `"append"`, or
                `{"op": "replace", "start": seq, "end": seq}` for the nodes from start to end, inclusive.
            source_event_seqs: Seqs of earlier events that this one is made from; of a replacement at least
                every replaced node.
            ignorable: Mark the event of a third-party type so that readers that do not know it skip it.
                Registered types are marked as they were registered.

        Returns:
            The event, committed.

        Raises:
            InvalidEventError: The event could not be loaded again (L2). The caller is at fault.
            InvariantError: It breaks the order of turns, steps and calls (L4); `.rule` says how.
            BackpressureError: Too much waits for durability (D4); await `drain` and append again.
            UsageError: Called from another thread, or by an observer of this session.
        """
        if type == CHUNK_TYPE and surface_op is source_event_seqs is None and not ignorable:
            at = len(self._log)
            if _is_chunk(data) and self._append_delta(data["turn"], data["step"], data["chunk"]):
                return self._log[at]
        return self._append_checked(type, data, surface_op, source_event_seqs, ignorable)

    def append_chunk(self, turn: int, step: int, chunk: dict[str, Any]) -> None:
        """Append one `assistant/chunk`; the way for streams, which makes no event unless somebody observes.

        Args:
            turn: The open turn.
            step: The open step.
            chunk: A stream chunk.

        Raises:
            InvalidEventError: As `append`.
            InvariantError: As `append`.
            BackpressureError: As `append`.
            UsageError: As `append`.
        """
        if not self._append_delta(turn, step, chunk):
            self._append_checked(CHUNK_TYPE, {"turn": turn, "step": step, "chunk": chunk}, None, None, False)

    def _append_delta(self, turn: int, step: int, chunk: Any) -> bool:
        """Append a text, reasoning or tool-call delta of exactly that shape to the open step.

        This is the hot path: one call per token, so its checks are written out here. Whatever it declines
        is not wrong but takes the general way, which gives the errors.
        """
        tracker = self._tracker
        if (
            not self._fast
            or turn != tracker.open_turn
            or step != tracker.open_step
            or type(turn) is not int
            or type(step) is not int
            or type(chunk) is not dict
            or self._thread != get_ident()
        ):
            return False
        kind, index, call_id, name = chunk.get("type"), chunk.get("index"), None, None
        if kind == "text-delta" or kind == "reasoning-delta":
            text, expected = chunk.get("text"), 3
        elif kind == "tool-call-delta":
            text, call_id, expected = chunk.get("argumentsDelta"), chunk.get("id"), 4
            if type(call_id) is not str:
                return False
            if "name" in chunk:
                name, expected = chunk["name"], 5
                if type(name) is not str:
                    return False
        else:
            return False
        if (
            type(text) is not str
            or type(index) is not int
            or not 0 <= index <= SAFE_INTEGER
            or len(chunk) != expected
        ):
            return False
        encoded = encode_string(text)
        gate = self.gate
        if gate is None:
            self._append_row(kind, turn, step, index, self._clock(), encoded, call_id, name)
        else:
            size = len(encoded) + DELTA_OVERHEAD
            if gate.pending_bytes + size > gate.budget:
                gate.refuse(size, False)
            self._append_row(kind, turn, step, index, self._clock(), encoded, call_id, name)
            gate.pending_bytes += size
            if not gate.armed:
                gate.arm()
        if self._chunk_observers:
            self._publish(None)
        return True

    def _append_checked(
        self, type_: str, data: Any, surface_op: Any, sources: Any, ignorable: bool
    ) -> SessionEvent:
        """Append by the general way: check by check, then commit, then publish."""
        self._enter(type_)
        event = self._build(type_, data, sources, surface_op, ignorable)
        check_content(event, data)
        facts = facts_of(type_, data)
        replacing = is_replacement(surface_op)
        if self._strict:
            self._hold_to_order(type_, facts, replacing)
        transition = self._folds.plan(type_, event.seq, surface_op, sources, data)
        self._ask_gate(event, facts)
        self._consult(event)
        event = self._commit(event, facts, transition, replacing=replacing)
        self._publish(event)
        return event

    def _build(self, type_: str, data: Any, sources: Any, surface_op: Any, ignorable: bool) -> SessionEvent:
        if type(type_) is not str:
            raise InvalidEventError(field="type", reason="must be a string", session_id=self.id)
        if ignorable and type_ in vocabulary.KNOWN_TYPES:
            raise InvalidEventError(
                field="ignorable", reason="is only for third-party types", type=type_, session_id=self.id
            )
        flagged = ignorable or vocabulary.must_mark_ignorable(type_)
        admit_type(type_, ignorable=flagged)
        return SessionEvent.build(
            type_,
            len(self._log),
            self._clock(),
            data,
            source_event_seqs=sources,
            surface_op=surface_op,
            ignorable=flagged,
        )

    def _hold_to_order(self, type_: str, facts: EventFacts, replacing: bool) -> None:
        broken = self._tracker.check(type_, facts, replacing=replacing)
        if broken is not None:
            rule, reason = broken
            raise InvariantError(rule=rule, reason=reason, type=type_, session_id=self.id)

    def _ask_gate(self, event: SessionEvent, facts: EventFacts) -> None:
        gate = self.gate
        if gate is None:
            return
        size = len(event.line)
        if gate.pending_bytes + size > gate.budget:
            closing = event.type in _CLOSING_TYPES or (
                event.type == "tool/result" and facts.call_id in self._tracker.calls
            )
            gate.refuse(size, closing)

    def _commit(
        self,
        event: SessionEvent,
        facts: EventFacts,
        transition: Transition | None,
        *,
        replacing: bool = False,
    ) -> SessionEvent:
        """Put a checked event into the log and follow it. From here on nothing may fail."""
        self._log.append_event(event)
        self._folds.apply(event.type, event.seq, facts, replacing=replacing, transition=transition)
        gate = self.gate
        if gate is not None:
            gate.pending_bytes += len(event.line)
            if not gate.armed:
                gate.arm()
        # A packed run has its keys in one order, so of a chunk the log's own event is the one to hand out.
        return self._log[event.seq] if event.type == CHUNK_TYPE else event

    def replace_block(
        self, seq: int, block_index: int, replacement: Mapping[str, Any] | None = None
    ) -> SessionEvent:
        """Take one block out of what the model sees, by a replacement of its message on the surface.

        The log keeps the original. Use it for a block that a provider refuses, such as a broken image. In a
        strict session a tool result can be rewritten only while a turn is open.

        Args:
            seq: Seq of a message event that is on the surface.
            block_index: Which block, from 0; of a tool result, which block inside the result.
            replacement: The block to put there; by default a short text.

        Returns:
            The replacing event. It is the one to name for a further block of the same message.

        Raises:
            UsageError: The event is not on the surface, has no such block, or a call would part from its
                result.
            InvalidEventError: The replacement is not lossless JSON.
            InvariantError: A tool result is rewritten outside every turn.
        """
        if self._folds.surface.position(seq) is None:
            raise UsageError(
                f"seq {seq} of session {self.id!r} is not on the surface; see session.surface.nodes"
            )
        event = self._log[seq]
        answered = self._answered_calls() if event.type == "assistant/message" else ()
        made = block_replacement(
            event, block_index, replacement, answered=answered, pending=self._tracker.calls
        )
        return self.append(
            made.type, made.data, surface_op=made.surface_op, source_event_seqs=made.source_event_seqs
        )

    def _answered_calls(self) -> set[str]:
        results = (self._log[seq] for seq in self._folds.surface.nodes)
        return {
            facts.call_id
            for event in results
            if event.type == "tool/result" and (facts := facts_of(event.type, event.data)).call_id is not None
        }

    def _take_seed(self, seed: EventSource) -> None:
        for index, item in enumerate(seed):
            event = as_event(item, index)
            raw = event.to_dict()
            admit_type(event.type, ignorable=event.ignorable, index=index)
            check_content(event, raw["data"], index=index)
            if event.seq != index:
                raise InvalidEventError(
                    field="seq",
                    reason=f"is {event.seq} where {index} follows; a seed is contiguous from 0",
                    index=index,
                    type=event.type,
                )
            surface_op = raw.get("surfaceOp")
            transition = self._folds.plan(
                event.type, index, surface_op, raw.get("sourceEventSeqs"), raw["data"], index=index
            )
            facts = facts_of(event.type, raw["data"])
            self._commit(event, facts, transition, replacing=is_replacement(surface_op))

    def _ends_in_marker(self) -> bool:
        return len(self._log) > 0 and self._log[-1].type == END_SEED


def _is_chunk(data: Any) -> bool:
    return type(data) is dict and len(data) == 3 and "turn" in data and "step" in data and "chunk" in data
