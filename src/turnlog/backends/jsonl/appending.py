"""Appending batches to logs: every check before the write, the write, the sync, every check after it.

Owns checked handles, rollback, and batches in doubt (D2, B3). Does not take claims, only checks them; why
these checks in this order keep a late writer out is argued in `takeover`.
"""

from __future__ import annotations

import contextlib
import stat
from collections.abc import Iterator

from turnlog.backends.jsonl.discovery import Discovery
from turnlog.backends.jsonl.files import UPDATE, FileLayer
from turnlog.backends.jsonl.handles import AppendHandle, HandlePool
from turnlog.backends.jsonl.layout import Place, project_of, segment_of
from turnlog.backends.jsonl.lock import JsonlClaim, identity
from turnlog.backends.jsonl.reading import LogReader, revision_of
from turnlog.errors import BackendError, UnexpectedSeqError, WriterFencedError
from turnlog.events.batch import EncodedBatch
from turnlog.events.header import SessionHeader


class Appender:
    """Writes batches for one backend. Methods block; the backend calls them on its own threads."""

    def __init__(
        self, files: FileLayer, discovery: Discovery, reader: LogReader, handles: HandlePool
    ) -> None:
        self._files = files
        self._discovery = discovery
        self._reader = reader
        self._handles = handles

    def append(self, meta: SessionHeader, batch: EncodedBatch, claim: JsonlClaim) -> tuple[AppendHandle, str]:
        """Append one batch to a stored log.

        Returns:
            The handle, for its place, and the new revision.

        Raises:
            WriterFencedError: The claim was taken over; nothing that was acknowledged is lost.
            UnexpectedSeqError: The log is elsewhere and does not end with this batch; nothing written.
            BackendError: The medium failed; `wrote_nothing` says whether the outcome is known.
        """
        handle = self._kept(meta, claim) or self._open(meta, claim)
        try:
            if batch.first_seq != handle.next_seq:
                revision = self.check_repeated(handle, batch, claim)
            else:
                self.write_batch(handle, claim, batch)
                revision = self.acknowledge(handle, claim)
        except BaseException:
            self._put_aside(handle)
            raise
        self._handles.give_back(handle)
        return handle, revision

    # -- handles --------------------------------------------------------------------------------

    @contextlib.contextmanager
    def handle(self, meta: SessionHeader, claim: JsonlClaim) -> Iterator[AppendHandle]:
        """Give a checked handle for the length of a `with` block.

        The claim is checked after the log is open, the log's path after the claim; a handle in doubt is
        settled first. A log that is no longer as this writer left it is opened afresh.
        """
        with self.in_use(self._kept(meta, claim) or self._open(meta, claim)) as handle:
            yield handle

    @contextlib.contextmanager
    def torn_handle(
        self, meta: SessionHeader, claim: JsonlClaim, offset: int, next_seq: int
    ) -> Iterator[AppendHandle]:
        """Give a handle for a repair: its size is where the torn tail begins, whatever follows there.

        Args:
            meta: The stored header.
            claim: The claim, checked after the log is open.
            offset: Where the torn tail begins.
            next_seq: The seq expected there.
        """
        place = self._place(meta, claim)
        self._handles.drop(place.segment)
        handle = self._open_log(place, meta)
        handle.size, handle.next_seq = offset, next_seq
        with self.in_use(handle):
            self.check_claim(claim)
            yield handle

    @contextlib.contextmanager
    def in_use(self, handle: AppendHandle) -> Iterator[AppendHandle]:
        """Keep a handle for the next append, unless something went wrong that leaves no doubt."""
        try:
            yield handle
        except BaseException:
            self._put_aside(handle)
            raise
        self._handles.give_back(handle)

    def _put_aside(self, handle: AppendHandle) -> None:
        """After a failure, keep a handle only if it is in doubt."""
        if handle.doubtful:
            self._handles.give_back(handle)
        else:
            handle.close(self._files)

    def _kept(self, meta: SessionHeader, claim: JsonlClaim) -> AppendHandle | None:
        """Return the kept handle if it still is what the next write needs."""
        handle = self._handles.take(segment_of(meta.id))
        if handle is None:
            return None
        usable = False
        try:
            if handle.place.project == project_of(meta.cwd):
                self.check_claim(claim)
                if handle.doubtful:
                    self.settle(handle, claim)
                usable = self._is_as_left(handle, meta.id)
        except OSError:
            # The doubt could not be settled now: the handle is the only one that knows where to cut.
            self._handles.give_back(handle)
            usable = True
            raise
        finally:
            if not usable:
                handle.close(self._files)
        return handle if usable else None

    def _open(self, meta: SessionHeader, claim: JsonlClaim) -> AppendHandle:
        place = self._place(meta, claim)
        handle = self._open_log(place, meta)
        try:
            self.check_claim(claim)
            handle.next_seq = self._reader.next_seq(place, meta.id, handle.fd, handle.begin, handle.size)
        except BaseException:
            handle.close(self._files)
            raise
        return handle

    def _place(self, meta: SessionHeader, claim: JsonlClaim) -> Place:
        place = self._discovery.at(meta.id, project_of(meta.cwd))
        if place is None:
            self.check_claim(claim)
            raise vanished(meta.id)
        return place

    def _open_log(self, place: Place, meta: SessionHeader) -> AppendHandle:
        """Open a log for writing and check that it is this session's; its end is still to be found."""
        try:
            with self._files.folder(place.root, place.parts) as folder:
                fd = self._files.open(place.log_name, UPDATE, folder=folder)
        except FileNotFoundError as error:
            raise vanished(meta.id) from error
        try:
            status = self._files.status(fd)
            if not stat.S_ISREG(status.st_mode):
                raise BackendError(
                    backend="jsonl", reason="the log is not a file", path=place.log_path, wrote_nothing=True
                )
            _, begin = self._reader.check_header(place, meta.id, fd)
        except BaseException:
            self._files.close(fd)
            raise
        return AppendHandle(place, fd, identity(status), begin, status.st_size, 0)

    # -- checks ---------------------------------------------------------------------------------

    def check_claim(self, claim: JsonlClaim) -> None:
        """Raise unless the claim's lock still is the session's lock."""
        if not claim.is_current(self._files):
            raise WriterFencedError(session_id=claim.session_id)

    def _is_as_left(self, handle: AppendHandle, session_id: str) -> bool:
        """Tell whether the path still names the log as this writer left it."""
        try:
            status = self._files.path_status(handle.log_path)
        except FileNotFoundError as error:
            raise vanished(session_id) from error
        return identity(status) == handle.identity and status.st_size == handle.size

    def acknowledge(self, handle: AppendHandle, claim: JsonlClaim) -> str:
        """Compare lock and log with their paths once more and return the revision of what was written.

        Raises:
            WriterFencedError: A takeover came in between; the write is not acknowledged.
        """
        try:
            status = self._files.path_status(handle.log_path)
        except FileNotFoundError as error:
            self.check_claim(claim)
            raise vanished(claim.session_id) from error
        self.check_claim(claim)
        if identity(status) != handle.identity:
            raise WriterFencedError(session_id=claim.session_id)
        return revision_of(status)

    def check_repeated(self, handle: AppendHandle, batch: EncodedBatch, claim: JsonlClaim) -> str:
        """Answer success if the log already ends with this batch, after making that durable (B3).

        Raises:
            UnexpectedSeqError: It does not; nothing was written.
        """
        if not self.holds(handle, batch):
            raise UnexpectedSeqError(
                session_id=claim.session_id, expected=handle.next_seq, actual=batch.first_seq
            )
        return self.sync_again(handle, claim)

    def holds(self, handle: AppendHandle, batch: EncodedBatch) -> bool:
        """Tell whether the log, as long as it is now, ends with this batch."""
        size = self._files.status(handle.fd).st_size
        return self._reader.ends_with(handle.place, handle.fd, handle.begin, size, batch)

    def sync_again(self, handle: AppendHandle, claim: JsonlClaim) -> str:
        """Make a log durable that an earlier, unacknowledged call has written."""
        self._files.sync(handle.fd)
        with self._files.folder(handle.place.root, handle.place.parts) as folder:
            self._files.sync(folder)
        handle.size = self._files.status(handle.fd).st_size
        return self.acknowledge(handle, claim)

    # -- writing --------------------------------------------------------------------------------

    def write_batch(self, handle: AppendHandle, claim: JsonlClaim, batch: EncodedBatch) -> None:
        """Write and sync one batch at the end of the log, or leave nothing of it.

        Args:
            handle: A checked handle; the batch begins at its next seq.
            claim: The claim.
            batch: The batch.

        Raises:
            BackendError: The medium failed. If what was written could be cut away again, nothing is left
                and `wrote_nothing` is true; otherwise the handle stays in doubt.
            WriterFencedError: While rolling back, the path was found to name another writer's log.
        """
        data = stored_bytes(handle.place, batch)
        handle.attempted = len(data)
        try:
            self._files.write_at(handle.fd, data, handle.size)
            self._files.sync_data(handle.fd)
        except OSError as error:
            self._roll_back(handle, claim, error)
        handle.size += len(data)
        handle.attempted = 0
        handle.next_seq = batch.last_seq + 1

    def _roll_back(self, handle: AppendHandle, claim: JsonlClaim, error: OSError) -> None:
        path = handle.place.log_path
        try:
            self.settle(handle, claim)
        except OSError as second:
            both = ExceptionGroup("the append and its rollback failed", [error, second])
            raise BackendError(
                backend="jsonl",
                reason=f"an append failed ({error.strerror}) and could not be rolled back "
                f"({second.strerror}); it is cut away before the next write",
                path=path,
            ) from both
        raise BackendError(
            backend="jsonl",
            reason=f"an append failed ({error.strerror}); nothing of it is left, flush again",
            path=path,
            wrote_nothing=True,
        ) from error

    def settle(self, handle: AppendHandle, claim: JsonlClaim) -> None:
        """Cut a write of unknown outcome away: reopen, cut to the acknowledged size, sync (D2).

        The log is reopened because a failed sync may have used up what the old descriptor had to report.
        What is reopened must be the same file, and no longer than this writer can have made it.

        Raises:
            OSError: The medium failed; the handle stays in doubt.
            WriterFencedError: The path names another file, because the log was swapped, or the log is
                longer than this writer made it: another program has written behind the doubtful bytes.
        """
        place = handle.place
        with self._files.folder(place.root, place.parts) as folder:
            fd = self._files.open(place.log_name, UPDATE, folder=folder)
        try:
            status = self._files.status(fd)
            if identity(status) != handle.identity or status.st_size > handle.size + handle.attempted:
                handle.attempted = 0  # what it knew is about another file, or another end of it
                raise WriterFencedError(session_id=claim.session_id)
            self._files.truncate(fd, handle.size)
            self._files.sync(fd)
        except BaseException:
            self._files.close(fd)
            raise
        self._files.close(handle.fd)
        handle.fd = fd
        handle.attempted = 0


def stored_bytes(place: Place, batch: EncodedBatch) -> bytes:
    """Return the bytes by which a batch is stored in this log's encoding."""
    return batch.frame() if place.encoding == "zstd" else batch.text()


def vanished(session_id: str) -> BackendError:
    """Return the error for a log that was there and is not any more."""
    return BackendError(
        backend="jsonl",
        reason=f"the stored log of session {session_id} has vanished; it is not created again, "
        "start a new session for what is still to be stored",
        wrote_nothing=True,
    )
