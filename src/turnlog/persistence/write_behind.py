"""`WriteBehind`: when one live session's events are written, in which batch, and who is told.

Owns the window, the barrier (D2), batches in doubt (B3), retries and the byte count (D4). The queue is
the log's own range from `durable_seq` on. It knows nothing of backends, claims or adoption: a `Sink`
does the work, in its turn on the id's chain.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from turnlog.errors import (
    BackendError,
    CorruptLogError,
    LogError,
    TurnlogError,
    UndurableError,
    UsageError,
    WriterFencedError,
)
from turnlog.persistence.hooks import wrote_nothing
from turnlog.persistence.live_gate import LiveGate
from turnlog.persistence.service import Undurable

if TYPE_CHECKING:
    from turnlog.events.batch import EncodedBatch
    from turnlog.events.log import EventLog
    from turnlog.persistence.backend import LogSummary
    from turnlog.persistence.timing import Scheduler, Timer, Timing
    from turnlog.persistence.write_sink import Sink

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, eq=False)
class _Cut:
    """One batch as it was handed to the sink; in doubt it is handed over again as the same object."""

    batch: EncodedBatch
    summary: LogSummary
    nbytes: int


@dataclass(slots=True, eq=False)
class _Waiter:
    """Somebody who waits for `target` events to be durable, or for room if `target` is None."""

    target: int | None
    begun: int
    """Attempts begun when it came."""
    done: asyncio.Future[None]

    def fails(self, attempt: int, end: int) -> bool:
        """Tell whether a failed attempt is its failure: one begun since, or the barrier that it shares.

        Args:
            attempt: Number of the attempt.
            end: Seq after the last event of the attempt if a flush began it; -1 otherwise.
        """
        return self.begun < attempt or (self.target is not None and self.target <= end)


class WriteBehind:
    """The write-behind controller of one live session.

    Args:
        session_id: The session, for messages.
        backend: The backend's name, for messages.
        log: The session's log; its range from `durable_seq` is the queue.
        sink: Does the work.
        budget: Bytes that may wait (D4).
        reserve: Bytes beyond that for closing events.
        timing: Window and retries.
        scheduler: The clock.
    """

    def __init__(
        self,
        session_id: str,
        backend: str,
        log: EventLog,
        sink: Sink,
        *,
        budget: int,
        reserve: int,
        timing: Timing,
        scheduler: Scheduler,
    ) -> None:
        self._session_id = session_id
        self._backend = backend
        self._log = log
        self._sink = sink
        self._timing = timing
        self._scheduler = scheduler
        self.gate = LiveGate(
            session_id=session_id, backend=backend, budget=budget, reserve=reserve, wake=self._wake
        )
        self.error: Exception | None = None
        """What the last attempt failed with, or None after a success."""
        self.ended: TurnlogError | None = None
        """Why nothing will ever be written again, or None."""
        self._ready = False
        self._doubt: _Cut | None = None
        self._active: asyncio.Future[object] | asyncio.Task[None] | None = None
        self._begun = 0
        self._is_barrier = False
        self._waiters: list[_Waiter] = []
        self._window: Timer | None = None
        self._overdue = False
        self._retry: Timer | None = None
        self._retry_delay = timing.retry_first
        self._left = False

    # -- what others ask ------------------------------------------------------------------------

    @property
    def durable_seq(self) -> int:
        """Every event below this seq is durable (D1); exclusive."""
        return self.gate.durable_seq

    @property
    def has_work(self) -> bool:
        """Whether anything waits or is being written."""
        return self._active is not None or len(self._log) > self.durable_seq

    @property
    def pending(self) -> int:
        """Number of events that are not known to be durable."""
        return len(self._log) - self.durable_seq

    def undurable(self) -> Undurable | None:
        """Describe the range that a crash would lose, or None when there is none (D1)."""
        first, end = self.durable_seq, len(self._log)
        if first >= end:
            return None
        return Undurable(first, end, self.gate.pending_bytes, self._log[first].time, self.error)

    def start(self, durable_seq: int | None = None) -> None:
        """Begin: settle ownership in the background, or take over a log whose start is durable.

        Args:
            durable_seq: Given when the sink is ready already; what follows waits for a window.
        """
        if durable_seq is None:
            self._kick()
            return
        self._ready = True
        self.gate.durable_seq = durable_seq
        if self.pending and not self.gate.armed:
            self._wake(False)

    async def flush(self) -> None:
        """Wait until everything in the log now is durable (D2); see `SessionPersistence.flush`."""
        if self.ended is not None:
            raise self.ended
        target = len(self._log)
        if not self._ready or target > self.durable_seq:
            await self._wait(target)

    async def drain(self) -> None:
        """Wait for room in the queue (D4); see `SessionPersistence.drain`."""
        if self.ended is not None:
            raise self.ended
        if not self.gate.has_room:
            await self._wait(None)
        self.gate.wanted = 0

    def abandon(self, why: TurnlogError) -> None:
        """Write nothing more and admit nothing more; what is being written goes on.

        Args:
            why: What every further append, flush and drain raises.
        """
        if self.ended is None:
            self.ended = why
            self.gate.shut(lambda: why)
        self.leave()

    def leave(self) -> None:
        """Write only what somebody waits for from now on: no window and no retry begins any more."""
        self._left = True
        self.stop()

    def stop(self) -> None:
        """Forget every timer; what is being written goes on."""
        for timer in (self._window, self._retry):
            if timer is not None:
                timer.cancel()
        self._window = self._retry = None
        self._overdue = False

    # -- when ------------------------------------------------------------------------------------

    def _wake(self, full: bool) -> None:
        """Hear from the gate that a first event waits, or that the queue is full."""
        if full:
            if self.error is None:  # a medium that fails is left to its retries and to `drain`
                self._due(in_append=True)
            return
        # Wherever the gate is disarmed the window is cancelled, so there is none to be replaced here.
        self.gate.armed = True
        delay = self._timing.window
        if self.error is not None:
            delay = max(delay, self._timing.retry_floor)
        self._window = self._scheduler.after(delay, self._window_over)

    def _window_over(self) -> None:
        self._window = None
        self._due()

    def _due(self, *, in_append: bool = False) -> None:
        if self._active is not None:
            self._overdue = True  # the tail goes out right after the write that is running (D1)
        else:
            self._kick(at_once=not in_append)

    def _retry_over(self) -> None:
        self._retry = None
        self._kick()

    def _kick(self, *, at_once: bool = True) -> None:
        """Begin an attempt unless one is running: at once where nothing is in its way, else in its turn."""
        if self._active is not None or self.ended is not None:
            return
        if at_once and self._ready and self.pending and self._sink.is_free:
            self._begin()
        else:
            self._active = self._sink.submit(self._attempt)

    async def _wait(self, target: int | None) -> None:
        waiter = _Waiter(target, self._begun, asyncio.get_running_loop().create_future())
        self._waiters.append(waiter)
        self._kick()
        try:
            await waiter.done
        finally:
            if waiter in self._waiters:
                self._waiters.remove(waiter)

    # -- one attempt ----------------------------------------------------------------------------

    def _count_attempt(self) -> int:
        self._begun += 1
        self._is_barrier = bool(self._waiters)
        if self._retry is not None:
            self._retry.cancel()
            self._retry = None
        return self._begun

    def _begin(self) -> None:
        """Hand a batch over without a task, which would cost two turns of the loop."""
        number = self._count_attempt()
        cut = self._doubt if self._doubt is not None else self._cut()
        assert cut is not None  # there is something pending
        self._active = writing = self._sink.begin(cut.batch, cut.summary)
        writing.add_done_callback(lambda done: self._written(number, cut, done))

    def _written(self, number: int, cut: _Cut, done: asyncio.Future[object]) -> None:
        self._active = None
        if done.cancelled():
            self._doubt = cut  # the loop is being torn down in the middle of a write
        elif (error := done.exception()) is None:
            self._succeeded(cut)
        elif isinstance(error, Exception):
            self._failed(number, cut, self._sink.failure(error))
        else:
            self._doubt = cut
            raise error

    async def _attempt(self) -> None:
        number = self._count_attempt()
        cut: _Cut | None = None
        try:
            if not self._ready:
                self.gate.durable_seq = await self._sink.ready()
                self._ready = True
                self._begun = number = self._begun + 1  # who came meanwhile is served by this write
                cut = None if self._in_window() else self._cut()
            else:
                cut = self._doubt if self._doubt is not None else self._cut()
            if cut is not None:
                await self._sink.write(cut.batch, cut.summary)
        except Exception as error:  # noqa: BLE001  # whatever it is, the batch is kept and it is told
            self._active = None
            self._failed(number, cut, error)
        except BaseException:
            self._active = None
            self._doubt = cut  # the loop is being torn down in the middle of a write
            raise
        else:
            self._active = None
            self._succeeded(cut)

    def _in_window(self) -> bool:
        """Whether what waits has time until its window ends; events before the gate have no window."""
        return self._window is not None and not self._waiters

    def _cut(self) -> _Cut | None:
        """Take everything that waits as one batch; the next event starts a window of its own."""
        if self._window is not None:
            self._window.cancel()
            self._window = None
        self._overdue = self.gate.armed = False
        if not self.pending:
            return None
        return _Cut(self._log.cut(self.durable_seq), self._sink.summary(), self.gate.pending_bytes)

    def _succeeded(self, cut: _Cut | None) -> None:
        self._doubt = None
        if self.error is not None:
            self.error = None
            self._retry_delay = self._timing.retry_first
            logger.info("session %s: writing works again", self._session_id)
        if cut is not None:
            self.gate.durable_seq = cut.batch.last_seq + 1
            self.gate.pending_bytes -= cut.nbytes
        if not self.pending:
            self.gate.pending_bytes = 0  # an earlier lifecycle of the same object may have written them
        self._settle(self._is_served)
        if self._waiters or (self._is_behind and not self._left):
            self._kick()
        elif not self.pending:
            self._sink.drained()

    @property
    def _is_behind(self) -> bool:
        """Whether events wait whose window is over, or that never had one."""
        return self._overdue or (self.pending > 0 and not self.gate.armed)

    def _is_served(self, waiter: _Waiter) -> bool:
        if waiter.target is None:
            return self.gate.has_room
        return waiter.target <= self.durable_seq

    def _settle(self, which: Callable[[_Waiter], bool], error: Callable[[], Exception] | None = None) -> int:
        """Resolve or reject the waiters that `which` names; return how many there were."""
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if not which(waiter):
                self._waiters.append(waiter)
            elif waiter.done.done():
                pass  # cancelled in this very turn
            elif error is None:
                waiter.done.set_result(None)
            else:
                waiter.done.set_exception(error())
        return len(waiters) - len(self._waiters)

    # -- failure --------------------------------------------------------------------------------

    def _failed(self, number: int, cut: _Cut | None, error: Exception) -> None:
        if cut is not None:
            self._doubt = None if wrote_nothing(error) else cut
        if _is_final(error, writing=cut is not None):
            self._end(error)
            return
        first_failure = self.error is None
        self.error = error
        self.stop()
        self.gate.armed = False  # the next event asks for a new window, and so for a retry
        end = cut.batch.last_seq + 1 if cut is not None and self._is_barrier else -1
        told = self._settle(lambda waiter: waiter.fails(number, end), lambda: self._undurable_error(error))
        if first_failure and not told and not self._waiters:
            logger.warning(
                "session %s: a background write failed, %d events are kept and retried: %s",
                self._session_id,
                self.pending,
                error,
            )
        if not self._left:
            self._retry = self._scheduler.after(self._retry_delay, self._retry_over)
            self._retry_delay = min(self._retry_delay * 2, self._timing.retry_max)
        if self._waiters:
            self._kick()

    def _undurable_error(self, error: Exception) -> Exception:
        """Make what one waiter is told: a refusal as it is, a failed medium as `UndurableError`."""
        if isinstance(error, LogError):
            return error
        reason, path = (error.reason, error.path) if isinstance(error, BackendError) else (str(error), None)
        told = UndurableError(pending=self.pending, backend=self._backend, reason=reason, path=path)
        told.__cause__ = error
        return told

    def _end(self, error: Exception) -> None:
        """Stop for good: tell everybody, refuse further appends, hand the unwritten events back (W1)."""
        if isinstance(error, WriterFencedError):
            error.pending = tuple(self._log[self.durable_seq :])
        assert isinstance(error, TurnlogError)
        self.ended = self.error = error
        self.stop()
        self.gate.shut(lambda: error)
        told = self._settle(lambda _: True, lambda: error)
        if not told:
            logger.warning("session %s: nothing more can be written: %s", self._session_id, error)


def _is_final(error: Exception, *, writing: bool) -> bool:
    """Tell whether no retry can help: the log is somebody else's, or the call can never be right."""
    if isinstance(error, CorruptLogError):
        return not writing
    return isinstance(error, UsageError) or (isinstance(error, LogError) and not error.retryable)
