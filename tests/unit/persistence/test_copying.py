"""Copying between stores: rows as they are, checked by digest, taken up where it has stopped."""

from __future__ import annotations

import asyncio
import itertools
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import turnlog
from tests.faults.stores import make_place
from tests.unit.persistence.damaged import IMAGE, Shelf, events, shelf_of
from turnlog.errors import (
    BackendError,
    CorruptLogError,
    SessionBusyError,
    SessionCollisionError,
    SessionExistsError,
    SessionNotFoundError,
    TurnlogError,
    UnsupportedFormatError,
    UsageError,
)
from turnlog.events import frames
from turnlog.persistence import copying
from turnlog.persistence.copying import CopiedSession
from turnlog.persistence.store import SessionStore
from turnlog.testing.scripts import LogScript, header

KINDS = ("memory", "jsonl", "jsonl-plain")
BIG = "x" * 600_000


@pytest.fixture(params=itertools.product(KINDS, KINDS), ids=lambda kinds: " to ".join(kinds))
async def pair(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[tuple[Shelf, Shelf]]:
    """A source and a target of each kind."""
    first, second = request.param
    async with shelf_of(first, tmp_path / "a") as source, shelf_of(second, tmp_path / "b") as target:
        yield source, target


@pytest.fixture(params=KINDS)
async def source(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Shelf]:
    """A source of each kind."""
    async with shelf_of(request.param, tmp_path / "source") as found:
        yield found


@pytest.fixture
async def target(tmp_path: Path) -> AsyncIterator[Shelf]:
    """A plain root."""
    async with shelf_of("jsonl-plain", tmp_path / "target") as found:
        yield found


async def one(source: SessionStore, target: SessionStore, session_id: str = "s") -> CopiedSession:
    """Copy one session and return what became of it."""
    (copied,) = (await source.copy(target, [session_id])).sessions
    return copied


def error_of(copied: CopiedSession) -> type[TurnlogError] | None:
    """Return the class of what went wrong."""
    return None if copied.error is None else type(copied.error)


async def test_rows_arrive_as_they_are(pair: tuple[Shelf, Shelf]) -> None:
    """Digest, header, events and listing agree; a plain file is made of the very same lines."""
    source, target = pair
    whole = LogScript().add("session/title", {"title": "Tests"}).turn(calls=["c"]).start().events
    for at in range(0, len(whole), 4):
        await source.append("s", whole[at : at + 4])
    copied = await one(source.store, target.store)
    assert (copied.events, copied.appended, copied.error) == (len(whole), len(whole), None)
    assert copied.digest == (await target.store.verify("s")).digest == (await source.store.verify("s")).digest
    stored = await target.store.read_from("s", 0)
    assert stored.meta == (await source.store.read_from("s", 0)).meta
    assert list(stored.events) == whole
    if source.kind != "memory" and target.kind == "jsonl-plain":
        data = source.path("s").read_bytes()
        text = data if source.kind == "jsonl-plain" else b"".join(_texts(data))
        assert target.path("s").read_bytes() == text
    (info,) = [info async for info in target.store.list()]
    assert info.status == "interrupted"
    if info.summary is not None:  # a root of files writes it at a turn's end only
        assert (info.summary.title, info.summary.turns, info.summary.open_turn) == ("Tests", 2, 2)


def _texts(data: bytes) -> list[bytes]:
    return [frames.decompress(data[start:end]) for start, end in frames.scan(data).spans]


async def test_copying_again_adds_what_is_new(pair: tuple[Shelf, Shelf]) -> None:
    """A copy of a log that has grown takes the rest, however far the first one came."""
    source, target = pair
    await source.append("s", events(0, 3))
    assert (await one(source.store, target.store)).appended == 3
    assert (await one(source.store, target.store)).appended == 0
    await source.append("s", events(3, 2))
    copied = await one(source.store, target.store)
    assert (copied.events, copied.appended) == (5, 2)
    assert list((await target.store.read_from("s", 0)).events) == events(0, 5)


async def test_a_copy_that_ends_inside_a_packed_run(source: Shelf, target: Shelf) -> None:
    """What is stored may end anywhere; the rest of a run is added by itself and the events agree."""
    whole = LogScript().start().step().chunks(*"abcdefgh").end_step().end().events
    await source.keep("s", whole)
    await target.keep("s", whole[:5])
    copied = await one(source.store, target.store)
    assert (copied.events, copied.appended) == (len(whole), len(whole) - 5)
    assert list((await target.store.read_from("s", 0)).events) == whole


async def test_a_torn_copy_is_cut_and_completed(source: Shelf, target: Shelf) -> None:
    """A copy that was killed inside a write is repaired without closers and goes on."""
    await source.keep("s", LogScript().turn().start().step().user().events)
    await one(source.store, target.store)
    whole = target.path("s").read_bytes()
    target.path("s").write_bytes(whole[:-30])
    copied = await one(source.store, target.store)
    assert (copied.error, copied.appended) == (None, 1)
    assert target.path("s").read_bytes() == whole


async def test_a_torn_copy_that_is_complete(source: Shelf, target: Shelf) -> None:
    """Torn bytes behind the last event are cut, too."""
    await source.append("s", events(0, 3))
    await one(source.store, target.store)
    whole = target.path("s").read_bytes()
    target.path("s").write_bytes(whole + b'{"type":"fe')
    assert (await one(source.store, target.store)).error is None
    assert target.path("s").read_bytes() == whole


async def test_the_unfinished_write_of_a_source(source: Shelf, target: Shelf) -> None:
    """What a torn tail holds was never acknowledged and is not copied; it is counted."""
    await source.append("s", events(0, 3))
    await source.append("s", events(3, 1))
    source.cut("s", 3)
    before = source.content()
    copied = await one(source.store, target.store)
    assert (copied.events, copied.error) == (3, None)
    assert copied.torn_bytes > 0
    assert source.content() == before


async def test_an_empty_session(pair: tuple[Shelf, Shelf]) -> None:
    """A header alone is a session."""
    source, target = pair
    async with source.store.create(id="s", cwd="/srv/app") as session:
        await source.store.ensure_materialized(session.id)
    copied = await one(source.store, target.store)
    assert (copied.events, copied.error) == (0, None)
    assert len((await target.store.read_from("s", 0)).events) == 0
    assert (await one(source.store, target.store)).error is None


async def test_other_events_in_the_target(pair: tuple[Shelf, Shelf]) -> None:
    """A target that has gone its own way is left as it is."""
    source, target = pair
    await source.append("s", events(0, 3))
    await target.append("s", LogScript().turn().events[:2])
    before = target.content()
    assert error_of(await one(source.store, target.store)) is SessionCollisionError
    after = target.content()
    assert {name: after[name] for name in before if "lock" not in name} == {
        name: before[name] for name in before if "lock" not in name
    }


async def test_a_longer_target(source: Shelf, target: Shelf) -> None:
    """A target with more events is not a copy that could be completed."""
    await source.append("s", events(0, 3))
    await target.append("s", events(0, 5))
    copied = await one(source.store, target.store)
    assert error_of(copied) is SessionCollisionError
    assert "longer" in str(copied.error)


async def test_another_header_in_the_target(source: Shelf, target: Shelf) -> None:
    """The same events under another header are another session."""
    await source.append("s", events(0, 3))
    await target.keep("s", events(0, 3), agent_preset="other")
    assert error_of(await one(source.store, target.store)) is SessionCollisionError


async def test_a_damaged_source(source: Shelf, target: Shelf) -> None:
    """R2: damage is named; what was written before it was found stays a copy that cannot be completed."""
    for seq in range(4):
        await source.append("s", events(seq, 1))
    source.spoil("s", 2)
    copied = await one(source.store, target.store)
    assert error_of(copied) is CorruptLogError
    assert copied.as_json()["error"]["code"] == "corrupt-log"


async def test_another_format_version(source: Shelf, target: Shelf) -> None:
    """A log of another version is not copied."""
    source.plant("s", LogScript().turn().events, version=7)
    assert error_of(await one(source.store, target.store)) is UnsupportedFormatError


async def test_one_bad_session_does_not_hold_up_the_others(source: Shelf, target: Shelf) -> None:
    """A whole store, a few sessions at a time, with progress."""
    for number in range(6):
        await source.keep(f"s-{number}", events(0, 2))
    source.spoil("s-3", 0)
    steps: list[tuple[int, int]] = []
    report = await source.store.copy(target.store, parallel=2, progress=lambda *at: steps.append(at))
    assert [copied.session_id for copied in report.sessions] == [f"s-{number}" for number in range(6)]
    assert [copied.session_id for copied in report.failed] == ["s-3"]
    assert steps == [(done, 6) for done in range(1, 7)]


async def test_entries_that_are_no_sessions(tmp_path: Path, target: Shelf) -> None:
    """Something strange in a root is reported and not copied."""
    async with shelf_of("jsonl", tmp_path / "a") as source:
        await source.append("s", events(0, 2))
        (source.root / "link").symlink_to(source.root)
        report = await source.store.copy(target.store)
        assert [error_of(copied) for copied in report.sessions] == [CorruptLogError, None]


async def test_images_go_along_once(pair: tuple[Shelf, Shelf]) -> None:
    """Images are copied before the rows that refer to them; those that are there already are not."""
    source, target = pair
    block = await source.store.attachments.put(IMAGE)
    lost = {**block["attachment"], "attachmentId": f"sha256:{'0' * 64}"}
    async with source.store.create(id="s", cwd="/srv/app") as session, session.turn() as turn:
        turn.user([block, block, {"type": "image", "attachment": lost}])
    copied = await one(source.store, target.store)
    assert (copied.attachments, copied.missing_attachments) == (1, (f"sha256:{'0' * 64}",))
    assert await target.store.attachments.get(block["attachment"]["attachmentId"]) == IMAGE
    assert (await one(source.store, target.store)).attachments == 0


async def test_large_logs_are_carried_in_parts(source: Shelf, target: Shelf) -> None:
    """A log is written as it is read, a megabyte at a time."""
    script = LogScript()
    for _ in range(4):
        script.add("feedback/record", {"text": BIG})
    await source.keep("s", script.events)
    before = target.faults.counts["append_batch"]
    assert (await one(source.store, target.store)).error is None
    assert target.faults.counts["append_batch"] - before == 2


async def test_a_large_torn_log_is_carried_in_parts(source: Shelf, target: Shelf) -> None:
    """Also where a load has to say what is torn."""
    script = LogScript()
    for _ in range(3):
        script.add("feedback/record", {"text": BIG})
    await source.keep("s", script.events)
    await source.append("s", events(3, 1))
    source.cut("s", 3)
    copied = await one(source.store, target.store)
    assert (copied.error, copied.events) == (None, 3)


async def test_many_frames_at_one_position(target: Shelf, tmp_path: Path) -> None:
    """A frame of more rows than a scan hands out at once is one place."""
    async with shelf_of("jsonl", tmp_path / "a") as source:
        await source.append("s", events(0, 5000))
        await source.append("s", events(5000, 5000))
        assert (await one(source.store, target.store)).events == 10_000


async def test_a_backend_without_scan_or_suffixes(source: Shelf, target: Shelf) -> None:
    """Without the optional hooks a log is read whole."""
    await source.append("s", events(0, 3))
    hooks: Any = source.store._coordinator.books.hooks
    hooks.has_scan = hooks.has_suffix_reads = False
    assert (await one(source.store, target.store)).events == 3


async def test_a_target_without_header_only_sessions(source: Shelf, target: Shelf) -> None:
    """Where a header alone cannot be stored, an empty session leaves nothing, and that is told."""
    async with source.store.create(id="s", cwd="/srv/app") as session:
        await source.store.ensure_materialized(session.id)
    hooks: Any = target.store._coordinator.books.hooks
    hooks.has_header_only = False
    assert error_of(await one(source.store, target.store)) is UsageError


async def test_a_copy_that_reads_back_otherwise(source: Shelf, target: Shelf) -> None:
    """A medium that does not give back what was written is found out at once."""
    await source.append("s", events(0, 3))
    hooks: Any = target.store._coordinator.books.hooks

    async def forgetful(*args: Any, **options: Any) -> None:
        """Claim to have written."""

    real, hooks.append = hooks.append, forgetful
    copied = await one(source.store, target.store)
    assert error_of(copied) is BackendError

    async def other(meta: Any, batch: Any, **options: Any) -> Any:
        from turnlog.events.batch import EncodedBatch

        return await real(meta, EncodedBatch.of(LogScript().turn().events[:3]), **options)

    hooks.append = other
    copied = await one(source.store, target.store)
    assert error_of(copied) is BackendError
    assert "differs" in str(copied.error)


async def test_a_failing_target(source: Shelf, target: Shelf) -> None:
    """A medium that fails half-way is reported, and the next copy goes on from what is there."""
    script = LogScript()
    for _ in range(4):
        script.add("feedback/record", {"text": BIG})
    await source.keep("s", script.events)
    target.faults.fail("append_batch", 2, error=BackendError(backend="test", reason="full"))
    copied = await one(source.store, target.store)
    assert error_of(copied) is BackendError
    copied = await one(source.store, target.store)
    assert (copied.error, copied.events, copied.appended) == (None, 4, 2)


async def test_a_target_that_somebody_writes(source: Shelf, target: Shelf) -> None:
    """W1: a session that is live in the target, or created or reserved there, is not written to."""
    await source.append("s", events(0, 3))
    async with target.store.create(id="s", cwd="/srv/app") as session:
        session.append("turn/start", {"turn": 1})
        await session.flush()
        assert error_of(await one(source.store, target.store)) is SessionBusyError
        session.append("turn/end", {"turn": 1, "reason": {"kind": "completed"}})
    async with await target.store.prepare("s"):
        assert error_of(await one(source.store, target.store)) is SessionBusyError
    async with target.second() as other, other.resume("s"):
        assert error_of(await one(source.store, target.store)) is SessionBusyError


async def test_an_id_that_was_created_in_the_target(source: Shelf, target: Shelf) -> None:
    """An id that was reserved in memory is taken."""
    await source.append("s", events(0, 3))
    await target.store._coordinator.create(header("s"))
    assert error_of(await one(source.store, target.store)) is SessionExistsError


async def test_a_target_that_vanishes(source: Shelf, target: Shelf) -> None:
    """A session that is deleted between two looks is told as busy."""
    await source.append("s", events(0, 3))
    await target.append("s", events(0, 3))
    hooks: Any = target.store._coordinator.books.hooks

    async def nothing(session_id: str) -> None:
        """Find nothing."""

    hooks.load = nothing
    assert error_of(await one(source.store, target.store)) is SessionBusyError


async def test_a_source_that_vanishes(source: Shelf, target: Shelf) -> None:
    """A session that is deleted while it is copied is not found."""
    await source.append("s", events(0, 3))
    hooks: Any = source.store._coordinator.books.hooks

    async def nothing(session_id: str) -> None:
        """Find nothing."""

    hooks.has_scan, hooks.load = False, nothing
    assert error_of(await one(source.store, target.store)) is SessionNotFoundError


async def test_a_live_source(source: Shelf, target: Shelf) -> None:
    """What is stored of a session that is being written is copied; the writer is not disturbed."""
    async with source.store.create(id="s", cwd="/srv/app") as session:
        session.append("turn/start", {"turn": 1})
        await session.flush()
        session.append("turn/end", {"turn": 1, "reason": {"kind": "completed"}})
        assert (await one(source.store, target.store)).events == 1
    assert (await one(source.store, target.store)).appended == 1


async def test_unknown_ids_and_one_store(source: Shelf, target: Shelf) -> None:
    """An unknown id is an error of that session; a store is not copied into itself; closed is closed."""
    assert error_of(await one(source.store, target.store)) is SessionNotFoundError
    with pytest.raises(UsageError):
        await source.store.copy(source.store)
    await target.store.aclose()
    with pytest.raises(UsageError):
        await source.store.copy(target.store)


async def test_a_cancelled_copy_goes_on_later(source: Shelf, target: Shelf) -> None:
    """Cancelling leaves a copy that the next one completes, and no claim."""
    script = LogScript()
    for _ in range(6):
        script.add("feedback/record", {"text": BIG})
    await source.keep("s", script.events)
    gate = target.faults.hang("append_batch", 2)
    task = asyncio.ensure_future(source.store.copy(target.store, ["s"]))
    await gate.entered.wait()
    task.cancel()
    gate.release()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with target.second() as other:
        assert (await one(source.store, other)).error is None
        assert list((await other.read_from("s", 0)).events) == script.events


async def test_the_summary_of_carried_rows(target: Shelf, tmp_path: Path) -> None:
    """Strange titles and turns do not end a copy; the listing shows what it can."""
    async with shelf_of("memory", tmp_path / "a") as source:
        script = LogScript().add("session/title", {"title": 7}).add("session/title", [])
        script.add("step/start", {"turn": 1, "step": 1})
        source.plant("s", script.events)
        assert (await one(source.store, target.store)).error is None


@pytest.mark.parametrize("parallel", [0, -1, 1.5, "2", None])
async def test_how_many_at_a_time(source: Shelf, target: Shelf, parallel: Any) -> None:
    """A number with which nothing would ever be copied is refused."""
    await source.keep("s", events(0, 1))
    with pytest.raises(UsageError, match="parallel"):
        await asyncio.wait_for(source.store.copy(target.store, parallel=parallel), 10)


async def test_arguments_that_cannot_be_right(source: Shelf, target: Shelf) -> None:
    """A string is no sequence of ids, and a URL is no open store; whoever passes them is at fault."""
    await source.keep("s", events(0, 1))
    wrong: Any = "s"
    with pytest.raises(UsageError, match=r"\['s'\]"):
        await source.store.copy(target.store, wrong)
    nothing: Any = None
    for other in (wrong, nothing):
        with pytest.raises(UsageError, match="open store"):
            await source.store.copy(other, ["s"])
    with pytest.raises(UsageError, match="open store"):
        await source.store.salvage("s", to=wrong)
    with pytest.raises(UsageError, match="string"):
        await source.store.salvage("s", to=target.store, new_id=5)  # type: ignore[arg-type]  # the point


async def test_each_is_told_in_order(source: Shelf, target: Shelf) -> None:
    """What became of a session is told when it is known, with the count after it."""
    told: list[object] = []
    for number in range(5):
        await source.keep(f"s-{number}", events(0, 1))
    report = await source.store.copy(
        target.store, parallel=2, each=told.append, progress=lambda *at: told.append(at)
    )
    assert told == [step for n, c in enumerate(report.sessions, 1) for step in (c, (n, 5))]


async def test_a_listener_that_fails(source: Shelf, target: Shelf) -> None:
    """Its own error comes out; calls to a medium that are under way end, and nothing else is begun."""
    for number in range(9):
        await source.keep(f"s-{number}", events(0, 1))

    def fail(done: int, total: int) -> None:
        raise ZeroDivisionError

    before = len(asyncio.all_tasks())
    with pytest.raises(ZeroDivisionError):
        await source.store.copy(target.store, parallel=2, progress=fail)
    async with asyncio.timeout(30):
        while len(asyncio.all_tasks()) > before:
            await asyncio.sleep(0.001)
    assert len([info async for info in target.store.list()]) < 9


async def test_one_store_opened_twice(tmp_path: Path) -> None:
    """A root that is reached by another path is no other store: nothing is called copied."""
    async with shelf_of("jsonl-plain", tmp_path / "s") as shelf:
        await shelf.keep("s", events(0, 2))
        (tmp_path / "link").symlink_to(shelf.root)
        for path in (shelf.root, tmp_path / "link"):
            async with turnlog.open(f"jsonl:{path}") as other:
                with pytest.raises(UsageError, match="in one place"):
                    await shelf.store.copy(other)
    async with turnlog.open(f"sqlite:{tmp_path / 'a.db'}") as first:
        async with first.create(id="s") as session:
            session.append("feedback/record", {})
        async with turnlog.open(f"sqlite:{tmp_path / 'x' / '..' / 'a.db'}") as second:
            with pytest.raises(UsageError, match="in one place"):
                await first.copy(second, ["s"])


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_databases_of_one_kind(kind: str, tmp_path: Path) -> None:
    """Two databases whose places cannot be compared as files are two stores."""
    for name in ("one", "other"):
        (tmp_path / name).mkdir()
    one, other = (make_place(kind, tmp_path / name) for name in ("one", "other"))
    async with turnlog.open(one.url) as source, turnlog.open(other.url) as target:
        async with source.create(id="s", cwd="/srv/app") as session:
            session.append("feedback/record", {"text": "x"})
        report = await source.copy(target)
        assert [copied.events for copied in report.sessions] == [1]
        assert list((await target.read_from("s", 0)).events) == list(session.events)


async def test_a_log_that_vanishes_is_in_no_place(tmp_path: Path) -> None:
    """Two stores whose files cannot be compared are taken for two."""
    async with shelf_of("jsonl", tmp_path / "a") as one, shelf_of("jsonl", tmp_path / "b") as other:
        await one.keep("s", events(0, 1))
        await other.keep("s", events(0, 1))
        meta = (await one.store.read_from("s", 0)).meta
        here, there = one.store._coordinator.books, other.store._coordinator.books
        shutil.rmtree(other.root)
        assert not copying._is_same_place(here, there, meta)
