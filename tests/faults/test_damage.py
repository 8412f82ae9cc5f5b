"""Randomly damaged files: salvage gives back every undamaged event, verify agrees, nothing crashes (R2)."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import pytest

import turnlog
from tests.faults.lanes import SOAK, lane
from turnlog import SessionEvent
from turnlog.backends.jsonl.layout import place_of
from turnlog.events import frames
from turnlog.events.chunk_runs import Row
from turnlog.events.header import header_line
from turnlog.events.live_run import pack_rows
from turnlog.persistence.salvage import LOST, SET_ASIDE, Salvage
from turnlog.persistence.verification import Verification
from turnlog.testing.damage import OPERATORS
from turnlog.testing.scripts import LogScript, header

FILES = 1000 if SOAK else 250
"""Damaged files per encoding."""
ID = "s-1"
Encoding = Literal["none", "zstd"]


@dataclass(frozen=True)
class Original:
    """A good log and the pieces it is made of."""

    events: list[SessionEvent]
    data: bytes
    pieces: list[tuple[bytes, list[Row]]]
    """Stored pieces of the body, a line or a frame each, with their rows."""

    @property
    def head(self) -> bytes:
        """The header as it is stored."""
        return self.data[: len(self.data) - sum(len(piece) for piece, _ in self.pieces)]


def random_log(chance: random.Random, encoding: Encoding) -> Original:
    """Return a log of a few turns, stored in batches of random sizes."""
    script = LogScript()
    for number in range(chance.randint(1, 5)):
        script.start()
        for _ in range(chance.randint(1, 2)):
            script.step().user(f"question {number} " + "x" * chance.randint(0, 200))
            script.chunks(*(f"w{chance.random():.9f} " for _ in range(chance.randint(0, 12))))
            calls = [f"c{number}-{k}" for k in range(chance.randint(0, 2))]
            script.assistant("é \U0001f600 " + chance.choice(["", "\ud83d"]), calls=calls)
            for call in calls:
                script.call(call).result(call, "out " * chance.randint(1, 40))
            script.end_step()
        script.end()
    events = script.events
    head = header_line(header(ID))
    pieces: list[tuple[bytes, list[Row]]] = []
    at = 0
    while at < len(events):
        stop = min(at + chance.randint(1, 9), len(events))
        rows = pack_rows(events[at:stop])
        if encoding == "zstd":
            pieces.append((frames.compress(b"".join(row.line + b"\n" for row in rows)), rows))
        else:
            pieces += [(row.line + b"\n", [row]) for row in rows]
        at = stop
    first = frames.compress(head) if encoding == "zstd" else head
    return Original(events, first + b"".join(data for data, _ in pieces), pieces)


def undamaged(original: Original, data: bytes, encoding: Encoding) -> list[SessionEvent]:
    """Return the events whose line or frame stands whole and by itself in the damaged bytes."""
    if encoding == "zstd":
        return [e for piece, rows in original.pieces if piece in data for row in rows for e in row.events()]
    lines = set(data.split(b"\n")[:-1])
    return [e for piece, rows in original.pieces if piece[:-1] in lines for row in rows for e in row.events()]


def plant(root: Path, data: bytes, encoding: Encoding) -> Path:
    """Put bytes where the session's log is."""
    path = Path(place_of(str(root), header(ID), encoding).log_path)
    path.parent.mkdir(parents=True, mode=0o700)
    path.write_bytes(data)
    return path


async def salvaged(root: Path, encoding: Encoding) -> tuple[Verification, Salvage, list[SessionEvent]]:
    """Verify and salvage the session; the new one must be good and hold what the report says."""
    async with (
        turnlog.open(f"jsonl:{root}?compression={encoding}&mixed=1") as store,
        turnlog.open("memory:") as other,
    ):
        verdict = await store.verify(ID)
        report = await store.salvage(ID, to=other)
        try:
            await store.inspect(ID)
            loads = True
        except (turnlog.CorruptLogError, turnlog.UnsupportedFormatError):
            loads = False
        assert loads == verdict.is_good, "verify and a load disagree"
        if not report.events:
            return verdict, report, []
        assert (await other.verify(report.new_id)).is_good, "what was salvaged is itself not good"
        events = list((await other.read_from(report.new_id, 0)).events)
        await other.load(report.new_id)
    saved, lost = split(events)
    assert (len(saved), lost) == (report.events, report.lost)
    return verdict, report, saved


def split(events: list[SessionEvent]) -> tuple[list[SessionEvent], int]:
    """Return the events of a salvaged log, those set aside among them, and how many are marked lost."""
    saved: list[SessionEvent] = []
    lost = 0
    for event in events:
        if event.type == LOST:
            lost += 1
        elif event.type == SET_ASIDE:
            assert isinstance(event.data, dict)
            saved.append(SessionEvent.from_dict(event.data["event"]))
        else:
            saved.append(event)
    return saved, lost


def check(
    original: Original,
    data: bytes,
    encoding: Encoding,
    found: tuple[Verification, Salvage, list[SessionEvent]],
) -> bool:
    """Hold one damaged file to the promise; tell whether the damage could be detected at all."""
    verdict, report, saved = found
    by_seq = {event.seq: event for event in saved}
    assert len(by_seq) == len(saved)
    kept = [f for f in verdict.findings if f.severity in ("damage", "torn")]
    # Without a checksum nobody can tell which of two rows with one seq is the good one; both are named.
    named = ("conflict", "invalid-event")
    disputed = {f.seq for f in kept if f.kind in named} if encoding == "none" else set()
    # Nor which is, when the other one stands in a tail that repeats what is there: all of the tail is named.
    torn = min((f.offset or 0 for f in kept if f.kind == "torn" and encoding == "none"), default=len(data))
    tail = set(undamaged(original, data, encoding)) - set(undamaged(original, data[:torn], encoding))
    disputed |= {event.seq for event in tail if event.seq in by_seq}
    # A copy far beyond the end of everything else may as well have a spoiled number: it is named only.
    strays = [f.seq for f in kept if f.kind == "out-of-place" and f.seq is not None]
    end = max(by_seq, default=-1) + 1
    for event in undamaged(original, data, encoding):
        if by_seq.get(event.seq) != event:
            is_ahead = event.seq > end and any(end < seq <= event.seq for seq in strays)
            assert is_ahead or event.seq in disputed, f"undamaged event {event.seq} was not saved"
    assert list(report.findings) == kept, "verify and salvage disagree"
    assert report.missing == verdict.missing
    expected = 0
    gaps = {(gap.first_seq, gap.last_seq) for gap in report.missing}
    for seq in sorted(by_seq):
        if seq > expected:
            assert (expected, seq - 1) in gaps, f"events from {expected} on are missing and not named"
        expected = seq + 1
    if not kept:
        # Nothing, a clean cut between rows, or, without checksums, a text that is a good text again.
        assert encoding == "none" or saved == original.events[: len(saved)]
        return False
    first, last = damaged_range(original, data)
    for finding in kept:
        assert finding.offset is not None, f"{finding} has no place"
        # A second copy may stand anywhere behind the first.
        stop = len(data) if finding.kind in ("repeat", "conflict") else last
        assert first <= finding.offset <= stop, f"{finding} is not within {first} to {stop}"
    return True


def damaged_range(original: Original, data: bytes) -> tuple[int, int]:
    """Return where, in the damaged bytes, the changed pieces begin and the next good one starts."""
    good = original.data
    same = min(len(good), len(data))
    prefix = next((i for i in range(same) if good[i] != data[i]), same)
    rest = same - prefix
    suffix = next((i for i in range(rest) if good[-1 - i] != data[-1 - i]), rest)
    starts = [0]
    at = len(original.head)
    for piece, _ in original.pieces:
        starts.append(at)
        at += len(piece)
    starts.append(at)
    first = max(start for start in starts if start <= prefix)
    following = min((start for start in starts if start >= len(good) - suffix), default=len(good))
    return first, len(data) - (len(good) - following)


def whole_pieces(original: Original, chance: random.Random) -> tuple[str, bytes]:
    """Lose, repeat or swap lines or frames as a whole; return what was done, and the bytes."""
    pieces = [piece for piece, _ in original.pieces]
    at, other = (chance.randrange(len(pieces)) for _ in range(2))
    done = chance.choice(["lose", "repeat", "swap", "move"])
    if done == "lose":
        del pieces[at]
    elif done == "repeat":
        pieces.insert(other, pieces[at])
    elif done == "swap":
        pieces[at], pieces[other] = pieces[other], pieces[at]
    else:
        pieces.insert(other, pieces.pop(at))
    return f"{done} piece", original.head + b"".join(pieces)


@pytest.mark.parametrize("encoding", ["none", "zstd"])
async def test_every_undamaged_event_is_saved(
    encoding: Encoding, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Files cut, flipped, zeroed, pieces lost, swapped, repeated, foreign bytes put in; and all mixed."""
    chance = random.Random(encoding)
    saved_events = undetected = 0
    kinds: Counter[str] = Counter()
    with lane("random damage", f"jsonl {encoding}", capsys) as figures:
        for number in range(FILES):
            original = random_log(chance, encoding)
            data = original.data
            done: list[str] = []
            if chance.random() < 0.3:
                kind, data = whole_pieces(original, chance)
                done.append(kind)
            for _ in range(chance.choice([0, 1, 2, 3] if done else [1, 1, 1, 2, 3])):
                done.append(chance.choice(sorted(OPERATORS)))
                data = OPERATORS[done[-1]](data, chance.randrange(len(data))) or data
            root = tmp_path / str(number)
            path = plant(root, data, encoding)
            try:
                found = await salvaged(root, encoding)
                undetected += not check(original, data, encoding, found)
            except BaseException as error:
                error.add_note(f"file {number}: {done}, in {path}")
                raise
            assert path.read_bytes() == data, "the original was changed"
            kinds.update(done)
            figures.faults += 1
            figures.acknowledged += len(undamaged(original, data, encoding))
            saved_events += len(found[2])
        figures.note = f"{saved_events:,} events salvaged, {undetected} changes that leave a good log"
    assert set(kinds) >= {*OPERATORS, "lose piece", "repeat piece", "swap piece", "move piece"}
    assert min(kinds.values()) >= FILES // 50, f"hardly tried: {kinds}"
    assert undetected < FILES // 20


SPOILERS: dict[str, Callable[[bytes], bytes]] = {
    "half": lambda piece: piece[: len(piece) // 2],
    "zeros": lambda piece: bytes(len(piece)),
    "foreign": lambda piece: b"\xffgarbage\xfe" * 9,
    "hole": lambda piece: piece[:9] + bytes(12) + piece[21:],
    "front": lambda piece: piece[len(piece) // 2 :],
}
"""Ways in which a line or a frame is no longer one, whatever it held."""


@pytest.mark.parametrize("encoding", ["none", "zstd"])
async def test_each_damage_is_named_at_its_place(encoding: Encoding, tmp_path: Path) -> None:
    """Several pieces spoilt in one file, good ones between: a finding stands at each, and nowhere else."""
    chance = random.Random(f"places {encoding}")
    named = 0
    for number in range(FILES // 2):
        original = random_log(chance, encoding)
        last = len(original.pieces) - 1
        spoilt = set(chance.sample(range(last), min(last, chance.randint(1, 4))))
        places: list[tuple[int, int, str]] = []
        data = original.head
        for at, (piece, _) in enumerate(original.pieces):
            if at not in spoilt:
                data += piece
                continue
            kind = chance.choice(sorted(SPOILERS))
            put = SPOILERS[kind](piece).replace(b"\n", b" ") + (b"\n" if encoding == "none" else b"")
            places.append((len(data), len(data) + len(put), kind))
            data += put
        root = tmp_path / str(number)
        plant(root, data, encoding)
        verdict, report, saved = await salvaged(root, encoding)
        assert {event.seq for event in saved} == {
            event.seq
            for at, (_, rows) in enumerate(original.pieces)
            if at not in spoilt
            for row in rows
            for event in row.events()
        }
        marks = [(f.offset or 0, (f.offset or 0) + (f.size or 0)) for f in report.findings]
        for first, end, kind in places:
            assert any(start < end and stop > first for start, stop in marks), f"file {number}: {kind}"
        for start, stop in marks:
            assert any(start < end and stop > first for first, end, _ in places), f"file {number}: {start}"
        assert verdict.status == "corrupt" or not places
        named += len(places)
    assert named > FILES
