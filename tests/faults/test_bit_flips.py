"""Single flipped bits over whole files: each is detected, changes nothing, or is named as undetectable."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass
from pathlib import Path

import pytest

import turnlog
from tests.crash.scenarios import CWD, add_turn
from tests.faults.lanes import SOAK, lane
from turnlog.events import frames
from turnlog.testing.damage import flip_bit

ID = "flip"
QUICK = 150
"""Bits that are flipped in the quick form."""
LONG = 5000
"""Bits in the long form: one in every byte of the files, and a sample of the bytes of a database."""


@dataclass(slots=True)
class Tally:
    """What became of the flips."""

    refused: int = 0
    """The log is not read: damage, or a database that is none any more."""
    shorter: int = 0
    """Verify names a torn tail."""
    harmless: int = 0
    """Header and events are what they were."""
    unnoticed: int = 0
    """Something else is read, and nobody can tell."""

    def __str__(self) -> str:
        return (
            f"{self.refused:,} refused, {self.shorter:,} named as torn, {self.harmless:,} without effect, "
            f"{self.unnoticed:,} unnoticed"
        )


async def record(url: str) -> tuple[dict[str, object], str, int]:
    """Store a session of two turns in four batches; return header, digest and length."""
    async with turnlog.open(url) as store:
        async with store.create(id=ID, cwd=CWD) as session:
            for number in (1, 2):
                add_turn(session, number)
                await session.flush()
        stored = await store.read_from(ID, 0)
        return stored.meta.to_dict(), stored.events.digest(), len(stored.events)


async def look(url: str, header: dict[str, object], digest: str) -> str:
    """Say what became of a flip."""
    try:
        async with turnlog.open(url) as store:
            verdict = await store.verify(ID)
            if not verdict.is_good:
                return "refused"
            stored = await store.read_from(ID, 0)
    except turnlog.TurnlogError:
        return "refused"
    if stored.meta.to_dict() == header and stored.events.digest() == digest:
        return "harmless"
    return "shorter" if verdict.status == "torn" else "unnoticed"


def flips(size: int, chance: random.Random) -> list[tuple[int, int]]:
    """Return the places to flip: one random bit in every byte, or a sample of them."""
    places = sorted(chance.sample(range(size), min(LONG if SOAK else QUICK, size)))
    return [(at, chance.randrange(8)) for at in places]


@pytest.mark.parametrize("encoding", ["none", "zstd"])
def test_bits_of_a_log_file(encoding: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """zstd: no flip goes unnoticed. Plain text has no checksum, and the page says so."""
    url = f"jsonl:{tmp_path / 'root'}?compression={encoding}"
    header, digest, count = asyncio.run(record(url))
    (log,) = (tmp_path / "root").rglob("session.jsonl*")
    data = log.read_bytes()
    last = frames.scan(data).spans[-1][0] if encoding == "zstd" else data.rfind(b"\n", 0, -1)
    tally = Tally()
    with lane("bit flips", f"jsonl {encoding}", capsys) as figures:
        for at, bit in flips(len(data), random.Random(encoding)):
            log.write_bytes(flip_bit(data, at, bit))
            outcome = asyncio.run(look(url, header, digest))
            setattr(tally, outcome, getattr(tally, outcome) + 1)
            figures.faults += 1
            # The length of the last frame may be spoiled so that it looks cut; a repair keeps its bytes.
            assert outcome != "shorter" or at >= last, f"byte {at} before the last {encoding} piece"
        figures.acknowledged = count
        figures.note = str(tally)
    if encoding == "zstd":
        assert tally.unnoticed == 0
    else:
        assert tally.refused > tally.harmless


def test_bits_of_a_database(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """SQLite: no flip changes an event unnoticed; frames have checksums of their own."""
    path = tmp_path / "s.db"
    url = f"sqlite:{path}"
    header, digest, count = asyncio.run(record(url))
    assert not path.with_name("s.db-wal").exists(), "the log was not taken into the database"
    data = path.read_bytes()
    tally = Tally()
    changed_events = 0
    with lane("bit flips", "sqlite", capsys) as figures:
        for at, bit in flips(len(data), random.Random("sqlite")):
            path.write_bytes(flip_bit(data, at, bit))
            for beside in tmp_path.glob("s.db-*"):
                beside.unlink()
            outcome = asyncio.run(look(url, header, digest))
            if outcome == "unnoticed":
                changed_events += asyncio.run(_events(url)) != digest
            setattr(tally, outcome, getattr(tally, outcome) + 1)
            figures.faults += 1
        figures.acknowledged = count
        figures.note = str(tally)
    assert changed_events == 0, "events changed and nobody noticed"


async def _events(url: str) -> str:
    async with turnlog.open(url) as store:
        return (await store.read_from(ID, 0)).events.digest()
