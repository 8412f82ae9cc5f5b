"""The torn marker of a JSONL log, the quarantine of torn bytes, and what either of them gives back (L1).

Owns `torn-<offset>.bin`: writing it before anything is cut, and reading it when a crash came between the cut
and the append of what had been recovered. Committing a repair is `repairing`'s business.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from turnlog.backends.jsonl.files import READ, FileLayer
from turnlog.backends.jsonl.layout import QUARANTINE_NAME, Encoding, Place, quarantine_name
from turnlog.backends.jsonl.publication import publish
from turnlog.events.chunk_runs import Row
from turnlog.events.scan import scan_frames
from turnlog.persistence.backend import Quarantined


@dataclass(frozen=True, slots=True)
class JsonlTear:
    """The torn marker: what a repair has to cut and to append. Opaque outside of this backend."""

    offset: int
    """Where the torn bytes begin; everything before is whole."""
    size: int
    """Torn bytes at the end of the log; 0 if an earlier repair has cut them and was then interrupted."""
    digest: bytes
    """Digest of the torn bytes, by which a repair knows that the log is as it was read."""
    next_seq: int
    """The seq expected at `offset`."""
    recovered: tuple[Row, ...]
    """Rows recovered from complete blocks of the torn frame; not protected by a checksum (R2)."""
    quarantined: bool
    """Whether bytes torn off at this offset are kept already."""

    @property
    def recovered_events(self) -> int:
        """How many events the recovered rows hold; shown to people, as are `offset` and `size`."""
        return _count(self.recovered)


def digest_of(torn: bytes) -> bytes:
    """Return the digest that a marker keeps of torn bytes."""
    return hashlib.sha256(torn).digest()


def kept_bytes(files: FileLayer, place: Place, offset: int) -> list[bytes]:
    """Return what is in quarantine for an offset; mostly nothing, at the price of one failing open."""
    kept: list[bytes] = []
    with contextlib.suppress(OSError), files.folder(place.root, place.parts) as folder:
        while True:
            fd = files.open(quarantine_name(offset, len(kept)), READ, folder=folder)
            try:
                kept.append(files.read_at(fd, files.status(fd).st_size, 0))
            finally:
                files.close(fd)
    return kept


def quarantine_files(files: FileLayer, place: Place) -> list[Quarantined]:
    """Return every quarantine file of a session, in the order of their offsets; none is opened."""
    found: list[Quarantined] = []
    with contextlib.suppress(FileNotFoundError), files.folder(place.root, place.parts) as folder:
        for entry in files.entries(folder):
            match = QUARANTINE_NAME.match(entry.name)
            if match is not None and not entry.is_link:
                size = files.path_status(entry.name, folder=folder).st_size
                found.append(Quarantined(entry.name, int(match[1]), size))
    return sorted(found, key=lambda kept: (kept.offset, kept.name))


def choose_recovery(
    encoding: Encoding, kept: Sequence[bytes], tail: list[Row], offset: int, seq: int
) -> list[Row]:
    """Choose between what the torn tail gives back and what an unfinished repair had recovered.

    After a crash inside a repair's append, the tail is a piece of the batch that repeats what is in
    quarantine, so the longer of the two holds the other. If they contradict each other, the tail is the
    work of another writer since then, and counts.

    Args:
        encoding: How the log is stored. Of plain text nothing is ever recovered: its whole lines stay.
        kept: Quarantined bytes for this offset.
        tail: Rows recovered from the torn tail itself.
        offset: Where the torn bytes begin.
        seq: The seq expected there.
    """
    best = tail
    if encoding == "none":
        return best
    for torn in kept:
        rows = scan_frames(torn, base=offset, expected_seq=seq).log.rows
        if _count(rows) > _count(best) and _begins_with(rows, tail):
            best = rows
    return best


def _count(rows: Sequence[Row]) -> int:
    return sum(row.count for row in rows)


def _begins_with(rows: list[Row], beginning: list[Row]) -> bool:
    """Tell whether the events of `rows` begin with those of `beginning`."""
    events = (event for row in rows for event in row.events())
    return all(next(events, None) == event for row in beginning for event in row.events())


def quarantine(files: FileLayer, folder: int, offset: int, torn: bytes, *, guard: Callable[[], None]) -> str:
    """Keep torn bytes in the session folder, durably, before they are cut (L1).

    Args:
        files: The file layer.
        folder: Descriptor of the session folder.
        offset: Where they begin in the log.
        torn: The bytes.
        guard: Raises when the claim is no longer valid.

    Returns:
        The name of the file that holds them; one that held them already is not written again.
    """
    copy = 0
    while True:
        name = quarantine_name(offset, copy)
        try:
            fd = publish(files, folder, name, torn, guard=guard)
        except FileExistsError:
            fd = files.open(name, READ, folder=folder)
            try:
                same = files.read_at(fd, len(torn) + 1, 0) == torn
                if same:
                    files.sync(fd)
                    files.sync(folder)
            finally:
                files.close(fd)
            if same:
                return name
            copy += 1
            continue
        files.close(fd)
        return name
