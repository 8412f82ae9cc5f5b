"""Reading: whole logs, suffixes, scans and revisions (R2, R3).

Owns the queries' order and paging. What frames mean is `backends.frame_rows`; nothing here writes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from turnlog.backends.frame_rows import FrameRow, log_of, pieces_of, suffix_of, wanted_range
from turnlog.backends.row_facts import check_end, read_header
from turnlog.errors import CorruptLogError
from turnlog.events.batch import Damage, StoredFrame
from turnlog.events.segment import encode_segment
from turnlog.persistence.backend import StoredPrefix

if TYPE_CHECKING:
    from turnlog.backends.postgres.connecting import Connections
    from turnlog.backends.postgres.link import Link
    from turnlog.backends.postgres.statements import Statements
    from turnlog.events.log import EventLog

T = TypeVar("T")

ON_THE_LOOP: Final = 64 * 1024
"""Bytes that are encoded or decoded at once; more are left to a thread, beside the event loop."""
_LAST_SEQ: Final = 2**62


class SessionRow(NamedTuple):
    """What a session's row says of the log."""

    number: int
    header: bytes
    header_crc: int
    epoch: int
    writer: str | None
    next_seq: int
    changes: int
    size: int
    last_seq: int | None
    """Of the last frame; None where there is none."""

    @property
    def revision(self) -> str:
        """The row's revision: which session it is, and how often it was changed."""
        return f"{self.number}.{self.changes}"


class Reader:
    """Reads one store.

    Args:
        connections: Where connections come from.
        statements: The SQL.
    """

    def __init__(self, connections: Connections, statements: Statements) -> None:
        self._connections = connections
        self._statements = statements
        self._place = connections.address.label

    # -- hooks ----------------------------------------------------------------------------------

    async def load(self, session_id: str) -> StoredPrefix | None:
        """Read one session; see `PersistenceBackend.load_stored`."""

        async def work(link: Link) -> tuple[SessionRow, list[FrameRow]] | None:
            row = await self.row_on(link, session_id)
            return None if row is None else (row, await self._from(link, row.number, 0, row.next_seq))

        def decode(row: SessionRow, frames: list[FrameRow]) -> EventLog:
            return log_of(
                frames,
                session_id=session_id,
                next_seq=row.next_seq,
                size=row.size - len(row.header),
                path=self._place,
            )

        return await self._prefix(session_id, work, decode)

    async def load_from(self, session_id: str, seq: int, limit: int | None) -> StoredPrefix | None:
        """Read a suffix; see `OptionalHooks.load_stored_from`."""

        async def work(link: Link) -> tuple[SessionRow, list[FrameRow]] | None:
            row = await self.row_on(link, session_id)
            if row is None:
                return None
            first, end = wanted_range(row.next_seq, seq, limit)
            return row, [] if first >= end else await self.frames_on(link, row.number, first, end)

        def decode(row: SessionRow, frames: list[FrameRow]) -> EventLog:
            first, end = wanted_range(row.next_seq, seq, limit)
            return suffix_of(
                frames, session_id=session_id, next_seq=row.next_seq, first=first, end=end, path=self._place
            )

        return await self._prefix(session_id, work, decode)

    async def revision(self, session_id: str) -> str | None:
        """Read the revision; see `OptionalHooks.read_stored_revision`."""
        segment = encode_segment(session_id)

        async def work(link: Link) -> str | None:
            cursor = await link.execute(self._statements.revision, {"segment": segment})
            row = await cursor.fetchone()
            return None if row is None else f"{row[0]}.{row[1]}"

        return await self._connections.read(work, empty=None)

    async def scan(self, session_id: str) -> AsyncIterator[StoredFrame | Damage]:
        """Yield a session's frames; see `OptionalHooks.scan_stored`."""
        row = await self.row(session_id)
        if row is None:
            return
        first = expected = 0
        while page := await self._page(row.number, first):
            pieces, expected = await _decoded(page, partial(pieces_of, page, expected))
            for piece in pieces:
                yield piece
            first = page[-1].first_seq + 1
        if expected < row.next_seq:
            yield Damage(expected, None, "seq-gap", 0)

    # -- parts ----------------------------------------------------------------------------------

    async def read(self, work: Callable[[Link], Awaitable[T]], *, empty: T) -> T:
        """Do work that only reads; see `Connections.read`."""
        return await self._connections.read(work, empty=empty)

    async def row(self, session_id: str) -> SessionRow | None:
        """Read a session's row, None when it is absent."""
        return await self._connections.read(lambda link: self.row_on(link, session_id), empty=None)

    async def row_on(self, link: Link, session_id: str) -> SessionRow | None:
        """Read a session's row on a given connection."""
        async with link.cursor(binary=True) as cursor:
            await cursor.execute(self._statements.session, {"segment": encode_segment(session_id)})
            row = await cursor.fetchone()
        return None if row is None else SessionRow(*row)

    async def frames_on(self, link: Link, number: int, first: int, end: int) -> list[FrameRow]:
        """Read the frames that hold the events from `first` (inclusive) to `end` (exclusive)."""
        parameters = {"session": number, "first": first, "end": end}
        page = await self._fetch(link, self._statements.frames_around, parameters)
        if not page or page[-1].last_seq + 1 >= end:
            return page
        return page + await self._from(link, number, page[-1].first_seq + 1, end)

    async def _from(self, link: Link, number: int, first: int, end: int) -> list[FrameRow]:
        """Read all frames that begin from `first` (inclusive) to `end` (exclusive)."""
        found: list[FrameRow] = []
        while first < end:
            parameters = {"session": number, "first": first, "end": end}
            page = await self._fetch(link, self._statements.frames, parameters)
            if not page:
                break
            found += page
            if page[-1].last_seq + 1 >= end:
                break
            first = page[-1].first_seq + 1  # a spoilt end of a row must not lead back, nor past other rows
        return found

    async def _fetch(self, link: Link, statement: bytes, parameters: dict[str, int]) -> list[FrameRow]:
        async with link.cursor(binary=True) as cursor:
            await cursor.execute(statement, parameters)
            page = [FrameRow(*row) for row in await cursor.fetchall()]
        link.give_time()
        return page

    async def _page(self, number: int, first: int) -> list[FrameRow]:
        parameters = {"session": number, "first": first, "end": _LAST_SEQ}

        async def work(link: Link) -> list[FrameRow]:
            return await self._fetch(link, self._statements.frames, parameters)

        return await self._connections.read(work, empty=[])

    async def _prefix(
        self,
        session_id: str,
        work: Callable[[Link], Awaitable[tuple[SessionRow, list[FrameRow]] | None]],
        decode: Callable[[SessionRow, list[FrameRow]], EventLog],
    ) -> StoredPrefix | None:
        """Read rows and decode them; what looks damaged because it was deleted meanwhile is read again."""
        while True:
            found = await self._connections.read(work, empty=None)
            if found is None:
                return None
            row, frames = found
            meta = read_header(row.header, row.header_crc, session_id=session_id, path=self._place)
            check_end(row.next_seq, row.last_seq, session_id=session_id, path=self._place)
            try:
                log = await _decoded(frames, partial(decode, row, frames))
            except CorruptLogError:
                again = await self.row(session_id)
                if again is not None and again.number == row.number:
                    raise
            else:
                return StoredPrefix(meta, log, row.revision)


async def _decoded(frames: list[FrameRow], decode: Callable[[], T]) -> T:
    """Decode frames here, or on a thread when there are many bytes of them."""
    if sum(len(frame.frame) for frame in frames) <= ON_THE_LOOP:
        return decode()
    return await asyncio.to_thread(decode)
