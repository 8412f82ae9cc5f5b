"""A store copied through every backend and back: equal digests, equal bytes, also when it was interrupted."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from pathlib import Path
from typing import Any

import pytest

import turnlog
from tests.faults.drill import Writer
from tests.faults.lanes import SOAK, lane
from tests.faults.stores import JsonlPlace, make_place
from turnlog.testing.scripts import LogScript

SESSIONS = 60 if SOAK else 12
CHAIN = ("sqlite", "postgres", "jsonl")


def random_log(chance: random.Random) -> list[turnlog.SessionEvent]:
    """Return a log with runs of chunks, tools, odd text and sometimes an open turn."""
    script = LogScript()
    if chance.random() < 0.5:
        script.add("session/title", {"title": chance.choice(["Tests", "\ud83d", "a\x00b", "漢字"])})
    for number in range(chance.randint(1, 5)):
        script.start().step().user(f"question {number} \x00 \ud800 " + "x" * chance.randint(0, 300))
        script.chunks(*(f"w{chance.random()} " for _ in range(chance.randint(0, 30))))
        calls = [f"c{number}-{k}" for k in range(chance.randint(0, 2))]
        script.assistant("é \U0001f600", calls=calls)
        for call in calls:
            script.call(call).result(call)
        script.add("acme/unknown", {"deep": [{"x": 1.5e300}]}, ignorable=True)
        if number < 4 or chance.random() < 0.5:
            script.end_step().end()
    return script.events


async def write_store(url: str, seed: int) -> None:
    """Fill a store with sessions, each in several batches."""
    chance = random.Random(seed)
    async with turnlog.open(url) as store:
        for number in range(SESSIONS):
            events = random_log(chance)
            async with store.create(
                id=f"s {number}/é",
                cwd="/srv/app",
                agent_preset="minimal" if number % 2 else None,
                strict=False,
            ) as session:
                for event in events:
                    options: dict[str, Any] = {"ignorable": True} if event.ignorable else {}
                    session.append(event.type, event.data, surface_op=event.surface_op, **options)
                    if chance.random() < 0.1:
                        await session.flush()


async def digests(url: str) -> dict[str, str]:
    """Return the logical digest of every session."""
    found: dict[str, str] = {}
    async with turnlog.open(url) as store:
        async for info in store.list():
            assert info.session_id is not None
            assert (await store.verify(info.session_id)).is_good
            found[info.session_id] = (await store.read_from(info.session_id, 0)).events.digest()
    return found


async def copy_all(source: str, target: str) -> turnlog.CopyReport:
    """Copy a whole store."""
    async with turnlog.open(source) as store, turnlog.open(target) as other:
        return await store.copy(other)


def files(place: JsonlPlace) -> dict[str, bytes]:
    """Return the bytes of every log below a root."""
    return {
        str(path.relative_to(place.root)): path.read_bytes()
        for path in sorted(place.root.rglob("session.jsonl"))
    }


def test_a_store_comes_back_byte_for_byte(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """jsonl to SQLite to PostgreSQL to jsonl: digests agree at every stop, plain files are the same files."""
    first = make_place("jsonl", _made(tmp_path / "first"))
    assert isinstance(first, JsonlPlace)
    asyncio.run(write_store(first.url, 1))
    expected = asyncio.run(digests(first.url))
    assert len(expected) == SESSIONS
    place = first
    with lane("copy", "jsonl → sqlite → postgres → jsonl", capsys) as figures:
        for kind in CHAIN:
            following: Any = make_place(kind, _made(tmp_path / f"to-{kind}"))
            report = asyncio.run(copy_all(place.url, following.url))
            assert not report.failed
            assert asyncio.run(digests(following.url)) == expected
            figures.faults += 1
            figures.acknowledged += sum(copied.events for copied in report.sessions)
            place = following
        assert isinstance(place, JsonlPlace)
        assert files(place) == files(first)
        figures.note = f"{SESSIONS} sessions, equal digests at every stop, equal bytes at the end"


def _made(folder: Path) -> Path:
    folder.mkdir()
    return folder


@pytest.mark.parametrize("kind", ["jsonl", "jsonl-zstd", "sqlite", "postgres"])
def test_a_copy_killed_half_way_is_resumed(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A copying process is killed again and again; the next one takes up what is there, and all is equal."""
    source = make_place("jsonl", _made(tmp_path / "source"))
    asyncio.run(write_store(source.url, 2))
    expected = asyncio.run(digests(source.url))
    target = make_place(kind, _made(tmp_path / "target"))
    chance = random.Random(kind)

    async def work(ack: int) -> None:
        def tell(done: int, total: int) -> None:
            os.write(ack, b"%d -\n" % done)

        async with turnlog.open(source.url) as store, turnlog.open(target.url) as other:
            await store.copy(other, progress=tell)

    with lane("copy killed half-way", kind, capsys) as figures:
        for _ in range(30 if SOAK else 6):
            writer = Writer(work)
            for _ in range(chance.randrange(SESSIONS * 3 // 4)):
                assert writer.next() is not None
            time.sleep(chance.uniform(0.0, 0.005))
            writer.kill()
            figures.faults += writer.status == signal.SIGKILL
        report = asyncio.run(copy_all(source.url, target.url))
        assert not report.failed, [str(copied.error) for copied in report.failed]
        figures.acknowledged = sum(copied.events for copied in report.sessions)
        left = asyncio.run(digests(target.url))
        figures.lost = sum(left.get(session_id) != digest for session_id, digest in expected.items())
        if isinstance(target, JsonlPlace) and isinstance(source, JsonlPlace) and kind == "jsonl":
            assert files(target) == files(source)
