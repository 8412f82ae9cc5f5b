"""Reported faults of sessions as a whole: their ids and paths, the order of events, sizes, stray results.

The table of outcomes is in `test_reported_faults`.
"""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import turnlog
from tests.cli.logs import Result
from tests.faults.drill import Writer
from tests.faults.power_loss import power_loss_mount
from tests.faults.stored import keep, log_file, note, notes, pieces, read
from tests.faults.stores import KINDS, JsonlPlace, Place, PostgresPlace, SqlitePlace, make_place
from turnlog.backends.postgres.statements import Statements
from turnlog.backends.tail_status import TAIL_WINDOW
from turnlog.events.batch import EncodedBatch
from turnlog.testing.scripts import LogScript, dicts
from turnlog.transcripts import SHAPES, export, page
from turnlog.transcripts.conversation import Conversation

# -- paths ----------------------------------------------------------------------------------------

HOSTILE = (
    "../../evil", "/etc/evil", "..", ".", "", "a/b", "a\\b", "C:\\x", "a\x00b", "%2e%2e%2fx", "~root/x",
    "x/../../y", "....//x", "\uff0e\uff0e\uff0fx",
)  # fmt: skip
STRANGE = (
    "agent:7:main", "CON", "nul.jsonl", "COM1", "a.", "a ", "a\x01b", "a\x7fb", "<x>|?*", "é", "e\u0301",
    "x" * 300, "漢" * 100, "-rf", ".hidden", "a\nb",
)  # fmt: skip


def outside(folder: Path, place: Place) -> dict[Path, bytes]:
    """Return every file of a folder but those of the store in it."""
    own = ("sessions", "sessions.db")
    return {
        path: path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and not path.relative_to(folder).parts[0].startswith(own)
    }


async def test_path_01_ids_that_leave_the_root(place: Place, tmp_path: Path) -> None:
    """Each names exactly one session inside, the empty one is refused; nothing outside is touched."""
    for name in ("beside/evil", "evil", "x", "y"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("not yours")
    before = outside(tmp_path, place)
    names = [session_id for session_id in HOSTILE if session_id]
    async with turnlog.open(place.url) as store:
        with pytest.raises(turnlog.InvalidSessionIdError):
            await keep(store, notes(1), "")
        for call in (store.load(""), store.append("", [note(0)]), store.delete(""), store.read_from("", 0)):
            with pytest.raises(turnlog.LogError):
                await call
        for session_id in names:
            for absent in (store.load(session_id), store.delete(session_id), store.inspect(session_id)):
                with pytest.raises(turnlog.SessionNotFoundError):
                    await absent
            await keep(store, [turnlog.SessionEvent.from_dict(note(0, session_id))], session_id)
        for session_id in names:
            (event,) = await read(store, session_id)
            assert event.data == {"text": session_id}
        assert sorted([str(info.session_id) async for info in store.list()]) == sorted(names)
        for session_id in names:
            await store.delete(session_id)
        assert [info async for info in store.list()] == []
    assert outside(tmp_path, place) == before
    assert not Path("/etc/evil").exists()


@pytest.mark.parametrize("session_id", [name for name in HOSTILE if name and "\x00" not in name])
async def test_path_01_on_the_command_line(
    session_id: str, files: JsonlPlace, tmp_path: Path, cli_on: Callable[..., Result]
) -> None:
    """Commands and exports take such an id for one session, and write only where they are told to."""
    async with turnlog.open(files.url) as store:
        await keep(store, LogScript().turn("hi").events, session_id)
    before = outside(tmp_path, files)
    target = tmp_path / "out.md"
    shown = cli_on(files.url, "export", session_id, "--format", "markdown", "-o", str(target))
    assert shown.code == 0, shown.err
    assert "hi" in target.read_text()
    target.unlink()
    assert cli_on(files.url, "rm", session_id, "--yes").code == 0
    assert outside(tmp_path, files) == before
    assert [path for path in files.root.rglob("*") if path.is_file() and path.name != "session.lock"] == []


async def test_path_03_ids_of_every_kind(place: Place) -> None:
    """Each works and comes back, or is refused at creation, alike everywhere; file names stay short."""
    accepted: list[str] = []
    async with turnlog.open(place.url) as store:
        for session_id in STRANGE:
            try:
                await keep(store, [turnlog.SessionEvent.from_dict(note(0, session_id))], session_id)
            except turnlog.InvalidSessionIdError:
                continue
            accepted.append(session_id)
        assert sorted(set(STRANGE) - set(accepted)) == sorted(["x" * 300, "漢" * 100])
    async with turnlog.open(place.url) as store:
        assert sorted([str(info.session_id) async for info in store.list()]) == sorted(accepted)
        for session_id in accepted:
            (event,) = await read(store, session_id)
            assert event.data == {"text": session_id}
        for session_id in accepted:
            await store.delete(session_id)
        assert [info async for info in store.list()] == []


async def test_path_03_file_names(files: JsonlPlace) -> None:
    """No name needs more than 255 bytes or has a character that Windows does not take."""
    async with turnlog.open(files.url) as store:
        for session_id in [name for name in STRANGE if len(name) < 100] + ["漢" * 48]:
            await keep(store, notes(1), session_id)
    names = [path.name for path in files.root.rglob("*")]
    assert max(len(name.encode()) for name in names) <= 255
    assert not any(set(name) & set('<>:"|?*\\') or name[-1] == " " or not name.isascii() for name in names)


@pytest.mark.filterwarnings("ignore::turnlog.backends.jsonl.root.UnsafeLockWarning")
@pytest.mark.parametrize("encoding", ["none", "zstd"])
async def test_path_04_a_file_system_without_case(encoding: str, tmp_path: Path) -> None:
    """An id in another case is refused and never opened as the stored one, which stays as it is."""
    with power_loss_mount(tmp_path / "m", nocase=True) as mount:
        (mount.place / "x").mkdir()
        assert (mount.place / "X").is_dir()
        async with turnlog.open(f"jsonl:{mount.place}/s?compression={encoding}") as store:
            await keep(store, notes(2), "Alpha")
            with pytest.raises((turnlog.LogError, turnlog.BackendError)):
                await keep(store, notes(1), "alpha")
            for call in (store.load("alpha"), store.delete("alpha"), store.append("alpha", [note(2)])):
                with pytest.raises((turnlog.LogError, turnlog.BackendError)):
                    await call
            assert [info.session_id async for info in store.list()] == ["Alpha"]
            assert len(await read(store, "Alpha")) == 2


@pytest.mark.filterwarnings("ignore::turnlog.backends.jsonl.root.UnsafeLockWarning")
async def test_path_04_a_root_that_is_carried_there(files: JsonlPlace, tmp_path: Path) -> None:
    """Of two logs that fall on one name the one left is opened under its own id only, and is whole."""
    async with turnlog.open(files.url) as store:
        await keep(store, notes(2), "Alpha")
        await keep(store, notes(1), "alpha")
    with power_loss_mount(tmp_path / "m", nocase=True) as mount:
        shutil.copytree(files.root, mount.place / "s", dirs_exist_ok=True)
        async with turnlog.open(files.url.replace(str(files.root), str(mount.place / "s"))) as store:
            outcomes: dict[str, int | None] = {}
            for session_id in ("Alpha", "alpha"):
                try:
                    outcomes[session_id] = len(await read(store, session_id))
                except turnlog.LogError:
                    outcomes[session_id] = None
        assert outcomes in ({"Alpha": 2, "alpha": None}, {"Alpha": None, "alpha": 1})


async def test_path_04_stores_with_case(place: Place) -> None:
    """Elsewhere ids that differ in case are two sessions, and deleting one leaves the other."""
    async with turnlog.open(place.url) as store:
        await keep(store, notes(2), "Alpha")
        await keep(store, notes(1), "alpha")
        assert sorted([str(info.session_id) async for info in store.list()]) == ["Alpha", "alpha"]
        assert (len(await read(store, "Alpha")), len(await read(store, "alpha"))) == (2, 1)
        await store.delete("alpha")
        assert [info.session_id async for info in store.list()] == ["Alpha"]
        assert await read(store, "Alpha") == notes(2)


# -- order ----------------------------------------------------------------------------------------


async def test_order_01_the_same_record_again(place: Place) -> None:
    """A repeat under a used seq writes nothing and names the seq that is due, whatever it holds."""
    async with turnlog.open(place.url) as store:
        await keep(store, notes(2))
        before = place.log("s")
        for repeated in (note(1), note(1, "different"), note(0)):
            with pytest.raises(turnlog.UnexpectedSeqError) as refused:
                await store.append("s", [repeated])
            assert (refused.value.expected, refused.value.actual) == (2, repeated["seq"])
        assert place.log("s") == before
        assert await read(store) == notes(2)


def _die_behind_five(place: Place) -> None:
    """Let a process store five events and be killed with its session open."""

    async def work(ack: int) -> None:
        async with turnlog.open(place.url) as store:
            session = await store.create(id="s", cwd="/srv/app")
            for number in range(5):
                session.append("feedback/record", {"text": str(number)})
            await session.flush()
            os.write(ack, b"5 -\n")
            session.append("feedback/record", {"text": "never flushed"})
            while True:
                os.sched_yield()

    writer = Writer(work)
    assert writer.next() is not None
    writer.kill()


async def test_order_03_numbers_go_on_after_a_death(place: Place, tmp_path: Path) -> None:
    """The next seq comes from what is stored, in the next process and in a copy."""
    _die_behind_five(place)
    async with turnlog.open(place.url) as store:
        await store.append("s", dicts(notes(5, first=5)))
    async with turnlog.open(place.url) as store, turnlog.open(f"jsonl:{tmp_path / 'copy'}") as copied:
        assert not (await store.copy(copied)).failed
        await copied.append("s", [note(10)])
        assert [event.seq for event in await read(copied)] == list(range(11))


async def test_order_03_a_number_twice(place: Place) -> None:
    """A seq that was put in again by hand is refused by the database, or is damage that is told."""
    async with turnlog.open(place.url) as store:
        await keep(store, notes(5))
        await store.append("s", dicts(notes(5, first=5)))
    if isinstance(place, JsonlPlace):
        path = log_file(place)
        stored = pieces(path)
        again = EncodedBatch.of(notes(1, first=3))
        more = EncodedBatch.of(notes(1, first=10))
        put = [b.text() if path.suffix == ".jsonl" else b.frame() for b in (again, more)]
        path.write_bytes(b"".join(stored + put))
        expected = 10
    else:
        with pytest.raises(Exception, match=r"(?i)unique"):
            place.edit("insert into frames select * from frames where first_seq = 5")
        place.edit(
            "insert into frames(session, first_seq, last_seq, frame) "
            "select session, 3, last_seq, frame from frames where first_seq = 0"
        )
        expected = 5
    async with turnlog.open(place.url) as store:
        with pytest.raises(turnlog.CorruptLogError) as damage:
            await store.load("s")
        assert damage.value.seq == expected
        assert not (await store.verify("s")).is_good


# -- sizes ----------------------------------------------------------------------------------------

_PEAK = """
import asyncio, resource, sys, turnlog
from turnlog.transcripts import export
async def main(url):
    base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    async with turnlog.open(url) as store:
        {work}
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - base)
asyncio.run(main(sys.argv[1]))
"""


def peak(url: str, work: str) -> int:
    """Return the kilobytes that some work needs in a process of its own, beyond the interpreter."""
    done = subprocess.run(
        [sys.executable, "-c", _PEAK.replace("{work}", work), url],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return int(done.stdout)


async def test_size_01_one_huge_result(place: Place, cli_on: Callable[..., Result]) -> None:
    """Twelve megabytes on one line are stored, listed, read and shown cut, in a few times their size."""
    text = "d" * 12_800_000
    script = LogScript().start().step().user().assistant(calls=["c"]).call("c").result("c", text)
    events = script.end_step().end().events
    async with turnlog.open(place.url) as store:
        await keep(store, events)
        assert [info.session_id async for info in store.list()] == ["s"]
    work = "export((await store.inspect('s')).events, 'anthropic')"
    assert peak(place.url, work) * 1024 < 6 * len(text) + (20 << 20)
    shown = cli_on(place.url, "show", "s")
    assert shown.code == 0
    assert len(shown.out) < 100_000
    html = "".join(page(Conversation.of(events), session_id="s"))
    assert len(html) < 1_000_000
    assert "12,800,000 characters in all" in html
    whole = cli_on(place.url, "events", "s")
    assert text in whole.out


@pytest.mark.parametrize("kind", KINDS)
async def test_size_02_long_logs(kind: str, tmp_path: Path) -> None:
    """Listing, tail and pages need the same memory for a log of 2 and one of 60 megabytes."""
    place = make_place(kind, tmp_path)
    async with turnlog.open(place.url) as store:
        for name, count in (("short", 400), ("long", 12_000)):
            async with store.create(id=name, cwd="/srv/app") as session:
                for number in range(count):
                    session.append("feedback/record", {"text": os.urandom(2500).hex()})
                    if number % 50 == 49:
                        await session.flush()
    for work in (
        "[info async for info in store.list()]",
        "await store.tail('{name}', 20)",
        "await store.read_from('{name}', 200, 50)",
    ):
        short, long = (peak(place.url, work.format(name=name)) for name in ("short", "long"))
        assert long < short + 24_000, f"{work}: {short} and {long} KB"
    flat = "async for event in store.iter_events('long'): pass"
    assert peak(place.url, flat) < 150_000
    resumed = "s = await store.resume('long'); s.append('feedback/record', {}); await s.flush()"
    assert peak(place.url, resumed) < 4 * 60_000


async def test_size_03_one_block_is_taken_out(store: turnlog.SessionStore) -> None:
    """An append puts a short text in the place of a refused image, for every model; the log keeps it."""
    image = {"type": "image", "attachment": {"attachmentId": f"sha256:{'0' * 64}", "mediaType": "image/png"}}
    async with store.create(id="s", cwd="/srv/app") as session:
        async with session.turn() as turn:
            turn.user([{"type": "text", "text": "see shot"}, image])
        seq = next(event.seq for event in session.events if event.type == "user/message")
        before = session.events[seq].line
        session.replace_block(seq, 1)
        await session.flush()
    events = await read(store)
    for shape in SHAPES:
        sent = turnlog.dumps(export(events, shape).request)
        assert "see shot" in sent
        assert "[content removed]" in sent
        assert "image/png" not in sent
    assert events[seq].line == before
    assert b"attachmentId" in before


MANY = 300
"""Sessions beside the one that is looked at."""


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
async def test_size_04_many_sessions(kind: str, tmp_path: Path) -> None:
    """Pages of a listing and of events are found by an index, and none is skipped or comes twice."""
    place = make_place(kind, tmp_path)
    async with turnlog.open(place.url) as store:
        for number in range(MANY):
            await keep(store, notes(1), f"s-{number:04}")
        async with store.create(id="big", cwd="/srv/app") as session:
            for number in range(4000):
                session.append("feedback/record", {"text": str(number)})
                if number % 20 == 19:
                    await session.flush()
        assert [e.seq for e in (await store.read_from("big", 2000, 100)).events] == list(range(2000, 2100))
        seen: list[str | None] = []
        pages = 0
        last: str | None = None
        while found := [info.session_id async for info in store.list(after=last, limit=50)]:
            seen += found
            last = seen[-1]
            pages += 1
            await keep(store, notes(1), f"a-{pages}")
            await store.append("s-0299", [note(pages)])
        assert seen == ["big", *(f"s-{number:04}" for number in range(MANY))]


async def _look_up(store: turnlog.SessionStore) -> None:
    """Read a page of events and a page of the listing."""
    assert len((await store.read_from("big", 200, 10)).events) == 10
    assert len([info async for info in store.list(after="big", limit=20)]) == 20


async def _fill(store: turnlog.SessionStore) -> None:
    """Store many sessions of one event, and one of many."""
    for number in range(60):
        await keep(store, notes(1), f"s-{number:04}")
    await keep(store, notes(400), "big", each=True)


async def test_size_04_indexes_of_sqlite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The statements that SQLite is really given find their rows by an index; none walks a table."""
    place = make_place("sqlite", tmp_path)
    assert isinstance(place, SqlitePlace)
    async with turnlog.open(place.url) as store:
        await _fill(store)
    statements: list[str] = []
    connect = sqlite3.connect

    def traced(*args: Any, **rest: Any) -> sqlite3.Connection:
        db: sqlite3.Connection = connect(*args, **rest)
        db.set_trace_callback(statements.append)
        return db

    with monkeypatch.context() as patched:
        patched.setattr(sqlite3, "connect", traced)
        async with turnlog.open(place.url) as store:
            await _look_up(store)
    asked = {text for text in statements if re.search("from (sessions|frames|writers)", text)}
    assert len(asked) > 3
    for text in asked:
        plan = str(place.run(f"explain query plan {text}"))
        assert "SEARCH" in plan, text
        assert "SCAN" not in plan, text


async def test_size_04_indexes_of_postgres() -> None:
    """The two main statements for PostgreSQL find sessions and frames by an index."""
    place = make_place("postgres", Path())
    assert isinstance(place, PostgresPlace)
    async with turnlog.open(place.url) as store:
        await _fill(store)
        await _look_up(store)
    given = Statements(place.schema)
    page = {"session": place.run("select number from sessions where segment = 'big'")[0][0]}
    for statement, parameters in (
        (given.frames_around, page | {"first": 200, "end": 210}),
        (given.list, {"after": "big", "limit": 20, "window": TAIL_WINDOW}),
    ):
        plan = place.plan(statement, parameters)
        assert "Index" in plan
        assert not re.search(r"Seq Scan on (sessions|frames)", plan), plan


async def test_size_04_frames_that_are_read(tmp_path: Path) -> None:
    """A page of events reads the frames that hold it, a page of a listing one for each session."""
    async with turnlog.open(make_place("sqlite", tmp_path).url) as store:
        await _fill(store)
        backend: Any = store._coordinator.books.hooks._backend
        before = backend.reader.frames_read
        await _look_up(store)
        assert backend.reader.frames_read - before <= 11 + 20


# -- results without calls ------------------------------------------------------------------------


async def test_orphan_03_a_result_without_its_call(place: Place) -> None:
    """A live session refuses it with the call's id, and a second result as well; nothing is written."""
    async with turnlog.open(place.url) as store:
        async with store.create(id="s", cwd="/srv/app") as session:
            for event in LogScript().start().step().user().assistant(calls=["call-7"]).events:
                session.append(event.type, event.data, surface_op=event.surface_op)
            await session.flush()
            before = place.log("s")
            stray = LogScript(4, turn=1, step=1).result("zz").events[0]
            with pytest.raises(turnlog.InvariantError, match="zz"):
                session.append("tool/result", stray.data, surface_op="append")
            await session.flush()
            assert (session.seq, place.log("s")) == (4, before)
            session.append("tool/call", LogScript(4, turn=1, step=1).call("call-7").events[0].data)
            result = LogScript(5, turn=1, step=1).result("call-7").events[0]
            session.append("tool/result", result.data, surface_op="append")
            with pytest.raises(turnlog.InvariantError, match="call-7"):
                session.append("tool/result", result.data, surface_op="append")
            await session.flush()
            assert session.seq == 6
        assert len([e for e in await read(store) if e.type == "tool/result"]) == 1


async def test_orphan_03_where_it_is_stored(store: turnlog.SessionStore) -> None:
    """A log of another writer that holds such a result is kept as it is, and verify names the call."""
    await keep(store, LogScript().start().step().user().result("zz").end_step().end().events)
    verdict = await store.verify("s")
    assert verdict.is_good
    assert [f.seq for f in verdict.findings if f.severity == "order" and "zz" in f.reason] == [3]
