"""Single flipped bits over whole files: each is detected, changes nothing, or is named as undetectable."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import turnlog
from tests.crash.scenarios import CWD, add_turn
from tests.faults.database_bytes import FREE, bytes_by_owner
from tests.faults.lanes import SOAK, lane
from tests.faults.stores import PostgresPlace
from turnlog.events import frames
from turnlog.testing.damage import flip_bit

ID = "flip"
IN_THE_LOG = ("header", "digest", "tail")
"""What a log file holds; the summary lies beside it."""
IN_A_DATABASE = (*IN_THE_LOG, "listed", "summary")
"""What the rows of a database hold, but for the time of the last write and what claims are made of."""
TITLE = "Which tests fail?"
QUICK = 150
"""Bits that are flipped in the quick form."""
LONG = 5000
"""Bits in the long form: one in every byte of a log file."""


@dataclass(slots=True)
class Tally:
    """What became of the flips."""

    refused: int = 0
    """Verify does not call it good, or it is no store any more."""
    shorter: int = 0
    """Verify names a torn tail."""
    blank: int = 0
    """A listing shows no summary where there was one."""
    harmless: int = 0
    """Everything that is read is what it was."""
    unnoticed: int = 0
    """Something else is read, and nobody can tell."""
    what: Counter[str] = field(default_factory=Counter)
    """What was read otherwise without a word."""

    def count(self, outcome: str) -> None:
        """Take one outcome of `look` into account."""
        kind, _, what = outcome.partition(":")
        setattr(self, kind, getattr(self, kind) + 1)
        if what:
            self.what[what] += 1

    def __str__(self) -> str:
        named = (
            (self.refused, "refused"),
            (self.shorter, "named as torn"),
            (self.blank, "with a blank summary"),
            (self.harmless, "without effect"),
        )
        told = [f"{count:,} {what}" for count, what in named if count or what != "with a blank summary"]
        return ", ".join([*told, f"{self.unnoticed:,} unnoticed"])


@dataclass(frozen=True, slots=True)
class Seen:
    """What a store tells of the session."""

    header: dict[str, Any]
    digest: str
    tail: list[dict[str, Any]]
    listed: tuple[Any, ...]
    """Status and size in a listing."""
    summary: Any

    def difference(self, other: Seen, names: Iterable[str]) -> str:
        """Name what is otherwise, or return an empty text."""
        return " ".join(name for name in names if getattr(self, name) != getattr(other, name))


async def see(store: turnlog.SessionStore) -> Seen:
    """Read the session in every way."""
    stored = await store.read_from(ID, 0)
    tail = await store.tail(ID, 3)
    [listed] = [entry async for entry in store.list()]
    assert listed.header is not None
    return Seen(
        stored.meta.to_dict(),
        stored.events.digest(),
        [event.to_dict() for event in tail.events],
        (listed.session_id, listed.header.to_dict(), listed.status, listed.size),
        listed.summary,
    )


async def record(url: str) -> tuple[Seen, int]:
    """Store a session of two turns in four batches; return what is to be seen and the length."""
    async with turnlog.open(url) as store:
        async with store.create(id=ID, cwd=CWD) as session:
            session.append("session/title", {"title": TITLE})
            for number in (1, 2):
                add_turn(session, number)
                await session.flush()
        return await see(store), len((await store.read_from(ID, 0)).events)


async def look(url: str, before: Seen, names: Iterable[str]) -> str:
    """Say what became of a flip: a field of `Tally`, and behind a colon what is otherwise."""
    try:
        async with turnlog.open(url) as store:
            verdict = await store.verify(ID)
            if not verdict.is_good:
                return "refused"
            seen = await see(store)
    except turnlog.TurnlogError:
        return "refused"
    different = before.difference(seen, names)
    if not different:
        return "harmless"
    if different == "summary" and seen.summary is None:
        return "blank"
    return "shorter" if verdict.status == "torn" else f"unnoticed:{different}"


def sampled(places: Iterable[int], count: int, chance: random.Random) -> list[tuple[int, int]]:
    """Return one random bit in each of at most `count` of some bytes."""
    found = list(places)
    chosen = sorted(chance.sample(found, min(count, len(found))))
    return [(at, chance.randrange(8)) for at in chosen]


@pytest.mark.parametrize("encoding", ["none", "zstd"])
def test_bits_of_a_log_file(encoding: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """zstd: no flip goes unnoticed. Plain text has no checksum, and the page says so."""
    url = f"jsonl:{tmp_path / 'root'}?compression={encoding}"
    before, count = asyncio.run(record(url))
    (log,) = (tmp_path / "root").rglob("session.jsonl*")
    data = log.read_bytes()
    last = frames.scan(data).spans[-1][0] if encoding == "zstd" else data.rfind(b"\n", 0, -1)
    tally = Tally()
    with lane("bit flips", f"jsonl {encoding}", capsys) as figures:
        for at, bit in sampled(range(len(data)), LONG if SOAK else QUICK, random.Random(encoding)):
            log.write_bytes(flip_bit(data, at, bit))
            outcome = asyncio.run(look(url, before, IN_THE_LOG))
            tally.count(outcome)
            figures.faults += 1
            # The length of the last frame may be spoiled so that it looks cut; a repair keeps its bytes.
            assert outcome != "shorter" or at >= last, f"byte {at} before the last {encoding} piece"
        figures.acknowledged = count
        figures.note = str(tally)
    if encoding == "zstd":
        assert tally.unnoticed == 0
    else:
        assert tally.refused > tally.harmless


def database_flips(path: Path, chance: random.Random) -> Iterator[tuple[str, int, int]]:
    """Yield owner, byte and bit: all of the sessions' rows, a sample of the rest, hardly any free space."""
    for owner, places in bytes_by_owner(path).items():
        if owner == "sessions":
            yield from ((owner, at, bit) for at in places for bit in (range(8) if SOAK else [at % 8]))
        else:
            count = QUICK // 10 if owner == FREE and not SOAK else LONG if SOAK else QUICK
            yield from ((owner, at, bit) for at, bit in sampled(places, count, chance))


def test_bits_of_a_database_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """SQLite: no flip goes unnoticed, wherever in the file it is."""
    path = tmp_path / "s.db"
    url = f"sqlite:{path}"
    before, count = asyncio.run(record(url))
    assert not path.with_name("s.db-wal").exists(), "the log was not taken into the database"
    data = path.read_bytes()
    tally = Tally()
    with lane("bit flips", "sqlite", capsys) as figures:
        for owner, at, bit in database_flips(path, random.Random("sqlite")):
            path.write_bytes(flip_bit(data, at, bit))
            for beside in tmp_path.glob("s.db-*"):
                beside.unlink()
            outcome = asyncio.run(look(url, before, IN_A_DATABASE))
            tally.count(f"{outcome} in {owner}" if ":" in outcome else outcome)
            figures.faults += 1
            assert owner != FREE or outcome == "harmless"
        figures.acknowledged = count
        figures.note = str(tally)
    assert tally.unnoticed == 0, tally.what


def flipped(stored: bytes | int, at: int, bit: int) -> bytes | int:
    """Return a column with one bit of it flipped."""
    return stored ^ 1 << at * 8 + bit if isinstance(stored, int) else flip_bit(stored, at, bit)


def row_flips(place: PostgresPlace, chance: random.Random) -> Iterator[tuple[str, str, Any, int, int]]:
    """Yield table, column, value, byte and bit: all of the session's row, a sample of the frames."""
    for column in ("header", "header_crc", "next_seq", "size", "summary", "summary_crc"):
        [[stored]] = place.run(f"select {column} from sessions")
        size = 6 if isinstance(stored, int) else len(stored)
        for at in range(size):
            for bit in range(8) if SOAK else [at % 8]:
                yield "sessions", column, stored, at, bit
    for column in ("first_seq", "last_seq", "frame"):
        for [stored] in place.run(f"select {column} from frames order by first_seq"):
            size = 6 if isinstance(stored, int) else len(stored)
            for at, bit in sampled(range(size), LONG if SOAK else QUICK // 10, chance):
                yield "frames", column, stored, at, bit


def test_bits_of_rows(capsys: pytest.CaptureFixture[str]) -> None:
    """PostgreSQL: no flip in the columns of a session goes unnoticed; its pages are the server's affair."""
    place = PostgresPlace()
    before, count = asyncio.run(record(place.url))
    tally = Tally()
    with lane("bit flips", "postgres", capsys) as figures:
        for table, column, stored, at, bit in list(row_flips(place, random.Random("rows"))):
            change = f"update {table} set {column} = ? where {column} = ?"
            place.run(change, flipped(stored, at, bit), stored)
            outcome = asyncio.run(look(place.url, before, IN_A_DATABASE))
            tally.count(f"{outcome} in {column}" if ":" in outcome else outcome)
            place.run(change, stored, flipped(stored, at, bit))
            figures.faults += 1
            wanted = {"blank"} if column.startswith("summary") else {"refused"}
            if column == "frame":
                wanted.add("harmless")  # a frame may be decoded with a larger window than it needs
            assert outcome in wanted, f"{column} {at}.{bit}"
        figures.acknowledged = count
        figures.note = str(tally)
    assert asyncio.run(look(place.url, before, IN_A_DATABASE)) == "harmless"
