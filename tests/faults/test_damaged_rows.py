"""Randomly damaged rows of databases: salvage gives back every undamaged event, verify agrees (R2)."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

import turnlog
from tests.faults.lanes import SOAK, lane
from tests.faults.stores import TablesPlace, make_place
from tests.faults.test_damage import Original, random_log, split
from turnlog import SessionEvent
from turnlog.backends.postgres import statements
from turnlog.backends.sqlite import reading
from turnlog.events import frames
from turnlog.testing.damage import cut_out, flip_bit, insert, zero_fill
from turnlog.testing.scripts import LogScript, dicts

LOGS = 500 if SOAK else 60
"""Damaged logs per database."""

STRANGE_ROW = b'{"type":"turn/start","seq":999999,"time":1,"data":{}}\n'
BLOBS: dict[str, Callable[[bytes, int], bytes]] = {
    "cut": lambda frame, at: frame[:at],
    "flip": flip_bit,
    "zeros": lambda frame, at: zero_fill(frame, at, 16) if any(frame[at : at + 16]) else bytes(len(frame)),
    "insert": insert,
    "cut out": cut_out,
    "empty": lambda frame, at: b"",
    "all zeros": lambda frame, at: bytes(len(frame)),
    "twice": lambda frame, at: frame + frame,
    "text": lambda frame, at: frames.decompress(frame),
    "other rows": lambda frame, at: frames.compress(
        b'{"type":"turn/start","seq":999999,"time":1,"data":{}}\n'
    ),
}
"""Ways in which the bytes of a stored frame go bad."""
MOVED = 40
"""Events by which the end of a row is put too far."""
KEYS = ("lose", "swap", "copy", "first seq", "last seq")
"""Ways in which a row goes bad as a whole."""


@pytest.fixture(params=["sqlite", "postgres"], name="tables")
def _tables(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> TablesPlace:
    """Give a database whose scans go on page by page, with few frames each."""
    monkeypatch.setattr(reading, "PAGE", 4)
    monkeypatch.setattr(statements, "_FRAMES", statements._FRAMES.replace("limit 256", "limit 4"))
    place = make_place(request.param, tmp_path)
    assert isinstance(place, TablesPlace)
    return place


def rows_of(place: TablesPlace, number: int) -> dict[int, bytes]:
    """Return the stored frames of a session by their keys."""
    found = place.run(
        f"select first_seq, frame from frames where session = (select {place.key} from sessions "
        "where segment = ?) order by first_seq",
        f"s-{number}",
    )
    return {int(first): bytes(frame) for first, frame in found}


def _put(place: TablesPlace, number: int, text: str, *values: object) -> None:
    """Change a row of one session; the condition on the session comes last."""
    place.run(
        f"{text} and session = (select {place.key} from sessions where segment = ?)", *values, f"s-{number}"
    )


def _says_the_same(frame: bytes, good: bytes) -> bool:
    """Tell whether a changed frame still decodes, checksum and all, to what it held."""
    try:
        return frames.decompress(frame) == frames.decompress(good)
    except frames.FrameError:
        return False


def spoil(place: TablesPlace, number: int, rows: dict[int, bytes], chance: random.Random) -> dict[int, str]:
    """Damage some rows of a session; return the keys of all that are not what they were, and how."""
    spoilt: dict[int, str] = {}
    for key in chance.sample(sorted(rows), min(len(rows) - 1, chance.randint(1, 4))):
        if key in spoilt:
            continue
        kind = chance.choice([*BLOBS, *KEYS])
        other = chance.choice([k for k in rows if k != key and k not in spoilt] or [None])
        if kind in BLOBS:
            frame = BLOBS[kind](rows[key], chance.randrange(len(rows[key])))
            _put(place, number, "update frames set frame = ? where first_seq = ?", frame, key)
            if _says_the_same(frame, rows[key]):
                continue  # a bit that means nothing
        elif kind == "lose":
            _put(place, number, "delete from frames where first_seq = ?", key)
        elif kind == "last seq":
            by = chance.choice([-1, 1, MOVED])
            _put(place, number, "update frames set last_seq = last_seq + ? where first_seq = ?", by, key)
        elif kind == "first seq":
            free = chance.choice([k for k in range(max(rows) + 9) if k not in rows])
            _put(place, number, "update frames set first_seq = ? where first_seq = ?", free, key)
            spoilt[free] = kind
        elif other is not None:
            _put(place, number, "update frames set frame = ? where first_seq = ?", rows[other], key)
            if kind == "swap":
                _put(place, number, "update frames set frame = ? where first_seq = ?", rows[key], other)
                spoilt[other] = kind
        else:
            continue
        spoilt[key] = kind
    return spoilt


async def keep(place: TablesPlace, number: int, original: Original) -> None:
    """Store a log, each of its pieces in a batch of its own."""
    async with turnlog.open(place.url) as store:
        async with store.create(id=f"s-{number}", cwd="/srv/app") as session:
            await store.ensure_materialized(session.id)
        for _, rows in original.pieces:
            events = [event for row in rows for event in row.events()]
            await store.append(session.id, dicts(events))


async def test_every_undamaged_event_is_saved(
    tables: TablesPlace, capsys: pytest.CaptureFixture[str]
) -> None:
    """Frames cut, flipped, zeroed, exchanged, lost, with other keys: each is named, the rest is saved."""
    chance = random.Random(tables.kind)
    kinds: Counter[str] = Counter()
    saved_events = 0
    with lane("random damage", tables.kind, capsys) as figures:
        for number in range(LOGS):
            original = random_log(chance, "zstd")
            await keep(tables, number, original)
            rows = rows_of(tables, number)
            spoilt = spoil(tables, number, rows, chance)
            stored = rows_of(tables, number)
            good = [
                event
                for key, (_, held) in zip(rows, original.pieces, strict=True)
                if key not in spoilt
                for row in held
                for event in row.events()
            ]
            try:
                saved_events += await check(tables, number, good, rows, spoilt)
            except BaseException as error:
                error.add_note(f"log {number}: {spoilt} of {sorted(rows)}")
                raise
            assert rows_of(tables, number) == stored, "the original was changed"
            kinds.update(spoilt.values())
            figures.faults += bool(spoilt)
            figures.acknowledged += len(good)
        figures.note = f"{saved_events:,} events salvaged"
    assert set(kinds) == {*BLOBS, *KEYS}


@pytest.mark.parametrize("end", [-1, -9, 0, 1 << 40])
@pytest.mark.parametrize("key", [3, 7, 9])
async def test_an_end_that_cannot_be_right(end: int, key: int, tables: TablesPlace) -> None:
    """A row that ends before it begins, or far behind, is named; reading goes on and comes to an end."""
    script = LogScript()
    for number in range(10):
        script.add("feedback/record", {"text": str(number)})
    async with turnlog.open(tables.url) as store:
        async with store.create(id="s-0", cwd="/srv/app") as session:
            await store.ensure_materialized(session.id)
        for event in script.events:
            await store.append("s-0", dicts([event]))
    _put(tables, 0, "update frames set last_seq = ? where first_seq = ?", end, key)
    async with turnlog.open(tables.url) as store, turnlog.open("memory:") as target:
        for call in (store.load("s-0"), store.inspect("s-0"), store.read_from("s-0", 0)):
            with pytest.raises(turnlog.CorruptLogError):
                await call
        report = await store.salvage("s-0", to=target)
        assert (report.events, key in {f.offset for f in report.findings}) == (9, True)


async def check(
    place: TablesPlace,
    number: int,
    good: list[SessionEvent],
    rows: dict[int, bytes],
    spoilt: dict[int, str],
) -> int:
    """Hold one damaged log to the promise; return how many events were saved."""
    session_id = f"s-{number}"
    async with turnlog.open(place.url) as store, turnlog.open("memory:") as target:
        verdict = await store.verify(session_id)
        assert verdict.is_good == (not spoilt)
        if spoilt:
            with pytest.raises(turnlog.CorruptLogError):
                await store.load(session_id)
        report = await store.salvage(session_id, to=target)
        events = list((await target.read_from(report.new_id, 0)).events) if report.events else []
    saved, lost = split(events)
    assert (len(saved), lost) == (report.events, report.lost)
    by_seq = {event.seq: event for event in saved}
    assert [event.seq for event in good if by_seq.get(event.seq) != event] == []
    named = [f for f in verdict.findings if f.severity in ("damage", "torn")]
    assert list(report.findings) == named, "verify and salvage disagree"
    assert not any(f.severity == "torn" for f in named), "a bad row is never a torn tail"
    offsets = {f.offset for f in named}
    there = set(rows_of(place, number))
    assert {key for key in spoilt if key in there} <= offsets, f"not every damage is named: {named}"
    end = max(by_seq, default=-1)
    for key in set(spoilt) - there:
        is_missing = any(gap.first_seq <= key <= gap.last_seq for gap in report.missing)
        assert is_missing or any(end < (at or 0) <= key for at in offsets), f"{key} is gone: {named}"
    # A spoilt range also tells where the next row should be, which may be beyond it.
    following = dict(zip([*rows], [*rows][1:], strict=False))
    near = {seq for key in spoilt for seq in range(key, following.get(key, key) + MOVED + 9)}
    assert offsets <= near, f"a finding where nothing is wrong: {named}"
    return len(saved)
