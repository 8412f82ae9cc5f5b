"""Whether a stored log is good to its last byte: frames, rows, seq, header, order, pairing, leftovers.

Owns the verdict on one session and the walk over a store. It writes nothing and takes no claim (R3), and
asks the same code that a load uses, so what it calls good loads.
"""

from __future__ import annotations

import hashlib
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from turnlog.errors import BackendError, CorruptLogError, SessionNotFoundError, UnsupportedFormatError
from turnlog.events.batch import Damage
from turnlog.events.log import EventLog
from turnlog.persistence.admission import Admission
from turnlog.persistence.entries import referred_attachments, stored_entry
from turnlog.persistence.in_turn import check_parallel, in_turn
from turnlog.persistence.reading import describe_torn, prepare_stored
from turnlog.persistence.stored_rows import durable_part
from turnlog.persistence.survey import Finding, Missing, Survey, survey
from turnlog.session.invariants import check_invariants
from turnlog.session.pairing import PairingBalance
from turnlog.session.registry import SessionRegistry
from turnlog.session.session import Session

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Iterable

    from turnlog.events.batch import StoredFrame
    from turnlog.events.chunk_runs import Row
    from turnlog.events.header import SessionHeader
    from turnlog.persistence.attachments import AttachmentStore
    from turnlog.persistence.backend import Status, StoredEntry, StoredPrefix
    from turnlog.persistence.books import Books
    from turnlog.persistence.reading import Prepared

PARALLEL: Final = 4
"""Sessions verified at once; each is in memory whole, encoded, while it is looked at."""


@dataclass(frozen=True, slots=True)
class Verification:
    """What was found in one stored session."""

    session_id: str | None
    """The id, or None for an entry that does not even tell that."""
    status: Status
    """Of the log: `ok`, `interrupted`, `torn`, `corrupt`, `unsupported`, `live` where another writer was at
    work, or `unknown` where the medium did not let it be read."""
    header: SessionHeader | None
    event_count: int
    """Events that can be read, those recovered from a torn tail included."""
    findings: tuple[Finding, ...] = ()
    missing: tuple[Missing, ...] = ()
    """Events of a damaged log that are certainly gone."""
    path: str | None = None
    digest: str | None = None
    """SHA-256 of the stored rows, the same in every store they are copied to; None for a damaged log."""

    @property
    def is_good(self) -> bool:
        """Whether all that was stored can be read, images, too; a torn tail was never acknowledged."""
        if self.status in ("corrupt", "unsupported", "unknown"):
            return False
        return not any(finding.severity == "damage" for finding in self.findings)

    def as_json(self) -> dict[str, Any]:
        """Return the facts for programs."""
        return {
            "id": self.session_id,
            "status": self.status,
            "event_count": self.event_count,
            "findings": [finding.as_json() for finding in self.findings],
            "missing": [{"from": gap.first_seq, "to": gap.last_seq} for gap in self.missing],
            "digest": self.digest,
            "path": self.path,
        }


async def verify(books: Books, attachments: AttachmentStore, session_id: str) -> Verification:
    """Check one stored session.

    Args:
        books: The coordinator's state.
        attachments: The images beside the logs.
        session_id: A stored session.

    Returns:
        The verdict; damage is a value, never an error.

    Raises:
        SessionNotFoundError: Nothing is stored under the id.
        BackendError: The medium failed.
    """
    return await _verify(books, attachments, session_id, None)


async def verify_all(
    books: Books,
    attachments: AttachmentStore,
    *,
    parallel: int = PARALLEL,
    progress: Callable[[int, int], None] | None = None,
) -> AsyncGenerator[Verification, None]:
    """Check every entry of a store, several at a time, in the order of the listing.

    Args:
        books: The coordinator's state.
        attachments: The images beside the logs.
        parallel: How many at a time.
        progress: Told how many of how many are done.

    Yields:
        A verdict for each entry, those that are no session included.

    Raises:
        BackendError: The store as a whole cannot be read.
        UsageError: `parallel` is below 1, or the store is closed.
    """
    check_parallel(parallel)
    books.check_open()
    async with aclosing(books.hooks.list(None, None)) as listed:
        entries = [entry async for entry in listed]
    jobs = (_of_entry(books, attachments, entry) for entry in entries)
    done = 0
    async with aclosing(in_turn(jobs, parallel)) as verdicts:
        async for verdict in verdicts:
            done += 1
            if progress is not None:
                progress(done, len(entries))
            if verdict is not None:
                yield verdict


async def _of_entry(books: Books, attachments: AttachmentStore, entry: StoredEntry) -> Verification | None:
    if entry.session_id is None:
        finding = Finding("entry", "damage", entry.problem or "this is no session")
        return Verification(None, entry.status, entry.meta, 0, (finding,), path=entry.path)
    try:
        return await _verify(books, attachments, entry.session_id, entry)
    except SessionNotFoundError:
        return None  # deleted since it was listed
    except BackendError as error:
        finding = Finding("unreadable", "damage", str(error))
        # A listing may have seen that there is no log to read; else nobody can say what is in it.
        status: Status = entry.status if entry.status in ("corrupt", "unsupported") else "unknown"
        return Verification(entry.session_id, status, entry.meta, 0, (finding,), path=entry.path)


@dataclass(frozen=True, slots=True)
class Look:
    """What one stored log gives, whatever state it is in: the common ground of verify and salvage."""

    session_id: str
    header: SessionHeader | None
    """None where it cannot be read."""
    status: Status
    """As a listing has it."""
    path: str | None
    stored: StoredPrefix | None
    """A log that can be read whole, a torn tail aside; None for a damaged one."""
    survey: Survey
    """Its rows, what a torn tail gave back included."""
    findings: tuple[Finding, ...]
    """Damaged places, and a torn tail."""
    error: CorruptLogError | UnsupportedFormatError | None
    """What a load says."""
    prepared: Prepared | None = None
    """The session that a load makes of it."""


async def look_at(books: Books, session_id: str, entry: StoredEntry | None = None) -> Look:
    """Read everything that can be read of one stored log.

    Args:
        books: The coordinator's state.
        session_id: The session.
        entry: Its row of a listing, if there is one at hand.

    Raises:
        SessionNotFoundError: Nothing is stored under the id.
        BackendError: The medium failed.
    """
    books.check_open()
    await books.retired(session_id)
    if entry is None:
        entry = await stored_entry(books, session_id)
    header = None if entry is None else entry.meta
    status: Status = "unknown" if entry is None else entry.status
    path = None if entry is None else entry.path
    try:
        stored = await books.run(session_id, lambda: books.hooks.load(session_id))
    except (CorruptLogError, UnsupportedFormatError) as error:
        found = survey(await scanned(books, session_id))
        findings = _with_error(found.findings, error)
        return Look(session_id, header, status, path, None, found, findings, error)
    if stored is None:
        raise SessionNotFoundError(session_id=session_id)
    whole = Survey(tuple(stored.events.rows), (), ())
    findings = _torn_finding(stored)
    # A registry of its own: a session that is live here is looked at as it is stored.
    registry: SessionRegistry[Session] = SessionRegistry(Session)
    try:
        # A snapshot, because the session takes its log over and adds to it.
        own = replace(stored, events=stored.events.snapshot())
        prepared = prepare_stored(registry, session_id, own, path)
    except (CorruptLogError, UnsupportedFormatError) as error:
        findings += await _refused(books, session_id, stored, error)
        return Look(session_id, stored.meta, status, path, stored, whole, findings, error)
    return Look(session_id, stored.meta, status, path, stored, whole, findings, None, prepared)


async def _refused(
    books: Books, session_id: str, stored: StoredPrefix, error: CorruptLogError | UnsupportedFormatError
) -> tuple[Finding, ...]:
    """Name every stored event that no session accepts, with its place in the medium."""
    log = EventLog()
    door = Admission(session_id, log)
    refused: dict[int, tuple[str, str]] = {}
    for row in stored.events.rows:
        if (found := door.refusal(row)) is not None:
            refused[row.first_seq] = found
        log.extend_rows((row,))
    if not refused or (error.seq is not None and error.seq not in refused):
        kind = error.kind if isinstance(error, CorruptLogError) else "unsupported"
        refused[-1 if error.seq is None else error.seq] = (kind, str(error))
    places: dict[int, int] = {}
    for piece in await scanned(books, session_id):
        if not isinstance(piece, Damage):
            for at, row in piece.placed():
                places.setdefault(row.first_seq, at)
    return tuple(
        Finding(kind, "damage", reason, places.get(seq), seq=None if seq < 0 else seq)
        for seq, (kind, reason) in sorted(refused.items())
    )


def _with_error(
    findings: tuple[Finding, ...], error: CorruptLogError | UnsupportedFormatError
) -> tuple[Finding, ...]:
    """Add what a load refuses and a scan reads, such as the header of another session."""
    if isinstance(error, UnsupportedFormatError):
        return (Finding("unsupported", "damage", str(error), seq=error.seq),)
    if any(finding.severity == "damage" for finding in findings):
        return findings
    own = Finding(error.kind, "damage", error.reason, error.offset, error.line, seq=error.seq)
    return (own, *findings)


def _torn_finding(stored: StoredPrefix) -> tuple[Finding, ...]:
    if stored.torn_marker is None:
        return ()
    torn = describe_torn(stored.torn_marker)
    saved = f"; {torn.recovered_events} events in it are whole" if torn.recovered_events else ""
    reason = f"the end was cut short{saved}; a repair keeps these bytes aside and cuts them"
    return (Finding("torn", "torn", reason, torn.offset, size=torn.size),)


async def _verify(
    books: Books, attachments: AttachmentStore, session_id: str, entry: StoredEntry | None
) -> Verification:
    look = await look_at(books, session_id, entry)
    findings = list(look.findings)
    status = _status(look, is_live=session_id in books.current)
    if look.prepared is not None:
        findings += _pairing(look.prepared)
    if look.stored is not None:
        broken = check_invariants(look.stored.events)
        findings += [Finding(found.rule, "order", found.message, seq=found.seq) for found in broken]
        findings += await missing_attachments(attachments, referred_attachments(look.survey.rows))
    with suppress(CorruptLogError, UnsupportedFormatError):  # as in `scanned`
        findings += await _quarantine(books, session_id)
    return Verification(
        session_id,
        status,
        look.header,
        look.survey.event_count,
        tuple(findings),
        look.survey.missing,
        path=look.path,
        digest=None if look.stored is None else digest_of(durable_part(look.stored).rows),
    )


def _status(look: Look, *, is_live: bool) -> Status:
    if look.prepared is None or look.stored is None:
        return "unsupported" if isinstance(look.error, UnsupportedFormatError) else "corrupt"
    if is_live or look.status == "live":
        return "live"
    if look.stored.torn_marker is not None:
        return "torn"
    return "interrupted" if look.prepared.inspection.closers else "ok"


def _pairing(prepared: Prepared) -> list[Finding]:
    balance = PairingBalance()
    log = prepared.session.log
    try:
        balance.extend(log[seq] for seq in prepared.session.surface.nodes)
    except CorruptLogError as error:
        return [Finding("pairing", "order", error.reason, seq=error.seq)]
    return []


async def _quarantine(books: Books, session_id: str) -> list[Finding]:
    return [
        Finding(
            "quarantine",
            "note",
            f"{kept.name} keeps {kept.size} bytes that a repair cut off at byte {kept.offset}",
            kept.offset,
            size=kept.size,
        )
        for kept in await books.hooks.quarantined(session_id)
    ]


async def missing_attachments(attachments: AttachmentStore, names: set[str]) -> list[Finding]:
    """Name the attachments that rows refer to and that cannot be read with the bytes they had.

    Args:
        attachments: Where they should be.
        names: Their ids.
    """
    found: list[Finding] = []
    for name in sorted(names):
        try:
            if not await attachments.exists(name):
                found.append(Finding("attachment-missing", "note", f"{name} is not in this store"))
            else:
                await attachments.get(name)
        except BackendError as error:
            reason = error.reason if name in error.reason else f"{name}: {error.reason}"
            found.append(Finding("attachment-damaged", "damage", reason))
    return found


def digest_of(rows: Iterable[Row]) -> str:
    """Return the SHA-256 of rows as text, hexadecimal: the same however they are framed and stored.

    Args:
        rows: The rows of a whole log.
    """
    digest = hashlib.sha256()
    for row in rows:
        digest.update(row.line)
        digest.update(b"\n")
    return digest.hexdigest()


async def scanned(books: Books, session_id: str) -> list[StoredFrame | Damage]:
    """Return everything in a stored log, readable or not; nothing where the backend cannot scan.

    Raises:
        BackendError: The medium failed.
    """
    if not books.hooks.has_scan:
        return []
    try:
        return [piece async for piece in books.hooks.scan(session_id)]
    except (CorruptLogError, UnsupportedFormatError):
        return []  # stored twice, or where no log is read: there is not one body to look at
