"""Stored bodies to logs, and the one verdict on what is torn and what is damaged (R2).

Owns the reading of log bodies in both encodings and the classification of their end. Files, repairs and the
meaning of events belong to others; what is left of a damaged body is read by `salvage`.
"""

from __future__ import annotations

from dataclasses import dataclass

from turnlog.errors import CorruptLogError
from turnlog.events import frames
from turnlog.events.chunk_runs import Row
from turnlog.events.frames import FrameError
from turnlog.events.log import EventLog
from turnlog.events.rows import RowError as RowError
from turnlog.events.rows import SearchLimitError, parts
from turnlog.events.rows import decode_row as decode_row


@dataclass(frozen=True, slots=True)
class Issue:
    """The first place where a body is not a sequence of good rows."""

    line: int | None
    """Body line, 1-based, the header line not counted; None for a broken frame."""
    offset: int
    """Byte offset of the line, or of the frame that holds it."""
    kind: str
    """A kind of `RowError` or `FrameError`, or `seq-gap`, `repeat`, `unterminated` or `frame-torn`."""
    reason: str
    """For people."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """A valid event, or a complete frame, behind the first issue: the proof that it is damage (R2)."""

    line: int | None
    """Body line of the event, or None for a frame."""
    offset: int
    """Byte offset of the event or frame."""
    seq: int | None
    """Seq of the event, or None for a frame."""


@dataclass(frozen=True, slots=True)
class ScanResult:
    """What a body holds and how it ends."""

    log: EventLog
    """Every event before the first issue, those recovered from a torn frame included."""
    committed_bytes: int
    """Offset after the last row that stays; a repair cuts here."""
    committed_seq: int
    """Seq after the last event before `committed_bytes`; later ones are of a torn frame, unchecked."""
    size: int
    """Offset of the end of everything that was read."""
    issue: Issue | None
    """The first problem, None for a body that is good to its end."""
    is_damage: bool
    """Whether the issue is damage (nothing may be cut) and not merely a torn tail."""
    evidence: Evidence | None
    """What makes it damage, where that is an event or frame behind the issue."""

    @property
    def is_torn(self) -> bool:
        """Whether the body has a torn tail and no damage."""
        return self.issue is not None and not self.is_damage

    @property
    def torn_bytes(self) -> int:
        """Bytes behind the last row that stays."""
        return self.size - self.committed_bytes

    def check(self, session_id: str | None, path: str | None = None) -> None:
        """Refuse damage.

        Args:
            session_id: For the message.
            path: Where the body lies, for the message.

        Raises:
            CorruptLogError: With line, byte and kind of the first issue. The medium is at fault.
        """
        if self.issue is None or not self.is_damage:
            return
        raise CorruptLogError(
            session_id=session_id,
            reason=self.issue.reason,
            line=self.issue.line,
            offset=self.issue.offset,
            seq=self.log.next_seq,
            kind=self.issue.kind,
            path=path,
        )


class RowScanner:
    """Reads a body piece by piece and says at the end what it was.

    Feed plain text with `feed_text`, the plaintext of zstd frames with `feed_complete`; then call `finish`.
    """

    def __init__(self, expected_seq: int = 0, first_offset: int = 0, first_line: int = 1) -> None:
        """Start before the first body row.

        Args:
            expected_seq: Seq of the first event.
            first_offset: Byte offset of the first body byte in its file.
            first_line: Number of the first body line.
        """
        self._log = EventLog(first_seq=expected_seq)
        self._line = first_line
        self._offset = first_offset
        self._rest: list[bytes] = []
        self._committed = first_offset
        self._committed_seq = expected_seq
        self._issue: Issue | None = None
        self._damage = False
        self._evidence: Evidence | None = None
        self._repeat_seq: int | None = None

    @property
    def log(self) -> EventLog:
        """The events read so far."""
        return self._log

    @property
    def issue(self) -> Issue | None:
        """The first problem so far."""
        return self._issue

    @property
    def is_damage(self) -> bool:
        """Whether the problem is known to be damage already."""
        return self._damage

    # Plain text

    def feed_text(self, chunk: bytes) -> None:
        """Read the next piece of plain text; it may begin and end within a line.

        Args:
            chunk: Bytes that follow those of the call before.
        """
        head = chunk.find(b"\n") + 1
        if head == 0:
            self._rest.append(chunk)
            return
        if self._rest:
            self._take_lines(b"".join([*self._rest, chunk[:head]]), 0)
        else:
            head = 0
        end = self._take_lines(chunk, head)
        self._rest = [chunk[end:]] if end < len(chunk) else []

    def _take_lines(self, text: bytes, start: int) -> int:
        """Read the complete lines of plain text from `start` on and return where they end."""
        base = self._offset - start
        at = start
        if self._issue is None:
            at, error = self._accept(text, start)
            self._committed, self._committed_seq = base + at, self._log.next_seq
            if error is not None:
                end = text.index(b"\n", at)
                self._reject(text[at:end], error, base + at)
                self._line += 1
                at = end + 1
        while self._issue is not None and (end := text.find(b"\n", at)) >= 0:
            self._look_behind(text[at:end], base + at)
            self._line += 1
            at = end + 1
        self._offset = base + at
        return at

    def _accept(self, text: bytes, at: int = 0) -> tuple[int, RowError | None]:
        """Take the good rows of `text` from `at` on; return where they end and what is wrong there."""
        expected = self._log.next_seq
        rows: list[Row] = []
        error: RowError | None = None
        while (end := text.find(b"\n", at)) >= 0:
            try:
                row = decode_row(text[at:end])
            except RowError as found:
                error = found
                break
            if row.first_seq != expected:
                reason = f"the line has seq {row.first_seq} where {expected} is due"
                error = RowError("seq-gap", reason, seq=row.last_seq)
                break
            rows.append(row)
            expected = row.last_seq + 1
            at = end + 1
        self._log.extend_rows(rows)
        self._line += len(rows)
        return at, error

    def _reject(self, line: bytes, error: RowError, offset: int) -> None:
        """Record the first issue and look whether the bad line itself proves damage."""
        repeated = self._row_like(line)
        if repeated is not None:
            self._repeat_seq = repeated.last_seq + 1
            error = RowError("repeat", f"the line repeats seq {repeated.first_seq}")
        self._set_issue(Issue(self._line, offset, error.kind, error.reason))
        if error.seq is not None and error.seq >= self._log.next_seq:
            self._prove(self._line, offset, error.seq)
        elif repeated is None:
            self._search_parts(line, offset, error, terminated=True)

    def _row_like(self, line: bytes, seq: int | None = None) -> Row | None:
        """Return the row of the log that `line` is an exact copy of."""
        try:
            row = decode_row(line)
        except RowError:
            return None
        if seq is not None and row.first_seq != seq:
            return None
        stored = self._log.row_at(row.first_seq)
        return row if stored is not None and stored.line == line else None

    def _look_behind(self, line: bytes, offset: int, *, terminated: bool = True) -> None:
        """Look whether a line behind the first issue proves that it is damage."""
        if self._evidence is not None:
            return
        try:
            row = decode_row(line)
        except RowError as error:
            if error.seq is not None and error.seq >= self._log.next_seq:
                self._prove(self._line, offset, error.seq)
            else:
                self._search_parts(line, offset, error, terminated=terminated)
            return
        if row.last_seq >= self._log.next_seq:
            self._prove(self._line, offset, row.last_seq)

    def _search_parts(self, line: bytes, offset: int, error: RowError, *, terminated: bool) -> None:
        """Search a broken line for an event inside it, as an append behind a torn row leaves it.

        A clean beginning of one row holds its own content only, unless the last thing in it ends the line.
        """
        try:
            for at, end, row in parts(line, 1):
                whole = not error.truncated or (terminated and not line[end:].strip())
                if whole and row.last_seq >= self._log.next_seq:
                    self._prove(self._line, offset + at, row.last_seq)
                    return
        except SearchLimitError:
            self._prove(self._line, offset, None)  # it may hold an event, so nothing may be cut

    def _set_issue(self, issue: Issue) -> None:
        if self._issue is None:
            self._issue = issue

    def _prove(self, line: int | None, offset: int, seq: int | None) -> None:
        self.mark_damage(Issue(line, offset, "damage", "damage"), Evidence(line, offset, seq))

    # Frames

    def feed_complete(
        self, text: bytes, *, in_complete_frame: bool, frame_offset: int, frame_end: int | None = None
    ) -> None:
        """Read the plaintext of one zstd frame.

        Args:
            text: The plaintext; of a torn frame, what could be recovered.
            in_complete_frame: False for a torn last frame, whose rows are recovered without a checksum.
            frame_offset: Where the frame begins in its file.
            frame_end: Where a complete frame ends (exclusive).
        """
        carried = b"".join(self._rest)
        self._rest = []
        if not in_complete_frame:
            if carried:
                self._unfinished(frame_offset)
            self._recover(text, frame_offset)
            return
        text = carried + text
        at = 0
        if self._issue is None:
            at, error = self._accept(text)
            if error is not None:
                self._reject_in_frame(text, at, error, frame_offset, fresh=at == 0 and not carried)
        elif self._repeat_seq is not None and not self._damage:
            self._repeat(text, frame_offset)
        if self._issue is None:
            self._rest = [text[at:]] if at < len(text) else []
            if not self._rest and frame_end is not None:
                self._committed, self._committed_seq = frame_end, self._log.next_seq
        self._offset = frame_offset if frame_end is None else frame_end

    def _reject_in_frame(self, text: bytes, at: int, error: RowError, offset: int, *, fresh: bool) -> None:
        """A frame was written whole: a bad row in it is damage, unless it repeats the rows before it."""
        line = text[at : text.index(b"\n", at)]
        row = self._row_like(line) if fresh else None
        if row is None:
            self.mark_damage(Issue(self._line, offset, error.kind, error.reason))
            return
        self._set_issue(Issue(self._line, offset, "repeat", f"the frame repeats seq {row.first_seq}"))
        self._repeat_seq = row.first_seq
        self._repeat(text, offset)

    def _repeat(self, text: bytes, offset: int) -> None:
        """Follow a repetition; whatever is not an exact copy of the rows that come next in it is damage."""
        at = 0
        while at < len(text):
            end = text.find(b"\n", at)
            row = None if end < 0 else self._row_like(text[at:end], self._repeat_seq)
            if row is None:
                self.mark_damage(Issue(self._line, offset, "repeat", ""), Evidence(None, offset, None))
                return
            self._repeat_seq = row.last_seq + 1
            at = end + 1

    def _unfinished(self, offset: int) -> None:
        reason = "a complete frame ends inside a row"
        self.mark_damage(Issue(self._line, offset, "unterminated", reason))

    def _recover(self, text: bytes, offset: int) -> None:
        """Take the good rows at the beginning of a torn frame's plaintext."""
        if self._issue is None:
            self._accept(text)
            self._set_issue(Issue(self._line, offset, "frame-torn", "the last frame is cut short"))

    def mark_damage(self, issue: Issue, evidence: Evidence | None = None) -> None:
        """Record damage that was found outside of the rows.

        Args:
            issue: Taken as the first issue if there is none yet.
            evidence: What proves it.
        """
        self._set_issue(issue)
        self._damage = True
        if self._evidence is None:
            self._evidence = evidence

    def mark_torn(self, issue: Issue) -> None:
        """Record a torn tail that was found outside of the rows.

        Args:
            issue: Taken as the first issue if there is none yet.
        """
        self._set_issue(issue)

    # The end

    def finish(self, *, size: int | None = None) -> ScanResult:
        """Classify the end and return everything.

        Args:
            size: End of a zstd file, of which torn bytes were not fed; None for plain text.
        """
        rest = b"".join(self._rest)
        if size is not None:
            if rest:
                self._unfinished(self._offset)
        elif rest and self._issue is None:
            self._last_fragment(rest)
        elif rest:
            self._look_behind(rest, self._offset, terminated=False)
        return ScanResult(
            log=self._log,
            committed_bytes=self._committed,
            committed_seq=self._committed_seq,
            size=self._offset + len(rest) if size is None else size,
            issue=self._issue,
            is_damage=self._damage,
            evidence=self._evidence,
        )

    def _last_fragment(self, rest: bytes) -> None:
        """A last line without its newline is torn, also when it parses: it was never acknowledged."""
        self._set_issue(Issue(self._line, self._offset, "unterminated", "the last line has no newline"))
        try:
            decode_row(rest)
        except RowError as error:
            self._search_parts(rest, self._offset, error, terminated=False)


def scan_text(text: bytes, *, expected_seq: int = 0, first_offset: int = 0) -> ScanResult:
    """Read a whole plain body.

    Args:
        text: The bytes after the header line.
        expected_seq: Seq of the first event.
        first_offset: Offset of `text` in its file.
    """
    scanner = RowScanner(expected_seq, first_offset)
    scanner.feed_text(text)
    return scanner.finish()


def scan_frames(buf: bytes, *, start: int = 0, base: int = 0, expected_seq: int = 0) -> ScanResult:
    """Read a whole zstd body.

    Args:
        buf: The bytes of the file, or its part from a frame on.
        start: Position in `buf` of the first body frame.
        base: Offset of `buf` in its file.
        expected_seq: Seq of the first event.
    """
    scanner = RowScanner(expected_seq, base + start)
    at = start
    while at < len(buf) and not scanner.is_damage:
        try:
            end = frames.frame_end(buf, at)
        except FrameError as error:
            _broken_frame(scanner, buf, at, base, error)
            break
        if end is None:
            _torn_frame(scanner, buf, at, base)
            break
        try:
            text = frames.decompress(buf[at:end])
        except FrameError as error:
            scanner.mark_damage(Issue(None, base + at, error.kind, error.reason))
            break
        scanner.feed_complete(text, in_complete_frame=True, frame_offset=base + at, frame_end=base + end)
        at = end
    return scanner.finish(size=base + len(buf))


def _torn_frame(scanner: RowScanner, buf: bytes, at: int, base: int) -> None:
    """Read the last frame, which is cut short, unless a complete frame hides behind the cut."""
    later = frames.find_complete(buf, at + 1)
    if later is not None:
        issue = Issue(None, base + at, "frame-torn", "a frame is cut short before another one")
        scanner.mark_damage(issue, Evidence(None, base + later, None))
        return
    text = frames.decode_prefix(buf[at:])
    scanner.feed_complete(text, in_complete_frame=False, frame_offset=base + at)


def _broken_frame(scanner: RowScanner, buf: bytes, at: int, base: int, error: FrameError) -> None:
    """Judge bytes that cannot be a frame.

    A tear leaves the beginning of a frame, so a frame that begins well and is impossible is damage. Bytes
    that do not begin like a frame are torn, unless a complete frame follows or stands there with a bad magic.
    """
    issue = Issue(None, base + at, error.kind, error.reason)
    if error.kind != "frame-magic":
        scanner.mark_damage(issue)
        return
    healed = frames.find_complete(frames.MAGIC + buf[at + 4 :], 0)
    later = at if healed == 0 else frames.find_complete(buf, at + 1)
    if later is None:
        scanner.mark_torn(issue)
    else:
        scanner.mark_damage(issue, Evidence(None, base + later, None))
