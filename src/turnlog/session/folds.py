"""The derived state that a session keeps while its log grows: order, surface, request state, messages.

Owns following a log, event by event or row by row, and reading the state out. What a single event must be
is `admission`'s part; the log belongs to the session.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Raw, Struct
from msgspec.json import Decoder

from turnlog.errors import InvalidEventError, UnsupportedFormatError
from turnlog.events import lossless, vocabulary
from turnlog.events.chunk_runs import ChunkRow
from turnlog.events.envelope import SessionEvent
from turnlog.events.shapes import check_shape
from turnlog.session.derive import message_of
from turnlog.session.facts import ORDERED_TYPES, EventFacts, facts_of, is_replacement
from turnlog.session.invariants import InvariantTracker
from turnlog.session.request_state import canonical_header
from turnlog.session.row_views import ReplaceMarker, view_row
from turnlog.session.surface import SurfaceManager, Transition

if TYPE_CHECKING:
    from turnlog.events.envelope import EventRow
    from turnlog.events.log import EventLog


class SessionFolds:
    """State derived from one log, which it reads and never changes.

    Args:
        log: The session's log.
        session_id: For errors.
    """

    __slots__ = ("_context_seq", "_header_seq", "_log", "_messages", "_session_id", "surface", "tracker")

    def __init__(self, log: EventLog, session_id: str) -> None:
        self._log = log
        self._session_id = session_id
        self.tracker = InvariantTracker()
        self.surface = SurfaceManager(log.__getitem__)
        self._header_seq: int | None = None
        self._context_seq: int | None = None
        self._messages: dict[int, bytes | None] = {}

    def apply(
        self, type_: str, seq: int, facts: EventFacts, *, replacing: bool, transition: Transition | None
    ) -> None:
        """Follow an event that has entered the log.

        Args:
            type_: Its type.
            seq: Its position.
            facts: Its facts.
            replacing: Whether it replaces nodes of the surface.
            transition: Its plan, `None` when it does not join the surface.
        """
        if type_ in ORDERED_TYPES:
            self.tracker.apply(type_, facts, replacing=replacing)
        if transition is not None:
            self.surface.apply(seq, transition)
            for shadowed in transition.shadowed:
                self._messages.pop(shadowed, None)
        elif type_ == "request/header":
            self._header_seq = seq
        elif type_ == "request/context":
            self._context_seq = seq

    def follow_log(self) -> None:
        """Follow the whole log from its first row, checking what a stored log is held to.

        Packed rows were checked when they were read and change no state here, so the cost goes by the
        other rows.

        Raises:
            InvalidEventError: A row is no valid event, or stands in the wrong place; `.index` is its seq.
            UnsupportedFormatError: A required event type is not known here.
        """
        expected = 0
        for row in self._log.rows:
            if row.first_seq != expected:
                raise InvalidEventError(
                    field="seq", reason=f"is {row.first_seq} where {expected} follows", index=expected
                )
            expected = row.last_seq + 1
            if not isinstance(row, ChunkRow):
                self._follow_row(row)

    def _follow_row(self, row: EventRow) -> None:
        viewed = view_row(row.type, row.first_seq, row.line)
        if viewed is None:
            self._follow_exactly(row)
            return
        view, facts = viewed
        if not vocabulary.is_loadable(row.type):
            raise self._unknown_type(row.type, row.first_seq)
        marker = None if view.surface_op is msgspec.UNSET else view.surface_op
        sources = None if view.source_event_seqs is msgspec.UNSET else view.source_event_seqs
        replacing = isinstance(marker, ReplaceMarker)
        surface_op = marker.as_dict() if isinstance(marker, ReplaceMarker) else marker
        data = row.event().data if replacing and row.type == "tool/result" else None
        transition = self.plan(row.type, row.first_seq, surface_op, sources, data, index=row.first_seq)
        self.apply(row.type, row.first_seq, facts, replacing=replacing, transition=transition)

    def _follow_exactly(self, row: EventRow) -> None:
        event = SessionEvent.from_line(row.line)
        if event.seq != row.first_seq:
            raise InvalidEventError(
                field="seq", reason=f"is {event.seq} where {row.first_seq} follows", index=row.first_seq
            )
        if not event.ignorable and not vocabulary.is_loadable(event.type):
            raise self._unknown_type(event.type, event.seq)
        data, surface_op = event.data, event.surface_op
        check_shape(event.type, data, event.seq)
        transition = self.plan(
            event.type, event.seq, surface_op, event.source_event_seqs, data, index=event.seq
        )
        facts = facts_of(event.type, data)
        self.apply(event.type, event.seq, facts, replacing=is_replacement(surface_op), transition=transition)

    def _unknown_type(self, type_: str, seq: int) -> UnsupportedFormatError:
        return UnsupportedFormatError(
            session_id=self._session_id,
            found=type_,
            supported="the known and the registered types",
            direction="unknown-type",
            seq=seq,
        )

    def plan(
        self,
        type_: str,
        seq: int,
        surface_op: object,
        sources: object,
        data: Any,
        *,
        index: int | None = None,
    ) -> Transition | None:
        """Plan how an event joins the surface, as `SurfaceManager.plan`, with errors that say where.

        Args:
            type_: Event type.
            seq: Seq that the event has or will have.
            surface_op: Its marker, `None` when absent.
            sources: Its `sourceEventSeqs`, `None` when absent.
            data: Its payload; only needed for a tool result that replaces another.
            index: Position to name in errors.

        Raises:
            InvalidEventError: Marker or sources are not right; nothing is changed.
        """
        try:
            return self.surface.plan(type_, seq, surface_op, sources, data)
        except InvalidEventError as error:
            raise InvalidEventError(
                field=error.field,
                reason=error.reason,
                index=index,
                type=type_,
                session_id=self._session_id,
            ) from None

    def messages(self) -> list[dict[str, Any]]:
        """Return the messages of the surface, fresh objects made from cached text."""
        out: list[dict[str, Any]] = []
        cache = self._messages
        for seq in self.surface.nodes:
            if seq not in cache:
                cache[seq] = _message_text(self._log[seq])
            text = cache[seq]
            if text is not None:
                out.append(lossless.decode(text))
        return out

    def request_header(self) -> dict[str, Any] | None:
        """Return the latest request header in canonical form, fresh, or `None` before the first."""
        if self._header_seq is None:
            return None
        return canonical_header(self._log[self._header_seq].data["header"])

    def request_context(self) -> dict[str, Any] | None:
        """Return the latest request context, fresh, or `None` before the first."""
        if self._context_seq is None:
            return None
        return dict(self._log[self._context_seq].data)


class _UserLine(Struct):
    data: Raw


class _Message(Struct):
    message: Raw


class _MessageLine(Struct):
    data: _Message


class _Content(Struct):
    content: list[Raw]


_user_line = Decoder(_UserLine).decode
_message_line = Decoder(_MessageLine).decode
_content = Decoder(_Content).decode


def _message_text(event: SessionEvent) -> bytes | None:
    """Return the encoded message inside a surface event as it is stored, `None` if it says nothing."""
    try:
        if event.type == "user/message":
            return bytes(_user_line(event.line).data)
        raw = _message_line(event.line).data.message
        if event.type == "assistant/message" and not _content(raw).content:
            return None
        return bytes(raw)
    except (msgspec.MsgspecError, RecursionError):
        # Lone surrogates and a deep stack are beyond the typed decoder.
        message = message_of(event.type, event.data)
        return None if message is None else lossless.encode(message)
