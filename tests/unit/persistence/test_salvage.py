"""Salvage: everything readable of a damaged log in a new one that loads, and a report of the rest."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.persistence.damaged import IMAGE, Shelf, events, shelf_of
from turnlog.errors import (
    CorruptLogError,
    SessionExistsError,
    SessionNotFoundError,
    UnsupportedFormatError,
    UsageError,
)
from turnlog.events.envelope import SessionEvent
from turnlog.persistence.reading import prepare_stored
from turnlog.persistence.salvage import LOST, SET_ASIDE
from turnlog.persistence.store import SessionStore
from turnlog.testing.scripts import LogScript


@pytest.fixture(params=["memory", "jsonl", "jsonl-plain"])
async def shelf(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Shelf]:
    """One store of each kind, whose stored bytes can be changed."""
    async with shelf_of(request.param, tmp_path / "source") as found:
        yield found


@pytest.fixture
async def other(tmp_path: Path) -> AsyncIterator[SessionStore]:
    """An empty store of another kind."""
    async with shelf_of("memory", tmp_path / "target") as found:
        yield found.store


async def read(store: SessionStore, session_id: str) -> list[SessionEvent]:
    """Return the stored events."""
    return list((await store.read_from(session_id, 0)).events)


async def test_the_gap_is_marked_and_nothing_is_renumbered(shelf: Shelf, other: SessionStore) -> None:
    """Every saved event keeps its seq and its bytes; a mark stands for the one that is gone."""
    for seq in range(5):
        await shelf.append("s", events(seq, 1))
    offset = shelf.spoil("s", 2)
    before = shelf.content()
    saved = await shelf.store.salvage("s", to=other)
    assert shelf.content() == before
    assert (saved.session_id, saved.new_id, saved.events, saved.lost) == ("s", "s", 4, 1)
    assert [finding.offset for finding in saved.findings] == [offset]
    assert not saved.header_lost
    got = await read(other, "s")
    assert [event.line for event in got if event.seq != 2] == [
        event.line for event in events(0, 5) if event.seq != 2
    ]
    assert (got[2].type, got[2].data, got[2].ignorable) == (LOST, {"first": 2, "last": 2}, True)
    assert got[2].time == got[1].time
    assert (await other.verify("s")).status == "ok"
    as_json = saved.as_json()
    assert (as_json["missing"], as_json["set_aside"]) == ([{"from": 2, "to": 2}], [])


async def test_the_first_events_are_gone(shelf: Shelf, other: SessionStore) -> None:
    """Marks before the first event that is left take its time."""
    for seq in range(3):
        await shelf.append("s", events(seq, 1))
    shelf.spoil("s", 0)
    await shelf.store.salvage("s", to=other)
    got = await read(other, "s")
    assert [event.type for event in got] == [LOST, "feedback/record", "feedback/record"]
    assert got[0].time == got[1].time


async def test_a_good_log_is_saved_as_it_is(shelf: Shelf, other: SessionStore) -> None:
    """Salvaging what is not damaged is a copy, its packed runs untouched."""
    await shelf.keep("s", LogScript().turn(calls=["c"]).events)
    saved = await shelf.store.salvage("s", to=other)
    assert (saved.lost, saved.findings, saved.set_aside) == (0, (), ())
    assert (await other.verify("s")).digest == (await shelf.store.verify("s")).digest


async def test_what_a_torn_tail_gives_back_is_saved(shelf: Shelf, other: SessionStore) -> None:
    """A torn end is in the report; the log before it is whole."""
    await shelf.append("s", events(0, 3))
    await shelf.append("s", events(3, 2))
    shelf.cut("s", 3)
    saved = await shelf.store.salvage("s", to=other)
    assert [finding.kind for finding in saved.findings] == ["torn"]
    # Of a frame the whole blocks are there, without their checksum; of plain text the whole lines.
    assert saved.events == (4 if shelf.kind == "jsonl-plain" else 5)


async def test_within_one_store_the_id_is_new(shelf: Shelf) -> None:
    """Where the original keeps its id, the new session gets another one; a given id must be free."""
    await shelf.append("s", events(0, 2))
    saved = await shelf.store.salvage("s")
    assert saved.new_id != "s"
    assert len(await read(shelf.store, saved.new_id)) == 2
    assert (await shelf.store.salvage("s", new_id="t")).new_id == "t"
    for taken in ("s", "t"):
        with pytest.raises(SessionExistsError):
            await shelf.store.salvage("s", new_id=taken)


async def test_a_taken_id_in_the_target(shelf: Shelf, other: SessionStore) -> None:
    """Salvaging twice into one store makes two sessions."""
    await shelf.append("s", events(0, 2))
    assert (await shelf.store.salvage("s", to=other)).new_id == "s"
    assert (await shelf.store.salvage("s", to=other)).new_id != "s"


async def test_the_prefix_alone(shelf: Shelf, other: SessionStore) -> None:
    """On request only what stands before the first gap is kept, up to the end of a turn."""
    whole = LogScript().turn().turn().turn().events
    end = next(event.seq for event in whole if event.type == "turn/end") + 1
    for event in whole:
        await shelf.append("s", [event])
    shelf.spoil("s", len(whole) - 2)
    saved = await shelf.store.salvage("s", to=other, keep="prefix")
    got = await read(other, "s")
    assert got == whole[: 2 * end]
    assert (saved.events, saved.lost) == (2 * end, 0)
    assert saved.missing
    with pytest.raises(UsageError):
        await shelf.store.salvage("s", to=other, keep="some")  # type: ignore[arg-type]  # a wrong value


async def test_the_prefix_of_a_log_without_a_gap(shelf: Shelf, other: SessionStore) -> None:
    """Without a gap the prefix is everything, an open turn included."""
    whole = LogScript().turn().start().events
    await shelf.keep("s", whole)
    assert (await shelf.store.salvage("s", to=other, keep="prefix")).events == len(whole)


async def test_an_event_that_refers_to_a_lost_one_is_set_aside(shelf: Shelf, other: SessionStore) -> None:
    """A replacement of a lost message is kept whole, and the session loads without it."""
    script = LogScript().user("one").user("two")
    script.add(
        "user/message",
        {
            "content": [{"type": "text", "text": "in place of one"}],
            "source": {"kind": "user"},
            "role": "user",
            "id": "r",
        },
        surfaceOp={"op": "replace", "start": 0, "end": 0},
        sourceEventSeqs=[0],
    )
    for event in script.events:
        await shelf.append("s", [event])
    shelf.spoil("s", 0)
    saved = await shelf.store.salvage("s", to=other)
    assert (saved.events, saved.lost, saved.set_aside) == (2, 1, (2,))
    got = await read(other, "s")
    assert got[2].type == SET_ASIDE
    assert isinstance(got[2].data, dict)
    assert got[2].data["event"] == script.events[2].to_dict()
    assert "not found" in str(got[2].data["reason"])
    assert [node.seq for node in await _surface(other)] == [1]


async def _surface(store: SessionStore) -> list[SessionEvent]:
    async with await store.prepare("s") as preparation:
        return [preparation.session.log[seq] for seq in preparation.session.surface.nodes]


async def test_events_of_unknown_types(shelf: Shelf, other: SessionStore) -> None:
    """L2: a required type that is not known here would make the new log unloadable, so it is set aside."""
    shelf.plant("s", LogScript().start().add("acme/needed", {"x": 1}).end().events)
    saved = await shelf.store.salvage("s", to=other)
    assert saved.set_aside == (1,)
    assert (await other.verify("s")).status == "ok"


async def test_a_rewritten_result_is_compared_with_the_one_it_replaces(
    shelf: Shelf, other: SessionStore
) -> None:
    """A replacement that is still right is kept as it is, though something else of the log is lost."""
    script = LogScript().start().step().assistant(calls=["c"]).call("c").result("c", "long output")
    result = script.events[-1].to_dict()["data"]
    result["message"]["content"][0]["content"] = [{"type": "text", "text": "short"}]
    script.add("tool/result", result, surfaceOp={"op": "replace", "start": 4, "end": 4}, sourceEventSeqs=[4])
    for event in script.end_step().end().events:
        await shelf.append("s", [event])
    shelf.spoil("s", 1)
    saved = await shelf.store.salvage("s", to=other)
    assert (saved.lost, saved.set_aside) == (1, ())


async def test_messages_of_older_logs(shelf: Shelf, other: SessionStore) -> None:
    """Older shapes that are read today are saved as they are."""
    script = LogScript().add("turn/start", {"turn": 1, "trigger": {"kind": "user"}})
    script.add("steering/message", {"turn": 1, "step": 1, "content": [{"type": "text", "text": "x"}]})
    script.add("turn/end", {"turn": 1, "reason": {"kind": "disposed"}})
    shelf.plant("s", script.events)
    verdict = await shelf.store.verify("s")
    saved = await shelf.store.salvage("s", to=other)
    assert saved.events == 3
    assert len(saved.set_aside) == (0 if verdict.is_good else len(verdict.findings))


async def test_another_format_version_is_not_salvaged(shelf: Shelf, other: SessionStore) -> None:
    """Nobody here knows what its rows mean."""
    shelf.plant("s", LogScript().turn().events, version=7)
    with pytest.raises(UnsupportedFormatError):
        await shelf.store.salvage("s", to=other)


async def test_a_lost_header(tmp_path: Path, other: SessionStore) -> None:
    """Without a header the new one has the id and the time of the first event."""
    async with shelf_of("jsonl-plain", tmp_path / "s") as shelf:
        await shelf.append("s", events(0, 2))
        path = shelf.path("s")
        path.write_bytes(b"#" + path.read_bytes()[1:])
        saved = await shelf.store.salvage("s", to=other)
        assert (saved.header_lost, saved.events) == (True, 2)
        header = (await other.read_from("s", 0)).meta
        assert (header.id, header.cwd, header.created_at) == ("s", None, events(0, 1)[0].time)


async def test_nothing_is_left(tmp_path: Path, other: SessionStore) -> None:
    """A file in which nothing can be read gives an empty session and a report."""
    async with shelf_of("jsonl", tmp_path / "s") as shelf:
        await shelf.append("s", events(0, 2))
        shelf.path("s").write_bytes(b"\0" * 500)
        saved = await shelf.store.salvage("s", to=other)
        assert (saved.events, saved.header_lost) == (0, True)
        assert saved.findings
        assert (await other.verify("s")).event_count == 0


async def test_images_go_along(shelf: Shelf, other: SessionStore) -> None:
    """What a saved event refers to is copied; what cannot be is named."""
    store = shelf.store
    block = await store.attachments.put(IMAGE)
    gone = {**block["attachment"], "attachmentId": f"sha256:{'0' * 64}"}
    async with store.create(id="s", cwd="/srv/app") as session, session.turn() as turn:
        turn.user([block, {"type": "image", "attachment": gone}])
    saved = await store.salvage("s", to=other)
    assert saved.missing_attachments == (f"sha256:{'0' * 64}",)
    assert await other.attachments.get(block["attachment"]["attachmentId"]) == IMAGE


async def test_what_only_the_whole_of_a_session_refuses(
    shelf: Shelf, other: SessionStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever a session refuses beyond single events is set aside as well, and never silently dropped."""
    await shelf.append("s", events(0, 4))
    name = "turnlog.persistence.salvage.prepare_stored"

    def strict(registry: Any, session_id: str, stored: Any, path: str | None) -> Any:
        for event in stored.events:
            if event.seq == 1 and event.type != SET_ASIDE:
                raise CorruptLogError(session_id=session_id, reason="no", seq=1)
        return prepare_stored(registry, session_id, stored, path)

    monkeypatch.setattr(name, strict)
    saved = await shelf.store.salvage("s", to=other)
    assert saved.set_aside == (1,)

    def hopeless(registry: Any, session_id: str, stored: Any, path: str | None) -> Any:
        raise CorruptLogError(session_id=session_id, reason="no")

    monkeypatch.setattr(name, hopeless)
    with pytest.raises(CorruptLogError):
        await shelf.store.salvage("s", to=other)


async def test_large_logs_are_written_in_parts(shelf: Shelf, other: SessionStore) -> None:
    """More than a megabyte is several batches."""
    script = LogScript()
    for _ in range(3):
        script.add("feedback/record", {"text": "x" * 700_000})
    await shelf.keep("s", script.events)
    assert (await shelf.store.salvage("s", to=other)).events == 3


async def test_unknown_and_closed(shelf: Shelf, other: SessionStore) -> None:
    """An id that nothing is stored under, and stores that are closed."""
    with pytest.raises(SessionNotFoundError):
        await shelf.store.salvage("nobody", to=other)
    await other.aclose()
    with pytest.raises(UsageError):
        await shelf.store.salvage("nobody", to=other)


async def test_a_session_stored_twice(tmp_path: Path, other: SessionStore) -> None:
    """There is not one log to save: nothing is written, and the error names both."""
    async with shelf_of("jsonl", tmp_path / "s") as shelf:
        await shelf.append("s", events(0, 2))
        (shelf.path("s").parent / "session.jsonl").write_bytes(b"{}\n")
        with pytest.raises(CorruptLogError, match="stored twice") as found:
            await shelf.store.salvage("s", to=other)
        assert found.value.kind == "duplicate"
        assert [info async for info in other.list()] == []
