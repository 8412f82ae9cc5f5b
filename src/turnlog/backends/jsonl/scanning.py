"""Everything in one log, readable or not, in order: what verify, salvage and copy stand on.

Owns where such a walk begins, also when the header is bad. The walk over rows and frames is `events.salvage`;
nothing that is stored makes it raise.
"""

from __future__ import annotations

from collections.abc import Iterator

from turnlog.backends.jsonl.files import FileLayer
from turnlog.backends.jsonl.layout import Place
from turnlog.backends.jsonl.reading import LogReader
from turnlog.errors import CorruptLogError, LogError
from turnlog.events.batch import Damage, StoredFrame
from turnlog.events.header import parse_header_line
from turnlog.events.rows import RowError, decode_row
from turnlog.events.salvage import salvage_frames, salvage_rows


def scan_log(files: FileLayer, reader: LogReader, place: Place) -> Iterator[StoredFrame | Damage]:
    """Walk over a log; the file is open as long as the iterator is.

    Raises:
        OSError: The log cannot be opened or read at all.
    """
    fd = reader.open_log(place)
    try:
        size = files.status(fd).st_size
        try:
            line, begin = reader.header_line(place, None, reader.read_at(fd))
        except CorruptLogError as error:
            # Where the body begins is unknown, so the walk takes the header's place for damage itself.
            begin = 0
            if size == 0 or error.kind == "header":
                yield Damage(0, None, error.kind, 0)
        else:
            try:
                parse_header_line(line)
            except LogError:
                begin = 0 if _is_row(line) else begin
                yield Damage(0, None, "header", begin)
        if place.encoding == "zstd":
            yield from salvage_frames(files.read_at(fd, size - begin, begin), base=begin)
        else:
            yield from salvage_rows(reader.pieces(fd, begin, size), first_offset=begin)
    finally:
        files.close(fd)


def _is_row(line: bytes) -> bool:
    """Tell whether an event stands where the header should be: the header line is gone."""
    try:
        decode_row(line[:-1])
    except RowError:
        return False
    return True
