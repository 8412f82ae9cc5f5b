"""After a deletion no stored byte of the session is left in files, write-ahead log or free pages."""

from __future__ import annotations

import os
import random
import sqlite3
from pathlib import Path

import pytest

import turnlog
from tests.faults.drill import SESSION_ID
from tests.faults.lanes import lane
from tests.faults.stores import KINDS, Place, SqlitePlace, make_place

WINDOW = 24
"""Bytes of stored content that must not be found in a row anywhere."""


async def fill(url: str) -> None:
    """Store the session between others, in many batches of text that does not compress."""
    chance = random.Random(1)
    async with turnlog.open(url) as store:
        for name in ("before", SESSION_ID, "behind"):
            async with store.create(id=name, cwd="/srv/app") as session:
                session.append("session/title", {"title": f"title of {name} {chance.randbytes(20).hex()}"})
                for _ in range(30):
                    session.append("feedback/record", {"text": chance.randbytes(600).hex()})
                    await session.flush()


def found(folder: Path, wanted: set[bytes]) -> list[str]:
    """Return the files below a folder that hold one of the windows, at any offset."""
    holding: list[str] = []
    for path in folder.rglob("*"):
        if path.is_file():
            data = path.read_bytes()
            if any(window in data for window in wanted):
                holding.append(path.name)
    return sorted(holding)


def _sample(place: Place) -> set[bytes]:
    """Return pieces of the session's stored content that no other session has."""
    content = place.log(SESSION_ID)
    others = place.log("before") + place.log("behind")
    pieces = {content[at : at + WINDOW] for at in range(0, len(content) - WINDOW, WINDOW)}
    chosen = sorted(piece for piece in pieces if piece not in others)
    assert len(chosen) > 100
    return set(random.Random(2).sample(chosen, min(400, len(chosen))))


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "postgres"])
async def test_no_byte_is_left(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing of the log, its title or its summary is found; the sessions beside it are whole."""
    place = make_place(kind, tmp_path)
    await fill(place.url)
    wanted = _sample(place)
    assert found(tmp_path, wanted), "the search finds nothing even before the deletion"
    others = [place.log(name) for name in ("before", "behind")]
    with lane("deleted bytes", kind, capsys) as figures:
        async with turnlog.open(place.url) as store:
            done = await store.delete(SESSION_ID)
            assert done.erased
            assert found(tmp_path, wanted | {b"title of drill"}) == []
        assert found(tmp_path, wanted | {b"title of drill"}) == []
        assert [place.log(name) for name in ("before", "behind")] == others
        figures.faults = 1
        figures.note = f"{len(wanted)} pieces of stored content looked for in every file"


async def test_a_reader_holds_the_content_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With a reader inside a transaction the deletion says so; when it has gone the rest is erased."""
    place = make_place("sqlite", tmp_path)
    assert isinstance(place, SqlitePlace)
    await fill(place.url)
    wanted = _sample(place)
    with lane("deleted bytes, a reader open", "sqlite", capsys) as figures:
        async with turnlog.open(place.url) as store:
            await store.append(SESSION_ID, [_more(await _end(store))])
            reader = sqlite3.connect(place.path, isolation_level=None)
            reader.execute("begin")
            assert reader.execute("select count(*) from frames").fetchone()[0] > 90
            done = await store.delete(SESSION_ID)
            assert not done.erased
            assert found(tmp_path, wanted), "the reader did not hold anything back, so this shows nothing"
            assert reader.execute("select count(*) from frames").fetchone()[0] > 90
            reader.execute("rollback")
            reader.close()
            assert await store.erase_remains()
            assert found(tmp_path, wanted | {b"title of drill"}) == []
        figures.faults = 1


async def _end(store: turnlog.SessionStore) -> int:
    return len((await store.load(SESSION_ID)).events)


def _more(seq: int) -> dict[str, object]:
    return {"type": "feedback/record", "seq": seq, "time": 1, "data": {"text": os.urandom(9).hex()}}


async def test_an_idle_reader_holds_nothing_back(tmp_path: Path) -> None:
    """Stores that are merely open, and have read, do not keep a deletion from erasing."""
    place = make_place("sqlite", tmp_path)
    await fill(place.url)
    wanted = _sample(place)
    async with turnlog.open(place.url) as reader, turnlog.open(place.url) as store:
        assert len((await reader.read_from(SESSION_ID, 0)).events) == 31
        assert (await store.delete(SESSION_ID)).erased
        assert found(tmp_path, wanted) == []
        assert [info.session_id async for info in reader.list()] == ["before", "behind"]


async def test_a_server_is_vacuumed() -> None:
    """PostgreSQL: no row is left, live or dead; a transaction that can still see them is told."""
    from tests.faults.stores import PostgresPlace

    place = make_place("postgres", Path())
    assert isinstance(place, PostgresPlace)
    await fill(place.url)

    def count() -> int:
        return int(place.run("select count(*) from frames")[0][0])

    async with turnlog.open(place.url) as store:
        assert count() == 90
        assert (await store.delete(SESSION_ID)).erased
        assert count() == 60
        place.run("create extension if not exists pgstattuple schema public")
        dead = place.run(f"select dead_tuple_count from public.pgstattuple('{place.schema}.frames')")
        assert dead[0][0] == 0
