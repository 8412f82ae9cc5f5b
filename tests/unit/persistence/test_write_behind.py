"""The write-behind controller alone: windows, the barrier, batches in doubt, retries and the byte budget."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable

import pytest

from turnlog.errors import (
    BackendError,
    BackpressureError,
    CorruptLogError,
    SessionBusyError,
    SessionCollisionError,
    UndurableError,
    UsageError,
    WriterFencedError,
)
from turnlog.events.batch import EncodedBatch
from turnlog.persistence.backend import LogSummary
from turnlog.persistence.id_chains import IdChains
from turnlog.persistence.timing import LoopScheduler, Timing
from turnlog.persistence.write_behind import WriteBehind
from turnlog.persistence.write_sink import Sink as Port
from turnlog.session.session import Session
from turnlog.testing.manual_time import ManualScheduler, settle

NOTHING = BackendError(backend="test", reason="refused", wrote_nothing=True)
UNKNOWN = BackendError(backend="test", reason="no reply")


class Sink(Port):
    """Records batches; each attempt takes the next scripted failure, and waits while `held`."""

    at_once = True
    """Whether a write may begin in the turn of the loop that asks for it."""

    def __init__(self) -> None:
        self.chains = IdChains()
        self.batches: list[EncodedBatch] = []
        self.summaries: list[LogSummary] = []
        self.failures: deque[BaseException | None] = deque()
        self.ready_failures: deque[BaseException] = deque()
        self.stored = 0
        self.drains = 0
        self.held: asyncio.Event | None = None
        self.entered = asyncio.Event()
        self.on_write: Callable[[], None] | None = None

    def submit(self, operation: Callable[[], Awaitable[None]]) -> asyncio.Task[None]:
        return self.chains.submit("s", operation)

    async def ready(self) -> int:
        if self.ready_failures:
            raise self.ready_failures.popleft()
        return self.stored

    async def write(self, batch: EncodedBatch, summary: LogSummary) -> None:
        self.batches.append(batch)
        self.summaries.append(summary)
        self.entered.set()
        if self.held is not None:
            await self.held.wait()
        await asyncio.sleep(0)
        if self.on_write is not None:
            self.on_write()
        failure = self.failures.popleft() if self.failures else None
        if failure is not None:
            raise failure

    @property
    def is_free(self) -> bool:
        return self.at_once and self.chains.is_empty("s")

    def begin(self, batch: EncodedBatch, summary: LogSummary) -> asyncio.Future[object]:
        writing: asyncio.Future[object] = asyncio.ensure_future(self.write(batch, summary))
        self.chains.add("s", writing)
        return writing

    def failure(self, error: Exception) -> Exception:
        return error

    def summary(self) -> LogSummary:
        return LogSummary(turns=self.drains)

    def drained(self) -> None:
        self.drains += 1

    @property
    def spans(self) -> list[tuple[int, int]]:
        """First and last seq of every batch, in order."""
        return [(batch.first_seq, batch.last_seq) for batch in self.batches]


@pytest.fixture(autouse=True, params=[True, False], ids=["at-once", "in-turn"])
def begin_at_once(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run every test with writes that begin at once where they can, and with writes that wait their turn."""
    monkeypatch.setattr(Sink, "at_once", request.param)


class Bench:
    """One session with its controller on a clock that the test moves."""

    def __init__(
        self, *, window: float = 0.2, budget: int = 1 << 20, reserve: int = 1 << 10, start: bool = True
    ) -> None:
        self.clock = ManualScheduler()
        self.sink = Sink()
        self.session = Session.create("s")
        self.writer = WriteBehind(
            "s",
            "test",
            self.session.log,
            self.sink,
            budget=budget,
            reserve=reserve,
            timing=Timing(window=window),
            scheduler=self.clock,
        )
        self.session.gate = self.writer.gate
        if start:
            self.writer.start(0)

    def add(self, count: int = 1) -> None:
        """Append small events."""
        for _ in range(count):
            self.session.append("feedback/record", {"n": self.session.seq})


async def test_one_fixed_window_from_the_first_event() -> None:
    """The first waiting event opens one window; the queue owns its copy (D1, WB1, CC7)."""
    bench = Bench()
    payload = {"n": 1}
    bench.session.append("feedback/record", payload)
    payload["n"] = 2
    await bench.clock.advance(0.199)
    assert bench.sink.spans == []
    await bench.clock.advance(0.001)
    assert bench.sink.spans == [(0, 0)]
    assert [event.data for event in bench.sink.batches[0].events()] == [{"n": 1}]
    assert bench.writer.durable_seq == 1
    assert bench.clock.waiting == ()


async def test_later_events_do_not_move_the_window() -> None:
    """Twenty events ten milliseconds apart are one batch at the end of the window (D1, WB2)."""
    bench = Bench()
    for _ in range(20):
        bench.add()
        await bench.clock.advance(0.01)
    assert bench.sink.spans == [(0, 19)]
    assert bench.clock.asked == [0.2]


async def test_a_window_of_zero_is_the_next_turn() -> None:
    """With a window of 0 what one turn of the loop appended is one batch of the next (D1)."""
    bench = Bench(window=0)
    bench.add(3)
    assert bench.sink.spans == []
    await bench.clock.advance(0)
    assert bench.sink.spans == [(0, 2)]


async def test_the_loop_scheduler_calls_soon_or_later() -> None:
    """The default clock uses the next turn of the loop for 0 and a timer otherwise (D1)."""
    called: list[str] = []
    scheduler = LoopScheduler()
    scheduler.after(0, lambda: called.append("soon"))
    scheduler.after(0.001, lambda: called.append("later"))
    scheduler.after(0.001, lambda: called.append("never")).cancel()
    await asyncio.sleep(0)
    assert called == ["soon"]
    while len(called) < 2:
        await asyncio.sleep(0.001)
    assert called == ["soon", "later"]


async def test_concurrent_flushes_share_one_write() -> None:
    """Callers of flush share one batch, and the window they overtook does not fire again (D2, WB3)."""
    bench = Bench()
    bench.add(2)
    await asyncio.gather(*(bench.writer.flush() for _ in range(5)))
    assert bench.sink.spans == [(0, 1)]
    await bench.clock.advance(1)
    assert bench.sink.spans == [(0, 1)]


async def test_a_flush_with_nothing_pending_writes_nothing() -> None:
    """A no-op flush writes nothing (D2, CC13)."""
    bench = Bench()
    await bench.writer.flush()
    await bench.writer.drain()
    bench.add()
    await bench.writer.flush()
    await bench.writer.flush()
    assert bench.sink.spans == [(0, 0)]


async def test_a_flush_joins_a_running_write_and_drains_the_tail() -> None:
    """A flush during a write needs at most that write and one more (D2, WB3, PE4)."""
    bench = Bench()
    bench.sink.held = asyncio.Event()
    bench.add()
    await bench.clock.advance(0.2)
    bench.add(2)
    flushes = [asyncio.ensure_future(bench.writer.flush()) for _ in range(2)]
    await settle()
    assert not any(flush.done() for flush in flushes)
    bench.sink.held.set()
    await asyncio.gather(*flushes)
    assert bench.sink.spans == [(0, 0), (1, 2)]


async def test_a_producer_that_never_stops_does_not_hold_a_flush() -> None:
    """Events admitted during a flush ride along in at most one further batch: no livelock (D2)."""
    bench = Bench()
    bench.sink.on_write = lambda: bench.add(3)
    stop = False

    async def produce() -> None:
        while not stop:
            bench.add()
            await asyncio.sleep(0)

    producer = asyncio.ensure_future(produce())
    await asyncio.sleep(0)
    for _ in range(5):
        before, target = len(bench.sink.batches), bench.session.seq
        await bench.writer.flush()
        assert bench.writer.durable_seq >= target
        assert len(bench.sink.batches) - before <= 2
        assert bench.writer.pending > 0
    stop = True
    await producer


async def test_work_after_a_flush_opens_a_new_window() -> None:
    """After a barrier the next event has a whole window of its own (D1, WB4)."""
    bench = Bench()
    bench.add()
    await bench.writer.flush()
    bench.add()
    await bench.clock.advance(0.199)
    assert bench.sink.spans == [(0, 0)]
    await bench.clock.advance(0.001)
    assert bench.sink.spans == [(0, 0), (1, 1)]


async def test_an_overdue_tail_goes_out_right_after_the_write() -> None:
    """A tail whose window ended during a write is written as soon as that write ends (D1, WB5)."""
    bench = Bench()
    bench.sink.held = asyncio.Event()
    bench.add()
    await bench.clock.advance(0.2)
    bench.add()
    await bench.clock.advance(0.2)
    assert bench.sink.spans == [(0, 0)]
    bench.sink.held.set()
    await settle()
    assert bench.sink.spans == [(0, 0), (1, 1)]


async def test_a_tail_in_its_window_keeps_it() -> None:
    """A tail whose window has not ended when the write ends waits for it (D1, WB6)."""
    bench = Bench()
    bench.sink.held = asyncio.Event()
    bench.add()
    await bench.clock.advance(0.2)
    bench.add()
    await bench.clock.advance(0.1)
    bench.sink.held.set()
    await settle()
    assert bench.sink.spans == [(0, 0)]
    await bench.clock.advance(0.1)
    assert bench.sink.spans == [(0, 0), (1, 1)]


async def test_a_background_failure_is_kept_told_once_and_retried(caplog: pytest.LogCaptureFixture) -> None:
    """A failed background write keeps its events, warns once, and is retried with backoff (D1, D2)."""
    bench = Bench()
    bench.sink.failures.extend([NOTHING] * 9)
    bench.add(2)
    with caplog.at_level(logging.INFO):
        await bench.clock.advance(0.2)
        waiting = bench.writer.undurable()
        assert waiting is not None
        assert (waiting.first_seq, waiting.end_seq, len(waiting), waiting.error) == (0, 2, 2, NOTHING)
        assert waiting.since == bench.session.events[0].time
        assert waiting.nbytes == bench.writer.gate.pending_bytes > 0
        for _ in range(10):
            await bench.clock.advance(30)
    retries = [delay for delay in bench.clock.asked if delay != 0.2]
    assert retries == [0.5, 1, 2, 4, 8, 16, 30, 30, 30]
    assert [record.levelno for record in caplog.records] == [logging.WARNING, logging.INFO]
    assert bench.writer.undurable() is None
    assert bench.writer.gate.pending_bytes == 0
    bench.sink.failures.append(NOTHING)
    bench.add()
    await bench.clock.advance(0.2)
    assert bench.clock.asked[-1] == 0.5


async def test_after_a_failure_the_next_event_starts_a_window() -> None:
    """The automatic write pauses after a failure and a new event ends the pause, in order (D2, WB7)."""
    bench = Bench()
    bench.sink.failures.append(NOTHING)
    bench.add()
    await bench.clock.advance(0.2)
    bench.add()
    await bench.clock.advance(0.199)
    assert bench.sink.spans == [(0, 0)]
    await bench.clock.advance(0.001)
    assert bench.sink.spans == [(0, 0), (0, 1)]
    assert bench.clock.waiting == ()


async def test_a_failing_medium_is_not_asked_in_every_turn() -> None:
    """With a window of 0 an event after a failure waits a moment, so that a retry is no busy loop (D1)."""
    bench = Bench(window=0)
    bench.sink.failures.append(NOTHING)
    bench.add()
    await bench.clock.advance(0)
    bench.add()
    assert bench.clock.asked[-1] == 0.05


async def test_a_flush_retries_an_overlapping_background_failure(caplog: pytest.LogCaptureFixture) -> None:
    """A flush that joined a write which then fails writes again itself, without a warning (D2, WB8, PE5)."""
    bench = Bench()
    bench.sink.held = asyncio.Event()
    bench.sink.failures.append(NOTHING)
    bench.add()
    await bench.clock.advance(0.2)
    flush = asyncio.ensure_future(bench.writer.flush())
    await settle()
    bench.sink.held.set()
    await flush
    assert bench.sink.spans == [(0, 0), (0, 0)]
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


async def test_a_failed_flush_raises_and_keeps_everything(caplog: pytest.LogCaptureFixture) -> None:
    """A failed barrier rejects all who share it, without a warning, and keeps its events (D2, WB9)."""
    bench = Bench()
    bench.sink.failures.append(NOTHING)
    bench.add(3)
    outcomes = await asyncio.gather(bench.writer.flush(), bench.writer.flush(), return_exceptions=True)
    for outcome in outcomes:
        assert isinstance(outcome, UndurableError)
        assert outcome.pending == 3
        assert outcome.__cause__ is NOTHING
    assert caplog.records == []
    assert bench.writer.pending == 3
    await bench.writer.flush()
    assert bench.sink.spans == [(0, 2), (0, 2)]


async def test_a_failed_flush_is_retried_in_the_background() -> None:
    """Also what a flush could not write is retried without a further call (D2)."""
    bench = Bench()
    bench.sink.failures.append(NOTHING)
    bench.add()
    with pytest.raises(UndurableError):
        await bench.writer.flush()
    assert bench.clock.waiting == (0.5,)
    await bench.clock.advance(0.5)
    assert bench.writer.pending == 0


async def test_an_unexpected_exception_is_a_failed_write() -> None:
    """Whatever a sink raises, the batch is kept and the caller of flush is told the cause (D2)."""
    bench = Bench()
    fault = ZeroDivisionError("a bug")
    bench.sink.failures.append(fault)
    bench.add()
    with pytest.raises(UndurableError) as told:
        await bench.writer.flush()
    assert told.value.__cause__ is fault
    await bench.writer.flush()
    assert bench.sink.batches[0] is bench.sink.batches[1]


async def test_a_failed_batch_of_150000_events_is_kept() -> None:
    """A batch of any number of events survives a failure and is joined, not encoded, again (D2, WB10)."""
    bench = Bench(budget=1 << 30)
    bench.session.append("turn/start", {"turn": 1})
    bench.session.append("step/start", {"turn": 1, "step": 1})
    for _ in range(150_000):
        bench.session.append_chunk(1, 1, {"type": "text-delta", "index": 0, "text": "x"})
    bench.sink.failures.append(NOTHING)
    with pytest.raises(UndurableError):
        await bench.writer.flush()
    await bench.writer.flush()
    first, second = bench.sink.batches
    assert len(first) == len(second) == 150_002
    assert first.rows == second.rows


async def test_a_batch_in_doubt_is_retried_alone_and_unchanged() -> None:
    """A batch of unknown outcome goes out again as the same object, before anything admitted later (B3)."""
    bench = Bench()
    bench.sink.failures.extend([UNKNOWN, UNKNOWN])
    bench.add(2)
    with pytest.raises(UndurableError):
        await bench.writer.flush()
    bench.add(3)
    with pytest.raises(UndurableError):
        await bench.writer.flush()
    bytes_waiting = bench.writer.gate.pending_bytes
    await bench.writer.flush()
    assert bench.sink.spans == [(0, 1), (0, 1), (0, 1), (2, 4)]
    assert bench.sink.batches[0] is bench.sink.batches[1] is bench.sink.batches[2]
    assert bench.sink.summaries[0] is bench.sink.summaries[2]
    assert bytes_waiting > 0
    assert bench.writer.gate.pending_bytes == 0


async def test_what_waited_behind_a_doubt_follows_at_once() -> None:
    """After the retry of a batch in doubt the events behind it do not wait for another window (B3, D1)."""
    bench = Bench()
    bench.sink.held = asyncio.Event()
    bench.sink.failures.append(UNKNOWN)
    bench.add()
    await bench.clock.advance(0.2)
    bench.add()
    bench.sink.held.set()
    await settle()
    assert bench.clock.waiting == (0.5,)
    await bench.clock.advance(0.5)
    assert bench.sink.spans == [(0, 0), (0, 0), (1, 1)]


async def test_a_refused_batch_is_merged_with_later_events() -> None:
    """Only a batch that certainly left nothing goes out together with later events (B3)."""
    bench = Bench()
    bench.sink.failures.append(NOTHING)
    bench.add()
    with pytest.raises(UndurableError):
        await bench.writer.flush()
    bench.add()
    await bench.writer.flush()
    assert bench.sink.spans == [(0, 0), (0, 1)]


async def test_a_fenced_writer_hands_its_events_back() -> None:
    """After a takeover the unwritten events are in the error, and the session takes no more (W1)."""
    bench = Bench()
    bench.add(2)
    await bench.writer.flush()
    bench.add(2)
    bench.sink.failures.append(WriterFencedError(session_id="s"))
    with pytest.raises(WriterFencedError) as fenced:
        await bench.writer.flush()
    assert [event.seq for event in fenced.value.pending] == [2, 3]
    assert bench.writer.ended is fenced.value
    with pytest.raises(WriterFencedError):
        bench.add()
    for again in (bench.writer.flush, bench.writer.drain):
        with pytest.raises(WriterFencedError):
            await again()
    assert bench.session.seq == 4
    assert bench.clock.waiting == ()


async def test_a_batch_in_doubt_can_turn_out_fenced() -> None:
    """Events of a batch in doubt that turn out to be unwritten are handed back with the rest (B3, W1)."""
    bench = Bench()
    bench.sink.failures.extend([UNKNOWN, WriterFencedError(session_id="s")])
    bench.add(2)
    with pytest.raises(UndurableError):
        await bench.writer.flush()
    bench.add()
    with pytest.raises(WriterFencedError) as fenced:
        await bench.writer.flush()
    assert [event.seq for event in fenced.value.pending] == [0, 1, 2]


async def test_an_end_in_the_background_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """An end that no caller is told of is a warning, once (W1)."""
    bench = Bench()
    bench.sink.failures.append(SessionCollisionError(session_id="s", reason="another one"))
    bench.add()
    await bench.clock.advance(0.2)
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    await bench.clock.advance(60)
    assert len(bench.sink.batches) == 1


async def test_a_failed_start_cancels_the_window_and_is_retried() -> None:
    """A start that fails for now leaves no window behind; the next flush tries again (D2, PE3, CC39)."""
    bench = Bench(start=False)
    bench.sink.ready_failures.append(NOTHING)
    bench.sink.stored = 1
    bench.add(3)
    with pytest.raises(UndurableError):
        await bench.writer.flush()
    assert bench.clock.waiting == (0.5,)
    assert bench.sink.batches == []
    await bench.writer.flush()
    assert bench.sink.spans == [(1, 2)]
    assert bench.writer.durable_seq == 3


async def test_a_start_in_the_background_settles_an_empty_log() -> None:
    """A started controller settles ownership without any event, and a flush before that waits (D2, CC39)."""
    bench = Bench(start=False)
    bench.writer.start()
    await bench.writer.flush()
    assert bench.sink.batches == []
    assert bench.sink.drains == 1
    assert not bench.writer.has_work


async def test_a_start_that_can_never_succeed_ends_the_session() -> None:
    """A collision at the start rejects every flush with the collision itself (L1, CC20)."""
    bench = Bench(start=False)
    collision = SessionCollisionError(session_id="s", reason="another one")
    bench.sink.ready_failures.append(collision)
    bench.add()
    for _ in range(2):
        with pytest.raises(SessionCollisionError):
            await bench.writer.flush()
    with pytest.raises(SessionCollisionError):
        bench.add()


async def test_a_damaged_log_ends_a_start_but_not_a_writer() -> None:
    """Damage under the id of a new session is final; damage reported by a write is retried (R2, D2)."""
    damage = CorruptLogError(session_id="s", reason="bad bytes")
    starting = Bench(start=False)
    starting.sink.ready_failures.append(damage)
    with pytest.raises(CorruptLogError):
        await starting.writer.flush()
    assert starting.writer.ended is damage
    writing = Bench()
    writing.sink.failures.append(damage)
    writing.add()
    with pytest.raises(CorruptLogError):
        await writing.writer.flush()
    assert writing.writer.ended is None
    await writing.writer.flush()


async def test_a_busy_session_is_retried() -> None:
    """Another writer's claim is told as it is, and may be gone at the next flush (W1)."""
    bench = Bench()
    bench.sink.failures.append(SessionBusyError(session_id="s"))
    bench.add()
    with pytest.raises(SessionBusyError):
        await bench.writer.flush()
    await bench.writer.flush()
    assert bench.sink.spans == [(0, 0), (0, 0)]


async def test_a_known_start_leaves_the_suffix_to_a_window() -> None:
    """What follows the stored part of a resumed log waits for one window (D1, PE15)."""
    bench = Bench(start=False)
    bench.session.gate = None
    bench.add(2)
    bench.writer.start(1)
    assert bench.clock.asked == [0.2]
    await bench.clock.advance(0.2)
    assert bench.sink.spans == [(1, 1)]


async def test_a_known_start_keeps_a_window_that_runs() -> None:
    """Events that opened a window before the start do not open a second one (D1)."""
    bench = Bench(start=False)
    bench.add()
    bench.writer.start(0)
    assert bench.clock.asked == [0.2]


async def test_a_full_queue_refuses_with_a_reserve_for_closing_events() -> None:
    """Over the budget an append is refused, one that closes something may use the reserve (D4)."""
    bench = Bench(budget=400, reserve=400)
    bench.session.append("turn/start", {"turn": 1})
    while bench.writer.gate.pending_bytes + 100 <= 400:
        bench.session.append("feedback/record", {"text": "x" * 30})
    with pytest.raises(BackpressureError) as full:
        bench.session.append("feedback/record", {"text": "x" * 200})
    assert (full.value.session_id, full.value.budget, full.value.retryable) == ("s", 400, True)
    bench.session.append("turn/end", {"turn": 1, "reason": {"kind": "completed"}})
    assert bench.writer.gate.pending_bytes > 400
    with pytest.raises(BackpressureError):
        bench.add()
    await bench.writer.drain()
    bench.session.append("feedback/record", {"text": "x" * 200})
    assert bench.writer.gate.pending_bytes <= 400


async def test_a_closing_event_has_no_room_beyond_the_reserve() -> None:
    """Also the reserve has an end (D4)."""
    bench = Bench(budget=200, reserve=10)
    bench.session.append("turn/start", {"turn": 1})
    bench.session.append("feedback/record", {"text": "x" * 40})
    with pytest.raises(BackpressureError):
        bench.session.append(
            "turn/end", {"turn": 1, "reason": {"kind": "error", "error": {"message": "x" * 99}}}
        )


async def test_an_empty_queue_takes_one_event_of_any_size() -> None:
    """An event bigger than the budget is admitted when nothing waits, and only then (D4)."""
    bench = Bench(budget=100)
    bench.session.append("feedback/record", {"text": "x" * 1000})
    with pytest.raises(BackpressureError):
        bench.session.append("feedback/record", {"text": "x" * 1000})
    await bench.writer.drain()
    bench.session.append("feedback/record", {"text": "x" * 1000})
    assert bench.sink.spans == [(0, 0)]


async def test_a_full_queue_is_written_without_waiting_for_the_window() -> None:
    """A refused event makes the writing start at once (D4)."""
    bench = Bench(budget=150)
    bench.session.append("feedback/record", {"text": "x" * 80})
    with pytest.raises(BackpressureError):
        bench.session.append("feedback/record", {"text": "x" * 80})
    await settle()
    assert bench.sink.spans == [(0, 0)]


async def test_a_refused_producer_does_not_hammer_a_failing_medium() -> None:
    """While the medium fails a refused event starts no write; drain does (D4, D2)."""
    bench = Bench(budget=150)
    bench.sink.failures.extend([NOTHING, NOTHING])
    bench.session.append("feedback/record", {"text": "x" * 80})
    with pytest.raises(UndurableError):
        await bench.writer.flush()
    for _ in range(10):
        with pytest.raises(BackpressureError):
            bench.session.append("feedback/record", {"text": "x" * 80})
        await settle()
    assert len(bench.sink.batches) == 1
    with pytest.raises(UndurableError):
        await bench.writer.drain()
    await bench.writer.drain()
    assert bench.sink.spans == [(0, 0)] * 3


async def test_drain_waits_until_the_refused_event_fits() -> None:
    """A drained queue admits what was refused, even if more was admitted during the write (D4)."""
    bench = Bench(budget=300)
    bench.session.append("feedback/record", {"text": "x" * 150})
    bench.sink.held = asyncio.Event()
    await bench.clock.advance(0.2)
    bench.session.append("feedback/record", {"n": 1})
    with pytest.raises(BackpressureError):
        bench.session.append("feedback/record", {"text": "x" * 210})
    drain = asyncio.ensure_future(bench.writer.drain())
    await settle()
    assert not drain.done()
    bench.sink.held.set()
    await drain
    bench.session.append("feedback/record", {"text": "x" * 210})
    assert bench.sink.spans[0] == (0, 0)


async def test_a_cancelled_flush_leaves_the_write_alone() -> None:
    """A cancelled caller stops waiting; the write goes on and nobody misses it (D2, B2)."""
    bench = Bench()
    bench.sink.held = asyncio.Event()
    bench.add()
    flush = asyncio.ensure_future(bench.writer.flush())
    await bench.sink.entered.wait()
    flush.cancel()
    with pytest.raises(asyncio.CancelledError):
        await flush
    bench.sink.held.set()
    await settle()
    assert bench.writer.pending == 0
    assert len(bench.sink.batches) == 1


async def test_a_flush_cancelled_in_the_turn_of_its_success_is_harmless() -> None:
    """A waiter that is cancelled while it is being resolved breaks nothing for the others (D2)."""
    bench = Bench()
    bench.add()
    flushes = [asyncio.ensure_future(bench.writer.flush()) for _ in range(2)]
    await asyncio.sleep(0)
    for waiter in bench.writer._waiters[:1]:
        waiter.done.cancel()
    with pytest.raises(asyncio.CancelledError):
        await flushes[0]
    await flushes[1]
    assert bench.writer.pending == 0
    bench.add()
    last = asyncio.ensure_future(bench.writer.flush())
    await asyncio.sleep(0)

    def cancel_all() -> None:
        for waiter in bench.writer._waiters:
            waiter.done.cancel()

    bench.sink.on_write = cancel_all
    with pytest.raises(asyncio.CancelledError):
        await last
    await settle()
    assert bench.writer.pending == 0


async def test_a_torn_down_write_stays_in_doubt() -> None:
    """A write that is cancelled with its loop keeps its batch apart (B3)."""
    bench = Bench()
    bench.sink.failures.append(asyncio.CancelledError())
    bench.add()
    flush = asyncio.ensure_future(bench.writer.flush())
    await settle()
    bench.add()
    flush.cancel()
    await bench.writer.flush()
    assert bench.sink.spans == [(0, 0), (0, 0), (1, 1)]
    assert bench.sink.batches[0] is bench.sink.batches[1]


async def test_a_write_that_is_torn_out_of_the_loop_stays_in_doubt() -> None:
    """Whatever is no ordinary error goes to the loop; the batch is kept apart all the same (B3)."""

    class Halt(BaseException):
        pass

    told: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context["exception"]))
    bench = Bench()
    halt = Halt()
    bench.sink.failures.append(halt)
    bench.add()
    flush = asyncio.ensure_future(bench.writer.flush())
    await settle()
    bench.add()
    flush.cancel()
    await bench.writer.flush()
    assert bench.sink.batches[0] is bench.sink.batches[1]
    assert bench.sink.spans[2:] == [(1, 1)]
    if Sink.at_once:
        assert told == [halt]


async def test_two_flushes_of_one_turn_share_the_failure_of_their_write() -> None:
    """Who joins a barrier is told when it fails, also when its write has begun already (D2)."""
    bench = Bench()
    bench.sink.held = asyncio.Event()
    bench.sink.failures.append(UNKNOWN)
    bench.add(2)
    first = asyncio.ensure_future(bench.writer.flush())
    await settle()
    second = asyncio.ensure_future(bench.writer.flush())
    await settle()
    bench.sink.held.set()
    outcomes = await asyncio.gather(first, second, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes] == [UndurableError, UndurableError]
    assert bench.sink.spans == [(0, 1)]


async def test_an_abandoned_controller_writes_and_admits_nothing() -> None:
    """A controller that was let go of answers everything with one reason (W1)."""
    bench = Bench()
    bench.add()
    bench.writer.abandon(UsageError("forked"))
    bench.writer.abandon(UsageError("again"))
    with pytest.raises(UsageError, match="forked"):
        bench.add()
    with pytest.raises(UsageError, match="forked"):
        await bench.writer.flush()
    await bench.clock.advance(60)
    assert bench.sink.batches == []


async def test_bytes_count_to_zero_whatever_was_written_elsewhere() -> None:
    """A log that turns out to be stored already leaves no bytes that wait (D4)."""
    bench = Bench(start=False)
    bench.add(2)
    bench.sink.stored = 2
    bench.writer.start()
    await bench.writer.flush()
    assert bench.sink.batches == []
    assert bench.writer.gate.pending_bytes == 0


async def test_a_start_in_the_background_leaves_events_in_their_window() -> None:
    """Settling ownership writes what came before the session was live, not what waits in a window (D1)."""
    bench = Bench(start=False)
    bench.writer.start()
    bench.add()
    await settle()
    assert bench.sink.batches == []
    await bench.clock.advance(0.2)
    assert bench.sink.spans == [(0, 0)]
    seeded = Bench(start=False)
    seeded.session.gate = None
    seeded.add(2)
    seeded.session.gate = seeded.writer.gate
    seeded.writer.start()
    await settle()
    assert seeded.sink.spans == [(0, 1)]


async def test_bytes_of_the_tail_stay_counted() -> None:
    """A written batch takes exactly its own bytes out of the count (D4)."""
    bench = Bench()
    bench.add(2)
    bench.sink.held = asyncio.Event()
    flush = asyncio.ensure_future(bench.writer.flush())
    await bench.sink.entered.wait()
    bench.add()
    bench.sink.held.set()
    await flush
    assert bench.writer.pending == 1
    assert bench.writer.gate.pending_bytes == len(bench.session.events[-1].line)
