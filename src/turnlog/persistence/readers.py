"""Readers of stored logs: suffixes, tails, flat iteration, following and listing. None of them writes (R3).

Owns paging, the wait for news and the merge of live sessions into listings. Each single read runs on the
id's chain; nothing is cached.
"""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import TYPE_CHECKING

from turnlog.errors import InvalidEventError, SessionNotFoundError, UsageError
from turnlog.events.log import EventLog, check_loadable
from turnlog.persistence.reading import (
    EarlierEventNeededError,
    check_header,
    checked_log,
    corrupt_event,
    describe_torn,
    normalised,
)
from turnlog.persistence.service import StoredSuffix

if TYPE_CHECKING:
    from turnlog.events.batch import Damage, StoredFrame
    from turnlog.events.envelope import SessionEvent
    from turnlog.persistence.backend import StoredEntry, StoredPrefix
    from turnlog.persistence.books import Books

PAGE = 4096
"""Events per read of an iteration over a backend that reads suffixes."""

POLL_PERIOD = 0.2
"""Seconds between looks at the revision where a backend cannot watch."""


def check_range(seq: int, limit: int | None) -> None:
    """Refuse a range that cannot be meant.

    Raises:
        UsageError: One of them is negative or not an integer.
    """
    for name, value in (("seq", seq), ("limit", limit)):
        if value is not None and (type(value) is not int or value < 0):
            raise UsageError(f"{name} must be an integer of at least 0, not {value!r}")


async def read_suffix(books: Books, session_id: str, seq: int, limit: int | None) -> StoredSuffix:
    """Read stored events on the id's chain, after an earlier lifecycle has been drained.

    Args:
        books: The coordinator's state.
        session_id: The session.
        seq: First seq, inclusive; a negative one counts from the end.
        limit: At most this many events, or all.

    Raises:
        SessionNotFoundError: Nothing is stored under the id.
        CorruptLogError: What was read is damaged; so are `UnsupportedFormatError` and `BackendError`.
    """
    books.check_open()
    await books.retired(session_id)
    return await books.run(session_id, lambda: _read(books, session_id, seq, limit))


async def _read(books: Books, session_id: str, seq: int, limit: int | None) -> StoredSuffix:
    if books.hooks.has_suffix_reads:
        stored = _found(session_id, await books.hooks.load_from(session_id, seq, limit))
        path = books.hooks.locate(stored.meta)
        check_header(session_id, stored.meta, path)
        try:
            events = normalised(stored.events, session_id)
        except EarlierEventNeededError:
            pass  # a legacy message refers to an event before the suffix, so all of it is read
        except InvalidEventError as error:
            raise corrupt_event(session_id, error, path) from error
        else:
            check_loadable(events, session_id, path)
            return StoredSuffix(stored.meta, events)
    stored = _found(session_id, await books.hooks.load(session_id))
    log = checked_log(session_id, stored, books.hooks.locate(stored.meta))
    return StoredSuffix(stored.meta, _part(log, _durable_end(stored), seq, limit))


def _found(session_id: str, stored: StoredPrefix | None) -> StoredPrefix:
    if stored is None:
        raise SessionNotFoundError(session_id=session_id)
    return stored


def _durable_end(stored: StoredPrefix) -> int:
    """Return the end of what is stored for good; what a torn tail gave back is not."""
    recovered = None if stored.torn_marker is None else describe_torn(stored.torn_marker).recovered_events
    return len(stored.events) - (recovered or 0)


def _part(log: EventLog, end: int, seq: int, limit: int | None) -> EventLog:
    first = min(seq if seq >= 0 else max(end + seq, 0), end)
    stop = end if limit is None else min(first + limit, end)
    part = EventLog(first_seq=first)
    part.extend_rows(log.snapshot(stop).rows_from(first))
    return part


async def iter_events(books: Books, session_id: str, seq: int) -> AsyncGenerator[SessionEvent, None]:
    """Yield stored events from `seq` on until the end is reached; see `SessionPersistence.iter_events`."""
    limit = PAGE if books.hooks.has_suffix_reads else None
    while True:
        page = await read_suffix(books, session_id, seq, limit)
        for event in page.events:
            yield event
        seq = page.events.next_seq
        if limit is None or len(page.events) < limit:
            return


async def follow(
    books: Books, session_id: str, seq: int, sleep: Callable[[float], Awaitable[None]]
) -> AsyncGenerator[SessionEvent, None]:
    """Yield stored events from `seq` on, for ever; see `SessionPersistence.follow`."""
    if seq < 0:
        first = await read_suffix(books, session_id, seq, None)
        seq = first.events.first_seq
    async with aclosing(_news(books, session_id, sleep)) as news:
        while True:
            # The wait begins before the read: what is written in between is not missed.
            changed = asyncio.ensure_future(anext(news))
            books.waits.add(changed)
            try:
                async with aclosing(iter_events(books, session_id, seq)) as events:
                    async for event in events:
                        yield event
                        seq = event.seq + 1
                await asyncio.wait((changed,))
                books.check_open()  # the end of the store has ended the wait
                changed.result()
            finally:
                books.waits.discard(changed)
                if not changed.done():
                    changed.cancel()
                    await asyncio.wait((changed,))


async def _news(
    books: Books, session_id: str, sleep: Callable[[float], Awaitable[None]]
) -> AsyncGenerator[None, None]:
    """Yield when the log may have grown: told by the backend, or by its revision, or by time alone."""
    if books.hooks.has_watch:
        async with aclosing(books.hooks.watch(session_id)) as changes:
            async for _ in changes:
                yield
    known: str | None = None
    while True:
        if books.hooks.has_revisions:
            revision = await books.run(session_id, lambda: books.hooks.revision(session_id))
            if revision != known:
                known = revision
                yield
        await sleep(POLL_PERIOD)
        if not books.hooks.has_revisions:
            yield


async def scan(books: Books, session_id: str) -> AsyncGenerator[StoredFrame | Damage, None]:
    """Yield what can be read of a stored log and what cannot, in order; damage is a value, never an error.

    Args:
        books: The coordinator's state.
        session_id: The session.

    Raises:
        UsageError: The backend cannot scan.
        BackendError: The medium failed.
    """
    books.check_open()
    if not books.hooks.has_scan:
        raise UsageError(f"the {books.hooks.name} backend cannot scan a damaged log")
    async with aclosing(books.hooks.scan(session_id)) as found:
        async for part in found:
            yield part


async def list_entries(
    books: Books, after: str | None, limit: int | None
) -> AsyncGenerator[StoredEntry, None]:
    """Yield stored sessions; those written here are `live` with a fresh summary (B4)."""
    books.check_open()
    async with aclosing(books.hooks.list(after, limit)) as entries:
        async for entry in entries:
            life = None if entry.session_id is None else books.current.get(entry.session_id)
            if life is None or not life.owns:
                yield entry
            else:
                yield dataclasses.replace(entry, status="live", summary=life.summary())
