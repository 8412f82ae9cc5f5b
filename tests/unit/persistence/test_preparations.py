"""The pool of prepared sessions alone: phases, sharing, reservation, eviction by count and bytes."""

from __future__ import annotations

import asyncio

import pytest

from turnlog.events.log import EventLog
from turnlog.persistence.preparations import Entry, Phase, PreparationPool
from turnlog.persistence.reading import Prepared
from turnlog.persistence.service import SessionInspection
from turnlog.session.session import Session
from turnlog.testing.manual_time import settle
from turnlog.testing.scripts import LogScript, header


def prepared(session_id: str = "s", *, nbytes: int = 1) -> Prepared:
    """Make what a read of a small stored log gives."""
    meta = header(session_id)
    log = EventLog(LogScript().turn().events)
    view = log.snapshot()
    session = Session.restore(meta, log)
    return Prepared(SessionInspection(meta, view), session, "r1", None, len(session.log), nbytes)


class Loads:
    """Loads that a test lets end."""

    def __init__(self, pool: PreparationPool) -> None:
        self.pool = pool
        self.begun = 0
        self.results: list[asyncio.Future[Prepared]] = []

    def start(self, entry: Entry) -> asyncio.Task[Prepared]:
        self.begun += 1
        result: asyncio.Future[Prepared] = asyncio.get_running_loop().create_future()
        self.results.append(result)

        async def wait() -> Prepared:
            return await result

        return asyncio.get_running_loop().create_task(wait())

    def join(self, session_id: str = "s") -> asyncio.Task[tuple[Entry, Prepared]]:
        """Load as one more caller."""
        return asyncio.ensure_future(self.pool.load(session_id, self.start))


async def test_a_running_and_a_ready_read_are_shared() -> None:
    """Callers share one load, and later callers its result, until it is dropped (PP1)."""
    pool = PreparationPool(5, 1 << 20)
    loads = Loads(pool)
    first, second = loads.join(), loads.join()
    await settle()
    assert loads.begun == 1
    loads.results[0].set_result(result := prepared())
    assert (await first)[1] is (await second)[1] is result
    assert (await loads.join())[1] is result
    assert pool.take_ready("s") is result
    pool.drop("s")
    assert pool.take_ready("s") is None
    assert len(pool) == 0
    loads.join()
    await settle()
    assert loads.begun == 2
    loads.results[1].cancel()
    await settle()


async def test_the_first_caller_may_leave() -> None:
    """A cancelled caller, also the one that began the load, stops nothing (PP2, PE31)."""
    pool = PreparationPool(5, 1 << 20)
    loads = Loads(pool)
    first = loads.join()
    await settle()
    second = loads.join()
    await settle()
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    entry = pool.get("s")
    assert entry is not None
    assert not entry.is_unwanted()
    loads.results[0].set_result(result := prepared())
    assert (await second)[1] is result


async def test_a_load_that_nobody_waits_for_is_kept_and_evictable() -> None:
    """A load that ends after all callers have left is an ordinary ready entry (PP3)."""
    pool = PreparationPool(1, 1 << 20)
    loads = Loads(pool)
    only = loads.join()
    await settle()
    only.cancel()
    await settle()
    entry = pool.get("s")
    assert entry is not None
    assert entry.is_unwanted()
    loads.results[0].set_result(result := prepared())
    await settle()
    assert pool.take_ready("s") is result
    pool.put(prepared("t"))
    assert pool.get("s") is None


async def test_a_failed_load_leaves_no_trace() -> None:
    """Every caller gets the failure, and the next call begins anew (PP4)."""
    pool = PreparationPool(5, 1 << 20)
    loads = Loads(pool)
    callers = [loads.join(), loads.join()]
    await settle()
    loads.results[0].set_exception(ValueError("unreadable"))
    for caller in callers:
        with pytest.raises(ValueError, match="unreadable"):
            await caller
    assert len(pool) == 0


async def test_an_invalidated_load_still_serves_its_callers() -> None:
    """A load whose id changed meanwhile gives its callers what it read, and is not kept (PP4)."""
    pool = PreparationPool(5, 1 << 20)
    loads = Loads(pool)
    caller = loads.join()
    await settle()
    pool.drop("s")
    loads.results[0].set_result(result := prepared())
    assert (await caller)[1] is result
    await settle()
    assert pool.get("s") is None


async def test_a_load_that_cannot_begin_leaves_no_trace() -> None:
    """A start that raises at once leaves no entry (PP5)."""
    pool = PreparationPool(5, 1 << 20)

    def start(entry: Entry) -> asyncio.Task[Prepared]:
        raise ValueError("cannot begin")

    with pytest.raises(ValueError, match="cannot begin"):
        await pool.load("s", start)
    assert len(pool) == 0


async def test_a_load_is_not_joined_after_its_end() -> None:
    """A caller that comes between the end of a skipped load and its clean-up begins a new one (PP4)."""
    pool = PreparationPool(5, 1 << 20)
    loads = Loads(pool)
    first = loads.join()
    await settle()
    entry = pool.get("s")
    assert entry is not None
    assert entry.task is not None
    entry.task.cancel()
    while not entry.task.done():
        await asyncio.sleep(0)
    second = asyncio.ensure_future(pool.load("s", loads.start))
    with pytest.raises(asyncio.CancelledError):
        await first
    await settle()
    assert loads.begun == 2
    loads.results[1].set_result(result := prepared())
    assert (await second)[1] is result


async def test_a_caller_in_the_turn_of_the_end_joins_the_result() -> None:
    """A caller that comes between a good end and its note gets the same result (PP1)."""
    pool = PreparationPool(5, 1 << 20)
    result = prepared()

    def start(entry: Entry) -> asyncio.Task[Prepared]:
        async def read() -> Prepared:
            return result

        return asyncio.get_running_loop().create_task(read())

    first = asyncio.ensure_future(pool.load("s", start))
    await asyncio.sleep(0)
    entry = pool.get("s")
    assert entry is not None
    assert entry.task is not None
    while not entry.task.done():
        await asyncio.sleep(0)
    assert (await pool.load("s", start))[1] is result
    assert (await first)[1] is result


async def test_ready_entries_go_oldest_first_and_reserved_ones_stay() -> None:
    """Eviction counts and takes only ready entries, least recently used first (PP6, PE28)."""
    pool = PreparationPool(2, 1 << 20)
    kept = pool.commit(prepared("kept"))
    pool.reserve(kept)
    for session_id in ("a", "b"):
        pool.put(prepared(session_id))
    pool.take_ready("a")
    pool.put(prepared("c"))
    assert [pool.get(i) is not None for i in ("kept", "a", "b", "c")] == [True, True, False, True]


async def test_ready_entries_are_bounded_by_bytes_too() -> None:
    """Eviction keeps the sum of encoded bytes within its bound; one that is too big is not kept (D4)."""
    pool = PreparationPool(10, 100)
    pool.put(prepared("a", nbytes=60))
    pool.put(prepared("b", nbytes=40))
    assert len(pool) == 2
    pool.put(prepared("c", nbytes=1))
    assert [pool.get(i) is not None for i in ("a", "b", "c")] == [False, True, True]
    pool.put(prepared("d", nbytes=101))
    assert len(pool) == 0


async def test_only_the_same_read_is_committed() -> None:
    """Committing a read that was evicted or replaced holds exactly that read (PP7, PP14)."""
    pool = PreparationPool(5, 1 << 20)
    old, new = prepared(), prepared()
    pool.put(new)
    entry = pool.commit(old)
    assert entry.prepared is old
    pool.release(entry, reusable=True)
    assert pool.take_ready("s") is old
    assert pool.commit(old) is entry


async def test_a_reservation_makes_others_wait_and_is_consumed_once() -> None:
    """Who waits goes on when the holder gives back; publication consumes the reservation (PP8)."""
    pool = PreparationPool(5, 1 << 20)
    first = prepared()
    entry = pool.commit(first)
    pool.reserve(entry)
    assert pool.is_held("s")
    assert pool.take_ready("s") is None
    waiting = asyncio.ensure_future(pool.free("s"))
    await settle()
    assert not waiting.done()
    pool.release(entry, reusable=True)
    await waiting
    assert not pool.is_held("s")
    entry = pool.commit(first)
    assert pool.refuses(first.session)
    assert pool.publish(first.session) is None
    pool.reserve(entry)
    stranger = prepared()
    assert pool.refuses(stranger.session)
    assert not pool.refuses(first.session)
    assert pool.publish(stranger.session) is None
    assert pool.publish(first.session) is first
    assert pool.publish(first.session) is None
    pool.release(entry, reusable=True)
    assert pool.get("s") is None


async def test_an_inspection_alone_publishes_nothing() -> None:
    """A ready entry is no reservation: its session is not taken for a resumed one (PP16)."""
    pool = PreparationPool(5, 1 << 20)
    read = prepared()
    pool.put(read)
    assert not pool.refuses(read.session)
    assert pool.publish(read.session) is None
    assert pool.take_ready("s") is read


async def test_a_wait_for_a_reservation_can_be_cancelled() -> None:
    """A cancelled wait leaves the holder and the other waiters alone (PP9)."""
    pool = PreparationPool(5, 1 << 20)
    entry = pool.commit(prepared())
    waits = [asyncio.ensure_future(pool.free("s")) for _ in range(2)]
    await settle()
    waits[0].cancel()
    with pytest.raises(asyncio.CancelledError):
        await waits[0]
    assert entry.phase is Phase.COMMITTING
    pool.release(entry, reusable=False)
    await waits[1]


async def test_a_wait_cancelled_in_the_turn_of_its_end_is_harmless() -> None:
    """A waiter that is gone by the time it is woken does not disturb the others (PP9)."""
    pool = PreparationPool(5, 1 << 20)
    entry = pool.commit(prepared())
    waits = [asyncio.ensure_future(pool.free("s")) for _ in range(2)]
    await settle()
    entry._settled[0].cancel()
    pool.release(entry, reusable=False)
    with pytest.raises(asyncio.CancelledError):
        await waits[0]
    await waits[1]


async def test_a_failed_commit_removes_the_entry_and_wakes() -> None:
    """After a failed commit there is nothing to reuse (PP10)."""
    pool = PreparationPool(5, 1 << 20)
    entry = pool.commit(prepared())
    waiting = asyncio.ensure_future(pool.free("s"))
    await settle()
    pool.release(entry, reusable=False)
    await waiting
    assert pool.get("s") is None


async def test_an_invalidated_commit_is_not_revived() -> None:
    """An entry dropped while it was committed stays gone, whatever the commit says (PP12, PP13)."""
    pool = PreparationPool(5, 1 << 20)
    entry = pool.commit(prepared())
    waiting = asyncio.ensure_future(pool.free("s"))
    await settle()
    pool.drop("s")
    await waiting
    pool.release(entry, reusable=True)
    assert pool.get("s") is None
    newer = pool.put(prepared())
    pool._remove(entry)
    assert pool.get("s") is newer


async def test_a_pending_read_is_skipped_for_adoption() -> None:
    """Only a ready entry can be taken; a loading or held one cannot (PP15)."""
    pool = PreparationPool(5, 1 << 20)
    loads = Loads(pool)
    caller = loads.join()
    await settle()
    assert pool.take_ready("s") is None
    loads.results[0].set_result(result := prepared())
    await caller
    assert pool.take_ready("s") is result
    pool.commit(result)
    assert pool.take_ready("s") is None


async def test_clearing_wakes_everybody() -> None:
    """The end of the store forgets every entry and ends every wait (D2)."""
    pool = PreparationPool(5, 1 << 20)
    pool.put(prepared("a"))
    pool.commit(prepared("s"))
    waiting = asyncio.ensure_future(pool.free("s"))
    await settle()
    pool.clear()
    await waiting
    assert len(pool) == 0


async def test_a_read_by_somebody_else_serves_a_waiting_load() -> None:
    """A load that waits for its turn while another caller reads keeps its callers (PP1)."""
    pool = PreparationPool(5, 1 << 20)
    loads = Loads(pool)
    caller = loads.join()
    await settle()
    entry = pool.get("s")
    assert pool.put(result := prepared()) is entry
    assert pool.take_ready("s") is result
    assert (await loads.join())[1] is result
    loads.results[0].set_result(later := prepared())
    assert (await caller)[1] is later
    await settle()
    assert pool.take_ready("s") is result
    assert loads.begun == 1
