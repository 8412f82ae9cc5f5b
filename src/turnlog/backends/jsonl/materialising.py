"""Storing a new session: header and first batch become durable in one step (B1).

Owns the choice between publishing, repeating a publication of unknown outcome (B3), and refusing because
something else is stored. The order of system calls is in `publication`.
"""

from __future__ import annotations

from collections.abc import Callable

from turnlog.backends.io_threads import Aside
from turnlog.backends.jsonl.appending import Appender, stored_bytes
from turnlog.backends.jsonl.discovery import Discovery
from turnlog.backends.jsonl.files import FileLayer
from turnlog.backends.jsonl.handles import AppendHandle
from turnlog.backends.jsonl.layout import Place, place_of, project_of
from turnlog.backends.jsonl.lock import JsonlClaim, identity
from turnlog.backends.jsonl.publication import FolderMaker, UnsureNameError, publish
from turnlog.backends.jsonl.reading import LogReader
from turnlog.backends.jsonl.root import Root
from turnlog.errors import BackendError, SessionCollisionError, SessionExistsError, UnexpectedSeqError
from turnlog.events import frames
from turnlog.events.batch import EncodedBatch
from turnlog.events.header import SessionHeader, header_line


class Materialiser:
    """Stores new sessions for one backend. Methods block; the backend calls them on its own threads."""

    def __init__(
        self,
        files: FileLayer,
        root: Root,
        discovery: Discovery,
        reader: LogReader,
        appender: Appender,
        folders: FolderMaker,
        aside: Callable[[Callable[[], object]], Aside],
    ) -> None:
        self._files = files
        self._root = root
        self._discovery = discovery
        self._reader = reader
        self._appender = appender
        self._folders = folders
        self._aside = aside
        self._unsure: set[str] = set()

    def materialise(
        self, meta: SessionHeader, batch: EncodedBatch | None, claim: JsonlClaim
    ) -> tuple[AppendHandle, str]:
        """Store header and first batch, or the header alone.

        Returns:
            The handle, for its place, and the revision.

        Raises:
            SessionExistsError: Another log of this id is stored; nothing written.
            SessionCollisionError: The stored header is another one; nothing written.
            UnexpectedSeqError: The batch does not begin at 0; nothing written.
            BackendError: The medium failed; `wrote_nothing` says whether the outcome is known.
        """
        is_new, claim.is_new = claim.is_new, False
        place = None if is_new else self._discovery.at(meta.id, project_of(meta.cwd))
        if place is not None and place.segment not in self._unsure:
            return self._into_existing(meta, batch, claim)
        if batch is not None and batch.first_seq != 0:
            raise UnexpectedSeqError(session_id=meta.id, expected=0, actual=batch.first_seq)
        replace = place is not None
        return self._publish(
            place or place_of(self._root.path, meta, self._root.encoding()), meta, batch, claim, replace
        )

    def _into_existing(
        self, meta: SessionHeader, batch: EncodedBatch | None, claim: JsonlClaim
    ) -> tuple[AppendHandle, str]:
        """Go on where only this session's header, or this very batch, is stored."""
        with self._appender.handle(meta, claim) as handle:
            held, _ = self._reader.check_header(handle.place, meta.id, handle.fd)
            if header_line(held) != header_line(meta):
                raise SessionCollisionError(session_id=meta.id, reason="the stored header is another one")
            if handle.next_seq == 0 and batch is not None and batch.first_seq == 0:
                self._appender.write_batch(handle, claim, batch)
                return handle, self._appender.acknowledge(handle, claim)
            if handle.next_seq > 0 and (batch is None or not self._appender.holds(handle, batch)):
                raise SessionExistsError(session_id=meta.id, where="storage")
            if batch is not None and handle.next_seq == 0:
                raise UnexpectedSeqError(session_id=meta.id, expected=0, actual=batch.first_seq)
            return handle, self._appender.sync_again(handle, claim)

    def _publish(
        self, place: Place, meta: SessionHeader, batch: EncodedBatch | None, claim: JsonlClaim, replace: bool
    ) -> tuple[AppendHandle, str]:
        line = header_line(meta)
        head = frames.compress(line) if place.encoding == "zstd" else line
        body = b"" if batch is None else stored_bytes(place, batch)
        fd = self._give_name(place, head + body, claim, replace)
        self._unsure.discard(place.segment)
        self._discovery.remember(place)
        handle = AppendHandle(
            place,
            fd,
            identity(self._files.status(fd)),
            begin=len(head),
            size=len(head) + len(body),
            next_seq=0 if batch is None else batch.last_seq + 1,
        )
        with self._appender.in_use(handle):
            return handle, self._appender.acknowledge(handle, claim)

    def _give_name(self, place: Place, data: bytes, claim: JsonlClaim, replace: bool) -> int:
        """Publish the log; translate what can go wrong into what the caller has to know."""
        try:
            with self._folders.opened(place.parts) as folders:
                # Beside the file's own sync: on a journaling file system one commit serves both.
                entry = self._aside(lambda: self._files.sync(folders.project))
                try:
                    return publish(
                        self._files,
                        folders.session,
                        place.log_name,
                        data,
                        guard=lambda: self._appender.check_claim(claim),
                        replace=replace,
                        beside=entry.result,
                    )
                finally:
                    entry.end()
        except UnsureNameError as error:
            self._unsure.add(place.segment)
            raise BackendError(
                backend="jsonl",
                reason=f"the new log is written but its folder could not be synced ({error}); flush again",
                path=place.log_path,
            ) from error
        except FileExistsError as error:
            self._appender.check_claim(claim)
            raise SessionExistsError(session_id=claim.session_id, where="storage") from error
        except OSError as error:
            self._appender.check_claim(claim)  # a takeover has removed the temporary file
            raise BackendError(
                backend="jsonl",
                reason=f"the new log could not be written ({error.strerror}); nothing of it is left",
                path=place.log_path,
                wrote_nothing=not replace,
            ) from error
