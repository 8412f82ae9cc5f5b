"""After a deletion no byte of the session is left in any file, write-ahead log or free page."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
import struct
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import turnlog
from tests.faults.drill import SESSION_ID
from tests.faults.lanes import lane
from tests.faults.stores import KINDS, JsonlPlace, Place, PostgresPlace, SqlitePlace, make_place
from turnlog.persistence.attachments import image_block

WINDOW = 24
"""Bytes of content that must not be found in a row anywhere."""
WINDOWS = 300
"""How many such pieces of each kind of content are looked for."""
OTHERS = ("before", "behind")
"""Sessions beside the one that is deleted."""
TORN = "torn off " + random.Random("torn").randbytes(200).hex()


@dataclass
class Content:
    """What must not be left of a session: pieces of its content, by what they are pieces of."""

    pieces: dict[str, set[bytes]] = field(default_factory=dict)

    def add(self, name: str, stored: list[bytes], chance: random.Random, *, but: bytes = b"") -> None:
        """Take pieces of content, each from within one thing that is stored, none that stands in `but`.

        A piece over the end of one frame and the beginning of the next would stand nowhere as such, but
        before and at the beginning of another session's frame by chance: small frames begin alike.
        """
        whole = (data[at : at + WINDOW] for data in stored for at in range(0, len(data) - WINDOW + 1, WINDOW))
        cut = sorted({piece for piece in whole if piece != bytes(WINDOW) and piece not in but})
        assert cut, f"there is nothing of {name} to look for"
        self.pieces[name] = set(chance.sample(cut, min(WINDOWS, len(cut))))

    def found(self, folder: Path) -> dict[str, set[str]]:
        """Return which kinds of content are found, at any offset, and in which files."""
        holding: dict[str, set[str]] = {}
        for path in folder.rglob("*"):
            data = path.read_bytes() if path.is_file() else b""
            for name, pieces in self.pieces.items():
                if any(piece in data for piece in pieces):
                    holding.setdefault(name, set()).add(path.name)
        return holding

    def __len__(self) -> int:
        return sum(map(len, self.pieces.values()))


def picture(chance: random.Random) -> bytes:
    """Return the bytes of an image that nobody else has."""
    return b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII", 13, b"IHDR", 8, 8) + chance.randbytes(3000)


async def fill(store: turnlog.SessionStore) -> None:
    """Store the session between others, batch by batch in turn, so that they share pages; with images.

    The text does not compress.
    """
    chance = random.Random(1)
    shared = await store.attachments.put(picture(random.Random("shared")))
    sessions = []
    for name in (OTHERS[0], SESSION_ID, OTHERS[1]):
        own = await store.attachments.put(picture(random.Random(name)))
        session = await store.create(id=name, cwd="/srv/app")
        session.append("session/title", {"title": f"title of {name} {chance.randbytes(20).hex()}"})
        async with session.turn() as turn:
            turn.user([{"type": "text", "text": f"look, {name}"}, own, shared])
        sessions.append(session)
    for _ in range(30):
        for session in sessions:
            size = chance.choice((20, 150, 600, 1500, 5000))
            session.append("feedback/record", {"text": chance.randbytes(size).hex()})
            await session.flush()
    for session in sessions:
        await session.aclose()


async def quarantine(place: Place, store_url: str) -> None:
    """Tear the log and let a repair keep what was torn off aside; databases have no torn tails."""
    if not isinstance(place, JsonlPlace):
        return
    (log,) = place.root.glob(f"*/{SESSION_ID}/session.jsonl*")
    whole = log.read_bytes()
    log.write_bytes(whole + (TORN.encode() if log.suffix == ".jsonl" else whole[-600:-100]))
    async with turnlog.open(store_url) as store:
        await store.load(SESSION_ID)


async def content_of(place: Place, store: turnlog.SessionStore) -> Content:
    """Return what is to be looked for: stored bytes, the text they stand for, title, image, torn bytes."""
    chance = random.Random(2)
    content = Content()
    others = b"".join(place.log(name) for name in OTHERS)
    content.add("stored bytes", place.pieces(SESSION_ID), chance, but=others)
    events = (await store.read_from(SESSION_ID, 0)).events
    texts = [str(event.data["text"]) for event in events if event.type == "feedback/record"]
    content.add("text", [text.encode() for text in texts], chance)
    title = next(str(event.data["title"]) for event in events if event.type == "session/title")
    content.add("title", [title.encode()], chance)
    content.add("image", [picture(random.Random(SESSION_ID))[24:]], chance)
    for aside in place.root.rglob("torn-*.bin") if isinstance(place, JsonlPlace) else ():
        content.add("torn bytes", [aside.read_bytes()], chance, but=others)
    return content


def is_shown(found: dict[str, set[str]], place: Place) -> bool:
    """Tell whether the search finds each kind of content where it is before a deletion."""
    log = {"sessions.db", "sessions.db-wal"}
    if isinstance(place, JsonlPlace):
        log = {"session.jsonl", "session.jsonl.zstd"}
    kinds = {"stored bytes", "title", "image"}
    if isinstance(place, JsonlPlace):
        kinds |= {"torn bytes"}
    if place.kind == "jsonl":
        kinds |= {"text"}
    return kinds <= set(found) and bool(found["stored bytes"] & log)


@pytest.mark.parametrize("reader", ["no reader", "a reader"])
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "postgres"])
async def test_no_byte_is_left(
    kind: str, reader: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing of log, title, summary, image or quarantine is found; the sessions beside it are whole."""
    # The reader is another store that has read the session and is still open.
    place = make_place(kind, tmp_path)
    async with turnlog.open(place.url) as store:
        await fill(store)
    await quarantine(place, place.url)
    others = [place.log(name) for name in OTHERS]
    with lane(f"deleted bytes, {reader}", kind, capsys) as figures:
        async with turnlog.open(place.url) as store, turnlog.open(place.url) as other:
            content = await content_of(place, store)
            assert is_shown(content.found(tmp_path), place), "the search finds too little before the deletion"
            if reader == "a reader":
                assert len((await other.read_from(SESSION_ID, 0)).events) > 30
            assert (await store.delete(SESSION_ID)).erased
            assert content.found(tmp_path) == {}
            with pytest.raises(turnlog.SessionNotFoundError):
                await other.read_from(SESSION_ID, 0)
            assert sorted([str(info.session_id) async for info in other.list()]) == sorted(OTHERS)
            shared = image_block(picture(random.Random("shared")))["attachment"]["attachmentId"]
            assert await other.attachments.get(shared), "an image that others name is gone"
        assert content.found(tmp_path) == {}
        assert [place.log(name) for name in OTHERS] == others
        figures.faults = 1
        figures.note = f"{len(content)} pieces of content looked for in every file"


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "postgres"])
async def test_no_byte_is_left_of_what_was_just_written(kind: str, tmp_path: Path) -> None:
    """The store that wrote the session deletes it, with all of it still in the write-ahead log."""
    place = make_place(kind, tmp_path)
    async with turnlog.open(place.url) as store:
        await fill(store)
        content = await content_of(place, store)
        if kind == "sqlite":
            assert "sessions.db-wal" in content.found(tmp_path)["stored bytes"]
        assert (await store.delete(SESSION_ID)).erased
        assert content.found(tmp_path) == {}


async def test_a_reader_holds_the_content_back(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With a reader inside a transaction the deletion says so; when it has gone the rest is erased."""
    place = make_place("sqlite", tmp_path)
    assert isinstance(place, SqlitePlace)
    with lane("deleted bytes, a reader in a transaction", "sqlite", capsys) as figures:
        async with turnlog.open(place.url) as store:
            await fill(store)
            content = await content_of(place, store)
            await store.append(SESSION_ID, [_more(await _end(store))])
            reader = sqlite3.connect(place.path, isolation_level=None)
            reader.execute("begin")
            assert reader.execute("select count(*) from frames").fetchone()[0] > 90
            done = await store.delete(SESSION_ID)
            assert not done.erased
            assert content.found(tmp_path), "the reader did not hold anything back, so this shows nothing"
            assert reader.execute("select count(*) from frames").fetchone()[0] > 90
            reader.execute("rollback")
            reader.close()
            assert await store.erase_remains()
            assert content.found(tmp_path) == {}
        figures.faults = 1


async def _end(store: turnlog.SessionStore) -> int:
    return len((await store.load(SESSION_ID)).events)


def _more(seq: int) -> dict[str, object]:
    return {"type": "feedback/record", "seq": seq, "time": 1, "data": {"text": os.urandom(9).hex()}}


_OVERWRITTEN = "pragma secure_delete = on"
_TAKEN_IN = "pragma wal_checkpoint(truncate)"


@pytest.mark.parametrize(
    ("before", "after", "is_left"),
    [(None, _TAKEN_IN, True), (_OVERWRITTEN, None, True), (_OVERWRITTEN, _TAKEN_IN, False)],
    ids=["not overwritten", "not taken in", "both"],
)
async def test_each_half_of_erasing_is_needed(
    before: str | None, after: str | None, is_left: bool, tmp_path: Path
) -> None:
    """The control: without overwriting, or without emptying the log, the search finds deleted content."""
    place = make_place("sqlite", tmp_path)
    assert isinstance(place, SqlitePlace)
    async with turnlog.open(place.url) as store:
        await fill(store)
        content = await content_of(place, store)
    del content.pieces["image"]  # files of their own, which a deletion of rows leaves
    db = sqlite3.connect(place.path, isolation_level=None)
    db.execute(before or "pragma secure_delete = off")
    db.execute("pragma wal_autocheckpoint = 0")
    one = "(select key from sessions where segment = ?)"
    if after is None:
        # The content is in the log once more, as that of a session that was written on is.
        db.execute(f"update frames set frame = frame || x'' where session = {one}", (SESSION_ID,))
    db.execute(f"delete from frames where session = {one}", (SESSION_ID,))
    db.execute("delete from sessions where segment = ?", (SESSION_ID,))
    if after is not None:
        db.execute(after)
    assert bool(content.found(tmp_path)) == is_left
    db.close()


async def test_each_file_beside_a_log_is_looked_at(tmp_path: Path) -> None:
    """The control: any one file of a deleted session that is put back is found."""
    place = make_place("jsonl-zstd", tmp_path / "store")
    assert isinstance(place, JsonlPlace)
    async with turnlog.open(place.url) as store:
        await fill(store)
    await quarantine(place, place.url)
    async with turnlog.open(place.url) as store:
        content = await content_of(place, store)
        kept = tmp_path / "kept"
        shutil.copytree(tmp_path / "store", kept)
        assert (await store.delete(SESSION_ID)).erased
    assert content.found(tmp_path / "store") == {}
    seen: set[str] = set()
    for path in [path for path in kept.rglob("*") if path.is_file()]:
        back = tmp_path / "store" / path.relative_to(kept)
        if back.exists():
            continue
        back.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, back)
        if path.name != "session.lock":
            assert content.found(tmp_path / "store"), f"{path.name} came back unseen"
            seen.add(path.name.partition("-")[0])
        back.unlink()
    assert {"session.jsonl.zstd", "summary.json", "torn"} < seen


async def test_a_server_is_vacuumed() -> None:
    """PostgreSQL: no row is left, live or dead; while a transaction can still see them, that is said."""
    place = make_place("postgres", Path())
    assert isinstance(place, PostgresPlace)

    def count() -> int:
        return int(place.run("select count(*) from frames")[0][0])

    def dead() -> int:
        found = place.run(f"select dead_tuple_count from public.pgstattuple('{place.schema}.frames')")
        return int(found[0][0])

    place.run("create extension if not exists pgstattuple schema public")
    async with turnlog.open(place.url) as store:
        await fill(store)
        before = count()
        place.run("begin isolation level repeatable read")
        assert count() == before
        assert not (await store.delete(SESSION_ID)).erased
        assert count() == before
        place.run("rollback")
        assert (count(), dead() > 0) == (before * 2 // 3, True)
        assert await store.erase_remains()
        assert dead() == 0
        assert (await store.delete(OTHERS[0])).erased
        assert (count(), dead()) == (before // 3, 0)
