"""`LiveSession`: a session that a store makes durable, with its recorder, its barrier and its end.

Owns the tie between one session and its store, thread and event loop. The rules of the log are the session's,
the queue and the writes are the coordinator's.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, Self

from turnlog.errors import UsageError, quote
from turnlog.persistence.recorder import end_block, note_failure
from turnlog.persistence.turn_recorder import TurnRecorder
from turnlog.session.session import Session

if TYPE_CHECKING:
    from turnlog.events.envelope import SessionEvent
    from turnlog.persistence.service import Undurable

_NOBODY = 0  # no thread has this ident, so the thread rule also keeps chunks out of a closed session


class SessionHome(Protocol):
    """What a live session needs of its store."""

    async def flush_session(self, session: LiveSession) -> None:
        """Wait until everything admitted before the call is durable (D2)."""

    async def drain_session(self, session: LiveSession) -> None:
        """Wait for room in the queue (D4)."""

    def durable_seq(self, session: LiveSession) -> int:
        """Return the seq below which every event is durable."""

    def undurable(self, session: LiveSession) -> Undurable | None:
        """Describe the events that a crash would lose, or None."""

    def retire(self, session: LiveSession) -> asyncio.Task[None]:
        """Start to flush the session, take it out of the store and release its claim."""


class LiveSession(Session):
    """A session that is being written; made by `store.create`, `store.resume` and `store.fork`.

    `async with` closes it at the end of the block. It belongs to the thread and the event loop that opened
    it; `append_from_thread` hands over from elsewhere.
    """

    __slots__ = ("_closing", "_home", "_loop", "_turn", "has_requested")

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.has_requested = False
        """Whether this object has recorded a request; the first one always records its header."""
        self._home: SessionHome | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._turn: TurnRecorder | None = None
        self._closing: asyncio.Task[None] | None = None

    def bind(self, home: SessionHome) -> None:
        """Tie the session to its store and to the running loop; called once, by the store.

        Args:
            home: The store.
        """
        self._home = home
        self._loop = asyncio.get_running_loop()

    @property
    def is_closed(self) -> bool:
        """Whether the session takes no more events."""
        return self._closing is not None

    @property
    def durable_seq(self) -> int:
        """Every event with a smaller seq is durable (D1)."""
        return self._at_home(closed=True).durable_seq(self)

    @property
    def undurable(self) -> Undurable | None:
        """The events that a crash would lose now and why they wait, or None (D1)."""
        return self._at_home(closed=True).undurable(self)

    async def flush(self) -> None:
        """Wait until every event admitted before the call survives a kill and a power cut (D2).

        Raises:
            UndurableError: The medium failed; everything is kept in order and written again.
            WriterFencedError: Another writer took the session over; `.pending` are the unwritten events.
            UsageError: The session belongs to no store, or is closed.

        Cancellation: only the waiting ends; the write goes on.
        Concurrency: concurrent callers share one barrier.
        """
        await self._at_home().flush_session(self)

    async def drain(self) -> None:
        """Wait until the queue has room for the event that was last refused (D4). Raises like `flush`."""
        await self._at_home().drain_session(self)

    def turn(self) -> TurnRecorder:
        """Prepare the next turn; `async with` opens it.

        Returns:
            The recorder to enter.

        Raises:
            UsageError: The session belongs to no store, is closed, or has a turn open.
        """
        self._at_home()
        self._refuse_open_turn()
        return TurnRecorder(self)

    def enter_turn(self, turn: TurnRecorder) -> None:
        """Write `turn/start` for a turn that is being entered; called by the turn itself.

        Args:
            turn: The turn; it learns its number.

        Raises:
            UsageError: Another turn is open.
        """
        self._refuse_open_turn()
        number = self.next_turn
        self.append("turn/start", {"turn": number})
        turn.number = number
        self._turn = turn

    def leave_turn(self) -> None:
        """Forget the turn that has just ended; called by the turn itself."""
        self._turn = None

    def append_from_thread(
        self,
        type: str,
        data: Any,
        *,
        surface_op: Any = None,
        source_event_seqs: Any = None,
        ignorable: bool = False,
    ) -> Future[SessionEvent]:
        """Hand an event over from any thread; it is appended in the loop that owns the session.

        Args:
            type: As in `append`.
            data: As in `append`; must not change before the result is there.
            surface_op: As in `append`.
            source_event_seqs: As in `append`.
            ignorable: As in `append`.

        Returns:
            A future with the event once it is admitted, or with what `append` raised. Waiting for it in the
            session's own thread would wait for ever.

        Raises:
            UsageError: The session belongs to no store, is closed, or its loop has ended.
        """
        self._at_home()
        result: Future[SessionEvent] = Future()

        def run() -> None:
            if not result.set_running_or_notify_cancel():
                return
            try:
                event = self.append(
                    type,
                    data,
                    surface_op=surface_op,
                    source_event_seqs=source_event_seqs,
                    ignorable=ignorable,
                )
            except BaseException as error:  # noqa: BLE001 - whatever it is, the waiting thread must hear it
                result.set_exception(error)
            else:
                result.set_result(event)

        assert self._loop is not None  # set together with the home
        try:
            self._loop.call_soon_threadsafe(run)
        except RuntimeError as error:
            raise UsageError(
                f"the event loop of session {quote(self.id)} has ended; resume the session in a running loop"
            ) from error
        return result

    async def flush_on_exit(self, cause: BaseException | None) -> None:
        """Make the end of a turn durable on the way out of its block.

        Args:
            cause: The exception on its way, or None. A failed flush joins it as a note and never replaces it.

        Raises:
            TurnlogError: The flush failed, on the normal path only.
        """
        if isinstance(cause, GeneratorExit):
            return  # a frame that is being closed must not wait; the write window makes the end durable
        try:
            await self.flush()
        except Exception as failure:
            if cause is None:
                raise
            note_failure(cause, failure, f"session {quote(self.id)} could not be made durable")

    def close(self) -> asyncio.Task[None]:
        """Take no more events and start to retire; an open turn of the recorder ends as disposed.

        Returns:
            The retirement: flushed, out of the store, claim released. Once it has failed, the next call
            tries again.

        Raises:
            UsageError: The session belongs to no store.
        """
        home = self._at_home(closed=True)
        closing = self._closing
        if closing is None or (closing.done() and (closing.cancelled() or closing.exception() is not None)):
            if self._turn is not None:
                self._dispose_turn(self._turn)
            self._thread = _NOBODY
            self._closing = closing = home.retire(self)
        return closing

    async def aclose(self) -> None:
        """Close the session: end an open turn as disposed, flush, leave the store, release the claim.

        Raises:
            UndurableError: Not everything could be made durable; the store keeps the events and tries again
                when it is closed, or when this is called again.
            WriterFencedError: Another writer took the session over.
            UsageError: The session belongs to no store.

        Cancellation: only the waiting ends; the session closes.
        """
        await asyncio.shield(self.close())

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await end_block(self.close(), error, f"session {quote(self.id)} could not be closed")

    def _enter(self, type_: str) -> None:
        if self._closing is not None:
            raise self._closed_error()
        super()._enter(type_)

    def _closed_error(self) -> UsageError:
        return UsageError(f"session {quote(self.id)} is closed; resume it with store.resume()")

    def _dispose_turn(self, turn: TurnRecorder) -> None:
        # Failures are noted on this error: closing goes on, and what was not written is repaired on resume.
        cause = asyncio.CancelledError(f"session {self.id} is closed while its turn is open")
        turn.close({"kind": "aborted", "reason": {"kind": "disposed"}}, cause)

    def _refuse_open_turn(self) -> None:
        if self.open_turn is not None:
            raise UsageError(
                f"turn {self.open_turn} of session {quote(self.id)} is still open; leave it first"
            )

    def _at_home(self, *, closed: bool = False) -> SessionHome:
        if self._home is None:
            raise UsageError(
                f"session {quote(self.id)} belongs to no store yet; use store.create() or store.resume()"
            )
        if self._closing is not None and not closed:
            raise self._closed_error()
        return self._home
