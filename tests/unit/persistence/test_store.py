"""The store: create, resume and fork sessions, read and list them, write without one, and close."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.persistence.live_stores import CONFIG, KINDS, Place, is_well_ordered, types
from turnlog.errors import (
    BackendError,
    ForkError,
    InvalidEventError,
    InvalidSessionIdError,
    SessionBusyError,
    SessionCollisionError,
    SessionExistsError,
    SessionNotFoundError,
    UnexpectedSeqError,
    UsageError,
    WriterFencedError,
)
from turnlog.events.batch import StoredFrame
from turnlog.persistence.awaitable_context import AwaitableContext
from turnlog.persistence.live_session import LiveSession
from turnlog.persistence.store import SessionStore


@pytest.fixture(params=KINDS)
async def place(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Place]:
    """One medium of each kind."""
    found = Place(request.param, tmp_path)
    yield found
    await found.aclose()


async def record(store: SessionStore, turns: int = 1, **options: Any) -> str:
    """Store a session of some plain turns and return its id."""
    async with store.create(**options) as session:
        for number in range(turns):
            async with session.turn() as turn:
                turn.user(f"question {number + 1}")
    return session.id


# -- create ---------------------------------------------------------------------------------------


async def test_create_writes_the_header(place: Place) -> None:
    """Metadata goes into the header and is stored with the first batch."""
    store, _ = place.open()
    async with store.create(
        cwd=Path("/srv/app"),
        agent_preset="minimal",
        origin="subagent",
        parent_session="p-1",
        delegation_depth=2,
    ) as session:
        session.append("feedback/record", {"text": "x"})
    stored = (await store.read_from(session.id, 0)).meta
    assert stored == session.header
    assert (stored.cwd, stored.agent_preset, stored.origin) == ("/srv/app", "minimal", "subagent")
    assert (stored.parent_session, stored.delegation_depth) == ("p-1", 2)


async def test_minted_ids_cost_no_look_into_the_store(place: Place) -> None:
    """Ids sort by creation; making one reads nothing but what the first write needs."""
    store, faults = place.open()
    ids = []
    for _ in range(3):
        async with store.create() as session:
            ids.append(session.id)
    assert ids == sorted(ids)
    assert faults.counts["load_stored"] == 0


async def test_a_given_id_is_taken_once(place: Place) -> None:
    """An id that is live or stored is refused, also in another working directory and after a fork."""
    store, _ = place.open()
    session = await store.create(id="one")
    with pytest.raises(SessionExistsError) as caught:
        await store.create(id="one")
    assert caught.value.where == "live"
    session.append("feedback/record", {"text": "x"})
    await session.aclose()
    for cwd in (None, "/elsewhere"):
        with pytest.raises(SessionExistsError):
            await store.create(id="one", cwd=cwd)
    other, _ = place.open()
    with pytest.raises(SessionExistsError) as caught:
        await other.create(id="one")
    assert caught.value.where == "storage"
    with pytest.raises(SessionExistsError):
        await store.fork("one", child_id="one")
    assert types(await place.stored("one")) == ["feedback/record"]


async def test_a_given_id_that_was_not_used_is_free_again(place: Place) -> None:
    """A session that was closed without an event leaves its id free."""
    store, _ = place.open()
    for _ in range(2):
        async with store.create(id="one") as session:
            assert session.id == "one"
        assert [info async for info in store.list()] == []


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"id": ""}, InvalidSessionIdError),
        ({"id": "x" * 4096}, InvalidSessionIdError),
        ({"cwd": "relative"}, InvalidEventError),
        ({"origin": "elsewhere"}, InvalidEventError),
        ({"delegation_depth": -1}, InvalidEventError),
        ({"seed": [{"type": "nope"}]}, InvalidEventError),
    ],
)
async def test_create_refuses_bad_metadata(place: Place, options: dict[str, Any], error: Any) -> None:
    """Bad ids, headers and seeds are typed errors, and no session becomes live."""
    store, _ = place.open()
    with pytest.raises(error):
        await store.create(**options)
    assert [info async for info in store.list()] == []


async def test_ids_that_look_like_paths_stay_inside(place: Place, tmp_path: Path) -> None:
    """S1: an id is never a path."""
    store, _ = place.open()
    async with store.create(id="../../etc/passwd") as session:
        session.append("feedback/record", {"text": "x"})
    assert types(await place.stored("../../etc/passwd")) == ["feedback/record"]
    assert set(os.listdir(tmp_path)) <= {"root"}


async def test_create_with_a_seed(place: Place) -> None:
    """Seed events are followed by one end-of-seed mark and become durable like live ones."""
    store, _ = place.open()
    async with store.create() as source:
        source.append("feedback/record", {"text": "x"})
    async with store.create(seed=source.events, id="child") as child:
        assert child.first_live_seq == 1
        await child.flush()
        assert child.durable_seq == 2
    assert types(await place.stored("child")) == ["feedback/record", "session/end-seed"]


async def test_create_that_is_vetoed_leaves_nothing_live(place: Place) -> None:
    """If a listener refuses the session it is not live, and its id is free."""
    store, _ = place.open()

    def veto(session: LiveSession) -> None:
        raise RuntimeError("veto")

    undo = store._registry.on_created(veto)
    with pytest.raises(RuntimeError, match="veto"):
        await store.create(id="one")
    undo()
    async with store.create(id="one") as session:
        session.append("feedback/record", {"text": "x"})
    assert types(await place.stored("one")) == ["feedback/record"]


async def test_an_opening_opens_once(place: Place) -> None:
    """What `create` returns is awaited or entered once; leaving what was never entered does nothing."""
    store, _ = place.open()
    opening = store.create()
    await opening.__aexit__(None, None, None)
    session = await opening
    with pytest.raises(UsageError, match=r"store\.create\(\) was awaited"):
        await opening
    with pytest.raises(UsageError, match=r"call it again"):
        await opening.__aenter__()
    assert isinstance(session, LiveSession)


# -- resume ---------------------------------------------------------------------------------------


async def test_resume_continues_the_numbering(place: Place) -> None:
    """Turns go on where the log ends, and the first request says that it resumes."""
    store, _ = place.open()
    async with store.create() as session, session.turn() as turn, turn.step() as step:
        await step.request(config=CONFIG)
    async with store.resume(session.id) as again:
        assert again is not session
        async with again.turn() as turn:
            assert turn.number == 2
            for _ in range(2):
                async with turn.step() as step:
                    await step.request(config=CONFIG)
    headers = [event.data["reason"] for event in again.events if event.type == "request/header"]
    assert headers == ["initial", "resume"]
    assert types(again).count("session/end-seed") == 1
    assert types(again).count("request/context") == 1
    assert is_well_ordered(again)


async def test_resume_repairs_first(place: Place) -> None:
    """R1: an interrupted turn is closed durably; a second resume adds nothing but its mark."""
    store, _ = place.open()
    async with store.create() as session:
        session.append("turn/start", {"turn": 1})
        session.append("step/start", {"turn": 1, "step": 1})
    for _ in range(2):
        async with store.resume(session.id) as again:
            assert is_well_ordered(again)
    assert types(await place.stored(session.id)) == [
        "turn/start",
        "step/start",
        "step/end",
        "turn/end",
        "session/end-seed",
    ]


async def test_resume_of_nothing(place: Place) -> None:
    """An id that is not stored is not found."""
    store, _ = place.open()
    with pytest.raises(SessionNotFoundError):
        await store.resume("nobody")


async def test_one_live_writer(place: Place) -> None:
    """W1: a second writer, in this store or another, is busy until the first leaves or is taken over."""
    store, _ = place.open()
    other, _ = place.open()
    session_id = await record(store)
    first = await store.resume(session_id)
    for second in (store, other):
        with pytest.raises(SessionBusyError) as caught:
            await second.resume(session_id)
        assert caught.value.owner is not None
    async with other.resume(session_id, takeover=True) as taken:
        taken.append("feedback/record", {"text": "taken"})
        await taken.flush()
    first.append("feedback/record", {"text": "late"})
    with pytest.raises(WriterFencedError):
        await first.flush()
    with pytest.raises(WriterFencedError):
        await first.aclose()
    async with store.resume(session_id) as again:
        again.append("feedback/record", {"text": "again"})
    texts = [e.data["text"] for e in await place.stored(session_id) if e.type == "feedback/record"]
    assert texts == ["taken", "again"]


async def test_resume_checks_the_working_directory(place: Place) -> None:
    """A caller that states the directory is told when the session lives elsewhere, and it is free again."""
    store, _ = place.open()
    session_id = await record(store, cwd="/a")
    with pytest.raises(SessionCollisionError, match="/a"):
        await store.resume(session_id, cwd="/b")
    async with store.resume(session_id, cwd=Path("/a")) as session:
        assert session.header.cwd == "/a"


# -- fork -----------------------------------------------------------------------------------------


async def test_fork_of_a_live_session(place: Place) -> None:
    """The child begins with the prefix, in the same place, under the same preset; the parent goes on."""
    store, _ = place.open()
    async with store.create(cwd="/srv", agent_preset="minimal") as parent:
        for _ in range(2):
            async with parent.turn() as turn:
                turn.user("hi")
        async with store.fork(parent.id, at=2, child_id="child") as child:
            header = child.header
            assert (header.id, header.cwd, header.agent_preset) == ("child", "/srv", "minimal")
            assert (header.parent_session, header.seed_length) == (parent.id, 3)
            assert types(child) == ["turn/start", "user/message", "turn/end", "session/end-seed"]
            async with child.turn() as turn:
                assert turn.number == 2
        async with parent.turn() as turn:
            assert turn.number == 3
    assert types(await place.stored("child"))[-1] == "turn/end"


async def test_fork_of_a_stored_session(place: Place) -> None:
    """A stored source is only read: no claim, no write, also while another store writes it."""
    store, faults = place.open()
    session_id = await record(store, turns=2, cwd="/srv", agent_preset="minimal")
    other, _ = place.open()
    async with other.resume(session_id):
        before = dict(faults.counts)
        child = await store.fork(session_id, at=2)
        assert (child.header.parent_session, child.header.seed_length) == (session_id, 3)
        assert (child.header.cwd, child.header.agent_preset) == ("/srv", "minimal")
        assert types(child) == ["turn/start", "user/message", "turn/end", "session/end-seed"]
        assert faults.counts["claim"] == before["claim"]
        assert faults.counts["append_batch"] == before["append_batch"]
    await child.aclose()


async def test_fork_of_an_interrupted_session(place: Place) -> None:
    """Without a boundary the source is repaired first; a boundary inside its closers repairs it, too."""
    store, _ = place.open()
    async with store.create() as session:
        async with session.turn():
            pass
        session.append("turn/start", {"turn": 2})
    async with store.fork(session.id, at=1) as child:
        assert types(child) == ["turn/start", "turn/end", "session/end-seed"]
    assert len(await place.stored(session.id)) == 3
    async with store.fork(session.id, at=3) as child:
        assert child.events[3].data["reason"] == {"kind": "interrupted"}
    async with store.fork(session.id) as child:
        assert types(child)[-2:] == ["turn/end", "session/end-seed"]
    assert len(await place.stored(session.id)) == 4


async def test_forks_at_bad_places(place: Place) -> None:
    """No event, inside a turn, no source: each is its own error and nothing becomes live."""
    store, _ = place.open()
    session_id = await record(store)
    for at, kind in ((1, "open-turn"), (99, "invalid-boundary"), (-1, "invalid-boundary")):
        with pytest.raises(ForkError) as caught:
            await store.fork(session_id, at=at)
        assert caught.value.kind == kind
    with pytest.raises(SessionNotFoundError):
        await store.fork("nobody")
    with pytest.raises(SessionNotFoundError):
        await store.fork("nobody", at=0)
    assert len([info async for info in store.list()]) == 1


async def test_fork_of_an_open_turn(place: Place) -> None:
    """A live session inside a turn can be forked before it, not within."""
    store, _ = place.open()
    async with store.create() as session:
        async with session.turn():
            pass
        async with session.turn():
            with pytest.raises(ForkError):
                await store.fork(session.id)
            async with store.fork(session.id, at=1) as child:
                assert child.next_turn == 2


# -- reading --------------------------------------------------------------------------------------


async def test_reading(place: Place) -> None:
    """inspect, load, read_from, tail and iter_events give the same events."""
    store, _ = place.open()
    session_id = await record(store, turns=3)
    events = list((await store.inspect(session_id)).events)
    assert len(events) == 9
    assert list((await store.load(session_id)).events) == events
    assert list((await store.read_from(session_id, 4)).events) == events[4:]
    assert list((await store.read_from(session_id, 4, limit=2)).events) == events[4:6]
    assert list((await store.tail(session_id, 2)).events) == events[-2:]
    assert [event async for event in store.iter_events(session_id)] == events
    assert [event async for event in store.iter_events(session_id, 7)] == events[7:]


async def test_inspect_never_writes_and_load_repairs(place: Place) -> None:
    """R3: closers exist only in the view of `inspect`; `load` makes them durable."""
    store, _ = place.open()
    async with store.create() as session:
        session.append("turn/start", {"turn": 1})
    view = await store.inspect(session.id)
    assert [event.type for event in view.closers] == ["turn/end"]
    assert len(await place.stored(session.id)) == 1
    assert len((await store.load(session.id)).events) == 2
    assert len(await place.stored(session.id)) == 2


async def test_follow_sees_what_becomes_durable(place: Place) -> None:
    """`follow` in one store yields what another makes durable."""
    store, _ = place.open()
    reader, _ = place.open()
    session = await store.create()
    session.append("feedback/record", {"text": "0"})
    await session.flush()
    seen: list[str] = []

    async def follow() -> None:
        async for event in reader.follow(session.id):
            seen.append(event.data["text"])
            if len(seen) == 3:
                return

    following = asyncio.create_task(follow())
    for text in ("1", "2"):
        session.append("feedback/record", {"text": text})
        await session.flush()
    await asyncio.wait_for(following, 30)
    assert seen == ["0", "1", "2"]


async def test_scan_tells_frames(place: Place) -> None:
    """`scan` yields the stored frames of a sound log and no damage."""
    store, _ = place.open()
    session_id = await record(store, turns=2)
    found = [frame async for frame in store.scan(session_id)]
    spans = [(frame.first_seq, frame.last_seq) for frame in found if isinstance(frame, StoredFrame)]
    assert len(spans) == len(found)
    assert spans == [(0, 2), (3, 5)]


async def test_list_says_what_is_known(place: Place) -> None:
    """A live session is live, a closed one ok, with header, size, summary and place."""
    store, _ = place.open()
    closed = await record(store, turns=2, cwd="/srv")
    session = await store.create()
    async with session.turn():
        pass
    infos = {info.session_id: info async for info in store.list()}
    assert set(infos) == {closed, session.id}
    assert (infos[closed].status, infos[session.id].status) == ("ok", "live")
    info = infos[closed]
    assert info.header is not None
    assert info.header.cwd == "/srv"
    assert info.size > 0
    assert info.revision is not None
    assert info.problem is None
    assert info.summary is not None
    assert (info.summary.turns, info.summary.open_turn) == (2, None)
    if place.kind == "jsonl":
        assert info.path is not None
        assert info.path == store.locate(info.header)


async def test_list_filters_and_pages(place: Place) -> None:
    """By directory, by status, and page by page without a gap or a repeat."""
    store, _ = place.open()
    for number in range(6):
        await record(store, id=f"s-{number}", cwd="/even" if number % 2 == 0 else "/odd")
    async with store.create(id="open", cwd="/odd") as session:
        session.append("turn/start", {"turn": 1})

    async def ids(**options: Any) -> list[str | None]:
        return [info.session_id async for info in store.list(**options)]

    everything = await ids()
    assert len(everything) == 7
    assert await ids(cwd="/even") == ["s-0", "s-2", "s-4"]
    assert await ids(cwd=Path("/even"), limit=2) == ["s-0", "s-2"]
    assert await ids(status="interrupted") == ["open"]
    assert await ids(status="ok", cwd="/nowhere") == []
    assert await ids(limit=0) == []
    assert await ids(limit=0, cwd="/even") == []
    pages: list[str | None] = []
    while page := await ids(after=pages[-1] if pages else None, limit=2):
        pages += page
    assert pages == everything


async def test_list_refuses_nonsense(place: Place) -> None:
    """A status that is none and a negative limit are usage errors."""
    store, _ = place.open()
    nonsense: list[dict[str, Any]] = [{"status": "fine"}, {"limit": -1}]
    for options in nonsense:
        with pytest.raises(UsageError):
            [info async for info in store.list(**options)]


# -- writing without a session --------------------------------------------------------------------


async def test_append_without_a_session(place: Place) -> None:
    """A batch goes to a stored session, durable and in order; a wrong seq stores nothing."""
    store, _ = place.open()
    session_id = await record(store)
    event = {"type": "feedback/record", "seq": 3, "time": 1, "data": {"text": "x"}}
    await store.append(session_id, [event])
    with pytest.raises(UnexpectedSeqError):
        await store.append(session_id, [{**event, "seq": 9}])
    with pytest.raises(InvalidEventError):
        await store.append(session_id, [{**event, "seq": 4, "data": {1}}])
    assert types(await place.stored(session_id))[3:] == ["feedback/record"]


async def test_append_to_a_live_session_is_refused(place: Place) -> None:
    """W1: the live session is the writer."""
    store, _ = place.open()
    session_id = await record(store)
    async with store.resume(session_id):
        event = {"type": "feedback/record", "seq": 4, "time": 1, "data": {"text": "x"}}
        with pytest.raises(SessionBusyError):
            await store.append(session_id, [event])


async def test_ensure_materialized(place: Place) -> None:
    """B1: a session without events is stored when it is asked for."""
    store, _ = place.open()
    async with store.create() as session:
        await store.ensure_materialized(session.id)
        assert [info.session_id async for info in store.list()] == [session.id]
    assert await place.stored(session.id) == []


async def test_delete(place: Place) -> None:
    """A stored session is erased; a live one is busy; an absent one is not found."""
    store, _ = place.open()
    session_id = await record(store)
    async with store.resume(session_id):
        with pytest.raises(SessionBusyError):
            await store.delete(session_id)
    await store.delete(session_id)
    with pytest.raises(SessionNotFoundError):
        await store.delete(session_id)
    assert [info async for info in store.list()] == []


async def test_a_preparation_is_a_reservation(place: Place) -> None:
    """A prepared session is nobody else's until it is given back."""
    store, _ = place.open()
    session_id = await record(store)
    async with await store.prepare(session_id) as preparation:
        assert preparation.session.id == session_id
        other, _ = place.open()
        with pytest.raises(SessionBusyError):
            await other.resume(session_id)
    async with store.resume(session_id) as session:
        assert session.id == session_id


# -- the end --------------------------------------------------------------------------------------


async def test_closing_writes_everything_and_releases_everything(place: Place) -> None:
    """Every live session is flushed and closed, and every claim is free."""
    store, faults = place.open()
    sessions = [await store.create() for _ in range(5)]
    for session in sessions:
        session.append("feedback/record", {"text": "x"})
    await asyncio.gather(store.aclose(), store.aclose())
    await store.aclose()
    assert faults.counts["aclose"] == 1
    assert faults.counts["release"] == 5
    for session in sessions:
        assert session.is_closed
        assert types(await place.stored(session.id)) == ["feedback/record"]


async def test_a_closed_store_refuses_everything(place: Place) -> None:
    """After the close every call says how to get another store."""
    store, _ = place.open()
    session_id = await record(store)
    opening = store.create()
    await store.aclose()
    for call in (
        opening,
        store.create(),
        store.resume(session_id),
        store.fork(session_id),
        store.inspect(session_id),
        store.load(session_id),
        store.prepare(session_id),
        store.read_from(session_id, 0),
        store.tail(session_id, 1),
        store.append(session_id, [{"type": "feedback/record", "seq": 3, "time": 1, "data": {}}]),
        store.ensure_materialized(session_id),
        store.delete(session_id),
    ):
        with pytest.raises(UsageError, match="closed"):
            await call
    with pytest.raises(UsageError, match="closed"):
        [info async for info in store.list()]


async def test_closing_meets_a_session_that_is_being_opened(place: Place) -> None:
    """A session whose opening is under way when the store closes does not become live."""
    store, _ = place.open()
    session_id = await record(store)
    openings: dict[str, Callable[[SessionStore], AwaitableContext[LiveSession]]] = {
        "load_stored": lambda store: store.resume(session_id),
        "load_stored_from": lambda store: store.fork(session_id, at=2),
        "read_stored_revision": lambda store: store.create(id="other"),
    }
    for hook, begin in openings.items():
        store, faults = place.open()
        gate = faults.hang(hook)
        task = asyncio.ensure_future(begin(store).__aenter__())
        await gate.entered.wait()
        closing = asyncio.create_task(store.aclose())
        await asyncio.sleep(0)
        gate.release()
        with pytest.raises(UsageError, match="closed"):
            await task
        await closing
        assert store._registry.list() == []


@pytest.mark.parametrize("turns", range(12))
async def test_closing_at_any_moment_of_a_resume(place: Place, turns: int) -> None:
    """However the close falls into a resume, the session is refused or closed, never left live."""
    store, _ = place.open()
    session_id = await record(store)
    store, faults = place.open()
    gate = faults.hang("claim", when="after")
    task = asyncio.ensure_future(store.resume(session_id).__aenter__())
    await gate.entered.wait()
    gate.release()
    for _ in range(turns):
        await asyncio.sleep(0)
    closing = store.close()
    try:
        session = await task
    except UsageError:
        pass
    else:
        assert session.is_closed
    await closing
    assert store._registry.list() == []


async def test_a_busy_session_is_reported_once(place: Place) -> None:
    """What the coordinator still holds at the end is reported by it alone."""
    store, faults = place.open()
    session = await store.create()
    session.append("feedback/record", {"text": "x"})
    faults.fail("claim", None, error=SessionBusyError(session_id=session.id))
    with pytest.raises(ExceptionGroup) as caught:
        await store.aclose()
    (error,) = caught.value.exceptions
    assert isinstance(error, SessionBusyError)


async def test_closing_tells_every_failure_at_once(place: Place) -> None:
    """What could not be written or released is one group, and later calls tell the same."""
    store, faults = place.open()
    for _ in range(2):
        session = await store.create()
        session.append("feedback/record", {"text": "x"})
    faults.fail("append_batch", None)
    with pytest.raises(ExceptionGroup) as caught:
        await store.aclose()
    assert len(caught.value.exceptions) == 2
    assert all(isinstance(error, BackendError) for error in caught.value.exceptions)


async def test_closing_names_a_fenced_session_once(place: Place) -> None:
    """A session that was taken over is reported by the close with its events, once."""
    store, _ = place.open()
    session = await store.create()
    session.append("feedback/record", {"text": "mine"})
    await session.flush()
    other, _ = place.open()
    async with other.resume(session.id, takeover=True):
        pass
    session.append("feedback/record", {"text": "late"})
    with pytest.raises(ExceptionGroup) as caught:
        await store.aclose()
    (error,) = caught.value.exceptions
    assert isinstance(error, WriterFencedError)
    assert [event.data["text"] for event in error.pending] == ["late"]


async def test_a_failed_write_that_works_in_the_end_is_no_failure(place: Place) -> None:
    """The coordinator's last word counts: what was written at the second try is not reported."""
    store, faults = place.open()
    session = await store.create()
    session.append("feedback/record", {"text": "x"})
    faults.fail("append_batch", 1)
    await store.aclose()
    assert types(await place.stored(session.id)) == ["feedback/record"]


async def test_leaving_the_store_never_replaces_the_exception(place: Place) -> None:
    """An exception that leaves the store's block goes on; the failed close is a note on it."""
    store, faults = place.open()

    async def agent() -> None:
        async with store:
            session = await store.create()
            session.append("feedback/record", {"text": "x"})
            faults.fail("append_batch", None)
            raise ValueError("boom")

    with pytest.raises(ValueError, match="boom") as caught:
        await agent()
    assert any("the store could not be closed" in note for note in caught.value.__notes__)


async def test_a_failed_close_at_a_normal_end_is_raised(place: Place) -> None:
    """Without another exception on its way the failure of the close is the caller's to hear."""
    store, faults = place.open()

    async def agent() -> None:
        async with store:
            session = await store.create()
            session.append("feedback/record", {"text": "x"})
            faults.fail("append_batch", None)

    with pytest.raises(ExceptionGroup):
        await agent()


async def test_cancelling_a_close_ends_only_the_wait(place: Place) -> None:
    """The store closes all the same, and a second call waits for the same end."""
    store, faults = place.open()
    session = await store.create()
    session.append("feedback/record", {"text": "x"})
    gate = faults.hang("append_batch")
    waiting = asyncio.create_task(store.aclose())
    await gate.entered.wait()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    gate.release()
    await store.aclose()
    assert types(await place.stored(session.id)) == ["feedback/record"]


async def test_closing_a_suspended_owner_of_a_store(place: Place) -> None:
    """GeneratorExit must not wait: the store closes in the background."""
    store, _ = place.open()

    async def agent() -> None:
        async with store:
            await asyncio.sleep(0)

    body = agent()
    body.send(None)
    body.close()
    with pytest.raises(UsageError, match="closed"):
        await store.create()
    await store.aclose()


async def test_a_closed_medium_has_no_open_turns(place: Place) -> None:
    """However a store is closed, what it leaves needs no repair."""
    store, _ = place.open()
    session = await store.create()
    turn = session.turn()
    await turn.__aenter__()
    step = turn.step()
    await step.__aenter__()
    await store.aclose()
    reader, _ = place.open()
    assert (await reader.inspect(session.id)).closers == ()
