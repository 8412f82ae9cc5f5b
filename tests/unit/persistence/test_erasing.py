"""Deleting: nothing of a session is left, forks are named, images go unless somebody else names them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.persistence.damaged import IMAGE, Shelf, events, shelf_of
from turnlog.errors import BackendError, SessionBusyError, SessionNotFoundError, UsageError
from turnlog.persistence import erasing
from turnlog.persistence.live_session import LiveSession
from turnlog.persistence.store import SessionStore
from turnlog.testing.scripts import LogScript, header


@pytest.fixture(params=["memory", "jsonl", "jsonl-plain"])
async def shelf(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Shelf]:
    """One store of each kind, whose stored bytes can be changed."""
    async with shelf_of(request.param, tmp_path) as found:
        yield found


async def ids(store: SessionStore) -> list[str | None]:
    """Return the ids of a listing."""
    return [info.session_id async for info in store.list()]


async def with_image(store: SessionStore, session_id: str) -> str:
    """Store a session that refers to the image; return its id."""
    block = await store.attachments.put(IMAGE)
    async with store.create(id=session_id, cwd="/srv/app") as session, session.turn() as turn:
        turn.user([block])
    return str(block["attachment"]["attachmentId"])


async def test_nothing_is_left(shelf: Shelf) -> None:
    """Log, quarantine, summary, lock and folder are gone; the session can be made anew."""
    await shelf.keep("s", LogScript().turn("very secret").events)
    shelf.cut("s", 3)
    await shelf.store.load("s")
    done = await shelf.store.delete("s")
    assert (done.deleted, done.erased, done.forks, done.attachments) == (("s",), True, (), ())
    assert await ids(shelf.store) == []
    assert b"secret" not in repr(shelf.content()).encode()
    if shelf.kind != "memory":
        assert not shelf.path("s").parent.exists()
    await shelf.keep("s", events(0, 1))
    assert done.as_json()["deleted"] == ["s"]


async def test_a_damaged_session_can_be_deleted(shelf: Shelf) -> None:
    """Damage keeps nobody from erasing."""
    await shelf.keep("s", LogScript().turn().events)
    shelf.spoil("s", 0)
    assert (await shelf.store.delete("s")).deleted == ("s",)
    with pytest.raises(SessionNotFoundError):
        await shelf.store.delete("s")


async def test_an_id_that_was_only_created(shelf: Shelf) -> None:
    """What is in memory only is forgotten."""
    await shelf.store._coordinator.create(header("s"))
    assert (await shelf.store.delete("s")).deleted == ("s",)


async def fork(store: SessionStore, source: str, child: str) -> None:
    """Fork a session."""
    async with store.fork(source, child_id=child):
        pass


async def test_forks_are_named_and_keep_their_prefix(shelf: Shelf) -> None:
    """A fork is a session of its own; forks of forks hold the same prefix and are named, too."""
    await shelf.keep("s", LogScript().turn().events)
    await fork(shelf.store, "s", "b")
    await fork(shelf.store, "b", "a")
    await shelf.keep("child", LogScript().turn().events, parent_session="s", origin="subagent")
    assert await shelf.store.forks_of("s") == ("b", "a")
    done = await shelf.store.delete("s")
    assert (done.deleted, done.forks) == (("s",), ("b", "a"))
    assert await ids(shelf.store) == ["a", "b", "child"]
    assert await shelf.store.forks_of("s") == ("b", "a")


async def test_forks_can_be_taken_along(shelf: Shelf) -> None:
    """With its forks, from the last one to the source."""
    await shelf.keep("s", LogScript().turn().events)
    await fork(shelf.store, "s", "b")
    await fork(shelf.store, "b", "a")
    done = await shelf.store.delete("s", with_forks=True)
    assert (done.deleted, done.forks) == (("a", "b", "s"), ())
    assert await ids(shelf.store) == []


async def test_sessions_that_name_each_other_as_source(shelf: Shelf) -> None:
    """Headers that go round in a circle end nobody in a loop."""
    await shelf.keep("a", events(0, 1), parent_session="b", seed_length=1)
    await shelf.keep("b", events(0, 1), parent_session="a", seed_length=1)
    assert await shelf.store.forks_of("a") == ("b",)


async def test_images_of_its_own_go_with_it(shelf: Shelf) -> None:
    """An image that only this session refers to is removed."""
    name = await with_image(shelf.store, "s")
    await with_image_of_another_kind(shelf)
    done = await shelf.store.delete("s")
    assert (done.attachments, done.kept_attachments) == ((name,), ())
    assert not await shelf.store.attachments.exists(name)


async def with_image_of_another_kind(shelf: Shelf) -> None:
    """Store a session that refers to no image."""
    await shelf.keep("plain", LogScript().turn().events)


async def test_images_that_others_name_stay(shelf: Shelf) -> None:
    """Any mention elsewhere keeps an image; the last one that names it takes it along."""
    name = await with_image(shelf.store, "s")
    await with_image(shelf.store, "t")
    done = await shelf.store.delete("s")
    assert (done.attachments, done.kept_attachments) == ((), (name,))
    assert await shelf.store.attachments.get(name) == IMAGE
    assert (await shelf.store.delete("t")).attachments == (name,)


async def test_images_of_forks(shelf: Shelf) -> None:
    """Shared with a fork an image stays; deleted with the fork it goes."""
    name = await with_image(shelf.store, "s")
    await fork(shelf.store, "s", "f")
    done = await shelf.store.delete("s", with_forks=True)
    assert (done.attachments, done.kept_attachments) == ((name,), ())


async def test_images_that_a_live_session_names_stay(shelf: Shelf) -> None:
    """What is in memory and not stored yet counts."""
    name = await with_image(shelf.store, "s")
    block = await shelf.store.attachments.put(IMAGE)
    async with shelf.store.create(id="live", cwd="/srv/app") as session, session.turn() as turn:
        assert isinstance(session, LiveSession)
        turn.user([block])
        assert (await shelf.store.delete("s")).kept_attachments == (name,)


async def test_images_that_damage_may_hide_stay(shelf: Shelf) -> None:
    """Where another session cannot be read, it may name the image."""
    name = await with_image(shelf.store, "s")
    await shelf.keep("bad", LogScript().turn().events)
    shelf.spoil("bad", 0)
    assert (await shelf.store.delete("s")).kept_attachments == (name,)


async def test_images_of_a_backend_that_cannot_scan(shelf: Shelf) -> None:
    """Without a scan nobody knows what a session names, so nothing is removed."""
    name = await with_image(shelf.store, "s")
    hooks: Any = shelf.store._coordinator.books.hooks
    hooks.has_scan = False
    assert (await shelf.store.delete("s")).attachments == ()
    assert await shelf.store.attachments.exists(name)


async def test_entries_that_cannot_be_scanned(tmp_path: Path) -> None:
    """A strange entry, or a session stored twice, may name the image."""
    async with shelf_of("jsonl", tmp_path) as shelf:
        name = await with_image(shelf.store, "s")
        await shelf.keep("twice", events(0, 1))
        (shelf.path("twice").parent / "session.jsonl").write_bytes(b"{}\n")
        assert (await shelf.store.delete("s")).kept_attachments == (name,)
        await with_image(shelf.store, "s")
        (shelf.path("twice").parent / "session.jsonl").unlink()
        (shelf.root / "link").symlink_to(shelf.root)
        assert (await shelf.store.delete("s")).kept_attachments == (name,)


async def test_a_crash_between_images_and_log(shelf: Shelf) -> None:
    """Images go first; a deletion that failed then is simply repeated."""
    name = await with_image(shelf.store, "s")
    shelf.faults.fail("delete_stored", error=BackendError(backend="test", reason="no"))
    with pytest.raises(BackendError):
        await shelf.store.delete("s")
    assert not await shelf.store.attachments.exists(name)
    done = await shelf.store.delete("s")
    assert (done.deleted, done.attachments) == (("s",), ())


async def test_a_writer_keeps_its_session(shelf: Shelf) -> None:
    """W1: a session that is written, here or elsewhere, is not deleted, nor are its images, unless taken."""
    name = await with_image(shelf.store, "s")
    async with shelf.second() as other, await other.prepare("s"):
        with pytest.raises(SessionBusyError):
            await shelf.store.delete("s")
        assert await shelf.store.attachments.exists(name)
        assert (await shelf.store.delete("s", takeover=True)).attachments == (name,)
    async with shelf.store.create(id="t", cwd="/srv/app") as session:
        session.append("turn/start", {"turn": 1})
        await session.flush()
        with pytest.raises(SessionBusyError):
            await shelf.store.delete("t")


async def test_a_busy_fork(shelf: Shelf) -> None:
    """A fork that somebody writes stops the deletion before the source is touched."""
    await shelf.keep("s", LogScript().turn().events)
    await fork(shelf.store, "s", "f")
    async with shelf.second() as other, other.resume("f"):
        with pytest.raises(SessionBusyError):
            await shelf.store.delete("s", with_forks=True, takeover=True)
    assert await ids(shelf.store) == ["f", "s"]


class _HeldBack:
    """Remains that a reader holds back for a number of tries."""

    def __init__(self, tries: int) -> None:
        self.left = tries

    async def erase_remains(self) -> bool:
        self.left -= 1
        return self.left < 0


async def test_remains_are_asked_for_again(shelf: Shelf) -> None:
    """A reader may hold the erasure back; it is tried again, and told in the end."""
    pauses: list[float] = []

    async def pause(seconds: float) -> None:
        pauses.append(seconds)

    await shelf.keep("s", events(0, 1))
    await shelf.keep("t", events(0, 1))
    hooks: Any = shelf.store._coordinator.books.hooks
    hooks.erase_remains = _HeldBack(2).erase_remains
    coordinator = shelf.store._coordinator
    done = await erasing.erase(coordinator, shelf.store.attachments, "s", pause=pause)
    assert (done.erased, pauses) == (True, [erasing.PAUSE] * 2)
    hooks.erase_remains = _HeldBack(erasing.TRIES).erase_remains
    done = await erasing.erase(coordinator, shelf.store.attachments, "t", pause=pause)
    assert not done.erased
    assert await shelf.store.erase_remains()


async def test_a_backend_that_cannot_delete(shelf: Shelf) -> None:
    """That is a usage error, and a closed store takes no call."""
    await shelf.keep("s", events(0, 1))
    hooks: Any = shelf.store._coordinator.books.hooks
    hooks.has_delete = False
    with pytest.raises(UsageError):
        await shelf.store.delete("s")
    await shelf.store.aclose()
    for call in (shelf.store.delete("s"), shelf.store.erase_remains()):
        with pytest.raises(UsageError):
            await call


async def test_forks_of_a_closed_store(shelf: Shelf) -> None:
    """A closed store answers nothing."""
    await shelf.store.aclose()
    with pytest.raises(UsageError):
        await shelf.store.forks_of("s")
