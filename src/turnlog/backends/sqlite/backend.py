"""`SqliteBackend`: the hooks of the storage seam over one SQLite database.

Owns putting the parts together: the writer thread, the threads that read, and what each hook asks of them.
It holds no orchestration state; the coordinator serialises per session.
"""

from __future__ import annotations

import asyncio
import functools
import os
import sqlite3
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from turnlog.backends import frame_rows, leases
from turnlog.backends.row_facts import encode_summary
from turnlog.backends.sqlite import clock, connecting, place
from turnlog.backends.sqlite.erasing import erase_log
from turnlog.backends.sqlite.failures import NAME
from turnlog.backends.sqlite.group_commit import GroupCommit
from turnlog.backends.sqlite.reading import Reader
from turnlog.backends.sqlite.session_rows import SessionRows, SqliteClaim
from turnlog.backends.sqlite.watching import Watchers
from turnlog.errors import ClaimOwner, UsageError
from turnlog.events.batch import Damage, EncodedBatch, StoredFrame
from turnlog.events.envelope import SessionEvent
from turnlog.events.header import SessionHeader
from turnlog.events.segment import encode_segment
from turnlog.persistence.backend import LogSummary, StoredEntry, StoredPrefix
from turnlog.persistence.claims import completed

T = TypeVar("T")

_BRIEFLY: Final = 0.1
"""Seconds that an erasure waits for others before it is tried again."""
_LARGE: Final = 1 << 20
"""Bytes of text from which a batch is compressed on a reading thread, so that it holds up no group."""


class SqliteBackend:
    """Every hook over one database file.

    Args:
        path: Path of the database; made absolute once, created at the first write.
        lease: Seconds that the claims of a process outlive its last renewal.
        busy: Seconds to wait for locks of other processes.
        vfs: Name of a file layer within SQLite, or None for the default.
        mounts: The table of mounts, by which network file systems are recognised.
        threads: Most threads that read; they are started as needed.
    """

    name = NAME

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        lease: float = leases.LEASE_SECONDS,
        busy: float = connecting.BUSY_SECONDS,
        vfs: str | None = None,
        mounts: str = place.MOUNTS,
        threads: int = 4,
    ) -> None:
        self.path = os.path.realpath(os.path.abspath(os.fspath(path)))
        self._vfs, self._mounts = vfs, mounts
        self._rows = SessionRows(self.path, lease_ms=int(lease * 1000), now=clock.now_ms)
        open_writer = functools.partial(connecting.open_writer, self.path, vfs=vfs, busy=busy, mounts=mounts)
        open_reader = functools.partial(connecting.open_reader, self.path, vfs=vfs, busy=busy, mounts=mounts)
        self.writer = GroupCommit(
            self.path, open_writer, first=self._rows.clean_up, last=self._rows.renew_if_due
        )
        self.reader = Reader(self.path, open_reader, clock.now_ms)
        self._watchers = Watchers()
        self._held: set[SqliteClaim] = set()
        self._pid = os.getpid()
        self._executor: ThreadPoolExecutor | None = ThreadPoolExecutor(
            threads, thread_name_prefix="turnlog-sqlite-read"
        )

    @property
    def writer_id(self) -> str:
        """The name of this process's lease row."""
        return self._rows.writer

    # -- reading --------------------------------------------------------------------------------

    async def load_stored(self, session_id: str) -> StoredPrefix | None:
        """Read a whole log; a database has no torn tail, so there is never a marker."""
        return await self._read(lambda: self.reader.load(session_id))

    async def load_stored_from(self, session_id: str, seq: int, limit: int | None) -> StoredPrefix | None:
        """Read the frames that hold the wanted events."""
        return await self._read(lambda: self.reader.load_from(session_id, seq, limit))

    async def read_stored_revision(self, session_id: str) -> str | None:
        """Return the incarnation of the session's row and the end of its log."""
        return await self._read(lambda: self.reader.revision(session_id))

    async def scan_stored(self, session_id: str) -> AsyncIterator[StoredFrame | Damage]:
        """Yield every frame in order, readable or not; positions are seqs."""
        at: tuple[int, int] | None = (0, 0)
        while at is not None:
            pieces, at = await self._read(functools.partial(self.reader.scan, session_id, *at))
            for piece in pieces:
                yield piece

    async def list(self, after: str | None = None, limit: int | None = None) -> AsyncIterator[StoredEntry]:
        """Yield the sessions in the order of their segments, a page of them per query."""
        behind = b"" if after is None else encode_segment(after).encode()
        left = sys.maxsize if limit is None else limit
        while left > 0:
            size = min(frame_rows.PAGE, left)
            page = await self._read(functools.partial(self.reader.page, behind, size))
            for _, entry in page:
                yield entry
            if len(page) < size:
                return
            behind = page[-1][0]
            left -= size

    def watch(self, session_id: str) -> AsyncIterator[None]:
        """Yield after each change of the log: at once after this process's own, soon after another's."""
        return self._watchers.watch(encode_segment(session_id), lambda: self.read_stored_revision(session_id))

    def locate(self, meta: SessionHeader) -> str | None:
        """Return the path of the database, which holds every session."""
        return self.path

    # -- writing --------------------------------------------------------------------------------

    async def append_batch(
        self,
        meta: SessionHeader,
        batch: EncodedBatch,
        *,
        is_materialized: bool,
        claim: object | None,
        summary: LogSummary | None,
    ) -> str | None:
        """Store one frame in the next commit, the header with the first one."""
        if batch.nbytes >= _LARGE:
            await self._read(batch.frame)
        step = functools.partial(
            self._rows.append,
            meta=meta,
            batch=batch,
            is_materialized=is_materialized,
            claim=_checked(claim),
            summary=encode_summary(summary, batch.last_seq + 1),
        )
        return await self._write(meta.id, step)

    async def materialize_header(self, meta: SessionHeader, *, claim: object | None) -> None:
        """Store a session's row with its header and no frames."""
        await self._write(
            meta.id, functools.partial(self._rows.materialize_header, meta=meta, claim=_checked(claim))
        )

    async def commit_repair(
        self,
        meta: SessionHeader,
        torn_marker: object | None,
        closers: Sequence[SessionEvent],
        *,
        claim: object | None,
    ) -> None:
        """Append the closers as one frame."""
        batch = EncodedBatch.of(closers) if closers else None
        await self._write(
            meta.id, functools.partial(self._rows.repair, meta=meta, closers=batch, claim=_checked(claim))
        )

    async def delete_stored(self, session_id: str, *, claim: object | None) -> None:
        """Delete the session's rows; SQLite overwrites what they held in the database."""
        await self._write(
            session_id,
            functools.partial(self._rows.delete, session_id=session_id, claim=_checked(claim)),
        )

    async def erase_remains(self) -> bool:
        """Truncate the write-ahead log; False while a reader holds it back."""
        connect = functools.partial(
            connecting.open_writer, self.path, vfs=self._vfs, busy=_BRIEFLY, mounts=self._mounts
        )
        return await self._read(lambda: erase_log(self.path, connect))

    async def _write(self, session_id: str, step: Callable[[sqlite3.Connection], T]) -> T:
        result = await self.writer.run(step)
        self._watchers.changed(encode_segment(session_id))
        return result

    # -- claims ---------------------------------------------------------------------------------

    async def claim(
        self,
        session_id: str,
        owner: ClaimOwner,
        *,
        meta: SessionHeader | None = None,
        takeover: bool = False,
    ) -> SqliteClaim:
        """Raise the epoch in the session's row; a session that is not stored gets a row without a header."""
        step = functools.partial(
            self._rows.claim,
            session_id=session_id,
            owner=completed(owner),
            is_new=meta is not None,
            takeover=takeover,
        )
        claim = await self.writer.run(step)
        self._held.add(claim)
        return claim

    async def renew(self, claims: Sequence[object]) -> None:
        """Prolong the one lease of this process."""
        await self.writer.run(self._rows.renew)

    async def release(self, claim: object) -> None:
        """Take the writer out of the session's row, if it is still this one."""
        held = _checked(claim)
        assert held is not None
        self._held.discard(held)
        await self.writer.run(functools.partial(self._rows.release, claim=held))

    async def aclose(self) -> None:
        """Give claims and lease back, close the connections, end the threads."""
        if self._executor is None:
            return
        executor, self._executor = self._executor, None
        try:
            if self._held:
                self._held.clear()
                await self.writer.run(self._rows.retire)
        finally:
            await asyncio.get_running_loop().run_in_executor(None, self._close, executor)

    def _close(self, executor: ThreadPoolExecutor) -> None:
        executor.shutdown()
        self.reader.close()  # before the writer, whose last closing then takes the log into the database
        self.writer.close()

    def forget(self) -> None:
        """Let go of everything in a forked child; its connections are neither used nor closed there."""
        self._executor = None
        self.reader.forget()
        self.writer.forget()
        self._held.clear()

    # -- threads --------------------------------------------------------------------------------

    async def _read(self, work: Callable[[], T]) -> T:
        """Run blocking work on one of the threads that read."""
        if self._executor is None or os.getpid() != self._pid:
            raise UsageError("this store is closed; open it again in the process that uses it")
        return await asyncio.get_running_loop().run_in_executor(self._executor, work)


def _checked(claim: object | None) -> SqliteClaim | None:
    assert claim is None or isinstance(claim, SqliteClaim)
    return claim
