"""Verify: a verdict on each stored log, with every damaged place, broken rule, leftover and missing image."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.persistence.damaged import IMAGE, Shelf, events, shelf_of
from turnlog.errors import BackendError, SessionNotFoundError, UsageError
from turnlog.persistence.in_turn import AHEAD
from turnlog.persistence.verification import Verification
from turnlog.testing.scripts import LogScript


@pytest.fixture(params=["memory", "jsonl", "jsonl-plain"])
async def shelf(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Shelf]:
    """One store of each kind, whose stored bytes can be changed."""
    async with shelf_of(request.param, tmp_path) as found:
        yield found


def kinds(found: Verification, severity: str | None = None) -> list[str]:
    """Return the kinds of what was found."""
    return [f.kind for f in found.findings if severity is None or f.severity == severity]


async def test_a_good_log(shelf: Shelf) -> None:
    """Nothing is found, and the digest is that of the rows."""
    await shelf.keep("s", LogScript().turn(calls=["c"]).events)
    found = await shelf.store.verify("s")
    assert (found.status, found.findings, found.missing) == ("ok", (), ())
    assert found.is_good
    assert found.header is not None
    assert found.header.id == "s"
    assert found.digest is not None
    assert found.event_count == len(LogScript().turn(calls=["c"]).events)
    assert found.as_json()["id"] == "s"


async def test_an_interrupted_log_is_good(shelf: Shelf) -> None:
    """R1: an open turn is closed by a repair; the log is well-ordered as far as it goes."""
    await shelf.keep("s", LogScript().start().step().user().events)
    found = await shelf.store.verify("s")
    assert (found.status, found.findings, found.event_count) == ("interrupted", (), 3)
    stored = (await shelf.store.read_from("s", 0)).events.rows
    text = b"".join(row.line + b"\n" for row in stored)
    assert found.digest == hashlib.sha256(text).hexdigest(), "the digest is not that of what is stored"


async def test_a_torn_tail_is_no_damage(shelf: Shelf) -> None:
    """R2: a torn tail is found with its offset and size, and the log counts as good."""
    await shelf.keep("s", LogScript().turn().events)
    shelf.cut("s", 3)
    found = await shelf.store.verify("s")
    assert (found.status, found.is_good) == ("torn", True)
    (torn,) = [f for f in found.findings if f.severity == "torn"]
    assert torn.kind == "torn"
    assert torn.offset is not None
    assert torn.size is not None


async def test_quarantine_is_named(shelf: Shelf) -> None:
    """L1: what a repair has cut off is named until the session is deleted."""
    await shelf.keep("s", LogScript().turn().events)
    shelf.cut("s", 3)
    await shelf.store.load("s")
    found = await shelf.store.verify("s")
    (kept,) = [f for f in found.findings if f.kind == "quarantine"]
    assert (found.is_good, kept.severity) == (True, "note")
    assert kept.size
    await shelf.store.delete("s")
    with pytest.raises(SessionNotFoundError):
        await shelf.store.verify("s")


async def test_damage_is_named_with_its_place(shelf: Shelf) -> None:
    """R2: damage, the events that are certainly gone, and how many are left."""
    for seq in range(5):
        await shelf.append("s", events(seq, 1))
    offset = shelf.spoil("s", 2)
    found = await shelf.store.verify("s")
    assert (found.status, found.is_good, found.event_count) == ("corrupt", False, 4)
    (finding,) = found.findings
    assert (finding.severity, finding.offset) == ("damage", offset)
    assert [(gap.first_seq, gap.last_seq) for gap in found.missing] == [(2, 2)]
    assert found.digest is None
    assert found.as_json()["missing"] == [{"from": 2, "to": 2}]


async def test_every_refused_event_is_named(shelf: Shelf) -> None:
    """A load names the first event that no session accepts; verify names all of them, and where they are."""
    odd = LogScript().user()
    odd.add("assistant/message", {"message": "none"}, surfaceOp="append")
    odd.add("user/message", {}, surfaceOp="append").start().end()
    shelf.plant("s", odd.events)
    found = await shelf.store.verify("s")
    assert found.status == "corrupt"
    assert [(f.kind, f.seq) for f in found.findings if f.severity == "damage"] == [
        ("invalid-event", 1),
        ("invalid-event", 2),
    ]
    assert all(f.offset is not None for f in found.findings if f.severity == "damage")


async def test_an_unknown_required_type(shelf: Shelf) -> None:
    """A type that is not known here makes a log unsupported, not corrupt."""
    shelf.plant("s", LogScript().start().add("acme/needed", {}).end().events)
    found = await shelf.store.verify("s")
    assert (found.status, found.is_good) == ("unsupported", False)
    assert [(f.kind, f.seq) for f in found.findings] == [("unsupported", 1)]


async def test_another_format_version(shelf: Shelf) -> None:
    """A newer log is unsupported, whatever its rows are."""
    shelf.plant("s", LogScript().turn().events, version=7)
    found = await shelf.store.verify("s")
    assert (found.status, kinds(found)) == ("unsupported", ["unsupported"])


async def test_broken_order_loads_and_is_reported(shelf: Shelf) -> None:
    """L4: rules that other writers break are findings; the log stays good."""
    shelf.plant("s", LogScript().start().end().end().start().start().events)
    found = await shelf.store.verify("s")
    assert found.is_good
    assert kinds(found, "order") == ["turn-end-matches", "turn-not-nested"]


async def test_a_result_without_its_call(shelf: Shelf) -> None:
    """A result on the surface before any call is a pairing that no provider takes."""
    shelf.plant("s", LogScript().start().step().result("nobody").end_step().end().events)
    found = await shelf.store.verify("s")
    assert kinds(found, "order") == ["pairing", "result-answers-call"]


async def test_a_header_of_another_session(shelf: Shelf) -> None:
    """The header's identity is part of the verdict."""
    shelf.plant("s", LogScript().turn().events, header_id="t")
    found = await shelf.store.verify("s")
    assert found.status == "corrupt"
    assert kinds(found, "damage") == ["wrong-id" if shelf.kind == "memory" else "identity"]


async def test_a_session_that_is_live_here(shelf: Shelf) -> None:
    """A live session is checked as it is stored, without disturbing it."""
    async with shelf.store.create(id="s", cwd="/srv/app") as session:
        session.append("turn/start", {"turn": 1})
        await session.flush()
        found = await shelf.store.verify("s")
        assert (found.status, found.event_count) == ("live", 1)
        session.append("turn/end", {"turn": 1, "reason": {"kind": "completed"}})


async def test_a_session_that_another_process_writes(shelf: Shelf) -> None:
    """A claim that somebody else holds makes the verdict `live`; no claim is taken."""
    async with shelf.second() as other, other.create(id="s", cwd="/srv/app") as session:
        session.append("turn/start", {"turn": 1})
        await session.flush()
        assert (await shelf.store.verify("s")).status == "live"


async def test_images_are_looked_at(shelf: Shelf) -> None:
    """An image that is gone is a note, one whose bytes changed is damage."""
    block = await shelf.store.attachments.put(IMAGE)
    async with shelf.store.create(id="s", cwd="/srv/app") as session, session.turn() as turn:
        turn.user([block])
    assert (await shelf.store.verify("s")).findings == ()
    shelf.spoil_image(block["attachment"]["attachmentId"])
    assert kinds(await shelf.store.verify("s")) == ["attachment-damaged"]
    await shelf.store.attachments.remove(block["attachment"]["attachmentId"])
    found = await shelf.store.verify("s")
    assert (kinds(found), found.is_good) == (["attachment-missing"], True)


async def test_text_that_looks_like_an_image_is_text(shelf: Shelf) -> None:
    """A digest, or a quoted image block, in a text refers to no image."""
    quoted = f'"attachmentId":"sha256:{"0" * 64}"'
    await shelf.keep("s", LogScript().turn(f"see sha256:{'0' * 64} and {quoted}").events)
    assert (await shelf.store.verify("s")).findings == ()


async def test_nothing_is_written(shelf: Shelf) -> None:
    """R3: good, torn and damaged logs are the same afterwards."""
    await shelf.keep("good", LogScript().turn().events)
    await shelf.keep("torn", LogScript().turn().events)
    shelf.cut("torn", 3)
    for seq in range(3):
        await shelf.append("bad", events(seq, 1))
    shelf.spoil("bad", 1)
    before = shelf.content()
    assert len([found async for found in shelf.store.verify_all()]) == 3
    assert shelf.content() == before


async def test_a_whole_store(shelf: Shelf) -> None:
    """Every entry gets a verdict, in the order of the listing, with progress, a few at a time."""
    names = [f"s-{number}" for number in range(7)]
    for name in names:
        await shelf.keep(name, LogScript().turn().events)
    shelf.spoil("s-3", 0)
    steps: list[tuple[int, int]] = []
    found = [v async for v in shelf.store.verify_all(parallel=3, progress=lambda *at: steps.append(at))]
    assert [v.session_id for v in found] == names
    assert [v.is_good for v in found] == [number != 3 for number in range(7)]
    assert steps == [(done, 7) for done in range(1, 8)]


async def test_a_walk_that_is_left_early(shelf: Shelf) -> None:
    """Leaving the loop leaves no task behind, and what was not begun is not begun."""
    for number in range(5):
        await shelf.keep(f"s-{number}", LogScript().turn().events)
    walk: Any = shelf.store.verify_all(parallel=2)
    await anext(walk)
    before = len(asyncio.all_tasks())
    await walk.aclose()
    assert len(asyncio.all_tasks()) <= before


async def test_a_session_deleted_meanwhile(shelf: Shelf) -> None:
    """What is gone when its turn comes is left out."""
    ids = [f"s-{number:02}" for number in range(AHEAD + 2)]
    for session_id in ids:
        await shelf.keep(session_id, LogScript().turn().events)
    walk: Any = shelf.store.verify_all(parallel=1)
    first = await anext(walk)
    async with shelf.second() as other:
        await other.delete(ids[-1])  # further ahead than anything that has been begun
    assert [first.session_id, *[v.session_id async for v in walk]] == ids[:-1]


async def test_an_unreadable_medium(shelf: Shelf) -> None:
    """One log that cannot be read does not end the walk; asked for alone it is the medium's error."""
    await shelf.keep("a", LogScript().turn().events)
    await shelf.keep("b", LogScript().turn().events)
    shelf.faults.fail("load_stored", error=BackendError(backend="test", reason="no"))
    first, second = [v async for v in shelf.store.verify_all(parallel=1)]
    assert (first.status, kinds(first), second.status) == ("unknown", ["unreadable"], "ok")


async def test_unknown_and_closed(shelf: Shelf) -> None:
    """An id that nothing is stored under, and a store that is closed."""
    with pytest.raises(SessionNotFoundError):
        await shelf.store.verify("nobody")
    await shelf.store.aclose()
    with pytest.raises(UsageError):
        await shelf.store.verify("nobody")
    with pytest.raises(UsageError):
        await anext(shelf.store.verify_all())


async def test_a_backend_without_scan(shelf: Shelf) -> None:
    """Damage is then what a load says of it."""
    for seq in range(3):
        await shelf.append("s", events(seq, 1))
    offset = shelf.spoil("s", 1)
    without: Any = shelf.store._coordinator.books.hooks
    without.has_scan = False
    found = await shelf.store.verify("s")
    assert [(f.severity, f.offset) for f in found.findings] == [("damage", offset)]
    assert (found.event_count, found.missing) == (0, ())


async def test_entries_that_are_no_sessions(tmp_path: Path) -> None:
    """Something strange in a root gets a verdict, too."""
    async with shelf_of("jsonl", tmp_path) as shelf:
        await shelf.keep("s", LogScript().turn().events)
        (shelf.root / "link").symlink_to(shelf.root)
        odd, good = [v async for v in shelf.store.verify_all()]
        assert (odd.session_id, odd.is_good, kinds(odd)) == (None, False, ["entry"])
        assert good.is_good


async def test_a_session_stored_twice(tmp_path: Path) -> None:
    """Two logs of one id are damage, and neither is taken for the session."""
    async with shelf_of("jsonl", tmp_path) as shelf:
        await shelf.keep("s", LogScript().turn().events)
        folder = next(shelf.root.glob("*/s"))
        (folder / "session.jsonl").write_bytes(b"{}\n")
        found = await shelf.store.verify("s")
        assert (found.status, kinds(found), found.event_count) == ("corrupt", ["duplicate"], 0)


async def test_refused_events_before_a_torn_end(tmp_path: Path) -> None:
    """Both are named: what no session accepts, and the tail that was cut short."""
    async with shelf_of("jsonl-plain", tmp_path) as shelf:
        shelf.plant("s", LogScript().user().add("user/message", {}, surfaceOp="append").events)
        with shelf.path("s").open("ab") as file:
            file.write(b'{"type":"se')
        found = await shelf.store.verify("s")
        assert found.status == "corrupt"
        assert [f.kind for f in found.findings if f.severity != "order"] == ["torn", "invalid-event"]


async def test_a_log_in_another_sessions_folder(tmp_path: Path) -> None:
    """A copied folder is found by a walk, and the session that its header names stays good."""
    async with shelf_of("jsonl", tmp_path) as shelf:
        await shelf.keep("s", LogScript().turn().events)
        home = shelf.path("s")
        for folder in ("a-copy", "i~zz"):
            (home.parent.parent / folder).mkdir()
            (home.parent.parent / folder / home.name).write_bytes(home.read_bytes())
        copy, odd, good = [v async for v in shelf.store.verify_all()]
        assert (copy.session_id, copy.status, kinds(copy)) == ("a-copy", "corrupt", ["identity"])
        assert (odd.session_id, odd.status, kinds(odd)) == (None, "corrupt", ["entry"])
        assert (good.session_id, good.status) == ("s", "ok")


async def test_a_damaged_image_is_damage(shelf: Shelf) -> None:
    """Everything stored can be read, or the verdict is not good; the log itself still loads."""
    block = await shelf.store.attachments.put(IMAGE)
    content = {"content": [block], "source": {"kind": "user"}, "role": "user", "id": "m"}
    await shelf.keep("s", LogScript().start().step().add("user/message", content, surfaceOp="append").events)
    name = block["attachment"]["attachmentId"]
    shelf.spoil_image(name)
    found = await shelf.store.verify("s")
    assert (found.status, kinds(found, "damage"), found.is_good) == (
        "interrupted",
        ["attachment-damaged"],
        False,
    )
    assert [f.reason.count(name) for f in found.findings if f.kind == "attachment-damaged"] == [1]


@pytest.mark.parametrize("parallel", [0, -1, 1.5, "2", None, True])
async def test_how_many_at_a_time(shelf: Shelf, parallel: Any) -> None:
    """A number that would check nothing is refused, not obeyed."""
    with pytest.raises(UsageError, match="parallel"):
        await anext(shelf.store.verify_all(parallel=parallel))


@pytest.mark.parametrize("session_id", [None, 5, b"s", ["s"]])
async def test_an_id_that_is_no_string(shelf: Shelf, session_id: Any) -> None:
    """Whoever passes it is at fault, not the backend."""
    for tool in (shelf.store.verify, shelf.store.salvage, shelf.store.delete, shelf.store.forks_of):
        with pytest.raises(UsageError, match="string"):
            await tool(session_id)
