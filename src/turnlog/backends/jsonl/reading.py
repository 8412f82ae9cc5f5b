"""Reading one stored log: its header, the whole of it, or only the end that is wanted. Never writes (R3).

Owns stable reads, the identity of header and path, and the torn marker. Which rows are good, torn or damaged
is the row scanner's verdict; where frames are found in a file is `seeking`'s business.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from typing import Final

from turnlog.backends.jsonl import seeking
from turnlog.backends.jsonl.files import READ, FileLayer
from turnlog.backends.jsonl.layout import Place, place_of
from turnlog.backends.jsonl.seeking import ReadAt
from turnlog.backends.jsonl.tear import JsonlTear, choose_recovery, digest_of, kept_bytes
from turnlog.backends.log_part import part_of
from turnlog.errors import BackendError, CorruptLogError, InvalidSessionIdError
from turnlog.events import frames
from turnlog.events.batch import EncodedBatch
from turnlog.events.header import SessionHeader, parse_header_line
from turnlog.events.log import EventLog, same_events
from turnlog.events.scan import RowScanner, ScanResult, scan_frames
from turnlog.persistence.backend import StoredPrefix

_PIECE: Final = 1 << 20
_HEADER_PIECE: Final = 8192
_LOOKS: Final = 32
"""Reads of a log that keeps being rewritten, before the last one is taken as it is."""


def revision_of(status: os.stat_result) -> str:
    """Return the revision of a log: equal revisions mean equal bytes."""
    return f"{status.st_dev}:{status.st_ino}:{status.st_size}:{status.st_mtime_ns}:{status.st_ctime_ns}"


class LogReader:
    """Reads logs for one backend. Methods block; the backend calls them on its own threads."""

    def __init__(self, files: FileLayer) -> None:
        self._files = files
        self.whole_reads = 0
        """Logs read from beginning to end so far."""

    # -- whole logs -----------------------------------------------------------------------------

    def load(self, place: Place, session_id: str) -> StoredPrefix | None:
        """Read a whole log; None if it is gone.

        A log that grows meanwhile is taken as it was at the beginning; one that changes otherwise is read
        again, because a repair may have cut and replaced what was being read.

        Raises:
            CorruptLogError: Damage (R2), a header that is none, or one that belongs elsewhere.
            UnsupportedFormatError: Another format version.
            OSError: The medium failed.
        """
        looks = 0
        while True:
            looks += 1
            try:
                fd = self.open_log(place)
            except FileNotFoundError:
                return None
            try:
                before = self._files.status(fd)
                prefix, error = self._attempt(place, session_id, fd, before)
                after = self._after(place)
            finally:
                self._files.close(fd)
            if after is None:
                return None
            settled = revision_of(before) == revision_of(after) or looks == _LOOKS
            if settled and error is not None:
                raise error
            if prefix is not None and (settled or _has_grown(before, after, prefix)):
                return prefix

    def _attempt(
        self, place: Place, session_id: str, fd: int, status: os.stat_result
    ) -> tuple[StoredPrefix | None, CorruptLogError | None]:
        """Read once; damage is handed over, because it may only be a change under way."""
        try:
            meta, begin = self.check_header(place, session_id, fd)
            result = self.scan(place, fd, begin, status.st_size)
            result.check(session_id, place.log_path)
        except CorruptLogError as error:
            return None, error
        log, marker = self._with_recovery(place, fd, result)
        return StoredPrefix(meta, log, revision_of(status), marker), None

    def _after(self, place: Place) -> os.stat_result | None:
        try:
            return self._files.path_status(place.log_path)
        except FileNotFoundError:
            return None

    def open_log(self, place: Place) -> int:
        """Open a log for reading, following no symbolic link below the root (S1).

        Raises:
            FileNotFoundError: It is not there.
            BackendError: Something else than a file is in its place.
        """
        with self._files.folder(place.root, place.parts) as folder:
            fd = self._files.open(place.log_name, READ, folder=folder)
        if not stat.S_ISREG(self._files.status(fd).st_mode):
            self._files.close(fd)
            raise BackendError(
                backend="jsonl", reason="the log is not a file", path=place.log_path, wrote_nothing=True
            )
        return fd

    def scan(self, place: Place, fd: int, begin: int, size: int) -> ScanResult:
        """Read a body from beginning to end, piece by piece."""
        self.whole_reads += 1
        if place.encoding == "zstd":
            return scan_frames(self._files.read_at(fd, size - begin, begin), base=begin)
        scanner = RowScanner(0, begin)
        for piece in self.pieces(fd, begin, size):
            scanner.feed_text(piece)
        return scanner.finish()

    def pieces(self, fd: int, begin: int, size: int) -> Iterator[bytes]:
        """Yield the bytes of an open log in pieces, so that no plain log is ever in memory whole."""
        for offset in range(begin, size, _PIECE):
            yield self._files.read_at(fd, min(_PIECE, size - offset), offset)

    def _with_recovery(self, place: Place, fd: int, result: ScanResult) -> tuple[EventLog, JsonlTear | None]:
        """Add what a torn tail, or the quarantine of an unfinished repair, gives back (L1)."""
        log = result.log
        offset = result.committed_bytes if result.is_torn else result.size
        seq = result.committed_seq if result.is_torn else log.next_seq
        tail = log.rows_from(seq)
        kept = kept_bytes(self._files, place, offset)
        recovered = choose_recovery(place.encoding, kept, tail, offset, seq)
        if recovered is not tail:
            log = log.snapshot(upto=seq)
            log.extend_rows(recovered)
        if not result.is_torn and not recovered:
            return log, None
        torn = self._files.read_at(fd, result.torn_bytes, offset) if result.is_torn else b""
        return log, JsonlTear(offset, len(torn), digest_of(torn), seq, tuple(recovered), bool(kept))

    # -- headers --------------------------------------------------------------------------------

    def check_header(self, place: Place, session_id: str, fd: int) -> tuple[SessionHeader, int]:
        """Read the header of an open log and check that it belongs to this id and path.

        Returns:
            The header and the offset at which the body begins.

        Raises:
            CorruptLogError: No header, not a header, or the header of another place.
            UnsupportedFormatError: Another format version.
        """
        line, begin = self.header_line(place, session_id, self.read_at(fd))
        meta = parse_header_line(line, session_id=session_id, path=place.log_path)
        problem = self.identity_problem(place, session_id, meta)
        if problem is not None:
            raise CorruptLogError(
                session_id=session_id, reason=problem, offset=0, kind="identity", path=place.log_path
            )
        return meta, begin

    def header_line(self, place: Place, session_id: str | None, read_at: ReadAt) -> tuple[bytes, int]:
        """Read the first line of a log with its newline, and where the body begins.

        Raises:
            CorruptLogError: There is none.
        """

        def corrupt(reason: str, kind: str) -> CorruptLogError:
            return CorruptLogError(
                session_id=session_id, reason=reason, offset=0, kind=kind, path=place.log_path
            )

        buf = b""
        while True:
            piece = read_at(len(buf), max(_HEADER_PIECE, len(buf)))
            buf += piece
            try:
                end = _first_end(place, buf)
            except frames.FrameError as error:
                raise corrupt(f"the header frame cannot be read: {error}", error.kind) from error
            if end is not None:
                break
            if not piece:
                raise corrupt("the log is empty or has no header line", "no-header")
        if place.encoding == "none":
            return buf[:end], end
        try:
            line = frames.decompress(buf[:end])
        except frames.FrameError as error:
            raise corrupt(f"the header frame cannot be read: {error}", error.kind) from error
        if line.count(b"\n") != 1 or not line.endswith(b"\n"):
            raise corrupt("the first frame is not exactly one header line", "header")
        return line, end

    def identity_problem(self, place: Place, session_id: str | None, meta: SessionHeader) -> str | None:
        """Say why a header does not belong where it was found, or None if it does.

        A path that is spelled differently is right when it names the same file.
        """
        if session_id is not None and meta.id != session_id:
            return f"the header belongs to another session, {meta.id!r}"
        try:
            own = place_of(place.root, meta, place.encoding)
        except InvalidSessionIdError as error:
            return f"the header's id cannot name a session: {error.reason}"
        if own.parts == place.parts or self._same_file(own.log_path, place.log_path):
            return None
        return f"the header's id and working directory lead to {os.path.join(*own.parts)}, not here"

    def _same_file(self, one: str, other: str) -> bool:
        try:
            return os.path.samestat(self._files.path_status(one), self._files.path_status(other))
        except OSError:
            return False  # no such path: then it is not this file

    # -- ends -----------------------------------------------------------------------------------

    def load_from(self, place: Place, session_id: str, seq: int, limit: int | None) -> StoredPrefix | None:
        """Read at most `limit` events from `seq` on; a negative `seq` counts from the end.

        Only the frames or lines that are needed are decoded. Where they do not fit together, the whole log
        is read, so that damage is named as `load` names it.
        """
        try:
            fd = self.open_log(place)
        except FileNotFoundError:
            return None
        try:
            status = self._files.status(fd)
            meta, begin = self.check_header(place, session_id, fd)
            read_at = self.read_at(fd)
            log = seeking.read_suffix(place.encoding, read_at, begin, status.st_size, seq, limit)
        finally:
            self._files.close(fd)
        if log is not None:
            return StoredPrefix(meta, log, revision_of(status))
        whole = self.load(place, session_id)
        if whole is None:
            return None
        tear = whole.torn_marker
        safe = whole.events.snapshot(upto=tear.next_seq) if isinstance(tear, JsonlTear) else whole.events
        return StoredPrefix(whole.meta, part_of(safe, seq, limit), whole.revision)

    def next_seq(self, place: Place, session_id: str, fd: int, begin: int, size: int) -> int:
        """Return the seq that a log expects next, from its last frame or line alone.

        Raises:
            CorruptLogError: The end is damaged.
            BackendError: The end is torn and has to be repaired before anything is appended.
        """
        end = seeking.next_seq(place.encoding, self.read_at(fd), begin, size)
        if end is not None:
            return end
        result = self.scan(place, fd, begin, size)
        result.check(session_id, place.log_path)
        if result.is_torn:
            raise BackendError(
                backend="jsonl",
                reason="the log has a torn tail, which a load repairs before anything is appended",
                path=place.log_path,
                wrote_nothing=True,
            )
        return result.log.next_seq

    def ends_with(self, place: Place, fd: int, begin: int, size: int, batch: EncodedBatch) -> bool:
        """Tell whether the events from the batch's first seq to the end of the log equal it (B3)."""
        held = seeking.read_suffix(place.encoding, self.read_at(fd), begin, size, batch.first_seq, None)
        return held is not None and held.first_seq == batch.first_seq and same_events(held, batch)

    def read_at(self, fd: int) -> ReadAt:
        """Return a reader of an open log that takes offset and size."""
        return lambda offset, size: self._files.read_at(fd, size, offset)


def _first_end(place: Place, buf: bytes) -> int | None:
    """Return where the first line or frame ends, or None if it does not end in `buf`."""
    if place.encoding == "zstd":
        return frames.frame_end(buf, 0) if buf else None
    return buf.find(b"\n") + 1 or None


def _has_grown(before: os.stat_result, after: os.stat_result, prefix: StoredPrefix) -> bool:
    """Tell whether a changed log was only appended to, so that what was read is still its beginning."""
    same_file = (before.st_dev, before.st_ino) == (after.st_dev, after.st_ino)
    return same_file and after.st_size > before.st_size and prefix.torn_marker is None
