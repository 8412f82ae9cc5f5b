"""Committing a repair so that a crash leaves the state before or the whole of it (L1).

Owns the order: quarantine and its syncs, then the cut, then one batch of everything recovered and the
closers. Until that batch is acknowledged, a load presents the same tear again.
"""

from __future__ import annotations

from collections.abc import Sequence

from turnlog.backends.jsonl.appending import Appender
from turnlog.backends.jsonl.files import FileLayer
from turnlog.backends.jsonl.handles import AppendHandle
from turnlog.backends.jsonl.lock import JsonlClaim
from turnlog.backends.jsonl.publication import UnsureNameError
from turnlog.backends.jsonl.tear import JsonlTear, digest_of, quarantine
from turnlog.errors import BackendError, UnexpectedSeqError
from turnlog.events.batch import EncodedBatch
from turnlog.events.envelope import SessionEvent
from turnlog.events.header import SessionHeader


class Repairer:
    """Commits repairs for one backend. Methods block; the backend calls them on its own threads."""

    def __init__(self, files: FileLayer, appender: Appender) -> None:
        self._files = files
        self._appender = appender

    def commit(
        self, meta: SessionHeader, tear: JsonlTear | None, closers: Sequence[SessionEvent], claim: JsonlClaim
    ) -> None:
        """Cut the torn tail if there is one, then append what it gave back and the closers.

        Raises:
            UnexpectedSeqError: The log is not as it was read, nor as this repair leaves it.
            WriterFencedError: The claim was taken over.
            BackendError: The medium failed; the repair is done whole or not yet.
        """
        if tear is None:
            if closers:
                self._appender.append(meta, EncodedBatch.of(closers), claim)
            return
        added = [event for row in tear.recovered for event in row.events()]
        added += closers
        batch = EncodedBatch.of(added) if added else None
        if batch is not None and batch.first_seq != tear.next_seq:
            raise UnexpectedSeqError(session_id=meta.id, expected=tear.next_seq, actual=batch.first_seq)
        with self._appender.torn_handle(meta, claim, tear.offset, tear.next_seq) as handle:
            size = self._files.status(handle.fd).st_size
            if self._is_as_read(handle, tear, size):
                self._cut(handle, claim, tear)
            elif size != tear.offset:  # otherwise an earlier try has cut and not appended
                self._check_done(handle, tear, batch, claim)
                return
            if batch is not None:
                self._appender.write_batch(handle, claim, batch)
            self._appender.acknowledge(handle, claim)

    def _is_as_read(self, handle: AppendHandle, tear: JsonlTear, size: int) -> bool:
        if tear.size == 0 or size != tear.offset + tear.size:
            return False
        return digest_of(self._files.read_at(handle.fd, tear.size, tear.offset)) == tear.digest

    def _check_done(
        self, handle: AppendHandle, tear: JsonlTear, batch: EncodedBatch | None, claim: JsonlClaim
    ) -> None:
        """Accept a log that already holds the whole repair; refuse any other (B3)."""
        if batch is None or not self._appender.holds(handle, batch):
            raise UnexpectedSeqError(
                session_id=claim.session_id,
                expected=tear.next_seq if batch is None else batch.last_seq + 1,
                actual=tear.next_seq,
            )
        handle.next_seq = batch.last_seq + 1
        self._appender.sync_again(handle, claim)

    def _cut(self, handle: AppendHandle, claim: JsonlClaim, tear: JsonlTear) -> None:
        torn = self._files.read_at(handle.fd, tear.size, tear.offset)
        place = handle.place
        try:
            with self._files.folder(place.root, place.parts) as folder:
                quarantine(
                    self._files, folder, tear.offset, torn, guard=lambda: self._appender.check_claim(claim)
                )
        except UnsureNameError as error:
            raise BackendError(
                backend="jsonl",
                reason=f"the torn bytes could not be kept, so nothing was cut: {error}",
                path=place.log_path,
                wrote_nothing=True,
            ) from error
        self._appender.check_claim(claim)
        self._files.truncate(handle.fd, tear.offset)
        self._files.sync(handle.fd)
