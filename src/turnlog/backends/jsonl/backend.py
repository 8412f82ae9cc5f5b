"""`JsonlBackend`: the hooks of the storage seam over a root of JSONL logs, plain or zstd.

Owns putting the parts together, the threads that all file work runs on (one hop per hook), and the typing of
what the operating system reports. It holds no orchestration state; the coordinator serialises per session.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import itertools
import os
import sys
import warnings
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Sequence
from typing import Final, TypeVar

from turnlog.backends.io_threads import IoThreads
from turnlog.backends.jsonl.appending import Appender
from turnlog.backends.jsonl.claiming import Claims
from turnlog.backends.jsonl.discovery import Discovery
from turnlog.backends.jsonl.files import FileLayer
from turnlog.backends.jsonl.files_by_path import PathFiles
from turnlog.backends.jsonl.handles import AppendHandle, HandlePool
from turnlog.backends.jsonl.layout import Place, place_of
from turnlog.backends.jsonl.listing import Listing
from turnlog.backends.jsonl.lock import JsonlClaim
from turnlog.backends.jsonl.materialising import Materialiser
from turnlog.backends.jsonl.publication import FolderMaker
from turnlog.backends.jsonl.reading import LogReader, revision_of
from turnlog.backends.jsonl.repairing import Repairer
from turnlog.backends.jsonl.root import Root, UnsafeLockWarning
from turnlog.backends.jsonl.scanning import scan_log
from turnlog.backends.jsonl.summary_file import SummaryFile
from turnlog.backends.jsonl.tear import JsonlTear, quarantine_files
from turnlog.errors import BackendError, ClaimOwner, SessionNotFoundError, UsageError
from turnlog.events.batch import Damage, EncodedBatch, StoredFrame
from turnlog.events.envelope import SessionEvent
from turnlog.events.header import SessionHeader
from turnlog.events.segment import encode_segment
from turnlog.persistence.backend import LogSummary, Quarantined, StoredEntry, StoredPrefix
from turnlog.persistence.claims import this_process

T = TypeVar("T")

_THREADS: Final = 32
_PAGE: Final = 256
"""Sessions listed, or frames scanned, per hop to a thread."""
_FIRST_LOOK: Final = 0.05
_LONGEST_WAIT: Final = 0.5
"""Seconds between two looks at a watched log: short after a change, longer while nothing happens."""


class JsonlBackend:
    """Every hook over a folder of JSONL logs (session log format, section on the JSONL format).

    Args:
        root: Path of the root folder; made absolute once, created at the first materialisation.
        compression: Encoding of new sessions: `zstd`, `none`, or None for the one the root has.
        mixed: Allow `compression` to differ from what the root holds.
        files: The file layer; tests pass one that fails on purpose.
        threads: Most threads for file work; they are started as needed.

    Raises:
        BackendError: The root is there and is not a readable folder.
        UsageError: `compression` is not known, or not what the root holds.
    """

    name = "jsonl"

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        compression: str | None = None,
        mixed: bool = False,
        files: FileLayer | None = None,
        threads: int = _THREADS,
    ) -> None:
        path = os.path.realpath(os.path.abspath(os.fspath(root)))
        self.files = files if files is not None else FileLayer() if FileLayer.can_write else PathFiles()
        self.root = Root(self.files, path, compression=compression, mixed=mixed)
        self.discovery = Discovery(self.files, path)
        self.reader = LogReader(self.files)
        self.handles = HandlePool(self.files)
        self.listing = Listing(self.files, self.reader, path)
        folders = FolderMaker(self.files, path)
        self._appender = Appender(self.files, self.discovery, self.reader, self.handles)
        pool = IoThreads("turnlog-jsonl", threads)
        self._materialiser = Materialiser(
            self.files, self.root, self.discovery, self.reader, self._appender, folders, pool.aside
        )
        self._repairer = Repairer(self.files, self._appender)
        self._claims = Claims(self.files, path, self.discovery, folders, self.handles)
        self._held: set[JsonlClaim] = set()
        self._threads: IoThreads | None = pool
        self._warned = False

    # -- reading --------------------------------------------------------------------------------

    async def load_stored(self, session_id: str) -> StoredPrefix | None:
        """Read a whole log, wherever in the root it is."""
        return await self._run(lambda: self._load(session_id))

    def _load(self, session_id: str) -> StoredPrefix | None:
        place = self.discovery.find(session_id)
        return None if place is None else self.reader.load(place, session_id)

    async def load_stored_from(self, session_id: str, seq: int, limit: int | None) -> StoredPrefix | None:
        """Read the end of a log, decoding only what holds it."""

        def read() -> StoredPrefix | None:
            place = self.discovery.find(session_id)
            return None if place is None else self.reader.load_from(place, session_id, seq, limit)

        return await self._run(read)

    async def read_stored_revision(self, session_id: str) -> str | None:
        """Return device, inode, size and times of the log: one stat where the place is known."""
        return await self._run(lambda: self._revision(session_id))

    def _revision(self, session_id: str) -> str | None:
        place = self.discovery.find(session_id)
        if place is None:
            return None
        try:
            return revision_of(self.files.path_status(place.log_path))
        except FileNotFoundError:
            return None  # deleted meanwhile

    async def scan_stored(self, session_id: str) -> AsyncIterator[StoredFrame | Damage]:
        """Yield everything in a log in order, readable or not."""
        found = await self._run(lambda: self._scan(session_id))
        try:
            while page := await self._run(functools.partial(_take, found, _PAGE)):
                for piece in page:
                    yield piece
        finally:
            if isinstance(found, Generator):
                found.close()  # an abandoned scan closes its file

    def _scan(self, session_id: str) -> Iterator[StoredFrame | Damage]:
        place = self.discovery.find(session_id)
        return iter(()) if place is None else scan_log(self.files, self.reader, place)

    async def quarantined(self, session_id: str) -> Sequence[Quarantined]:
        """Return the quarantine files in the session folder."""
        return await self._run(lambda: self._quarantined(session_id))

    def _quarantined(self, session_id: str) -> list[Quarantined]:
        place = self.discovery.find(session_id)
        return [] if place is None else quarantine_files(self.files, place)

    async def list(self, after: str | None = None, limit: int | None = None) -> AsyncIterator[StoredEntry]:
        """Yield every session of the root; a page of them per hop to a thread."""
        behind = None if after is None else encode_segment(after)
        entries = await self._run(lambda: self.listing.entries(behind))
        left = sys.maxsize if limit is None else limit
        while left > 0:
            page = await self._run(functools.partial(_take, entries, min(_PAGE, left)))
            for entry in page:
                yield entry
            if len(page) < min(_PAGE, left):
                return
            left -= len(page)

    async def watch(self, session_id: str) -> AsyncIterator[None]:
        """Yield when the log's revision has changed, by looking at it again and again.

        No notification service is used: a look costs one or two stats, works on every file system, and
        sees changes made by other programs and hosts alike.
        """
        seen = await self.read_stored_revision(session_id)
        wait = _FIRST_LOOK
        while True:
            await asyncio.sleep(wait)
            now = await self.read_stored_revision(session_id)
            if now == seen:
                wait = min(wait * 1.5, _LONGEST_WAIT)
                continue
            seen, wait = now, _FIRST_LOOK
            yield

    def locate(self, meta: SessionHeader) -> str | None:
        """Return the path of the log, without looking whether it is there."""
        place = place_of(self.root.path, meta, self.root.known_encoding or "zstd")
        known = self.discovery.known(place.segment)
        return (known if known is not None and known.parts == place.parts else place).log_path

    # -- writing --------------------------------------------------------------------------------

    def append_batch(
        self,
        meta: SessionHeader,
        batch: EncodedBatch,
        *,
        is_materialized: bool,
        claim: object | None,
        summary: LogSummary | None,
    ) -> asyncio.Future[str | None]:
        """Append one batch and sync it; publish header and batch if nothing is stored yet."""

        def write(held: JsonlClaim) -> str:
            step = self._appender.append if is_materialized else self._materialiser.materialise
            handle, revision = step(meta, batch, held)
            if summary is not None:
                self._summarise(handle, meta, held, revision, summary)
            return revision

        return self._write(meta, claim, write)

    async def materialize_header(self, meta: SessionHeader, *, claim: object | None) -> None:
        """Publish a log that holds only its header."""
        await self._write(meta, claim, lambda held: self._materialiser.materialise(meta, None, held))

    async def commit_repair(
        self,
        meta: SessionHeader,
        torn_marker: object | None,
        closers: Sequence[SessionEvent],
        *,
        claim: object | None,
    ) -> None:
        """Keep the torn bytes, cut them, append what they gave back and the closers."""
        assert torn_marker is None or isinstance(torn_marker, JsonlTear)
        await self._write(meta, claim, lambda held: self._repairer.commit(meta, torn_marker, closers, held))

    async def delete_stored(self, session_id: str, *, claim: object | None) -> None:
        """Remove the session with its quarantine, summary, lock and folder."""
        with contextlib.suppress(SessionNotFoundError):  # nothing is stored, so nothing is left to do
            await self._write(session_id, claim, self._claims.delete)

    def _summarise(
        self, handle: AppendHandle, meta: SessionHeader, claim: JsonlClaim, revision: str, summary: LogSummary
    ) -> None:
        """Keep the summary for listings at each turn's end, and remember it for the retirement."""
        if summary.open_turn is None and handle.summary.turns != summary.turns:
            handle.summary.write(self.files, meta, revision, summary)
            claim.unsaved = None
        else:
            claim.unsaved = functools.partial(self._save, handle.place, meta, revision, summary)

    def _save(self, place: Place, meta: SessionHeader, revision: str, summary: LogSummary) -> None:
        """Write a summary once, at the retirement."""
        file = SummaryFile(place)
        file.write(self.files, meta, revision, summary)
        file.close(self.files)

    def _write(
        self, subject: SessionHeader | str, claim: object | None, step: Callable[[JsonlClaim], T]
    ) -> asyncio.Future[T]:
        """Run one write under the given claim, or under one taken for this write alone.

        Args:
            subject: The header of the session, or the id of a stored one.
            claim: What `claim` returned, or None.
            step: The blocking work.
        """
        self._check_platform()
        assert claim is None or isinstance(claim, JsonlClaim)

        def run() -> T:
            if claim is not None:
                return self._under(claim, step)
            meta = None if isinstance(subject, str) else subject
            session_id = subject if isinstance(subject, str) else subject.id
            own = self._claims.claim(session_id, this_process(), meta=meta, takeover=False)
            try:
                return self._under(own, step)
            finally:
                self._claims.release(own)

        return self._run(run)

    def _under(self, claim: JsonlClaim, step: Callable[[JsonlClaim], T]) -> T:
        """Run one write; what fails because a takeover has removed its files is a fenced write."""
        try:
            return step(claim)
        except OSError:
            self._appender.check_claim(claim)
            raise

    # -- claims ---------------------------------------------------------------------------------

    async def claim(
        self,
        session_id: str,
        owner: ClaimOwner,
        *,
        meta: SessionHeader | None = None,
        takeover: bool = False,
    ) -> JsonlClaim:
        """Take the lock in the session folder; the first time, warn where locks may not hold."""
        self._check_platform()
        if not self._warned:
            self._warned = True
            warning = await self._run(self.root.lock_warning)
            if warning is not None:
                warnings.warn(warning, UnsafeLockWarning, stacklevel=2)
        claim = await self._run(lambda: self._claims.claim(session_id, owner, meta=meta, takeover=takeover))
        self._held.add(claim)
        return claim

    async def release(self, claim: object) -> None:
        """Keep the last summary, wipe the facts from the lock, give it back."""
        assert isinstance(claim, JsonlClaim)
        self._held.discard(claim)
        await self._run(lambda: self._release(claim))

    def _release(self, claim: JsonlClaim) -> None:
        if claim.unsaved is not None and claim.is_current(self.files):
            claim.unsaved()
        self._claims.release(claim)

    async def aclose(self) -> None:
        """Give claims back, close logs, end the threads."""
        if self._threads is None:
            return
        for claim in tuple(self._held):
            await self.release(claim)
        await self._run(self.handles.close)
        threads, self._threads = self._threads, None
        await threads.aclose()

    def forget(self) -> None:
        """Close every descriptor in a forked child; the parent's claims and logs stay as they are."""
        for claim in self._held:
            claim.forget()
        self._held.clear()
        self.handles.forget()
        self._threads = None

    def _check_platform(self) -> None:
        if not self.files.can_write:
            raise UsageError(
                "this platform has no file locks that turnlog knows; logs can be read here, but not written"
            )

    # -- threads --------------------------------------------------------------------------------

    def _run(self, work: Callable[[], T]) -> asyncio.Future[T]:
        """Run blocking work on one of this backend's threads, in one hop."""
        if self._threads is None:
            raise UsageError("this store is closed; open it again in the process that uses it")
        return self._threads.run(_typed, work)


def _typed(work: Callable[[], T]) -> T:
    """Run work and give what the operating system reports a type; a plain failure is chained."""
    try:
        return work()
    except OSError as error:
        reason = error.strerror or str(error)
        if error.errno == errno.ENOTDIR:
            reason += "; a file or a symbolic link stands where a folder has to be"
        elif error.errno == errno.ELOOP:
            reason = "a symbolic link stands here, which is not followed"
        path = error.filename if isinstance(error.filename, str) else None
        raise BackendError(backend=JsonlBackend.name, reason=reason, path=path) from error


def _take(source: Iterator[T], count: int) -> list[T]:
    return list(itertools.islice(source, count))
