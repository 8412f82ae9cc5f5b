"""Listing: one row per session with its status, page by page (B4).

Owns the walk over the sessions' rows. The status comes from the row, the lease of its writer and the last
frame, and only if that is within the last 64 KiB.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from typing import TYPE_CHECKING, Any

from turnlog.backends.frame_rows import FrameRow, end_status
from turnlog.backends.leases import Lease, with_holder
from turnlog.backends.postgres.claiming import lease_of
from turnlog.backends.postgres.statements import PAGE_SESSIONS
from turnlog.backends.row_facts import decode_summary, list_header
from turnlog.backends.tail_status import TAIL_WINDOW
from turnlog.events.segment import encode_segment
from turnlog.persistence.backend import LogSummary, Status, StoredEntry

if TYPE_CHECKING:
    from turnlog.backends.postgres.connecting import Connections
    from turnlog.backends.postgres.link import Link
    from turnlog.backends.postgres.statements import Statements


async def list_entries(
    connections: Connections, statements: Statements, after: str | None, limit: int | None
) -> AsyncIterator[StoredEntry]:
    """Yield stored sessions in the order of their segments; see `PersistenceBackend.list`."""
    segment = "" if after is None else encode_segment(after)
    left = limit
    while left is None or left > 0:
        wanted = PAGE_SESSIONS if left is None else min(left, PAGE_SESSIONS)
        parameters = {"after": segment, "limit": wanted, "window": TAIL_WINDOW}

        read = partial(_page, statements.list, parameters)
        page: list[tuple[Any, ...]] = await connections.read(read, empty=[])
        for row in page:
            yield _entry(row)
        if len(page) < wanted:
            return
        segment = page[-1][0]
        left = None if left is None else left - wanted


async def _page(statement: bytes, parameters: dict[str, Any], link: Link) -> list[tuple[Any, ...]]:
    async with link.cursor(binary=True) as cursor:
        await cursor.execute(statement, parameters)
        return await cursor.fetchall()


def _entry(row: tuple[Any, ...]) -> StoredEntry:
    segment, header, header_crc, number, changes, next_seq, size, last_write, stored, summary_crc = row[:10]
    summary = decode_summary(stored, summary_crc, next_seq)
    session_id, meta, status, problem = list_header(segment, header, header_crc)
    if meta is not None:
        status, problem = _status(row[14:17], next_seq, summary, lease_of(*row[10:13]), row[13])
    return StoredEntry(
        session_id=session_id,
        meta=meta,
        status=status,
        revision=f"{number}.{changes}",
        size=size,
        last_write=last_write,
        summary=summary,
        problem=problem,
    )


def _status(
    last: tuple[Any, ...], next_seq: int, summary: LogSummary | None, lease: Lease | None, now: int
) -> tuple[Status, str | None]:
    frames = [] if last[0] is None else [FrameRow(*last)]
    status, problem = end_status(frames, next_seq)
    if status == "unknown" and summary is not None:
        status = "ok" if summary.open_turn is None else "interrupted"
    return with_holder(status, problem, lease, now)
