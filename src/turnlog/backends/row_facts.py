"""The row of a session in a database: its header, the end and size of its log, its summary, all checked.

Owns what must hold between the columns, the same for every database. Frames have checksums of their own;
so has the header here, and so has the summary. The end is held against the frames by every read of them,
the size by a read of the whole log. It runs no query.
"""

from __future__ import annotations

import zlib
from typing import Final, NamedTuple, TypeAlias

import msgspec

from turnlog.errors import CorruptLogError, LogError, UnsupportedFormatError
from turnlog.events.header import SessionHeader, parse_header_line
from turnlog.events.segment import decode_segment
from turnlog.persistence.backend import LogSummary, Status

_LARGEST: Final = 2**53
"""No seq or size is as large as this (exclusive)."""


def header_crc(line: bytes) -> int:
    """Return the checksum that is stored beside a header line: its CRC-32, from 0 to 2**32 - 1."""
    return zlib.crc32(line)


def read_header(line: object, crc: object, *, session_id: str, path: str | None = None) -> SessionHeader:
    """Read the header in a session's row.

    Args:
        line: The header line as it is stored.
        crc: The checksum beside it.
        session_id: The session whose row it is.
        path: The database, for messages.

    Raises:
        CorruptLogError: The line is not what was stored, no header, or that of another session. The medium
            is at fault.
        UnsupportedFormatError: A header of another format version.
    """
    if not isinstance(line, bytes) or crc != header_crc(line):
        raise CorruptLogError(
            session_id=session_id, reason="the header fails its checksum", kind="header-checksum", path=path
        )
    meta = parse_header_line(line, session_id=session_id, path=path)
    if meta.id != session_id:
        raise CorruptLogError(
            session_id=session_id,
            reason=f"its header names session {meta.id!r}",
            kind="wrong-id",
            path=path,
        )
    return meta


class ListedHeader(NamedTuple):
    """What a listing tells of a row's key and header (B4)."""

    session_id: str | None
    """None where the key is that of no session."""
    meta: SessionHeader | None
    """None where it cannot be read."""
    status: Status
    """`ok`, or what is wrong."""
    problem: str | None


def list_header(segment: str, line: object, crc: object, *, path: str | None = None) -> ListedHeader:
    """Read key and header of a row for a listing, which goes on whatever they are.

    Args:
        segment: The row's key.
        line: The header line as it is stored.
        crc: The checksum beside it.
        path: The database, for messages.
    """
    session_id = None
    try:
        session_id = decode_segment(segment)
        return ListedHeader(session_id, read_header(line, crc, session_id=session_id, path=path), "ok", None)
    except UnsupportedFormatError as error:
        return ListedHeader(session_id, None, "unsupported", str(error))
    except LogError as error:
        return ListedHeader(session_id, None, "corrupt", str(error))


def count(value: object) -> int:
    """Return a count out of a row, or -1 for something else: in a damaged file it may be anything.

    No end of a log and no size is -1, so it disagrees with what is stored, and is found out like every
    other wrong count.
    """
    return value if type(value) is int and 0 <= value < _LARGEST else -1


def check_end(next_seq: int, last_seq: int | None, *, session_id: str, path: str | None = None) -> None:
    """Refuse a row that puts the end of the log elsewhere than the last frame does.

    Args:
        next_seq: The end of the log as the row has it (exclusive).
        last_seq: The last seq of the last frame, or None where there is no frame.
        session_id: The session.
        path: The database, for messages.

    Raises:
        CorruptLogError: They disagree: frames are missing, or the row is not what was stored.
    """
    end = 0 if last_seq is None else last_seq + 1
    if end != next_seq:
        raise CorruptLogError(
            session_id=session_id,
            reason=f"the frames end at seq {end}, {next_seq} is due",
            seq=min(end, next_seq),
            kind="seq-gap",
            path=path,
        )


def check_size(size: int, stored: int, *, session_id: str, path: str | None = None) -> None:
    """Refuse a row that does not tell how many bytes of frames there are.

    Args:
        size: Bytes as the row has it, without those of the header line.
        stored: Bytes of all frames.
        session_id: The session.
        path: The database, for messages.

    Raises:
        CorruptLogError: They disagree. Every frame is good, so nothing is lost.
    """
    if size != stored:
        raise CorruptLogError(
            session_id=session_id,
            reason=f"the frames have {stored} bytes, its row says {size}",
            kind="row-size",
            path=path,
        )


StoredSummary: TypeAlias = tuple[bytes | None, int | None]
"""A summary as two columns: JSON, and the CRC-32 of it, begun with the end of the log that it belongs to."""

NO_SUMMARY: Final[StoredSummary] = (None, None)


def encode_summary(summary: LogSummary | None, next_seq: int) -> StoredSummary:
    """Return what a row keeps of a summary.

    Args:
        summary: The fold up to the end of the log, or None.
        next_seq: The end of the log (exclusive).
    """
    if summary is None:
        return NO_SUMMARY
    try:
        text = msgspec.json.encode(summary)
    except UnicodeEncodeError:
        return NO_SUMMARY  # a title with a lone surrogate: a listing shows blanks
    return text, zlib.crc32(text, next_seq)


def decode_summary(text: object, crc: object, next_seq: int) -> LogSummary | None:
    """Read what a row keeps of a summary.

    Args:
        text: The JSON.
        crc: The checksum beside it.
        next_seq: The end of the log as the row has it.

    Returns:
        None where there is no summary, or one that is not what was stored with the last frame: a listing
        shows blanks rather than another title.
    """
    if not isinstance(text, bytes) or crc != zlib.crc32(text, next_seq):
        return None
    try:
        return _summaries.decode(text)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


_summaries = msgspec.json.Decoder(LogSummary)
