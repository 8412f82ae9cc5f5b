"""Copying everything readable out of a damaged log into a new session, every event at its own seq.

Owns what stands in for what is gone, so that the new log is dense and loads, and the report. Which rows fit
together is `survey`'s verdict. The original is only read.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from turnlog.errors import CorruptLogError, UnsupportedFormatError, UsageError
from turnlog.events.batch import EncodedBatch
from turnlog.events.chunk_runs import ChunkRow
from turnlog.events.envelope import EventRow, SessionEvent
from turnlog.events.header import SessionHeader
from turnlog.events.log import EventLog
from turnlog.persistence.admission import Admission
from turnlog.persistence.backend import StoredPrefix
from turnlog.persistence.carrying import Carrier
from turnlog.persistence.copying import AttachmentCopier
from turnlog.persistence.reading import prepare_stored
from turnlog.persistence.stored_rows import BATCH_BYTES
from turnlog.persistence.survey import Finding
from turnlog.persistence.verification import look_at
from turnlog.session.ids import new_session_id
from turnlog.session.registry import SessionRegistry
from turnlog.session.session import Session

if TYPE_CHECKING:
    from turnlog.events.chunk_runs import Row
    from turnlog.persistence.copying import Side
    from turnlog.persistence.survey import Missing
    from turnlog.persistence.verification import Look

LOST: Final = "turnlog/lost"
"""Stands where an event is gone; `first` and `last` of its data are the gap, both inclusive."""
SET_ASIDE: Final = "turnlog/set-aside"
"""Holds an event that no session accepts any more: `event` whole, and `reason`."""

Keep: TypeAlias = Literal["all", "prefix"]
"""`all` keeps every readable event; `prefix` only what stands before the first gap, up to a turn's end."""


@dataclass(frozen=True, slots=True)
class Salvage:
    """What was saved of one session, and what was not."""

    session_id: str
    """The damaged session, unchanged."""
    new_id: str
    """The session that holds what was saved."""
    events: int
    """Events saved, at the seqs they had; those set aside are among them."""
    lost: int
    """Events that are certainly gone because later ones are there."""
    missing: tuple[Missing, ...]
    """Which these are."""
    set_aside: tuple[int, ...]
    """Seqs of saved events that no session accepts, most often because they refer to lost ones; each is kept
    whole inside a `turnlog/set-aside` event."""
    header_lost: bool
    """Whether the header could not be read, so that the new one holds the id and a time only."""
    findings: tuple[Finding, ...]
    """Every damaged place of the original."""
    missing_attachments: tuple[str, ...] = ()
    """Images that saved events refer to and the store does not have."""
    path: str | None = None
    """The file or database of the original."""

    def as_json(self) -> dict[str, Any]:
        """Return the facts for programs."""
        return {
            "id": self.session_id,
            "new_id": self.new_id,
            "events": self.events,
            "lost": self.lost,
            "missing": [{"from": gap.first_seq, "to": gap.last_seq} for gap in self.missing],
            "set_aside": list(self.set_aside),
            "header_lost": self.header_lost,
            "findings": [finding.as_json() for finding in self.findings],
            "missing_attachments": list(self.missing_attachments),
            "path": self.path,
        }


async def salvage(
    source: Side, target: Side, session_id: str, *, new_id: str | None = None, keep: Keep = "all"
) -> Salvage:
    """Copy everything readable of one session into a new one.

    Args:
        source: Only read.
        target: Where the new session goes; may be the source.
        session_id: A stored session, damaged or not.
        new_id: Id of the new session; by default the same one where that is free, else a new UUIDv7.
        keep: See `Keep`.

    Returns:
        The report.

    Raises:
        SessionNotFoundError: Nothing is stored under the id.
        SessionExistsError: `new_id` is taken in the target.
        InvalidSessionIdError: `new_id` cannot name a session.
        CorruptLogError: The session is stored twice.
        UnsupportedFormatError: The log has another format version.
        UsageError: `keep` is neither of the two, or a store is closed.
        BackendError: A medium failed.
    """
    if keep not in ("all", "prefix"):
        raise UsageError(f"keep is all or prefix, not {keep!r}")
    target.books.check_open()
    look = await look_at(source.books, session_id)
    if look.error is not None and not _is_one_log(look):
        raise look.error
    if new_id is None:
        taken = source.books is target.books or await target.books.hooks.exists(session_id)
        new_id = new_session_id() if taken else session_id
    header = _new_header(look, new_id)
    log, aside = _new_log(look, header, keep)
    images = AttachmentCopier(source.attachments, target.attachments)
    async with Carrier(target.books, header, resume=False) as carrier:
        for batch in _batches(log.rows):
            await images.copy(batch)
            await carrier.put(batch)
        await carrier.finish()
    lost = sum(len(gap) for gap in look.survey.missing if gap.first_seq < log.next_seq)
    return Salvage(
        session_id,
        new_id,
        len(log) - lost,
        lost,
        look.survey.missing,
        tuple(sorted(aside)),
        look.header is None,
        look.findings,
        tuple(sorted(images.missing)),
        look.path,
    )


def _is_one_log(look: Look) -> bool:
    """Tell whether there is something to salvage: one log, of a format that is known."""
    if isinstance(look.error, UnsupportedFormatError):
        return look.stored is not None
    # Which of two logs is meant is not for a program to guess.
    return not (isinstance(look.error, CorruptLogError) and look.error.kind == "duplicate")


def _new_header(look: Look, new_id: str) -> SessionHeader:
    if look.header is not None:
        return dataclasses.replace(look.header, id=new_id)
    first = look.survey.rows[0].time if look.survey.rows else 0
    return SessionHeader(id=new_id, created_at=max(first, 0))


def _new_log(look: Look, header: SessionHeader, keep: Keep) -> tuple[EventLog, dict[int, str]]:
    """Make a log of what was saved that loads, and say why events of it had to be set aside."""
    rows = list(_prefix(look.survey.rows) if keep == "prefix" else _filled(look.survey.rows))
    aside: dict[int, str] = {}
    log = _accepted(rows, header.id, aside)
    registry: SessionRegistry[Session] = SessionRegistry(Session)
    while True:
        try:
            prepare_stored(registry, header.id, StoredPrefix(header, log.snapshot(), None), None)
        except CorruptLogError as error:
            # Something that only the whole of a session refuses; `seq` says where.
            if error.seq is None or error.seq in aside:
                raise
            aside[error.seq] = error.reason
            log = _accepted(rows, header.id, aside)
        else:
            return log, aside


def _prefix(rows: Iterable[Row]) -> list[Row]:
    """Return the rows before the first gap, up to the last end of a turn among them."""
    kept: list[Row] = []
    stop = 0
    expected = 0
    for row in rows:
        if row.first_seq != expected:
            return kept[:stop]
        kept.append(row)
        expected = row.last_seq + 1
        if row.type == "turn/end":
            stop = len(kept)
    return kept


def _filled(rows: Iterable[Row]) -> Iterator[Row]:
    """Yield rows without a hole: a mark stands for each event that is gone."""
    expected = 0
    time: int | None = None
    for row in rows:
        gap = {"first": expected, "last": row.first_seq - 1}
        for seq in range(expected, row.first_seq):
            yield _mark(LOST, seq, row.time if time is None else time, gap)
        yield row
        expected, time = row.last_seq + 1, row.last_time if isinstance(row, ChunkRow) else row.time


def _mark(type_: str, seq: int, time: int, data: dict[str, Any]) -> EventRow:
    event = SessionEvent.from_dict({"type": type_, "seq": seq, "time": time, "data": data, "ignorable": True})
    return EventRow(seq, type_, time, event.line)


def _accepted(rows: Iterable[Row], session_id: str, aside: dict[int, str]) -> EventLog:
    """Return a log in which every event that a session would refuse is set aside; adds to `aside`."""
    log = EventLog()
    door = Admission(session_id, log)
    for row in rows:
        found = door.refusal(row)
        reason = aside.get(row.first_seq) or (found[1] if found is not None else None)
        if reason is not None and isinstance(row, EventRow):
            aside[row.first_seq] = reason
            data = {"reason": reason, "event": row.event().to_dict()}
            row = _mark(SET_ASIDE, row.first_seq, row.time, data)
        log.extend_rows((row,))
    return log


def _batches(rows: Iterable[Row]) -> Iterator[EncodedBatch]:
    pending: list[Row] = []
    size = 0
    for row in rows:
        pending.append(row)
        size += len(row.line) + 1
        if size >= BATCH_BYTES:
            yield EncodedBatch(pending[0].first_seq, pending[-1].last_seq, pending)
            pending, size = [], 0
    if pending:
        yield EncodedBatch(pending[0].first_seq, pending[-1].last_seq, pending)
